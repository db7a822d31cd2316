//! A Debian with systemd, udev and mdadm that is installed, booted, cut off and booted again with an array of ours.

use std::path::PathBuf;

use crate::harness::{Guest, Images, MIB, Tools, path_text};
use crate::install::package;

/// A whole host: a disk with its system, and three for an array.
struct Host {
    images: Images,
    system: PathBuf,
    disks: Vec<PathBuf>,
}

impl Host {
    fn new() -> Self {
        let images = Images::new();
        let system = images.folder().join("system");
        Tools::find().copy_system_to(&system);
        let disks = images.sparse("disk", 3, 256 * MIB);
        package(images.folder());
        Self { images, system, disks }
    }

    /// From power on to power off, with these disks.
    fn boot_with(&self, disks: &[PathBuf], script: &str) -> String {
        let guest = Guest::system(&self.system).share(self.images.folder()).disks(disks);
        guest.succeed(&format!("{FUNCTIONS}\n{script}"))
    }

    fn boot(&self, script: &str) -> String {
        self.boot_with(&self.disks, script)
    }

    /// What mdadm calls the array's state by each of its members.
    fn states(&self) -> Vec<String> {
        let examine = |disk: &PathBuf| {
            let mut mdadm = Tools::find().command("mdadm");
            let output = mdadm.args(["--examine", path_text(disk)]).output().expect("mdadm runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let state = text.lines().find_map(|line| line.trim().strip_prefix("State : "));
            state.unwrap_or_else(|| panic!("no state: {text}")).to_owned()
        };
        self.disks.iter().map(examine).collect()
    }
}

const FUNCTIONS: &str = r#"
UNIT=mdspace@data
members() { echo /dev/disk/by-id/virtio-D{0,1,2}; }
# journal - what the array's unit has said since this boot. says PATTERN - whether that is in it.
journal() { journalctl --boot --unit $UNIT --output cat --no-pager; }
says() { journal >/run/journal; grep -q "$1" /run/journal; }
# The array came up by itself, its file system is mounted with all its data, and md has nothing.
came_back() {
  systemctl is-active --quiet $UNIT || { journal; return 1; }
  mountpoint -q /srv/data || { systemctl status srv-data.mount; return 1; }
  [ "$(readlink /dev/mdspace/data)" = "$(findmnt -n -o SOURCE /srv/data)" ]
  md5sum --quiet -c /root/sums
  ! grep ^md /proc/mdstat || return 1
}
# put FILE - what must be there after each boot.
put() {
  dd if=/dev/urandom of="/srv/data/$1" bs=1M count=8 status=none; sync
  md5sum "/srv/data/$1" >>/root/sums; sync
}"#;

/// As docs/admin.md has it: a new user's first array, in /etc/fstab.
const INSTALL: &str = r#"
# The initial RAM disk is made below, which takes minutes where the processor is emulated.
quietly dpkg --install --no-triggers $SHARE/mdspace_*.deb
echo nbd >/etc/modules-load.d/mdspace.conf; modprobe nbd
quietly mdspace create data --level=5 --raid-devices=3 --bitmap-chunk=1M --serve=block --save --run $(members)
systemctl is-active --quiet $UNIT
mdspace wait data
quietly mkfs.ext4 /dev/mdspace/data
mkdir /srv/data
# Longer than the usual 90 s, for the processor may be emulated.
options=nofail,x-systemd.requires=mdspace@data.service,x-systemd.device-timeout=10min
echo "/dev/mdspace/data /srv/data ext4 $options 0 2" >>/etc/fstab
systemctl daemon-reload
quietly systemctl enable $UNIT
mount /srv/data
put first
quietly update-initramfs -u
came_back"#;

/// While something is being written.
const CUT: &str = r#"
came_back
[ "$(readlink /dev/mdspace/data)" = /dev/nbd0 ]
[ "$(mdspace get data last_sync_action)" = idle ]
put second
dd if=/dev/urandom of=/srv/data/torn bs=64k count=400 oflag=direct status=none &
until [ -s /srv/data/torn ]; do pause; done
/run/crash"#;

const AFTER_CUT: &str = r#"
came_back
mdspace wait data
[ "$(mdspace get data last_sync_action)" = resync ]
# A resync of all would have read each disk from end to end.
count_reads "$(readlink -f /dev/disk/by-id/virtio-D1)"
[ $READS -gt 0 ] && [ $READS -lt $((128 << 11)) ] || { echo "$READS sectors were read"; exit 1; }
quietly mdspace action data check --wait
[ "$(mdspace get data mismatch_cnt)" = 0 ]
count_reads "$(readlink -f /dev/disk/by-id/virtio-D1)"; [ $READS -gt $((240 << 11)) ]"#;

/// A disk is missing after the reboot, and was not removed from the array.
const DEGRADED: &str = r#"
came_back
says 'data: waits for a member'
says 'data: starts without a member'
[ "$(mdspace get data degraded)" = 1 ]
mdspace events data >/run/events; grep -q DegradedArray /run/events
put third"#;

const RETURNED: &str = r#"
came_back
quietly mdspace add data /dev/disk/by-id/virtio-D2 --run
mdspace wait data
[ "$(mdspace get data degraded)" = 0 ]
quietly mdspace action data check --wait
[ "$(mdspace get data mismatch_cnt)" = 0 ]"#;

/// As docs/admin.md has it.
const RELEASE: &str = r#"
umount /srv/data
sed -i '\|/srv/data|d' /etc/fstab; systemctl daemon-reload
mdspace stop data
quietly mdspace release data
quietly systemctl disable $UNIT
quietly update-initramfs -u"#;

const MD_HAS_IT: &str = r#"
grep -q '^md.* active' /proc/mdstat || { cat /proc/mdstat; exit 1; }
if systemctl is-active $UNIT; then exit 1; fi
mount /dev/disk/by-id/md-name-*:data /srv/data
md5sum --quiet -c /root/sums
umount /srv/data"#;

#[test]
fn an_array_comes_back_with_its_file_system_after_reboots_and_is_mds_after_its_release() {
    let host = Host::new();
    host.boot(INSTALL);
    assert_eq!(host.states(), ["clean"; 3], "after a shutdown");
    host.boot(CUT);
    assert_eq!(host.states(), ["active"; 3], "after a power cut");
    host.boot(AFTER_CUT);
    assert_eq!(host.states(), ["clean"; 3], "after another shutdown");
    host.boot_with(&host.disks[..2], DEGRADED);
    host.boot(&format!("{RETURNED}\n{RELEASE}"));
    host.boot(MD_HAS_IT);
}
