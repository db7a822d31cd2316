//! The verbs' side of the control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Hello, LINE_BYTES_MAX, PROTOCOL, Reply, Request};
use crate::args::ArrayName;
use crate::failure::Failure;
use crate::report::Report;
use crate::run_dir::RunDir;

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
        let timed = stream.set_read_timeout(patience);
        timed
            .and_then(|()| stream.set_write_timeout(patience))
            .map_err(|error| Failure::new(format!("cannot ask {name}"), error, "report it"))?;
        let mut client = Self { name: name.clone(), stream: BufReader::new(stream) };
        let hello: Hello = client.read()?;
        if hello.protocol != PROTOCOL {
            return Err(Failure::new(
                format!("cannot talk to the process of {name}"),
                format!("it speaks protocol {}, this command {PROTOCOL}", hello.protocol),
                format!("use the mdspace {} that started it", hello.version),
            ));
        }
        Ok(client)
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
            Err(error) => Err(self.lost(error)),
        }
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
