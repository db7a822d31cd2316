//! Connecting to a server and asking for an export, on a thread that may wait.

mod bounded;

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::nbd_wire::{
    Fields, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_BYTES_MAX, Put, export_flag,
    handshake_flag, info, length_u32, option, option_reply,
};

use super::super::lineage::{Answer, Question};
use super::proof::PROOF_PATIENCE;
use super::uri::Server;
use super::{Export, Uri};

use bounded::{Bounded, Timed};

/// How long a server may take for all of the handshake.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may take that is made and proved.
pub(in crate::member) const CONNECTS_WITHIN: Duration = PATIENCE.saturating_add(PROOF_PATIENCE);
/// A host that does not acknowledge for so long is dead.
const SILENCE_MS: libc::c_int = 20_000;
/// Longer than any honest answer to an option.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Answers to one option at most.
const ANSWERS_MAX: usize = 64;

/// A connection on which requests may be made.
pub(super) trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// A question for the server before its export is taken, and the answer.
pub(super) struct Asking {
    pub(super) question: Question,
    /// None where the server does not know the question.
    pub(super) answer: Option<Answer>,
}

/// Connects and takes the export, unless the server's answer is against it. `prove` looks at the
/// connection before it is given; the socket is ready for requests then.
pub(super) fn dial(
    uri: &Uri,
    asking: Option<&mut Asking>,
    prove: impl FnOnce(&mut dyn Stream, Export) -> io::Result<()>,
) -> io::Result<(OwnedFd, Export)> {
    let until = Instant::now() + PATIENCE;
    let failed = |error| at(&uri.server, error);
    match &uri.server {
        Server::Unix(path) => {
            let stream = bounded::connect_unix(path, PATIENCE).map_err(failed)?;
            take(Bounded::new(stream, until), uri, asking, prove)
        }
        Server::Tcp { host, port } => {
            let stream = connect(host, *port, until).map_err(failed)?;
            stream.set_nodelay(true)?;
            notice_death(&stream);
            take(Bounded::new(stream, until), uri, asking, prove)
        }
    }
}

/// Asks a server over a connection of its own, which ends with the answer. None: it does not know the
/// question.
pub(in crate::member) fn ask(uri: &Uri, question: &Question) -> io::Result<Option<Answer>> {
    let until = Instant::now() + question.patience();
    match &uri.server {
        Server::Unix(path) => {
            let stream = bounded::connect_unix(path, question.patience())?;
            Handshake(Bounded::new(stream, until)).only_ask(&uri.export, question)
        }
        Server::Tcp { host, port } => {
            let stream = connect(host, *port, until)?;
            Handshake(Bounded::new(stream, until)).only_ask(&uri.export, question)
        }
    }
}

fn take<S: Timed + Into<OwnedFd>>(
    mut stream: Bounded<S>,
    uri: &Uri,
    asking: Option<&mut Asking>,
    prove: impl FnOnce(&mut dyn Stream, Export) -> io::Result<()>,
) -> io::Result<(OwnedFd, Export)>
where
    Bounded<S>: Stream,
{
    let export = Handshake(&mut stream).go(uri, asking)?;
    stream.extend(PROOF_PATIENCE);
    prove(&mut stream, export).map_err(|error| at(&uri.server, error))?;
    Ok((stream.unbounded()?.into(), export))
}

/// Has `prove` look at a connection that was made before, and gives it back.
pub(super) fn go_on(
    socket: OwnedFd,
    uri: &Uri,
    prove: impl FnOnce(&mut dyn Stream) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    // Of whatever family: the calls are the same.
    let mut stream = Bounded::new(UnixStream::from(socket), Instant::now() + PROOF_PATIENCE);
    prove(&mut stream).map_err(|error| at(&uri.server, error))?;
    Ok(stream.unbounded()?.into())
}

fn at(server: &Server, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{server}: {error}"))
}

fn connect(host: &str, port: u16, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(last);
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Lets the kernel ask a silent host for a sign of life, and end the connection without one.
fn notice_death(stream: &TcpStream) {
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 5),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, SILENCE_MS),
    ];
    for (level, name, value) in options {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        let value: *const libc::c_int = &value;
        // SAFETY: `value` is one integer, as its size says. A system without the option notices a
        // dead host later.
        unsafe {
            libc::setsockopt(stream.as_fd().as_raw_fd(), level, name, value.cast(), size);
        }
    }
}

/// The client's part of the handshake: fixed newstyle, and `GO`.
struct Handshake<S>(S);

impl<S: Read + Write> Handshake<S> {
    fn go(mut self, uri: &Uri, asking: Option<&mut Asking>) -> io::Result<Export> {
        let taken = || {
            self.greet()?;
            if let Some(asking) = asking {
                self.mention(&uri.export)?;
                asking.answer = asking.question.put(|words| self.inquire(words))?;
                if matches!(asking.answer, Some(Answer::Yes | Answer::Unclear(_))) {
                    return Err(io::Error::other("what lies below it is against it"));
                }
            }
            self.ask(&uri.export)
        };
        taken().map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                let why = "its handshake has not ended in 5 seconds";
                at(&uri.server, io::Error::new(io::ErrorKind::TimedOut, why))
            }
            _ => at(&uri.server, error),
        })
    }

    fn greet(&mut self) -> io::Result<()> {
        let bytes = self.take(18)?;
        let mut fields = Fields(&bytes);
        if fields.u64() != Some(INIT_MAGIC) || fields.u64() != Some(OPTION_MAGIC) {
            return Err(broken("no NBD server of today answers there"));
        }
        let offered = fields.u16().unwrap_or(0);
        if offered & handshake_flag::FIXED_NEWSTYLE == 0 {
            return Err(broken("the server does not speak fixed newstyle"));
        }
        let flags = offered & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        self.0.write_all(&u32::from(flags).to_be_bytes())
    }

    fn only_ask(mut self, export: &str, question: &Question) -> io::Result<Option<Answer>> {
        self.greet()?;
        self.mention(export)?;
        let answer = question.put(|words| self.inquire(words));
        // The connection ends anyway.
        drop(self.send(option::ABORT, &[]));
        answer
    }

    /// Asks for what an export of this name is. None: the server knows no answer of ours.
    fn inquire(&mut self, name: &str) -> io::Result<Option<Answer>> {
        let refusal = self.info(name)?;
        Ok(refusal.and_then(|text| str::from_utf8(&text).ok().and_then(Answer::parse)))
    }

    /// Says which export questions are about, where a server has several. What it is does not matter yet.
    fn mention(&mut self, export: &str) -> io::Result<()> {
        match export {
            "" => Ok(()),
            named => self.info(named).map(drop),
        }
    }

    /// What the server says where it has no export of this name. None: it has.
    fn info(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut data = string(name);
        data.put_u16(0);
        self.send(option::INFO, &data)?;
        for _ in 0..ANSWERS_MAX {
            match self.answer(option::INFO)? {
                (option_reply::ACK, _) => return Ok(None),
                (kind, text) if kind & option_reply::ERROR != 0 => return Ok(Some(text)),
                // A server may have an export of every name.
                _ => {}
            }
        }
        Err(broken("answers without an end"))
    }

    fn send(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let mut message = Vec::new();
        message.put_u64(OPTION_MAGIC);
        message.put_u32(option);
        message.put_u32(length_u32(data.len()));
        message.extend_from_slice(data);
        self.0.write_all(&message)
    }

    fn ask(&mut self, export: &str) -> io::Result<Export> {
        let mut data = string(export);
        data.put_u16(1);
        data.put_u16(info::BLOCK_SIZE);
        self.send(option::GO, &data)?;
        let mut answers = Answers::default();
        for _ in 0..ANSWERS_MAX {
            let (kind, bytes) = self.answer(option::GO)?;
            match kind {
                option_reply::ACK => return answers.export(),
                option_reply::INFO => answers.take(&bytes)?,
                refused if refused & option_reply::ERROR != 0 => {
                    return Err(refusal(refused, &bytes));
                }
                _ => return Err(broken("an answer of a type that was not asked for")),
            }
        }
        Err(broken("answers without an end"))
    }

    fn answer(&mut self, asked: u32) -> io::Result<(u32, Vec<u8>)> {
        let bytes = self.take(20)?;
        let mut fields = Fields(&bytes);
        if fields.u64() != Some(OPTION_REPLY_MAGIC) || fields.u32() != Some(asked) {
            return Err(broken("an answer to an option that was not asked"));
        }
        let (kind, length) = (fields.u32().unwrap_or(0), fields.u32().unwrap_or(u32::MAX) as usize);
        if length > ANSWER_BYTES_MAX {
            return Err(broken("an answer that is too long"));
        }
        Ok((kind, self.take(length)?))
    }

    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut taken = vec![0; bytes];
        self.0.read_exact(&mut taken)?;
        Ok(taken)
    }
}

/// A string as NBD sends it.
fn string(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(length_u32(text.len()));
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// What the answers to `GO` have said so far.
#[derive(Default)]
struct Answers {
    export: Option<(u64, u16)>,
    blocks: Option<[u32; 3]>,
}

impl Answers {
    /// Unknown information is ignored, as proto.md asks.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let short = || broken("information that is too short");
        let mut fields = Fields(bytes);
        match fields.u16().ok_or_else(short)? {
            info::EXPORT => {
                let bytes = fields.u64().ok_or_else(short)?;
                self.export = Some((bytes, fields.u16().ok_or_else(short)?));
            }
            info::BLOCK_SIZE => {
                let mut next = || fields.u32().ok_or_else(short);
                self.blocks = Some([next()?, next()?, next()?]);
            }
            _ => {}
        }
        Ok(())
    }

    fn export(self) -> io::Result<Export> {
        let Some((bytes, flags)) = self.export else {
            return Err(broken("an export without a size"));
        };
        if flags & export_flag::HAS_FLAGS == 0 || i64::try_from(bytes).is_err() {
            return Err(broken("an export that cannot be"));
        }
        // What proto.md lets a client count on where nothing is said.
        let [smallest, _, most] = self.blocks.unwrap_or([1, 4096, PAYLOAD_BYTES_MAX]);
        let block_bytes = smallest.max(512);
        if !block_bytes.is_power_of_two() || most < block_bytes {
            return Err(broken("block sizes that cannot be"));
        }
        let payload_bytes = most.min(PAYLOAD_BYTES_MAX) / block_bytes * block_bytes;
        Ok(Export { bytes, flags, block_bytes, payload_bytes })
    }
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn refusal(kind: u32, message: &[u8]) -> io::Error {
    let message: String = String::from_utf8_lossy(message).chars().take(200).collect();
    let why = match kind {
        option_reply::ERR_UNKNOWN => "the server has no such export".to_owned(),
        option_reply::ERR_UNSUP => "the server does not know GO: it is too old".to_owned(),
        kind => format!("the server refuses (error {})", kind & !option_reply::ERROR),
    };
    let said = if message.is_empty() { String::new() } else { format!(", saying {message:?}") };
    io::Error::other(why + &said)
}

#[cfg(test)]
mod tests;
