//! Opening and closing members.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use mdspace_engine::backend::{
    IoErrorKind, IoOp, MemberId, MemberIo, Patience, ReadInto, WriteFrom,
};
use mdspace_engine::memory::Buffer;
use mdspace_io::{IoChoice, LanesConfig, LocalLane, MemberTable, OpenError, OpenMode};

/// An image file that goes away with the test.
struct Image(PathBuf);

impl Image {
    fn new(name: &str, bytes: u64) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = directory.join(format!("mdspace-members-{}-{name}", std::process::id()));
        File::create(&path).unwrap().set_len(bytes).unwrap();
        Self(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn a_member_knows_its_size_and_blocks() {
    let table = MemberTable::new();
    let image = Image::new("size", (1 << 20) + 700);
    let (id, info) = table.open(image.name(), OpenMode::RUN).unwrap();
    assert_eq!((info.name.as_str(), info.sectors), (image.name(), 2049));
    assert!([512, 4096].contains(&info.logical_block_bytes));
    assert_eq!(table.info(id), Some(info));
    let (_, info) = table.open("ram:64K", OpenMode::RUN).unwrap();
    assert_eq!((info.sectors, info.discard_zeroes), (128, true));
    let (_, info) = table.open("null:1M?latency=1s", OpenMode::LOOK).unwrap();
    assert_eq!((info.sectors, info.discard_zeroes), (2048, false));
}

#[test]
fn a_member_in_use_is_refused_by_its_users_name() {
    let table = MemberTable::new();
    let image = Image::new("in-use", 1 << 20);
    let (id, _) = table.open(image.name(), OpenMode::RUN).unwrap();
    let refused = table.open(image.name(), OpenMode::RUN).unwrap_err();
    let OpenError::InUse { holder, .. } = &refused else { panic!("{refused}") };
    assert_eq!(holder, "this process");
    assert!(refused.may_be_of_this_process());
    // Looking is free, also at a member that runs.
    table.open(image.name(), OpenMode::LOOK).unwrap();
    table.close(id);
    assert!(table.is_closed(id));
    table.open(image.name(), OpenMode::RUN).unwrap();
}

#[test]
fn several_may_read_what_none_may_write() {
    let table = MemberTable::new();
    let image = Image::new("shared", 1 << 20);
    let reading = OpenMode { exclusive: true, ..OpenMode::LOOK };
    table.open(image.name(), reading).unwrap();
    table.open(image.name(), reading).unwrap();
    assert!(matches!(table.open(image.name(), OpenMode::RUN), Err(OpenError::InUse { .. })));
}

#[test]
fn what_is_no_member_is_refused_with_a_reason() {
    let table = MemberTable::new();
    let refused = |name: &str| table.open(name, OpenMode::RUN).unwrap_err();
    assert!(matches!(refused("/dev/null"), OpenError::Kind { .. }));
    assert!(matches!(refused("/tmp"), OpenError::Kind { .. }));
    assert!(matches!(refused("/nowhere/at/all"), OpenError::System { .. }));
    assert!(matches!(refused("ram:lots"), OpenError::Name { .. }));
    assert!(matches!(refused("ram:4194304T"), OpenError::System { .. } | OpenError::Name { .. }));
}

#[test]
fn an_index_used_again_has_another_generation() {
    let table = MemberTable::new();
    let (first, _) = table.open("ram:64K", OpenMode::RUN).unwrap();
    table.close(first);
    let (second, _) = table.open("ram:64K", OpenMode::RUN).unwrap();
    assert_eq!(first.index, second.index);
    assert_ne!(first.generation, second.generation);
    assert_eq!(table.info(first), None);
    table.close(first);
    assert!(table.info(second).is_some(), "an old name closes nothing");
}

fn read(member: MemberId) -> MemberIo {
    let into = ReadInto::Buffer(Buffer::zeroed(4096), 0..4096);
    MemberIo { member, op: IoOp::Read { sector: 0, into }, patience: Patience::FOREVER }
}

#[test]
fn a_member_closes_when_its_last_io_has_ended() {
    let config = LanesConfig::default();
    let (local, table) = (LocalLane::new(&config).unwrap(), config.members);
    let (member, _) = table.open("null:1M?latency=30ms", OpenMode::RUN).unwrap();
    let lane = local.lane().clone();
    let theirs = table.clone();
    local.block_on(async move {
        let io = lane.io(read(member));
        theirs.close(member);
        lane.sleep_until(lane.backend().now() + Duration::from_millis(1)).await;
        assert_eq!(lane.backend().in_flight(member), 1);
        assert!(!theirs.is_closed(member), "an I/O is in flight");
        assert!(io.await.result.is_ok());
        let done = lane.io(read(member)).await;
        assert_eq!(done.result.unwrap_err().kind, IoErrorKind::Gone);
    });
    local.run_until(|| table.is_closed(member));
}

#[test]
fn a_read_only_member_takes_no_writes() {
    let config = LanesConfig::default();
    let (local, table) = (LocalLane::new(&config).unwrap(), config.members);
    let image = Image::new("read-only", 1 << 20);
    let (member, _) = table.open(image.name(), OpenMode::LOOK).unwrap();
    let lane = local.lane().clone();
    local.block_on(async move {
        assert!(lane.io(read(member)).await.result.is_ok());
        let from = WriteFrom::Buffer(Buffer::zeroed(4096), 0..4096);
        let writes = [
            IoOp::Write { sector: 0, from, fua: false },
            IoOp::WriteZeroes { sector: 0, sectors: 8, fua: false },
            IoOp::Discard { sector: 0, sectors: 8 },
        ];
        for op in writes {
            let done = lane.io(MemberIo { member, op, patience: Patience::FOREVER }).await;
            assert!(done.result.is_err());
        }
    });
}

#[test]
fn a_file_that_was_cut_stays_short_whatever_is_written_at_its_end() {
    for io in [IoChoice::Uring, IoChoice::Preadv] {
        let config = LanesConfig { io, ..LanesConfig::default() };
        let (local, table) = (LocalLane::new(&config).unwrap(), config.members);
        let image = Image::new(&format!("cut-{io:?}"), 1 << 20);
        let (member, info) = table.open(image.name(), OpenMode::RUN).unwrap();
        let lane = local.lane().clone();
        let file = File::options().write(true).open(&image.0).unwrap();
        local.block_on(async move {
            let write = || {
                let from = WriteFrom::Buffer(Buffer::zeroed(4096), 0..4096);
                let op = IoOp::Write { sector: info.sectors - 8, from, fua: false };
                lane.io(MemberIo { member, op, patience: Patience::FOREVER })
            };
            assert_eq!(write().await.result, Ok(()));
            file.set_len(64 << 10).unwrap();
            assert_eq!(write().await.result.unwrap_err().kind, IoErrorKind::Gone);
            assert_eq!(file.metadata().unwrap().len(), 64 << 10);
        });
    }
}

#[test]
fn only_a_model_keeps_times_of_its_own() {
    let table = MemberTable::new();
    let modelled = |name: &str| table.is_modelled(table.open(name, OpenMode::RUN).unwrap().0);
    assert!(modelled("null:nvme") && modelled("null:64K?latency=1us"));
    assert!(!modelled("null:64K?memory_backed=1") && !modelled("ram:64K"));
}
