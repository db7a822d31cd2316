//! Writes that go together, of one lane, of several, or by workers: each keeps what it was promised.

use std::rc::Rc;

use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::Request;

use crate::shapes::{RAID5, RAID6, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

/// Who writes them: so many lanes in turns, and so many workers.
const WAYS: [(u16, u16); 3] = [(1, 0), (4, 0), (1, 2)];

/// Writes of one row that share columns, on one lane after the other.
struct Writes(Vec<Write>);

struct Write {
    pending: Pending,
    sector: u64,
    bytes: Vec<u8>,
    fua: bool,
}

impl Writes {
    /// Half a chunk of each data block; some are to be durable at once.
    fn start(world: &mut World, lanes: u16) -> Self {
        let chunk = u64::from(world.shape().chunk_sectors);
        let blocks = world.sectors() / chunk;
        let start = |block: u64| {
            let (sector, lane) = (block * chunk, block as usize % usize::from(lanes));
            let bytes = world.random.bytes(chunk as usize / 2 * SECTOR);
            let (from, fua) = (Rc::new(bytes.clone()), world.random.one_in(3));
            let pending = world.submit(lane, Request::Write { sector, from, fua });
            Write { pending, sector, bytes, fua }
        };
        Self((0..blocks).map(start).collect())
    }

    fn end(&self, world: &mut World) {
        world.until("the end of all", |_| self.0.iter().all(|write| write.pending.has_ended()));
    }

    /// Those that are to be durable are there.
    fn verify_durable(&self, world: &mut World, case: &str) {
        for write in self.0.iter().filter(|write| write.fua) {
            assert!(write.went_well(), "{case}");
            let found = world.read(write.sector, (write.bytes.len() / SECTOR) as u64).unwrap();
            assert!(found == write.bytes, "{case}: what went to {} is not there", write.sector);
        }
    }
}

impl Write {
    fn went_well(&self) -> bool {
        self.pending.result() == Some(Ok(()))
    }
}

fn world(shape: Shape, (lanes, workers): (u16, u16), seed: u64) -> World {
    let mut world = World::synced(Setup { lanes, workers, ..Setup::shuffled(shape, seed) });
    (0..usize::from(workers)).for_each(|worker| drop(world.hire(worker)));
    // The superblocks say dirty and the bitmap's bits are set: the writes meet at their claims.
    world.write_random(0, 8);
    world
}

#[test]
fn a_write_that_is_to_be_durable_is_whoever_it_goes_with() {
    let mut taken = 0;
    for (shape, way) in [RAID5, RAID6].into_iter().flat_map(|shape| WAYS.map(|way| (shape, way))) {
        for seed in 0..12 {
            let mut world = world(shape, way, seed);
            let writes = Writes::start(&mut world, way.0);
            let case = format!("{shape}, {way:?}, seed {seed}");
            writes.end(&mut world);
            taken += world.worker_ios();
            let all = 0..world.disks.count();
            world.power_cut(all);
            world.assemble_all().unwrap();
            writes.verify_durable(&mut world, &case);
        }
    }
    assert!(taken > 0, "workers have a part in it");
}

/// No member takes anything any more, as when a cable comes loose.
#[test]
fn a_write_that_failed_is_told_to_all_that_went_with_it() {
    for (shape, way) in [RAID5, RAID6].into_iter().flat_map(|shape| WAYS.map(|way| (shape, way))) {
        for seed in 0..12 {
            let mut world = world(shape, way, seed);
            let data = world.disks.data();
            for disk in 0..world.disks.count() {
                let mut disk = world.disks.disk(disk);
                (disk.write_error, disk.errors_in) = (Some(IoErrorKind::Gone), Some(data.clone()));
            }
            let writes = Writes::start(&mut world, way.0);
            let sectors = world.sectors();
            let from = Rc::new(world.random.bytes(sectors as usize * SECTOR));
            let long = world.submit(0, Request::Write { sector: 0, from, fua: false });
            writes.end(&mut world);
            assert!(world.end(&long).is_err(), "{shape}, {way:?}, seed {seed}: one in many pieces");
            let well = writes.0.iter().filter(|write| write.went_well()).count();
            assert_eq!(well, 0, "{shape}, {way:?}, seed {seed}: they went nowhere");
        }
    }
}

/// The protocol's order: of writes that overlap, what arrived later stands.
#[test]
fn of_writes_that_go_together_the_later_ones_stand() {
    for (seed, lanes) in (0..40).zip([1, 4].into_iter().cycle()) {
        let mut world = world(RAID5, (lanes, 0), seed);
        let mut started = Vec::new();
        // The first keeps the others waiting; the last two overlap none but the one before.
        for (number, (sector, sectors)) in
            [(0, 8), (0, 8), (4, 8), (8, 8), (12, 4)].into_iter().enumerate()
        {
            let bytes = world.random.bytes(sectors as usize * SECTOR);
            world.remember(sector, &bytes);
            let from = Rc::new(bytes);
            let lane = number % usize::from(lanes);
            started.push(world.submit(lane, Request::Write { sector, from, fua: false }));
            // It arrives before the next.
            world.rounds(1);
        }
        started.iter().for_each(|write| world.end(write).unwrap());
        world.verify();
    }
}
