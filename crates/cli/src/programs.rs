//! Where the programs of others are: those of this host, and those that `tools/fetch` has unpacked.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where `tools/fetch` unpacks programs: `$MDSPACE_TOOLS`, or beside this program in its `target`.
pub(crate) fn unpacked() -> Option<PathBuf> {
    env::var_os("MDSPACE_TOOLS").map(PathBuf::from).or_else(|| {
        let own = env::current_exe().ok()?;
        Some(own.parent()?.parent()?.join("tools"))
    })
}

/// A program of the source tree's examples, where they were built beside this one.
pub(crate) fn example(name: &str) -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    let example = own.parent()?.join("examples").join(name);
    example.is_file().then_some(example)
}

/// PATH, the administrators' folders, and the programs that are unpacked.
pub(crate) fn path() -> String {
    let mut path = env::var("PATH").unwrap_or_default();
    path.push_str(":/usr/local/sbin:/usr/sbin:/sbin");
    if let Some(tools) = unpacked() {
        path.push_str(&format!(":{}", tools.join("bin").display()));
    }
    path
}

/// Whether a program is on such a path.
pub(crate) fn is_on(path: &str, program: &str) -> bool {
    path.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// Runs a program of such a path beside the arrays of one run directory. mdspace is this very program.
pub(crate) fn command(program: &str, path: &str, run_dir: &Path) -> Command {
    let program = match (program, env::current_exe()) {
        ("mdspace", Ok(own)) => own,
        (other, _) => other.into(),
    };
    let mut command = Command::new(program);
    command.env("PATH", path).env("MDSPACE_RUN_DIR", run_dir).env_remove("MDSPACE_STATE_DIR");
    command.stdin(Stdio::null());
    command
}
