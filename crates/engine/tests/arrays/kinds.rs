//! Errors that say more of a member than that some sectors are bad, or nothing of it at all.

use std::cell::RefCell;
use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, MemberState};

use crate::shapes;
use crate::world::{SECTOR, Setup, World};

/// The pieces of that write would all go well, and what was written before it would still be lost.
#[test]
fn a_fua_write_whose_flush_failed_fails_the_member_and_is_not_written_again_in_pieces() {
    for (seed, shape) in (1..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::synced(Setup::new(shape, seed));
        // The dirty mark and the bits of the bitmap are on the members before the error comes.
        world.write_random(0, 16);
        let data = world.disks.data();
        {
            let mut disk = world.disks.disk(0);
            disk.fail_once(IoErrorKind::Flush);
            disk.errors_in = Some(data.clone());
        }
        let bytes = world.random.bytes(16 * SECTOR);
        world.remember(0, &bytes);
        world.serve(0, Request::Write { sector: 0, from: Rc::new(bytes), fua: true }).unwrap();
        world.verify();
        if world.disks.disk(0).write_error.is_none() {
            assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
            assert_eq!(world.status().members[0].bad_ranges, 0, "{world}");
        }
    }
}

/// Another host has taken the members: nothing is wrong with them, and what this host writes from here on
/// could destroy what the other one does.
#[test]
fn a_reservation_conflict_stops_the_array_fails_no_member_and_writes_no_metadata() {
    for (seed, shape) in (10..).zip(shapes::redundant()) {
        for in_metadata in [false, true] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.write_many(2);
            if in_metadata {
                world.wait_clean();
            }
            let before = world.disks.superblock_bytes(1);
            world.disks.disk(0).write_error = Some(IoErrorKind::Reserved);
            world.disks.reset_counts();
            let ended = world.write(0, vec![1; world.sectors() as usize * SECTOR]);
            assert_eq!(ended, Err(RequestError::Lost), "{world}");
            assert_eq!(world.status().state, ArrayState::Broken, "{world}");
            assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
            assert_eq!(world.write(0, vec![1; 4096]), Err(RequestError::Lost), "{world}");
            // The update that met the conflict may be on the others.
            if !in_metadata {
                assert_eq!(world.disks.superblock_bytes(1), before, "{world}");
            }
            let roles = world.disks.superblock(1).unwrap().roles;
            assert!(!roles.contains(&mdspace_format::Role::Faulty), "{roles:?} ({world})");
            world.disks.disk(0).write_error = None;
            world.crash();
            assert_eq!(world.assemble_all().unwrap(), [], "{world}");
        }
    }
}

/// The others do not answer the write yet, and are not reserved by then. Meanwhile the member is read, which goes well.
#[test]
fn a_member_that_is_reserved_is_not_failed_by_a_read_beside_the_write() {
    for (seed, shape) in (30..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6]) {
        for reserved in 0..usize::from(shape.disks) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.write_many(2);
            let data = world.disks.data();
            for disk in 0..usize::from(shape.disks) {
                let mut it = world.disks.disk(disk);
                match disk == reserved {
                    true => {
                        (it.write_error, it.errors_in) =
                            (Some(IoErrorKind::Reserved), Some(data.clone()));
                    }
                    false => it.writes_hang_in = Some(data.clone()),
                }
            }
            let before = world.disks.superblock_bytes((reserved + 1) % usize::from(shape.disks));
            let from = Rc::new(vec![1; 8 * SECTOR]);
            let row = u64::from(shape.chunk_sectors.max(8)) * 8;
            let write = world.start(1, Request::Write { sector: 0, from, fua: false });
            world.turns(200);
            for sector in (row..world.sectors()).step_by(8).take(64) {
                world
                    .start(2, Request::Read { sector, into: Rc::new(RefCell::new(vec![0; 4096])) });
                world.turns(5);
            }
            world.turns(500);
            (0..usize::from(shape.disks))
                .for_each(|disk| world.disks.disk(disk).writes_hang_in = None);
            let ended = world.end(&write);
            // Of a row of parity it may have none.
            let is_broken = world.status().state == ArrayState::Broken;
            assert_eq!(ended.is_err(), is_broken, "{ended:?} ({world})");
            assert_eq!(world.member_state(reserved), Some(MemberState::InSync), "{world}");
            let after = world.disks.superblock_bytes((reserved + 1) % usize::from(shape.disks));
            assert_eq!(after, before, "{world}");
        }
    }
}

#[test]
fn a_read_that_meets_a_reservation_stops_the_array_too() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5, 50));
    (0..4).for_each(|disk| world.disks.disk(disk).read_error = Some(IoErrorKind::Reserved));
    assert_eq!(world.read(0, 8), Err(RequestError::Lost));
    let status = world.status();
    assert_eq!(status.state, ArrayState::Broken);
    assert!(status.members.iter().all(|member| member.state == MemberState::InSync), "{status:?}");
}

/// The copy that was read is believed again when the reservation is gone: no other one answers meanwhile.
#[test]
fn a_mirror_in_doubt_whose_copy_is_reserved_answers_no_read_from_another_one() {
    for (seed, shape) in (60..).zip([shapes::RAID1, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.write_random(0, 8);
        let new = vec![9; 8 * SECTOR];
        world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
        assert_eq!(world.write(0, new.clone()), Err(RequestError::NoSpace), "{world}");
        world.disks.disk(1).write_error = None;
        assert_eq!(world.read(0, 8), Ok(new.clone()), "{world}");
        world.disks.disk(0).read_error = Some(IoErrorKind::Reserved);
        for _ in 0..3 {
            assert_eq!(world.read(0, 8).err(), Some(RequestError::Lost), "{world}");
        }
        world.disks.disk(0).read_error = None;
        world.crash();
        assert_eq!(world.assemble_all().unwrap(), [], "{world}");
        assert_eq!(world.read(0, 8), Ok(new), "{world}");
    }
}
