//! A user who writes and reads back all the time, and notices everything.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use mdspace_front::nbd::Errno;

use crate::client::Client;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
/// Writes under way together.
const DEPTH: u64 = 8;

/// A load on a thread of its own.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<Vec<Errno>>,
}

impl Load {
    /// Starts it on the device behind a socket.
    pub(crate) fn start(socket: &Path) -> Self {
        let client = Client::connect(socket);
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (theirs, count) = (stop.clone(), rounds.clone());
        let thread = std::thread::spawn(move || run(client, &theirs, &count));
        Self { stop, rounds, thread }
    }

    /// Rounds of writes and reads so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Waits until it has gone on for so many rounds more.
    pub(crate) fn goes_on(&self, rounds: u64) {
        let until = self.rounds() + rounds;
        let late = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while self.rounds() < until {
            assert!(std::time::Instant::now() < late, "the load stands still");
            std::thread::yield_now();
        }
    }

    /// Ends it; gives the errors that it met. A byte that is wrong panics.
    pub(crate) fn end(self) -> Vec<Errno> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("every byte is right")
    }
}

fn run(mut client: Client, stop: &AtomicBool, rounds: &AtomicU64) -> Vec<Errno> {
    // What each block holds: `None` where a write failed, which may have been done or not.
    let mut held: Vec<Option<u64>> = vec![Some(0); BLOCKS as usize];
    let mut errors = Vec::new();
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let blocks: Vec<u64> = (0..DEPTH).map(|at| (round * 7 + at * 5) % BLOCKS).collect();
        let sent: Vec<_> = blocks
            .iter()
            .map(|&at| client.send_write(at * BLOCK as u64, &content(at, round)))
            .collect();
        for (&at, cookie) in blocks.iter().zip(sent) {
            held[at as usize] = match client.answer(cookie) {
                Ok(_) => Some(round),
                Err(errno) => {
                    errors.push(errno);
                    None
                }
            };
        }
        for &at in &blocks {
            let Some(expected) = held[at as usize] else { continue };
            match client.read(at * BLOCK as u64, BLOCK) {
                Ok(bytes) => assert!(bytes == content(at, expected), "block {at}, round {round}"),
                Err(errno) => errors.push(errno),
            }
        }
        rounds.store(round, Ordering::Relaxed);
    }
    for (at, expected) in (0u64..).zip(&held) {
        if let Some(expected) = *expected
            && let Ok(bytes) = client.read(at * BLOCK as u64, BLOCK)
        {
            assert!(bytes == content(at, expected), "block {at} at the end");
        }
    }
    errors
}

fn content(block: u64, round: u64) -> Vec<u8> {
    if round == 0 {
        return vec![0; BLOCK];
    }
    let mut bytes = vec![round as u8 | 1; BLOCK];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&round.to_le_bytes());
    bytes
}
