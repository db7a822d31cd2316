//! dm-multipath's table line: what the device is made of.
//!
//! ```text
//! START LENGTH multipath #FEATURES [FEATURE...] #HANDLER-ARGS [HANDLER...] #GROUPS INITIAL-GROUP
//!   ( SELECTOR #SELECTOR-ARGS [ARG...] #PATHS #PATH-ARGS ( PATH [ARG...] )... )...
//! ```
//!
//! Source: the kernel's `Documentation/admin-guide/device-mapper`, and what `dmsetup table` prints.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Limits that keep a table line readable, and indexes small.
const GROUPS_MAX: usize = 64;
const PATHS_MAX: usize = 64;
/// dm's limits on `relative_throughput` and on features.
const THROUGHPUT_MAX: u32 = 100;
const PG_INIT_RETRIES: RangeInclusive<u32> = 1..=50;
const PG_INIT_DELAY_MSECS: RangeInclusive<u32> = 0..=60_000;
/// dm's fixed point of `historical-service-time`: 1024 is one; its default weight.
const WEIGHT_ONE: u32 = 1024;
const WEIGHT_DEFAULT: u32 = 972;

/// A multipath device as its table line describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its size in 512-byte sectors.
    pub sectors: u64,
    /// What it may do beside.
    pub features: Features,
    /// The hardware handler and its arguments, kept for the table line: paths here have none.
    pub handler: Vec<String>,
    /// The group to begin with, from 1.
    pub initial_group: usize,
    /// Groups of paths, the best first.
    pub groups: Vec<Group>,
}

/// dm's features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Requests wait while there is no path.
    pub queue_if_no_path: bool,
    /// Accepted, and printed again; there is nothing to initialise.
    pub pg_init_retries: Option<u32>,
    /// As `pg_init_retries`.
    pub pg_init_delay_msecs: Option<u32>,
    /// As `pg_init_retries`.
    pub retain_attached_hw_handler: bool,
    /// As `pg_init_retries`: `bio`, `rq` or `mq`.
    pub queue_mode: Option<String>,
}

/// Paths that are equally good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// How one of them is chosen.
    pub selector: Selector,
    /// The paths.
    pub paths: Vec<PathSpec>,
}

/// How a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest requests under way.
    QueueLength,
    /// The one with the fewest bytes under way, measured by its `relative_throughput`.
    ServiceTime,
    /// The one whose past and queue promise the earliest end.
    HistoricalServiceTime {
        /// Weight of the past, of 1024.
        base_weight: u32,
        /// Paths count as equally fast below this ratio; 0 and 1: never.
        threshold_multiplier: u32,
    },
    /// The one whose mask has the lane's number.
    IoAffinity,
    /// The one where the request is expected to end first ([`balance`](crate::balance)). Ours.
    Expected,
}

/// A path, and its selector's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// The member.
    pub member: String,
    /// Share of `service-time`; 0: only when no other path is left.
    pub relative_throughput: u32,
    /// Lanes of `io-affinity`.
    pub lanes: u128,
}

/// What is wrong with a table line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {word} of the table line, {found}: {why}")]
pub struct TableError {
    /// Which word, from 1.
    pub word: usize,
    /// What stands there.
    pub found: String,
    /// What is wrong with it.
    pub why: String,
}

impl PathSpec {
    /// A path with the arguments that dm gives one by default.
    pub fn new(member: impl Into<String>) -> Self {
        Self { member: member.into(), relative_throughput: 1, lanes: u128::MAX }
    }
}

impl Selector {
    /// dm's name, or ours.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::QueueLength => "queue-length",
            Self::ServiceTime => "service-time",
            Self::HistoricalServiceTime { .. } => "historical-service-time",
            Self::IoAffinity => "io-affinity",
            Self::Expected => "expected",
        }
    }

    /// Whether it chooses by the time that I/Os take.
    #[inline]
    pub(super) fn takes_times(self) -> bool {
        matches!(self, Self::HistoricalServiceTime { .. } | Self::Expected)
    }

    /// The selector of a name and its arguments.
    pub fn new(name: &str, args: &[u32]) -> Result<Self, String> {
        let plain = match name {
            "round-robin" => Self::RoundRobin,
            "queue-length" => Self::QueueLength,
            "service-time" => Self::ServiceTime,
            "io-affinity" => Self::IoAffinity,
            "expected" => Self::Expected,
            "historical-service-time" => return Self::historical(args),
            _ => {
                return Err("no selector; these are: round-robin, queue-length, service-time, \
                            historical-service-time, io-affinity, expected"
                    .into());
            }
        };
        if args.is_empty() { Ok(plain) } else { Err(format!("{name} takes no arguments")) }
    }

    fn historical(args: &[u32]) -> Result<Self, String> {
        let (base_weight, threshold_multiplier) = match *args {
            [] => (WEIGHT_DEFAULT, 0),
            [weight] => (weight, 0),
            [weight, threshold] => (weight, threshold),
            _ => return Err("at most a base weight and a threshold multiplier".into()),
        };
        if base_weight >= WEIGHT_ONE {
            return Err(format!("a base weight is 0 to {}", WEIGHT_ONE - 1));
        }
        Ok(Self::HistoricalServiceTime { base_weight, threshold_multiplier })
    }

    /// Its own arguments, with their number before them.
    pub(super) fn args_words(self) -> String {
        match self {
            Self::HistoricalServiceTime { base_weight, threshold_multiplier } => {
                format!("2 {base_weight} {threshold_multiplier}")
            }
            _ => "0".into(),
        }
    }

    /// How many arguments a path may have.
    fn path_args_max(self) -> usize {
        match self {
            Self::ServiceTime => 2,
            Self::Expected => 0,
            _ => 1,
        }
    }
}

impl Table {
    /// All paths, in the order of the line, with the number of their group from 0.
    pub fn paths(&self) -> impl Iterator<Item = (usize, &PathSpec)> {
        let groups = self.groups.iter().enumerate();
        groups.flat_map(|(at, group)| group.paths.iter().map(move |path| (at, path)))
    }
}

impl FromStr for Table {
    type Err = TableError;

    fn from_str(line: &str) -> Result<Self, TableError> {
        let mut words = Words { words: line.split_whitespace().collect(), at: 0 };
        if words.number::<u64>("the start sector, 0")? != 0 {
            return Err(words.wrong("a device that stands alone starts at 0"));
        }
        let sectors = words.number("the length in sectors")?;
        if sectors == 0 {
            return Err(words.wrong("a device has at least one sector"));
        }
        if words.next("the target's name")? != "multipath" {
            return Err(words.wrong("the target is multipath"));
        }
        let features = words.features()?;
        let handler = words.counted("the number of hardware handler arguments")?;
        let handler = handler.into_iter().map(str::to_owned).collect();
        let count = words.count("the number of groups", GROUPS_MAX)?;
        let initial_group: usize = words.number("the initial group")?;
        if count == 0 || initial_group == 0 || initial_group > count {
            return Err(words.wrong("there is at least one group, and they count from 1"));
        }
        let groups = (0..count).map(|_| words.group()).collect::<Result<Vec<_>, _>>()?;
        if words.at < words.words.len() {
            words.at += 1;
            return Err(words.wrong("nothing follows the last group"));
        }
        let table = Self { sectors, features, handler, initial_group, groups };
        if table.paths().count() > PATHS_MAX {
            return Err(words.wrong(&format!("at most {PATHS_MAX} paths in all")));
        }
        Ok(table)
    }
}

/// The words of a line, and how many were taken.
struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self, what: &str) -> Result<&'a str, TableError> {
        self.at += 1;
        self.words
            .get(self.at - 1)
            .copied()
            .ok_or_else(|| self.wrong(&format!("{what} is missing")))
    }

    fn number<N: FromStr>(&mut self, what: &str) -> Result<N, TableError> {
        let word = self.next(what)?;
        word.parse().map_err(|_| self.wrong(&format!("{what} is a number")))
    }

    fn within(&mut self, what: &str, range: RangeInclusive<u32>) -> Result<u32, TableError> {
        let number = self.number(what)?;
        match range.contains(&number) {
            true => Ok(number),
            false => Err(self.wrong(&format!("{what} is {} to {}", range.start(), range.end()))),
        }
    }

    fn count(&mut self, what: &str, most: usize) -> Result<usize, TableError> {
        let count = self.number(what)?;
        if count > most { Err(self.wrong(&format!("{what} is at most {most}"))) } else { Ok(count) }
    }

    /// So many words as the first one says.
    fn counted(&mut self, what: &str) -> Result<Vec<&'a str>, TableError> {
        let count = self.count(what, 64)?;
        (0..count).map(|_| self.next("one of the words counted before")).collect()
    }

    /// What is wrong with the word taken last.
    fn wrong(&self, why: &str) -> TableError {
        let found =
            self.words.get(self.at - 1).map_or("its end".into(), |word| format!("'{word}'"));
        TableError { word: self.at, found, why: why.into() }
    }

    fn features(&mut self) -> Result<Features, TableError> {
        let end = self.count("the number of feature words", 64)? + self.at;
        let mut features = Features::default();
        while self.at < end {
            match self.next("a feature")? {
                "queue_if_no_path" => features.queue_if_no_path = true,
                "retain_attached_hw_handler" => features.retain_attached_hw_handler = true,
                word @ "pg_init_retries" => {
                    features.pg_init_retries = Some(self.within(word, PG_INIT_RETRIES)?);
                }
                word @ "pg_init_delay_msecs" => {
                    features.pg_init_delay_msecs = Some(self.within(word, PG_INIT_DELAY_MSECS)?);
                }
                "queue_mode" => match self.next("queue_mode")? {
                    mode @ ("bio" | "rq" | "mq") => features.queue_mode = Some(mode.into()),
                    _ => return Err(self.wrong("queue_mode is bio, rq or mq")),
                },
                _ => {
                    return Err(self.wrong(
                        "no feature; these are: queue_if_no_path, retain_attached_hw_handler, \
                         pg_init_retries N, pg_init_delay_msecs N, queue_mode MODE",
                    ));
                }
            }
        }
        if self.at > end {
            return Err(self.wrong("the number of feature words counts their arguments too"));
        }
        Ok(features)
    }

    fn group(&mut self) -> Result<Group, TableError> {
        let name = self.next("a selector")?;
        let name_at = self.at;
        let args = self.counted("the number of selector arguments")?;
        let args = args.iter().map(|word| word.parse()).collect::<Result<Vec<u32>, _>>();
        let args = args.map_err(|_| self.wrong("a selector's arguments are numbers"))?;
        let selector = Selector::new(name, &args).map_err(|why| {
            let word = if args.is_empty() { name_at } else { self.at };
            Words { words: self.words.clone(), at: word }.wrong(&why)
        })?;
        let count = self.count("the number of paths", PATHS_MAX)?;
        if count == 0 {
            return Err(self.wrong("a group has at least one path"));
        }
        let path_args = self.number("the number of arguments of a path")?;
        let most = selector.path_args_max();
        if path_args > most || selector == Selector::IoAffinity && path_args != 1 {
            let why =
                format!("a path of {} has at most {most}, io-affinity's one", selector.name());
            return Err(self.wrong(&why));
        }
        let paths = (0..count).map(|_| self.path(selector, path_args)).collect::<Result<_, _>>()?;
        Ok(Group { selector, paths })
    }

    fn path(&mut self, selector: Selector, args: usize) -> Result<PathSpec, TableError> {
        let mut path = PathSpec::new(self.next("a path")?);
        if selector == Selector::IoAffinity {
            let mask = self.next("a mask of lanes")?.replace(',', "");
            path.lanes = u128::from_str_radix(mask.trim_start_matches("0x"), 16)
                .ok()
                .filter(|mask| *mask != 0)
                .ok_or_else(|| self.wrong("a mask is a hexadecimal number and not 0"))?;
        } else if args > 0 {
            // Taken, and used as 1, as the kernel does since 4.6.
            self.number::<u32>("a repeat count")?;
        }
        if args > 1 {
            path.relative_throughput = self.number("a relative throughput")?;
            if path.relative_throughput > THROUGHPUT_MAX {
                return Err(self.wrong("a relative throughput is 0 to 100"));
            }
        }
        Ok(path)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0 {} multipath {} ", self.sectors, self.features)?;
        write!(f, "{} ", self.handler.len())?;
        self.handler.iter().try_for_each(|word| write!(f, "{word} "))?;
        write!(f, "{} {}", self.groups.len(), self.initial_group)?;
        self.groups.iter().try_for_each(|group| write!(f, " {group}"))
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.queue_if_no_path {
            words.push("queue_if_no_path".to_owned());
        }
        let mut pair = |name: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        };
        pair("pg_init_retries", self.pg_init_retries.map(|count| count.to_string()));
        pair("pg_init_delay_msecs", self.pg_init_delay_msecs.map(|span| span.to_string()));
        if self.retain_attached_hw_handler {
            words.push("retain_attached_hw_handler".to_owned());
        }
        if let Some(mode) = &self.queue_mode {
            words.extend(["queue_mode".to_owned(), mode.clone()]);
        }
        write!(f, "{}", words.len())?;
        words.iter().try_for_each(|word| write!(f, " {word}"))
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.selector.name(), self.selector.args_words())?;
        write!(f, "{} {}", self.paths.len(), self.selector.path_args_max())?;
        self.paths.iter().try_for_each(|path| {
            write!(f, " {}", path.member)?;
            match self.selector {
                Selector::ServiceTime => write!(f, " 1 {}", path.relative_throughput),
                Selector::IoAffinity => write!(f, " {:x}", path.lanes),
                Selector::Expected => Ok(()),
                Selector::HistoricalServiceTime { .. } => write!(f, " 0"),
                _ => write!(f, " 1"),
            }
        })
    }
}

#[cfg(test)]
mod tests;
