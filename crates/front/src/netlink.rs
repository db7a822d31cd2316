//! Generic netlink: questions to a driver of the kernel, by the name of its family.
//!
//! Sources: `include/uapi/linux/netlink.h` and `genetlink.h`. Integers are in the host's byte order. A message is
//! two headers and attributes; an attribute is its length, its kind and its value, filled up to a multiple of 4 bytes.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// `struct nlmsghdr`: length (4 bytes), type (2), flags (2), sequence number (4), port (4).
const HEADER_BYTES: usize = 16;
/// `struct genlmsghdr`: command (1 byte), version (1), reserved (2).
const GENERIC_HEADER_BYTES: usize = 4;
/// `struct nlattr`: length with this header (2 bytes), kind (2).
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// `NLMSG_ALIGN`.
const ALIGNMENT: usize = 4;
/// The kernel's answers have some hundred bytes.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// `NLM_F_REQUEST | NLM_F_ACK`: the answer ends with an error number, which may be 0.
const ASKS_FOR_END: u16 = 1 | 4;
/// `NLMSG_ERROR`: an error number (4 bytes), 0 or negative, and the request's header.
const END: u16 = 2;

/// The family of families.
mod controller {
    /// `GENL_ID_CTRL`.
    pub(super) const FAMILY: u16 = 16;
    pub(super) const VERSION: u8 = 2;
    /// `CTRL_CMD_GETFAMILY`.
    pub(super) const GET_FAMILY: u8 = 3;
    /// `CTRL_ATTR_FAMILY_ID`: 2 bytes.
    pub(super) const FAMILY_ID: u16 = 1;
    /// `CTRL_ATTR_FAMILY_NAME`: text, ended by a zero.
    pub(super) const FAMILY_NAME: u16 = 2;
}

/// A driver's family, and a socket to ask it.
#[derive(Debug)]
pub(crate) struct Family {
    socket: OwnedFd,
    id: u16,
    version: u8,
}

/// Attributes of a message, one behind the other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Attributes(Vec<u8>);

impl Family {
    /// The family of this name. The kernel loads the module that has it, where it can; an error of the kind `NotFound`
    /// says that there is none.
    pub(crate) fn find(name: &str, version: u8) -> io::Result<Family> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        let protocol = Some(netlink::GENERIC);
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, protocol)?;
        let controller = Family { socket, id: controller::FAMILY, version: controller::VERSION };
        let wanted = Attributes::default().text(controller::FAMILY_NAME, name);
        let told = controller.ask(controller::GET_FAMILY, &wanted)?;
        let id = told
            .find(controller::FAMILY_ID)
            .and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?)));
        let id = id.ok_or_else(|| unexpected("it has no number"))?;
        Ok(Family { id, version, ..controller })
    }

    /// Gives the driver an order; returns the attributes of its answer, which may be none.
    pub(crate) fn ask(&self, command: u8, attributes: &Attributes) -> io::Result<Attributes> {
        // Each question is answered before the next one: any number will do.
        const SEQUENCE: u32 = 1;
        let message = message(self.id, command, self.version, SEQUENCE, attributes);
        retry(|| rustix::net::send(&self.socket, &message, SendFlags::empty()))?;
        let mut answer = Attributes::default();
        let mut buffer = vec![0; ANSWER_BYTES_MAX];
        loop {
            let (bytes, _) =
                retry(|| rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()))?;
            for part in parts(&buffer[..bytes]) {
                match part.ok_or_else(|| unexpected("it is cut off"))? {
                    Part::End(0) => return Ok(answer),
                    Part::End(errno) => return Err(io::Error::from_raw_os_error(errno)),
                    Part::Answer(attributes) => answer = attributes,
                }
            }
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    Ok(rustix::io::retry_on_intr(&mut call)?)
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the kernel's netlink answer is not understood: {what}"),
    )
}

/// A message as it is sent.
fn message(
    family: u16,
    command: u8,
    version: u8,
    sequence: u32,
    attributes: &Attributes,
) -> Vec<u8> {
    let length = HEADER_BYTES + GENERIC_HEADER_BYTES + attributes.0.len();
    let mut out = Vec::with_capacity(length);
    out.extend(u32::try_from(length).expect("a message has some hundred bytes").to_ne_bytes());
    out.extend(family.to_ne_bytes());
    out.extend(ASKS_FOR_END.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    // The kernel's port.
    out.extend(0u32.to_ne_bytes());
    out.extend([command, version, 0, 0]);
    out.extend(&attributes.0);
    out
}

/// A message of an answer.
#[derive(Debug, Eq, PartialEq)]
enum Part {
    Answer(Attributes),
    /// The last one: an errno, 0 where all went well.
    End(i32),
}

/// The messages in what was received. None: what is left is no message.
fn parts(mut received: &[u8]) -> impl Iterator<Item = Option<Part>> {
    std::iter::from_fn(move || {
        if received.is_empty() {
            return None;
        }
        let part = take_part(&mut received);
        if part.is_none() {
            received = &[];
        }
        Some(part)
    })
}

fn take_part(received: &mut &[u8]) -> Option<Part> {
    let length = u32::from_ne_bytes(received.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(received.get(4..6)?.try_into().ok()?);
    let body = received.get(HEADER_BYTES..length)?;
    *received = received.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    if kind == END {
        let errno = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
        return Some(Part::End(errno.checked_neg()?));
    }
    Some(Part::Answer(Attributes(body.get(GENERIC_HEADER_BYTES..)?.to_vec())))
}

impl Attributes {
    pub(crate) fn u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    pub(crate) fn u64(self, kind: u16, value: u64) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Text, with the zero that ends it.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.with(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Attributes inside of one.
    pub(crate) fn nest(self, kind: u16, inner: &Attributes) -> Self {
        self.with(kind, &inner.0)
    }

    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = ATTRIBUTE_HEADER_BYTES + value.len();
        let told = u16::try_from(length).expect("an attribute has some hundred bytes");
        self.0.extend(told.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    /// The value of the first attribute of a kind.
    pub(crate) fn find(&self, kind: u16) -> Option<&[u8]> {
        /// `NLA_TYPE_MASK`: the upper two bits say what the value is.
        const KIND: u16 = 0x3fff;
        let mut rest = &self.0[..];
        while let Some(header) = rest.get(..ATTRIBUTE_HEADER_BYTES) {
            let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
            let value = rest.get(ATTRIBUTE_HEADER_BYTES..length)?;
            if u16::from_ne_bytes([header[2], header[3]]) & KIND == kind {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        None
    }
}

#[cfg(test)]
mod tests;
