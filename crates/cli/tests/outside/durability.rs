//! Acknowledged and flushed is durable. Members lie on dm-log-writes inside the guest; their logs,
//! replayed up to a mark, are the members as a power cut at that mark leaves them: what was not
//! flushed by then is gone. The images must assemble and hold every promised byte.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::harness::{
    Guest, Images, MIB, Mdspace, Model, Pattern, SECTOR, Stream, WriteLog, path_text, seed,
};

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

    /// Guest script that runs the workload: `write MARK OPTIONS...` is the server's function, with
    /// one `FILE FIRST COUNT` an extent and `flush` at the end where the half is flushed.
    fn script(&self) -> String {
        let extents = |half: &[Extent]| -> String {
            half.iter().map(|e| format!(" {} {} {}", e.file, e.first, e.count)).collect()
        };
        (1..)
            .zip(&self.steps)
            .map(|(step, [flushed, rest])| {
                format!(
                    "write{} flush\nmark f{step}\nwrite{}\nmark w{step}\n",
                    extents(flushed),
                    extents(rest)
                )
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
      attach $SHARE/m$i; member=$NEW; attach $SHARE/log$i
      dmsetup create lw$i --table \"0 $(blockdev --getsz $member) log-writes $member $NEW\"
      MEMBERS+=(/dev/mapper/lw$i)
    done
    mark() { local i; for i in 0 1 2 3; do dmsetup message lw$i 0 mark $1; done; }
    close_logs() { dmsetup remove lw0 lw1 lw2 lw3; detach; }
";

/// Shape of the array, as both commands write it.
const SHAPE: &str =
    "--level=6 --raid-devices=4 --size=4M --chunk=64 --data-offset=1M --run \"${MEMBERS[@]}\"";

/// The workload on an array that md itself serves; `flush` is what its flush does.
fn on_md(workload: &Workload, flush: &str) -> String {
    format!(
        "{LOGGED_MEMBERS}
         quietly mdadm --create /dev/md0 --bitmap=none {SHAPE}
         settle md0
         write() {{
           while [ $# -ge 3 ]; do
             dd if=$SHARE/$1 of=/dev/md0 bs=512 seek=$2 count=$3 oflag=direct status=none
             shift 3
           done
           if [ $# = 1 ]; then {flush}; fi
         }}
         {}
         quietly mdadm --stop /dev/md0; close_logs",
        workload.script()
    )
}

/// The workload on an array that mdspace serves inside the guest. `environment` is set for the
/// process that serves it. A client that goes away flushes, unless it is told to be unsafe.
fn on_mdspace(workload: &Workload, environment: &str) -> String {
    format!(
        "{LOGGED_MEMBERS}
         quietly mdspace create a {SHAPE}
         quietly mdspace wait a || true
         quietly mdspace stop a
         quietly env {environment} mdspace assemble a --serve=$FRONT \"${{MEMBERS[@]}}\"
         write() {{
           local commands=() cache=unsafe
           while [ $# -ge 3 ]; do
             commands+=(-c \"write -q -s $SHARE/$1 $(($2 * 512)) $(($3 * 512))\"); shift 3
           done
           if [ $# = 1 ]; then commands+=(-c flush); cache=writeback; fi
           quietly qemu-io -f raw -t $cache \"${{commands[@]}}\" $URI
         }}
         {script}
         quietly mdspace stop a; close_logs",
        script = workload.script()
    )
}

/// Runs the workload in a guest; afterwards the members as they were at the marks are images.
fn run(own_seed: u64, marks: &[&str], script: impl Fn(&Workload) -> String) -> (Images, Workload) {
    let seed = seed(own_seed);
    let images = Images::new();
    images.sparse("m", MEMBERS, MEMBER_BYTES);
    images.sparse("log", MEMBERS, LOG_BYTES);
    let mut workload = Workload::new(images.folder(), seed);
    Guest::new().share(images.folder()).succeed(&script(&workload));
    workload.marks.retain(|(mark, _)| marks.is_empty() || marks.contains(&mark.as_str()));
    for (mark, _) in &workload.marks {
        replay(images.folder(), mark);
    }
    (images, workload)
}

/// What md finds missing: the first mark whose members do not hold what they must.
fn loss_under_md(images: &Images, marks: &[(String, Model)]) -> Option<String> {
    let names: Vec<&str> = marks.iter().map(|(mark, _)| mark.as_str()).collect();
    let outcome = Guest::new().share(images.folder()).run(&format!(
        "for mark in {}; do
           attach $SHARE/$mark-m{{0,1,2,3}}
           quietly mdadm --assemble /dev/md0 \"${{LOOPS[@]}}\"
           dd if=/dev/md0 of=$SHARE/$mark-data bs=1M iflag=direct status=none
           clean md0
           same md0 $SHARE/$mark-data
           quietly mdadm --stop /dev/md0; detach
         done",
        names.join(" ")
    ));
    if outcome.status != 0 {
        return Some(format!("md cannot use the members: {}", outcome.printed));
    }
    marks.iter().find_map(|(mark, model)| {
        let data = fs::read(images.folder().join(format!("{mark}-data"))).expect("md's copy");
        Some(format!("{mark}: {}", model.verify(0, &data).err()?))
    })
}

/// What mdspace finds missing.
fn loss_under_mdspace(images: &Images, marks: &[(String, Model)]) -> Option<String> {
    let mdspace = Mdspace::new();
    marks.iter().find_map(|(mark, model)| {
        // md must find the same later, so mdspace looks at copies.
        let copies: Vec<PathBuf> = (0..MEMBERS)
            .map(|member| {
                let copy = images.folder().join(format!("{mark}-copy{member}"));
                fs::copy(images.folder().join(format!("{mark}-m{member}")), &copy).expect("room");
                copy
            })
            .collect();
        let serve = mdspace.serve("a");
        let mut arguments = vec!["assemble", "a", &serve];
        arguments.extend(copies.iter().map(|copy| path_text(copy)));
        let assembled = mdspace.run(&arguments);
        if assembled.status != 0 {
            return Some(format!("{mark}: mdspace cannot assemble: {}", assembled.err));
        }
        let mut nbd = mdspace.connect("a");
        let data = nbd.read(0, nbd.bytes as u32);
        let loss = model.verify(0, &data).err();
        assert_eq!(mdspace.check("a"), 0, "at {mark}");
        assert!(nbd.read(0, nbd.bytes as u32) == data, "what was read at {mark} must stay");
        drop(nbd);
        mdspace.succeed(&["stop", "a"]);
        Some(format!("{mark}: {}", loss?))
    })
}

#[test]
fn md_itself_keeps_flushed_bytes_and_the_test_notices_a_flush_that_is_left_out() {
    let (images, workload) = run(11, &["f2", "w5", "f8"], |w| on_md(w, "sync /dev/md0"));
    assert_eq!(loss_under_md(&images, &workload.marks), None);
    let (images, workload) = run(12, &["f1"], |w| on_md(w, "true"));
    let loss = loss_under_md(&images, &workload.marks).expect("without a flush something is lost");
    println!("without a flush: {loss}");
}

#[test]
fn mdspace_keeps_flushed_bytes_through_a_power_cut() {
    let (images, workload) = run(13, &[], |w| on_mdspace(w, ""));
    assert_eq!(loss_under_mdspace(&images, &workload.marks), None);
    let some: Vec<_> = workload.marks.into_iter().step_by(5).collect();
    assert_eq!(loss_under_md(&images, &some), None);
}

#[test]
fn an_mdspace_that_flushes_nothing_is_found_out() {
    let (images, workload) = run(14, &["f1"], |w| on_mdspace(w, "MDSPACE_TEST_NO_FLUSH=1"));
    let loss = loss_under_mdspace(&images, &workload.marks);
    println!("without flushes: {}", loss.expect("without flushes something is lost"));
}
