#!/bin/bash
# guest.sh - inside the booted kernel: makes each array of $SHARE/arrays.txt with md itself, writes
# $SHARE/numbers over the whole of it, and leaves the members as $SHARE/LINE.SLOT and the array's size
# in KiB as $SHARE/LINE.size, where LINE is the line's number in arrays.txt.
#
# The arrays have no superblock and begin at sector 0 of their members: they are made through sysfs,
# so that layouts come out too which mdadm has no word for.
set -euo pipefail

members_max=9
member_bytes=128K
for ((slot = 0; slot < members_max; slot++)); do
  truncate -s $member_bytes "/run/member$slot"
  losetup "/dev/loop$slot" "/run/member$slot"
done

make_array() { # LEVEL LAYOUT DISKS CHUNK_SECTORS SIZES
  local level=$1 layout=$2 disks=$3 chunk_sectors=$4 slot md sizes
  IFS=, read -ra sizes <<<"$5"
  echo md_map > /sys/module/md_mod/parameters/new_array
  md=/sys/block/md_map/md
  echo none > $md/metadata_version
  echo "$level" > $md/level
  echo "$disks" > $md/raid_disks
  echo $((layout)) > $md/layout
  echo $((chunk_sectors * 512)) > $md/chunk_size
  [ ${#sizes[@]} -gt 1 ] || echo "${sizes[0]}" > $md/component_size
  for ((slot = 0; slot < disks; slot++)); do
    cat "/sys/block/loop$slot/dev" > $md/new_dev
    echo "${sizes[$slot]:-${sizes[0]}}" > "$md/dev-loop$slot/size"
    echo "$slot" > "$md/dev-loop$slot/slot"
  done
  echo none > $md/resync_start
  echo active > $md/array_state
}

number=0
while read -r line; do
  number=$((number + 1))
  line=${line%%#*}
  [ -n "$line" ] || continue
  for ((slot = 0; slot < members_max; slot++)); do
    dd if=/dev/zero of="/dev/loop$slot" bs=$member_bytes count=1 conv=fsync status=none
  done
  # shellcheck disable=SC2086  # the fields of the line
  make_array $line
  sectors=$(cat /sys/block/md_map/size)
  dd if="$SHARE/numbers" of=/dev/md_map bs=512 count="$sectors" conv=fsync status=none
  echo clear > /sys/block/md_map/md/array_state
  read -r _ _ disks _ <<<"$line"
  for ((slot = 0; slot < disks; slot++)); do
    dd if="/dev/loop$slot" of="$SHARE/$number.$slot" bs=$member_bytes iflag=direct status=none
  done
  echo "$sectors" > "$SHARE/$number.size"
done < "$SHARE/arrays.txt"
uname -r > "$SHARE/kernel"
