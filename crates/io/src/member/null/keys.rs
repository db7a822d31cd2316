//! The words of `null:`: keys, their values, and presets.

use std::time::Duration;

use crate::member::spec::{size_bytes, span};

use super::Drive;
use super::drive::{Direction, Rotation, Spread};

/// A drive that was given no size has this one, in bytes.
const PRESET_BYTES: u64 = 1 << 30;

/// One key or preset, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHelp {
    /// How it is written.
    pub name: &'static str,
    /// The values that it takes; of a preset, the keys that it stands for.
    pub takes: &'static str,
    /// What it does.
    pub means: &'static str,
}

/// Drives with a name: what they stand for, and where the figures are from.
const PRESETS: &[KeyHelp] = &[
    KeyHelp {
        name: "nvme",
        takes: "read_latency=92us&write_latency=21us&flush_latency=0us&p99=2&bandwidth=3500MB\
                &read_iops=840000&write_iops=285000&queue_depth=1024&queues=128",
        means: "a drive on PCIe 3.0 x4, as Micron specifies the 9200 series",
    },
    KeyHelp {
        name: "sata-ssd",
        takes: "read_latency=110us&write_latency=52us&flush_latency=0us&p99=2&read_bandwidth=500MB\
                &write_bandwidth=490MB&read_iops=72000&write_iops=65000&queue_depth=32&queues=32",
        means: "a solid-state drive on SATA, as Intel specifies the DC S4600",
    },
    KeyHelp {
        name: "hdd",
        takes: "rpm=7200&seek=7.8ms&track_seek=275us&bandwidth=255MB&queue_depth=32",
        means: "a disk with its write cache off, as Western Digital specifies the Ultrastar DC HC310",
    },
];

/// The presets of `null:`.
pub fn null_presets() -> impl Iterator<Item = KeyHelp> {
    PRESETS.iter().copied()
}

/// The keys of `null:`.
pub fn null_keys() -> impl Iterator<Item = KeyHelp> {
    KEYS.iter().map(|key| key.help)
}

struct Key {
    help: KeyHelp,
    set: fn(&mut Description, &str) -> Option<()>,
}

const fn key(
    name: &'static str,
    takes: &'static str,
    means: &'static str,
    set: fn(&mut Description, &str) -> Option<()>,
) -> Key {
    Key { help: KeyHelp { name, takes, means }, set }
}

const TIME: &str = "0us to 3600s, such as 800ns, 50us, 7.8ms or 1s";
const RATE: &str = "0 to 1, such as 1e-6";
const BANDWIDTH: &str = "1M to 1T, or in decimal 1MB to 1000GB";
const COUNT: &str = "1 to 65536";
const PER_SECOND: &str = "1 to 1000000000";

const KEYS: &[Key] = &[
    key("size", "a size", "bytes of a preset; 1G", |d, v| {
        d.bytes = size_bytes(v).ok()?;
        Some(())
    }),
    key("latency", TIME, "mean time of service of everything; 0us", |d, v| {
        let latency = time(v)?;
        d.each(|direction| direction.latency = latency);
        d.drive.flush_latency = latency;
        Some(())
    }),
    key("read_latency", TIME, "that of reads", |d, v| {
        d.drive.read.latency = time(v)?;
        Some(())
    }),
    key("write_latency", TIME, "that of writes", |d, v| {
        d.drive.write.latency = time(v)?;
        Some(())
    }),
    key("flush_latency", TIME, "that of flushes", |d, v| {
        d.drive.flush_latency = time(v)?;
        Some(())
    }),
    key(
        "distribution",
        "constant, exponential or lognormal",
        "how times of service lie about their mean; constant",
        |d, v| {
            d.drive.spread = match v {
                "constant" => Spread::Constant,
                "exponential" => Spread::Exponential,
                "lognormal" => Spread::Lognormal,
                _ => return None,
            };
            Some(())
        },
    ),
    key("p99", "1 to 14", "99 % of a lognormal distribution over its mean; 2", |d, v| {
        d.drive.p99 = number(v, 1.0, 14.0)?;
        d.drive.spread = Spread::Lognormal;
        Some(())
    }),
    key("bandwidth", BANDWIDTH, "bytes a second, each way", |d, v| {
        let rate = Some(bandwidth(v)?);
        d.each(|direction| direction.bytes_per_second = rate);
        Some(())
    }),
    key("read_bandwidth", BANDWIDTH, "that of reads", |d, v| {
        d.drive.read.bytes_per_second = Some(bandwidth(v)?);
        Some(())
    }),
    key("write_bandwidth", BANDWIDTH, "that of writes", |d, v| {
        d.drive.write.bytes_per_second = Some(bandwidth(v)?);
        Some(())
    }),
    key("read_iops", PER_SECOND, "reads a second at most", |d, v| {
        d.drive.read.per_second = Some(whole(v, 1_000_000_000)?);
        Some(())
    }),
    key("write_iops", PER_SECOND, "writes a second at most", |d, v| {
        d.drive.write.per_second = Some(whole(v, 1_000_000_000)?);
        Some(())
    }),
    key("queue_depth", COUNT, "I/Os that the drive takes at once; more wait", |d, v| {
        d.drive.queue_depth = whole(v, 65536)? as usize;
        Some(())
    }),
    key("queues", COUNT, "I/Os that it works at, at once; a disk at 1", |d, v| {
        d.drive.queues = whole(v, 65536)? as usize;
        Some(())
    }),
    key("rpm", "0, or 60 to 100000", "turns a minute of a disk; 0: none", |d, v| {
        d.rotation.turns_per_minute =
            whole(v, 100_000).filter(|&rpm| rpm >= 60).or_else(|| (v == "0").then_some(0))?;
        Some(())
    }),
    key("seek", TIME, "mean time of a disk's seek; 8ms", |d, v| {
        d.rotation.seek = time(v)?;
        Some(())
    }),
    key("track_seek", TIME, "that to the next track; 500us", |d, v| {
        d.rotation.track_seek = time(v)?;
        Some(())
    }),
    key("memory_backed", "0 or 1", "keeps what is written, in memory; 0", |d, v| {
        d.drive.memory_backed = flag(v)?;
        Some(())
    }),
    key("seed", "a whole number", "chooses the random numbers; 0", |d, v| {
        d.drive.seed = v.parse().ok()?;
        Some(())
    }),
    key("error", RATE, "chance of a medium error, a read or write", |d, v| {
        d.drive.faults.error = number(v, 0.0, 1.0)?;
        Some(())
    }),
    key("hang", RATE, "chance that an I/O hangs", |d, v| {
        d.drive.faults.hang = number(v, 0.0, 1.0)?;
        Some(())
    }),
    key("hang_time", TIME, "for how long; 60s", |d, v| {
        d.drive.faults.hang_time = time(v)?;
        Some(())
    }),
    key("limp", RATE, "chance that an I/O makes the drive limp", |d, v| {
        d.drive.faults.limp = number(v, 0.0, 1.0)?;
        Some(())
    }),
    key("limp_time", TIME, "for how long; 10s", |d, v| {
        d.drive.faults.limp_time = time(v)?;
        Some(())
    }),
    key("limp_factor", "1 to 1000000", "how much longer its work takes then; 20", |d, v| {
        d.drive.faults.limp_factor = number(v, 1.0, 1e6)?;
        Some(())
    }),
];

/// A drive as far as it has been read.
struct Description {
    bytes: u64,
    drive: Drive,
    /// Of a disk once it turns.
    rotation: Rotation,
}

impl Description {
    fn new(bytes: u64) -> Self {
        let rotation = Rotation {
            turns_per_minute: 0,
            seek: Duration::from_millis(8),
            track_seek: Duration::from_micros(500),
        };
        Self { bytes, drive: Drive::default(), rotation }
    }

    fn each(&mut self, set: impl Fn(&mut Direction)) {
        set(&mut self.drive.read);
        set(&mut self.drive.write);
    }

    fn set(&mut self, options: &str) -> Result<(), String> {
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let Some(key) = KEYS.iter().find(|key| key.help.name == name) else {
                let names: Vec<_> = null_keys().map(|key| key.name).collect();
                return Err(format!("'{name}' is no key of null:; those are {}", names.join(", ")));
            };
            let takes = key.help.takes;
            (key.set)(self, value).ok_or_else(|| format!("'{option}': {name} takes {takes}"))?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(u64, Drive), String> {
        if self.rotation.turns_per_minute > 0 {
            if self.drive.read.bytes_per_second.is_none() {
                return Err("a disk (rpm) has a bandwidth: say bandwidth=255MB or the like".into());
            }
            if self.rotation.track_seek > self.rotation.seek {
                return Err("track_seek is longer than seek, the mean of all".into());
            }
            self.drive.rotation = Some(self.rotation);
        }
        Ok((self.bytes, self.drive))
    }
}

/// Reads what stands after `null:`: a size or a preset, then keys. Gives the size in bytes.
pub(crate) fn parse(text: &str) -> Result<(u64, Drive), String> {
    let (what, options) = text.split_once('?').unwrap_or((text, ""));
    let preset = PRESETS.iter().find(|preset| preset.name == what);
    let bytes = match preset {
        Some(_) => PRESET_BYTES,
        None => size_bytes(what).map_err(|why| {
            let names: Vec<_> = null_presets().map(|preset| preset.name).collect();
            format!("{why}; or a preset: {}", names.join(", "))
        })?,
    };
    let mut description = Description::new(bytes);
    description.set(preset.map_or("", |preset| preset.takes))?;
    description.set(options)?;
    description.finish()
}

/// A time of at most an hour.
fn time(text: &str) -> Option<Duration> {
    span(text).ok().filter(|time| *time <= Duration::from_secs(3600))
}

fn bandwidth(text: &str) -> Option<u64> {
    let bytes = match (text.strip_suffix("MB"), text.strip_suffix("GB")) {
        (Some(count), _) => count.parse::<u64>().ok()?.checked_mul(1_000_000)?,
        (_, Some(count)) => count.parse::<u64>().ok()?.checked_mul(1_000_000_000)?,
        _ => size_bytes(text).ok()?,
    };
    (1_000_000..=1 << 40).contains(&bytes).then_some(bytes)
}

fn number(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse().ok().filter(|value| (least..=most).contains(value))
}

fn whole(text: &str, most: u64) -> Option<u64> {
    text.parse().ok().filter(|value| (1..=most).contains(value))
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
