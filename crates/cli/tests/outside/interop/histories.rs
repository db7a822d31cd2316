//! Random histories of arrays that md and mdspace hand to each other at any moment: created by either,
//! written, members failed, taken back and replaced, power cut or the process killed, stopped in the
//! middle of a resync, a rebuild or a replacement. Each side reads all that the other left, and counts
//! mismatches.
//!
//! Many arrays share a boot. mdspace goes first and last. Ten seeds are fixed; `MDSPACE_SEED` and
//! `MDSPACE_HISTORIES` ask for others, and replay one.
//!
//! Bugs of md are walked around:
//! - It forgets parts of a recovery by bitmap that is stopped on a far layout, and finishes it with old
//!   data: such a recovery is not handed over there.
//! - It goes on with a replacement on a dirty array by writing zeroes in place of parity: power is not cut
//!   while a member is replaced.
//!
//! Neither side starts a dirty array with parity that lacks a member without force: power is not cut
//! while such an array lacks one.

mod ours;
mod plan;
mod theirs;

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::path::PathBuf;

use crate::harness::{Guest, Images, MIB, Mdspace, Model, Pattern, Stream, flip, seed};
use plan::{End, Leg, Shape, Step, Write};

const FIRST_SEED: u64 = 7001;
const HISTORIES: u64 = 10;
/// How often each side has the arrays; mdspace once more.
const TURNS: usize = 2;
const MEMBER_BYTES: u64 = 6 * MIB;

#[test]
fn random_histories_between_md_and_mdspace_lose_nothing() {
    let first = seed(FIRST_SEED);
    let count = env::var("MDSPACE_HISTORIES").ok();
    let count = count.map_or(HISTORIES, |text| text.parse().expect("a number of histories"));
    let images = Images::new();
    let mut all: Vec<History> =
        (first..first + count).map(|seed| History::new(seed, &images)).collect();
    for _ in 0..TURNS {
        all.iter_mut().for_each(History::our_leg);
        their_legs(&mut all, &images);
    }
    all.iter_mut().for_each(History::last_leg);
    all.first_mut().expect("one history").must_be_noticed();
}

/// The plans of the fixed seeds, carried out by neither side.
#[test]
fn the_fixed_histories_have_every_kind_of_step_and_hand_over() {
    let images = Images::new();
    let (mut seen, mut half_way) = (BTreeSet::new(), BTreeSet::new());
    let mut made_by = BTreeSet::new();
    for seed in FIRST_SEED..FIRST_SEED + HISTORIES {
        let mut history = History::new(seed, &images);
        for cut in [End::Kill, End::PowerCut].repeat(TURNS) {
            if cut == End::Kill && history.is_mds() {
                continue;
            }
            if !history.created {
                made_by.insert(cut == End::Kill);
            }
            let leg = history.next_leg(|history| plan::leg(history, cut));
            history.created = true;
            let kinds = leg.steps.iter().map(|step| format!("{step:?}"));
            let words = kinds.chain([format!("{:?}", leg.end)]);
            seen.extend(words.filter_map(|word| Some(word.split([' ', '(']).next()?.to_owned())));
            let filling = history.roles.contains(&Role::Filling);
            half_way.insert((cut == End::Kill, filling, history.roles.contains(&Role::Replaced)));
        }
    }
    let steps =
        ["Check", "Fail", "Flush", "Remove", "Replace", "Return", "Settle", "Slow", "Write"];
    let ends = ["Kill", "PowerCut", "Stop"];
    assert_eq!(seen, steps.into_iter().chain(ends).map(str::to_owned).collect());
    for by_us in [true, false] {
        assert!(made_by.contains(&by_us));
        for replaced in [true, false] {
            assert!(
                half_way.contains(&(by_us, true, replaced)),
                "{by_us} {replaced}: {half_way:?}"
            );
        }
    }
}

/// One boot of md: arrays that are stopped one after the other, then those whose power is cut at once.
fn their_legs(all: &mut [History], images: &Images) {
    let mut legs: Vec<(&mut History, Leg)> = all
        .iter_mut()
        .map(|history| {
            let leg = history.next_leg(|history| plan::leg(history, End::PowerCut));
            (history, leg)
        })
        .collect();
    legs.sort_by_key(|(_, leg)| leg.end != End::Stop);
    let mut script = theirs::FUNCTIONS.to_owned();
    for (number, (history, leg)) in legs.iter().enumerate() {
        script += &theirs::script(history, leg, number);
    }
    if legs.iter().any(|(_, leg)| leg.end != End::Stop) {
        script += "/run/crash 0\n";
    }
    let outcome = Guest::new().share(images.folder()).limit_s(400).run(&script);
    if outcome.status != 0 {
        for (history, _) in &legs {
            eprintln!("{}", history.told());
        }
        panic!(
            "md ended with {}; the last history that it names:\n{}",
            outcome.status, outcome.printed
        );
    }
    for (history, leg) in legs {
        let read = fs::read(history.copy()).expect("md has read the array");
        history.has_read(&read);
        history.has_done(&leg);
    }
}

/// One array.
struct History {
    seed: u64,
    random: Stream,
    shape: &'static Shape,
    /// As many as slots, and a spare.
    images: Vec<PathBuf>,
    /// What each image is to the array.
    roles: Vec<Role>,
    /// The same when the leg began.
    before: Vec<Role>,
    created: bool,
    /// md makes it, and mdspace passes its first turn.
    md_creates: bool,
    /// Resync is still to come, or may be.
    unsynced: bool,
    model: Option<Model>,
    version: u64,
    legs: Vec<String>,
}

/// What an image is to its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Member,
    /// It is being filled, or the other side is to begin with that.
    Filling,
    /// It is being replaced by the one that is filled.
    Replaced,
    /// It was failed and removed.
    Out,
    /// It has nothing.
    Blank,
}

impl History {
    fn new(seed: u64, images: &Images) -> Self {
        let shape = Shape::of(seed);
        let images = images.sparse(&format!("h{seed}-"), shape.members + 1, MEMBER_BYTES);
        let mut roles = vec![Role::Member; shape.members];
        roles.push(Role::Blank);
        let before = roles.clone();
        let mut random = Stream(seed);
        let md_creates = random.below(2) == 0;
        let (created, unsynced, model, version, legs) = Default::default();
        Self {
            seed,
            random,
            shape,
            images,
            roles,
            before,
            created,
            md_creates,
            unsynced,
            model,
            version,
            legs,
        }
    }

    /// Steps so far, and how to take them again.
    fn told(&self) -> String {
        format!(
            "history {} ({}): MDSPACE_SEED={} MDSPACE_HISTORIES=1 replays it\n  {}",
            self.seed,
            self.shape.options,
            self.seed,
            self.legs.join("\n  ")
        )
    }

    fn copy(&self) -> PathBuf {
        self.images[0].with_file_name(format!("h{}-copy", self.seed))
    }

    fn next_leg(&mut self, draw: impl Fn(&mut Self) -> Leg) -> Leg {
        // Images that have nothing to say any more are blank for the next side.
        for (image, role) in self.images.iter().zip(&self.roles) {
            if *role == Role::Blank {
                let file = File::create(image).expect("the image is ours");
                file.set_len(MEMBER_BYTES).expect("a sparse file of any size");
            }
        }
        self.before.clone_from(&self.roles);
        let leg = draw(self);
        self.legs.push(format!("{leg:?}"));
        leg
    }

    fn our_leg(&mut self) {
        if self.is_mds() {
            return;
        }
        self.ours(|history| plan::leg(history, End::Kill));
    }

    /// Whether the next turn is md's: it is to make the array.
    fn is_mds(&self) -> bool {
        self.md_creates && !self.created
    }

    /// Everything is read, made whole, and counted.
    fn last_leg(&mut self) {
        self.ours(plan::last);
    }

    fn ours(&mut self, draw: impl Fn(&mut Self) -> Leg) {
        let leg = self.next_leg(draw);
        let shown = Shown(self.told());
        let read = ours::run(self, &leg);
        self.has_read(&read);
        self.has_done(&leg);
        drop(shown);
    }

    /// Takes what a side has read at the start of its leg for what the array holds.
    fn has_read(&mut self, read: &[u8]) {
        let sectors = (read.len() / crate::harness::SECTOR) as u64;
        let pattern = Pattern { seed: self.seed };
        let model = self.model.get_or_insert_with(|| Model::new(pattern, sectors));
        if let Err(loss) = model.verify(0, read) {
            panic!("{loss}\n{}", self.told());
        }
        assert_eq!(model.sectors(), sectors, "{}", self.told());
        model.settle(0, read);
    }

    /// What it did then. A write that was flushed, or answered by a side that stopped in order, is promised.
    fn has_done(&mut self, leg: &Leg) {
        self.created = true;
        let model = self.model.as_mut().expect("it was read");
        for step in &leg.steps {
            match step {
                Step::Write(write) => {
                    model.write(write.first, write.count, write.version);
                }
                Step::Flush => model.promise_all(),
                _ => {}
            }
        }
        if leg.end == End::Stop {
            model.promise_all();
        }
    }

    /// Negative control: a write that the array never got, and a byte that is not what it was.
    fn must_be_noticed(&mut self) {
        let read = self.next_leg(|_| Leg { creates: false, steps: Vec::new(), end: End::Stop });
        let found = ours::run(self, &read);
        let model = self.model.as_ref().expect("it was read");
        let mut other = model.clone();
        other.write(9, 1, u64::from(u16::MAX));
        other.promise_all();
        assert!(model.verify(0, &found).is_ok() && other.verify(0, &found).is_err());

        let member = self.roles.iter().position(|role| *role == Role::Member);
        flip(&self.images[member.expect("it has members")], 3 * MIB);
        let mdspace = Mdspace::new();
        let nbd = ours::start(self, &mdspace, &["assemble"]);
        drop(nbd);
        assert_ne!(mdspace.check(&ours::name(self)), 0, "a flipped byte is no mismatch");
    }

    /// Bytes of a write.
    fn bytes(&self, write: &Write) -> Vec<u8> {
        Pattern { seed: self.seed }.bytes(write.first, write.count, write.version)
    }
}

/// Printed when a history fails.
struct Shown(String);

impl Drop for Shown {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}
