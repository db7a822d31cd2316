//! A Linux kernel of its own for one script: User-Mode Linux, or a distribution's kernel under QEMU.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Tools;

/// One boot to come.
pub(crate) struct Guest {
    machine: Machine,
    disks: Vec<PathBuf>,
    share: Option<PathBuf>,
    vhost_user: Option<PathBuf>,
    limit_s: u32,
    xstate_always: bool,
}

/// What boots.
enum Machine {
    /// By `tools/run-in-uml.sh`.
    UserModeLinux,
    /// By `tools/run-in-qemu.sh`: the host's programs on another kernel.
    Qemu,
    /// So too, but the whole system that is on this disk.
    System(PathBuf),
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
        Self::of(Machine::UserModeLinux, 120)
    }

    /// One of a distribution's kernel, of two CPUs. It may be emulated, so it has ten minutes.
    pub(crate) fn qemu() -> Self {
        Self::of(Machine::Qemu, 600)
    }

    /// A whole system, which boots from a disk as `tools/make-guest-disk` makes one, and is shut down after the script.
    pub(crate) fn system(disk: &Path) -> Self {
        Self::of(Machine::System(disk.to_owned()), 1800)
    }

    fn of(machine: Machine, limit_s: u32) -> Self {
        let (disks, share, vhost_user) = (Vec::new(), None, None);
        Self { machine, disks, share, vhost_user, limit_s, xstate_always: false }
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

    /// Attaches what is served at a socket of vhost-user as a disk: `/dev/vda`, under QEMU `$U0`.
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

    /// Boots, runs the script after `guest.sh`, and waits for the end. `mdspace` is on its PATH, but in a whole system.
    pub(crate) fn run(&self, script: &str) -> Outcome {
        let tools = Tools::find();
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let prelude = include_str!("guest.sh");
        let place = self.machine.place();
        std::fs::write(file.path(), format!("{prelude}\n{place}\n{script}\n"))
            .expect("a temporary file");
        let (mut command, _cpu) = match &self.machine {
            Machine::UserModeLinux => {
                let (cpu, held) = tools.cpu_without_guest();
                (self.run_in_uml(cpu), Some(held))
            }
            Machine::Qemu => (tools.run_in_qemu(), None),
            Machine::System(disk) => {
                let mut command = tools.run_in_qemu();
                command.arg("-r").arg(disk);
                (command, None)
            }
        };
        command.args(["-t", &self.limit_s.to_string()]);
        if let Some(share) = &self.share {
            command.arg("-d").arg(share);
        }
        if let Some(socket) = &self.vhost_user {
            command.arg("-u").arg(socket);
        }
        command.arg(file.path()).args(&self.disks).stdin(Stdio::null());
        let output = command.output().expect("the script that boots it runs");
        let status = output.status.code().unwrap_or(125);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.stderr.is_empty() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Outcome { status, printed }
    }

    fn run_in_uml(&self, cpu: usize) -> Command {
        let mut command = Tools::find().run_in_uml(cpu);
        command.env("UML_XSTATE", xstate_library());
        if self.xstate_always {
            command.env("UML_XSTATE_ALWAYS", "yes");
        }
        command
    }

    /// Runs a script that must succeed and returns what it printed.
    pub(crate) fn succeed(&self, script: &str) -> String {
        let outcome = self.run(script);
        let Outcome { status, printed } = &outcome;
        assert!(*status == 0, "the guest script ended with {status}; it printed:\n{printed}");
        outcome.printed
    }
}

impl Machine {
    /// Where a script finds the program, and the program its arrays.
    fn place(&self) -> String {
        let programs = Path::new(env!("CARGO_BIN_EXE_mdspace")).parent().expect("a folder");
        match self {
            Self::UserModeLinux | Self::Qemu => format!("PATH=$PATH:'{}'", programs.display()),
            Self::System(_) => "unset MDSPACE_RUN_DIR".to_owned(),
        }
    }
}

/// What User-Mode Linux needs where the processor has AMX. Cargo builds it beside this program.
fn xstate_library() -> PathBuf {
    let own = env::current_exe().expect("this program lies somewhere");
    own.with_file_name("libmdspace_uml_xstate.so")
}
