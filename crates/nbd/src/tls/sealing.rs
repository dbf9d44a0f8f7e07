//! The direction to the peer.

use std::io::{self, IoSlice, Write};

use lunette_tls::{ChannelError, Outgoing, Sealed};

use crate::limited::looked_up;
use crate::stream::Output;

/// Bytes that are sealed before they are sent: a part of the processor's cache.
const MAX_SEALED_BYTES: usize = 256 << 10;

/// Records on their way.
pub(crate) struct Sealing {
    outgoing: Outgoing,
    sealed: Sealed,
    /// The bytes of the caller that stand sealed.
    sealed_len: usize,
}

impl Sealing {
    /// The direction behind a handshake.
    pub(crate) fn new(outgoing: Outgoing) -> Self {
        Self { outgoing, sealed: Sealed::default(), sealed_len: 0 }
    }

    /// Whether there are records that were not sent yet.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Seals the front of `pieces` from where they stand, and sends that. Gives the length of the front when all of its
    /// records are sent. Before that it is `WouldBlock`, and the caller must come again with pieces that begin with
    /// these bytes.
    pub(crate) fn write(
        &mut self,
        pieces: &[IoSlice<'_>],
        send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !self.has_unsent() {
            self.sealed_len = self.seal(pieces)?;
        }
        self.send(send)?;
        Ok(std::mem::take(&mut self.sealed_len))
    }

    /// Seals the front of `pieces` and sends some of that: the rest is unsent, and goes first with the next call. Gives
    /// the length of the front. `WouldBlock` when records of before could not be sent.
    pub(crate) fn accept(
        &mut self,
        pieces: &[IoSlice<'_>],
        mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.send(&mut send)?;
        let len = self.seal(pieces)?;
        match self.send(send) {
            Err(error) if !looked_up(&error) => Err(error),
            _ => Ok(len),
        }
    }

    /// Sends once. `WouldBlock` when not all was taken: the caller may check its time limit then.
    fn send(&mut self, send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<()> {
        if !self.has_unsent() {
            return Ok(());
        }
        let sent = send(&[IoSlice::new(self.sealed.unsent())])?;
        self.sealed.sent(sent);
        match sent {
            0 => Err(io::ErrorKind::WriteZero.into()),
            _ if self.has_unsent() => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }

    /// Tells the peer that nothing more will come, as far as it can be told without a wait.
    pub(crate) fn end(&mut self, send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>) {
        // Behind a part of a record nothing can be said.
        if !self.has_unsent() && self.outgoing.end(&mut self.sealed).is_ok() {
            // A peer that has gone needs no farewell.
            let _ = send(&[IoSlice::new(self.sealed.unsent())]);
        }
    }

    fn seal(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, ChannelError> {
        let mut left = MAX_SEALED_BYTES;
        let front = pieces.iter().map(|piece| {
            let taken = &piece[..piece.len().min(left)];
            left -= taken.len();
            taken
        });
        self.outgoing.seal(front, &mut self.sealed)?;
        Ok(MAX_SEALED_BYTES - left)
    }
}

/// The writing half of a connection. The peer is told of its end.
pub(crate) struct Sealer<W: Output> {
    to: W,
    sealing: Sealing,
}

impl<W: Output> Sealer<W> {
    pub(crate) fn new(to: W, sealing: Sealing) -> Self {
        Self { to, sealing }
    }
}

impl<W: Output> Output for Sealer<W> {
    fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let Self { to, sealing } = self;
        sealing.write(bytes, |records| to.write_now(records))
    }
}

impl<W: Output> Write for Sealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let Self { to, sealing } = self;
        sealing.write(bytes, |records| to.write_vectored(records))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Output> Drop for Sealer<W> {
    fn drop(&mut self) {
        let Self { to, sealing } = self;
        sealing.end(|records| to.write_now(records));
    }
}
