//! A client that blocks: the crate's own client over a socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use mdspace_front::nbd::client::{Answer, Client, Event, Wants};
use mdspace_front::nbd::{Command, Cookie};

use crate::memory::PATIENCE;

pub(crate) struct BlockingClient {
    pub(crate) socket: UnixStream,
    client: Client,
    received: Vec<u8>,
}

pub(crate) fn connect(path: &Path) -> UnixStream {
    let socket = UnixStream::connect(path).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    socket
}

impl BlockingClient {
    pub(crate) fn new(path: &Path, structured_replies: bool) -> BlockingClient {
        let wants =
            Wants { structured_replies, block_status: structured_replies, ..Wants::default() };
        let socket = connect(path);
        let mut client =
            BlockingClient { socket, client: Client::new(wants), received: Vec::new() };
        let event = client.next();
        assert!(matches!(event, Event::Ready(_)), "{event:?}");
        client
    }

    /// Queues a request; it leaves with the next `flush_out` or `next`.
    pub(crate) fn send(
        &mut self,
        command: Command,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> Cookie {
        self.client.send(command, offset, length, payload)
    }

    pub(crate) fn say_goodbye(&mut self) {
        self.client.disconnect();
    }

    pub(crate) fn flush_out(&mut self) {
        let bytes = self.client.take_output();
        self.socket.write_all(&bytes).expect("sent");
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
            let count = self.socket.read(&mut buffer).expect("received");
            assert!(count > 0, "the server has hung up");
            self.received.extend_from_slice(&buffer[..count]);
        }
    }

    pub(crate) fn ask(
        &mut self,
        command: Command,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> Answer {
        let cookie = self.send(command, offset, length, payload);
        match self.next() {
            Event::Answer(answered, answer) if answered == cookie => answer,
            event => panic!("{event:?}"),
        }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let answer = self.ask(Command::Write { fua: false }, offset, bytes.len() as u32, bytes);
        assert_eq!(answer, Answer::Done);
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        match self.ask(Command::Read, offset, length, &[]) {
            Answer::Data(data) => data,
            answer => panic!("{answer:?}"),
        }
    }
}
