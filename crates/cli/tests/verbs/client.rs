//! A user's program that speaks NBD: requests in any number, answers in any order.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use mdspace_front::nbd::client::{self, Answer, Event, Wants};
use mdspace_front::nbd::{Command, Cookie, Errno};

/// Nothing takes longer than this, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    socket: UnixStream,
    client: client::Client,
    received: Vec<u8>,
    answers: BTreeMap<Cookie, Answer>,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        let socket = UnixStream::connect(path).expect("the front answers");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let client = client::Client::new(Wants::default());
        let mut this = Self { socket, client, received: Vec::new(), answers: BTreeMap::new() };
        assert!(matches!(this.next(), Event::Ready(_)));
        this
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let cookie = self.send_write(offset, bytes);
        self.answer(cookie).map(drop)
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let cookie = self.client.send(Command::Read, offset, length as u32, &[]);
        self.answer(cookie)
    }

    /// Sends a write and does not wait for its answer.
    pub(crate) fn send_write(&mut self, offset: u64, bytes: &[u8]) -> Cookie {
        let write = Command::Write { fua: false };
        let cookie = self.client.send(write, offset, bytes.len() as u32, bytes);
        self.flush_out();
        cookie
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self, cookie: Cookie) -> Result<Vec<u8>, Errno> {
        self.flush_out();
        loop {
            match self.answers.remove(&cookie) {
                Some(Answer::Data(bytes)) => return Ok(bytes),
                Some(Answer::Failed(errno, _)) => return Err(errno),
                Some(_) => return Ok(Vec::new()),
                None => match self.next() {
                    Event::Answer(cookie, answer) => drop(self.answers.insert(cookie, answer)),
                    event => panic!("{event:?}"),
                },
            }
        }
    }

    fn flush_out(&mut self) {
        let bytes = self.client.take_output();
        self.socket.write_all(&bytes).expect("the front listens");
    }

    fn next(&mut self) -> Event {
        loop {
            let mut input = &self.received[..];
            let event = self.client.poll(&mut input);
            let used = self.received.len() - input.len();
            self.received.drain(..used);
            if event != Event::Hungry {
                return event;
            }
            self.flush_out();
            let mut buffer = vec![0; 1 << 16];
            let count = self.socket.read(&mut buffer).expect("an answer in time");
            assert!(count > 0, "the front has hung up");
            self.received.extend_from_slice(&buffer[..count]);
        }
    }
}
