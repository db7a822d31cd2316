//! A disk forgets only what it may, and fails only as the plan says.

use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::time::Time;

use super::*;

fn disk() -> Disk {
    Disk::new(DiskSpec::plain(64))
}

fn write(disk: &mut Disk, id: u64, range: Range<u64>, byte: u8) -> Result<(), IoError> {
    let bytes = vec![byte; (range.end - range.start) as usize * SECTOR_BYTES];
    let result = disk.perform(WriteId(id), Effect::Write(range, &bytes), &mut Random::new(id));
    if result.is_ok() {
        disk.acknowledge(WriteId(id), false);
    }
    result
}

fn read(disk: &mut Disk, sector: u64) -> Result<u8, IoError> {
    let mut out = [0; SECTOR_BYTES];
    let effect = Effect::Read(sector..sector + 1, &mut out);
    disk.perform(WriteId(0), effect, &mut Random::new(0))?;
    assert!(out.iter().all(|&byte| byte == out[0]), "a sector is never torn");
    Ok(out[0])
}

fn flush(disk: &mut Disk) -> Result<(), IoError> {
    let horizon = disk.store.horizon();
    disk.perform(WriteId(0), Effect::Flush(horizon), &mut Random::new(0))
}

/// The values that a sector has after a power cut, over many seeds.
fn after_cut(prepare: impl Fn(&mut Disk), sector: u64) -> Vec<u8> {
    let mut seen = BTreeSet::new();
    for seed in 0..64 {
        let mut disk = disk();
        prepare(&mut disk);
        disk.cut_power(&mut Random::new(seed));
        seen.insert(read(&mut disk, sector).unwrap());
    }
    seen.into_iter().collect()
}

#[test]
fn a_read_sees_the_newest_write() {
    let mut disk = disk();
    write(&mut disk, 1, 3..5, 1).unwrap();
    write(&mut disk, 2, 4..6, 2).unwrap();
    let seen: Vec<u8> = (2..7).map(|sector| read(&mut disk, sector).unwrap()).collect();
    assert_eq!(seen, [0, 1, 2, 2, 0]);
}

#[test]
fn a_power_cut_may_take_any_unflushed_write() {
    let prepare = |disk: &mut Disk| {
        write(disk, 1, 3..4, 1).unwrap();
        write(disk, 2, 3..4, 2).unwrap();
    };
    assert_eq!(after_cut(prepare, 3), [0, 1, 2]);
}

#[test]
fn a_power_cut_takes_nothing_that_was_flushed() {
    let prepare = |disk: &mut Disk| {
        write(disk, 1, 3..4, 1).unwrap();
        flush(disk).unwrap();
        write(disk, 2, 3..4, 2).unwrap();
    };
    assert_eq!(after_cut(prepare, 3), [1, 2]);
}

#[test]
fn a_flush_covers_no_write_that_completed_after_it_was_submitted() {
    let prepare = |disk: &mut Disk| {
        let horizon = disk.store.horizon();
        write(disk, 1, 3..4, 1).unwrap();
        disk.perform(WriteId(0), Effect::Flush(horizon), &mut Random::new(0)).unwrap();
    };
    assert_eq!(after_cut(prepare, 3), [0, 1]);
}

#[test]
fn a_write_with_fua_is_durable_and_those_before_it_are_not() {
    let prepare = |disk: &mut Disk| {
        write(disk, 1, 3..4, 1).unwrap();
        write(disk, 2, 4..5, 2).unwrap();
        disk.acknowledge(WriteId(2), true);
    };
    assert_eq!(after_cut(prepare, 3), [0, 1]);
    assert_eq!(after_cut(prepare, 4), [2]);
}

#[test]
fn a_power_cut_tears_between_blocks_and_never_inside() {
    let mut torn = false;
    for seed in 0..64 {
        let mut disk = Disk::new(DiskSpec { logical_block_bytes: 4096, ..DiskSpec::plain(64) });
        write(&mut disk, 1, 8..24, 1).unwrap();
        disk.cut_power(&mut Random::new(seed));
        let seen: Vec<u8> = (8..24).map(|sector| read(&mut disk, sector).unwrap()).collect();
        assert!(seen[..8].iter().all(|&byte| byte == seen[0]));
        assert!(seen[8..].iter().all(|&byte| byte == seen[8]));
        torn |= seen[0] != seen[8];
    }
    assert!(torn);
}

#[test]
fn after_a_failed_flush_a_later_one_saves_nothing() {
    let prepare = |disk: &mut Disk| {
        write(disk, 1, 3..4, 1).unwrap();
        disk.faults.flush_errors = 1;
        assert!(flush(disk).is_err());
        flush(disk).unwrap();
    };
    assert_eq!(after_cut(prepare, 3), [0, 1]);
}

#[test]
fn a_spoiled_sector_is_unreadable_until_it_is_rewritten() {
    let mut disk = disk();
    disk.faults.spoil(3..5, Healing::Rewrite);
    assert_eq!(read(&mut disk, 3).unwrap_err().kind, IoErrorKind::Medium);
    write(&mut disk, 1, 3..4, 1).unwrap();
    assert_eq!(read(&mut disk, 3).unwrap(), 1);
    assert!(read(&mut disk, 4).is_err(), "only what was rewritten heals");
    disk.faults.spoil(6..7, Healing::Never);
    write(&mut disk, 2, 6..7, 1).unwrap();
    assert!(read(&mut disk, 6).is_err());
}

#[test]
fn a_refused_write_fails_once_or_for_ever() {
    let mut disk = disk();
    disk.faults.refuse_writes(3..4, Persistence::Times(1));
    disk.faults.refuse_writes(8..9, Persistence::Sticky);
    assert!(write(&mut disk, 1, 0..8, 1).is_err());
    assert!(write(&mut disk, 2, 0..8, 2).is_ok());
    assert!(write(&mut disk, 3, 8..9, 3).is_err());
    assert!(write(&mut disk, 4, 8..9, 4).is_err());
}

#[test]
fn a_reset_takes_any_unflushed_write_that_was_answered_and_the_next_flush_says_so() {
    let mut seen = BTreeSet::new();
    for seed in 0..64 {
        let mut disk = disk();
        write(&mut disk, 1, 3..4, 1).unwrap();
        flush(&mut disk).unwrap();
        write(&mut disk, 2, 3..4, 2).unwrap();
        let bytes = [3; SECTOR_BYTES];
        let under_way = Effect::Write(4..5, &bytes);
        disk.perform(WriteId(3), under_way, &mut Random::new(seed)).unwrap();
        disk.reset(&mut Random::new(seed));
        seen.insert(read(&mut disk, 3).unwrap());
        assert_eq!(read(&mut disk, 4).unwrap(), 3, "it is not answered yet");
        flush(&mut disk).unwrap_err();
    }
    assert_eq!(seen.into_iter().collect::<Vec<u8>>(), [1, 2]);
}

#[test]
fn mishaps_are_silent() {
    let mut disk = disk();
    disk.faults.befall(Mishap::Lost);
    disk.faults.befall(Mishap::Misdirected(2));
    write(&mut disk, 1, 3..4, 1).unwrap();
    write(&mut disk, 2, 3..4, 2).unwrap();
    assert_eq!(read(&mut disk, 3).unwrap(), 0);
    assert_eq!(read(&mut disk, 5).unwrap(), 2);
}

#[test]
fn a_full_disk_takes_only_what_it_has_space_for() {
    let mut disk = disk();
    write(&mut disk, 1, 3..4, 1).unwrap();
    disk.faults.full_until = Some(Time::from_nanos(1));
    write(&mut disk, 2, 4..5, 2).unwrap();
    assert_eq!(write(&mut disk, 3, 7..9, 3).unwrap_err().kind, IoErrorKind::NoSpace);
    assert_eq!(read(&mut disk, 4).unwrap(), 2);
    assert_eq!(read(&mut disk, 8).unwrap(), 0);
}

/// Else the end of a short one would end all others of the disk.
#[test]
fn a_fault_that_ends_in_time_ends_at_its_own() {
    let mut disk = disk();
    write(&mut disk, 1, 3..4, 1).unwrap();
    disk.faults.full_until = Some(Time::from_nanos(10));
    disk.faults.hang = Some(Hang::Until(Time::from_nanos(20)));
    disk.faults.spoil(3..4, Healing::At(Time::from_nanos(30)));
    disk.faults.pass(Time::from_nanos(10));
    assert_eq!((disk.faults.full_until, disk.faults.hang.is_some()), (None, true));
    disk.faults.pass(Time::from_nanos(20));
    assert_eq!((disk.faults.hang, read(&mut disk, 3).is_err()), (None, true));
    disk.faults.pass(Time::from_nanos(30));
    assert_eq!(read(&mut disk, 3).unwrap(), 1);
}

#[test]
fn what_a_disk_could_not_read_counts_when_it_was_written_again() {
    let mut disk = disk();
    write(&mut disk, 1, 3..6, 1).unwrap();
    disk.faults.spoil(3..5, Healing::At(Time::from_nanos(1)));
    read(&mut disk, 3).unwrap_err();
    disk.faults.pass(Time::from_nanos(1));
    assert_eq!((read(&mut disk, 3), disk.owns(3)), (Ok(1), false));
    assert!(disk.owns(4), "nobody has asked for it");
    write(&mut disk, 2, 3..4, 2).unwrap();
    assert!(disk.owns(3));
}

#[test]
fn a_disk_that_is_gone_says_so() {
    let mut disk = disk();
    disk.faults.gone = true;
    assert_eq!(read(&mut disk, 3).unwrap_err().kind, IoErrorKind::Gone);
    assert_eq!(flush(&mut disk).unwrap_err().kind, IoErrorKind::Gone);
}

#[test]
fn what_was_discarded_has_no_space_behind_it_any_more() {
    let mut disk = disk();
    write(&mut disk, 1, 0..16, 1).unwrap();
    disk.perform(WriteId(2), Effect::Discard(0..12), &mut Random::new(2)).unwrap();
    disk.faults.full_until = Some(Time::from_nanos(1));
    assert!(write(&mut disk, 3, 0..8, 3).is_err());
    assert!(write(&mut disk, 4, 8..16, 4).is_ok(), "a block of which a part was kept");
}
