//! The command line: verbs, options and their values. Long options carry mdadm's names.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use mdspace_front::Address;

pub(crate) mod bench;
pub(crate) mod create;
pub(crate) mod member;
pub(crate) mod multipath;
pub(crate) mod name;
pub(crate) mod size;
mod span;

pub(crate) use bench::{
    BenchArgs, BenchFrontsArgs, BenchLimitsArgs, BenchPeersArgs, BenchPublishedArgs,
    BenchRebuildArgs, BenchRunArgs, BenchVerb, FrontWord, RebuildTable,
};
pub(crate) use create::{AssembleArgs, CreateArgs};
pub(crate) use member::MemberSpec;
pub(crate) use multipath::{MessageArgs, MultipathArgs};
pub(crate) use name::ArrayName;
use span::Span;

/// Linux software RAID (md) in user space.
///
/// Arrays that mdspace makes assemble under the kernel's md, and the other way round. One process
/// serves one array; no kernel module and, for files, no root is needed.
#[derive(Debug, Parser)]
#[command(name = "mdspace", version, disable_help_subcommand = true)]
#[command(
    after_help = "Start with `mdspace doctor`, then `mdspace demo`. MEMBER is a file, a block \
    device, or what `mdspace help member` lists; FRONT is block, ublk, nbd-device, loop, fuse:/dir, nbd:unix:/path.sock, \
    nbd:tcp:[host:]port or vhost-user:/path.sock, with ?ro for read-only."
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const CREATE_EXAMPLES: &str = "\
Examples:
  mdspace create data -l5 -n3 --serve=block /dev/sdb /dev/sdc /dev/sdd
  mdspace create data -l1 -n2 -x1 --save /dev/sdb /dev/sdc /dev/sdd
  mdspace create data -l6 -n4 --serve=nbd:unix:$PWD/data.sock a b c d

`mdspace help member` says what a MEMBER may be.";

const ASSEMBLE_EXAMPLES: &str = "\
Examples:
  mdspace assemble data --serve=block
  mdspace assemble data --run /dev/sdb /dev/sdc
  mdspace assemble data --readonly '--serve=nbd:unix:/tmp/data.sock?ro' b.img c.img

`mdspace help member` says what a MEMBER may be.";

const MULTIPATH_EXAMPLES: &str = "\
Example:
  mdspace multipath mp --file=mp.toml --serve=block

docs/admin.md has the keys of the file. `mdspace help member` says what a MEMBER may be.";

/// What mdspace can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a new array of members, start it and serve it.
    #[command(after_long_help = CREATE_EXAMPLES)]
    Create(Box<CreateArgs>),
    /// Start an array from its members and serve it.
    #[command(after_long_help = ASSEMBLE_EXAMPLES)]
    Assemble(Box<AssembleArgs>),
    /// Stop an array cleanly; exit 1 while clients are connected.
    Stop(StopArgs),
    /// Stop an array and start it again, by a new process: the same members, fronts and settings.
    Restart(RestartArgs),
    /// Write the configuration of an array, for the next `assemble NAME`.
    Save(SaveArgs),
    /// Give an array that does not run back to the kernel's md, which then takes its members at boot.
    Release(NameArgs),
    /// Show an array as `mdadm --detail` does.
    Detail(DetailArgs),
    /// Show every array and multipath device of this user as /proc/mdstat does.
    Mdstat,
    /// Add members; one that was here before comes back by bitmap, else it becomes a spare.
    Add(AddArgs),
    /// Bring back a member that was here before, by bitmap; never a full rebuild.
    ReAdd(MembersArgs),
    /// Take failed members and spares out of the array.
    Remove(RemoveArgs),
    /// Mark members as failed.
    Fail(FailArgs),
    /// Replace a member that still works, without a moment in which the array is degraded.
    Replace(ReplaceArgs),
    /// Show what md's superblocks on members say, as `mdadm --examine` does.
    Examine(ExamineArgs),
    /// Say in words what members are to each other, whether they assemble, and what to type.
    Explain(ExplainArgs),
    /// Erase the md superblocks of members.
    ZeroSuperblock(ZeroSuperblockArgs),
    /// Refuse writes from now on.
    Readonly(NameArgs),
    /// Allow writes again.
    Readwrite(NameArgs),
    /// Compute missing blocks from parity that a crash left in doubt: what was being written in that
    /// moment may come out as bytes that were never written. Nothing else changes.
    AcceptDoubt(NameArgs),
    /// Wait until resync, recovery or check are done; exit 2 when something could not be done, 4 when
    /// there is no such array.
    Wait(NameArgs),
    /// Start or stop a check or repair, or freeze all sync work.
    Action(ActionArgs),
    /// Print one of md's sysfs values, or all of them.
    Get(GetArgs),
    /// Change one of md's sysfs values.
    Set(SetArgs),
    /// Print what happened to an array, in mdadm --monitor's words.
    Events(EventsArgs),
    /// Serve a running array at one more front.
    Serve(ServeArgs),
    /// Close one front of a running array; exit 1 while clients are connected to it.
    Unserve(UnserveArgs),
    /// Serve one device behind several paths, as dm-multipath.
    #[command(after_long_help = MULTIPATH_EXAMPLES)]
    Multipath(Box<MultipathArgs>),
    /// Send a message of dm-multipath to a multipath device, or to a multipath member.
    Message(MessageArgs),
    /// Measure: an array beside its raw members, or the limits of this machine.
    Bench(BenchArgs),
    /// Show mdspace at work: an array of files in a temporary directory, compared byte by byte.
    Demo(DemoArgs),
    /// Show what this host offers and how to get what is missing.
    Doctor(JsonArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Print the manual page.
    Man,
    /// Print help; --json lists every verb and option.
    Help(HelpArgs),
    /// The serving process itself; started by create and assemble.
    #[command(name = "__serve", hide = true)]
    ServingProcess {
        /// The run directory that the command has chosen.
        #[arg(long)]
        run_dir: PathBuf,
        /// The words of that command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Unmounts a directory when the serving process is gone; started by that.
    #[command(name = "__unmount-after", hide = true)]
    MountGuard {
        /// The directory.
        directory: PathBuf,
        /// What tells the mount from others there.
        id: u64,
        /// The device's name, and the device.
        link: Vec<PathBuf>,
    },
    /// Opens a device of the ublk or nbd driver for the process that serves it; started by that.
    #[command(name = "__open-device", hide = true)]
    DeviceOpener {
        /// The device's name.
        name: PathBuf,
        /// The device.
        device: PathBuf,
        /// The text by which it is known for the array's.
        identity: String,
    },
    /// Takes the clients of an address that several arrays share; started by the process of the first.
    #[command(name = "__broker", hide = true)]
    Broker {
        /// The address.
        address: Address,
        /// Where their processes find it.
        rendezvous: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// Tells the kernel what suits a device of its drivers; started by the process that serves the device.
    #[command(name = "__tune-device", hide = true)]
    DeviceTuner {
        /// The device.
        device: PathBuf,
    },
}

/// An array by name.
#[derive(Args, Debug)]
pub(crate) struct NameArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
}

#[derive(Args, Debug)]
pub(crate) struct StopArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// Disconnect the clients.
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
    /// Wait so long for mounts and programs of this host to let go of the array, then disconnect all clients.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86_400), conflicts_with = "force")]
    pub(crate) force_after: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct RestartArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// Start also with fewer members than there are now.
    #[arg(long, short = 'R')]
    pub(crate) run: bool,
    /// Disconnect the clients.
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SaveArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// The configuration's file; default NAME.toml in the folder of configurations.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct DetailArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// Print one JSON object.
    #[arg(long, group = "form")]
    pub(crate) json: bool,
    /// Print KEY=value lines.
    #[arg(long, short = 'Y', group = "form")]
    pub(crate) export: bool,
    /// Print the lines by which clients reach its fronts: URI, fstab, mount unit, QEMU's options, libvirt's elements.
    #[arg(long, group = "form")]
    pub(crate) connect: bool,
    /// Exit 0 when whole, 1 when degraded, 2 when failed, 4 when there is no such array.
    #[arg(long, short = 't')]
    pub(crate) test: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MembersArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// The members.
    #[arg(required = true, value_name = "MEMBER")]
    pub(crate) members: Vec<MemberSpec>,
}

#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(crate) on: MembersArgs,
    #[command(flatten)]
    pub(crate) forgetting: ForgettingArgs,
    /// Answer yes to every question.
    #[arg(long, short = 'R')]
    pub(crate) run: bool,
}

/// Whether members are taken that keep no data.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ForgettingArgs {
    /// Take null: members, which keep nothing of what is written: for measurements.
    #[arg(long)]
    pub(crate) keep_nothing: bool,
}

impl ForgettingArgs {
    /// Why, and what to do, where members are not taken.
    pub(crate) fn refuses<'a>(
        self,
        members: impl IntoIterator<Item = &'a MemberSpec>,
    ) -> Option<(String, &'static str)> {
        let mut forgetting = members.into_iter().filter(|member| member.forgets());
        let member = forgetting.next().filter(|_| !self.keep_nothing)?;
        let why = format!("{member} keeps nothing of what is written to it");
        Some((why, "give a file or a device; --keep-nothing takes it, for measurements"))
    }
}

#[derive(Args, Debug)]
pub(crate) struct RemoveArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// The members, or the word `failed` for all that failed.
    #[arg(required = true, value_name = "MEMBER")]
    pub(crate) members: Vec<MemberSpec>,
}

#[derive(Args, Debug)]
pub(crate) struct FailArgs {
    #[command(flatten)]
    pub(crate) on: MembersArgs,
    /// Fail a member also when the array cannot do without it.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ReplaceArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// The member that is to go.
    pub(crate) member: MemberSpec,
    /// The member that takes its place: a spare, or one that is added first. The next spare that is not
    /// needed more, without it.
    #[arg(long, value_name = "MEMBER")]
    pub(crate) with: Option<MemberSpec>,
    #[command(flatten)]
    pub(crate) forgetting: ForgettingArgs,
    /// Answer yes to every question.
    #[arg(long, short = 'R')]
    pub(crate) run: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExamineArgs {
    /// The members: files or block devices. Nothing is written to them.
    #[arg(required = true, value_name = "MEMBER")]
    pub(crate) members: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long, group = "form")]
    pub(crate) json: bool,
    /// Print KEY=value lines.
    #[arg(long, short = 'Y', group = "form")]
    pub(crate) export: bool,
    /// Print an ARRAY line for each array, for mdadm.conf.
    #[arg(long, short = 's', group = "form")]
    pub(crate) scan: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The members: files or block devices. Nothing is written to them.
    #[arg(required = true, value_name = "MEMBER")]
    pub(crate) members: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ZeroSuperblockArgs {
    /// The members.
    #[arg(required = true, value_name = "MEMBER")]
    pub(crate) members: Vec<PathBuf>,
    /// Answer yes to every question.
    #[arg(long, short = 'R')]
    pub(crate) run: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ActionArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// What to do, as written to md's sync_action.
    pub(crate) action: Action,
    /// Wait for the end of the check or repair; exit 2 when it did not do all, 3 when there are
    /// places where it is not known which member is wrong.
    #[arg(long)]
    pub(crate) wait: bool,
    /// End a check or repair after so long, as 2h, 90m or 30s; the next one with --for goes on there.
    #[arg(long = "for", value_name = "SPAN")]
    pub(crate) budget: Option<Span>,
    /// With repair, where it is not known which member is wrong: believe the data, and make parity (or
    /// the other copies) agree, as md does.
    #[arg(long, conflicts_with = "trust")]
    pub(crate) force_parity: bool,
    /// With repair on RAID1 and RAID10, where it is not known which is right: believe this member.
    #[arg(long, value_name = "MEMBER")]
    pub(crate) trust: Option<MemberSpec>,
}

/// Words of md's `sync_action` that a user may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Action {
    /// Stop what runs; md decides what comes next.
    Idle,
    /// Stop what runs and start nothing.
    Frozen,
    /// Start what is needed, also what was frozen or stopped at an error.
    Resync,
    /// As resync: md decides which of the two it is.
    Recover,
    /// Read all redundancy and count what differs.
    Check,
    /// Read all redundancy and make it right.
    Repair,
}

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// md's sysfs name, as mismatch_cnt; all without it.
    pub(crate) key: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// sync_action=check and its kin, array_state=readonly or active, or one of the numbers that
    /// `get` lists.
    #[arg(value_name = "KEY=VALUE", value_parser = OsStringValueParser::new().try_map(|word| key_value_of(&word)))]
    pub(crate) setting: (String, String),
    /// Write what was set to the array's configuration, for the next `assemble NAME`; the rest of that stays.
    #[arg(long)]
    pub(crate) save: bool,
}

#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// Go on printing until the array stops.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct FrontArgs {
    /// Name of the array.
    pub(crate) name: ArrayName,
    /// block, ublk, nbd-device, loop, fuse:DIR, nbd:unix:PATH, nbd:tcp:PORT, nbd:tcp:HOST:PORT or vhost-user:PATH, with ?ro for
    /// read-only, for NBD ?shared with other arrays, and for TCP ?tls=DIR. unserve needs no option.
    #[arg(value_parser = Address::parse_here)]
    pub(crate) front: Address,
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) at: FrontArgs,
    /// Let a TCP front listen where other machines reach it: each client may read and overwrite
    /// the array.
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Args, Debug)]
pub(crate) struct UnserveArgs {
    #[command(flatten)]
    pub(crate) at: FrontArgs,
    /// Disconnect the clients.
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Directory whose files go into the file system; default mdspace's own sources.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct JsonArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct HelpArgs {
    /// The verb to explain; or the word member: what a MEMBER may be.
    pub(crate) verb: Option<String>,
    /// Print every verb and option as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

fn key_value_of(word: &OsString) -> Result<(String, String), String> {
    match word.to_str() {
        Some(text) => key_value(text),
        // A member's name.
        None => key_value(&mdspace_io::name_of_path(word.as_ref())),
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a setting is KEY=VALUE".into()),
    }
}

#[cfg(test)]
mod tests;
