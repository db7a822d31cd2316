//! The broker of an address that several arrays share: a second process, which their processes find, or start.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::thread;

use mdspace_front::address::{Address, Endpoint, Socket};
use mdspace_front::nbd::{Broker, SharedAddress};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

use super::front::{cannot_serve, refused};
use crate::failure::Failure;
use crate::process::launch::{self, Readiness};
use crate::process::{log, state_dir};
use crate::run_dir::RunDir;

/// The hidden verb under which it starts.
const BROKER_VERB: &str = "__broker";

/// What a broker is started with.
#[derive(Clone)]
struct Start {
    address: Address,
    /// Where processes find it.
    rendezvous: PathBuf,
    log: PathBuf,
}

/// A shared address, with a broker that runs.
pub(super) fn find(address: &Address, run_dir: &RunDir) -> Result<SharedAddress, Failure> {
    let start = Start::new(address, run_dir);
    let connected = start.connect()?;
    let dial = move || start.connect().map_err(|failure| io::Error::other(failure.to_string()));
    SharedAddress::new(address.clone(), connected, Box::new(dial))
        .map_err(|why| Failure::new(cannot_serve(address), why, "try again"))
}

impl Start {
    fn new(address: &Address, run_dir: &RunDir) -> Self {
        let place = match &address.endpoint {
            Endpoint::Nbd(Socket::Tcp { host, port, .. }) => {
                let host = host.as_deref().unwrap_or("localhost").replace('/', "_");
                format!("{host}-{port}")
            }
            endpoint => endpoint.unix_path().map_or_else(String::new, |path| {
                path.to_string_lossy().trim_start_matches('/').replace('/', "_")
            }),
        };
        // No array has a name with such a character.
        let file = |ending: &str| format!("broker@{place}.{ending}");
        let rendezvous = match address.endpoint.unix_path() {
            Some(path) => path.with_added_extension("broker"),
            None => run_dir.path().join(file("sock")),
        };
        let log = state_dir::state_dir(run_dir.path()).join(file("log"));
        Self { address: address.clone(), rendezvous, log }
    }

    /// Connects to the broker, which is started where there is none.
    fn connect(&self) -> Result<UnixStream, Failure> {
        let connect = || UnixStream::connect(&self.rendezvous);
        connect().or_else(|_| {
            let started = self.start();
            // Another process may have started one at the same time.
            connect().map_err(|error| {
                let cure = format!("read {}, and report it", self.log.display());
                started.err().unwrap_or_else(|| Failure::new(self.what(), error, cure))
            })
        })
    }

    fn start(&self) -> Result<(), Failure> {
        let cannot = |error: io::Error| {
            let why = format!("no process can be started for it: {error}");
            Failure::new(self.what(), why, "see `ulimit -u`")
        };
        let mut command = launch::second_process(BROKER_VERB);
        command.arg(self.address.to_string()).args([&self.rendezvous, &self.log]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(cannot)?;
        let said = child.stdout.take().expect("its output is piped");
        let line = launch::first_line(said, child.id()).map_err(cannot)?;
        // It may outlive this process, or end before.
        let wait = move || drop(child.wait());
        thread::Builder::new().name("broker".into()).spawn(wait).map_err(cannot)?;
        match line.as_deref().map(serde_json::from_str) {
            Some(Ok(Readiness::Ready { .. })) => Ok(()),
            Some(Ok(Readiness::Failed { failure })) => Err(failure),
            _ => Err(cannot(io::Error::other("it ended, or was stopped, without a word"))),
        }
    }

    fn what(&self) -> String {
        cannot_serve(&self.address)
    }
}

/// The second process: works until the last array has gone.
pub(crate) fn run(address: &Address, rendezvous: &Path, log: PathBuf) -> ExitCode {
    // Who hangs up a terminal means no array of another one.
    let _signals = Signals::new([SIGHUP]);
    let _log = log::to_path(log);
    let bound = Broker::bind(address, rendezvous);
    let readiness = match &bound {
        Ok(_) => Readiness::Ready { notes: Vec::new(), refused: Vec::new() },
        Err(error) => Readiness::Failed { failure: refused(address, error) },
    };
    let told = launch::say(&readiness).and_then(|()| launch::settle_down());
    match (bound, told) {
        (Ok(broker), Ok(())) => {
            broker.run();
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    }
}
