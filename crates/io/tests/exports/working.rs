//! An array of exports, and workers on it.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mdspace_engine::array::{Action, Reply};
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::create::{self, Creation, NewDevice};
use mdspace_engine::lane::LaneId;
use mdspace_engine::memory::{Sink, Source};
use mdspace_engine::request::{Queue, Request};
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName, Superblock};
use mdspace_format::{Level, MetadataVersion, Uuid};
use mdspace_io::{Lanes, LanesConfig, OpenMode, RunningArray, Topology, WorkerCounts};

use super::server::{Gate, Limits, serve_limited, serve_through};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const BLOCK_BYTES: usize = 4096;

const DISK_BYTES: usize = 4 << 20;

/// A RAID5 of so many members.
fn raid5(raid_disks: u16) -> Creation {
    Creation {
        name: SetName::new("exports").unwrap(),
        uuid: Uuid([1; 16]),
        version: MetadataVersion::V1_2,
        level: Level::Raid5,
        layout: 2,
        chunk_sectors: 128,
        raid_disks,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: BitmapRequest::None,
        assume_clean: true,
        force: false,
        write_behind: 0,
    }
}

/// The superblock of a member of such an array, of so many events, at its place.
pub(super) fn superblock(events: u64, sectors: u64) -> Vec<u8> {
    let info = MemberInfo {
        name: "disk".into(),
        sectors,
        logical_block_bytes: 512,
        rotational: false,
        discard_zeroes: false,
        is_sparse: false,
    };
    let slots = (0..3).map(|index| {
        let id = MemberId { index, generation: 0 };
        Some(NewDevice { id, info: info.clone(), flags: MemberFlags::default() })
    });
    let creation = Creation { data_offset_sectors: Some(64), ..raid5(3) };
    let plan = create::plan(&creation, slots.collect(), 1, || Uuid([2; 16])).unwrap();
    let (_, superblock) = plan.members.into_iter().next().unwrap();
    Superblock { events, ..superblock }.encode()
}

/// A RAID5 of these exports, on one lane.
fn array(uris: &[String]) -> RunningArray {
    array_on(LanesConfig::default(), uris).0
}

/// As [`array`], on these lanes, and its members.
fn array_on(config: LanesConfig, uris: &[String]) -> (RunningArray, Vec<MemberId>) {
    let lanes = Lanes::start(config).unwrap();
    let open = |uri| lanes.members().open(uri, OpenMode::RUN).unwrap();
    let devices: Vec<_> = uris.iter().map(|uri| open(uri)).collect();
    let creation = raid5(uris.len() as u16);
    let slots = devices.iter().map(|(id, info)| {
        Some(NewDevice { id: *id, info: info.clone(), flags: MemberFlags::default() })
    });
    let mut number = 1;
    let uuid = move || {
        number += 1;
        Uuid([number; 16])
    };
    let plan = create::plan(&creation, slots.collect(), 1, uuid).unwrap();
    lanes.call(LaneId(0), async move |lane, _| create::write(&lane, &plan).await).unwrap();
    let members = devices.iter().map(|(id, _)| *id).collect();
    let array = RunningArray::assemble(Arc::new(lanes), devices, Options::default());
    (array.unwrap(), members)
}

/// Writes some blocks of the first chunk of each row, all at once, so that each round reads; gives how many of the
/// writes ended well.
fn write_all(array: &RunningArray) -> Receiver<(usize, usize)> {
    let (sender, ended) = channel();
    array.run_on(LaneId(0), move |port, lane, io| {
        let (port, io) = (port.clone(), io.clone());
        lane.spawn(async move {
            let (queue, mut all) = (Queue::new(), 0);
            let blocks = (0..port.sectors() * 512 / BLOCK_BYTES as u64).step_by(2);
            for block in blocks.filter(|block| block / 16 % 3 == 0) {
                let payload = io.payload(BLOCK_BYTES);
                Sink::put(&*payload, 0, &[block as u8; BLOCK_BYTES]);
                let from: Rc<dyn Source> = payload;
                port.submit(&queue, block, Request::Write { sector: block * 8, from, fua: false });
                all += 1;
            }
            let mut well = 0;
            while queue.in_flight() > 0 {
                well += usize::from(queue.next().await.result.is_ok());
            }
            sender.send((well, all)).unwrap();
        });
    });
    ended
}

fn end(array: RunningArray) {
    let lanes = array.lanes().clone();
    array.stop().unwrap();
    Arc::into_inner(lanes).unwrap().stop(PATIENCE).unwrap();
}

fn degraded(array: &RunningArray) -> u32 {
    let Ok(Reply::Status(status)) = array.command(Action::Status) else { panic!("a status") };
    status.degraded()
}

/// Writes until workers have I/Os, if there are some; every write ends well.
fn write_with_workers(array: &RunningArray) {
    loop {
        let (well, all) = write_all(array).recv_timeout(PATIENCE).expect("every write is answered");
        assert_eq!((well, degraded(array)), (all, 0), "no member is failed");
        if array.worker_traffic().iter().all(|(_, traffic)| traffic.member_ios > 0) {
            return;
        }
    }
}

fn limited(limits: &[Arc<Limits>]) -> (Vec<tempfile::TempDir>, Vec<String>) {
    limits.iter().map(|limits| serve_limited(limits, DISK_BYTES)).unzip()
}

#[test]
fn a_worker_whose_connection_does_not_come_is_not_hired_and_no_member_fails() {
    let limits: Vec<_> = [2, 2, 1, 2].map(Limits::connections).into();
    let (_folders, uris) = limited(&limits);
    let array = array(&uris);
    let hired = array.set("group_thread_cnt", "1");
    write_with_workers(&array);
    let refused = hired.unwrap_err().to_string();
    assert!(refused.contains(&uris[2]), "{refused}");
    assert_eq!(array.worker_counts(), WorkerCounts { asked: 1, running: 0 });
    array.set("max_stripe_batch", "7").expect("no worker is asked for");
    // What it had of the others has ended.
    let until = Instant::now() + PATIENCE;
    while limits.iter().any(|limits| limits.connected() > 1) {
        assert!(Instant::now() < until, "a connection that nobody uses stays");
        std::thread::yield_now();
    }
    end(array);
}

/// It has the places of those that have left.
#[test]
fn a_worker_is_hired_where_each_server_has_a_place_for_it() {
    let limits: Vec<_> = [2; 4].map(Limits::connections).into();
    let (_folders, uris) = limited(&limits);
    let array = array(&uris);
    for _ in 0..2 {
        array.set("group_thread_cnt", "1").unwrap();
        assert_eq!(array.worker_counts().running, 1);
        write_with_workers(&array);
        array.set("group_thread_cnt", "0").unwrap();
        let until = Instant::now() + PATIENCE;
        while limits.iter().any(|limits| limits.connected() > 1) {
            assert!(Instant::now() < until, "it keeps its connections");
            std::thread::yield_now();
        }
    }
    end(array);
}

#[test]
fn a_member_that_is_lost_keeps_no_worker_from_being_hired() {
    let limits: Vec<_> = [usize::MAX; 4].map(Limits::connections).into();
    let (mut folders, uris) = limited(&limits);
    let array = array(&uris);
    drop(folders.pop());
    limits[3].hang_up();
    while degraded(&array) == 0 {
        write_all(&array).recv_timeout(PATIENCE).expect("every write is answered");
    }
    array.set("group_thread_cnt", "1").unwrap();
    assert_eq!((array.worker_counts().running, degraded(&array)), (1, 1));
    end(array);
}

/// Its server is stopped, say: it takes connections and says nothing.
#[test]
fn a_member_that_has_failed_and_hangs_keeps_no_worker_from_being_hired() {
    let limits: Vec<_> = [usize::MAX; 4].map(Limits::connections).into();
    let (_folders, uris) = limited(&limits);
    let (array, members) = array_on(LanesConfig::default(), &uris);
    limits[3].door.shut(true);
    array.command(Action::Fail { member: members[3], force: false }).unwrap();
    array.set("group_thread_cnt", "1").unwrap();
    assert_eq!((array.worker_counts().running, degraded(&array)), (1, 1));
    end(array);
}

#[test]
fn workers_that_move_to_other_cpus_need_no_new_connections() {
    let limits: Vec<_> = [usize::MAX; 4].map(Limits::connections).into();
    let (_folders, uris) = limited(&limits);
    let topology = Some(Topology { nodes: vec![vec![0, 1]] });
    let (array, _) = array_on(LanesConfig { topology, ..LanesConfig::default() }, &uris);
    array.set("group_thread_cnt", "2").unwrap();
    limits[3].door.shut(true);
    array.set("worker_cpus", "1").unwrap();
    assert_eq!(array.worker_counts().running, 1, "as many as CPUs");
    write_with_workers(&array);
    end(array);
}

/// On another node it is another worker.
#[test]
fn a_worker_stays_where_none_can_be_hired_in_its_place() {
    let limits: Vec<_> = [usize::MAX; 4].map(Limits::connections).into();
    let (_folders, uris) = limited(&limits);
    let topology = Some(Topology { nodes: vec![vec![0], vec![1]] });
    let (array, _) = array_on(LanesConfig { topology, ..LanesConfig::default() }, &uris);
    array.set("worker_cpus", "0").unwrap();
    array.set("group_thread_cnt", "1").unwrap();
    limits[3].door.shut(true);
    let refused = array.set("worker_cpus", "1").unwrap_err().to_string();
    assert!(refused.contains("one does not come"), "{refused}");
    assert_eq!(array.worker_counts().running, 1);
    assert!(array.setting_values().contains(&("worker_cpus", "0".to_owned())));
    write_with_workers(&array);
    end(array);
}

#[test]
fn no_worker_is_hired_for_an_array_that_has_ended() {
    let limits: Vec<_> = [usize::MAX; 4].map(Limits::connections).into();
    let (_folders, uris) = limited(&limits);
    let array = array(&uris);
    limits[3].door.shut(true);
    let hired = std::thread::scope(|threads| {
        let hired = threads.spawn(|| array.set("group_thread_cnt", "1"));
        assert!(limits[3].door.holds(1, PATIENCE), "its connection is made");
        array.end(false).unwrap();
        hired.join().unwrap()
    });
    let refused = hired.unwrap_err().to_string();
    assert!(refused.contains("has ended"), "it is waited for no longer: {refused}");
    array.let_go();
}

#[test]
fn a_member_that_comes_while_a_worker_serves_has_a_connection_for_it_too() {
    let (_folders, uris) = limited(&[const { usize::MAX }; 4].map(Limits::connections));
    let array = array(&uris);
    array.set("group_thread_cnt", "1").unwrap();
    let open = |connections| {
        let (_folder, uri) = serve_limited(&Limits::connections(connections), DISK_BYTES);
        array.lanes().members().open(&uri, OpenMode::RUN).map(drop)
    };
    open(1).unwrap_err();
    open(2).unwrap();
    array.set("group_thread_cnt", "0").unwrap();
    open(1).unwrap();
    end(array);
}

/// Its superblock was written since its first connection came.
#[test]
fn a_device_that_was_written_to_is_the_same_device() {
    let (_folders, uris) = limited(&[const { usize::MAX }; 4].map(Limits::connections));
    let array = array(&uris);
    write_all(&array).recv_timeout(PATIENCE).unwrap();
    array.set("group_thread_cnt", "1").unwrap();
    write_with_workers(&array);
    end(array);
}

/// It waits for what one member reads, and uses no connection to the others at that moment.
#[test]
fn a_worker_that_is_dismissed_keeps_its_connections_until_what_it_serves_has_ended() {
    let gates: Vec<Arc<Gate>> = (0..4).map(|_| Arc::default()).collect();
    let (_folders, uris): (Vec<_>, Vec<_>) =
        gates.iter().map(|gate| serve_through(gate, DISK_BYTES)).unzip();
    let array = array(&uris);
    array.set("group_thread_cnt", "1").unwrap();
    array.set("read_deadline", "0").unwrap();
    array.set("hedged_reads", "0").unwrap();
    assert_eq!(array.worker_counts().running, 1);
    // Connections are proved by what they read: first it gets them.
    let ended = loop {
        let has_worked = array.worker_traffic()[0].1.member_ios > 0;
        gates[3].shut(has_worked);
        let ended = write_all(&array);
        if has_worked && gates[3].holds(2, Duration::from_secs(1)) {
            break ended;
        }
        gates[3].shut(false);
        ended.recv_timeout(PATIENCE).expect("every write is answered");
    };
    std::thread::scope(|threads| {
        threads.spawn(|| array.set("group_thread_cnt", "0").unwrap());
        while array.worker_counts().running > 0 {
            std::thread::yield_now();
        }
        // It has gone around with the order to leave.
        (0..2).for_each(|_| drop(array.worker_traffic()));
        gates[3].shut(false);
    });
    let (well, all) = ended.recv_timeout(PATIENCE).expect("every write is answered");
    assert_eq!((well, degraded(&array)), (all, 0), "no member is failed");
    assert!(array.worker_traffic().is_empty(), "it has left");
    end(array);
}
