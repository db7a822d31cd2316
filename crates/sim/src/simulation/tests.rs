//! The judge judges: runs are what their seeds say, and sabotage is always noticed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mdspace_engine::array::Rule;
use mdspace_format::superblock::MemberFlags;
use mdspace_format::{BadBlocks, Features, MetadataVersion, Superblock};

use super::*;
use crate::disk::{Latency, Mishap};
use crate::oracle::{Place, RawArray, Remains};
use crate::settings::{Happening, Scrubs};
use crate::stamp::{SECTOR_BYTES, Version};
use crate::world::Fences;

/// A run without troubles, in which something is written and read.
fn calm(seed: u64, level: i32) -> Settings {
    let mut settings = Settings::draw(seed, Some(level), Trouble::Bearable);
    settings.aims.clear();
    settings.happenings.fill(0);
    settings.requests = 100;
    settings.habits.kinds[1] = 100;
    settings.noisy_disks = false;
    settings
}

/// As [`calm`], of the next seed whose members have room for a bitmap.
fn calm_with_bitmap(seed: u64, level: i32) -> Settings {
    let mut drawn = (0..).map(|turn| calm(seed + 1000 * turn, level));
    let settings = drawn.find(|settings| settings.bitmap_chunk_bytes.is_some());
    Settings { bitmap_chunk_bytes: Some(4096), ..settings.expect("seeds go on for ever") }
}

fn run(settings: Settings) -> Result<Outcome, Failure> {
    Simulation::new(settings, Trace::default())?.run()
}

/// Runs with some writes of the first disk meeting `mishap`.
fn run_with(mishap: Mishap, settings: Settings) -> Result<Outcome, Failure> {
    let simulation = Simulation::new(settings, Trace::default())?;
    simulation.world.change_disk(DiskIndex(0), |disk| {
        (0..20).for_each(|_| disk.faults.befall(mishap));
    });
    simulation.run()
}

#[test]
fn a_calm_run_ends_well_on_every_level() {
    for level in [-1, 0, 1, 4, 5, 6, 10] {
        let outcome = run(calm(1, level)).unwrap_or_else(|failure| panic!("{level}: {failure}"));
        assert!(outcome.judged && outcome.failed == 0 && outcome.answered >= 100, "{outcome:?}");
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let hash = |seed| run(calm(seed, 6)).unwrap().trace_hash;
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(4));
}

#[test]
fn lost_misdirected_and_flipped_writes_are_noticed_without_redundancy() {
    for mishap in [Mishap::Lost, Mishap::Misdirected(8), Mishap::Flipped] {
        let result = run_with(mishap, calm(5, 0));
        assert!(matches!(result, Err(Failure::Wrong { .. })), "{mishap:?}: {result:?}");
    }
}

#[test]
fn lost_misdirected_and_flipped_writes_are_noticed_with_redundancy() {
    for level in [1, 4, 5, 6, 10] {
        for mishap in [Mishap::Lost, Mishap::Misdirected(8), Mishap::Flipped] {
            let result = run_with(mishap, calm(5, level));
            assert!(result.is_err(), "level {level}, {mishap:?}: {result:?}");
        }
    }
}

#[test]
fn a_byte_flipped_behind_the_engine_is_noticed_on_the_platters() {
    for level in [4, 5, 6, 10] {
        let mut simulation = Simulation::new(calm(7, level), Trace::default()).unwrap();
        while simulation.requests_left > 0 {
            simulation.pump();
            simulation.step().unwrap();
        }
        simulation.drain().unwrap();
        simulation.make_whole().unwrap();
        simulation.shut_down().unwrap();
        flip(&simulation.world, DiskIndex(1), simulation.settings.data_offset + 3);
        let result = simulation.judge_platters();
        assert!(
            matches!(result, Err(Failure::Redundancy { .. } | Failure::Platter(_))),
            "level {level}: {result:?}"
        );
    }
}

/// The negative control of what is read of copies: redundancy that nobody reads as long as no member is lost.
#[test]
fn redundancy_that_is_wrong_is_noticed_when_a_member_is_lost_on_a_copy() {
    for level in [1, 4, 5, 6, 10] {
        for is_flipped in [false, true] {
            let mut simulation = Simulation::new(calm(7, level), Trace::default()).unwrap();
            while simulation.requests_left > 0 {
                simulation.pump();
                simulation.step().unwrap();
            }
            simulation.drain().unwrap();
            simulation.make_whole().unwrap();
            simulation.shut_down().unwrap();
            let (array, _) = RawArray::find(&simulation.world, &simulation.disks).unwrap();
            let redundant = match array.shape.has_parity() {
                true => vec![Place { slot: array.shape.row(0).p, sector: 3 }],
                false => array.shape.places(3).split_off(1),
            };
            for place in redundant.into_iter().filter(|_| is_flipped) {
                let (disk, sector) = array.raw(place);
                flip(&simulation.world, disk, sector);
            }
            let result = simulation.lose_each_on_a_copy();
            assert_eq!(result.is_err(), is_flipped, "level {level}: {result:?}");
            assert!(matches!(result, Ok(()) | Err(Failure::Copy { .. })), "{result:?}");
        }
    }
}

fn flip(world: &World, disk: DiskIndex, sector: u64) {
    world.change_disk(disk, |disk| {
        let mut bytes = [0; 512];
        disk.store.read(sector, &mut bytes);
        bytes[100] ^= 4;
        disk.store.overwrite(sector, &bytes);
    });
}

/// A run whose disks have paths that are in trouble all the time, and users who overwrite a lot.
fn over_paths(seed: u64, fences: Fences) -> Settings {
    let mut settings = calm(seed, -1);
    settings.paths = 2;
    settings.fences = fences;
    // A path is proved by its superblocks, and a write is held back as long as that takes.
    settings.disks.iter_mut().for_each(|disk| disk.slow_start = (0, 1));
    settings.requests = 1500;
    settings.calm_requests = 10;
    settings
}

/// The negative control of the rule on late writes: fences that prove nothing.
#[test]
fn writes_that_land_late_are_noticed_if_nothing_holds_newer_ones_back() {
    let seeds = 0..40;
    for seed in seeds.clone() {
        let outcome = run(over_paths(seed, Fences::Prove));
        let outcome = outcome.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        assert!(outcome.judged, "seed {seed}: {outcome:?}");
    }
    let noticed = seeds.filter(|&seed| run(over_paths(seed, Fences::Lie)).is_err()).count();
    assert!(noticed > 0, "an oracle that cannot fail proves nothing");
    println!("{noticed} of 40 runs with lying fences were noticed");
}

/// The negative control of the limit on how long a write is held back: fences that never answer. The
/// runs above are the test itself.
#[test]
fn writes_that_are_held_back_for_a_second_are_noticed() {
    let held = |seed: &u64| matches!(run(over_paths(*seed, Fences::Hang)), Err(Failure::Held(_)));
    let noticed = (0..40).filter(held).count();
    assert!(noticed > 0, "a limit that cannot be passed proves nothing");
    println!("{noticed} of 40 runs with hanging fences were noticed");
}

/// Late and answering, late and answering: what needs that member goes on all the same.
#[test]
fn a_member_slower_than_the_read_deadline_keeps_no_check_from_its_end() {
    for level in [1, 5, 6, 10] {
        let mut settings = calm(9, level);
        settings.tuning = vec![("read_deadline", "0.001"), ("write_deadline", "10")];
        settings.habits.depth = 1;
        settings.disks[1].latency.least = Duration::from_millis(20);
        let outcome = run(settings).unwrap_or_else(|failure| panic!("{level}: {failure}"));
        assert!(outcome.judged, "{outcome:?}");
    }
}

/// A run in which members lie all the time.
fn lying(seed: u64, level: i32, scrubs: Scrubs) -> Settings {
    let mut settings = calm(seed, level);
    settings.happenings[Happening::Lie as usize] = 1;
    settings.calm_requests = 20;
    settings.scrubs = scrubs;
    settings
}

#[test]
fn members_that_lie_are_named_and_mended_or_left_alone() {
    for level in [1, 4, 5, 6, 10] {
        for seed in 0..8 {
            let outcome = run(lying(seed, level, Scrubs::ByEvidence));
            let outcome =
                outcome.unwrap_or_else(|failure| panic!("level {level}, seed {seed}: {failure}"));
            assert!(outcome.judged && outcome.lies > 0, "level {level}, seed {seed}: {outcome:?}");
        }
    }
}

/// The negative controls of the rule of evidence: two members that agree on a lie, and md's rule, by
/// which what lies in the place of data is true.
#[test]
fn a_repair_by_other_rules_than_the_evidence_is_noticed() {
    for scrubs in [Scrubs::ByForgedEvidence, Scrubs::ByData] {
        for level in [1, 6] {
            let noticed = (0..8).filter(|&seed| {
                let result = run(lying(seed, level, scrubs));
                assert!(matches!(result, Ok(_) | Err(Failure::Scrub(_))), "{result:?}");
                result.is_err()
            });
            let noticed = noticed.count();
            assert!(noticed > 3, "level {level}, {scrubs:?}: only {noticed} of 8 were noticed");
        }
    }
}

/// Mirrors of which all but the first are write-mostly, on which writes may be left behind.
fn with_writes_behind(seed: u64) -> Settings {
    let mut settings = calm_with_bitmap(seed, 1);
    settings.write_behind = 256;
    settings.paths = 0;
    settings.tuning = vec![("read_deadline", "0"), ("write_deadline", "0")];
    settings.flags = vec![MemberFlags(MemberFlags::WRITE_MOSTLY); settings.disks.len()];
    settings.flags[0] = MemberFlags::default();
    settings.disks.iter_mut().for_each(|disk| disk.instant_one_in = 0);
    settings
}

type Happens = fn(&mut Simulation) -> Result<(), Failure>;

/// Leaves a write behind for a minute, without a rule if one is given, and lets something happen meanwhile.
fn leave_a_write_behind(
    seed: u64,
    broken: Option<Rule>,
    happens: Happens,
) -> Result<Outcome, Failure> {
    let settings = Settings { broken, ..with_writes_behind(seed) };
    let mut simulation = Simulation::new(settings, Trace::default())?;
    while simulation.requests_left > 0 {
        simulation.pump();
        simulation.step()?;
    }
    // Twice: the first one has its intent written on all members.
    let block = simulation.process().block_sectors();
    for (version, least) in [(1 << 20, Duration::ZERO), (1 << 20 | 1, Duration::from_secs(60))] {
        simulation.drain()?;
        for index in 1..simulation.settings.slots {
            let latency = Latency { least, tail_one_in: 0, ..Latency::default() };
            simulation.world.change_disk(DiskIndex(index), |disk| disk.spec.latency = latency);
        }
        let versions = vec![Version(version)];
        simulation.backlog.push_back(Ask::Write { range: 0..block, versions, fua: false });
        simulation.submit_next();
    }
    simulation.drain()?;
    for disk in simulation.disks.clone() {
        simulation.world.change_disk(disk, |disk| disk.spec.latency = Latency::default());
    }
    happens(&mut simulation)?;
    simulation.finish()
}

/// Only members are left that may not have it yet.
fn fail_the_first(simulation: &mut Simulation) -> Result<(), Failure> {
    simulation.fail(DiskIndex(0), true);
    simulation.wait(Duration::from_secs(1))?;
    simulation.read_all();
    while simulation.submit_next() {}
    simulation.drain()
}

/// The bitmap's daemon has gone by twice, and the write lands or not.
fn kill_later(simulation: &mut Simulation) -> Result<(), Failure> {
    simulation.wait(Duration::from_secs(12))?;
    simulation.kill()
}

/// The negative controls of the rules on writes behind.
#[test]
fn what_is_left_behind_is_noticed_if_reads_do_not_wait_for_it_or_its_intent_goes() {
    let rules: [(Rule, Happens); 2] = [
        (Rule::ReadsWaitForWritesBehind, fail_the_first),
        (Rule::IntentStaysForWritesBehind, kill_later),
    ];
    for (rule, happens) in rules {
        for seed in 0..10 {
            let outcome = leave_a_write_behind(seed, None, happens);
            let outcome = outcome.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
            assert!(outcome.judged && outcome.failed == 0, "seed {seed}: {outcome:?}");
        }
        let results = (0..10).map(|seed| leave_a_write_behind(seed, Some(rule), happens));
        let noticed = results.filter(Result::is_err).count();
        assert!(noticed > 3, "{rule:?}: only {noticed} of 10 were noticed");
    }
}

/// Writes small blocks to a calm array, and kills its process in the middle.
fn kill_while_writing(seed: u64, level: i32, broken: Option<Rule>) -> Result<Outcome, Failure> {
    let mut settings = calm_with_bitmap(seed, level);
    settings.assume_clean = true;
    settings.habits.depth = 8;
    settings.broken = broken;
    let mut simulation = Simulation::new(settings, Trace::default())?;
    for _ in 0..4 {
        let answered = simulation.pending.answered + 10;
        while simulation.pending.answered < answered {
            simulation.pump();
            simulation.step()?;
        }
        simulation.kill()?;
        simulation.wait(Duration::from_secs(20))?;
    }
    simulation.finish()
}

/// The negative control of what is judged after a crash.
#[test]
fn a_write_before_its_intent_is_noticed_in_what_a_crash_leaves() {
    for level in [1, 5, 6, 10] {
        let run = |seed, broken| kill_while_writing(seed, level, broken);
        for seed in 0..10 {
            run(seed, None).unwrap_or_else(|failure| panic!("level {level}, {seed}: {failure}"));
        }
        let rule = Rule::IntentIsDurableFirst;
        let notices = |seed: &u64| matches!(run(*seed, Some(rule)), Err(Failure::Unmarked { .. }));
        let noticed = (0..40).filter(notices).take(2).count();
        assert_eq!(noticed, 2, "level {level}: of 40 seeds");
    }
}

/// Puts a block on the list of bad blocks of a member that has it.
fn list_as_bad(simulation: &Simulation, disk: DiskIndex, block: Range<u64>) {
    let sectors = simulation.world.disk(disk, |disk| disk.spec.sectors);
    let place = MetadataVersion::V1_2.place(sectors).expect("it is large enough");
    let mut bytes = vec![0; 4096];
    simulation.world.disk(disk, |disk| disk.store.read(place.sector, &mut bytes));
    let mut superblock = Superblock::parse(&bytes, place, sectors).expect("it is a member");
    superblock.features = superblock.features.with(Features::BAD_BLOCKS, true);
    let log = superblock.bad_block_log.expect("every member has room for one");
    let mut bad = BadBlocks::new();
    bad.add(block);
    let bytes = bad.encode(log.size_sectors, log.shift).expect("one entry fits");
    let log_sector = place.sector.strict_add_signed(log.offset_sectors.into());
    simulation.world.change_disk(disk, |disk| {
        disk.store.overwrite(log_sector, &bytes);
        let mut superblock = superblock.encode();
        superblock.resize(superblock.len().next_multiple_of(SECTOR_BYTES), 0);
        disk.store.overwrite(place.sector, &superblock);
    });
}

/// The negative control of what is judged beyond the level: a block of which all members say that they lack it,
/// though they have what was written there last.
#[test]
fn a_block_that_no_list_should_name_is_noticed_where_requests_may_fail() {
    for listed in [false, true] {
        let mut settings = calm(3, 1);
        (settings.trouble, settings.metadata_minor, settings.paths) = (Trouble::Beyond, 2, 0);
        // Nothing may be known of a write that its user changes meanwhile.
        settings.habits.unstable_one_in = 0;
        let mut simulation = Simulation::new(settings, Trace::default()).unwrap();
        while simulation.requests_left > 0 {
            simulation.pump();
            simulation.step().unwrap();
        }
        simulation.drain().unwrap();
        simulation.shut_down().unwrap();
        let block = simulation.settings.block_sectors();
        let copies =
            |sector| Remains::find(&simulation.world, &simulation.disks).unwrap().copies(sector);
        let is_known = |sector: u64| {
            let (disk, at) = copies(sector)[0];
            let mut bytes = [0; SECTOR_BYTES];
            simulation.world.disk(disk, |disk| disk.store.read(at, &mut bytes));
            simulation.model.is_exactly(sector, &bytes)
        };
        let mut blocks = (0..simulation.model.len()).step_by(block as usize);
        let written = blocks.find(|start| (*start..start + block).all(is_known));
        let written = written.expect("users wrote something");
        for (disk, at) in copies(written).into_iter().filter(|_| listed) {
            list_as_bad(&simulation, disk, at..at + block);
        }
        simulation.come_up(restart::Before::Stop).unwrap();
        let ended = simulation.finish();
        let noticed = matches!(ended, Err(Failure::Unread { sector, .. }) if sector == written);
        assert_eq!(noticed, listed, "{ended:?}");
    }
}

/// Users and troubles as they are drawn, not made for a rule: `sim --canaries` has all the rules.
#[test]
fn a_rule_that_is_broken_is_noticed_by_drawn_seeds() {
    let rules = [Rule::ArrayIsDirtyFirst, Rule::RoundsAreClaimed, Rule::WritesReachReplacements];
    for rule in rules {
        let fails = |seed: &u64| {
            let drawn = Settings::draw(*seed, None, Trouble::by_turns(*seed));
            let settings = Settings { broken: Some(rule), ..drawn };
            // A broken engine may panic too.
            !matches!(catch_unwind(AssertUnwindSafe(|| run(settings))), Ok(Ok(_)))
        };
        assert!((0..200).any(|seed| fails(&seed)), "{rule:?} is broken, and 200 seeds see nothing");
    }
}
