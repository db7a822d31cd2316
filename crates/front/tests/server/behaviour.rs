//! What clients meet.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use mdspace_front::nbd::client::{Answer, Event, Wants};
use mdspace_front::nbd::{
    Budget, Command, Context, Contexts, Errno, Extent, Framing, Limits, ServerLimits,
};

use crate::blocking::socket;
use crate::client::BlockingClient;
use crate::memory::{SIZE_BYTES, on_both};

const WRITE: Command = Command::Write { fua: false };

/// Bytes that differ from place to place.
fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at + seed) * 31 % 251) as u8).collect()
}

#[test]
fn what_one_client_wrote_another_reads() {
    on_both(ServerLimits::default(), |served| {
        let mut writer = BlockingClient::new(&served.path(), true);
        let mut reader = BlockingClient::new(&served.path(), false);
        let bytes = pattern(1, 8192);
        writer.write(4096, &bytes);
        assert_eq!(reader.read(4096, 8192), bytes);
        assert_eq!(served.server().clients().len(), 2);
        assert_eq!(served.memory.bytes(4096, 8192), bytes);
    });
}

#[test]
fn every_command_reaches_the_array() {
    on_both(ServerLimits::default(), |served| {
        let mut client = BlockingClient::new(&served.path(), true);
        client.write(0, &pattern(2, 4096));
        assert_eq!(client.ask(Command::Flush, 0, 0, &[]), Answer::Done);
        assert_eq!(served.memory.flushes(), 1);
        let zero = Command::WriteZeroes { fua: false, no_hole: true, fast: false };
        assert_eq!(client.ask(zero, 0, 512, &[]), Answer::Done);
        assert_eq!(served.memory.bytes(0, 512), [0; 512]);
        assert_eq!(client.ask(Command::Trim { fua: true }, 512, 512, &[]), Answer::Done);
        assert_eq!(served.memory.bytes(512, 512), [0; 512]);
        assert_eq!(served.memory.flushes(), 2, "a trim with FUA is flushed");
        assert_eq!(client.ask(Command::Cache, 0, 4096, &[]), Answer::Done);
        let contexts = Contexts::from_iter([Context::Allocation]);
        let status = Command::BlockStatus { one_extent: false, contexts };
        let extents = [(Context::Allocation, vec![Extent::hole(512), Extent::allocated(3584)])];
        assert_eq!(client.ask(status, 0, 4096, &[]), Answer::Extents(extents.into()));
        let beyond = client.ask(Command::Read, SIZE_BYTES as u64, 512, &[]);
        assert!(matches!(beyond, Answer::Failed(Errno::Invalid, _)), "{beyond:?}");
    });
}

#[test]
fn many_requests_are_under_way_and_each_is_answered_once() {
    on_both(ServerLimits::default(), |served| {
        let mut client = BlockingClient::new(&served.path(), false);
        let blocks: Vec<Vec<u8>> = (0..1000).map(|block| pattern(block, 4096)).collect();
        let mut waiting = BTreeSet::new();
        for (index, block) in blocks.iter().enumerate() {
            waiting.insert(client.send(WRITE, index as u64 * 4096, 4096, block));
        }
        while !waiting.is_empty() {
            let Event::Answer(cookie, Answer::Done) = client.next() else { panic!("not done") };
            assert!(waiting.remove(&cookie));
        }
        let cookies: Vec<_> =
            (0..1000).map(|index| client.send(Command::Read, index * 4096, 4096, &[])).collect();
        for _ in 0..1000 {
            let Event::Answer(cookie, Answer::Data(data)) = client.next() else {
                panic!("no data")
            };
            let index = cookies.iter().position(|&sent| sent == cookie).expect("was asked");
            assert_eq!(data, blocks[index]);
        }
    });
}

#[test]
fn the_largest_payload_goes_both_ways() {
    on_both(ServerLimits::default(), |served| {
        let mut client = BlockingClient::new(&served.path(), true);
        let bytes = pattern(3, 32 << 20);
        client.write(4096, &bytes);
        assert!(client.read(4096, 32 << 20) == bytes);
    });
}

#[test]
fn a_client_that_vanishes_mid_write_leaves_the_old_bytes_or_the_new() {
    on_both(ServerLimits::default(), |served| {
        let old = pattern(4, 100 << 10);
        let new = pattern(5, 100 << 10);
        let mut stayer = BlockingClient::new(&served.path(), true);
        for sent_part in [0, 1, 27, 28, 29, 512, 4096, 60_000, 70_000, 100 << 10] {
            stayer.write(0, &old);
            let mut client = BlockingClient::new(&served.path(), false);
            let mut bytes = Vec::new();
            bytes.extend(0x2560_9513_u32.to_be_bytes());
            bytes.extend([0, 0, 0, 1]);
            bytes.extend([7; 8]);
            bytes.extend(0_u64.to_be_bytes());
            bytes.extend((100_u32 << 10).to_be_bytes());
            bytes.extend(&new);
            client.nbd.socket.write_all(&bytes[..sent_part]).expect("sent");
            client.nbd.socket.shutdown(Shutdown::Both).expect("gone");
            drop(client);
            served.wait_for_clients(1);
            assert!(stayer.read(0, 100 << 10) == old, "{sent_part} bytes of the write arrived");
        }
    });
}

#[test]
fn a_write_that_arrived_whole_is_done_though_nobody_waits_for_it() {
    on_both(ServerLimits::default(), |served| {
        let mut client = BlockingClient::new(&served.path(), false);
        let bytes = pattern(6, 100 << 10);
        client.send(WRITE, 0, 100 << 10, &bytes);
        client.flush_out();
        drop(client);
        served.wait_for_clients(0);
        assert!(served.memory.bytes(0, 100 << 10) == bytes);
    });
}

#[test]
fn a_client_that_only_asks_and_never_reads_harms_nobody() {
    let limits = ServerLimits {
        session: Limits { requests: 16, payload_bytes: 1 << 20, ..Limits::default() },
        ..ServerLimits::default()
    };
    on_both(limits, |served| {
        let mut greedy = BlockingClient::new(&served.path(), false);
        for _ in 0..100 {
            greedy.send(Command::Read, 0, 1 << 20, &[]);
        }
        greedy.flush_out();
        let mut other = BlockingClient::new(&served.path(), false);
        other.write(0, &pattern(7, 4096));
        assert_eq!(other.read(0, 4096), pattern(7, 4096));
        for _ in 0..100 {
            let event = greedy.next();
            assert!(matches!(&event, Event::Answer(_, Answer::Data(_))), "{event:?}");
        }
    });
}

/// A share of a small request for each client, and little patience.
fn scarce(budget: &Budget) -> ServerLimits {
    ServerLimits {
        session: Limits { own_bytes: 4 << 10, ..Limits::default() },
        stall: Duration::from_millis(40),
        budget: budget.clone(),
        ..ServerLimits::default()
    }
}

#[test]
fn clients_that_never_read_share_one_budget_and_are_cut_off() {
    let budget = Budget::new(192 << 10);
    on_both(scarce(&budget), |served| {
        let mut greedy: Vec<_> = (0..8)
            .map(|_| {
                let mut client = BlockingClient::new(&served.path(), false);
                for _ in 0..20 {
                    client.send(Command::Read, 0, 64 << 10, &[]);
                }
                client.flush_out();
                client
            })
            .collect();
        // A small request needs nothing of the budget, and a large one gets its turn.
        let mut other = BlockingClient::new(&served.path(), false);
        other.write(0, &pattern(7, 4096));
        assert_eq!(other.read(0, 4096), pattern(7, 4096));
        assert_eq!(other.read(0, 64 << 10).len(), 64 << 10);
        drop(other);
        served.wait_for_clients(0);
        assert_eq!(budget.free_bytes(), 192 << 10, "what they held is free again");
        greedy.clear();
    });
}

#[test]
fn a_client_that_sends_half_a_write_is_cut_off() {
    let budget = Budget::new(192 << 10);
    on_both(scarce(&budget), |served| {
        for sent in [0, 1000, 50 << 10] {
            let mut client = BlockingClient::new(&served.path(), false);
            client.send(WRITE, 0, 64 << 10, &vec![7; sent]);
            client.flush_out();
            served.wait_for_clients(0);
            assert_eq!(budget.free_bytes(), 192 << 10);
        }
    });
}

#[test]
fn a_server_that_closes_waits_for_no_client_that_waits_for_the_budget() {
    let budget = Budget::new(0);
    let limits = ServerLimits { stall: Duration::from_secs(600), ..scarce(&budget) };
    on_both(limits, |served| {
        let mut client = BlockingClient::new(&served.path(), false);
        client.send(Command::Read, 0, 64 << 10, &[]);
        client.flush_out();
        served.wait_for_clients(1);
    });
}

#[test]
fn one_user_cannot_take_every_place() {
    let limits = ServerLimits { clients: 3, clients_of_one: 2, ..ServerLimits::default() };
    on_both(limits, |served| {
        let mut placed: Vec<_> =
            (0..2).map(|_| BlockingClient::new(&served.path(), false)).collect();
        placed.iter_mut().for_each(|client| assert_eq!(client.read(0, 512), [0; 512]));
        let mut third = BlockingClient::new(&served.path(), false);
        // It may be cut off before, or with, its first request.
        let _ = third.nbd.socket.write_all(&[0; 28]);
        let mut rest = Vec::new();
        let _ = third.nbd.socket.read_to_end(&mut rest);
        assert!(rest.is_empty());
        served.wait_for_clients(2);
    });
}

#[test]
fn a_client_that_never_finishes_its_handshake_is_cut_off() {
    let limits = ServerLimits { handshake: Duration::from_millis(20), ..ServerLimits::default() };
    on_both(limits, |served| {
        let mut silent = socket(&served.path());
        let mut slow = socket(&served.path());
        slow.write_all(&[0, 0, 0, 3]).expect("sent");
        for socket in [&mut silent, &mut slow] {
            let mut greeting = Vec::new();
            socket.read_to_end(&mut greeting).expect("hung up, not reset");
            assert_eq!(greeting.len(), 18);
        }
        served.wait_for_clients(0);
    });
}

#[test]
fn a_client_that_breaks_the_protocol_is_cut_off_and_others_are_not() {
    on_both(ServerLimits::default(), |served| {
        let mut good = BlockingClient::new(&served.path(), false);
        let mut bad = BlockingClient::new(&served.path(), false);
        bad.nbd.socket.write_all(&[0xff; 28]).expect("sent");
        let mut rest = Vec::new();
        bad.nbd.socket.read_to_end(&mut rest).expect("hung up");
        assert!(rest.is_empty());
        assert_eq!(good.read(0, 512), [0; 512]);
        served.wait_for_clients(1);
    });
}

#[test]
fn more_clients_than_allowed_are_refused_and_a_place_becomes_free_again() {
    let limits = ServerLimits { clients: 2, ..ServerLimits::default() };
    on_both(limits, |served| {
        let first = BlockingClient::new(&served.path(), false);
        let _second = BlockingClient::new(&served.path(), false);
        let mut third = socket(&served.path());
        let mut greeting = Vec::new();
        third.read_to_end(&mut greeting).expect("hung up");
        assert!(greeting.is_empty());
        drop(first);
        served.wait_for_clients(1);
        BlockingClient::new(&served.path(), false);
    });
}

/// They would hold every place for as long as a handshake may take.
#[test]
fn clients_that_say_nothing_keep_no_other_out() {
    let limits = ServerLimits { clients: 8, ..ServerLimits::default() };
    on_both(limits, |served| {
        let mut silent: Vec<_> = (0..50).map(|_| socket(&served.path())).collect();
        let mut clients: Vec<_> =
            (0..8).map(|_| BlockingClient::new(&served.path(), false)).collect();
        for client in &mut clients {
            assert_eq!(client.read(0, 512), [0; 512]);
        }
        // The oldest went first, and each was told so.
        let mut greeting = Vec::new();
        silent[0].read_to_end(&mut greeting).expect("hung up");
    });
}

#[test]
fn clients_are_listed_by_program_and_process() {
    on_both(ServerLimits::default(), |served| {
        assert!(served.server().clients().is_empty());
        let _client = BlockingClient::new(&served.path(), false);
        let clients = served.server().clients();
        let process = format!("(process {})", std::process::id());
        assert!(clients.len() == 1 && clients[0].ends_with(&process), "{clients:?}");
    });
}

#[test]
fn a_goodbye_after_requests_is_answered_first() {
    on_both(ServerLimits::default(), |served| {
        let mut client = BlockingClient::new(&served.path(), false);
        for _ in 0..50 {
            client.send(Command::Read, 0, 4096, &[]);
        }
        client.say_goodbye();
        for _ in 0..50 {
            let event = client.next();
            assert!(matches!(event, Event::Answer(_, Answer::Data(_))), "{event:?}");
        }
        let mut rest = Vec::new();
        client.nbd.socket.read_to_end(&mut rest).expect("hung up");
        assert!(rest.is_empty());
    });
}

#[test]
fn closing_disconnects_clients() {
    on_both(ServerLimits::default(), |served| {
        // `end` closes with this client connected, and checks that nothing is left.
        std::mem::forget(BlockingClient::new(&served.path(), false));
    });
}

#[test]
fn extended_headers_work_over_a_socket() {
    on_both(ServerLimits::default(), |served| {
        let wants = Wants { framing: Framing::Extended, ..Wants::default() };
        let mut client = BlockingClient::with(&served.path(), wants);
        let bytes = pattern(8, 100 << 10);
        client.write(4096, &bytes);
        assert_eq!(client.read(4096, 100 << 10), bytes);
        let zero = Command::WriteZeroes { fua: true, no_hole: false, fast: false };
        assert_eq!(client.ask(zero, 0, SIZE_BYTES as u64, &[]), Answer::Done);
        assert!(client.read(4096, 100 << 10) == vec![0; 100 << 10]);
    });
}
