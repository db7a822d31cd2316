//! A whole array on two lanes: views, permits, intent, claims and the controller together, as they
//! run in production, under many schedules.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use mdspace_engine::array::{Action, Array, ArrayLane, Command, Reply, Start};
use mdspace_engine::assembly::{self, Options};
use mdspace_engine::create::{self, Creation, NewDevice};
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::memory::{Sink, Source};
use mdspace_engine::request::{Queue, Request};
use mdspace_engine::status::MemberState;
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, MetadataVersion, Uuid};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::machine::Machine;

pub(crate) const LANES: usize = 2;

/// Makes an array of all members on one lane, alone, and gives what starts it.
pub(crate) fn new_array(machine: &Arc<Machine>, level: Level, layout: u32) -> Start {
    new_array_of(machine, machine.members().len(), level, layout)
}

/// As [`new_array`], of the first members only.
pub(crate) fn new_array_of(
    machine: &Arc<Machine>,
    count: usize,
    level: Level,
    layout: u32,
) -> Start {
    let made = Arc::new(shuttle::sync::Mutex::new(None));
    let (result, mut members) = (made.clone(), machine.members());
    members.truncate(count);
    let over = made.clone();
    machine.run_lane(
        LaneId(0),
        move |lane| {
            let task_lane = lane.clone();
            lane.spawn(async move {
                let start = create_on(&task_lane, members, level, layout).await;
                *result.lock().unwrap() = Some(start);
            });
        },
        move || over.lock().unwrap().is_some(),
    );
    let start = made.lock().unwrap().take();
    start.expect("just made")
}

async fn create_on(
    lane: &Lane,
    members: Vec<(mdspace_engine::backend::MemberId, mdspace_engine::backend::MemberInfo)>,
    level: Level,
    layout: u32,
) -> Start {
    let creation = Creation {
        name: SetName::new("model").unwrap(),
        uuid: Uuid([7; 16]),
        version: MetadataVersion::V1_2,
        level,
        layout,
        chunk_sectors: if level.has_chunks() { 8 } else { 0 },
        raid_disks: members.len() as u16,
        size_sectors: Some(256),
        data_offset_sectors: None,
        bitmap: BitmapRequest::Internal { chunk_bytes: Some(4096) },
        assume_clean: true,
        force: false,
        write_behind: 0,
    };
    let device = |(id, info): &(_, _)| {
        Some(NewDevice { id: *id, info: Clone::clone(info), flags: MemberFlags::default() })
    };
    let places = members.iter().map(device).collect();
    let mut number = 0;
    let uuid = || {
        number += 1;
        Uuid([number; 16])
    };
    let plan = create::plan(&creation, places, 1, uuid).unwrap();
    create::write(lane, &plan).await.unwrap();
    let mut candidates = Vec::new();
    for (id, info) in members {
        candidates.push(assembly::read(lane, id, info).await.unwrap().unwrap());
    }
    assembly::decide(candidates, &Options::default()).unwrap().start
}

/// Runs `work` on every lane of an array, then stops the array, and gives it back to be looked at.
pub(crate) fn run_lanes(
    machine: &Arc<Machine>,
    start: Start,
    work: impl AsyncFn(Rc<ArrayLane>, u64) + Send + Sync + 'static,
) -> mdspace_engine::status::ArrayStatus {
    run_lanes_of(&Array::new(&start, LANES), machine, start, work)
}

/// As [`run_lanes`], of an array that the caller knows.
pub(crate) fn run_lanes_of(
    array: &Arc<Array>,
    machine: &Arc<Machine>,
    start: Start,
    work: impl AsyncFn(Rc<ArrayLane>, u64) + Send + Sync + 'static,
) -> mdspace_engine::status::ArrayStatus {
    let left = Arc::new(AtomicUsize::new(LANES));
    let status = Arc::new(shuttle::sync::Mutex::new(None));
    let ended = Arc::new(AtomicUsize::new(0));
    let attached = Arc::new(AtomicUsize::new(0));
    let mut start = Some(start);
    let work = Arc::new(work);
    let threads: Vec<_> = (0..LANES)
        .map(|index| {
            let start = if index == 0 { start.take() } else { None };
            let (machine, array, left) = (machine.clone(), array.clone(), left.clone());
            let (status, ended, work) = (status.clone(), ended.clone(), work.clone());
            let attached = attached.clone();
            thread::spawn(move || {
                let over = ended.clone();
                let id = LaneId(index as u16);
                let ringing = machine.clone();
                machine.run_lane(
                    id,
                    move |lane| {
                        let port = ArrayLane::attach(&array, lane);
                        attached.fetch_add(1, Ordering::SeqCst);
                        while attached.load(Ordering::SeqCst) < LANES {
                            thread::yield_now();
                        }
                        if let Some(start) = start {
                            array.control(start, lane, &port);
                        }
                        lane.spawn(async move {
                            work(port, index as u64).await;
                            if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                                stop(&array, status, ended, ringing);
                            }
                        });
                    },
                    move || over.load(Ordering::SeqCst) == 1,
                );
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let status = status.lock().unwrap().take();
    status.expect("asked before the stop")
}

type Slot<T> = Arc<shuttle::sync::Mutex<Option<T>>>;

fn stop(
    array: &Arc<Array>,
    status: Slot<mdspace_engine::status::ArrayStatus>,
    ended: Arc<AtomicUsize>,
    machine: Arc<Machine>,
) {
    array.command(Command {
        action: Action::Status,
        reply: Box::new(move |reply| {
            let Ok(Reply::Status(found)) = reply else { panic!("a status") };
            *status.lock().unwrap() = Some(*found);
        }),
    });
    array.command(Command {
        action: Action::Stop,
        reply: Box::new(move |reply| {
            assert!(reply.is_ok());
            ended.store(1, Ordering::SeqCst);
            machine.ring_all();
        }),
    });
}

pub(crate) async fn write(port: &Rc<ArrayLane>, sector: u64, value: u8) {
    let from: Rc<dyn Source> = Rc::new(vec![value; 512]);
    port.serve(Request::Write { sector, from, fua: false }).await.unwrap();
}

pub(crate) async fn read(port: &Rc<ArrayLane>, sector: u64) -> u8 {
    let sink = Rc::new(RefCell::new(vec![0; 512]));
    let into: Rc<dyn Sink> = sink.clone();
    port.serve(Request::Read { sector, into }).await.unwrap();
    let bytes = sink.borrow();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a sector is never torn");
    bytes[0]
}

#[test]
fn writes_of_two_lanes_in_one_row_keep_what_each_wrote() {
    shuttle::check_random(
        || {
            let machine = Machine::new(3, 4096, LANES);
            let start = new_array(&machine, Level::Raid5, 2);
            let status = run_lanes(&machine, start, async |port: Rc<ArrayLane>, lane| {
                // Neighbours in one block: without claims one read-modify-write loses the other.
                // From the second on the block is cached, and passes from lane to lane.
                for value in [1, 2, 3] {
                    write(&port, lane, value).await;
                    assert_eq!(read(&port, lane).await, value);
                }
            });
            assert_eq!(status.degraded(), 0);
        },
        1000,
    );
}

#[test]
fn rounds_of_several_pieces_on_two_lanes_keep_what_each_wrote() {
    shuttle::check_random(
        || {
            let machine = Machine::new(3, 4096, LANES);
            let start = new_array(&machine, Level::Raid5, 2);
            let status = run_lanes(&machine, start, async |port: Rc<ArrayLane>, lane| {
                // Three pieces at once, two of which overlap: one round, or two where one waits. The
                // other lane's share the unit with them.
                let queue = Queue::new();
                for (tag, sector) in [lane, lane + 2, lane].into_iter().enumerate() {
                    let from: Rc<dyn Source> = Rc::new(vec![tag as u8 + 1; 512]);
                    port.submit(&queue, tag as u64, Request::Write { sector, from, fua: false });
                }
                for _ in 0..3 {
                    queue.next().await.result.unwrap();
                }
                assert_eq!(read(&port, lane).await, 3, "the later one counts");
                assert_eq!(read(&port, lane + 2).await, 2);
            });
            assert_eq!(status.degraded(), 0);
        },
        1000,
    );
}

#[test]
fn no_lane_reads_an_old_block_after_a_failed_write_was_acknowledged() {
    shuttle::check_random(
        || {
            let machine = Machine::new(2, 4096, LANES);
            let start = new_array(&machine, Level::Raid1, 0);
            machine.break_writes(0);
            let told = Arc::new(AtomicUsize::new(0));
            let status = run_lanes(&machine, start, async move |port: Rc<ArrayLane>, lane| {
                if lane == 0 {
                    write(&port, 0, 9).await;
                    told.store(1, Ordering::SeqCst);
                } else {
                    let acknowledged = told.load(Ordering::SeqCst) == 1;
                    let value = read(&port, 0).await;
                    assert!(value == 9 || !acknowledged, "the failed member was read");
                }
            });
            let failed = status.members.iter().filter(|m| m.state == MemberState::Faulty).count();
            assert_eq!(failed, 1);
        },
        2000,
    );
}
