//! Users beside a rebuild: what each of them has, by the keys that share the members among them.

use std::time::{Duration, Instant};

use mdspace_engine::array::Action;

use crate::args::BenchRunArgs;
use crate::bench::bed::Bed;
use crate::bench::measure::{Outcome, Until};
use crate::bench::sync::LOST;
use crate::bench::workload::{Side, Subject, parse};
use crate::failure::Failure;

use super::{Beside, Row};

const ARRAY: &str = "--level=6 --raid-devices=6 --chunk=512K";

/// Members, and what users do in the words of `bench run`. A lane bears some 60 requests at once on the
/// modelled drives before it lacks the CPU, and as many as there are in memory: there all that a rebuild
/// does it takes from users.
const LOADS: [(&str, &str); 3] = [
    ("null:nvme?size=8G", "--rw=randrw --rwmixread=70 --bs=4k --iodepth=8"),
    ("null:nvme?size=8G", "--rw=randrw --rwmixread=70 --bs=4k --iodepth=32"),
    ("ram:256M", "--rw=randrw --rwmixread=70 --bs=4k --iodepth=8"),
];

/// How the members are shared.
struct Mode {
    name: &'static str,
    settings: &'static str,
}

const WITHOUT: Mode = Mode { name: "users alone", settings: "" };

const MODES: [Mode; 3] = [
    Mode { name: "rebuild, no reserve", settings: "sync_cache_share=100 sync_latency_target=0" },
    Mode { name: "rebuild, reserve", settings: "sync_cache_share=25 sync_latency_target=0" },
    Mode { name: "rebuild, latency target", settings: "sync_cache_share=25 sync_latency_target=2" },
];

/// Before anything counts: users are known by then, and the pace is found.
const WARM: Duration = Duration::from_secs(2);

/// Between two looks at the rebuild: each is a little work of the lane.
const LOOK: Duration = Duration::from_millis(5);

pub(super) fn measure(runtime: Duration) -> Result<Vec<Beside>, Failure> {
    LOADS.iter().map(|(member, users)| beside(member, users, runtime)).collect()
}

fn beside(member: &'static str, users: &'static str, runtime: Duration) -> Result<Beside, Failure> {
    let args = parse(&format!("{ARRAY} --member={member} {users}"));
    let bed = Bed::new(&args)?;
    if member.starts_with("ram:") {
        bed.fill()?;
    }
    let mut stage = Stage { bed, args, member };
    stage.bed.order(Action::Freeze)?;
    stage.bed.lose_member(LOST)?;
    stage.users(WARM);
    let alone = stage.users(runtime);
    stage.bed.order(Action::Idle)?;
    stage.begin_rebuild()?;
    let rebuild_alone_mib_s = stage.rebuild_alone(runtime)?;
    let mut rows = vec![row(&WITHOUT, alone.clone(), &alone, None)];
    for mode in MODES {
        for (key, value) in mode.settings.split(' ').filter_map(|word| word.split_once('=')) {
            stage.bed.set(key, value)?;
        }
        stage.both(WARM)?;
        let (found, mib_s) = stage.both(runtime)?;
        rows.push(row(&mode, found, &alone, Some((mib_s, mib_s / rebuild_alone_mib_s))));
    }
    stage.bed.stop()?;
    Ok(Beside { member, users, rebuild_alone_mib_s, rows })
}

fn row(mode: &Mode, mut found: Outcome, alone: &Outcome, rebuild: Option<(f64, f64)>) -> Row {
    let p99 = |outcome: &mut Outcome| outcome.percentile_us(0.99).unwrap_or(0.0);
    Row {
        name: mode.name,
        settings: mode.settings,
        iops: found.iops(),
        p50_us: found.percentile_us(0.50).unwrap_or(0.0),
        p99_us: p99(&mut found),
        iops_part: found.iops() / alone.iops(),
        p99_times: p99(&mut found) / p99(&mut alone.clone()),
        rebuild_mib_s: rebuild.map(|(mib_s, _)| mib_s),
        rebuild_part: rebuild.map(|(_, part)| part),
        cpu_share: found.cpu_share(),
    }
}

/// An array with users and a member that is rebuilt over and over.
struct Stage {
    bed: Bed,
    args: BenchRunArgs,
    member: &'static str,
}

impl Stage {
    fn users(&self, span: Duration) -> Outcome {
        self.bed.load(&self.args, Until::Elapsed(span), Side::Array)
    }

    /// Users for so long beside a rebuild; gives its speed in MiB/s too.
    fn both(&mut self, span: Duration) -> Result<(Outcome, f64), Failure> {
        let running = self.bed.begin(&self.args, Until::Elapsed(span));
        let mut found = None;
        let mib_s = self.rebuild_while(|bed| {
            found = bed.ended(&running);
            found.is_none()
        })?;
        Ok((found.unwrap_or_default(), mib_s))
    }

    fn rebuild_alone(&mut self, span: Duration) -> Result<f64, Failure> {
        let began = Instant::now();
        self.rebuild_while(|_| began.elapsed() < span)
    }

    /// Rebuilds the member, again whenever it is whole; gives MiB/s while it is under way.
    fn rebuild_while(&mut self, mut goes_on: impl FnMut(&Bed) -> bool) -> Result<f64, Failure> {
        let (mut sectors, mut ran) = (0, Duration::ZERO);
        // When it was seen under way, and how far.
        let mut seen: Option<(Instant, Duration, u64)> = None;
        while goes_on(&self.bed) {
            std::thread::sleep(LOOK);
            let (now, delayed, status) =
                (Instant::now(), self.bed.run_delay()?, self.bed.status()?);
            if status.sync.action.runs() {
                let done = status.sync.completed_sectors;
                if let Some((when, delayed_then, before)) = seen.replace((now, delayed, done)) {
                    sectors += done.saturating_sub(before);
                    ran += self.bed.counted(now - when, delayed - delayed_then);
                }
            } else if status.degraded() == 0 {
                seen = None;
                self.bed.lose_member(LOST)?;
                self.begin_rebuild()?;
            }
        }
        Ok(sectors as f64 / 2048.0 / ran.as_secs_f64().max(1e-9))
    }

    /// Gives the lost slot a new member.
    fn begin_rebuild(&mut self) -> Result<(), Failure> {
        self.bed.add_member(LOST, self.member)
    }
}
