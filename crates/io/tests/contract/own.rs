//! A device of the embedding program that makes trouble when it is told to.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use mdspace_engine::contract::Trouble;
use mdspace_io::OwnDevice;

/// A disk with a cache, in memory.
pub(crate) struct Disk(Mutex<State>);

struct State {
    cached: Vec<u8>,
    durable: Vec<u8>,
    unreadable: Range<u64>,
    is_gone: bool,
    is_full: bool,
    flush_fails: bool,
}

impl Disk {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            cached: vec![0; bytes],
            durable: vec![0; bytes],
            unreadable: 0..0,
            is_gone: false,
            is_full: false,
            flush_fails: false,
        })))
    }

    pub(crate) fn make(&self, trouble: Trouble) {
        let mut state = self.0.lock().unwrap();
        match trouble {
            Trouble::Unreadable(sectors) => {
                state.unreadable = sectors.start * 512..sectors.end * 512
            }
            Trouble::Gone => state.is_gone = true,
            Trouble::NoSpace => state.is_full = true,
            Trouble::FlushFails => state.flush_fails = true,
            Trouble::PowerCut => state.cached = state.durable.clone(),
        }
    }

    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.0.lock().unwrap();
        if state.is_gone { Err(errno(libc::ENODEV)) } else { Ok(state) }
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl OwnDevice for Disk {
    fn size_bytes(&self) -> u64 {
        self.0.lock().unwrap().cached.len() as u64
    }

    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let state = self.state()?;
        let end = offset_bytes + bytes.len() as u64;
        if offset_bytes < state.unreadable.end && state.unreadable.start < end {
            return Err(errno(libc::EIO));
        }
        bytes.copy_from_slice(&state.cached[offset_bytes as usize..end as usize]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        let mut state = self.state()?;
        if state.is_full {
            return Err(errno(libc::ENOSPC));
        }
        let start = offset_bytes as usize;
        state.cached[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn discards(&self) -> bool {
        true
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state()?;
        if std::mem::take(&mut state.flush_fails) {
            return Err(errno(libc::EIO));
        }
        state.durable = state.cached.clone();
        Ok(())
    }
}
