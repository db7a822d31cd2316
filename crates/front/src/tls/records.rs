//! One client's TLS: bytes of the network to those of the client, and back.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

/// The server's side of a TLS connection, without I/O. It keeps no more than one record that has come in part, or one
/// message of the handshake: 64 KiB at most.
#[derive(Debug)]
pub(crate) struct Records(ServerConnection);

impl Records {
    /// A client is about to begin its handshake.
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Records, rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        // Whoever writes takes what it becomes at once.
        connection.set_buffer_limit(None);
        Ok(Records(connection))
    }

    /// Whether the handshake is under way.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Deciphers what came, to the end of `plain`. True: the client sends no more. After an error the client may be told
    /// why with [`take_outgoing`](Self::take_outgoing).
    pub(crate) fn open(&mut self, mut came: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
        while !came.is_empty() {
            self.0.read_tls(&mut came)?;
            let state = self.0.process_new_packets().map_err(invalid)?;
            let at = plain.len();
            plain.resize(at + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[at..])?;
            if state.peer_has_closed() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Enciphers `plain`; [`take_outgoing`](Self::take_outgoing) gives what it became.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> io::Result<()> {
        self.0.writer().write_all(plain)
    }

    /// Says that nothing more is sent.
    pub(crate) fn close(&mut self) {
        self.0.send_close_notify();
    }

    /// Appends what is to be sent.
    pub(crate) fn take_outgoing(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(out)?;
        }
        Ok(())
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
