//! `null:` members as a lane meets them.

use std::time::Duration;

use mdspace_engine::backend::{
    IoErrorKind, IoOp, MemberId, MemberIo, Patience, ReadInto, WriteFrom,
};
use mdspace_engine::lane::Lane;
use mdspace_engine::memory::Buffer;

use crate::lanes::{LanesConfig, LocalLane};
use crate::member::OpenMode;

/// A lane with members of these names.
fn lane(names: &[&str]) -> (LocalLane, Vec<MemberId>) {
    let config = LanesConfig::default();
    let lane = LocalLane::new(&config).unwrap();
    let open = |name: &&str| config.members.open(name, OpenMode::RUN).unwrap().0;
    (lane, names.iter().map(open).collect())
}

fn read(member: MemberId, sector: u64) -> MemberIo {
    let into = ReadInto::Buffer(Buffer::zeroed(4096), 0..4096);
    MemberIo { member, op: IoOp::Read { sector, into }, patience: Patience::FOREVER }
}

fn write(member: MemberId, sector: u64, byte: u8) -> MemberIo {
    let mut buffer = Buffer::zeroed(4096);
    buffer.fill(byte);
    let from = WriteFrom::Buffer(buffer, 0..4096);
    MemberIo { member, op: IoOp::Write { sector, from, fua: false }, patience: Patience::FOREVER }
}

async fn first_byte(lane: &Lane, member: MemberId, sector: u64) -> u8 {
    let done = lane.io(read(member, sector)).await;
    assert_eq!(done.result, Ok(()));
    done.buffer.expect("a read gives its buffer back")[0]
}

#[test]
fn metadata_come_back_and_data_do_not_unless_asked() {
    let names = [
        "null:64M",
        "null:64M?latency=1us",
        "null:64M?memory_backed=1",
        "null:nvme?size=64M&memory_backed=1",
    ];
    let (local, members) = lane(&names);
    let lane = local.lane().clone();
    local.block_on(async move {
        for (member, name) in members.into_iter().zip(names) {
            let keeps = name.contains("memory_backed");
            let places = [(8, true), (131_064, true), (65_536, keeps)];
            for (sector, _) in places {
                assert_eq!(lane.io(write(member, sector, 0x5a)).await.result, Ok(()));
            }
            for (sector, kept) in places {
                let expected = if kept { 0x5a } else { 0 };
                assert_eq!(first_byte(&lane, member, sector).await, expected, "{name} {sector}");
            }
        }
    });
}

#[test]
fn an_io_takes_no_less_than_the_model_says() {
    let (local, members) = lane(&["null:64M?latency=3ms"]);
    let lane = local.lane().clone();
    local.block_on(async move {
        let before = lane.backend().now();
        first_byte(&lane, members[0], 0).await;
        assert!(lane.backend().now().since(before) >= Duration::from_millis(3));
    });
}

#[test]
fn a_failing_member_reports_a_medium_error_and_keeps_the_old_bytes() {
    let (local, members) = lane(&["null:64M?error=1&latency=1us"]);
    let (lane, member) = (local.lane().clone(), members[0]);
    local.block_on(async move {
        for io in [read(member, 0), write(member, 0, 0x5a)] {
            let done = lane.io(io).await;
            assert_eq!(done.result.unwrap_err().kind, IoErrorKind::Medium);
            assert!(done.buffer.is_some());
        }
        let flush = MemberIo { member, op: IoOp::Flush, patience: Patience::FOREVER };
        assert_eq!(lane.io(flush).await.result, Ok(()));
    });
}

#[test]
fn a_hanging_io_misses_its_deadline_and_can_be_cancelled() {
    let (local, members) = lane(&["null:64M?hang=1&hang_time=3600s"]);
    let (lane, member) = (local.lane().clone(), members[0]);
    local.block_on(async move {
        let patience = Patience::of(Duration::from_millis(2));
        let late = lane.io(MemberIo { patience, ..read(member, 0) }).await;
        assert_eq!(late.result.unwrap_err().kind, IoErrorKind::Deadline);
        assert_eq!(lane.backend().in_flight(member), 1, "the device still has it");
        let io = lane.io(read(member, 0));
        lane.backend().cancel(io.ticket().unwrap());
        assert_eq!(io.await.result.unwrap_err().kind, IoErrorKind::Cancelled);
    });
}

#[test]
fn all_lanes_share_one_device() {
    let config = LanesConfig { count: 2, ..LanesConfig::default() };
    let table = config.members.clone();
    // Two lanes with 20 reads each of 1 ms, one at a time: 40 ms, not 20.
    let (member, _) = table.open("null:64M?latency=1ms&queues=1", OpenMode::RUN).unwrap();
    let lanes = crate::Lanes::start(config).unwrap();
    let (sender, ended) = std::sync::mpsc::channel();
    for index in 0..2 {
        let sender = sender.clone();
        lanes.run_on(mdspace_engine::lane::LaneId(index), move |lane, _| {
            let lane = lane.clone();
            let task = lane.clone();
            lane.spawn(async move {
                let began = task.backend().now();
                let ios: Vec<_> = (0..20).map(|_| task.io(read(member, 0))).collect();
                for io in ios {
                    assert_eq!(io.await.result, Ok(()));
                }
                sender.send((began, task.backend().now())).unwrap();
            });
        });
    }
    drop(sender);
    let times: Vec<_> = ended.iter().collect();
    assert_eq!(times.len(), 2);
    let began = times.iter().map(|(began, _)| *began).min().unwrap();
    let ended = times.iter().map(|(_, ended)| *ended).max().unwrap();
    assert!(ended.since(began) >= Duration::from_millis(40));
}

#[test]
fn a_disk_says_so_and_takes_no_discards() {
    let config = LanesConfig::default();
    let info = |name: &str| config.members.open(name, OpenMode::RUN).unwrap().1;
    let (disk, drive) = (info("null:hdd"), info("null:nvme?size=4G"));
    assert_eq!((disk.rotational, disk.discard_zeroes, disk.sectors), (true, false, 1 << 21));
    assert_eq!((drive.rotational, drive.discard_zeroes, drive.sectors), (false, true, 1 << 23));
}
