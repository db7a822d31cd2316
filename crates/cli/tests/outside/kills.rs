//! A hundred times the array process is killed under load and its array assembled again. What was
//! acknowledged is there (the members' page cache survives a process), what was not is old or new,
//! and what was read once stays.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::harness::{
    Guest, Images, MIB, Mdspace, Model, Nbd, Pattern, Request, SECTOR, Stream, path_text, seed,
};

const KILLS_PER_ARRAY: u64 = 25;
const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 6 * MIB;
const DEPTH: usize = 16;
/// Bytes of one read when the whole array is compared.
const READ_BYTES: u32 = 1 << 20;

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

    /// Keeps writes in flight until some have been acknowledged, then kills the process.
    fn write_until_killed(&self, mut nbd: Nbd, model: &mut Model, random: &mut Stream, kill: u64) {
        let mut writes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut acknowledged = 0;
        let enough = 1 + random.below(100);
        while acknowledged < enough {
            if nbd.in_flight() < DEPTH {
                let request = next_request(&writes, model, random, kill);
                let handle = nbd.submit(&request.1).expect("the array takes requests");
                if let Some(extent) = request.0 {
                    writes.insert(handle, extent);
                }
                continue;
            }
            let reply = nbd.receive().expect("the array answers");
            assert_eq!(reply.error, 0, "a write failed");
            if let Some((first, count)) = writes.remove(&reply.handle) {
                model.promise(first, count);
                acknowledged += 1;
            }
        }
        self.mdspace.kill();
    }
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
