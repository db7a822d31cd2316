use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use mdspace::{Array, Error, Level, Member};

use crate::bed::{MEMBER_BYTES, MIB, pattern, read};

/// Runs futures side by side on this thread, which knows nothing of lanes.
pub(crate) fn run_all<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + Send>>>) -> Vec<T> {
    struct Unpark(thread::Thread, AtomicUsize);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.unpark();
        }
    }
    let unpark = Arc::new(Unpark(thread::current(), AtomicUsize::new(0)));
    let (waker, mut values) = (Waker::from(unpark.clone()), Vec::new());
    while !futures.is_empty() {
        futures.retain_mut(|future| match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => {
                values.push(value);
                false
            }
            Poll::Pending => true,
        });
        if !futures.is_empty() {
            thread::park();
        }
    }
    values
}

#[test]
fn an_array_goes_between_threads_and_its_futures_too() {
    fn is_shared<T: Send + Sync>() {}
    fn is_sent<T: Send>(_: &T) {}
    is_shared::<Array>();
    is_shared::<Error>();
    is_shared::<Member>();
    let array = Array::in_memory(Level::Raid1, 2, MEMBER_BYTES).unwrap();
    is_sent(&array.read_async(0, 512));
    is_sent(&array.write_async(0, vec![0; 512]));
    array.stop().unwrap();
}

#[test]
fn on_every_level_what_was_written_is_read() {
    for level in Level::ALL {
        let array = Array::in_memory(level, 4, MEMBER_BYTES).unwrap();
        let bytes = pattern(level.number() as u64, 3 * MIB as usize);
        array.write_at(&bytes, 4096).unwrap();
        array.flush().unwrap();
        assert!(read(&array, 4096, bytes.len()) == bytes, "{level}");
        assert_eq!(read(&array, 0, 4096), [0; 4096], "{level}");
        array.stop().unwrap();
    }
}

#[test]
fn many_threads_write_at_once_on_few_lanes_and_parity_is_right() {
    const THREADS: u64 = 16;
    let members = vec![MEMBER_BYTES; 4].into_iter().map(Member::memory);
    let array = Array::create("many", Level::Raid5).members(members).chunk_bytes(64 << 10);
    let array = array.assume_clean(true).lanes(3).start().unwrap();
    let place = |thread: u64, turn: u64| (turn * THREADS + thread) * 4096;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let array = &array;
            scope.spawn(move || {
                for turn in 0..64 {
                    let bytes = pattern(place(thread, turn), 4096);
                    array.write_at(&bytes, place(thread, turn)).unwrap();
                    assert!(read(array, place(thread, turn), 4096) == bytes);
                }
            });
        }
    });
    // What one member had is computed.
    array.fail("memory-1").unwrap();
    for (thread, turn) in (0..THREADS).flat_map(|thread| (0..64).map(move |turn| (thread, turn))) {
        let place = place(thread, turn);
        assert!(read(&array, place, 4096) == pattern(place, 4096));
    }
    array.stop().unwrap();
}

#[test]
fn a_long_range_comes_out_whole_and_can_be_zeroed_and_given_up() {
    let array = Array::in_memory(Level::Raid6, 5, 32 * MIB).unwrap();
    let (offset, bytes) = (7 * 512, pattern(1, 21 * MIB as usize + 512));
    array.write_at(&bytes, offset).unwrap();
    assert!(read(&array, offset, bytes.len()) == bytes);
    array.write_zeroes(offset + 512, 10 * MIB).unwrap();
    let (zeroed, rest) = (read(&array, offset, 10 * MIB as usize + 1024), 10 * MIB as usize + 512);
    assert!(zeroed[..512] == bytes[..512] && zeroed[rest..] == bytes[rest..rest + 512]);
    assert!(zeroed[512..rest].iter().all(|byte| *byte == 0));
    array.discard(0, array.size_bytes()).unwrap();
    array.stop().unwrap();
}

#[test]
fn what_is_not_whole_blocks_inside_the_array_is_refused() {
    let array = Array::in_memory(Level::Raid5, 3, MEMBER_BYTES).unwrap();
    let size = array.size_bytes();
    for (offset, len) in [(1, 512), (0, 511), (0, 1), (513, 512)] {
        let error = array.write_at(&vec![1; len], offset).unwrap_err();
        assert!(matches!(error, Error::Unaligned { block_bytes: 512, .. }), "{error}");
        assert!(error.to_string().contains("multiples of 512"), "{error}");
        assert!(array.read_at(&mut vec![1; len], offset).is_err());
    }
    for (offset, len) in [(size, 512), (size - 512, 1024), (u64::MAX - 511, 512), (u64::MAX, 512)] {
        let error = array.write_at(&vec![1; len], offset).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { size_bytes, .. } if size_bytes == size));
    }
    for (offset, len) in
        [(0, u64::MAX), (0, size + 512), (u64::MAX, u64::MAX), (512, u64::MAX - 511)]
    {
        assert!(matches!(array.write_zeroes(offset, len), Err(Error::OutOfRange { .. })));
        assert!(matches!(array.discard(offset, len), Err(Error::OutOfRange { .. })));
    }
    // No memory is taken for what is refused.
    let [endless] = &run_all(vec![Box::pin(array.read_async(0, usize::MAX - 511))])[..] else {
        panic!("one future has one end");
    };
    assert!(matches!(endless, Err(Error::OutOfRange { .. })));
    // Nothing was written by any of it, and nothing is no error.
    for offset in [0, 512, size] {
        array.write_at(&[], offset).unwrap();
        array.read_at(&mut [], offset).unwrap();
        array.write_zeroes(offset, 0).unwrap();
    }
    assert!(read(&array, 0, MIB as usize).iter().all(|byte| *byte == 0));
    array.stop().unwrap();
}

#[test]
fn futures_run_side_by_side_on_any_executor() {
    let members = [MEMBER_BYTES; 3].map(Member::memory);
    let array = Array::create("futures", Level::Raid5).members(members).assume_clean(true);
    let array = array.lanes(2).start().unwrap();
    let writes = (0..100).map(|number| {
        let write = array.write_async(number * 8192, pattern(number, 8192));
        Box::pin(write) as Pin<Box<dyn Future<Output = _> + Send>>
    });
    assert!(run_all(writes.collect()).iter().all(Result::is_ok));
    let reads = (0..100).map(|number| {
        let read = array.read_async(number * 8192, 8192);
        let read = async move { read.await.unwrap() == pattern(number, 8192) };
        Box::pin(read) as Pin<Box<dyn Future<Output = _> + Send>>
    });
    assert_eq!(run_all(reads.collect()), [true; 100]);
    array.stop().unwrap();
}

/// What had begun is done, or not, as a whole; the array goes on.
#[test]
fn a_future_that_is_dropped_harms_nothing() {
    let array = Array::in_memory(Level::Raid5, 3, MEMBER_BYTES).unwrap();
    let waker = Waker::noop();
    for number in 0..200u64 {
        let mut write = Box::pin(array.write_async(number % 16 * 4096, vec![number as u8; 4096]));
        let _ = write.as_mut().poll(&mut Context::from_waker(waker));
        drop(write);
        drop(array.read_async(0, 4096));
    }
    array.flush().unwrap();
    for block in 0..16 {
        let bytes = read(&array, block * 4096, 4096);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    }
    array.stop().unwrap();
}
