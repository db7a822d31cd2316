//! Conversations in files: what a client sends, and what the server must answer to the byte.

use std::fs;
use std::path::Path;

use mdspace_front::nbd::Closing;

use crate::ram::Server;
use crate::seed::for_each_seed;

pub(crate) struct Conversation {
    pub(crate) name: String,
    /// The server requires TLS; what stands behind `STARTTLS` is what it deciphers to.
    pub(crate) tls: bool,
    pub(crate) client: Vec<u8>,
    server: Vec<u8>,
    end: End,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Open,
    Goodbye,
    Misbehaved,
}

/// What a server made of a client's bytes.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) output: Vec<u8>,
    pub(crate) end: End,
    pub(crate) disk: Vec<u8>,
}

/// All conversations, in the order of their names.
pub(crate) fn conversations() -> Vec<Conversation> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nbd/corpus");
    let entries = fs::read_dir(folder).expect("the corpus is part of the sources");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    assert!(paths.len() > 10, "the corpus is not empty");
    paths.iter().map(|path| Conversation::parse(path)).collect()
}

/// Lets a server answer `pieces`, one after the other.
pub(crate) fn converse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    converse_with(Server::new(), pieces)
}

fn converse_with<'a>(mut server: Server, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut output = server.take_output();
    for piece in pieces {
        server.receive(piece);
        output.extend(server.take_output());
    }
    assert_eq!(server.held_requests() - server.writes_under_way(), 0, "an answer was forgotten");
    let end = match server.closing() {
        None => End::Open,
        Some(Closing::Goodbye) => End::Goodbye,
        Some(Closing::Misbehaved(_)) => End::Misbehaved,
    };
    Outcome { output, end, disk: server.disk().to_vec() }
}

impl Conversation {
    /// As [`converse`], with the server that it is with.
    pub(crate) fn with<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
        converse_with(if self.tls { Server::requiring_tls() } else { Server::new() }, pieces)
    }

    fn parse(path: &Path) -> Conversation {
        let text = fs::read_to_string(path).expect("a readable file");
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        let (mut tls, mut client, mut server, mut end) = (false, Vec::new(), Vec::new(), None);
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line.split_once(' ') {
                None if line.is_empty() => {}
                None if line == "TLS" => tls = true,
                Some(("C", bytes)) => parse_bytes(bytes, &mut client),
                Some(("S", bytes)) => parse_bytes(bytes, &mut server),
                Some(("END", "open")) => end = Some(End::Open),
                Some(("END", "goodbye")) => end = Some(End::Goodbye),
                Some(("END", "misbehaved")) => end = Some(End::Misbehaved),
                _ => panic!("{name}: cannot read {line:?}"),
            }
        }
        let end = end.unwrap_or_else(|| panic!("{name}: no END"));
        Conversation { name, tls, client, server, end }
    }

    /// The first difference between what must be and what is.
    fn difference(&self, outcome: &Outcome) -> Option<String> {
        let name = &self.name;
        if outcome.end != self.end {
            return Some(format!("{name}: ended {:?}, not {:?}", outcome.end, self.end));
        }
        let pairs = self.server.iter().zip(&outcome.output);
        let position = pairs.take_while(|(expected, found)| expected == found).count();
        if position == self.server.len() && position == outcome.output.len() {
            return None;
        }
        let near = |bytes: &[u8]| {
            let near = bytes.iter().skip(position).take(24);
            near.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        Some(format!(
            "{name}: the answer differs at byte {position}: {} instead of {}",
            near(&outcome.output),
            near(&self.server)
        ))
    }
}

/// Hexadecimal digits, text in quotes without spaces lost, each with an optional `*COUNT`.
fn parse_bytes(mut text: &str, out: &mut Vec<u8>) {
    loop {
        text = text.trim_start();
        let Some(first) = text.chars().next() else { return };
        let mut item = Vec::new();
        if first == '"' {
            let (inside, rest) = text[1..].split_once('"').expect("a closing quote");
            item.extend_from_slice(inside.as_bytes());
            text = rest;
        } else {
            let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
            assert!(end > 0 && end.is_multiple_of(2), "pairs of hexadecimal digits: {text:?}");
            let pairs = text.as_bytes()[..end].chunks(2);
            let pairs = pairs.map(|pair| std::str::from_utf8(pair).expect("digits"));
            item.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits")));
            text = &text[end..];
        }
        let mut count = 1;
        if let Some(rest) = text.strip_prefix('*') {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            count = rest[..end].parse().expect("a count");
            text = &rest[end..];
        }
        out.extend(item.repeat(count));
    }
}

#[test]
fn every_conversation_is_answered_to_the_byte() {
    for conversation in conversations() {
        let outcome = conversation.with([&conversation.client[..]]);
        if let Some(difference) = conversation.difference(&outcome) {
            panic!("{difference}");
        }
    }
}

#[test]
fn a_wrong_byte_in_an_answer_is_noticed() {
    for conversation in conversations() {
        let mut outcome = conversation.with([&conversation.client[..]]);
        let middle = outcome.output.len() / 2;
        outcome.output[middle] ^= 1;
        assert!(conversation.difference(&outcome).is_some(), "{}", conversation.name);
    }
}

#[test]
fn a_stream_cut_at_every_byte_is_answered_alike() {
    for conversation in conversations() {
        let whole = conversation.with([&conversation.client[..]]);
        let bytes = conversation.with(conversation.client.chunks(1));
        assert_eq!(whole, bytes, "{}", conversation.name);
    }
}

#[test]
fn a_stream_in_pieces_of_any_size_is_answered_alike() {
    let conversations = conversations();
    for_each_seed(0..50, "a_stream_in_pieces", |random| {
        for conversation in &conversations {
            let whole = conversation.with([&conversation.client[..]]);
            let pieces = conversation.with(random.split(&conversation.client));
            assert_eq!(whole, pieces, "{}", conversation.name);
        }
    });
}

#[test]
fn a_client_that_stops_anywhere_was_answered_up_to_there() {
    for conversation in conversations() {
        let whole = conversation.with([&conversation.client[..]]);
        for cut in (0..conversation.client.len()).step_by(7) {
            let outcome = conversation.with([&conversation.client[..cut]]);
            assert!(whole.output.starts_with(&outcome.output), "{} at {cut}", conversation.name);
        }
    }
}

#[test]
fn a_byte_lost_between_pieces_is_noticed() {
    let conversations = conversations();
    let long =
        conversations.iter().find(|c| c.name == "go_write_read_disc").expect("in the corpus");
    let whole = long.with([&long.client[..]]);
    let (front, back) = long.client.split_at(long.client.len() / 2);
    assert_ne!(whole, long.with([front, &back[1..]]));
}
