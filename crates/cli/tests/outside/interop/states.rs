//! Arrays that one side leaves half done, and members that are special: both sides in one guest.

use crate::harness::{Guest, Images, MIB, Pattern, SECTOR};

/// Levels with their options, small enough that a guest does each in a second or two.
const LEVELS: [(&str, &str); 4] = [
    ("1", "--level=1 --raid-devices=4"),
    ("5", "--level=5 --raid-devices=4 --chunk=64"),
    ("6", "--level=6 --raid-devices=4 --chunk=64"),
    ("10", "--level=10 --raid-devices=4 --chunk=64"),
];

/// Options of arrays whose bitmap has many bits.
const SIZES: &str = "--run --size=8M --data-offset=1M --bitmap=internal --bitmap-chunk=64";

/// Runs a script for the levels whose turn it is in this test, and says how many they were: each level has
/// its turn in one test or another. With `MDSPACE_EVERY_LEVEL` all have it in every one.
fn for_levels_in_turn(turn: &[&str], script: &str) -> (usize, String) {
    let every: Vec<&str> = LEVELS.iter().map(|(level, _)| *level).collect();
    let all = std::env::var_os("MDSPACE_EVERY_LEVEL").is_some();
    let levels = if all { &every } else { turn };
    (levels.len(), for_levels(levels, script))
}

/// Runs a script for some levels; in it `$OPTIONS` are those of create, `$SHARE/one` and
/// `$SHARE/two` hold 2 and 1 MiB, and `fresh N` attaches N empty members.
pub(super) fn for_levels(levels: &[&str], script: &str) -> String {
    let images = Images::new();
    for (name, mib) in [("one", 2), ("two", 1)] {
        let seed = 50 + mib;
        Pattern { seed }.write_file(&images.folder().join(name), mib * MIB / SECTOR as u64, 1);
    }
    let prelude = "
        fresh() {
          local i
          for ((i = 0; i < $1; i++)); do
            rm -f $SHARE/m$i; truncate -s 12M $SHARE/m$i; attach $SHARE/m$i
          done
        }
        # md0 begins with one, and has two at 4 MiB.
        both() {
          dd if=/dev/md0 bs=1M count=2 iflag=direct status=none | cmp - $SHARE/one
          dd if=/dev/md0 bs=1M skip=4 count=1 iflag=direct status=none | cmp - $SHARE/two
        }
        our_both() { our_same $SHARE/one 0 $SHARE/two 4194304; }
        our_two_at_4m() {
          quietly qemu-io -f raw -c \"write -q -s $SHARE/two 4M 1M\" -c flush $URI
        }
        count_writes() {
          local fields; read -ra fields <\"/sys/class/block/${1##*/}/stat\"; WRITES=${fields[6]}
        }
    ";
    let steps: String = LEVELS
        .iter()
        .filter(|(level, _)| levels.contains(level))
        .map(|(level, options)| {
            format!("OPTIONS=\"{options} {SIZES}\"; echo level {level}\n{script}\n")
        })
        .collect();
    Guest::new().share(images.folder()).limit_s(200).succeed(&format!("{prelude}\n{steps}"))
}

#[test]
fn a_member_that_left_md_returns_to_mdspace_by_the_bitmap() {
    let (levels, printed) = for_levels_in_turn(
        &["6"],
        "fresh 4
         quietly mdadm --create /dev/md0 $OPTIONS \"${LOOPS[@]}\"
         settle md0; put md0 $SHARE/one 0 2097152; unmarked md0
         quietly mdadm --fail /dev/md0 ${LOOPS[1]} --remove ${LOOPS[1]}
         put md0 $SHARE/two 4194304 1048576
         quietly mdadm --stop /dev/md0
         quietly mdspace assemble a --serve=$FRONT ${LOOPS[0]} ${LOOPS[2]} ${LOOPS[3]}
         our_both
         count_writes ${LOOPS[1]}; before=$WRITES
         mdspace add a ${LOOPS[1]}
         quietly mdspace wait a || true
         count_writes ${LOOPS[1]}
         [ $((WRITES - before)) -lt 8192 ] || { echo \"all was written: $((WRITES - before))\"; exit 1; }
         our_both; our_clean a
         quietly mdspace stop a
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         both; clean md0; quietly mdadm --stop /dev/md0; detach",
    );
    assert_eq!(printed.matches("by the bitmap").count(), levels, "{printed}");
}

#[test]
fn a_member_that_left_mdspace_returns_to_md_by_the_bitmap() {
    for_levels_in_turn(
        &["5"],
        "fresh 4
         quietly mdspace create a $OPTIONS --serve=$FRONT \"${LOOPS[@]}\"
         quietly mdspace wait a || true
         our_put $SHARE/one
         quietly mdspace stop a
         quietly mdspace assemble a --serve=$FRONT \"${LOOPS[@]}\"
         quietly mdspace fail a ${LOOPS[1]}; quietly mdspace remove a ${LOOPS[1]}
         our_two_at_4m; our_both
         quietly mdspace stop a
         quietly mdadm --assemble /dev/md0 ${LOOPS[0]} ${LOOPS[2]} ${LOOPS[3]}
         both
         count_writes ${LOOPS[1]}; before=$WRITES
         quietly mdadm --re-add /dev/md0 ${LOOPS[1]}
         whole md0
         count_writes ${LOOPS[1]}
         [ $((WRITES - before)) -lt 8192 ] || { echo \"all was written: $((WRITES - before))\"; exit 1; }
         both; clean md0; quietly mdadm --stop /dev/md0; detach",
    );
}

#[test]
fn a_rebuild_that_one_side_began_is_finished_by_the_other() {
    for_levels_in_turn(
        &["1"],
        "fresh 5
         quietly mdadm --create /dev/md0 $OPTIONS ${LOOPS[@]:0:4}
         settle md0; put md0 $SHARE/one 0 2097152; put md0 $SHARE/two 4194304 1048576
         quietly mdadm --fail /dev/md0 ${LOOPS[2]} --remove ${LOOPS[2]}
         echo 100 >/sys/block/md0/md/sync_speed_min; echo 100 >/sys/block/md0/md/sync_speed_max
         quietly mdadm --add /dev/md0 ${LOOPS[4]}
         until [ \"$(md md0 sync_action)\" = recover ]; do pause; done
         quietly mdadm --stop /dev/md0
         MEMBERS=(${LOOPS[0]} ${LOOPS[1]} ${LOOPS[3]} ${LOOPS[4]})
         quietly mdspace assemble a --serve=$FRONT ${MEMBERS[@]}
         our_both; our_clean a; our_both

         quietly mdspace fail a ${LOOPS[0]}; quietly mdspace remove a ${LOOPS[0]}
         losetup --detach ${LOOPS[2]}; rm $SHARE/m2; truncate -s 12M $SHARE/m2; attach $SHARE/m2
         quietly mdspace add a $NEW
         quietly mdspace stop a
         unset 'LOOPS[2]'
         quietly mdadm --assemble /dev/md0 ${LOOPS[1]} ${LOOPS[3]} ${LOOPS[4]} $NEW
         both; whole md0; both; clean md0; quietly mdadm --stop /dev/md0; detach",
    );
}

#[test]
fn what_md_lists_as_bad_is_not_read_from_that_member() {
    for_levels_in_turn(
        &["10"],
        "fresh 4
         quietly mdadm --create /dev/md0 $OPTIONS \"${LOOPS[@]}\"
         settle md0; put md0 $SHARE/one 0 2097152; put md0 $SHARE/two 4194304 1048576
         member=${LOOPS[0]##*/}
         echo 2176 128 >/sys/block/md0/md/dev-$member/bad_blocks
         until grep -q . /sys/block/md0/md/dev-$member/bad_blocks; do pause; done
         quietly mdadm --stop /dev/md0
         mdadm --examine-badblocks ${LOOPS[0]} | grep -q 'for 128 sectors'
         # What is listed really is bad: without the list a reader would see it.
         dd if=/dev/urandom of=${LOOPS[0]} bs=512 seek=2176 count=128 oflag=direct status=none
         quietly mdspace assemble a --serve=$FRONT \"${LOOPS[@]}\"
         our_both
         quietly mdspace stop a; detach",
    );
}

/// A drive that neither gives some sectors nor takes them: error tables of the device mapper.
#[test]
fn what_mdspace_lists_as_bad_is_honoured_by_md_and_gone_when_it_is_written() {
    for_levels_in_turn(
        &["5"],
        "fresh 4
         modprobe dm-mod
         quietly mdspace create a $OPTIONS --serve=$FRONT \"${LOOPS[@]}\"
         our_put $SHARE/one; our_two_at_4m; quietly mdspace wait a || true
         quietly mdspace stop a
         sectors=$(blockdev --getsz ${LOOPS[0]})
         printf '%s\\n' \"0 2200 linear ${LOOPS[0]} 0\" '2200 8 error' \\
           \"2208 $((sectors - 2208)) linear ${LOOPS[0]} 2208\" | dmsetup create bad
         quietly mdspace assemble a --serve=$FRONT /dev/mapper/bad \"${LOOPS[@]:1}\"
         our_both; quietly mdspace action a repair --wait || true
         mdspace detail a --json | grep -q '\"bad_ranges\": *1'
         [ $(mdspace get a degraded) = 0 ]
         quietly mdspace stop a; dmsetup remove bad
         mdadm --examine-badblocks ${LOOPS[0]} | grep -q '2200 for 8 sectors'
         # What is listed really is bad: without the list a reader would see it.
         dd if=/dev/urandom of=${LOOPS[0]} bs=512 seek=2200 count=8 oflag=direct status=none
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         grep -qx '2200 8' /sys/block/md0/md/dev-${LOOPS[0]##*/}/bad_blocks
         both; quietly mdadm --stop /dev/md0
         quietly mdspace assemble a --serve=$FRONT \"${LOOPS[@]}\"
         our_both; our_put $SHARE/one; our_two_at_4m
         mdspace detail a --json | grep -q '\"bad_ranges\": *0'
         quietly mdspace stop a
         if mdadm --examine-badblocks ${LOOPS[0]} | grep -q sectors; then exit 1; fi
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         both; clean md0; quietly mdadm --stop /dev/md0; detach",
    );
}

#[test]
fn the_kernel_gets_no_member_that_mdspace_has_and_the_other_way_round() {
    for_levels(
        &["5"],
        "fresh 4
         quietly mdspace create a $OPTIONS --serve=$FRONT \"${LOOPS[@]}\"
         our_put $SHARE/one
         if mdadm --assemble /dev/md0 \"${LOOPS[@]}\" 2>/run/refused; then exit 1; fi
         grep -q -i busy /run/refused
         # What udev would run, and the file by which our rule prevents it.
         if mdadm --incremental ${LOOPS[0]} 2>/run/refused; then exit 1; fi
         our_same $SHARE/one
         [ -e $MDSPACE_RUN_DIR/by-uuid/$(blkid -p -s UUID -o value ${LOOPS[0]}) ]
         quietly mdspace stop a
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         if mdspace assemble a --serve=$FRONT \"${LOOPS[@]}\" 2>/run/refused; then exit 1; fi
         grep -q -i 'in use\\|busy\\|md0' /run/refused
         quietly mdadm --stop /dev/md0; detach",
    );
}

#[test]
fn members_are_found_among_the_block_devices_by_uuid_and_by_name() {
    for_levels(
        &["5"],
        "fresh 5
         quietly mdadm --create /dev/md0 $OPTIONS --name=home ${LOOPS[@]:0:4}
         settle md0; put md0 $SHARE/one 0 2097152
         uuid=$(mdadm --detail --export /dev/md0 | sed -n s/MD_UUID=//p)
         quietly mdadm --stop /dev/md0
         quietly mdspace assemble a --uuid=$uuid --serve=$FRONT
         our_same $SHARE/one; [ $(mdspace get a degraded) = 0 ]
         quietly mdspace stop a
         quietly mdspace assemble home --serve=$FRONT
         our_same $SHARE/one; [ $(mdspace get home degraded) = 0 ]
         quietly mdspace stop home
         if mdspace assemble other 2>/run/refused; then exit 1; fi
         grep -q 'no member of an array of that name' /run/refused
         detach",
    );
}

#[test]
fn a_member_with_blocks_of_4096_bytes_sets_the_arrays_block_on_both_sides() {
    for_levels(
        &["5", "10"],
        "fresh 4
         losetup --detach ${LOOPS[3]}
         LOOPS[3]=$(losetup --find --show --sector-size 4096 $SHARE/m3)
         quietly mdspace create a $OPTIONS --serve=$FRONT \"${LOOPS[@]}\"
         mdspace detail a --json | grep -q '\"logical_block_bytes\": *4096'
         our_put $SHARE/one; our_two_at_4m; our_both; our_clean a
         quietly mdspace stop a
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         both; clean md0; put md0 $SHARE/two 0 1048576; put md0 $SHARE/one 0 2097152
         quietly mdadm --stop /dev/md0
         quietly mdspace assemble a --serve=$FRONT \"${LOOPS[@]}\"
         our_both; our_clean a; quietly mdspace stop a; detach",
    );
}

#[test]
fn a_raid0_of_different_sizes_is_laid_out_alike() {
    let images = Images::new();
    for (name, mib) in [("m0", 4), ("m1", 7), ("m2", 12), ("m3", 12)] {
        let path = images.folder().join(name);
        std::fs::File::create(path).and_then(|file| file.set_len(mib * MIB)).expect("room");
    }
    Pattern { seed: 60 }.write_file(&images.folder().join("data"), 30 * MIB / SECTOR as u64, 1);
    Guest::new().share(images.folder()).succeed(
        "attach $SHARE/m{0,1,2,3}
         OPTIONS='--run --level=0 --raid-devices=4 --chunk=64 --data-offset=1M'
         quietly mdadm --create /dev/md0 $OPTIONS \"${LOOPS[@]}\"
         put md0 $SHARE/data 0 31457280; size=$(bytes md0)
         quietly mdadm --stop /dev/md0
         quietly mdspace assemble a --serve=$FRONT \"${LOOPS[@]}\"
         our_same $SHARE/data
         [ $(nbdinfo --size $URI) = $size ]
         quietly mdspace stop a
         quietly mdspace create a $OPTIONS --serve=$FRONT \"${LOOPS[@]}\"
         our_put $SHARE/data
         quietly mdspace stop a
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         [ $(bytes md0) = $size ]
         dd if=/dev/md0 bs=1M count=30 iflag=direct status=none | cmp - $SHARE/data
         quietly mdadm --stop /dev/md0; detach",
    );
}
