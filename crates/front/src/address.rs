//! Where a front end answers, as users write it.

mod uri;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::rights::Rights;
use crate::tls::Tls;

/// One front end: `nbd:unix:/path.sock`, `nbd:tcp:[HOST:]PORT`, `vhost-user:/path.sock`, `fuse:/DIR`, `loop`,
/// `ublk`, `nbd-device` or `block`. Behind `?` stand options, with `&` between them: `ro`, for NBD `shared`, for TCP
/// `tls=/DIR`, `tls-verify`, `tls-crl` and `insecure`, for Unix sockets and `ublk` [rights](Rights). Its text form parses to
/// the same value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    /// How and where it answers.
    pub endpoint: Endpoint,
    /// Clients may only read.
    pub read_only: bool,
    /// Several arrays are served there, each under its name.
    pub shared: bool,
    /// Of a Unix socket, or of a device's node.
    pub rights: Rights,
}

/// How and where a front end answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// NBD on a socket.
    Nbd(Socket),
    /// The disk of a virtual machine, with its control socket at an absolute path.
    VhostUser(PathBuf),
    /// A file in a directory, which is mounted.
    Fuse(PathBuf),
    /// A loop device over such a file.
    Loop,
    /// A device of the host's ublk driver.
    Ublk,
    /// A device of the host's nbd driver.
    NbdDevice,
    /// A block device, by the best way that this host has.
    Block,
}

/// A socket to listen on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Socket {
    /// A Unix socket at an absolute path, for the same user only if nothing else is said.
    Unix(PathBuf),
    /// A TCP port.
    Tcp {
        /// Name or address; without one, the loopback address 127.0.0.1.
        host: Option<String>,
        /// The port; 0 lets the system choose.
        port: u16,
        /// Addresses that other machines reach are allowed.
        insecure: bool,
        /// Clients are served over TLS alone.
        tls: Option<Tls>,
    },
}

/// Why a text is not an address of a front end.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AddressError {
    /// Another kind of front end.
    #[error(
        "{0:?} is no front end: give block, ublk, nbd-device, loop, fuse:/DIR, nbd:unix:/PATH, nbd:tcp:[HOST:]PORT or vhost-user:/PATH"
    )]
    Kind(String),
    /// None, or one that depends on where it is read.
    #[error("the path of a front end must be absolute here, and {0:?} is not")]
    RelativePath(String),
    /// No port, or one that does not exist.
    #[error("{0:?} has no port: give nbd:tcp:[HOST:]PORT with a port from 0 to 65535")]
    Port(String),
    /// An IPv6 address without brackets, or nothing before the colon.
    #[error("{0:?} is no host: give a name, an IPv4 address, or an IPv6 address in brackets")]
    Host(String),
    /// Something unknown after the question mark.
    #[error(
        "unknown option {0:?}: ro is known, for NBD shared, for TCP insecure, tls=DIRECTORY, tls-verify and tls-crl, and for Unix sockets and ublk once each mode=0660, owner=NAME and group=NAME"
    )]
    Option(String),
    /// The path cannot be written down.
    #[error(
        "{0:?} is kept as text, which a ? or & in a path of it, or a byte that is not UTF-8, would make another one: use a path without these"
    )]
    Unwritable(String),
    /// Certificates of clients are asked for, and not TLS.
    #[error("tls-verify and tls-crl are nothing without tls=DIRECTORY, which has the certificates")]
    VerifyWithoutTls,
    /// A list of revoked certificates, of which none is asked for.
    #[error("tls-crl is nothing with tls-verify=off: no client is asked for a certificate then")]
    ListWithoutVerify,
    /// A client asks for an array by its name when TLS has begun: then no other process can take it over.
    #[error(
        "a shared address has no TLS: give each array that is served over TLS a port of its own"
    )]
    SharedTls,
    /// The next array would not find it.
    #[error("a shared address needs a port that is known: give one from 1 to 65535")]
    SharedPort,
}

impl Address {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        Address::parse_with(text, |path| {
            let is_absolute = path.starts_with('/');
            is_absolute.then(|| path.into()).ok_or_else(|| AddressError::RelativePath(path.into()))
        })
    }

    /// Reads an address that a user types: its paths may begin in the current directory. Its text is what others get, and
    /// what is kept: one whose text would be another one is refused.
    pub fn parse_here(text: &str) -> Result<Address, AddressError> {
        // Where there is none a relative path is refused.
        Address::parse_in(&std::env::current_dir().unwrap_or_default(), text)
    }

    fn parse_in(directory: &Path, text: &str) -> Result<Address, AddressError> {
        let address = Address::parse_with(text, |path| {
            let relative = || AddressError::RelativePath(path.into());
            if path.is_empty() {
                return Err(relative());
            }
            std::path::absolute(directory.join(path)).map_err(|_| relative())
        })?;
        let written = address.to_string();
        match Address::parse(&written).as_ref() == Ok(&address) {
            true => Ok(address),
            false => Err(AddressError::Unwritable(written)),
        }
    }

    fn parse_with(
        text: &str,
        parse_path: impl Fn(&str) -> Result<PathBuf, AddressError>,
    ) -> Result<Address, AddressError> {
        let (endpoint, options) = text.split_once('?').unwrap_or((text, ""));
        let kind = || AddressError::Kind(text.to_string());
        let mut endpoint = match endpoint.split_once(':') {
            None if endpoint == "loop" => Endpoint::Loop,
            None if endpoint == "ublk" => Endpoint::Ublk,
            None if endpoint == "nbd-device" => Endpoint::NbdDevice,
            None if endpoint == "block" => Endpoint::Block,
            Some(("vhost-user", path)) => Endpoint::VhostUser(parse_path(path)?),
            Some(("fuse", directory)) => Endpoint::Fuse(parse_path(directory)?),
            Some(("nbd", socket)) => Endpoint::Nbd(match socket.split_once(':') {
                Some(("unix", path)) => Socket::Unix(parse_path(path)?),
                Some(("tcp", place)) => parse_tcp(place)?,
                _ => return Err(kind()),
            }),
            _ => return Err(kind()),
        };
        let (mut read_only, mut shared) = (false, false);
        let (mut rights, mut verify, mut needs_list) = (Rights::default(), None, false);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match (option, &mut endpoint) {
                ("ro", _) => read_only = true,
                ("shared", Endpoint::Nbd(_)) => shared = true,
                ("insecure", Endpoint::Nbd(Socket::Tcp { insecure, .. })) => *insecure = true,
                ("tls-verify" | "tls-verify=on", Endpoint::Nbd(Socket::Tcp { .. })) => {
                    verify = Some(true);
                }
                ("tls-verify=off", Endpoint::Nbd(Socket::Tcp { .. })) => verify = Some(false),
                ("tls-crl", Endpoint::Nbd(Socket::Tcp { .. })) => needs_list = true,
                (option, Endpoint::Nbd(Socket::Tcp { tls: tls @ None, .. }))
                    if option.starts_with("tls=") =>
                {
                    let directory = parse_path(&option["tls=".len()..])?;
                    *tls = Some(Tls { directory, verify: None, needs_list: false });
                }
                (option, endpoint) if endpoint.has_rights() && rights.take(option) => {}
                _ => return Err(AddressError::Option(option.to_string())),
            }
        }
        match (&mut endpoint, verify) {
            (Endpoint::Nbd(Socket::Tcp { tls: Some(tls), .. }), verify) => {
                if needs_list && verify == Some(false) {
                    return Err(AddressError::ListWithoutVerify);
                }
                (tls.verify, tls.needs_list) = (verify, needs_list);
            }
            (_, verify) if verify.is_some() || needs_list => {
                return Err(AddressError::VerifyWithoutTls);
            }
            _ => {}
        }
        match &endpoint {
            Endpoint::Nbd(Socket::Tcp { tls: Some(_), .. }) if shared => {
                return Err(AddressError::SharedTls);
            }
            Endpoint::Nbd(Socket::Tcp { port: 0, .. }) if shared => {
                return Err(AddressError::SharedPort);
            }
            _ => {}
        }
        Ok(Address { endpoint, read_only, shared, rights })
    }

    /// Whether both answer at the same place, whatever their options.
    pub fn is_where(&self, other: &Address) -> bool {
        let place = |address: &Address| {
            let mut endpoint = address.endpoint.clone();
            if let Endpoint::Nbd(Socket::Tcp { insecure, tls, .. }) = &mut endpoint {
                (*insecure, *tls) = (false, None);
            }
            endpoint
        };
        place(self) == place(other)
    }

    /// The same front end, at an address that other machines may reach.
    pub fn open_to_others(mut self) -> Address {
        if let Endpoint::Nbd(Socket::Tcp { insecure, .. }) = &mut self.endpoint {
            *insecure = true;
        }
        self
    }
}

impl Endpoint {
    /// Whether it is a file whose rights can be given.
    fn has_rights(&self) -> bool {
        self.unix_path().is_some() || *self == Endpoint::Ublk
    }

    /// The path of its Unix socket.
    pub fn unix_path(&self) -> Option<&Path> {
        match self {
            Endpoint::Nbd(Socket::Unix(path)) | Endpoint::VhostUser(path) => Some(path),
            _ => None,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        Address::parse(text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Vec::new();
        if self.read_only {
            options.push("ro".to_owned());
        }
        if self.shared {
            options.push("shared".to_owned());
        }
        match &self.endpoint {
            Endpoint::Loop => f.write_str("loop")?,
            Endpoint::Ublk => f.write_str("ublk")?,
            Endpoint::NbdDevice => f.write_str("nbd-device")?,
            Endpoint::Block => f.write_str("block")?,
            Endpoint::VhostUser(path) => write!(f, "vhost-user:{}", path.display())?,
            Endpoint::Fuse(directory) => write!(f, "fuse:{}", directory.display())?,
            Endpoint::Nbd(Socket::Unix(path)) => write!(f, "nbd:unix:{}", path.display())?,
            Endpoint::Nbd(Socket::Tcp { host, port, insecure, tls }) => {
                match host {
                    None => write!(f, "nbd:tcp:{port}")?,
                    Some(host) if host.contains(':') => write!(f, "nbd:tcp:[{host}]:{port}")?,
                    Some(host) => write!(f, "nbd:tcp:{host}:{port}")?,
                }
                if *insecure {
                    options.push("insecure".to_owned());
                }
                if let Some(Tls { directory, verify, needs_list }) = tls {
                    options.push(format!("tls={}", directory.display()));
                    let verify =
                        verify.map(|verify| if verify { "tls-verify" } else { "tls-verify=off" });
                    options.extend(verify.map(str::to_owned));
                    options.extend(needs_list.then(|| "tls-crl".to_owned()));
                }
            }
        }
        options.extend(self.rights.options());
        match options.is_empty() {
            true => Ok(()),
            false => write!(f, "?{}", options.join("&")),
        }
    }
}

fn parse_tcp(place: &str) -> Result<Socket, AddressError> {
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) => (Some(host), port),
        None => (None, place),
    };
    let port = port.parse().map_err(|_| AddressError::Port(place.to_string()))?;
    let host = host.map(parse_host).transpose()?;
    Ok(Socket::Tcp { host, port, insecure: false, tls: None })
}

fn parse_host(text: &str) -> Result<String, AddressError> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let valid = match bracketed {
        Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !text.is_empty() && !text.contains(['[', ']', ':']),
    };
    if valid {
        Ok(bracketed.unwrap_or(text).to_string())
    } else {
        Err(AddressError::Host(text.to_string()))
    }
}

#[cfg(test)]
mod tests;
