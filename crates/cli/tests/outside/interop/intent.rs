//! One side crashes in the middle of writes; the other resyncs what the bitmap marks, and no more.
//!
//! Two differences are planted after the crash: one inside the marked row, which the resync must
//! make right, and one outside, which must still be there afterwards, and counted by a check. A full
//! resync would repair both, none would leave both.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use crate::harness::{Guest, Images, MIB, Mdspace, Pattern, SECTOR, flip, path_text, until};

const CHUNK: u64 = 64 << 10;
const DATA_OFFSET: u64 = MIB;
/// What superblock and bitmap take of a member, at most.
const METADATA_BYTES: u64 = 2 * MIB;
/// What is filled before the crash: all of the small arrays.
const FILL_BYTES: u64 = 16 * MIB;

/// A level and where its redundancy lies.
struct Shape {
    name: &'static str,
    level: &'static str,
    members: u64,
    data_members: u64,
    size_mib: u64,
    bitmap_chunk_kib: u64,
    /// The row that is written when the crash comes, and one that is not.
    marked_row: u64,
    other_row: u64,
    /// The member whose redundancy of a row may be damaged without damaging data.
    spare_copy: fn(u64) -> u64,
}

/// All but the spare copy.
const SMALL: Shape = Shape {
    name: "",
    level: "",
    members: 0,
    data_members: 0,
    size_mib: 4,
    bitmap_chunk_kib: 64,
    marked_row: 16,
    other_row: 40,
    spare_copy: |_| 1,
};

/// The RAID1 is sparse and so large that its bitmap has ten pages of 4 KiB; what is marked is in the
/// ninth. Nobody reads all of it.
const SHAPES: [Shape; 4] = [
    Shape {
        name: "i1",
        level: "1",
        members: 2,
        data_members: 1,
        size_mib: 9 << 10,
        bitmap_chunk_kib: 32,
        marked_row: 139_264,
        other_row: 320,
        ..SMALL
    },
    Shape {
        name: "i5",
        level: "5",
        members: 4,
        data_members: 3,
        spare_copy: |row| 3 - row % 4,
        ..SMALL
    },
    Shape {
        name: "i6",
        level: "6",
        members: 5,
        data_members: 3,
        spare_copy: |row| 4 - row % 5,
        ..SMALL
    },
    Shape { name: "i10", level: "10", members: 4, data_members: 2, ..SMALL },
];

impl Shape {
    fn options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--level={}", self.level),
            format!("--raid-devices={}", self.members),
            format!("--size={}M", self.size_mib),
            "--data-offset=1M".into(),
            "--bitmap=internal".into(),
            format!("--bitmap-chunk={}", self.bitmap_chunk_kib),
        ];
        if self.level != "1" {
            options.push("--chunk=64".into());
        }
        if self.is_large() {
            options.push("--assume-clean".into());
        }
        options
    }

    /// Whether reading all of it would take too long.
    fn is_large(&self) -> bool {
        self.size_mib > 1 << 10
    }

    fn images(&self, images: &Images) -> Vec<PathBuf> {
        let bytes = self.size_mib * MIB + METADATA_BYTES;
        images.sparse(&format!("{}-m", self.name), self.members as usize, bytes)
    }

    /// Bytes that are filled before the crash.
    fn fill_bytes(&self) -> u64 {
        FILL_BYTES.min(self.data_members * self.size_mib * MIB)
    }

    /// Bytes of one row of data, and where the marked one begins.
    fn row(&self) -> (u64, u64) {
        let bytes = self.data_members * CHUNK;
        (bytes, self.marked_row * bytes)
    }

    /// Flips one byte of redundancy in the marked row and one in the other.
    fn plant(&self, members: &[PathBuf]) -> Planted {
        let [marked, other] = [self.marked_row, self.other_row].map(|row| {
            let member = &members[(self.spare_copy)(row) as usize];
            let offset = DATA_OFFSET + row * CHUNK + 777;
            flip(member, offset);
            Difference { image: member.clone(), offset, wrong: byte_at(member, offset) }
        });
        Planted { name: self.name, marked, other }
    }
}

/// What is wrong on the members of one array.
struct Planted {
    name: &'static str,
    marked: Difference,
    other: Difference,
}

struct Difference {
    image: PathBuf,
    offset: u64,
    wrong: u8,
}

impl Difference {
    fn is_there(&self) -> bool {
        byte_at(&self.image, self.offset) == self.wrong
    }
}

impl Planted {
    /// Asserts that exactly what the bitmap marked was made right.
    fn expect_marked_repaired(&self, counted_by_check: Option<u64>) {
        assert!(!self.marked.is_there(), "{}: what was marked must be resynced", self.name);
        assert!(self.other.is_there(), "{}: what was not marked must be left alone", self.name);
        let counts = counted_by_check.is_none_or(|counted| counted > 0);
        assert!(counts, "{}: a check must count what was left", self.name);
    }
}

/// Marks everything in the bitmap of a member with metadata 1.2: the control of a full resync.
fn mark_all(shape: &Shape, member: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(member).expect("the image exists");
    let mut offset = [0; 4];
    // bitmap_offset: byte 96 of the superblock, i32, 512-byte sectors from the superblock.
    file.read_exact_at(&mut offset, 4096 + 96).expect("a superblock");
    let bitmap = 4096 + u64::from(u32::from_le_bytes(offset)) * SECTOR as u64;
    let bits = (shape.size_mib << 10) / shape.bitmap_chunk_kib;
    file.write_all_at(&vec![0xff; bits as usize / 8], bitmap + 256).expect("room for the bits");
}

fn byte_at(image: &Path, offset: u64) -> u8 {
    let mut byte = [0];
    let file = File::open(image).expect("the image exists");
    file.read_exact_at(&mut byte, offset).expect("the offset lies in the image");
    byte[0]
}

#[test]
fn mdspace_resyncs_what_md_left_marked_and_no_more() {
    let images = Images::new();
    let sets: Vec<Vec<PathBuf>> = SHAPES.iter().map(|shape| shape.images(&images)).collect();
    let fill = images.folder().join("fill");
    Pattern { seed: 31 }.write_file(&fill, FILL_BYTES / SECTOR as u64, 1);
    // A crash loses what loop devices hold in the guest's cache, so members are its disks.
    let mut script = String::new();
    let mut disk = 0;
    for shape in &SHAPES {
        let disks: Vec<String> =
            (disk..disk + shape.members).map(|number| format!("$D{number}")).collect();
        disk += shape.members;
        script += &format!(
            "quietly mdadm --create /dev/{name} --run --delay=1 {options} {disks}
             put {name} $SHARE/fill 0 {fill}
             {check} {name}\n",
            name = md_name(shape),
            check = if shape.is_large() { "settle" } else { "clean" },
            options = shape.options().join(" "),
            disks = disks.join(" "),
            fill = shape.fill_bytes(),
        );
    }
    for shape in &SHAPES {
        script += &format!("unmarked {0}; stay_dirty {0}\n", md_name(shape));
    }
    for shape in &SHAPES {
        let (bytes, offset) = shape.row();
        script += &format!("put {} $SHARE/fill {offset} {bytes}\n", md_name(shape));
    }
    let disks: Vec<PathBuf> = sets.concat();
    Guest::new().share(images.folder()).disks(&disks).succeed(&(script + "/run/crash 0"));

    for (shape, members) in SHAPES.iter().zip(&sets) {
        let planted = shape.plant(members);
        let mdspace = Mdspace::new();
        let mut arguments = vec!["assemble", shape.name];
        arguments.extend(members.iter().map(|member| path_text(member)));
        mdspace.succeed(&arguments);
        mdspace.settle(shape.name);
        let counted = (!shape.is_large()).then(|| mdspace.check(shape.name));
        mdspace.succeed(&["stop", shape.name]);
        planted.expect_marked_repaired(counted);
    }
}

#[test]
fn a_full_resync_would_be_noticed() {
    let images = Images::new();
    let shape = &SHAPES[1];
    let members = shape.images(&images);
    crash_ours(shape, &members);
    let planted = shape.plant(&members);
    members.iter().for_each(|member| mark_all(shape, member));
    let mdspace = Mdspace::new();
    let mut arguments = vec!["assemble", shape.name];
    arguments.extend(members.iter().map(|member| path_text(member)));
    mdspace.succeed(&arguments);
    assert_eq!(mdspace.check(shape.name), 0);
    mdspace.succeed(&["stop", shape.name]);
    assert!(!planted.marked.is_there() && !planted.other.is_there(), "all must be resynced");
}

#[test]
fn md_resyncs_what_mdspace_left_marked_and_no_more() {
    let images = Images::new();
    let sets: Vec<Vec<PathBuf>> = SHAPES.iter().map(|shape| shape.images(&images)).collect();
    // Side by side: each waits ten seconds for its bitmap to become clean.
    thread::scope(|scope| {
        for (shape, members) in SHAPES.iter().zip(&sets) {
            scope.spawn(|| crash_ours(shape, members));
        }
    });
    let (mut script, mut planted) = (String::new(), Vec::new());
    for (shape, members) in SHAPES.iter().zip(&sets) {
        planted.push(shape.plant(members));
        let paths: Vec<String> =
            members.iter().map(|member| format!("$SHARE/{}", file_name(member))).collect();
        // Marked data, superblocks and what mdadm reads ahead, against all of the data.
        let all = shape.members * shape.size_mib * MIB / SECTOR as u64;
        script += &format!(
            "attach {paths}
             count_reads \"${{LOOPS[@]}}\"; before=$READS
             quietly mdadm --assemble /dev/md0 \"${{LOOPS[@]}}\"
             settle md0; count_reads \"${{LOOPS[@]}}\"; read=$((READS - before))
             [ $read -lt {limit} ] || {{ echo \"{name}: resync read $read of {all}\"; exit 1; }}
             {check}
             quietly mdadm --stop /dev/md0; detach\n",
            paths = paths.join(" "),
            name = shape.name,
            limit = all / 2,
            check = if shape.is_large() {
                String::new()
            } else {
                format!("check md0; echo {} $MISMATCHES", shape.name)
            },
        );
    }
    let printed = Guest::new().share(images.folder()).succeed(&script);
    let counted = |name: &str| -> Option<u64> {
        let line = printed.lines().find(|line| line.split(' ').next() == Some(name))?;
        line.split(' ').nth(1)?.parse().ok()
    };
    for (shape, planted) in SHAPES.iter().zip(planted) {
        let counted = counted(planted.name);
        assert_eq!(counted.is_none(), shape.is_large(), "md checked every array that is not large");
        planted.expect_marked_repaired(counted);
    }
}

/// Makes an array with mdspace, waits until its bitmap is clean, writes the marked row and kills.
fn crash_ours(shape: &Shape, members: &[PathBuf]) {
    let mdspace = Mdspace::new();
    let serve = mdspace.serve(shape.name);
    let options = shape.options();
    let mut arguments = vec!["create", shape.name, "--run", &serve];
    arguments.extend(options.iter().map(String::as_str));
    arguments.extend(members.iter().map(|member| path_text(member)));
    mdspace.succeed(&arguments);
    if !shape.is_large() {
        assert_eq!(mdspace.check(shape.name), 0);
    }
    let mut nbd = mdspace.connect(shape.name);
    let fill = Pattern { seed: 32 }.bytes(0, shape.fill_bytes() / SECTOR as u64, 1);
    for (offset, piece) in (0..).step_by(MIB as usize).zip(fill.chunks(MIB as usize)) {
        nbd.write(offset, piece);
    }
    nbd.flush();
    until("the bitmap is clean", || mdspace.detail(shape.name)["bitmap"]["dirty_bits"] == 0);
    let (bytes, offset) = shape.row();
    nbd.write(offset, &fill[..bytes as usize]);
    mdspace.kill();
}

fn md_name(shape: &Shape) -> String {
    format!("md{}", shape.level)
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("our files have names")
}
