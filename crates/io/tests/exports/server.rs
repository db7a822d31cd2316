//! Servers of disks in memory.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use mdspace_io::nbd_wire::{self as wire, Fields, Put, command, export_flag, option_reply};

pub(crate) const BYTES: usize = 1 << 20;

/// Sectors of an odd server.
pub(crate) const SILENT_AT: usize = 100;
pub(crate) const HANGS_UP_AT: usize = 101;

pub(crate) type Disk = Arc<Mutex<Vec<u8>>>;

/// A disk whose first superblock says so.
pub(crate) fn disk(salt: u8) -> Disk {
    let mut bytes = vec![0; BYTES];
    bytes[4096..8192].fill(salt);
    Arc::new(Mutex::new(bytes))
}

/// Serves its first connection from the first disk, and so on; the last one serves all later ones.
pub(crate) fn serve(disks: Vec<Disk>) -> (tempfile::TempDir, String) {
    serve_with(export_flag::CAN_MULTI_CONN, disks)
}

pub(crate) fn serve_with(flags: u16, disks: Vec<Disk>) -> (tempfile::TempDir, String) {
    listen(move |at, stream| serve_one(stream, flags, &disks[at.min(disks.len() - 1)]))
}

/// Serves a disk that takes writes and does them. What it reads passes the gate.
pub(crate) fn serve_through(gate: &Arc<Gate>, bytes: usize) -> (tempfile::TempDir, String) {
    serve_limited(&Arc::new(Limits { gate: gate.clone(), ..Limits::default() }), bytes)
}

/// What a server does not do.
pub(crate) struct Limits {
    /// Reads pass it.
    pub(crate) gate: Arc<Gate>,
    /// A new connection passes it before it is greeted.
    pub(crate) door: Gate,
    /// It hangs up on more connections than these at once.
    connections: usize,
    /// It cannot read this sector.
    unreadable: Option<usize>,
    /// It answers no read of [`SILENT_AT`], and hangs up on who reads [`HANGS_UP_AT`].
    is_odd: bool,
    /// Connections that it had no room for.
    turned_away: AtomicUsize,
    /// Those it has.
    connected: Mutex<BTreeMap<usize, UnixStream>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            gate: Arc::default(),
            door: Gate::default(),
            connections: usize::MAX,
            unreadable: None,
            is_odd: false,
            turned_away: AtomicUsize::new(0),
            connected: Mutex::default(),
        }
    }
}

impl Limits {
    pub(crate) fn connections(connections: usize) -> Arc<Self> {
        Arc::new(Self { connections, ..Self::default() })
    }

    pub(crate) fn unreadable(sector: usize) -> Arc<Self> {
        Arc::new(Self { unreadable: Some(sector), ..Self::default() })
    }

    pub(crate) fn odd(connections: usize) -> Arc<Self> {
        Arc::new(Self { connections, is_odd: true, ..Self::default() })
    }

    pub(crate) fn turned_away(&self) -> usize {
        self.turned_away.load(Ordering::Relaxed)
    }

    pub(crate) fn connected(&self) -> usize {
        self.connected.lock().unwrap().len()
    }

    /// Hangs up on the latest connection.
    pub(crate) fn hang_up_on_one(&self) {
        let connected = self.connected.lock().unwrap();
        let (_, latest) = connected.last_key_value().unwrap();
        latest.shutdown(Shutdown::Both).unwrap();
    }

    /// Hangs up on everybody.
    pub(crate) fn hang_up(&self) {
        let connected = self.connected.lock().unwrap();
        connected.values().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
    }

    fn serve(
        &self,
        at: usize,
        mut stream: UnixStream,
        disk: &Mutex<Vec<u8>>,
        bytes: usize,
    ) -> io::Result<()> {
        let mut connected = self.connected.lock().unwrap();
        if connected.len() == self.connections {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        connected.insert(at, stream.try_clone()?);
        drop(connected);
        let served = self.answer(&mut stream, disk, bytes);
        self.connected.lock().unwrap().remove(&at);
        served
    }

    fn answer(
        &self,
        stream: &mut UnixStream,
        disk: &Mutex<Vec<u8>>,
        bytes: usize,
    ) -> io::Result<()> {
        self.door.pass();
        greet(stream, export_flag::CAN_MULTI_CONN, bytes)?;
        loop {
            let request = Request::take(stream)?;
            let range = request.offset..request.offset + request.len;
            match request.kind {
                command::WRITE => {
                    let mut written = vec![0; request.len];
                    stream.read_exact(&mut written)?;
                    disk.lock().unwrap()[range].copy_from_slice(&written);
                    request.answer(stream, &[])?;
                }
                command::READ if self.is_odd && range.start == SILENT_AT * 512 => {}
                command::READ if self.is_odd && range.start == HANGS_UP_AT * 512 => return Ok(()),
                command::READ if self.unreadable.is_some_and(|at| range.contains(&(at * 512))) => {
                    request.refuse(stream, libc::EIO)?;
                }
                command::READ => {
                    self.gate.pass();
                    let read = disk.lock().unwrap()[range].to_vec();
                    request.answer(stream, &read)?;
                }
                _ => return Ok(()),
            }
        }
    }
}

/// As [`serve_through`], within its limits.
pub(crate) fn serve_limited(limits: &Arc<Limits>, bytes: usize) -> (tempfile::TempDir, String) {
    let (limits, disk) = (limits.clone(), Mutex::new(vec![0; bytes]));
    listen(move |at, stream| limits.serve(at, stream, &disk, bytes))
}

/// Serves each connection, with its number, on a thread of its own.
fn listen(
    serve: impl Fn(usize, UnixStream) -> io::Result<()> + Send + Sync + 'static,
) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
            let (Ok(stream), serve) = (stream, serve.clone()) else { return };
            // The client hangs up when it is done.
            std::thread::spawn(move || drop(serve(at, stream)));
        }
    });
    let uri = format!("nbd+unix://{}", path.display());
    (folder, uri)
}

/// Takes writes, and does none of them.
pub(crate) fn serve_one(stream: UnixStream, flags: u16, disk: &Disk) -> io::Result<()> {
    serve_one_with(stream, flags, disk, |stream, bytes| stream.read_exact(&mut vec![0; bytes]))
}

/// `take` takes the bytes of a write from the connection.
pub(crate) fn serve_one_with(
    mut stream: UnixStream,
    flags: u16,
    disk: &Disk,
    take: impl Fn(&mut UnixStream, usize) -> io::Result<()>,
) -> io::Result<()> {
    greet(&mut stream, flags, BYTES)?;
    loop {
        let request = Request::take(&mut stream)?;
        match request.kind {
            command::WRITE => take(&mut stream, request.len)?,
            command::READ => {
                let read = request.offset..request.offset + request.len;
                request.answer(&mut stream, &disk.lock().unwrap()[read])?;
            }
            _ => return Ok(()),
        }
    }
}

fn greet(stream: &mut UnixStream, flags: u16, bytes: usize) -> io::Result<()> {
    let mut greeting = Vec::new();
    greeting.put_u64(wire::INIT_MAGIC);
    greeting.put_u64(wire::OPTION_MAGIC);
    greeting.put_u16(wire::handshake_flag::FIXED_NEWSTYLE | wire::handshake_flag::NO_ZEROES);
    stream.write_all(&greeting)?;
    stream.read_exact(&mut [0; 4])?;
    // The first connection asks for what lies below the export.
    while take_option(stream)? != wire::option::GO {
        let mut answer = Vec::new();
        answer.put_u64(wire::OPTION_REPLY_MAGIC);
        answer.put_u32(wire::option::INFO);
        answer.put_u32(option_reply::ERR_UNKNOWN);
        answer.put_u32(0);
        stream.write_all(&answer)?;
    }
    let mut export = Vec::new();
    export.put_u16(wire::info::EXPORT);
    export.put_u64(bytes as u64);
    export.put_u16(export_flag::HAS_FLAGS | flags);
    for (kind, data) in [(option_reply::INFO, export), (option_reply::ACK, Vec::new())] {
        let mut answer = Vec::new();
        answer.put_u64(wire::OPTION_REPLY_MAGIC);
        answer.put_u32(wire::option::GO);
        answer.put_u32(kind);
        answer.put_u32(wire::length_u32(data.len()));
        answer.extend(data);
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// Reads an option and gives its number.
fn take_option(stream: &mut UnixStream) -> io::Result<u32> {
    let mut head = [0; wire::OPTION_HEADER_BYTES];
    stream.read_exact(&mut head)?;
    let mut fields = Fields(&head[8..]);
    let (option, bytes) = (fields.u32().unwrap(), fields.u32().unwrap());
    stream.read_exact(&mut vec![0; bytes as usize])?;
    Ok(option)
}

struct Request {
    kind: u16,
    cookie: u64,
    offset: usize,
    len: usize,
}

impl Request {
    fn take(stream: &mut UnixStream) -> io::Result<Self> {
        let mut request = [0; wire::REQUEST_HEADER_BYTES];
        stream.read_exact(&mut request)?;
        let mut fields = Fields(&request[6..]);
        let (kind, cookie) = (fields.u16().unwrap(), fields.u64().unwrap());
        let (offset, len) = (fields.u64().unwrap() as usize, fields.u32().unwrap() as usize);
        Ok(Self { kind, cookie, offset, len })
    }

    fn answer(&self, stream: &mut UnixStream, read: &[u8]) -> io::Result<()> {
        self.reply(stream, 0, read)
    }

    fn refuse(&self, stream: &mut UnixStream, errno: i32) -> io::Result<()> {
        self.reply(stream, errno as u32, &[])
    }

    fn reply(&self, stream: &mut UnixStream, errno: u32, read: &[u8]) -> io::Result<()> {
        let mut answer = Vec::new();
        answer.put_u32(wire::SIMPLE_REPLY_MAGIC);
        answer.put_u32(errno);
        answer.put_u64(self.cookie);
        answer.extend_from_slice(read);
        stream.write_all(&answer)
    }
}

/// Holds who would pass as long as it is shut.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    moved: Condvar,
}

#[derive(Default)]
struct GateState {
    is_shut: bool,
    /// So many pass all the same.
    admitted: usize,
    waiting: usize,
}

impl Gate {
    pub(crate) fn shut(&self, is_shut: bool) {
        self.state.lock().unwrap().is_shut = is_shut;
        self.moved.notify_all();
    }

    /// Shuts it behind so many.
    pub(crate) fn admit(&self, admitted: usize) {
        let mut state = self.state.lock().unwrap();
        *state = GateState { is_shut: true, admitted, ..*state };
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.moved.notify_all();
        let stays = |state: &mut GateState| state.is_shut && state.admitted == 0;
        state = self.moved.wait_while(state, stays).unwrap();
        state.admitted = state.admitted.saturating_sub(1);
        state.waiting -= 1;
    }

    /// Waits until so many wait.
    pub(crate) fn holds(&self, wanted: usize, patience: Duration) -> bool {
        let (state, few) =
            (self.state.lock().unwrap(), |state: &mut GateState| state.waiting < wanted);
        !self.moved.wait_timeout_while(state, patience, few).unwrap().1.timed_out()
    }
}
