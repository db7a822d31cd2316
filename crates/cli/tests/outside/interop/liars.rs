//! Bytes that flip on members of a stopped array: mdspace names who lies and mends that member, or says
//! that nobody can tell and changes nothing. The real md counts nothing afterwards, and counted before.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::our_side::first_difference;
use crate::harness::{
    Done, Guest, Images, MIB, Mdspace, Pattern, SECTOR, UNDECIDABLE, flip, path_text,
};

const DATA_OFFSET: u64 = MIB;
const CHUNK: u64 = 64 << 10;
/// Members have room for 4 MiB of data, superblock and bitmap.
const MEMBER_BYTES: u64 = 6 * MIB;

/// A stopped array, whole and full.
struct Stopped<'a> {
    images: &'a Images,
    mdspace: Mdspace,
    name: &'static str,
    members: Vec<PathBuf>,
    content: Vec<u8>,
}

impl<'a> Stopped<'a> {
    fn new(images: &'a Images, name: &'static str, options: &str, count: usize) -> Self {
        let mdspace = Mdspace::new();
        let members = images.sparse(&format!("{name}-m"), count, MEMBER_BYTES);
        let (serve, devices) = (mdspace.serve(name), format!("--raid-devices={count}"));
        let mut words = vec!["create", name, "--run", "--force", "--size=4M", "--data-offset=1M"];
        words.extend([&*devices, &serve].into_iter().chain(options.split(' ')));
        words.extend(members.iter().map(|member| path_text(member)));
        mdspace.succeed(&words);
        let mut nbd = mdspace.connect(name);
        let content = Pattern { seed: 91 }.bytes(0, nbd.bytes / SECTOR as u64, 1);
        nbd.write(0, &content);
        nbd.flush();
        drop(nbd);
        assert_eq!(mdspace.check(name), 0, "{name}");
        mdspace.succeed(&["stop", name]);
        fs::write(images.folder().join(format!("{name}-expected")), &content).expect("room");
        Self { images, mdspace, name, members, content }
    }

    fn assemble(&self) {
        let serve = self.mdspace.serve(self.name);
        let mut words = vec!["assemble", self.name, &serve];
        words.extend(self.members.iter().map(|member| path_text(member)));
        self.mdspace.succeed(&words);
    }

    fn action(&self, words: &[&str]) -> Done {
        self.mdspace.run(&[&["action", self.name], words, &["--wait"]].concat())
    }

    fn stop(&self) {
        self.mdspace.succeed(&["stop", self.name]);
    }

    /// What every member holds of the array.
    fn data(&self) -> Vec<Vec<u8>> {
        let data =
            |member: &PathBuf| fs::read(member).expect("a member").split_off(DATA_OFFSET as usize);
        self.members.iter().map(data).collect()
    }

    /// What a user reads.
    fn expect_content(&self) {
        let mut nbd = self.mdspace.connect(self.name);
        let found = nbd.read(0, nbd.bytes as u32);
        assert_eq!(first_difference(&found, &self.content), None, "{}", self.name);
    }

    /// Copies of the members as they are now, for md.
    fn keep_copies(&self) {
        for member in &self.members {
            let name = member.file_name().expect("images have names").to_string_lossy();
            let copy = self.images.folder().join(format!("lying-{name}"));
            fs::copy(member, copy).expect("room on disk");
        }
    }

    /// Guest script: md assembles the copies, and prints what its check counts; then the members that
    /// mdspace has mended, on which it must count nothing, and which must hold what users wrote.
    fn judged_by_md(&self) -> String {
        let name = self.name;
        format!(
            "attach $SHARE/lying-{name}-m*; quietly mdadm --assemble /dev/md0 \"${{LOOPS[@]}}\"
             check md0; echo {name} $MISMATCHES; quietly mdadm --stop /dev/md0; detach
             attach $SHARE/{name}-m*; quietly mdadm --assemble /dev/md0 \"${{LOOPS[@]}}\"
             clean md0; same md0 $SHARE/{name}-expected; quietly mdadm --stop /dev/md0; detach\n"
        )
    }

    fn mismatches(&self) -> Value {
        self.mdspace.detail(self.name)["mismatches"].clone()
    }
}

/// Has md judge all of them, and tells what it counted before they were mended.
fn judge(images: &Images, arrays: &[Stopped<'_>]) {
    let script: String = arrays.iter().map(Stopped::judged_by_md).collect();
    let printed = Guest::new().share(images.folder()).limit_s(200).succeed(&script);
    for array in arrays {
        let line = printed.lines().find_map(|line| line.strip_prefix(array.name));
        let counted: u64 = line.and_then(|line| line.trim().parse().ok()).expect("md counts");
        assert!(counted > 0, "{}: md must count what was flipped", array.name);
    }
}

fn is_member(value: &Value, member: &Path) -> bool {
    value.as_str() == Some(path_text(member))
}

/// A byte in each of several rows, on every member in turn: with rotating parity some are data, some
/// are P, some are Q.
#[test]
fn the_liar_is_named_and_mended_and_the_real_md_counts_nothing() {
    let images = Images::new();
    let arrays = [("r6", "--level=6 --chunk=64", 5), ("r1", "--level=1", 3)]
        .map(|(name, options, count)| Stopped::new(&images, name, options, count));
    for array in &arrays {
        let right = array.data();
        let lies: Vec<(usize, u64)> = (0..3 * array.members.len() as u64)
            .map(|number| (number as usize % array.members.len(), number * CHUNK + 777 * number))
            .collect();
        for (member, at) in &lies {
            flip(&array.members[*member], DATA_OFFSET + at);
        }
        array.keep_copies();
        array.assemble();
        let checked = array.action(&["check"]);
        assert_eq!(checked.status, 0, "{checked:#?}");
        expect_named(array, &lies);
        assert!(checked.out.matches("differs from what all others say").count() == lies.len());
        let events = array.mdspace.succeed(&["events", array.name, "--json"]);
        assert_eq!(events.matches("\"Mismatch\"").count(), lies.len(), "{events}");

        let repaired = array.action(&["repair"]);
        assert_eq!(repaired.status, 0, "{repaired:#?}");
        assert_eq!(array.mdspace.check(array.name), 0);
        assert_eq!(array.mismatches()["places"], 0);
        array.expect_content();
        array.stop();
        let mended = array.data();
        for (slot, right) in right.iter().enumerate() {
            assert!(mended[slot] == *right, "{}: member {slot} is not what it was", array.name);
        }
    }
    judge(&images, &arrays);
}

/// `detail --json` says of each lie who tells it and where, and of nobody else.
fn expect_named(array: &Stopped<'_>, lies: &[(usize, u64)]) {
    let found = array.mismatches();
    assert_eq!((&found["places"], &found["undecidable"]), (&lies.len().into(), &0.into()));
    let places = found["first"].as_array().expect("a list");
    for (member, at) in lies {
        let is_it = |place: &&Value| {
            place["member_sector"] == at / SECTOR as u64
                && is_member(&place["liar"], &array.members[*member])
        };
        let place = places.iter().find(is_it);
        let place = place.unwrap_or_else(|| panic!("member {member}, byte {at}: {found:#}"));
        let is_mirror = place["row"].is_null();
        assert_eq!(place["may_be_harmless"], is_mirror, "{place}");
        assert!(is_mirror || place["row"] == at / CHUNK, "{place}");
        assert_eq!((&place["sectors"], &place["liar_slot"]), (&1.into(), &(*member).into()));
    }
}

/// Arrays on which the evidence does not tell who lies, with the members that lie, all at one place.
const UNDECIDABLES: [(&str, &str, usize, &[usize]); 5] = [
    ("u5", "--level=5 --chunk=64", 4, &[1]),
    ("u1", "--level=1", 2, &[1]),
    ("u10", "--level=10 --chunk=64", 4, &[1]),
    ("u6", "--level=6 --chunk=64", 5, &[0, 1]),
    ("u3", "--level=1", 3, &[1, 2]),
];

#[test]
fn what_nobody_can_tell_is_left_alone_until_the_user_decides() {
    let images = Images::new();
    let arrays = UNDECIDABLES
        .map(|(name, options, count, liars)| (Stopped::new(&images, name, options, count), liars));
    for (array, liars) in &arrays {
        let right = array.data();
        // The row of these layouts that has data on the first two members, and no parity.
        for (nth, liar) in (0..).zip(*liars) {
            // No two of them tell the same lie.
            flip(&array.members[*liar], DATA_OFFSET + CHUNK + 5000 + nth);
        }
        array.keep_copies();
        let lying = array.data();
        array.assemble();
        for action in ["check", "repair"] {
            expect_undecidable(array, &array.action(&[action]));
        }
        array.stop();
        assert!(array.data() == lying, "{}: something was changed", array.name);
        decide(array, liars, &right);
    }
    judge(&images, &arrays.map(|(array, _)| array));
}

fn expect_undecidable(array: &Stopped<'_>, done: &Done) {
    assert_eq!(done.status, UNDECIDABLE, "{}: {done:#?}", array.name);
    let is_mirror = matches!(array.name, "u1" | "u10" | "u3");
    let sector = (CHUNK + 5000) / SECTOR as u64;
    assert!(done.out.contains(&format!("1 from {sector} of members' data")), "{done:#?}");
    assert!(done.out.contains("undecidable between"), "{done:#?}");
    assert_eq!(done.out.contains("may be harmless"), is_mirror, "{done:#?}");
    let repair = format!("mdspace action {} repair", array.name);
    assert!(done.err.contains(&format!("{repair} --force-parity")), "{done:#?}");
    let trust = format!("{repair} --trust={}", path_text(&array.members[1]));
    assert_eq!(done.err.contains(&trust), is_mirror, "{done:#?}");
    let found = array.mismatches();
    assert_eq!((&found["places"], &found["undecidable"]), (&1.into(), &1.into()), "{found:#}");
    assert!(found["first"][0]["liar"].is_null(), "{found:#}");
}

/// On mirrors the user knows which copy is right. On parity levels the data are believed: what was
/// written is what users read from then on, so it is written again.
fn decide(array: &Stopped<'_>, liars: &[usize], right: &[Vec<u8>]) {
    array.assemble();
    let trusted = path_text(&array.members[0]);
    if array.mdspace.detail(array.name)["level"].as_str().is_some_and(|level| level < "raid4") {
        assert_eq!(array.action(&["repair", &format!("--trust={trusted}")]).status, 0);
        array.expect_content();
    } else {
        let refused = array.action(&["repair", &format!("--trust={trusted}")]);
        assert_eq!(refused.status, 1, "{refused:#?}");
        assert_eq!(array.action(&["repair", "--force-parity"]).status, 0);
        let mut nbd = array.mdspace.connect(array.name);
        let found = nbd.read(0, nbd.bytes as u32);
        let differing = found.chunks(SECTOR).zip(array.content.chunks(SECTOR));
        let differing = differing.filter(|(found, written)| found != written).count();
        assert_eq!(differing, liars.len(), "{}: what lies is believed", array.name);
        nbd.write(0, &array.content);
        nbd.flush();
    }
    assert_eq!(array.mdspace.check(array.name), 0, "{}", array.name);
    array.stop();
    assert!(array.data() == right, "{}: it is as it was", array.name);
}
