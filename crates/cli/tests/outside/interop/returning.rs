//! Members that come back too late: the bitmap knows nothing any more of what they missed, so that all of
//! them must be written, whichever side they left and whichever they come back to.

use super::states::for_levels;

/// Another member had the place meanwhile, the array was whole, and the bitmap was cleared. Without the
/// last write md would keep no record of that, and take the member back itself with what is old.
#[test]
fn a_member_that_left_md_too_long_ago_gets_everything_from_mdspace() {
    let printed = for_levels(
        &["5"],
        "fresh 5
         quietly mdadm --create /dev/md0 $OPTIONS --delay=1 ${LOOPS[@]:0:4}
         settle md0; put md0 $SHARE/one 0 2097152; unmarked md0
         quietly mdadm --fail /dev/md0 ${LOOPS[1]} --remove ${LOOPS[1]}
         put md0 $SHARE/two 4194304 1048576
         quietly mdadm --add /dev/md0 ${LOOPS[4]}; whole md0
         put md0 $SHARE/two 4194304 4096; unmarked md0
         quietly mdadm --fail /dev/md0 ${LOOPS[4]} --remove ${LOOPS[4]}
         quietly mdadm --stop /dev/md0
         quietly mdspace assemble a --run --serve=$FRONT ${LOOPS[0]} ${LOOPS[2]} ${LOOPS[3]}
         our_both
         if mdspace re-add a ${LOOPS[1]} 2>/run/refused; then exit 1; fi; cat /run/refused
         count_writes ${LOOPS[1]}; before=$WRITES
         mdspace add a ${LOOPS[1]}
         quietly mdspace wait a || true
         count_writes ${LOOPS[1]}
         [ $((WRITES - before)) -ge 16384 ] || { echo \"only $((WRITES - before)) written\"; exit 1; }
         our_both; our_clean a
         quietly mdspace stop a
         quietly mdadm --assemble /dev/md0 ${LOOPS[@]:0:4}
         both; clean md0; quietly mdadm --stop /dev/md0; detach",
    );
    assert!(printed.contains("it left before the bitmap was last cleared"), "{printed}");
    assert!(printed.contains("added as a spare"), "{printed}");
}

#[test]
fn a_member_that_left_mdspace_too_long_ago_gets_everything_from_md() {
    for_levels(
        &["5"],
        "fresh 5
         quietly mdspace create a $OPTIONS --serve=$FRONT ${LOOPS[@]:0:4}
         quietly mdspace wait a || true
         our_put $SHARE/one
         unset_bits() { until [ \"$(mdspace detail a --json | grep -c '\"dirty_bits\": *0')\" = 1 ]; do pause; done; }
         unset_bits
         quietly mdspace fail a ${LOOPS[1]}; quietly mdspace remove a ${LOOPS[1]}
         our_two_at_4m
         quietly mdspace add a ${LOOPS[4]}; quietly mdspace wait a || true
         unset_bits
         quietly mdspace fail a ${LOOPS[4]}; quietly mdspace remove a ${LOOPS[4]}
         our_both
         quietly mdspace stop a
         quietly mdadm --assemble --run /dev/md0 ${LOOPS[0]} ${LOOPS[2]} ${LOOPS[3]}
         both
         count_writes ${LOOPS[1]}; before=$WRITES
         if quietly mdadm --re-add /dev/md0 ${LOOPS[1]}; then echo md took it back; exit 1; fi
         quietly mdadm --zero-superblock ${LOOPS[1]}
         quietly mdadm --add /dev/md0 ${LOOPS[1]}
         whole md0
         both; clean md0; quietly mdadm --stop /dev/md0; detach",
    );
}
