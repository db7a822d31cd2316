# What every guest script starts with: members over loop devices, and md's answers as words.
# A new process, even a subshell, is what costs time in this guest: builtins do what they can.
set -euo pipefail
set -E
trap 'echo "guest: failed: $BASH_COMMAND" >&2; tail -n 20 /run/quiet.log >&2' ERR
LOOPS=()
exec 9<> <(:)
export MDSPACE_RUN_DIR=/run/mdspace
# Where mdspace serves an array in the guest, and how clients find it.
FRONT=nbd:unix:/run/a.nbd URI='nbd+unix:///?socket=/run/a.nbd'

# quietly COMMAND... - its output is shown only when something fails.
quietly() { echo "+ $*" >>/run/quiet.log; "$@" >>/run/quiet.log 2>&1; }

# pause - lets a moment go by between two looks at a condition.
pause() { read -rt 0.01 -u 9 || true; }

# attach FILE... - adds the loop devices of the files to $LOOPS; the last one is also $NEW.
attach() {
  local file
  for file in "$@"; do NEW=$(losetup --find --show "$file"); LOOPS+=("$NEW"); done
}

# detach - gives back what attach took; every byte is in the files then.
detach() { blockdev --flushbufs "${LOOPS[@]}"; losetup --detach "${LOOPS[@]}"; LOOPS=(); }

# put MD FILE OFFSET BYTES - writes the first bytes of a file to an array.
put() {
  dd if="$2" of="/dev/$1" bs=1M seek="$3" count="$4" iflag=count_bytes,fullblock \
    oflag=direct,seek_bytes conv=notrunc status=none
}

# same MD FILE - whether an array holds exactly a file's bytes; read from the members, not the cache.
same() { dd if="/dev/$1" bs=1M iflag=direct status=none | cmp - "$2"; }

# md MD NAME - one of md's sysfs values.
md() { local value; read -r value <"/sys/block/$1/md/$2"; echo "$value"; }

# bytes MD - the size of an array.
bytes() { local sectors; read -r sectors <"/sys/block/$1/size"; echo $((sectors * 512)); }

# settle MD - waits until resync and recovery are over. md may say idle for a moment before it
# starts what it has to do, so only a lasting idle counts.
settle() {
  local quiet=0 action
  while [ $quiet -lt 4 ]; do
    read -r action <"/sys/block/$1/md/sync_action"
    if [ "$action" = idle ]; then quiet=$((quiet + 1)); else quiet=0; fi
    pause
  done
}

# whole MD - waits until no member is missing.
whole() {
  local missing=1
  until [ "$missing" = 0 ]; do pause; read -r missing <"/sys/block/$1/md/degraded"; done
  settle "$1"
}

# unmarked MD - waits until the bitmap marks nothing. md clears marks in three rounds, 5 s apart; the time
# is put back since md keeps it on the members, in whole seconds.
unmarked() {
  local members=("/sys/block/$1/slaves/"*)
  echo 0.1 >"/sys/block/$1/md/bitmap/time_base"
  until mdadm --examine-bitmap "/dev/${members[0]##*/}" | grep -q ' 0 dirty '; do sleep 0.1; done
  echo 5 >"/sys/block/$1/md/bitmap/time_base"
}

# stay_dirty MD - from now on a write leaves its marks: md neither calls the array clean nor clears
# the bitmap when it has been idle.
stay_dirty() { echo 1000 >"/sys/block/$1/md/safe_mode_delay"; echo 1000 >"/sys/block/$1/md/bitmap/time_base"; }

# count_reads DEVICE... - puts in $READS how many sectors have been read from devices so far.
count_reads() {
  local device fields; READS=0
  for device in "$@"; do
    read -ra fields <"/sys/class/block/${device##*/}/stat"; READS=$((READS + fields[2]))
  done
}

# redundant_sectors MD - sectors that a check must read: all that members use. RAID10 counts copies,
# since a last row need not be full; parity levels leave out what may be in the stripe cache.
redundant_sectors() {
  local layout cached
  if [ "$(md "$1" level)" = raid10 ]; then
    layout=$(md "$1" layout); layout=${layout%% *}
    echo $(($(bytes "$1") / 512 * (layout & 255) * (layout >> 8 & 255)))
  else
    cached=0; [ ! -e "/sys/block/$1/md/stripe_cache_size" ] || cached=$(md "$1" stripe_cache_size)
    echo $(((2 * $(md "$1" component_size) - 8 * cached) * $(md "$1" raid_disks)))
  fi
}

# check MD - has md read and compared everything; $MISMATCHES are the sectors that differ. Fails
# unless the array is whole and the check ran to its end, having read all that members use.
check() {
  local missing last before all members=("/sys/block/$1/slaves/"*)
  settle "$1"
  read -r missing <"/sys/block/$1/md/degraded"
  [ "$missing" = 0 ] || { echo "guest: $1 is degraded" >&2; return 1; }
  count_reads "${members[@]}"; before=$READS
  echo check >"/sys/block/$1/md/sync_action"
  settle "$1"
  read -r last <"/sys/block/$1/md/last_sync_action"; [ "$last" = check ]
  dmesg --read-clear | grep -q "md: $1: data-check done" ||
    { echo "guest: the check of $1 did not end" >&2; return 1; }
  count_reads "${members[@]}"; all=$(redundant_sectors "$1")
  [ $((READS - before)) -ge "$all" ] ||
    { echo "guest: the check of $1 read $((READS - before)) sectors of $all" >&2; return 1; }
  read -r MISMATCHES <"/sys/block/$1/md/mismatch_cnt"
}

# clean MD - whether a check counts nothing.
clean() {
  check "$1"
  [ "$MISMATCHES" = 0 ] || { echo "guest: the check of $1 counts $MISMATCHES" >&2; return 1; }
}

# our_put FILE - writes a whole file to the start of the array that mdspace serves.
our_put() { quietly nbdcopy --flush "$1" "$URI"; }

# our_same FILE [OFFSET [FILE OFFSET]...] - whether that array holds files' bytes at their offsets.
our_same() {
  quietly nbdcopy "$URI" /run/copy
  while [ $# -gt 0 ]; do
    cmp -n "$(stat -c %s "$1")" -i "${2:-0}:0" /run/copy "$1"
    shift; [ $# -eq 0 ] || shift
  done
}

# our_clean NAME - whether a check by mdspace counts nothing on a whole array.
our_clean() {
  quietly mdspace wait "$1" || true
  [ "$(mdspace get "$1" degraded)" = 0 ] || { echo "guest: $1 is degraded" >&2; return 1; }
  quietly mdspace action "$1" check --wait
  [ "$(mdspace get "$1" mismatch_cnt)" = 0 ]
}
