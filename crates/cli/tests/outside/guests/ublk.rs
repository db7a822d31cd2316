//! Arrays as devices of the ublk driver, which the kernels of most hosts have and User-Mode Linux lacks.

use crate::harness::{Guest, Images, MIB};

/// What the scripts below begin with: members at `$SHARE`, and fio's verification of what it has written.
const FUNCTIONS: &str = r#"
modprobe ublk_drv
mkdir -p /run/mnt /run/m
cd /run/m
# On a file system that gives room back, as 9p does not.
members() { truncate -s "$1" m{0,1,2,3,4}; }
serving() { mdspace detail "$1" --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1; }
fio_verify() {
  quietly fio --name=v --filename="$1" --size="$2" --rw=randwrite --bs=4k-64k --iodepth=16 --direct=1 \
    --verify=crc32c --verify_fatal=1 --eta=never "${@:3}"
}
# An emulated processor that others use, too, may take longer than a stop waits for the device's answer.
stops() { quietly mdspace stop "$1" || quietly mdspace stop "$1" || quietly mdspace stop "$1"; }
kill_process() {
  local first=$(serving "$1")
  kill -9 $first
  while [ -e /proc/$first/exe ]; do pause; done
}
# Nothing of the driver's is left, nor any name.
none_left() {
  local left; left=$(ls /dev | grep 'ublk[bc]' || true)
  [ -z "$left" ] || { echo "$left is left"; return 1; }
  [ -z "$(ls /dev/mdspace)" ] || { ls -l /dev/mdspace; return 1; }
}
"#;

fn in_guest(script: &str) {
    let images = Images::new();
    images.sparse("m", 5, 34 * MIB);
    let script = format!("{FUNCTIONS}\n{script}");
    Guest::qemu().share(images.folder()).succeed(&script);
}

/// The kernel has the array's shape; fio finds what it wrote while a member fails and another one is filled; ranges are
/// given up and zeroed; and nothing is left at the end.
#[test]
fn a_file_system_on_a_ublk_device_keeps_what_fio_verifies_while_a_member_fails() {
    in_guest(
        r#"
        members 40M
        quietly mdspace create a --level=6 --raid-devices=4 --chunk=64 --lanes=2 --run --serve=ublk m{0,1,2,3}
        device=$(readlink /dev/mdspace/a)
        told() { cat /sys/block/${device#/dev/}/$1; }
        [ "$(told queue/minimum_io_size) $(told queue/optimal_io_size)" = '65536 131072' ]
        [ "$(told queue/logical_block_size) $(told queue/physical_block_size)" = '512 4096' ]
        [ "$(told queue/write_cache) $(told queue/fua) $(told ro)" = 'write back 1 0' ]
        [ "$(told queue/discard_granularity) $(told queue/discard_max_bytes)" = "131072 $((64 << 20))" ]
        [ "$(told queue/write_zeroes_max_bytes)" = $((64 << 20)) ]
        [ "$(ls /sys/block/${device#/dev/}/mq | wc -l)" = 2 ]
        mdspace detail a | grep -q 'Device : /dev/mdspace/a (/dev/ublkb'

        quietly mkfs.ext4 /dev/mdspace/a
        mount /dev/mdspace/a /run/mnt
        status=0; mdspace stop a >/dev/null 2>&1 || status=$?
        [ $status = 1 ] || { echo "a stop of a mounted device: $status"; exit 1; }

        fio_verify /run/mnt/one 12M --ioengine=io_uring --loops=8 & first=$!
        fio_verify /run/mnt/two 12M --ioengine=libaio --loops=8 & second=$!
        sleep 1
        quietly mdspace fail a m1
        quietly mdspace remove a m1
        quietly mdspace add a m4
        kill -0 $first $second || { echo "nothing was under way"; exit 1; }
        wait $first
        wait $second
        # What verifies notices a byte.
        printf x | dd of=/run/mnt/one bs=1 seek=100000 conv=notrunc status=none
        ! fio_verify /run/mnt/one 12M --ioengine=io_uring --verify_only 2>/dev/null
        rm /run/mnt/one
        quietly fstrim /run/mnt
        umount /run/mnt
        quietly fsck.ext4 -fn /dev/mdspace/a
        our_clean a

        # What is given up or zeroed reads as zeroes, and what is beside that stays.
        dd if=/dev/urandom of=/run/random bs=1M count=16 status=none
        dd if=/run/random of=/dev/mdspace/a bs=1M oflag=direct status=none
        same_from() { cmp -i "$1" -n "$2" /run/random /dev/mdspace/a; }
        zeroes() { dd if=/dev/mdspace/a iflag=direct,skip_bytes,count_bytes bs=4k skip=$1 count=$2 status=none | cmp -n $2 - /dev/zero; }
        M=$((1 << 20))
        blkdiscard -o $((4 * M)) -l $((2 * M)) /dev/mdspace/a
        blkdiscard -z -o $((9 * M + 4096)) -l $M /dev/mdspace/a
        zeroes $((4 * M)) $((2 * M))
        zeroes $((9 * M + 4096)) $M
        same_from 0 $((4 * M))
        same_from $((6 * M)) $((3 * M + 4096))
        same_from $((10 * M + 4096)) $((6 * M - 4096))
        ! cmp -s -n $((16 * M)) /run/random /dev/mdspace/a
        our_clean a

        # What the kernel holds back is written before the device goes.
        dd if=/run/random of=/dev/mdspace/a bs=1M status=none
        stops a
        none_left
        quietly mdspace assemble a --serve=ublk m{0,2,3,4}
        cmp -n $((16 * M)) /run/random /dev/mdspace/a

        # An idle front does nothing.
        process=$(serving a)
        at() { local fields; read -ra fields </proc/$process/stat; echo $((fields[13] + fields[14])); }
        sleep 1; before=$(at); sleep 4
        [ $(($(at) - before)) -lt 40 ] || { echo "an idle front took $(($(at) - before)) ticks of 400"; exit 1; }
        stops a
        none_left
        "#,
    );
}

/// A mounted file system goes on after kills, also when every entry of the driver was under way, and through a restart.
#[test]
fn a_file_system_on_a_ublk_device_outlives_the_process_that_serves_it() {
    in_guest(
        r#"
        members 40M
        assemble() { quietly mdspace assemble a --serve=block m{0,1,2,3}; }
        mdspace create a --level=5 --raid-devices=4 --chunk=64 --lanes=2 --run --serve=block m{0,1,2,3} |
          grep -q "a device of the kernel's ublk driver"
        device=$(readlink /dev/mdspace/a)
        quietly mkfs.ext4 /dev/mdspace/a
        mount /dev/mdspace/a /run/mnt
        for kill in 1 2 3; do
          first=$(serving a)
          fio_verify /run/mnt/file 16M --ioengine=io_uring --loops=3 & writer=$!
          sleep 1
          kill_process a
          kill -0 $writer || { echo "nothing was under way"; exit 1; }
          assemble
          [ "$(serving a)" != $first ]
          [ "$(readlink /dev/mdspace/a)" = $device ]
          wait $writer
        done

        # A restart keeps it, with its users.
        fio_verify /run/mnt/file 16M --ioengine=libaio --loops=3 & writer=$!
        sleep 1
        first=$(serving a)
        quietly mdspace restart a
        kill -0 $writer || { echo "nothing was under way"; exit 1; }
        [ "$(serving a)" != $first ]
        [ "$(readlink /dev/mdspace/a)" = $device ]
        wait $writer
        umount /run/mnt
        quietly fsck.ext4 -fn /dev/mdspace/a
        our_clean a

        # Every entry of the driver is under way, and none has come to the process that is killed.
        first=$(serving a)
        kill -STOP $first
        fio_verify $device 40M --ioengine=libaio --iodepth=600 --bs=4k --io_size=4M & writer=$!
        until read -r reads writes </sys/block/${device#/dev/}/inflight && [ $writes -ge 256 ]; do pause; done
        kill -9 $first
        begin=$SECONDS
        assemble
        [ $((SECONDS - begin)) -lt 25 ] || { echo "it goes on after $((SECONDS - begin)) s"; exit 1; }
        wait $writer
        our_clean a
        stops a
        none_left
        # The kernel found nothing to warn of.
        ! dmesg | grep -E 'WARNING|BUG|Oops' || exit 1
        "#,
    );
}

/// A device waits until its own array's start goes on with it. One of that number which is another's by now is left alone,
/// and so is one of an array of the same name.
#[test]
fn a_ublk_device_is_taken_away_by_its_own_array_alone() {
    in_guest(
        r#"
        members 40M
        shape=(--level=1 --raid-devices=2 --assume-clean --run)
        a() { quietly mdspace "$1" a "${@:2}" --serve=ublk m{0,1}; }
        a create "${shape[@]}"
        quietly mkfs.ext4 /dev/mdspace/a
        mount /dev/mdspace/a /run/mnt
        echo written >/run/mnt/file
        kill_process a

        # Another array of the same name has another device, and takes the name alone.
        quietly mdspace create a "${shape[@]}" --serve=ublk m{2,3}
        [ "$(readlink /dev/mdspace/a)" = /dev/ublkb1 ]
        stops a
        [ -e /dev/ublkb0 ] && [ ! -e /dev/ublkb1 ]

        # Its own array says that it is in use where it is served in another way, and goes on with it then.
        mdspace assemble a --serve=nbd:unix:/run/a.sock m{0,1} | grep -q '/dev/ublkb0 was left by a crash, and is in use'
        quietly mdspace serve a ublk
        [ "$(readlink /dev/mdspace/a)" = /dev/ublkb0 ]
        [ "$(cat /run/mnt/file)" = written ]
        umount /run/mnt

        # A start that fails lets it wait.
        kill_process a
        rm -f $MDSPACE_RUN_DIR/a.sock
        mkdir -p $MDSPACE_RUN_DIR/a.sock/in-the-way
        ! a assemble 2>/dev/null
        [ -e /dev/ublkb0 ]
        rm -r $MDSPACE_RUN_DIR/a.sock
        a assemble
        [ "$(readlink /dev/mdspace/a)" = /dev/ublkb0 ]

        # A start in another way removes an unused device.
        kill_process a
        quietly mdspace assemble a --serve=nbd:unix:/run/a.sock m{0,1}
        [ ! -e /dev/ublkb0 ] && [ ! -e /dev/ublkc0 ]
        stops a

        # An operator deletes it, and another array takes its number.
        a assemble
        kill_process a
        rmmod ublk_drv
        modprobe ublk_drv
        quietly mdspace create b "${shape[@]}" --serve=ublk m{2,3}
        [ "$(readlink /dev/mdspace/b)" = /dev/ublkb0 ]
        kill_process b
        a assemble
        [ "$(readlink /dev/mdspace/a)" = /dev/ublkb1 ]
        stops a
        [ -e /dev/ublkb0 ] || { echo "another array's device is gone"; exit 1; }
        quietly mdspace assemble b --serve=ublk m{2,3}
        [ "$(readlink /dev/mdspace/b)" = /dev/ublkb0 ]
        stops b
        none_left

        # Kills at any moment of a start leave nothing that the next start does not take away or go on with.
        for delay in 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0; do
          mdspace assemble a --foreground --serve=ublk m{0,1} >/dev/null 2>&1 & starting=$!
          read -rt $delay -u 9 || true
          kill -9 $starting
          wait $starting || true
        done
        a assemble
        stops a
        none_left

        # A multipath device has one, too.
        table='0 81920 multipath 0 0 1 1 round-robin 0 1 0 ./m4'
        x() { quietly mdspace multipath x --dm-table="$table" --serve=ublk; }
        x
        dd if=/dev/urandom of=/run/random bs=1M count=4 status=none
        dd if=/run/random of=/dev/mdspace/x bs=1M oflag=direct status=none
        device=$(readlink /dev/mdspace/x)
        dd if=/dev/mdspace/x of=/run/read bs=1M count=4 iflag=direct status=none
        kill_process x
        x
        [ "$(readlink /dev/mdspace/x)" = $device ]
        cmp -n $((4 << 20)) /run/random /dev/mdspace/x
        stops x
        none_left
        "#,
    );
}

/// What is missing is named, with the command that gives it; rights and `ro` hold; by force it goes while it is mounted.
#[test]
fn what_a_ublk_device_needs_is_named_and_its_node_has_the_rights_that_were_asked_for() {
    in_guest(
        r#"
        members 40M
        mdspace doctor | grep -q "^ublk *ok"
        quietly mdspace create a --level=5 --raid-devices=3 --lanes=1 --run '--serve=ublk?mode=0640&group=games' m{0,1,2}
        node() { stat -c '%a %U %G' /dev/ublkb0; }
        [ "$(node)" = '640 root games' ]
        # As udev does it when a program has closed the device.
        chmod 600 /dev/ublkb0; chgrp disk /dev/ublkb0
        for _ in $(seq 300); do [ "$(node)" != '640 root games' ] || break; pause; done
        [ "$(node)" = '640 root games' ] || { node; exit 1; }
        quietly mdspace unserve a ublk
        none_left
        quietly mdspace serve a 'ublk?ro'
        [ "$(cat /sys/block/ublkb0/ro)" = 1 ]
        ! dd if=/dev/zero of=/dev/ublkb0 bs=4k count=1 oflag=direct status=none 2>/dev/null
        quietly mdspace unserve a ublk

        quietly mdspace serve a ublk
        quietly mkfs.ext4 /dev/mdspace/a
        mount /dev/mdspace/a /run/mnt
        dd if=/dev/urandom of=/run/random bs=1M count=8 status=none
        cp /run/random /run/mnt/file
        quietly mdspace stop --force a
        none_left
        umount /run/mnt
        quietly mdspace assemble a --serve=ublk m{0,1,2}
        mount /dev/mdspace/a /run/mnt
        cmp /run/random /run/mnt/file
        umount /run/mnt
        stops a

        refused() { ! mdspace assemble a --serve=ublk m{0,1,2} >/run/said 2>&1 && grep -q "$1" /run/said || { cat /run/said; return 1; }; }
        echo 2 >/proc/sys/kernel/io_uring_disabled
        refused 'io_uring_disabled=0'
        echo 0 >/proc/sys/kernel/io_uring_disabled
        rmmod ublk_drv
        refused 'modprobe ublk_drv'
        mdspace doctor | grep -A1 '^ublk *missing' | grep -q 'modprobe ublk_drv'
        "#,
    );
}
