//! `mdspace add`, `re-add`, `remove` and `fail`.

use super::{Outcome, ask};
use crate::args::{FailArgs, MemberSpec, MembersArgs, RemoveArgs};
use crate::control::Request;
use crate::failure::Failure;

/// Brings members back by bitmap.
pub(crate) fn re_add(args: &MembersArgs) -> Outcome {
    ask(&args.name, &Request::ReAdd { members: absolute(&args.members)? })
}

/// Takes failed members and spares out.
pub(crate) fn remove(args: &RemoveArgs) -> Outcome {
    let members = args.members.iter().map(|word| match word.as_str() {
        "failed" => Ok(word.clone()),
        path => path.parse().map_err(not_a_member(path)).and_then(|member| as_absolute(&member)),
    });
    ask(&args.name, &Request::Remove { members: members.collect::<Result<_, _>>()? })
}

/// Marks members as failed.
pub(crate) fn fail(args: &FailArgs) -> Outcome {
    let members = absolute(&args.on.members)?;
    ask(&args.on.name, &Request::Fail { members, force: args.force })
}

/// Members in the words that the serving process knows them by.
pub(crate) fn absolute(members: &[MemberSpec]) -> Result<Vec<String>, Failure> {
    members.iter().map(as_absolute).collect()
}

/// A path from the root, links kept (`/dev/disk/by-id/...` says more than `/dev/sdb`): the member
/// may be gone, and the process has another working directory.
fn as_absolute(member: &MemberSpec) -> Result<String, Failure> {
    match member {
        MemberSpec::Path(path) => std::path::absolute(path)
            .map(|path| path.display().to_string())
            .map_err(|error| not_a_member(&path.display().to_string())(error)),
        other => Ok(other.to_string()),
    }
}

fn not_a_member<E: ToString>(word: &str) -> impl FnOnce(E) -> Failure {
    move |error| {
        Failure::new(format!("{word:?} is no member"), error, "give a file or a block device")
    }
}
