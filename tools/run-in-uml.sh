#!/bin/bash
# run-in-uml.sh - run a script inside a real Linux kernel (User-Mode Linux) that has md, dm,
# nbd, fuse, io_uring..., with N host image files as its disks. Needs no root and no network.
#
#   run-in-uml.sh [options] GUEST_SCRIPT [IMAGE...]        (0 to 16 images)
#
#   -t SECS   wall-clock limit for the whole run (default 120; then everything is killed, rc 124)
#   -m SIZE   guest memory (default 768M)
#   -k "mods" extra kernel modules to modprobe before the script (md ones are always there)
#   -d DIR    host directory the guest may write to, at $SHARE (default: a private one, removed)
#   -u SOCK   vhost-user socket to attach as a virtio-blk disk (/dev/vda, vdb...; repeatable)
#   -a "args" extra kernel command line
#   -v        also print the kernel log to stderr at the end (it is printed anyway on rc 125)
#   -K        keep the work directory and print its name on stderr
#
# Inside the guest: root is the host's own file system, with what tools/fetch unpacked laid over
# it, below a private RAM overlay: every host program and file is there, writes are allowed and
# are thrown away (but not on /dev/ubd*, $SHARE).
# Images are /dev/ubda, /dev/ubdb, ... and also $D0 $D1 ... ; all of them in $DISKS; count in $N.
# GUEST_SCRIPT is run with bash if it is not executable. Its stdout+stderr come out on stdout.
# Host environment variables named in UML_ENV="A B C" are exported to the guest script; no others.
# Where the processor has AMX, the kernel needs a library preloaded: UML_XSTATE names it (default: as
# `cargo build -p mdspace-uml-xstate` leaves it). UML_XSTATE_ALWAYS=yes preloads it on any processor.
# Exit status: the guest script's own; 124 timed out; 125 the kernel died, or the guest never
# reported a status; 2 usage. Nothing is left running on the host, nor any file but the images.
#
# Durability: a ubd write reaches the host page cache before the guest sees it complete, so images
# may be read on the host as soon as this returns. What sits in the GUEST's page cache is lost
# unless synced. If the guest script calls /run/crash, the guest stops dead at that point:
# no sync, no array stop: a power cut with all completed member writes kept (rc 0 from /run/crash 0).
set -u

die() { echo "run-in-uml: $*" >&2; exit 2; }

# Taken first, so that a caller's variable may have any name.
GUEST_ENV=
for v in ${UML_ENV:-}; do printf -v q '%q' "${!v-}"; GUEST_ENV+="export $v=$q"$'\n'; done

# ---- options ----------------------------------------------------------------------------------
T=120 MEM=768M MODS='' SHARE='' VERBOSE=0 KEEP=0 ARGS='' VHOST=()
while getopts t:m:k:d:u:a:vKh o; do
  case $o in
    t) T=$OPTARG ;;
    m) MEM=$OPTARG ;;
    k) MODS=$OPTARG ;;
    d) SHARE=$OPTARG ;;
    u) VHOST+=("$OPTARG") ;;
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

# ---- the kernel -------------------------------------------------------------------------------
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=${MDSPACE_TOOLS:-${CARGO_TARGET_DIR:-$here/target}/tools}
# shellcheck disable=SC1091
[ -z "${UML:-}" ] && [ -r "$tools/env" ] && . "$tools/env"
UML=${UML:-/usr/bin/linux.uml}
MODDIR=${UML_MODULES:-$(printf '%s\n' /usr/lib/uml/modules/*/ | sort -V | tail -n 1)}
[ -x "$UML" ] || die "no User-Mode Linux at $UML: run tools/fetch first"

# Where the processor has AMX, User-Mode Linux needs help: crates/uml-xstate says why.
XSTATE=
if [ -n "${UML_XSTATE_ALWAYS:-}" ] || grep -qw amx_tile /proc/cpuinfo; then
  XSTATE=$(realpath -m -- "${UML_XSTATE:-${tools%/*}/debug/libmdspace_uml_xstate.so}")
  [ -r "$XSTATE" ] || die "this processor needs $XSTATE: run cargo build -p mdspace-uml-xstate"
fi

# User-Mode Linux keeps the guest's memory in a file that it must be able to execute from.
executable() (
  f=$(mktemp "$1/uml.XXXXXXXX") || exit 1
  trap 'rm -f -- "$f"' EXIT
  cp /bin/true "$f" && chmod +x "$f" && "$f"
)
for MEMDIR in /dev/shm "${TMPDIR:-/tmp}" /var/tmp; do executable "$MEMDIR" 2>/dev/null && break; MEMDIR=; done
[ -n "$MEMDIR" ] || die "none of /dev/shm, ${TMPDIR:-/tmp}, /var/tmp is writable and allows execution"

# ---- the work directory -----------------------------------------------------------------------
W=$(mktemp -d "${UML_WORK:-/var/tmp}/uml.XXXXXXXX") || exit 2
PID=
finish() {
  if [ -n "$PID" ]; then kill -KILL -- "-$PID" 2>/dev/null; wait "$PID" 2>/dev/null; fi
  if [ "$KEEP" = 1 ]; then echo "run-in-uml: kept $W" >&2; else rm -rf -- "$W"; fi
}
trap finish EXIT; trap 'exit 130' INT TERM HUP

devices=() n=0
for image in "$@"; do
  path=$(readlink -f -- "$image"); [ -e "$path" ] || die "no such image: $image"
  ln -s -- "$path" "$W/img$n"                 # ',' and ':' mean something to ubd: go by symlink
  devices+=("ubd$n=$W/img$n"); n=$((n + 1))
done
i=0
for socket in ${VHOST[@]+"${VHOST[@]}"}; do
  path=$(readlink -f -- "$socket"); [ -S "$path" ] || die "not a socket: $socket"
  ln -s -- "$path" "$W/vu$i"
  devices+=("virtio_uml.device=$W/vu$i:2:$i"); i=$((i + 1)); MODS="$MODS virtio_blk"
done
mkdir "$W/share" "$W/ctl" "$W/uml"
SHARE=$(readlink -f -- "${SHARE:-$W/share}")
cat -- "$GUEST" >"$W/guest" || exit 2
[ -f "$GUEST" ] && [ -x "$GUEST" ] && chmod +x "$W/guest"
printf %s "$GUEST_ENV" >"$W/env"

# ---- PID 1 of the guest -----------------------------------------------------------------------
{
  echo '#!/bin/bash'
  printf '%s=%q\n' W "$W" N "$n" MODS "$MODS" SHARE_HOST "$SHARE" MODDIR "${MODDIR%/}" \
    TOOLS "${TOOLS_ROOT:-}" CWD "$PWD"
  cat <<'INIT'
exec </dev/null >/dev/console 2>&1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TERM=dumb
mount -t proc proc /proc; mount -t tmpfs run /run
mkdir -p /run/mods/lib/modules /run/ov; ln -s "$MODDIR" "/run/mods/lib/modules/$(uname -r)"
# A writable private root: the host's root below, the fetched programs on it, RAM above.
if command -v modprobe >/dev/null; then modprobe -d /run/mods overlay
else (LD_LIBRARY_PATH=$(echo "$TOOLS"/usr/lib/*-linux-gnu) exec -a modprobe "$TOOLS/usr/bin/kmod" -d /run/mods overlay)
fi
mount -t tmpfs ov /run/ov; mkdir /run/ov/u /run/ov/w /run/ov/m /run/ov/t
lower=/
[ -d "$TOOLS/usr" ] && mount -t hostfs none /run/ov/t -o "$TOOLS" && lower=/run/ov/t:/
mount -t overlay root -o lowerdir=$lower,upperdir=/run/ov/u,workdir=/run/ov/w /run/ov/m || { echo no overlay; halt -f; }
cd /run/ov/m && mkdir -p mnt && pivot_root . mnt && umount -l mnt/proc && umount -l mnt && cd /
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs run /run; mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug
mkdir -p /dev/shm /dev/pts; mount -t tmpfs shm /dev/shm; mount -t devpts pts /dev/pts
mkdir -p /run/mdadm /run/lock /run/ctl /run/share "$W"; ln -sfn /proc/self/fd /dev/fd; ln -sfn /proc/mounts /etc/mtab
mount -t hostfs none /run/ctl -o "$W/ctl"; mount -t hostfs none /run/share -o "$SHARE_HOST"
mount -t hostfs none "$W" -o "$W"; cp "$W/guest" "$W/env" /run/; umount "$W"
mkdir -p /lib/modules; ln -sfn "$MODDIR" "/lib/modules/$(uname -r)"
exec </dev/null >/dev/console 2>&1
for m in raid0 raid1 raid10 raid456 loop dm-mod $MODS; do
  modprobe "$m" || echo "run-in-uml: modprobe $m failed" >/dev/ttyS0
done
command -v ip >/dev/null && ip link set lo up
hostname uml
echo 0 >/sys/module/md_mod/parameters/start_ro
echo 200000 >/proc/sys/dev/raid/speed_limit_min; echo 2000000 >/proc/sys/dev/raid/speed_limit_max
stty -F /dev/ttyS0 raw -echo -opost
# A crash is a panic, not a power-off: on power-off md closes its arrays cleanly.
cat >/run/crash <<'C'
#!/bin/bash
echo "${1:-0}" >/run/ctl/rc; sync -f /run/ctl/rc
echo c >/proc/sysrq-trigger; sleep 60
C
chmod +x /run/crash
export N SHARE=/run/share DISKS= UML_BOOTED=1 DM_DISABLE_UDEV=1   # no udev in the guest
letters=abcdefghijklmnop
for ((j = 0; j < N; j++)); do
  export "D$j=/dev/ubd${letters:j:1}"; DISKS="$DISKS /dev/ubd${letters:j:1}"
done
DISKS=${DISKS# }; . /run/env; cd "$CWD"
cut -d' ' -f1 /proc/uptime >/run/ctl/boot
run=(/run/guest); [ -x /run/guest ] || run=(bash /run/guest)
setsid "${run[@]}" </dev/null >/dev/ttyS0 2>&1
rc=$?
stty -F /dev/ttyS0 -a >/dev/null 2>&1      # drains the line
echo "$rc" >/run/ctl/rc; sync -f /run/ctl/rc
dmesg >/run/ctl/dmesg; sync -f /run/ctl/dmesg
cd /; mdadm --stop --scan >/dev/null 2>&1; sync -f /run/ctl
echo o >/proc/sysrq-trigger; sleep 30
INIT
} >"$W/init.sh"
chmod +x "$W/init.sh"

# ---- boot, and wait ---------------------------------------------------------------------------
# On one CPU: the guest's kernel and its processes take turns by ptrace, and waking another CPU for
# every turn takes twice the time.
read -r _ cpus < <(grep Cpus_allowed_list /proc/self/status); cpu=${cpus##*[,-]}
exec 7> >(cat)            # the guest's serial line, streamed to our stdout
CATPID=$!
preload=()
if [ -n "$XSTATE" ]; then
  ln -s -- "$XSTATE" "$W/xstate.so"           # ' ' and ':' mean something to the loader
  preload=(env LD_PRELOAD="$W/xstate.so")
fi
# shellcheck disable=SC2086
TMPDIR=$MEMDIR setsid nice -n "${UML_NICE:-10}" taskset -c "$cpu" ${preload[@]+"${preload[@]}"} \
  "$UML" mem="$MEM" uml_dir="$W/uml" umid=u \
  root=/dev/root rootfstype=hostfs rootflags=/ ro init="$W/init.sh" panic=-1 loglevel=4 \
  con=null con0=null,fd:6 ssl=null ssl0=null,fd:7 console=tty0 $ARGS ${devices[@]+"${devices[@]}"} \
  </dev/null >"$W/kernel.log" 2>&1 6>>"$W/kernel.log" &
PID=$!
exec 7>&-
deadline=$((SECONDS + T)) timed_out=0
exec 8>&2 2>/dev/null     # bash would announce the death of a crashed guest
while kill -0 "$PID" 2>/dev/null; do
  if [ $SECONDS -ge $deadline ]; then timed_out=1; break; fi
  sleep 0.1
done
kill -KILL -- "-$PID" 2>/dev/null; wait "$PID" 2>/dev/null; PID=
wait "$CATPID" 2>/dev/null
exec 2>&8 8>&-

# ---- the result -------------------------------------------------------------------------------
rc=$(cat "$W/ctl/rc" 2>/dev/null)
if [ $timed_out = 1 ]; then echo "run-in-uml: timed out after ${T}s" >&2; rc=124
elif ! [[ ${rc:-x} =~ ^[0-9]+$ ]]; then rc=125
fi
if [ "$VERBOSE" = 1 ] || [ "$rc" = 125 ]; then
  {
    echo "--- kernel console"; tail -c 20000 "$W/kernel.log"
    [ -f "$W/ctl/dmesg" ] && { echo "--- dmesg"; tail -n 200 "$W/ctl/dmesg"; }
    [ -f "$W/ctl/boot" ] && echo "--- guest script began $(cat "$W/ctl/boot") s after boot"
  } >&2
fi
[ -n "${UML_DMESG:-}" ] && [ -f "$W/ctl/dmesg" ] && cp "$W/ctl/dmesg" "$UML_DMESG"
exit "$rc"
