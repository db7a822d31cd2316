use std::rc::Rc;

use mdspace::low::{Queue, Request};
use mdspace::{Array, Error, Level, Member};

use crate::bed::{MEMBER_BYTES, pattern, read};

fn array() -> Array {
    let members = [MEMBER_BYTES; 3].map(Member::memory);
    let array = Array::create("lanes", Level::Raid5).members(members).assume_clean(true);
    array.lanes(2).start().unwrap()
}

#[test]
fn a_task_on_a_lane_reads_and_writes_there() {
    let array = array();
    for lane in 0..array.lane_count() {
        let offset = lane as u64 * 8192;
        let wrote = array.on_lane(lane, async move |part| {
            part.write(offset, &pattern(7, 4096)).await?;
            part.flush().await?;
            assert!(matches!(part.write(1, &[0; 512]).await, Err(Error::Unaligned { .. })));
            assert!(matches!(part.read(u64::MAX, 512).await, Err(Error::OutOfRange { .. })));
            part.read(offset, 4096).await
        });
        assert_eq!(wrote.wait().unwrap().unwrap(), pattern(7, 4096));
        assert!(read(&array, offset, 4096) == pattern(7, 4096));
    }
    let beyond = array.on_lane(2, async |_| ()).wait();
    assert!(matches!(beyond, Err(Error::Asked { .. })));
    array.stop().unwrap();
    assert!(matches!(array.on_lane(0, async |_| ()).wait(), Err(Error::Stopped)));
}

/// Many requests of one queue, without a task each and without a copy.
#[test]
fn requests_of_the_engine_go_beside_those_of_this_crate() {
    let array = array();
    let ended = array.on_lane(1, async |part| {
        let queue = Queue::new();
        for tag in 0..32u64 {
            let from = Rc::new(vec![tag as u8; 4096]);
            part.array().submit(&queue, tag, Request::Write { sector: tag * 8, from, fua: true });
        }
        let mut ended = 0;
        while queue.in_flight() > 0 {
            let completion = queue.next().await;
            ended += usize::from(completion.result.is_ok());
        }
        ended
    });
    assert_eq!(ended.wait().unwrap(), 32);
    assert!(read(&array, 31 * 4096, 4096) == [31; 4096]);
    array.stop().unwrap();
}

#[test]
fn who_blocks_a_lane_is_refused_and_the_lane_goes_on() {
    let array = std::sync::Arc::new(array());
    let theirs = array.clone();
    let refused = array.on_lane(0, async move |_| {
        let orders = [
            theirs.write_at(&[0; 512], 0),
            theirs.read_at(&mut [0; 512], 0),
            theirs.flush(),
            theirs.stop(),
            theirs.status().map(drop),
            theirs.fail("memory-0"),
            theirs.set("sync_speed_max", "1000"),
            theirs.on_lane(1, async |_| ()).wait(),
            Array::in_memory(Level::Raid1, 2, MEMBER_BYTES).map(drop),
        ];
        orders.iter().all(|order| matches!(order, Err(Error::OnLane)))
    });
    assert!(refused.wait().unwrap());
    array.write_at(&[3; 512], 0).unwrap();
    array.stop().unwrap();
}

#[test]
fn futures_of_an_array_run_on_lanes_too() {
    let array = std::sync::Arc::new(array());
    let theirs = array.clone();
    let bytes = array.on_lane(1, async move |_| {
        theirs.write_async(0, vec![4; 4096]).await?;
        theirs.flush_async().await?;
        theirs.write_zeroes_async(512, 512).await?;
        theirs.discard_async(1 << 20, 4096).await?;
        theirs.read_async(0, 1024).await
    });
    let bytes = bytes.wait().unwrap().unwrap();
    assert_eq!((&bytes[..512], &bytes[512..]), (&[4; 512][..], &[0; 512][..]));
    array.stop().unwrap();
}

#[test]
fn a_panic_of_a_task_ends_that_task_alone() {
    struct PanicsAtItsEnd;
    impl Drop for PanicsAtItsEnd {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("on purpose, at its end");
            }
        }
    }
    let array = array();
    let at_once: Result<(), Error> =
        array.on_lane(0, |_| -> std::future::Ready<()> { panic!("on purpose, at once") }).wait();
    assert!(matches!(at_once, Err(Error::Panicked)));
    let later = array.on_lane(0, async |part| {
        part.write(0, &[1; 4096]).await.unwrap();
        // While the lane has a request of it.
        let read = part.array().serve(Request::Read { sector: 0, into: part.io().payload(4096) });
        drop(read);
        panic!("on purpose, later");
    });
    let later: Result<(), Error> = later.wait();
    assert!(matches!(later, Err(Error::Panicked)));
    let value = array.on_lane(0, async |_| {
        let _end = PanicsAtItsEnd;
        5
    });
    assert!(matches!(value.wait(), Err(Error::Panicked)));
    assert!(read(&array, 0, 4096) == [1; 4096]);
    array.stop().unwrap();
}
