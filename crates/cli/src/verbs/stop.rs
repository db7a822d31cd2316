//! `mdspace stop`.

use super::Outcome;
use crate::args::StopArgs;
use crate::control::client::{Client, ENDS_WITHIN};
use crate::control::{Reply, Request};
use crate::failure::Failure;
use crate::output;
use crate::run_dir::RunDir;

/// Stops an array.
pub(crate) fn run(args: &StopArgs) -> Outcome {
    output::end(&stop(args)?, Ok(()))
}

/// Stops an array; returns once its process has let go of the members. Gives lines for the user.
pub(super) fn stop(args: &StopArgs) -> Result<Vec<String>, Failure> {
    let (run_dir, name) = (RunDir::open()?, &args.name);
    let mut client = Client::connect(&run_dir, name).map_err(|failure| by_kill(failure, args))?;
    let reply = client.ask(&Request::Stop { force: args.force });
    let reply = reply.map_err(|failure| by_kill(failure, args))?;
    let unseen = |why: String| {
        let cure = format!("look for it with {}", look(client.pid()));
        Failure::of_silence(format!("stopped {name}, but its process does not end"), why, cure)
    };
    match run_dir.wait_until_gone(name, ENDS_WITHIN) {
        Ok(true) => {}
        Ok(false) => {
            return Err(unseen(format!("it was there for {} s more", ENDS_WITHIN.as_secs())));
        }
        Err(error) => return Err(unseen(error.to_string())),
    }
    match reply {
        Reply::Done { notes } => Ok(notes),
        _ => Ok(Vec::new()),
    }
}

/// By force, the user wants the array to end: a process that does not answer ends by a kill alone.
fn by_kill(failure: Failure, args: &StopArgs) -> Failure {
    if !args.force || !failure.is_of_silence() {
        return failure;
    }
    let cure = format!(
        "{}; to end it as a crash would, `kill -KILL` it: what was acknowledged is kept, and the next \
         assembly resyncs",
        failure.cure
    );
    Failure { cure, ..failure }
}

fn look(pid: Option<i32>) -> String {
    pid.map_or_else(|| "`ps`".to_owned(), |pid| format!("`ps -p {pid}`"))
}
