//! Who is at the other end of a connection.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{getpeername, sockopt};

/// A TCP client that is silent for so long is asked whether it is still there.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);

/// The client's program and process on a Unix socket, its address on TCP.
pub fn describe(socket: BorrowedFd<'_>) -> String {
    match address_of(socket) {
        Some(address) => address.to_string(),
        None => match sockopt::socket_peercred(socket) {
            Ok(credentials) => {
                describe_process(credentials.pid.as_raw_nonzero().get().cast_unsigned())
            }
            Err(_) => UNKNOWN.to_string(),
        },
    }
}

/// Who takes places: a user of this host, or an address. None where the system does not say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// A process by its name and its number.
pub(crate) fn describe_process(process: u32) -> String {
    match fs::read_to_string(format!("/proc/{process}/comm")) {
        Ok(name) => format!("{} (process {process})", name.trim_end().escape_default()),
        Err(_) => format!("process {process}"),
    }
}

/// Replies are batched here already, so that the system need not wait for more of them; and a
/// machine that lost its power must not keep its place for ever. Both fail on Unix sockets, which
/// need neither.
pub(crate) fn prepare_tcp(socket: impl AsFd) {
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    let _ = sockopt::set_tcp_keepidle(&socket, KEEPALIVE_TIME);
    let _ = sockopt::set_socket_keepalive(&socket, true);
}
