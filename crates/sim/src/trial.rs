//! One run to its end, whatever the end is.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};

use crate::settings::Settings;
use crate::simulation::{Failure, Outcome, Simulation};
use crate::trace::Trace;

/// How a run ended.
#[derive(Debug)]
pub struct Trial {
    /// What it was, or why it failed.
    pub result: Result<Outcome, Reason>,
    /// Steps of its world.
    pub steps: u64,
}

/// Why a run failed.
#[derive(Clone, Debug)]
pub struct Reason {
    /// What two failures have in common that are of one kind: no numbers.
    pub kind: String,
    /// What happened.
    pub words: String,
    /// What the disks hold of the sector that it is about, a line each.
    pub disks: Vec<String>,
}

thread_local! {
    static PANICKED_AT: RefCell<String> = RefCell::default();
}

/// Has panics say where they were when their run has ended, and nothing before. A program that runs many
/// seeds prints each failure once.
pub fn keep_panics() {
    panic::set_hook(Box::new(|panic| {
        let at = panic.location().map_or(String::new(), |at| format!(", at {at}"));
        PANICKED_AT.set(at);
    }));
}

/// Runs a seed that ends after `most_steps` at the latest, if that is given. `watch`: a disk and a sector of which
/// the trace tells more.
pub fn run(
    settings: Settings,
    trace: Trace,
    watch: Option<(u16, u64)>,
    most_steps: Option<u64>,
) -> Trial {
    let mut begun = None;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let simulation = begun.insert(Simulation::new(settings, trace)?);
        if let Some((disk, sector)) = watch {
            simulation.watch(disk, sector);
        }
        most_steps.into_iter().for_each(|most| simulation.limit_steps(most));
        simulation.run_to_the_end()
    }));
    let steps = begun.as_ref().map_or(0, |simulation| simulation.world().steps());
    let result = ended.map_or_else(
        |panic| Err(Reason::of_panic(&*panic)),
        |ended| ended.map_err(|failure| Reason::new(&failure, begun.as_ref())),
    );
    if let (Err(_), Some(simulation)) = (&result, begun) {
        // Lanes and their world hold each other until it ends. After a panic what it holds may be in the middle of
        // a change: then it stays.
        let world = simulation.world().clone();
        let _ = catch_unwind(AssertUnwindSafe(move || {
            drop(simulation);
            world.kill();
        }));
    }
    Trial { result, steps }
}

impl Reason {
    fn new(failure: &Failure, simulation: Option<&Simulation>) -> Self {
        Self {
            kind: failure.kind(),
            words: failure.to_string(),
            disks: simulation.map_or(Vec::new(), |simulation| simulation.tell(failure)),
        }
    }

    fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let words = panic_words(panic);
        let kind = words.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        let words = format!("panic: {words}{}", PANICKED_AT.take());
        Self { kind, words, disks: Vec::new() }
    }
}

fn panic_words(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
}
