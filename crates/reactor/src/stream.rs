//! A stream of bytes over TCP, plain or within TLS, whoever has it at the moment.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use lunette_tls::{ChannelError, Handshake, Sealed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use crate::protected::Protected;

/// Gives the TLS of a server as it is now: its certificates may be renewed while it runs. Must not wait.
pub type TlsSource = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// A connected stream that no reactor has: it was made, or [released](crate::Handler::released).
///
/// One that is protected by TLS brings its keys along, with bytes of the peer that cannot be opened yet.
pub struct Stream {
    pub(crate) socket: TcpStream,
    pub(crate) protected: Option<Box<Protected>>,
    /// Bytes from the socket that the handler has not seen.
    pub(crate) received: Vec<u8>,
}

impl From<TcpStream> for Stream {
    /// A plain stream.
    fn from(socket: TcpStream) -> Self {
        Self { socket, protected: None, received: Vec::new() }
    }
}

impl Stream {
    /// The server's end of a stream within TLS. The reactor that adopts it speaks the handshake.
    ///
    /// # Errors
    ///
    /// When `config` cannot be used.
    pub fn server(socket: TcpStream, config: &Arc<ServerConfig>) -> io::Result<Self> {
        let handshake = Handshake::server(config)?;
        Ok(Self { protected: Some(Box::new(Protected::new(handshake, Sealed::default()))), ..socket.into() })
    }

    /// The client's end of a stream within TLS to the server of that name.
    ///
    /// # Errors
    ///
    /// When `config` cannot be used.
    pub fn client(socket: TcpStream, config: &Arc<ClientConfig>, server: ServerName<'static>) -> io::Result<Self> {
        let first = || -> Result<_, ChannelError> {
            let (mut handshake, mut hello) = (Handshake::client(config, server)?, Sealed::default());
            handshake.receive(&[], &mut hello)?;
            Ok(Protected::new(handshake, hello))
        };
        Ok(Self { protected: Some(Box::new(first()?)), ..socket.into() })
    }

    /// The address of the peer.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }
}
