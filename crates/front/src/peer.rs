//! Who is at the other end of a connection.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use rustix::net::{getpeername, sockopt};

/// The client's program and process on a Unix socket, its address on TCP.
pub fn describe(socket: BorrowedFd<'_>) -> String {
    match address_of(socket) {
        Some(address) => address.to_string(),
        None => describe_process(socket),
    }
}

/// Who takes places: a user of this host, or an address. None where the system does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// On a Unix socket.
    User(u32),
    /// On TCP.
    Address(IpAddr),
}

/// Who is at the other end of `socket`.
pub fn who(socket: BorrowedFd<'_>) -> Option<Who> {
    match address_of(socket) {
        Some(address) => Some(Who::Address(address.ip())),
        None => sockopt::socket_peercred(socket).ok().map(|peer| Who::User(peer.uid.as_raw())),
    }
}

/// The client's address on TCP.
fn address_of(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    getpeername(socket).ok().flatten().and_then(|any| SocketAddr::try_from(any).ok())
}

const UNKNOWN: &str = "unknown client";

fn describe_process(socket: BorrowedFd<'_>) -> String {
    let Ok(credentials) = sockopt::socket_peercred(socket) else { return UNKNOWN.to_string() };
    let pid = credentials.pid.as_raw_nonzero();
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{} (process {pid})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}
