//! QEMU's front end and virtio-blk driver of a distribution's kernel, with an array as the disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use tempfile::TempDir;

use crate::clients::vhost_user::Served;
use crate::harness::{Guest, MIB, path_text, until};

/// Between two looks at what a guest has left for us.
const PAUSE: Duration = Duration::from_millis(50);

/// A guest that runs, and the folder in which it and the test leave each other files.
struct Running<'a> {
    guest: ScopedJoinHandle<'a, String>,
    folder: &'a Path,
}

impl Running<'_> {
    /// Waits until the guest has left a file.
    fn until(&self, name: &str) {
        while !self.folder.join(name).exists() {
            assert!(!self.guest.is_finished(), "the guest has ended before {name}");
            thread::sleep(PAUSE);
        }
    }

    /// Leaves a file for the guest.
    fn tell(&self, name: &str) {
        fs::write(self.folder.join(name), "").expect("a file in the shared folder");
    }
}

/// Runs a script in a guest whose disk is the array, and meanwhile what happens to the array.
fn meanwhile(served: &Served, script: &str, happens: impl FnOnce(&Running<'_>)) -> String {
    let folder = TempDir::new().expect("a temporary folder");
    let guest = Guest::qemu().share(folder.path()).vhost_user(&served.socket());
    let printed = thread::scope(|scope| {
        let guest = scope.spawn(|| guest.succeed(script));
        let running = Running { guest, folder: folder.path() };
        happens(&running);
        running.guest.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    until("the guest has gone", || {
        let report = served.mdspace.report("disk");
        report["fronts"][0]["clients"].as_array().is_some_and(Vec::is_empty)
    });
    printed
}

/// fio writes and verifies on both CPUs, and so by both queues, until the test says that all has happened.
const VERIFY: &str = r#"
disk=${U0#/dev/}
[ "$(ls /sys/block/$disk/mq | wc -l)" = 2 ]
quietly mkfs.ext4 "$U0"
mkdir -p /mnt/disk; mount "$U0" /mnt/disk
verify() {
  quietly fio --name=v --directory=/mnt/disk --size=4M --numjobs=2 --cpus_allowed=0,1 --cpus_allowed_policy=split \
    --ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-64k --iodepth=8 --verify=crc32c --verify_fatal=1 "$@"
}
round=0
until [ -e $SHARE/enough ]; do
  verify; round=$((round + 1)); : >$SHARE/round-$round
done
dmesg | grep -E 'I/O error|timed out|hung' && exit 1
# What is not as it was written is noticed.
verify --verify_only
dd if=/dev/zero of=/mnt/disk/v.0.0 bs=4096 seek=100 count=1 conv=notrunc oflag=direct status=none
verify --verify_only && exit 1
umount /mnt/disk
quietly fsck.ext4 -fn "$U0"
echo "rounds $round"
"#;

#[test]
fn a_virtual_machine_of_qemu_loses_no_request_to_kills_and_failed_members() {
    let served = Served::start();
    let member = path_text(&served.members[1]).to_owned();
    meanwhile(&served, VERIFY, |guest| {
        let kill = |options: &[&str]| {
            served.mdspace.kill();
            served.run("assemble", options);
        };
        guest.until("round-1");
        kill(&[]);
        guest.until("round-2");
        served.mdspace.succeed(&["fail", "disk", &member]);
        guest.until("round-3");
        // Dirty and degraded, as a crash leaves it.
        kill(&["--force"]);
        guest.until("round-4");
        served.mdspace.succeed(&["add", "disk", &member, "--run"]);
        served.mdspace.settle("disk");
        guest.until("round-5");
        kill(&[]);
        guest.until("round-6");
        guest.tell("enough");
    });
    assert_eq!(served.mdspace.check("disk"), 0);
    served.mdspace.succeed(&["stop", "disk"]);
}

#[test]
fn what_a_virtual_machine_discards_is_given_back_by_the_members() {
    let served = Served::start();
    let kept = || -> u64 {
        let blocks = |path: &std::path::PathBuf| fs::metadata(path).expect("a member").blocks();
        served.members.iter().map(blocks).sum::<u64>() * 512
    };
    let script = r#"
        dd if=/dev/urandom of="$U0" bs=1M count=32 oflag=direct status=none
        : >$SHARE/written; until [ -e $SHARE/seen ]; do pause; done
        blkdiscard "$U0"
        dd if="$U0" bs=1M count=32 iflag=direct status=none | cmp -n $((32 << 20)) - /dev/zero"#;
    let mut before = 0;
    meanwhile(&served, script, |guest| {
        guest.until("written");
        before = kept();
        guest.tell("seen");
    });
    let after = kept();
    // Two thirds of RAID6's 64 MiB, and what the first resync wrote besides.
    assert!(before >= 64 * MIB && after + 48 * MIB < before, "{before} bytes, then {after}");
    assert_eq!(served.mdspace.check("disk"), 0);
    served.mdspace.succeed(&["stop", "disk"]);
}
