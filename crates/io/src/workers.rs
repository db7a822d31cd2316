//! The worker lanes of one array: threads without a front end, as many as `group_thread_cnt` asks for
//! on each NUMA node and as the node has CPUs.

#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mdspace_engine::array::settings::SettingError;
use mdspace_engine::array::{Array, ArrayLane};
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::sync::Mutex;

use crate::lanes::{Lanes, StartError, WorkerThread, cpu_list};
use crate::member::NotConnected;

/// How long a worker that leaves is waited for before another one may start in its place. It ends what it
/// has, and stays as long as a member owes it an answer: for ever, where that one hangs.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);

/// The key that says how many workers each node has.
pub(crate) const GROUP_THREAD_CNT: &str = "group_thread_cnt";

/// The key whose value is a list of CPUs.
pub(crate) const WORKER_CPUS: &str = "worker_cpus";

/// Why a key was not set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The engine does not take it.
    #[error(transparent)]
    Refused(#[from] SettingError),
    /// Not a list of CPUs of this process.
    #[error("worker_cpus takes a list of CPUs among {allowed}, or all, not {value:?}")]
    Cpus {
        /// As given.
        value: String,
        /// The kernel's notation of what it takes.
        allowed: String,
    },
    /// Workers are missing: the system refused them.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// How many worker threads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Asked for on each NUMA node: `group_thread_cnt`.
    pub asked: usize,
    /// Running on all nodes.
    pub running: usize,
}

#[derive(Default)]
pub(crate) struct Workers {
    /// Held by whoever changes how many there are, and waits for those that leave.
    changing: Mutex<()>,
    /// Held for moments.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where they may run; nothing for all CPUs.
    cpus: Option<Vec<usize>>,
    serving: Vec<Arc<Worker>>,
    leaving: Vec<Leaving>,
}

/// A worker that was dismissed. Its thread ends when it has left the array.
#[derive(Clone)]
struct Leaving {
    worker: Arc<Worker>,
    /// Until then none starts in its place.
    awaited_until: Instant,
}

struct Worker {
    id: LaneId,
    node: usize,
    thread: WorkerThread,
}

impl Workers {
    /// Lanes that an array may have, workers among them.
    pub(crate) fn seats(lanes: &Lanes) -> usize {
        lanes.count() + lanes.topology().cpu_count()
    }

    /// Makes as many workers run as the array's settings ask for.
    pub(crate) fn adjust(&self, lanes: &Lanes, array: &Arc<Array>) -> Result<(), StartError> {
        let _changing = self.changing.lock();
        self.fit(lanes, array)
    }

    fn fit(&self, lanes: &Lanes, array: &Arc<Array>) -> Result<(), StartError> {
        let asked = array.workers_asked();
        let groups: Vec<_> = self.state.lock().groups(lanes).collect();
        for (node, cpus) in groups.iter().enumerate() {
            self.state.lock().shrink(array, node, asked.min(cpus.len()));
        }
        self.wait_for_leaving(|leaving| leaving.awaited_until);
        self.hire(lanes, array)
    }

    /// Hires on each node until so many serve there as are asked for. Each has its connections to the members before it
    /// serves: one of which a connection does not come is not hired, and none when the array has ended.
    fn hire(&self, lanes: &Lanes, array: &Arc<Array>) -> Result<(), StartError> {
        let asked = array.workers_asked();
        let groups: Vec<_> = self.state.lock().groups(lanes).collect();
        for (node, cpus) in groups.into_iter().enumerate() {
            while self.state.lock().serving_on(node) < asked.min(cpus.len()) {
                if array.has_ended() {
                    return Err(NotConnected::Ended.into());
                }
                // All seats are taken only while others cannot leave.
                let Some(id) = self.state.lock().free_seat(lanes) else { return Ok(()) };
                let theirs = array.clone();
                let work = move |lane: &Rc<Lane>| ArrayLane::attach_on(&theirs, lane, node).work();
                // Servers are waited for here: the state is not held.
                let thread = lanes.start_worker(array, id, node, cpus.clone(), work)?;
                self.state.lock().serving.push(Arc::new(Worker { id, node, thread }));
            }
        }
        Ok(())
    }

    /// Moves the workers to other CPUs: `all`, or a list in the kernel's notation. Nothing changes where one is missing then
    /// that cannot be hired.
    pub(crate) fn set_cpus(
        &self,
        value: &str,
        lanes: &Lanes,
        array: &Arc<Array>,
    ) -> Result<(), SetError> {
        let cpus = match value.trim() {
            "all" => None,
            list => Some(allowed_list(list, lanes).ok_or_else(|| SetError::Cpus {
                value: value.to_owned(),
                allowed: show(lanes.topology().nodes.iter().flatten().copied().collect()),
            })?),
        };
        let _changing = self.changing.lock();
        let old = std::mem::replace(&mut self.state.lock().cpus, cpus);
        let served = self.state.lock().serving.clone();
        if let Err(missing) = self.hire(lanes, array) {
            let mut state = self.state.lock();
            state.cpus = old;
            state.dismiss_all_but(&served, array);
            return Err(missing.into());
        }
        self.fit(lanes, array)?;
        self.move_to_their_cpus(lanes);
        Ok(())
    }

    /// Those that serve need nothing new for that.
    fn move_to_their_cpus(&self, lanes: &Lanes) {
        let state = self.state.lock();
        let (groups, serving) = (state.groups(lanes).collect::<Vec<_>>(), state.serving.clone());
        drop(state);
        for worker in serving {
            worker.thread.move_to(groups[worker.node].clone());
        }
    }

    /// Where workers may run.
    pub(crate) fn cpus(&self) -> String {
        self.state.lock().cpus.clone().map_or_else(|| "all".to_owned(), show)
    }

    pub(crate) fn counts(&self, array: &Array) -> WorkerCounts {
        let running = self.state.lock().serving.len();
        WorkerCounts { asked: array.workers_asked(), running }
    }

    /// Asks the lane of every worker, also of those that are leaving.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&Lane) -> T + Clone + Send + 'static,
    ) -> Vec<(LaneId, T)> {
        let workers: Vec<_> = self.state.lock().all().cloned().collect();
        let answer = |worker: &Arc<Worker>| {
            let question = question.clone();
            Some((worker.id, worker.thread.call(move |lane, _| question(lane))?))
        };
        workers.iter().filter_map(answer).collect()
    }

    /// Ends all workers. Says whether they have ended in time; else they are left to themselves.
    pub(crate) fn end(&self, array: &Array, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let _changing = self.changing.lock();
        self.state.lock().dismiss_all_but(&[], array);
        self.wait_for_leaving(|_| until);
        self.state.lock().leaving.is_empty()
    }

    /// Waits for each worker that leaves until then at most, and forgets those whose threads have ended.
    fn wait_for_leaving(&self, until: impl Fn(&Leaving) -> Instant) {
        let mut ended = self.state.lock().leaving.clone();
        ended.retain(|one| {
            let patience = until(one).saturating_duration_since(Instant::now());
            one.worker.thread.has_ended(patience)
        });
        let is_there =
            |one: &Leaving| ended.iter().all(|ended| !Arc::ptr_eq(&ended.worker, &one.worker));
        self.state.lock().leaving.retain(is_there);
    }
}

/// A list of CPUs that this process may use; nothing for any other text.
fn allowed_list(list: &str, lanes: &Lanes) -> Option<Vec<usize>> {
    let mut cpus = cpu_list(list).filter(|cpus| !cpus.is_empty())?;
    cpus.sort_unstable();
    cpus.dedup();
    let known = |&cpu: &usize| lanes.topology().node_of(cpu).is_some();
    cpus.iter().all(known).then_some(cpus)
}

/// CPUs in the kernel's notation.
fn show(mut cpus: Vec<usize>) -> String {
    cpus.sort_unstable();
    let runs = cpus.chunk_by(|one, next| one + 1 == *next);
    let shown = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    shown.collect::<Vec<_>>().join(",")
}

impl State {
    /// The CPUs for workers of each node.
    fn groups(&self, lanes: &Lanes) -> impl Iterator<Item = Vec<usize>> {
        let wanted = |cpu: &usize| self.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
        let nodes = lanes.topology().nodes.iter();
        nodes.map(move |node| node.iter().copied().filter(wanted).collect())
    }

    fn serving_on(&self, node: usize) -> usize {
        self.serving.iter().filter(|worker| worker.node == node).count()
    }

    fn shrink(&mut self, array: &Array, node: usize, wanted: usize) {
        while self.serving_on(node) > wanted {
            let last = self.serving.iter().rposition(|worker| worker.node == node);
            let worker = self.serving.remove(last.expect("one was counted"));
            self.leaving.push(Leaving::dismiss(worker, array));
        }
    }

    fn dismiss_all_but(&mut self, kept: &[Arc<Worker>], array: &Array) {
        let is_kept = |worker: &mut Arc<Worker>| kept.iter().any(|kept| Arc::ptr_eq(kept, worker));
        let all = self.serving.extract_if(.., |worker| !is_kept(worker));
        self.leaving.extend(all.map(|worker| Leaving::dismiss(worker, array)));
    }

    /// Those that serve, and those that are leaving.
    fn all(&self) -> impl Iterator<Item = &Arc<Worker>> {
        self.serving.iter().chain(self.leaving.iter().map(|leaving| &leaving.worker))
    }

    fn free_seat(&self, lanes: &Lanes) -> Option<LaneId> {
        let mut seats = (lanes.count()..Workers::seats(lanes))
            .map(|seat| LaneId(u16::try_from(seat).expect("fewer than 65536 lanes")));
        seats.find(|id| self.all().all(|worker| worker.id != *id))
    }
}

impl Leaving {
    fn dismiss(worker: Arc<Worker>, array: &Array) -> Self {
        array.dismiss(worker.id);
        Self { worker, awaited_until: Instant::now() + LEAVE_PATIENCE }
    }
}
