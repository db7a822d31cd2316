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
        let mut bytes = conversations[random.index(conversations.len())].client.clone();
        mutate(random, &mut bytes);
        let whole = converse([&bytes[..]]);
        let pieces = converse(random.split(&bytes));
        assert!(whole == pieces, "the answer depends on how the stream was cut");
    });
}

/// A request as it stands on the wire.
struct Sent {
    kind: u16,
    cookie: u64,
    length: u32,
}

/// A request with random flags, kind and range; half of them are valid.
fn random_request(random: &mut Random, cookie: u64, out: &mut Vec<u8>) -> Sent {
    let kind = random.pick(&[0, 0, 1, 1, 3, 4, 5, 6, 7, 8, 0xffff]);
    let flags = random.pick(&[0, 0, 0, 0, 1, 2, 4, 8, 16, 0x8000, 0xffff]);
    let offset = random.pick(&[0, 512, 1024, 4096, 1, (1 << 20) - 512, 1 << 20, u64::MAX - 511]);
    let length = random.pick(&[0, 512, 512, 512, 1024, 4096, 1, 511]);
    out.extend(0x2560_9513u32.to_be_bytes());
    out.extend(u16::to_be_bytes(flags));
    out.extend(u16::to_be_bytes(kind));
    out.extend(cookie.to_be_bytes());
    out.extend(u64::to_be_bytes(offset));
    out.extend(u32::to_be_bytes(length));
    if kind == 1 {
        out.extend((0..length).map(|_| random.next() as u8));
    }
    Sent { kind, cookie, length }
}

#[test]
fn framed_requests_with_any_content_leave_the_stream_in_step() {
    for_each_seed(0..400, "framed_requests", |random| {
        let mut bytes = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
        let sent: Vec<Sent> =
            (0..64).map(|cookie| random_request(random, cookie, &mut bytes)).collect();
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
