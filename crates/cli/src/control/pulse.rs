//! What tells clients that wait for an answer that the process still works on it.
//!
//! While a request is under way, its client gets [`Reply::Working`] every half a second. Each one is
//! proof of life: before it is sent, every lane has run what it was given. A process that is stopped sends
//! none, nor does one of whose lanes one stands still.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::Reply;
use super::server::Answer;

/// Between two signs of life; clients give up after four times as long.
pub(super) const BEAT: Duration = Duration::from_millis(500);

/// The writing end of one connection. Whole lines are written under the lock.
pub(super) type Outlet = Mutex<UnixStream>;

/// The clients that wait, and the thread that tells them.
#[derive(Default)]
pub(super) struct Pulse {
    waiting: Mutex<Vec<Arc<Outlet>>>,
    begun: Condvar,
}

/// A client waits while this lives.
pub(super) struct Waiting<'a> {
    pulse: &'a Pulse,
    outlet: &'a Arc<Outlet>,
}

impl Pulse {
    /// Starts the thread; it sleeps while nobody waits.
    pub(super) fn start(array: Arc<dyn Answer>, beat: Duration) -> io::Result<Arc<Self>> {
        let this = Arc::new(Self::default());
        let theirs = this.clone();
        thread::Builder::new()
            .name("control-pulse".into())
            .spawn(move || theirs.run(array.as_ref(), beat))?;
        Ok(this)
    }

    /// A request is under way.
    pub(super) fn begin<'a>(&'a self, outlet: &'a Arc<Outlet>) -> Waiting<'a> {
        self.waiting().push(outlet.clone());
        self.begun.notify_one();
        Waiting { pulse: self, outlet }
    }

    fn run(&self, array: &dyn Answer, beat: Duration) {
        let mut sign: Option<Arc<AtomicBool>> = None;
        loop {
            let waited = self.begun.wait_while(self.waiting(), |waiting| waiting.is_empty());
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            // One that was given before may be old. One that was not is not asked for twice.
            let asked = sign.take().filter(|given| !given.load(Ordering::Relaxed));
            let given = asked.unwrap_or_else(|| ask_for_sign(array));
            thread::sleep(beat);
            if given.load(Ordering::Relaxed) {
                let waiting = self.waiting().clone();
                waiting.iter().for_each(|outlet| say_working(outlet));
            }
            sign = Some(given);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<Outlet>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.pulse.waiting().retain(|outlet| !Arc::ptr_eq(outlet, self.outlet));
    }
}

/// Set once the array has given a sign of life.
fn ask_for_sign(array: &dyn Answer) -> Arc<AtomicBool> {
    let seen = Arc::new(AtomicBool::new(false));
    let theirs = seen.clone();
    array.sign_of_life(Box::new(move || theirs.store(true, Ordering::Relaxed)));
    seen
}

/// Never waits. A client that is being told something, or has yet to read what it was told, needs no more.
fn say_working(outlet: &Outlet) {
    let stream = match outlet.try_lock() {
        Ok(stream) => stream,
        Err(TryLockError::Poisoned(stream)) => stream.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    let mut line = serde_json::to_vec(&Reply::Working).expect("it has no map keys");
    line.push(b'\n');
    match send(&*stream, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(sent) if sent == line.len() => {}
        Err(Errno::AGAIN) => {}
        // Half a line would spoil the next one. What is gone is noticed by who answers.
        _ => drop(stream.shutdown(std::net::Shutdown::Both)),
    }
}
