//! Members in plain memory, and what one thread may touch of them.

use std::io;

use mdspace_engine::memory::Buffer;
use mdspace_io::Ahead;
use memmap2::{Advice, MmapMut};

pub(super) const MEMBERS: usize = 6;
pub(super) const MEMBER_BYTES: usize = 256 << 20;

/// Six members.
pub(super) struct Members {
    memory: Vec<MmapMut>,
}

impl Members {
    /// Members whose memory has been touched: what never was is faster to read than any other.
    pub(super) fn new(member_bytes: usize) -> io::Result<Self> {
        let member = |at: usize| {
            let mut memory = MmapMut::map_anon(member_bytes)?;
            // A wish, as for `ram:` members.
            let _ = memory.advise(Advice::HugePage);
            memory.fill(at as u8 + 1);
            Ok(memory)
        };
        Ok(Self { memory: (0..MEMBERS).map(member).collect::<io::Result<_>>()? })
    }

    /// Cuts the members into equal parts, one a thread. Each has users with
    /// `in_flight_bytes` of memory, and moves `column_bytes` of a member at a time.
    pub(super) fn shares(
        &mut self,
        threads: usize,
        in_flight_bytes: usize,
        column_bytes: usize,
    ) -> Vec<Share<'_>> {
        let mut rest: Vec<&mut [u8]> =
            self.memory.iter_mut().map(|memory| &mut memory[..]).collect();
        let bytes = rest[0].len() / threads;
        let mut share = |thread: usize| {
            let members = std::array::from_fn(|at| {
                let (mine, others) = std::mem::take(&mut rest[at]).split_at_mut(bytes);
                rest[at] = others;
                mine
            });
            Share::new(members, thread as u64, in_flight_bytes, column_bytes)
        };
        (0..threads).map(&mut share).collect()
    }
}

/// One thread's members, its users' memory, and blocks to compute in.
pub(super) struct Share<'a> {
    pub(super) members: [&'a mut [u8]; MEMBERS],
    pub(super) blocks: [Buffer; MEMBERS + 2],
    pub(super) column_bytes: usize,
    users: Buffer,
    user_at: usize,
    /// Where the next column in order begins.
    cursor: usize,
    /// Counts turns, so that each member has its share of every role.
    turn: usize,
    state: u64,
    /// The random column after this one.
    next: usize,
    ahead: Ahead,
}

impl<'a> Share<'a> {
    fn new(
        members: [&'a mut [u8]; MEMBERS],
        thread: u64,
        in_flight_bytes: usize,
        column_bytes: usize,
    ) -> Self {
        let mut users = Buffer::zeroed(in_flight_bytes);
        users.iter_mut().zip(0_u32..).for_each(|(byte, at)| *byte = (at ^ at >> 8) as u8 | 1);
        let state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * thread + 1);
        let blocks = std::array::from_fn(|_| Buffer::zeroed(column_bytes));
        Self {
            members,
            blocks,
            column_bytes,
            users,
            user_at: 0,
            cursor: 0,
            turn: 0,
            state,
            next: 0,
            ahead: Ahead::default(),
        }
    }

    /// A random column. The one after it is known from then on.
    pub(super) fn random(&mut self) -> usize {
        let next = self.draw();
        std::mem::replace(&mut self.next, next)
    }

    /// The next random column of these members will be read: the CPU fetches it beside the copies until
    /// then.
    pub(super) fn expect_next(&self, members: &[usize]) {
        let at = |&member: &usize| self.members[member][self.next..].as_ptr();
        self.ahead.expect(members.iter().map(at), self.column_bytes);
    }

    fn draw(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let columns = (self.members[0].len() / self.column_bytes) as u64;
        ((u128::from(self.state) * u128::from(columns)) >> 64) as usize * self.column_bytes
    }

    /// The column after the last one.
    pub(super) fn following(&mut self) -> usize {
        let at = self.cursor;
        let next = at + self.column_bytes;
        self.cursor = if next + self.column_bytes > self.members[0].len() { 0 } else { next };
        at
    }

    /// The next of `kinds` in turn.
    pub(super) fn turn_of(&mut self, kinds: usize) -> usize {
        self.turn = if self.turn + 1 < kinds { self.turn + 1 } else { 0 };
        self.turn
    }

    /// Where the next request's memory begins in `users`.
    fn next_user(&mut self) -> usize {
        let at = self.user_at;
        let next = at + self.column_bytes;
        self.user_at = if next + self.column_bytes > self.users.len() { 0 } else { next };
        at
    }

    /// Member to block.
    pub(super) fn read(&mut self, member: usize, at: usize, block: usize) {
        self.blocks[block].copy_from_slice(&self.members[member][at..][..self.column_bytes]);
        self.ahead.fetch_some();
    }

    /// Member to the next user.
    pub(super) fn read_for_user(&mut self, member: usize, at: usize) {
        let user = self.next_user();
        let from = &self.members[member][at..][..self.column_bytes];
        self.users[user..][..self.column_bytes].copy_from_slice(from);
    }

    /// The next `N` users' memory and the rest, for a write.
    pub(super) fn write_parts<const N: usize>(&mut self) -> Parts<'_, N> {
        let users = std::array::from_fn(|_| self.next_user());
        Parts {
            users: users.map(|at| &self.users[at..][..self.column_bytes]),
            blocks: &mut self.blocks,
            members: Targets {
                members: self.members.each_mut().map(|member| &mut **member),
                ahead: &self.ahead,
            },
        }
    }

    /// The next user's memory and the blocks, for a read.
    pub(super) fn read_parts(&mut self) -> (&mut [u8], &[Buffer]) {
        let at = self.next_user();
        (&mut self.users[at..][..self.column_bytes], &self.blocks)
    }
}

/// A share, taken apart.
pub(super) struct Parts<'s, const N: usize> {
    pub(super) users: [&'s [u8]; N],
    pub(super) blocks: &'s mut [Buffer],
    pub(super) members: Targets<'s>,
}

/// Where writes go.
pub(super) struct Targets<'s> {
    members: [&'s mut [u8]; MEMBERS],
    ahead: &'s Ahead,
}

impl Targets<'_> {
    /// Block to member.
    pub(super) fn write(&mut self, member: usize, at: usize, block: &[u8], stores: Stores) {
        stores.copy(block, &mut self.members[member][at..][..block.len()]);
        self.ahead.fetch_some();
    }
}

/// How bytes reach a member.
#[derive(Clone, Copy)]
pub(super) enum Stores {
    Plain,
    /// Past the caches.
    NonTemporal,
}

impl Stores {
    pub(super) fn copy(self, from: &[u8], to: &mut [u8]) {
        match self {
            Self::Plain => to.copy_from_slice(from),
            // The XOR of one block is the block.
            Self::NonTemporal => mdspace_parity::kernels().xor_streaming(&[from], to),
        }
    }
}
