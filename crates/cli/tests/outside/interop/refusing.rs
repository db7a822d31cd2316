//! A member that takes some sectors no more: the kernel's device mapper answers them with an error.

use super::states::for_levels;

/// What it refuses is on its log when the write is answered, it keeps its place, and md honours the log.
#[test]
fn what_a_real_member_refuses_is_listed_and_md_reads_it_elsewhere() {
    let printed = for_levels(
        &["5"],
        "fresh 4; SECTORS=$(blockdev --getsz ${LOOPS[3]})
         dmsetup create bad <<END
0 6400 linear ${LOOPS[3]} 0
6400 8 error
6408 $((SECTORS - 6408)) linear ${LOOPS[3]} 6408
END
         BAD=/dev/mapper/bad; MEMBERS=(${LOOPS[@]:0:3} $BAD)
         quietly mdspace create a $OPTIONS --assume-clean --serve=$FRONT ${MEMBERS[@]}
         our_put $SHARE/one; our_two_at_4m; our_both
         # What comes there is parity or data: rows are written whole.
         quietly qemu-io -f raw -c 'write -q -P 7 5M 3M' -c flush $URI
         our_both
         [ $(mdspace get a degraded) = 0 ]
         mdspace detail a --json | grep -o '\"want_replacement\"'
         quietly mdspace stop a
         mdadm --examine-badblocks $BAD
         quietly mdadm --assemble /dev/md0 ${MEMBERS[@]}
         [ $(md md0 degraded) = 0 ]
         both
         quietly mdadm --stop /dev/md0; quietly dmsetup remove bad; detach",
    );
    assert!(printed.contains("want_replacement"), "{printed}");
    assert!(printed.contains("6400 for 8 sectors"), "{printed}");
}
