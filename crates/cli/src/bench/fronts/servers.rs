//! Servers: ours, each a process of its own with an array of memory, and the others'.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::programs;

use super::clients::{Target, Work};

/// What loads stay in, from the start of each disk.
pub(super) const AREA_MIB: u64 = 128;
/// What a server's disk has.
const DISK_MIB: u64 = 160;
/// Two members, and room for what md keeps on each.
const MEMBER_MIB: u64 = 96;
/// How long a server may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

/// Where servers work.
pub(super) struct Host {
    folder: TempDir,
    path: String,
    /// Servers that were begun: each has names of its own.
    begun: Cell<u32>,
}

/// A server that runs until this is dropped.
pub(super) struct Served {
    target: Target,
    /// Ends in this order.
    _alive: Vec<End>,
}

/// What ends with a server.
enum End {
    /// A command does that.
    By(Command),
    /// A program that is killed.
    Of(Child),
}

impl Host {
    pub(super) fn new() -> std::io::Result<Self> {
        let folder = TempDir::with_prefix("mdspace-fronts-")?;
        Ok(Self { folder, path: programs::path(), begun: Cell::new(0) })
    }

    /// A path that nothing has yet.
    fn new_path(&self, suffix: &str) -> PathBuf {
        self.begun.set(self.begun.get() + 1);
        self.folder.path().join(format!("{}{suffix}", self.begun.get()))
    }

    fn new_folder(&self) -> Result<PathBuf, String> {
        let folder = self.new_path("");
        fs::create_dir(&folder).map_err(|error| error.to_string())?;
        Ok(folder)
    }

    pub(super) fn command(&self, program: &str) -> Command {
        programs::command(program, &self.path, self.folder.path())
    }

    /// Wants a program on this host; the error says how it is had.
    pub(super) fn want(&self, program: &str, package: &str) -> Result<(), String> {
        match programs::is_on(&self.path, program) {
            true => Ok(()),
            false => Err(format!(
                "there is no {program} here: `apt install {package}`, or tools/fetch in the source tree"
            )),
        }
    }

    /// A program of the source tree's examples.
    pub(super) fn example(&self, name: &str) -> Result<Command, String> {
        let example = programs::example(name).ok_or_else(|| {
            format!(
                "there is no {name} beside this program: in the source tree \
                 `cargo build --release -p mdspace-front --examples` gives it"
            )
        })?;
        Ok(self.command(&example.display().to_string()))
    }

    /// Runs a program that must succeed; gives what it printed.
    pub(super) fn succeed(
        &self,
        program: &str,
        words: &[impl AsRef<OsStr>],
    ) -> Result<String, String> {
        let output = self.command(program).args(words).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("{program}: {}: {}", output.status, said.trim()))
            }
        }
    }

    /// Starts a server, and waits until `is_ready`.
    fn start(&self, mut command: Command, is_ready: impl Fn() -> bool) -> Result<End, String> {
        let program = command.get_program().display().to_string();
        let log = self.new_path(".log");
        let said = File::create(&log).map_err(|error| error.to_string())?;
        let child = command.stdout(Stdio::null()).stderr(said).spawn();
        let mut child = child.map_err(|error| format!("{program}: {error}"))?;
        let begun = Instant::now();
        while !is_ready() {
            let ended = child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || begun.elapsed() > PATIENCE {
                drop(End::Of(child));
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("{program} serves nothing: {}", said.trim()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(End::Of(child))
    }

    /// Makes an array of two such members, with a front; gives its name, and what stops it.
    fn create(&self, front: &str, member: &str) -> Result<(String, End), String> {
        self.begun.set(self.begun.get() + 1);
        // Names of block devices are the whole host's.
        let name = format!("fronts-{}-{}", std::process::id(), self.begun.get());
        let member = format!("{member}:{MEMBER_MIB}M");
        let words = ["create", &name, "--level=0", "--raid-devices=2", "--run", "--keep-nothing"];
        let serve = format!("--serve={front}");
        self.succeed("mdspace", &[&words[..], &[&serve, &member, &member]].concat())?;
        let mut stop = self.command("mdspace");
        stop.args(["stop", &name, "--force"]);
        Ok((name, End::By(stop)))
    }
}

/// Ours.
impl Served {
    pub(super) fn nbd(host: &Host) -> Result<Self, String> {
        let socket = host.new_path(".nbd");
        let (_, stop) = host.create(&format!("nbd:unix:{}", socket.display()), "ram")?;
        Ok(Self { target: Target::nbd(&socket), _alive: vec![stop] })
    }

    pub(super) fn fuse(host: &Host, way: Way) -> Result<Self, String> {
        let folder = host.new_folder()?;
        let _switched = Switched::to(way)?;
        let (name, stop) = host.create(&format!("fuse:{}", folder.display()), "ram")?;
        Ok(Self { target: Target::File(folder.join(name)), _alive: vec![stop] })
    }

    pub(super) fn loop_device(host: &Host, way: Way) -> Result<Self, String> {
        let _switched = Switched::to(way)?;
        let (name, stop) = host.create("loop", "ram")?;
        let device = Path::new("/dev/mdspace").join(name);
        Ok(Self { target: Target::File(device), _alive: vec![stop] })
    }

    /// With members of this kind.
    pub(super) fn vhost_user(host: &Host, member: &str) -> Result<Self, String> {
        let socket = host.new_path(".guest");
        let (_, stop) = host.create(&format!("vhost-user:{}", socket.display()), member)?;
        Ok(Self { target: Target::VhostUser(socket), _alive: vec![stop] })
    }
}

/// The others'.
impl Served {
    pub(super) fn nbdkit(host: &Host) -> Result<Self, String> {
        host.want("nbdkit", "nbdkit")?;
        let socket = host.new_path(".nbdkit");
        let mut command = host.command("nbdkit");
        command.args(["--foreground", "--unix"]).arg(&socket);
        command.arg(nbdkit_plugin("memory")).arg(format!("{DISK_MIB}M"));
        let server = host.start(command, || socket.exists())?;
        Ok(Self { target: Target::nbd(&socket), _alive: vec![server] })
    }

    pub(super) fn fuser(host: &Host) -> Result<Self, String> {
        let folder = host.new_folder()?;
        let mut command = host.example("fuser_ram")?;
        command.arg(&folder).arg(DISK_MIB.to_string());
        let file = folder.join("ram");
        let server = host.start(command, || file.exists())?;
        let mut unmount = host.command("umount");
        unmount.arg(&folder);
        Ok(Self { target: Target::File(file), _alive: vec![End::By(unmount), server] })
    }

    pub(super) fn loop_on_fuser(host: &Host) -> Result<Self, String> {
        host.want("losetup", "mount")?;
        let Self { target, _alive: mut alive } = Self::fuser(host)?;
        let Target::File(file) = &target else { unreachable!("fuser serves a file") };
        let file = file.display().to_string();
        let device = host.succeed("losetup", &["--find", "--show", "--direct-io=on", &file])?;
        let device = device.trim().to_owned();
        let mut detach = host.command("losetup");
        detach.args(["--detach", &device]);
        alive.insert(0, End::By(detach));
        Ok(Self { target: Target::File(device.into()), _alive: alive })
    }

    /// A disk of zeroes.
    pub(super) fn storage_daemon_of_zeroes(host: &Host) -> Result<Self, String> {
        let size = DISK_MIB << 20;
        Self::storage_daemon(host, &format!("driver=null-co,read-zeroes=on,size={size}"))
    }

    /// A file in memory.
    pub(super) fn storage_daemon_of_memory(host: &Host) -> Result<Self, String> {
        let file = PathBuf::from(format!("/dev/shm/mdspace-fronts-{}", std::process::id()));
        let made = File::create(&file).and_then(|made| made.set_len(DISK_MIB << 20));
        made.map_err(|error| format!("{}: {error}", file.display()))?;
        let mut remove = host.command("rm");
        remove.arg(&file);
        let remove = End::By(remove);
        let mut served = Self::storage_daemon(
            host,
            &format!("driver=file,aio=io_uring,filename={}", file.display()),
        )?;
        served._alive.push(remove);
        Ok(served)
    }

    fn storage_daemon(host: &Host, disk: &str) -> Result<Self, String> {
        host.want("qemu-storage-daemon", "qemu-utils")?;
        let socket = host.new_path(".qemu");
        let disk = format!("{disk},node-name=disk");
        let export = format!(
            "type=vhost-user-blk,id=guest,node-name=disk,writable=on,num-queues=1,\
             addr.type=unix,addr.path={}",
            socket.display()
        );
        let mut command = host.command("qemu-storage-daemon");
        command.args(["--blockdev", &disk, "--export", &export]);
        let server = host.start(command, || socket.exists())?;
        Ok(Self { target: Target::VhostUser(socket), _alive: vec![server] })
    }
}

impl Served {
    /// Writes all that loads will touch.
    pub(super) fn filled(self, host: &Host) -> Result<Self, String> {
        self.target.fill(host).map(|()| self)
    }

    /// Loads it; gives the requests of a second.
    pub(super) fn load(&self, host: &Host, work: Work) -> Result<f64, String> {
        self.target.load(host, work)
    }
}

/// A plugin's name, or its file where nbdkit is unpacked, which looks for it elsewhere.
fn nbdkit_plugin(name: &str) -> PathBuf {
    let place = format!(
        "root/usr/lib/{}-linux-gnu/nbdkit/plugins/nbdkit-{name}-plugin.so",
        std::env::consts::ARCH
    );
    let unpacked = programs::unpacked().map(|tools| tools.join(place));
    unpacked.filter(|file| file.is_file()).unwrap_or_else(|| name.into())
}

/// How the kernel hands requests of a mounted file over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By reads of `/dev/fuse`.
    Device,
    /// Through io_uring.
    Ring,
}

/// The kernel's word for mounts that are made while this lives; the one before stands there again afterwards.
struct Switched {
    before: Option<String>,
}

impl Switched {
    const PLACE: &str = "/sys/module/fuse/parameters/enable_uring";

    fn to(way: Way) -> Result<Self, String> {
        let there = fs::read_to_string(Self::PLACE);
        let (before, word) = match (there, way) {
            (Err(_), Way::Device) => return Ok(Self { before: None }),
            (Err(_), Way::Ring) => {
                return Err("FUSE over io_uring needs Linux 6.14, with CONFIG_FUSE_IO_URING".into());
            }
            (Ok(before), Way::Device) => (before, "N"),
            (Ok(before), Way::Ring) => (before, "Y"),
        };
        if before.trim() == word {
            return Ok(Self { before: None });
        }
        let write = fs::write(Self::PLACE, word);
        write.map_err(|error| format!("`echo {word} > {}`: {error}", Self::PLACE))?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = fs::write(Self::PLACE, before)
        {
            tracing::warn!(%error, "{} stays as the measurement set it", Self::PLACE);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // What has ended already ends no second time.
        match self {
            Self::By(command) => drop(command.output()),
            Self::Of(child) => drop((child.kill(), child.wait())),
        }
    }
}
