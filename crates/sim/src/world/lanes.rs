//! The lanes' driver: what an event loop on a pinned thread is in `io`.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mdspace_engine::backend::{IoDone, IoError, MemberId, Ticket};
use mdspace_engine::lane::{Lane, LaneId, Notify, Turn};
use mdspace_engine::time::Time;

use crate::backend::SimBackend;

use super::World;
use super::events::Event;

#[derive(Default)]
pub(super) struct Lanes {
    drivers: Vec<Driver>,
}

struct Driver {
    lane: Rc<Lane>,
    /// What the next turn delivers.
    ring: Vec<Reaped>,
    woken: Arc<Woken>,
    /// When the next turn is, if one is scheduled. A turn at another time is a leftover.
    turn_at: Option<Time>,
    /// It gets no turn before.
    dozes_until: Time,
}

/// What a lane's turn hears of a member.
enum Reaped {
    Done(Ticket, IoDone),
    /// A flush, or a durable write, failed that was answered at its deadline.
    LateFlush(MemberId, IoError),
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Notify for Woken {
    fn notify(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl World {
    pub(super) fn start_lane(self: &Rc<Self>, id: LaneId) -> Rc<Lane> {
        let woken = Arc::new(Woken::default());
        let backend = Rc::new(SimBackend::new(self.clone(), id));
        let lane = Lane::new(id, backend, woken.clone());
        let drivers = &mut self.lanes.borrow_mut().drivers;
        assert_eq!(drivers.len(), usize::from(id.0), "lanes start in order");
        drivers.push(Driver {
            lane: lane.clone(),
            ring: Vec::new(),
            woken,
            turn_at: None,
            dozes_until: Time::ZERO,
        });
        lane
    }

    pub(super) fn lane(&self, id: LaneId) -> Rc<Lane> {
        self.lanes.borrow().drivers[usize::from(id.0)].lane.clone()
    }

    /// Gives a lane a turn soon: something outside the world has work for it.
    pub fn poke(&self, lane: LaneId) {
        let delay = self.draw_lane_delay();
        self.schedule_turn(lane, self.now() + delay);
    }

    /// Tasks that live on the lanes.
    pub fn task_count(&self) -> usize {
        self.lanes.borrow().drivers.iter().map(|driver| driver.lane.task_count()).sum()
    }

    pub(super) fn deliver(&self, lane: LaneId, ticket: Ticket, done: IoDone) {
        self.reap(lane, Reaped::Done(ticket, done));
    }

    pub(super) fn deliver_late(&self, lane: LaneId, member: MemberId, error: IoError) {
        self.reap(lane, Reaped::LateFlush(member, error));
    }

    fn reap(&self, lane: LaneId, reaped: Reaped) {
        self.lanes.borrow_mut().drivers[usize::from(lane.0)].ring.push(reaped);
        self.poke(lane);
    }

    pub(super) fn schedule_woken_lanes(&self) {
        let woken: Vec<LaneId> = {
            let lanes = self.lanes.borrow();
            // Few are, and a look costs less than an exchange.
            let woken = |driver: &&Driver| {
                let Woken(woken) = &*driver.woken;
                woken.load(Ordering::Relaxed) && woken.swap(false, Ordering::Relaxed)
            };
            lanes.drivers.iter().filter(woken).map(|driver| driver.lane.id()).collect()
        };
        woken.into_iter().for_each(|lane| self.poke(lane));
    }

    /// One round of a lane's loop: reap completions, run what is ready, and see when to come back.
    pub(super) fn turn(&self, id: LaneId) {
        let Some((lane, mut ring)) = self.begin_turn(id) else { return };
        self.chance.borrow_mut().shuffle(&mut ring);
        for reaped in ring {
            match reaped {
                Reaped::Done(ticket, done) => lane.complete(ticket, done),
                Reaped::LateFlush(member, error) => lane.flush_failed_late(member, error),
            }
        }
        let again = match lane.turn() {
            Turn::Busy => Some(self.now()),
            Turn::Idle(_) if !lane.remote().try_sleep() => Some(self.now()),
            Turn::Idle(timer) => timer,
        };
        if let Some(when) = again {
            self.schedule_turn(id, when.max(self.now()) + self.draw_lane_delay());
        }
    }

    /// What to deliver in the turn that is due now, if one is.
    fn begin_turn(&self, id: LaneId) -> Option<(Rc<Lane>, Vec<Reaped>)> {
        let mut lanes = self.lanes.borrow_mut();
        let driver = lanes.drivers.get_mut(usize::from(id.0))?;
        driver.turn_at.take_if(|at| *at <= self.now())?;
        driver.lane.remote().awake();
        Some((driver.lane.clone(), std::mem::take(&mut driver.ring)))
    }

    /// Gives a lane no turn before `until`: its thread is not on a CPU.
    pub fn let_doze(&self, lane: u16, until: Time) {
        let put_off = {
            let mut lanes = self.lanes.borrow_mut();
            let Some(driver) = lanes.drivers.get_mut(usize::from(lane)) else { return };
            driver.dozes_until = until;
            driver.turn_at.take_if(|at| *at < until).is_some()
        };
        if put_off {
            self.schedule_turn(LaneId(lane), until);
        }
    }

    /// Makes sure that a lane has a turn by `when`, or as soon as it may have one.
    fn schedule_turn(&self, id: LaneId, when: Time) {
        let when = {
            let mut lanes = self.lanes.borrow_mut();
            let Some(driver) = lanes.drivers.get_mut(usize::from(id.0)) else { return };
            let when = when.max(driver.dozes_until);
            if driver.turn_at.is_some_and(|at| at <= when) {
                return;
            }
            driver.turn_at = Some(when);
            when
        };
        self.schedule(when, Event::Turn(id));
    }

    /// Mostly none, now and then the lane's thread is not on a CPU for a while.
    fn draw_lane_delay(&self) -> Duration {
        let mut chance = self.chance.borrow_mut();
        let factor = if chance.one_in(64) { 50 } else { 1 };
        let most = u64::try_from(self.lane_delay.as_nanos()).expect("a short delay") * factor;
        Duration::from_nanos(chance.below(most))
    }

    /// Ends every lane as a killed process does: nothing runs any more.
    pub(super) fn end_lanes(&self) {
        let drivers = std::mem::take(&mut self.lanes.borrow_mut().drivers);
        self.events.borrow_mut().retain_alarms();
        drivers.iter().for_each(|driver| driver.lane.end());
    }
}
