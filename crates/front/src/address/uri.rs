//! How clients of NBD name a front: `doc/uri.md` of the NetworkBlockDevice project.

use std::fmt::Write;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;

use super::{Address, Endpoint, Socket};

impl Address {
    /// The URI by which clients find an array of this name there; none of what is no NBD server. One that listens at all
    /// addresses of this host is named by the host.
    pub fn uri(&self, name: &str) -> Option<String> {
        let Endpoint::Nbd(socket) = &self.endpoint else { return None };
        // An address of one array has it without its name, too.
        let export = if self.shared { escaped(name.as_bytes()) } else { String::new() };
        let server = match socket {
            Socket::Unix(path) => {
                let path = escaped(path.as_os_str().as_bytes());
                return Some(format!("nbd+unix:///{export}?socket={path}"));
            }
            Socket::Tcp { host, port, tls, .. } => {
                let scheme = if tls.is_some() { "nbds" } else { "nbd" };
                match reached_by(host.as_deref()) {
                    host if host.contains(':') => format!("{scheme}://[{host}]:{port}"),
                    host => format!("{scheme}://{host}:{port}"),
                }
            }
        };
        Some(if self.shared { format!("{server}/{export}") } else { server })
    }
}

fn reached_by(host: Option<&str>) -> String {
    let Some(host) = host else { return "localhost".to_owned() };
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => {
            rustix::system::uname().nodename().to_string_lossy().into_owned()
        }
        _ => host.to_owned(),
    }
}

/// What is not for itself in a query becomes `%XX` (RFC 3986).
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                text.push(byte.into());
            }
            _ => write!(text, "%{byte:02X}").expect("a string takes all"),
        }
    }
    text
}
