//! Where an export is: `nbd://HOST[:PORT][/EXPORT]`, `nbd+unix:///[EXPORT]?socket=PATH`, or short
//! `nbd+unix:///PATH` for the default export of a socket.
//!
//! Source: `doc/uri.md` of the NetworkBlockDevice project.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::nbd_wire::STRING_BYTES_MAX;

/// The port that NBD has from IANA.
const PORT: u16 = 10809;

/// A server's address, and the name of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    pub(in crate::member) server: Server,
    pub(in crate::member) export: String,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::member) enum Server {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
}

impl Uri {
    /// Whether a member's name is meant to be one.
    pub(crate) fn is_meant(name: &str) -> bool {
        name.starts_with("nbd://") || name.starts_with("nbd+") || name.starts_with("nbds")
    }

    /// Reads a name for which [`is_meant`](Self::is_meant) holds.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let uri = match (name.strip_prefix("nbd+unix://"), name.strip_prefix("nbd://")) {
            (Some(rest), _) => unix(rest)?,
            (_, Some(rest)) => tcp(rest)?,
            _ => {
                return Err("say nbd+unix:///PATH or nbd://HOST:PORT/EXPORT; TLS and others are \
                             not spoken"
                    .into());
            }
        };
        match uri.export.len() > STRING_BYTES_MAX {
            true => Err(format!("the name of an export has at most {STRING_BYTES_MAX} bytes")),
            false => Ok(uri),
        }
    }
}

fn unix(rest: &str) -> Result<Uri, String> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let Some(path) = path.strip_prefix('/') else {
        return Err("three slashes: nbd+unix:///PATH".into());
    };
    let (socket, export) = match query.strip_prefix("socket=") {
        Some(socket) => (decoded_bytes(socket)?, decoded(path)?),
        None if query.is_empty() => ([b"/", &decoded_bytes(path)?[..]].concat(), String::new()),
        None => return Err(format!("'{query}' is not known here; only socket=PATH is")),
    };
    if socket.len() <= 1 {
        return Err("the path of a socket is missing: nbd+unix:///PATH".into());
    }
    Ok(Uri { server: Server::Unix(OsString::from_vec(socket).into()), export })
}

fn tcp(rest: &str) -> Result<Uri, String> {
    if let Some((_, query)) = rest.split_once('?') {
        return Err(format!("'{query}' is not known here; an address over TCP ends without"));
    }
    let (place, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = host_and_port(place)?;
    if host.is_empty() || host.contains('@') {
        return Err("a host is missing: nbd://HOST:PORT/EXPORT".into());
    }
    Ok(Uri { server: Server::Tcp { host: host.into(), port }, export: decoded(export)? })
}

fn host_and_port(place: &str) -> Result<(&str, u16), String> {
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':').or(port.is_empty().then_some(""))),
        None => match place.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, Some("")),
        },
    };
    let wrong = || format!("'{place}' is not HOST, HOST:PORT or [ADDRESS]:PORT");
    match port.ok_or_else(wrong)? {
        "" => Ok((host, PORT)),
        port => Ok((host, port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?)),
    }
}

/// Takes `%41` for `A`.
fn decoded(text: &str) -> Result<String, String> {
    String::from_utf8(decoded_bytes(text)?).map_err(|_| format!("'{text}' is no text"))
}

fn decoded_bytes(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("'{text}': % stands before two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = behind;
    }
    match bytes.contains(&0) {
        true => Err(format!("'{text}' is no text")),
        false => Ok(bytes),
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp { host, port } => write!(f, "{host} port {port}"),
        }
    }
}

#[cfg(test)]
mod tests;
