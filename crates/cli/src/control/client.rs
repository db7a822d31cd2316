//! The verbs' side of the control socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};
use serde::de::DeserializeOwned;

use super::{Hello, LINE_BYTES_MAX, PROTOCOL, Reply, Request};
use crate::args::ArrayName;
use crate::failure::{Code, Failure};
use crate::report::{Report, ServedReport};
use crate::run_dir::{RunDir, Running};

/// How long a process may say nothing at all, be it that it still works on an answer. Then it is stopped,
/// or hangs. Also how long a report takes at most where others wait for it.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// How long a process may take from its last word to its end: the system takes back its memory first.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// A connection to the process that serves one array.
pub(crate) struct Client {
    name: ArrayName,
    stream: BufReader<UnixStream>,
    /// How long it may say nothing.
    silence_max: Duration,
    /// How long each answer may take, whatever is said meanwhile.
    patience: Option<Duration>,
}

/// What each of these processes serves. All are asked at once: several that do not answer take no longer than one.
pub(crate) fn ask_all(running: &[Running]) -> Vec<Result<ServedReport, Failure>> {
    let ask = |Running { run_dir, name }: &Running| {
        let client = Client::connect_within(run_dir, name, ANSWERS_WITHIN);
        client.and_then(|mut client| client.served())
    };
    thread::scope(|scope| {
        let asking: Vec<_> = running.iter().map(|it| scope.spawn(move || ask(it))).collect();
        asking.into_iter().map(|asked| asked.join().expect("asking does not panic")).collect()
    })
}

impl Client {
    /// Connects to a running array; a failure says whether it does not run or does not answer.
    pub(crate) fn connect(run_dir: &RunDir, name: &ArrayName) -> Result<Self, Failure> {
        Self::connect_as(run_dir, name, ANSWERS_WITHIN, None)
    }

    /// As [`Client::connect`], for one who has other things to do: every answer comes within `patience`.
    pub(crate) fn connect_within(
        run_dir: &RunDir,
        name: &ArrayName,
        patience: Duration,
    ) -> Result<Self, Failure> {
        Self::connect_as(run_dir, name, patience.min(ANSWERS_WITHIN), Some(patience))
    }

    pub(super) fn connect_as(
        run_dir: &RunDir,
        name: &ArrayName,
        silence_max: Duration,
        patience: Option<Duration>,
    ) -> Result<Self, Failure> {
        let stream = match connected(&run_dir.socket(name), silence_max) {
            Ok(stream) => BufReader::new(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(silence(name, None, silence_max));
            }
            Err(_) => return Err(absent(run_dir, name)),
        };
        let mut client = Self { name: name.clone(), stream, silence_max, patience };
        let hello: Hello = client.read(Instant::now() + silence_max).map_err(|failure| {
            // It may have been ending when we came.
            let ended = || run_dir.wait_until_gone(name, silence_max).unwrap_or(false);
            match !failure.is_of_silence() && ended() {
                true => absent(run_dir, name),
                false => failure,
            }
        })?;
        if hello.protocol != PROTOCOL {
            return Err(Failure::new(
                format!("cannot talk to the process of {name}"),
                format!("it speaks protocol {}, this command {PROTOCOL}", hello.protocol),
                format!("use the mdspace {} that started it", hello.version),
            )
            .with_code(Code::OtherVersion));
        }
        Ok(client)
    }

    /// The number of the process, if the system tells it.
    pub(crate) fn pid(&self) -> Option<i32> {
        socket_peercred(self.stream.get_ref()).ok().map(|peer| peer.pid.as_raw_pid())
    }

    /// Whether the process has closed the connection, as it does at its end.
    pub(crate) fn is_cut_off(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(self.stream.get_ref(), &mut [0_u8; 1], flags) {
            Ok((_, bytes)) => bytes == 0,
            Err(error) => error != Errno::AGAIN,
        }
    }

    /// Asks, and returns the reply unless it is a failure.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        let mut line = serde_json::to_string(request).expect("requests have no map keys");
        line.push('\n');
        match self.stream.get_mut().write_all(line.as_bytes()) {
            Ok(()) => self.next_reply(),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The next reply to the last request.
    pub(crate) fn next_reply(&mut self) -> Result<Reply, Failure> {
        let until = self.patience.map(|patience| Instant::now() + patience);
        let mut at_work = false;
        loop {
            let silent = Instant::now() + self.silence_max;
            let ends_first = until.filter(|until| *until <= silent);
            match self.read(ends_first.unwrap_or(silent)) {
                Ok(Reply::Working) if until.is_some_and(|until| Instant::now() >= until) => {
                    return Err(self.busy());
                }
                Ok(Reply::Working) => at_work = true,
                Ok(Reply::Failed { failure }) => return Err(failure),
                Err(failure) if failure.is_of_silence() && at_work && ends_first.is_some() => {
                    return Err(self.busy());
                }
                answer => return answer,
            }
        }
    }

    /// The array as it is now.
    pub(crate) fn report(&mut self) -> Result<Report, Failure> {
        match self.served()? {
            ServedReport::Array(report) => Ok(*report),
            ServedReport::Device(_) => Err(no_array(&self.name)),
        }
    }

    /// What the process serves, as it is now.
    pub(crate) fn served(&mut self) -> Result<ServedReport, Failure> {
        self.served_with(false)
    }

    /// The same. Who uses a device and shows nowhere is found where it `claims` that for a moment.
    pub(crate) fn served_with(&mut self, claims: bool) -> Result<ServedReport, Failure> {
        match self.ask(&Request::Detail { claims })? {
            Reply::Detail { report } => Ok(ServedReport::Array(report)),
            Reply::Device { report } => Ok(ServedReport::Device(report)),
            _ => Err(self.strange_answer()),
        }
    }

    /// It answered something else than it was asked for.
    pub(crate) fn strange_answer(&self) -> Failure {
        Failure::new(
            format!("the process that serves {} answers something else", self.name),
            "it is another mdspace than this command",
            "use the mdspace that started it",
        )
        .with_code(Code::OtherVersion)
    }

    fn read<T: DeserializeOwned>(&mut self, until: Instant) -> Result<T, Failure> {
        // Zero would mean for ever.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut line = String::new();
        let timed = self.stream.get_ref().set_read_timeout(Some(left));
        match timed.and_then(|()| (&mut self.stream).take(LINE_BYTES_MAX).read_line(&mut line)) {
            Ok(0) => Err(self.lost("it closed the connection")),
            Ok(_) => serde_json::from_str(&line).map_err(|error| self.lost(error)),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: io::Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                silence(&self.name, self.pid(), self.silence_max)
            }
            _ => self.lost(error),
        }
    }

    /// It said that it is at work for as long as it was waited for.
    fn busy(&self) -> Failure {
        let what = format!("the process that serves {} does not answer", self.name);
        let seconds = self.patience.unwrap_or_default().as_secs();
        let who = self.pid().map_or_else(|| "it".to_owned(), |pid| format!("process {pid}"));
        let why = format!(
            "{who} has been at work for {seconds} s, on this or on what other verbs asked, or waits for a member"
        );
        Failure::of_silence(what, why, format!("ask again with `mdspace detail {}`", self.name))
    }

    fn lost(&self, why: impl ToString) -> Failure {
        Failure::new(
            format!("lost the process that serves {}", self.name),
            why,
            format!("see its log, then `mdspace detail {}`", self.name),
        )
    }
}

/// Connects; a process that takes no connections is not waited for longer than `silence_max`.
fn connected(path: &Path, silence_max: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Connecting is sending, as the system sees it.
    set_socket_timeout(&socket, Timeout::Send, Some(silence_max))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// The failure of a verb whose process does not answer.
fn silence(name: &ArrayName, pid: Option<i32>, silence_max: Duration) -> Failure {
    let what = format!("the process that serves {name} does not answer");
    let seconds = silence_max.as_secs_f64();
    let (who, look, go_on) = match pid {
        Some(pid) => (
            format!("process {pid}"),
            format!("look at it with `ps -p {pid}`"),
            format!("kill -CONT {pid}"),
        ),
        None => ("it".to_owned(), "look for it with `ps`".to_owned(), "kill -CONT".to_owned()),
    };
    let why = format!("{who} said nothing for {seconds:.1} s");
    Failure::of_silence(what, why, format!("{look}: one that is stopped goes on with `{go_on}`"))
}

/// A verb for arrays was asked of a multipath device.
pub(crate) fn no_array(name: &ArrayName) -> Failure {
    Failure::new(
        format!("cannot do that with {name}"),
        "it is a multipath device and no array",
        format!("see `mdspace detail {name}`, and `mdspace help message`"),
    )
    .with_code(Code::Multipath)
}

fn absent(run_dir: &RunDir, name: &ArrayName) -> Failure {
    let what = format!("cannot reach array {name}");
    match run_dir.is_running(name) {
        Ok(true) => Failure::new(what, "its process is starting or stopping", "try again"),
        Ok(false) => {
            let running = run_dir.running().unwrap_or_default();
            let list: Vec<_> = running.iter().map(|running| running.name.as_str()).collect();
            let why = if list.is_empty() {
                format!("no array runs under {}", run_dir.path().display())
            } else {
                format!("it does not run; these do: {}", list.join(" "))
            };
            let why = std::iter::once(why).chain(run_dir.unseen()).collect::<Vec<_>>().join("\n");
            let start = format!("start it with `mdspace assemble {name} MEMBER...`");
            let cure = match run_dir.like(name) {
                Some(meant) => format!("if you mean {meant}, say so; else {start}"),
                None => start,
            };
            Failure::new(what, why, cure).with_code(Code::NoArray)
        }
        Err(error) => Failure::new(what, error, "run as the user who started the array"),
    }
}
