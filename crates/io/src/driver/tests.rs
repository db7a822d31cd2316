//! The driver against files that answer when they are told to: pipes.

use std::cell::RefCell;
use std::io::Write;
use std::time::Duration;

use mdspace_engine::backend::{
    IoError, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto, WriteFrom,
};

use mdspace_engine::memory::{Sink, Source};

use super::lease::Lease;
use super::*;
use crate::lanes::{LanesConfig, LocalLane};
use crate::member::Device;
use crate::payload::Lent;

/// A lane, and a member that is the reading end of a pipe. Only the ring reads a pipe as if it had
/// addresses.
fn pipe() -> (LocalLane, MemberId, io::PipeWriter) {
    let config = LanesConfig { io: IoChoice::Uring, ..LanesConfig::default() };
    let lane = LocalLane::new(&config).unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(reader));
    let device = Device::File { file, memory_align: 1, inline: false };
    let info = MemberInfo {
        name: "pipe".into(),
        sectors: 1 << 20,
        logical_block_bytes: 512,
        rotational: false,
        discard_zeroes: false,
    };
    let member = config.members.add(device, info, false).unwrap();
    (lane, member, writer)
}

fn read(lane: &Lane, member: MemberId, bytes: usize) -> MemberIo {
    let into = ReadInto::Buffer(lane.backend().allocate(bytes), 0..bytes);
    MemberIo { member, op: IoOp::Read { sector: 0, into }, patience: Patience::FOREVER }
}

#[test]
fn a_short_read_goes_on_where_it_stopped() {
    let (local, member, mut writer) = pipe();
    let lane = local.lane().clone();
    let bytes: Vec<u8> = (0..2048u32).map(|at| (at / 7) as u8).collect();
    let expected = bytes.clone();
    local.block_on(async move {
        writer.write_all(&bytes[..512]).unwrap();
        let io = lane.io(read(&lane, member, 2048));
        lane.sleep_until(lane.backend().now() + Duration::from_millis(1)).await;
        assert_eq!(lane.backend().in_flight(member), 1, "it waits for the rest");
        writer.write_all(&bytes[512..1024]).unwrap();
        lane.sleep_until(lane.backend().now() + Duration::from_millis(1)).await;
        writer.write_all(&bytes[1024..]).unwrap();
        let done = io.await;
        assert_eq!(done.result, Ok(()));
        assert!(*done.buffer.unwrap() == *expected);
        assert_eq!(lane.backend().in_flight(member), 0);
    });
}

/// A rewrite would mend a medium error, and leave a hole of zeroes before it.
#[test]
fn a_member_that_ends_before_its_end_counts_as_gone() {
    let (local, member, mut writer) = pipe();
    let lane = local.lane().clone();
    local.block_on(async move {
        writer.write_all(&[1; 100]).unwrap();
        let done = lane.io(read(&lane, member, 512)).await;
        assert_eq!(done.result.unwrap_err().kind, IoErrorKind::Gone);
        assert!(done.buffer.is_some());
    });
}

#[test]
fn memory_past_its_deadline_comes_home_with_the_kernels_answer() {
    let (local, member, writer) = pipe();
    let lane = local.lane().clone();
    local.block_on(async move {
        let sink = Rc::new(RefCell::new(vec![0; 512]));
        let op = IoOp::Read { sector: 0, into: ReadInto::Sink(sink.clone(), 0..512) };
        let patience = Patience::of(Duration::from_millis(5));
        let io = lane.io(MemberIo { member, op, patience });
        assert_eq!(Rc::strong_count(&sink), 2);
        assert_eq!(io.await.result.unwrap_err().kind, IoErrorKind::Deadline);
        while lane.backend().in_flight(member) > 0 {
            lane.pause().await;
        }
        assert_eq!(Rc::strong_count(&sink), 1);
        drop(writer);
    });
}

/// Its owner is answered from others meanwhile, in memory that no kernel writes to.
#[test]
fn what_a_late_read_brings_is_in_no_payload() {
    let (local, member, mut writer) = pipe();
    let (lane, io) = (local.lane().clone(), local.io().clone());
    local.block_on(async move {
        writer.write_all(&[1; 512]).unwrap();
        let payload = io.payload(2048);
        payload.put(1024, &[7; 1024]);
        // The kernel has given a part, and is at the rest.
        let op = IoOp::Read { sector: 0, into: ReadInto::Sink(payload.clone(), 0..1024) };
        let patience = Patience::of(Duration::from_millis(5));
        let late = lane.io(MemberIo { member, op, patience }).await;
        assert_eq!(late.result.unwrap_err().kind, IoErrorKind::Deadline);
        let lent = payload.at_lent(Lent::First, &(0..1024));
        payload.put(0, &[9; 1024]);
        assert_ne!(payload.at(&(0..1024)), lent, "other memory counts now");
        while lane.backend().in_flight(member) > 0 {
            lane.pause().await;
        }
        let bytes = payload.to_vec();
        assert!(bytes[..1024] == [9; 1024] && bytes[1024..] == [7; 1024]);
        assert!(payload.stable().is_some_and(|shown| *shown == *bytes));
        assert_eq!(Rc::strong_count(&payload), 1);
        drop(writer);
    });
}

#[test]
fn a_cancelled_read_of_the_kernels_ends_early() {
    let (local, member, writer) = pipe();
    let lane = local.lane().clone();
    local.block_on(async move {
        let io = lane.io(read(&lane, member, 512));
        lane.sleep_until(lane.backend().now() + Duration::from_millis(1)).await;
        lane.backend().cancel(io.ticket().unwrap());
        let done = io.await;
        assert_eq!(
            done.result,
            Err(IoError { kind: IoErrorKind::Cancelled, errno: libc::ECANCELED })
        );
        assert!(done.buffer.is_some());
        drop(writer);
    });
}

#[test]
fn a_payload_is_filled_in_place_and_misaligned_memory_bounces() {
    let config = LanesConfig::default();
    let local = LocalLane::new(&config).unwrap();
    let (member, _) = config.members.open("ram:1M", crate::OpenMode::RUN).unwrap();
    let (lane, io) = (local.lane().clone(), local.io().clone());
    let driver_stock = io.payload(4096);
    let place = driver_stock.at(&(0..1)).addr();
    drop(driver_stock);
    local.block_on(async move {
        let payload = io.payload(4096);
        assert_eq!(payload.at(&(0..1)).addr(), place, "the stock gives free memory again");
        let bytes: Vec<u8> = (0..4096u32).map(|at| at as u8).collect();
        let from = WriteFrom::Source(Rc::new(bytes.clone()), 0..4096);
        let write = IoOp::Write { sector: 8, from, fua: true };
        lane.io(MemberIo { member, op: write, patience: Patience::FOREVER }).await.result.unwrap();
        let into = ReadInto::Sink(payload.clone(), 0..4096);
        let op = IoOp::Read { sector: 8, into };
        lane.io(MemberIo { member, op, patience: Patience::FOREVER }).await.result.unwrap();
        assert!(payload.to_vec() == bytes);
        assert_eq!(Rc::strong_count(&payload), 1);
    });
}

#[test]
fn a_lease_bounces_memory_that_is_not_aligned() {
    let config = LanesConfig { io: IoChoice::Preadv, ..LanesConfig::default() };
    let local = LocalLane::new(&config).unwrap();
    let stock = local.io().stock();
    let buffer = Buffer::zeroed(8192);
    let mut lease = Lease::reading(ReadInto::Buffer(buffer, 100..612), 512, stock);
    let place = lease.place(0);
    assert!(place.at.addr().is_multiple_of(512) && place.len == 512);
    // SAFETY: the place is 512 bytes that only this test knows.
    unsafe { std::ptr::write_bytes(place.at, 0x5a, 512) };
    let buffer = lease.end(true, stock).unwrap();
    assert!(buffer[100..612].iter().all(|&byte| byte == 0x5a));
    assert!(buffer[..100].iter().chain(&buffer[612..]).all(|&byte| byte == 0));
    let mut lease = Lease::writing(WriteFrom::Buffer(buffer, 99..611), 512, 512, stock);
    let place = lease.place(0);
    assert!(place.at.addr().is_multiple_of(512));
    // SAFETY: as above; a write's bounce holds the bytes from the start.
    assert_eq!(unsafe { (*place.at, *place.at.add(511)) }, (0, 0x5a));
    assert!(lease.end(true, stock).is_some());
}
