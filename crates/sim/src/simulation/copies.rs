//! A copy of an array that is down, with one member lost: the engine reads there what the array holds.

use std::rc::Rc;

use mdspace_engine::request::Request;

use crate::disk::DiskIndex;
use crate::lent::LentSink;
use crate::oracle::Remains;
use crate::process::Process;
use crate::stamp::SECTOR_BYTES;

use super::{Failure, Simulation};

/// Sectors of a read.
const READ_SECTORS: u64 = 64;

impl Simulation {
    /// Loses each member in turn, on copies in worlds of their own, and reads everything. Only where the array is
    /// clean: what a crash left half-written cannot be computed.
    pub(super) fn lose_each_on_a_copy(&mut self) -> Result<(), Failure> {
        let world = self.world.clone();
        let Ok(remains) = Remains::find(&world, &self.disks) else { return Ok(()) };
        if !self.bearable() {
            return Ok(());
        }
        let members: Vec<DiskIndex> = remains.disks().collect();
        for lost in remains.expendable(self.settings.redundancy()) {
            world.note(format_args!("-- a copy loses {lost}"));
            let left: Vec<DiskIndex> =
                members.iter().copied().filter(|disk| *disk != lost).collect();
            let read = self.read_copy(&left);
            read.map_err(|what| Failure::Copy { without: lost, what })?;
        }
        Ok(())
    }

    /// Reads all of a copy of the array that is made of `disks`. An error says what is wrong.
    fn read_copy(&mut self, disks: &[DiskIndex]) -> Result<(), String> {
        let copy = self.world.copy(self.random.fork());
        let options = self.settings.options();
        let process = Process::start(&copy, disks, 1, 0, (&options, &[]), 0);
        let process = process.map_err(|error| format!("the array does not start: {error}"))?;
        let mut sinks = Vec::new();
        for sector in (0..self.model.len()).step_by(READ_SECTORS as usize) {
            let sectors = READ_SECTORS.min(self.model.len() - sector);
            let sink = Rc::new(LentSink::new(sectors, &mut self.random));
            process.submit(0, sector, Request::Read { sector, into: sink.clone() });
            sinks.push((sector, sink));
        }
        let (mut answered, mut failed) = (0, None);
        let ended = copy.run_until(|| {
            while let Some((_, completion)) = process.pop() {
                answered += 1;
                let error = completion.result.err().map(|error| (completion.tag, error));
                failed = failed.take().or(error);
            }
            answered == sinks.len()
        });
        drop(process);
        copy.kill();
        match failed {
            _ if !ended => return Err("reads do not end".to_owned()),
            Some((sector, error)) => return Err(format!("a read at {sector} failed: {error}")),
            None => {}
        }
        for (first, sink) in sinks {
            for (sector, bytes) in (first..).zip(sink.take().chunks(SECTOR_BYTES)) {
                self.model.judge(sector, bytes).map_err(|violation| violation.to_string())?;
            }
        }
        Ok(())
    }
}
