//! The two directions of a connection after its handshake.
//!
//! [`Outgoing`] and [`Incoming`] may be on different threads. Both can have new keys of their connection: the one when
//! its key has sealed enough, the other when the peer says so.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};

use crate::limits::{MAX_IDLE_RECORDS, MAX_MESSAGE_BYTES, MAX_RECORDS_OF_A_KEY};
use crate::record::{self, Cipher, MAX_CONTENT_BYTES, content};
use crate::sealed::Sealed;

/// Pieces from this length on are sealed from where they stand. Shorter ones share records, at the price of a copy.
const DIRECT_BYTES: usize = 8 << 10;

/// `close_notify`, as a warning (RFC 8446 section 6.1).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// The level of alerts that end a connection.
const FATAL: u8 = 2;

/// Types of messages after the handshake (RFC 8446 section 4).
mod message {
    pub(super) const NEW_SESSION_TICKET: u8 = 4;
    pub(super) const KEY_UPDATE: u8 = 24;
}

/// Bytes in front of the body of a message: its type and its length.
const MESSAGE_HEADER_LEN: usize = 4;

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The handshake has failed.
    #[error("TLS: {0}")]
    Handshake(#[from] rustls::Error),
    /// The peer sent more for its handshake than is taken.
    #[error("TLS: the handshake of the peer is longer than {0} bytes")]
    LongHandshake(usize),
    /// A record was changed on its way, or forged.
    #[error("TLS: a record is damaged")]
    Damaged,
    /// A record is longer than the standard allows.
    #[error("TLS: a record of {0} bytes is too long")]
    TooLong(usize),
    /// The peer breaks the protocol.
    #[error("TLS: {0}")]
    Unexpected(&'static str),
    /// The peer has ended the connection by an alert.
    #[error("TLS: the peer sent alert {0}")]
    Alert(u8),
    /// The cipher cannot be used.
    #[error("TLS: the cipher cannot be used")]
    Cipher,
}

impl ChannelError {
    /// The alert that tells the peer (RFC 8446 section 6.2). A handshake writes its own.
    pub fn alert(&self) -> Option<u8> {
        match self {
            Self::Unexpected(_) => Some(10),
            Self::Damaged => Some(20),
            Self::TooLong(_) => Some(22),
            Self::Cipher => Some(80),
            Self::Handshake(_) | Self::LongHandshake(_) | Self::Alert(_) => None,
        }
    }
}

impl From<ChannelError> for io::Error {
    fn from(error: ChannelError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// The content of a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened<'a> {
    /// Bytes of the peer.
    Data(&'a mut [u8]),
    /// A message of the protocol, which was dealt with.
    Nothing,
    /// The peer sends nothing more.
    End,
}

/// The direction to the peer.
pub struct Outgoing {
    cipher: Cipher,
    shared: Arc<Shared>,
    /// Records that one key seals.
    records_of_a_key: u64,
    has_ended: bool,
}

/// The direction from the peer.
pub struct Incoming {
    cipher: Cipher,
    shared: Arc<Shared>,
    /// The front of a message that goes on in the next record.
    message: Vec<u8>,
    /// Key updates, empty records and parts of messages since the last bytes.
    idle_records: u32,
    /// Whether the peer is a server.
    is_client: bool,
}

struct Shared {
    secrets: Mutex<Secrets>,
    /// The peer has asked for a new key of the other direction.
    is_update_asked: AtomicBool,
}

/// The keys that follow.
pub(crate) enum Secrets {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

/// Opens both directions with their first keys.
pub(crate) fn open(keys: ExtractedSecrets, secrets: Secrets) -> Result<(Incoming, Outgoing), ChannelError> {
    let is_client = matches!(secrets, Secrets::Client(_));
    let shared = Arc::new(Shared { secrets: Mutex::new(secrets), is_update_asked: AtomicBool::new(false) });
    let outgoing = Outgoing {
        cipher: Cipher::new(keys.tx)?,
        shared: Arc::clone(&shared),
        records_of_a_key: MAX_RECORDS_OF_A_KEY,
        has_ended: false,
    };
    let incoming = Incoming { cipher: Cipher::new(keys.rx)?, shared, message: Vec::new(), idle_records: 0, is_client };
    Ok((incoming, outgoing))
}

impl Outgoing {
    /// Appends records with all of `pieces` to `out`. A connection that has [ended](Self::end) sends nothing.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Cipher`]; then the connection cannot go on.
    pub fn seal<'a>(
        &mut self,
        pieces: impl IntoIterator<Item = &'a [u8]>,
        out: &mut Sealed,
    ) -> Result<(), ChannelError> {
        if self.has_ended {
            return Ok(());
        }
        self.renew_key(out)?;
        let mut shared = SharedRecord { bytes: [0; DIRECT_BYTES], len: 0 };
        for mut piece in pieces {
            while !piece.is_empty() {
                if piece.len() < DIRECT_BYTES {
                    piece = shared.take(piece);
                    if shared.is_full() {
                        shared.seal(&mut self.cipher, out)?;
                    }
                } else {
                    shared.seal(&mut self.cipher, out)?;
                    let (now, rest) = piece.split_at(piece.len().min(MAX_CONTENT_BYTES));
                    self.cipher.seal(content::APPLICATION_DATA, now, out)?;
                    piece = rest;
                }
            }
        }
        shared.seal(&mut self.cipher, out)
    }

    /// Tells the peer that nothing more will come.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Cipher`].
    pub fn end(&mut self, out: &mut Sealed) -> Result<(), ChannelError> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        self.cipher.seal(content::ALERT, &CLOSE_NOTIFY, out)
    }

    /// Tells the peer why the connection fails. Nothing follows.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Cipher`].
    pub fn alert(&mut self, description: u8, out: &mut Sealed) -> Result<(), ChannelError> {
        self.has_ended = true;
        self.cipher.seal(content::ALERT, &[FATAL, description], out)
    }

    /// Whether the peer was told that nothing more will come.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Goes on with another key when the peer asks for it, or when this one has sealed enough (RFC 8446 section 5.5).
    fn renew_key(&mut self, out: &mut Sealed) -> Result<(), ChannelError> {
        let is_asked = self.shared.is_update_asked.load(Ordering::Relaxed);
        if !is_asked && self.cipher.number() < self.records_of_a_key {
            return Ok(());
        }
        self.shared.is_update_asked.store(false, Ordering::Relaxed);
        // One byte: the peer need not do the same.
        self.cipher.seal(content::HANDSHAKE, &[message::KEY_UPDATE, 0, 0, 1, 0], out)?;
        self.cipher = Cipher::new(self.shared.secrets().next_of_sender()?)?;
        Ok(())
    }
}

impl Incoming {
    /// The length of the record at the front of `bytes`; `None` as long as that is not known. Whole records alone can
    /// be opened.
    ///
    /// # Errors
    ///
    /// When it is no record, or one that is too long.
    pub fn record_len(bytes: &[u8]) -> Result<Option<usize>, ChannelError> {
        record::record_len(bytes)
    }

    /// Opens a whole record where it stands.
    ///
    /// # Errors
    ///
    /// [`ChannelError`]; then the connection cannot go on.
    pub fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<Opened<'a>, ChannelError> {
        let opened = self.cipher.open(record)?;
        self.judge(opened)
    }

    /// Whether `place` has room for what [`open_into`](Self::open_into) writes: the content of the record and a byte
    /// more.
    pub fn fits(record: &[u8], place: &[u8]) -> bool {
        record::inner_len(record) <= place.len()
    }

    /// Opens a whole record into `place`, in which it [fits](Self::fits). The content stands at the front; what stands
    /// behind it has been overwritten as far as the record is long.
    ///
    /// # Errors
    ///
    /// [`ChannelError`]; then the connection cannot go on.
    pub fn open_into<'a>(&mut self, record: &[u8], place: &'a mut [u8]) -> Result<Opened<'a>, ChannelError> {
        let opened = self.cipher.open_into(record, place)?;
        self.judge(opened)
    }

    fn judge<'a>(&mut self, (kind, bytes): (u8, &'a mut [u8])) -> Result<Opened<'a>, ChannelError> {
        if kind != content::HANDSHAKE && !self.message.is_empty() {
            return Err(ChannelError::Unexpected("a message stops in its midst"));
        }
        match kind {
            content::APPLICATION_DATA if bytes.is_empty() => self.count_idle().map(|()| Opened::Nothing),
            content::APPLICATION_DATA => {
                self.idle_records = 0;
                Ok(Opened::Data(bytes))
            }
            content::HANDSHAKE => self.messages(bytes).map(|()| Opened::Nothing),
            content::ALERT => match *bytes {
                [_, 0] => Ok(Opened::End),
                [_, alert] => Err(ChannelError::Alert(alert)),
                _ => Err(ChannelError::Unexpected("an alert of a wrong length")),
            },
            _ => Err(ChannelError::Unexpected("content of an unknown type")),
        }
    }

    /// Counts a record that brings nothing, and costs time.
    fn count_idle(&mut self) -> Result<(), ChannelError> {
        self.idle_records += 1;
        if self.idle_records > MAX_IDLE_RECORDS {
            return Err(ChannelError::Unexpected("records without data, and nothing else"));
        }
        Ok(())
    }

    /// Deals with messages, of which a record may have several, or a part of one.
    fn messages(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        if bytes.is_empty() || self.message.len() + bytes.len() > MAX_MESSAGE_BYTES {
            return Err(ChannelError::Unexpected("a message of a wrong length"));
        }
        self.message.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.message);
        let mut rest = all.as_slice();
        while let Some(([kind, len @ ..], behind)) = rest.split_first_chunk::<MESSAGE_HEADER_LEN>() {
            let len = len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
            // A message that has no place here is not waited for.
            if !self.may_come(*kind, len) {
                return Err(ChannelError::Unexpected("a message that has no place here"));
            }
            let Some((body, behind)) = behind.split_at_checked(len) else {
                self.count_idle()?;
                break;
            };
            self.message(*kind, body, behind.is_empty())?;
            rest = behind;
        }
        self.message = rest.to_vec();
        Ok(())
    }

    fn may_come(&self, kind: u8, len: usize) -> bool {
        match kind {
            message::NEW_SESSION_TICKET => self.is_client,
            message::KEY_UPDATE => len == 1,
            _ => false,
        }
    }

    fn message(&mut self, kind: u8, body: &[u8], is_last: bool) -> Result<(), ChannelError> {
        match (kind, body) {
            (message::NEW_SESSION_TICKET, ticket) => self.shared.secrets().take_ticket(ticket),
            // Other bytes of the record would be of the old key (RFC 8446 section 5.1).
            (message::KEY_UPDATE, [asked @ (0 | 1)]) if is_last => {
                self.count_idle()?;
                self.cipher = Cipher::new(self.shared.secrets().next_of_receiver()?)?;
                if *asked == 1 {
                    self.shared.is_update_asked.store(true, Ordering::Relaxed);
                }
                Ok(())
            }
            _ => Err(ChannelError::Unexpected("a message that has no place here")),
        }
    }
}

impl Shared {
    fn secrets(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Secrets {
    fn next_of_sender(&mut self) -> Result<(u64, ConnectionTrafficSecrets), ChannelError> {
        Ok(match self {
            Self::Client(secrets) => secrets.update_tx_secret()?,
            Self::Server(secrets) => secrets.update_tx_secret()?,
        })
    }

    fn next_of_receiver(&mut self) -> Result<(u64, ConnectionTrafficSecrets), ChannelError> {
        Ok(match self {
            Self::Client(secrets) => secrets.update_rx_secret()?,
            Self::Server(secrets) => secrets.update_rx_secret()?,
        })
    }

    fn take_ticket(&mut self, ticket: &[u8]) -> Result<(), ChannelError> {
        match self {
            Self::Client(secrets) => Ok(secrets.handle_new_session_ticket(ticket)?),
            Self::Server(_) => Err(ChannelError::Unexpected("a ticket of a client")),
        }
    }
}

/// A record in which short pieces stand together.
struct SharedRecord {
    bytes: [u8; DIRECT_BYTES],
    len: usize,
}

impl SharedRecord {
    /// Takes the front of `piece`, and gives the rest.
    fn take<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let room = &mut self.bytes[self.len..];
        let (now, rest) = piece.split_at(piece.len().min(room.len()));
        room[..now.len()].copy_from_slice(now);
        self.len += now.len();
        rest
    }

    fn is_full(&self) -> bool {
        self.len == self.bytes.len()
    }

    fn seal(&mut self, cipher: &mut Cipher, out: &mut Sealed) -> Result<(), ChannelError> {
        match std::mem::take(&mut self.len) {
            0 => Ok(()),
            len => cipher.seal(content::APPLICATION_DATA, &self.bytes[..len], out),
        }
    }
}

#[cfg(test)]
mod tests;
