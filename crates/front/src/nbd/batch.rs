//! Answers that leave together: headers gathered in one place, data where it already is.

/// Memory for headers that an empty batch keeps, in bytes.
const HEADER_BYTES_KEPT: usize = 64 << 10;

/// Data of a read on its way to the client; it is moved about, never looked into.
pub trait Data {
    /// Length in bytes.
    fn len_bytes(&self) -> usize;
}

impl Data for Vec<u8> {
    fn len_bytes(&self) -> usize {
        self.len()
    }
}

/// Answers in the order in which they leave, for one send of many pieces.
#[derive(Debug)]
pub struct Batch<B> {
    /// Headers of all answers, back to back.
    headers: Vec<u8>,
    pieces: Vec<Held<B>>,
    weight: Weight,
}

/// A piece of the stream.
#[derive(Debug)]
pub enum Piece<'a, B> {
    /// Headers of one or several answers.
    Headers(&'a [u8]),
    /// The data of a read.
    Data(&'a B),
}

#[derive(Debug)]
enum Held<B> {
    /// Bytes `from..to` of the headers.
    Headers {
        from: usize,
        to: usize,
    },
    Data(B),
}

/// What the requests answered here count for in their session's limits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Weight {
    pub(super) requests: usize,
    pub(super) bytes: usize,
}

impl<B> Batch<B> {
    pub(super) fn new() -> Batch<B> {
        Batch { headers: Vec::new(), pieces: Vec::new(), weight: Weight::default() }
    }

    /// The pieces to send, in order. None of them is empty, and no two neighbours are headers.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_, B>> {
        self.pieces.iter().map(|piece| match piece {
            Held::Headers { from, to } => Piece::Headers(&self.headers[*from..*to]),
            Held::Data(data) => Piece::Data(data),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Appends what `write` writes; neighbouring headers become one piece.
    pub(super) fn header(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.headers.len();
        write(&mut self.headers);
        let end = self.headers.len();
        match self.pieces.last_mut() {
            Some(Held::Headers { to, .. }) => *to = end,
            _ if end > from => self.pieces.push(Held::Headers { from, to: end }),
            _ => {}
        }
    }

    pub(super) fn data(&mut self, data: B) {
        self.pieces.push(Held::Data(data));
    }

    pub(super) fn header_bytes(&self) -> usize {
        self.headers.len()
    }

    /// Counts an answered request with its buffer of `bytes`.
    pub(super) fn add_weight(&mut self, bytes: usize) {
        self.weight.requests += 1;
        self.weight.bytes += bytes;
    }

    /// Bytes of data in it.
    pub(super) fn weight_bytes(&self) -> usize {
        self.weight.bytes
    }

    /// Empties the batch, keeping its memory if that is not much, and returns what it weighed.
    pub(super) fn reset(&mut self) -> Weight {
        self.headers.clear();
        self.headers.shrink_to(HEADER_BYTES_KEPT);
        self.pieces.clear();
        std::mem::take(&mut self.weight)
    }
}
