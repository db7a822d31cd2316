use std::path::PathBuf;
use std::thread::JoinHandle;

use mdspace_io::nbd_wire::{OPTION_MAGIC, Put, length_u32, option, option_reply};
use tempfile::TempDir;

use super::*;
use crate::nbd::client::{Client, Event, Wants};
use crate::nbd::context::{Context, Contexts};
use crate::nbd::export::BlockSizes;
use crate::nbd::request::Framing;

/// A broker on a thread, in a folder of its own.
struct Fixture {
    folder: TempDir,
    runs: Option<JoinHandle<()>>,
}

/// A process that serves an array.
struct Member {
    line: Line,
    exports: Arc<Exports>,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let address = Address::parse(&Fixture::address_in(&folder)).expect("an address");
        let broker = Broker::bind(&address, &Fixture::rendezvous_in(&folder)).expect("it listens");
        Fixture { folder, runs: Some(thread::spawn(move || broker.run())) }
    }

    fn address_in(folder: &TempDir) -> String {
        format!("nbd:unix:{}?shared", folder.path().join("front").display())
    }

    fn rendezvous_in(folder: &TempDir) -> PathBuf {
        folder.path().join("rendezvous")
    }

    /// A process that offers an array.
    fn member(&self, name: &str) -> Member {
        let (member, verdict) = self.offer(name, &Fixture::address_in(&self.folder));
        assert!(matches!(verdict, FromBroker::Taken), "{verdict:?}");
        member
    }

    fn offer(&self, name: &str, address: &str) -> (Member, FromBroker) {
        let stream = UnixStream::connect(Fixture::rendezvous_in(&self.folder)).expect("a broker");
        let line = Line::new(stream).expect("a line");
        let export = export(name);
        let exports = Arc::new(Exports::new(vec![export.clone()]).expect("exports"));
        let offer = Offer { address: address.to_owned(), export };
        line.send(&offer, None).expect("it listens");
        let (verdict, _) = line.recv().expect("an answer").expect("a broker");
        (Member { line, exports }, verdict)
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("front")).expect("it takes clients")
    }

    /// Waits for the end of the broker, when the last process has gone.
    fn ends(mut self) {
        self.runs.take().expect("it runs").join().expect("no panic");
        let left: Vec<_> = self.folder.path().read_dir().expect("a folder").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Member {
    /// The next client: its socket, and how far it is.
    fn next(&self) -> (UnixStream, Begun) {
        match self.line.recv().expect("a message").expect("a broker") {
            (FromBroker::Client(begun), Some(socket)) => (socket.into(), begun),
            other => panic!("no client: {other:?}"),
        }
    }
}

fn export(name: &str) -> Export {
    Export {
        name: name.to_owned(),
        description: format!("array {name}"),
        size_bytes: 1 << 20,
        block_sizes: BlockSizes::new(512, 4096).expect("block sizes"),
        read_only: false,
        rotational: false,
        trim: true,
        fast_zero: false,
    }
}

/// Has a client talk until it has asked for what only a process can answer, or was refused.
fn talk(client: &mut Client, mut socket: &UnixStream, has_asked: impl Fn(&[u8]) -> bool) -> Event {
    let mut buffer = [0; 4096];
    loop {
        let count = socket.read(&mut buffer).expect("an answer");
        let mut input = &buffer[..count];
        let event = client.poll(&mut input);
        if event != Event::Hungry {
            return event;
        }
        let output = client.take_output();
        socket.write_all(&output).expect("it listens");
        if has_asked(&output) {
            return event;
        }
    }
}

fn asks_for(wanted: u32) -> impl Fn(&[u8]) -> bool {
    let header = [&OPTION_MAGIC.to_be_bytes()[..], &wanted.to_be_bytes()].concat();
    move |output| output.windows(header.len()).any(|bytes| bytes == header)
}

/// An option by itself.
fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(OPTION_MAGIC);
    bytes.put_u32(option);
    bytes.put_u32(length_u32(data.len()));
    bytes.extend_from_slice(data);
    bytes
}

/// The data of `INFO` and `GO` for a name.
fn info_of(name: &str) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u32(length_u32(name.len()));
    data.extend_from_slice(name.as_bytes());
    data.put_u16(0);
    data
}

#[test]
fn the_process_of_the_export_that_a_client_asks_for_goes_on_with_its_handshake() {
    let broker = Fixture::new();
    let (_one, two) = (broker.member("one"), broker.member("two"));
    let contexts: Contexts = [Context::Redundancy].into_iter().collect();
    let wants = Wants { export: "two".into(), framing: Framing::Extended, contexts };
    let mut client = Client::new(wants);
    let socket = broker.connect();
    assert_eq!(talk(&mut client, &socket, asks_for(option::GO)), Event::Hungry);

    let (mut ours, begun) = two.next();
    let mut handshake = Handshake::resume(two.exports.clone(), &begun);
    let mut answers = Vec::new();
    let mut input = &begun.came[..];
    let Step::Transmit(agreed) = handshake.poll(&mut input, &mut answers) else {
        panic!("the option is whole, and its answer begins transmission");
    };
    assert_eq!((agreed.framing, agreed.contexts), (Framing::Extended, contexts));
    ours.write_all(&answers).expect("the client listens");
    match talk(&mut client, &socket, |_| false) {
        Event::Ready(info) => assert_eq!(info.size_bytes, 1 << 20),
        other => panic!("the client is not ready: {other:?}"),
    }
}

#[test]
fn a_client_without_a_name_and_one_with_a_wrong_name_are_refused() {
    let broker = Fixture::new();
    let _one = broker.member("one");
    for name in ["", "two"] {
        let mut client = Client::new(Wants { export: name.into(), ..Wants::default() });
        match talk(&mut client, &broker.connect(), |_| false) {
            Event::Refused(kind, _) => assert_eq!(kind, option_reply::ERR_UNKNOWN),
            other => panic!("{name:?} is served: {other:?}"),
        }
    }
}

#[test]
fn an_array_is_refused_whose_name_is_taken_or_which_wants_other_options() {
    let broker = Fixture::new();
    let _one = broker.member("one");
    let address = Fixture::address_in(&broker.folder);
    let refused = |name: &str, address: &str| match broker.offer(name, address) {
        (_, FromBroker::Refused(why)) => why,
        (_, other) => panic!("it is taken: {other:?}"),
    };
    assert!(refused("one", &address).contains("as one"));
    assert!(refused("two", &format!("{address}&mode=0660")).contains("other options"));
    assert!(matches!(broker.offer("two", &format!("{address}&ro")), (_, FromBroker::Taken)));
}

#[test]
fn a_broker_ends_with_the_last_process_and_leaves_no_socket() {
    let broker = Fixture::new();
    let (one, two) = (broker.member("one"), broker.member("two"));
    drop(one);
    let mut client = Client::new(Wants { export: "two".into(), ..Wants::default() });
    let socket = broker.connect();
    talk(&mut client, &socket, asks_for(option::GO));
    let (ours, _) = two.next();
    drop(two);
    broker.ends();
    // What was handed over is no more the broker's.
    (&ours).write_all(b"x").expect("the client is there");
    (&socket).read_exact(&mut [0]).expect("the connection outlives the broker");
}

#[test]
fn a_question_goes_to_the_process_of_the_export_that_was_asked_about_before() {
    let broker = Fixture::new();
    let two = broker.member("two");
    let question = "x-mdspace:below/1/0123456789abcdef0123456789abcdef";
    let mut socket = broker.connect();
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    // Before an export is known it is the name of none.
    bytes.extend(option_bytes(option::INFO, &info_of(question)));
    bytes.extend(option_bytes(option::INFO, &info_of("two")));
    bytes.extend(option_bytes(option::INFO, &info_of(question)));
    socket.write_all(&bytes).expect("it listens");
    let (_, begun) = two.next();
    assert_eq!(begun.came, option_bytes(option::INFO, &info_of(question)));
}

#[test]
fn clients_that_say_nothing_keep_no_other_out_of_a_shared_address() {
    let broker = Fixture::new();
    let one = broker.member("one");
    let silent: Vec<UnixStream> = (0..CLIENTS_MAX + 2).map(|_| broker.connect()).collect();
    let mut client = Client::new(Wants { export: "one".into(), ..Wants::default() });
    let socket = broker.connect();
    talk(&mut client, &socket, asks_for(option::GO));
    one.next();
    drop(silent);
}

/// A process that is not of this protocol harms no other one.
#[test]
fn a_process_that_sends_nonsense_is_left_alone() {
    let broker = Fixture::new();
    let _one = broker.member("one");
    for nonsense in [&b"\xff\xff\xff\xff"[..], b"\x00\x00\x00\x02{]", b"\x00\x00\x00\x09{\"x\":1"] {
        let mut stream =
            UnixStream::connect(Fixture::rendezvous_in(&broker.folder)).expect("a broker");
        stream.write_all(nonsense).expect("it listens");
        stream.shutdown(std::net::Shutdown::Write).expect("a stream");
        assert_eq!(stream.read(&mut [0]).expect("an end"), 0);
    }
    broker.member("two");
}
