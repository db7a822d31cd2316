//! One side crashes in the middle of writes; the other resyncs what the bitmap marks, and no more.
//!
//! Two differences are planted after the crash: one inside the marked row, which the resync must
//! make right, and one outside, which must still be there afterwards, and counted by a check. A full
//! resync would repair both, none would leave both.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::harness::{Guest, Images, MIB, Mdspace, Pattern, SECTOR, flip, path_text, until};

const CHUNK: u64 = 64 << 10;
const DATA_OFFSET: u64 = MIB;
const MEMBER_BYTES: u64 = 6 * MIB;
/// The row that is written when the crash comes, and one that is not.
const MARKED_ROW: u64 = 16;
const OTHER_ROW: u64 = 40;

/// A level and where its redundancy lies.
struct Shape {
    name: &'static str,
    level: &'static str,
    members: u64,
    data_members: u64,
    /// The member whose redundancy of a row may be damaged without damaging data.
    spare_copy: fn(u64) -> u64,
}

const SHAPES: [Shape; 4] = [
    Shape { name: "i1", level: "1", members: 2, data_members: 1, spare_copy: |_| 1 },
    Shape { name: "i5", level: "5", members: 4, data_members: 3, spare_copy: |row| 3 - row % 4 },
    Shape { name: "i6", level: "6", members: 5, data_members: 3, spare_copy: |row| 4 - row % 5 },
    Shape { name: "i10", level: "10", members: 4, data_members: 2, spare_copy: |_| 1 },
];

impl Shape {
    fn options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--level={}", self.level),
            format!("--raid-devices={}", self.members),
            "--size=4M".into(),
            "--data-offset=1M".into(),
            "--bitmap=internal".into(),
            "--bitmap-chunk=64".into(),
        ];
        if self.level != "1" {
            options.push("--chunk=64".into());
        }
        options
    }

    fn images(&self, images: &Images) -> Vec<PathBuf> {
        images.sparse(&format!("{}-m", self.name), self.members as usize, MEMBER_BYTES)
    }

    /// Bytes of one row of data, and where the marked one begins.
    fn row(&self) -> (u64, u64) {
        let bytes = self.data_members * CHUNK;
        (bytes, MARKED_ROW * bytes)
    }

    /// Flips one byte of redundancy in the marked row and one in the other.
    fn plant(&self, members: &[PathBuf]) -> Planted {
        let [marked, other] = [MARKED_ROW, OTHER_ROW].map(|row| {
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
    fn expect_marked_repaired(&self, counted_by_check: u64) {
        assert!(!self.marked.is_there(), "{}: what was marked must be resynced", self.name);
        assert!(self.other.is_there(), "{}: what was not marked must be left alone", self.name);
        assert!(counted_by_check > 0, "{}: a check must count what was left", self.name);
    }
}

/// Marks everything in the bitmap of a member with metadata 1.2: the control of a full resync.
fn mark_all(member: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(member).expect("the image exists");
    let mut offset = [0; 4];
    // bitmap_offset: byte 96 of the superblock, i32, 512-byte sectors from the superblock.
    file.read_exact_at(&mut offset, 4096 + 96).expect("a superblock");
    let bitmap = 4096 + u64::from(u32::from_le_bytes(offset)) * SECTOR as u64;
    let bits = 4 * MIB / CHUNK;
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
    Pattern { seed: 31 }.write_file(&fill, 16 * MIB / SECTOR as u64, 1);
    // A crash loses what loop devices hold in the guest's cache, so members are its disks.
    let mut script = String::new();
    let mut disk = 0;
    for shape in &SHAPES {
        let disks: Vec<String> =
            (disk..disk + shape.members).map(|number| format!("$D{number}")).collect();
        disk += shape.members;
        script += &format!(
            "quietly mdadm --create /dev/{name} --run --delay=1 {options} {disks}
             put {name} $SHARE/fill 0 $(bytes {name})
             clean {name}\n",
            name = md_name(shape),
            options = shape.options().join(" "),
            disks = disks.join(" "),
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
        let counted = mdspace.check(shape.name);
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
    members.iter().for_each(|member| mark_all(member));
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
    let (mut script, mut planted) = (String::new(), Vec::new());
    for shape in &SHAPES {
        let members = shape.images(&images);
        crash_ours(shape, &members);
        planted.push(shape.plant(&members));
        let paths: Vec<String> =
            members.iter().map(|member| format!("$SHARE/{}", file_name(member))).collect();
        // Marked data, superblocks and what mdadm reads ahead, against all of the data.
        let all = shape.members * 4 * MIB / SECTOR as u64;
        script += &format!(
            "attach {paths}
             count_reads \"${{LOOPS[@]}}\"; before=$READS
             quietly mdadm --assemble /dev/md0 \"${{LOOPS[@]}}\"
             settle md0; count_reads \"${{LOOPS[@]}}\"; read=$((READS - before))
             [ $read -lt {limit} ] || {{ echo \"{name}: resync read $read of {all}\"; exit 1; }}
             check md0; echo {name} $MISMATCHES
             quietly mdadm --stop /dev/md0; detach\n",
            paths = paths.join(" "),
            name = shape.name,
            limit = all / 2,
        );
    }
    let printed = Guest::new().share(images.folder()).succeed(&script);
    let counted = |name: &str| -> Option<u64> {
        let line = printed.lines().find(|line| line.split(' ').next() == Some(name))?;
        line.split(' ').nth(1)?.parse().ok()
    };
    for planted in planted {
        planted.expect_marked_repaired(counted(planted.name).expect("md checked every array"));
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
    assert_eq!(mdspace.check(shape.name), 0);
    let mut nbd = mdspace.connect(shape.name);
    let sectors = nbd.bytes / SECTOR as u64;
    let fill = Pattern { seed: 32 }.bytes(0, sectors, 1);
    for (offset, piece) in (0..).step_by(MIB as usize).zip(fill.chunks(MIB as usize)) {
        nbd.write(offset, piece);
    }
    nbd.flush();
    until("the bitmap is clean", || mdspace.detail(shape.name)["bitmap"]["dirty_bits"] == 0);
    let (bytes, offset) = shape.row();
    nbd.write(offset, &fill[offset as usize..(offset + bytes) as usize]);
    mdspace.kill();
}

fn md_name(shape: &Shape) -> String {
    format!("md{}", shape.level)
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("our files have names")
}
