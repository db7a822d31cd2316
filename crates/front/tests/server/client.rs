//! A client that asks one thing after the other, or many at once.

use std::path::Path;

use mdspace_front::nbd::client::{Answer, Event, Wants};
use mdspace_front::nbd::{Command, Context, Contexts, Cookie, Framing};

use crate::blocking::Blocking;

pub(crate) struct BlockingClient {
    pub(crate) nbd: Blocking,
}

impl BlockingClient {
    pub(crate) fn new(path: &Path, structured_replies: bool) -> BlockingClient {
        let wants = match structured_replies {
            false => Wants::default(),
            true => Wants {
                framing: Framing::Structured,
                contexts: Contexts::from_iter([Context::Allocation]),
                ..Wants::default()
            },
        };
        BlockingClient::with(path, wants)
    }

    pub(crate) fn with(path: &Path, wants: Wants) -> BlockingClient {
        BlockingClient { nbd: Blocking::connect(path, wants) }
    }

    /// Queues a request; it leaves with the next `flush_out` or `next`.
    pub(crate) fn send(
        &mut self,
        command: Command,
        offset: u64,
        length: u64,
        payload: &[u8],
    ) -> Cookie {
        self.nbd.client.send(command, offset, length, payload)
    }

    pub(crate) fn say_goodbye(&mut self) {
        self.nbd.client.disconnect();
    }

    pub(crate) fn flush_out(&mut self) {
        self.nbd.flush_out();
    }

    pub(crate) fn next(&mut self) -> Event {
        self.nbd.next()
    }

    pub(crate) fn ask(
        &mut self,
        command: Command,
        offset: u64,
        length: u64,
        payload: &[u8],
    ) -> Answer {
        let cookie = self.send(command, offset, length, payload);
        match self.next() {
            Event::Answer(answered, answer) if answered == cookie => answer,
            event => panic!("{event:?}"),
        }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let answer = self.ask(Command::Write { fua: false }, offset, bytes.len() as u64, bytes);
        assert_eq!(answer, Answer::Done);
    }

    pub(crate) fn read(&mut self, offset: u64, length: u64) -> Vec<u8> {
        match self.ask(Command::Read, offset, length, &[]) {
            Answer::Data(data) => data,
            answer => panic!("{answer:?}"),
        }
    }
}
