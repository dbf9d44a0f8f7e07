//! A handshake of TLS 1.3, without a socket: bytes in and bytes out.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, HandshakeKind, ServerConfig};

use crate::channel::{self, ChannelError, Incoming, Outgoing, Secrets};
use crate::limits::MAX_HANDSHAKE_BYTES;
use crate::record::HEADER_LEN;
use crate::sealed::Sealed;

/// Types of records during a handshake (RFC 8446 section 5.1).
const RECORD_TYPES: RangeInclusive<u8> = 20..=23;

/// A handshake that has not ended.
pub struct Handshake {
    side: Side,
    /// Bytes of the peer that were not dealt with yet.
    received: Vec<u8>,
    /// Bytes of them that rustls has seen: it keeps places in them.
    seen: usize,
    /// Bytes of the peer that were dealt with.
    taken: usize,
    /// Content that came right behind the handshake.
    content: Vec<u8>,
    is_done: bool,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// A connection whose handshake has ended well.
pub struct Established {
    /// The direction from the peer.
    pub incoming: Incoming,
    /// The direction to the peer.
    pub outgoing: Outgoing,
    /// Content that came right behind the handshake. It comes before what `received` leads to.
    pub content: Vec<u8>,
    /// Further bytes from the socket.
    pub received: Vec<u8>,
    /// The certificate by which the peer has proven itself.
    pub certificate: Option<CertificateDer<'static>>,
    /// The peer has shown that it was here before, which costs no signatures.
    pub is_resumed: bool,
}

/// The step that follows.
enum Next {
    GoOn,
    Wait,
    Done,
}

impl Handshake {
    /// The handshake of a server.
    ///
    /// # Errors
    ///
    /// When `config` does not let its keys out, or contradicts itself.
    pub fn server(config: &Arc<ServerConfig>) -> Result<Self, ChannelError> {
        Ok(Self::of(Side::Server(Box::new(UnbufferedServerConnection::new(Arc::clone(config))?))))
    }

    /// The handshake of a client with the server of that name. Its first bytes are due at once: [`receive`] without
    /// any gives them.
    ///
    /// # Errors
    ///
    /// When `config` does not let its keys out, or contradicts itself.
    ///
    /// [`receive`]: Self::receive
    pub fn client(config: &Arc<ClientConfig>, server: ServerName<'static>) -> Result<Self, ChannelError> {
        Ok(Self::of(Side::Client(Box::new(UnbufferedClientConnection::new(Arc::clone(config), server)?))))
    }

    fn of(side: Side) -> Self {
        Self { side, received: Vec::new(), seen: 0, taken: 0, content: Vec::new(), is_done: false }
    }

    /// Takes bytes of the peer, and appends the answer to `out`. After an error the peer gets what is in `out`, which
    /// tells it why.
    ///
    /// # Errors
    ///
    /// When the peer breaks the protocol, or cannot be trusted.
    pub fn receive(&mut self, bytes: &[u8], out: &mut Sealed) -> Result<(), ChannelError> {
        self.received.extend_from_slice(bytes);
        // Nothing behind the last record of the handshake is of its keys, so rustls sees no record before its turn.
        let (mut start, mut end) = (0, self.seen);
        while !self.is_done {
            let (discard, next) = match &mut self.side {
                Side::Client(client) => {
                    step(client.process_tls_records(&mut self.received[start..end]), &mut self.content, out)
                }
                Side::Server(server) => {
                    step(server.process_tls_records(&mut self.received[start..end]), &mut self.content, out)
                }
            };
            start += discard;
            match next {
                Ok(Next::GoOn) => {}
                Ok(Next::Wait) => match whole_record(&self.received[end..]) {
                    Some(len) => end += len,
                    None => break,
                },
                Ok(Next::Done) => self.is_done = true,
                Err(error) => {
                    self.write_alert(start..end, out);
                    return Err(error);
                }
            }
            if self.taken + end > MAX_HANDSHAKE_BYTES {
                return Err(ChannelError::LongHandshake(MAX_HANDSHAKE_BYTES));
            }
        }
        // A message that is not whole is seen again, with its next record.
        self.seen = end - start;
        self.taken += start;
        self.received.drain(..start);
        Ok(())
    }

    /// Whether it has ended well: [`finish`](Self::finish) gives the connection.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Tells the peer why the handshake has failed, if there is anything to tell.
    /// rustls has a look at the same bytes again: it may have kept places in them.
    fn write_alert(&mut self, seen: Range<usize>, out: &mut Sealed) {
        let seen = &mut self.received[seen];
        let told = match &mut self.side {
            Side::Client(client) => step(client.process_tls_records(seen), &mut Vec::new(), out),
            Side::Server(server) => step(server.process_tls_records(seen), &mut Vec::new(), out),
        };
        // There may be no alert, and the first error is the one that counts.
        drop(told);
    }

    /// The connection, once it [is done](Self::is_done).
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn finish(self) -> Result<Established, ChannelError> {
        let Self { side, received, content, .. } = self;
        let (certificate, kind, keys, secrets) = match side {
            Side::Client(client) => {
                let (certificate, kind) = (first(client.peer_certificates()), client.handshake_kind());
                let (keys, secrets) = client.dangerous_into_kernel_connection()?;
                (certificate, kind, keys, Secrets::Client(secrets))
            }
            Side::Server(server) => {
                let (certificate, kind) = (first(server.peer_certificates()), server.handshake_kind());
                let (keys, secrets) = server.dangerous_into_kernel_connection()?;
                (certificate, kind, keys, Secrets::Server(secrets))
            }
        };
        let (incoming, outgoing) = channel::open(keys, secrets)?;
        let is_resumed = kind == Some(HandshakeKind::Resumed);
        Ok(Established { incoming, outgoing, content, received, certificate, is_resumed })
    }
}

/// The length of the record at the front of `bytes`, when it is all there. Of what is no record rustls sees all, and
/// finds what is wrong.
fn whole_record(bytes: &[u8]) -> Option<usize> {
    let [kind, _, _, high, low] = *bytes.first_chunk::<HEADER_LEN>()?;
    let len = HEADER_LEN + usize::from(u16::from_be_bytes([high, low]));
    if !RECORD_TYPES.contains(&kind) {
        return Some(bytes.len());
    }
    (len <= bytes.len()).then_some(len)
}

fn first(certificates: Option<&[CertificateDer<'static>]>) -> Option<CertificateDer<'static>> {
    certificates?.first().cloned()
}

/// One step; gives the bytes of the peer that were dealt with.
fn step<Data>(
    UnbufferedStatus { discard, state }: UnbufferedStatus<'_, '_, Data>,
    content: &mut Vec<u8>,
    out: &mut Sealed,
) -> (usize, Result<Next, ChannelError>) {
    let next = match state {
        Err(error) => Err(error.into()),
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            // Nothing fits into nothing, so the error tells the length.
            let len = match data.encode(&mut []) {
                Ok(len) => len,
                Err(EncodeError::InsufficientSize(size)) => size.required_size,
                Err(EncodeError::AlreadyEncoded) => 0,
            };
            let written = data.encode(out.room(len));
            written.map(|_| Next::GoOn).map_err(|_| ChannelError::Cipher)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Next::GoOn)
        }
        Ok(ConnectionState::ReadTraffic(mut traffic)) => {
            let mut taken = Ok(());
            while let Some(record) = traffic.next_record() {
                taken = taken.and(record.map(|record| content.extend_from_slice(record.payload)));
            }
            taken.map(|()| Next::GoOn).map_err(Into::into)
        }
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Next::Done),
        Ok(ConnectionState::BlockedHandshake) => Ok(Next::Wait),
        Ok(ConnectionState::ReadEarlyData(_)) => Err(ChannelError::Unexpected("early data")),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
            Err(ChannelError::Unexpected("the peer ends the connection"))
        }
        Ok(_) => Err(ChannelError::Unexpected("a state that is not known")),
    };
    (discard, next)
}
