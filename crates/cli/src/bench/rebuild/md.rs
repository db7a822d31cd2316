//! The same tasks of Linux md under User-Mode Linux, where there is one.

use std::fmt::Write;

use crate::bench::figures::Ratio;
use crate::bench::guest::{Guest, Printed};
use crate::bench::sync::Task;
use crate::bench::workload::parse;
use crate::failure::Failure;

use super::{RAID5, RAID6};

/// What md gave, or why there is nothing of it.
pub(super) struct Md(Result<Printed, Failure>);

impl Md {
    pub(super) fn measure(repetitions: usize) -> Self {
        let script: String = [RAID6, RAID5].map(|array| script(array, repetitions)).concat();
        Self(Guest::find().and_then(|guest| guest.run(&script, 1, 1.0)))
    }

    /// MiB/s of one member.
    pub(super) fn mib_s(&self, array: &str, task: Task) -> Option<Ratio> {
        let found = self.0.as_ref().ok()?.sync(&name(array, task));
        found.ok().map(Ratio::of)
    }

    pub(super) fn why_not(&self) -> Option<String> {
        self.0.as_ref().err().map(|failure| failure.why.clone())
    }
}

fn name(array: &str, task: Task) -> String {
    format!("{} of {}", task.word(), parse(array).level)
}

/// Checks of an array and rebuilds of a member, in the guest's functions.
fn script(array: &str, repetitions: usize) -> String {
    let args = parse(array);
    let mut text = format!("array {} {} 512\n", args.level.number(), args.raid_devices);
    for _ in 0..repetitions {
        let _ = writeln!(text, "sync_speed '{}' check", name(array, Task::Check));
    }
    for _ in 0..repetitions {
        let name = name(array, Task::Rebuild);
        let _ = writeln!(text, "lose /dev/ram1; remove /dev/ram1");
        let _ = writeln!(text, "sync_speed '{name}' back /dev/ram1");
    }
    text + "gone\n"
}
