//! A Linux kernel of its own for one script: User-Mode Linux, booted by `tools/run-in-uml.sh`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::Tools;

/// One boot to come.
pub(crate) struct Guest {
    disks: Vec<PathBuf>,
    share: Option<PathBuf>,
    vhost_user: Option<PathBuf>,
    limit_s: u32,
    xstate_always: bool,
}

/// How the script ended and what it printed.
pub(crate) struct Outcome {
    /// The script's own status; 124 out of time, 125 a dead kernel.
    pub(crate) status: i32,
    /// What the script printed on stdout and stderr.
    pub(crate) printed: String,
}

impl Guest {
    /// A guest without disks, two minutes to run.
    pub(crate) fn new() -> Self {
        let (disks, share, vhost_user) = (Vec::new(), None, None);
        Self { disks, share, vhost_user, limit_s: 120, xstate_always: false }
    }

    /// Attaches images as `$D0`, `$D1`, ...: a write that the guest saw complete survives its crash.
    pub(crate) fn disks(mut self, images: &[PathBuf]) -> Self {
        self.disks = images.to_vec();
        self
    }

    /// Shows a host folder as `$SHARE`.
    pub(crate) fn share(mut self, folder: &Path) -> Self {
        self.share = Some(folder.to_owned());
        self
    }

    /// Attaches what is served at a socket of vhost-user as `/dev/vda`.
    pub(crate) fn vhost_user(mut self, socket: &Path) -> Self {
        self.vhost_user = Some(socket.to_owned());
        self
    }

    /// Gives the script more time.
    pub(crate) fn limit_s(mut self, seconds: u32) -> Self {
        self.limit_s = seconds;
        self
    }

    /// Preloads the library for AMX on any processor.
    pub(crate) fn xstate_always(mut self) -> Self {
        self.xstate_always = true;
        self
    }

    /// Boots, runs the script after `guest.sh`, and waits for the end. `mdspace` is on its PATH.
    pub(crate) fn run(&self, script: &str) -> Outcome {
        let tools = Tools::find();
        let (cpu, _held) = tools.cpu_without_guest();
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let prelude = include_str!("guest.sh");
        let programs = Path::new(env!("CARGO_BIN_EXE_mdspace")).parent().expect("a folder");
        let path = format!("PATH=$PATH:'{}'", programs.display());
        std::fs::write(file.path(), format!("{prelude}\n{path}\n{script}\n"))
            .expect("a temporary file");
        let mut command = tools.run_in_uml(cpu);
        command.args(["-t", &self.limit_s.to_string()]).env("UML_XSTATE", xstate_library());
        if self.xstate_always {
            command.env("UML_XSTATE_ALWAYS", "yes");
        }
        if let Some(share) = &self.share {
            command.arg("-d").arg(share);
        }
        if let Some(socket) = &self.vhost_user {
            command.arg("-u").arg(socket);
        }
        command.arg(file.path()).args(&self.disks).stdin(Stdio::null());
        let output = command.output().expect("tools/run-in-uml.sh runs");
        let status = output.status.code().unwrap_or(125);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.stderr.is_empty() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Outcome { status, printed }
    }

    /// Runs a script that must succeed and returns what it printed.
    pub(crate) fn succeed(&self, script: &str) -> String {
        let outcome = self.run(script);
        let Outcome { status, printed } = &outcome;
        assert!(*status == 0, "the guest script ended with {status}; it printed:\n{printed}");
        outcome.printed
    }
}

/// What User-Mode Linux needs where the processor has AMX. Cargo builds it beside this program.
fn xstate_library() -> PathBuf {
    let own = env::current_exe().expect("this program lies somewhere");
    own.with_file_name("libmdspace_uml_xstate.so")
}
