//! An array over exports, on two lanes, of which each has connections of its own.

use std::sync::Arc;

use mdspace_engine::array::{Action, Reply};
use mdspace_engine::assembly::Options;
use mdspace_engine::create::{self, Creation, NewDevice};
use mdspace_engine::lane::LaneId;
use mdspace_engine::request::{Queue, Request};
use mdspace_engine::status::MemberState;
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, MetadataVersion, Uuid};
use mdspace_front::volume::VolumePart;
use mdspace_io::{Lanes, LanesConfig, OpenMode, RunningArray};

use crate::disk::{Disk, PATIENCE};

fn creation() -> Creation {
    Creation {
        name: SetName::new("net").expect("short"),
        uuid: Uuid([7; 16]),
        version: MetadataVersion::V1_2,
        level: Level::Raid5,
        layout: 2,
        chunk_sectors: 128,
        raid_disks: 3,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: BitmapRequest::Internal { chunk_bytes: None },
        assume_clean: true,
        force: true,
        write_behind: 0,
    }
}

/// Runs requests on a lane, one after the other, and asserts that each is done.
fn run(array: &RunningArray, lane: u16, requests: impl FnOnce() -> Vec<Request> + Send + 'static) {
    let (sender, receiver) = std::sync::mpsc::channel();
    array.run_on(LaneId(lane), move |port, lane, _| {
        let port = port.clone();
        lane.spawn(async move {
            for request in requests() {
                let queue = Queue::new();
                VolumePart::submit(&port, &queue, 0, request);
                queue.next().await.result.expect("done");
            }
            sender.send(()).expect("the test waits");
        });
    });
    receiver.recv().expect("the lane runs");
}

fn write(sector: u64, salt: u8) -> Request {
    let bytes: Vec<u8> = (0..96 << 10u32).map(|at| (at / 3) as u8 ^ salt).collect();
    Request::Write { sector, from: std::rc::Rc::new(bytes), fua: false }
}

fn assert_reads(array: &RunningArray, lane: u16, sector: u64, salt: u8) {
    let (sender, receiver) = std::sync::mpsc::channel();
    array.run_on(LaneId(lane), move |port, lane, _| {
        let port = port.clone();
        lane.spawn(async move {
            let sink = std::rc::Rc::new(std::cell::RefCell::new(vec![0; 96 << 10]));
            let queue = Queue::new();
            let request = Request::Read { sector, into: sink.clone() };
            VolumePart::submit(&port, &queue, 0, request);
            queue.next().await.result.expect("read");
            sender.send(sink.take()).expect("the test waits");
        });
    });
    let bytes = receiver.recv().expect("the lane runs");
    assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == (at as u32 / 3) as u8 ^ salt));
}

#[test]
fn an_array_over_exports_bears_the_loss_of_a_server() {
    let disks: Vec<Disk> = (0..3).map(|_| Disk::new(16 << 20)).collect();
    let config = LanesConfig { count: 2, ..LanesConfig::default() };
    let lanes = Arc::new(Lanes::start(config).expect("lanes"));
    let open = |disk: &Disk| lanes.members().open(&disk.name(), OpenMode::RUN).expect("opened");
    let devices: Vec<NewDevice> = disks
        .iter()
        .map(open)
        .map(|(id, info)| NewDevice { id, info, flags: MemberFlags::default() })
        .collect();
    let places = devices.iter().cloned().map(Some).collect();
    let mut uuids = 1..;
    let uuid = || Uuid([uuids.next().expect("three members"); 16]);
    let plan = create::plan(&creation(), places, 0, uuid).expect("a plan");
    lanes.call(LaneId(0), async move |lane, _| create::write(&lane, &plan).await).expect("written");
    let members = devices.into_iter().map(|device| (device.id, device.info)).collect();
    let array = RunningArray::assemble(lanes.clone(), members, Options::default()).expect("whole");

    run(&array, 0, || (0..20).map(|at| write(at * 200, at as u8)).collect());
    run(&array, 1, || vec![write(5 * 200, 77), Request::Flush]);
    assert_reads(&array, 0, 5 * 200, 77);
    assert_reads(&array, 1, 6 * 200, 6);

    disks[1].end_server();
    run(&array, 1, || (0..20).map(|at| write(at * 200, 100 + at as u8)).collect());
    for at in 0..20 {
        assert_reads(&array, at as u16 % 2, at * 200, 100 + at as u8);
    }
    let Ok(Reply::Status(status)) = array.command(Action::Status) else { panic!("no status") };
    let faulty = status.members.iter().filter(|member| member.state == MemberState::Faulty);
    assert_eq!(faulty.count(), 1, "the lost server's member alone has failed");
    array.stop().expect("stopped");
    Arc::into_inner(lanes).expect("ours alone").stop(PATIENCE).expect("ended");
}
