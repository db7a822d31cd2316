//! The serving process' side of the control socket.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use serde::Serialize;

use super::{Hello, LINE_BYTES_MAX, PROTOCOL, Reply, Request};
use crate::failure::Failure;

/// Connections at once; one more is closed without a word.
const CONNECTIONS_MAX: usize = 64;

/// How long a connection may ask nothing, or take no answer: then it is closed, and its place is free.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Answers the requests of one array.
pub(crate) trait Answer: Send + Sync + 'static {
    /// Sends the replies to `request`; the last one ends it. An error means the client is gone.
    fn answer(&self, request: Request, replies: &mut Replies<'_>) -> io::Result<()>;
}

/// Where the replies to one request go.
pub(crate) struct Replies<'a> {
    to: &'a mut UnixStream,
}

impl Replies<'_> {
    /// Sends one reply.
    pub(crate) fn send(&mut self, reply: &Reply) -> io::Result<()> {
        write_line(self.to, reply)
    }

    /// Whether the client is still there, as far as its socket says.
    pub(crate) fn are_awaited(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(recv(&*self.to, &mut [0_u8; 1], flags), Ok((_, 0)))
    }
}

/// The socket, listened on. The file goes when the value does.
pub(crate) struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`. The caller holds the array's lock, so what lies there is stale.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixListener::bind(path)?;
        // The directory keeps others out until the mode is set.
        fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
        Ok(Self { socket, path: path.to_owned() })
    }

    /// Serves on threads of its own until the process ends.
    pub(crate) fn spawn(&self, array: Arc<dyn Answer>) -> io::Result<()> {
        self.spawn_with(array, IDLE_MAX)
    }

    pub(super) fn spawn_with(&self, array: Arc<dyn Answer>, idle_max: Duration) -> io::Result<()> {
        let socket = self.socket.try_clone()?;
        let open = Arc::new(AtomicUsize::new(0));
        thread::Builder::new().name("control".into()).spawn(move || {
            for stream in socket.incoming().flatten() {
                if open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX {
                    serve_on_thread(stream, idle_max, &array, &open);
                } else {
                    open.fetch_sub(1, Ordering::Relaxed);
                }
            }
        })?;
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Best effort: a socket left behind is recognised as stale.
        let _ = fs::remove_file(&self.path);
    }
}

fn serve_on_thread(
    stream: UnixStream,
    idle_max: Duration,
    array: &Arc<dyn Answer>,
    open: &Arc<AtomicUsize>,
) {
    let (array, open) = (Arc::clone(array), Arc::clone(open));
    let count = Arc::clone(&open);
    let spawned = thread::Builder::new().name("control-client".into()).spawn(move || {
        if let Err(error) = serve(stream, idle_max, array.as_ref()) {
            tracing::debug!("control client: {error}");
        }
        open.fetch_sub(1, Ordering::Relaxed);
    });
    if spawned.is_err() {
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One client from hello to its end.
fn serve(stream: UnixStream, idle_max: Duration, array: &dyn Answer) -> io::Result<()> {
    stream.set_read_timeout(Some(idle_max))?;
    stream.set_write_timeout(Some(idle_max))?;
    let mut writer = stream.try_clone()?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    write_line(&mut writer, &Hello { protocol: PROTOCOL, version })?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line)? > 0 {
        let mut replies = Replies { to: &mut writer };
        match serde_json::from_str(&line) {
            Ok(request) => array.answer(request, &mut replies)?,
            Err(error) => replies.send(&Reply::Failed { failure: not_understood(error) })?,
        }
        line.clear();
    }
    Ok(())
}

fn not_understood(error: serde_json::Error) -> Failure {
    Failure::new(
        "the request was not understood",
        error,
        "use the mdspace that started the array; the protocol is in docs/admin.md",
    )
}

fn write_line(to: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)
}
