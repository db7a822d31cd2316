//! Servers that hang, lie, and go away with requests unanswered.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mdspace_engine::backend::{
    IoDone, IoError, IoErrorKind, IoOp, MemberId, MemberIo, Patience, ReadInto, WriteFrom,
};
use mdspace_engine::lane::Lane;
use mdspace_io::nbd_wire::{
    INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, Put, SIMPLE_REPLY_MAGIC, export_flag,
    handshake_flag, info, option, option_reply,
};
use mdspace_io::{LanesConfig, LocalLane, MemberTable, OpenMode};

const BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// A server in the hands of a test: it greets, and then does what the test's script says.
struct Scripted {
    folder: tempfile::TempDir,
    thread: JoinHandle<()>,
}

impl Scripted {
    fn new(script: impl FnOnce(UnixStream) + Send + 'static) -> Scripted {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("s")).expect("listening");
        let thread = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            greet(&mut client);
            script(client);
        });
        Scripted { folder, thread }
    }

    fn open(&self, table: &Arc<MemberTable>) -> MemberId {
        let name = format!("nbd+unix://{}/s", self.folder.path().display());
        table.open(&name, OpenMode::RUN).expect("an open member").0
    }
}

fn greet(client: &mut UnixStream) {
    let mut hello = Vec::new();
    hello.put_u64(INIT_MAGIC);
    hello.put_u64(OPTION_MAGIC);
    hello.put_u16(handshake_flag::FIXED_NEWSTYLE);
    client.write_all(&hello).expect("sent");
    // Flags, a question about what is below, and GO for the default export with one wish.
    take(client, 4);
    let head = take(client, 16);
    let length = u32::from_be_bytes(head[12..].try_into().expect("four bytes"));
    take(client, length as usize);
    reply(client, option::INFO, option_reply::ERR_UNKNOWN, b"no such export");
    take(client, 16 + 8);
    let mut data = Vec::new();
    data.put_u16(info::EXPORT);
    data.put_u64(BYTES);
    data.put_u16(export_flag::HAS_FLAGS | export_flag::SEND_FLUSH);
    for (kind, data) in [(option_reply::INFO, &data[..]), (option_reply::ACK, &[])] {
        reply(client, option::GO, kind, data);
    }
}

fn reply(client: &mut UnixStream, option: u32, kind: u32, data: &[u8]) {
    let mut answer = Vec::new();
    answer.put_u64(OPTION_REPLY_MAGIC);
    answer.put_u32(option);
    answer.put_u32(kind);
    answer.put_u32(data.len() as u32);
    answer.extend_from_slice(data);
    client.write_all(&answer).expect("sent");
}

fn take(client: &mut UnixStream, bytes: usize) -> Vec<u8> {
    let mut taken = vec![0; bytes];
    client.read_exact(&mut taken).expect("the client's bytes");
    taken
}

/// Takes the header of a request and gives its cookie.
fn take_request(client: &mut UnixStream, payload: usize) -> u64 {
    let header = take(client, 28 + payload);
    u64::from_be_bytes(header[8..16].try_into().expect("eight bytes"))
}

fn answer(client: &mut UnixStream, cookie: u64, errno: u32, data: &[u8]) {
    let mut reply = Vec::new();
    reply.put_u32(SIMPLE_REPLY_MAGIC);
    reply.put_u32(errno);
    reply.put_u64(cookie);
    reply.extend_from_slice(data);
    client.write_all(&reply).expect("sent");
}

fn run<T: 'static>(
    script: impl FnOnce(UnixStream) + Send + 'static,
    test: impl AsyncFnOnce(Rc<Lane>, MemberId) -> T + 'static,
) -> T {
    let config = LanesConfig::default();
    let local = LocalLane::new(&config).expect("a lane");
    let server = Scripted::new(script);
    let member = server.open(&config.members);
    let lane = local.lane().clone();
    let value = local.block_on(async move { test(lane, member).await });
    drop(local);
    server.thread.join().expect("the script ran to its end");
    value
}

fn write() -> IoOp {
    IoOp::Write {
        sector: 8,
        from: WriteFrom::Source(Rc::new(vec![7; BLOCK]), 0..BLOCK),
        fua: false,
    }
}

fn read(lane: &Lane) -> IoOp {
    IoOp::Read { sector: 8, into: ReadInto::Buffer(lane.backend().allocate(BLOCK), 0..BLOCK) }
}

async fn io(lane: &Lane, member: MemberId, op: IoOp, within: Option<Duration>) -> IoDone {
    let patience = within.map_or(Patience::FOREVER, Patience::of);
    lane.io(MemberIo { member, op, patience }).await
}

fn gone(errno: i32) -> Result<(), IoError> {
    Err(IoError { kind: IoErrorKind::Gone, errno })
}

#[test]
fn a_write_without_an_answer_may_still_be_done_and_one_that_was_not_sent_may_not() {
    let server = |mut client: UnixStream| {
        take_request(&mut client, BLOCK);
    };
    run(server, async |lane, member| {
        let done = io(&lane, member, write(), None).await;
        assert_eq!(done.result, gone(IoError::UNANSWERED));
        assert!(done.result.unwrap_err().may_still_be_done());
        assert_eq!((lane.backend().in_flight(member), lane.backend().unanswered(member)), (0, 1));
        let done = io(&lane, member, write(), None).await;
        assert_eq!(done.result, gone(IoError::NOT_SENT));
        assert!(!done.result.unwrap_err().may_still_be_done());
        let read = io(&lane, member, read(&lane), None).await;
        assert!(read.result == gone(IoError::NOT_SENT) && read.buffer.is_some());
        assert_eq!(lane.backend().unanswered(member), 1);
    });
}

#[test]
fn a_read_without_an_answer_leaves_nothing_to_be_done() {
    let server = |mut client: UnixStream| {
        take_request(&mut client, 0);
    };
    run(server, async |lane, member| {
        let done = io(&lane, member, read(&lane), None).await;
        assert!(done.result == gone(IoError::UNANSWERED) && done.buffer.is_some());
        assert_eq!((lane.backend().in_flight(member), lane.backend().unanswered(member)), (0, 0));
    });
}

#[test]
fn what_hangs_is_in_flight_until_its_late_answer_and_no_longer() {
    let (go_on, waits): (Sender<()>, _) = channel();
    let server = move |mut client: UnixStream| {
        let write = take_request(&mut client, BLOCK);
        let read = take_request(&mut client, 0);
        waits.recv().expect("the test goes on");
        answer(&mut client, read, 0, &[9; BLOCK]);
        answer(&mut client, write, 0, &[]);
        let read = take_request(&mut client, 0);
        answer(&mut client, read, 0, &[5; BLOCK]);
    };
    run(server, async move |lane, member| {
        let soon = Some(Duration::from_millis(20));
        let late_write = io(&lane, member, write(), soon).await.result.unwrap_err();
        assert!(late_write.kind == IoErrorKind::Deadline && late_write.may_still_be_done());
        let late_read = io(&lane, member, read(&lane), soon).await;
        assert_eq!(late_read.result.unwrap_err().kind, IoErrorKind::Deadline);
        let mut buffer = late_read.buffer.expect("nothing can fill it any more");
        buffer.fill(0);
        assert_eq!(lane.backend().in_flight(member), 2);
        go_on.send(()).expect("the server waits");
        let done = io(&lane, member, read(&lane), None).await;
        assert!(done.result.is_ok() && done.buffer.is_some_and(|buffer| buffer[0] == 5));
        assert_eq!((lane.backend().in_flight(member), lane.backend().unanswered(member)), (0, 0));
        assert!(buffer.iter().all(|&byte| byte == 0), "a late answer fills no memory");
    });
}

#[test]
fn a_server_that_breaks_the_protocol_is_gone() {
    let lies: [fn(UnixStream); 4] = [
        |mut client| client.write_all(&[0x5a; 64]).expect("sent"),
        |mut client| answer(&mut client, u64::MAX, 0, &[]),
        |mut client| {
            let cookie = take_request(&mut client, 0);
            answer(&mut client, cookie ^ 1 << 32, 0, &[0; BLOCK]);
        },
        |mut client| {
            let cookie = take_request(&mut client, 0);
            answer(&mut client, cookie, 0, &[0; BLOCK / 2]);
        },
    ];
    for lie in lies {
        run(lie, async |lane, member| {
            let done = io(&lane, member, read(&lane), None).await;
            assert_eq!(done.result.unwrap_err().kind, IoErrorKind::Gone);
            assert!(done.buffer.is_some() && lane.backend().in_flight(member) == 0);
        });
    }
}

#[test]
fn errors_keep_their_kind_across_the_connection() {
    let kinds = [
        (5, IoErrorKind::Medium),
        (28, IoErrorKind::NoSpace),
        (95, IoErrorKind::Unsupported),
        (108, IoErrorKind::Gone),
        (1, IoErrorKind::Other),
        (u32::MAX, IoErrorKind::Other),
    ];
    let server = move |mut client: UnixStream| {
        for (errno, _) in kinds {
            let cookie = take_request(&mut client, BLOCK);
            answer(&mut client, cookie, errno, &[]);
        }
    };
    run(server, async move |lane, member| {
        for (errno, kind) in kinds {
            let error = io(&lane, member, write(), None).await.result.unwrap_err();
            assert_eq!(error.kind, kind, "{errno}");
            assert!(!error.may_still_be_done(), "an answer is an answer: {errno}");
        }
    });
}
