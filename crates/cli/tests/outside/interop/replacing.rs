//! Members that are replaced while they still work: what one side began the other finishes. Every level
//! has its turn in one test or another: each takes the guest a while.

use super::states::for_levels;

#[test]
fn a_replacement_that_md_began_is_finished_by_mdspace() {
    for_levels(
        &["5"],
        "fresh 5
         quietly mdadm --create /dev/md0 $OPTIONS ${LOOPS[@]:0:4}
         settle md0; put md0 $SHARE/one 0 2097152
         echo 100 >/sys/block/md0/md/sync_speed_min; echo 100 >/sys/block/md0/md/sync_speed_max
         quietly mdadm /dev/md0 --add ${LOOPS[4]}
         quietly mdadm /dev/md0 --replace ${LOOPS[1]} --with ${LOOPS[4]}
         until grep -q '(R)' /proc/mdstat && [ \"$(md md0 sync_action)\" = recover ]; do pause; done
         # What is written meanwhile goes to both.
         put md0 $SHARE/two 4194304 1048576
         mdadm --detail /dev/md0 | grep -q \"1 *spare rebuilding.*${LOOPS[4]}\"
         quietly mdadm --stop /dev/md0
         mdadm --examine ${LOOPS[4]} >/run/theirs; mdspace examine ${LOOPS[4]} >/run/ours
         grep -q 'Device Role : Replacement device 1' /run/theirs; grep -q 'AR' /run/theirs
         cmp /run/theirs <(head -n $(wc -l </run/theirs) /run/ours)
         quietly mdspace assemble a --serve=$FRONT \"${LOOPS[@]}\"
         [ $(mdspace get a degraded) = 0 ]
         our_both; quietly mdspace wait a || true; our_both
         mdspace detail a | grep -q \"1 *active sync.*${LOOPS[4]}\"
         mdspace detail a | grep -q \"faulty.*${LOOPS[1]}\"
         our_clean a; quietly mdspace stop a
         quietly mdadm --assemble /dev/md0 ${LOOPS[0]} ${LOOPS[2]} ${LOOPS[3]} ${LOOPS[4]}
         [ $(md md0 degraded) = 0 ]
         both; clean md0; quietly mdadm --stop /dev/md0; detach",
    );
}

/// Negative control: what is wrong on the member that took over is counted.
#[test]
fn a_replacement_that_mdspace_began_is_finished_by_md() {
    for_levels(
        &["1", "10"],
        "fresh 5
         quietly mdspace create a $OPTIONS --serve=$FRONT ${LOOPS[@]:0:4}
         quietly mdspace wait a || true
         our_put $SHARE/one
         quietly mdspace set a sync_speed_min=100; quietly mdspace set a sync_speed_max=100
         quietly mdspace replace a ${LOOPS[0]} --with ${LOOPS[4]}
         our_two_at_4m; our_both
         mdspace mdstat | grep -q '(R)'
         mdspace detail a | grep -q \"0 *spare rebuilding.*${LOOPS[4]}\"
         quietly mdspace stop a
         mdadm --examine ${LOOPS[4]} | grep -q 'Device Role : Replacement device 0'
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         [ $(md md0 degraded) = 0 ]
         both; settle md0; both
         mdadm --detail /dev/md0 | grep -q \"0 *active sync.*${LOOPS[4]}\"
         mdadm --detail /dev/md0 | grep -q \"faulty.*${LOOPS[0]}\"
         clean md0; quietly mdadm --stop /dev/md0
         quietly mdspace assemble a --serve=$FRONT \"${LOOPS[@]:1}\"
         our_both; our_clean a; quietly mdspace stop a
         printf 'wrong' | dd of=${LOOPS[4]} bs=1 seek=$((3 << 20)) conv=notrunc status=none
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]:1}\"
         check md0; [ $MISMATCHES -gt 0 ]
         quietly mdadm --stop /dev/md0; detach",
    );
}

/// The member that is being replaced is lost half-way: on the side that did not begin it.
#[test]
fn a_replacement_half_done_is_all_that_is_left_of_its_member() {
    for_levels(
        &["6"],
        "fresh 5
         quietly mdspace create a $OPTIONS --serve=$FRONT ${LOOPS[@]:0:4}
         quietly mdspace wait a || true
         our_put $SHARE/one; our_two_at_4m
         quietly mdspace set a sync_speed_min=100; quietly mdspace set a sync_speed_max=100
         quietly mdspace replace a ${LOOPS[2]} --with ${LOOPS[4]}
         mdspace mdstat | grep -q '(R)'
         quietly mdspace stop a
         MEMBERS=(${LOOPS[0]} ${LOOPS[1]} ${LOOPS[3]} ${LOOPS[4]})
         quietly mdadm --assemble --run /dev/md0 ${MEMBERS[@]}
         both; whole md0; both; clean md0
         echo 100 >/sys/block/md0/md/sync_speed_min; echo 100 >/sys/block/md0/md/sync_speed_max
         quietly mdadm /dev/md0 --add ${LOOPS[2]}
         quietly mdadm /dev/md0 --replace ${LOOPS[0]} --with ${LOOPS[2]}
         until grep -q '(R)' /proc/mdstat && [ \"$(md md0 sync_action)\" = recover ]; do pause; done
         quietly mdadm --stop /dev/md0
         if mdspace assemble a --serve=$FRONT \"${LOOPS[@]:1}\" 2>/run/refused; then exit 1; fi
         grep -q 'missing' /run/refused
         quietly mdspace assemble a --run --serve=$FRONT \"${LOOPS[@]:1}\"
         our_both; our_clean a; our_both
         quietly mdspace stop a; detach",
    );
}
