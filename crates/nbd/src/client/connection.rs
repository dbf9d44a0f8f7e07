//! A connection with a server: its socket, with TLS around it or without.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use lunette_tls::{Established, Handshake, Sealed};

use super::OpenError;
use super::tls::Security;
use crate::limited::Limited;
use crate::socket::Socket;
use crate::stream::Output;
use crate::tls::{Opening, PIECE_BYTES, Sealing};

/// A connection. Reads and writes wait as the socket does; the calls for now do not.
pub(crate) struct Connection {
    socket: Socket,
    tls: Option<(Opening, Sealing)>,
}

impl Connection {
    /// A connection in plain text.
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// Makes the handshake, within the limit of the connection.
    pub(crate) fn start_tls(connection: &mut Limited<Self>, security: &Security) -> Result<(), OpenError> {
        let (mut handshake, mut out) =
            (Handshake::client(&security.config(), security.name.clone())?, Sealed::default());
        let (mut piece, mut received) = (vec![0; PIECE_BYTES], 0);
        loop {
            let taken = handshake.receive(&piece[..received], &mut out);
            connection.write_all(out.unsent()).map_err(OpenError::lost)?;
            out.sent(usize::MAX);
            taken?;
            if handshake.is_done() {
                break;
            }
            received = connection.read(&mut piece).map_err(OpenError::lost)?;
            if received == 0 {
                return Err(OpenError::lost(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let Established { incoming, outgoing, content, received, is_resumed, .. } = handshake.finish()?;
        tracing::debug!(is_resumed, "the server speaks TLS");
        connection.stream().tls = Some((Opening::new(incoming, content, &received), Sealing::new(outgoing)));
        Ok(())
    }

    /// Receives what is there. `WouldBlock` when that is nothing.
    pub(crate) fn read_now(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read_now(into),
            Some((opening, _)) => opening.read(into, |room| self.socket.read_now(room)),
        }
    }

    /// Whether bytes that count as sent still have to be.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|(_, sealing)| sealing.has_unsent())
    }

    /// Sends what the socket takes, and gives the length of what counts as sent.
    pub(crate) fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => (&self.socket).write_now(bytes),
            Some((_, sealing)) => sealing.accept(bytes, |records| (&self.socket).write_now(records)),
        }
    }

    /// Says `last`, and that nothing more will come. Both are said as far as that needs no wait.
    pub(crate) fn end(mut self, last: &[u8]) {
        // A server that is gone needs no farewell.
        let _ = self.write_now(&[IoSlice::new(last)]);
        if let Some((_, sealing)) = &mut self.tls {
            sealing.end(|records| (&self.socket).write_now(records));
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => (&self.socket).read(into),
            Some((opening, _)) => opening.read(into, |room| (&self.socket).read(room)),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => (&self.socket).write(bytes),
            Some((_, sealing)) => {
                sealing.write(&[IoSlice::new(bytes)], |records| (&self.socket).write_vectored(records))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
