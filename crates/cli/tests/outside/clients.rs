//! The clients that users have, against an array: of NBD here, and of vhost-user.

mod fronts;
mod shared;
mod tls;
pub(crate) mod vhost_user;

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::harness::{Guest, Images, MIB, Mdspace, Pattern, SECTOR, Tools, path_text, until};

/// A RAID6 of four files, served over NBD.
struct Served {
    images: Images,
    mdspace: Mdspace,
    bytes: u64,
}

impl Served {
    fn start() -> Self {
        let images = Images::new();
        let mdspace = Mdspace::new();
        let members = images.sparse("m", 4, 18 * MIB);
        let serve = mdspace.serve("served");
        let mut arguments =
            vec!["create", "served", "--level=6", "--raid-devices=4", "--size=16M", "--chunk=64"];
        arguments.extend(["--run", &serve]);
        arguments.extend(members.iter().map(|path| path_text(path)));
        mdspace.succeed(&arguments);
        let bytes = mdspace.connect("served").bytes;
        assert_eq!(bytes, 32 * MIB);
        Self { images, mdspace, bytes }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.mdspace.socket("served").display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.images.folder().join(name)
    }

    /// Runs one of the clients to its end.
    fn client(&self, program: &str, arguments: &[&str]) -> Output {
        let folder = self.images.folder();
        Tools::find()
            .command(program)
            .args(arguments)
            .current_dir(folder)
            .output()
            .unwrap_or_else(|error| panic!("{program} starts: {error}"))
    }

    /// Runs a client that must succeed; returns what it printed.
    fn succeed(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.client(program, arguments);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {}\n{out}{err}", output.status);
        out
    }

    /// Checks, stops and asserts that both went well.
    fn finish(self) {
        assert_eq!(self.mdspace.check("served"), 0);
        self.mdspace.succeed(&["stop", "served"]);
    }
}

#[test]
fn nbdinfo_sees_the_size_and_what_the_front_can_do() {
    let served = Served::start();
    let printed = served.succeed("nbdinfo", &["--json", &served.uri()]);
    let info: serde_json::Value = serde_json::from_str(&printed).expect("nbdinfo prints JSON");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], served.bytes);
    assert_eq!(info["protocol"], "newstyle-fixed");
    assert_eq!(info["structured"], true, "structured replies in {printed}");
    let can = ["flush", "fua", "trim", "zero", "cache", "df", "multi_conn"]
        .map(|can| format!("can_{can}"));
    for key in can {
        assert_eq!(export[&key], true, "{key} in {printed}");
    }
    assert_eq!(export["is_read_only"], false, "{printed}");
    assert_eq!(export["contexts"][0], "base:allocation", "{printed}");
    assert_eq!(export["block_size_minimum"], 512, "{printed}");
    let map = served.succeed("nbdinfo", &["--map", "--json", &served.uri()]);
    let map: serde_json::Value = serde_json::from_str(&map).expect("nbdinfo prints JSON");
    let lengths = map.as_array().expect("a list").iter().map(|extent| extent["length"].as_u64());
    assert_eq!(lengths.sum::<Option<u64>>(), Some(served.bytes), "{map}");

    let serve = format!("nbd:unix:{}?ro", path_text(&served.file("ro")));
    served.mdspace.succeed(&["serve", "served", &serve]);
    let uri = format!("nbd+unix:///?socket={}", path_text(&served.file("ro")));
    let printed = served.succeed("nbdinfo", &["--json", &uri]);
    assert!(printed.contains("\"is_read_only\": true"), "{printed}");
    served.finish();
}

#[test]
fn nbdinfo_maps_what_is_degraded() {
    let served = Served::start();
    let uri = served.uri();
    // Offset, length and status of each range.
    let map = || {
        let arguments = ["--map=mdspace:redundancy", "--json", &uri];
        let printed = served.succeed("nbdinfo", &arguments);
        let map: serde_json::Value = serde_json::from_str(&printed).expect("nbdinfo prints JSON");
        let number = |extent: &serde_json::Value, key: &str| extent[key].as_u64();
        let extents = map.as_array().expect("a list").iter();
        let extents =
            extents.map(|it| (number(it, "offset"), number(it, "length"), number(it, "type")));
        extents.collect::<Vec<_>>()
    };
    let all = |status| [(Some(0), Some(served.bytes), Some(status))];
    let listed = served.succeed("nbdinfo", &["--json", &uri]);
    assert!(listed.contains("\"mdspace:redundancy\""), "{listed}");
    served.mdspace.settle("served");
    assert_eq!(map(), all(0));
    let member = served.file("m1");
    served.mdspace.succeed(&["fail", "served", path_text(&member)]);
    assert_eq!(map(), all(1), "degraded");
    served.mdspace.succeed(&["remove", "served", path_text(&member)]);
    // Member sectors: a quarter of each.
    served.mdspace.succeed(&["set", "served", "sync_max=8192"]);
    let new = served.images.sparse("new", 1, 18 * MIB);
    served.mdspace.succeed(&["add", "served", path_text(&new[0])]);
    until("the rebuild has come as far as it may", || map().len() == 2);
    let done = served.bytes / 4;
    until("its last step is told", || map()[0].1 == Some(done));
    let left = Some(served.bytes - done);
    assert_eq!(map()[..], [(Some(0), Some(done), Some(0)), (Some(done), left, Some(3))]);
    served.mdspace.succeed(&["set", "served", "sync_max=max"]);
    served.mdspace.settle("served");
    assert_eq!(map(), all(0));
    served.finish();
}

#[test]
fn nbdcopy_copies_both_ways() {
    let served = Served::start();
    let (there, back) = (served.file("there"), served.file("back"));
    Pattern { seed: 21 }.write_file(&there, served.bytes / SECTOR as u64, 1);
    let uri = served.uri();
    served.succeed("nbdcopy", &["--flush", "--connections=4", path_text(&there), &uri]);
    served.succeed("nbdcopy", &[&uri, path_text(&back)]);
    assert!(fs::read(there).expect("a file") == fs::read(back).expect("a file"), "copies differ");
    served.finish();
}

#[test]
fn fio_verifies_what_it_wrote_at_depth_and_notices_a_flipped_byte() {
    let served = Served::start();
    let uri = format!("--uri={}", served.uri());
    let job = |more: &[&str]| {
        let fixed = [
            "--name=job",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--bsrange=512-64k",
            "--iodepth=32",
            "--size=32M",
            "--randseed=7",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ];
        [&fixed, more].concat().iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>()
    };
    let run = |arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        served.client("fio", &arguments)
    };
    let written = run(job(&["--do_verify=1"]));
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stdout));

    let mut nbd = served.mdspace.connect("served");
    let mut sector = nbd.read(8 * MIB, SECTOR as u32);
    sector[100] ^= 1;
    nbd.write(8 * MIB, &sector);
    drop(nbd);
    let flipped = run(job(&["--verify_only=1"]));
    assert!(!flipped.status.success(), "fio must notice a flipped byte");
    served.finish();
}

#[test]
fn two_fio_connections_at_once_read_what_they_wrote() {
    let served = Served::start();
    let uri = format!("--uri={}", served.uri());
    served.succeed(
        "fio",
        &[
            "--name=two",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bs=4k",
            "--iodepth=16",
            "--numjobs=2",
            "--size=16M",
            "--offset_increment=16M",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--randseed=8",
            "--thread",
        ],
    );
    served.finish();
}

#[test]
fn qemu_io_reads_back_patterns_zeroes_and_discards() {
    let served = Served::start();
    let uri = served.uri();
    let commands = [
        "write -P 0xa5 0 4M",
        "write -P 0x5a 512 64k",
        "write -f -P 0x11 1000k 13k",
        "flush",
        "read -P 0xa5 0 512",
        "read -P 0x5a 512 64k",
        "read -P 0x11 1000k 13k",
        "write -z 2M 128k",
        "read -P 0 2M 128k",
        "read -P 0xa5 2176k 64k",
        "discard 3M 64k",
        "aio_write -P 0x77 5M 1M",
        "aio_write -P 0x78 6M 1M",
        "aio_flush",
        "read -P 0x77 5M 1M",
        "read -P 0x78 6M 1M",
    ];
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|&command| ["-c", command]));
    arguments.push(&uri);
    let printed = served.succeed("qemu-io", &arguments);
    assert!(!printed.contains("verification failed"), "{printed}");

    let wrong = served.client("qemu-io", &["-f", "raw", "-c", "read -P 0xee 0 512", &uri]);
    let wrong = String::from_utf8_lossy(&wrong.stdout).into_owned();
    assert!(wrong.contains("verification failed"), "qemu-io must notice a wrong byte: {wrong}");
    served.finish();
}

/// The kernel's own nbd driver, in a guest. Its process is killed, and later restarted, while a program writes to a mounted
/// file system; the next one goes on with the device, and the program notices nothing.
#[test]
fn a_file_system_on_a_device_of_the_nbd_driver_outlives_the_process_that_serves_it() {
    let images = Images::new();
    images.sparse("m", 4, 34 * MIB);
    Pattern { seed: 23 }.write_file(&images.folder().join("data"), 4 * MIB / SECTOR as u64, 1);
    let script = r#"
        modprobe nbd
        mkdir /run/mnt
        shape=(--level=5 --raid-devices=4 --size=32M --chunk=64 --run --force)
        serving() { mdspace detail a | sed -n 's/.*Served by : process \([0-9]*\).*/\1/p'; }
        assemble() { quietly mdspace assemble a --serve=nbd-device $SHARE/m{0,1,2,3}; }

        quietly mdspace create a "${shape[@]}" --serve=nbd-device $SHARE/m{0,1,2,3}
        quietly mkfs.ext4 /dev/mdspace/a
        device=$(readlink /dev/mdspace/a)
        longest() { cat /sys/block/${device#/dev/}/queue/$1_max_bytes; }
        [ "$(longest discard) $(longest write_zeroes)" = "$((64 << 20)) 0" ]
        # What was not answered is sent again at the end of this time: half a minute, if nothing is said.
        echo 2000 >/sys/block/${device#/dev/}/queue/io_timeout
        mount /dev/mdspace/a /run/mnt
        first=$(serving)
        write() {
          for i in "$@"; do dd if=$SHARE/data of=/run/mnt/$i bs=64k conv=fsync status=none; done &
          writer=$!
        }
        write 0 1 2 3 4 5 6 7 8 9
        until [ -e /run/mnt/2 ]; do pause; done
        kill -9 $first
        while [ -e /proc/$first/exe ]; do pause; done
        kill -0 $writer || { echo "nothing was under way"; exit 1; }

        assemble
        [ "$(serving)" != $first ]
        [ "$(readlink /dev/mdspace/a)" = $device ]
        wait $writer

        # A restart lets the same device wait, with its users.
        second=$(serving)
        write 10 11 12
        until [ -e /run/mnt/10 ]; do pause; done
        quietly mdspace restart a
        kill -0 $writer || { echo "nothing was under way"; exit 1; }
        [ "$(serving)" != $second ]
        [ "$(readlink /dev/mdspace/a)" = $device ]
        wait $writer
        status=0; mdspace stop a >/dev/null 2>&1 || status=$?
        [ $status = 1 ] || { echo "a stop of a mounted device: $status"; exit 1; }
        umount /run/mnt
        mount /dev/mdspace/a /run/mnt
        for i in 0 1 2 3 4 5 6 7 8 9 10 11 12; do cmp /run/mnt/$i $SHARE/data; done
        # The comparison notices a byte.
        printf x | dd of=/run/mnt/9 bs=1 seek=100000 conv=notrunc status=none
        ! cmp -s /run/mnt/9 $SHARE/data
        umount /run/mnt
        our_clean a

        quietly mdspace stop a
        [ ! -e /dev/mdspace/a ]
        [ ! -e /sys/block/${device#/dev/}/pid ] || { echo "$device stays"; exit 1; }
        assemble
        quietly fsck.ext4 -fn /dev/mdspace/a
        quietly mdspace stop a
    "#;
    Guest::new().share(images.folder()).limit_s(600).succeed(script);
}

/// A device of the nbd driver waits until its own array's start goes on with it, also one that fails; a device
/// of that number which another program has by now is left alone.
#[test]
fn a_device_of_the_nbd_driver_is_taken_away_by_its_own_array_alone() {
    let images = Images::new();
    images.sparse("m", 4, 34 * MIB);
    images.sparse("x", 1, 16 * MIB);
    let script = r#"
        modprobe nbd
        mkdir /run/mnt
        shape=(--level=1 --raid-devices=2 --size=32M --assume-clean --run --force)
        a() { mdspace "$1" a "${@:2}" --serve=nbd-device $SHARE/m{0,1}; }
        kill_a() {
          local first=$(mdspace detail a | sed -n 's/.*Served by : process \([0-9]*\).*/\1/p')
          kill -9 $first
          while [ -e /proc/$first/exe ]; do pause; done
        }
        goes_on() { [ "$(readlink /dev/mdspace/a)" = /dev/nbd0 ]; }

        # An operator disconnects it, and another program takes its number.
        quietly a create "${shape[@]}"
        goes_on
        quietly qemu-nbd --disconnect /dev/nbd0
        while [ -e /sys/block/nbd0/backend ]; do pause; done
        qemu-nbd --format=raw --connect=/dev/nbd0 $SHARE/x0 &
        until [ "$(cat /sys/block/nbd0/size)" = 32768 ]; do pause; done
        quietly mdspace unserve a nbd-device
        quietly mdspace stop a
        [ "$(cat /sys/block/nbd0/size)" = 32768 ] || { echo "another program's device is gone"; exit 1; }
        quietly qemu-nbd --disconnect /dev/nbd0
        wait

        # Another array takes no device away that waits, nor does its own, where only a loop device uses it.
        quietly a assemble
        quietly mkfs.ext4 /dev/mdspace/a
        user=$(losetup --find --show /dev/nbd0)
        kill_a
        quietly mdspace create b "${shape[@]}" --serve=nbd-device $SHARE/m{2,3}
        quietly mdspace stop b
        quietly mdspace assemble a $SHARE/m{0,1}
        quietly mdspace serve a nbd-device
        goes_on || { echo "/dev/nbd0 was disconnected"; exit 1; }
        losetup --detach $user

        # Nor does a start that fails.
        echo 2000 >/sys/block/nbd0/queue/io_timeout
        mount /dev/mdspace/a /run/mnt
        echo written >/run/mnt/file
        kill_a
        rm -f $MDSPACE_RUN_DIR/a.sock
        mkdir -p $MDSPACE_RUN_DIR/a.sock/in-the-way
        status=0; a assemble >/dev/null 2>&1 || status=$?
        [ $status = 1 ] || { echo "a start without its socket: $status"; exit 1; }
        rm -r $MDSPACE_RUN_DIR/a.sock
        quietly a assemble
        goes_on
        sync -f /run/mnt/file
        umount /run/mnt
        mount /dev/mdspace/a /run/mnt
        [ "$(cat /run/mnt/file)" = written ]
        umount /run/mnt
        quietly mdspace stop a
        [ ! -e /sys/block/nbd0/backend ] || { echo "/dev/nbd0 stays"; exit 1; }
    "#;
    Guest::new().share(images.folder()).limit_s(300).succeed(script);
}
