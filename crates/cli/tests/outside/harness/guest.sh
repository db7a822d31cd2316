# What every guest script starts with: members over loop devices, and md's answers as words.
set -euo pipefail
trap 'echo "guest: line $LINENO failed: $BASH_COMMAND" >&2' ERR

# attach FILE... - puts the loop devices of the files in $LOOPS.
attach() {
  LOOPS=() ; local file
  for file in "$@"; do LOOPS+=("$(losetup --find --show "$file")"); done
}

# detach - gives back what attach took; every byte is in the files then.
detach() {
  local loop
  for loop in "${LOOPS[@]}"; do blockdev --flushbufs "$loop"; losetup --detach "$loop"; done
  LOOPS=()
}

md() { cat "/sys/block/$1/md/$2"; }

# settle MD - waits until resync and recovery are over.
settle() { mdadm --wait "/dev/$1" || true; [ "$(md "$1" sync_action)" = idle ]; }

# sectors_read MD - sectors that md has read from all members so far.
sectors_read() { member_stat "$1" 3; }
# sectors_written MD - the same for writes.
sectors_written() { member_stat "$1" 7; }
member_stat() {
  local slave sum=0 fields
  for slave in "/sys/block/$1/slaves/"*; do
    read -ra fields <"$slave/stat"; sum=$((sum + fields[$2 - 1]))
  done
  echo $sum
}

# check MD - has md read and compared everything; prints the sectors that differ. Fails unless the
# array is whole and the check ran to its end, having read all that members use.
check() {
  settle "$1"
  [ "$(md "$1" degraded)" = 0 ] || { echo "guest: $1 is degraded" >&2; return 1; }
  local before after all
  before=$(sectors_read "$1")
  echo check >"/sys/block/$1/md/sync_action"
  mdadm --wait "/dev/$1" || true
  [ "$(md "$1" sync_action)" = idle ]
  [ "$(md "$1" last_sync_action)" = check ]
  dmesg | grep -q "md: $1: data-check done" || { echo "guest: the check of $1 did not end" >&2; return 1; }
  after=$(sectors_read "$1")
  all=$((2 * $(md "$1" component_size) * $(md "$1" raid_disks)))
  [ $((after - before)) -ge "$all" ] ||
    { echo "guest: the check of $1 read $((after - before)) sectors of $all" >&2; return 1; }
  dmesg --clear
  md "$1" mismatch_cnt
}
