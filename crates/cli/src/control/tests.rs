use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::client::Client;
use super::server::{Answer, Listener, Replies};
use super::*;
use crate::args::ArrayName;
use crate::report::examples;
use crate::run_dir::{NameLock, RunDir};

/// Knows the array of the examples, and refuses to stop.
struct Example;

impl Answer for Example {
    fn answer(&self, request: Request, replies: &mut Replies<'_>) -> io::Result<()> {
        let reply = match request {
            Request::Detail { .. } => Reply::Detail { report: Box::new(examples::clean_raid6()) },
            Request::Stop { .. } => Reply::Failed { failure: Failure::new("no", "busy", "wait") },
            _ => Reply::done(),
        };
        replies.send(&reply)
    }

    fn sign_of_life(&self, given: Box<dyn FnOnce() + Send>) {
        given();
    }
}

/// Ends each order when it is told to, or after a time that no test waits for.
struct Slow {
    may_end: Mutex<Receiver<()>>,
    lives: bool,
}

impl Answer for Slow {
    fn answer(&self, _: Request, replies: &mut Replies<'_>) -> io::Result<()> {
        let may_end = self.may_end.lock().expect("one order at a time");
        let _ = may_end.recv_timeout(Duration::from_secs(20));
        replies.send(&Reply::done())
    }

    fn sign_of_life(&self, given: Box<dyn FnOnce() + Send>) {
        if self.lives {
            given();
        }
    }
}

/// Says nothing of the array, and stops it at once.
struct Hanging;

impl Answer for Hanging {
    fn answer(&self, request: Request, replies: &mut Replies<'_>) -> io::Result<()> {
        match request {
            Request::Stop { .. } => replies.send(&Reply::done()),
            _ => loop {
                std::thread::park();
            },
        }
    }

    fn sign_of_life(&self, given: Box<dyn FnOnce() + Send>) {
        given();
    }
}

/// Time between two signs of life in a test.
const BEAT: Duration = Duration::from_millis(2);

/// A running array without a process: its lock, its socket, its name.
fn served() -> (tempfile::TempDir, RunDir, ArrayName, NameLock, Listener) {
    let served = listening();
    served.4.spawn(Arc::new(Example)).expect("a thread");
    served
}

fn listening() -> (tempfile::TempDir, RunDir, ArrayName, NameLock, Listener) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let run_dir = RunDir::open_at(temp.path().join("run")).expect("a new directory");
    let name: ArrayName = "data".parse().expect("a good name");
    let lock = run_dir.try_lock(&name).expect("a lock file").expect("a free lock");
    let listener = Listener::bind(&run_dir.socket(&name)).expect("a socket");
    (temp, run_dir, name, lock, listener)
}

#[test]
fn a_request_gets_its_reply_and_the_connection_stays() {
    let (_temp, run_dir, name, _lock, _listener) = served();
    let mut client = Client::connect(&run_dir, &name).expect("a hello");
    assert_eq!(client.report(), Ok(examples::clean_raid6()));
    let failure =
        client.ask(&Request::Stop { force: false, restarts: false }).expect_err("it refuses");
    assert_eq!(failure.why, "busy");
    assert_eq!(client.ask(&Request::Readonly), Ok(Reply::done()));
}

#[test]
fn an_order_that_takes_long_is_waited_for_while_the_process_says_so() {
    use std::io::{BufRead, BufReader, Write};
    let (_temp, run_dir, name, _lock, listener) = listening();
    let (end, may_end) = channel();
    let slow = Slow { may_end: Mutex::new(may_end), lives: true };
    listener.spawn_with(Arc::new(slow), Duration::from_secs(60), BEAT).expect("a thread");
    let stream = UnixStream::connect(run_dir.socket(&name)).expect("a socket");
    let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines().skip(1);
    (&stream).write_all(b"{\"request\":\"readonly\"}\n").expect("an open connection");
    let mut next = || lines.next().expect("a line").expect("a reply");
    assert_eq!([next(), next()], [r#"{"reply":"working"}"#; 2]);
    // A client hears them and goes on waiting.
    end.send(()).expect("it waits");
    while next() != r#"{"reply":"done","notes":[]}"# {}
    let mut client = Client::connect(&run_dir, &name).expect("a hello");
    end.send(()).expect("it waits");
    assert_eq!(client.ask(&Request::Readonly), Ok(Reply::done()));
}

#[test]
fn a_process_whose_lane_stands_still_does_not_answer() {
    let (_temp, run_dir, name, _lock, listener) = listening();
    let (_end, may_end) = channel();
    let slow = Slow { may_end: Mutex::new(may_end), lives: false };
    listener.spawn_with(Arc::new(slow), Duration::from_secs(60), BEAT).expect("a thread");
    let silence_max = Duration::from_secs(1);
    let mut client = Client::connect_as(&run_dir, &name, silence_max, None).expect("a hello");
    let failure = client.ask(&Request::Readonly).expect_err("it says nothing");
    assert!(failure.is_of_silence(), "{failure}");
    assert!(failure.why.contains(&std::process::id().to_string()), "{failure}");
}

#[test]
fn one_who_has_no_time_hears_that_the_process_is_at_work() {
    let (_temp, run_dir, name, _lock, listener) = listening();
    let (_end, may_end) = channel();
    let slow = Slow { may_end: Mutex::new(may_end), lives: true };
    listener.spawn_with(Arc::new(slow), Duration::from_secs(60), BEAT).expect("a thread");
    let (silence_max, patience) = (Duration::from_secs(5), Duration::from_secs(1));
    let client = Client::connect_as(&run_dir, &name, silence_max, Some(patience));
    let mut client = client.expect("a hello");
    let failure = client.ask(&Request::Readonly).expect_err("it takes longer");
    assert!(failure.is_of_silence() && failure.why.contains("at work"), "{failure}");
}

#[test]
fn a_process_that_takes_no_connections_is_not_waited_for() {
    let (_temp, run_dir, name, _lock, _listener) = listening();
    let flags = rustix::net::SocketFlags::NONBLOCK;
    let address = rustix::net::SocketAddrUnix::new(run_dir.socket(&name)).expect("a short path");
    let (unix, stream) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
    let connect = || {
        let socket = rustix::net::socket_with(unix, stream, flags, None).expect("a socket");
        rustix::net::connect(&socket, &address).map(|()| socket)
    };
    let full: Vec<_> = std::iter::repeat_with(connect).map_while(Result::ok).collect();
    let silence_max = Duration::from_millis(20);
    let failure = Client::connect_as(&run_dir, &name, silence_max, None).err().expect("no place");
    assert!(failure.is_of_silence(), "after {}: {failure}", full.len());
}

#[test]
fn connections_that_ask_nothing_keep_no_other_out_for_long() {
    use std::io::Read;
    let (_temp, run_dir, name, _lock, listener) = listening();
    listener.spawn_with(Arc::new(Example), Duration::from_millis(20), BEAT).expect("a thread");
    let connect = || UnixStream::connect(run_dir.socket(&name)).expect("it listens");
    let idle: Vec<UnixStream> = (0..64).map(|_| connect()).collect();
    for mut connection in idle {
        let mut said = String::new();
        connection.read_to_string(&mut said).expect("hung up, not reset");
        assert_eq!(said.lines().count(), 1, "a hello and no more");
    }
    // The place of the last one is free a moment after it was hung up.
    while Client::connect(&run_dir, &name).is_err() {}
}

/// Each of them is a `detail` of an array that is silent; who asked has gone.
#[test]
fn requests_that_get_no_answer_keep_no_stop_out() {
    use std::io::{BufRead, BufReader, Write};
    let (_temp, run_dir, name, _lock, listener) = listening();
    listener.spawn_with(Arc::new(Hanging), Duration::from_secs(60), BEAT).expect("a thread");
    for _ in 0..80 {
        let mut stream = UnixStream::connect(run_dir.socket(&name)).expect("it listens");
        let mut said = String::new();
        let mut lines = BufReader::new(stream.try_clone().expect("a descriptor"));
        if lines.read_line(&mut said).is_ok_and(|bytes| bytes > 0) {
            stream.write_all(b"{\"request\":\"detail\"}\n").expect("it is connected");
            // It is at work on that one, or refuses it.
            said.clear();
            lines.read_line(&mut said).expect("a line");
        }
    }
    let mut client = Client::connect(&run_dir, &name).expect("a hello");
    let failure = client.ask(&Request::Detail { claims: false }).expect_err("too many wait");
    assert!(failure.why.contains("64 others"), "{failure}");
    let mut client = Client::connect(&run_dir, &name).expect("a hello");
    assert_eq!(client.ask(&Request::Stop { force: true, restarts: false }), Ok(Reply::done()));
}

#[test]
fn a_stale_socket_is_told_from_a_running_array() {
    let (_temp, run_dir, name, lock, listener) = served();
    drop(lock);
    // A dead process removes nothing; its socket refuses connections.
    std::mem::forget(listener);
    let path = run_dir.socket(&name);
    std::fs::remove_file(&path).expect("the socket");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let failure = Client::connect(&run_dir, &name).err().expect("nobody listens");
    assert!(failure.why.contains("no array runs"), "{failure}");
    assert!(path.exists(), "a client removes nothing");
    Listener::bind(&path).expect("who holds the lock takes the path over");
}

#[test]
fn a_line_that_is_no_request_is_answered_not_obeyed() {
    use std::io::{BufRead, BufReader, Write};
    let (_temp, run_dir, name, _lock, _listener) = served();
    let stream = UnixStream::connect(run_dir.socket(&name)).expect("a socket");
    let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
    let hello = lines.next().expect("a line").expect("a hello");
    assert!(hello.starts_with(r#"{"protocol":2,"version":""#), "{hello}");
    for bad in ["x", "{}", r#"{"request":"format-disk"}"#, r#"{"request":"stop"}"#] {
        (&stream).write_all(format!("{bad}\n").as_bytes()).expect("an open connection");
        let reply = lines.next().expect("a line").expect("a reply");
        assert!(reply.starts_with(r#"{"reply":"failed""#), "{bad}: {reply}");
    }
}

#[test]
fn a_control_socket_that_is_deleted_is_made_anew_and_removed_in_the_end() {
    let (_temp, run_dir, name, _lock, listener) = served();
    let path = run_dir.socket(&name);
    assert!(!listener.keep().expect("it is there"));
    std::fs::remove_file(&path).expect("the socket");
    assert!(Client::connect(&run_dir, &name).is_err());
    assert!(listener.keep().expect("it is made anew"));
    assert!(Client::connect(&run_dir, &name).is_ok());
    // A file of someone else stays where it is.
    std::fs::remove_file(&path).expect("the socket");
    std::fs::write(&path, []).expect("a file");
    drop(listener);
    assert!(path.exists());
}
