//! Spares that go from one array to another of the same group, with real processes that die meanwhile.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::user::User;

/// `one` is a mirror of a and b; `two` is a mirror of c and d, and has the spare s.
fn two_mirrors() -> User {
    let user = User::with_members(&["a", "b", "c", "d", "s"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean a b");
    let spare = "--level=1 --raid-devices=2 --spare-devices=1 --assume-clean c d s";
    user.expect(0, &format!("create two {spare}"));
    user
}

fn until(user: &User, what: &str, done: impl Fn() -> bool) {
    let late = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < late, "{what}: {}", user.expect(0, "mdstat"));
        thread::sleep(Duration::from_millis(20));
    }
}

fn is_whole(user: &User, name: &str) -> bool {
    user.run(&format!("detail {name} --test")).status == 0
}

fn has(user: &User, name: &str, member: &str) -> bool {
    let detail = user.expect(0, &format!("detail {name}"));
    detail.lines().any(|line| line.ends_with(&format!("/{member}")))
}

#[test]
fn a_spare_goes_to_the_array_of_its_group_that_needs_it() {
    let user = two_mirrors();
    user.expect(0, "set one spare_group=shelf");
    user.expect(0, "set two spare_group=other");
    user.expect(0, "fail one a");
    // Another group gives nothing: the answer is a refusal, however often it is asked.
    let refused = ask_for_spare(&user, "two", "shelf", 1 << 20);
    assert!(refused.contains("another spare group"), "{refused}");
    assert_eq!(user.run("detail one --test").status, 1);
    user.expect(0, "set two spare_group=shelf");
    assert_eq!(user.expect(0, "get two spare_group"), "shelf\n");
    until(&user, "the spare takes the place", || is_whole(&user, "one"));
    assert!(has(&user, "one", "s") && !has(&user, "two", "s"));
    let events = user.expect(0, "events one");
    assert!(events.contains("MoveSpare") && events.contains("from two"), "{events}");
    assert!(is_whole(&user, "two"));
    user.expect(0, "stop one");
    user.expect(0, "stop two");
    // Its superblock is the new array's.
    user.expect(0, "assemble one b s");
    assert!(is_whole(&user, "one"));
    user.expect(0, "action one check --wait");
    assert_eq!(user.expect(0, "get one mismatch_cnt").trim(), "0");
}

/// The smaller one has room for the data, and none for the superblock behind them. It goes back once, and the next one fits.
#[test]
fn a_spare_that_does_not_fit_keeps_none_back_that_does() {
    let user = User::with_members(&["a", "b", "c", "d", "s", "t"]);
    user.expect(0, "create one --level=1 --metadata=1.0 --raid-devices=2 --assume-clean a b");
    let bytes = user.detail("one")["array"]["size_bytes"].as_u64().expect("a number");
    let small = File::options().write(true).open(user.path("s")).expect("a file");
    small.set_len(bytes).expect("a size");
    let spares = "--level=1 --raid-devices=2 --spare-devices=2 --size=4M --assume-clean c d s t";
    user.expect(0, &format!("create two {spares}"));
    user.expect(0, "set one spare_group=shelf");
    user.expect(0, "set two spare_group=shelf");
    user.expect(0, "fail one a");
    until(&user, "the other spare takes the place", || is_whole(&user, "one"));
    assert!(has(&user, "one", "t") && has(&user, "two", "s"));
    let log = std::fs::read_to_string(user.run_dir().join("one.log")).expect("a log");
    assert_eq!(log.matches("/s goes back to two").count(), 1, "{log}");
}

/// It writes nothing to it any more: the other one would find a spare that still is of this array.
#[test]
fn an_array_that_is_read_only_gives_no_spare() {
    let user = User::with_members(&["a", "b", "s"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --spare-devices=1 --assume-clean a b s");
    user.expect(0, "set one spare_group=shelf");
    user.expect(0, "readonly one");
    let mut taker =
        Taker::ask(&user, "one", r#"{"request":"give-spare","group":"shelf","bytes":0}"#);
    let answer = taker.answer();
    assert!(!answer.contains(r#""reply":"spare""#), "{answer}");
    assert!(has(&user, "one", "s"));
    user.expect(0, "stop one");
}

#[test]
fn the_name_of_a_group_is_one_word() {
    let user = two_mirrors();
    user.expect(0, "set one spare_group=shelf");
    for name in ["a b", " ", "a\tb", "a\nb"] {
        let refused = user.run_words(&["set", "one", &format!("spare_group={name}")]);
        assert_eq!(refused.status, 2, "{refused:?}");
        assert!(refused.err.contains("without blanks"), "{refused:?}");
    }
    assert_eq!(user.expect(0, "get one spare_group"), "shelf\n");
    user.expect(0, "set one spare_group=");
    assert_eq!(user.expect(0, "get one spare_group"), "\n");
}

#[test]
fn a_member_that_is_to_be_replaced_is_a_reason_to_ask_too() {
    let user = two_mirrors();
    user.expect(0, "set one spare_group=shelf");
    user.expect(0, "set two spare_group=shelf");
    user.expect(0, "set one want_replacement=a");
    until(&user, "the spare takes over", || {
        let detail = user.expect(0, "detail one");
        detail.lines().any(|line| line.contains("active sync") && line.ends_with("/s"))
    });
    assert!(is_whole(&user, "one") && is_whole(&user, "two"));
}

/// The configuration of the array that gave it names it still.
#[test]
fn an_array_whose_spare_has_moved_starts_without_it_whatever_the_other_one_does() {
    let user = two_mirrors();
    user.expect(0, "set two spare_group=shelf");
    user.expect(0, "save two");
    user.expect(0, "set one spare_group=shelf");
    user.expect(0, "fail one a");
    until(&user, "the spare takes the place", || is_whole(&user, "one"));
    let starts_without_it = || {
        user.expect(0, "stop two");
        let said = user.expect(0, "assemble two");
        assert!(said.contains("/s belongs to another array: left out"), "{said}");
        assert!(said.contains("started with 2 of 2 members"), "{said}");
        assert!(is_whole(&user, "two") && !has(&user, "two", "s"));
    };
    starts_without_it();
    // It holds the spare, and does not say so: it may just be starting.
    let pid = user.detail("one")["pid"].as_u64().expect("a process number") as u32;
    user.halt(pid);
    starts_without_it();
    user.signal(Signal::CONT, pid);
    user.expect(0, "stop one");
    starts_without_it();
    user.expect(0, "assemble one b s");
    assert!(is_whole(&user, "one"));
}

/// At a boot nobody names it.
#[test]
fn a_spare_that_came_stands_in_the_saved_configuration() {
    let user = two_mirrors();
    user.expect(0, "set one spare_group=shelf");
    user.expect(0, "set one max_read_errors=7");
    user.expect(0, "save one");
    user.expect(0, "set one max_read_errors=8");
    user.expect(0, "set two spare_group=shelf");
    user.expect(0, "fail one a");
    until(&user, "the spare takes the place", || is_whole(&user, "one"));
    user.expect(0, "stop one");
    user.expect(0, "assemble one");
    assert!(is_whole(&user, "one") && has(&user, "one", "s"));
    assert_eq!(user.expect(0, "get one max_read_errors"), "7\n", "the rest is as it was saved");
}

#[test]
fn an_array_that_gave_its_spare_away_does_not_save_it_as_missing() {
    let user = two_mirrors();
    user.expect(0, "set one spare_group=shelf");
    user.expect(0, "set two spare_group=shelf");
    user.expect(0, "save two");
    user.expect(0, "stop two");
    user.expect(0, "assemble two");
    user.expect(0, "fail one a");
    until(&user, "the spare takes the place", || is_whole(&user, "one"));
    user.expect(0, "save two");
    let text = std::fs::read_to_string(user.path("etc/two.toml")).expect("a configuration");
    assert!(text.contains("/d\"") && !text.contains("/s\""), "{text}");
}

/// Asks as another process would; gives its answer, and hangs up.
fn ask_for_spare(user: &User, name: &str, group: &str, bytes: u64) -> String {
    ask(user, name, &format!(r#"{{"request":"give-spare","group":"{group}","bytes":{bytes}}}"#))
}

/// Sends one request; gives its answer, and hangs up.
fn ask(user: &User, name: &str, request: &str) -> String {
    Taker::ask(user, name, request).answer()
}

/// A process that has sent a request. It hangs up with the value.
struct Taker(BufReader<UnixStream>);

impl Taker {
    fn ask(user: &User, name: &str, request: &str) -> Self {
        let socket = UnixStream::connect(user.run_dir().join(format!("{name}.sock")));
        let mut socket = BufReader::new(socket.expect("it runs"));
        writeln!(socket.get_mut(), "{request}").expect("it listens");
        let mut hello = String::new();
        socket.read_line(&mut hello).expect("it speaks first");
        Self(socket)
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("it answers");
        answer
    }
}

/// The link by which the spare is named leads to another array's member by the time that it is given.
#[test]
fn a_spare_whose_name_leads_elsewhere_by_then_costs_no_other_array_its_superblock() {
    let user = User::with_members(&["a", "b", "c", "d", "s", "x", "y"]);
    std::os::unix::fs::symlink(user.path("s"), user.path("link")).expect("a link");
    user.expect(0, "create other --level=1 --raid-devices=2 --assume-clean x y");
    user.expect(0, "stop other");
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean a b");
    let spare = "--level=1 --raid-devices=2 --spare-devices=1 --assume-clean c d link";
    user.expect(0, &format!("create two {spare}"));
    user.expect(0, "set two spare_group=shelf");
    let before = user.bytes("x");
    std::fs::remove_file(user.path("link")).expect("a link");
    std::os::unix::fs::symlink(user.path("x"), user.path("link")).expect("a link");
    let answer = ask_for_spare(&user, "two", "shelf", 1 << 20);
    assert!(answer.contains("leads elsewhere"), "{answer}");
    assert!(before == user.bytes("x"), "another array's member has changed");
    assert!(has(&user, "two", "link"), "it stays where it was");
    // What was looked at is what is opened, or nothing is.
    let refused = ask_to_add(&user, "one", "y", "1:2:0");
    assert!(refused.contains("leads elsewhere"), "{refused}");
}

/// Has a member added that was something else when it was looked at.
fn ask_to_add(user: &User, name: &str, member: &str, identity: &str) -> String {
    let path = user.path(member).display().to_string();
    let request =
        format!(r#"{{"request":"add","members":["{path}"],"probed":{{"{path}":"{identity}"}}}}"#);
    ask(user, name, &request)
}

#[test]
fn a_spare_too_small_or_needed_at_home_is_not_given() {
    let user = two_mirrors();
    user.expect(0, "set two spare_group=shelf");
    let refused = ask_for_spare(&user, "two", "shelf", 1 << 40);
    assert!(refused.contains("large enough"), "{refused}");
    // Frozen, the spare stands by while a slot is empty.
    user.expect(0, "action two frozen");
    user.expect(0, "fail two c");
    let refused = ask_for_spare(&user, "two", "shelf", 1 << 20);
    assert!(refused.contains("does not need"), "{refused}");
    assert!(has(&user, "two", "s"));
    user.expect(0, "action two idle");
    until(&user, "its own spare takes the slot", || is_whole(&user, "two"));
}

/// Who asked is gone when the spare is given: it is nobody's, blank and free, and nothing else is lost.
#[test]
fn a_taker_that_dies_costs_the_spare_its_membership_and_no_more() {
    let user = two_mirrors();
    user.expect(0, "set two spare_group=shelf");
    let given = ask_for_spare(&user, "two", "shelf", 1 << 20);
    assert!(given.contains("/s\""), "{given}");
    assert!(!has(&user, "two", "s") && is_whole(&user, "two"));
    user.expect(1, "examine s");
    user.expect(0, "fail one a");
    // What is left of its bitmap is data to be asked about.
    user.expect(0, "add one --run s");
    until(&user, "it serves elsewhere", || is_whole(&user, "one"));
    user.expect(0, "stop two");
    user.expect(0, "assemble two c d");
    assert!(is_whole(&user, "two"));
}

/// The giver is killed while the taker waits for its answer.
#[test]
fn a_giver_that_dies_keeps_its_data_and_the_taker_goes_on() {
    let user = two_mirrors();
    user.expect(0, "set one spare_group=shelf");
    user.expect(0, "set two spare_group=shelf");
    let pid = user.detail("two")["pid"].as_u64().expect("a process number") as u32;
    user.halt(pid);
    user.expect(0, "fail one a");
    // Orders are answered while it waits for the stopped one.
    user.expect(0, "events one");
    user.signal(Signal::KILL, pid);
    until(&user, "it is gone", || !user.processes().contains(&pid));
    assert_eq!(user.run("detail one --test").status, 1);
    user.expect(0, "assemble two c d s");
    assert!(is_whole(&user, "two") && has(&user, "two", "s"));
    user.expect(0, "set two spare_group=shelf");
    until(&user, "the spare comes after all", || is_whole(&user, "one"));
    assert!(has(&user, "one", "s"));
}

/// As one whose patience is over: it asks the next array of the group.
#[test]
fn a_taker_that_does_not_wait_for_its_answer_costs_nobody_a_spare() {
    let user = two_mirrors();
    user.expect(0, "set two spare_group=shelf");
    let log = || std::fs::read_to_string(user.run_dir().join("two.log")).expect("a log");
    let socket = UnixStream::connect(user.run_dir().join("two.sock")).expect("it runs");
    let mut socket = BufReader::new(socket);
    socket.read_line(&mut String::new()).expect("it speaks first");
    let request = format!(r#"{{"request":"give-spare","group":"shelf","bytes":{}}}"#, 1 << 20);
    writeln!(socket.get_mut(), "{request}").expect("it listens");
    drop(socket);
    until(&user, "it has answered", || log().contains("is given away"));
    until(&user, "it is a spare again", || has(&user, "two", "s"));
    user.expect(0, "examine s");
}

/// An array of the group whose process is this one: it says what the test wants.
struct Giver {
    listener: UnixListener,
    /// It runs as long as this is locked.
    _lock: File,
}

impl Giver {
    fn new(user: &User) -> Self {
        let lock = File::create(user.run_dir().join("giver.lock")).expect("a file");
        lock.try_lock().expect("it is free");
        let listener = UnixListener::bind(user.run_dir().join("giver.sock")).expect("a socket");
        listener.set_nonblocking(true).expect("it may");
        Self { listener, _lock: lock }
    }

    /// The next request, and where its answer goes.
    fn next_request(&self, user: &User) -> (String, UnixStream) {
        let client = RefCell::new(None);
        until(user, "it is asked", || match self.listener.accept() {
            Ok((socket, _)) => client.borrow_mut().replace(socket).is_none(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        });
        let mut client: UnixStream = client.into_inner().expect("just now");
        client.set_nonblocking(false).expect("it may");
        say(&mut client, r#"{"protocol":2,"version":"1"}"#);
        let mut request = String::new();
        let mut reader = BufReader::new(client);
        reader.read_line(&mut request).expect("it asks");
        (request, reader.into_inner())
    }

    /// The next request for a spare.
    fn next_wish(&self, user: &User) -> Wish {
        let (request, client) = self.next_request(user);
        assert!(request.contains("give-spare"), "{request}");
        Wish::of(client)
    }
}

/// A request for a spare, which hears all the time that it is being answered.
struct Wish {
    ends: Sender<String>,
    answers: thread::JoinHandle<()>,
}

impl Wish {
    fn of(mut client: UnixStream) -> Self {
        let (ends, end) = channel::<String>();
        let answers = thread::spawn(move || {
            loop {
                match end.recv_timeout(Duration::from_millis(100)) {
                    Ok(answer) => return say(&mut client, &answer),
                    Err(RecvTimeoutError::Timeout) => say(&mut client, r#"{"reply":"working"}"#),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self { ends, answers }
    }

    fn give(self, user: &User, member: &str) {
        let path = user.path(member).display().to_string();
        let answer = format!(r#"{{"reply":"spare","member":"{path}","probed":{{}}}}"#);
        self.ends.send(answer).expect("its thread waits for that");
        self.answers.join().expect("its client waits for that");
    }
}

fn say(client: &mut UnixStream, line: &str) {
    writeln!(client, "{line}").expect("it waits for its answer");
}

fn ends_well(mut child: Child) {
    assert!(child.wait().expect("it ends").success());
}

/// A mirror that lacks a member and asks for one, and has a front.
fn mirror_that_asks() -> (User, Giver) {
    let user = User::with_members(&["a", "b", "s"]);
    let socket = user.path("front").display().to_string();
    let front = format!("--serve=nbd:unix:{socket}");
    user.expect(0, &format!("create one --level=1 --raid-devices=2 --assume-clean {front} a b"));
    let giver = Giver::new(&user);
    user.expect(0, "fail one a");
    user.expect(0, "remove one a");
    user.expect(0, "set one spare_group=shelf");
    (user, giver)
}

#[test]
fn a_restart_waits_for_a_spare_on_its_way() {
    let (user, giver) = mirror_that_asks();
    let wish = giver.next_wish(&user);
    let restart = user.command("restart one").spawn().expect("it starts");
    until(&user, "the restart waits", || user.run("readwrite one").err.contains("being restarted"));
    wish.give(&user, "s");
    ends_well(restart);
    until(&user, "the spare takes the place", || is_whole(&user, "one"));
    assert!(has(&user, "one", "s"));
}

#[test]
fn a_stop_waits_for_a_spare_on_its_way() {
    let (user, giver) = mirror_that_asks();
    let wish = giver.next_wish(&user);
    let stop = user.command("stop one").spawn().expect("it starts");
    until(&user, "its front is closed", || !user.path("front").exists());
    user.expect(0, "detail one");
    wish.give(&user, "s");
    ends_well(stop);
    user.expect(0, "examine s");
    user.expect(0, "assemble one b s");
    until(&user, "the spare takes the place", || is_whole(&user, "one"));
}

/// The taker may not be able to use it.
#[test]
fn the_array_that_gave_a_spare_stops_when_that_has_arrived_or_is_back() {
    let user = User::with_members(&["a", "b", "s"]);
    let front = format!("--serve=nbd:unix:{}", user.path("front").display());
    let shape = "--level=1 --raid-devices=2 --spare-devices=1 --assume-clean";
    user.expect(0, &format!("create one {shape} {front} a b s"));
    user.expect(0, "set one spare_group=shelf");
    let mut taker =
        Taker::ask(&user, "one", r#"{"request":"give-spare","group":"shelf","bytes":0}"#);
    let answer = taker.answer();
    assert!(answer.contains(r#""reply":"spare""#), "{answer}");
    let stop = user.command("stop one").spawn().expect("it starts");
    until(&user, "its front is closed", || !user.path("front").exists());
    let identity = answer.split_once(r#""probed":"#).expect("what it is").1;
    let identity = identity.strip_suffix("}\n").expect("a whole answer");
    let path = user.path("s").display().to_string();
    let back = format!(r#"{{"request":"add","members":["{path}"],"probed":{identity}}}"#);
    let answer = ask(&user, "one", &back);
    assert!(answer.contains(r#""reply":"done""#), "{answer}");
    drop(taker);
    ends_well(stop);
    let examined = user.expect(0, "examine s");
    assert!(examined.contains("spare"), "{examined}");
}

#[test]
fn a_spare_that_is_not_taken_goes_back_to_an_array_that_is_being_restarted() {
    let (user, giver) = mirror_that_asks();
    let wish = giver.next_wish(&user);
    // It is no place for data any more.
    std::fs::remove_file(user.path("s")).expect("a file");
    wish.give(&user, "s");
    let code = r#""code":"restarting","exit_code":1"#;
    let why = r#""what":"no","why":"it is being restarted","cure":"wait""#;
    for _ in 0..2 {
        let (request, mut client) = giver.next_request(&user);
        assert!(request.contains(r#""request":"add""#) && request.contains("/s"), "{request}");
        say(&mut client, &format!(r#"{{"reply":"failed","failure":{{{why},{code}}}}}"#));
    }
    let (request, mut client) = giver.next_request(&user);
    assert!(request.contains(r#""request":"add""#), "{request}");
    say(&mut client, r#"{"reply":"done","notes":[]}"#);
    let log = std::fs::read_to_string(user.run_dir().join("one.log")).expect("a log");
    assert!(!log.contains("belongs to no array"), "{log}");
}
