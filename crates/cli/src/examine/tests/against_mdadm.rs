use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::tz::TimeZone;
use mdspace_format::bitmap::{BitmapState, BitmapSuperblock, BitmapVersion};
use mdspace_format::new_array::{NewArray, NewMember};
use mdspace_format::placement::{ArrayPlacement, BitmapRequest, Request};
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{
    DirtyMap, Features, Level, MetadataVersion, Role, Superblock, Timestamp, Uuid,
};

use super::super::{ExaminedMember, brief, export, read_member, text};
use super::{RESYNC_LINE, without_resync_line};

/// Layouts that mdadm has a word for, and one for levels without.
fn layouts(level: Level) -> Vec<u32> {
    match level {
        Level::Raid0 => vec![1, 2],
        Level::Raid5 => (0..=5).collect(),
        Level::Raid6 => (0..=5).chain(8..=10).chain(16..=20).collect(),
        Level::Raid10 => vec![0x102, 0x103, 0x201, 0x10201, 0x202],
        _ => vec![0],
    }
}

type Change = fn(&mut Superblock);

/// What happens to an array, by name: a change to the superblock of its second member.
const STATES: [(&str, Change); 12] = [
    ("new", |_| ()),
    ("clean", |sb| sb.resync_offset_sectors = u64::MAX),
    ("resyncing", |sb| sb.resync_offset_sectors = 4096),
    ("missing", |sb| sb.roles[2] = Role::Faulty),
    ("spare", |sb| sb.roles[1] = Role::Spare),
    ("faulty", |sb| sb.roles[1] = Role::Faulty),
    ("recovering", |sb| {
        sb.recovery_offset_sectors = Some(1024);
        sb.features |= Features::RECOVERY_OFFSET;
    }),
    ("flags", |sb| sb.flags = MemberFlags(MemberFlags::WRITE_MOSTLY | MemberFlags::FAIL_FAST)),
    ("without a log", |sb| sb.bad_block_log = None),
    ("twice in a slot", |sb| sb.roles[5] = Role::Slot(0)),
    ("replacing", |sb| {
        sb.roles[5] = Role::Slot(1);
        sb.features |= Features::REPLACEMENT;
    }),
    ("thrice in a slot", |sb| {
        sb.roles[5] = Role::Slot(0);
        sb.roles[6] = Role::Slot(0);
    }),
];

#[test]
fn members_of_every_kind_are_described_in_the_words_of_the_mdadm_that_is_installed() {
    let Some(mdadm) = Mdadm::find() else { return };
    for level in Level::ALL {
        for layout in layouts(level) {
            for version in MetadataVersion::PROBE_ORDER {
                let made = member(level, layout, version, 80 << 11);
                mdadm.compare(&made, &format!("{level} {layout} {version}"));
            }
        }
    }
}

#[test]
fn members_in_every_state_are_described_in_the_words_of_the_mdadm_that_is_installed() {
    let Some(mdadm) = Mdadm::find() else { return };
    for (state, change) in STATES {
        for (level, layout) in [(Level::Raid1, 0), (Level::Raid6, 2), (Level::Raid10, 0x102)] {
            let mut made = member(level, layout, MetadataVersion::V1_2, 80 << 11);
            change(&mut made.superblock);
            mdadm.compare(&made, &format!("{level} {state}"));
        }
    }
}

#[test]
fn sizes_and_names_of_every_length_are_written_as_the_mdadm_that_is_installed_does() {
    let Some(mdadm) = Mdadm::find() else { return };
    let sizes = [6 << 11, 500 << 11, 2047 << 11, 2049 << 11, 2100 << 11, 3 << 21, 1 << 31, 7 << 31];
    for device_sectors in sizes {
        let made = member(Level::Raid5, 2, MetadataVersion::V1_2, device_sectors);
        mdadm.compare(&made, &format!("{device_sectors} sectors"));
    }
    for name in [
        "",
        "home",
        "other:home",
        "a:b:c",
        "my disk",
        "a/b",
        "it's",
        "say \"x\"",
        "0123456789012345678901234567890",
    ] {
        let mut made = member(Level::Raid5, 2, MetadataVersion::V1_2, 80 << 11);
        made.superblock.set_name = SetName::new(name).unwrap();
        mdadm.compare(&made, &format!("name {name:?}"));
    }
}

#[test]
fn a_reshape_is_described_in_the_words_of_the_mdadm_that_is_installed() {
    let Some(mdadm) = Mdadm::find() else { return };
    for (level, new_level, layout, new_layout, delta) in [
        (Level::Raid5, 6, 2, 18, 1),
        (Level::Raid6, 6, 0, 2, -1),
        (Level::Raid10, 10, 0x102, 0x201, 0),
    ] {
        let mut made = member(level, layout, MetadataVersion::V1_2, 80 << 11);
        let reshape = &mut made.superblock.reshape;
        reshape.position_sectors = 30_000;
        reshape.new_level = new_level;
        reshape.new_layout = new_layout;
        reshape.new_chunk_sectors = 256;
        reshape.delta_disks = delta;
        reshape.new_offset_sectors = -128;
        made.superblock.features |= Features::RESHAPE_ACTIVE | Features::NEW_OFFSET;
        mdadm.compare(&made, &format!("{level} to {new_level}"));
    }
}

/// mdadm takes a plain file for a bitmap alone, but from root only.
#[test]
fn bitmaps_are_described_in_the_words_of_the_mdadm_that_is_installed() {
    if !rustix::process::geteuid().is_root() {
        return skip("mdadm --examine-bitmap runs for root alone");
    }
    let Some(mdadm) = Mdadm::find() else { return };
    let path = mdadm.directory.path().join("bitmap");
    for (chunk_bytes, write_behind, state, sync_size_sectors) in [
        (512, 0, 0, 3000),
        (1024, 0, 4, 3000),
        (65_536, 1, 0, 20_001),
        (1 << 20, 256, 2, 1 << 21),
        (64 << 20, 0, 6, 1 << 33),
        (1 << 31, 0, 0, 1 << 40),
    ] {
        let superblock = BitmapSuperblock {
            version: BitmapVersion::LittleEndian,
            uuid: Uuid(std::array::from_fn(|index| index as u8 * 17)),
            events: 17,
            events_cleared: 12,
            sync_size_sectors,
            state: BitmapState(state),
            chunk_bytes,
            daemon_sleep_seconds: 5,
            write_behind,
            sectors_reserved: 0,
            padding: [0; 188],
        };
        let mut map = DirtyMap::new(superblock.chunks());
        assert!([0, 1, superblock.chunks() - 1].into_iter().all(|chunk| map.set(chunk)));
        let pages = (0..superblock.pages()).flat_map(|page| superblock.encode_page(&map, page));
        std::fs::write(&path, pages.collect::<Vec<_>>()).unwrap();
        let theirs = mdadm.run(&["--examine-bitmap"], &path);
        assert_eq!(text::bitmap(&path, &superblock, map.count()), theirs, "chunk {chunk_bytes}");
    }
}

#[test]
fn a_difference_from_mdadm_would_be_seen() {
    let Some(mdadm) = Mdadm::find() else { return };
    let made = member(Level::Raid5, 2, MetadataVersion::V1_2, 80 << 11);
    let path = mdadm.write(&made);
    let theirs = mdadm.run(&["--examine"], &path);
    let mut examined = read_member(&path).unwrap();
    assert_eq!(mdadm.describe(&examined), theirs);
    examined.superblock.events += 1;
    assert_ne!(mdadm.describe(&examined), theirs);
}

/// The second member of an array of four, with a bitmap where there can be one.
pub(super) struct Made {
    pub(super) superblock: Superblock,
    bitmap: Option<BitmapSuperblock>,
    pub(super) device_sectors: u64,
}

pub(super) fn member(
    level: Level,
    layout: u32,
    version: MetadataVersion,
    device_sectors: u64,
) -> Made {
    let request = Request {
        version,
        level,
        layout,
        chunk_sectors: if level.has_chunks() { 128 } else { 0 },
        raid_disks: 4,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: BitmapRequest::Internal { chunk_bytes: None },
    };
    let placement = ArrayPlacement::new(&request, &[device_sectors]).unwrap();
    let array = NewArray {
        set_uuid: Uuid(std::array::from_fn(|index| index as u8 * 17)),
        set_name: SetName::with_host(Some("host"), "home").unwrap(),
        ctime: Timestamp::from_seconds(1_700_000_000),
        level,
        layout,
        chunk_sectors: request.chunk_sectors,
        raid_disks: 4,
        in_sync: false,
        write_behind: 0,
    };
    let member = |number: u32| NewMember {
        device_sectors,
        device_uuid: Uuid([number as u8; 16]),
        dev_number: number,
        role: Role::Slot(number as u16),
        flags: MemberFlags::default(),
    };
    let members: Vec<_> = (0..4).map(member).collect();
    let mut superblock = array.superblocks(&placement, &members).unwrap().swap_remove(1);
    superblock.utime = Timestamp::from_seconds(1_709_251_200);
    superblock.events = 12_345;
    Made { superblock, bitmap: array.bitmap(&placement), device_sectors }
}

/// Says why a test does not run, past the harness, which hides what a passing test prints.
fn skip(why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {why}").unwrap();
}

/// The real mdadm, and a directory for images.
struct Mdadm {
    program: PathBuf,
    directory: tempfile::TempDir,
}

impl Mdadm {
    /// `$MDSPACE_MDADM`, or the one that the project fetched, or the system's. None skips the
    /// test, and says so.
    fn find() -> Option<Mdadm> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let named = std::env::var_os("MDSPACE_MDADM").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = std::env::split_paths(&path).map(|folder| folder.join("mdadm"));
        let usual = [target.join("tools/bin/mdadm")].into_iter().chain(installed);
        let usual = usual.chain(["/usr/sbin/mdadm".into(), "/sbin/mdadm".into()]);
        let mut candidates = match named {
            Some(program) => vec![program],
            None => usual.collect(),
        }
        .into_iter();
        let Some(program) = candidates.find(|program| program.is_file()) else {
            skip("no mdadm to compare with; install it or set MDSPACE_MDADM");
            return None;
        };
        // mdadm reads with O_DIRECT, which a tmpfs at /tmp may not have.
        std::fs::create_dir_all(&target).unwrap();
        Some(Mdadm { program, directory: tempfile::tempdir_in(target).unwrap() })
    }

    fn scene(&self) -> text::Scene {
        text::Scene { host: "not this host".to_owned(), zone: TimeZone::UTC }
    }

    /// What we say of a member, in the words of this mdadm: only the next one has a line for resync.
    fn describe(&self, member: &ExaminedMember) -> String {
        let ours = self.scene().describe(member);
        let program = std::fs::read(&self.program).unwrap();
        let word = RESYNC_LINE.as_bytes();
        match program.windows(word.len()).any(|bytes| bytes == word) {
            true => ours,
            false => without_resync_line(&ours),
        }
    }

    /// Panics unless all we say of a member is what mdadm says.
    fn compare(&self, made: &Made, name: &str) {
        let path = self.write(made);
        let examined = read_member(&path).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        let one = std::slice::from_ref(&examined);
        let theirs = self.run(&["--examine"], &path);
        assert_eq!(self.describe(&examined), theirs, "{name}");
        let theirs = self.run(&["--examine", "--export"], &path);
        assert_eq!(export::describe(&examined), theirs, "{name} --export");
        let theirs = self.run(&["--examine", "--brief"], &path);
        assert_eq!(brief::describe(one, false), theirs, "{name} --brief");
        let theirs = self.run(&["--examine", "--brief", "--verbose"], &path);
        assert_eq!(brief::describe(one, true), theirs, "{name} --brief --verbose");
    }

    fn run(&self, options: &[&str], path: &Path) -> String {
        let output = Command::new(&self.program)
            .args(options)
            .arg(path)
            .env("TZ", "UTC")
            .output()
            .expect("mdadm runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The image of a member, sparse, all but its metadata zero.
    fn write(&self, made: &Made) -> PathBuf {
        let path = self.directory.path().join("member");
        let file = File::create(&path).unwrap();
        file.set_len(made.device_sectors * 512).unwrap();
        let place = made.superblock.place.sector * 512;
        file.write_all_at(&made.superblock.encode(), place).unwrap();
        if let Some((bitmap, start)) = made.bitmap.as_ref().zip(made.superblock.bitmap_sector()) {
            let map = DirtyMap::new(bitmap.chunks());
            for page in 0..bitmap.pages() {
                file.write_all_at(&bitmap.encode_page(&map, page), (start + page * 8) * 512)
                    .unwrap();
            }
        }
        path
    }
}
