//! TLS below the handler: a connection's handshake, its keys, and the records that are to be sent.
//!
//! The handler sees the content alone. What it gathers is sealed once, and counts as sent when its record has left: the
//! copy is paid for until then. More is sealed when all of it has left. What has been received is opened where the
//! handler wants it, or in the reactor's buffer.

use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lunette_buffer::FileSlice;
use lunette_tls::{ChannelError, Handshake, Incoming, Opened, Outgoing, Sealed};
use rustls::pki_types::CertificateDer;

use crate::gather::Gather;
use crate::handler::{Closed, Handler};
use crate::slab::Key;
use crate::sockets::{ConnectionId, Phase};
use crate::{Context, Reactor};

/// Content that is sealed at a time. It is read from the processor's cache again when it is sent.
const SEAL_BYTES: usize = 128 << 10;

/// Buffers for records that are kept while no connection has something to send.
const SPARE_BUFFERS: usize = 8;

/// The TLS of one connection.
pub(crate) struct Protected {
    state: State,
    /// Records that are to be sent.
    pub(crate) sealed: Sealed,
    /// The certificate by which the peer has proven itself.
    pub(crate) certificate: Option<Arc<CertificateDer<'static>>>,
}

enum State {
    Handshake(Box<Handshake>),
    Open {
        incoming: Box<Incoming>,
        outgoing: Box<Outgoing>,
    },
    /// Nothing can be opened or sealed any more.
    Failed,
}

/// Bytes that a handshake has left, when it is done.
struct Begun {
    content: Vec<u8>,
    received: Vec<u8>,
}

impl Protected {
    pub(crate) fn new(handshake: Handshake, sealed: Sealed) -> Self {
        Self { state: State::Handshake(Box::new(handshake)), sealed, certificate: None }
    }

    /// Whether the handshake has passed.
    fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Whether the handler's bytes can be sealed now.
    fn has_room(&self) -> bool {
        let State::Open { outgoing, .. } = &self.state else { return false };
        !outgoing.has_ended() && self.sealed.is_empty()
    }

    /// Takes bytes for the handshake, if it goes on.
    fn shake(&mut self, bytes: &[u8]) -> Result<Option<Begun>, ChannelError> {
        let State::Handshake(handshake) = &mut self.state else { return Ok(None) };
        handshake.receive(bytes, &mut self.sealed)?;
        if !handshake.is_done() {
            return Ok(None);
        }
        let State::Handshake(handshake) = mem::replace(&mut self.state, State::Failed) else { return Ok(None) };
        let established = handshake.finish()?;
        self.certificate = established.certificate.map(Arc::new);
        let (incoming, outgoing) = (Box::new(established.incoming), Box::new(established.outgoing));
        self.state = State::Open { incoming, outgoing };
        Ok(Some(Begun { content: established.content, received: established.received }))
    }

    /// Seals what is gathered, [`SEAL_BYTES`] at most.
    fn seal(&mut self, list: &Gather<'_>) -> io::Result<()> {
        let State::Open { outgoing, .. } = &mut self.state else { return Ok(()) };
        let mut left = SEAL_BYTES;
        let pieces = list.slices().iter().map_while(|slice| {
            let piece = &slice[..slice.len().min(left)];
            left -= piece.len();
            (!piece.is_empty()).then_some(piece)
        });
        outgoing.seal(pieces, &mut self.sealed)?;
        if let Some(file) = list.file().filter(|_| left > 0) {
            let content = read(file, left)?;
            outgoing.seal([content.as_slice()], &mut self.sealed)?;
        }
        Ok(())
    }

    /// Tells the peer that nothing more will come. Whether that is new to it.
    fn end(&mut self) -> bool {
        let State::Open { outgoing, .. } = &mut self.state else { return false };
        !outgoing.has_ended() && outgoing.end(&mut self.sealed).is_ok()
    }
}

/// The front of a file slice, with `most` bytes. The medium is waited for, as sendfile(2) would.
fn read(slice: &FileSlice, most: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; slice.len().min(most)];
    slice.file().read_exact_at(&mut content, slice.offset())?;
    Ok(content)
}

impl Reactor {
    /// Hands on the content of what was received. What cannot be opened yet, or has no taker, becomes the stash of the
    /// connection.
    pub(crate) fn hand_on_protected(
        &mut self,
        key: Key,
        bytes: &mut [u8],
        handler: &mut impl Handler,
    ) -> io::Result<()> {
        let Some(protected) = self.protected(key) else { return Ok(()) };
        if protected.is_open() {
            return self.hand_on_records(key, bytes, handler);
        }
        let begun = match protected.shake(bytes) {
            Ok(begun) => begun,
            Err(error) => {
                self.fail_protected(key, error, handler);
                return Ok(());
            }
        };
        // The handshake may have something to say, and the handler may have waited for its end.
        if let Some(connection) = self.sockets.connection(key) {
            connection.wants_send = true;
            self.sockets.touch(key);
        }
        let Some(Begun { content, mut received }) = begun else { return Ok(()) };
        self.hand_on(ConnectionId(key), &content, handler)?;
        self.hand_on_records(key, &mut received, handler)
    }

    fn hand_on_records(&mut self, key: Key, mut bytes: &mut [u8], handler: &mut impl Handler) -> io::Result<()> {
        loop {
            let Some(connection) = self.sockets.connection(key) else { return Ok(()) };
            if connection.phase != Phase::Open {
                return Ok(());
            }
            let waits = connection.paused && !connection.leaving;
            let record_len = match Incoming::record_len(bytes) {
                Ok(len) => len.filter(|len| !waits && *len <= bytes.len()),
                Err(error) => {
                    self.fail_protected(key, error, handler);
                    return Ok(());
                }
            };
            let Some(record_len) = record_len else {
                connection.stash.extend_from_slice(bytes);
                return Ok(());
            };
            let (record, rest) = bytes.split_at_mut(record_len);
            bytes = rest;
            match self.open_record(key, record, handler) {
                Ok(None) => {}
                Ok(Some(content)) => self.hand_on(ConnectionId(key), content, handler)?,
                Err(Stop::End) => return self.end_of_input(key, handler),
                Err(Stop::Failure(error)) => {
                    self.fail_protected(key, error, handler);
                    return Ok(());
                }
            }
        }
    }

    /// Opens a record: into the place that the handler names, or else in place, and then gives the content.
    fn open_record<'a>(
        &mut self,
        key: Key,
        record: &'a mut [u8],
        handler: &mut impl Handler,
    ) -> Result<Option<&'a mut [u8]>, Stop> {
        let Some(connection) = self.sockets.connection(key) else { return Ok(None) };
        let Some(Protected { state: State::Open { incoming, .. }, .. }) = connection.protected.as_deref_mut() else {
            return Ok(None);
        };
        let id = ConnectionId(key);
        let place = handler.direct(id).filter(|place| Incoming::fits(record, place));
        let Some(place) = place else {
            return match incoming.open(record)? {
                Opened::Data(content) => Ok(Some(content).filter(|content| !content.is_empty())),
                Opened::Nothing => Ok(None),
                Opened::End => Err(Stop::End),
            };
        };
        let len = match incoming.open_into(record, place)? {
            Opened::Data(content) => content.len(),
            Opened::Nothing => return Ok(None),
            Opened::End => return Err(Stop::End),
        };
        if len > 0 {
            self.sockets.counters.direct_bytes.add(len as u64);
            handler.direct_received(&mut Context::new(&mut self.sockets), id, len);
        }
        Ok(None)
    }

    /// Seals what the handler has for those of `keys` that have room.
    pub(crate) fn seal(&mut self, keys: &[Key], handler: &mut impl Handler) {
        for key in keys {
            self.seal_on(*key, handler);
        }
    }

    /// Seals one list of what the handler has.
    fn seal_on(&mut self, key: Key, handler: &mut impl Handler) {
        let connection = self.sockets.connection(key).filter(|connection| connection.sends());
        let protected = connection.and_then(|connection| connection.protected.as_deref_mut());
        let Some(protected) = protected.filter(|protected| protected.has_room()) else { return };
        let Some(list) = self.lists.begin(1).first_mut() else { return };
        handler.gather(ConnectionId(key), list);
        if list.is_empty() {
            return;
        }
        if !protected.sealed.has_memory()
            && let Some(spare) = self.spare_sealed.pop()
        {
            protected.sealed = spare;
        }
        let sealed = protected.seal(list);
        self.lists.end();
        if let Err(error) = sealed {
            self.end(key, Closed::Error(error), handler);
        }
    }

    /// `len` bytes of the records of a connection were sent. The handler hears of their content.
    pub(crate) fn protected_sent(&mut self, key: Key, len: usize, handler: &mut impl Handler) {
        let Some(protected) = self.protected(key) else { return };
        let content = protected.sealed.sent(len);
        if protected.sealed.is_empty() {
            let memory = protected.sealed.take_memory();
            if self.spare_sealed.len() < SPARE_BUFFERS {
                self.spare_sealed.push(memory);
            }
        }
        if content > 0 {
            handler.sent(&mut self.context(), ConnectionId(key), content);
        }
    }

    /// Nothing is left of a connection that is to close. Whether its peer has to be told so first.
    pub(crate) fn ends_protected(&mut self, key: Key) -> bool {
        self.protected(key).is_some_and(Protected::end)
    }

    /// Ends a connection whose peer cannot be trusted, and tells it why, as far as its socket takes that.
    pub(crate) fn fail_protected(&mut self, key: Key, error: ChannelError, handler: &mut impl Handler) {
        if let Some(connection) = self.sockets.connection(key)
            && let Some(protected) = connection.protected.as_deref_mut()
        {
            if let (State::Open { outgoing, .. }, Some(alert)) = (&mut protected.state, error.alert()) {
                // The cipher of a connection that is at its end may fail, too.
                let _ = outgoing.alert(alert, &mut protected.sealed);
            }
            protected.state = State::Failed;
            let mut list = Gather::new();
            list.push(protected.sealed.unsent());
            // The connection is at its end, whether or not the peer learns why.
            drop(crate::sys::send(std::os::fd::AsFd::as_fd(&connection.stream), &list));
        }
        self.end(key, Closed::Error(error.into()), handler);
    }

    fn protected(&mut self, key: Key) -> Option<&mut Protected> {
        self.sockets.connection(key)?.protected.as_deref_mut()
    }
}

/// Why no more records are opened.
enum Stop {
    /// The peer sends nothing more.
    End,
    Failure(ChannelError),
}

impl From<ChannelError> for Stop {
    fn from(error: ChannelError) -> Self {
        Self::Failure(error)
    }
}
