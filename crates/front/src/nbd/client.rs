//! The other end of a connection: a small client without I/O, for tests and tools.
//!
//! Bytes that were received go into [`Client::poll`], bytes to send come out of
//! [`Client::take_output`]. A hostile server can break the connection, and nothing else.

use std::collections::BTreeMap;

use super::context::{Context, Contexts, Extent};
use super::request::{Command, Cookie, Framing, Header};
use super::wire::{
    EXTENDED_REPLY_MAGIC, Errno, Fields, Gather, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    PAYLOAD_BYTES_MAX, Put, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, command,
    command_flag, handshake_flag, info, length_u32, option, option_reply,
};

/// A connection as the client sees it.
#[derive(Debug)]
pub struct Client {
    wants: Wants,
    stage: Stage,
    gather: Gather,
    output: Vec<u8>,
    export: ExportInfo,
    requests: BTreeMap<Cookie, Pending>,
    last_cookie: u64,
}

/// What a client asks for in its handshake.
#[derive(Clone, Debug, Default)]
pub struct Wants {
    /// Name of the export; empty for the default one.
    pub export: String,
    /// Ask for this framing.
    pub framing: Framing,
    /// Ask for these contexts; needs replies in chunks.
    pub contexts: Contexts,
}

/// What the server says about the export, and what it granted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExportInfo {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Transmission flags as sent.
    pub flags: u16,
    /// Minimum, preferred and maximum block size in bytes, when announced.
    pub block_sizes: Option<[u32; 3]>,
    /// How requests and replies are framed.
    pub framing: Framing,
    /// The contexts that the server has chosen, by its numbers.
    pub contexts: BTreeMap<u32, Context>,
}

/// What a server's bytes amount to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// More bytes are needed.
    Hungry,
    /// The handshake is over; requests may be sent.
    Ready(ExportInfo),
    /// A request was answered.
    Answer(Cookie, Answer),
    /// The server refuses the export: its reply's type and its line for people.
    Refused(u32, String),
    /// The server broke the protocol; the connection is of no more use.
    Broken(&'static str),
}

/// The answer to one request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// Done; there is no data.
    Done,
    /// What was read.
    Data(Vec<u8>),
    /// The range asked for, in each context.
    Extents(BTreeMap<Context, Vec<Extent>>),
    /// Not done; the line is empty in simple replies.
    Failed(Errno, String),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Greeting,
    /// A reply to this option is awaited.
    OptionReply {
        option: u32,
    },
    OptionReplyData {
        option: u32,
        kind: u32,
        length: usize,
    },
    ReplyMagic,
    SimpleReply,
    SimpleData {
        cookie: Cookie,
        length: usize,
    },
    ChunkHeader,
    ExtendedHeader,
    Chunk {
        done: bool,
        kind: u16,
        cookie: Cookie,
        length: usize,
    },
    Broken(&'static str),
}

/// A request that is not answered yet, and what chunks said about it so far.
#[derive(Debug)]
struct Pending {
    command: Command,
    offset_bytes: u64,
    data: Vec<u8>,
    data_bytes_seen: usize,
    extents: BTreeMap<u32, Vec<Extent>>,
    failed: Option<(Errno, String)>,
}

type Parsed = Result<Option<Event>, &'static str>;

impl Client {
    /// A client that waits for the server's greeting.
    pub fn new(wants: Wants) -> Client {
        Client {
            wants,
            stage: Stage::Greeting,
            gather: Gather::default(),
            output: Vec::new(),
            export: ExportInfo::default(),
            requests: BTreeMap::new(),
            last_cookie: 0,
        }
    }

    /// Bytes to send.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Requests that were not answered yet.
    pub fn pending(&self) -> usize {
        self.requests.len()
    }

    /// Sends a request; `payload` is what a write writes, and empty for other commands. A block status of some of the
    /// contexts that were chosen, and a length beyond 32 bits, need extended headers.
    pub fn send(
        &mut self,
        command: Command,
        offset_bytes: u64,
        length_bytes: u64,
        payload: &[u8],
    ) -> Cookie {
        self.last_cookie += 1;
        let cookie = Cookie(self.last_cookie);
        let framing = self.export.framing;
        let (kind, mut flags) = command.to_wire();
        let selection = self.selection(command, length_bytes);
        let length = selection.as_ref().map_or(length_bytes, |selected| selected.len() as u64);
        let writes = matches!(command, Command::Write { .. });
        if framing == Framing::Extended && (writes || selection.is_some()) {
            flags |= command_flag::PAYLOAD_LEN;
        }
        let header = Header { flags, kind, cookie, offset_bytes, length_bytes: length };
        header.encode(framing, &mut self.output);
        self.output.extend_from_slice(selection.as_deref().unwrap_or(payload));
        let reads = command == Command::Read;
        let pending = Pending {
            command,
            offset_bytes,
            data: vec![0; if reads { length_bytes as usize } else { 0 }],
            data_bytes_seen: 0,
            extents: BTreeMap::new(),
            failed: None,
        };
        self.requests.insert(cookie, pending);
        cookie
    }

    /// The payload of a block status that is not of all contexts that were chosen.
    fn selection(&self, command: Command, length_bytes: u64) -> Option<Vec<u8>> {
        let Command::BlockStatus { contexts, .. } = command else { return None };
        let chosen = &self.export.contexts;
        if contexts == chosen.values().copied().collect() {
            return None;
        }
        let mut payload = Vec::new();
        payload.put_u64(length_bytes);
        let wanted = chosen.iter().filter(|(_, context)| contexts.contains(**context));
        wanted.for_each(|(id, _)| payload.put_u32(*id));
        Some(payload)
    }

    /// Takes leave; the server finishes what is under way and closes.
    pub fn disconnect(&mut self) {
        let header = Header {
            flags: 0,
            kind: command::DISC,
            cookie: Cookie(0),
            offset_bytes: 0,
            length_bytes: 0,
        };
        header.encode(self.export.framing, &mut self.output);
    }

    /// Reads from `input` up to the next event; what was used is taken off its front.
    pub fn poll(&mut self, input: &mut &[u8]) -> Event {
        let mut gather = std::mem::take(&mut self.gather);
        let event = loop {
            if let Stage::Broken(why) = self.stage {
                break Event::Broken(why);
            }
            let Some(bytes) = gather.take(input, self.stage.need()) else { break Event::Hungry };
            match self.receive(bytes) {
                Ok(None) => {}
                Ok(Some(event)) => break event,
                Err(why) => self.stage = Stage::Broken(why),
            }
        };
        self.gather = gather;
        event
    }

    fn receive(&mut self, bytes: &[u8]) -> Parsed {
        match self.stage {
            Stage::Greeting => self.greeting(bytes),
            Stage::OptionReply { option } => self.option_reply(option, bytes),
            Stage::OptionReplyData { option, kind, .. } => self.option_data(option, kind, bytes),
            Stage::ReplyMagic => {
                self.stage = match Fields(bytes).u32() {
                    Some(SIMPLE_REPLY_MAGIC) => Stage::SimpleReply,
                    Some(STRUCTURED_REPLY_MAGIC) => Stage::ChunkHeader,
                    Some(EXTENDED_REPLY_MAGIC) => Stage::ExtendedHeader,
                    _ => return Err("a reply without its magic number"),
                };
                Ok(None)
            }
            Stage::SimpleReply => self.simple_reply(bytes),
            Stage::SimpleData { cookie, .. } => self.simple_data(cookie, bytes),
            Stage::ChunkHeader | Stage::ExtendedHeader => self.chunk_header(bytes),
            Stage::Chunk { done, kind, cookie, .. } => self.chunk(done, kind, cookie, bytes),
            Stage::Broken(why) => Err(why),
        }
    }
}

impl Stage {
    /// Bytes of the next piece.
    fn need(self) -> usize {
        match self {
            Stage::Greeting => 18,
            Stage::OptionReply { .. } => 20,
            Stage::ReplyMagic => 4,
            Stage::SimpleReply => 12,
            Stage::ChunkHeader => 16,
            Stage::ExtendedHeader => 28,
            Stage::OptionReplyData { length, .. }
            | Stage::SimpleData { length, .. }
            | Stage::Chunk { length, .. } => length,
            Stage::Broken(_) => 0,
        }
    }
}

/// Handshake.
impl Client {
    fn greeting(&mut self, bytes: &[u8]) -> Parsed {
        let mut fields = Fields(bytes);
        if fields.u64() != Some(INIT_MAGIC) || fields.u64() != Some(OPTION_MAGIC) {
            return Err("no newstyle greeting");
        }
        let flags = fields.u16().ok_or(TOO_SHORT)?;
        if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
            return Err("the server does not speak fixed newstyle");
        }
        self.output.put_u32(u32::from(handshake_flag::FIXED_NEWSTYLE));
        match self.wants.framing {
            Framing::Simple => self.ask_go(),
            Framing::Structured => self.ask(option::STRUCTURED_REPLY, &[]),
            Framing::Extended => self.ask(option::EXTENDED_HEADERS, &[]),
        }
        Ok(None)
    }

    fn ask(&mut self, option: u32, data: &[u8]) {
        self.output.put_u64(OPTION_MAGIC);
        self.output.put_u32(option);
        self.output.put_u32(length_u32(data.len()));
        self.output.extend_from_slice(data);
        self.stage = Stage::OptionReply { option };
    }

    fn ask_meta_context(&mut self) {
        let mut data = self.export_name();
        data.put_u32(length_u32(self.wants.contexts.iter().count()));
        for context in self.wants.contexts.iter() {
            data.put_u32(length_u32(context.name().len()));
            data.extend_from_slice(context.name().as_bytes());
        }
        self.ask(option::SET_META_CONTEXT, &data);
    }

    fn ask_go(&mut self) {
        let mut data = self.export_name();
        data.put_u16(1);
        data.put_u16(info::BLOCK_SIZE);
        self.ask(option::GO, &data);
    }

    fn export_name(&self) -> Vec<u8> {
        let mut data = Vec::new();
        data.put_u32(length_u32(self.wants.export.len()));
        data.extend_from_slice(self.wants.export.as_bytes());
        data
    }

    fn option_reply(&mut self, option: u32, bytes: &[u8]) -> Parsed {
        let mut fields = Fields(bytes);
        if fields.u64() != Some(OPTION_REPLY_MAGIC) || fields.u32() != Some(option) {
            return Err("a reply to an option that was not asked");
        }
        let kind = fields.u32().ok_or(TOO_SHORT)?;
        let length = fields.u32().ok_or(TOO_SHORT)? as usize;
        if length > REPLY_BYTES_MAX {
            return Err("an option reply that is too long");
        }
        self.stage = Stage::OptionReplyData { option, kind, length };
        Ok(None)
    }

    fn option_data(&mut self, option: u32, kind: u32, bytes: &[u8]) -> Parsed {
        self.stage = Stage::OptionReply { option };
        let refused = kind & option_reply::ERROR != 0;
        match (option, kind) {
            (option::GO, option_reply::INFO) => self.read_info(bytes)?,
            (option::GO, option_reply::ACK) => {
                self.stage = Stage::ReplyMagic;
                return Ok(Some(Event::Ready(self.export.clone())));
            }
            (option::GO, _) if refused => {
                let why = String::from_utf8_lossy(bytes).into_owned();
                return Ok(Some(Event::Refused(kind, why)));
            }
            (option::SET_META_CONTEXT, option_reply::META_CONTEXT) => {
                let mut fields = Fields(bytes);
                let id = fields.u32().ok_or(TOO_SHORT)?;
                let meant = |context: &Context| context.name().as_bytes() == fields.0;
                let context = self.wants.contexts.iter().find(meant);
                self.export.contexts.insert(id, context.ok_or("a context that was not asked")?);
            }
            (option::SET_META_CONTEXT, option_reply::ACK) => self.ask_go(),
            (option::STRUCTURED_REPLY | option::EXTENDED_HEADERS, option_reply::ACK) => {
                self.export.framing = self.wants.framing;
                if self.wants.contexts.is_empty() {
                    self.ask_go();
                } else {
                    self.ask_meta_context();
                }
            }
            (option::STRUCTURED_REPLY, _) if refused => self.ask_go(),
            (option::EXTENDED_HEADERS | option::SET_META_CONTEXT, _) if refused => self.ask_go(),
            _ => return Err("a reply of the wrong type"),
        }
        Ok(None)
    }

    /// Unknown information is ignored, as proto.md asks.
    fn read_info(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        let mut fields = Fields(bytes);
        match fields.u16().ok_or(TOO_SHORT)? {
            info::EXPORT => {
                self.export.size_bytes = fields.u64().ok_or(TOO_SHORT)?;
                self.export.flags = fields.u16().ok_or(TOO_SHORT)?;
            }
            info::BLOCK_SIZE => {
                let mut size = || fields.u32().ok_or(TOO_SHORT);
                self.export.block_sizes = Some([size()?, size()?, size()?]);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Transmission.
impl Client {
    fn simple_reply(&mut self, bytes: &[u8]) -> Parsed {
        let mut fields = Fields(bytes);
        let errno = fields.u32().ok_or(TOO_SHORT)?;
        let cookie = Cookie(fields.u64().ok_or(TOO_SHORT)?);
        if self.export.framing == Framing::Extended {
            return Err("a simple reply after extended headers");
        }
        let pending = self.requests.get(&cookie).ok_or(UNASKED)?;
        let length = pending.data.len();
        if errno == 0 && length > 0 {
            if self.export.framing != Framing::Simple {
                return Err("a simple reply to a read");
            }
            self.stage = Stage::SimpleData { cookie, length };
            return Ok(None);
        }
        self.stage = Stage::ReplyMagic;
        self.requests.remove(&cookie);
        let answer = if errno == 0 {
            Answer::Done
        } else {
            Answer::Failed(Errno::from_wire(errno), String::new())
        };
        Ok(Some(Event::Answer(cookie, answer)))
    }

    fn simple_data(&mut self, cookie: Cookie, bytes: &[u8]) -> Parsed {
        self.stage = Stage::ReplyMagic;
        self.requests.remove(&cookie);
        Ok(Some(Event::Answer(cookie, Answer::Data(bytes.to_vec()))))
    }

    fn chunk_header(&mut self, bytes: &[u8]) -> Parsed {
        let mut fields = Fields(bytes);
        let done = fields.u16().ok_or(TOO_SHORT)? & chunk::FLAG_DONE != 0;
        let kind = fields.u16().ok_or(TOO_SHORT)?;
        let cookie = Cookie(fields.u64().ok_or(TOO_SHORT)?);
        let length = match self.stage {
            Stage::ExtendedHeader => {
                let offset = fields.u64().ok_or(TOO_SHORT)?;
                if self.requests.get(&cookie).ok_or(UNASKED)?.offset_bytes != offset {
                    return Err("a reply with another offset than its request's");
                }
                fields.u64().ok_or(TOO_SHORT)? as usize
            }
            _ => fields.u32().ok_or(TOO_SHORT)? as usize,
        };
        if length > REPLY_BYTES_MAX {
            return Err("a chunk that is too long");
        }
        self.stage = Stage::Chunk { done, kind, cookie, length };
        Ok(None)
    }

    fn chunk(&mut self, done: bool, kind: u16, cookie: Cookie, bytes: &[u8]) -> Parsed {
        self.stage = Stage::ReplyMagic;
        let pending = self.requests.get_mut(&cookie).ok_or(UNASKED)?;
        pending.add_chunk(kind, bytes)?;
        if !done {
            return Ok(None);
        }
        let pending = self.requests.remove(&cookie).ok_or(UNASKED)?;
        Ok(Some(Event::Answer(cookie, pending.into_answer(&self.export.contexts)?)))
    }
}

impl Pending {
    fn add_chunk(&mut self, kind: u16, bytes: &[u8]) -> Result<(), &'static str> {
        let mut fields = Fields(bytes);
        match kind {
            chunk::NONE if bytes.is_empty() => {}
            chunk::OFFSET_DATA => {
                let offset = fields.u64().ok_or(TOO_SHORT)?;
                self.content(offset, fields.0.len())?.copy_from_slice(fields.0);
            }
            chunk::OFFSET_HOLE => {
                let offset = fields.u64().ok_or(TOO_SHORT)?;
                let length = fields.u32().ok_or(TOO_SHORT)?;
                self.content(offset, length as usize)?.fill(0);
            }
            chunk::BLOCK_STATUS => {
                let id = fields.u32().ok_or(TOO_SHORT)?;
                let mut number = |fields: &mut Fields<'_>| fields.u32().map(u64::from);
                self.add_extents(id, fields, &mut number)?;
            }
            chunk::BLOCK_STATUS_EXT => {
                let id = fields.u32().ok_or(TOO_SHORT)?;
                let count = fields.u32().ok_or(TOO_SHORT)? as usize;
                if count != 0 && fields.0.len() != count * 16 {
                    return Err("a wrong count of extents");
                }
                self.add_extents(id, fields, &mut |fields| fields.u64())?;
            }
            _ if kind & chunk::ERROR_BIT != 0 => {
                let errno = Errno::from_wire(fields.u32().ok_or(TOO_SHORT)?);
                let length = fields.u16().ok_or(TOO_SHORT)?;
                let message = fields.bytes(usize::from(length)).ok_or(TOO_SHORT)?;
                self.failed = Some((errno, String::from_utf8_lossy(message).into_owned()));
            }
            _ => return Err("a chunk of unknown type"),
        }
        Ok(())
    }

    /// The part of the data that a content chunk fills.
    fn content(&mut self, offset: u64, length: usize) -> Result<&mut [u8], &'static str> {
        let outside = "a content chunk outside its request";
        let from = offset.checked_sub(self.offset_bytes).ok_or(outside)?;
        let from = usize::try_from(from).map_err(|_| outside)?;
        let to = from.checked_add(length).ok_or(outside)?;
        self.data_bytes_seen += length;
        self.data.get_mut(from..to).ok_or(outside)
    }

    /// Lengths and status in turn, each of them a number.
    fn add_extents(
        &mut self,
        id: u32,
        mut fields: Fields<'_>,
        number: &mut dyn FnMut(&mut Fields<'_>) -> Option<u64>,
    ) -> Result<(), &'static str> {
        let mut extents = Vec::new();
        while !fields.is_empty() {
            let length_bytes = number(&mut fields).ok_or(TOO_SHORT)?;
            let status = number(&mut fields).ok_or(TOO_SHORT)?;
            let status = u32::try_from(status).map_err(|_| "a status of more than 32 bits")?;
            extents.push(Extent { length_bytes, status });
        }
        match self.extents.insert(id, extents) {
            None => Ok(()),
            Some(_) => Err("two chunks of one context"),
        }
    }

    fn into_answer(self, contexts: &BTreeMap<u32, Context>) -> Result<Answer, &'static str> {
        if let Some((errno, message)) = self.failed {
            return Ok(Answer::Failed(errno, message));
        }
        Ok(match self.command {
            Command::Read if self.data_bytes_seen < self.data.len() => {
                return Err("a read was answered in part");
            }
            Command::Read if self.data.is_empty() => Answer::Done,
            Command::Read => Answer::Data(self.data),
            Command::BlockStatus { .. } => {
                let named = self.extents.into_iter();
                let named = named.map(|(id, extents)| Some((*contexts.get(&id)?, extents)));
                let extents: Option<BTreeMap<_, _>> = named.collect();
                Answer::Extents(extents.ok_or("a context that was not chosen")?)
            }
            _ => Answer::Done,
        })
    }
}

/// Longer than the longest honest reply: 32 MiB of data, or 1024 extents, with their headers.
const REPLY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX as usize + 4096;
const TOO_SHORT: &str = "a message is shorter than its type allows";
const UNASKED: &str = "an answer to a request that was not sent";
