//! Superblocks, bitmaps and bad-block lists in which any numbers stand. What assembly accepts is served:
//! nothing panics, nothing lies off a device, and no update writes what the next assembly cannot parse.

use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::assembly::Options;
use mdspace_engine::request::Request;
use mdspace_format::superblock::{BadBlockLogPlace, EVENTS_MAX, MemberFlags};
use mdspace_format::{Features, Level, MetadataVersion, Role, Superblock, Timestamp};

use crate::shapes;
use crate::world::{Random, SECTOR, Setup, World};

const EXTREMES: [u64; 30] = [
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    15,
    16,
    24,
    63,
    64,
    100,
    255,
    256,
    257,
    320,
    512,
    4096,
    0xfeff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff8,
    0xffff_ffff,
    (1 << 54) - 1,
    1 << 54,
    EVENTS_MAX / 2,
    EVENTS_MAX,
    u64::MAX,
];

fn number(random: &mut Random, known: u64) -> u64 {
    match random.below(4) {
        0 => known.wrapping_add(random.below(5)).wrapping_sub(2),
        1 => known.wrapping_add(8 * random.below(5)).wrapping_sub(16),
        _ => EXTREMES[random.below(EXTREMES.len() as u64) as usize],
    }
}

fn change(random: &mut Random, superblock: &mut Superblock, field: u64) {
    let sb = superblock;
    match field {
        0 => sb.events = number(random, sb.events),
        1 => sb.dev_number = number(random, sb.dev_number.into()) as u32,
        2 => sb.raid_disks = number(random, sb.raid_disks.into()) as u32,
        3 => {
            let levels = [-1, 0, 1, 4, 5, 6, 10];
            let level = Level::from_number(levels[random.below(7) as usize]);
            sb.level = level.expect("a level");
        }
        4 => sb.layout = number(random, sb.layout.into()) as u32,
        5 => sb.chunk_sectors = number(random, sb.chunk_sectors.into()) as u32,
        6 => sb.size_sectors = number(random, sb.size_sectors),
        7 => sb.data_offset_sectors = number(random, sb.data_offset_sectors),
        8 => sb.data_size_sectors = number(random, sb.data_size_sectors),
        9 => sb.recovery_offset_sectors = Some(number(random, sb.size_sectors)),
        10 => sb.resync_offset_sectors = number(random, sb.size_sectors),
        11 => {
            sb.bitmap_offset_sectors = number(random, sb.bitmap_offset_sectors as u64) as i32;
        }
        12 => {
            sb.bad_block_log = Some(BadBlockLogPlace {
                offset_sectors: number(random, 16) as i32,
                size_sectors: number(random, 8) as u16,
                shift: number(random, 0) as u8,
            });
        }
        13 => sb.features = Features::from_bits(sb.features.bits() ^ 1 << random.below(13)),
        14 => sb.flags = MemberFlags(number(random, 0) as u8),
        15 => sb.logical_block_size_bytes = number(random, 512) as u32,
        16 => sb.utime = Timestamp::from_seconds(number(random, 1)),
        17 => {
            sb.roles.resize(number(random, sb.roles.len() as u64).min(1920) as usize, Role::Spare)
        }
        _ => {
            let role = Role::from_number(number(random, 1) as u16).unwrap_or(Role::Faulty);
            let index = random.below(sb.roles.len().max(1) as u64) as usize;
            sb.roles.iter_mut().skip(index).take(1).for_each(|known| *known = role);
        }
    }
}

fn change_bitmap(world: &mut World, disk: usize) {
    let Some((mut header, map)) = world.disks.bitmap(disk) else { return };
    let random = &mut world.random;
    match random.below(6) {
        0 => header.events = number(random, header.events),
        1 => header.events_cleared = number(random, header.events),
        2 => header.sync_size_sectors = number(random, header.sync_size_sectors),
        3 => header.chunk_bytes = number(random, header.chunk_bytes.into()) as u32,
        4 => header.daemon_sleep_seconds = number(random, 5) as u32,
        _ => header.write_behind = number(random, 1) as u32,
    }
    let start = world.disks.superblock(disk).expect("a member").bitmap_sector().expect("a place");
    let page = header.encode_page(&map, 0);
    let at = start as usize * SECTOR;
    world.disks.disk(disk).bytes[at..at + SECTOR].copy_from_slice(&page[..SECTOR]);
}

#[test]
fn whatever_numbers_superblocks_hold_an_array_is_refused_or_served() {
    let shapes = shapes::all();
    let mut started = 0;
    for seed in 0..3000 {
        let shape = shapes[seed as usize % shapes.len()];
        let mut world = World::created(Setup::new(shape, seed));
        world.rounds(3);
        world.stop();
        world.crash();
        let disks = usize::from(shape.disks);
        for _ in 0..1 + world.random.below(3) {
            let (field, one) = (world.random.below(20), world.random.below(disks as u64 + 2));
            let choice = world.random.next();
            for disk in (0..disks).filter(|disk| one >= disks as u64 || one == *disk as u64) {
                // The same on all members, or on one.
                let mut random = Random::new(choice);
                if world.disks.superblock(disk).is_some() {
                    world.disks.change_superblock(disk, |sb| change(&mut random, sb, field));
                }
            }
        }
        if world.random.one_in(3) && world.disks.superblock(0).is_some() {
            change_bitmap(&mut world, 0);
        }
        let parsed: Vec<bool> =
            (0..disks).map(|disk| world.disks.superblock(disk).is_some()).collect();
        let (run, force) = (true, world.random.one_in(2));
        let all: Vec<usize> = (0..disks).collect();
        if world.assemble(&all, &Options { run, force, ..Options::default() }).is_err() {
            continue;
        }
        started += 1;
        let from = Rc::new(vec![9; 8 * SECTOR]);
        world.start(0, Request::Write { sector: 0, from, fua: false });
        world.start_read(0, world.sectors().min(64));
        world.rounds(60);
        world.disks.reopen(disks);
        let (member, info) = (world.disks.id(disks), world.disks.info(disks));
        world.order(Action::Add { member, info, only_back: false });
        world.rounds(60);
        world.order(Action::Fail { member: world.disks.id(0), force: false });
        world.rounds(60);
        world.order(Action::Stop);
        world.rounds(200);
        world.crash();
        let added = world.disks.disk(disks).writes.iter().any(|write| write.contains(&8));
        if added && shape.version == MetadataVersion::V1_2 {
            assert!(world.disks.superblock(disks).is_some(), "the new member ({world})");
        }
        for disk in (0..disks).filter(|disk| parsed[*disk]) {
            assert!(world.disks.superblock(disk).is_some(), "disk {disk} ({world})");
        }
    }
    assert!(started > 500, "{started} started");
}
