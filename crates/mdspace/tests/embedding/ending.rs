use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use mdspace::{Array, Error, Level, OpenError, Refusal};

use crate::bed::{Files, create, files, is_clean, pattern, read, until_in_sync};
use crate::requests::run_all;

/// Says in the environment which members a second process is to write to.
const MEMBERS: &str = "MDSPACE_TEST_MEMBERS";
/// Says in the environment that a test has its process for itself.
const ALONE: &str = "MDSPACE_TEST_ALONE";
const BLOCKS: u64 = 64;

#[test]
fn after_a_stop_everything_is_refused_and_a_second_stop_does_nothing() {
    let files = files(3);
    let array = create(Level::Raid5, &files);
    array.write_at(&[1; 512], 0).unwrap();
    array.stop().unwrap();
    assert!(files.paths.iter().all(|path| is_clean(path)));
    let size = array.size_bytes();
    for refused in [
        array.write_at(&[1; 512], 0),
        array.write_at(&[], 0),
        array.read_at(&mut [0; 512], 0),
        array.read_at(&mut [0; 3], u64::MAX),
        array.flush(),
        array.discard(0, size),
        array.write_zeroes(0, 512),
        array.status().map(drop),
        array.fail("x").map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Stopped | Error::Asked { .. })), "{refused:?}");
    }
    let futures = run_all(vec![Box::pin(array.read_async(0, 512))]);
    assert!(matches!(futures[..], [Err(Error::Stopped)]));
    array.stop().unwrap();
    assert!(array.stop_by_force().unwrap().is_empty());
    assert!(array.with_running(|_| ()).is_none());
}

#[test]
fn a_stop_while_threads_write_loses_nothing_that_was_acknowledged() {
    let files = files(3);
    let array = Array::create("bed", Level::Raid5).members(&files.paths).assume_clean(true);
    let array = array.lanes(2).start().unwrap();
    let last = Mutex::new([0u64; 4]);
    thread::scope(|scope| {
        for writer in 0..4u64 {
            let (array, last) = (&array, &last);
            scope.spawn(move || {
                for turn in 1.. {
                    match array.write_at(&pattern(turn, 8192), writer * 8192) {
                        Ok(()) => last.lock().unwrap()[writer as usize] = turn,
                        Err(Error::Stopped) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        while last.lock().unwrap().contains(&0) {
            thread::yield_now();
        }
        // Of two that stop it each comes back when it has ended.
        let stops = [0, 1].map(|_| scope.spawn(|| array.stop()));
        stops.into_iter().for_each(|stop| stop.join().unwrap().unwrap());
        assert!(array.with_running(|_| ()).is_none());
    });
    assert!(files.paths.iter().all(|path| is_clean(path)));
    let array = Array::assemble(&files.paths).start().unwrap();
    for (writer, last) in (0..).zip(*last.lock().unwrap()) {
        // What was refused may have been done.
        let seen = read(&array, writer * 8192, 8192);
        assert!([last, last + 1].iter().any(|turn| seen == pattern(*turn, 8192)), "{last}");
    }
    array.stop().unwrap();
}

/// What is logged while the value is there, on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn of(work: impl FnOnce()) -> String {
        let log = Self::default();
        let theirs = log.clone();
        let writer = move || theirs.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(writer).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes are under way at the drop. Each that was acknowledged is there, or a later one; the array is dirty, and only what
/// the bitmap marks is resynced.
#[test]
fn an_array_that_is_dropped_without_a_stop_is_as_after_a_crash_and_the_log_says_so() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid10] {
        let files = files(3);
        let array = create(level, &files);
        let acknowledged = Arc::new(Mutex::new(0));
        let (theirs, (begun, has_begun)) = (acknowledged.clone(), std::sync::mpsc::channel());
        let writes = array.on_lane(0, async move |part| {
            for turn in 1.. {
                match part.write(4096, &pattern(turn, 8192)).await {
                    Ok(()) => *theirs.lock().unwrap() = turn,
                    Err(error) => return (turn, error),
                }
                let _ = begun.send(());
            }
            unreachable!("it ends with an error")
        });
        has_begun.recv().unwrap();
        let log = Log::of(|| drop(array));
        assert!(log.contains("WARN") && log.contains("dropped without a stop"), "{log}");
        assert!(log.contains(files.paths[0].to_str().unwrap()), "{log}");
        let (last, error) = writes.wait().unwrap();
        assert!(matches!(error, Error::Stopped), "{error}");
        assert!(files.paths.iter().all(|path| !is_clean(path)), "{level}");

        let without = Array::assemble(&files.paths[1..]).allow_degraded(true).read_only(true);
        match (without.clone().start(), level) {
            (Err(Error::Refused { refusal: Refusal::DirtyDegraded, .. }), Level::Raid5) => {
                let forced = without.force(true).start().unwrap();
                assert_eq!(read(&forced, 0, 4096), [0; 4096]);
                forced.stop().unwrap();
            }
            (Ok(array), Level::Raid1 | Level::Raid10) => array.stop().unwrap(),
            (other, _) => panic!("{level}: {other:?}"),
        }

        let array = Array::assemble(&files.paths).start().unwrap();
        let (seen, acknowledged) = (read(&array, 4096, 8192), *acknowledged.lock().unwrap());
        let possible: Vec<_> = (acknowledged..=last).map(|turn| pattern(turn, 8192)).collect();
        let is_one_of = |sector: usize| {
            let range = sector * 512..(sector + 1) * 512;
            possible.iter().any(|bytes| bytes[range.clone()] == seen[range.clone()])
        };
        assert!((0..16).all(is_one_of), "{level}: {acknowledged} to {last}");
        until_in_sync(&array);
        assert!(read(&array, 4096, 8192) == seen);
        // The negative control: a stop says nothing, and leaves the array clean.
        let log = Log::of(|| {
            array.stop().unwrap();
            drop(array);
        });
        assert!(!log.contains("dropped"), "{log}");
        assert!(files.paths.iter().all(|path| is_clean(path)));
    }
}

/// The members are free when the drop has come back.
#[test]
fn an_array_is_dropped_in_a_panic_in_a_future_and_on_its_own_lane() {
    let files = files(3);
    drop(create(Level::Raid5, &files));
    let array = Array::assemble(&files.paths).start().unwrap();
    let unwound = thread::spawn(move || {
        array.write_at(&[1; 512], 0).unwrap();
        panic!("on purpose, with an array");
    });
    assert!(unwound.join().is_err());
    let array = Array::assemble(&files.paths).start().unwrap();
    run_all(vec![Box::pin(async move {
        array.write_async(0, vec![2; 512]).await.unwrap();
        drop(array);
    })]);
    let array = Arc::new(Array::assemble(&files.paths).start().unwrap());
    let theirs = array.clone();
    let (send, receive) = std::sync::mpsc::channel();
    let on_lane = array.on_lane(0, async move |part| {
        part.write(0, &[3; 512]).await.unwrap();
        // It is the last one.
        receive.recv().unwrap();
        drop(theirs);
        part.write(512, &[3; 512]).await.is_err()
    });
    drop(array);
    send.send(()).unwrap();
    let _ = on_lane.wait();
    // It ends beside the lane.
    let array = loop {
        match Array::assemble(&files.paths).start() {
            Err(Error::Open(OpenError::InUse { .. })) => {}
            started => break started.unwrap(),
        }
    };
    assert_eq!(read(&array, 0, 512), [3; 512]);
    array.stop().unwrap();
}

/// Begun futures outlive the array.
#[test]
fn futures_of_an_array_that_is_dropped_have_an_end() {
    let array = Array::in_memory(Level::Raid5, 3, 16 << 20).unwrap();
    let later = array.write_async(0, vec![1; 8 << 20]);
    let read = array.read_async(0, 512);
    let task = array.on_lane(0, async |part| while part.write(8192, &[1; 4096]).await.is_ok() {});
    drop(array);
    task.wait().unwrap();
    assert!(matches!(run_all(vec![Box::pin(later)])[..], [Err(Error::Stopped)]));
    assert!(matches!(run_all(vec![Box::pin(read)])[..], [Err(Error::Stopped)]));
}

/// In a process of its own: others open descriptors meanwhile.
#[test]
fn arrays_that_come_and_go_leave_no_descriptor_open() {
    if std::env::var_os(ALONE).is_none() {
        let alone = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ending::arrays_that_come_and_go_leave_no_descriptor_open"])
            .env(ALONE, "yes")
            .output()
            .unwrap();
        assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
        return;
    }
    let files = files(3);
    create(Level::Raid5, &files).stop().unwrap();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for turn in 0..10 {
        let array = Array::assemble(&files.paths).lanes(2).start().unwrap();
        array.write_at(&[turn; 512], 0).unwrap();
        match turn % 2 {
            0 => array.stop().unwrap(),
            _ => drop(array),
        }
        assert!(Array::create("no", Level::Raid5).members(&files.paths).start().is_err());
        assert!(Array::assemble(&files.paths[..1]).start().is_err());
    }
    assert_eq!(open(), before);
}

/// The other process: writes to an array until it is killed, and says what was acknowledged.
#[test]
fn writes_until_it_is_killed() {
    let Ok(members) = std::env::var(MEMBERS) else { return };
    let array = Array::assemble(members.split(':')).start().unwrap();
    for turn in 1.. {
        array.write_at(&pattern(turn, 4096), turn % BLOCKS * 4096).unwrap();
        println!("acknowledged {turn}");
    }
}

fn process_that_writes(files: &Files) -> Child {
    let names: Vec<_> = files.paths.iter().map(|path| path.to_str().unwrap()).collect();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ending::writes_until_it_is_killed", "--nocapture"])
        .env(MEMBERS, names.join(":"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn what_a_killed_process_had_acknowledged_is_there_and_nobody_else_had_its_members() {
    let files = files(3);
    create(Level::Raid5, &files).stop().unwrap();
    let mut process = process_that_writes(&files);
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut acknowledged = 0u64;
    let mut next = || loop {
        let line = lines.next()?.ok()?;
        if let Some(number) = line.rsplit("acknowledged ").next().and_then(|word| word.parse().ok())
        {
            return Some(number);
        }
    };
    while acknowledged < 500 {
        acknowledged = next().unwrap();
    }
    let error = Array::assemble(&files.paths).start().unwrap_err();
    let Error::Open(OpenError::InUse { holder, .. }) = &error else { panic!("{error}") };
    assert!(holder.contains(&process.id().to_string()), "{holder}");
    process.kill().unwrap();
    process.wait().unwrap();
    while let Some(number) = next() {
        acknowledged = number;
    }
    let array = Array::assemble(&files.paths).start().unwrap();
    for turn in acknowledged + 2 - BLOCKS..=acknowledged {
        assert!(read(&array, turn % BLOCKS * 4096, 4096) == pattern(turn, 4096), "{turn}");
    }
    until_in_sync(&array);
    array.stop().unwrap();
    assert!(files.paths.iter().all(|path| fs::metadata(path).is_ok() && is_clean(path)));
}
