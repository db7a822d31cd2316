//! A server in memory: a session, and the bytes that it serves.

use std::sync::Arc;

use mdspace_front::nbd::{
    Batch, BlockSizes, Closing, Command, Context, Errno, Event, Export, Exports, Extent, Limits,
    Piece, Request, Session,
};

const BLOCK: usize = 512;

/// Executes every request at once and keeps what would be sent.
pub(crate) struct Server {
    session: Session<Vec<u8>>,
    disk: Vec<u8>,
    /// A write whose payload is still arriving.
    writing: Option<(Request, Vec<u8>, usize)>,
    output: Vec<u8>,
    closing: Option<Closing>,
}

/// The exports that the corpus describes.
pub(crate) fn exports() -> Arc<Exports> {
    let sizes = |minimum| BlockSizes::new(minimum, 4096).expect("powers of two");
    let disk = Export {
        name: "disk".into(),
        description: "a disk".into(),
        size_bytes: 1 << 20,
        block_sizes: sizes(512),
        read_only: false,
        rotational: false,
        trim: true,
        fast_zero: true,
    };
    let archive = Export {
        name: "archive".into(),
        description: String::new(),
        size_bytes: 64 << 10,
        block_sizes: sizes(4096),
        read_only: true,
        ..disk.clone()
    };
    Arc::new(Exports::new(vec![disk, archive]).expect("valid exports"))
}

impl Server {
    pub(crate) fn new() -> Server {
        Server::with(Session::new(exports(), Limits::default()))
    }

    /// One that serves nobody before `STARTTLS`.
    pub(crate) fn requiring_tls() -> Server {
        Server::with(Session::new(exports(), Limits::default()).requiring_tls())
    }

    fn with(session: Session<Vec<u8>>) -> Server {
        let mut server = Server {
            session,
            disk: vec![0; 1 << 20],
            writing: None,
            output: Vec::new(),
            closing: None,
        };
        server.send();
        server
    }

    /// Takes in what a client sent.
    pub(crate) fn receive(&mut self, mut input: &[u8]) {
        loop {
            match self.session.poll(&mut input) {
                Event::Hungry => break,
                // What follows is what it deciphers to.
                Event::Full | Event::StartTls => self.send(),
                Event::Closed(closing) => {
                    self.closing = Some(closing);
                    break;
                }
                Event::Request(request) => self.start(request),
                Event::Payload { .. } if input.is_empty() => break,
                Event::Payload { .. } => self.take_payload(&mut input),
            }
        }
        self.send();
    }

    /// All bytes that the client was sent since the last call.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    pub(crate) fn closing(&self) -> Option<Closing> {
        self.closing
    }

    pub(crate) fn held_requests(&self) -> usize {
        self.session.held_requests()
    }

    /// Writes that were announced and wait for the rest of their payload.
    pub(crate) fn writes_under_way(&self) -> usize {
        usize::from(self.writing.is_some())
    }

    pub(crate) fn disk(&self) -> &[u8] {
        &self.disk
    }

    fn start(&mut self, request: Request) {
        let length = request.payload_bytes();
        if let Command::Write { .. } = request.command {
            self.writing = Some((request, vec![0; length], 0));
        } else {
            self.execute(&request);
        }
    }

    fn take_payload(&mut self, input: &mut &[u8]) {
        let (request, mut payload, mut filled) = self.writing.take().expect("a write was started");
        let taken = self.session.take_payload(input);
        payload[filled..filled + taken.len()].copy_from_slice(taken);
        filled += taken.len();
        if filled < payload.len() {
            self.writing = Some((request, payload, filled));
            return;
        }
        let from = request.offset_bytes as usize;
        self.disk[from..from + payload.len()].copy_from_slice(&payload);
        self.session.done(&request);
    }

    fn execute(&mut self, request: &Request) {
        let from = request.offset_bytes as usize;
        let range = from..from + request.length_bytes as usize;
        match request.command {
            Command::Read => self.session.data(request, self.disk[range].to_vec()),
            Command::WriteZeroes { fast: true, .. } => {
                self.session.failed(request, Errno::NotSupported, "zeroes are written as data");
            }
            Command::Trim { .. } | Command::WriteZeroes { .. } => {
                self.disk[range].fill(0);
                self.session.done(request);
            }
            Command::BlockStatus { .. } => {
                let bytes = &self.disk[range];
                let length = bytes.len() as u64;
                self.session.extents(request, |context| match context {
                    Context::Allocation => extents(bytes),
                    Context::Redundancy => vec![Extent::single(length)],
                });
            }
            Command::Flush | Command::Cache | Command::Write { .. } => self.session.done(request),
        }
    }

    fn send(&mut self) {
        while let Some(batch) = self.session.take_replies() {
            append(&batch, &mut self.output);
            self.session.sent(batch);
        }
    }
}

/// Appends all bytes of a batch.
pub(crate) fn append(batch: &Batch<Vec<u8>>, out: &mut Vec<u8>) {
    for piece in batch.pieces() {
        match piece {
            Piece::Headers(bytes) => out.extend_from_slice(bytes),
            Piece::Data(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// Runs of zero blocks and of others.
fn extents(bytes: &[u8]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for block in bytes.chunks(BLOCK) {
        let length_bytes = block.len() as u64;
        let extent = match block.iter().all(|&byte| byte == 0) {
            true => Extent::hole(length_bytes),
            false => Extent::allocated(length_bytes),
        };
        match extents.last_mut() {
            Some(last) if last.status == extent.status => last.length_bytes += length_bytes,
            _ => extents.push(extent),
        }
    }
    extents
}
