//! Requests of the transmission phase: decoded, then held against what was agreed.

use serde::{Deserialize, Serialize};

use super::context::{Context, Contexts};
use super::export::Export;
use super::wire::{
    EXTENDED_REQUEST_HEADER_BYTES, EXTENDED_REQUEST_MAGIC, Errno, Fields, PAYLOAD_BYTES_MAX, Put,
    REQUEST_HEADER_BYTES, REQUEST_MAGIC, command, command_flag,
};

/// The longest payload of a block status: a length, and each context once.
pub(super) const SELECTION_BYTES_MAX: u64 = 8 + 4 * Context::ALL.len() as u64;

/// A request that may be executed: its flags, alignment and range are valid for its export.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// The client's mark, sent back with the reply.
    pub cookie: Cookie,
    /// What to do.
    pub command: Command,
    /// Where, in bytes from the start of the export.
    pub offset_bytes: u64,
    /// How much, in bytes. Reads and writes have at most 32 MiB, other commands up to the whole export.
    pub length_bytes: u64,
}

/// What marks a request and its reply; any value, chosen by the client.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Cookie(pub u64);

/// What a request asks for. `fua` means that what was written must be durable before the reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// Read; answered with data.
    Read,
    /// Write the payload that follows.
    Write {
        /// Durable before the reply.
        fua: bool,
    },
    /// Make durable every write that was answered, on any connection. Offset and length are zero.
    Flush,
    /// The range is no longer needed; a hint.
    Trim {
        /// Durable before the reply.
        fua: bool,
    },
    /// The range will be read soon; a hint.
    Cache,
    /// Write zeroes.
    WriteZeroes {
        /// Durable before the reply.
        fua: bool,
        /// The range must stay allocated.
        no_hole: bool,
        /// Fail with `ENOTSUP` at once unless this is faster than writing zeroes.
        fast: bool,
    },
    /// Tell the status of parts; answered with extents.
    BlockStatus {
        /// Only one extent, no longer than the request.
        one_extent: bool,
        /// In these contexts, of those that were chosen.
        contexts: Contexts,
    },
}

/// How requests and replies are framed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub enum Framing {
    /// Simple replies: a number, or the data of a read.
    #[default]
    Simple,
    /// Structured replies: in chunks.
    Structured,
    /// Extended headers: lengths of 64 bits, and all replies in chunks.
    Extended,
}

/// What was agreed in the handshake, as far as requests depend on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Agreement {
    /// Index of the export.
    pub(super) export: usize,
    /// How requests and replies are framed.
    pub(super) framing: Framing,
    /// Chosen for this export.
    pub(super) contexts: Contexts,
}

/// A request's fields as sent; framed, but otherwise unchecked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) flags: u16,
    pub(super) kind: u16,
    pub(super) cookie: Cookie,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

/// Why a request is answered with an error without being executed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Refusal {
    pub(super) errno: Errno,
    pub(super) message: &'static str,
}

impl Request {
    /// Bytes that travel with the request or with its reply, and so need a buffer.
    pub fn payload_bytes(&self) -> usize {
        match self.command {
            Command::Read | Command::Write { .. } => self.length_bytes as usize,
            _ => 0,
        }
    }

    /// Nothing to do: proto.md leaves the answer open, success is the friendliest.
    pub(super) fn is_empty(&self) -> bool {
        self.length_bytes == 0 && self.command != Command::Flush
    }
}

impl Command {
    /// Type and flags as a client sends them.
    pub(super) fn to_wire(self) -> (u16, u16) {
        use command_flag::*;
        let when = |condition: bool, flag: u16| if condition { flag } else { 0 };
        match self {
            Command::Read => (command::READ, 0),
            Command::Write { fua } => (command::WRITE, when(fua, FUA)),
            Command::Flush => (command::FLUSH, 0),
            Command::Trim { fua } => (command::TRIM, when(fua, FUA)),
            Command::Cache => (command::CACHE, 0),
            Command::WriteZeroes { fua, no_hole, fast } => {
                let flags = when(fua, FUA) | when(no_hole, NO_HOLE) | when(fast, FAST_ZERO);
                (command::WRITE_ZEROES, flags)
            }
            Command::BlockStatus { one_extent, .. } => {
                (command::BLOCK_STATUS, when(one_extent, REQ_ONE))
            }
        }
    }
}

impl Framing {
    /// Bytes of a request's header.
    pub(super) fn header_bytes(self) -> usize {
        match self {
            Framing::Simple | Framing::Structured => REQUEST_HEADER_BYTES,
            Framing::Extended => EXTENDED_REQUEST_HEADER_BYTES,
        }
    }

    fn magic(self) -> u32 {
        match self {
            Framing::Simple | Framing::Structured => REQUEST_MAGIC,
            Framing::Extended => EXTENDED_REQUEST_MAGIC,
        }
    }
}

impl Header {
    /// Decodes a header; `None` without the magic: then nothing tells where the next one starts.
    pub(super) fn decode(bytes: &[u8], framing: Framing) -> Option<Header> {
        assert_eq!(bytes.len(), framing.header_bytes());
        let mut fields = Fields(bytes);
        if fields.u32()? != framing.magic() {
            return None;
        }
        Some(Header {
            flags: fields.u16()?,
            kind: fields.u16()?,
            cookie: Cookie(fields.u64()?),
            offset_bytes: fields.u64()?,
            length_bytes: match framing {
                Framing::Extended => fields.u64()?,
                _ => fields.u32()?.into(),
            },
        })
    }

    /// Appends the header to what a client sends. A length beyond 32 bits needs extended headers.
    pub(super) fn encode(&self, framing: Framing, out: &mut Vec<u8>) {
        out.put_u32(framing.magic());
        out.put_u16(self.flags);
        out.put_u16(self.kind);
        out.put_u64(self.cookie.0);
        out.put_u64(self.offset_bytes);
        match framing {
            Framing::Extended => out.put_u64(self.length_bytes),
            _ => out.put_u32(u32::try_from(self.length_bytes).expect("a length of 32 bits")),
        }
    }

    /// Bytes that follow on the wire, whether or not the request is accepted. A write has its payload also where the
    /// flag for that is missing: QEMU 8.2 to 10.0 at least leaves it out, and QEMU's server takes that.
    pub(super) fn trailing_bytes(&self, framing: Framing) -> u64 {
        let is_told = self.flags & command_flag::PAYLOAD_LEN != 0;
        let has_payload = self.kind == command::WRITE || (framing == Framing::Extended && is_told);
        if has_payload { self.length_bytes } else { 0 }
    }

    /// Whether it is a block status whose payload names the contexts.
    pub(super) fn has_selection(&self, framing: Framing) -> bool {
        let trailing = self.trailing_bytes(framing);
        self.kind == command::BLOCK_STATUS && (1..=SELECTION_BYTES_MAX).contains(&trailing)
    }

    /// The block status that its payload makes of it: without that, and of the contexts that it names.
    pub(super) fn select(
        self,
        payload: &[u8],
        chosen: Contexts,
    ) -> Result<(Header, Contexts), (Header, Refusal)> {
        let header = Header { flags: self.flags & !command_flag::PAYLOAD_LEN, ..self };
        match parse_selection(payload) {
            Some((length_bytes, contexts)) if chosen.contain(contexts) => {
                Ok((Header { length_bytes, ..header }, contexts))
            }
            _ => Err((header, invalid("payload is no length and contexts that were chosen"))),
        }
    }

    /// Holds the request against its export and the agreement.
    pub(super) fn admit(&self, export: &Export, agreed: Agreement) -> Result<Request, Refusal> {
        let command = self.command(agreed)?;
        self.check_flags(export, agreed)?;
        check_rights(command, export)?;
        let request = Request {
            cookie: self.cookie,
            command,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
        };
        request.check_flush()?;
        request.check_block_status(agreed)?;
        request.check_alignment(export)?;
        request.check_range(export)?;
        Ok(request)
    }

    fn command(&self, agreed: Agreement) -> Result<Command, Refusal> {
        let set = |flag: u16| self.flags & flag != 0;
        let fua = set(command_flag::FUA);
        Ok(match self.kind {
            command::READ => Command::Read,
            command::WRITE => Command::Write { fua },
            command::FLUSH => Command::Flush,
            command::TRIM => Command::Trim { fua },
            command::CACHE => Command::Cache,
            command::WRITE_ZEROES => Command::WriteZeroes {
                fua,
                no_hole: set(command_flag::NO_HOLE),
                fast: set(command_flag::FAST_ZERO),
            },
            command::BLOCK_STATUS => Command::BlockStatus {
                one_extent: set(command_flag::REQ_ONE),
                contexts: agreed.contexts,
            },
            _ => return Err(invalid("unknown command")),
        })
    }

    /// FUA is valid for every command, the other flags each for one.
    fn check_flags(&self, export: &Export, agreed: Agreement) -> Result<(), Refusal> {
        let own = match self.kind {
            command::READ if agreed.framing != Framing::Simple => command_flag::DF,
            command::WRITE if agreed.framing == Framing::Extended => command_flag::PAYLOAD_LEN,
            command::WRITE_ZEROES if export.fast_zero => {
                command_flag::NO_HOLE | command_flag::FAST_ZERO
            }
            command::WRITE_ZEROES => command_flag::NO_HOLE,
            command::BLOCK_STATUS => command_flag::REQ_ONE,
            _ => 0,
        };
        let unknown = self.flags & !(own | command_flag::FUA);
        if unknown == 0 { Ok(()) } else { Err(invalid("flag unknown for this command")) }
    }
}

fn check_rights(command: Command, export: &Export) -> Result<(), Refusal> {
    let writes = matches!(
        command,
        Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. }
    );
    if writes && export.read_only {
        return Err(Refusal { errno: Errno::NotPermitted, message: "export is read-only" });
    }
    if matches!(command, Command::Trim { .. }) && !export.trim {
        return Err(invalid("trim is not offered"));
    }
    Ok(())
}

impl Request {
    /// The range of a flush is reserved: a later protocol may give it a meaning.
    fn check_flush(&self) -> Result<(), Refusal> {
        let ranged = self.offset_bytes != 0 || self.length_bytes != 0;
        if self.command == Command::Flush && ranged {
            return Err(invalid("a flush has neither offset nor length"));
        }
        Ok(())
    }

    /// An extent of no length cannot be sent, so a status of nothing cannot be answered.
    fn check_block_status(&self, agreed: Agreement) -> Result<(), Refusal> {
        if !matches!(self.command, Command::BlockStatus { .. }) {
            return Ok(());
        }
        if agreed.contexts.is_empty() {
            return Err(invalid("no metadata context was chosen for this export"));
        }
        if self.length_bytes == 0 {
            return Err(invalid("block status of nothing"));
        }
        Ok(())
    }

    fn check_alignment(&self, export: &Export) -> Result<(), Refusal> {
        let minimum = u64::from(export.block_sizes.minimum());
        let aligned =
            self.offset_bytes.is_multiple_of(minimum) && self.length_bytes.is_multiple_of(minimum);
        if !aligned {
            return Err(invalid("offset or length is no multiple of the minimum block size"));
        }
        if self.payload_bytes() > PAYLOAD_BYTES_MAX as usize {
            return Err(invalid("payload is over 32 MiB"));
        }
        Ok(())
    }

    fn check_range(&self, export: &Export) -> Result<(), Refusal> {
        let end = self.offset_bytes.checked_add(self.length_bytes);
        if end.is_some_and(|end| end <= export.size_bytes) {
            return Ok(());
        }
        let message = "range ends beyond the export";
        Err(match self.command {
            Command::Write { .. } | Command::WriteZeroes { .. } => {
                Refusal { errno: Errno::NoSpace, message }
            }
            _ => invalid(message),
        })
    }
}

/// A length in bytes, and at least one context, none of them twice.
fn parse_selection(payload: &[u8]) -> Option<(u64, Contexts)> {
    let mut fields = Fields(payload);
    let length_bytes = fields.u64()?;
    let mut contexts = Contexts::default();
    while !fields.is_empty() {
        let is_new = contexts.insert(Context::with_id(fields.u32()?)?);
        is_new.then_some(())?;
    }
    (!contexts.is_empty()).then_some((length_bytes, contexts))
}

fn invalid(message: &'static str) -> Refusal {
    Refusal { errno: Errno::Invalid, message }
}
