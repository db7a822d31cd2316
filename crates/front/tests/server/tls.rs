//! Clients over TLS, and such as have none.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mdspace_front::Address;
use mdspace_front::address::{Endpoint, Socket};
use mdspace_front::nbd::client::{Answer, Client, Event, Wants};
use mdspace_front::nbd::{Command, Framing, ServerLimits};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::certificates::Authority;
use crate::memory::{PATIENCE, Served, on_both_at};

/// The client's flags, fixed newstyle and no zeroes, and the option `STARTTLS`.
const START_TLS: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0";
/// Bytes of the greeting, and of the reply to that.
const GREETING: usize = 18;
const REPLY: usize = 20;

/// A server's directory, and a client's, under one authority.
struct Keys {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Keys {
    fn new() -> Keys {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new("tests");
        for who in ["server", "client"] {
            authority.write(&folder.path().join(who));
        }
        authority.write_server(&folder.path().join("server"));
        authority.write_client(&folder.path().join("client"));
        Keys { folder, authority }
    }

    fn address(&self) -> Address {
        let directory = self.folder.path().join("server");
        format!("nbd:tcp:0?tls={}", directory.display()).parse().expect("an address")
    }

    fn client(&self) -> std::path::PathBuf {
        self.folder.path().join("client")
    }
}

/// Another authority's client, that trusts this server.
fn stranger(keys: &Keys) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    Authority::new("others").write_client(folder.path());
    keys.authority.write(folder.path());
    folder
}

fn connect(served: &Served) -> TcpStream {
    let Endpoint::Nbd(Socket::Tcp { port, .. }) = served.server().address().endpoint else {
        panic!("it is served at a port")
    };
    let socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    socket
}

/// What a client trusts, and says it is where it has a certificate.
fn config(directory: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let open = |name: &str| BufReader::new(File::open(directory.join(name)).expect("a file"));
    let certs = |name: &str| {
        let certs = CertificateDer::pem_reader_iter(open(name));
        certs.map(|cert| cert.expect("a certificate"))
    };
    certs("ca-cert.pem").for_each(|cert| roots.add(cert).expect("a root"));
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    if !directory.join("client-cert.pem").exists() {
        return Arc::new(builder.with_no_client_auth());
    }
    let key = PrivateKeyDer::from_pem_reader(open("client-key.pem")).expect("a key");
    let chain = certs("client-cert.pem").collect();
    Arc::new(builder.with_client_auth_cert(chain, key).expect("a pair"))
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

struct TlsClient {
    stream: Stream,
    nbd: Client,
    received: Vec<u8>,
}

impl TlsClient {
    /// Goes through both handshakes; `None` where the server hangs up.
    fn new(served: &Served, directory: &Path) -> Option<TlsClient> {
        let mut socket = connect(served);
        let mut greeting = [0; GREETING];
        socket.read_exact(&mut greeting).expect("a greeting");
        socket.write_all(START_TLS).expect("sent");
        let mut reply = [0; REPLY];
        socket.read_exact(&mut reply).expect("a reply");
        assert_eq!(reply[12..16], [0, 0, 0, 1], "acknowledged");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let tls = ClientConnection::new(config(directory), name).expect("a client");
        let wants = Wants { framing: Framing::Extended, ..Wants::default() };
        let mut nbd = Client::new(wants);
        assert_eq!(nbd.poll(&mut &greeting[..]), Event::Hungry);
        let output = nbd.take_output();
        let mut stream = StreamOwned::new(tls, socket);
        // The flags went before.
        stream.write_all(&output[4..]).ok()?;
        let mut client = TlsClient { stream, nbd, received: Vec::new() };
        matches!(client.next()?, Event::Ready(_)).then_some(client)
    }

    fn next(&mut self) -> Option<Event> {
        loop {
            let mut input = &self.received[..];
            let event = self.nbd.poll(&mut input);
            let used = self.received.len() - input.len();
            self.received.drain(..used);
            if event != Event::Hungry {
                return Some(event);
            }
            self.stream.write_all(&self.nbd.take_output()).ok()?;
            let mut buffer = vec![0; 1 << 20];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
            }
        }
    }

    fn ask(&mut self, command: Command, offset: u64, length: u64, payload: &[u8]) -> Answer {
        self.nbd.send(command, offset, length, payload);
        match self.next() {
            Some(Event::Answer(_, answer)) => answer,
            event => panic!("{event:?}"),
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn what_is_written_over_tls_is_read_over_tls() {
    let keys = Keys::new();
    on_both_at(&keys.address(), ServerLimits::default(), |served| {
        let mut client = TlsClient::new(served, &keys.client()).expect("served");
        let write = Command::Write { fua: false };
        for length in [512, 4096, 100 << 10, 32 << 20] {
            let bytes = pattern(length);
            let length = length as u64;
            assert_eq!(client.ask(write, 4096, length, &bytes), Answer::Done);
            assert!(client.ask(Command::Read, 4096, length, &[]) == Answer::Data(bytes));
        }
        for block in 0..200 {
            client.nbd.send(Command::Read, block * 4096, 4096, &[]);
        }
        for _ in 0..200 {
            let event = client.next();
            assert!(matches!(event, Some(Event::Answer(_, Answer::Data(_)))), "{event:?}");
        }
        client.nbd.disconnect();
        assert_eq!(client.next(), None, "the server says goodbye");
    });
}

#[test]
fn who_has_no_certificate_of_the_right_ca_is_not_served() {
    let keys = Keys::new();
    let stranger = stranger(&keys);
    let nobody = tempfile::tempdir().expect("a folder");
    keys.authority.write(nobody.path());
    on_both_at(&keys.address(), ServerLimits::default(), |served| {
        assert!(TlsClient::new(served, stranger.path()).is_none());
        assert!(TlsClient::new(served, nobody.path()).is_none());
        assert!(TlsClient::new(served, &keys.client()).is_some(), "who has one is");
    });
    let off: Address = format!("{}&tls-verify=off", keys.address()).parse().expect("an address");
    on_both_at(&off, ServerLimits::default(), |served| {
        assert!(TlsClient::new(served, nobody.path()).is_some(), "nobody is asked");
    });
}

#[test]
fn who_was_revoked_is_not_served() {
    let keys = Keys::new();
    let server = keys.folder.path().join("server");
    keys.authority.write_list(&server, false);
    on_both_at(&keys.address(), ServerLimits::default(), |served| {
        keys.authority.write_list(&server, false);
        served.server().keeper().keep().expect("kept");
        assert!(TlsClient::new(served, &keys.client()).is_some(), "nobody is on the list");
        keys.authority.write_list(&server, true);
        served.server().keeper().keep().expect("kept");
        assert!(TlsClient::new(served, &keys.client()).is_none());
    });
}

#[test]
fn what_comes_in_plain_behind_starttls_is_no_option() {
    let keys = Keys::new();
    on_both_at(&keys.address(), ServerLimits::default(), |served| {
        let mut socket = connect(served);
        let go = b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
        socket.write_all(&[START_TLS, go].concat()).expect("sent");
        let mut answers = Vec::new();
        // It may be reset, for not all of it was read.
        let _ = socket.read_to_end(&mut answers);
        let told = &answers[(GREETING + REPLY).min(answers.len())..];
        assert!(!told.starts_with(&0x0003_e889_0455_65a9_u64.to_be_bytes()), "{told:?}");
        served.wait_for_clients(0);
    });
}

#[test]
fn garbage_in_place_of_tls_is_cut_off_and_others_are_not() {
    let keys = Keys::new();
    on_both_at(&keys.address(), ServerLimits::default(), |served| {
        let mut good = TlsClient::new(served, &keys.client()).expect("served");
        for garbage in [&[0xff; 100_000][..], b"\x16\x03\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n"] {
            let mut socket = connect(served);
            socket.write_all(START_TLS).expect("sent");
            socket.read_exact(&mut [0; GREETING + REPLY]).expect("acknowledged");
            // It may be cut off before all has gone.
            let _ = socket.write_all(garbage);
            let _ = socket.read_to_end(&mut Vec::new());
            served.wait_for_clients(1);
        }
        // Records of a connection that was good are no better.
        let mut bad = TlsClient::new(served, &keys.client()).expect("served");
        bad.stream.sock.write_all(&[0x17, 3, 3, 0, 32]).expect("sent");
        bad.stream.sock.write_all(&[7; 32]).expect("sent");
        assert_eq!(bad.next(), None);
        served.wait_for_clients(1);
        assert_eq!(good.ask(Command::Flush, 0, 0, &[]), Answer::Done);
    });
}

#[test]
fn a_handshake_of_tls_has_the_time_of_a_handshake() {
    let keys = Keys::new();
    let limits = ServerLimits { handshake: Duration::from_millis(50), ..ServerLimits::default() };
    on_both_at(&keys.address(), limits, |served| {
        for part in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
            let mut socket = connect(served);
            socket.write_all(START_TLS).expect("sent");
            socket.write_all(part).expect("sent");
            let _ = socket.read_to_end(&mut Vec::new());
            served.wait_for_clients(0);
        }
    });
}

#[test]
fn half_a_write_over_tls_is_cut_off() {
    let keys = Keys::new();
    let limits = ServerLimits { stall: Duration::from_millis(40), ..ServerLimits::default() };
    on_both_at(&keys.address(), limits, |served| {
        let mut client = TlsClient::new(served, &keys.client()).expect("served");
        client.nbd.send(Command::Write { fua: false }, 0, 64 << 10, &[7; 1000]);
        assert_eq!(client.next(), None);
        served.wait_for_clients(0);
    });
}

#[test]
fn who_connects_after_a_renewal_meets_the_new_certificate() {
    let keys = Keys::new();
    on_both_at(&keys.address(), ServerLimits::default(), |served| {
        let certificate = |client: &TlsClient| {
            let chain = client.stream.conn.peer_certificates().expect("the server's");
            chain[0].clone().into_owned()
        };
        let mut before = TlsClient::new(served, &keys.client()).expect("served");
        keys.authority.write_server(&keys.folder.path().join("server"));
        served.server().keeper().keep().expect("kept");
        let after = TlsClient::new(served, &keys.client()).expect("served");
        assert_ne!(certificate(&before), certificate(&after));
        assert_eq!(before.ask(Command::Flush, 0, 0, &[]), Answer::Done, "who is there stays");
    });
}
