//! Hostile clients: mutated conversations, and requests that are framed but otherwise random.

use crate::corpus::{End, conversations, converse};
use crate::seed::{Random, for_each_seed};

/// Flips, cuts, doubles or replaces a few bytes.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.within(1..6) {
        if bytes.is_empty() {
            return;
        }
        let at = random.index(bytes.len());
        let to = (at + 1 + random.index(32)).min(bytes.len());
        match random.index(5) {
            0 => bytes[at] ^= 1 << random.index(8),
            1 => bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => drop(bytes.drain(at..to)),
            3 => {
                let copy = bytes[at..to].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            _ => bytes[at..to].fill(0xff),
        }
    }
}

#[test]
fn mutated_conversations_are_answered_alike_whole_and_in_pieces() {
    let conversations = conversations();
    for_each_seed(0..1500, "mutated_conversations", |random| {
        let conversation = &conversations[random.index(conversations.len())];
        let mut bytes = conversation.client.clone();
        mutate(random, &mut bytes);
        let whole = conversation.with([&bytes[..]]);
        let pieces = conversation.with(random.split(&bytes));
        assert!(whole == pieces, "the answer depends on how the stream was cut");
    });
}

/// A request as it stands on the wire.
struct Sent {
    kind: u16,
    cookie: u64,
    offset: u64,
    length: u64,
}

/// A request with random flags, kind and range; half of them are valid. A write's payload follows it, and with extended
/// headers one that a flag tells of.
fn random_request(random: &mut Random, is_extended: bool, cookie: u64, out: &mut Vec<u8>) -> Sent {
    const PAYLOAD_LEN: u16 = 1 << 5;
    let kind = random.pick(&[0, 0, 1, 1, 3, 4, 5, 6, 7, 8, 0xffff]);
    let flags = random.pick(&[0, 0, 0, 0, 1, 2, 4, 8, 16, PAYLOAD_LEN, 0x8000, 0xffff]);
    let offset = random.pick(&[0, 512, 1024, 4096, 1, (1 << 20) - 512, 1 << 20, u64::MAX - 511]);
    let mut length = random.pick(&[0, 512, 512, 512, 1024, 4096, 1, 511, 12, 16]);
    let has_payload = kind == 1 || (is_extended && flags & PAYLOAD_LEN != 0);
    if is_extended && !has_payload {
        length = random.pick(&[length, length, 1 << 32, 1 << 40, u64::MAX]);
    }
    out.extend(if is_extended { 0x21e4_1c71_u32 } else { 0x2560_9513 }.to_be_bytes());
    out.extend(u16::to_be_bytes(flags));
    out.extend(u16::to_be_bytes(kind));
    out.extend(cookie.to_be_bytes());
    out.extend(u64::to_be_bytes(offset));
    match is_extended {
        true => out.extend(length.to_be_bytes()),
        false => out.extend((length as u32).to_be_bytes()),
    }
    if has_payload {
        out.extend((0..length).map(|_| random.next() as u8));
    }
    Sent { kind, cookie, offset, length }
}

#[test]
fn framed_requests_with_any_content_leave_the_stream_in_step() {
    for_each_seed(0..400, "framed_requests", |random| {
        let mut bytes = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
        let sent: Vec<Sent> =
            (0..64).map(|cookie| random_request(random, false, cookie, &mut bytes)).collect();
        let outcome = converse(random.split(&bytes));
        assert_eq!(outcome.end, End::Open);

        // Greeting, size and flags stand before the replies.
        let mut replies = &outcome.output[18 + 10..];
        for request in sent {
            let (reply, rest) = replies.split_at(16);
            assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes(), "the magic of a simple reply");
            assert_eq!(reply[8..], request.cookie.to_be_bytes(), "answers come in order here");
            let read = request.kind == 0 && reply[4..8] == [0; 4];
            replies = &rest[if read { request.length as usize } else { 0 }..];
        }
        assert!(replies.is_empty(), "nothing follows the last answer");
    });
}

#[test]
fn extended_requests_with_any_content_leave_the_stream_in_step() {
    for_each_seed(0..400, "extended_requests", |random| {
        let option = |kind: u8, data: &[u8]| {
            [b"IHAVEOPT", &[0, 0, 0, kind, 0, 0, 0, data.len() as u8][..], data].concat()
        };
        let name = b"\0\0\0\x0fbase:allocation";
        let chosen = [&[0; 4][..], &[0, 0, 0, 1], name].concat();
        let options = [option(11, &[]), option(10, &chosen), option(7, &[0; 6])].concat();
        let mut bytes = [&3u32.to_be_bytes()[..], &options].concat();
        let greeting = converse([&bytes[..]]).output.len();
        let sent: Vec<Sent> =
            (0..64).map(|cookie| random_request(random, true, cookie, &mut bytes)).collect();
        let outcome = converse(random.split(&bytes));
        assert_eq!(outcome.end, End::Open);

        let mut replies = &outcome.output[greeting..];
        for request in sent {
            let (header, rest) = replies.split_at(32);
            assert_eq!(header[..4], 0x6e8a_278c_u32.to_be_bytes(), "the magic of its replies");
            assert_eq!(header[4..6], [0, 1], "one context, and so one chunk");
            assert_eq!(header[8..16], request.cookie.to_be_bytes(), "answers come in order here");
            assert_eq!(header[16..24], request.offset.to_be_bytes(), "the request's offset");
            let length = u64::from_be_bytes(header[24..].try_into().expect("eight bytes"));
            if request.kind == 0 && header[6..8] == [0, 1] {
                assert_eq!(length, 8 + request.length);
            }
            replies = &rest[length as usize..];
        }
        assert!(replies.is_empty(), "nothing follows the last answer");
    });
}
