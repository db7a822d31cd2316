use super::*;
use crate::nbd::{BlockSizes, ReadOnlySwitch};

const SIZE: u64 = 1 << 20;

fn session() -> Session {
    session_with(&ReadOnlySwitch::default())
}

fn session_with(switch: &ReadOnlySwitch) -> Session {
    let export = Export {
        name: "data".into(),
        description: String::new(),
        size_bytes: SIZE,
        block_sizes: BlockSizes::new(512, 4096).expect("valid"),
        read_only: false,
        rotational: false,
        trim: true,
        fast_zero: false,
    };
    Session::new(Exports::new(vec![export]).expect("one").switched_by(switch), 7, 8)
}

fn message(opcode: u32, node: u64, arguments: &[u8]) -> Vec<u8> {
    let length = (size_of::<InHeader>() + arguments.len()) as u32;
    let header = InHeader {
        length,
        opcode,
        unique: 9,
        node,
        uid: 0,
        gid: 0,
        pid: std::process::id(),
        extensions_length: 0,
        padding: 0,
    };
    [header.as_bytes(), arguments].concat()
}

fn transfer(offset_bytes: u64, length: u32, flags: u32) -> TransferIn {
    let (handle, transfer_flags, lock_owner, padding) = (1, 0, 0, 0);
    TransferIn { handle, offset_bytes, length, transfer_flags, lock_owner, flags, padding }
}

fn wanted(session: &Session, message: &[u8]) -> Wanted {
    let request = session.parse(message).expect("well formed");
    assert_eq!(request.unique, 9);
    request.wanted
}

/// The errno of an answer, and its body.
fn answered(wanted: Wanted) -> (i32, Vec<u8>) {
    let (Wanted::Answer(answer) | Wanted::Begin { answer, .. }) = wanted else {
        panic!("no answer: {wanted:?}")
    };
    let (header, body) = split::<OutHeader>(&answer, 0).expect("a header");
    assert_eq!((header.length as usize, header.unique), (answer.len(), 9));
    (-header.error, body.to_vec())
}

fn write(session: &Session, offset_bytes: u64, length: usize, flags: u32) -> Wanted {
    let arguments = transfer(offset_bytes, length as u32, flags);
    let arguments = [arguments.as_bytes(), &vec![1; length]].concat();
    wanted(session, &message(opcode::WRITE, FILE, &arguments))
}

fn allocate(session: &Session, mode: u32, offset_bytes: u64, length_bytes: u64) -> Wanted {
    let range = AllocateIn { handle: 1, offset_bytes, length_bytes, mode, padding: 0 };
    wanted(session, &message(opcode::FALLOCATE, FILE, range.as_bytes()))
}

#[test]
fn the_kernel_is_offered_what_is_served_and_nothing_that_it_does_not_know() {
    let init = InitIn { major: 7, minor: 41, max_readahead: 4096, flags: u32::MAX };
    let (errno, body) = answered(wanted(&session(), &message(opcode::INIT, 0, init.as_bytes())));
    let (out, rest) = split::<InitOut>(&body, 0).expect("whole");
    assert!(errno == 0 && rest.is_empty() && (out.major, out.minor) == (MAJOR, MINOR));
    assert_eq!(out.max_write as usize, WRITE_BYTES_MAX);
    assert!(out.flags & (1 << 16) == 0, "the kernel would hold writes back");
    let older = InitIn { flags: init_flag::ASYNC_READ, ..init };
    let (_, body) = answered(wanted(&session(), &message(opcode::INIT, 0, older.as_bytes())));
    let (out, _) = split::<InitOut>(&body, 0).expect("whole");
    assert_eq!(out.flags, init_flag::ASYNC_READ);
    let ancient = InitIn { minor: 8, ..init };
    let refused = session().parse(&message(opcode::INIT, 0, ancient.as_bytes()));
    assert_eq!(refused, Err(Broken::Version(7, 8)));
}

#[test]
fn both_go_on_with_a_ring_where_both_have_one() {
    let begun = |session: &Session, flags: u32, flags_2: u32| {
        let init = InitIn { major: 7, minor: 42, max_readahead: 4096, flags };
        let extension = InitExtension { flags_2, ..InitExtension::default() };
        let arguments = [init.as_bytes(), extension.as_bytes()].concat();
        let wanted = wanted(session, &message(opcode::INIT, 0, &arguments));
        let Wanted::Begin { is_over_ring, .. } = wanted else { panic!("{wanted:?}") };
        let (_, body) = answered(wanted);
        let (out, _) = split::<InitOut>(&body, 0).expect("whole");
        assert_eq!(out.flags & init_flag::EXTENDED != 0, is_over_ring);
        assert_eq!(out.flags_2, if is_over_ring { init_flag::OVER_RING } else { 0 });
        let bytes_max = if is_over_ring { RING_BYTES_MAX } else { WRITE_BYTES_MAX };
        assert_eq!(out.max_write as usize, bytes_max);
        assert_eq!(usize::from(out.max_pages) * PAGE_BYTES, bytes_max);
        is_over_ring
    };
    assert!(begun(&session(), init_flag::EXTENDED, init_flag::OVER_RING));
    assert!(!begun(&session(), init_flag::EXTENDED, !init_flag::OVER_RING));
    assert!(!begun(&session(), !init_flag::EXTENDED, init_flag::OVER_RING));
    assert!(!begun(&session().without_ring(), init_flag::EXTENDED, init_flag::OVER_RING));
}

#[test]
fn the_directory_has_one_file_with_the_arrays_size() {
    let session = session();
    let (errno, body) = answered(wanted(&session, &message(opcode::LOOKUP, ROOT, b"data\0")));
    let (entry, _) = split::<EntryOut>(&body, 0).expect("whole");
    assert_eq!((errno, entry.node, entry.attributes.size_bytes), (0, FILE, SIZE));
    assert_eq!((entry.attributes.uid, entry.attributes.gid), (7, 8));
    for (node, name) in [(ROOT, &b"other\0"[..]), (FILE, b"data\0"), (77, b"data\0")] {
        let (errno, _) = answered(wanted(&session, &message(opcode::LOOKUP, node, name)));
        assert_eq!(errno, Errno::NOENT.raw_os_error());
    }
}

/// A loop device says what it is attached to only as long as the kernel knows the file, and a process that was killed is
/// asked in vain.
#[test]
fn the_kernel_knows_the_file_for_longer_than_any_host_runs() {
    const CENTURY_S: u64 = 100 * 366 * 24 * 3600;
    let session = session();
    let (_, body) = answered(wanted(&session, &message(opcode::LOOKUP, ROOT, b"data\0")));
    let (entry, _) = split::<EntryOut>(&body, 0).expect("whole");
    assert!(entry.attributes_valid_s >= CENTURY_S, "{}", entry.attributes_valid_s);
    let (_, body) = answered(wanted(&session, &message(opcode::GETATTR, FILE, &[0; 16])));
    let (attributes, _) = split::<AttributesOut>(&body, 0).expect("whole");
    assert!(attributes.valid_s >= CENTURY_S, "{}", attributes.valid_s);
}

#[test]
fn the_directory_is_listed_from_any_entry_on() {
    let session = session();
    let list = |offset| {
        let read = transfer(offset, 4096, 0);
        answered(wanted(&session, &message(opcode::READDIR, ROOT, read.as_bytes()))).1
    };
    let all = list(0);
    assert!(all.len().is_multiple_of(8) && all.ends_with(b"data\0\0\0\0"));
    assert!(all.ends_with(&list(2)) && list(2).len() == 32 && list(3).is_empty());
    let short = transfer(0, 40, 0);
    let (_, short) = answered(wanted(&session, &message(opcode::READDIR, ROOT, short.as_bytes())));
    assert_eq!(short.len(), 32, "an entry that does not fit is left for the next call");
}

#[test]
fn reads_end_with_the_file() {
    let session = session();
    let read = |offset, length| {
        let read = transfer(offset, length, 0);
        wanted(&session, &message(opcode::READ, FILE, read.as_bytes()))
    };
    let expected = |offset_bytes, length| Wanted::Read { offset_bytes, length };
    assert_eq!(read(100, 50), expected(100, 50));
    assert_eq!(read(SIZE - 10, 50), expected(SIZE - 10, 10));
    assert_eq!(read(SIZE, 50), expected(SIZE, 0));
    assert_eq!(read(u64::MAX, u32::MAX), expected(SIZE, 0));
}

#[test]
fn writes_end_with_the_file_and_behind_it_there_is_no_space() {
    let session = session();
    let start = size_of::<InHeader>() + size_of::<TransferIn>();
    let expected = |offset_bytes, length, durable| Wanted::Write {
        offset_bytes,
        data: start..start + length,
        durable,
    };
    assert_eq!(write(&session, 5, 100, 0), expected(5, 100, false));
    assert_eq!(write(&session, 5, 100, DATA_SYNC), expected(5, 100, true));
    assert_eq!(write(&session, SIZE - 10, 100, 0), expected(SIZE - 10, 10, false));
    let (errno, _) = answered(write(&session, SIZE, 100, 0));
    assert_eq!(errno, Errno::NOSPC.raw_os_error());
}

#[test]
fn a_read_only_file_takes_no_writes_and_no_writers() {
    let switch = ReadOnlySwitch::default();
    let session = session_with(&switch);
    switch.turn(true);
    let read_only = Errno::ROFS.raw_os_error();
    assert_eq!(answered(write(&session, 0, 512, 0)).0, read_only);
    assert_eq!(answered(allocate(&session, ZERO_RANGE, 0, 512)).0, read_only);
    let open = |flags| {
        let open = OpenIn { flags, open_flags: 0 };
        answered(wanted(&session, &message(opcode::OPEN, FILE, open.as_bytes()))).0
    };
    assert_eq!((open(2), open(1), open(0)), (read_only, read_only, 0));
}

#[test]
fn holes_and_zeroes_are_zeroes_and_other_allocations_are_refused() {
    let session = session();
    let expected =
        |offset_bytes, length_bytes, give_up| Wanted::Zero { offset_bytes, length_bytes, give_up };
    assert_eq!(allocate(&session, ZERO_RANGE, 1, 9), expected(1, 9, false));
    assert_eq!(allocate(&session, PUNCH_HOLE | KEEP_SIZE, 1, 9), expected(1, 9, true));
    let beyond = allocate(&session, PUNCH_HOLE | KEEP_SIZE, SIZE - 3, 9);
    assert_eq!(beyond, expected(SIZE - 3, 3, true));
    let no_space = Errno::NOSPC.raw_os_error();
    assert_eq!(answered(allocate(&session, ZERO_RANGE, SIZE - 3, 9)).0, no_space);
    assert_eq!(answered(allocate(&session, ZERO_RANGE, u64::MAX, 9)).0, no_space);
    for mode in [0, KEEP_SIZE, PUNCH_HOLE, 8 | KEEP_SIZE, u32::MAX] {
        let (errno, _) = answered(allocate(&session, mode, 0, 512));
        assert_eq!(errno, Errno::OPNOTSUPP.raw_os_error(), "mode {mode}");
    }
}

#[test]
fn who_opens_the_file_is_known_until_it_is_closed() {
    let session = session();
    let open = OpenIn { flags: 2, open_flags: 0 };
    let opened = message(opcode::OPEN, FILE, open.as_bytes());
    let handle = |wanted| split::<OpenOut>(&answered(wanted).1, 0).expect("whole").0.handle;
    let (first, second) = (handle(wanted(&session, &opened)), handle(wanted(&session, &opened)));
    assert_eq!(session.processes(), [std::process::id(); 2]);
    for handle in [first, second, 77] {
        let closed = message(opcode::RELEASE, FILE, ReleaseIn { handle }.as_bytes());
        assert_eq!(answered(wanted(&session, &closed)).0, 0);
    }
    assert!(session.processes().is_empty());
}

/// The kernel names the thread, which may be gone soon.
#[test]
fn a_thread_that_opens_the_file_is_known_by_its_process() {
    let session = session();
    let open = OpenIn { flags: 2, open_flags: 0 };
    let message = message(opcode::OPEN, FILE, open.as_bytes());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut header, arguments) = split::<InHeader>(&message, 0).expect("a header");
            header.pid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            assert_ne!(header.pid, std::process::id());
            let opened = [header.as_bytes(), arguments].concat();
            assert_eq!(answered(wanted(&session, &opened)).0, 0);
        });
    });
    assert_eq!(session.processes(), [std::process::id()]);
}

#[test]
fn the_size_and_the_rights_stay_and_times_are_taken() {
    let session = session();
    let set = |valid, size_bytes| {
        let change = SetAttributesIn { valid, padding: 0, handle: 0, size_bytes };
        answered(wanted(&session, &message(opcode::SETATTR, FILE, change.as_bytes()))).0
    };
    assert_eq!((set(SET_SIZE, SIZE), set(1 << 5, 0)), (0, 0));
    let refused = Errno::PERM.raw_os_error();
    assert_eq!((set(SET_SIZE, SIZE - 1), set(1, 0), set(1 << 1, 0)), (refused, refused, refused));
    // A file that is opened to be emptied; that it is to be empty.
    assert_eq!((set(SET_SIZE, 0), set(SET_SIZE | BY_HANDLE, 0)), (0, refused));
}

#[test]
fn what_is_unknown_is_refused_and_what_expects_no_answer_gets_none() {
    let session = session();
    for opcode in [0, 9, 39, 4096, u32::MAX] {
        let (errno, _) = answered(wanted(&session, &message(opcode, FILE, &[0; 64])));
        assert_eq!(errno, Errno::NOSYS.raw_os_error(), "{opcode}");
    }
    for opcode in [opcode::FORGET, opcode::BATCH_FORGET] {
        assert_eq!(wanted(&session, &message(opcode, FILE, &[0; 8])), Wanted::Nothing);
    }
    for opcode in [opcode::FSYNC, opcode::SYNCFS] {
        assert_eq!(wanted(&session, &message(opcode, FILE, &[0; 16])), Wanted::Flush);
    }
}

#[test]
fn a_message_of_any_other_length_than_it_says_is_an_error_and_no_panic() {
    let session = session();
    let arguments = [transfer(0, 512, 0).as_bytes(), &[1; 512]].concat();
    for code in 0..60 {
        let whole = message(code, FILE, &arguments);
        for length in [0, 1, 39, 40, 41, 79, 80, 81, whole.len() - 1] {
            assert!(session.parse(&whole[..length]).is_err(), "{code}, {length} bytes");
            let mut short = whole[..length].to_vec();
            if length >= 4 {
                short[..4].copy_from_slice(&(length as u32).to_ne_bytes());
                // Some need no more than that.
                let _ = session.parse(&short);
            }
        }
    }
    let lies = transfer(0, 513, 0);
    let lies = message(opcode::WRITE, FILE, &[lies.as_bytes(), &[1; 512]].concat());
    assert_eq!(session.parse(&lies), Err(Broken::Short(opcode::WRITE)));
}
