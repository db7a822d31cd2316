//! A real array behind the server: RAID5 of three members in memory, on two lanes.

use std::sync::Arc;

use mdspace_engine::array::{Action, Reply};
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::MemberId;
use mdspace_engine::create::{self, Creation, NewDevice};
use mdspace_engine::lane::LaneId;
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, MetadataVersion, Uuid};
use mdspace_front::Address;
use mdspace_front::listener::Listener;
use mdspace_front::nbd::client::{Answer, Wants};
use mdspace_front::nbd::{
    Command, Context, Contexts, Errno, Export, Exports, Framing, Server, ServerLimits,
};
use mdspace_io::nbd_wire::redundancy_state;
use mdspace_io::{Lanes, LanesConfig, OpenMode, RunningArray};

use crate::client::BlockingClient;
use crate::memory::PATIENCE;

pub(crate) struct ServedArray {
    pub(crate) array: RunningArray,
    members: Vec<MemberId>,
    lanes: Arc<Lanes>,
    pub(crate) folder: tempfile::TempDir,
    servers: Vec<Server>,
}

impl ServedArray {
    pub(crate) fn new() -> ServedArray {
        ServedArray::of(Level::Raid5, 3)
    }

    pub(crate) fn of(level: Level, members: u16) -> ServedArray {
        let config = LanesConfig { count: 2, ..LanesConfig::default() };
        let lanes = Arc::new(Lanes::start(config).expect("lanes"));
        let open = |_| lanes.members().open("ram:16M", OpenMode::RUN).expect("memory");
        let devices: Vec<NewDevice> = (0..members)
            .map(open)
            .map(|(id, info)| NewDevice { id, info, flags: MemberFlags::default() })
            .collect();
        let places = devices.iter().cloned().map(Some).collect();
        let mut uuids = 1..;
        let device_uuid = || Uuid([uuids.next().expect("few members"); 16]);
        let plan = create::plan(&creation(level, members), places, 0, device_uuid).expect("a plan");
        lanes
            .call(LaneId(0), async move |lane, _| create::write(&lane, &plan).await)
            .expect("written");
        let members = devices.iter().map(|device| device.id).collect();
        let devices = devices.into_iter().map(|device| (device.id, device.info)).collect();
        let array = RunningArray::assemble(lanes.clone(), devices, Options::default());
        let array = array.expect("assembled");
        let folder = tempfile::tempdir().expect("a folder");
        ServedArray { array, members, lanes, folder, servers: Vec::new() }
    }

    pub(crate) fn exports(&self) -> Exports {
        let Ok(Reply::Status(status)) = self.array.command(Action::Status) else {
            panic!("no status");
        };
        Exports::new(vec![Export::of_array("r5", &status)]).expect("valid")
    }

    /// Bytes that all lanes have copied in memory.
    pub(crate) fn copied_bytes(&self) -> u64 {
        let lanes = (0..self.lanes.count() as u16).map(LaneId);
        lanes.map(|id| self.lanes.call(id, async |lane, _| lane.traffic().copied_bytes)).sum()
    }

    pub(crate) fn serve(&mut self, name: &str, options: &str) -> std::path::PathBuf {
        let exports = self.exports();
        let path = self.folder.path().join(name);
        let address = format!("nbd:unix:{}{options}", path.display());
        let listener = Listener::bind(&Address::parse(&address).expect("an address"));
        let listener = listener.expect("listening");
        self.servers.push(Server::start(listener, exports, ServerLimits::default(), &self.array));
        path
    }

    pub(crate) fn fail(&self, member: usize) {
        let member = self.members[member];
        self.array.command(Action::Fail { member, force: true }).expect("failed as asked");
    }

    pub(crate) fn end(self) {
        for server in self.servers {
            server.close(PATIENCE).expect("closed");
        }
        self.array.stop().expect("stopped");
        let lanes = Arc::into_inner(self.lanes).expect("nobody else holds the lanes");
        lanes.stop(PATIENCE).expect("ended");
    }
}

fn creation(level: Level, members: u16) -> Creation {
    Creation {
        name: SetName::new("r5").expect("short"),
        uuid: Uuid([9; 16]),
        version: MetadataVersion::V1_2,
        level,
        layout: match level {
            Level::Raid4 | Level::Raid5 | Level::Raid6 => 2,
            // Two copies, near.
            Level::Raid10 => 0x102,
            _ => 0,
        },
        chunk_sectors: if level.has_chunks() { 128 } else { 0 },
        raid_disks: members,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: BitmapRequest::None,
        assume_clean: true,
        force: true,
        write_behind: 0,
    }
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at + seed) * 29 % 253) as u8).collect()
}

#[test]
fn an_array_is_written_on_one_lane_and_read_on_another() {
    let mut served = ServedArray::new();
    let path = served.serve("a.sock", "");
    let mut writer = BlockingClient::new(&path, true);
    let mut reader = BlockingClient::new(&path, true);
    let bytes = pattern(1, 300 << 10);
    writer.write(512, &bytes);
    assert_eq!(writer.ask(Command::Flush, 0, 0, &[]), Answer::Done);
    assert!(reader.read(512, 300 << 10) == bytes);
    let zero = Command::WriteZeroes { fua: true, no_hole: false, fast: false };
    assert_eq!(reader.ask(zero, 4096, 64 << 10, &[]), Answer::Done);
    assert_eq!(writer.read(4096, 64 << 10), vec![0; 64 << 10]);
    assert_eq!(writer.ask(Command::Trim { fua: true }, 0, 1 << 20, &[]), Answer::Done);
    served.end();
}

#[test]
fn a_failed_member_is_not_noticed_and_two_are_told_as_errors() {
    let mut served = ServedArray::new();
    let path = served.serve("a.sock", "");
    let mut client = BlockingClient::new(&path, true);
    let bytes = pattern(2, 1 << 20);
    client.write(0, &bytes);
    served.fail(0);
    assert!(client.read(0, 1 << 20) == bytes);
    served.fail(1);
    let answer = client.ask(Command::Read, 0, 1 << 20, &[]);
    assert!(matches!(answer, Answer::Failed(Errno::Io, _)), "{answer:?}");
    let answer = client.ask(Command::Write { fua: false }, 0, 4096, &bytes[..4096]);
    assert!(matches!(answer, Answer::Failed(Errno::Io, _)), "{answer:?}");
    for server in served.servers.drain(..) {
        server.close(PATIENCE).expect("closed");
    }
}

/// What a client is told of the redundancy of a range, as it stands in its replies.
fn redundancy(client: &mut BlockingClient, offset: u64, length: u64) -> Vec<(u64, u32)> {
    let contexts = Contexts::from_iter([Context::Redundancy]);
    let status = Command::BlockStatus { one_extent: false, contexts };
    match client.ask(status, offset, length, &[]) {
        Answer::Extents(mut told) => {
            let extents = told.remove(&Context::Redundancy).expect("it was asked for");
            extents.iter().map(|extent| (extent.length_bytes, extent.status)).collect()
        }
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn clients_are_told_what_is_redundant_degraded_and_lost() {
    let mut served = ServedArray::new();
    let path = served.serve("a.sock", "");
    let wants = Wants {
        framing: Framing::Extended,
        contexts: Contexts::from_iter([Context::Allocation, Context::Redundancy]),
        ..Wants::default()
    };
    let mut client = BlockingClient::with(&path, wants);
    let all = 4 << 20;
    assert_eq!(redundancy(&mut client, 0, all), [(all, 0)]);
    served.fail(1);
    assert_eq!(
        redundancy(&mut client, 4096, all - 4096),
        [(all - 4096, redundancy_state::DEGRADED)]
    );
    served.fail(0);
    let told = redundancy(&mut client, 0, all);
    let lost = redundancy_state::DEGRADED | redundancy_state::LOST;
    assert!(told.iter().any(|(_, status)| *status == lost), "{told:?}");
    assert_eq!(told.iter().map(|(length, _)| length).sum::<u64>(), all);
    let mut at = 0;
    // What is told is so.
    for (length, status) in told {
        let answer = client.ask(Command::Read, at, length, &[]);
        assert_eq!(matches!(answer, Answer::Failed(Errno::Io, _)), status == lost, "{at} {length}");
        at += length;
    }
    for server in served.servers.drain(..) {
        server.close(PATIENCE).expect("closed");
    }
}

#[test]
fn one_array_is_served_at_two_addresses_and_one_of_them_only_reads() {
    let mut served = ServedArray::new();
    let mut writer = BlockingClient::new(&served.serve("rw.sock", ""), true);
    let mut reader = BlockingClient::new(&served.serve("ro.sock", "?ro"), true);
    let bytes = pattern(3, 4096);
    writer.write(0, &bytes);
    assert_eq!(reader.read(0, 4096), bytes);
    let answer = reader.ask(Command::Write { fua: false }, 0, 4096, &bytes);
    assert!(matches!(answer, Answer::Failed(Errno::NotPermitted, _)), "{answer:?}");
    served.end();
}
