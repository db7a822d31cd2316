//! Options of `multipath` and `message`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, value_parser};
use mdspace_engine::paths::{Cache, Failback, Table};
use mdspace_front::Address;

use super::MemberSpec;
use super::create::allowed;
use super::name::ArrayName;

/// Seconds beyond this are typing errors.
const SECONDS_MAX: f64 = 86_400.0;

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true).args(["dm_table", "file"])))]
pub(crate) struct MultipathArgs {
    /// Name of the device: letters, digits, _ . and -.
    pub(crate) name: ArrayName,
    /// dm's table line: '0 SECTORS multipath ...'; its paths are any MEMBER.
    #[arg(long, value_name = "LINE")]
    pub(crate) dm_table: Option<Table>,
    /// A file in TOML, as behind `multipath:`.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How many checks long requests wait without a path; 0 is not at all.
    #[arg(long, value_name = "CHECKS", conflicts_with = "file")]
    pub(crate) no_path_retry: Option<u32>,
    /// Seconds between two checks of a path.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "file")]
    pub(crate) polling_interval: Option<Duration>,
    /// When a better group is used again: manual, immediate, or seconds.
    #[arg(long, value_parser = failback, conflicts_with = "file")]
    pub(crate) failback: Option<Failback>,
    /// Seconds that a read may take over a network before another path is asked.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "file")]
    pub(crate) read_deadline: Option<Duration>,
    /// As --read-deadline, for writes and flushes.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "file")]
    pub(crate) write_deadline: Option<Duration>,
    /// Where written bytes lie until a flush: in a cache of each path ("path"), or in one of the device
    /// ("shared"), so that the loss of a path loses nothing.
    #[arg(long, value_parser = cache, conflicts_with = "file")]
    pub(crate) cache: Option<Cache>,
    /// Command that ends with 0 when nothing sent over $MDSPACE_PATH can be done any more.
    #[arg(long, value_name = "COMMAND", conflicts_with = "file")]
    pub(crate) fence: Option<String>,
    /// Refuse writes.
    #[arg(long)]
    pub(crate) readonly: bool,
    /// Serve it there; may be repeated.
    #[arg(long, value_name = "FRONT", value_parser = Address::parse_here)]
    pub(crate) serve: Vec<Address>,
    /// Let TCP fronts listen where other machines reach them.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Lanes: threads that each carry requests from start to end.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=256))]
    pub(crate) lanes: u16,
    /// Stay in the foreground and log on stderr.
    #[arg(long)]
    pub(crate) foreground: bool,
}

impl MultipathArgs {
    /// Where to serve, as far as the user allows.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = Address> + '_ {
        self.serve.iter().map(|front| allowed(front, self.insecure))
    }
}

#[derive(Args, Debug)]
pub(crate) struct MessageArgs {
    /// Name of the device, or of an array with multipath members.
    pub(crate) name: ArrayName,
    /// The multipath member, where an array has several.
    #[arg(long, value_name = "MEMBER")]
    pub(crate) member: Option<MemberSpec>,
    /// dm's message: queue_if_no_path, fail_if_no_path, disable_group N, enable_group N,
    /// switch_group N, fail_path PATH [--fenced], reinstate_path PATH.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "MESSAGE"
    )]
    pub(crate) words: Vec<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err("a number of seconds, up to a day".into()),
    }
}

fn cache(text: &str) -> Result<Cache, String> {
    match text {
        "path" => Ok(Cache::OfEachPath),
        "shared" => Ok(Cache::Shared),
        _ => Err("path or shared".into()),
    }
}

fn failback(text: &str) -> Result<Failback, String> {
    match text {
        "manual" => Ok(Failback::Manual),
        "immediate" => Ok(Failback::Immediate),
        other => seconds(other)
            .map(Failback::After)
            .map_err(|_| "manual, immediate, or a number of seconds".into()),
    }
}
