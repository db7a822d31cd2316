//! The serving process' side of the control socket.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::{RecvFlags, Shutdown, recv};
use serde::Serialize;

use super::pulse::{BEAT, Outlet, Pulse};
use super::{Hello, LINE_BYTES_MAX, PROTOCOL, Reply, Request};
use crate::failure::{Code, Failure};
use crate::report::VERSION;

/// Connections at once that may ask for anything.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Connections beside them, for orders that end what the others may wait for. One more is closed without a word.
const URGENT_MAX: usize = 8;

/// After a connection that could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection may ask nothing, or take no answer: then it is closed, and its place is free.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Answers the requests of one array.
pub(crate) trait Answer: Send + Sync + 'static {
    /// Sends the replies to `request`; the last one ends it. An error means the client is gone.
    fn answer(&self, request: Request, replies: &mut Replies<'_>) -> io::Result<()>;

    /// Has `given` called by what does the array's work, as soon as all of that goes on. Never waits.
    fn sign_of_life(&self, given: Box<dyn FnOnce() + Send>);
}

/// Where the replies to one request go.
pub(crate) struct Replies<'a> {
    to: &'a Outlet,
}

impl Replies<'_> {
    /// Sends one reply.
    pub(crate) fn send(&mut self, reply: &Reply) -> io::Result<()> {
        write_line(&mut *stream(self.to), reply)
    }

    /// Whether the client is still there, as far as its socket says.
    pub(crate) fn are_awaited(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(recv(&*stream(self.to), &mut [0_u8; 1], flags), Ok((_, 0)))
    }
}

/// The socket, listened on. The file goes when the value does.
pub(crate) struct Listener {
    path: PathBuf,
    bound: Mutex<Bound>,
    array: OnceLock<Serving>,
}

/// A socket, and the device and inode number of its file.
struct Bound {
    socket: UnixListener,
    file: (u64, u64),
}

/// Who answers, and what is allowed.
#[derive(Clone)]
struct Serving {
    array: Arc<dyn Answer>,
    idle_max: Duration,
    pulse: Arc<Pulse>,
    /// Connections, over all sockets that this one has had.
    open: Arc<AtomicUsize>,
}

impl Serving {
    fn is_crowded(&self) -> bool {
        self.open.load(Ordering::Relaxed) > CONNECTIONS_MAX
    }
}

impl Listener {
    /// Listens at `path`. The caller holds the array's lock, so what lies there is stale.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let bound = Mutex::new(Bound::at(path)?);
        Ok(Self { path: path.to_owned(), bound, array: OnceLock::new() })
    }

    /// Listens at the same path with a new socket if the file is not there any more, or is another one.
    /// True: it was. The caller holds the array's lock.
    pub(crate) fn keep(&self) -> io::Result<bool> {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        if bound.is_at(&self.path) {
            return Ok(false);
        }
        let old = std::mem::replace(&mut *bound, Bound::at(&self.path)?);
        // Ends its thread. Nobody can connect there any more.
        let _ = rustix::net::shutdown(&old.socket, Shutdown::Both);
        if let Some(serving) = self.array.get() {
            accept(bound.socket.try_clone()?, serving.clone())?;
        }
        Ok(true)
    }

    /// Serves on threads of its own until the process ends.
    pub(crate) fn spawn(&self, array: Arc<dyn Answer>) -> io::Result<()> {
        self.spawn_with(array, IDLE_MAX, BEAT)
    }

    pub(super) fn spawn_with(
        &self,
        array: Arc<dyn Answer>,
        idle_max: Duration,
        beat: Duration,
    ) -> io::Result<()> {
        let pulse = Pulse::start(array.clone(), beat)?;
        let serving = Serving { array, idle_max, pulse, open: Arc::default() };
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        accept(bound.socket.try_clone()?, self.array.get_or_init(|| serving).clone())
    }
}

impl Bound {
    fn at(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixListener::bind(path)?;
        // The directory keeps others out until the mode is set.
        fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
        let file = fs::symlink_metadata(path)?;
        Ok(Self { socket, file: (file.dev(), file.ino()) })
    }

    fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == self.file)
    }
}

/// Takes connections on a thread of its own until the socket is shut down.
fn accept(socket: UnixListener, serving: Serving) -> io::Result<()> {
    thread::Builder::new().name("control".into()).spawn(move || {
        for stream in socket.incoming() {
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                // Files or memory are out. Those that ask have them again soon, or not.
                Err(_) => {
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            let others = serving.open.fetch_add(1, Ordering::Relaxed);
            if others < CONNECTIONS_MAX + URGENT_MAX {
                serve_on_thread(stream, &serving, others >= CONNECTIONS_MAX);
            } else {
                serving.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })?;
    Ok(())
}

impl Drop for Listener {
    fn drop(&mut self) {
        let bound = self.bound.get_mut().unwrap_or_else(PoisonError::into_inner);
        if bound.is_at(&self.path) {
            // Best effort: a socket left behind is recognised as stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn serve_on_thread(stream: UnixStream, serving: &Serving, is_beside: bool) {
    let theirs = serving.clone();
    let spawned = thread::Builder::new().name("control-client".into()).spawn(move || {
        if let Err(error) = serve(stream, &theirs, is_beside) {
            tracing::debug!("control client: {error}");
        }
        theirs.open.fetch_sub(1, Ordering::Relaxed);
    });
    if spawned.is_err() {
        serving.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One client from hello to its end. One that `is_beside` the others asks for what is urgent, as long as they are there.
fn serve(stream: UnixStream, serving: &Serving, is_beside: bool) -> io::Result<()> {
    let Serving { array, idle_max, pulse, .. } = serving;
    stream.set_read_timeout(Some(*idle_max))?;
    stream.set_write_timeout(Some(*idle_max))?;
    let mut writer = stream.try_clone()?;
    let version = VERSION.to_owned();
    write_line(&mut writer, &Hello { protocol: PROTOCOL, version })?;
    let outlet = Arc::new(Outlet::new(writer));
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line)? > 0 {
        let mut replies = Replies { to: &outlet };
        let _waits = pulse.begin(&outlet);
        match serde_json::from_str::<Request>(&line) {
            Ok(request) if is_beside && serving.is_crowded() && !request.is_urgent() => {
                return replies.send(&Reply::Failed { failure: crowded() });
            }
            Ok(request) => array.answer(request, &mut replies)?,
            Err(error) => replies.send(&Reply::Failed { failure: not_understood(error) })?,
        }
        line.clear();
    }
    Ok(())
}

fn stream(outlet: &Outlet) -> MutexGuard<'_, UnixStream> {
    outlet.lock().unwrap_or_else(PoisonError::into_inner)
}

fn crowded() -> Failure {
    Failure::new(
        "the request was not taken",
        format!("{CONNECTIONS_MAX} others have not been answered yet, or ask for nothing"),
        "end what asks so often; `mdspace stop`, `fail` and `message` are taken all the same",
    )
}

fn not_understood(error: serde_json::Error) -> Failure {
    Failure::new(
        "the request was not understood",
        error,
        "use the mdspace that started the array; the protocol is in docs/admin.md",
    )
    .with_code(Code::Usage)
}

fn write_line(to: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)
}
