//! A user's program that speaks NBD: requests in any number, answers in any order.

use std::collections::BTreeMap;
use std::path::Path;

use mdspace_front::nbd::client::{Answer, Event, Wants};
use mdspace_front::nbd::{Command, Cookie, Errno};

use crate::blocking::Blocking;

pub(crate) struct Client {
    nbd: Blocking,
    answers: BTreeMap<Cookie, Answer>,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        Self { nbd: Blocking::connect(path, Wants::default()), answers: BTreeMap::new() }
    }

    /// Whether who connects now is told that the export is read-only.
    pub(crate) fn is_told_read_only(path: &Path) -> bool {
        const READ_ONLY: u16 = 1 << 1;
        Blocking::greet(path, Wants::default()).1.flags & READ_ONLY != 0
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let cookie = self.send_write(offset, bytes);
        self.answer(cookie).map(drop)
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let cookie = self.nbd.client.send(Command::Read, offset, length as u64, &[]);
        self.answer(cookie)
    }

    /// Sends a write and does not wait for its answer.
    pub(crate) fn send_write(&mut self, offset: u64, bytes: &[u8]) -> Cookie {
        let write = Command::Write { fua: false };
        let cookie = self.nbd.client.send(write, offset, bytes.len() as u64, bytes);
        self.nbd.flush_out();
        cookie
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self, cookie: Cookie) -> Result<Vec<u8>, Errno> {
        self.nbd.flush_out();
        loop {
            match self.answers.remove(&cookie) {
                Some(Answer::Data(bytes)) => return Ok(bytes),
                Some(Answer::Failed(errno, _)) => return Err(errno),
                Some(_) => return Ok(Vec::new()),
                None => match self.nbd.next() {
                    Event::Answer(cookie, answer) => drop(self.answers.insert(cookie, answer)),
                    event => panic!("{event:?}"),
                },
            }
        }
    }
}
