//! Check and rebuild with nobody else there.

use std::time::Duration;

use crate::bench::limits;
use crate::bench::sync::{Speed, Task};
use crate::failure::Failure;

use super::md::Md;
use super::{Alone, RAID5, RAID6};

/// Members in memory, and modelled drives of 3500 MB/s each way.
const MEMORY: &str = "--member=ram:256M";
const DRIVES: &str = "--member=null:nvme?size=2G";
/// For what takes long.
const SMALL_DRIVES: &str = "--member=null:nvme?size=512M";
const DRIVE_GIB_S: f64 = 3.5e9 / (1u64 << 30) as f64;

struct Case {
    name: &'static str,
    task: Task,
    array: &'static str,
    member: &'static str,
    /// Members whose bytes count.
    members: f64,
    keys: &'static str,
}

const fn case(name: &'static str, task: Task, array: &'static str, member: &'static str) -> Case {
    let members = if matches!(task, Task::Check) { 6.0 } else { 1.0 };
    Case { name, task, array, member, members, keys: "" }
}

const CASES: [Case; 7] = [
    case("RAID6 4+2 in memory, check", Task::Check, RAID6, MEMORY),
    case("RAID6 4+2 in memory, rebuild", Task::Rebuild, RAID6, MEMORY),
    case("RAID5 5+1 in memory, check", Task::Check, RAID5, MEMORY),
    case("RAID5 5+1 in memory, rebuild", Task::Rebuild, RAID5, MEMORY),
    Case {
        keys: "--set=sync_io_depth=1",
        ..case("RAID6 4+2 on drives, rebuild, one window", Task::Rebuild, RAID6, SMALL_DRIVES)
    },
    case("RAID6 4+2 on drives, rebuild", Task::Rebuild, RAID6, DRIVES),
    case("RAID6 4+2 on drives, check", Task::Check, RAID6, DRIVES),
];

pub(super) fn measure(repetitions: usize, md: &Md) -> Result<Vec<Alone>, Failure> {
    CASES.iter().map(|case| case.measure(repetitions, md)).collect()
}

/// Time of one repetition of a bare loop.
const SPAN: Duration = Duration::from_millis(200);

impl Case {
    fn measure(&self, repetitions: usize, md: &Md) -> Result<Alone, Failure> {
        let array = format!("{} {} {}", self.array, self.member, self.keys).trim().to_owned();
        let Speed { mib_s, cpu_share } = self.task.measure(&array, repetitions)?;
        let gib_s = mib_s.median * self.members / 1024.0;
        let bare = |name| limits::bare_gib_s(name, SPAN, repetitions);
        let bound_gib_s = match (self.member, self.array, self.task) {
            (DRIVES | SMALL_DRIVES, ..) => Some(DRIVE_GIB_S * self.members),
            (_, RAID6, Task::Check) => bare("RAID6 4+2 check"),
            (_, RAID6, Task::Rebuild) => bare("RAID6 4+2 rebuild"),
            _ => None,
        };
        let part = bound_gib_s.map(|bound| gib_s / bound);
        let md_mib_s = match self.member {
            MEMORY => md.mib_s(self.array, self.task),
            _ => None,
        };
        let name = self.name.to_owned();
        Ok(Alone { name, array, mib_s, gib_s, bound_gib_s, part, cpu_share, md_mib_s })
    }
}
