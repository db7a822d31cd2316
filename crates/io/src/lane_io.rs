//! What a lane's tasks can do besides member I/O: sockets and payloads.

mod message;
mod socket;

use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;

use mdspace_engine::time::Time;

use crate::driver::{Driver, Kept};
use crate::payload::Payload;
use crate::queue::Call;

pub use message::Message;
pub use socket::Socket;

pub(crate) use message::Outgoing;

/// One lane's way to the world. Cheap to clone; it stays on its lane.
///
/// Buffers move into an operation and come back with its end, so a dropped future never leaves the
/// kernel a dangling pointer: the operation is cancelled, and what it owns goes when it has ended.
/// Bytes that a dropped `recv` had taken are lost. An operation past its `deadline` ends with
/// [`io::ErrorKind::TimedOut`]; `None` waits for ever.
#[derive(Clone)]
pub struct LaneIo {
    driver: Rc<Driver>,
}

impl LaneIo {
    pub(crate) fn new(driver: Rc<Driver>) -> Self {
        Self { driver }
    }

    #[cfg(test)]
    pub(crate) fn stock(&self) -> &Rc<crate::driver::Stock> {
        self.driver.stock()
    }

    /// Memory for one request of `len` bytes, with unspecified content.
    pub fn payload(&self, len: usize) -> Rc<Payload> {
        Payload::new(self.driver.stock().clone(), len)
    }

    /// Ends when [`Lanes::stop`](crate::Lanes::stop) has been called.
    pub async fn stop_requested(&self) {
        std::future::poll_fn(|context| self.driver.poll_stop(context)).await;
    }

    /// Waits for a connection.
    pub async fn accept(&self, listener: &Socket, deadline: Option<Time>) -> io::Result<Socket> {
        let call = Call::Accept { fd: listener.raw() };
        // SAFETY: the call has no pointers.
        let (result, _) =
            unsafe { self.driver.start(call, listener.fd(), Kept::Connection, deadline) }.await;
        let fd = value(result)?;
        // SAFETY: a successful accept gives a descriptor that nobody else owns.
        Ok(Socket::from_owned(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Appends what has arrived to `buffer`, up to its capacity; waits for the first byte. 0: the
    /// peer sends no more. A full buffer is refused.
    pub async fn recv(
        &self,
        socket: &Socket,
        mut buffer: Vec<u8>,
        deadline: Option<Time>,
    ) -> (io::Result<usize>, Vec<u8>) {
        let room = buffer.spare_capacity_mut();
        let len = u32::try_from(room.len()).unwrap_or(u32::MAX);
        if len == 0 {
            let full = io::Error::new(io::ErrorKind::InvalidInput, "no room to receive into");
            return (Err(full), buffer);
        }
        let call = Call::Recv { fd: socket.raw(), to: room.as_mut_ptr().cast(), len, flags: 0 };
        let kept = Kept::Bytes(buffer);
        // SAFETY: the pointer is into the vector's allocation, which moves with the vector's owner
        // but not in memory.
        let (result, kept) = unsafe { self.driver.start(call, socket.fd(), kept, deadline) }.await;
        let Kept::Bytes(mut buffer) = kept else { unreachable!("what went in comes out") };
        let received = value(result);
        if let Ok(received) = received {
            // SAFETY: the kernel has filled that many bytes of the spare capacity.
            unsafe { buffer.set_len(buffer.len() + received) };
        }
        (received, buffer)
    }

    /// Fills `range` of a payload; an end of the stream before that is
    /// [`io::ErrorKind::UnexpectedEof`].
    pub async fn recv_payload(
        &self,
        socket: &Socket,
        payload: &Rc<Payload>,
        range: Range<usize>,
        deadline: Option<Time>,
    ) -> io::Result<()> {
        let mut left = range;
        while !left.is_empty() {
            let len = u32::try_from(left.len()).unwrap_or(u32::MAX);
            let (fd, to) = (socket.raw(), payload.at(&left));
            let call = Call::Recv { fd, to, len, flags: libc::MSG_WAITALL };
            let kept = Kept::Payload(payload.clone());
            // SAFETY: the pointer is into the payload, which `kept` holds.
            let (result, _) = unsafe { self.driver.start(call, socket.fd(), kept, deadline) }.await;
            match value(result)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                received => left.start += received,
            }
        }
        Ok(())
    }

    /// Sends all of a message, and gives it back, to be cleared and used again. After an error some
    /// of it may have gone out: the stream is of no more use.
    pub async fn send(
        &self,
        socket: &Socket,
        message: Message,
        deadline: Option<Time>,
    ) -> (io::Result<()>, Message) {
        let mut outgoing = Outgoing::new(message);
        while !outgoing.sent(0) {
            let call = Call::Send { fd: socket.raw(), message: outgoing.rest() };
            let kept = Kept::Message(outgoing);
            // SAFETY: the header rests in its box, which `kept` holds, as do the pieces.
            let (result, kept) =
                unsafe { self.driver.start(call, socket.fd(), kept, deadline) }.await;
            let Kept::Message(back) = kept else { unreachable!("what went in comes out") };
            outgoing = back;
            match value(result) {
                Ok(sent) => outgoing.sent(sent),
                Err(error) => return (Err(error), outgoing.message),
            };
        }
        (Ok(()), outgoing.message)
    }

    /// Waits until one of `events` (`POLLIN`, ...) holds; gives those that do.
    pub async fn poll(
        &self,
        socket: &Socket,
        events: i16,
        deadline: Option<Time>,
    ) -> io::Result<i16> {
        let call = Call::Poll { fd: socket.raw(), events };
        // SAFETY: the call has no pointers.
        let (result, _) =
            unsafe { self.driver.start(call, socket.fd(), Kept::Nothing, deadline) }.await;
        value(result).map(|events| events as i16)
    }

    /// Adds one to an eventfd, by which whoever waits for it is woken. A full one is waited for.
    pub async fn signal(&self, event: &Socket, deadline: Option<Time>) -> io::Result<()> {
        let call = Call::Signal { fd: event.raw() };
        // SAFETY: the call points to a static.
        let (result, _) =
            unsafe { self.driver.start(call, event.fd(), Kept::Nothing, deadline) }.await;
        value(result).map(drop)
    }

    /// Ends one or both directions of a connection; operations under way there end too.
    pub fn shutdown(&self, socket: &Socket, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => libc::SHUT_RD,
            Shutdown::Write => libc::SHUT_WR,
            Shutdown::Both => libc::SHUT_RDWR,
        };
        // SAFETY: no pointer is passed.
        match unsafe { libc::shutdown(socket.raw(), how) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl std::fmt::Debug for LaneIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LaneIo")
    }
}

fn value(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
