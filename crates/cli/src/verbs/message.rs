//! `mdspace message`.

use super::{Outcome, ask};
use crate::args::MessageArgs;
use crate::control::Request;

/// Sends a message to a multipath device or member.
pub(crate) fn run(args: &MessageArgs) -> Outcome {
    let (member, words) = (args.member.clone(), args.words.clone());
    ask(&args.name, &Request::Message { member, words })
}
