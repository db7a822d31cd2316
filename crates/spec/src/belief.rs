//! Who may be believed.
//!
//! A mirror of A and B with a spare C, or a row of RAID5: D0, D1, their P, and a spare S. Two lanes serve
//! writes and reads, each by the view that it has adopted, under one claim. The controller hears news,
//! publishes views, writes superblocks and bad-block lists in either order, fills, replaces, takes
//! members back, resyncs, and gives members up by order. Member writes end one by one: done; refused,
//! landed or not; the member goes; or the write hangs, is given up, and lands later. Power may be cut in
//! any state. Members are durable at once: caches are the subject of [`crate::flush`].
//!
//! 1. A read returns no version older than one that was answered, or read with nothing under way,
//!    before it began, nor bytes that were never written.
//! 2. A block that was answered is "lost" only if faults since then took every way in which it was held.
//! 3. With nothing under way and nothing in doubt all believed copies, and parity, agree.
//! 4. From every state the array's own steps lead to one in which no request waits.
//!
//! Not modelled: flushes, intent and its clearing (it marks exactly what is being written at a cut), the
//! order of one update among several survivors, two claims at once, the stripe cache, full lists.

use crate::rules::rules;
use crate::search::{Model, Steps};
use crate::verdict::{Credulous, Level};
pub(crate) use scopes::{LARGE, NOT_NEEDED, SCOPES, Scope, shown_in};

mod controller;
mod filling;
mod holders;
mod judging;
mod reads;
mod scopes;
mod world;
mod writes;

rules! {
    JudgedByBlocks: "A write is answered by who holds each written block and is believed by durable records, however many members are left.",
    ListedCounts: "A copy that took the write and is still listed counts once its entry is off the durable list.",
    UnfilledCounts: "What lies beyond the durable offset of a member that is being filled counts for nothing.",
    DoubtCounts: "Parity in doubt counts for nothing; where parity alone holds a block, the doubt ends durably before the answer.",
    AskedAgain: "When what was to be recorded has settled, the verdict is asked again, by the records of then.",
    OnlyForward: "After its first member write a write reads and plans nothing again.",
    ReconstructInDoubt: "Parity that was made of doubted parity is not right: it ends no doubt and holds no block.",
    ErrorLeavesDoubt: "An error is told only when its columns are in doubt, durably and for all lanes.",
    DoubtEndsByWhole: "A write ends the doubt of the columns that it made right in every believed slot, and of no other.",
    ClaimUntilSettled: "The claim goes back only when news that was met under it is published, durable and adopted.",
    ReadNewsUnderClaim: "A read that meets an unreadable block keeps its claim until that news has settled.",
    RecordedBeforeAnswer: "Who did not take a write is out in the survivors' superblocks before the answer, also who left by hand-over.",
    ListedBeforeAnswer: "A refused block is in its member's durable list before the answer.",
    ListUntilOut: "The list of a member that goes out is forgotten only when the member is durably out.",
    AdoptedBeforeAnswer: "Every lane with a request open has adopted a view in which the member is not read, before the answer.",
    SleeperAdoptsFirst: "A lane without requests counts as having adopted, and takes the newest view before its next request.",
    ViewAfterClaim: "A request that claims takes its view after the claim is granted.",
    LostUnderClaim: "A read says lost only under the claim and by the newest view.",
    WritesReachFilling: "Writes go to every member that is present, to one that is being filled also beyond its offset.",
    FailureMakesHole: "A member that is being filled and did not take a write has a hole there, copied or not, reported or not.",
    RewritesReachFilling: "Resync and rewrites go to a member that is being filled too; in a row a replacement is the second copy of its block.",
    AdoptedBeforeCopy: "The first block is copied only when every lane writes to the member that is filled.",
    QuietBeforeReuse: "A member is taken back only when nothing is in flight to it, hung writes included.",
    InSyncAfterDoubt: "No member is called in sync while a column is in doubt: that would change which copy is believed.",
    FixedCopyInDoubt: "A mirror in doubt is read from one copy: the first readable one, in sync before being filled, in slot order.",
    BeliefByBlock: "In doubt each block comes from its own first readable copy, in narrow and wide reads and in resync alike.",
    SameCopyForAll: "Reads, resync, recovery and hand-over take the same copy.",
    ReadsInDoubtRecorded: "A read of what is in doubt waits while the view that it follows is not durable.",
    ResyncAsksToo: "A resync is a write: its doubt ends when every believed copy took it or is on record as out.",
    NoComputingInDoubt: "Parity in doubt computes nothing.",
    GivenUpByBlocks: "A member is given up by choice only if every block stays held without it.",
    GivenUpInQuiet: "A member is given up by choice only while no write is under way.",
    NotGivenUpInDoubt: "The copy that a column in doubt is read from is not given up by choice.",
    BrokenNotRecorded: "Losing more members at once than the level bears is not recorded.",
    BrokenReadsNoDoubt: "A broken array answers no read where a write had begun when it broke, and a broken mirror none of what is in doubt.",
    AdoptsWhileWaiting: "A lane adopts also while its requests wait for claims.",
    AdoptNotDrain: "A member that failed is taken out without waiting for what is in flight on it.",
    BrokenEndsWaits: "Who waits for a record that will never be made is told that the array is broken.",
    NewsJudgedNow: "Whether a refusal is a listed block or a hole is decided by what the member is when the controller hears of it.",
    ErrorByNewestView: "A lane says that a write fails only by the newest view, once that is recorded; an old view may only answer.",
    ReplacementIsRead: "A block that the old member lists is held and read by the replacement that has it.",
}

const DEVICES: usize = 4;
const LANES: usize = 2;
/// The controller's own place for news, after the lanes'.
const CONTROLLER: usize = 2;
/// Bytes that belong to no version.
const FOREIGN: u8 = 15;
/// In `ways`: this block must be there, whatever happens.
const MUST: u8 = 0x80;

/// Masks: of devices, of a device's columns ([`place`]), of columns, of blocks.
type Devices = u8;
type Places = u8;
type Columns = u8;
type Blocks = u8;

fn place(device: usize, column: usize) -> Places {
    1 << (device * 2 + column)
}

fn places_of(device: usize) -> Places {
    0b11 << (device * 2)
}

fn has(mask: u8, number: usize) -> bool {
    mask & 1 << number != 0
}

fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |&number| has(mask, number))
}

fn mask(numbers: impl Iterator<Item = usize>) -> u8 {
    numbers.fold(0, |mask, number| mask | 1 << number)
}

/// One search: the rule that is off, and whether copies that differ are wrong before they are read.
pub(crate) struct Belief {
    pub(crate) without: Option<Rule>,
    pub(crate) scope: Scope,
    pub(crate) compares: bool,
}

/// What the array is, as a lane has it or as superblocks and lists have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct View {
    members: Devices,
    filling: Devices,
    /// The slot that the spare is for.
    spare_slot: u8,
    listed: Places,
    /// Below the offset of the member that is being filled.
    filled: Places,
    in_doubt: Columns,
}

impl View {
    fn holds(self, device: usize, column: usize) -> bool {
        let filled = has(self.filling, device) && self.filled & place(device, column) != 0;
        has(self.members, device) || filled
    }

    fn reads(self, device: usize, column: usize) -> bool {
        self.holds(device, column) && self.listed & place(device, column) == 0
    }

    /// The readable copies of a mirror's block, in the order of belief.
    fn copies(self, column: usize) -> impl Iterator<Item = usize> {
        let all = bits(self.members).chain(bits(self.filling));
        all.filter(move |&device| self.reads(device, column))
    }

    fn without(mut self, device: usize) -> Self {
        self.members &= !(1 << device);
        self.filling &= !(1 << device);
        self.filled &= !places_of(device);
        self
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Kind {
    #[default]
    Idle,
    /// A write waits for the claim.
    Waits,
    /// It met trouble while it read for its plan, and waits until that has settled.
    Plans,
    /// Its member writes are under way.
    Writes,
    /// What is to be recorded is told; it waits until that has settled.
    Settles,
    /// It will end with an error, once its columns are in doubt.
    Fails,
    /// A read without a claim.
    Reads,
    /// It met trouble and waits for the claim.
    WaitsToRead,
    ReadsClaimed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Job {
    kind: Kind,
    blocks: Blocks,
    versions: [u8; 2],
    /// New parity: the versions that it is made of.
    parity: [u8; 2],
    has_parity: bool,
    /// Parity that was sent is right.
    right: bool,
    /// The view by which it was planned.
    view: View,
    /// Where it writes, and how that ended.
    to: Places,
    took: Places,
    refused: Places,
    gone: Places,
    /// Of a write: places being filled whose failure is told. Of a read: blocks that were being written.
    told: u8,
    was_in_doubt: bool,
    settled: bool,
    /// Of a read: the oldest versions that are right.
    floor: [u8; 2],
}

/// What the controller is to publish.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct News {
    gone: Devices,
    bad: Places,
    good: Places,
    hole: Places,
    doubt: Columns,
    undoubt: Columns,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// What each device has: a version of each block of a mirror; in a row a version of its block, or in
    /// P the versions of both.
    content: [[u8; 2]; DEVICES],
    unreadable: Places,
    /// Devices that do not answer until the next cut, and that are lost for good.
    away: Devices,
    lost: Devices,
    /// A write that was given up and may still land: device, column, blocks, versions.
    late: Option<(u8, u8, Blocks, [u8; 2])>,
    now: View,
    disk: View,
    views: [View; LANES],
    jobs: [Job; LANES],
    news: [News; LANES + 1],
    claim: Option<u8>,
    /// What the member that is filled has got, reported or not.
    copied: Places,
    broken: bool,
    /// Columns whose intent stays set: a write of them ended in a broken array.
    marked: Columns,
    /// Devices that were given up by choice while a write was under way.
    chosen: Devices,
    /// For each block: the newest version issued, answered, and read with nothing under way.
    issued: [u8; 2],
    answered: [u8; 2],
    seen: [u8; 2],
    /// For each block: the ways in which it can be read. Faults take them; while one is left, "lost" is
    /// wrong.
    ways: [u8; 2],
    left: scopes::Left,
}

impl State {
    fn answers(&self, device: usize) -> bool {
        !has(self.away | self.lost, device)
    }

    /// Whether a read there gives bytes.
    fn gives(&self, device: usize, column: usize) -> bool {
        self.answers(device) && self.unreadable & place(device, column) == 0
    }

    fn is_writing(&self, lane: usize) -> bool {
        matches!(self.jobs[lane].kind, Kind::Writes | Kind::Settles | Kind::Fails)
    }

    fn anyone_writes(&self) -> bool {
        (0..LANES).any(|lane| self.is_writing(lane))
    }

    fn nothing_is_open(&self) -> bool {
        self.jobs.iter().all(|job| job.kind == Kind::Idle)
    }

    fn no_news(&self) -> bool {
        self.news == [News::default(); LANES + 1]
    }

    fn is_recorded(&self) -> bool {
        self.disk == self.now
    }

    fn in_flight_on(&self, device: usize) -> bool {
        let late = self.late.is_some_and(|late| usize::from(late.0) == device);
        late || self.jobs.iter().any(|job| {
            let open = job.to & !(job.took | job.refused | job.gone);
            job.kind == Kind::Writes && open & places_of(device) != 0
        })
    }

    /// Columns in doubt, by this view or because a write of them ended in a broken array.
    fn doubted(&self, view: View) -> Columns {
        view.in_doubt | self.marked
    }
}

impl Belief {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn is_row(&self) -> bool {
        self.scope.level == Level::Row
    }

    fn devices(&self) -> usize {
        self.slots() + 1
    }

    fn slots(&self) -> usize {
        if self.is_row() { 3 } else { 2 }
    }

    fn blocks(&self) -> usize {
        if self.is_row() { 2 } else { self.scope.blocks }
    }

    fn columns(&self) -> usize {
        if self.is_row() { 1 } else { self.scope.blocks }
    }

    fn column(&self, block: usize) -> usize {
        if self.is_row() { 0 } else { block }
    }

    fn columns_of(&self, blocks: Blocks) -> Columns {
        if self.is_row() { 1 } else { blocks }
    }

    fn slot(&self, view: View, device: usize) -> usize {
        if device < self.slots() { device } else { usize::from(view.spare_slot) }
    }

    /// Whether a write of these blocks concerns what the device has of the column.
    fn concerns(&self, view: View, device: usize, column: usize, blocks: Blocks) -> bool {
        match self.is_row() {
            true => self.slot(view, device) == 2 || has(blocks, self.slot(view, device)),
            false => has(blocks, column),
        }
    }

    /// Which requests there are: of one block, and of both in a wide scope.
    fn requests(&self) -> impl Iterator<Item = Blocks> + use<> {
        let wide = self.scope.wide;
        (1..1 << self.blocks()).filter(move |&blocks| blocks != 0b11 || wide)
    }

    fn credulous(&self) -> Credulous {
        Credulous {
            counts_members: !self.keeps(Rule::JudgedByBlocks),
            believes_listed: !self.keeps(Rule::ListedCounts),
            believes_unfilled: !self.keeps(Rule::UnfilledCounts),
            ignores_doubt: !self.keeps(Rule::DoubtCounts),
        }
    }

    /// The durable records, as far as the rules make a request wait for them.
    fn records(&self, state: &State) -> View {
        let roles = if self.keeps(Rule::RecordedBeforeAnswer) { state.disk } else { state.now };
        let lists = if self.keeps(Rule::ListedBeforeAnswer) { state.disk } else { state.now };
        View { listed: lists.listed, ..roles }
    }

    fn has_adopted(&self, state: &State, lane: usize) -> bool {
        state.views[lane] == state.now || state.jobs[lane].kind == Kind::Idle
    }

    fn all_have_adopted(&self, state: &State) -> bool {
        let all = || (0..LANES).all(|lane| self.has_adopted(state, lane));
        !self.keeps(Rule::AdoptedBeforeAnswer) || all()
    }

    fn begin(&self, state: &mut State, lane: usize) {
        if self.keeps(Rule::SleeperAdoptsFirst) {
            state.views[lane] = state.now;
        }
    }

    fn end(&self, state: &mut State, lane: usize) {
        if state.claim == Some(lane as u8) {
            state.claim = None;
        }
        if state.is_writing(lane) {
            state.chosen = 0;
        }
        state.jobs[lane] = Job::default();
        if self.keeps(Rule::SleeperAdoptsFirst) {
            state.views[lane] = View::default(); // of no use any more
        }
    }

    fn land(&self, state: &mut State, device: usize, column: usize, (blocks, versions): Payload) {
        for block in bits(blocks) {
            state.content[device][block] = versions[block];
        }
        state.unreadable &= !place(device, column);
    }

    fn name(&self, device: usize) -> &'static str {
        if self.is_row() { ["D0", "D1", "P", "S"][device] } else { ["A", "B", "C", ""][device] }
    }

    fn at(&self, column: usize) -> String {
        if self.columns() == 2 { format!(" at block {column}") } else { String::new() }
    }

    fn named(&self, blocks: Blocks) -> String {
        match (self.blocks(), blocks) {
            (1, _) => String::new(),
            (_, 0b11) => " of both blocks".into(),
            (_, one) => format!(" of block {}", one - 1),
        }
    }
}

/// What a write puts in a place.
type Payload = (Blocks, [u8; 2]);

impl Model for Belief {
    type State = State;

    fn start(&self) -> State {
        let mut now = View { members: (1 << self.slots()) - 1, ..View::default() };
        if self.scope.degraded {
            (now.members, now.filling) = (now.members & !1, 1 << self.slots());
        }
        let sleeps = self.keeps(Rule::SleeperAdoptsFirst);
        let mut state = State {
            content: [[0; 2]; DEVICES],
            unreadable: 0,
            away: 0,
            lost: 0,
            late: None,
            now,
            disk: now,
            views: [if sleeps { View::default() } else { now }; LANES],
            jobs: [Job::default(); LANES],
            news: [News::default(); LANES + 1],
            claim: None,
            copied: 0,
            broken: false,
            marked: 0,
            chosen: 0,
            issued: [0; 2],
            answered: [0; 2],
            seen: [0; 2],
            ways: [0; 2],
            left: self.scope.left,
        };
        for device in (0..DEVICES).filter(|&device| !has(now.members, device)) {
            state.content[device] = [FOREIGN; 2];
        }
        for block in 0..self.blocks() {
            state.ways[block] = self.true_ways(&state, block);
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        for lane in 0..LANES {
            self.write_steps(state, lane, steps);
            self.read_steps(state, lane, steps);
            self.adopts(state, lane, steps);
        }
        self.controller_steps(state, steps);
        self.faults(state, steps);
        self.late_write(state, steps);
        self.cuts(state, steps);
    }

    fn is_quiet(&self, state: &State) -> bool {
        state.nothing_is_open()
    }

    fn wrong(&self, state: &State) -> Option<String> {
        let settled = state.nothing_is_open() && state.no_news() && state.is_recorded();
        if !self.compares || !settled || state.broken || state.marked != 0 {
            return None;
        }
        let mut known = (0..self.columns()).filter(|&column| !has(state.now.in_doubt, column));
        known.any(|column| !self.agrees(state, column)).then(|| {
            let what = if self.is_row() { "parity is stale" } else { "copies differ" };
            format!("{what}, and no record says so")
        })
    }
}

impl Belief {
    /// A lane adopts at its loop's turn.
    fn adopts(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        let kind = state.jobs[lane].kind;
        let waits = matches!(kind, Kind::Waits | Kind::WaitsToRead);
        let asleep = kind == Kind::Idle && self.keeps(Rule::SleeperAdoptsFirst);
        let may = self.keeps(Rule::AdoptsWhileWaiting) || !waits;
        if state.views[lane] != state.now && may && !asleep {
            let mut next = *state;
            next.views[lane] = state.now;
            steps.array(|| format!("lane {lane} adopts the newest view"), next);
        }
    }
}
