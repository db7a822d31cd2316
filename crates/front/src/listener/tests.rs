use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use crate::tls::tests::certificates::Authority;

fn unix(path: &Path) -> Address {
    Address::parse(&format!("nbd:unix:{}", path.display())).expect("an address")
}

fn tcp(text: &str) -> Address {
    Address::parse(text).expect("an address")
}

#[test]
fn a_unix_socket_is_for_its_user_only_and_goes_with_its_listener() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let listener = Listener::bind(&unix(&path)).expect("listening");
    let mode = fs::metadata(&path).expect("the file is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let _client = UnixStream::connect(&path).expect("connected");
    let accepted = rustix::net::accept(&listener).expect("a client");
    let peer = crate::peer::describe(accepted.as_fd());
    assert!(peer.ends_with(&format!("(process {})", std::process::id())), "{peer}");
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_has_the_rights_that_its_address_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let listen = |options: &str| {
        let address = Address::parse(&format!("nbd:unix:{}?{options}", path.display()));
        Listener::bind(&address.expect("an address"))
    };
    let group = rustix::process::getegid().as_raw();
    for (options, mode) in
        [("mode=0660", 0o660), ("mode=0606&ro", 0o606), (&format!("group={group}"), 0o600)]
    {
        let listener = listen(options).expect("listening");
        let found = fs::metadata(&path).expect("the file is there");
        assert_eq!((found.permissions().mode() & 0o777, found.gid()), (mode, group), "{options}");
        assert_eq!(!listener.warnings().is_empty(), mode & 2 != 0, "{options}");
    }
    let refused = |options| listen(options).expect_err("no such name").to_string();
    assert!(refused("group=no-such-group").contains("getent group"));
    assert!(refused("owner=no-such-user").contains("getent passwd"));
    if !rustix::process::geteuid().is_root() {
        assert!(refused("owner=0").contains("only root"));
    }
    assert!(!path.exists(), "what is refused leaves no file");
}

#[test]
fn a_live_socket_is_not_replaced_and_a_dead_one_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let first = Listener::bind(&unix(&path)).expect("listening");
    assert!(matches!(Listener::bind(&unix(&path)), Err(ListenError::InUse(_))));
    assert!(path.exists(), "the refused listener removed nothing");
    drop(first);

    drop(UnixListener::bind(&path).expect("a socket whose process dies"));
    assert!(path.exists());
    let second = Listener::bind(&unix(&path)).expect("replaced");
    assert_eq!(second.address(), &unix(&path));
}

/// One who starts holds the folder until its socket answers. Another one that starts meanwhile must not take the
/// socket for a dead one: clients would then find its array under the first one's name.
#[test]
fn a_socket_that_another_process_is_making_is_not_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let making = Making::begin_within(&path, Duration::ZERO).expect("the folder is held");
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("short")).expect("bound");
    let (sender, other) = std::sync::mpsc::channel();
    let address = unix(&path);
    thread::spawn(move || drop(sender.send(Listener::bind(&address))));
    // The other one may be slow: then it sees a socket that listens, and is refused as well.
    let early = other.recv_timeout(Duration::from_millis(300));
    assert!(early.is_err(), "{early:?}");
    rustix::net::listen(&socket, BACKLOG).expect("listening");
    drop(making);
    let late = other.recv().expect("an answer");
    assert!(matches!(late, Err(ListenError::InUse(_))), "{late:?}");
    assert!(connect(&path).is_ok(), "clients find the first one still");
}

#[test]
fn a_folder_that_another_program_holds_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let holder = Making::begin_within(&path, Duration::ZERO).expect("the folder is held");
    let Held(held) = Making::begin_within(&path, Duration::ZERO).map(drop).expect_err("it is held");
    assert_eq!(held, folder.path());
    drop(holder);
    Making::begin_within(&path, Duration::ZERO).expect("it is free");
}

/// A socket that is closed before its file is gone looks dead: another process makes its own there, and the file that
/// is removed then may be that one's.
#[test]
fn a_listener_that_ends_leaves_the_next_one_its_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
    let path = folder.path().join("a.sock");
    let address = unix(&path);
    let ended = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                drop(Listener::bind(&address));
            }
        });
        let mut lost = 0;
        for _ in 0..20_000 {
            if let Ok(next) = Listener::bind(&address) {
                lost += u32::from(!path.exists());
                drop(next);
            }
        }
        ended.store(true, Ordering::Relaxed);
        assert_eq!(lost, 0);
    });
}

/// A pipe without a writer may stand in the place of the folder. An open of it would wait.
#[test]
fn a_folder_that_is_none_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a pipe");
    let (sender, bound) = std::sync::mpsc::channel();
    thread::spawn(move || drop(sender.send(Listener::bind(&unix(&pipe.join("a.sock"))))));
    let refused = bound.recv_timeout(Duration::from_secs(10)).expect("an answer");
    assert!(matches!(refused, Err(ListenError::Io { .. })), "{refused:?}");
}

/// As the kernel does after the process was killed: it takes connections, and lets go of them later.
#[test]
fn a_socket_that_dies_while_it_is_asked_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let dying = UnixListener::bind(&path).expect("listening");
    let dies = thread::spawn(move || drop(dying.accept().expect("a client connects")));
    let second = Listener::bind(&unix(&path)).expect("replaced");
    assert_eq!(second.address(), &unix(&path));
    dies.join().expect("it died");
}

#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("precious");
    fs::write(&path, "data").expect("written");
    assert!(matches!(Listener::bind(&unix(&path)), Err(ListenError::NotASocket(_))));
    assert_eq!(fs::read(&path).expect("still there"), b"data");
}

#[test]
fn a_socket_file_that_someone_else_put_there_meanwhile_is_not_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let listener = Listener::bind(&unix(&path)).expect("listening");
    fs::rename(&path, folder.path().join("moved.sock")).expect("moved");
    let _other = UnixListener::bind(&path).expect("another server");
    drop(listener);
    assert!(path.exists());
}

#[test]
fn a_port_without_a_host_is_for_this_machine_only() {
    let listener = Listener::bind(&tcp("nbd:tcp:0")).expect("listening");
    assert!(listener.warnings().is_empty());
    let Endpoint::Nbd(Socket::Tcp { port, .. }) = listener.address().endpoint else {
        panic!("TCP stays TCP")
    };
    assert_ne!(port, 0, "the port that was chosen");
    let client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let accepted = rustix::net::accept(&listener).expect("a client");
    let peer = client.local_addr().expect("an address").to_string();
    assert_eq!(crate::peer::describe(accepted.as_fd()), peer);
}

#[test]
fn an_open_address_must_be_asked_for() {
    let refused = Listener::bind(&tcp("nbd:tcp:0.0.0.0:0")).expect_err("open to all");
    assert!(matches!(refused, ListenError::Insecure { .. }));
    assert!(refused.to_string().contains("?insecure"), "{refused}");
    let listener = Listener::bind(&tcp("nbd:tcp:0.0.0.0:0?insecure")).expect("listening");
    let warning = listener.warnings().pop().expect("a warning");
    assert!(warning.contains("may read and overwrite the array"), "{warning}");
    let listener = Listener::bind(&tcp("nbd:tcp:0.0.0.0:0?insecure&ro")).expect("listening");
    assert!(listener.warnings()[0].contains("may read the array"));
}

#[test]
fn an_open_address_over_tls_needs_certificates_of_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("tests");
    authority.write_server(folder.path());
    let front = format!("nbd:tcp:0.0.0.0:0?tls={}", folder.path().display());
    let refused = Listener::bind(&tcp(&front)).expect_err("nobody is asked");
    assert!(matches!(refused, ListenError::Unasked { .. }));
    assert!(refused.to_string().contains("ca-cert.pem"), "{refused}");
    let listener = Listener::bind(&tcp(&format!("{front}&insecure"))).expect("listening");
    assert_eq!(listener.warnings().len(), 1);

    authority.write(folder.path());
    let listener = Listener::bind(&tcp(&front)).expect("listening");
    assert!(listener.warnings().is_empty());
    let off = Listener::bind(&tcp(&format!("{front}&tls-verify=off")));
    assert!(matches!(off, Err(ListenError::Unasked { .. })));

    let key = folder.path().join("server-key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("its mode");
    let listener = Listener::bind(&tcp(&front)).expect("listening");
    assert!(listener.warnings()[0].contains("server-key.pem"));
    fs::remove_file(&key).expect("removed");
    assert!(matches!(Listener::bind(&tcp(&front)), Err(ListenError::Tls(_))));
}

/// The address is what the next start knows of it.
#[test]
fn clients_are_asked_at_the_next_start_too_when_the_ca_has_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("tests");
    authority.write_server(folder.path());
    let front = format!("nbd:tcp:0?insecure&tls={}", folder.path().display());
    let bind = |front: &Address| Listener::bind(front);
    let listener = bind(&tcp(&front)).expect("listening");
    assert!(!listener.address().to_string().contains("tls-verify"), "a CA may come");

    authority.write(folder.path());
    let listener = bind(&tcp(&front)).expect("listening");
    let next = listener.address().clone();
    assert!(next.to_string().ends_with("&tls-verify"), "{next}");
    drop(listener);
    bind(&next).expect("listening");
    fs::remove_file(folder.path().join("ca-cert.pem")).expect("removed");
    assert!(matches!(bind(&next), Err(ListenError::Tls(TlsError::Missing(_)))));
    bind(&tcp(&front)).expect("who says nothing of it asks nobody");
}

#[test]
fn a_list_of_revoked_certificates_is_missed_at_the_next_start_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("tests");
    authority.write_server(folder.path());
    authority.write(folder.path());
    authority.write_list(folder.path(), true);
    let front = tcp(&format!("nbd:tcp:0?tls={}", folder.path().display()));
    let next = Listener::bind(&front).expect("listening").address().clone();
    assert!(next.to_string().ends_with("&tls-verify&tls-crl"), "{next}");
    Listener::bind(&next).expect("listening");
    fs::remove_file(folder.path().join("ca-crl.pem")).expect("removed");
    assert!(matches!(Listener::bind(&next), Err(ListenError::Tls(TlsError::Missing(_)))));
    Listener::bind(&front).expect("who says nothing of it misses none");
}

#[test]
fn a_listener_that_was_shut_down_refuses_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let listener = Listener::bind(&unix(&path)).expect("listening");
    listener.shut_down();
    assert!(rustix::net::accept(&listener).is_err());
    assert!(UnixStream::connect(&path).is_err());
}

/// A server that is stopped takes no connections, and those that wait fill its queue.
#[test]
fn a_socket_whose_owner_takes_no_connections_is_in_use_and_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let socket = bind_unix(&path).expect("listening");
    rustix::net::listen(&socket, 0).expect("a shorter queue");
    let waiting: Vec<_> = std::iter::from_fn(|| connect(&path).ok()).collect();
    assert!(!waiting.is_empty(), "the queue is full");
    assert!(matches!(Listener::bind(&unix(&path)), Err(ListenError::InUse(_))));
    assert!(path.exists());
}
