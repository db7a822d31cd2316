//! A real array as the disk of a guest: by the clients that libblkio's users have, and by our own.

use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags};
use mdspace_front::listener::Listener;
use mdspace_front::nbd::Budget;
use mdspace_front::vhost_user::Server;
use mdspace_front::vhost_user::client::{Ask, FrontEnd, Guest};
use mdspace_front::{Address, PartialWrites};

use crate::array::ServedArray;
use crate::memory::PATIENCE;

/// As many as lanes: more are offered only to who sets the number for a guest.
const QUEUES: usize = 2;
const LAST: usize = QUEUES - 1;
/// Requests of one queue at a time, and bytes of each.
const DEPTH: usize = 64;
const BYTES: usize = 8 << 10;

/// An array with one more front.
pub(crate) struct Served {
    pub(crate) array: ServedArray,
    server: Server,
    pub(crate) path: PathBuf,
}

impl Served {
    fn new() -> Served {
        Served::on(ServedArray::new())
    }

    pub(crate) fn on(array: ServedArray) -> Served {
        let path = array.folder.path().join("guest.sock");
        let address = Address::parse(&format!("vhost-user:{}", path.display()));
        let listener = Listener::bind(&address.expect("an address")).expect("listening");
        let (budget, parts) = (Budget::default(), PartialWrites::default());
        let exports = array.exports();
        let server = Server::start(listener, exports, budget, parts, &array.array);
        Served { array, server: server.expect("a thread"), path }
    }

    pub(crate) fn end(self) {
        self.server.close(PATIENCE).expect("closed");
        drop(self.server);
        self.array.end();
    }
}

/// A client of the crate `blkio`, with several queues.
struct Client {
    _blkio: Blkio,
    queues: Vec<Blkioq>,
    region: MemoryRegion,
}

impl Client {
    fn connect(path: &Path, queues: i32) -> Client {
        let mut blkio = Blkio::new("virtio-blk-vhost-user").expect("the driver is built in");
        blkio.set_str("path", path.to_str().expect("text")).expect("a property");
        blkio.connect().expect("it is served");
        assert!(blkio.get_i32("max-queues").expect("a property") >= queues);
        blkio.set_i32("num-queues", queues).expect("a property");
        let outcome = blkio.start().expect("it starts");
        let region = blkio.alloc_mem_region(DEPTH * BYTES * queues as usize).expect("memory");
        blkio.map_mem_region(&region).expect("shared");
        Client { _blkio: blkio, queues: outcome.queues, region }
    }

    fn buffer(&self, queue: usize, slot: usize) -> *mut u8 {
        (self.region.addr + (queue * DEPTH + slot) * BYTES) as *mut u8
    }

    fn fill(&mut self, queue: usize, slot: usize, byte: u8) {
        // SAFETY: the buffer is a part of the region, which this client alone uses, and no request is under way there.
        unsafe { self.buffer(queue, slot).write_bytes(byte, BYTES) }
    }

    fn bytes(&mut self, queue: usize, slot: usize) -> Vec<u8> {
        // SAFETY: as for `fill`.
        unsafe { std::slice::from_raw_parts(self.buffer(queue, slot), BYTES).to_vec() }
    }

    /// Waits for so many requests, which must go well.
    fn wait(&mut self, queue: usize, mut count: usize) {
        while count > 0 {
            let mut ended = [const { MaybeUninit::<Completion>::uninit() }; DEPTH];
            let room = &mut ended[..count.min(DEPTH)];
            let mut patience = PATIENCE;
            let done = self.queues[queue].do_io(room, 1, Some(&mut patience), None);
            let done = done.expect("in time");
            for end in &ended[..done] {
                // SAFETY: the queue has filled in so many.
                assert_eq!(unsafe { end.assume_init_ref() }.ret, 0);
            }
            count -= done;
        }
    }
}

fn place(queue: usize, slot: usize) -> u64 {
    ((queue * DEPTH + slot) * BYTES) as u64
}

fn byte(queue: usize, slot: usize) -> u8 {
    (queue * 80 + slot + 1) as u8
}

#[test]
fn blkio_writes_reads_flushes_discards_and_zeroes_through_several_queues() {
    let served = Served::new();
    let mut client = Client::connect(&served.path, QUEUES as i32);
    for queue in 0..QUEUES {
        for slot in 0..DEPTH {
            client.fill(queue, slot, byte(queue, slot));
            let buffer = client.buffer(queue, slot);
            client.queues[queue].write(place(queue, slot), buffer, BYTES, slot, ReqFlags::empty());
        }
    }
    (0..QUEUES).for_each(|queue| client.wait(queue, DEPTH));
    client.queues[1].flush(0, ReqFlags::empty());
    client.wait(1, 1);
    let verify = |client: &mut Client, zeroed: &[usize]| {
        for queue in 0..QUEUES {
            for slot in 0..DEPTH {
                client.fill(queue, slot, 0xff);
                let (from, buffer) = (place(LAST - queue, slot), client.buffer(queue, slot));
                client.queues[queue].read(from, buffer, BYTES, slot, ReqFlags::empty());
            }
        }
        (0..QUEUES).for_each(|queue| client.wait(queue, DEPTH));
        for queue in 0..QUEUES {
            for slot in 0..DEPTH {
                let is_zero = queue == LAST && zeroed.contains(&slot);
                let wanted = if is_zero { 0 } else { byte(LAST - queue, slot) };
                assert!(client.bytes(queue, slot) == [wanted; BYTES], "queue {queue} slot {slot}");
            }
        }
    };
    verify(&mut client, &[]);
    // Of the first queue's places: the last one reads them.
    client.queues[LAST].write_zeroes(place(0, 3), BYTES as u64, 0, ReqFlags::empty());
    client.queues[LAST].write_zeroes(place(0, 5), BYTES as u64, 1, ReqFlags::NO_UNMAP);
    client.queues[LAST].discard(10 << 20, 1 << 20, 2, ReqFlags::empty());
    client.wait(LAST, 3);
    verify(&mut client, &[3, 5]);
    served.array.fail(1);
    verify(&mut client, &[3, 5]);
    assert_eq!(served.server.clients().len(), 1);
    drop(client);
    served.end();
}

/// What is written is what was copied once: parity says the same as the data.
#[test]
fn a_guest_that_changes_what_it_writes_makes_no_copies_differ() {
    let served = Served::new();
    let guest = Guest::new(1).expect("a guest");
    let memory = guest.file().try_clone().expect("a descriptor");
    let offset = guest.data_at(0, 0) - guest.part(0);
    let mut front = FrontEnd::start(&served.path, guest).expect("it is served");
    let is_over = AtomicBool::new(false);
    let mut done = |ask: Ask<'_>| {
        front.guest().ask(0, 0, ask);
        front.guest().kick(0);
        assert_eq!(front.guest().wait(0, PATIENCE), Some((0, 0)));
        front.guest().data(0, 0, 4096)
    };
    let sectors = 0..200_u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0_u8;
            while !is_over.load(Ordering::Relaxed) {
                byte = byte.wrapping_add(1);
                let changed = std::os::unix::fs::FileExt::write_at(&memory, &[byte; 4096], offset);
                changed.expect("it is there");
            }
        });
        sectors.clone().for_each(|at| drop(done(Ask::Write(at * 8, &[0xee; 4096]))));
        is_over.store(true, Ordering::Relaxed);
    });
    let read = |done: &mut dyn FnMut(Ask<'_>) -> Vec<u8>| {
        sectors.clone().map(|at| done(Ask::Read(at * 8, 4096))).collect::<Vec<_>>()
    };
    let whole = read(&mut done);
    let changed = whole.iter().filter(|block| **block != [0xee; 4096]).count();
    assert!(changed > 0, "the guest has changed some of them in time");
    served.array.fail(0);
    assert!(read(&mut done) == whole, "what a member had is computed to the same bytes");
    drop(front);
    served.end();
}
