//! A multipath device in TOML.

use std::time::Duration;

use mdspace_engine::paths::table::{Features, Group, PathSpec, Selector};
use mdspace_engine::paths::{Cache, Failback, Policy, Table};
use serde::Deserialize;

use super::MultipathSpec;
use crate::member::spec::size_bytes;

/// Times beyond this are typing errors.
const SPAN_MAX_S: f64 = 86_400.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// dm's table line, instead of groups.
    table: Option<String>,
    /// Bytes; the device's size without it.
    size: Option<String>,
    queue_if_no_path: Option<bool>,
    no_path_retry: Option<Retry>,
    polling_interval: Option<f64>,
    failback: Option<FailbackWord>,
    read_deadline: Option<f64>,
    write_deadline: Option<f64>,
    cache: Option<CacheWord>,
    /// The command for every path that has none of its own.
    fence: Option<String>,
    #[serde(default)]
    group: Vec<FileGroup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileGroup {
    selector: Option<String>,
    #[serde(default)]
    selector_args: Vec<u32>,
    #[serde(default)]
    path: Vec<FilePath>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePath {
    member: String,
    relative_throughput: Option<u32>,
    /// Hexadecimal.
    lanes: Option<String>,
    fence: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Retry {
    Checks(u32),
    Word(String),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CacheWord {
    Path,
    Shared,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FailbackWord {
    Seconds(f64),
    Word(String),
}

pub(super) fn parse(text: &str) -> Result<MultipathSpec, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let policy = policy(&file)?;
    let (table, fences) = match &file.table {
        Some(_) if !file.group.is_empty() => return Err("give table or group, not both".into()),
        Some(line) => {
            let table: Table = line.parse().map_err(|error| format!("table: {error}"))?;
            let fences = vec![file.fence.clone(); table.paths().count()];
            (table, fences)
        }
        None => groups(&file)?,
    };
    Ok(MultipathSpec { table, policy, fences })
}

fn policy(file: &File) -> Result<Policy, String> {
    let usual = Policy::default();
    let span = |key: &str, given: Option<f64>, usual: Duration| match given {
        None => Ok(usual),
        Some(seconds) if seconds > 0.0 && seconds <= SPAN_MAX_S => {
            Ok(Duration::from_secs_f64(seconds))
        }
        Some(seconds) => Err(format!("{key}: {seconds} is no number of seconds up to a day")),
    };
    Ok(Policy {
        no_path_retry: match &file.no_path_retry {
            None => usual.no_path_retry,
            Some(Retry::Checks(checks)) => Some(*checks),
            Some(Retry::Word(word)) if word == "fail" => None,
            Some(Retry::Word(word)) => {
                return Err(format!(
                    "no_path_retry: '{word}' is neither a number of checks nor \"fail\"; nothing \
                     waits without end here"
                ));
            }
        },
        polling_interval: span("polling_interval", file.polling_interval, usual.polling_interval)?,
        failback: match &file.failback {
            None => usual.failback,
            Some(FailbackWord::Seconds(seconds)) => {
                Failback::After(span("failback", Some(*seconds), Duration::ZERO)?)
            }
            Some(FailbackWord::Word(word)) => match &**word {
                "manual" => Failback::Manual,
                "immediate" => Failback::Immediate,
                _ => return Err(format!("failback: '{word}' is not manual, immediate or seconds")),
            },
        },
        read_deadline: span("read_deadline", file.read_deadline, usual.read_deadline)?,
        write_deadline: span("write_deadline", file.write_deadline, usual.write_deadline)?,
        cache: match file.cache {
            None => usual.cache,
            Some(CacheWord::Path) => Cache::OfEachPath,
            Some(CacheWord::Shared) => Cache::Shared,
        },
    })
}

fn groups(file: &File) -> Result<(Table, Vec<Option<String>>), String> {
    if file.group.is_empty() {
        return Err("a device has at least one [[group]], or a table".into());
    }
    let sectors = match &file.size {
        Some(size) => size_bytes(size).map_err(|why| format!("size: {why}"))? / 512,
        None => 0,
    };
    let (mut groups, mut fences) = (Vec::new(), Vec::new());
    for (at, group) in file.group.iter().enumerate() {
        let wrong = |why: String| format!("group {}: {why}", at + 1);
        let name = group.selector.as_deref().unwrap_or("service-time");
        let selector = Selector::new(name, &group.selector_args)
            .map_err(|why| wrong(format!("selector {name}: {why}")))?;
        if group.path.is_empty() {
            return Err(wrong("it has no [[group.path]]".into()));
        }
        let paths = group.path.iter().map(path).collect::<Result<_, _>>().map_err(wrong)?;
        groups.push(Group { selector, paths });
        fences.extend(group.path.iter().map(|path| path.fence.clone().or(file.fence.clone())));
    }
    let queue_if_no_path = file.queue_if_no_path.unwrap_or(true);
    let features = Features { queue_if_no_path, ..Features::default() };
    Ok((Table { sectors, features, handler: Vec::new(), initial_group: 1, groups }, fences))
}

fn path(path: &FilePath) -> Result<PathSpec, String> {
    let mut spec = PathSpec::new(path.member.clone());
    if path.member.contains(char::is_whitespace) || path.member.is_empty() {
        return Err(format!("'{}' is no path: a table line has no blanks in names", path.member));
    }
    if let Some(share) = path.relative_throughput {
        if share > 100 {
            return Err(format!("{}: relative_throughput is 0 to 100", path.member));
        }
        spec.relative_throughput = share;
    }
    if let Some(mask) = &path.lanes {
        spec.lanes = u128::from_str_radix(mask, 16)
            .ok()
            .filter(|mask| *mask != 0)
            .ok_or_else(|| format!("{}: lanes is a hexadecimal mask and not 0", path.member))?;
    }
    Ok(spec)
}

#[cfg(test)]
mod tests;
