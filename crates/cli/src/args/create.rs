//! Options of `create` and `assemble`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use mdspace_engine::array::settings::{SettingError, StartSettings};
use mdspace_engine::assembly::LeftOut;
use mdspace_format::{Level, MetadataVersion, Uuid};
use mdspace_front::Address;

use super::ForgettingArgs;
use super::member::{MemberOrMissing, MemberSpec};
use super::name::ArrayName;
use super::size::Size;
use crate::config::{Config, KnownMembers};
use crate::member_probe::Probed;

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// What the members were when the command that starts this process looked at them.
    #[arg(long, hide = true, default_value_t)]
    pub(crate) probed: Probed,
    /// Name of the array: letters, digits, _ . and -.
    pub(crate) name: ArrayName,
    /// The members, in slot order, spares last. The word `missing` leaves a slot empty.
    #[arg(required = true, value_name = "MEMBER")]
    pub(crate) members: Vec<MemberOrMissing>,
    /// RAID level: 0, 1, 4, 5, 6, 10 or linear.
    #[arg(long, short = 'l', value_name = "LEVEL")]
    pub(crate) level: Level,
    /// Slots of the array, spares not counted.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1920))]
    pub(crate) raid_devices: u16,
    /// Members that wait for another to fail.
    #[arg(long, short = 'x', alias = "spares", value_name = "N", default_value_t = 0)]
    pub(crate) spare_devices: u32,
    /// Chunk size; a bare number is KiB. Default 512K.
    #[arg(long, short = 'c', value_name = "SIZE")]
    pub(crate) chunk: Option<Size>,
    /// Layout. RAID5 and 6: left-symmetric (default), right-symmetric, left-asymmetric,
    /// right-asymmetric, parity-first, parity-last; RAID6 also ddf-zero-restart, ddf-N-restart,
    /// ddf-N-continue, and the first five with -6 behind them. RAID10: n2 (default), f2, o2 and more copies.
    /// RAID0: original (default), alternate.
    #[arg(long, short = 'p')]
    pub(crate) layout: Option<String>,
    /// Version of the superblock.
    #[arg(long, short = 'e', value_name = "VERSION", default_value_t = MetadataVersion::V1_2)]
    pub(crate) metadata: MetadataVersion,
    /// The write-intent bitmap; default internal on every level with redundancy.
    #[arg(long, short = 'b')]
    pub(crate) bitmap: Option<Bitmap>,
    /// Bytes that one bit of the bitmap stands for; a bare number is KiB. Default 64M.
    #[arg(long, value_name = "SIZE")]
    pub(crate) bitmap_chunk: Option<Size>,
    /// Part of each member to use; a bare number is KiB, max is all.
    #[arg(long, short = 'z', value_parser = size_or_max)]
    pub(crate) size: Option<SizeOrMax>,
    /// Where data start on each member; a bare number is KiB. Default as mdadm chooses.
    #[arg(long, value_name = "SIZE")]
    pub(crate) data_offset: Option<Size>,
    /// Name on disk; default NAME.
    #[arg(long = "name", short = 'N', value_name = "NAME")]
    pub(crate) set_name: Option<String>,
    /// Host written before the name on disk; default this host.
    #[arg(long, value_name = "HOST")]
    pub(crate) homehost: Option<String>,
    /// UUID of the array; default random.
    #[arg(long)]
    pub(crate) uuid: Option<Uuid>,
    /// How redundancy is kept right over a crash.
    #[arg(long, short = 'k', value_name = "POLICY")]
    pub(crate) consistency_policy: Option<Policy>,
    /// A mirror to read only when no other can answer.
    #[arg(long, value_name = "MEMBER")]
    pub(crate) write_mostly: Vec<MemberSpec>,
    /// RAID1: answer writes before write-mostly members have them; at most N at a time, 256 unless said.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "256",
          value_parser = clap::value_parser!(u16).range(1..=16383))]
    pub(crate) write_behind: Option<u16>,
    /// A mirror to fail at its first error, where another can serve.
    #[arg(long, value_name = "MEMBER")]
    pub(crate) failfast: Vec<MemberSpec>,
    /// Trust that the members already agree: no first resync.
    #[arg(long)]
    pub(crate) assume_clean: bool,
    /// Answer yes to every question.
    #[arg(long, short = 'R')]
    pub(crate) run: bool,
    #[command(flatten)]
    pub(crate) forgetting: ForgettingArgs,
    /// RAID4, 5, 6: resync all members together; do not rebuild one as a spare.
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) serving: ServingArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct AssembleArgs {
    /// Name of the array on this host.
    #[arg(required_unless_present = "scan")]
    pub(crate) name: Option<ArrayName>,
    /// Its members, in any order; without any, those that its configuration names, or else they are
    /// looked for among the block devices, by --uuid or else by NAME.
    #[arg(value_name = "MEMBER")]
    pub(crate) members: Vec<MemberSpec>,
    /// Every array that is found: those of the configurations, and those whose members are among the
    /// block devices.
    #[arg(long, short = 's', conflicts_with_all = ["name", "members", "uuid", "prefer", "serve", "foreground", "config", "save"])]
    pub(crate) scan: bool,
    /// With --scan: look here, not among the block devices. Again for more.
    #[arg(long, value_name = "PATH", requires = "scan")]
    pub(crate) device: Vec<PathBuf>,
    /// Take only members of the array with this UUID.
    #[arg(long, short = 'u')]
    pub(crate) uuid: Option<Uuid>,
    /// Start also with fewer members than last time.
    #[arg(long, short = 'R')]
    pub(crate) run: bool,
    /// Wait so many seconds for members that are missing, then start without, as with --run. The last one counts.
    #[arg(long, value_name = "SECONDS", requires = "foreground", overrides_with = "run_after")]
    pub(crate) run_after: Option<u32>,
    /// Start an array that is dirty and degraded; says what may be wrong.
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
    /// Where two halves ran apart: a member of the half to go on with.
    #[arg(long, value_name = "MEMBER")]
    pub(crate) prefer: Option<MemberSpec>,
    /// Members that the configuration names and that are left out.
    #[arg(skip)]
    pub(crate) left_out: Vec<LeftOut>,
    #[command(flatten)]
    pub(crate) serving: ServingArgs,
}

impl AssembleArgs {
    /// Whom to assemble; `--scan` asks for several, each by a command of its own.
    pub(crate) fn name(&self) -> &ArrayName {
        self.name.as_ref().expect("the command line names an array, but for --scan")
    }
}

/// What `create` and `assemble` have in common.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServingArgs {
    /// Refuse writes; on assemble nothing is written to the members.
    #[arg(long, short = 'o')]
    pub(crate) readonly: bool,
    /// Where to serve the array: block for a block device, fuse:DIR for a file, nbd:unix:PATH, nbd:tcp:PORT or
    /// nbd:tcp:HOST:PORT, vhost-user:PATH for a virtual machine; with ?ro for read-only. A socket is for its maker alone, or
    /// as ?mode=0660&group=GROUP says. TCP with ?tls=DIR is served over TLS, to clients with certificates where DIR has
    /// ca-cert.pem. NBD with ?shared serves several arrays at one address, each under its name.
    #[arg(long, value_name = "FRONT", value_parser = Address::parse_here)]
    pub(crate) serve: Vec<Address>,
    /// Let TCP fronts listen where other machines reach them: each client may read and overwrite
    /// the array.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Lanes: threads that each carry requests from start to end.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) lanes: u16,
    /// Unit of parity, pre-reads and cache: 4K to 64K, a power of two.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = stripe_size)]
    pub(crate) stripe_size: Size,
    /// Locks of the table of claims: 8 to 256, a power of two.
    #[arg(long, value_name = "N", default_value = "32", value_parser = stripe_hash_locks)]
    pub(crate) stripe_hash_locks: u32,
    /// Your word: nothing that was sent earlier to members behind a network can be done any more.
    #[arg(long)]
    pub(crate) fenced: bool,
    /// Stay in the foreground and log on stderr.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Write the configuration, for the next `assemble NAME`.
    #[arg(long, conflicts_with = "foreground")]
    pub(crate) save: bool,
    /// The configuration's file; default NAME.toml in the folder of configurations.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Takes no writes until `readwrite`, as the configuration says; members are opened to be written to.
    #[arg(skip)]
    pub(crate) refuse_writes: bool,
    /// What the configuration sets.
    #[arg(skip)]
    pub(crate) settings: BTreeMap<String, String>,
    /// Members that the configuration knows of.
    #[arg(skip)]
    pub(crate) known: KnownMembers,
}

impl ServingArgs {
    /// Where to serve, as far as the user allows.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = Address> + '_ {
        self.serve.iter().map(|front| allowed(front, self.insecure))
    }

    /// Takes what the configuration says where the command line has the default.
    pub(crate) fn take(&mut self, config: &Config) -> Result<(), String> {
        if let Some(lanes) = config.lanes.filter(|_| self.lanes == 1) {
            let known = (1..=256).contains(&lanes);
            self.lanes = Some(lanes).filter(|_| known).ok_or("lanes are 1 to 256")?;
        }
        if let Some(bytes) = config.stripe_size.filter(|_| self.stripe_size.bytes == 4096) {
            let known = start_settings(&[("stripe_size", bytes)]);
            known.map_err(|error| format!("stripe_size: {error}"))?;
            self.stripe_size = Size { bytes };
        }
        if let Some(locks) = config.stripe_hash_locks.filter(|_| self.stripe_hash_locks == 32) {
            let locks = stripe_hash_locks(&locks.to_string());
            self.stripe_hash_locks = locks.map_err(|why| format!("stripe_hash_locks: {why}"))?;
        }
        Ok(())
    }

    /// What is fixed as long as the array runs.
    pub(crate) fn start_settings(&self) -> StartSettings {
        let locks = u64::from(self.stripe_hash_locks);
        let values = [("stripe_size", self.stripe_size.bytes), ("stripe_hash_locks", locks)];
        start_settings(&values).expect("checked when the words were parsed")
    }
}

/// The front, open to other machines if the user says so.
pub(crate) fn allowed(front: &Address, insecure: bool) -> Address {
    if insecure { front.clone().open_to_others() } else { front.clone() }
}

/// mdadm's `--size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeOrMax {
    /// This much of each member.
    Size(Size),
    /// All that the smallest member has.
    Max,
}

/// mdadm's `--bitmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bitmap {
    /// On every member, beside the superblock.
    Internal,
    /// None.
    None,
}

/// mdadm's `--consistency-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// A full resync after a crash.
    Resync,
    /// A resync of what the bitmap marks.
    Bitmap,
}

fn stripe_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    let possible = start_settings(&[("stripe_size", size.bytes)]);
    possible.map(|_| size).map_err(|_| "one of 4K, 8K, 16K, 32K, 64K".into())
}

fn stripe_hash_locks(text: &str) -> Result<u32, SettingError> {
    StartSettings::default().set("stripe_hash_locks", text)?;
    Ok(text.trim().parse().expect("the engine has just taken it for a number"))
}

fn start_settings(values: &[(&str, u64)]) -> Result<StartSettings, SettingError> {
    let mut settings = StartSettings::default();
    values.iter().try_for_each(|(key, value)| settings.set(key, &value.to_string()))?;
    Ok(settings)
}

fn size_or_max(text: &str) -> Result<SizeOrMax, String> {
    match text {
        "max" => Ok(SizeOrMax::Max),
        size => size.parse().map(SizeOrMax::Size),
    }
}
