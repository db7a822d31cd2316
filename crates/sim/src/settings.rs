//! What one run is: the array, its disks, its users and its troubles, all drawn from the seed.

mod aim;
mod happening;
mod story;
pub(crate) mod words;

#[cfg(test)]
mod tests;

use std::time::Duration;

use mdspace_engine::array::Rule;
use mdspace_engine::array::settings::StartSettings;
use mdspace_engine::assembly::Options;
use mdspace_format::superblock::MemberFlags;
use serde::{Deserialize, Serialize};

use crate::disk::{DiskIndex, DiskSpec, Latency};
use crate::oracle::Shape;
use crate::random::Random;
use crate::workload::Habits;
use crate::world::{Fences, Servers};

pub use aim::Aim;
pub use happening::Happening;
use story::{Story, Wishes};

/// How much trouble a run makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Trouble {
    /// As much as the level promises to bear: no request may fail, nothing may be lost.
    #[default]
    Bearable,
    /// More: requests may fail, but what is read is right.
    Beyond,
}

impl Trouble {
    /// Both, by turns from seed to seed.
    pub fn by_turns(seed: u64) -> Self {
        if seed.is_multiple_of(2) { Self::Bearable } else { Self::Beyond }
    }
}

/// How members lie and repair judges them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scrubs {
    /// By the evidence, which no two liars agree to forge.
    #[default]
    ByEvidence,
    /// Two members tell the same lie, so that the evidence names the wrong one.
    ByForgedEvidence,
    /// Data are always right, as md has it.
    ByData,
}

/// What the operator does with a disk that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tending {
    /// Now and then it is mended, or another one takes its place, new or one that was there before.
    #[default]
    Any,
    /// It is mended and comes back.
    Returns,
    /// The one takes its place that was there before, if there was one; else a new one.
    Swaps,
    /// A new one takes the place of the first, and comes back itself.
    Renews,
    /// Nothing, until the end.
    Never,
}

/// A word of the program. By this name serde does not borrow it from the file that it is read from.
pub type Word = &'static str;

/// One run. Regression files hold it: a field that is new must have a default there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What all of it was drawn from.
    pub seed: u64,
    /// How much trouble there is.
    pub trouble: Trouble,
    /// md's level number.
    pub level: i32,
    /// md's layout number.
    pub layout: u32,
    /// Slots.
    pub slots: u16,
    /// Spares from the start.
    pub spares: u16,
    /// The number of the first disk in the superblocks. From the number of slots on, a number goes to the next
    /// new member when its member has left.
    #[serde(default)]
    pub first_number: u16,
    /// Chunk size; 0 where the level has none.
    pub chunk_sectors: u32,
    /// Sectors of each member that the array uses; of the largest, where sizes differ.
    pub member_sectors: u64,
    /// Where data begin.
    pub data_offset: u64,
    /// Metadata 1.0, 1.1 or 1.2.
    pub metadata_minor: u8,
    /// Bytes for each bit of the bitmap, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitmap_chunk_bytes: Option<u32>,
    /// Sectors of the bad-block log, where they are not as many as usual; 0: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_sectors: Option<u16>,
    /// Unit of claims and parity.
    pub unit_sectors: u32,
    /// Lanes.
    pub lanes: u16,
    /// Workers beside them.
    pub workers: u16,
    /// Disks, spares among them.
    pub disks: Vec<DiskSpec>,
    /// Whether the disks begin full of noise; else of zeroes.
    pub noisy_disks: bool,
    /// Whether the members are taken for in sync at the creation; only where they are.
    pub assume_clean: bool,
    /// How users behave.
    pub habits: Habits,
    /// Requests of the whole run.
    pub requests: u64,
    /// Requests between two happenings, on average.
    pub calm_requests: u64,
    /// The name of its story; nothing, where it has none.
    #[serde(default, skip_serializing_if = "str::is_empty", with = "words::kept")]
    pub story: Word,
    /// What happens half-way through the engine's orderings.
    pub aims: Vec<Aim>,
    /// What becomes of disks that failed.
    pub tending: Tending,
    /// Weights of [`Happening::ALL`].
    #[serde(with = "words::weights")]
    pub happenings: [u32; Happening::ALL.len()],
    /// Paths to each disk; 0: it is reached directly.
    pub paths: u16,
    /// What the servers are like to which they lead.
    #[serde(default)]
    pub servers: Servers,
    /// What fences of paths do: but for the first way, somebody must notice.
    pub fences: Fences,
    /// How repair goes about lies: but for the first way, the oracle must notice.
    pub scrubs: Scrubs,
    /// Keys that are set whenever the array has started.
    #[serde(with = "words::tuning")]
    pub tuning: Vec<(&'static str, &'static str)>,
    /// Write-mostly and failfast, disk by disk; none where there are fewer.
    #[serde(with = "words::flags")]
    pub flags: Vec<MemberFlags>,
    /// Writes that may be left behind on write-mostly members.
    pub write_behind: u32,
    /// A rule of the engine that every process breaks: something must notice. No part of what is drawn.
    #[serde(skip)]
    pub broken: Option<Rule>,
}

/// First sector of data in every simulated array: room for superblock, bitmap and bad-block log.
const DATA_OFFSET: u64 = 64;

/// Room behind the data: metadata 1.0 keeps everything there.
const TAIL_SECTORS: u64 = 64;

/// A disk that gets slower takes so many times as long, or much longer where nothing comes of it.
pub const SLOWER: u32 = 3;

/// Requests between two happenings where only the story is to make trouble, and disks that failed are tended.
const CALM_REQUESTS: u64 = 100;

/// Members with less have no room for a bitmap: 64 KiB, once RAID10 has rounded to its far copies.
const BITMAP_SECTORS: u64 = 144;

impl Settings {
    /// Draws a run. The level is drawn too unless one is wanted.
    pub fn draw(seed: u64, level: Option<i32>, trouble: Trouble) -> Self {
        let mut random = Random::new(seed);
        let Story { name: story, aims, wishes } = Story::draw(seed, trouble);
        let (is_focused, wishes) = (wishes.is_some(), wishes.unwrap_or_default());
        let level = level.unwrap_or_else(|| match wishes.levels {
            [] => *random.pick(&[0, 1, 1, 4, 5, 5, 5, 6, 6, 6, 10, 10, -1]),
            levels => *random.pick(levels),
        });
        let (layout, slots) = draw_shape(&mut random, level);
        let chunk_sectors = match level {
            1 => 0,
            -1 => *random.pick(&[0, 8, 64]),
            _ => *random.pick(&[8, 8, 16, 32, 64, 128]),
        };
        let member_sectors = random.within(128..1024) + 2 * u64::from(chunk_sectors);
        let spares = if redundancy(level, layout, slots) > 0 { random.below(2) as u16 } else { 0 };
        let noisy_disks = random.one_in(3);
        let mut settings = Self {
            seed,
            trouble,
            level,
            layout,
            slots,
            spares,
            first_number: 0,
            chunk_sectors,
            member_sectors,
            data_offset: DATA_OFFSET,
            metadata_minor: *random.pick(&[2, 2, 2, 1, 0]),
            bitmap_chunk_bytes: *random.pick(&[None, Some(4096), Some(16384), Some(65536)]),
            log_sectors: None,
            unit_sectors: *random.pick(&[8, 8, 16, 128]),
            lanes: *random.pick(&[1, 1, 2, 3, 5]),
            workers: draw_workers(seed),
            disks: Vec::new(),
            noisy_disks,
            assume_clean: !noisy_disks && random.coin(),
            habits: Habits::draw(&mut random),
            requests: random.within(200..1500),
            calm_requests: random.within(20..200),
            story,
            aims,
            tending: Tending::Any,
            happenings: [0; Happening::ALL.len()],
            paths: draw_paths(seed),
            servers: Servers::default(),
            fences: Fences::Prove,
            scrubs: Scrubs::ByEvidence,
            tuning: Vec::new(),
            flags: Vec::new(),
            write_behind: 0,
            broken: None,
        };
        settings.draw_scale();
        settings.heed(&wishes);
        // Paths take most of the time of a run, and have runs of their own.
        if is_focused && !random.clone().one_in(4) {
            settings.paths = 0;
        }
        settings.paths = wishes.paths.unwrap_or(settings.paths);
        settings.servers = wishes.servers;
        if settings.redundancy() > 0 {
            settings.tuning = draw_tuning(seed);
            if wishes.impatient {
                settings.set_write_deadline("4");
            }
            settings.tuning.extend(draw_sync(seed, settings.sync_speed(wishes.sync_seconds)));
        }
        if matches!(level, 1 | 10) {
            settings.draw_mirror(seed, &wishes);
        }
        if redundancy(level, layout, slots) == 0 {
            settings.bitmap_chunk_bytes = None;
        }
        if settings.metadata_minor == 0 {
            settings.data_offset = 0;
        }
        // md uses whole chunks; where there are none, mdadm counts in KiB.
        settings.member_sectors -=
            settings.member_sectors % u64::from(settings.chunk_sectors.max(2));
        settings.draw_disks(&mut random, &wishes);
        settings.member_sectors -= settings.member_sectors % settings.block_sectors();
        settings.draw_happenings(&mut random);
        if settings.redundancy() > 0 {
            settings.log_sectors = if is_focused { wishes.log_sectors } else { draw_log(seed) };
        }
        if is_focused {
            settings.focus(&wishes);
        }
        if wishes.calm {
            settings.calm_requests = CALM_REQUESTS;
        } else if trouble == Trouble::Beyond {
            settings.calm_requests = settings.calm_requests.div_ceil(4);
        }
        settings
    }

    /// The names of all stories.
    pub fn stories() -> impl Iterator<Item = &'static str> {
        story::names()
    }

    /// Every other array is so small that requests, windows and troubles meet in a few rows and bitmap
    /// chunks. Drawn apart, as workers are.
    fn draw_scale(&mut self) {
        let random = &mut Random::new(self.seed ^ 0x7469_6e79_2121_2121);
        if random.coin() {
            return;
        }
        if self.chunk_sectors > 0 {
            self.chunk_sectors = *random.pick(&[8, 8, 16]);
        }
        // There is no room for a bitmap on less.
        let least = if self.bitmap_chunk_bytes.is_some() { 128 } else { 32 };
        self.member_sectors = random.within(least..130) + 2 * u64::from(self.chunk_sectors);
        self.bitmap_chunk_bytes = self.bitmap_chunk_bytes.map(|_| 4096);
        self.unit_sectors = 8;
        self.requests = random.within(100..600);
        self.calm_requests = random.within(3..20);
    }

    /// Grants the wishes on which later draws rest. An array without redundancy has no spare.
    fn heed(&mut self, wishes: &Wishes) {
        match wishes.bitmap {
            Some(true) => self.bitmap_chunk_bytes = Some(4096),
            Some(false) => self.bitmap_chunk_bytes = None,
            None => {}
        }
        if wishes.few {
            (self.layout, self.slots) = match self.level {
                1 => (0, 2),
                6 => (self.layout, 4),
                10 => (0x102, 2),
                _ => (self.layout, 3),
            };
        }
        if wishes.three && self.level == 1 {
            (self.layout, self.slots) = (0, 3);
        }
        if wishes.behind && self.level == 1 {
            self.slots = if wishes.three { 3 } else { 2 };
            self.spares = 0;
            self.bitmap_chunk_bytes = self.bitmap_chunk_bytes.or(Some(4096));
        }
        if wishes.many_lanes {
            self.lanes = 5;
        }
        if wishes.small_chunks {
            (self.chunk_sectors, self.unit_sectors) = (self.chunk_sectors.min(8), 8);
            self.member_sectors = self.member_sectors.max(512);
        }
        if wishes.hot {
            if self.chunk_sectors > 0 {
                self.chunk_sectors = 8;
            }
            self.unit_sectors = 8;
            self.member_sectors =
                if self.bitmap_chunk_bytes.is_some() { BITMAP_SECTORS } else { 48 };
            self.bitmap_chunk_bytes = self.bitmap_chunk_bytes.map(|_| 4096);
        }
        if wishes.blank {
            self.noisy_disks = false;
        }
        if wishes.first_resync {
            (self.noisy_disks, self.assume_clean) = (true, false);
        }
        if wishes.synced {
            (self.noisy_disks, self.assume_clean) = (false, true);
        }
        if wishes.spare && self.redundancy() > 0 {
            self.spares = 1;
        }
        if wishes.no_spare {
            self.spares = 0;
        }
        if wishes.reused_numbers {
            self.first_number = self.slots;
        }
        if wishes.paced && self.metadata_minor == 0 {
            // Records behind the data take no longer than these.
            self.metadata_minor = 2;
        }
        if wishes.long {
            self.member_sectors = self.member_sectors.max(2048);
        }
        if wishes.coarse_bitmap {
            self.bitmap_chunk_bytes = Some(65536);
        }
        if self.bitmap_chunk_bytes.is_some() {
            self.member_sectors = self.member_sectors.max(BITMAP_SECTORS);
        }
    }

    /// Drawn apart, as workers are.
    fn draw_mirror(&mut self, seed: u64, wishes: &Wishes) {
        let random = &mut Random::new(seed ^ 0x6d69_7272_6f72_7321);
        let policies = ["expected", "expected", "expected", "md", "nearest", "first"];
        self.tuning.push(("read_policy", *random.pick(&policies)));
        let [mostly, fast] = [MemberFlags::WRITE_MOSTLY, MemberFlags::FAIL_FAST];
        let rare = |random: &mut Random, flag| if random.one_in(3) { flag } else { 0 };
        let members = 0..self.slots + self.spares;
        self.flags =
            members.map(|_| MemberFlags(rare(random, mostly) | rare(random, fast))).collect();
        // A crash and another trouble at once may take what only one member had yet.
        let bearable = self.trouble == Trouble::Bearable;
        let may_be_behind = bearable || wishes.behind;
        if may_be_behind && self.level == 1 && self.bitmap_chunk_bytes.is_some() {
            let most = if wishes.behind { &[1, 3, 256][..] } else { &[0, 1, 3, 256] };
            self.write_behind = match wishes {
                Wishes { prompt: true, .. } => 0,
                Wishes { behind: true, three: true, .. } | Wishes { behind_first: true, .. } => 256,
                Wishes { behind: true, short: true, .. } => 256,
                _ => *random.pick(most),
            };
        }
        if wishes.alike {
            (self.flags, self.write_behind) = (Vec::new(), 0);
        }
        if wishes.behind {
            // It takes its time, and is read all the same.
            let deadline = self.tuning.iter_mut().find(|(key, _)| *key == "read_deadline");
            deadline.into_iter().for_each(|(_, value)| *value = "0");
            let slots = usize::from(self.slots);
            let behind = if wishes.behind_first { 0 } else { slots - 1 };
            let alike = if wishes.behind_first { self.flags.len() } else { slots };
            self.flags[..alike].iter_mut().for_each(|flags| flags.0 &= !mostly);
            self.flags[behind].0 |= mostly;
        }
    }

    fn set_write_deadline(&mut self, seconds: &'static str) {
        let deadline = self.tuning.iter_mut().find(|(key, _)| *key == "write_deadline");
        deadline.into_iter().for_each(|(_, value)| *value = seconds);
    }

    fn draw_disks(&mut self, random: &mut Random, wishes: &Wishes) {
        let uneven = matches!(self.level, -1 | 0) && random.coin();
        let like = draw_disk(random);
        let records_take = self.draw_time_of_records(wishes);
        let patient = !self.tuning.contains(&("write_deadline", "4"));
        for index in 0..self.slots + self.spares {
            let smaller = if uneven { random.below(self.member_sectors / 2) } else { 0 };
            let mut own = if random.one_in(4) { draw_disk(random) } else { like.clone() };
            let is_far_spare = wishes.behind_first && index >= self.slots;
            let is_far = self.write_behind > 0 && (self.is_write_mostly(index) || is_far_spare);
            if is_far {
                own.instant_one_in = 0;
                own.latency = match wishes.behind_first {
                    true if is_far_spare => AWAY,
                    true => own.latency,
                    false if wishes.soon_there => AWAY,
                    false => draw_far_latency(self.seed, self.paths, patient, wishes.trickle),
                };
            }
            if wishes.paced {
                (own.instant_one_in, own.latency) = (0, PACED);
            }
            if wishes.uneven {
                own.latency = UNEVEN;
            }
            own.volatile_cache |= wishes.volatile_cache;
            own.fua_flushes = wishes.fua_flushes;
            if wishes.slow_records && wishes.spaced {
                own.instant_one_in = 0;
            }
            let sectors = self.data_offset + self.member_sectors - smaller + TAIL_SECTORS;
            // No record of a disk that is well passes its deadline, though the disk gets slower.
            let most = own.latency.most() * records_take * SLOWER;
            let is_late = self.write_deadline().is_some_and(|deadline| most > deadline * 3 / 4);
            let takes = if is_far || is_late { 1 } else { records_take };
            let slow_start = (self.data_offset, takes);
            self.disks.push(DiskSpec { sectors: sectors & !7, slow_start, ..own });
        }
    }

    /// How fast a sync task is that takes so many seconds: beside users, and at most.
    fn sync_speed(&self, seconds: u64) -> Option<(&'static str, &'static str)> {
        match seconds {
            Wishes::AT_ONCE => return Some(("1", "none")),
            Wishes::SOON => return Some(("3000", "3000")),
            Wishes::SLOWLY => return Some(("1", "10")),
            _ => {}
        }
        let kib = self.member_sectors / 2;
        let speeds = [(10, "10"), (20, "20"), (40, "40"), (80, "80"), (u64::MAX, "300")];
        let fits = |(speed, _): &(u64, &str)| kib / seconds.max(1) <= *speed;
        speeds.into_iter().find(fits).map(|(_, words)| ("1", words)).filter(|_| seconds > 0)
    }

    /// How many times as long as data the members' records take. Where it is long, much is read and written
    /// between the steps of an update. Paths would be taken for dead. Drawn apart, as workers are.
    fn draw_time_of_records(&self, wishes: &Wishes) -> u32 {
        let random = &mut Random::new(self.seed ^ 0x7265_636f_7264_7321);
        let times: &[u32] = match wishes {
            Wishes { paced: true, .. } => &[40],
            Wishes { slow_records: true, spaced: true, .. } => &[40, 160],
            Wishes { slow_records: true, .. } => &[10, 40],
            _ => &[1, 1, 10, 40],
        };
        let times = *random.pick(times);
        if self.paths > 0 { 1 } else { times }
    }

    /// The first members that are not write-mostly: what is written is there before its answer.
    pub fn near(&self) -> impl Iterator<Item = DiskIndex> {
        (0..self.slots).filter(|disk| !self.is_write_mostly(*disk)).map(DiskIndex)
    }

    fn is_write_mostly(&self, disk: u16) -> bool {
        let flags = self.flags.get(usize::from(disk));
        flags.is_some_and(|flags| flags.0 & MemberFlags::WRITE_MOSTLY != 0)
    }

    fn draw_happenings(&mut self, random: &mut Random) {
        for (weight, happening) in self.happenings.iter_mut().zip(Happening::ALL) {
            match happening {
                Happening::Lie => {
                    *weight = draw_lies(self.seed, self.trouble);
                    continue;
                }
                Happening::Doze => {
                    *weight = draw_dozes(self.seed);
                    continue;
                }
                Happening::StartWithout => {
                    *weight = draw_absences(self.seed);
                    continue;
                }
                Happening::Steer
                | Happening::HoldRecords
                | Happening::HoldData
                | Happening::HangTwo
                | Happening::CutWhenFlushed => {
                    *weight = draw_orders(self.seed, happening);
                    continue;
                }
                Happening::AcceptDoubt => {
                    // Within bearable trouble there is none to accept.
                    let beyond = self.trouble == Trouble::Beyond;
                    *weight = if beyond { draw_orders(self.seed, happening) } else { 0 };
                    continue;
                }
                _ if happening.is_of_stories() => continue,
                _ => {}
            }
            let share = if random.coin() { 0 } else { random.below(20) as u32 };
            let beyond = self.trouble == Trouble::Beyond;
            *weight = match happening {
                Happening::Replace => draw_replacing(self.seed),
                Happening::Rest => draw_rests(self.seed),
                Happening::Tend => 5 + share,
                _ if beyond && happening.hurts() => 4 * share,
                _ => share,
            };
        }
    }

    /// A run about one thing has no other troubles, which would end the array before, and busy users: many
    /// requests are under way at the moment that it aims at. Or they come slowly, and without an end.
    fn focus(&mut self, wishes: &Wishes) {
        let random = &mut Random::new(self.seed ^ 0x6275_7379_2121_2121);
        let is_all = !random.one_in(3) || wishes.calm;
        for (weight, happening) in self.happenings.iter_mut().zip(Happening::ALL) {
            let is_in_the_way =
                happening.hurts() || happening.crashes() || happening == Happening::Lie;
            let comes_between = matches!(
                happening,
                Happening::Steer | Happening::HoldRecords | Happening::HoldData
            );
            let stays = happening == Happening::Tend || comes_between && !wishes.calm;
            if is_in_the_way || is_all && !stays {
                *weight = 0;
            }
        }
        let habits = &mut self.habits;
        habits.depth = habits.depth.max(*random.pick(&[8, 24]));
        habits.kinds[1] = habits.kinds[1].max(50);
        habits.kinds[2] = habits.kinds[2].max(*random.pick(&[0, 20, 50]));
        if wishes.kinds != [0; 3] {
            habits.kinds[..3].copy_from_slice(&wishes.kinds);
        }
        habits.fua_one_in = *random.pick(&[0, 2, 5]);
        if wishes.hot {
            (habits.hot_percent, habits.lengths) = (95, [50, 20, 20, 0, 0]);
            habits.in_front = wishes.in_front;
        }
        if wishes.spread {
            habits.hot_percent = 0;
        }
        if wishes.short {
            (habits.lengths, habits.depth) = ([1, 0, 0, 0, 0], 24);
            habits.kinds[3..].fill(0);
        }
        if wishes.in_chunks {
            habits.lengths = [10, 0, 80, 0, 0];
        }
        for trouble in wishes.troubles {
            self.happenings[*trouble as usize] = 50;
            self.calm_requests = self.calm_requests.min(20);
        }
        self.tending = wishes.tending;
        // Where the story says when disks come back, they come at no other time.
        let is_told = self.aims.iter().any(|aim| aim.happening == Some(Happening::Tend));
        if wishes.tending == Tending::Never || is_told {
            self.happenings[Happening::Tend as usize] = 0;
        }
        let habits = &mut self.habits;
        (habits.pauses, habits.spaced) = (wishes.pauses, wishes.spaced);
        if wishes.pauses {
            habits.hot_percent = 95;
        }
        if wishes.durable {
            habits.fua_one_in = 2;
        }
        habits.fua_one_in = wishes.durable_one_in.unwrap_or(habits.fua_one_in);
        if wishes.discards {
            habits.kinds[3] = 10;
        }
        if wishes.spaced {
            self.requests = self.requests.max(1500);
        }
        if wishes.busy {
            self.requests = self.requests.max(3000);
        }
        if wishes.trickle && (wishes.calm || random.coin()) {
            habits.trickle = true;
            habits.kinds[2] = 0;
            self.requests = self.requests.min(500);
        }
    }

    /// Members that may be lost without losing data, wherever they are.
    pub fn redundancy(&self) -> usize {
        redundancy(self.level, self.layout, self.slots)
    }

    /// Whether the operator may accept parity that is in doubt.
    pub fn may_accept_doubt(&self) -> bool {
        let told = self.aims.iter().any(|aim| aim.happening == Some(Happening::AcceptDoubt));
        self.has_parity() && (told || self.happenings[Happening::AcceptDoubt as usize] > 0)
    }

    /// Where which sector is, on levels of which all members are as large.
    pub fn shape(&self) -> Shape {
        Shape {
            level: self.level,
            layout: self.layout,
            chunk_sectors: self.chunk_sectors.into(),
            member_sectors: vec![self.member_sectors; self.slots.into()],
        }
    }

    /// Whether a write that was answered may be on one member that is lost before others have it. Within bearable
    /// trouble no crash comes then.
    pub fn rests_on_one(&self) -> bool {
        self.trouble == Trouble::Beyond && self.write_behind > 0
    }

    /// Whether its level has parity.
    pub fn has_parity(&self) -> bool {
        matches!(self.level, 4..=6)
    }

    /// Whether a path that is lost with a flush makes a request fail: no other member has its data.
    pub fn flushes_may_fail(&self) -> bool {
        self.paths > 0 && self.redundancy() == 0
    }

    /// Whether a write may land after it failed: without redundancy, where one path found no space and
    /// another one still owes its answer.
    pub fn failed_writes_may_land(&self) -> bool {
        self.flushes_may_fail() && self.happenings[Happening::Fill as usize] > 0
    }

    /// How long a member may take for anything but a read, if the run sets that and it has an end.
    pub fn write_deadline(&self) -> Option<Duration> {
        let set = self.tuning.iter().find(|(key, _)| *key == "write_deadline");
        let seconds: u64 = set?.1.parse().expect("deadlines of writes are drawn in seconds");
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// How long a read of a member may take before others answer for it, if the run sets that.
    pub fn read_deadline(&self) -> Option<Duration> {
        let set = self.tuning.iter().find(|(key, _)| *key == "read_deadline");
        let seconds: f64 = set?.1.parse().expect("deadlines of reads are drawn in seconds");
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
    }

    /// Whether a write may take seconds without a fault.
    pub fn stalls(&self) -> bool {
        self.stalls_by(1)
    }

    /// Whether it may on a disk that gets so many times slower.
    pub fn stalls_by(&self, times: u32) -> bool {
        self.disks.iter().any(|disk| disk.latency.most() * times > Duration::from_secs(1))
    }

    /// Sectors of the largest logical block among the disks.
    pub fn block_sectors(&self) -> u64 {
        self.disks.iter().map(DiskSpec::block_sectors).max().unwrap_or(1)
    }

    /// How the array is assembled.
    pub fn options(&self) -> Options {
        let mut settings = StartSettings::default();
        let bytes = (self.unit_sectors * 512).to_string();
        settings.set("stripe_size", &bytes).expect("units are drawn from what md takes");
        Options { run: true, settings, ..Options::default() }
    }

    /// The command that replays the run.
    pub fn replay(&self, level_wanted: Option<i32>) -> String {
        let level = level_wanted.map_or(String::new(), |level| format!(" --level={level}"));
        let beyond = if self.trouble == Trouble::Beyond { " --trouble=beyond" } else { "" };
        format!("cargo run -p mdspace-sim -- {}{level}{beyond}", self.seed)
    }
}

/// Drawn apart, as workers are.
fn draw_replacing(seed: u64) -> u32 {
    *Random::new(seed ^ 0x7265_706c_6163_6521).pick(&[0, 0, 5, 20])
}

/// Drawn apart, as workers are.
fn draw_rests(seed: u64) -> u32 {
    *Random::new(seed ^ 0x7265_7374_7321_2121).pick(&[0, 0, 5, 20])
}

/// Drawn apart, as workers are.
fn draw_dozes(seed: u64) -> u32 {
    *Random::new(seed ^ 0x646f_7a65_2121_2121).pick(&[0, 5, 20])
}

/// Drawn apart, as workers are.
fn draw_absences(seed: u64) -> u32 {
    *Random::new(seed ^ 0x6162_7365_6e74_2121).pick(&[0, 0, 2])
}

/// Drawn apart, as workers are.
fn draw_orders(seed: u64, happening: Happening) -> u32 {
    let of_happening = (happening as u64) << 56;
    *Random::new(seed ^ 0x006f_7264_6572_7321 ^ of_happening).pick(&[0, 0, 5, 20])
}

/// Drawn apart, as workers are. A log of one sector has room for 64 ranges.
fn draw_log(seed: u64) -> Option<u16> {
    *Random::new(seed ^ 0x7368_6f72_746c_6f67).pick(&[None, None, None, Some(0), Some(1)])
}

/// Drawn apart, so that a seed is otherwise what it was before there were workers.
fn draw_workers(seed: u64) -> u16 {
    *Random::new(seed ^ 0x776f_726b_6572_7321).pick(&[0, 1, 2])
}

/// Drawn apart, as workers are.
fn draw_paths(seed: u64) -> u16 {
    *Random::new(seed ^ 0x7061_7468_7321_2121).pick(&[0, 0, 0, 2, 3])
}

/// Drawn apart, as workers are. Where members may be lost as well, nobody knows what is right.
fn draw_lies(seed: u64, trouble: Trouble) -> u32 {
    let weight = *Random::new(seed ^ 0x6c69_6172_7321_2121).pick(&[0, 0, 5, 20]);
    if trouble == Trouble::Bearable { weight } else { 0 }
}

/// Drawn apart, as workers are. No write deadline is so short that a slow disk misses it.
fn draw_tuning(seed: u64) -> Vec<(&'static str, &'static str)> {
    let random = &mut Random::new(seed ^ 0x7475_6e69_6e67_2121);
    vec![
        ("read_deadline", *random.pick(&["1", "1", "0.001", "0.02", "0"])),
        ("write_deadline", *random.pick(&["10", "10", "4", "0"])),
    ]
}

/// Drawn apart, as workers are: how many windows of a sync task, how fast, and what users are left.
fn draw_sync(
    seed: u64,
    speed: Option<(&'static str, &'static str)>,
) -> [(&'static str, &'static str); 5] {
    let random = &mut Random::new(seed ^ 0x7379_6e63_7761_7921);
    // In half of the runs a sync task takes long enough for something to come between.
    let speeds = [
        ("system", "none"),
        ("1", "none"),
        ("1000", "200000"),
        ("system", "60000"),
        ("1", "3000"),
        ("100", "1000"),
        ("1", "300"),
        ("1", "100"),
    ];
    let drawn = *random.pick(&speeds);
    let (least, most) = speed.unwrap_or(drawn);
    [
        ("sync_io_depth", *random.pick(&["0", "0", "1", "3", "64"])),
        ("sync_speed_min", least),
        ("sync_speed_max", most),
        ("sync_cache_share", *random.pick(&["25", "25", "1", "100"])),
        ("sync_latency_target", *random.pick(&["2", "2", "1", "0"])),
    ]
}

fn draw_disk(random: &mut Random) -> DiskSpec {
    DiskSpec {
        sectors: 0,
        logical_block_bytes: *random.pick(&[512, 512, 512, 4096]),
        rotational: random.one_in(4),
        discard_zeroes: random.coin(),
        volatile_cache: !random.one_in(4),
        instant_one_in: *random.pick(&[0, 0, 1, 3]),
        latency: draw_latency(random),
        slow_start: (0, 1),
        fua_flushes: false,
    }
}

/// Of disks that now and then take 40 times as long: what came first ends last.
const UNEVEN: Latency = Latency {
    least: Duration::from_micros(50),
    spread: Duration::from_micros(200),
    tail_one_in: 4,
    tail_factor: 40,
};

/// Of a disk that takes so long that much is behind on it, and all of it is there soon.
const AWAY: Latency = Latency {
    least: Duration::from_micros(200),
    spread: Duration::from_millis(15),
    tail_one_in: 0,
    tail_factor: 1,
};

/// Of disks whose records take from 2 to 6 ms: forty times as long as data.
const PACED: Latency = Latency {
    least: Duration::from_micros(50),
    spread: Duration::from_micros(100),
    tail_one_in: 0,
    tail_factor: 1,
};

fn draw_latency(random: &mut Random) -> Latency {
    Latency {
        least: Duration::from_micros(random.within(1..200)),
        spread: Duration::from_micros(random.within(0..500)),
        tail_one_in: *random.pick(&[0, 20, 200]),
        tail_factor: *random.pick(&[5, 50]),
    }
}

/// Of a disk that is written behind, for it is far away. Drawn apart, as workers are. Where it has paths, they
/// do not take it for dead. Some writes take 9 s if deadlines are longer: bits are cleared meanwhile.
fn draw_far_latency(seed: u64, paths: u16, patient: bool, stalls: bool) -> Latency {
    let random = &mut Random::new(seed ^ 0x6661_7220_6177_6179);
    let ms = *random.pick(&[1, 20, if paths > 0 { 20 } else { 150 }]);
    let stalls = patient && paths == 0 && (random.coin() || stalls);
    Latency {
        least: Duration::from_millis(ms),
        spread: Duration::from_millis(2 * ms),
        tail_one_in: if stalls { 20 } else { 0 },
        tail_factor: if stalls { 3_000 / ms as u32 } else { 1 },
    }
}

/// A layout and a number of slots that md knows for the level.
fn draw_shape(random: &mut Random, level: i32) -> (u32, u16) {
    let slots = |random: &mut Random, least: u64, most: u64| random.within(least..most + 1) as u16;
    match level {
        -1 => (0, slots(random, 1, 4)),
        0 => (*random.pick(&[1, 2]), slots(random, 1, 5)),
        1 => (0, slots(random, 2, 4)),
        4 => (0, slots(random, 3, 5)),
        5 => (*random.pick(&[2, 2, 2, 0, 1, 3, 4, 5]), slots(random, 3, 6)),
        6 => {
            let layouts = [2, 2, 2, 0, 1, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];
            (*random.pick(&layouts), slots(random, 4, 7))
        }
        10 => *random.pick(&[
            (0x102, 2),
            (0x102, 4),
            (0x102, 4),
            (0x102, 5),
            (0x103, 3),
            (0x103, 5),
            (0x201, 2),
            (0x201, 4),
            (0x201, 5),
            (0x202, 4),
            (0x301, 3),
            (0x1_0201, 3),
            (0x1_0201, 4),
            (0x1_0202, 4),
        ]),
        level => panic!("md has no level {level}"),
    }
}

fn redundancy(level: i32, layout: u32, slots: u16) -> usize {
    match level {
        1 => usize::from(slots) - 1,
        4 | 5 => 1,
        6 => 2,
        10 => (layout & 0xff) as usize * (layout >> 8 & 0xff) as usize - 1,
        _ => 0,
    }
}

impl std::fmt::Display for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "level {} layout {:#x}, {} slots", self.level, self.layout, self.slots)?;
        write!(f, " of {} sectors, {} spares", self.member_sectors, self.spares)?;
        write!(f, ", chunk {} unit {}", self.chunk_sectors, self.unit_sectors)?;
        match self.bitmap_chunk_bytes {
            Some(bytes) => write!(f, ", bitmap {bytes}")?,
            None => write!(f, ", no bitmap")?,
        }
        let (lanes, depth, requests) = (self.lanes, self.habits.depth, self.requests);
        write!(f, ", metadata 1.{}, {lanes} lanes, depth {depth}", self.metadata_minor)?;
        write!(f, ", {} workers", self.workers)?;
        let flags: Vec<_> = self.flags.iter().map(|flags| flags.0).collect();
        write!(f, ", flags {flags:?}, {} behind", self.write_behind)?;
        if self.paths > 0 {
            write!(f, ", {} paths a disk", self.paths)?;
        }
        if let Some(sectors) = self.log_sectors {
            write!(f, ", {sectors} sectors of bad-block log")?;
        }
        for (key, value) in &self.tuning {
            write!(f, ", {key} {value}")?;
        }
        if !self.story.is_empty() {
            write!(f, ", story {}", self.story)?;
        }
        for aim in &self.aims {
            write!(f, ", {aim}")?;
        }
        write!(f, ", {requests} requests, {:?}", self.trouble)
    }
}
