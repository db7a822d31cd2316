//! The handshake: greeting, client flags, then options until one of them starts transmission.

use std::sync::Arc;

use mdspace_io::Lineage;
use serde::{Deserialize, Serialize};

use super::context::{Context, Contexts};
use super::export::{Export, Exports};
use super::handover::Begun;
use super::request::{Agreement, Framing};
use super::session::{Closing, Misbehaved};
use super::wire::{
    EXPORT_NAME_PADDING, Fields, Gather, INIT_MAGIC, OPTION_HEADER_BYTES, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, Put, STRING_BYTES_MAX, handshake_flag, info, length_u32, option,
    option_reply, split_front,
};

/// The longest option data that is looked at; longer data is skipped and refused.
const OPTION_BYTES_MAX: usize = 4 * STRING_BYTES_MAX;
/// Clients ask a handful of questions; one that asks more is not going to transmit.
const OPTIONS_MAX: usize = 256;

/// A connection before transmission.
#[derive(Debug)]
pub(super) struct Handshake {
    exports: Arc<Exports>,
    gather: Gather,
    stage: Stage,
    options_seen: usize,
    client: ClientFlags,
    tls: Tls,
    framing: Framing,
    /// Metadata contexts as they were chosen last, and for which export.
    chosen: Option<(usize, Contexts)>,
    /// What only the process can answer that serves an export is left to that.
    hands_over: bool,
    /// The export that was asked about last.
    mentioned: Option<usize>,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
enum Stage {
    ClientFlags,
    OptionHeader,
    OptionData {
        option: u32,
        length: usize,
    },
    /// Data too long to look at.
    SkippedData {
        option: u32,
        left: usize,
    },
}

/// How a connection stands to TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tls {
    /// It is not offered.
    Absent,
    /// It must begin before anything is told.
    Required,
    Begun,
}

/// What the client said before its first option.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct ClientFlags {
    fixed_newstyle: bool,
    no_zeroes: bool,
}

/// What became of the input.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// All of it was used.
    Hungry,
    /// An option was answered; more input may be left.
    Answered,
    /// What the client sends next is TLS.
    StartTls,
    /// Transmission starts with the next byte.
    Transmit(Agreement),
    /// Another process goes on, with what the client has sent from this option on.
    HandOver {
        /// The export that the process serves.
        export: usize,
        /// How far it is. What was read before the option is over.
        begun: Begun,
    },
    /// The connection is over.
    Close(Closing),
}

/// An option that cannot be granted: the reply's type and a line for people.
struct Refusal(u32, &'static str);

impl Handshake {
    /// Starts a handshake; the greeting is written to `out`.
    pub(super) fn new(exports: Arc<Exports>, out: &mut Vec<u8>) -> Handshake {
        out.put_u64(INIT_MAGIC);
        out.put_u64(OPTION_MAGIC);
        out.put_u16(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        Handshake::begin(exports, Stage::ClientFlags)
    }

    /// Starts a handshake that other processes go on with, one for each export.
    pub(super) fn handing_over(exports: Arc<Exports>, out: &mut Vec<u8>) -> Handshake {
        Handshake { hands_over: true, ..Handshake::new(exports, out) }
    }

    /// Goes on with one that another process has begun. What was chosen for an export that is not served here is chosen
    /// no more.
    pub(super) fn resume(exports: Arc<Exports>, begun: &Begun) -> Handshake {
        let chosen = begun.chosen.as_ref().and_then(|(export, contexts)| {
            let contexts = contexts.iter().copied().filter_map(Context::with_id).collect();
            Some((exports.find(export)?, contexts))
        });
        let Begun { client, framing, .. } = *begun;
        Handshake { client, framing, chosen, ..Handshake::begin(exports, Stage::OptionHeader) }
    }

    fn begin(exports: Arc<Exports>, stage: Stage) -> Handshake {
        Handshake {
            exports,
            gather: Gather::default(),
            stage,
            options_seen: 0,
            client: ClientFlags::default(),
            tls: Tls::Absent,
            framing: Framing::default(),
            chosen: None,
            hands_over: false,
            mentioned: None,
        }
    }

    pub(super) fn require_tls(&mut self) {
        self.tls = Tls::Required;
    }

    /// Reads up to the end of one option; replies are appended to `out`.
    pub(super) fn poll(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Step {
        loop {
            let done = match self.stage {
                Stage::ClientFlags => self.read_client_flags(input),
                Stage::OptionHeader => self.read_option_header(input),
                Stage::OptionData { option, length } => {
                    self.read_option_data(option, length, input, out)
                }
                Stage::SkippedData { option, left } => self.skip_data(option, left, input, out),
            };
            if let Some(step) = done {
                return step;
            }
        }
    }

    fn read_client_flags(&mut self, input: &mut &[u8]) -> Option<Step> {
        let Some(bytes) = self.gather.take(input, 4) else { return Some(Step::Hungry) };
        let flags = Fields(bytes).u32().expect("four bytes were asked for");
        let fixed_newstyle = u32::from(handshake_flag::FIXED_NEWSTYLE);
        let no_zeroes = u32::from(handshake_flag::NO_ZEROES);
        if flags & !(fixed_newstyle | no_zeroes) != 0 {
            return Some(misbehaved(Misbehaved::ClientFlags(flags)));
        }
        self.client = ClientFlags {
            fixed_newstyle: flags & fixed_newstyle != 0,
            no_zeroes: flags & no_zeroes != 0,
        };
        self.stage = Stage::OptionHeader;
        None
    }

    fn read_option_header(&mut self, input: &mut &[u8]) -> Option<Step> {
        let Some(bytes) = self.gather.take(input, OPTION_HEADER_BYTES) else {
            return Some(Step::Hungry);
        };
        let mut fields = Fields(bytes);
        let (magic, option, length) = (fields.u64(), fields.u32(), fields.u32());
        let (Some(OPTION_MAGIC), Some(option), Some(length)) = (magic, option, length) else {
            return Some(misbehaved(Misbehaved::Magic));
        };
        self.options_seen += 1;
        if self.options_seen > OPTIONS_MAX {
            return Some(misbehaved(Misbehaved::TooManyOptions(OPTIONS_MAX)));
        }
        if !self.client.fixed_newstyle && option != option::EXPORT_NAME {
            return Some(misbehaved(Misbehaved::NotFixedNewstyle(option)));
        }
        let length = length as usize;
        self.stage = if length <= OPTION_BYTES_MAX {
            Stage::OptionData { option, length }
        } else {
            Stage::SkippedData { option, left: length }
        };
        None
    }

    /// Data that is too long goes by unread, so that the next option is still found.
    fn skip_data(
        &mut self,
        option: u32,
        left: usize,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Step> {
        if option == option::EXPORT_NAME {
            return Some(misbehaved(Misbehaved::UnknownExport));
        }
        let skipped = split_front(input, left.min(input.len())).len();
        if skipped < left {
            self.stage = Stage::SkippedData { option, left: left - skipped };
            return Some(Step::Hungry);
        }
        self.stage = Stage::OptionHeader;
        refuse(out, option, Refusal(option_reply::ERR_TOO_BIG, "option data is over 16 KiB"));
        Some(Step::Answered)
    }

    fn read_option_data(
        &mut self,
        option: u32,
        length: usize,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Step> {
        // The gathered bytes are borrowed while the rest of the handshake is changed.
        let mut gather = std::mem::take(&mut self.gather);
        let step = match gather.take(input, length) {
            None => Step::Hungry,
            Some(data) => {
                self.stage = Stage::OptionHeader;
                self.answer(option, data, out)
            }
        };
        self.gather = gather;
        Some(step)
    }

    fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        if let Some(export) = self.served_elsewhere(option, data) {
            return Step::HandOver { export, begun: self.begun(option, data) };
        }
        let answered = match option {
            option::EXPORT_NAME if self.tls == Tls::Required => {
                return misbehaved(Misbehaved::NoTls);
            }
            option::EXPORT_NAME => return self.export_name(data, out),
            option::ABORT => {
                reply(out, option, option_reply::ACK, &[]);
                return Step::Close(Closing::Goodbye);
            }
            option::STARTTLS if self.tls != Tls::Absent => match self.start_tls(data, out) {
                Ok(()) => return Step::StartTls,
                Err(refusal) => Err(refusal),
            },
            _ if self.tls == Tls::Required => {
                let why = "this server serves over TLS alone: begin with STARTTLS";
                Err(Refusal(option_reply::ERR_TLS_REQD, why))
            }
            option::GO => match self.info(option, data, out) {
                Ok(export) => return Step::Transmit(self.agreement(export)),
                Err(refusal) => Err(refusal),
            },
            option::INFO => match self.answer_to_question(data) {
                Some(answer) => {
                    reply(out, option, option_reply::ERR_UNKNOWN, answer.as_bytes());
                    Ok(())
                }
                None => self.info(option, data, out).map(|export| self.mentioned = Some(export)),
            },
            option::LIST => self.list(data, out),
            option::STRUCTURED_REPLY => self.structured_reply(data, out),
            option::LIST_META_CONTEXT => self.list_meta_context(data, out),
            option::SET_META_CONTEXT => self.set_meta_context(data, out),
            option::EXTENDED_HEADERS => self.extended_headers(data, out),
            _ => Err(Refusal(option_reply::ERR_UNSUP, "option is not supported")),
        };
        if let Err(refusal) = answered {
            refuse(out, option, refusal);
        }
        Step::Answered
    }

    /// The export whose process alone can answer an option, if another one is to go on.
    fn served_elsewhere(&self, option: u32, data: &[u8]) -> Option<usize> {
        if !self.hands_over {
            return None;
        }
        let named = || parse_info(data).map(|(name, _)| name);
        match option {
            option::EXPORT_NAME => self.find(data).ok(),
            option::GO => self.find(named()?).ok(),
            option::INFO => {
                let name = std::str::from_utf8(named()?).ok()?;
                self.mentioned.filter(|_| Lineage::is_question(name))
            }
            _ => None,
        }
    }

    fn begun(&self, option: u32, data: &[u8]) -> Begun {
        let mut came = Vec::with_capacity(OPTION_HEADER_BYTES + data.len());
        came.put_u64(OPTION_MAGIC);
        came.put_u32(option);
        came.put_u32(length_u32(data.len()));
        came.extend_from_slice(data);
        let chosen = self.chosen.map(|(export, contexts)| {
            let name = self.exports.as_slice()[export].name.clone();
            (name, contexts.iter().map(Context::id).collect())
        });
        Begun { client: self.client, framing: self.framing, chosen, came }
    }

    /// Nothing that was agreed without TLS is kept.
    fn start_tls(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        expect_no_data(data)?;
        if self.tls == Tls::Begun {
            return Err(Refusal(option_reply::ERR_INVALID, "TLS has begun"));
        }
        self.tls = Tls::Begun;
        self.framing = Framing::default();
        self.chosen = None;
        reply(out, option::STARTTLS, option_reply::ACK, &[]);
        Ok(())
    }

    fn agreement(&self, export: usize) -> Agreement {
        let contexts = match self.chosen {
            Some((of, contexts)) if of == export => contexts,
            _ => Contexts::default(),
        };
        Agreement { export, framing: self.framing, contexts }
    }

    /// The oldest way in. It has no error reply: an unknown name ends the connection.
    fn export_name(&mut self, name: &[u8], out: &mut Vec<u8>) -> Step {
        if self.framing == Framing::Extended {
            return misbehaved(Misbehaved::OldAfterNew);
        }
        let Ok(export) = self.find(name) else {
            return misbehaved(Misbehaved::UnknownExport);
        };
        let chosen = &self.exports.as_slice()[export];
        out.put_u64(chosen.size_bytes);
        out.put_u16(chosen.flags(self.framing));
        if !self.client.no_zeroes {
            out.extend_from_slice(&[0; EXPORT_NAME_PADDING]);
        }
        Step::Transmit(self.agreement(export))
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        expect_no_data(data)?;
        for export in self.exports.as_slice() {
            let mut item = Vec::with_capacity(4 + export.name.len() + export.description.len());
            item.put_u32(length_u32(export.name.len()));
            item.extend_from_slice(export.name.as_bytes());
            item.extend_from_slice(export.description.as_bytes());
            reply(out, option::LIST, option_reply::SERVER, &item);
        }
        reply(out, option::LIST, option_reply::ACK, &[]);
        Ok(())
    }

    /// `INFO` and `GO`: returns the export that was described.
    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<usize, Refusal> {
        let (name, wanted) = parse_info(data).ok_or(MALFORMED)?;
        let export = self.find(name)?;
        let chosen = &self.exports.as_slice()[export];
        let mut item = |kind: u16, payload: &[u8]| {
            let data = [&kind.to_be_bytes(), payload].concat();
            reply(out, option, option_reply::INFO, &data);
        };
        item(info::EXPORT, &describe(chosen, self.framing));
        // Sent unasked too: a client that reads it learns why odd requests will fail.
        item(info::BLOCK_SIZE, &describe_block_sizes(chosen));
        if wanted.contains(&info::NAME) {
            item(info::NAME, chosen.name.as_bytes());
        }
        if wanted.contains(&info::DESCRIPTION) && !chosen.description.is_empty() {
            item(info::DESCRIPTION, chosen.description.as_bytes());
        }
        reply(out, option, option_reply::ACK, &[]);
        Ok(export)
    }

    /// Other mdspace processes ask for what lies below, by the name of an export that is none.
    fn answer_to_question(&self, data: &[u8]) -> Option<String> {
        let (name, _) = parse_info(data)?;
        self.exports.answer(std::str::from_utf8(name).ok()?)
    }

    fn structured_reply(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        expect_no_data(data)?;
        if self.framing == Framing::Extended {
            let why = "extended headers were agreed on";
            return Err(Refusal(option_reply::ERR_EXT_HEADER_REQD, why));
        }
        self.framing = Framing::Structured;
        reply(out, option::STRUCTURED_REPLY, option_reply::ACK, &[]);
        Ok(())
    }

    fn extended_headers(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        expect_no_data(data)?;
        self.framing = Framing::Extended;
        reply(out, option::EXTENDED_HEADERS, option_reply::ACK, &[]);
        Ok(())
    }

    fn list_meta_context(&self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let (_, queries) = self.meta_context(data)?;
        for context in Context::ALL {
            if queries.is_empty() || queries.iter().any(|query| context.is_listed_by(query)) {
                reply_context(out, option::LIST_META_CONTEXT, 0, context);
            }
        }
        reply(out, option::LIST_META_CONTEXT, option_reply::ACK, &[]);
        Ok(())
    }

    /// Replaces whatever was chosen before, also when it fails.
    fn set_meta_context(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.chosen = None;
        let (export, queries) = self.meta_context(data)?;
        let is_meant = |context: &Context| queries.contains(&context.name().as_bytes());
        let contexts: Contexts = Context::ALL.into_iter().filter(is_meant).collect();
        for context in contexts.iter() {
            reply_context(out, option::SET_META_CONTEXT, context.id(), context);
        }
        self.chosen = Some((export, contexts));
        reply(out, option::SET_META_CONTEXT, option_reply::ACK, &[]);
        Ok(())
    }

    fn meta_context<'a>(&self, data: &'a [u8]) -> Result<(usize, Vec<&'a [u8]>), Refusal> {
        if self.framing == Framing::Simple {
            let why = "metadata contexts need structured replies: ask for them first";
            return Err(Refusal(option_reply::ERR_INVALID, why));
        }
        let (name, queries) = parse_meta_context(data).ok_or(MALFORMED)?;
        if queries.iter().any(|query| !query.contains(&b':')) {
            let why = "a metadata query needs a namespace and a colon";
            return Err(Refusal(option_reply::ERR_INVALID, why));
        }
        Ok((self.find(name)?, queries))
    }

    fn find(&self, name: &[u8]) -> Result<usize, Refusal> {
        if name.len() > STRING_BYTES_MAX {
            return Err(Refusal(option_reply::ERR_TOO_BIG, "export name is over 4096 bytes"));
        }
        let not_text = Refusal(option_reply::ERR_INVALID, "export name is not UTF-8");
        let name = std::str::from_utf8(name).map_err(|_| not_text)?;
        self.exports.find(name).ok_or(Refusal(option_reply::ERR_UNKNOWN, "no such export"))
    }
}

const MALFORMED: Refusal =
    Refusal(option_reply::ERR_INVALID, "lengths inside the option are wrong");

fn misbehaved(how: Misbehaved) -> Step {
    Step::Close(Closing::Misbehaved(how))
}

fn expect_no_data(data: &[u8]) -> Result<(), Refusal> {
    if data.is_empty() {
        Ok(())
    } else {
        Err(Refusal(option_reply::ERR_INVALID, "this option has no data"))
    }
}

/// Name and wanted items of information.
fn parse_info(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    let wanted = (0..count).map(|_| fields.u16()).collect::<Option<Vec<_>>>()?;
    fields.is_empty().then_some((name, wanted))
}

/// Name of the export and queries.
fn parse_meta_context(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    let queries = (0..count).map(|_| fields.string()).collect::<Option<Vec<_>>>()?;
    fields.is_empty().then_some((name, queries))
}

fn describe(export: &Export, framing: Framing) -> Vec<u8> {
    let mut payload = Vec::with_capacity(10);
    payload.put_u64(export.size_bytes);
    payload.put_u16(export.flags(framing));
    payload
}

fn describe_block_sizes(export: &Export) -> Vec<u8> {
    let sizes = export.block_sizes;
    let mut payload = Vec::with_capacity(12);
    payload.put_u32(sizes.minimum());
    payload.put_u32(sizes.preferred());
    payload.put_u32(sizes.maximum());
    payload
}

fn reply_context(out: &mut Vec<u8>, option: u32, id: u32, context: Context) {
    let data = [&id.to_be_bytes(), context.name().as_bytes()].concat();
    reply(out, option, option_reply::META_CONTEXT, &data);
}

fn refuse(out: &mut Vec<u8>, option: u32, Refusal(kind, why): Refusal) {
    reply(out, option, kind, why.as_bytes());
}

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.put_u64(OPTION_REPLY_MAGIC);
    out.put_u32(option);
    out.put_u32(kind);
    out.put_u32(length_u32(data.len()));
    out.extend_from_slice(data);
}
