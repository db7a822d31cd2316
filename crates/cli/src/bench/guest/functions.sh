# Linux md over RAM disks, measured by fio. Prints a line a result:
#   load NAME|raw|IOPS        load NAME|md|IOPS        sync NAME|MIB_S
set -euo pipefail
trap 'echo "failed: $BASH_COMMAND"; tail -n 5 /run/quiet.log' ERR

quietly() { "$@" >>/run/quiet.log 2>&1; }

# array LEVEL MEMBERS [CHUNK] - a new array, /dev/md0, written once.
array() {
  local members; members=$(seq -f '/dev/ram%g' 0 $(($2 - 1)))
  # shellcheck disable=SC2086
  quietly mdadm --create /dev/md0 --run --assume-clean --bitmap=internal --metadata=1.2 \
    --level="$1" --raid-devices="$2" ${3:+--chunk=$3} $members
  quietly dd if=/dev/urandom of=/run/mib bs=1M count=1
  fill /dev/md0
}

fill() { while cat /run/mib; do :; done 2>/dev/null | dd of="$1" bs=1M iflag=fullblock oflag=direct 2>>/run/quiet.log || true; }

gone() { quietly mdadm --stop /dev/md0; for m in /dev/ram?; do quietly mdadm --zero-superblock --force "$m" || true; done; }

# iops DEVICE FIO_WORDS... - what fio reaches there; its 8th and 49th fields are IOPS.
iops() {
  local device=$1; shift
  fio --name=load --filename="$device" --ioengine="${ENGINE:-io_uring}" --direct=1 --time_based --runtime="$SECONDS_EACH" \
    --iodepth_batch_submit=32 --iodepth_batch_complete_min=1 --iodepth_batch_complete_max=32 --randrepeat=0 \
    --output-format=terse --terse-version=3 "$@" 2>>/run/quiet.log | awk -F';' '{ print $8 + $49 }'
}

# load NAME FIO_WORDS... - raw member and array, or $DEVICE, in turns.
load() {
  local name=$1 turn; shift
  for ((turn = 0; turn < REPETITIONS; turn++)); do
    echo "load $name|raw|$(iops /dev/ram15 "$@")"
    echo "load $name|md|$(iops "${DEVICE:-/dev/md0}" "$@")"
  done
}

# multipath SELECTOR NAME FIO_WORDS... - the same of dm-multipath, two paths to a RAM disk; bio-based,
# for RAM disks take no requests. It refuses I/O that must not wait, for which io_uring goes to another
# thread each time; libaio asks the device itself. Where there is no dm-multipath it says so.
multipath() {
  local selector=$1 table; shift
  table="0 $((MEMBER_MIB * 2048)) multipath 2 queue_mode bio 0 1 1 $selector 0 2 0 /dev/ram15 /dev/ram14"
  if ! quietly modprobe -a dm-multipath "dm-$selector" || ! quietly dmsetup create paths --table "$table"; then
    echo "nothing of $1|this kernel or dmsetup makes no such device"
    return
  fi
  ENGINE=libaio DEVICE=/dev/mapper/paths load "$@"
  quietly dmsetup remove paths
}

lose() { quietly mdadm /dev/md0 --fail "$1"; }
# md lets go of a failed member a moment later.
remove() { until quietly mdadm /dev/md0 --remove "$1"; do pause; done; }

# sync_speed NAME COMMAND... - MiB/s of one member, from the command until md is idle and whole.
sync_speed() {
  local name=$1 kib began action missing=1; shift
  read -r kib </sys/block/md0/md/component_size
  began=$EPOCHREALTIME
  "$@"
  while :; do
    read -r action </sys/block/md0/md/sync_action
    read -r missing </sys/block/md0/md/degraded
    [ "$action" = idle ] && [ "$missing" = 0 ] && break
    pause
  done
  echo "sync $name|$(awk -v kib="$kib" -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { print kib / 1024 / (b - a) }')"
}

check() { echo check >/sys/block/md0/md/sync_action; }
back() { quietly mdadm --zero-superblock "$1"; quietly mdadm /dev/md0 --add "$1"; }

exec 9<> <(:)
pause() { read -rt 0.005 -u 9 || true; }
echo 1000000000 >/proc/sys/dev/raid/speed_limit_max; echo 1000000000 >/proc/sys/dev/raid/speed_limit_min
# It may be there already, with members of another size.
quietly modprobe -r brd || true
modprobe brd rd_nr=16 rd_size=$((MEMBER_MIB * 1024))
fill /dev/ram15
fill /dev/ram14
