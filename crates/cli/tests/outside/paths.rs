//! Servers that others wrote: nbdkit and qemu-nbd, on Unix sockets and TCP. Multipath over them, killed and
//! stopped under our hands; and an array that they would lead to itself.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::harness::{Images, MIB, Mdspace, Nbd, Request, Tools, path_text, until};

const BYTES: u64 = 8 * MIB;
const BLOCK: usize = 4096;

#[derive(Clone, Copy, Debug)]
enum Program {
    Nbdkit,
    QemuNbd,
}

/// Where a server listens.
#[derive(Clone, Debug)]
enum Place {
    Unix(PathBuf),
    Tcp(u16),
}

impl Place {
    fn uri(&self) -> String {
        match self {
            Self::Unix(path) => format!("nbd+unix://{}", path.display()),
            Self::Tcp(port) => format!("nbd://127.0.0.1:{port}/"),
        }
    }

    fn answers(&self) -> bool {
        match self {
            Self::Unix(path) => UnixStream::connect(path).is_ok(),
            Self::Tcp(port) => TcpStream::connect(("127.0.0.1", *port)).is_ok(),
        }
    }
}

/// What a server serves.
#[derive(Clone, Copy)]
enum Source<'a> {
    File(&'a Path),
    /// The default export at a socket.
    Export(&'a Path),
}

/// A server. It dies with the value.
struct Server {
    child: Child,
    place: Place,
}

impl Server {
    fn start(program: Program, place: Place, source: Source<'_>) -> Self {
        let tools = Tools::find();
        let mut command = match program {
            Program::Nbdkit => {
                let mut command = tools.command("nbdkit");
                command.args(["--foreground", "--exit-with-parent", "--threads=8"]);
                match &place {
                    Place::Unix(path) => command.arg("--unix").arg(path),
                    Place::Tcp(port) => command.args(["-i", "127.0.0.1", "-p", &port.to_string()]),
                };
                match source {
                    Source::File(file) => {
                        command.arg(nbdkit_plugin(tools, "file"));
                        command.arg(format!("file={}", path_text(file)))
                    }
                    Source::Export(socket) => {
                        command.arg(nbdkit_plugin(tools, "nbd"));
                        command.arg(format!("socket={}", path_text(socket)))
                    }
                };
                command
            }
            Program::QemuNbd => {
                let mut command = tools.command("qemu-nbd");
                command.args(["--persistent", "--shared=0", "--image-opts"]);
                match &place {
                    Place::Unix(path) => command.arg("-k").arg(path),
                    Place::Tcp(port) => command.args(["-b", "127.0.0.1", "-p", &port.to_string()]),
                };
                command.arg(match source {
                    Source::File(file) => {
                        let file = path_text(file);
                        format!("driver=raw,file.driver=file,file.filename={file},file.locking=off")
                    }
                    Source::Export(socket) => {
                        let socket = path_text(socket);
                        format!("driver=raw,file.driver=nbd,file.path={socket}")
                    }
                });
                command
            }
        };
        let child = command.stdin(Stdio::null()).spawn().expect("the server starts");
        until("the server answers", || place.answers());
        Self { child, place }
    }

    fn pid(&self) -> Pid {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.expect("a process number")
    }

    /// Returns when the last of its threads stands: until then any of them may answer.
    fn halt(&self) {
        kill_process(self.pid(), Signal::STOP).expect("it is there");
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("it stops");
    }

    fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).expect("it is there");
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is there");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that is gone already is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The host's nbdkit finds its plugin by name, the fetched one by its place.
fn nbdkit_plugin(tools: &Tools, name: &str) -> String {
    let file = format!("usr/lib/x86_64-linux-gnu/nbdkit/plugins/nbdkit-{name}-plugin.so");
    let fetched = tools.root().join(file);
    if fetched.exists() { path_text(&fetched).to_owned() } else { name.into() }
}

/// A device over two servers of one file.
struct Device {
    mdspace: Mdspace,
    servers: [Server; 2],
    _images: Images,
}

impl Device {
    fn new(program: Program, tcp: bool) -> Self {
        let (mdspace, images) = (Mdspace::new(), Images::new());
        let file = images.sparse("d", 1, BYTES).remove(0);
        // Of a blank device one path is used.
        let disk = std::fs::File::options().write(true).open(&file).expect("a disk");
        std::os::unix::fs::FileExt::write_all_at(&disk, &block(1, 0), 0).expect("written");
        let place = |number: usize| match tcp {
            true => Place::Tcp(free_port()),
            false => Place::Unix(mdspace.run_dir().join(format!("server{number}"))),
        };
        let servers =
            [0, 1].map(|number| Server::start(program, place(number), Source::File(&file)));
        let device = Self { mdspace, servers, _images: images };
        device.serve();
        device
    }

    /// Paths whose fences wait for the end of their server's process.
    fn serve(&self) {
        let path = |server: &Server| {
            let fence = format!("while kill -0 {} 2>&-; do sleep 0.01; done", server.child.id());
            format!("[[group.path]]\nmember = \"{}\"\nfence = \"{fence}\"\n", server.place.uri())
        };
        let times = "polling_interval = 0.2\nno_path_retry = 300\nread_deadline = 1\n";
        let text = format!(
            "{times}write_deadline = 1\n[[group]]\nselector = \"round-robin\"\n{}{}",
            path(&self.servers[0]),
            path(&self.servers[1])
        );
        let file = self.mdspace.run_dir().join("top.toml");
        std::fs::write(&file, text).expect("a file");
        let file = format!("--file={}", path_text(&file));
        self.mdspace.succeed(&["multipath", "top", &file, &self.mdspace.serve("top")]);
    }

    fn unproved(&self) -> Vec<u64> {
        let report = self.mdspace.report("top");
        let ranges = report["multipath"]["unproved"].as_array().expect("ranges").clone();
        ranges.iter().map(|range| range["first_sector"].as_u64().expect("a sector") * 512).collect()
    }

    /// Stops the first server while two blocks are written: one of the writes lies in its socket, and is
    /// done over the other path. Where on the device that one goes.
    fn stop_with_a_late_write(&self, user: &mut Nbd) -> u64 {
        user.write(0, &block(0, 1));
        self.servers[0].halt();
        user.write(0, &block(0, 2));
        user.write(BLOCK as u64, &block(1, 2));
        assert!(user.read(0, BLOCK as u32) == block(0, 2), "reads go on");
        let unproved = self.unproved();
        assert_eq!(unproved.len(), 1, "{unproved:?}");
        unproved[0]
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn block(at: u64, round: u8) -> Vec<u8> {
    let mut bytes = vec![round; BLOCK];
    bytes[..8].copy_from_slice(&at.to_le_bytes());
    bytes
}

/// A server is killed under load: no error reaches the user, no byte differs.
fn a_killed_server_is_not_noticed(program: Program, tcp: bool) {
    let mut device = Device::new(program, tcp);
    let mut user = device.mdspace.connect("top");
    let mut longest = Duration::ZERO;
    for round in 1..=40u8 {
        if round == 20 {
            device.servers[0].kill();
        }
        for at in 0..32u64 {
            let began = Instant::now();
            user.write(at * BLOCK as u64, &block(at, round));
            longest = longest.max(began.elapsed());
        }
        for at in 0..32u64 {
            let began = Instant::now();
            assert!(user.read(at * BLOCK as u64, BLOCK as u32) == block(at, round), "{program:?}");
            longest = longest.max(began.elapsed());
        }
    }
    // On the simulated clock it is under a second; here the machine may be busy.
    println!("{program:?}, tcp {tcp}: the longest pause was {longest:?}");
    assert!(longest < Duration::from_secs(30), "{program:?}: {longest:?}");
}

/// A server is stopped, a write lies in its socket, is done over the other path, and is followed by a
/// newer one when the server goes on: nothing old appears.
fn a_stopped_server_never_overwrites_what_is_newer(program: Program, tcp: bool) {
    let device = Device::new(program, tcp);
    let mut user = device.mdspace.connect("top");
    let late = device.stop_with_a_late_write(&mut user);
    let mut other = device.mdspace.connect("top");
    let newer = thread::spawn(move || other.write(late, &block(7, 9)));
    user.write(16 * BLOCK as u64, &block(16, 3));
    assert!(user.read(late, BLOCK as u32) != block(7, 9), "{program:?}: the newer one waits");
    device.servers[0].go_on();
    newer.join().expect("the newer one is written");
    for _ in 0..50 {
        assert!(
            user.read(late, BLOCK as u32) == block(7, 9),
            "{program:?}: something old appeared"
        );
    }
    until("everything is proved", || device.unproved().is_empty());
    assert!(user.read(late, BLOCK as u32) == block(7, 9), "{program:?}");
}

/// The process is killed while a write lies in a stopped server's socket. The next one does not know which,
/// so nothing is written, also when the server goes on, until the operator says that both paths are fenced.
fn a_restart_does_not_forget_what_may_appear(program: Program, tcp: bool) {
    let device = Device::new(program, tcp);
    let mut user = device.mdspace.connect("top");
    let late = device.stop_with_a_late_write(&mut user);
    drop(user);
    device.mdspace.kill();

    device.serve();
    assert_eq!(device.unproved(), [0, 0], "{program:?}: after a restart");
    let (mut user, mut other) = (device.mdspace.connect("top"), device.mdspace.connect("top"));
    let newer = thread::spawn(move || other.write(late, &block(7, 9)));
    device.servers[0].go_on();
    for server in &device.servers {
        assert!(!newer.is_finished(), "{program:?}: the newer one waits");
        let path = server.place.uri();
        device.mdspace.succeed(&["message", "top", "fail_path", &path, "--fenced"]);
        device.mdspace.succeed(&["message", "top", "reinstate_path", &path]);
    }
    newer.join().expect("the newer one is written");
    assert!(user.read(late, BLOCK as u32) == block(7, 9), "{program:?}");
    assert_eq!(device.unproved(), [0; 0]);
}

#[test]
fn nbdkit_may_be_killed_and_stopped_on_unix_sockets() {
    a_restart_does_not_forget_what_may_appear(Program::Nbdkit, false);
    a_killed_server_is_not_noticed(Program::Nbdkit, false);
    a_stopped_server_never_overwrites_what_is_newer(Program::Nbdkit, false);
}

#[test]
fn nbdkit_may_be_killed_and_stopped_over_tcp() {
    a_killed_server_is_not_noticed(Program::Nbdkit, true);
    a_stopped_server_never_overwrites_what_is_newer(Program::Nbdkit, true);
}

#[test]
fn qemu_nbd_may_be_killed_and_stopped_on_unix_sockets() {
    a_killed_server_is_not_noticed(Program::QemuNbd, false);
    a_stopped_server_never_overwrites_what_is_newer(Program::QemuNbd, false);
}

#[test]
fn qemu_nbd_may_be_killed_and_stopped_over_tcp() {
    a_restart_does_not_forget_what_may_appear(Program::QemuNbd, true);
    a_killed_server_is_not_noticed(Program::QemuNbd, true);
    a_stopped_server_never_overwrites_what_is_newer(Program::QemuNbd, true);
}

/// A process writes, and is killed. Its server cannot make that durable, and tells the first flush alone.
#[test]
fn an_error_of_the_first_flush_is_told_to_a_client_and_not_to_the_start() {
    let (mdspace, images) = (Mdspace::new(), Images::new());
    let file = images.sparse("d", 1, BYTES).remove(0);
    let socket = mdspace.run_dir().join("server");
    let rule = "file.inject-error.0";
    let child = Tools::find()
        .command("qemu-nbd")
        .args(["--persistent", "--shared=0", "--image-opts", "-k", path_text(&socket)])
        .arg(format!(
            "driver=raw,file.driver=blkdebug,{rule}.event=flush_to_disk,{rule}.errno=5,{rule}.once=on,\
             file.image.driver=file,file.image.filename={},file.image.locking=off",
            path_text(&file)
        ))
        .stdin(Stdio::null())
        .spawn()
        .expect("the server starts");
    let server = Server { child, place: Place::Unix(socket) };
    until("the server answers", || server.place.answers());
    let table =
        format!("0 {} multipath 0 0 1 1 round-robin 0 1 0 {}", BYTES / 512, server.place.uri());
    let start = || {
        let table = format!("--dm-table={table}");
        mdspace.succeed(&["multipath", "top", &table, &mdspace.serve("top")]);
        mdspace.connect("top")
    };
    start().write(0, &block(1, 1));
    mdspace.kill();
    let mut user = start();
    let mut flush = || {
        user.submit(&Request::Flush).expect("sent");
        user.receive().expect("an answer").error
    };
    assert_eq!([flush(), flush()], [5, 0], "the error is told once");
}

#[test]
fn an_array_does_not_take_itself_over_servers_that_others_wrote() {
    for program in [Program::Nbdkit, Program::QemuNbd] {
        let (mdspace, images) = (Mdspace::new(), Images::new());
        let create = |name: &str, words: &[&str], members: &[&str]| {
            let serve = mdspace.serve(name);
            mdspace.succeed(&[&["create", name, "--run", &serve], words, members].concat());
            mdspace.socket(name)
        };
        let serve_again = |name: &str, socket: &Path| {
            let place = Place::Unix(mdspace.run_dir().join(name));
            Server::start(program, place, Source::Export(socket))
        };
        let level5 = ["--level=5", "--raid-devices=3", "--size=2M", "--assume-clean"];
        let files = images.sparse("f", 6, BYTES);
        let files: Vec<&str> = files.iter().map(|file| path_text(file)).collect();
        let data = create("data", &level5, &files[..3]);
        let server = serve_again("again", &data);
        let again = &*server.place.uri();
        let refused = |words: &[&str]| {
            let done = mdspace.run(words);
            assert!(done.status != 0, "{program:?}: {done:#?}");
            assert!(done.err.contains("leads back to the array itself"), "{program:?}: {done:#?}");
        };
        refused(&["add", "data", "--run", again]);
        refused(&["replace", "data", files[0], "--run", "--with", again]);
        // Over an array whose member it is, and a second server.
        let other = create("other", &["--level=linear", "--raid-devices=1", "--force"], &[again]);
        let once_more = serve_again("once-more", &other);
        refused(&["add", "data", "--run", &once_more.place.uri()]);
        // While a client reads all the time, that and no more is refused.
        let reading = Arc::new(AtomicBool::new(true));
        let (mut user, goes_on) = (mdspace.connect("data"), reading.clone());
        let reader = thread::spawn(move || {
            while goes_on.load(Ordering::Relaxed) {
                (0..user.bytes).step_by(BLOCK).for_each(|at| drop(user.read(at, BLOCK as u32)));
            }
        });
        refused(&["add", "data", "--run", &once_more.place.uri()]);
        let apart = serve_again("apart-again", &create("apart", &level5, &files[3..]));
        mdspace.succeed(&["add", "data", "--run", &apart.place.uri()]);
        reading.store(false, Ordering::Relaxed);
        reader.join().expect("every read succeeds");
        for name in ["other", "data", "apart"] {
            mdspace.succeed(&["stop", name, "--force"]);
        }
    }
}
