//! Front ends that break the rules. Each is answered with an error, or cut off; the next one is served.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::thread;

use super::*;
use crate::vhost_user::client::{
    INDIRECT, NEXT, RING_SIZE, SLOTS, WRITE, framed, memory_table, region, region_table, state,
};

/// Numbers that look like chance, from a seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A ring that is wrong after this ends the connection.
fn ends_the_connection(spoil: impl Fn(&mut Guest)) {
    let served = Served::new();
    let mut front = served.start(1);
    assert_eq!(ask(front.guest(), 0, Ask::Write(0, &[1; 512])), 0);
    spoil(front.guest());
    front.guest().kick(0);
    assert!(front.is_cut_off(PATIENCE));
    served.end();
}

#[test]
fn a_head_beyond_the_table_ends_the_connection() {
    ends_the_connection(|guest| guest.offer(0, RING_SIZE));
    ends_the_connection(|guest| guest.offer(0, u16::MAX));
}

#[test]
fn more_heads_than_the_ring_has_end_the_connection() {
    ends_the_connection(|guest| guest.claim_available(0, 1 + RING_SIZE + 1));
    ends_the_connection(|guest| guest.claim_available(0, 0));
}

#[test]
fn a_chain_that_cannot_be_ends_the_connection() {
    let spoiled = |spoil: fn(&Guest)| {
        ends_the_connection(move |guest| {
            guest.ask(0, 1, Ask::Read(0, 512));
            spoil(guest);
        });
    };
    let head =
        |guest: &Guest, flags, next| guest.describe(0, 3, guest.header_at(0, 1), 16, flags, next);
    // A loop; an index beyond the table; nothing to write the status to.
    spoiled(|guest| guest.describe(0, 4, guest.data_at(0, 1), 512, WRITE | NEXT, 3));
    spoiled(|guest| guest.describe(0, 4, guest.data_at(0, 1), 512, WRITE | NEXT, u16::MAX));
    ends_the_connection(|guest| {
        guest.ask(0, 1, Ask::Flush);
        head(guest, 0, 0);
    });
    // Addresses and lengths outside, the order, a table of a table.
    spoiled(|guest| guest.describe(0, 4, u64::MAX - 100, 512, WRITE | NEXT, 5));
    spoiled(|guest| guest.describe(0, 4, guest.data_at(0, 1), u32::MAX, WRITE | NEXT, 5));
    spoiled(|guest| guest.describe(0, 4, 0, 512, WRITE | NEXT, 5));
    ends_the_connection(|guest| {
        guest.ask(0, 1, Ask::Write(0, &[1; 512]));
        head(guest, WRITE | NEXT, 4);
    });
    spoiled(|guest| guest.describe(0, 4, guest.part(0), 64, INDIRECT | NEXT, 5));
    spoiled(|guest| guest.describe(0, 4, guest.data_at(0, 1), 0, WRITE | NEXT, 5));
}

#[test]
fn a_header_that_is_cut_off_is_answered_with_an_error() {
    let served = Served::new();
    let mut front = served.start(1);
    let guest = front.guest();
    guest.ask(0, 0, Ask::Read(0, 512));
    guest.describe(0, 0, guest.header_at(0, 0), 15, NEXT, 1);
    guest.kick(0);
    assert_eq!(guest.wait(0, PATIENCE), Some((0, 1)));
    drop(front);
    served.end();
}

#[test]
fn a_descriptor_that_is_under_way_is_not_taken_again() {
    let served = Served::new();
    served.hang(64);
    let mut front = served.start(1);
    front.guest().ask(0, 0, Ask::Read(64, 512));
    front.guest().offer(0, 0);
    front.guest().kick(0);
    assert!(front.is_cut_off(PATIENCE));
    served.let_go();
    served.end();
}

#[test]
fn kicks_without_end_keep_no_ring_from_being_served() {
    let served = Served::new();
    let mut front = served.start(3);
    // Rings 0 and 2 live on one lane.
    for _ in 0..20_000 {
        front.guest().kick(2);
    }
    assert_eq!(ask(front.guest(), 0, Ask::Write(0, &[1; 512])), 0);
    assert_eq!(ask(front.guest(), 2, Ask::Flush), 0);
    drop(front);
    served.end();
}

#[test]
fn a_configuration_that_is_not_there_is_not_read() {
    let served = Served::new();
    let mut front = served.start(1);
    assert_eq!(front.config(0, 8).expect("an answer"), (SIZE_BYTES as u64 / 512).to_le_bytes());
    assert_eq!(front.config(90, 7).expect("an answer"), [0; 0]);
    assert_eq!(front.config(200, 56).expect("an answer"), [0; 0]);
    assert_eq!(ask(front.guest(), 0, Ask::Flush), 0);
    drop(front);
    served.end();
}

/// Whether an order is refused, and the client cut off.
fn is_refused(served: &Served, order: impl FnOnce(&mut FrontEnd) -> io::Result<()>) -> bool {
    let mut front = served.start(1);
    order(&mut front).is_err() && front.is_cut_off(PATIENCE)
}

#[test]
fn orders_that_cannot_be_followed_are_refused() {
    let served = Served::new();
    let refused =
        |code: u32, body: &[u8]| is_refused(&served, |front| front.acknowledged(code, body, &[]));
    assert!(refused(message::SET_FEATURES, &u64::MAX.to_le_bytes()), "features not offered");
    assert!(refused(message::SET_PROTOCOL_FEATURES, &u64::MAX.to_le_bytes()), "nor these");
    assert!(refused(message::SET_VRING_NUM, &state(1, 3)), "no power of two");
    assert!(refused(message::SET_VRING_NUM, &state(1, 1 << 15)), "too large");
    assert!(refused(message::SET_VRING_NUM, &state(64, 128)), "no such ring");
    assert!(refused(message::SET_VRING_NUM, &state(0, 128)), "a ring that runs");
    assert!(refused(message::SET_VRING_BASE, &state(1, 1 << 16)), "an index too large");
    assert!(refused(message::SET_VRING_ENABLE, &state(1, 7)), "neither on nor off");
    assert!(refused(message::SET_VRING_KICK, &1_u64.to_le_bytes()), "no descriptor");
    assert!(refused(message::SET_MEM_TABLE, &memory_table(1)), "no descriptor");
    assert!(refused(message::SET_INFLIGHT_FD, &[0; 24]), "no descriptor");
    assert!(refused(99, &[]), "no such message");
    let file = std::fs::File::open("/proc/self/exe").expect("it is read");
    let with_file = |code: u32, body: &[u8]| {
        is_refused(&served, |front| front.acknowledged(code, body, &[file.as_fd()]))
    };
    assert!(with_file(message::SET_VRING_KICK, &1_u64.to_le_bytes()), "no eventfd");
    assert!(with_file(message::SET_VRING_CALL, &0_u64.to_le_bytes()), "no eventfd");
    assert!(with_file(message::SET_MEM_TABLE, &memory_table(1)), "no memory");
    let away = region_table(&[[1 << 40, 4096, 1 << 40, 0]]);
    assert!(
        is_refused(&served, |front| {
            let memory = front.guest().file().try_clone()?;
            front.acknowledged(message::SET_MEM_TABLE, &away, &[memory.as_fd()])
        }),
        "memory without the rings that run"
    );
    served.end();
}

#[test]
fn a_second_client_is_refused_and_a_silent_one_makes_room() {
    let served = Served::new();
    let mut silent = FrontEnd::connect(&served.path(), guest(1)).expect("it listens");
    let mut first = served.start(1);
    assert!(silent.is_cut_off(PATIENCE));
    let mut second = FrontEnd::connect(&served.path(), guest(1)).expect("it listens");
    assert!(second.is_cut_off(PATIENCE));
    assert_eq!(ask(first.guest(), 0, Ask::Flush), 0);
    drop(first);
    served.end();
}

/// An entry of the available ring lies in two regions: it can be read as little as if it lay in none.
#[test]
fn a_ring_that_lies_in_two_regions_ends_the_connection() {
    let served = Served::new();
    let mut front = FrontEnd::connect(&served.path(), guest(1)).expect("it listens");
    front.agree().expect("it is served");
    front.share().expect("it is served");
    let [guest_at, bytes, user_at, _] = region(1);
    // Its first entry stands at 0x4004, the entries end at 0x4204. What stands behind them is where it was.
    let part =
        |start: u64, end: u64, offset| [guest_at + start, end - start, user_at + start, offset];
    let table = [part(0, 0x4005, 0), part(0x4005, 0x4204, 0), part(0x4204, bytes - 0x4000, 0x4000)];
    let file = front.guest().file().try_clone().expect("a descriptor");
    let files = [file.as_fd(); 3];
    front
        .acknowledged(message::SET_MEM_TABLE, &region_table(&table), &files)
        .and_then(|()| front.start_rings())
        .unwrap_or(());
    front.guest().offer(0, 0);
    front.guest().kick(0);
    assert!(front.is_cut_off(PATIENCE));
    served.end();
}

#[test]
fn memory_that_is_taken_away_ends_the_connection_and_nothing_else() {
    let served = Served::new();
    let mut front = served.start(1);
    assert_eq!(ask(front.guest(), 0, Ask::Write(0, &[7; 512])), 0);
    // The guest's own mapping is of no use from here on: nothing of it is touched.
    front.guest().file().set_len(0).expect("it can be shortened");
    front.guest().kick(0);
    assert!(front.is_cut_off(PATIENCE));
    let mut next = served.start(1);
    assert_eq!(ask(next.guest(), 0, Ask::Read(0, 512)), 0);
    assert_eq!(next.guest().data(0, 0, 512), [7; 512], "what was answered before is there");
    drop(next);
    served.end();
}

#[test]
fn nothing_is_written_of_memory_that_is_taken_away() {
    let served = Served::new();
    let mut front = served.start(1);
    assert_eq!(ask(front.guest(), 0, Ask::Write(0, &[7; 512])), 0);
    let (rings, data) = (front.guest().file().try_clone().expect("a descriptor"), guest(1));
    let table = region_table(&[region(1), [1 << 32, 4096, 1 << 32, 0]]);
    let files = [rings.as_fd(), data.file().as_fd()];
    front.acknowledged(message::SET_MEM_TABLE, &table, &files).expect("it is taken");
    front.guest().ask(0, 0, Ask::Write(0, &[8; 512]));
    front.guest().describe(0, 1, 1 << 32, 512, NEXT, 2);
    data.file().set_len(0).expect("it can be shortened");
    front.guest().kick(0);
    assert!(front.is_cut_off(PATIENCE));
    assert_eq!(served.disk.shared.bytes.lock().expect("no panic")[..512], [7; 512]);
    served.end();
}

#[test]
fn a_read_goes_where_it_was_asked_for_though_other_memory_is_shared_meanwhile() {
    let served = Served::new();
    let mut front = served.start(1);
    assert_eq!(ask(front.guest(), 0, Ask::Write(64, &[7; 512])), 0);
    served.hang(64);
    let data = front.guest().data_at(0, 0);
    front.guest().put(data, &[0; 512]);
    front.guest().ask(0, 0, Ask::Read(64, 512));
    front.guest().kick(0);
    assert_eq!(ask_slot(front.guest(), 1, Ask::Flush), 0, "the read was taken before");
    let other = guest(1);
    let mut copy = other.file().try_clone().expect("a descriptor");
    let mut old = front.guest().file().try_clone().expect("a descriptor");
    io::Seek::rewind(&mut old).expect("it is a file");
    io::copy(&mut old, &mut copy).expect("there is room");
    front
        .acknowledged(message::SET_MEM_TABLE, &memory_table(1), &[copy.as_fd()])
        .expect("it is taken");
    served.let_go();
    let stopped = front.stop_ring(0).expect("what was taken is answered");
    assert_eq!(stopped, 3);
    assert_eq!(front.guest().data(0, 0, 512), [7; 512], "in the memory of that time");
    let mut in_other = [7; 512];
    let offset = data - front.guest().part(0);
    copy.read_exact_at(&mut in_other, offset).expect("it is there");
    assert_eq!(in_other, [0; 512], "and not in the other one");
    assert_eq!(front.guest().answer(0), None, "the ring is in the new one");
    drop(front);
    served.end();
}

#[test]
fn what_was_under_way_is_done_again_for_a_guest_that_reconnects() {
    let served = Served::new();
    let mut front = served.start(2);
    for slot in 0..SLOTS {
        let sector = 1000 + u64::from(slot);
        served.hang(sector);
        front.guest().ask(1, slot, Ask::Write(sector, &[slot as u8; 512]));
    }
    front.guest().ask(1, SLOTS, Ask::Flush);
    front.guest().kick(1);
    assert_eq!(front.guest().wait(1, PATIENCE), Some((SLOTS, 0)), "all of them were taken");
    let guest = front.leave();
    served.know_that_it_left();
    served.let_go();
    // As if none of them had been done: the answers are to tell the truth all the same.
    let mut front = FrontEnd::connect(&served.path(), guest).expect("it listens");
    front.agree().expect("it is served");
    served.disk.shared.bytes.lock().expect("no panic").fill(0);
    front.share().expect("it is served");
    front.start_rings().expect("it is served");
    let mut slots = HashSet::new();
    for _ in 0..SLOTS {
        let (slot, status) = front.guest().wait(1, PATIENCE).expect("an answer in time");
        assert_eq!(status, 0);
        assert!(slots.insert(slot), "each is answered once");
        let at = (1000 + usize::from(slot)) * 512;
        assert_eq!(served.disk.shared.bytes.lock().expect("no panic")[at], slot as u8);
    }
    assert_eq!(front.guest().answer(1), None);
    assert_eq!(ask(front.guest(), 1, Ask::Flush), 0);
    drop(front);
    served.end();
}

/// The process before told an answer, and died before its signal. The front end gives the eventfd before the ring starts.
#[test]
fn a_guest_that_reconnects_is_woken_for_answers_of_the_process_before() {
    let served = Served::new();
    let mut front = served.start(1);
    assert_eq!(ask(front.guest(), 0, Ask::Flush), 0);
    let mut front = FrontEnd::connect(&served.path(), front.leave()).expect("it listens");
    front.agree().expect("the ring of before has ended");
    // The signal of that time goes nowhere.
    front.guest().is_woken(0, Duration::ZERO);
    front.share().expect("it is served");
    assert!(!front.guest().is_woken(0, Duration::ZERO), "none came since");
    front.start_rings().expect("it is served");
    assert!(front.guest().is_woken(0, PATIENCE));
    drop(front);
    served.end();
}

/// Each of these reads holds half a MiB: two are the ring's own, the others borrow.
fn ask_for_much(guest: &mut Guest, slot: u16) {
    let sector = 1024 * u64::from(slot);
    guest.ask(0, slot, Ask::Read(sector, 512));
    // They share the memory that they fill.
    guest.describe(0, 3 * slot + 1, guest.part(0) + (1 << 19), 1 << 19, WRITE | NEXT, 3 * slot + 2);
}

#[test]
fn a_guest_that_asks_for_more_than_there_is_memory_waits_for_its_turn() {
    let served = Served::with_budget(1 << 20);
    let mut front = served.start(1);
    (0..6).for_each(|slot| served.hang(1024 * slot));
    (0..6).for_each(|slot| ask_for_much(front.guest(), slot));
    front.guest().kick(0);
    // What needs no memory waits too: a ring is taken in order.
    front.guest().ask(0, 70, Ask::Flush);
    front.guest().kick(0);
    while served.budget.free_bytes() > 0 {
        thread::yield_now();
    }
    assert_eq!(front.guest().answer(0), None);
    served.let_go();
    for _ in 0..7 {
        assert_eq!(front.guest().wait(0, PATIENCE).expect("an answer in time").1, 0);
    }
    assert_eq!(served.budget.free_bytes(), 1 << 20, "all of it was given back");
    // One that leaves while it waits keeps nothing.
    (0..6).for_each(|slot| served.hang(1024 * slot));
    (0..6).for_each(|slot| ask_for_much(front.guest(), slot));
    front.guest().kick(0);
    while served.budget.free_bytes() > 0 {
        thread::yield_now();
    }
    drop(front);
    served.let_go();
    let mut next = served.start(1);
    assert_eq!(ask(next.guest(), 0, Ask::Flush), 0);
    assert_eq!(served.budget.free_bytes(), 1 << 20, "all of it was given back");
    drop(next);
    served.end();
}

/// Rings of chance: whatever stands in them, the connection goes on or ends, and the process lives.
#[test]
fn rings_of_chance_harm_nobody_else() {
    for seed in 1..=40 {
        println!("seed {seed}");
        let mut chance = Chance(seed);
        let served = Served::new();
        let mut front = served.start(1);
        for _ in 0..20 {
            let guest = front.guest();
            for index in 0..RING_SIZE {
                let part = guest.part(0);
                let near = part + chance.below(1 << 20);
                let far = chance.next();
                let address = chance.one_of(&[near, near, near, part, far, u64::MAX - 8]);
                let bytes = chance.one_of(&[1, 16, 16, 512, 4096, 0, 32, u32::MAX]);
                let flags = chance.one_of(&[NEXT, NEXT, WRITE, WRITE | NEXT, 0, INDIRECT, 7]);
                let next = chance.below(u64::from(RING_SIZE) + 1) as u16;
                guest.describe(0, index, address, bytes, flags, next);
            }
            for slot in 0..SLOTS {
                let kind = chance.one_of(&[0, 1, 4, 8, 11, 13, 99]);
                guest.put(guest.header_at(0, slot), &u32::to_le_bytes(kind));
            }
            for _ in 0..chance.below(4) {
                guest.offer(0, chance.below(u64::from(RING_SIZE)) as u16);
            }
            if chance.below(30) == 0 {
                guest.claim_available(0, chance.next() as u16);
            }
            guest.kick(0);
            // All that was made available is answered, or the connection ends.
            if front.stop_ring(0).is_err() {
                front = served.start(1);
            } else {
                front.start_rings().unwrap_or(());
            }
        }
        drop(front);
        served.end();
    }
}

/// A record of chance, from which a ring is to go on.
#[test]
fn records_of_chance_harm_nobody_else() {
    for seed in 1..=15 {
        println!("seed {seed}");
        let mut chance = Chance(seed);
        let served = Served::new();
        let mut guest = served.start(1).leave();
        for _ in 0..10 {
            let file = guest.record().expect("a record").try_clone().expect("a descriptor");
            let is_known = chance.below(4) > 0;
            for at in 0..16 + 16 * u64::from(RING_SIZE) {
                // Its version and size stay, or no word of it is believed.
                if !(8..12).contains(&at) || !is_known {
                    let byte = chance.one_of(&[0, 0, 0, 1, 1, 2, 0xff]);
                    file.write_at(&[byte], at).expect("it is there");
                }
            }
            let mut front = match FrontEnd::start(&served.path(), guest) {
                Ok(front) => front,
                Err(_) => FrontEnd::start(&served.path(), self::guest(1)).expect("it is served"),
            };
            front.guest().kick(0);
            let _ = front.stop_ring(0);
            guest = front.leave();
        }
        served.end();
    }
}

/// Messages of chance, with files and without.
#[test]
fn messages_of_chance_harm_nobody_else() {
    for seed in 1..=40 {
        println!("seed {seed}");
        let mut chance = Chance(seed);
        let served = Served::new();
        for _ in 0..20 {
            let Ok(mut front) = FrontEnd::connect(&served.path(), guest(1)) else { continue };
            if chance.below(2) == 0 {
                front.agree().unwrap_or(());
            }
            let file = front.guest().file().try_clone().expect("a descriptor");
            for _ in 0..chance.below(8) {
                let code = chance.below(45) as u32;
                let flags = chance.one_of(&[1, 1, 1, 9, 5, 0, u32::MAX]);
                let length = chance.one_of(&[0, 8, 8, 12, 16, 24, 40, 72, 104]);
                let numbers = [0, 1, 2, 4096, 1 << 20, u64::MAX, u64::MAX - 4095];
                let body: Vec<u8> = (0..length / 4)
                    .flat_map(|_| (chance.one_of(&numbers) as u32).to_le_bytes())
                    .collect();
                let files = vec![file.as_fd(); chance.one_of(&[0, 0, 1, 1, 2, 8])];
                if front.send_raw(&framed(code, flags, &body), &files).is_err() {
                    break;
                }
            }
            if chance.below(4) == 0 {
                front.send_raw(&[1; 7], &[]).unwrap_or(());
            }
        }
        served.end();
    }
}

#[test]
fn half_a_message_keeps_no_other_client_away() {
    let served = Served::new();
    let message = framed(message::SET_FEATURES, 1, &[0; 8]);
    for bytes in [3, 12, 15] {
        let mut half = FrontEnd::connect(&served.path(), guest(1)).expect("it listens");
        half.send_raw(&message[..bytes], &[]).expect("it listens");
        let mut front = served.start(1);
        assert!(half.is_cut_off(PATIENCE));
        assert_eq!(ask(front.guest(), 0, Ask::Flush), 0);
    }
    served.end();
}

#[test]
fn half_a_message_keeps_nobody_from_closing_the_server() {
    let served = Served::new();
    let mut front = served.start(1);
    front.send_raw(&framed(message::SET_FEATURES, 1, &[0; 8])[..15], &[]).expect("it listens");
    let Served { disk, server, folder: _folder, .. } = served;
    server.close(PATIENCE).expect("nothing hangs");
    drop(server);
    disk.lanes.stop(PATIENCE).expect("the lanes end");
    drop(front);
    thread::yield_now();
}
