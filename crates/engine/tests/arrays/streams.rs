//! Streams of small writes: what they cost the members, and whom they hold up.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Queue, Request};

use crate::shapes::Shape;
use crate::world::{Answers, Setup, World};

/// RAID6 of four data disks and two of parity.
fn raid6(chunk_sectors: u32, rows: u64) -> Shape {
    of_rows(Shape::new(Level::Raid6, 2, 6, chunk_sectors), rows)
}

fn of_rows(shape: Shape, rows: u64) -> Shape {
    let member_sectors = u64::from(shape.chunk_sectors) * rows;
    Shape { member_sectors, ..shape }.without_bitmap()
}

/// Writes from `first` on, each of `sectors`, so many in flight, on lane 0.
#[derive(Clone, Copy)]
struct Stream {
    first: u64,
    sectors: u64,
    depth: usize,
    count: u64,
}

impl Stream {
    /// Runs it to its end, and checks what stands on the array then.
    fn run(self, world: &mut World) {
        let bytes = world.random.bytes((self.sectors * self.count) as usize * 512);
        world.remember(self.first, &bytes);
        let (lane, port) = (world.lane(0), world.port(0));
        let over = Rc::new(Cell::new(false));
        let (ended, bytes) = (over.clone(), Rc::new(bytes));
        world.spawn_on(0, async move {
            let (queue, mut next) = (Queue::new(), 0);
            while next < self.count || queue.in_flight() > 0 {
                while next < self.count && queue.in_flight() < self.depth {
                    let at = (next * self.sectors) as usize * 512;
                    let from = Rc::new(bytes[at..at + self.sectors as usize * 512].to_vec());
                    let sector = self.first + next * self.sectors;
                    port.submit(&queue, next, Request::Write { sector, from, fua: false });
                    next += 1;
                }
                queue.next().await.result.unwrap();
                while let Some(ended) = queue.pop() {
                    ended.result.unwrap();
                }
                // As front ends do: what ends in this turn is asked for again in one go.
                lane.pause().await;
            }
            ended.set(true);
        });
        world.until("the end of the stream", |_| over.get());
    }

    fn bytes(&self) -> f64 {
        (self.sectors * self.count * 512) as f64
    }
}

/// Bytes read from and written to all members since the counts were reset, and how many I/Os.
fn traffic(world: &World) -> (f64, f64, [usize; 2]) {
    let mut sums = (0.0, 0.0, [0; 2]);
    for index in 0..usize::from(world.shape().disks) {
        let disk = world.disks.disk(index);
        let bytes = |ios: &[std::ops::Range<u64>]| {
            ios.iter().map(|io| (io.end - io.start) * 512).sum::<u64>() as f64
        };
        sums.0 += bytes(&disk.reads);
        sums.1 += bytes(&disk.writes);
        sums.2[0] += disk.reads.len();
        sums.2[1] += disk.writes.len();
    }
    sums
}

/// Bytes that members read and write for a byte of the stream, which so many workers share in.
fn cost(shape: Shape, answers: Answers, stream: Stream, workers: u16) -> (f64, f64) {
    let mut world = World::synced(Setup { answers, workers, ..Setup::new(shape, 5) });
    let hired: Vec<_> = (0..usize::from(workers)).map(|worker| world.hire(worker)).collect();
    // The superblocks are to say dirty already.
    world.write_random(0, 8);
    world.disks.reset_counts();
    stream.run(&mut world);
    let (read, written, _) = traffic(&world);
    assert_eq!(world.worker_ios() > 0, workers > 0, "{shape}: {workers} workers have a part in it");
    hired.iter().for_each(|worker| world.dismiss(worker));
    world.until("the leave of all workers", |world| world.hired() == 0);
    world.verify();
    assert_eq!(world.check(), 0, "{world}");
    (read / stream.bytes(), written / stream.bytes())
}

/// What a stream costs that begins at the start of a row, at one of its own writes only, and nowhere.
fn assert_whole_rows(shape: Shape, depth: usize, sectors: u64) {
    let data_disks = u64::from(shape.disks) - shape.can_lose() as u64;
    let row = u64::from(shape.chunk_sectors) * data_disks;
    let count = (shape.member_sectors * data_disks - row * 2) / sectors;
    let least = f64::from(shape.disks) / data_disks as f64;
    for first in [0, row / 2, row / 4 + 8] {
        for answers in [Answers::AtOnce, Answers::Shuffled] {
            let stream = Stream { first, sectors, depth, count };
            for workers in [0, 1, 2] {
                let (read, written) = cost(shape, answers, stream, workers);
                let case =
                    format!("{shape}, depth {depth}, from {first}, {answers:?}, {workers} workers");
                assert!(written <= 1.1 * least, "{case}: {written} written");
                assert!(read <= 0.1, "{case}: {read} read");
            }
        }
    }
}

#[test]
fn a_stream_of_two_rows_in_flight_writes_whole_rows_and_reads_almost_nothing() {
    assert_whole_rows(raid6(128, 48), 256, 8);
    assert_whole_rows(raid6(1024, 32), 8, 2048);
}

/// As deep as two rows and no deeper, on the other levels too, whose rows are no multiple of a write.
#[test]
fn two_rows_in_flight_are_enough_on_every_level_with_parity() {
    let raid4 = |chunk| Shape::new(Level::Raid4, 0, 4, chunk);
    let raid5 = |chunk| Shape::new(Level::Raid5, 2, 4, chunk);
    assert_whole_rows(raid6(128, 32), 128, 8);
    assert_whole_rows(of_rows(raid4(128), 32), 96, 8);
    assert_whole_rows(of_rows(raid5(128), 32), 96, 8);
    assert_whole_rows(of_rows(raid5(1024), 16), 3, 2048);
    assert_whole_rows(of_rows(raid5(1024), 16), 8, 2048);
}

/// One request in 64 is timed, so four of these 256: they are answered in the turn of the others, and
/// what comes next stays one round of half a row. Members answer as RAM does.
#[test]
fn a_stream_does_not_fall_apart_by_being_timed() {
    let shape = raid6(1024, 32);
    let stream = Stream { first: 0, sectors: 8, depth: 256, count: 31 * 512 };
    let (read, written) = cost(shape, Answers::AtOnce, stream, 0);
    // Of each half row two chunks and both parities are written, and the other two chunks read.
    assert!(written <= 4.0 / 2.0 && read <= 2.0 / 2.0, "{read} read, {written} written");
}

#[test]
fn a_shallow_stream_is_one_io_a_member_each_turn() {
    let shape = raid6(128, 8);
    let mut world = World::synced(Setup::new(shape, 6));
    world.write_random(0, 8);
    world.disks.reset_counts();
    // Half a chunk a turn: one data member and both parities are read and written.
    let stream = Stream { first: 0, sectors: 8, depth: 8, count: 64 };
    stream.run(&mut world);
    let (_, _, [reads, writes]) = traffic(&world);
    assert_eq!(writes, 8 * 3, "eight turns");
    // Old block and parity until columns have been written twice, those of the first turn once before;
    // then the old block alone, as long as another of the row is not known either.
    assert_eq!(reads, 3 * 3 + 4);
    world.verify();
}

#[test]
fn a_random_writer_is_served_beside_a_stream() {
    let shape = raid6(128, 32);
    for seed in 0..8 {
        let mut world =
            World::synced(Setup { answers: Answers::Shuffled, ..Setup::new(shape, seed) });
        let port = world.port(0);
        let (streamed, answered) = (Rc::new(Cell::new(0_u64)), Rc::new(RefCell::new(Vec::new())));
        let counted = streamed.clone();
        let total = 28 * 512 / 8;
        let streaming = port.clone();
        world.spawn_on(0, async move {
            let (queue, mut next) = (Queue::new(), 0);
            while counted.get() < total {
                while next < total && queue.in_flight() < 256 {
                    let from = Rc::new(vec![next as u8; 4096]);
                    let sector = next * 8;
                    streaming.submit(&queue, next, Request::Write { sector, from, fua: false });
                    next += 1;
                }
                queue.next().await.result.unwrap();
                counted.set(counted.get() + 1);
            }
        });
        // It writes anywhere, and every other time where the stream is.
        let (progress, ends) = (streamed.clone(), answered.clone());
        world.spawn_on(0, async move {
            let queue = Queue::new();
            for turn in 0.. {
                let begun = progress.get();
                if begun == total {
                    return;
                }
                let row = if turn % 2 == 0 { begun * 8 / 512 + 1 } else { turn * 7 % 32 };
                let sector = row.min(31) * 512 + 24;
                let from = Rc::new(vec![0xaa; 4096]);
                port.submit(&queue, 0, Request::Write { sector, from, fua: false });
                queue.next().await.result.unwrap();
                ends.borrow_mut().push(progress.get() - begun);
            }
        });
        world.until("the end of the stream", |_| streamed.get() == total);
        // What is under way when it comes, the rounds of its row, and no more.
        let longest = answered.borrow().iter().copied().max().unwrap();
        assert!(longest <= 1024, "seed {seed}: {longest} writes of the stream went before it");
        assert!(answered.borrow().len() >= 3, "seed {seed}");
        assert_eq!(world.check(), 0, "seed {seed}");
    }
}

/// Several clients write what lies in one row, on a lane each: those that wait for the first one are
/// written together, as a whole row.
#[test]
fn writes_that_wait_on_several_lanes_are_one_round() {
    let shape = raid6(128, 8);
    for seed in 0..8 {
        let setup = Setup { answers: Answers::Shuffled, lanes: 5, ..Setup::new(shape, seed) };
        let mut world = World::synced(setup);
        world.write_random(1024, 8);
        world.disks.reset_counts();
        let mut pending = Vec::new();
        for lane in 0..5 {
            // The first one writes what the last one writes again.
            let sector = lane as u64 % 4 * 128 + 16;
            let bytes = world.random.bytes(4096);
            world.remember(sector, &bytes);
            let request = Request::Write { sector, from: Rc::new(bytes), fua: lane == 2 };
            pending.push(world.submit(lane, request));
        }
        pending.iter().for_each(|write| world.end(write).unwrap());
        let (_, _, [reads, writes]) = traffic(&world);
        assert_eq!((reads, writes), (3, 3 + 6), "seed {seed}");
        world.verify();
        assert_eq!(world.check(), 0, "seed {seed}");
    }
}
