//! Alone in its process, so that it can count the process's descriptors and threads.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mdspace_engine::backend::{IoOp, MemberIo, Patience, ReadInto};
use mdspace_engine::lane::LaneId;
use mdspace_io::{IoChoice, Lanes, LanesConfig, OpenMode, Socket};

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

fn use_everything(io: IoChoice, image: &str) {
    let lanes = Lanes::start(LanesConfig { io, count: 2, ..LanesConfig::default() }).unwrap();
    let members = [image, "ram:1M", "null:1M?latency=2ms"]
        .map(|name| lanes.members().open(name, OpenMode::RUN).unwrap().0);
    for lane in 0..2 {
        let (ours, theirs) = UnixStream::pair().unwrap();
        lanes.run_on(LaneId(lane), move |lane, io| {
            let (task_lane, io) = (lane.clone(), io.clone());
            lane.spawn(async move {
                let lane = task_lane;
                for member in members {
                    let into = ReadInto::Sink(io.payload(4096), 0..4096);
                    let op = IoOp::Read { sector: 0, into };
                    let io = lane.io(MemberIo { member, op, patience: Patience::FOREVER });
                    assert!(io.await.result.is_ok());
                }
                // One that nobody waits for.
                let into = ReadInto::Sink(io.payload(4096), 0..4096);
                let op = IoOp::Read { sector: 0, into };
                drop(lane.io(MemberIo { member: members[2], op, patience: Patience::FOREVER }));
                let socket = Socket::new(ours).unwrap();
                let deadline = lane.backend().now() + Duration::from_millis(1);
                let (late, _) = io.recv(&socket, Vec::with_capacity(1), Some(deadline)).await;
                assert!(late.is_err());
                drop(theirs);
            });
        });
    }
    lanes.stop(Duration::from_secs(10)).unwrap();
}

#[test]
fn stopped_lanes_leave_nothing_open_and_nobody_running() {
    let path = format!("{}/mdspace-leaks-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let before = (count("/proc/self/fd"), count("/proc/self/task"));
    for io in [IoChoice::Uring, IoChoice::Preadv] {
        use_everything(io, &path);
        assert_eq!((count("/proc/self/fd"), count("/proc/self/task")), before, "{io:?}");
    }
    std::fs::remove_file(&path).unwrap();
}
