//! Overlapping writes of every size over a small area, from several clients at once, while the array is
//! healthy, degraded and rebuilt, workers come and go and the stripe cache changes its size: md finds
//! every sector as one of them wrote it, and its `check` counts nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::harness::{
    Guest, Images, MIB, Mdspace, Nbd, Pattern, Request, SECTOR, Stream, flip, path_text, seed,
    until,
};

const MEMBER_BYTES: u64 = 6 * MIB;
const DATA_OFFSET: u64 = MIB;
const CLIENTS: u64 = 4;
const DEPTH: usize = 16;
/// Changes of the settings in each turn of the clients.
const CHANGES: usize = 6;
/// Writes that begin between two changes: more than are ever in flight, so that some run in between.
const WRITES_A_CHANGE: usize = 2 * CLIENTS as usize * DEPTH;
/// Writes meet in so many sectors; the rest of the array stays as it was.
const AREA_SECTORS: u64 = 4096;
/// The longest write of each turn: 64 KiB, then 1 MiB.
const LONGEST_SECTORS: [u64; 2] = [128, 2048];
/// A rebuild takes seconds, so that writes meet it, or what the members take.
const SLOW: [&str; 2] = ["sync_speed_min=1000", "sync_speed_max=1000"];
const FAST: [&str; 2] = ["sync_speed_max=1000000", "sync_speed_min=1000000"];

/// An array under stress: its name, options of create, and members.
type Stressed = (&'static str, &'static str, usize);

/// The first ones have their turn in every run; with `MDSPACE_EVERY_LEVEL` all have it.
const IN_EVERY_RUN: usize = 4;
#[rustfmt::skip]
const ARRAYS: [Stressed; 28] = [
    ("r6ls",  "--level=6 --chunk=16", 5),
    ("r5ra",  "--level=5 --chunk=64 --layout=right-asymmetric", 4),
    ("r1",    "--level=1", 3),
    ("r10f",  "--level=10 --chunk=64 --layout=f2", 4),
    ("r4",    "--level=4 --chunk=64", 4),
    ("r5ls",  "--level=5 --chunk=64", 4),
    ("r5la",  "--level=5 --chunk=16 --layout=left-asymmetric", 4),
    ("r5rs",  "--level=5 --chunk=4 --layout=right-symmetric", 5),
    ("r5pf",  "--level=5 --chunk=64 --layout=parity-first", 4),
    ("r5pl",  "--level=5 --chunk=64 --layout=parity-last", 4),
    ("r6la",  "--level=6 --chunk=64 --layout=left-asymmetric", 5),
    ("r6ra",  "--level=6 --chunk=16 --layout=right-asymmetric", 4),
    ("r6rs",  "--level=6 --chunk=4 --layout=right-symmetric", 5),
    ("r6pf",  "--level=6 --chunk=64 --layout=parity-first", 5),
    ("r6zr",  "--level=6 --chunk=64 --layout=ddf-zero-restart", 5),
    ("r6nr",  "--level=6 --chunk=16 --layout=ddf-N-restart", 5),
    ("r6nc",  "--level=6 --chunk=64 --layout=ddf-N-continue", 6),
    ("r6pl",  "--level=6 --chunk=16 --layout=parity-last", 5),
    ("r6ls6", "--level=6 --chunk=64 --layout=left-symmetric-6", 5),
    ("r6la6", "--level=6 --chunk=16 --layout=left-asymmetric-6", 5),
    ("r6ra6", "--level=6 --chunk=64 --layout=right-asymmetric-6", 6),
    ("r6rs6", "--level=6 --chunk=4 --layout=right-symmetric-6", 5),
    ("r6pf6", "--level=6 --chunk=64 --layout=parity-first-6", 5),
    ("r10n",  "--level=10 --chunk=64 --layout=n2", 3),
    ("r10n3", "--level=10 --chunk=16 --layout=n3", 4),
    ("r10f3", "--level=10 --chunk=64 --layout=f3", 5),
    ("r10o",  "--level=10 --chunk=16 --layout=o2", 5),
    ("r10o3", "--level=10 --chunk=64 --layout=o3", 4),
];

/// The arrays whose turn it is.
fn in_turn() -> &'static [Stressed] {
    let all = std::env::var_os("MDSPACE_EVERY_LEVEL").is_some();
    if all { &ARRAYS } else { &ARRAYS[..IN_EVERY_RUN] }
}

#[test]
fn md_counts_nothing_after_overlapping_writes_with_workers() {
    let seed = seed(77);
    let images = Images::new();
    let mut script = String::new();
    for (number, &(name, options, members)) in in_turn().iter().enumerate() {
        let pattern = Pattern { seed: seed + number as u64 };
        let paths = images.sparse(&format!("{name}-"), members, MEMBER_BYTES);
        let content = stress(name, options, &paths, pattern);
        fs::write(images.folder().join(format!("{name}-expected")), content).expect("room on disk");
        spoil(&images, name, &paths);
        script += &format!(
            "attach $SHARE/{name}-[0-9]; quietly mdadm --assemble /dev/md0 \"${{LOOPS[@]}}\"
             same md0 $SHARE/{name}-expected; clean md0; quietly mdadm --stop /dev/md0; detach
             attach $SHARE/bad-{name}-[0-9]; quietly mdadm --assemble /dev/md0 \"${{LOOPS[@]}}\"
             check md0; echo {name} $MISMATCHES; quietly mdadm --stop /dev/md0; detach\n"
        );
    }
    let printed = Guest::new().share(images.folder()).limit_s(400).succeed(&script);
    for (name, ..) in in_turn() {
        let counted = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let counted = counted.expect("md says what it counts").trim();
        assert_ne!(counted, "0", "{name}: md must count a flipped byte");
    }
}

/// Copies of the members, one of them with a flipped bit in the first row.
fn spoil(images: &Images, name: &str, members: &[PathBuf]) {
    for (number, member) in members.iter().enumerate() {
        let copy = images.folder().join(format!("bad-{name}-{number}"));
        fs::copy(member, &copy).expect("room on disk");
        if number == 1 {
            flip(&copy, DATA_OFFSET + 1234);
        }
    }
}

/// Runs one array from its creation to its stop. Gives what it holds, with every sector looked at.
fn stress(name: &str, options: &str, members: &[PathBuf], pattern: Pattern) -> Vec<u8> {
    let mdspace = Mdspace::new();
    let (serve, devices) = (mdspace.serve(name), format!("--raid-devices={}", members.len()));
    let mut words = vec!["create", name, "--run", "--force", "--size=4M", "--data-offset=1M"];
    words.extend(["--lanes=2", &serve, &devices].into_iter().chain(options.split(' ')));
    words.extend(members.iter().map(|path| path_text(path)));
    mdspace.succeed(&words);
    mdspace.settle(name);
    let log = Mutex::new(Log::default());
    for longest in LONGEST_SECTORS {
        let enough = AtomicBool::new(false);
        let (log, enough) = (&log, &enough);
        thread::scope(|threads| {
            for client in 0..CLIENTS {
                let nbd = mdspace.connect(name);
                let random = Stream(pattern.seed << 16 | longest << 4 | client);
                threads.spawn(move || write_over(nbd, pattern, random, longest, log, enough));
            }
            let _end = End(enough);
            churn(&mdspace, name, path_text(&members[1]), log);
        });
    }
    let log = log.into_inner().expect("no panic");
    println!("{name}: {} writes", log.writes.len());
    let content = judge(&mut mdspace.connect(name), pattern, &log);
    assert_eq!(mdspace.check(name), 0, "{name}");
    mdspace.succeed(&["stop", name]);
    content
}

/// Tells the clients that it is enough, also where a change is refused: the test waits for them.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// While clients write: a member leaves and comes back, a check begins while it is filled, and on parity
/// levels the number of workers, their batches and the cache change.
fn churn(mdspace: &Mdspace, name: &str, member: &str, log: &Mutex<Log>) {
    let parity = !mdspace.value(name, "level").starts_with("raid1");
    let mut running = 0;
    some_writes(log);
    for change in 0..CHANGES {
        let pick = |values: [&'static str; 3]| values[change % 3];
        let of_workers = [
            ("group_thread_cnt", pick(["1", "2", "0"])),
            ("max_stripe_batch", pick(["32", "1", "8"])),
            ("stripe_cache_size", pick(["17", "256", "4096"])),
        ];
        for (key, value) in of_workers.into_iter().filter(|_| parity) {
            mdspace.succeed(&["set", name, &format!("{key}={value}")]);
        }
        match change % 3 {
            0 => drop(mdspace.succeed(&["fail", name, member])),
            1 => {
                mdspace.succeed(&["remove", name, member]);
                set(mdspace, name, SLOW);
                mdspace.succeed(&["add", name, member, "--run"]);
            }
            // Refused only while the recovery runs.
            _ => {
                set(mdspace, name, FAST);
                let done = mdspace.run(&["action", name, "check"]);
                assert!(done.status == 0 || done.err.contains("recover is under way"), "{done:#?}");
            }
        }
        some_writes(log);
        if change % 3 == 1 {
            let action = mdspace.value(name, "sync_action");
            assert_eq!(action, "recover", "{name}: writes meet the rebuild");
        }
        running += mdspace.report(name)["workers"]["running"].as_u64().expect("workers are told");
    }
    mdspace.settle(name);
    assert_eq!(running > 0, parity, "{name}: workers run where there is parity");
}

fn set(mdspace: &Mdspace, name: &str, settings: [&str; 2]) {
    settings.iter().for_each(|setting| drop(mdspace.succeed(&["set", name, setting])));
}

/// Returns once clients began some more writes.
fn some_writes(log: &Mutex<Log>) {
    let begun = || log.lock().map_or(usize::MAX, |log| log.writes.len());
    let enough = begun().saturating_add(WRITES_A_CHANGE);
    until("clients write", || begun() >= enough);
}

/// One client: writes at random, many at a time, also over its own.
fn write_over(
    mut nbd: Nbd,
    pattern: Pattern,
    mut random: Stream,
    longest: u64,
    log: &Mutex<Log>,
    enough: &AtomicBool,
) {
    let mut in_flight = BTreeMap::new();
    let goes_on = || !enough.load(Ordering::Relaxed);
    while goes_on() || !in_flight.is_empty() {
        if goes_on() && in_flight.len() < DEPTH {
            let most = if random.below(4) == 0 { longest } else { 16 };
            let sectors = 1 + random.below(most);
            let sector = random.below(AREA_SECTORS - sectors);
            let id = log.lock().expect("no panic").begin(sector, sectors);
            let write = Request::Write(sector * SECTOR as u64, pattern.bytes(sector, sectors, id));
            in_flight.insert(nbd.submit(&write).expect("the front takes a write"), id);
            continue;
        }
        let reply = nbd.receive().expect("the front answers");
        assert_eq!(reply.error, 0, "a write failed");
        let id = in_flight.remove(&reply.handle).expect("it was asked for");
        log.lock().expect("no panic").end(id);
    }
}

/// Reads the whole array; every sector must hold what a write put there that no later one replaced.
fn judge(nbd: &mut Nbd, pattern: Pattern, log: &Log) -> Vec<u8> {
    let mut content = Vec::new();
    while (content.len() as u64) < nbd.bytes {
        let bytes = (nbd.bytes - content.len() as u64).min(MIB);
        content.extend(nbd.read(content.len() as u64, bytes as u32));
    }
    for (sector, bytes) in (0..).zip(content.chunks(SECTOR)) {
        let id = pattern.version(sector, bytes).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(log.may_stand(sector, id), "sector {sector} holds write {id}, an old one");
    }
    content
}

/// What was written, with a clock that counts beginnings and ends. Writes count from 1.
#[derive(Default)]
struct Log {
    writes: Vec<Logged>,
    clock: u64,
}

struct Logged {
    sector: u64,
    sectors: u64,
    begun: u64,
    ended: u64,
}

impl Log {
    fn begin(&mut self, sector: u64, sectors: u64) -> u64 {
        self.clock += 1;
        self.writes.push(Logged { sector, sectors, begun: self.clock, ended: u64::MAX });
        self.writes.len() as u64
    }

    fn end(&mut self, id: u64) {
        self.clock += 1;
        self.writes[id as usize - 1].ended = self.clock;
    }

    /// Whether a sector may hold what `id` wrote, or with 0 nothing: none began there after its end.
    fn may_stand(&self, sector: u64, id: u64) -> bool {
        let covers =
            |write: &Logged| (write.sector..write.sector + write.sectors).contains(&sector);
        let ended = match id {
            0 => 0,
            id => match self.writes.get(id as usize - 1).filter(|write| covers(write)) {
                Some(write) => write.ended,
                None => return false,
            },
        };
        !self.writes.iter().any(|other| covers(other) && other.begun > ended)
    }
}

#[test]
fn a_sector_that_holds_an_old_write_is_noticed() {
    let mut log = Log::default();
    let first = log.begin(4, 4);
    let beside = log.begin(6, 4);
    log.end(first);
    let later = log.begin(4, 1);
    assert!(!log.may_stand(4, first) && log.may_stand(4, later), "it began after the other's end");
    assert!(log.may_stand(6, first) && log.may_stand(6, beside), "they ran together");
    assert!(!log.may_stand(8, first) && !log.may_stand(5, 0) && log.may_stand(20, 0));
}
