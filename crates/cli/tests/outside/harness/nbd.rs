//! A small NBD client that keeps many requests in flight and says which were acknowledged.
//!
//! Fixed newstyle handshake with `NBD_OPT_GO`, simple replies, no TLS. Numbers and names are those
//! of the NBD protocol document (doc/proto.md of NetworkBlockDevice/nbd); everything is big-endian.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, no zeroes after the export's flags.
const CLIENT_FLAGS: u32 = 3;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;
const FLAG_FUA: u16 = 1;
/// A server that says nothing for so long is hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one request asks for.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Read so many bytes at an offset.
    Read(u64, u32),
    /// Write these bytes at an offset.
    Write(u64, Vec<u8>),
    /// The same, durable when it is acknowledged.
    WriteFua(u64, Vec<u8>),
    /// Make acknowledged writes durable.
    Flush,
}

/// The answer to one request.
#[derive(Debug)]
pub(crate) struct Reply {
    /// What `submit` returned.
    pub(crate) handle: u64,
    /// 0, or the protocol's error number.
    pub(crate) error: u32,
    /// What was read.
    pub(crate) data: Vec<u8>,
}

/// One connection.
pub(crate) struct Nbd {
    stream: UnixStream,
    /// Size of the export.
    pub(crate) bytes: u64,
    next_handle: u64,
    /// Bytes that each request in flight will bring.
    in_flight: BTreeMap<u64, u32>,
}

impl Nbd {
    /// Connects to the export `name` behind a socket.
    pub(crate) fn connect(socket: &Path, name: &str) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut nbd = Self { stream, bytes: 0, next_handle: 1, in_flight: BTreeMap::new() };
        nbd.negotiate(name)?;
        Ok(nbd)
    }

    fn negotiate(&mut self, name: &str) -> io::Result<()> {
        expect(self.u64()?, NBD_MAGIC, "server magic")?;
        expect(self.u64()?, OPTION_MAGIC, "newstyle magic")?;
        let _server_flags = self.u16()?;
        self.stream.write_all(&CLIENT_FLAGS.to_be_bytes())?;

        let length = u32::try_from(name.len()).expect("a short export name");
        let mut option = OPTION_MAGIC.to_be_bytes().to_vec();
        option.extend(OPTION_GO.to_be_bytes());
        option.extend((length + 6).to_be_bytes());
        option.extend(length.to_be_bytes());
        option.extend(name.as_bytes());
        option.extend(0_u16.to_be_bytes());
        self.stream.write_all(&option)?;
        loop {
            expect(self.u64()?, OPTION_REPLY_MAGIC, "option reply magic")?;
            expect(u64::from(self.u32()?), u64::from(OPTION_GO), "option")?;
            let kind = self.u32()?;
            let length = self.u32()? as usize;
            let data = self.exactly(length)?;
            match kind {
                REPLY_ACK => return Ok(()),
                REPLY_INFO if data[..2] == INFO_EXPORT.to_be_bytes() => {
                    self.bytes = u64::from_be_bytes(data[2..10].try_into().expect("8 bytes"));
                }
                REPLY_INFO => {}
                _ => {
                    let text = String::from_utf8_lossy(&data).into_owned();
                    return Err(io::Error::other(format!("the server refuses {name:?}: {text}")));
                }
            }
        }
    }

    /// Requests without an answer yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Sends a request and returns its handle.
    pub(crate) fn submit(&mut self, request: &Request) -> io::Result<u64> {
        let (flags, kind, offset, length, data): (u16, u16, u64, u32, &[u8]) = match request {
            Request::Read(offset, length) => (0, 0, *offset, *length, &[]),
            Request::Write(offset, data) => (0, 1, *offset, length_of(data), data),
            Request::WriteFua(offset, data) => (FLAG_FUA, 1, *offset, length_of(data), data),
            Request::Flush => (0, 3, 0, 0, &[]),
        };
        let handle = self.next_handle;
        self.next_handle += 1;
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(handle.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes)?;
        self.in_flight.insert(handle, if kind == 0 { length } else { 0 });
        Ok(handle)
    }

    /// Waits for the next answer, of whichever request.
    pub(crate) fn receive(&mut self) -> io::Result<Reply> {
        expect(u64::from(self.u32()?), u64::from(REPLY_MAGIC), "reply magic")?;
        let error = self.u32()?;
        let handle = self.u64()?;
        let length = self.in_flight.remove(&handle);
        let length = length.ok_or_else(|| io::Error::other(format!("no request {handle}")))?;
        let data = self.exactly(if error == 0 { length as usize } else { 0 })?;
        Ok(Reply { handle, error, data })
    }

    /// Sends a request and waits for its answer, with nothing else in flight.
    fn ask(&mut self, request: &Request) -> Vec<u8> {
        assert_eq!(self.in_flight(), 0, "ask is for one request at a time");
        self.submit(request).expect("the server takes the request");
        let reply = self.receive().expect("the server answers");
        assert_eq!(reply.error, 0, "the server answers {request:.0?} with an error");
        reply.data
    }

    /// Reads and must succeed.
    pub(crate) fn read(&mut self, offset: u64, bytes: u32) -> Vec<u8> {
        self.ask(&Request::Read(offset, bytes))
    }

    /// Writes and must succeed.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.ask(&Request::Write(offset, data.to_vec()));
    }

    /// Flushes and must succeed.
    pub(crate) fn flush(&mut self) {
        self.ask(&Request::Flush);
    }

    fn exactly(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; bytes];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut data = [0; N];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    fn u16(&mut self) -> io::Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }
}

fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("a request below 4 GiB")
}

fn expect(found: u64, wanted: u64, what: &str) -> io::Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(io::Error::other(format!("{what}: {found:#x} instead of {wanted:#x}")))
}
