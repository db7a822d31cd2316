//! Replies that leave together: headers gathered in one place, payloads where they already are.

use std::collections::VecDeque;
use std::io::IoSlice;

/// Replies in the order in which they leave, ready for one or a few `sendmsg` calls.
///
/// `B` is a payload's buffer; it is held, uncopied, until its last byte was sent. While a send is
/// under way the batch must stay where its [`Batch::slices`] point: it is never added to again
/// once [`super::Session::take_replies`] has handed it out.
#[derive(Debug)]
pub struct Batch<B> {
    /// Headers of all replies, back to back.
    headers: Vec<u8>,
    parts: VecDeque<Part<B>>,
    weight: Weight,
}

/// A piece of the stream, with the position up to which it was sent.
#[derive(Debug)]
enum Part<B> {
    /// Bytes `from..to` of the headers.
    Headers { from: usize, to: usize },
    /// A payload, sent up to byte `from`.
    Payload { buffer: B, from: usize },
}

/// What the requests answered here count for in their session's limits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Weight {
    pub(super) requests: usize,
    pub(super) bytes: usize,
}

impl<B: AsRef<[u8]>> Batch<B> {
    pub(super) fn new() -> Batch<B> {
        Batch { headers: Vec::new(), parts: VecDeque::new(), weight: Weight::default() }
    }

    /// Nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes left to send.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Part::len).sum()
    }

    /// The bytes left to send, as a list for `sendmsg`, appended to `list` up to `count_max` entries.
    pub fn slices<'a>(&'a self, list: &mut Vec<IoSlice<'a>>, count_max: usize) {
        let parts = self.parts.iter().take(count_max);
        list.extend(parts.map(|part| IoSlice::new(part.bytes(&self.headers))));
    }

    /// Notes that `bytes` more were sent, and drops the payloads that are done.
    ///
    /// # Panics
    ///
    /// Panics when `bytes` is more than was left.
    pub fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let part = self.parts.front_mut().expect("no more is sent than was there");
            let step = bytes.min(part.len());
            part.advance(step);
            bytes -= step;
            if part.len() == 0 {
                self.parts.pop_front();
            }
        }
    }

    /// Appends a header written by `write`; neighbouring headers become one entry of the list.
    pub(super) fn header(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.headers.len();
        write(&mut self.headers);
        let end = self.headers.len();
        match self.parts.back_mut() {
            Some(Part::Headers { to, .. }) => *to = end,
            _ if end > from => self.parts.push_back(Part::Headers { from, to: end }),
            _ => {}
        }
    }

    pub(super) fn payload(&mut self, buffer: B) {
        if !buffer.as_ref().is_empty() {
            self.parts.push_back(Part::Payload { buffer, from: 0 });
        }
    }

    pub(super) fn header_bytes(&self) -> usize {
        self.headers.len()
    }

    /// Counts an answered request with its buffer of `bytes`.
    pub(super) fn add_weight(&mut self, bytes: usize) {
        self.weight.requests += 1;
        self.weight.bytes += bytes;
    }

    /// Empties the batch, keeping its memory, and returns what it weighed.
    pub(super) fn reset(&mut self) -> Weight {
        self.headers.clear();
        self.parts.clear();
        std::mem::take(&mut self.weight)
    }
}

impl<B: AsRef<[u8]>> Part<B> {
    fn len(&self) -> usize {
        match self {
            Part::Headers { from, to } => to - from,
            Part::Payload { buffer, from } => buffer.as_ref().len() - from,
        }
    }

    fn bytes<'a>(&'a self, headers: &'a [u8]) -> &'a [u8] {
        match self {
            Part::Headers { from, to } => &headers[*from..*to],
            Part::Payload { buffer, from } => &buffer.as_ref()[*from..],
        }
    }

    fn advance(&mut self, bytes: usize) {
        match self {
            Part::Headers { from, .. } | Part::Payload { from, .. } => *from += bytes,
        }
    }
}
