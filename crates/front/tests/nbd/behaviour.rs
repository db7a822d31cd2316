//! What a session does that no conversation of bytes shows: limits, order, payloads uncopied.

use mdspace_front::nbd::client::{Answer, Client, Event as ClientEvent, Wants};
use mdspace_front::nbd::{
    Batch, Closing, Command, Context, Contexts, Cookie, Errno, Event, Extent, Framing, Limits,
    Misbehaved, Piece, Request, Session,
};
use mdspace_front::nbd::{Export, Exports};

use crate::ram::{Server, append, exports};

/// A client and a session that is already in transmission, with the answers in our hands.
struct Pair {
    client: Client,
    session: Session<Vec<u8>>,
}

const WRITE: Command = Command::Write { fua: false };

fn allocation() -> Contexts {
    Contexts::from_iter([Context::Allocation])
}

fn wants(framing: Framing) -> Wants {
    Wants { framing, contexts: allocation(), ..Wants::default() }
}

fn status() -> Command {
    Command::BlockStatus { one_extent: false, contexts: allocation() }
}

impl Pair {
    fn new(limits: Limits) -> Pair {
        let wants = Wants { export: "disk".into(), ..wants(Framing::Structured) };
        let mut pair =
            Pair { client: Client::new(wants), session: Session::new(exports(), limits) };
        loop {
            if let Some(ClientEvent::Ready(info)) = pair.deliver_answers() {
                assert_eq!(info.framing, Framing::Structured);
                assert!(info.contexts.values().eq([&Context::Allocation]));
                return pair;
            }
            assert_eq!(pair.poll(), Event::Hungry);
        }
    }

    /// Hands the session all that the client has to send.
    fn poll(&mut self) -> Event {
        let output = self.client.take_output();
        let event = self.session.poll(&mut &output[..]);
        assert!(output.is_empty() || event == Event::Hungry || self.session.export().is_some());
        event
    }

    /// Sends the client all answers and returns its next event of note.
    fn deliver_answers(&mut self) -> Option<ClientEvent> {
        let batch = self.session.take_replies()?;
        let bytes = bytes_of(&batch);
        self.session.sent(batch);
        let mut input = &bytes[..];
        let event = self.client.poll(&mut input);
        (event != ClientEvent::Hungry).then_some(event)
    }

    /// The client sends a read of one block, and the session announces it.
    fn read(&mut self, block: u64) -> Request {
        self.client.send(Command::Read, block * 512, 512, &[]);
        let Event::Request(request) = self.poll() else { panic!("a request was sent") };
        request
    }
}

fn bytes_of(batch: &Batch<Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(batch, &mut bytes);
    bytes
}

#[test]
fn a_client_writes_reads_and_asks_for_the_status() {
    for framing in [Framing::Structured, Framing::Extended] {
        writes_reads_and_asks_for_the_status(framing);
    }
}

fn writes_reads_and_asks_for_the_status(framing: Framing) {
    let mut server = Server::new();
    let mut client = Client::new(wants(framing));
    let mut exchange = |client: &mut Client| {
        loop {
            let bytes = server.take_output();
            let event = client.poll(&mut &bytes[..]);
            if event != ClientEvent::Hungry {
                return event;
            }
            let bytes = client.take_output();
            assert!(!bytes.is_empty(), "both sides wait");
            server.receive(&bytes);
        }
    };
    let ClientEvent::Ready(info) = exchange(&mut client) else { panic!("no handshake") };
    assert_eq!((info.framing, info.size_bytes), (framing, 1 << 20));
    assert_eq!(info.block_sizes, Some([512, 4096, 32 << 20]));

    let cookie = client.send(Command::Write { fua: true }, 512, 512, &[7; 512]);
    assert_eq!(exchange(&mut client), ClientEvent::Answer(cookie, Answer::Done));
    let cookie = client.send(Command::Read, 0, 1024, &[]);
    let data = [[0; 512], [7; 512]].concat();
    assert_eq!(exchange(&mut client), ClientEvent::Answer(cookie, Answer::Data(data)));
    let cookie = client.send(status(), 0, 1024, &[]);
    let extents = [(Context::Allocation, vec![Extent::hole(512), Extent::allocated(512)])];
    let extents = Answer::Extents(extents.into());
    assert_eq!(exchange(&mut client), ClientEvent::Answer(cookie, extents));
    let cookie = client.send(Command::Read, 1 << 20, 512, &[]);
    let why = "range ends beyond the export".to_string();
    let failed = Answer::Failed(Errno::Invalid, why);
    assert_eq!(exchange(&mut client), ClientEvent::Answer(cookie, failed));
    assert_eq!(client.pending(), 0);
}

#[test]
fn an_export_that_is_not_served_is_refused_and_the_client_may_ask_again() {
    let mut server = Server::new();
    let mut client = Client::new(Wants { export: "nope".into(), ..Wants::default() });
    assert_eq!(client.poll(&mut &server.take_output()[..]), ClientEvent::Hungry);
    server.receive(&client.take_output());
    let refused = ClientEvent::Refused(0x8000_0006, "no such export".into());
    assert_eq!(client.poll(&mut &server.take_output()[..]), refused);
    assert_eq!(server.closing(), None);
}

#[test]
fn answers_may_come_in_any_order() {
    let mut pair = Pair::new(Limits::default());
    let first = pair.read(0);
    let second = pair.read(1);
    pair.session.data(&second, vec![2; 512]);
    let answer = ClientEvent::Answer(second.cookie, Answer::Data(vec![2; 512]));
    assert_eq!(pair.deliver_answers(), Some(answer));
    pair.session.data(&first, vec![1; 512]);
    let answer = ClientEvent::Answer(first.cookie, Answer::Data(vec![1; 512]));
    assert_eq!(pair.deliver_answers(), Some(answer));
}

#[test]
fn neighbouring_answers_without_data_leave_as_one_piece() {
    let mut pair = Pair::new(Limits::default());
    let flushes: Vec<Request> = (0..10)
        .map(|_| {
            pair.client.send(Command::Flush, 0, 0, &[]);
            let Event::Request(request) = pair.poll() else { panic!("a request was sent") };
            request
        })
        .collect();
    for flush in &flushes {
        pair.session.done(flush);
    }
    let batch = pair.session.take_replies().expect("ten answers");
    let pieces: Vec<_> = batch.pieces().collect();
    assert!(matches!(pieces[..], [Piece::Headers(bytes)] if bytes.len() == 160), "{pieces:?}");
}

#[test]
fn data_is_sent_from_where_it_is() {
    let mut pair = Pair::new(Limits::default());
    let request = pair.read(0);
    let data = vec![5; 512];
    let address = data.as_ptr();
    pair.session.data(&request, data);
    let batch = pair.session.take_replies().expect("one answer");
    let pieces: Vec<_> = batch.pieces().collect();
    let uncopied =
        matches!(pieces[..], [Piece::Headers(_), Piece::Data(data)] if data.as_ptr() == address);
    assert!(uncopied, "{pieces:?}");
}

#[test]
fn a_client_that_never_reads_its_answers_is_not_read_either() {
    let mut pair = Pair::new(Limits { requests: 4, ..Limits::default() });
    for block in 0..4 {
        let request = pair.read(block);
        pair.session.data(&request, vec![0; 512]);
    }
    pair.client.send(Command::Read, 0, 512, &[]);
    assert_eq!(pair.poll(), Event::Full);
    let batch = pair.session.take_replies().expect("four answers");
    assert_eq!(pair.session.poll(&mut &[][..]), Event::Full, "handed out is not sent");
    pair.session.sent(batch);
    assert_eq!(pair.session.held_requests(), 0);
}

/// Each answer of a block status may be long, and counts for no bytes of the client's limit.
#[test]
fn long_answers_without_data_wait_until_those_before_them_are_sent() {
    let mut pair = Pair::new(Limits::default());
    let extents: Vec<Extent> = (0..1024)
        .map(|block| if block % 2 == 0 { Extent::hole(512) } else { Extent::allocated(512) })
        .collect();
    let mut answered = 0;
    loop {
        pair.client.send(status(), 0, 1 << 20, &[]);
        match pair.poll() {
            Event::Request(request) => pair.session.extents(&request, |_| extents.clone()),
            event => break assert_eq!(event, Event::Full),
        }
        answered += 1;
    }
    let batch = pair.session.take_replies().expect("answers wait");
    let bytes = bytes_of(&batch).len();
    assert!((256 << 10..272 << 10).contains(&bytes), "{bytes} bytes of {answered} answers");
    pair.session.sent(batch);
    assert!(!pair.session.is_full(), "these are sent");
}

#[test]
fn refused_requests_count_until_their_answers_are_sent() {
    let mut pair = Pair::new(Limits { requests: 3, ..Limits::default() });
    for _ in 0..4 {
        pair.client.send(Command::Read, 1, 512, &[]);
    }
    assert_eq!(pair.poll(), Event::Full);
    assert_eq!(pair.session.held_requests(), 3);
}

#[test]
fn payloads_under_way_are_limited_in_bytes_and_the_waiting_request_is_not_lost() {
    let mut pair = Pair::new(Limits { payload_bytes: 1024, ..Limits::default() });
    let first = pair.read(0);
    let second = pair.read(1);
    pair.client.send(Command::Read, 1024, 512, &[]);
    assert_eq!(pair.poll(), Event::Full);
    pair.session.data(&first, vec![0; 512]);
    pair.session.data(&second, vec![0; 512]);
    pair.deliver_answers();
    let Event::Request(third) = pair.session.poll(&mut &[][..]) else { panic!("room again") };
    assert_eq!(third.offset_bytes, 1024);
}

#[test]
fn a_single_payload_beyond_the_limit_of_bytes_passes_alone() {
    let mut pair = Pair::new(Limits { payload_bytes: 512, ..Limits::default() });
    pair.client.send(Command::Read, 0, 4096, &[]);
    assert!(matches!(pair.poll(), Event::Request(_)));
}

/// An export of 2^63 - 512 bytes, which nobody could keep in memory.
#[test]
fn commands_without_a_payload_go_over_all_of_a_huge_export() {
    let size_bytes = i64::MAX as u64 / 512 * 512;
    let export = Export { size_bytes, ..exports().as_slice()[0].clone() };
    let exports = Exports::new(vec![export]).expect("a valid export");
    let mut session: Session<Vec<u8>> = Session::new(exports.into(), Limits::default());
    let mut client = Client::new(wants(Framing::Extended));
    let event = |session: &mut Session<Vec<u8>>, client: &mut Client| {
        loop {
            if let Some(batch) = session.take_replies() {
                let bytes = bytes_of(&batch);
                session.sent(batch);
                let event = client.poll(&mut &bytes[..]);
                if event != ClientEvent::Hungry {
                    return Err(event);
                }
            }
            match session.poll(&mut &client.take_output()[..]) {
                Event::Hungry => {}
                Event::Request(request) => return Ok(request),
                event => panic!("{event:?}"),
            }
        }
    };
    assert!(matches!(event(&mut session, &mut client), Err(ClientEvent::Ready(_))));
    let zero = Command::WriteZeroes { fua: true, no_hole: false, fast: false };
    for command in [Command::Trim { fua: false }, Command::Cache, zero, status()] {
        let cookie = client.send(command, 512, size_bytes - 512, &[]);
        let request = event(&mut session, &mut client).expect("it is executed");
        let all = Request { cookie, command, offset_bytes: 512, length_bytes: size_bytes - 512 };
        assert_eq!(request, all);
        assert_eq!((request.payload_bytes(), session.held_bytes()), (0, 0));
        if command == status() {
            let extents = [Extent::hole(1 << 40), Extent::allocated(u64::MAX)];
            session.extents(&request, |_| extents.to_vec());
            let told = [Extent::hole(1 << 40), Extent::allocated(size_bytes - 512 - (1 << 40))];
            let answer = Answer::Extents([(Context::Allocation, told.to_vec())].into());
            let answered = event(&mut session, &mut client).expect_err("an answer");
            assert_eq!(answered, ClientEvent::Answer(cookie, answer));
            continue;
        }
        session.done(&request);
        let answered = event(&mut session, &mut client).expect_err("an answer");
        assert_eq!(answered, ClientEvent::Answer(cookie, Answer::Done));
    }
    for (command, length) in [
        (Command::Read, (32 << 20) + 512),
        (zero, size_bytes),
        (Command::Trim { fua: false }, u64::MAX - 511),
    ] {
        client.send(command, 512, length, &[]);
        let answered = event(&mut session, &mut client).expect_err("an answer");
        assert!(matches!(answered, ClientEvent::Answer(_, Answer::Failed(..))), "{answered:?}");
    }
}

#[test]
fn a_flood_of_options_ends_the_handshake() {
    let mut session: Session<Vec<u8>> = Session::new(exports(), Limits::default());
    let option = [&b"IHAVEOPT"[..], &[0, 0, 0, 3, 0, 0, 0, 0]].concat();
    let bytes = [&3u32.to_be_bytes()[..], &option.repeat(300)].concat();
    let closed = Event::Closed(Closing::Misbehaved(Misbehaved::TooManyOptions(256)));
    assert_eq!(session.poll(&mut &bytes[..]), closed);
}

#[test]
fn options_are_not_answered_while_earlier_answers_pile_up() {
    let mut long = exports().as_slice()[0].clone();
    long.description = "d".repeat(4096);
    let exports = Exports::new(vec![long]).expect("a valid export");
    let mut session: Session<Vec<u8>> = Session::new(exports.into(), Limits::default());
    let option = [&b"IHAVEOPT"[..], &[0, 0, 0, 3, 0, 0, 0, 0]].concat();
    let bytes = [&3u32.to_be_bytes()[..], &option.repeat(100)].concat();
    let mut input = &bytes[..];
    assert_eq!(session.poll(&mut input), Event::Full);
    let batch = session.take_replies().expect("answers");
    let length = bytes_of(&batch).len();
    assert!(length < 80 << 10, "{length} bytes of answers");
    session.sent(batch);
    assert_eq!(session.poll(&mut input), Event::Full, "and again after some more");
    assert!(!input.is_empty());
}

#[test]
fn the_payload_of_a_write_may_go_straight_into_its_buffer() {
    let mut pair = Pair::new(Limits::default());
    pair.client.send(WRITE, 0, 1024, &[9; 1024]);
    pair.client.send(Command::Flush, 0, 0, &[]);
    let bytes = pair.client.take_output();
    let mut input = &bytes[..28 + 100];
    let Event::Request(write) = pair.session.poll(&mut input) else { panic!("a write") };
    assert_eq!(write.payload_bytes(), 1024);
    let mut buffer = vec![0; 1024];
    let taken = pair.session.take_payload(&mut input);
    assert_eq!(taken.len(), 100);
    buffer[..100].copy_from_slice(taken);
    assert_eq!(pair.session.poll(&mut input), Event::Payload { left: 924 });
    buffer[100..].copy_from_slice(&bytes[128..28 + 1024]);
    pair.session.payload_received(924);
    assert_eq!(buffer, [9; 1024]);
    let event = pair.session.poll(&mut &bytes[28 + 1024..]);
    assert!(matches!(event, Event::Request(Request { command: Command::Flush, .. })));
}

#[test]
#[should_panic(expected = "bytes of payload received where 1024 were left")]
fn more_payload_than_was_announced_is_a_mistake_of_the_caller() {
    let mut pair = Pair::new(Limits::default());
    pair.client.send(WRITE, 0, 1024, &[]);
    pair.poll();
    pair.session.payload_received(1025);
}

#[test]
fn a_refused_write_of_33_mib_is_skipped_without_being_kept() {
    let mut pair = Pair::new(Limits::default());
    let length = 33 << 20;
    pair.client.send(WRITE, 0, length, &[]);
    assert_eq!(pair.poll(), Event::Hungry);
    let mebibyte = vec![0xee; 1 << 20];
    for _ in 0..33 {
        assert_eq!(pair.session.poll(&mut &mebibyte[..]), Event::Hungry);
    }
    pair.client.send(Command::Flush, 0, 0, &[]);
    assert!(matches!(pair.poll(), Event::Request(_)));
    let failed = Answer::Failed(Errno::Invalid, "payload is over 32 MiB".into());
    assert_eq!(pair.deliver_answers(), Some(ClientEvent::Answer(Cookie(1), failed)));
}

#[test]
fn requests_before_a_goodbye_are_still_answered() {
    let mut pair = Pair::new(Limits::default());
    let request = pair.read(0);
    pair.client.disconnect();
    assert_eq!(pair.poll(), Event::Closed(Closing::Goodbye));
    pair.session.data(&request, vec![1; 512]);
    let answer = ClientEvent::Answer(request.cookie, Answer::Data(vec![1; 512]));
    assert_eq!(pair.deliver_answers(), Some(answer));
}

#[test]
fn long_messages_are_cut_between_characters() {
    let mut pair = Pair::new(Limits::default());
    let request = pair.read(0);
    let message = format!("x{}", "ä".repeat(4000));
    pair.session.failed(&request, Errno::Io, &message);
    let Some(ClientEvent::Answer(_, Answer::Failed(Errno::Io, told))) = pair.deliver_answers()
    else {
        panic!("an error was sent")
    };
    assert_eq!(told.len(), 4095);
    assert!(message.starts_with(&told));
}

#[test]
#[should_panic(expected = "answered with 511 bytes of data")]
fn a_read_answered_with_too_little_is_a_mistake_of_the_caller() {
    let mut pair = Pair::new(Limits::default());
    let request = pair.read(0);
    pair.session.data(&request, vec![0; 511]);
}
