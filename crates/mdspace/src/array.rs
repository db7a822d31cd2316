//! The array that a program holds.

use std::future::Future;
use std::sync::Arc;
use std::thread;

use mdspace_engine::array::{Action, Reply};
use mdspace_engine::assembly::{self, LeftOut};
use mdspace_engine::lane::LaneId;
use mdspace_engine::status::ArrayStatus;
use mdspace_format::Level;
use mdspace_io::{RunningArray, is_lane_thread};

use crate::answer::{Answer, answer, block_on, refuse_lanes};
use crate::lane::{Caught, Part};
use crate::member::Member;
use crate::opened::{HOME, Opened};
use crate::shared::Shared;
use crate::{Assemble, Create, Error};

/// A running array: its members are open for it alone, and its lanes are threads of this process.
///
/// Offsets and lengths are bytes, in multiples of [`block_bytes`](Self::block_bytes). Ranges of any length go; a long one
/// is carried out in pieces, and after an error some of it may have been done. A call takes 16 MiB of memory at most beside
/// the caller's. Nothing orders requests that are under way at the same time: of two writes to one block either may win, as
/// a whole.
///
/// A thread's blocking calls go to one lane, other threads' to the next; asynchronous calls take turns. Blocking calls are
/// refused on a lane's thread ([`Error::OnLane`]).
pub struct Array(Arc<Shared>);

impl Array {
    /// A new array of this name and level; [`Create::start`] makes it.
    pub fn create(name: impl Into<String>, level: Level) -> Create {
        Create::new(name.into(), level)
    }

    /// An array that exists; [`Assemble::start`] starts it.
    pub fn assemble(members: impl IntoIterator<Item = impl Into<Member>>) -> Assemble {
        Assemble::new().members(members)
    }

    /// An array in memory: so many members of so many bytes each. For tests of what uses an array.
    ///
    /// ```
    /// use mdspace::{Array, Level};
    ///
    /// let array = Array::in_memory(Level::Raid5, 3, 64 << 20)?;
    /// array.write_at(&[1; 4096], 0)?;
    /// array.fail("memory-0")?;
    /// let mut bytes = [0; 4096];
    /// array.read_at(&mut bytes, 0)?;
    /// assert_eq!((bytes, array.status()?.degraded()), ([1; 4096], 1));
    /// array.stop()?;
    /// # Ok::<(), mdspace::Error>(())
    /// ```
    pub fn in_memory(level: Level, members: usize, member_bytes: u64) -> Result<Self, Error> {
        let members = std::iter::repeat_with(|| Member::memory(member_bytes)).take(members);
        Self::create("memory", level).members(members).assume_clean(true).start()
    }

    /// Takes over an array that has just been started.
    pub(crate) fn started(
        opened: Opened,
        running: RunningArray,
        left_out: Vec<LeftOut>,
    ) -> Result<Self, Error> {
        Ok(Self(Arc::new(Shared::started(opened, running, left_out)?)))
    }

    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        self.0.bounds.size_bytes
    }

    /// What every offset and length is a multiple of: 512, or 4096 where a member has such blocks.
    pub fn block_bytes(&self) -> u32 {
        self.0.bounds.block_bytes
    }

    /// How many lanes serve it.
    pub fn lane_count(&self) -> usize {
        self.0.lane_count
    }

    /// Members that were given at the start and take no part, and why.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.0.left_out
    }

    /// Fills `bytes` from `offset_bytes` on.
    pub fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> Result<(), Error> {
        refuse_lanes()?;
        block_on(self.0.read(self.0.lane_of_thread(), offset_bytes, bytes))
    }

    /// Writes `bytes` from `offset_bytes` on. It is durable after a [`flush`](Self::flush).
    pub fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<(), Error> {
        refuse_lanes()?;
        block_on(self.0.write(self.0.lane_of_thread(), offset_bytes, bytes))
    }

    /// Makes every write durable that was answered before, to whichever thread.
    pub fn flush(&self) -> Result<(), Error> {
        refuse_lanes()?;
        block_on(self.0.flush(self.0.lane_of_thread()))
    }

    /// Makes a range read as zeroes.
    pub fn write_zeroes(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), Error> {
        refuse_lanes()?;
        block_on(self.0.write_zeroes(self.0.lane_of_thread(), offset_bytes, len_bytes))
    }

    /// Gives a range up: members may give back the space behind it, and what it reads as is not said. Where the level or
    /// a member cannot, nothing happens.
    pub fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), Error> {
        refuse_lanes()?;
        block_on(self.0.discard(self.0.lane_of_thread(), offset_bytes, len_bytes))
    }

    /// As [`read_at`](Self::read_at), for any executor. Nothing is done before the first poll.
    ///
    /// ```
    /// # use mdspace::{Array, Error};
    /// async fn copy_block(array: &Array, from: u64, to: u64) -> Result<(), Error> {
    ///     let block = array.read_async(from, 4096).await?;
    ///     array.write_async(to, block).await?;
    ///     array.flush_async().await
    /// }
    /// ```
    pub fn read_async(
        &self,
        offset_bytes: u64,
        len_bytes: usize,
    ) -> impl Future<Output = Result<Vec<u8>, Error>> + Send + use<> {
        let (shared, lane) = (self.0.clone(), self.0.next_lane());
        async move {
            // Before there is memory for it.
            shared.check(offset_bytes, len_bytes as u64)?;
            let mut bytes = vec![0; len_bytes];
            shared.read(lane, offset_bytes, &mut bytes).await?;
            Ok(bytes)
        }
    }

    /// As [`write_at`](Self::write_at), for any executor. What was begun when the future is dropped is still done.
    pub fn write_async<B: AsRef<[u8]> + Send + Sync + 'static>(
        &self,
        offset_bytes: u64,
        bytes: B,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<B> {
        let (shared, lane) = (self.0.clone(), self.0.next_lane());
        async move { shared.write(lane, offset_bytes, bytes.as_ref()).await }
    }

    /// As [`flush`](Self::flush), for any executor.
    pub fn flush_async(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (shared, lane) = (self.0.clone(), self.0.next_lane());
        async move { shared.flush(lane).await }
    }

    /// As [`write_zeroes`](Self::write_zeroes), for any executor.
    pub fn write_zeroes_async(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (shared, lane) = (self.0.clone(), self.0.next_lane());
        async move { shared.write_zeroes(lane, offset_bytes, len_bytes).await }
    }

    /// As [`discard`](Self::discard), for any executor.
    pub fn discard_async(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (shared, lane) = (self.0.clone(), self.0.next_lane());
        async move { shared.discard(lane, offset_bytes, len_bytes).await }
    }

    /// Runs a task on a lane, counted from 0, where requests need no other thread. It begins at once, and must not block.
    /// Once the array has ended, its requests are refused: a task that does not end then is waited for 10 seconds.
    ///
    /// ```
    /// # use mdspace::{Array, Level};
    /// let array = Array::in_memory(Level::Raid1, 2, 64 << 20)?;
    /// let sum = array.on_lane(0, async |part| {
    ///     part.write(0, &[1; 4096]).await?;
    ///     let bytes = part.read(0, 4096).await?;
    ///     Ok::<u64, mdspace::Error>(bytes.iter().map(|byte| u64::from(*byte)).sum())
    /// });
    /// assert_eq!(sum.wait()??, 4096);
    /// array.stop()?;
    /// # Ok::<(), mdspace::Error>(())
    /// ```
    pub fn on_lane<T, F, Task>(&self, lane: usize, task: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(Part) -> Task + Send + 'static,
        Task: Future<Output = T> + 'static,
    {
        let (reply, answer) = answer();
        if lane >= self.0.lane_count {
            reply.give(Err(Error::Asked {
                why: format!("there is no lane {lane}"),
                cure: format!("give one below {}", self.0.lane_count),
            }));
            return answer;
        }
        let bounds = self.0.bounds;
        self.0.with_running(|running| {
            running.run_on(LaneId(lane as u16), move |part, lane, io| {
                let part = Part::new(part, lane, io, bounds);
                let task = Caught::begin(|| task(part));
                lane.spawn(async move { reply.give(task.await) });
            });
        });
        answer
    }

    /// What the array is and does now.
    pub fn status(&self) -> Result<ArrayStatus, Error> {
        match self.0.order(Action::Status)? {
            Reply::Status(status) => Ok(*status),
            other => unreachable!("status is asked for, and the answer is {other:?}"),
        }
    }

    /// Takes a member for failed, as far as the level bears that. Members are named as [`status`](Self::status) has them.
    pub fn fail(&self, member: &str) -> Result<(), Error> {
        let member = self.0.find(member)?;
        self.0.order(Action::Fail { member, force: false }).map(drop)
    }

    /// Forgets a failed member or a spare, and closes it.
    pub fn remove(&self, member: &str) -> Result<(), Error> {
        let member = self.0.find(member)?;
        self.0.order(Action::Remove { member })?;
        self.0.with_opened(|opened| opened.close(member));
        Ok(())
    }

    /// Takes in a member: one that was in the array goes back by the bitmap where that is safe, any other becomes a spare,
    /// and is rebuilt where a slot is empty. As with [`Create::start`], one that holds anything else is refused.
    pub fn add(&self, member: impl Into<Member>) -> Result<(), Error> {
        let (member, uuid) = (member.into(), self.status()?.uuid);
        if member.is_missing() {
            return Err(Error::Asked {
                why: "a missing member cannot be added".into(),
                cure: "give a member that is there".into(),
            });
        }
        let (id, info) = self.0.with_opened(|opened| {
            let (id, info) = opened.open(&member, false)?;
            let device = (id, info.clone());
            let is_of_it = opened.lanes()?.call(HOME, async move |lane, _| {
                let (candidates, _) = assembly::read_all(&lane, vec![device], Some(uuid)).await;
                candidates.iter().any(|member| member.superblock.set_uuid == uuid)
            });
            let checked = if is_of_it { Ok(()) } else { opened.refuse_full(id, &info) };
            checked.inspect_err(|_| opened.close(id)).map(|()| (id, info))
        })?;
        let added = self.0.order(Action::Add { member: id, info, only_back: false });
        added.map(drop).inspect_err(|_| self.0.with_opened(|opened| opened.close(id)))
    }

    /// Sets one of md's keys for a running array, as `mdspace set` does: `sync_speed_max`, `stripe_cache_size`, and others.
    pub fn set(&self, key: &str, value: &str) -> Result<(), Error> {
        refuse_lanes()?;
        let set = self.0.with_running(|running| running.set(key, value));
        set.ok_or(Error::Stopped)?.map_err(|error| Error::Setting(error.to_string()))
    }

    /// Those keys, with their values.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        self.0.with_running(RunningArray::setting_values).unwrap_or_default()
    }

    /// Uses the array as crates below this one have it, as the servers of `mdspace-front` do. None: it has ended. `work` must
    /// not stop or drop this value, nor call it: it would wait for itself.
    pub fn with_running<T>(&self, work: impl FnOnce(&RunningArray) -> T) -> Option<T> {
        self.0.with_running(work)
    }

    /// Waits for what is under way, makes everything durable, marks the members clean and closes them. It waits for a member
    /// that does not answer as long as its deadlines are. Requests after that are refused ([`Error::Stopped`]); an array
    /// that has ended is stopped once more without doing anything.
    pub fn stop(&self) -> Result<(), Error> {
        self.0.end(Action::Stop).map(drop)
    }

    /// As [`stop`](Self::stop), but within seconds: where members have not answered by then the array ends as in a crash,
    /// and their names are given.
    pub fn stop_by_force(&self) -> Result<Vec<String>, Error> {
        self.0.end(Action::StopByForce)
    }
}

impl Drop for Array {
    /// Ends an array that was not stopped as a crash would, after a second at most.
    fn drop(&mut self) {
        if self.0.refuse_ended().is_err() {
            return;
        }
        let members = self.0.with_opened(|opened| opened.names().join(", "));
        tracing::warn!(
            "the array of {members} was dropped without a stop: its members stay marked as in use, and the next assembly \
             resyncs what the bitmap marks"
        );
        let shared = self.0.clone();
        let end = move || {
            if let Err(error) = shared.end(Action::Abandon) {
                tracing::error!("an array that was dropped has not ended: {error}");
            }
        };
        // A lane's thread would wait for itself.
        match is_lane_thread() {
            false => end(),
            true => drop(thread::Builder::new().name("mdspace-drop".into()).spawn(end)),
        }
    }
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Array({} bytes)", self.size_bytes())
    }
}
