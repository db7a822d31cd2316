//! Telling systemd, where it started this process, that the array answers (`sd_notify(3)`).

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says "ready" to the service manager; nothing where there is none.
pub(crate) fn ready() -> io::Result<()> {
    notify("READY=1")
}

/// Says that a clean stop is under way.
pub(crate) fn stopping() -> io::Result<()> {
    notify("STOPPING=1")
}

fn notify(state: &str) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
