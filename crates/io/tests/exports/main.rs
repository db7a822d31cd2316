//! Members that are exports of a server, which is made here: each of its connections may lead to another
//! device.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod server;
mod working;

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mdspace_engine::backend::{
    IoErrorKind, IoOp, MemberId, MemberIo, Patience, ReadInto, WriteFrom,
};
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::paths::{Cache, GroupStatus, Paths, Policy};
use mdspace_io::nbd_wire::export_flag;
use mdspace_io::{
    Lanes, LanesConfig, MemberTable, MultipathSpec, NotConnected, OpenError, OpenMode, StartError,
    UnprovedWrites,
};

use server::{
    BYTES, Disk, HANGS_UP_AT, Limits, SILENT_AT, disk, serve, serve_limited, serve_one,
    serve_one_with, serve_with,
};

/// Reads the superblock on a lane.
fn read_on(lanes: &Lanes, lane: u16, member: MemberId) -> Result<u8, IoErrorKind> {
    lanes.call(LaneId(lane), async move |lane, _| {
        let into = ReadInto::Buffer(lane.backend().allocate(512), 0..512);
        let op = IoOp::Read { sector: 8, into };
        let done = lane.io(MemberIo { member, op, patience: Patience::FOREVER }).await;
        done.result.map(|()| done.buffer.unwrap()[0]).map_err(|error| error.kind)
    })
}

fn start(uri: &str) -> (Lanes, MemberId) {
    let lanes = Lanes::start(LanesConfig { count: 3, ..LanesConfig::default() }).unwrap();
    let (member, _) = lanes.members().open(uri, OpenMode::RUN).unwrap();
    (lanes, member)
}

#[test]
fn every_lane_gets_a_connection_to_the_same_device() {
    let (_folder, uri) = serve(vec![disk(1)]);
    let (lanes, member) = start(&uri);
    for lane in [1, 0, 2] {
        assert_eq!(read_on(&lanes, lane, member), Ok(1));
    }
}

fn lanes(count: usize) -> Lanes {
    Lanes::start(LanesConfig { count, ..LanesConfig::default() }).unwrap()
}

#[test]
fn an_export_of_which_a_later_connection_leads_to_another_device_is_not_opened() {
    let (_folder, uri) = serve(vec![disk(1), disk(2), disk(1)]);
    let refused = lanes(3).members().open(&uri, OpenMode::RUN).unwrap_err().to_string();
    assert!(refused.contains("another device"), "{refused}");
}

/// An array is created there after it was opened.
#[test]
fn a_connection_to_another_blank_device_serves_nothing_once_the_first_one_is_written_to() {
    let disks = [disk(0), disk(0)];
    let (_folder, uri) = serve(disks.to_vec());
    let (lanes, member) = start(&uri);
    disks[0].lock().unwrap()[4096..8192].fill(1);
    assert_eq!(read_on(&lanes, 1, member), Err(IoErrorKind::Gone));
    assert_eq!(read_on(&lanes, 0, member), Ok(1));
}

/// A copy of it, an image of a standby host say, is the same as long as nothing is written.
#[test]
fn a_connection_to_a_copy_serves_nothing_once_the_device_is_written_to() {
    let disks = [disk(0), disk(0)];
    let update = |disk: &Disk, events| {
        disk.lock().unwrap()[4096..8192]
            .copy_from_slice(&working::superblock(events, BYTES as u64 / 512));
    };
    disks.iter().for_each(|disk| update(disk, 1));
    let (_folder, uri) = serve(disks.to_vec());
    let (lanes, member) = start(&uri);
    update(&disks[0], 2);
    assert_eq!(read_on(&lanes, 1, member), Err(IoErrorKind::Gone));
    assert!(read_on(&lanes, 0, member).is_ok());
}

/// No lane waits for its connection, nor fails the member because there is none.
#[test]
fn an_export_that_has_no_connection_for_each_lane_is_not_opened() {
    let limits = Limits::connections(2);
    let (_folder, uri) = serve_limited(&limits, BYTES);
    let refused = lanes(3).members().open(&uri, OpenMode::RUN).unwrap_err().to_string();
    assert!(refused.contains(&uri) && refused.contains("--lanes"), "{refused}");
    while limits.connected() > 0 {
        std::thread::yield_now();
    }
    let lanes = lanes(2);
    let (member, _) = lanes.members().open(&uri, OpenMode::RUN).unwrap();
    assert_eq!([0, 1].map(|lane| read_on(&lanes, lane, member)), [Ok(0), Ok(0)]);
}

/// A server that is slow to answer needs the time of one, not of all.
#[test]
fn connections_for_all_lanes_are_made_at_once() {
    let limits = Limits::connections(usize::MAX);
    let (_folder, uri) = serve_limited(&limits, BYTES);
    let lanes = lanes(4);
    // The others are compared with that one.
    limits.door.admit(1);
    std::thread::scope(|threads| {
        let opened = threads.spawn(|| lanes.members().open(&uri, OpenMode::RUN));
        let all = limits.door.holds(3, Duration::from_secs(4));
        limits.door.shut(false);
        opened.join().unwrap().unwrap();
        assert!(all, "one waits for another");
    });
}

/// It is opened while the other lane's connections are made.
#[test]
fn what_was_made_for_a_lane_ends_where_a_member_bears_one_connection() {
    let limits = Limits::connections(usize::MAX);
    let (_folder, uri) = serve_limited(&limits, BYTES);
    let (_lone_folder, lone) = serve_with(0, vec![disk(1)]);
    let members = MemberTable::new();
    members.open(&uri, OpenMode::RUN).unwrap();
    limits.door.shut(true);
    let two = LanesConfig { count: 2, members: members.clone(), ..LanesConfig::default() };
    let refused = std::thread::scope(|threads| {
        let started = threads.spawn(|| Lanes::start(two).unwrap_err());
        assert!(limits.door.holds(1, Duration::from_secs(60)));
        members.open(&lone, OpenMode::RUN).unwrap();
        limits.door.shut(false);
        started.join().unwrap()
    });
    assert!(matches!(refused, StartError::NotConnected(NotConnected::One(_))), "{refused}");
    let until = Instant::now() + Duration::from_secs(60);
    while limits.connected() > 0 {
        assert!(Instant::now() < until, "a connection that nobody uses stays");
        std::thread::yield_now();
    }
}

#[test]
fn a_sector_that_an_export_cannot_read_is_not_compared() {
    let (_folder, uri) = serve_limited(&Limits::unreadable(BYTES / 512 - 1), BYTES);
    let lanes = lanes(2);
    let (member, _) = lanes.members().open(&uri, OpenMode::RUN).unwrap();
    assert_eq!([0, 1].map(|lane| read_on(&lanes, lane, member)), [Ok(0), Ok(0)]);
}

#[test]
fn an_export_that_bears_one_connection_is_opened_for_one_lane_only() {
    let (_folder, uri) = serve_with(0, vec![disk(1)]);
    let refused = lanes(2).members().open(&uri, OpenMode::RUN).unwrap_err();
    assert!(matches!(&refused, OpenError::OneConnection(one) if one.name == uri), "{refused}");
    let table = format!("0 {} multipath 0 0 1 1 round-robin 0 1 0 {uri}", BYTES / 512);
    let spec = MultipathSpec::new(table.parse().unwrap(), Policy::default());
    let refused = lanes(2).members().open_multipath("paths", &spec, OpenMode::RUN).unwrap_err();
    assert!(matches!(refused, OpenError::OneConnection(_)), "{refused}");
    let one = lanes(1);
    let (member, _) = one.members().open(&uri, OpenMode::RUN).unwrap();
    assert_eq!(read_on(&one, 0, member), Ok(1));
}

#[test]
fn no_lane_is_added_where_a_member_bears_one_connection() {
    let (_folder, uri) = serve_with(0, vec![disk(1)]);
    let members = MemberTable::new();
    members.open(&uri, OpenMode::RUN).unwrap();
    let two = LanesConfig { count: 2, members, ..LanesConfig::default() };
    let refused = Lanes::start(two).unwrap_err();
    assert!(matches!(refused, StartError::NotConnected(NotConnected::One(_))), "{refused}");
}

/// The states of a device's paths, once they are as wanted.
fn until(paths: &Paths, wanted: impl Fn(&[&str]) -> bool) -> Vec<&'static str> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let status = paths.status();
        let of_group = |group: &GroupStatus| group.paths.iter().map(|path| path.state).collect();
        let states: Vec<&str> = status.groups.iter().flat_map::<Vec<_>, _>(of_group).collect();
        if wanted(&states) {
            return states;
        }
        assert!(Instant::now() < until, "{states:?}: {:?}", paths.events_after(0));
        std::thread::yield_now();
    }
}

/// Two exports behind one device, and its paths' states when each was looked at.
fn two_paths(disks: [Disk; 2]) -> (Lanes, Arc<Paths>, [tempfile::TempDir; 2]) {
    let [(one_folder, one), (other_folder, other)] = disks.map(|disk| serve(vec![disk]));
    let lanes = Lanes::start(LanesConfig::default()).unwrap();
    let table = format!("0 {} multipath 0 0 1 1 round-robin 0 2 0 {one} {other}", BYTES / 512);
    let policy = Policy { polling_interval: Duration::from_millis(10), ..Policy::default() };
    let spec = MultipathSpec::new(table.parse().unwrap(), policy);
    let (member, paths) = lanes.members().open_multipath("paths", &spec, OpenMode::LOOK).unwrap();
    // The first request has the paths looked at; it may come before there is one.
    let _ = read_on(&lanes, 0, member);
    (lanes, paths, [one_folder, other_folder])
}

#[test]
fn exports_that_may_have_a_cache_for_each_connection_are_paths_by_the_operators_word_alone() {
    let (_one_folder, one) = serve_with(0, vec![disk(1)]);
    let (_other_folder, other) = serve_with(0, vec![disk(1)]);
    let open = |paths: &[&str], cache| {
        let (count, names) = (paths.len(), paths.join(" 1 "));
        let table =
            format!("0 {} multipath 0 0 1 1 queue-length 0 {count} 1 {names} 1", BYTES / 512);
        let policy = Policy { cache, ..Policy::default() };
        let spec = MultipathSpec::new(table.parse().unwrap(), policy);
        let lanes = Lanes::start(LanesConfig::default()).unwrap();
        lanes.members().open_multipath("paths", &spec, OpenMode::LOOK).map(drop)
    };
    let refused = open(&[&one, &other], Cache::OfEachPath).unwrap_err().to_string();
    assert!(refused.contains("CAN_MULTI_CONN") && refused.contains("cache"), "{refused}");
    open(&[&one, &other], Cache::Shared).unwrap();
    open(&[&one], Cache::OfEachPath).unwrap();
}

/// The connections of the other lanes would keep its places from those that take their place.
#[test]
fn a_path_of_which_one_connection_was_lost_is_back_where_its_server_has_no_room_for_more() {
    let limits = Limits::connections(2);
    let (_folder, uri) = serve_limited(&limits, BYTES);
    let lanes = lanes(2);
    let (member, paths) = one_path(&lanes, &uri);
    assert_eq!([0, 1].map(|lane| read_on(&lanes, lane, member)), [Ok(0); 2]);
    limits.hang_up_on_one();
    // Who has it finds out.
    let _ = [0, 1].map(|lane| read_on(&lanes, lane, member));
    until(&paths, |_| paths.events_after(0).iter().any(|event| event.event == "PathReinstated"));
    assert_eq!([0, 1].map(|lane| read_on(&lanes, lane, member)), [Ok(0); 2]);
}

/// It waits while the connection of its lane is proved, and that of another lane is lost meanwhile.
#[test]
fn a_write_that_waits_for_its_connection_is_answered_before_that_gives_way() {
    let limits = Limits::odd(3);
    let (_folder, uri) = serve_limited(&limits, BYTES);
    let lanes = lanes(3);
    let (member, paths) = one_path(&lanes, &uri);
    assert_eq!([0, 2].map(|lane| read_on(&lanes, lane, member)), [Ok(0); 2]);
    // Lane 0 stays connected, and is asked what the connection of lane 1 is compared with.
    start_read(&lanes, 0, member, SILENT_AT);
    let (go_on, waits) = channel::<()>();
    lanes.run_on(LaneId(2), move |_, _| {
        let _ = waits.recv();
    });
    limits.gate.shut(true);
    let written = start_io(&lanes, 1, member, |lane| {
        let from = WriteFrom::Buffer(lane.backend().allocate(512), 0..512);
        IoOp::Write { sector: 64, from, fua: false }
    });
    assert!(limits.gate.holds(1, Duration::from_secs(10)), "the proof waits");
    drop(go_on);
    start_read(&lanes, 2, member, HANGS_UP_AT);
    until(&paths, |states| states == ["failed"]);
    while limits.turned_away() == 0 {
        std::thread::yield_now();
    }
    limits.gate.shut(false);
    assert_eq!(written.recv().unwrap(), Ok(()));
    assert_eq!(paths.status().unproved, []);
    limits.hang_up();
}

/// A multipath device of one path, which is in use.
fn one_path(lanes: &Lanes, uri: &str) -> (MemberId, Arc<Paths>) {
    let table = format!("0 {} multipath 0 0 1 1 round-robin 0 1 0 {uri}", BYTES / 512);
    let policy = Policy { cache: Cache::Shared, ..Policy::default() };
    let spec = MultipathSpec::new(table.parse().unwrap(), policy);
    let (member, paths) = lanes.members().open_multipath("paths", &spec, OpenMode::RUN).unwrap();
    let _ = read_on(lanes, 0, member);
    until(&paths, |states| states == ["active"]);
    (member, paths)
}

/// Starts an I/O on a lane, and gives what tells how it has ended.
fn start_io(
    lanes: &Lanes,
    on: u16,
    member: MemberId,
    op: impl FnOnce(&Lane) -> IoOp + Send + 'static,
) -> Receiver<Result<(), IoErrorKind>> {
    let (end, ended) = channel();
    lanes.run_on(LaneId(on), move |lane, _| {
        let (on_lane, op) = (lane.clone(), op(lane));
        lane.spawn(async move {
            let done = on_lane.io(MemberIo { member, op, patience: Patience::FOREVER }).await;
            let _ = end.send(done.result.map_err(|error| error.kind));
        });
    });
    ended
}

fn start_read(lanes: &Lanes, on: u16, member: MemberId, sector: usize) {
    drop(start_io(lanes, on, member, move |lane| {
        let into = ReadInto::Buffer(lane.backend().allocate(512), 0..512);
        IoOp::Read { sector: sector as u64, into }
    }));
}

/// A server tells an error of a flush once: it is for those who have written, or take over from them.
#[test]
fn who_only_looks_at_a_device_flushes_none_of_its_paths() {
    for (mode, flushes) in [(OpenMode::LOOK, false), (OpenMode::RUN, true)] {
        // It hangs up when it is asked for a flush.
        let flags = export_flag::CAN_MULTI_CONN | export_flag::SEND_FLUSH;
        let (_folder, uri) = serve_with(flags, vec![disk(1)]);
        let lanes = Lanes::start(LanesConfig::default()).unwrap();
        let table = format!("0 {} multipath 0 0 1 1 round-robin 0 1 0 {uri}", BYTES / 512);
        let spec = MultipathSpec::new(table.parse().unwrap(), Policy::default());
        let (member, paths) = lanes.members().open_multipath("paths", &spec, mode).unwrap();
        let _ = read_on(&lanes, 0, member);
        until(&paths, |states| states != ["joining"]);
        let has_failed = paths.events_after(0).iter().any(|event| event.event == "PathFailed");
        assert_eq!(has_failed, flushes, "{mode:?}: {:?}", paths.events_after(0));
    }
}

#[test]
fn of_a_blank_device_one_path_is_used_until_something_tells_them_apart() {
    let blank = [disk(0), disk(0)];
    let (_lanes, paths, _folders) = two_paths(blank.clone());
    let states = until(&paths, |states| !states.contains(&"joining"));
    let used = states.iter().position(|state| *state == "active").unwrap();
    assert_eq!(states[1 - used], "failed");
    blank[used].lock().unwrap()[..512].fill(1);
    let states = until(&paths, |states| states[1 - used] != "failed");
    assert_eq!((states[used], states[1 - used]), ("active", "refused"));
    // Over a connection of its own it is looked at again.
    blank[1 - used].lock().unwrap()[..512].fill(1);
    until(&paths, |states| states == ["active", "active"]);
}

#[test]
fn an_active_path_that_leads_elsewhere_is_refused_at_its_next_check() {
    let disks = [disk(1), disk(1)];
    disks.iter().for_each(|disk| disk.lock().unwrap()[..512].fill(1));
    let (_lanes, paths, _folders) = two_paths(disks.clone());
    until(&paths, |states| states == ["active", "active"]);
    disks[1].lock().unwrap()[..512].fill(2);
    until(&paths, |states| states == ["active", "refused"]);
}

/// The file system gives the number of a socket that is gone to the next one.
#[test]
fn an_export_whose_server_is_gone_keeps_no_other_one_from_being_opened() {
    let folder = tempfile::tempdir().unwrap();
    let serve_once = |path: PathBuf| {
        let listener = UnixListener::bind(&path).unwrap();
        let (sender, client) = channel();
        let serves = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            sender.send(stream.try_clone().unwrap()).unwrap();
            drop(serve_one(stream, export_flag::CAN_MULTI_CONN, &disk(1)));
        });
        move || {
            client.recv().unwrap().shutdown(std::net::Shutdown::Both).unwrap();
            serves.join().unwrap();
        }
    };
    let tables: Vec<_> = (0..8).map(|_| MemberTable::new()).collect();
    for (at, table) in tables.iter().enumerate() {
        let path = folder.path().join(at.to_string());
        let end = serve_once(path.clone());
        table.open(&format!("nbd+unix://{}", path.display()), OpenMode::RUN).unwrap();
        end();
        std::fs::remove_file(path).unwrap();
    }
}

/// Sends a write to a server that does none, until its time is over.
fn write_without_answer(lanes: &Lanes, member: MemberId) {
    let written = lanes.call(LaneId(0), async move |lane, _| {
        let from = WriteFrom::Buffer(lane.backend().allocate(512), 0..512);
        let op = IoOp::Write { sector: 64, from, fua: false };
        let patience = Patience::of(Duration::from_millis(50));
        lane.io(MemberIo { member, op, patience }).await.result
    });
    assert_eq!(written.unwrap_err().kind, IoErrorKind::Deadline);
}

/// A server that takes writes and does none of them, and answers everything else.
#[test]
fn an_export_that_owes_an_answer_is_not_opened_again_before_that_is_on_record() {
    let (_folder, uri) = serve(vec![disk(1)]);
    let state = tempfile::tempdir().unwrap();
    let lanes = Lanes::start(LanesConfig::default()).unwrap();
    let members = lanes.members();
    members.keep_unproved(UnprovedWrites::in_folder(state.path().to_owned()));
    let table = format!("0 {} multipath 0 0 1 1 round-robin 0 1 0 {uri}", BYTES / 512);
    let spec = MultipathSpec::new(table.parse().unwrap(), Policy::default());
    let open = || members.open_multipath("paths", &spec, OpenMode::RUN);
    let (member, paths) = open().unwrap();
    let _ = read_on(&lanes, 0, member);
    until(&paths, |states| states == ["active"]);
    write_without_answer(&lanes, member);
    // The lane does not come to let go of it.
    let (go_on, waits) = channel::<()>();
    lanes.run_on(LaneId(0), move |_, _| {
        let _ = waits.recv();
    });
    members.close(member);
    let refused = open().map(drop).unwrap_err().to_string();
    assert!(refused.contains("in use by"), "{refused}");
    drop(go_on);
    let (_, paths) = open().unwrap();
    let unproved = paths.status().unproved;
    assert_eq!(unproved.len(), 1, "the write may still appear: {unproved:?}");
}

/// A write under way to a server that does none, over a member that is closed then; what the operator said of
/// the member came before or after it.
#[test]
fn the_operators_word_proves_what_was_sent_before_it_and_nothing_else() {
    for word_is_first in [false, true] {
        let (_folder, uri) = serve(vec![disk(1)]);
        let state = tempfile::tempdir().unwrap();
        let lanes = Lanes::start(LanesConfig::default()).unwrap();
        let members = lanes.members();
        members.keep_unproved(UnprovedWrites::in_folder(state.path().to_owned()));
        let (member, _) = members.open(&uri, OpenMode::RUN).unwrap();
        let unproved = members.unproved().unwrap();
        if word_is_first {
            unproved.forget(&uri);
        }
        write_without_answer(&lanes, member);
        if !word_is_first {
            unproved.forget(&uri);
        }
        members.close(member);
        while !members.is_closed(member) {
            std::thread::yield_now();
        }
        let left = UnprovedWrites::in_folder(state.path().to_owned()).of(&uri).unwrap();
        assert_eq!(left.len(), usize::from(word_is_first), "{left:?}");
    }
}

/// Each of them would be kept as one that may still appear, though not a byte of it has left.
#[test]
fn writes_that_a_server_takes_nothing_of_are_sent_a_few_at_a_time() {
    const WRITES: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        serve_one_with(stream, export_flag::CAN_MULTI_CONN, &disk(1), |_, _| {
            loop {
                std::thread::park();
            }
        })
    });
    let lanes = Lanes::start(LanesConfig::default()).unwrap();
    let uri = format!("nbd+unix://{}", path.display());
    let (member, _) = lanes.members().open(&uri, OpenMode::RUN).unwrap();
    let _ = read_on(&lanes, 0, member);
    let sent = lanes.call(LaneId(0), async move |lane, _| {
        let write = |_| {
            let from = WriteFrom::Buffer(lane.backend().allocate(BYTES), 0..BYTES);
            let op = IoOp::Write { sector: 0, from, fua: false };
            let patience = Patience::of(Duration::from_millis(50));
            lane.io(MemberIo { member, op, patience })
        };
        let writes: Vec<_> = (0..WRITES).map(write).collect();
        let mut sent = 0;
        for write in writes {
            sent += usize::from(!write.await.result.unwrap_err().was_not_sent());
        }
        sent
    });
    // 4 MiB.
    assert_eq!(sent, 4);
}
