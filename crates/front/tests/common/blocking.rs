//! The crate's own client over a socket, blocking: with it the tests of this crate speak NBD, and those of
//! `cli`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use mdspace_front::nbd::client::{Client, Event, ExportInfo, Wants};

/// Nothing takes longer than this, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests are queued at the client; they leave with the next `flush_out` or `next`.
pub(crate) struct Blocking {
    pub(crate) socket: UnixStream,
    pub(crate) client: Client,
    received: Vec<u8>,
}

/// A connection on which nothing has been said.
pub(crate) fn socket(path: &Path) -> UnixStream {
    let socket = UnixStream::connect(path).expect("the front answers");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    socket
}

impl Blocking {
    pub(crate) fn connect(path: &Path, wants: Wants) -> Self {
        Self::greet(path, wants).0
    }

    /// Connects, and gives what the server says of its export.
    pub(crate) fn greet(path: &Path, wants: Wants) -> (Self, ExportInfo) {
        let mut this =
            Self { socket: socket(path), client: Client::new(wants), received: Vec::new() };
        match this.next() {
            Event::Ready(info) => (this, info),
            event => panic!("{event:?}"),
        }
    }

    pub(crate) fn flush_out(&mut self) {
        let bytes = self.client.take_output();
        self.socket.write_all(&bytes).expect("the front listens");
    }

    pub(crate) fn next(&mut self) -> Event {
        loop {
            let mut input = &self.received[..];
            let event = self.client.poll(&mut input);
            let used = self.received.len() - input.len();
            self.received.drain(..used);
            if event != Event::Hungry {
                return event;
            }
            self.flush_out();
            let mut buffer = vec![0; 1 << 20];
            let count = self.socket.read(&mut buffer).expect("an answer in time");
            assert!(count > 0, "the front has hung up");
            self.received.extend_from_slice(&buffer[..count]);
        }
    }
}
