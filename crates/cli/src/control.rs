//! The control socket: what the verbs say to the process that serves an array.
//!
//! JSON, one object a line. The process speaks first ([`Hello`]); then each [`Request`] gets
//! [`Reply`]s until one of them is the last. While it has none, it says [`Reply::Working`].

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::failure::Failure;
use crate::member_probe::Probed;
use crate::report::{DeviceReport, Report};

pub(crate) mod client;
mod pulse;
pub(crate) mod server;

/// Version of the protocol. A client refuses any other.
pub(crate) const PROTOCOL: u32 = 2;

/// The longest line that either side reads: hostile input must not fill memory.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// The first line, from the process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) version: String,
}

/// What a client asks. Members and fronts are the words of the command line, paths absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    Detail {
        /// Also who uses a device of its fronts and is found by a claim alone. Not said unless it is so: older
        /// processes do not know it, and claim.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        claims: bool,
    },
    Stop {
        force: bool,
        /// It is started again at once: the answer is to say how it was. Not said unless it is so: older processes do
        /// not know it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        restarts: bool,
    },
    Add {
        members: Vec<String>,
        /// What they were when they were looked at.
        #[serde(default)]
        probed: Probed,
    },
    ReAdd {
        members: Vec<String>,
    },
    Remove {
        members: Vec<String>,
    },
    Fail {
        members: Vec<String>,
        force: bool,
    },
    Replace {
        member: String,
        with: Option<String>,
        #[serde(default)]
        probed: Probed,
    },
    /// From another array's process: hand over a spare of at least so many bytes, blank and free, but none of these.
    GiveSpare {
        group: String,
        bytes: u64,
        #[serde(default)]
        but_for: Vec<String>,
    },
    /// What to write into the array's configuration.
    Configuration,
    Readonly,
    Readwrite,
    AcceptDoubt,
    Action {
        action: String,
        #[serde(default)]
        force_parity: bool,
        #[serde(default)]
        trust: Option<String>,
        /// Seconds to spend; the next one goes on where this one ends.
        #[serde(default)]
        for_s: Option<u64>,
    },
    Get {
        key: Option<String>,
    },
    Set {
        key: String,
        value: String,
    },
    Events {
        follow: bool,
    },
    Serve {
        front: String,
    },
    Unserve {
        front: String,
        /// Also while clients are connected. Not said unless it is so: older processes do not know it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// dm's message to a multipath device; `member` where an array has several.
    Message {
        member: Option<String>,
        words: Vec<String>,
    },
}

impl Request {
    /// Whether it may end what other requests wait for.
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Stop { .. } | Self::Fail { .. } | Self::Message { .. })
    }
}

/// What the process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// Done; `notes` are lines for the user. The last reply.
    Done { notes: Vec<String> },
    /// The array. The last reply.
    Detail { report: Box<Report> },
    /// The multipath device. The last reply.
    Device { report: Box<DeviceReport> },
    /// The array's configuration, and whether its process stays where it was started. The last reply.
    Configuration {
        config: Box<Config>,
        foreground: bool,
        /// Whether it says at a stop how it was. Older processes do not.
        #[serde(default)]
        tells_at_stop: bool,
    },
    /// Stopped for a restart; `notes` are lines for the user, and nothing has changed the configuration since. The last
    /// reply.
    Stopped { notes: Vec<String>, config: Box<Config> },
    /// Keys and values in order. The last reply.
    Values { values: Vec<(String, String)> },
    /// A spare that is no member of the array any more. The last reply.
    Spare { member: String, probed: Probed },
    /// No answer yet, but it is worked on; says nothing else.
    Working,
    /// One event; more may follow.
    Event { event: crate::events::Event },
    /// Not done. The last reply.
    Failed { failure: Failure },
}

impl Reply {
    /// Done, and nothing to say.
    pub(crate) fn done() -> Self {
        Self::Done { notes: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
