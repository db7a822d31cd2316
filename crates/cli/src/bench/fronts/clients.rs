//! Clients: fio for what is a file or an NBD server, and `blkio` for what is a virtual machine's disk.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::servers::{AREA_MIB, Host};

/// What a client connects to, or opens.
pub(super) enum Target {
    /// A URI.
    Nbd(String),
    /// A file or a block device.
    File(PathBuf),
    /// A socket.
    VhostUser(PathBuf),
}

/// Random requests of 4 KiB.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) write: bool,
    pub(super) depth: u32,
    pub(super) span: Duration,
}

impl Work {
    /// fio's word.
    fn rw(self) -> &'static str {
        if self.write { "randwrite" } else { "randread" }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.write { "write" } else { "read" };
        write!(f, "4 KiB random {what}, depth {}", self.depth)
    }
}

impl Target {
    pub(super) fn nbd(socket: &Path) -> Self {
        Self::Nbd(format!("nbd+unix:///?socket={}", socket.display()))
    }

    /// Writes the area of all loads once.
    pub(super) fn fill(&self, host: &Host) -> Result<(), String> {
        match self {
            Self::VhostUser(socket) => blkio(host, socket, "write", 32, Duration::ZERO).map(drop),
            _ => self.fio(host, &["--rw=write", "--bs=256k", "--iodepth=4"]).map(drop),
        }
    }

    /// Requests of a second.
    pub(super) fn load(&self, host: &Host, work: Work) -> Result<f64, String> {
        if let Self::VhostUser(socket) = self {
            return blkio(host, socket, work.rw(), work.depth, work.span);
        }
        let (rw, depth) = (format!("--rw={}", work.rw()), format!("--iodepth={}", work.depth));
        let runtime = format!("--runtime={}ms", work.span.as_millis());
        let random = ["--norandommap", "--randrepeat=0", "--time_based"];
        let words = [&random[..], &[&rw, &depth, &runtime, "--bs=4k"]].concat();
        let said = self.fio(host, &words)?;
        let of = if work.write { "write" } else { "read" };
        iops(&said, of).ok_or_else(|| format!("fio ended without a result:\n{said}"))
    }

    /// fio writes other bytes each time without being told.
    fn fio(&self, host: &Host, words: &[&str]) -> Result<String, String> {
        host.want("fio", "fio")?;
        let place = match self {
            Self::Nbd(uri) => vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}")],
            Self::File(file) | Self::VhostUser(file) => vec![
                "--ioengine=libaio".into(),
                "--direct=1".into(),
                format!("--filename={}", file.display()),
            ],
        };
        let size = format!("--size={AREA_MIB}M");
        let common = ["--name=fronts", "--output-format=json", "--gtod_reduce=1", &size];
        let place: Vec<&str> = place.iter().map(String::as_str).collect();
        host.succeed("fio", &[&common[..], &place, words].concat())
    }
}

/// The rate of reads or of writes in fio's JSON.
pub(super) fn iops(said: &str, of: &str) -> Option<f64> {
    // Notes may stand before the object.
    let object: Value = serde_json::from_str(&said[said.find('{')?..]).ok()?;
    object["jobs"][0][of]["iops"].as_f64().filter(|iops| *iops > 0.0)
}

/// Requests of a second by the client on the crate `blkio`.
fn blkio(
    host: &Host,
    socket: &Path,
    kind: &str,
    depth: u32,
    span: Duration,
) -> Result<f64, String> {
    let mut command = host.example("vhost_user_load")?;
    command.arg(socket).arg(kind).arg(depth.to_string()).arg(AREA_MIB.to_string());
    let output = command.arg(span.as_secs_f64().to_string()).output();
    let output = output.map_err(|error| format!("vhost_user_load: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    rate(&said).filter(|_| output.status.success()).ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr);
        format!("vhost_user_load: {}: {said}{}", output.status, why.trim())
    })
}

/// Of a line with requests and nanoseconds.
pub(super) fn rate(said: &str) -> Option<f64> {
    let (requests, ns) = said.trim().split_once(' ')?;
    let (requests, ns): (u64, u64) = (requests.parse().ok()?, ns.parse().ok()?);
    Some(requests as f64 * 1e9 / ns.max(1) as f64)
}
