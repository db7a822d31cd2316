//! Write-behind: who is written mostly, and how much may be left behind there, is kept by both sides.

use super::states::for_levels;

/// The last of four mirrors is write-mostly.
const FUNCTIONS: &str = "
    # kept - whether the bitmap of each member says what was allowed, and the last one that it lags.
    kept() {
      local member
      for member in \"${LOOPS[@]}\"; do
        mdadm --examine-bitmap $member | grep -q 'write behind, max 77'
      done
      mdadm --examine ${LOOPS[3]} | grep -q 'write-mostly'
    }
    theirs() {
      [ $(md md0 bitmap/backlog) = 77 ]
      grep -q write_mostly /sys/block/md0/md/dev-${LOOPS[3]##*/}/state
    }
    ours() {
      mdspace detail a --json | grep -q '\"limit\": *77'
      mdspace detail a | grep -q \"writemostly.*${LOOPS[3]}\"
    }
";

fn with_functions(script: &str) {
    for_levels(&["1"], &format!("{FUNCTIONS}\nfresh 4\n{script}\ndetach"));
}

#[test]
fn what_md_may_leave_behind_mdspace_may_and_back() {
    with_functions(
        "quietly mdadm --create /dev/md0 $OPTIONS --write-behind=77 ${LOOPS[@]:0:3} \
           --write-mostly ${LOOPS[3]}
         settle md0; theirs
         put md0 $SHARE/one 0 2097152; put md0 $SHARE/two 4194304 1048576
         quietly mdadm --stop /dev/md0; kept
         quietly mdspace assemble a --serve=$FRONT \"${LOOPS[@]}\"
         ours; our_both; our_put $SHARE/one; our_two_at_4m; our_clean a
         quietly mdspace stop a; kept
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         theirs; both; clean md0; quietly mdadm --stop /dev/md0; kept",
    );
}

/// Without a bitmap nobody would know what a member lacks: neither side leaves anything behind then.
#[test]
fn what_mdspace_may_leave_behind_md_may_and_neither_without_a_bitmap() {
    with_functions(
        "if mdspace create a --run --level=1 --raid-devices=4 --size=8M --bitmap=none \
           --write-behind=77 --write-mostly=${LOOPS[3]} \"${LOOPS[@]}\" 2>/run/refused; then exit 1; fi
         grep -q 'write-behind needs' /run/refused
         quietly mdspace create a $OPTIONS --write-behind=77 --write-mostly=${LOOPS[3]} \
           --serve=$FRONT \"${LOOPS[@]}\"
         quietly mdspace wait a || true
         ours; our_put $SHARE/one; our_two_at_4m; quietly mdspace stop a; kept
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         theirs; both; clean md0
         quietly mdadm --grow /dev/md0 --bitmap=none
         quietly mdadm --stop /dev/md0
         quietly mdspace assemble a --serve=$FRONT \"${LOOPS[@]}\"
         mdspace detail a --json | grep -q '\"write_behind\": *null'
         our_both; our_clean a; quietly mdspace stop a",
    );
}

/// md answers while its write-mostly member, which stands still, has nothing of the write yet. The first
/// member is that one: the md of the guest leaves nothing behind on another.
#[test]
fn what_md_has_left_behind_has_landed_when_mdspace_comes() {
    for_levels(
        &["1"],
        "fresh 4; SECTORS=$(blockdev --getsz ${LOOPS[0]}); modprobe dm-mod
         echo \"0 $SECTORS linear ${LOOPS[0]} 0\" | dmsetup create slow
         MEMBERS=(/dev/mapper/slow ${LOOPS[@]:1})
         quietly mdadm --create /dev/md0 $OPTIONS --assume-clean ${MEMBERS[@]}
         for member in /sys/block/md0/md/dev-dm-*; do echo writemostly >$member/state; done
         stay_dirty md0; echo 77 >/sys/block/md0/md/bitmap/backlog
         # Marks every chunk that is written below: a mark is written to all members first.
         put md0 $SHARE/one 0 2097152; put md0 $SHARE/one 4194304 1048576
         dmsetup suspend --noflush --nolockfs slow
         put md0 $SHARE/two 4194304 1048576
         [ $(md md0 bitmap/max_backlog_used) -gt 0 ]
         landed() { dd if=${LOOPS[0]} bs=1M skip=5 count=1 iflag=direct status=none | cmp -s - $SHARE/two; }
         if landed; then exit 1; fi
         dmsetup resume slow
         quietly mdadm --stop /dev/md0; landed
         quietly mdspace assemble a --serve=$FRONT ${MEMBERS[@]}
         our_both; our_clean a; quietly mdspace stop a
         dmsetup remove slow; detach",
    );
}
