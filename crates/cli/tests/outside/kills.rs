//! A hundred times the array process is killed under load and its array assembled again. What was
//! acknowledged is there (the members' page cache survives a process), what was not is old or new,
//! and what was read once stays.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::harness::{
    Guest, Images, MIB, Mdspace, Model, Nbd, Pattern, Reply, Request, SECTOR, Stream, path_text,
    seed, until,
};

const KILLS_PER_ARRAY: u64 = 25;
const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 6 * MIB;
const DEPTH: usize = 16;
/// Bytes of one read when the whole array is compared.
const READ_BYTES: u32 = 1 << 20;
/// How often the process is left without memory, and how many such reads it is asked for then.
const STARVATIONS: u64 = 4;
const MANY_READS: usize = 64;

#[test]
fn a_raid1_survives_kills() {
    survive_kills("1", &[], 1001);
}

#[test]
fn a_raid5_survives_kills() {
    // --force: all members at once. Else the last one is rebuilt first, and a kill before that ends
    // leaves a dirty and degraded array, which is refused.
    survive_kills("5", &["--chunk=64", "--force"], 1005);
}

#[test]
fn a_raid6_survives_kills() {
    survive_kills("6", &["--chunk=16"], 1006);
}

#[test]
fn a_raid10_survives_kills() {
    survive_kills("10", &["--chunk=64", "--layout=f2"], 1010);
}

/// Where the system gives no more memory the process dies, and that is a crash like others.
#[test]
fn an_array_whose_process_gets_no_memory_loses_nothing() {
    let seed = seed(1040);
    let images = Images::new();
    let victim =
        Victim { members: images.sparse("m", MEMBERS, MEMBER_BYTES), mdspace: Mdspace::new() };
    let mut nbd = victim.create("6", &["--chunk=16"]);
    let mut model = Model::new(Pattern { seed }, nbd.bytes / SECTOR as u64);
    let mut random = Stream(seed);
    for kill in 1..=STARVATIONS {
        victim.write_until_starved(nbd, &mut model, &mut random, kill);
        nbd = victim.assemble();
        verify(&mut nbd, &mut model)
            .unwrap_or_else(|loss| panic!("seed {seed}, kill {kill}: {loss}"));
        assert_eq!(victim.mdspace.check("victim"), 0, "seed {seed}, kill {kill}");
    }
    // Where there is memory, as much is served.
    read_much(&mut nbd).expect("the array takes requests");
    while nbd.in_flight() > 0 {
        assert_eq!(nbd.receive().expect("the array answers").error, 0);
    }
}

/// Each round a member is lost and a blank one taken in; the process is killed while that is filled, at
/// another place each time, and goes on there. The last rebuild is left to md, with no write under way: md's rebuild
/// clears the bits of what a kill left different between the other copies (docs/mdadm.md, "Bugs of md that were met").
#[test]
fn rebuilds_survive_kills() {
    let images = Images::new();
    let mut guest = String::new();
    let mut models = Vec::new();
    for (level, options, own_seed) in REBUILT {
        models.push(survive_kills_in_rebuilds(&images, level, options, seed(own_seed)));
        guest += &format!(
            "echo raid{level}; attach $SHARE/l{level}m{{0,1,2,3}}
             quietly mdadm --assemble --run /dev/md0 \"${{LOOPS[@]}}\"
             whole md0; clean md0
             dd if=/dev/md0 of=$SHARE/data{level} bs=1M iflag=direct status=none
             quietly mdadm --stop /dev/md0; detach\n"
        );
    }
    Guest::new().share(images.folder()).succeed(&guest);
    for ((level, ..), model) in REBUILT.into_iter().zip(models) {
        let data = images.folder().join(format!("data{level}"));
        let found = std::fs::read(data).expect("md's copy");
        model
            .verify(0, &found)
            .unwrap_or_else(|loss| panic!("raid{level}, as md reads it: {loss}"));
    }
}

/// Level, options of create, and seed of the arrays with rebuilds.
const REBUILT: [(&str, &[&str], u64); 3] =
    [("1", &[], 1021), ("6", &["--chunk=16"], 1026), ("10", &["--chunk=64", "--layout=f2"], 1030)];
const KILLS_IN_REBUILDS: u64 = 3;

/// Under load, but where an array that is dirty and degraded would be refused.
fn survive_kills_in_rebuilds(images: &Images, level: &str, options: &[&str], seed: u64) -> Model {
    let members = images.sparse(&format!("l{level}m"), MEMBERS, MEMBER_BYTES);
    let victim = Victim { members, mdspace: Mdspace::new() };
    let mut nbd = victim.create(level, options);
    victim.mdspace.settle("victim");
    let mut model = Model::new(Pattern { seed }, nbd.bytes / SECTOR as u64);
    let mut random = Stream(seed);
    for kill in 1..=KILLS_IN_REBUILDS {
        let new = victim.begin_rebuild(kill);
        match (level, kill) {
            ("6", _) => {
                victim.write_until_clean(&mut nbd, &mut model, &mut random, kill);
                victim.mdspace.kill();
            }
            (_, KILLS_IN_REBUILDS) => {
                write_one_by_one(&mut nbd, &mut model, &mut random, kill);
                victim.mdspace.kill();
            }
            _ => victim.write_until_killed(nbd, &mut model, &mut random, kill),
        }
        let found = victim.mdspace.succeed(&["examine", new, "--json"]);
        let found: serde_json::Value = serde_json::from_str(&found).expect("examine prints JSON");
        let offset = &found["members"][0]["device"]["recovery_offset_sectors"];
        assert!(offset.is_u64(), "raid{level}, seed {seed}, kill {kill}: no recovery: {found}");
        if kill == KILLS_IN_REBUILDS {
            break;
        }
        nbd = victim.assemble();
        verify(&mut nbd, &mut model)
            .unwrap_or_else(|loss| panic!("raid{level}, seed {seed}, kill {kill}: {loss}"));
        assert_eq!(victim.mdspace.check("victim"), 0, "raid{level}, seed {seed}, kill {kill}");
    }
    model
}

fn survive_kills(level: &str, options: &[&str], own_seed: u64) {
    let seed = seed(own_seed);
    let images = Images::new();
    let victim =
        Victim { members: images.sparse("m", MEMBERS, MEMBER_BYTES), mdspace: Mdspace::new() };
    let mut nbd = victim.create(level, options);
    let mut model = Model::new(Pattern { seed }, nbd.bytes / SECTOR as u64);
    let mut random = Stream(seed);
    for kill in 1..=KILLS_PER_ARRAY {
        victim.write_until_killed(nbd, &mut model, &mut random, kill);
        nbd = victim.assemble();
        if kill % 5 == 0 {
            assert_eq!(victim.mdspace.check("victim"), 0, "seed {seed}, after kill {kill}");
        }
        verify(&mut nbd, &mut model)
            .unwrap_or_else(|loss| panic!("seed {seed}, kill {kill}: {loss}"));
    }
    assert_eq!(victim.mdspace.check("victim"), 0, "seed {seed}, at the end");
    drop(nbd);
    victim.mdspace.succeed(&["stop", "victim"]);

    let data = images.folder().join("data");
    Guest::new().share(images.folder()).succeed(
        "attach $SHARE/m{0,1,2,3}
         quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         dd if=/dev/md0 of=$SHARE/data bs=1M iflag=direct status=none
         clean md0; quietly mdadm --stop /dev/md0; detach",
    );
    let found = std::fs::read(data).expect("md's copy");
    model.verify(0, &found).unwrap_or_else(|loss| panic!("seed {seed}, as md reads it: {loss}"));
}

/// Reads all of the array; what it holds from now on is what was read.
fn verify(nbd: &mut Nbd, model: &mut Model) -> Result<(), String> {
    for offset in (0..nbd.bytes).step_by(READ_BYTES as usize) {
        let bytes = nbd.read(offset, READ_BYTES.min((nbd.bytes - offset) as u32));
        let first = offset / SECTOR as u64;
        model.verify(first, &bytes)?;
        model.settle(first, &bytes);
    }
    Ok(())
}

struct Victim {
    members: Vec<PathBuf>,
    mdspace: Mdspace,
}

impl Victim {
    fn create(&self, level: &str, options: &[&str]) -> Nbd {
        let level = format!("--level={level}");
        let fixed = ["create", "victim", &level, "--raid-devices=4", "--size=4M", "--run"];
        self.start(&[&fixed, options].concat())
    }

    fn assemble(&self) -> Nbd {
        self.start(&["assemble", "victim"])
    }

    fn start(&self, arguments: &[&str]) -> Nbd {
        let serve = self.mdspace.serve("victim");
        let mut arguments = [arguments, &[&serve]].concat();
        arguments.extend(self.members.iter().map(|path| path_text(path)));
        self.mdspace.succeed(&arguments);
        self.mdspace.connect("victim")
    }

    /// Fails a member, takes it in again as a blank one, and returns when another part of it is filled each
    /// time, at a speed that leaves time to write. Gives its name.
    fn begin_rebuild(&self, kill: u64) -> &str {
        let mdspace = &self.mdspace;
        let name = path_text(&self.members[kill as usize % MEMBERS]);
        for speed in ["sync_speed_min=64", "sync_speed_max=4096"] {
            mdspace.succeed(&["set", "victim", speed]);
        }
        mdspace.succeed(&["fail", "victim", name]);
        mdspace.succeed(&["remove", "victim", name]);
        mdspace.succeed(&["zero-superblock", "--run", name]);
        mdspace.succeed(&["add", "victim", name, "--run"]);
        until("the rebuild has come so far", || {
            let sync = &mdspace.detail("victim")["sync"];
            let [done, all] =
                ["completed_sectors", "total_sectors"].map(|key| sync[key].as_u64().unwrap_or(0));
            sync["action"] == "recover" && done * (KILLS_IN_REBUILDS + 1) >= all * (kill - 1)
        });
        name
    }

    /// Writes, until all is answered and the members say so.
    fn write_until_clean(&self, nbd: &mut Nbd, model: &mut Model, random: &mut Stream, kill: u64) {
        write_one_by_one(nbd, model, random, kill);
        until("the array is clean", || self.mdspace.value("victim", "array_state") == "clean");
    }

    /// Keeps writes in flight until some have been acknowledged, then kills the process.
    fn write_until_killed(&self, mut nbd: Nbd, model: &mut Model, random: &mut Stream, kill: u64) {
        let enough = 1 + random.below(100);
        write_some(&mut nbd, &mut Writes::new(), model, random, (kill, enough)).expect("it lives");
        self.mdspace.kill();
    }

    /// Keeps writes in flight, takes the process its memory, and asks for more than it has ever needed.
    fn write_until_starved(&self, mut nbd: Nbd, model: &mut Model, random: &mut Stream, kill: u64) {
        let mut writes = Writes::new();
        write_some(&mut nbd, &mut writes, model, random, (kill, 20)).expect("it lives");
        let processes = self.mdspace.starve();
        // It may be gone before it has all of them.
        let _ = read_much(&mut nbd);
        let ended = loop {
            match nbd.receive() {
                Ok(reply) => note(&mut writes, model, &reply),
                Err(error) => break error,
            }
        };
        let log = self.mdspace.log_of_the_dead("victim", &processes);
        assert!(log.contains("memory allocation of"), "it ended otherwise: {ended}; {log}");
    }
}

/// Writes in flight: where each of them goes, by handle.
type Writes = BTreeMap<u64, (u64, u64)>;

/// Writes a few extents of a version, each to its answer. Members are not marked clean at once.
fn write_one_by_one(nbd: &mut Nbd, model: &mut Model, random: &mut Stream, version: u64) {
    for _ in 0..20 {
        let (extent, request) = next_request(&BTreeMap::new(), model, random, version);
        nbd.submit(&request).expect("the array takes requests");
        assert_eq!(nbd.receive().expect("the array answers").error, 0, "a request failed");
        extent.into_iter().for_each(|(first, count)| model.promise(first, count));
    }
}

/// Keeps writes of a version in flight until so many have been acknowledged.
fn write_some(
    nbd: &mut Nbd,
    writes: &mut Writes,
    model: &mut Model,
    random: &mut Stream,
    (version, enough): (u64, u64),
) -> std::io::Result<()> {
    let mut acknowledged = 0;
    while acknowledged < enough {
        if nbd.in_flight() < DEPTH {
            let request = next_request(writes, model, random, version);
            let handle = nbd.submit(&request.1)?;
            if let Some(extent) = request.0 {
                writes.insert(handle, extent);
            }
            continue;
        }
        let before = writes.len();
        let reply = nbd.receive()?;
        note(writes, model, &reply);
        acknowledged += (before - writes.len()) as u64;
    }
    Ok(())
}

/// Takes note of an answer.
fn note(writes: &mut Writes, model: &mut Model, reply: &Reply) {
    assert_eq!(reply.error, 0, "a request failed");
    if let Some((first, count)) = writes.remove(&reply.handle) {
        model.promise(first, count);
    }
}

/// Asks for more bytes at once than the process keeps in stock.
fn read_much(nbd: &mut Nbd) -> std::io::Result<()> {
    for _ in 0..MANY_READS {
        nbd.submit(&Request::Read(0, READ_BYTES))?;
    }
    Ok(())
}

/// A flush now and then, else a write that overlaps none in flight.
fn next_request(
    writes: &BTreeMap<u64, (u64, u64)>,
    model: &mut Model,
    random: &mut Stream,
    version: u64,
) -> (Option<(u64, u64)>, Request) {
    if random.below(20) == 0 {
        return (None, Request::Flush);
    }
    loop {
        let longest = [4, 32, 256][random.below(3) as usize];
        let count = 1 + random.below(longest);
        let first = random.below(model.sectors() - count);
        let free =
            |&(start, length): &(u64, u64)| first + count <= start || start + length <= first;
        if !writes.values().all(free) {
            continue;
        }
        let bytes = model.write(first, count, version);
        let offset = first * SECTOR as u64;
        let fua = random.below(8) == 0;
        let request =
            if fua { Request::WriteFua(offset, bytes) } else { Request::Write(offset, bytes) };
        return (Some((first, count)), request);
    }
}
