//! The verbs' side of the control socket.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Hello, LINE_BYTES_MAX, PROTOCOL, Reply, Request};
use crate::args::ArrayName;
use crate::failure::Failure;
use crate::report::Report;
use crate::run_dir::RunDir;

/// How long the greeting of a process takes at most, and a report where others wait for it: one that is
/// stopped, or hangs, says nothing at all.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// A connection to the process that serves one array.
pub(crate) struct Client {
    name: ArrayName,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to a running array; a failure says whether it does not run or does not answer.
    pub(crate) fn connect(run_dir: &RunDir, name: &ArrayName) -> Result<Self, Failure> {
        Self::connect_as(run_dir, name, None)
    }

    /// As [`Client::connect`], for one who has other things to do: every answer comes within `patience`.
    pub(crate) fn connect_within(
        run_dir: &RunDir,
        name: &ArrayName,
        patience: Duration,
    ) -> Result<Self, Failure> {
        Self::connect_as(run_dir, name, Some(patience))
    }

    fn connect_as(
        run_dir: &RunDir,
        name: &ArrayName,
        patience: Option<Duration>,
    ) -> Result<Self, Failure> {
        let Ok(stream) = UnixStream::connect(run_dir.socket(name)) else {
            return Err(absent(run_dir, name));
        };
        let mut client = Self { name: name.clone(), stream: BufReader::new(stream) };
        client.wait_at_most(Some(patience.unwrap_or(ANSWERS_WITHIN).min(ANSWERS_WITHIN)))?;
        let hello: Hello = client.read()?;
        client.wait_at_most(patience)?;
        if hello.protocol != PROTOCOL {
            return Err(Failure::new(
                format!("cannot talk to the process of {name}"),
                format!("it speaks protocol {}, this command {PROTOCOL}", hello.protocol),
                format!("use the mdspace {} that started it", hello.version),
            ));
        }
        Ok(client)
    }

    fn wait_at_most(&self, patience: Option<Duration>) -> Result<(), Failure> {
        let stream = self.stream.get_ref();
        let timed = stream.set_read_timeout(patience);
        timed
            .and_then(|()| stream.set_write_timeout(patience))
            .map_err(|error| Failure::new(format!("cannot ask {}", self.name), error, "report it"))
    }

    /// Asks, and returns the reply unless it is a failure.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        let mut line = serde_json::to_string(request).expect("requests have no map keys");
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|error| self.lost(error))?;
        self.next_reply()
    }

    /// The next reply to the last request.
    pub(crate) fn next_reply(&mut self) -> Result<Reply, Failure> {
        match self.read()? {
            Reply::Failed { failure } => Err(failure),
            reply => Ok(reply),
        }
    }

    /// The array as it is now.
    pub(crate) fn report(&mut self) -> Result<Report, Failure> {
        match self.ask(&Request::Detail)? {
            Reply::Detail { report } => Ok(*report),
            other => Err(self.lost(format!("it answered {other:?} to detail"))),
        }
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        match (&mut self.stream).take(LINE_BYTES_MAX).read_line(&mut line) {
            Ok(0) => Err(self.lost("it closed the connection")),
            Ok(_) => serde_json::from_str(&line).map_err(|error| self.lost(error)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(self.silent())
            }
            Err(error) => Err(self.lost(error)),
        }
    }

    fn silent(&self) -> Failure {
        let what = format!("the process that serves {} does not answer", self.name);
        let cure = "look at it with `ps`: one that is stopped goes on with `kill -CONT`";
        Failure::of_silence(what, "it said nothing in time", cure)
    }

    fn lost(&self, why: impl ToString) -> Failure {
        Failure::new(
            format!("lost the process that serves {}", self.name),
            why,
            format!("see its log, then `mdspace detail {}`", self.name),
        )
    }
}

fn absent(run_dir: &RunDir, name: &ArrayName) -> Failure {
    let what = format!("cannot reach array {name}");
    match run_dir.is_running(name) {
        Ok(true) => Failure::new(what, "its process is starting or stopping", "try again"),
        Ok(false) => {
            let running = run_dir.running().unwrap_or_default();
            let list: Vec<_> = running.iter().map(ArrayName::as_str).collect();
            let why = if list.is_empty() {
                format!("no array runs under {}", run_dir.path().display())
            } else {
                format!("it does not run; these do: {}", list.join(" "))
            };
            Failure::new(what, why, format!("start it with `mdspace assemble {name} MEMBER...`"))
        }
        Err(error) => Failure::new(what, error, "run as the user who started the array"),
    }
}
