//! Arrays as files and as block devices of this host: real file systems and real I/O on them.
//!
//! This needs root, `/dev/fuse` and loop devices; where one is missing the tests say SKIPPED.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{
    Guest, Images, MIB, Mdspace, Pattern, SECTOR, Stream, Tools, path_text, seed, until,
};

/// A RAID5 of four files on two lanes.
struct Mounted {
    images: Images,
    mdspace: Mdspace,
    name: String,
}

impl Mounted {
    /// None where this host cannot. `front` is what follows `--serve=`, with DIR for a new directory.
    fn start(test: &str, front: &str) -> Option<Self> {
        let open = |path| OpenOptions::new().read(true).write(true).open(path);
        if open("/dev/fuse").and_then(|_| open("/dev/loop-control")).is_err() {
            println!("SKIPPED: this needs root, /dev/fuse and /dev/loop-control");
            return None;
        }
        let mounted = Self {
            images: Images::new(),
            mdspace: Mdspace::new(),
            // Names in /dev are the whole host's.
            name: format!("{test}-{}", std::process::id()),
        };
        let members = mounted.images.sparse("m", 4, 34 * MIB);
        fs::create_dir(mounted.directory()).expect("an empty folder");
        let mut words =
            vec!["create", &mounted.name, "--level=5", "--raid-devices=4", "--chunk=64K"];
        let serve = mounted.serve(front);
        words.extend(["--size=32M", "--lanes=2", "--run", &serve]);
        words.extend(members.iter().map(|path| path_text(path)));
        mounted.mdspace.succeed(&words);
        mounted.mdspace.settle(&mounted.name);
        Some(mounted)
    }

    fn serve(&self, front: &str) -> String {
        format!("--serve={}", front.replace("DIR", path_text(&self.directory())))
    }

    fn directory(&self) -> PathBuf {
        self.images.folder().join("mount")
    }

    /// The array as a file.
    fn file(&self) -> PathBuf {
        self.directory().join(&self.name)
    }

    /// The array's name among the devices.
    fn device(&self) -> PathBuf {
        Path::new("/dev/mdspace").join(&self.name)
    }

    fn members(&self) -> Vec<String> {
        let member = |number| self.images.folder().join(format!("m{number}")).display().to_string();
        (0..4).map(member).collect()
    }

    fn assemble(&self, front: &str) {
        let (serve, members) = (self.serve(front), self.members());
        let mut words = vec!["assemble", &*self.name, "--lanes=2"];
        words.extend(serve.split(' '));
        words.extend(members.iter().map(String::as_str));
        self.mdspace.succeed(&words);
    }

    /// Fails a member, and adds it again.
    fn lose_and_regain_a_member(&self) {
        let member = &self.members()[1];
        self.mdspace.succeed(&["fail", &self.name, member]);
        self.mdspace.succeed(&["add", &self.name, member]);
    }

    /// Redundancy is right, the array stops, and nothing of it is left on the host.
    fn finish(self) {
        assert_eq!(self.mdspace.check(&self.name), 0);
        self.mdspace.succeed(&["stop", &self.name]);
        assert!(!self.device().exists() && !self.is_mounted());
        let left = fs::read_dir(self.mdspace.run_dir()).expect("the run directory").flatten();
        // What udev is told stays.
        let mut left = left.filter(|entry| entry.file_name() != "by-uuid");
        assert!(left.all(|entry| !entry.file_type().expect("a type").is_dir()));
    }

    /// Whether something of ours is mounted below the test's folders.
    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("this is Linux");
        let folders = [self.images.folder(), self.mdspace.run_dir()];
        let is_ours = |line: &str| folders.iter().any(|folder| line.contains(path_text(folder)));
        mounts.lines().any(is_ours)
    }
}

/// The process that keeps the device of a mounted array.
fn keeper_of(mounted: &Mounted) -> Pid {
    let place = mounted.mdspace.run_dir().join(format!("{}.mount", mounted.name));
    let is_it = |process: &Pid| {
        let words = fs::read(format!("/proc/{}/cmdline", process.as_raw_pid())).unwrap_or_default();
        let mut words = words.split(|&byte| byte == 0).skip(1);
        words.next() == Some(b"__unmount-after")
            && words.next() == Some(path_text(&place).as_bytes())
    };
    let entries = fs::read_dir("/proc").expect("this is Linux").flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter_map(Pid::from_raw).find(is_it).expect("a process keeps the device")
}

/// Whether any process of the array has this open.
fn is_held(mounted: &Mounted, what: &Path) -> bool {
    let open = |process: Pid| fs::read_dir(format!("/proc/{}/fd", process.as_raw_pid()));
    let mut files = mounted.mdspace.processes().into_iter().flat_map(open).flatten().flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|leads| leads == what))
}

/// Runs a program of the host or of `tools/fetch`, which must succeed.
fn succeed(program: &str, words: &[&str]) -> String {
    let output = Tools::find().command(program).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{program} starts: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program} {words:?}: {}\n{out}{err}", output.status);
    out
}

/// fio writes, and reads back what it wrote, while a member is lost and comes back.
fn verified(mounted: &Mounted, path: &Path, engine: &str) {
    let fio = Tools::find()
        .command("fio")
        .args(["--name=verify", "--direct=1", "--rw=randwrite", "--bs=4k-64k", "--iodepth=16"])
        .args(["--size=48M", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"])
        .arg(format!("--ioengine={engine}"))
        .arg(format!("--filename={}", path_text(path)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("fio starts");
    mounted.lose_and_regain_a_member();
    let ended = fio.wait_with_output().expect("fio ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ended.status.success(), "{}{}", text(&ended.stdout), text(&ended.stderr));
}

#[test]
fn a_file_system_on_a_block_device_outlives_a_failed_member() {
    let Some(mounted) = Mounted::start("ext4", "loop") else { return };
    let (device, place) = (mounted.device(), mounted.images.folder().join("place"));
    fs::create_dir(&place).expect("an empty folder");
    succeed("mkfs.ext4", &["-q", path_text(&device)]);
    succeed("mount", &[path_text(&device), path_text(&place)]);
    let pattern = Pattern { seed: 1 }.bytes(0, 20 * MIB / SECTOR as u64, 1);
    fs::write(place.join("file"), &pattern).expect("room for a file");
    mounted.lose_and_regain_a_member();
    let stopped = mounted.mdspace.run(&["stop", &mounted.name]);
    assert!(stopped.status == 1 && stopped.err.contains("is mounted at"), "{stopped:?}");
    succeed("umount", &[path_text(&place)]);
    succeed("fsck.ext4", &["-fn", path_text(&device)]);
    succeed("mount", &["-o", "ro", path_text(&device), path_text(&place)]);
    let read = fs::read(place.join("file"));
    succeed("umount", &[path_text(&place)]);
    assert!(read.expect("the file is there") == pattern, "the file has other bytes");
    mounted.finish();
}

#[test]
fn fio_verifies_what_it_wrote_to_the_device_while_a_member_comes_back() {
    let Some(mounted) = Mounted::start("loop", "loop") else { return };
    verified(&mounted, &mounted.device(), "libaio");
    mounted.finish();
}

#[test]
fn fio_verifies_what_it_wrote_to_the_file_while_a_member_comes_back() {
    let Some(mounted) = Mounted::start("fuse", "fuse:DIR") else { return };
    verified(&mounted, &mounted.file(), "io_uring");
    mounted.finish();
}

/// FUSE over io_uring on this host, for mounts that begin while this lives.
struct Offered;

impl Offered {
    const PLACE: &str = "/sys/module/fuse/parameters/enable_uring";

    /// None where the kernel cannot, or offers it anyway.
    fn new() -> Option<Self> {
        let is_off = fs::read_to_string(Self::PLACE).is_ok_and(|word| word.trim() == "N");
        if !is_off || fs::write(Self::PLACE, "Y").is_err() {
            println!("SKIPPED: this needs root, and Linux 6.14 with {} at N", Self::PLACE);
            return None;
        }
        Some(Self)
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let _ = fs::write(Self::PLACE, "N");
    }
}

/// The rings that the processes of an array have.
fn rings_of(mounted: &Mounted) -> usize {
    let open = |process: Pid| fs::read_dir(format!("/proc/{}/fd", process.as_raw_pid()));
    let files = mounted.mdspace.processes().into_iter().flat_map(open).flatten().flatten();
    let is_ring = |leads: &PathBuf| leads == Path::new("anon_inode:[io_uring]");
    files.filter_map(|file| fs::read_link(file.path()).ok()).filter(is_ring).count()
}

#[test]
fn what_comes_through_io_uring_is_verified_and_outlives_a_kill() {
    let Some(offered) = Offered::new() else { return };
    let mounted = Mounted::start("ring", "fuse:DIR").expect("root has it all");
    drop(offered);
    // Of the two lanes, and of the mount on each of them.
    until("the rings of the mount", || rings_of(&mounted) == 4);
    verified(&mounted, &mounted.file(), "libaio");
    let file = OpenOptions::new().read(true).write(true).open(mounted.file()).expect("a file");
    let bytes = Pattern { seed: 7 }.bytes(0, MIB / SECTOR as u64, 1);
    file.write_all_at(&bytes, 5 * MIB + 77).expect("written");
    punch(&file, 5 * MIB + 4096, 8192);
    file.sync_all().expect("durable");
    let mut read = vec![1; bytes.len()];
    file.read_exact_at(&mut read, 5 * MIB + 77).expect("read");
    let hole = 4096 - 77..4096 - 77 + 8192;
    assert!(read[hole.clone()].iter().all(|byte| *byte == 0));
    assert!(read[..hole.start] == bytes[..hole.start] && read[hole.end..] == bytes[hole.end..]);
    mounted.mdspace.kill();
    until("a read of an unserved file ends", || file.read_exact_at(&mut read, 0).is_err());
    drop(file);
    until("nothing is mounted", || !mounted.is_mounted());
    mounted.assemble("fuse:DIR");
    assert_eq!(rings_of(&mounted), 2, "the kernel offers none any more");
    let file = OpenOptions::new().read(true).open(mounted.file()).expect("a file");
    file.read_exact_at(&mut read, 5 * MIB + 77).expect("read");
    assert!(read[..hole.start] == bytes[..hole.start] && read[hole.end..] == bytes[hole.end..]);
    drop(file);
    mounted.mdspace.settle(&mounted.name);
    mounted.finish();
}

/// A write of a part of a block waits for its turn with its bytes, which count as others do.
#[test]
fn writes_of_parts_of_blocks_that_wait_are_limited_in_bytes() {
    const WRITERS: u64 = 300;
    let Some(mounted) = Mounted::start("parts", "fuse:DIR") else { return };
    let process = mounted.mdspace.report(&mounted.name)["pid"].as_u64().expect("a number");
    let most_kib = || {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = most.and_then(|most| most.split_whitespace().next());
        number.and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    let before = most_kib();
    let (path, bytes) = (mounted.file(), vec![5; (1 << 20) - 2]);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (path, bytes) = (&path, &bytes);
            scope.spawn(move || {
                let file = OpenOptions::new().write(true).open(path).expect("a file");
                file.write_all_at(bytes, 1 + writer % 90 * MIB).expect("written");
            });
        }
    });
    let more_mib = (most_kib() - before) >> 10;
    // 64 MiB on each of two lanes, and what the array itself takes.
    assert!(more_mib < 200, "{WRITERS} writes took {more_mib} MiB");
    mounted.finish();
}

#[test]
fn a_file_is_read_and_written_at_any_byte() {
    let Some(mounted) = Mounted::start("bytes", "fuse:DIR") else { return };
    let file = OpenOptions::new().read(true).write(true).open(mounted.file()).expect("a file");
    let size = file.metadata().expect("a size").len();
    let mut model = vec![0; 1 << 20];
    let mut random = Stream(seed(1));
    for _ in 0..200 {
        let start = random.below(model.len() as u64) as usize;
        let end = (start + 1 + random.below(20_000) as usize).min(model.len());
        let byte = random.below(256) as u8;
        model[start..end].fill(byte);
        file.write_all_at(&vec![byte; end - start], start as u64).expect("written");
        let mut read = vec![0; 5_000];
        let at = random.below((model.len() - read.len()) as u64) as usize;
        file.read_exact_at(&mut read, at as u64).expect("read");
        assert!(read == model[at..at + read.len()], "other bytes at {at}");
    }
    punch(&file, 700, 100_000);
    model[700..100_700].fill(0);
    let mut read = vec![0; model.len()];
    file.read_exact_at(&mut read, 0).expect("read");
    assert!(read == model, "other bytes after a hole was punched");
    let beyond = file.write_at(&[1; 512], size).expect_err("no space behind the end");
    assert_eq!(beyond.raw_os_error(), Some(28), "ENOSPC");
    assert_eq!(file.write_at(&[1; 1024], size - 512).expect("up to the end"), 512);
    assert_eq!(file.read_at(&mut [0; 1024], size - 512).expect("up to the end"), 512);
    file.sync_all().expect("durable");
    let stopped = mounted.mdspace.run(&["stop", &mounted.name]);
    assert!(stopped.status == 1 && stopped.err.contains("process"), "{stopped:?}");
    drop(file);
    mounted.finish();
}

/// Makes a hole, as `fallocate --punch-hole` does.
fn punch(file: &File, offset: u64, length: u64) {
    use rustix::fs::{FallocateFlags, fallocate};
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, offset, length).expect("a hole");
}

#[test]
fn a_killed_process_leaves_no_mount_and_no_device_and_starts_again() {
    let Some(mounted) = Mounted::start("killed", "loop") else { return };
    let pattern = Pattern { seed: 2 }.bytes(0, 64, 1);
    let device = OpenOptions::new().write(true).open(mounted.device()).expect("a device");
    device.write_all_at(&pattern, 0).expect("written");
    device.sync_all().expect("durable");
    drop(device);
    mounted.mdspace.kill();
    until("nothing is mounted", || !mounted.is_mounted());
    mounted.assemble("loop");
    let mut read = vec![0; pattern.len()];
    File::open(mounted.device()).expect("a device").read_exact_at(&mut read, 0).expect("read");
    assert!(read == pattern, "other bytes after a kill");
    mounted.mdspace.settle(&mounted.name);
    mounted.finish();
}

/// The last who closes a device writes what the kernel holds back of it. That must not be the killed process.
#[test]
fn a_process_that_is_killed_before_its_device_is_written_back_ends() {
    let Some(mounted) = Mounted::start("unwritten", "loop") else { return };
    let device = OpenOptions::new().write(true).open(mounted.device()).expect("a device");
    let flushed = Pattern { seed: 3 }.bytes(0, 64, 1);
    device.write_all_at(&flushed, 0).expect("written");
    device.sync_all().expect("durable");
    device.write_all_at(&vec![7; 16 << 20], 8 << 20).expect("kept in memory");
    drop(device);
    mounted.mdspace.kill();
    until("nothing is mounted", || !mounted.is_mounted());
    until("the device has no name", || fs::read_link(mounted.device()).is_err());
    mounted.assemble("loop");
    let mut read = vec![0; flushed.len()];
    File::open(mounted.device()).expect("a device").read_exact_at(&mut read, 0).expect("read");
    assert!(read == flushed, "other bytes after a kill");
    mounted.mdspace.settle(&mounted.name);
    mounted.finish();
}

#[test]
fn what_the_kernel_holds_back_of_the_device_is_written_before_a_stop() {
    let Some(mounted) = Mounted::start("heldback", "loop") else { return };
    let bytes = vec![9; 16 << 20];
    let device = OpenOptions::new().write(true).open(mounted.device()).expect("a device");
    device.write_all_at(&bytes, 0).expect("kept in memory");
    drop(device);
    mounted.mdspace.succeed(&["stop", &mounted.name]);
    mounted.assemble("loop");
    let mut read = vec![0; bytes.len()];
    File::open(mounted.device()).expect("a device").read_exact_at(&mut read, 0).expect("read");
    assert!(read == bytes, "bytes are lost at a stop");
    mounted.finish();
}

/// The kernel gets memory by writing to the device what programs wrote. That takes the process that serves it, which has
/// no more memory than they. A kernel of its own: not every host lets its root limit memory, or mark a process.
#[test]
fn a_host_that_is_short_of_memory_writes_more_than_it_has_to_a_device() {
    let images = Images::new();
    let disks = images.sparse("d", 3, 240 * MIB);
    Guest::new().disks(&disks).succeed(
        r#"
        modprobe -a fuse loop
        mdspace create press --level=5 --raid-devices=3 --assume-clean --run --serve=block $D0 $D1 $D2
        serving=$(pgrep -f 'mdspace __serve')
        grep VmLck /proc/$serving/status
        [ "$(awk '/VmLck/ { print $2 }' /proc/$serving/status)" -gt 0 ]
        # PF_MEMALLOC_NOIO and PF_LOCAL_THROTTLE of the kernel's sched.h: lanes have them, this shell has not.
        flusher=$((0x80000 | 0x100000))
        for thread in /proc/$serving/task/*; do
          read -ra fields <$thread/stat
          [ $((fields[8] & flusher)) = $flusher ]
        done
        read -ra fields </proc/self/stat
        [ $((fields[8] & flusher)) = 0 ]

        quietly mkfs.ext4 -q /dev/mdspace/press
        mkdir /run/place /run/limit
        mount /dev/mdspace/press /run/place
        mount -t cgroup2 none /run/limit
        echo '+memory +io' >/run/limit/cgroup.subtree_control
        mkdir /run/limit/short
        echo 256M >/run/limit/short/memory.max
        head -c 20M /dev/urandom >/run/part
        many() { for i in {1..20}; do cat /run/part; done; }
        for process in $(pgrep mdspace) $$; do echo $process >/run/limit/short/cgroup.procs; done
        many >/run/place/file
        sync -f /run/place/file
        cat /run/limit/short/memory.events
        # The limit was met, and no process died of it.
        grep -q '^max [1-9]' /run/limit/short/memory.events
        grep -q '^oom_kill 0$' /run/limit/short/memory.events
        umount /run/place
        mount /dev/mdspace/press /run/place
        cmp /run/place/file <(many)
        umount /run/place
        quietly mdspace stop press
        "#,
    );
}

/// Makes one on the device, and a folder to mount it at.
fn make_file_system(mounted: &Mounted) -> PathBuf {
    let place = mounted.images.folder().join("place");
    fs::create_dir(&place).expect("an empty folder");
    succeed("mkfs.ext4", &["-q", path_text(&mounted.device())]);
    place
}

/// The array has its device again, and a file on that has these bytes.
fn starts_again_with(mounted: &Mounted, place: &Path, bytes: &[u8]) {
    mounted.assemble("loop");
    succeed("mount", &[path_text(&mounted.device()), path_text(place)]);
    let read = fs::read(place.join("file"));
    succeed("umount", &[path_text(place)]);
    assert!(read.expect("the file is there") == bytes, "the file has other bytes");
}

/// At a shutdown the array may go before its file systems: what programs wrote is in no block of the device yet.
#[test]
fn what_file_systems_hold_back_is_written_before_their_device_is_taken_away_by_force() {
    let Some(mounted) = Mounted::start("synced", "loop") else { return };
    let place = make_file_system(&mounted);
    let process = mounted.mdspace.report(&mounted.name)["pid"].as_i64().expect("a number");
    for round in 1..=2 {
        succeed("mount", &[path_text(&mounted.device()), path_text(&place)]);
        let pattern = Pattern { seed: round }.bytes(0, 40 * MIB / SECTOR as u64, 1);
        fs::write(place.join("file"), &pattern).expect("room for a file");
        match round {
            1 => {
                let process = Pid::from_raw(process as i32).expect("a process number");
                kill_process(process, Signal::TERM).expect("it is there");
                until("it has ended", || mounted.mdspace.processes().is_empty());
            }
            _ => drop(mounted.mdspace.succeed(&["stop", &mounted.name, "--force"])),
        }
        succeed("umount", &["--lazy", path_text(&place)]);
        starts_again_with(&mounted, &place, &pattern);
    }
    mounted.finish();
}

/// The place leads to what is mounted over it.
#[test]
fn what_a_hidden_file_system_holds_back_is_written_before_its_device_is_taken_away_by_force() {
    let Some(mounted) = Mounted::start("hidden", "loop") else { return };
    let place = make_file_system(&mounted);
    succeed("mount", &[path_text(&mounted.device()), path_text(&place)]);
    let pattern = Pattern { seed: 1 }.bytes(0, 5 * MIB / SECTOR as u64, 1);
    fs::write(place.join("file"), &pattern).expect("room for a file");
    succeed("mount", &["-t", "tmpfs", "none", path_text(&place)]);
    // Nothing tells whether all could be written.
    let stopped = mounted.mdspace.run(&["stop", &mounted.name, "--force"]);
    assert!(stopped.out.contains("could not write"), "{stopped:?}");
    succeed("umount", &[path_text(&place)]);
    succeed("umount", &["--lazy", path_text(&place)]);
    starts_again_with(&mounted, &place, &pattern);
    mounted.finish();
}

/// A program has a file open of a file system that was unmounted from everywhere.
#[test]
fn what_an_unmounted_file_system_holds_back_is_written_before_its_device_is_taken_away_by_force() {
    let Some(mounted) = Mounted::start("detached", "loop") else { return };
    let place = make_file_system(&mounted);
    succeed("mount", &[path_text(&mounted.device()), path_text(&place)]);
    let pattern = Pattern { seed: 1 }.bytes(0, 5 * MIB / SECTOR as u64, 1);
    let file = File::create(place.join("file")).expect("a file");
    file.write_all_at(&pattern, 0).expect("room for a file");
    succeed("umount", &["--lazy", path_text(&place)]);
    let refused = mounted.mdspace.run(&["stop", &mounted.name]);
    assert!(refused.status == 1 && refused.err.contains("in use"), "{refused:?}");
    // Nothing tells whether all could be written.
    let stopped = mounted.mdspace.run(&["stop", &mounted.name, "--force"]);
    assert!(stopped.status == 0 && stopped.out.contains("could not write"), "{stopped:?}");
    drop(file);
    starts_again_with(&mounted, &place, &pattern);
    mounted.finish();
}

/// Its pages are none of the whole device's.
#[test]
fn a_partition_of_the_device_has_users_and_is_written_before_a_stop() {
    let Some(mounted) = Mounted::start("parted", "loop") else { return };
    let device = fs::canonicalize(mounted.device()).expect("a device");
    let device = path_text(&device);
    succeed("addpart", &[device, "1", "2048", "32768"]);
    let partition = format!("{device}p1");
    let open = OpenOptions::new().write(true).open(partition).expect("a partition");
    let bytes = vec![7; 8 << 20];
    open.write_all_at(&bytes, 0).expect("kept in memory");
    let refused = mounted.mdspace.run(&["stop", &mounted.name]);
    assert!(refused.status == 1 && refused.err.contains("process"), "{refused:?}");
    let stopped = mounted.mdspace.run(&["stop", &mounted.name, "--force"]);
    assert!(stopped.status == 0 && !stopped.out.contains("could not write"), "{stopped:?}");
    drop(open);
    succeed("delpart", &[device, "1"]);
    mounted.assemble("loop");
    let mut read = vec![0; bytes.len()];
    let device = File::open(mounted.device()).expect("a device");
    device.read_exact_at(&mut read, 1 << 20).expect("read");
    drop(device);
    assert!(read == bytes, "bytes are lost at a stop");
    mounted.finish();
}

/// What the kernel holds back may go to a member that hangs. A stop by force does not wait for it.
#[test]
fn a_stop_by_force_overtakes_one_that_waits_for_the_kernel() {
    let Some(mounted) = Mounted::start("overtaken", "loop") else { return };
    let (keeper, name) = (keeper_of(&mounted), &*mounted.name);
    let word = fs::read_link(format!("/proc/{}/fd/0", keeper.as_raw_pid())).expect("a pipe");
    kill_process(keeper, Signal::STOP).expect("it is there");
    let (waiting, forced) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| mounted.mdspace.run(&["stop", name]));
        until("the stop waits for it", || !is_held(&mounted, &word));
        mounted.mdspace.succeed(&["detail", name]);
        let late = format!("nbd:unix:{}", mounted.mdspace.socket(name).display());
        let late = mounted.mdspace.run(&["serve", name, &late]);
        assert!(late.status == 1 && late.err.contains("is being stopped"), "{late:?}");
        let forced = mounted.mdspace.run(&["stop", name, "--force"]);
        kill_process(keeper, Signal::CONT).expect("it is there");
        (waiting.join().expect("it ran"), forced)
    });
    assert_eq!(forced.status, 0, "{forced:?}");
    assert!(waiting.status == 0 && waiting.out.contains("may be lost"), "{waiting:?}");
    until("nothing is mounted", || !mounted.is_mounted());
    until("the device has no name", || fs::read_link(mounted.device()).is_err());
}

/// Any program may get the number of a device that is gone. Its bytes must not be reached by the array's name.
#[test]
fn the_device_and_its_name_outlive_the_process_that_keeps_them() {
    let Some(mounted) = Mounted::start("unkept", "loop") else { return };
    let device = fs::read_link(mounted.device()).expect("a link");
    let keeper = keeper_of(&mounted);
    kill_process(keeper, Signal::KILL).expect("it is there");
    until("it has ended", || {
        !fs::exists(format!("/proc/{}/fd/1", keeper.as_raw_pid())).is_ok_and(|is| is)
    });
    assert!(!is_attached_to_another_file(&mounted, &device), "the number is the array's still");
    let written = OpenOptions::new().write(true).open(mounted.device()).expect("a device");
    written.write_all_at(&[7; 4096], 0).expect("kept in memory");
    drop(written);
    mounted.mdspace.succeed(&["unserve", &mounted.name, "loop"]);
    assert!(fs::read_link(mounted.device()).is_err() && file_behind(&device).is_none());
    mounted.finish();
}

/// As a service manager does that loses its patience: then no process is left to take the name away.
#[test]
fn a_name_that_a_crash_left_leads_to_no_file_of_another_program() {
    let Some(mounted) = Mounted::start("lost", "loop") else { return };
    let device = fs::read_link(mounted.device()).expect("a link");
    kill_both(&mounted);
    assert_eq!(fs::read_link(mounted.device()).ok().as_ref(), Some(&device), "it was left");
    assert!(!is_attached_to_another_file(&mounted, &device), "who uses the name writes to it");
    // The next start takes name and device away from the dead.
    mounted.assemble("loop");
    let named = fs::read_link(mounted.device()).expect("a link");
    until("the old device is detached", || named == device || file_behind(&device).is_none());
    let mut read = [1; 4096];
    File::open(mounted.device()).expect("a device").read_exact_at(&mut read, 0).expect("read");
    mounted.mdspace.settle(&mounted.name);
    mounted.finish();
}

/// A crash may come when the device is attached and has no name yet.
#[test]
fn a_device_that_a_crash_left_without_a_name_is_taken_away_by_the_next_start() {
    let Some(mounted) = Mounted::start("nameless", "loop") else { return };
    let device = fs::read_link(mounted.device()).expect("a link");
    kill_both(&mounted);
    fs::remove_file(mounted.device()).expect("a link");
    // What another program has attached under the same name, and unmounted, stays.
    let foreign = Foreign::attach(&mounted);
    mounted.assemble("loop");
    let named = fs::read_link(mounted.device()).expect("a link");
    until("the old device is detached", || named == device || file_behind(&device).is_none());
    assert!(file_behind(&foreign.device).is_some(), "it is another program's");
    drop(foreign);
    mounted.mdspace.settle(&mounted.name);
    mounted.finish();
}

/// The kernel's path of a file that was unmounted has lost its beginning: it is that of this entry.
#[test]
fn an_array_with_the_name_of_an_entry_of_the_root_has_its_device_again_after_a_crash() {
    for (test, make) in [
        ("folder-of-root", (|place| fs::create_dir(place)) as fn(&Path) -> io::Result<()>),
        ("file-of-root", |place| File::create_new(place)?.set_len(MIB)),
    ] {
        let Some(mounted) = Mounted::start(test, "loop") else { return };
        let device = fs::read_link(mounted.device()).expect("a link");
        let _entry = EntryOfRoot::new(&mounted, make);
        kill_both(&mounted);
        mounted.assemble("loop");
        let named = fs::read_link(mounted.device()).expect("a link");
        until("the old device is detached", || named == device || file_behind(&device).is_none());
        mounted.mdspace.settle(&mounted.name);
        mounted.finish();
    }
}

/// An entry of the root directory that has the array's name.
struct EntryOfRoot(PathBuf);

impl EntryOfRoot {
    fn new(mounted: &Mounted, make: fn(&Path) -> io::Result<()>) -> Self {
        let place = Path::new("/").join(&mounted.name);
        make(&place).expect("nothing has that name");
        Self(place)
    }
}

impl Drop for EntryOfRoot {
    fn drop(&mut self) {
        let removed =
            if self.0.is_dir() { fs::remove_dir(&self.0) } else { fs::remove_file(&self.0) };
        removed.expect("it is there");
    }
}

/// Another program's loop device over a file of the array's name, on a file system that is unmounted.
struct Foreign {
    device: PathBuf,
}

impl Foreign {
    fn attach(mounted: &Mounted) -> Self {
        let place = mounted.images.folder().join("foreign");
        fs::create_dir(&place).expect("an empty folder");
        succeed("mount", &["-t", "tmpfs", "foreign", path_text(&place)]);
        let file = place.join(&mounted.name);
        File::create(&file).and_then(|file| file.set_len(MIB)).expect("room");
        let device = succeed("losetup", &["--find", "--show", path_text(&file)]);
        succeed("umount", &["--lazy", path_text(&place)]);
        Self { device: device.trim().into() }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} stays", self.device.display());
    }
}

/// Kills the array's process and the one that keeps its device, neither of which sees the other one's end.
fn kill_both(mounted: &Mounted) {
    let keeper = keeper_of(mounted);
    for process in mounted.mdspace.processes() {
        kill_process(process, Signal::STOP).expect("it is there");
    }
    kill_process(keeper, Signal::KILL).expect("it is there");
    let place = format!("/proc/{}/fd/1", keeper.as_raw_pid());
    until("the keeper has ended", || fs::read_link(&place).is_err());
    mounted.mdspace.kill();
}

/// Has another program attach a file to a device, if it may. What was attached is detached again.
fn is_attached_to_another_file(mounted: &Mounted, device: &Path) -> bool {
    let foreign = mounted.images.sparse("foreign", 1, MIB).remove(0);
    let attach = Command::new("losetup").args([device, &foreign]).output().expect("losetup runs");
    if attach.status.success() {
        succeed("losetup", &["--detach", path_text(device)]);
    }
    attach.status.success()
}

/// The file that is attached to a loop device.
fn file_behind(device: &Path) -> Option<String> {
    let name = device.file_name().expect("a name").to_str().expect("text");
    fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
}

/// A program that does not wait for its writes relies on this.
#[test]
fn what_could_not_be_written_back_is_told_when_the_device_is_taken_away() {
    let Some(mounted) = Mounted::start("unwritable", "loop") else { return };
    let device = OpenOptions::new().write(true).open(mounted.device()).expect("a device");
    device.write_all_at(&[9; 1 << 20], 0).expect("kept in memory");
    mounted.mdspace.succeed(&["readonly", &mounted.name]);
    drop(device);
    let taken = mounted.mdspace.run(&["unserve", &mounted.name, "loop"]);
    assert!(taken.status == 1 && taken.err.contains("could not write"), "{taken:?}");
    mounted.mdspace.succeed(&["readwrite", &mounted.name]);
    mounted.finish();
}

/// As a service manager does that loses its patience: then no process takes the name away.
#[test]
fn a_name_that_was_left_does_not_lead_to_the_device_of_another_array() {
    let Some(mounted) = Mounted::start("unnamed", "fuse:DIR") else { return };
    mounted.mdspace.succeed(&["serve", &mounted.name, "loop"]);
    let target = fs::read_link(mounted.device()).expect("a link");
    let left = mounted.device().with_extension("left");
    symlink(&target, &left).expect("a name");
    mounted.mdspace.succeed(&["unserve", &mounted.name, "loop"]);
    assert!(fs::symlink_metadata(&left).is_ok(), "it is not this array's");
    // The array of another test may get that device first: then that one removes the name.
    let is_an_arrays_again = |_| {
        mounted.mdspace.succeed(&["serve", &mounted.name, "loop"]);
        let is_it = fs::read_link(mounted.device()).expect("a link") == target;
        if !is_it {
            mounted.mdspace.succeed(&["unserve", &mounted.name, "loop"]);
        }
        is_it || fs::symlink_metadata(&left).is_err()
    };
    assert!((0..20).any(is_an_arrays_again), "{} is taken", target.display());
    let leads_here = fs::symlink_metadata(&left).is_ok();
    let _ = fs::remove_file(&left);
    assert!(!leads_here, "it leads to another array");
    mounted.finish();
}

/// Reads of a file of holes arrive at no front.
#[test]
fn an_array_does_not_take_a_file_of_a_file_system_on_itself() {
    let Some(mounted) = Mounted::start("within", "loop") else { return };
    let (device, place) = (mounted.device(), mounted.images.folder().join("place"));
    fs::create_dir(&place).expect("an empty folder");
    succeed("mkfs.ext4", &["-q", path_text(&device)]);
    succeed("mount", &[path_text(&device), path_text(&place)]);
    let file = place.join("file");
    let made = File::create(&file).and_then(|file| file.set_len(40 * MIB));
    let added = mounted.mdspace.run(&["add", &mounted.name, path_text(&file), "--run"]);
    succeed("umount", &[path_text(&place)]);
    made.expect("a file");
    assert!(added.status == 1 && added.err.contains("leads back"), "{added:?}");
    mounted.finish();
}

/// The process behind one member's file system stands still: an order about another member has nothing to ask there.
#[test]
fn orders_about_other_members_do_not_wait_for_one_whose_file_system_does_not_answer() {
    let Some(below) = Mounted::start("silent", "fuse:DIR") else { return };
    let top = Mdspace::new();
    let images = Images::new();
    let files = images.sparse("a", 3, 32 * MIB);
    let [a, c, d] = [0, 1, 2].map(|number: usize| path_text(&files[number]));
    let silent = below.file();
    let create = ["--level=1", "--raid-devices=3", "--assume-clean", "--run"];
    let mut words = vec!["create", "top"];
    words.extend(create);
    let serve = top.serve("top");
    words.extend([&*serve, a, path_text(&silent), c]);
    top.succeed(&words);
    top.succeed(&["set", "top", "write_deadline=1"]);
    top.succeed(&["fail", "top", c]);
    top.succeed(&["remove", "top", c]);
    let process = below.mdspace.report(&below.name)["pid"].as_i64().expect("a number");
    let process = Pid::from_raw(process as i32).expect("a process number");
    let mut client = top.connect("top");
    kill_process(process, Signal::STOP).expect("it is there");
    client.write(0, &[7; 4096]);
    until("it has failed", || top.value("top", "degraded") == "2");
    let other = images.sparse("other", 2, 32 * MIB);
    let create = "create other --level=1 --raid-devices=2 --assume-clean --run";
    let create = create.split(' ').chain(other.iter().map(|path| path_text(path))).collect();
    let orders = [vec!["re-add", "top", c], vec!["add", "top", d], create];
    let begin = std::time::Instant::now();
    let done = std::thread::scope(|scope| {
        let begun = orders.iter().map(|order| scope.spawn(|| top.run(order)));
        let begun: Vec<_> = begun.collect();
        let is_long = || begin.elapsed() > std::time::Duration::from_secs(40);
        while !begun.iter().all(|order| order.is_finished()) && !is_long() {
            std::thread::yield_now();
        }
        let ended: Vec<bool> = begun.iter().map(|order| order.is_finished()).collect();
        kill_process(process, Signal::CONT).expect("it is there");
        let done = begun.into_iter().map(|order| order.join().expect("it ran"));
        done.zip(ended).collect::<Vec<_>>()
    });
    for ((done, ended), order) in done.into_iter().zip(orders) {
        assert!(ended, "{order:?} waits for the silent one: {done:?}");
        assert_eq!(done.status, 0, "{order:?}: {done:?}");
    }
    drop(client);
    top.succeed(&["stop", "other"]);
    top.succeed(&["stop", "top", "--force"]);
    until("its device is free", || below.mdspace.run(&["stop", &below.name]).status == 0);
}

#[test]
fn a_device_whose_file_someone_has_unmounted_has_its_users_still() {
    let Some(mounted) = Mounted::start("bare", "loop") else { return };
    let place = mounted.mdspace.run_dir().join(format!("{}.mount", mounted.name));
    succeed("umount", &["--lazy", path_text(&place)]);
    let device = File::open(mounted.device()).expect("a device");
    let stopped = mounted.mdspace.run(&["stop", &mounted.name]);
    assert!(stopped.status == 1 && stopped.err.contains("process"), "{stopped:?}");
    drop(device);
    mounted.finish();
}

/// The kernel takes a file that is opened so for empty, and reads nothing of it any more.
#[test]
fn a_file_that_is_opened_to_be_emptied_is_read_through_its_device_still() {
    let Some(mounted) = Mounted::start("emptied", "loop") else { return };
    let file = mounted.mdspace.run_dir().join(format!("{0}.mount/{0}", mounted.name));
    let emptied = File::create(&file).expect("as on a device");
    let mut copy = Command::new("dd");
    copy.arg(format!("if={}", mounted.device().display())).args([
        "iflag=direct",
        "bs=4096",
        "count=1",
    ]);
    let copied = copy.output().expect("dd runs");
    assert!(copied.status.success() && copied.stdout.len() == 4096, "{copied:?}");
    let shorter = emptied.set_len(0).expect_err("a device keeps its size");
    assert_eq!(shorter.raw_os_error(), Some(1), "EPERM");
    drop(emptied);
    mounted.finish();
}

/// Each mount gets the whole of a block for what is written to a part of it.
#[test]
fn parts_of_one_block_are_written_through_two_mounts_at_once() {
    let Some(mounted) = Mounted::start("twice", "fuse:DIR") else { return };
    let second = mounted.images.folder().join("second");
    fs::create_dir(&second).expect("an empty folder");
    let front = format!("fuse:{}", second.display());
    mounted.mdspace.succeed(&["serve", &mounted.name, &front]);
    let paths = [mounted.file(), second.join(&mounted.name)];
    let files =
        paths.map(|path| OpenOptions::new().read(true).write(true).open(path).expect("a file"));
    for round in 0..2_000 {
        let byte = (round % 255 + 1) as u8;
        std::thread::scope(|scope| {
            for (file, at) in files.iter().zip([0, 100]) {
                scope.spawn(move || file.write_all_at(&[byte; 100], at).expect("written"));
            }
        });
        let mut read = [0; 200];
        files[0].read_exact_at(&mut read, 0).expect("read");
        assert_eq!(read, [byte; 200], "a write of round {round} is lost");
    }
    drop(files);
    mounted.mdspace.succeed(&["unserve", &mounted.name, &front]);
    mounted.finish();
}

/// What is written to a part of a block is written with what was read around it: that must not be older than a write
/// of the whole block that is answered meanwhile, nor than zeroes.
#[test]
fn a_whole_block_keeps_what_is_written_to_it_beside_a_part_of_it() {
    let Some(mounted) = Mounted::start("beside", "fuse:DIR") else { return };
    let file = OpenOptions::new().read(true).write(true).open(mounted.file()).expect("a file");
    beside_parts(&file, |byte| match byte {
        0 => punch(&file, 0, 4096),
        byte => file.write_all_at(&[byte; 4096], 0).expect("written"),
    });
    drop(file);
    mounted.finish();
}

#[test]
fn a_whole_block_keeps_what_a_client_of_nbd_writes_to_it_beside_a_part_of_it() {
    let Some(mounted) = Mounted::start("besidenbd", "fuse:DIR") else { return };
    let front = mounted.mdspace.serve(&mounted.name);
    let front = front.trim_start_matches("--serve=");
    mounted.mdspace.succeed(&["serve", &mounted.name, front]);
    let file = OpenOptions::new().read(true).write(true).open(mounted.file()).expect("a file");
    let client = Mutex::new(mounted.mdspace.connect(&mounted.name));
    let write = |byte| client.lock().expect("no writer fails").write(0, &[byte; 4096]);
    beside_parts(&file, write);
    drop((file, client));
    mounted.mdspace.succeed(&["unserve", &mounted.name, front]);
    mounted.finish();
}

/// Has a part of a block written beside all of it, again and again.
fn beside_parts(file: &File, write_whole: impl Fn(u8) + Sync) {
    for round in 0..2_000 {
        let (whole, part) = ((round % 2 * (round % 127 + 1)) as u8, (round % 127) as u8 | 128);
        std::thread::scope(|scope| {
            scope.spawn(|| file.write_all_at(&[part; 8], 100).expect("written"));
            scope.spawn(|| write_whole(whole));
        });
        let mut read = [0; 4096];
        file.read_exact_at(&mut read, 0).expect("read");
        let is_whole = |bytes: &[u8]| bytes.iter().all(|&found| found == whole);
        assert!(is_whole(&read[..100]) && is_whole(&read[108..]), "round {round} is lost");
        assert!(is_whole(&read[100..108]) || read[100..108] == [part; 8], "round {round}");
    }
}

#[test]
fn a_stop_is_refused_while_a_program_has_the_device_open() {
    let Some(mounted) = Mounted::start("held", "loop") else { return };
    let device = File::open(mounted.device()).expect("a device");
    let stopped = mounted.mdspace.run(&["stop", &mounted.name]);
    let own = format!("(process {})", std::process::id());
    assert!(stopped.status == 1 && stopped.err.contains(&own), "{stopped:?}");
    drop(device);
    mounted.finish();
}

/// A device is attached by the thread that was asked to, whichever that is: it is no client.
#[test]
fn a_device_that_was_asked_for_later_keeps_no_stop_waiting() {
    let Some(mounted) = Mounted::start("later", "fuse:DIR") else { return };
    mounted.mdspace.succeed(&["serve", &mounted.name, "loop"]);
    let fronts = &mounted.mdspace.report(&mounted.name)["fronts"];
    assert_eq!(fronts[1]["clients"].as_array().map(Vec::len), Some(0), "{fronts}");
    mounted.finish();
}

#[test]
fn an_array_that_is_read_only_is_a_read_only_device() {
    let Some(mounted) = Mounted::start("sealed", "loop") else { return };
    mounted.mdspace.succeed(&["stop", &mounted.name]);
    mounted.assemble("block --readonly");
    let device = fs::read_link(mounted.device()).expect("a link");
    assert_eq!(succeed("blockdev", &["--getro", path_text(&device)]).trim(), "1");
    mounted.mdspace.succeed(&["stop", &mounted.name]);
    mounted.assemble("loop");
    mounted.finish();
}

/// Of two mounts in one place the second hides the first, which nothing unmounts any more.
#[test]
fn of_many_that_mount_in_one_place_at_once_one_does() {
    let Some(mounted) = Mounted::start("once", "fuse:DIR") else { return };
    let place = mounted.images.folder().join("place");
    fs::create_dir(&place).expect("an empty folder");
    let front = format!("fuse:{}", path_text(&place));
    for _ in 0..20 {
        let served = std::thread::scope(|scope| {
            let serve = || mounted.mdspace.run(&["serve", &mounted.name, &front]).status == 0;
            let serving: Vec<_> = (0..6).map(|_| scope.spawn(serve)).collect();
            serving.into_iter().map(|one| one.join().expect("it ran")).filter(|&is| is).count()
        });
        assert_eq!((served, kinds_at(&place).len()), (1, 1));
        mounted.mdspace.succeed(&["unserve", &mounted.name, &front]);
        assert!(kinds_at(&place).is_empty());
    }
    mounted.finish();
}

#[test]
fn what_was_mounted_there_before_stays_and_nothing_stays_behind_a_link() {
    let Some(mounted) = Mounted::start("below", "loop") else { return };
    let (place, link) = (mounted.directory(), mounted.images.folder().join("link"));
    symlink(&place, &link).expect("a link");
    let (through_link, front) = (format!("fuse:{}", link.display()), mounted.serve("fuse:DIR"));
    let front = front.trim_start_matches("--serve=");
    mounted.mdspace.succeed(&["serve", &mounted.name, &through_link]);
    mounted.mdspace.succeed(&["unserve", &mounted.name, &through_link]);
    assert_eq!(kinds_at(&place), [""; 0]);
    succeed("mount", &["-t", "tmpfs", "none", path_text(&place)]);
    mounted.mdspace.succeed(&["serve", &mounted.name, front]);
    let both = kinds_at(&place);
    mounted.mdspace.succeed(&["unserve", &mounted.name, front]);
    let left = kinds_at(&place);
    // Somebody else takes the mount away, and has their own there.
    mounted.mdspace.succeed(&["serve", &mounted.name, front]);
    succeed("umount", &[path_text(&place)]);
    succeed("mount", &["-t", "ramfs", "none", path_text(&place)]);
    mounted.mdspace.succeed(&["unserve", &mounted.name, front]);
    let last = kinds_at(&place);
    for _ in &last {
        succeed("umount", &[path_text(&place)]);
    }
    assert_eq!(both, ["tmpfs", "fuse.mdspace"]);
    assert_eq!(left, ["tmpfs"]);
    assert_eq!(last, ["tmpfs", "ramfs"]);
    mounted.finish();
}

/// The kinds of the file systems that are mounted at a place, one over the other.
fn kinds_at(place: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("this is Linux");
    let kind = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let is_there = fields.next() == Some(path_text(place));
        is_there.then(|| fields.next().expect("a kind").to_owned())
    };
    mounts.lines().filter_map(kind).collect()
}

#[test]
fn a_front_that_only_reads_takes_no_writer() {
    let Some(mounted) = Mounted::start("readonly", "loop?ro") else { return };
    let switch = Path::new("/sys/block")
        .join(fs::read_link(mounted.device()).expect("a link").file_name().expect("a name"))
        .join("ro");
    assert_eq!(fs::read_to_string(switch).expect("a loop device").trim(), "1");
    mounted.mdspace.succeed(&["unserve", &mounted.name, "loop?ro"]);
    let front = format!("fuse:{}?ro", mounted.directory().display());
    mounted.mdspace.succeed(&["serve", &mounted.name, &front]);
    let refused = OpenOptions::new().write(true).open(mounted.file());
    assert!(refused.is_err(), "a writer was let in");
    mounted.finish();
}

#[test]
fn a_directory_that_cannot_be_mounted_on_is_refused_before_anything_is_made() {
    let Some(mounted) = Mounted::start("refused", "fuse:DIR") else { return };
    let members = mounted.images.sparse("other", 2, 8 * MIB);
    let folder = mounted.images.folder().display().to_string();
    for (front, why) in [
        (format!("fuse:{folder}/nothing"), "is no directory"),
        (format!("fuse:{folder}"), "is not empty"),
        (format!("fuse:{}", mounted.directory().display()), "is not empty"),
    ] {
        let serve = format!("--serve={front}");
        let mut words = vec!["create", "other", "--level=1", "--raid-devices=2", "--run", &serve];
        words.extend(members.iter().map(|path| path_text(path)));
        let done = mounted.mdspace.run(&words);
        assert!(done.status == 1 && done.err.contains(why), "{front}: {done:?}");
        let examined = mounted.mdspace.run(&["examine", path_text(&members[0])]);
        assert!(examined.status != 0, "a member was written to: {examined:?}");
    }
    mounted.finish();
}

/// `losetup --list` names the array's file: who looks finds what is behind a device.
#[test]
fn the_device_tells_what_is_behind_it() {
    let Some(mounted) = Mounted::start("tells", "loop") else { return };
    let device = fs::read_link(mounted.device()).expect("a link");
    let listed = Command::new("losetup").arg("--list").output().expect("losetup runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let is_ours = |line: &&str| line.starts_with(path_text(&device));
    let line = listed.lines().find(is_ours).unwrap_or_else(|| panic!("no device in {listed}"));
    assert!(line.contains(&mounted.name), "{line}");
    let front = &mounted.mdspace.report(&mounted.name)["fronts"][0];
    assert!(front["device"].as_str().is_some_and(|words| words.contains("/dev/mdspace/")));
    mounted.finish();
}
