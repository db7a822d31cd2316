//! A load on a vhost-user-blk server by the crate `blkio`, for `mdspace bench fronts`: one queue, which is asked for
//! ends all the time.
//!
//! ```text
//! cargo run --release -p mdspace-front --example vhost_user_load -- /run/guest.sock randread 128 256 1.0
//! ```
//!
//! Arguments: the socket, `write` (all once, in order), `randread` or `randwrite`, requests in flight, MiB at the start
//! that it stays in, and seconds. Prints how many requests of 4 KiB there were, and the nanoseconds that they took.

use std::error::Error;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags};

const BYTES: usize = 4096;
/// Ends that are taken at once.
const ENDS: usize = 64;
/// Looks for ends between two looks at the clock.
const LOOKS: u32 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, kind, depth, area, seconds] = &words[..] else {
        return Err("give SOCKET write|randread|randwrite DEPTH MIB SECONDS".into());
    };
    let kind = match &**kind {
        "write" => Kind::Fill,
        "randread" => Kind::Read,
        "randwrite" => Kind::Write,
        _ => return Err("no such load".into()),
    };
    let (blocks, span) = (area.parse::<u64>()? << 8, Duration::from_secs_f64(seconds.parse()?));
    let mut load = Load::start(socket, depth.parse()?, blocks, kind)?;
    let (requests, elapsed) = load.run(span)?;
    println!("{requests} {}", elapsed.as_nanos());
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Writes every block once, in order.
    Fill,
    Read,
    Write,
}

struct Load {
    _blkio: Blkio,
    queue: Blkioq,
    region: MemoryRegion,
    depth: usize,
    blocks: u64,
    kind: Kind,
    begun: u64,
    state: u64,
}

impl Load {
    fn start(socket: &str, depth: usize, blocks: u64, kind: Kind) -> Result<Load, Box<dyn Error>> {
        let mut blkio = Blkio::new("virtio-blk-vhost-user").map_err(text)?;
        blkio.set_str("path", socket).map_err(text)?;
        blkio.connect().map_err(text)?;
        let capacity = blkio.get_u64("capacity").map_err(text)?;
        if capacity < blocks * BYTES as u64 {
            return Err(format!("the disk has {capacity} bytes only").into());
        }
        blkio.set_i32("num-queues", 1).map_err(text)?;
        let queue = blkio.start().map_err(text)?.queues.pop().ok_or("no queue")?;
        let region = blkio.alloc_mem_region(depth * BYTES).map_err(text)?;
        blkio.map_mem_region(&region).map_err(text)?;
        fill(&region)?;
        let state = 0x9e37_79b9_7f4a_7c15;
        let mut load = Load { _blkio: blkio, queue, region, depth, blocks, kind, begun: 0, state };
        // It looks by itself: nobody needs to wake it.
        load.queue.set_completion_fd_enabled(false);
        Ok(load)
    }

    /// Requests that have ended, and how long that took.
    fn run(&mut self, span: Duration) -> Result<(u64, Duration), Box<dyn Error>> {
        let begun = Instant::now();
        (0..self.depth).for_each(|slot| self.ask(slot));
        let (mut requests, mut in_flight, mut is_over) = (0, self.depth, false);
        while in_flight > 0 {
            for _ in 0..LOOKS {
                let mut ended = [const { MaybeUninit::<Completion>::uninit() }; ENDS];
                let count = self.queue.do_io(&mut ended, 0, None, None).map_err(text)?;
                for end in &ended[..count] {
                    // SAFETY: the queue has filled in so many.
                    let end = unsafe { end.assume_init_ref() };
                    if end.ret != 0 {
                        return Err(format!("a request failed: {}", end.ret).into());
                    }
                    requests += 1;
                    in_flight -= 1;
                    if !is_over && !self.has_filled() {
                        self.ask(end.user_data);
                        in_flight += 1;
                    }
                }
            }
            is_over = self.kind != Kind::Fill && begun.elapsed() >= span;
        }
        Ok((requests, begun.elapsed()))
    }

    fn has_filled(&self) -> bool {
        self.kind == Kind::Fill && self.begun >= self.blocks
    }

    fn ask(&mut self, slot: usize) {
        let block = match self.kind {
            Kind::Fill => self.begun % self.blocks,
            Kind::Read | Kind::Write => self.random_block(),
        };
        self.begun += 1;
        let start = block * BYTES as u64;
        let buffer = (self.region.addr + slot * BYTES) as *mut u8;
        match self.kind {
            Kind::Read => self.queue.read(start, buffer, BYTES, slot, ReqFlags::empty()),
            _ => self.queue.write(start, buffer, BYTES, slot, ReqFlags::empty()),
        }
    }

    fn random_block(&mut self) -> u64 {
        // xorshift64, scaled by a multiplication instead of a division.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(self.blocks)) >> 64) as u64
    }
}

/// Each buffer has bytes of its own, none of them zero.
fn fill(region: &MemoryRegion) -> Result<(), Box<dyn Error>> {
    let memory = File::options().write(true).open(format!("/proc/self/fd/{}", region.fd))?;
    let bytes = |slot: usize| (0..BYTES).map(move |at| (at ^ at >> 8 ^ slot) as u8 | 1);
    for slot in 0..region.len / BYTES {
        memory.write_all_at(&bytes(slot).collect::<Vec<u8>>(), (slot * BYTES) as u64)?;
    }
    Ok(())
}

fn text(error: blkio::Error) -> String {
    error.to_string()
}
