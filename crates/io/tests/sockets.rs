//! Sockets on lanes, on both ways to the kernel.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::memory::{Sink, Source};
use mdspace_io::{IoChoice, LaneIo, Lanes, LanesConfig, Message, Socket};

const PATIENCE: Duration = Duration::from_secs(10);

fn on_both(test: impl Fn(&Lanes)) {
    for io in [IoChoice::Uring, IoChoice::Preadv] {
        let lanes = Lanes::start(LanesConfig { io, ..LanesConfig::default() }).unwrap();
        test(&lanes);
        lanes.stop(PATIENCE).unwrap();
    }
}

/// Runs an async test body on lane 0; its value comes through the channel.
fn run<T: Send + 'static, F: Future<Output = T> + 'static>(
    lanes: &Lanes,
    body: impl FnOnce(Rc<Lane>, LaneIo) -> F + Send + 'static,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    lanes.run_on(LaneId(0), move |lane, io| {
        let body = body(lane.clone(), io.clone());
        lane.spawn(async move { sender.send(body.await).unwrap() });
    });
    receiver
}

#[test]
fn a_listener_accepts_and_answers_with_headers_and_payloads() {
    on_both(|lanes| {
        let path = std::env::temp_dir().join(format!("mdspace-sockets-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let served = run(lanes, async move |_, io| {
            let listener = Socket::new(listener).unwrap();
            let socket = io.accept(&listener, None).await.unwrap();
            let (received, request) = io.recv(&socket, Vec::with_capacity(4), None).await;
            assert_eq!(received.unwrap(), 4);
            let payload = io.payload(100_000);
            io.recv_payload(&socket, &payload, 0..100_000, None).await.unwrap();
            let mut message = Message::new();
            // More pieces than one send takes.
            for at in 0..2000 {
                message.push(&request);
                message.push_payload(payload.clone(), at * 50..(at + 1) * 50);
            }
            let (sent, mut message) = io.send(&socket, message, None).await;
            sent.unwrap();
            message.clear();
            assert!(message.is_empty());
        });
        let mut client = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let bytes: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        client.write_all(b"ping").unwrap();
        client.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        let expected: Vec<u8> =
            bytes.chunks(50).flat_map(|chunk| [b"ping".as_slice(), chunk].concat()).collect();
        assert!(answer == expected, "{} bytes came", answer.len());
        served.recv_timeout(PATIENCE).unwrap();
    });
}

#[test]
fn an_operation_past_its_deadline_ends_and_gives_its_buffer_back() {
    on_both(|lanes| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ended = run(lanes, async move |lane, io| {
            let socket = Socket::new(ours).unwrap();
            let deadline = lane.backend().now() + Duration::from_millis(5);
            let (received, buffer) = io.recv(&socket, Vec::with_capacity(10), Some(deadline)).await;
            (received.map_err(|error| error.kind()), buffer.capacity())
        });
        assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), (Err(ErrorKind::TimedOut), 10));
        drop(theirs);
    });
}

#[test]
fn a_shutdown_ends_what_is_under_way() {
    on_both(|lanes| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ended = run(lanes, async move |lane, io| {
            let socket = Socket::new(ours).unwrap();
            let (other, task_io) = (socket.clone(), io.clone());
            lane.spawn(async move { task_io.shutdown(&other, Shutdown::Both).unwrap() });
            io.recv(&socket, Vec::with_capacity(10), None).await.0.unwrap()
        });
        assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), 0);
        drop(theirs);
    });
}

#[test]
fn a_payload_whose_stream_ends_early_says_so() {
    on_both(|lanes| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"short").unwrap();
        drop(theirs);
        let ended = run(lanes, async move |_, io| {
            let payload = io.payload(10);
            let socket = Socket::new(ours).unwrap();
            let filled = io.recv_payload(&socket, &payload, 0..10, None).await;
            (filled.unwrap_err().kind(), payload.to_vec()[..5].to_vec())
        });
        let (kind, bytes) = ended.recv_timeout(PATIENCE).unwrap();
        assert_eq!((kind, bytes.as_slice()), (ErrorKind::UnexpectedEof, b"short".as_slice()));
    });
}

#[test]
fn a_full_eventfd_is_waited_for_and_holds_no_lane_up() {
    on_both(|lanes| {
        // SAFETY: no pointer is passed; the number is checked before it is owned.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        };
        let mut theirs = File::from(event.try_clone().unwrap());
        let ended = run(lanes, async move |lane, io| {
            let event = Socket::polled(event);
            io.signal(&event, None).await.unwrap();
            let mut count = [0; 8];
            theirs.read_exact(&mut count).unwrap();
            assert_eq!(u64::from_ne_bytes(count), 1);
            theirs.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
            let soon = lane.backend().now() + Duration::from_millis(1);
            let full = io.signal(&event, Some(soon)).await;
            assert_eq!(full.unwrap_err().kind(), ErrorKind::TimedOut);
            theirs.read_exact(&mut count).unwrap();
            io.signal(&event, None).await.unwrap();
        });
        ended.recv_timeout(PATIENCE).unwrap();
    });
}

#[test]
fn a_dropped_accept_lets_its_listener_close() {
    on_both(|lanes| {
        let path = std::env::temp_dir().join(format!("mdspace-dropped-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let ended = run(lanes, async move |_, io| {
            let listener = Socket::new(listener).unwrap();
            let mut accept = Box::pin(io.accept(&listener, None));
            let first = std::future::poll_fn(|context| {
                std::task::Poll::Ready(accept.as_mut().poll(context).is_pending())
            });
            assert!(first.await, "nobody has connected yet");
        });
        ended.recv_timeout(PATIENCE).unwrap();
        let until = Instant::now() + PATIENCE;
        while UnixStream::connect(&path).is_ok() {
            assert!(Instant::now() < until, "the listener is still open");
            std::thread::yield_now();
        }
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_stop_is_heard_by_tasks_that_wait_for_it() {
    on_both(|lanes| {
        lanes.run_on(LaneId(0), |lane, io| {
            let io = io.clone();
            lane.spawn(async move { io.stop_requested().await });
        });
    });
}

#[test]
#[should_panic(expected = "once its bytes have been shown")]
fn a_payload_is_not_filled_after_its_bytes_were_shown() {
    let lanes = Lanes::start(LanesConfig::default()).unwrap();
    // A panic on a lane takes the process with it, so the payload's rule is tried here, by way of
    // a message that only the lane can make.
    let (sender, receiver) = channel();
    lanes.run_on(LaneId(0), move |_, io| {
        let payload = io.payload(10);
        assert!(payload.stable().is_some());
        let refused =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| payload.put(0, b"x")));
        sender.send(refused).unwrap();
    });
    if let Err(panic) = receiver.recv().unwrap() {
        std::panic::resume_unwind(panic);
    }
}
