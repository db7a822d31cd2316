#!/bin/bash
# run-in-qemu.sh - run a script under a distribution's kernel in a QEMU guest, with N host image
# files as its disks: what User-Mode Linux lacks is there, as ublk, virtio-blk with several queues,
# and more than one CPU. A sister of run-in-uml.sh, with its manners. Needs no root and no network.
#
#   run-in-qemu.sh [options] GUEST_SCRIPT [IMAGE...]       (0 to 16 images)
#
#   -t SECS   wall-clock limit for the whole run (default 120; then everything is killed, rc 124)
#   -m SIZE   guest memory (default 768M)
#   -c N      CPUs of the guest (default 2)
#   -k "mods" kernel modules to modprobe before the script, as ublk_drv
#   -d DIR    host directory the guest may write to, at $SHARE (default: a private one, removed)
#   -u SOCK   vhost-user socket to attach as a virtio-blk disk of 2 queues, at $U0, $U1...
#             (repeatable, at most 8; QEMU connects again when the other side was away)
#   -r IMAGE  boot the system on this disk instead, as tools/make-guest-disk makes one: its own kernel,
#             initial RAM disk, systemd and udev. The script runs when that is up; at its end the system
#             is shut down. What it writes to its root stays on the image. -k is not for it
#   -a "args" extra kernel command line
#   -v        also print the kernel log to stderr at the end (it is printed anyway on rc 125)
#   -K        keep the work directory and print its name on stderr
#
# Inside the guest: root is the host's own file system, with what tools/fetch unpacked laid over
# it, below a private RAM overlay: every host program and file is there, writes are allowed and
# are thrown away (but not on the images and $SHARE).
# Images are $D0 $D1 ..., as /dev/vda; all of them in $DISKS; count in $N.
# GUEST_SCRIPT is run with bash if it is not executable. Its stdout+stderr come out on stdout.
# Host environment variables named in QEMU_ENV="A B C" are exported to the guest script; no others.
# The processor runs the guest where /dev/kvm works (QEMU_ACCEL=kvm or =tcg decides it otherwise),
# and is emulated elsewhere: how long something takes there says nothing.
# Exit status: the guest script's own; 124 timed out; 125 the kernel died, or the guest never
# reported a status; 2 usage. Nothing is left running on the host, nor any file but the images.
#
# Durability: a write of a disk reaches the host page cache before the guest sees it complete, so
# images may be read on the host as soon as this returns. What sits in the GUEST's page cache is
# lost unless synced. If the guest script calls /run/crash, the guest stops dead at that point and
# QEMU is killed: a power cut with all completed writes kept (rc 0 from /run/crash 0).
set -u

die() { echo "run-in-qemu: $*" >&2; exit 2; }

# Taken first, so that a caller's variable may have any name.
GUEST_ENV=
for v in ${QEMU_ENV:-}; do printf -v q '%q' "${!v-}"; GUEST_ENV+="export $v=$q"$'\n'; done

# ---- options ----------------------------------------------------------------------------------
T=120 MEM=768M CPUS=2 MODS='' SHARE='' SYSTEM='' VERBOSE=0 KEEP=0 ARGS='' VHOST=()
while getopts t:m:c:k:d:u:r:a:vKh o; do
  case $o in
    t) T=$OPTARG ;;
    m) MEM=$OPTARG ;;
    c) CPUS=$OPTARG ;;
    k) MODS=$OPTARG ;;
    d) SHARE=$OPTARG ;;
    u) VHOST+=("$OPTARG") ;;
    r) SYSTEM=$OPTARG ;;
    a) ARGS=$OPTARG ;;
    v) VERBOSE=1 ;;
    K) KEEP=1 ;;
    *) sed -n '2,/^set -u/p' "$0" | sed '$d;s/^# \{0,1\}//'; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || exec "$0" -h
GUEST=$1; shift
[ -r "$GUEST" ] && [ ! -d "$GUEST" ] || die "no such guest script: $GUEST"
[ $# -le 16 ] || die "at most 16 images"
[ ${#VHOST[@]} -le 8 ] || die "at most 8 sockets"

# ---- the programs and the kernel --------------------------------------------------------------
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=${MDSPACE_TOOLS:-${CARGO_TARGET_DIR:-$here/target}/tools}
# shellcheck disable=SC1091
[ -z "${TOOLS_ROOT:-}" ] && [ -r "$tools/env" ] && . "$tools/env"
root=${TOOLS_ROOT:-$tools/root}
BUSYBOX=$root/usr/bin/busybox
KERNEL=$(readlink -f -- "$root/boot/vmlinuz") && [ -e "$KERNEL" ] && [ -x "$BUSYBOX" ] ||
  die "no kernel and busybox in $root: run \`tools/fetch qemu-guest\` first"
VERSION=${KERNEL##*/vmlinuz-}
QEMU=$(command -v qemu-system-x86_64) || die "no QEMU: run \`tools/fetch qemu-guest\` first"
firmware=()
if [ -d "$root/usr/share/qemu" ]; then
  firmware=(-L "$root/usr/share/qemu" -L "$root/usr/share/seabios")
  export QEMU_MODULE_DIR=${root}/usr/lib/x86_64-linux-gnu/qemu
fi

# ---- the work directory -----------------------------------------------------------------------
W=$(mktemp -d "${QEMU_WORK:-/var/tmp}/qemu.XXXXXXXX") || exit 2
PID=
finish() {
  if [ -n "$PID" ]; then kill -KILL -- "-$PID" 2>/dev/null; wait "$PID" 2>/dev/null; fi
  if [ "$KEEP" = 1 ]; then echo "run-in-qemu: kept $W" >&2; else rm -rf -- "$W"; fi
}
trap finish EXIT; trap 'exit 130' INT TERM HUP
mkdir "$W/share" "$W/ctl"

# Each disk has a slot of its own, by which the guest knows it.
slot() { printf 'addr=0x%x' "$1"; }
# disk SERIAL IMAGE SLOT - an image as a disk.
disk() {
  devices+=(-drive "file=$2,if=none,id=$1,format=raw,cache=writeback,discard=unmap"
    -device "virtio-blk-pci,drive=$1,serial=$1,num-queues=2,$(slot "$3")")
}
devices=() n=0
if [ -n "$SYSTEM" ]; then
  path=$(readlink -f -- "$SYSTEM"); [ -f "$path" ] || die "no such image: $SYSTEM"
  ln -s -- "$path" "$W/system"
  disk system "$W/system" 3
fi
for image in "$@"; do
  path=$(readlink -f -- "$image"); [ -e "$path" ] || die "no such image: $image"
  ln -s -- "$path" "$W/img$n"                 # ',' means something to QEMU: go by symlink
  disk "D$n" "$W/img$n" $((4 + n))
  n=$((n + 1))
done
u=0
for socket in ${VHOST[@]+"${VHOST[@]}"}; do
  path=$(readlink -f -- "$socket"); [ -S "$path" ] || die "not a socket: $socket"
  ln -s -- "$path" "$W/vu$u"
  devices+=(-chardev "socket,id=vu$u,path=$W/vu$u,reconnect=1"
    -device "vhost-user-blk-pci,chardev=vu$u,num-queues=2,$(slot $((20 + u)))")
  u=$((u + 1))
done
ln -s -- "$(readlink -f -- "${SHARE:-$W/share}")" "$W/shared"
ln -s -- "$(readlink -f -- "$root")" "$W/tools"
cat -- "$GUEST" >"$W/ctl/guest" || exit 2
[ -f "$GUEST" ] && [ -x "$GUEST" ] && chmod +x "$W/ctl/guest"
printf %s "$GUEST_ENV" >"$W/ctl/env"
# host_folder TAG PATH OPTION - a folder that the guest mounts by that tag.
host_folder() {
  devices+=(-fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap$3"
    -device "virtio-9p-pci,fsdev=$1,mount_tag=$1")
}
if [ -z "$SYSTEM" ]; then
  host_folder root / ,readonly=on
  host_folder tools "$W/tools/" ,readonly=on
fi
host_folder ctl "$W/ctl" ''
host_folder share "$W/shared/" ''

# ---- the initial RAM disk: what it takes to mount the host's root -------------------------------
# modules NAME... - the files of modules, each after those it needs.
modules() (
  program=$root/usr/bin/kmod
  [ -x "$program" ] || program=$(PATH=$PATH:/usr/sbin:/sbin command -v modprobe)
  for name in "$@"; do
    LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu \
      bash -c 'exec -a modprobe "$0" "$@"' "$program" -d "$root/usr" -S "$VERSION" --show-depends "$name"
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
)
initrd() {
  local file n=100
  cp "$BUSYBOX" busybox || return
  for file in $(modules 9pnet_virtio 9p overlay virtio_blk); do
    n=$((n + 1))
    case $file in
      *.xz) ./busybox unxz -c "$file" ;;
      *) cat "$file" ;;
    esac >"$n.ko" || return
  done
  [ $n -gt 100 ] || return
  mkdir dev proc sys host tools ov new
  cat >init <<'INIT'
#!/busybox sh
/busybox mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
export PATH=/bin
/busybox mkdir /bin; /busybox --install -s /bin
for module in /*.ko; do insmod $module; done
options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $options,ro,cache=loose root /host
mount -t 9p -o $options,ro,cache=loose tools /tools
mount -t tmpfs ov /ov; mkdir /ov/upper /ov/work
mount -t overlay root -o lowerdir=/tools:/host,upperdir=/ov/upper,workdir=/ov/work /new
mount -t tmpfs run /new/run; mkdir -p /new/run/ctl /new/run/share /new/proc /new/sys /new/dev
mount -t 9p -o $options,cache=none ctl /new/run/ctl
mount -t 9p -o $options,cache=none share /new/run/share
exec </dev/null >/dev/null 2>&1
exec switch_root /new /bin/bash /run/ctl/init
INIT
  chmod +x init
  find . | ./busybox cpio -o -H newc 2>/dev/null
}

# from_system FILE - the newest of such files in the /boot of the system, as a boot loader finds it.
from_system() {
  local name; name=$(debugfs -R 'ls -p /boot' "$W/system" 2>/dev/null | cut -d/ -f6 | grep "^$1-" | sort -V | tail -n 1)
  [ -n "$name" ] && debugfs -R "dump /boot/$name $W/$1" "$W/system" 2>/dev/null && [ -s "$W/$1" ]
}
if [ -n "$SYSTEM" ]; then
  PATH=$PATH:/usr/sbin:/sbin
  from_system vmlinuz && from_system initrd.img || die "no kernel in the /boot of $SYSTEM"
  KERNEL=$W/vmlinuz INITRD=$W/initrd.img ARGS="root=LABEL=guest ro $ARGS"
else
  INITRD=$W/initrd ARGS="rdinit=/init $ARGS"
  mkdir "$W/files"
  (cd "$W/files" && initrd) >"$INITRD" || die "the initial RAM disk cannot be made"
fi

# ---- what runs the script: PID 1 of the guest, or the system's run-in-qemu.service ----------------
{
  printf '%s=%q\n' N "$n" U "$u" MODS "$MODS" CWD "$PWD"
  if [ -n "$SYSTEM" ]; then cat <<'INIT'
export HOME=/root LC_ALL=C TERM=dumb CWD=/
# Until all is started that starts by itself.
systemctl is-system-running --wait >/run/ctl/state
mount -o remount,exec /run
INIT
  else cat <<'INIT'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TERM=dumb
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
exec </dev/null >/dev/console 2>&1
mount -t debugfs debug /sys/kernel/debug
mkdir -p /dev/shm /dev/pts; mount -t tmpfs shm /dev/shm; mount -t devpts pts /dev/pts
mkdir -p /run/mdadm /run/lock; ln -sfn /proc/self/fd /dev/fd; ln -sfn /proc/mounts /etc/mtab
for m in $MODS; do
  modprobe "$m" || echo "run-in-qemu: modprobe $m failed" >/dev/ttyS1
done
command -v ip >/dev/null && ip link set lo up
hostname qemu
export DM_DISABLE_UDEV=1                   # no udev in the guest
INIT
  fi
  cat <<'INIT'
cp -p /run/ctl/guest /run/ctl/env /run/
stty -F /dev/ttyS1 raw -echo -opost
cat >/run/crash <<'C'
#!/bin/bash
echo "${1:-0}" >/run/ctl/rc; echo 0 >/proc/sys/kernel/panic; : >/run/ctl/crashed
echo c >/proc/sysrq-trigger; sleep 60
C
chmod +x /run/crash
# at SLOT - the disk in a slot of the bus.
at() {
  local disk
  printf -v disk '/sys/bus/pci/devices/0000:00:%02x.0/virtio*/block/*' "$1"
  for disk in $disk; do echo "/dev/${disk##*/}"; done
}
export N SHARE=/run/share DISKS= QEMU_BOOTED=1
for ((j = 0; j < N; j++)); do export "D$j=$(at $((4 + j)))"; DISKS="$DISKS $(at $((4 + j)))"; done
for ((j = 0; j < U; j++)); do export "U$j=$(at $((20 + j)))"; done
DISKS=${DISKS# }; . /run/env; cd "$CWD"
cut -d' ' -f1 /proc/uptime >/run/ctl/boot
run=(/run/guest); [ -x /run/guest ] || run=(bash /run/guest)
setsid "${run[@]}" </dev/null >/dev/ttyS1 2>&1
rc=$?
stty -F /dev/ttyS1 -a >/dev/null 2>&1      # drains the line
dmesg >/run/ctl/dmesg
echo "$rc" >/run/ctl/rc
cd /
INIT
  if [ -n "$SYSTEM" ]; then cat <<'INIT'
exec systemctl --no-block poweroff
INIT
  else cat <<'INIT'
mdadm --stop --scan >/dev/null 2>&1
echo o >/proc/sysrq-trigger; sleep 30
INIT
  fi
} >"$W/ctl/init"

# ---- boot, and wait ---------------------------------------------------------------------------
# /dev/kvm may be there and yet run nothing: it works when the firmware has said its first word.
kvm_works() (
  exec 2>/dev/null        # bash would announce the death of QEMU
  [ -w /dev/kvm ] || return
  local words=$W/firmware
  ulimit -c 0
  "$QEMU" ${firmware[@]+"${firmware[@]}"} -accel kvm -cpu max -M q35 -nodefaults -display none -m 32M \
    -chardev "file,id=f,path=$words" -device isa-debugcon,iobase=0x402,chardev=f \
    </dev/null >/dev/null 2>&1 &
  local probe=$! tries=0
  until [ -s "$words" ] || [ $((tries += 1)) -gt 20 ] || ! kill -0 $probe; do sleep 0.05; done
  kill -KILL $probe; wait $probe
  [ -s "$words" ]
)
if [ "${QEMU_ACCEL:-}" = kvm ] || { [ -z "${QEMU_ACCEL:-}" ] && kvm_works; }; then accel=kvm
else accel=tcg,thread=multi
fi
exec 7> >(cat)            # the guest's second serial line, streamed to our stdout
CATPID=$!
# shellcheck disable=SC2086
setsid nice -n "${QEMU_NICE:-10}" "$QEMU" ${firmware[@]+"${firmware[@]}"} \
  -accel "$accel" -cpu max -smp "$CPUS" -m "$MEM" \
  -object "memory-backend-memfd,id=memory,size=$MEM,share=on" -M q35,sata=off,smbus=off,memory-backend=memory \
  -nodefaults -display none -no-reboot \
  -kernel "$KERNEL" -initrd "$INITRD" \
  -append "console=ttyS0 loglevel=4 panic=-1 $ARGS" \
  -serial "file:$W/kernel.log" -chardev stdio,id=out,signal=off -serial chardev:out \
  "${devices[@]}" </dev/null >&7 2>"$W/qemu.log" &
PID=$!
exec 7>&-
deadline=$((SECONDS + T)) timed_out=0
exec 8>&2 2>/dev/null     # bash would announce the death of a killed guest
while kill -0 "$PID" 2>/dev/null && [ ! -e "$W/ctl/crashed" ]; do
  if [ $SECONDS -ge $deadline ]; then timed_out=1; break; fi
  sleep 0.1
done
kill -KILL -- "-$PID" 2>/dev/null; wait "$PID" 2>/dev/null; PID=
wait "$CATPID" 2>/dev/null
exec 2>&8 8>&-

# ---- the result -------------------------------------------------------------------------------
rc=$(cat "$W/ctl/rc" 2>/dev/null)
if [ $timed_out = 1 ]; then echo "run-in-qemu: timed out after ${T}s" >&2; rc=124
elif ! [[ ${rc:-x} =~ ^[0-9]+$ ]]; then rc=125
fi
if [ "$VERBOSE" = 1 ] || [ "$rc" = 125 ]; then
  {
    cat "$W/qemu.log"
    echo "--- kernel console ($accel)"; tail -c 20000 "$W/kernel.log"
    [ -f "$W/ctl/dmesg" ] && { echo "--- dmesg"; tail -n 200 "$W/ctl/dmesg"; }
    [ -f "$W/ctl/boot" ] && echo "--- guest script began $(cat "$W/ctl/boot") s after boot"
  } >&2
fi
[ -n "${QEMU_DMESG:-}" ] && [ -f "$W/ctl/dmesg" ] && cp "$W/ctl/dmesg" "$QEMU_DMESG"
exit "$rc"
