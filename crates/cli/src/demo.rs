//! `mdspace demo`: the main job on real input, with the commands that a user would type.
//!
//! A RAID6 of six files with a spare is served over NBD. A file system with real files is copied
//! into its first half; the second half takes verified random I/O while a member fails, the spare is
//! rebuilt, another member fails and comes back. Then everything is read again and compared.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Code, Failure};
use crate::output::print_ours;

mod children;
mod fio;
mod stage;

use stage::Stage;

/// Size of a member file. Seven of them, the image and its copy stay below 2 GiB of disk.
const MEMBER_MIB: u64 = 96;
const SLOTS: usize = 6;
/// Half of the array's four members' worth of data, less what superblocks take.
const IMAGE_MIB: u64 = 160;
/// The second half, for fio.
const FIO_OFFSET_MIB: u64 = 192;
const FIO_SIZE_MIB: u64 = 160;

/// Until fio has connected and writes.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// What the summary tells.
struct Measured {
    copy_in: Duration,
    copy_out: Duration,
    rebuild: Duration,
    random_write_iops: u64,
    random_read_iops: u64,
}

/// Runs the demo; `from` is the directory whose files go into the file system.
pub(crate) fn run(from: Option<PathBuf>) -> Result<(), Failure> {
    let began = Instant::now();
    let stage = Stage::set(from)?;
    let result = play(&stage);
    // On Ctrl-C the programs that ran have ended too; what they say of it is not the reason.
    stage.clear();
    let measured = match result {
        Err(_) if stage.interrupted() => return Err(interrupted()),
        result => result?,
    };
    print_ours(&(summary(&measured, began.elapsed()) + "\n"))
}

fn play(stage: &Stage) -> Result<Measured, Failure> {
    stage.title("An array of six files that bears the loss of two, and a spare")?;
    make_members(stage)?;
    create(stage)?;

    stage.title("A file system with real files goes into the first half")?;
    let copy_in = copy_in(stage)?;

    stage.title("Verified random I/O in the second half, while a member fails")?;
    let fio::Speeds { random_write_iops, random_read_iops } = fio::speeds(stage)?;
    let rebuild = fail_under_load(stage)?;

    stage.title("Another member fails, and comes back")?;
    lose_and_return(stage)?;

    stage.title("Does all redundancy agree?")?;
    check(stage)?;

    stage.title("Stop, assemble again, and compare every byte")?;
    stage.mdspace(&["stop", "data"])?;
    assemble(stage)?;
    let copy_out = compare(stage)?;
    stage.mdspace(&["stop", "data"])?;
    Ok(Measured { copy_in, copy_out, rebuild, random_write_iops, random_read_iops })
}

fn make_members(stage: &Stage) -> Result<(), Failure> {
    let size = format!("{MEMBER_MIB}M");
    let names = members(0..=SLOTS);
    let words: Vec<&str> =
        ["-s", &size].into_iter().chain(names.iter().map(String::as_str)).collect();
    stage.run("truncate", &words).map(drop)
}

fn create(stage: &Stage) -> Result<(), Failure> {
    let serve = stage.serve_option();
    let names = members(0..=SLOTS);
    let mut words = vec!["create", "data", "--level=6", "--raid-devices=6", "--spare-devices=1"];
    words.extend(["--chunk=64K", serve.as_str()]);
    words.extend(names.iter().map(String::as_str));
    stage.mdspace(&words)?;
    stage.mdspace_status(&["wait", "data"], &[0])?;
    stage.mdspace(&["mdstat"])
}

fn copy_in(stage: &Stage) -> Result<Duration, Failure> {
    let size = format!("{IMAGE_MIB}M");
    let from = stage.source_of_files().display().to_string();
    stage.run("mkfs.ext4", &["-q", "-L", "demo", "-d", &from, "image", &size])?;
    stage.timed("nbdcopy", &["image", &stage.uri()])
}

fn fail_under_load(stage: &Stage) -> Result<Duration, Failure> {
    let load = fio::verified_load(stage)?;
    thread::sleep(UNDER_WAY);
    stage.mdspace(&["fail", "data", "m1"])?;
    let began = Instant::now();
    stage.mdspace_status(&["wait", "data"], &[0])?;
    let rebuild = began.elapsed();
    load.finish()?;
    stage.mdspace_status(&["detail", "data", "--test"], &[0])?;
    Ok(rebuild)
}

fn lose_and_return(stage: &Stage) -> Result<(), Failure> {
    stage.mdspace(&["fail", "data", "m4"])?;
    fio::verify(stage)?;
    stage.mdspace(&["remove", "data", "m4"])?;
    stage.mdspace(&["add", "data", "m4", "--run"])?;
    stage.mdspace_status(&["wait", "data"], &[0])
}

fn check(stage: &Stage) -> Result<(), Failure> {
    stage.mdspace(&["action", "data", "check", "--wait"])?;
    let found = stage.mdspace_output(&["get", "data", "mismatch_cnt"])?;
    match found.trim() {
        "0" => Ok(()),
        count => Err(differs(format!("check counted {count} sectors that differ"))),
    }
}

/// Assembles without m1, which failed and was replaced by the spare.
fn assemble(stage: &Stage) -> Result<(), Failure> {
    let serve = stage.serve_option();
    let names: Vec<String> = members(0..=SLOTS).into_iter().filter(|name| name != "m1").collect();
    let mut words = vec!["assemble", "data", serve.as_str()];
    words.extend(names.iter().map(String::as_str));
    stage.mdspace(&words)
}

fn compare(stage: &Stage) -> Result<Duration, Failure> {
    let took = stage.timed("nbdcopy", &[&stage.uri(), "copy"])?;
    fio::verify(stage)?;
    stage.run("truncate", &["-s", &format!("{IMAGE_MIB}M"), "copy"])?;
    let sums = stage.run("sha256sum", &["image", "copy"])?;
    let sums: Vec<_> = sums.lines().filter_map(|line| line.split_whitespace().next()).collect();
    if sums.len() != 2 || sums[0] != sums[1] {
        return Err(differs("the image came out of the array with another checksum"));
    }
    stage.run("e2fsck", &["-fn", "copy"])?;
    Ok(took)
}

fn members(range: std::ops::RangeInclusive<usize>) -> Vec<String> {
    range.map(|number| format!("m{number}")).collect()
}

fn summary(measured: &Measured, took: Duration) -> String {
    let mib_s = |mib: u64, time: Duration| mib as f64 / time.as_secs_f64().max(0.001);
    let array_mib = (SLOTS as u64 - 2) * MEMBER_MIB;
    format!(
        "\nAll of it agreed, in {:.0} s. Seen on the way, on files, over NBD, one lane:
    copy in        {:>8.0} MiB/s
    copy out       {:>8.0} MiB/s
    random write   {:>8} IOPS of 4 KiB
    random read    {:>8} IOPS of 4 KiB
    rebuild        {:>8.1} s for a member of {MEMBER_MIB} MiB, under load
    mismatch_cnt          0

Next: `cargo install --locked --path crates/cli`, then `mdspace help`. docs/admin.md shows a first array of your
own; read docs/recovery.md before you need it.",
        took.as_secs_f64(),
        mib_s(IMAGE_MIB, measured.copy_in),
        mib_s(array_mib, measured.copy_out),
        measured.random_write_iops,
        measured.random_read_iops,
        measured.rebuild.as_secs_f64(),
    )
}

fn differs(why: impl Into<String>) -> Failure {
    Failure::new(
        "the demo found a difference",
        why.into(),
        "this must never happen: report it with the output above",
    )
}

fn interrupted() -> Failure {
    Failure::new("the demo ended early", "it was interrupted", "run it again when you like")
        .with_code(Code::Interrupted)
}
