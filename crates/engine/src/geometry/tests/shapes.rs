//! The small arrays that the properties are tried on.

use super::{Geometry, Level, Shape};

pub(super) fn parity_shape(
    level: Level,
    layout: u32,
    raid_disks: u16,
    chunk_sectors: u32,
    member_sectors: u64,
) -> Shape {
    Shape { level, layout, raid_disks, chunk_sectors, member_sectors, member_sizes: Vec::new() }
}

pub(super) fn raid10_shape(
    layout: u32,
    raid_disks: u16,
    chunk_sectors: u32,
    member_sectors: u64,
) -> Shape {
    parity_shape(Level::Raid10, layout, raid_disks, chunk_sectors, member_sectors)
}

/// Every level, every layout, up to 7 members, members of a few chunks and some sectors more.
pub(super) fn every_small_shape() -> impl Iterator<Item = Shape> {
    unequal().chain(mirrors()).chain(parities()).chain(raid10s())
}

fn unequal() -> impl Iterator<Item = Shape> {
    let sizes: [&[u64]; 9] = [
        &[17],
        &[16, 16],
        &[9, 30, 9],
        &[30, 9, 21],
        &[12, 24, 36, 48],
        &[48, 36, 24, 12],
        &[10, 50, 50, 50, 26],
        &[33, 33, 99, 66, 99],
        &[11, 22, 44, 44, 11, 77, 22],
    ];
    let shape = |level, layout, chunk_sectors, sizes: &[u64]| Shape {
        level,
        layout,
        raid_disks: sizes.len() as u16,
        chunk_sectors,
        member_sectors: 0,
        member_sizes: sizes.to_vec(),
    };
    sizes.into_iter().flat_map(move |sizes| {
        let linear = [0, 1, 4].map(|rounding| shape(Level::Linear, 0, rounding, sizes));
        let striped = [(1, 1), (2, 1), (1, 3), (2, 3), (1, 8), (2, 8)]
            .map(|(layout, chunk)| shape(Level::Raid0, layout, chunk, sizes));
        linear.into_iter().chain(striped)
    })
}

fn mirrors() -> impl Iterator<Item = Shape> {
    (1..=4).map(|disks| parity_shape(Level::Raid1, 0, disks, 0, 19))
}

fn parities() -> impl Iterator<Item = Shape> {
    let raid5 = (0..=5).map(|layout| (Level::Raid5, layout, 2));
    let raid6_layouts = (0..=5).chain(8..=10).chain(16..=20);
    let raid6 = raid6_layouts.map(|layout| (Level::Raid6, layout, 4));
    let levels = std::iter::once((Level::Raid4, 0, 2)).chain(raid5).chain(raid6);
    levels.flat_map(|(level, layout, fewest)| {
        // two turns and a bit, so that patterns wrap
        (fewest..=7).map(move |disks| {
            parity_shape(level, layout, disks, 8, u64::from(disks) * 2 * 8 + 8 + 5)
        })
    })
}

/// All near and far copies, offset and far sets on up to 7 members, as far as md's map is sound.
fn raid10s() -> impl Iterator<Item = Shape> {
    let copies = (1..=4u32).flat_map(|near| (1..=4u32).map(move |far| near | far << 8));
    let layouts = copies.flat_map(|copies| (0..6u32).map(move |flags| copies | flags << 16));
    let sized = layouts.flat_map(|layout| (2..=7).map(move |disks| (layout, disks)));
    sized
        .flat_map(|(layout, disks)| {
            [4, 7, 12].map(|chunks| raid10_shape(layout, disks, 8, chunks * 8 + 3))
        })
        .filter(|shape| Geometry::new(shape).is_ok())
}
