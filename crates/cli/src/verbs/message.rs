//! `mdspace message`.

use super::{Outcome, ask};
use crate::args::{MemberSpec, MessageArgs};
use crate::control::Request;

/// Sends a message to a multipath device or member.
pub(crate) fn run(args: &MessageArgs) -> Outcome {
    let member = args.member.as_ref().map(MemberSpec::absolute).transpose()?;
    let words = args.words.clone();
    ask(&args.name, &Request::Message { member, words })
}
