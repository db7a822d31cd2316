//! Guests whose disk is an array: a real kernel's driver, and our own, which lives on when the array's process dies.

use std::path::PathBuf;
use std::time::Duration;

use mdspace_front::vhost_user::client::{Ask, FrontEnd, Guest as Driver};
use rustix::process::{Signal, kill_process};

use crate::harness::{Guest, Images, MIB, Mdspace, path_text, until};

/// Nothing takes longer than this, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests at a time, one behind the other on the disk, and bytes of each.
const DEPTH: u16 = 64;
const BYTES: usize = 8 << 10;

/// A RAID6 of four files, as a guest's disk.
pub(crate) struct Served {
    pub(crate) mdspace: Mdspace,
    pub(crate) members: Vec<PathBuf>,
    _images: Images,
}

impl Served {
    pub(crate) fn start() -> Self {
        let (images, mdspace) = (Images::new(), Mdspace::new());
        let members = images.sparse("m", 4, 66 * MIB);
        let served = Self { mdspace, members, _images: images };
        served.run("create", &["--level=6", "--raid-devices=4", "--chunk=64", "--run"]);
        served
    }

    pub(crate) fn run(&self, verb: &str, options: &[&str]) {
        let front = format!("--serve=vhost-user:{}", self.socket().display());
        let mut arguments = vec![verb, "disk", &front];
        arguments.extend(options);
        arguments.extend(self.members.iter().map(|path| path_text(path)));
        self.mdspace.succeed(&arguments);
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.mdspace.run_dir().join("disk.vhost")
    }

    fn connect(&self, driver: Driver) -> FrontEnd {
        FrontEnd::start(&self.socket(), driver).expect("it is served")
    }
}

/// What slot `slot` writes in round `round`.
fn block(round: u8, slot: u16) -> Vec<u8> {
    let seed = usize::from(round) * 7 + usize::from(slot);
    (0..BYTES).map(|at| ((at + seed) * 31 % 251) as u8).collect()
}

fn sector(slot: u16) -> u64 {
    u64::from(slot) * (BYTES as u64 / 512)
}

#[test]
fn a_guest_that_reconnects_after_kills_and_a_restart_loses_no_request() {
    let served = Served::start();
    let mut front = served.connect(Driver::new(2).expect("a guest"));
    for round in 1..=5 {
        let processes = served.mdspace.processes();
        for slot in 0..DEPTH {
            let data = block(round, slot);
            front.guest().ask(usize::from(slot % 2), slot, Ask::Write(sector(slot), &data));
            (0..2).for_each(|ring| front.guest().kick(ring));
        }
        if round == 5 {
            served.mdspace.succeed(&["restart", "disk", "--force"]);
        } else {
            for process in &processes {
                // One that is gone already is what we want.
                let _ = kill_process(*process, Signal::KILL);
            }
            served.mdspace.kill();
            served.run("assemble", &[]);
        }
        front = served.connect(front.leave());
        // Each request is answered once, by the process before or by this one.
        let mut answered = vec![0; DEPTH.into()];
        for ring in 0..2 {
            for _ in 0..DEPTH / 2 {
                let (slot, status) = front.guest().wait(ring, PATIENCE).expect("an answer in time");
                assert_eq!(status, 0, "slot {slot}");
                answered[usize::from(slot)] += 1;
            }
            assert_eq!(front.guest().answer(ring), None);
        }
        assert!(answered.iter().all(|count| *count == 1), "{answered:?}");
        for slot in 0..DEPTH {
            front.guest().ask(0, slot, Ask::Read(sector(slot), BYTES));
        }
        front.guest().kick(0);
        for _ in 0..DEPTH {
            let (slot, status) = front.guest().wait(0, PATIENCE).expect("an answer in time");
            assert_eq!(status, 0);
            let read = front.guest().data(0, slot, BYTES);
            assert!(read == block(round, slot), "round {round} slot {slot}");
        }
    }
    drop(front);
    assert_eq!(served.mdspace.check("disk"), 0);
    served.mdspace.succeed(&["stop", "disk"]);
}

#[test]
fn an_array_with_a_guest_is_stopped_by_force_alone() {
    let served = Served::start();
    let front = served.connect(Driver::new(1).expect("a guest"));
    let report = served.mdspace.report("disk");
    let clients = report["fronts"][0]["clients"].as_array().expect("a list");
    assert_eq!(clients.len(), 1, "{report}");
    let at = format!("vhost-user:{}", served.socket().display());
    for arguments in [vec!["stop", "disk"], vec!["unserve", "disk", &at]] {
        let refused = served.mdspace.run(&arguments);
        assert_eq!(refused.status, 1, "{refused:#?}");
        assert!(refused.err.contains("process"), "it names who is connected: {refused:#?}");
    }
    let mut front = front;
    served.mdspace.succeed(&["unserve", "disk", &at, "--force"]);
    assert!(front.is_cut_off(PATIENCE));
    assert!(!served.socket().exists());
    let group = format!("{at}?mode=0660&ro");
    served.mdspace.succeed(&["serve", "disk", &group]);
    let mode = std::fs::metadata(served.socket()).expect("a socket");
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
    assert_eq!(mode & 0o777, 0o660);
    let mut front = served.connect(Driver::new(1).expect("a guest"));
    front.guest().ask(0, 0, Ask::Write(0, &[1; 512]));
    front.guest().kick(0);
    assert_eq!(front.guest().wait(0, PATIENCE), Some((0, 1)), "it may only read");
    served.mdspace.succeed(&["stop", "disk", "--force"]);
    assert!(front.is_cut_off(PATIENCE));
}

#[test]
fn a_kernel_makes_a_file_system_on_its_disk_and_finds_it_whole() {
    let served = Served::start();
    let outcome = Guest::new().vhost_user(&served.socket()).run(
        "until [ -b /dev/vda ]; do sleep 0.1; done
         [ $(cat /sys/block/vda/serial) = disk ]
         [ $(cat /sys/block/vda/queue/write_cache | tr -d ' ') = writeback ]
         [ $(cat /sys/block/vda/queue/minimum_io_size) = 65536 ]
         [ $(cat /sys/block/vda/queue/optimal_io_size) = 131072 ]
         [ $(cat /sys/block/vda/queue/physical_block_size) = 4096 ]
         mkfs.ext4 -q /dev/vda
         mkdir /mnt/disk
         mount -o discard /dev/vda /mnt/disk
         cp -r /usr/share/common-licenses /usr/share/perl* /mnt/disk/ || true
         dd if=/dev/urandom of=/mnt/disk/file bs=64k count=200 2>/dev/null
         (cd /mnt/disk && find . -type f | xargs md5sum) > /run/sums
         rm -r /mnt/disk/perl*
         grep -v perl /run/sums > /run/left
         fstrim /mnt/disk
         umount /mnt/disk
         mount /dev/vda /mnt/disk
         (cd /mnt/disk && md5sum --quiet -c /run/left)
         echo files $(wc -l < /run/left)
         umount /mnt/disk
         fsck.ext4 -fn /dev/vda",
    );
    assert_eq!(outcome.status, 0, "{}", outcome.printed);
    assert!(outcome.printed.contains("files "), "{}", outcome.printed);
    until("the guest has gone", || {
        let report = served.mdspace.report("disk");
        report["fronts"][0]["clients"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(served.mdspace.check("disk"), 0);
    served.mdspace.succeed(&["stop", "disk"]);
}
