//! What may be believed to be durable.
//!
//! A mirror of two slots and three devices, and one block of it, whose content is a version number. Two
//! lanes serve writes and flushes. The controller takes devices out, records that, fills devices, takes
//! them back, and clears the bit of the bitmap. Every device has a volatile cache. A flush that fails may
//! lose what the cache held; the device tells that flush alone, and its next flush succeeds. Power may be
//! cut in any state: each device then keeps what was durable, or any one version that it had in its
//! cache.
//!
//! Not modelled: parity, several blocks, the order of superblocks among members, adoption of views.

use crate::rules::rules;
use crate::search::{Model, Steps};

mod controller;
mod cuts;
mod devices;
mod lanes;

rules! {
    MarkAtOnce: "A failed flush marks its device for lanes and controller when it is delivered, not when the lane's other flushes have ended.",
    WaitForOverlaps: "A good flush is believed once every flush of that device that was under way at its delivery has been delivered too, and none failed.",
    RecordedBeforeAnswer: "No write and no flush is answered while a device is out and the survivors' superblocks do not say so durably.",
    LastCopyStaysFailed: "After a failed flush of the last copy no flush is answered well.",
    BitBeforeData: "The bit of the bitmap is durable before the first byte of data is sent.",
    ClearAfterFlush: "A bit is cleared only after a flush of every copy that is believed.",
    ClearWhenWhole: "A bit is cleared only while no slot is empty, failed or being filled.",
    ClearWhenQuiet: "A clearing pass begins with no write under way.",
    WriteEndsPass: "A write that begins during a clearing pass ends the pass without effect.",
    HeaderBeforeBits: "The bitmap's header (events_cleared) is durable before a bit is cleared.",
    FlushBeforeInSync: "A filled device is called in sync only after a flush of it that is believed.",
    FillWritesAll: "Filling also writes what already reads the same: what a device reads may be gone after a power cut.",
    BitmapOnlyForInSync: "Only a device whose own superblock says that it is in sync comes back by bitmap.",
    QuietBeforeReuse: "A device is taken back only when nothing that was sent to it is under way.",
}

/// Lane 0, lane 1 and the controller.
const ACTORS: usize = 3;
const CONTROLLER: usize = 2;
const ACTOR_NAMES: [&str; ACTORS] = ["lane 0", "lane 1", "the controller"];

const DEVICES: usize = 3;
const DEVICE_NAMES: [&str; DEVICES] = ["A", "B", "C"];

/// How often each thing may happen, so that the search ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    versions: u8,
    flushes: u8,
    failures: u8,
    orders: u8,
    cuts: u8,
    passes: u8,
    fills: u8,
}

/// The scopes by name. The first three together show what each rule is for.
pub(crate) const SCOPES: &[(&str, Left)] = &[
    ("members go and come", scope([2, 0, 0, 2, 1, 1, 2])),
    ("the last copy", scope([1, 2, 2, 1, 1, 1, 0])),
    ("two lanes flush", scope([1, 3, 1, 0, 1, 0, 1])),
    ("passes and failures", scope([2, 1, 1, 0, 1, 2, 0])),
];

/// Scopes that take minutes.
pub(crate) const LARGE: &[(&str, Left)] = &[
    ("two lanes flush, and a pass", scope([1, 3, 1, 0, 1, 1, 1])),
    ("passes, failures and a fill", scope([2, 1, 1, 0, 1, 2, 1])),
    ("flushes while members go", scope([2, 2, 1, 1, 1, 1, 1])),
];

const fn scope(left: [u8; 7]) -> Left {
    let [versions, flushes, failures, orders, cuts, passes, fills] = left;
    Left { versions, flushes, failures, orders, cuts, passes, fills }
}

/// One search.
pub(crate) struct Flushes {
    pub(crate) without: Option<Rule>,
    pub(crate) left: Left,
    /// Lanes and controller share one flush: whoever comes meanwhile waits for the next.
    pub(crate) one_at_a_time: bool,
}

impl Flushes {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn may_flush(&self, state: &State) -> bool {
        let under_way =
            |actor: usize| state.flushes[actor].iter().any(|flush| flush.is_under_way());
        !self.one_at_a_time || !(0..ACTORS).any(under_way)
    }

    /// Whether the actor's flush of the device is good, and all that overlapped it has been heard.
    fn believes(&self, state: &State, actor: usize, device: usize) -> bool {
        match state.flushes[actor][device] {
            Flush::Good { overlaps } => overlaps == 0 || !self.keeps(Rule::WaitForOverlaps),
            _ => false,
        }
    }

    fn answers(&self, state: &State) -> bool {
        state.outs_are_recorded() || !self.keeps(Rule::RecordedBeforeAnswer)
    }
}

/// Devices as a mask.
type Devices = u8;

fn bit(device: usize) -> Devices {
    1 << device
}

fn each(devices: Devices) -> impl Iterator<Item = usize> {
    (0..DEVICES).filter(move |&device| devices & bit(device) != 0)
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Unused,
    InSync,
    Filling,
    Out,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Device {
    /// What reads return, and what a power cut leaves for certain.
    reads: u8,
    durable: u8,
    /// Bit v: version v is in the cache and may survive a power cut.
    cached: u8,
    /// What lanes and controller act on, and what the survivors' superblocks say.
    role: Role,
    recorded: Role,
    /// Its own superblock: events, and whether it says "in sync".
    events: u8,
    says_in_sync: bool,
    /// A write that is not waited for any more and may still land; 0: none.
    late: u8,
    /// All know that a flush failed.
    marked: bool,
    /// A flush failed, and its delivery is still to come.
    failed_unheard: bool,
}

impl Device {
    /// The versions that it may hold after a power cut.
    fn survivors(&self) -> impl Iterator<Item = u8> + use<> {
        let kept = self.cached | 1 << self.durable;
        (0..8).filter(move |version| kept & 1 << version != 0)
    }
}

/// One actor's flush of one device.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Flush {
    None,
    Sent,
    /// Done by the device, not delivered yet.
    Done {
        good: bool,
    },
    /// Delivered. `overlaps`: actors whose flush of the device was under way then, as a mask.
    Good {
        overlaps: u8,
    },
    Bad,
}

impl Flush {
    fn is_under_way(self) -> bool {
        matches!(self, Self::Sent | Self::Done { .. })
    }
}

/// What an actor is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Job {
    Idle,
    Write { version: u8, to: Devices, landed: Devices },
    Flush { promises: u8, to: Devices },
    Fill { device: u8, copied: bool },
    Clear { half_done: bool, ended: bool, to: Devices },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    devices: [Device; DEVICES],
    jobs: [Job; ACTORS],
    flushes: [[Flush; DEVICES]; ACTORS],
    /// The bit of the bitmap, durable.
    bit: bool,
    events: u8,
    events_cleared: u8,
    /// The newest version that was answered, and that a flush has promised.
    answered: u8,
    promised: u8,
    next: u8,
    broken: bool,
    left: Left,
}

impl State {
    fn with(&self, role: Role) -> Devices {
        let has = |device: &usize| self.devices[*device].role == role;
        (0..DEVICES).filter(has).fold(0, |devices, device| devices | bit(device))
    }

    fn in_sync(&self) -> Devices {
        self.with(Role::InSync)
    }

    fn written(&self) -> Devices {
        self.in_sync() | self.with(Role::Filling)
    }

    fn is_whole(&self) -> bool {
        self.in_sync().count_ones() == 2 && self.with(Role::Filling) == 0
    }

    fn is_writing(&self) -> bool {
        matches!(self.jobs[0], Job::Write { .. })
    }

    fn outs_are_recorded(&self) -> bool {
        self.devices.iter().all(|device| device.role != Role::Out || device.recorded == Role::Out)
    }

    fn is_quiet_on(&self, device: usize) -> bool {
        let flushing = self.flushes.iter().any(|flushes| flushes[device].is_under_way());
        let writing = match self.jobs[0] {
            Job::Write { to, landed, .. } => to & !landed & bit(device) != 0,
            _ => false,
        };
        self.devices[device].late == 0 && !flushing && !writing
    }

    /// Superblocks of all that are in use, in one step.
    fn record(&mut self) {
        self.events += 1;
        for device in &mut self.devices {
            device.recorded = device.role;
            if matches!(device.role, Role::InSync | Role::Filling) {
                device.events = self.events;
                device.says_in_sync = device.role == Role::InSync;
            }
        }
    }

    fn send_flush(&mut self, actor: usize, to: Devices) {
        for device in each(to) {
            self.flushes[actor][device] = Flush::Sent;
        }
    }

    fn end_job(&mut self, actor: usize) {
        self.flushes[actor] = [Flush::None; DEVICES];
        self.jobs[actor] = Job::Idle;
    }

    /// A flush of the device failed: it is marked, or the array is broken where it is the last copy.
    fn mark(&mut self, device: usize, model: &Flushes) {
        if self.in_sync() != bit(device) {
            self.devices[device].marked = true;
        } else if model.keeps(Rule::LastCopyStaysFailed) {
            self.broken = true;
        }
    }
}

impl Model for Flushes {
    type State = State;

    fn start(&self) -> State {
        let device = |role| Device {
            reads: 0,
            durable: 0,
            cached: 0,
            role,
            recorded: role,
            events: 1,
            says_in_sync: true,
            late: 0,
            marked: false,
            failed_unheard: false,
        };
        State {
            devices: [device(Role::InSync), device(Role::InSync), device(Role::Unused)],
            jobs: [Job::Idle; ACTORS],
            flushes: [[Flush::None; DEVICES]; ACTORS],
            bit: false,
            events: 1,
            events_cleared: 1,
            answered: 0,
            promised: 0,
            next: 1,
            broken: false,
            left: self.left,
        }
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        for lane in 0..CONTROLLER {
            self.lane_steps(state, lane, steps);
        }
        self.device_steps(state, steps);
        self.controller_steps(state, steps);
        self.cuts(state, steps);
    }

    /// A device that counts as in sync reads what was answered.
    fn wrong(&self, state: &State) -> Option<String> {
        let old = each(state.in_sync()).find(|&device| {
            let device = &state.devices[device];
            !device.marked && !device.failed_unheard && device.reads < state.answered
        });
        old.filter(|_| !state.broken).map(|device| {
            let (name, reads) = (DEVICE_NAMES[device], state.devices[device].reads);
            format!("{name} is in sync and reads version {reads}; {} was answered", state.answered)
        })
    }
}
