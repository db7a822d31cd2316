//! The users' side: requests go out, completions come back, and the model judges them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::memory::Source;
use mdspace_engine::request::{Completion, Request, RequestError};
use mdspace_engine::time::Time;

use crate::lent::{LentSink, LentSource, ShiftingSource};
use crate::model::{Asked, Certainty};
use crate::oracle::Remains;
use crate::stamp::{SECTOR_BYTES, Version};
use crate::workload::Ask;

use super::{ALARM_WAKE, Failure, Simulation};

/// Requests under way.
#[derive(Debug, Default)]
pub(super) struct Pending {
    requests: BTreeMap<u64, PendingRequest>,
    pub(super) last_tag: u64,
    pub(super) answered: u64,
    pub(super) failed: u64,
    /// Requests may fail now, for their array is being stopped.
    pub(super) may_stop: bool,
}

#[derive(Debug)]
struct PendingRequest {
    ask: Ask,
    asked: Asked,
    since: Time,
    sink: Option<Rc<LentSink>>,
}

impl Pending {
    pub(super) fn count(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn has(&self, tag: u64) -> bool {
        self.requests.contains_key(&tag)
    }

    /// The tag of the oldest, what it is, and since when.
    pub(super) fn oldest(&self) -> Option<(u64, &Ask, Time)> {
        let (tag, request) = self.requests.first_key_value()?;
        Some((*tag, &request.ask, request.since))
    }

    /// The process died: nobody will answer. The model knows already.
    pub(super) fn forget(&mut self) {
        self.requests.clear();
    }
}

impl Simulation {
    /// Lets users submit what they want to, up to their depth.
    pub(super) fn pump(&mut self) {
        while self.pending.count() < self.workload.depth()
            && self.world.now() >= self.thinking_until
        {
            if !self.submit_next() {
                return;
            }
            self.think();
        }
    }

    /// Submits one request, from the backlog first. False when there is none.
    pub(super) fn submit_next(&mut self) -> bool {
        let ask = match self.backlog.pop_front() {
            Some(ask) => ask,
            None if self.requests_left == 0 => return false,
            None => {
                self.requests_left -= 1;
                if self.only_read { self.workload.next_read() } else { self.workload.next_ask() }
            }
        };
        self.submit(ask);
        true
    }

    /// Mostly users come at once; now and then they pause, so that safe mode and the bitmap's daemon
    /// get their time.
    fn think(&mut self) {
        let pause = match self.random.below(200) {
            drawn if self.settings.habits.trickle => Duration::from_millis(drawn),
            drawn if self.settings.habits.spaced => Duration::from_micros(2 * drawn),
            0..20 if self.settings.habits.pauses => {
                Duration::from_millis(self.random.within(250..600))
            }
            0 => Duration::from_secs(self.random.within(1..20)),
            1..5 => Duration::from_millis(self.random.within(100..500)),
            5..50 => Duration::from_micros(self.random.within(1..500)),
            _ => return,
        };
        self.thinking_until = self.world.now() + pause;
        self.world.set_alarm(self.thinking_until, ALARM_WAKE);
    }

    fn submit(&mut self, ask: Ask) {
        self.pending.last_tag += 1;
        let tag = self.pending.last_tag;
        let lane = self.random.below(self.process().lanes().into()) as u16;
        self.world.note(format_args!("Q{lane} > #{tag} {ask}"));
        let (asked, sink, request) = self.prepare(&ask);
        let since = self.world.now();
        self.pending.requests.insert(tag, PendingRequest { ask, asked, since, sink });
        self.process().submit(lane, tag, request);
    }

    fn prepare(&mut self, ask: &Ask) -> (Asked, Option<Rc<LentSink>>, Request) {
        let zeroes = [Version::default()];
        match ask.clone() {
            Ask::Read(range) => {
                let sink = Rc::new(LentSink::new(range.end - range.start, &mut self.random));
                let request = Request::Read { sector: range.start, into: sink.clone() };
                (self.model.begin_read(), Some(sink), request)
            }
            Ask::Write { range, versions, fua } => {
                let asked = self.model.begin_write(range.clone(), &versions);
                let sectors = range.end - range.start;
                let from: Rc<dyn Source> = match versions[..] {
                    [version] => Rc::new(LentSource::new(range.start, sectors, version)),
                    _ => {
                        let random = self.random.fork();
                        Rc::new(ShiftingSource::new(range.start, sectors, versions, random))
                    }
                };
                (asked, None, Request::Write { sector: range.start, from, fua })
            }
            Ask::Flush => (self.model.begin_flush(), None, Request::Flush),
            Ask::Discard(range) => {
                let asked = self.model.begin_write(range.clone(), &zeroes);
                let sectors = range.end - range.start;
                (asked, None, Request::Discard { sector: range.start, sectors })
            }
            Ask::WriteZeroes { range, fua } => {
                let asked = self.model.begin_write(range.clone(), &zeroes);
                let (sector, sectors) = (range.start, range.end - range.start);
                let request = match !fua && (range.start ^ range.end) & 1 == 1 {
                    true => Request::Punch { sector, sectors },
                    false => Request::WriteZeroes { sector, sectors, fua },
                };
                (asked, None, request)
            }
        }
    }

    pub(super) fn take_completions(&mut self) -> Result<(), Failure> {
        while let Some((lane, completion)) = self.process.as_ref().and_then(|process| process.pop())
        {
            self.take(lane, completion)?;
        }
        Ok(())
    }

    fn take(&mut self, lane: u16, Completion { tag, result }: Completion) -> Result<(), Failure> {
        match &result {
            Ok(()) => self.world.note(format_args!("Q{lane} < #{tag}")),
            Err(error) => self.world.note(format_args!("Q{lane} ! #{tag}: {error}")),
        }
        let request = self.pending.requests.remove(&tag).expect("a request is answered once");
        self.pending.answered += 1;
        if let Err(error) = result {
            self.pending.failed += 1;
            if !self.may_fail(&request, error) {
                let ask = request.ask.to_string();
                return Err(Failure::Request { tag, ask, error });
            }
            if let (true, Ask::Read(range)) = (self.judges_errors, &request.ask) {
                self.judge_error(range.clone())?;
            }
        }
        self.judge(request, result.is_ok())
    }

    /// What could not be read is read again block by block. A block that still cannot be read must be lost: no
    /// member in sync has what was written there last, and the others do not give it.
    fn judge_error(&mut self, range: Range<u64>) -> Result<(), Failure> {
        let block = self.settings.block_sectors();
        if range.end - range.start > block {
            let blocks = range.clone().step_by(block as usize);
            self.backlog.extend(blocks.map(|start| Ask::Read(start..start + block)));
            return Ok(());
        }
        let Ok(remains) = Remains::find(&self.world, &self.disks) else { return Ok(()) };
        let holder = |sector| {
            remains.copies(sector).into_iter().find(|&(disk, at)| {
                self.world.disk(disk, |disk| {
                    let mut bytes = [0; SECTOR_BYTES];
                    disk.store.read(at, &mut bytes);
                    disk.owns(at) && self.model.is_exactly(sector, &bytes)
                })
            })
        };
        let is_given = |sector| {
            let computed = remains.computed(sector);
            computed.is_some_and(|bytes| self.model.is_exactly(sector, &bytes))
        };
        // A block is lost with any of its sectors.
        let at = holder(range.start);
        match range.clone().all(|sector| holder(sector).is_some() || is_given(sector)) {
            true => Err(Failure::Unread { sector: range.start, at }),
            false => Ok(()),
        }
    }

    fn may_fail(&self, request: &PendingRequest, error: RequestError) -> bool {
        let ask = &request.ask;
        let writes = !matches!(ask, Ask::Read(_));
        match error {
            _ if !self.bearable() => true,
            RequestError::Stopped | RequestError::ReadOnly => self.pending.may_stop,
            RequestError::NoSpace => writes && self.any_disk_was_full_since(request.since),
            RequestError::Lost => ask.makes_durable() && self.settings.flushes_may_fail(),
            _ => false,
        }
    }

    /// Tells the model how a request ended; it says whether that can be.
    fn judge(&mut self, request: PendingRequest, done: bool) -> Result<(), Failure> {
        let PendingRequest { ask, asked, sink, .. } = request;
        match ask {
            Ask::Read(range) => {
                let bytes = sink.expect("a read has memory").take();
                if !done {
                    self.model.fail_read(asked);
                    return Ok(());
                }
                let sectors = range.end - range.start;
                self.model.end_read(asked, range.start, &bytes).map_err(|violation| {
                    Failure::Wrong { sector: range.start, sectors, violation }
                })?;
            }
            Ask::Write { range, fua, .. } | Ask::WriteZeroes { range, fua } => {
                if !done {
                    self.note_half_done(range);
                }
                let certainty = match (done, fua) {
                    (false, _) => Certainty::Unknown,
                    (true, false) => Certainty::Done,
                    (true, true) => Certainty::Durable,
                };
                self.model.end_write(asked, certainty);
            }
            Ask::Discard(_) => self.model.end_write(asked, Certainty::Unknown),
            Ask::Flush if done => self.model.end_flush(asked),
            Ask::Flush => {}
        }
        Ok(())
    }

    /// Waits until every request is answered.
    pub(super) fn drain(&mut self) -> Result<(), Failure> {
        self.step_until("the last request", |this| this.pending.count() == 0)
    }

    /// Reads the whole array, and nothing else comes between.
    pub(super) fn read_all_at_once(&mut self) -> Result<(), Failure> {
        self.read_all();
        while !self.backlog.is_empty() {
            match self.pending.count() < self.workload.depth() {
                true => drop(self.submit_next()),
                false => self.step()?,
            }
        }
        self.drain()
    }

    /// Queues reads of the whole array.
    pub(super) fn read_all(&mut self) {
        // A spare of large blocks that is away may be back when these are asked.
        let (sectors, block) = (self.model.len(), self.settings.block_sectors());
        let mut start = 0;
        while start < sectors {
            let length = self.random.within(1..65) * block;
            let end = (start + length).min(sectors / block * block);
            if end <= start {
                return;
            }
            self.backlog.push_back(Ask::Read(start..end));
            start = end;
        }
    }
}

impl Ask {
    fn makes_durable(&self) -> bool {
        matches!(
            self,
            Self::Flush | Self::Write { fua: true, .. } | Self::WriteZeroes { fua: true, .. }
        )
    }
}

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |range: &Range<u64>| format!("{}+{}", range.start, range.end - range.start);
        match self {
            Self::Read(range) => write!(f, "r {}", at(range)),
            Self::Write { range, versions, fua } => {
                write!(f, "{} {}", if *fua { 'W' } else { 'w' }, at(range))?;
                versions.iter().try_for_each(|version| write!(f, " v{}", version.0))
            }
            Self::Flush => write!(f, "f"),
            Self::Discard(range) => write!(f, "d {}", at(range)),
            Self::WriteZeroes { range, fua } => {
                write!(f, "{} {}", if *fua { 'Z' } else { 'z' }, at(range))
            }
        }
    }
}
