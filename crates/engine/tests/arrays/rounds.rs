//! Rounds whose member writes fail: each in turn, alone and in pairs, once and for good, while the
//! others land or are lost with the power.

use std::rc::Rc;

use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::{Queue, Request, RequestError};
use mdspace_engine::status::MemberState;

use crate::shapes::{RAID4, RAID5, RAID6, Shape};
use crate::world::{Answers, SECTOR, Setup, World};

/// The writes of one turn, by sector and length: one round of several pieces, with parts of units,
/// and some that overlap.
const PIECES: [(u64, u64); 4] = [(1, 5), (6, 10), (17, 4), (9, 3)];

/// First sectors, and what was written from there on.
type Writes = [(u64, Vec<u8>); PIECES.len()];

/// What the writes of one turn came to.
fn write_together(world: &mut World) -> (Writes, Vec<Result<(), RequestError>>) {
    let writes =
        PIECES.map(|(sector, sectors)| (sector, world.random.bytes(sectors as usize * SECTOR)));
    let (port, given) = (world.port(0), writes.clone());
    let results = world.run(async move {
        let queue = Queue::new();
        for (tag, (sector, bytes)) in given.into_iter().enumerate() {
            let from = Rc::new(bytes);
            port.submit(&queue, tag as u64, Request::Write { sector, from, fua: false });
        }
        let mut results = vec![Ok(()); PIECES.len()];
        for _ in 0..PIECES.len() {
            let ended = queue.next().await;
            results[ended.tag as usize] = ended.result;
        }
        results
    });
    (writes, results)
}

/// Whether what stands in the array is right: untouched sectors as they were, those of writes that
/// were acknowledged new (the last of them), those of failed ones old or new.
fn judge(world: &mut World, writes: &[(u64, Vec<u8>)], acknowledged: bool, case: &str) {
    let now = world.read(0, world.sectors()).unwrap_or_else(|error| panic!("{case}: {error}"));
    let mut newest = world.model.clone();
    for (sector, bytes) in writes {
        let at = *sector as usize * SECTOR;
        newest[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let sectors = now.chunks(SECTOR).zip(newest.chunks(SECTOR)).zip(world.model.chunks(SECTOR));
    for (sector, ((now, new), old)) in sectors.enumerate() {
        let candidates = writes.iter().filter_map(|(first, bytes)| {
            let at = (sector as u64).checked_sub(*first)? as usize * SECTOR;
            bytes.get(at..at + SECTOR)
        });
        let torn = !acknowledged && (now == old || candidates.into_iter().any(|one| one == now));
        assert!(now == new || torn, "{case}: sector {sector} is wrong");
    }
}

fn fail_writes(shape: Shape, disks: &[usize], once: bool, answers: Answers, seed: u64) {
    let case = format!("{shape}, disks {disks:?}, once {once}, {answers:?}, seed {seed}");
    let mut world = World::synced(Setup { answers, ..Setup::new(shape, seed) });
    // The superblocks say dirty and the bitmap's bits are set before anything fails.
    (0..6).for_each(|unit| world.write_random(unit * 8, 8));
    let data = world.disks.data();
    for &disk in disks {
        let mut disk = world.disks.disk(disk);
        (disk.write_error, disk.error_once) = (Some(IoErrorKind::Other), once);
        disk.errors_in = Some(data.clone());
    }
    let (writes, results) = write_together(&mut world);
    let bearable = disks.len() <= shape.can_lose();
    assert!(!bearable || results.iter().all(Result::is_ok), "{case}: {results:?}");
    for &disk in disks {
        let mut disk = world.disks.disk(disk);
        (disk.write_error, disk.errors_in) = (None, None);
    }
    let acknowledged = results.iter().all(Result::is_ok);
    // Beyond what the level bears the array stops: it comes back with its members.
    if bearable {
        judge(&mut world, &writes, acknowledged, &case);
    }
    // After a crash right here the same holds.
    world.crash();
    world.assemble_with_force().unwrap_or_else(|refusal| panic!("{case}: {refusal}"));
    world.wait_idle();
    judge(&mut world, &writes, acknowledged, &case);
    world.learn();
    for disk in 0..usize::from(shape.disks) {
        let out = |state| matches!(state, None | Some(MemberState::Faulty));
        if disks.contains(&disk) && out(world.member_state(disk)) {
            world.add(disk).unwrap();
            world.wait_idle();
        }
    }
    world.verify();
    assert_eq!(world.check(), 0, "{case}: parity is wrong");
}

#[test]
fn every_failed_member_write_of_a_round_leaves_the_rest_right() {
    for shape in [RAID4, RAID5, RAID6] {
        let disks = usize::from(shape.disks);
        for answers in [Answers::AtOnce, Answers::Shuffled] {
            for once in [true, false] {
                for one in 0..disks {
                    fail_writes(shape, &[one], once, answers, 1);
                    for other in one + 1..disks {
                        fail_writes(shape, &[one, other], once, answers, 2);
                    }
                }
            }
        }
    }
}
