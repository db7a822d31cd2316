use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mdspace::status::MemberState;
use mdspace::{Array, Error, Level, Member, OwnDevice};

use crate::bed::{pattern, read, until_in_sync};

const BYTES: usize = 16 << 20;

/// What a device does from now on instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Works,
    NoSectors,
    NoFlush,
    Panics,
}

struct Vector {
    bytes: Mutex<Vec<u8>>,
    mood: Mutex<Mood>,
    flushes: AtomicU64,
}

impl Vector {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; BYTES]),
            mood: Mutex::new(Mood::Works),
            flushes: AtomicU64::new(0),
        })
    }

    fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap()
    }
}

impl OwnDevice for Vector {
    fn size_bytes(&self) -> u64 {
        BYTES as u64
    }

    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        match self.mood() {
            Mood::Panics => panic!("on purpose, in a read"),
            Mood::NoSectors => return Err(io::Error::from_raw_os_error(5)),
            Mood::Works | Mood::NoFlush => {}
        }
        let start = offset_bytes as usize;
        bytes.copy_from_slice(&self.bytes.lock().unwrap()[start..start + bytes.len()]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        if self.mood() == Mood::Panics {
            panic!("on purpose, in a write");
        }
        let start = offset_bytes as usize;
        self.bytes.lock().unwrap()[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        if self.mood() == Mood::NoFlush { Err(io::Error::other("no")) } else { Ok(()) }
    }
}

fn members(devices: &[Arc<Vector>]) -> Vec<Member> {
    let own = |(number, device): (usize, &Arc<Vector>)| {
        Member::own(format!("vector-{number}"), device.clone())
    };
    devices.iter().enumerate().map(own).collect()
}

fn array(devices: &[Arc<Vector>]) -> Array {
    let array = Array::create("own", Level::Raid5).members(members(devices)).lanes(2);
    array.assume_clean(true).start().unwrap()
}

fn state(array: &Array, slot: usize) -> MemberState {
    let status = array.status().unwrap();
    let name = format!("vector-{slot}");
    status.members.iter().find(|member| member.name == name).unwrap().state
}

#[test]
fn an_array_of_own_devices_is_stopped_and_assembled_again() {
    let devices: Vec<_> = (0..3).map(|_| Vector::new()).collect();
    let array = array(&devices);
    let bytes = pattern(1, 3 << 20);
    array.write_at(&bytes, 512).unwrap();
    let before = devices[0].flushes.load(Ordering::Relaxed);
    array.flush().unwrap();
    assert!(devices[0].flushes.load(Ordering::Relaxed) > before);
    array.stop().unwrap();
    let array = Array::assemble(members(&devices)).start().unwrap();
    assert!(read(&array, 512, bytes.len()) == bytes);
    array.stop().unwrap();
    // Nobody has them any more.
    assert!(devices.iter().all(|device| Arc::strong_count(device) == 1));
}

#[test]
fn two_members_of_one_name_are_refused() {
    let device = Vector::new();
    let twice = [Member::own("one", device.clone()), Member::own("one", device)];
    let error = Array::create("twice", Level::Raid1).members(twice).start().unwrap_err();
    assert!(matches!(error, Error::Asked { .. }), "{error}");
}

#[test]
fn sectors_that_a_device_cannot_read_come_from_the_others() {
    let devices: Vec<_> = (0..3).map(|_| Vector::new()).collect();
    let array = array(&devices);
    let bytes = pattern(2, 64 << 10);
    array.write_at(&bytes, 0).unwrap();
    devices[0].becomes(Mood::NoSectors);
    assert!(read(&array, 0, bytes.len()) == bytes);
    devices[0].becomes(Mood::Works);
    array.stop().unwrap();
}

#[test]
fn a_device_whose_flush_fails_or_that_panics_fails_and_nothing_is_lost() {
    for mood in [Mood::NoFlush, Mood::Panics] {
        let devices: Vec<_> = (0..3).map(|_| Vector::new()).collect();
        let array = array(&devices);
        devices[1].becomes(mood);
        let bytes = pattern(3, 4 << 20);
        array.write_at(&bytes, 0).unwrap();
        array.flush().unwrap();
        assert_eq!(state(&array, 1), MemberState::Faulty, "{mood:?}");
        assert!(read(&array, 0, bytes.len()) == bytes);
        array.remove("vector-1").unwrap();
        devices[1].becomes(Mood::Works);
        array.add(Member::own("vector-1", devices[1].clone())).unwrap();
        until_in_sync(&array);
        array.stop().unwrap();
    }
}

/// Nothing of it waits for ever, and nobody is told that what is lost is there.
#[test]
fn an_array_that_loses_too_many_devices_says_so_and_has_an_end() {
    let devices: Vec<_> = (0..3).map(|_| Vector::new()).collect();
    for dropped in [false, true] {
        let array = array(&devices);
        array.write_at(&pattern(4, 1 << 20), 0).unwrap();
        devices[..2].iter().for_each(|device| device.becomes(Mood::Panics));
        let lost = array.write_at(&pattern(5, 1 << 20), 0).unwrap_err();
        assert!(matches!(lost, Error::Lost), "{lost}");
        assert!(lost.to_string().contains("bring members back"), "{lost}");
        assert!(matches!(array.read_at(&mut [0; 1 << 20], 0), Err(Error::Lost)));
        assert!(array.flush().is_err());
        if !dropped {
            array.stop().unwrap();
        }
        drop(array);
        devices.iter().for_each(|device| {
            device.becomes(Mood::Works);
            device.bytes.lock().unwrap().fill(0);
        });
    }
}

/// Workers are lanes that come and go.
#[test]
fn workers_write_to_own_devices_too() {
    let devices: Vec<_> = (0..4).map(|_| Vector::new()).collect();
    let array = array(&devices);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let array = &array;
            scope.spawn(move || {
                for turn in 0..20 {
                    let place = (turn * 8 + thread) * 16384;
                    array.write_at(&pattern(place, 16384), place).unwrap();
                }
            });
        }
        for count in ["2", "0", "1", "0"] {
            array.set("group_thread_cnt", count).unwrap();
        }
    });
    array.fail("vector-2").unwrap();
    for place in (0..160).map(|piece| piece * 16384) {
        assert!(read(&array, place, 16384) == pattern(place, 16384), "{place}");
    }
    array.stop().unwrap();
}
