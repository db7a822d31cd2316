//! An array that exists already.

use mdspace_engine::assembly::{LeftOut, Options, Reason};
use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_format::Uuid;
use mdspace_io::{AssembleError, OpenError, RunningArray};

use crate::member::Member;
use crate::opened::Opened;
use crate::{Array, Error};

/// How an existing array is to be started. It was made here, by the program `mdspace`, or by mdadm.
#[derive(Clone, Debug)]
#[must_use = "nothing is done before start"]
pub struct Assemble {
    members: Vec<Member>,
    uuid: Option<Uuid>,
    read_only: bool,
    allow_degraded: bool,
    force: bool,
    lanes: usize,
}

impl Assemble {
    pub(crate) fn new() -> Self {
        Self {
            members: Vec::new(),
            uuid: None,
            read_only: false,
            allow_degraded: false,
            force: false,
            lanes: 1,
        }
    }

    /// Adds a member. Their order does not matter.
    pub fn member(mut self, member: impl Into<Member>) -> Self {
        self.members.push(member.into());
        self
    }

    /// Adds members. Their order does not matter.
    pub fn members(mut self, members: impl IntoIterator<Item = impl Into<Member>>) -> Self {
        self.members.extend(members.into_iter().map(Into::into));
        self
    }

    /// Takes members of this array alone, and leaves out what else is given.
    pub fn uuid(mut self, uuid: Uuid) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// Refuses writes, and writes nothing to the members: no superblock, no resync.
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// Starts although members are missing that were there when the array last ran, or cannot be opened, as far as the
    /// level bears that. [`Array::left_out`] names those that were given.
    pub fn allow_degraded(mut self, yes: bool) -> Self {
        self.allow_degraded = yes;
        self
    }

    /// Starts a dirty array with members missing, too, and takes its parity as it is: what was being written at the crash
    /// may come out wrong, also where it was not written itself. Where the array starts without, this changes nothing.
    pub fn force(mut self, yes: bool) -> Self {
        self.force = yes;
        self
    }

    /// How many threads serve it; one by default.
    pub fn lanes(mut self, count: usize) -> Self {
        self.lanes = count;
        self
    }

    /// Opens the members, and starts the array. Blocks.
    pub fn start(self) -> Result<Array, Error> {
        let opened = Opened::start(self.lanes)?;
        let (mut devices, mut left_out) = (Vec::new(), Vec::new());
        for member in &self.members {
            if member.is_missing() {
                continue;
            }
            match opened.open(member, self.read_only) {
                Ok(device) => devices.push(device),
                Err(Error::Open(error)) if self.allow_degraded && is_away(&error) => {
                    let reason = Reason::Unreadable(format!("cannot be opened: {error}"));
                    left_out.push(LeftOut { member: member.name()?, reason });
                }
                Err(error) => return Err(error),
            }
        }
        self.assemble(opened, devices, left_out)
    }

    /// Starts an array of open members. `left_out` are those that are not open.
    pub(crate) fn assemble(
        &self,
        opened: Opened,
        devices: Vec<(MemberId, MemberInfo)>,
        mut left_out: Vec<LeftOut>,
    ) -> Result<Array, Error> {
        let careful = Options {
            run: self.allow_degraded || self.force,
            read_only: self.read_only,
            uuid: self.uuid,
            ..Options::default()
        };
        let forced = Options { force: true, ..careful.clone() };
        let lanes = opened.lanes()?;
        let run = |options| RunningArray::assemble(lanes.clone(), devices.clone(), options);
        let running = match run(careful) {
            Err(AssembleError { refusal, .. }) if self.force && refusal.yields_to_force() => {
                tracing::warn!("{refusal}: started all the same");
                run(forced)
            }
            result => result,
        };
        let running = running.map_err(|AssembleError { refusal, left_out: these }| {
            left_out.extend(these);
            Error::Refused { refusal, left_out: std::mem::take(&mut left_out) }
        })?;
        for out in running.left_out() {
            opened.find(&out.member).into_iter().for_each(|id| opened.close(id));
            left_out.push(out.clone());
        }
        Array::started(opened, running, left_out)
    }
}

/// Whether a member is as good as missing: not one that somebody else uses.
fn is_away(error: &OpenError) -> bool {
    matches!(error, OpenError::System { .. })
}
