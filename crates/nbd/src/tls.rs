//! TLS of a connection: the files of a server, the handshake, and the two directions behind it.
//!
//! [`Opening`] and [`Sealing`] are those directions without a socket. The server's halves ([`Opener`], [`Sealer`]) have
//! one each, and the phases of the protocol see them as any other stream.

mod opening;
mod sealing;

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

use lunette_tls::{
    ChannelError, Clients, Established, Handshake, Identity, Peer, Sealed, TlsError, UNNAMED, stream_server,
    strict_stream_server,
};
use rustls::ServerConfig;

pub(crate) use opening::{Opener, Opening};
pub(crate) use sealing::{Sealer, Sealing};

use crate::stream::{Output, Stream};
use crate::{ConnectionError, limits};

/// The names of the files in a folder, which are those of QEMU and GnuTLS.
pub(crate) mod file {
    pub(crate) const AUTHORITY: &str = "ca-cert.pem";
    pub(crate) const REVOKED: &str = "ca-crl.pem";
    pub(crate) const SERVER: [&str; 2] = ["server-cert.pem", "server-key.pem"];
    pub(crate) const CLIENT: [&str; 2] = ["client-cert.pem", "client-key.pem"];
}

/// Bytes of the peer that a handshake takes at a time.
pub(crate) const PIECE_BYTES: usize = 16 << 10;

/// Bytes of content that are read ahead. Longer payloads go straight to their buffer.
const READ_AHEAD_BYTES: usize = 32 << 10;

/// The clients that a server with TLS admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third kind of client")]
pub enum Admitted {
    /// Clients with a certificate of the authority in the folder. Without an authority there, any client.
    Proven,
    /// Any client.
    Any,
}

/// A connection behind its handshake.
pub(crate) type Protected<R, W> = Stream<Opener<R>, Sealer<W>>;

/// TLS as a server speaks it: certificates, and the clients that are admitted.
#[derive(Clone)]
pub struct ServerTls {
    /// Gives the configuration as it is now.
    config: Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>,
    admits_all: bool,
}

impl ServerTls {
    /// Reads the files of a folder: `server-cert.pem`, `server-key.pem` and, if they are there, `ca-cert.pem` and
    /// `ca-crl.pem`.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the files do not fit together.
    pub fn read(folder: &Path, admitted: Admitted) -> Result<Self, TlsError> {
        let [certificates, key] = file::SERVER.map(|name| folder.join(name));
        let own = Identity { certificates: &certificates, key: &key };
        let (authorities, revoked) = (folder.join(file::AUTHORITY), folder.join(file::REVOKED));
        let clients = Clients { authorities: &authorities, revoked: &revoked };
        let admits_all = admitted == Admitted::Any || !is_there(&authorities);
        let config =
            if admits_all { stream_server(own, None, UNNAMED)? } else { strict_stream_server(own, clients, UNNAMED)? };
        let config = Arc::new(config);
        Ok(Self { config: Arc::new(move || Arc::clone(&config)), admits_all })
    }

    /// TLS by what `config` gives for each connection: its certificates may be renewed. Whether a client needs a
    /// certificate is said there, and otherwise by the exports.
    pub fn of(config: impl Fn() -> Arc<ServerConfig> + Send + Sync + 'static) -> Self {
        Self { config: Arc::new(config), admits_all: true }
    }

    /// Whether clients need no certificate.
    pub fn admits_all(&self) -> bool {
        self.admits_all
    }

    /// Makes the handshake with a client, and tells its certificate. Whatever was read ahead belongs to the handshake.
    /// The time is what is left of that for the negotiation.
    pub(crate) fn accept<R: Read, W: Output>(
        &self,
        stream: Stream<R, W>,
    ) -> Result<(Protected<R, W>, Option<Peer>), ConnectionError> {
        let Stream { mut reader, mut writer } = stream;
        let (mut handshake, mut answer) = (Handshake::server(&(self.config)())?, Sealed::default());
        while !handshake.is_done() {
            let bytes = reader.fill_buf()?;
            let len = bytes.len().min(PIECE_BYTES);
            if len == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let received = handshake.receive(&bytes[..len], &mut answer);
            reader.consume(len);
            writer.write_all(answer.unsent())?;
            answer.sent(usize::MAX);
            if let Err(error) = received {
                linger(&mut reader);
                return Err(error.into());
            }
        }
        let Established { incoming, outgoing, content, mut received, certificate, is_resumed } = handshake.finish()?;
        let certificate = certificate.and_then(|certificate| Peer::of(&certificate));
        // A client that resumes has not shown its certificate again.
        if certificate.as_ref().is_some_and(Peer::has_ended) {
            return Err(ChannelError::Unexpected("the certificate of the client has ended").into());
        }
        tracing::debug!(is_resumed, "a client speaks TLS");
        received.extend_from_slice(reader.buffer());
        let opening = Opening::new(incoming, content, &received);
        let reader = reader.into_inner().map(|from| Opener::new(from, opening));
        let writer = writer.map(|to| Sealer::new(to, Sealing::new(outgoing)));
        Ok((Stream { reader: BufReader::with_capacity(READ_AHEAD_BYTES, reader), writer }, certificate))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("admits_all", &self.admits_all).finish_non_exhaustive()
    }
}

/// Whether there is a file, or something that cannot be looked at. A link that leads nowhere counts, too.
pub(crate) fn is_there(path: &Path) -> bool {
    !path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Reads what a refused client still sends, until it leaves: a connection that is closed before that may take the alert
/// away from it. The client has the rest of its time, and [`MAX_SKIPPED_LEN`](limits::MAX_SKIPPED_LEN).
fn linger(reader: &mut impl Read) {
    let mut rest = reader.take(limits::MAX_SKIPPED_LEN.into());
    // Whatever ends it ends the connection.
    let _ = io::copy(&mut rest, &mut io::sink());
}

/// The peer ends in the midst of something.
fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the peer has closed the connection in the midst of a record of TLS")
}

#[cfg(test)]
mod tests;
