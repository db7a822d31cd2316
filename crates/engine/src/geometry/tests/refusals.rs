//! Shapes that cannot be, each refused for its own reason.

use super::shapes::{parity_shape, raid10_shape};
use super::{Geometry, GeometryError, Level, MAX_SECTORS, Shape};

fn refusal(shape: &Shape) -> GeometryError {
    Geometry::new(shape).expect_err("the shape is impossible")
}

fn striped(layout: u32, chunk_sectors: u32, member_sizes: &[u64]) -> Shape {
    Shape {
        level: Level::Raid0,
        layout,
        raid_disks: 3,
        chunk_sectors,
        member_sectors: 0,
        member_sizes: member_sizes.to_vec(),
    }
}

#[test]
fn too_few_or_too_many_members_are_refused() {
    let cases = [(Level::Raid1, 1), (Level::Raid4, 2), (Level::Raid5, 2), (Level::Raid6, 4)];
    for (level, minimum) in cases {
        let shape = parity_shape(level, 2, minimum - 1, 8, 800);
        let expected = GeometryError::TooFewDisks { level, raid_disks: minimum - 1, minimum };
        assert_eq!(refusal(&shape), expected);
        assert!(Geometry::new(&Shape { raid_disks: minimum, ..shape }).is_ok());
    }
    for (level, layout, maximum) in [
        (Level::Raid1, 0, 1920),
        (Level::Raid5, 2, 1920),
        (Level::Raid6, 2, 257),
        (Level::Raid6, 10, 255),
        (Level::Raid10, 0x102, 1920),
    ] {
        let shape = parity_shape(level, layout, maximum + 1, 8, 800);
        let expected = GeometryError::TooManyDisks { level, raid_disks: maximum + 1, maximum };
        assert_eq!(refusal(&shape), expected);
        assert!(Geometry::new(&Shape { raid_disks: maximum, ..shape }).is_ok());
    }
}

#[test]
fn chunks_that_md_refuses_are_refused() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        for chunk_sectors in [0, 4, 24] {
            let shape = parity_shape(level, 2, 4, chunk_sectors, 800);
            assert!(matches!(refusal(&shape), GeometryError::Chunk { .. }), "{chunk_sectors}");
        }
    }
    let shape = raid10_shape(0x102, 4, 24, 800);
    assert!(matches!(refusal(&shape), GeometryError::Chunk { .. }));
    assert!(matches!(refusal(&striped(1, 0, &[8; 3])), GeometryError::Chunk { .. }));
}

#[test]
fn layouts_without_a_meaning_are_refused() {
    for (level, layout) in
        [(Level::Raid5, 6), (Level::Raid5, 16), (Level::Raid6, 6), (Level::Raid6, 7)]
            .into_iter()
            .chain([11, 15, 21, u32::MAX].map(|layout| (Level::Raid6, layout)))
            .chain([0x8_0102, 0x6_0201].map(|layout| (Level::Raid10, layout)))
    {
        let shape = parity_shape(level, layout, 6, 8, 800);
        assert_eq!(refusal(&shape), GeometryError::UnknownLayout { level, layout });
    }
}

#[test]
fn raid10_without_redundancy_or_with_too_many_copies_is_refused() {
    for (layout, copies) in [(0x101, 1), (0x002, 0), (0x200, 0), (0x203, 6)] {
        let expected = GeometryError::Copies { copies, raid_disks: 5, maximum: 5 };
        assert_eq!(refusal(&raid10_shape(layout, 5, 8, 800)), expected);
    }
}

#[test]
fn raid10_layouts_that_write_two_blocks_to_one_place_are_refused() {
    // two near copies that wrap in an offset layout; a last far set that takes from its neighbour
    for (layout, raid_disks) in [(0x10202, 5), (0x202 | 2 << 17, 9)] {
        let expected = GeometryError::CopiesOverlap { layout, raid_disks };
        assert_eq!(refusal(&raid10_shape(layout, raid_disks, 8, 800)), expected);
        let with_fitting_members = raid10_shape(layout, raid_disks - 1, 8, 800);
        assert!(Geometry::new(&with_fitting_members).is_ok());
    }
}

#[test]
fn raid0_of_several_sizes_needs_to_know_its_layout() {
    for layout in [0, u32::MAX, 3] {
        let shape = striped(layout, 8, &[80, 160, 160]);
        assert_eq!(refusal(&shape), GeometryError::AmbiguousRaid0Layout { layout });
        // one size, or a second zone of one member: both layouts are the same map
        assert!(Geometry::new(&striped(layout, 8, &[80, 81, 82])).is_ok());
        assert!(Geometry::new(&striped(layout, 8, &[80, 80, 160])).is_ok());
    }
}

#[test]
fn members_too_small_or_not_counted_are_refused() {
    for shape in [
        striped(1, 8, &[80, 7, 80]),
        parity_shape(Level::Raid5, 2, 3, 8, 7),
        parity_shape(Level::Raid1, 0, 2, 0, 0),
        raid10_shape(0x201, 2, 8, 15),
    ] {
        assert!(matches!(refusal(&shape), GeometryError::MemberTooSmall { .. }), "{shape:?}");
    }
    let expected = GeometryError::MemberSizes { level: Level::Raid0, raid_disks: 3, found: 2 };
    assert_eq!(refusal(&striped(1, 8, &[80, 80])), expected);
}

#[test]
fn arrays_beyond_the_largest_file_are_refused() {
    for shape in [
        striped(1, 8, &[MAX_SECTORS, 8, 8]),
        striped(1, 8, &[u64::MAX; 3]),
        Shape { level: Level::Linear, ..striped(0, 0, &[u64::MAX; 3]) },
        parity_shape(Level::Raid1, 0, 2, 0, MAX_SECTORS + 1),
        parity_shape(Level::Raid5, 2, 3, 8, MAX_SECTORS),
        parity_shape(Level::Raid6, 2, 200, 1 << 31, u64::MAX),
        raid10_shape(0x102, 1920, 8, u64::MAX),
    ] {
        assert_eq!(refusal(&shape), GeometryError::TooLarge, "{shape:?}");
    }
}

#[test]
fn a_refusal_says_what_and_why() {
    let text = refusal(&parity_shape(Level::Raid6, 2, 3, 8, 800)).to_string();
    assert_eq!(text, "raid6 needs at least 4 members, but the array has 3");
    let text = refusal(&striped(1, 8, &[80, 7, 80])).to_string();
    assert_eq!(text, "the member of slot 1 is too small for raid0: at least 8 sectors are needed");
}
