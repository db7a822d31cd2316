//! Acknowledged and flushed is durable. Members lie on dm-log-writes inside the guest; their logs,
//! replayed up to a mark, are the members as a power cut at that mark leaves them: what was not
//! flushed by then is gone. The images must assemble and hold every promised byte.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::harness::{Guest, Images, MIB, Model, Pattern, SECTOR, Stream, WriteLog};

/// Bytes of one member, and of the log of its writes.
const MEMBER_BYTES: u64 = 8 * MIB;
const LOG_BYTES: u64 = 256 * MIB;
/// Data on each member; the array has twice that.
const DATA_BYTES: u64 = 4 * MIB;
const MEMBERS: usize = 4;
const STEPS: u64 = 8;

/// One write of the workload, from a file that holds its bytes.
struct Extent {
    first: u64,
    count: u64,
    file: String,
}

/// Writes and flushes in steps. Step k ends in two marks on every member: `f<k>` when the flush of
/// its first half was acknowledged, `w<k>` when its second half was acknowledged without a flush.
struct Workload {
    steps: Vec<[Vec<Extent>; 2]>,
    /// What the array may hold at each mark.
    marks: Vec<(String, Model)>,
}

impl Workload {
    fn new(folder: &Path, seed: u64) -> Self {
        let pattern = Pattern { seed };
        let sectors = 2 * DATA_BYTES / SECTOR as u64;
        let mut random = Stream(seed);
        let mut model = Model::new(pattern, sectors);
        let mut workload = Self { steps: Vec::new(), marks: Vec::new() };
        for step in 1..=STEPS {
            let mut half = |version: u64, model: &mut Model| -> Vec<Extent> {
                (0..3)
                    .map(|index| {
                        let count = 1 + random.below(if index == 0 { 512 } else { 24 });
                        let first = random.below(sectors - count);
                        let file = format!("v{version}-{index}");
                        fs::write(folder.join(&file), model.write(first, count, version))
                            .expect("the folder has room");
                        Extent { first, count, file }
                    })
                    .collect()
            };
            let flushed = half(2 * step, &mut model);
            model.promise_all();
            workload.marks.push((format!("f{step}"), model.clone()));
            let unflushed = half(2 * step + 1, &mut model);
            workload.marks.push((format!("w{step}"), model.clone()));
            workload.steps.push([flushed, unflushed]);
        }
        workload
    }

    /// Shell that runs the workload: `write_file FILE FIRST COUNT`, `flush` and `mark NAME` are the
    /// caller's functions.
    fn script(&self) -> String {
        let writes = |extents: &[Extent]| -> String {
            extents
                .iter()
                .map(|e| format!("write_file $SHARE/{} {} {}\n", e.file, e.first, e.count))
                .collect()
        };
        (1..)
            .zip(&self.steps)
            .map(|(step, [flushed, rest])| {
                let (flushed, rest) = (writes(flushed), writes(rest));
                format!("{flushed}flush\nmark f{step}\n{rest}mark w{step}\n")
            })
            .collect()
    }
}

/// Images of all members as they were at a mark.
fn replay(folder: &Path, mark: &str) -> Vec<PathBuf> {
    (0..MEMBERS)
        .map(|member| {
            let path = folder.join(format!("{mark}-m{member}"));
            let image = File::create(&path).expect("the folder is writable");
            image.set_len(MEMBER_BYTES).expect("a sparse file");
            WriteLog::open(&folder.join(format!("log{member}"))).replay(mark, &image);
            path
        })
        .collect()
}

/// Guest functions that put members on dm-log-writes as `$MEMBERS` and mark their logs.
const LOGGED_MEMBERS: &str = "
    modprobe dm-log-writes
    MEMBERS=()
    for i in 0 1 2 3; do
      attach $SHARE/m$i $SHARE/log$i
      dmsetup create lw$i --table \"0 $(blockdev --getsz ${LOOPS[0]}) log-writes ${LOOPS[*]}\"
      MEMBERS+=(/dev/mapper/lw$i)
    done
    mark() { local i; for i in 0 1 2 3; do dmsetup message lw$i 0 mark $1; done; }
";

/// Has md assemble the members of every mark, and returns what the array held, mark by mark.
fn assembled_by_md(folder: &Path, marks: &[(String, Model)]) -> Vec<Vec<u8>> {
    let names: Vec<&str> = marks.iter().map(|(mark, _)| mark.as_str()).collect();
    Guest::new().share(folder).succeed(&format!(
        "for mark in {}; do
           attach $SHARE/$mark-m{{0,1,2,3}}
           mdadm --assemble /dev/md0 \"${{LOOPS[@]}}\" 2>/dev/null
           dd if=/dev/md0 of=$SHARE/$mark-data bs=1M iflag=direct status=none
           [ $(check md0) = 0 ]
           cmp $SHARE/$mark-data /dev/md0
           mdadm --stop /dev/md0 2>/dev/null; detach
         done",
        names.join(" ")
    ));
    names
        .iter()
        .map(|mark| fs::read(folder.join(format!("{mark}-data"))).expect("md's copy"))
        .collect()
}

/// The first mark whose members do not hold what they must, with the reason.
fn first_loss(marks: &[(String, Model)], data: &[Vec<u8>]) -> Option<String> {
    marks
        .iter()
        .zip(data)
        .find_map(|((mark, model), data)| Some(format!("{mark}: {}", model.verify(0, data).err()?)))
}

/// Runs the workload on an array that md itself serves, and looks at the members as they were at
/// some marks. `flush` is the guest's function.
fn loss_under_md(seed: u64, flush: &str, marks: &[&str]) -> Option<String> {
    let images = Images::new();
    images.sparse("m", MEMBERS, MEMBER_BYTES);
    images.sparse("log", MEMBERS, LOG_BYTES);
    let mut workload = Workload::new(images.folder(), seed);
    Guest::new().share(images.folder()).succeed(&format!(
        "{LOGGED_MEMBERS}
         mdadm --create /dev/md0 --run --level=6 --raid-devices=4 --size=4M --chunk=64 \\
           --data-offset=1M --bitmap=none \"${{MEMBERS[@]}}\" 2>/dev/null
         settle md0
         write_file() {{ dd if=$1 of=/dev/md0 bs=512 seek=$2 count=$3 oflag=direct status=none; }}
         flush() {{ {flush}; }}
         {}",
        workload.script()
    ));
    workload.marks.retain(|(mark, _)| marks.contains(&mark.as_str()));
    for (mark, _) in &workload.marks {
        replay(images.folder(), mark);
    }
    let data = assembled_by_md(images.folder(), &workload.marks);
    first_loss(&workload.marks, &data)
}

#[test]
fn md_itself_keeps_flushed_bytes_and_the_test_notices_a_flush_that_is_left_out() {
    assert_eq!(loss_under_md(11, "sync /dev/md0", &["f2", "w5", "f8"]), None);
    let loss = loss_under_md(12, "true", &["f1"]).expect("without a flush something is lost");
    println!("without a flush: {loss}");
}
