//! A client of the API, for the command line. It waits.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use crate::limits::CONNECT_TIMEOUT;
use crate::problem::Problem;

/// The characters that a part of a path keeps as they are (RFC 3986 section 3.3).
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// The path of what these parts name.
pub fn path(parts: &[impl AsRef<str>]) -> String {
    let encode = |part: &_| format!("/{}", utf8_percent_encode(AsRef::<str>::as_ref(part), PLAIN));
    std::iter::once("/v1".to_owned()).chain(parts.iter().map(encode)).collect()
}

/// Where a client finds the server.
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// A port of TCP, with TLS.
    Tls {
        /// The name or address of the server, which its certificate has to have.
        host: String,
        /// The port.
        port: u16,
        /// Which certificates are trusted.
        trusted: Arc<rustls::ClientConfig>,
        /// The token of the client; `None` for one that proves itself by a certificate of `trusted`.
        token: Option<Token>,
    },
}

/// The token of a client.
pub struct Token {
    /// The token.
    pub value: Zeroizing<String>,
    /// The file that it is from, for messages.
    pub file: PathBuf,
}

/// A client of one server.
pub struct Client {
    server: Endpoint,
    runtime: Runtime,
    limit: Option<Duration>,
}

/// A condition on an object that must hold before it is changed.
#[derive(Debug, Clone, Copy, Default)]
pub enum Condition<'a> {
    /// No condition.
    #[default]
    Always,
    /// The object has this ETag; `*` for any, when the object only has to exist.
    Matches(&'a str),
    /// The object does not exist.
    New,
}

/// An answer of the server.
#[derive(Debug)]
pub struct Answer {
    /// The status code of HTTP, below 300.
    pub status: u16,
    /// The ETag, where the answer has one.
    pub etag: Option<String>,
    /// The body; null when it is empty.
    pub value: Value,
}

/// Why there is no answer, or none that helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server cannot be reached.
    #[error("{}: {source}; {}", .server, .advice)]
    Connect {
        /// The socket, or the address.
        server: String,
        /// The remedy.
        advice: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The connection has ended in the middle.
    #[error("the connection to the server has ended: {}", cause(.0))]
    Lost(#[from] hyper::Error),
    /// The server has not answered in time. It may do what was asked for all the same.
    #[error("the server has not answered within {} s", .0.as_secs())]
    Late(Duration),
    /// The server has refused the request.
    #[error(transparent)]
    Refused(Problem),
    /// The server has refused the token.
    #[error("{}: {server} does not know this token; take one of the file that api.tokens of its configuration names", .file.display())]
    Token {
        /// The server.
        server: String,
        /// The file with the token.
        file: PathBuf,
    },
    /// The server knows no client with this certificate.
    #[error(
        "{0}: the server knows no client with this certificate; name one in api.client of its configuration, or use a token"
    )]
    Certificate(String),
    /// The request or the answer is not what it should be.
    #[error("{0}")]
    Unclear(String),
}

impl Client {
    /// A client of the server that listens there.
    ///
    /// # Errors
    ///
    /// When the system has no resources left.
    pub fn new(server: Endpoint) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { server, runtime, limit: None })
    }

    /// The client, with a limit for the time of each request and its answer.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Sends a request and waits for the whole answer. `path` begins with a slash; what is no part of its structure is
    /// percent-encoded.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        when: Condition<'_>,
    ) -> Result<Answer, ClientError> {
        let exchange = async {
            let response = self.send(method, path, body, when).await?;
            let (head, body) = response.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
            let json = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
            let value = if bytes.is_empty() { Value::Null } else { json };
            if !head.status.is_success() {
                return Err(self.server.refused(head.status.as_u16(), &value));
            }
            let etag = head.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
            Ok(Answer { status: head.status.as_u16(), etag, value })
        };
        self.runtime.block_on(async {
            match self.limit {
                Some(limit) => timeout(limit, exchange).await.unwrap_or(Err(ClientError::Late(limit))),
                None => exchange.await,
            }
        })
    }

    /// Reads server-sent events until the server ends or `take` says that it is enough. `take` gets the data of each
    /// event.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn events(&self, path: &str, mut take: impl FnMut(&str) -> bool) -> Result<(), ClientError> {
        self.runtime.block_on(async {
            let mut response = self.send("GET", path, None, Condition::Always).await?;
            if !response.status().is_success() {
                let status = response.status().as_u16();
                let bytes = response.into_body().collect().await?.to_bytes();
                return Err(self.server.refused(status, &serde_json::from_slice(&bytes).unwrap_or_default()));
            }
            let mut text = Vec::new();
            while let Some(frame) = response.frame().await {
                text.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let line = String::from_utf8_lossy(&line);
                    if let Some(data) = line.trim_end().strip_prefix("data: ")
                        && !take(data)
                    {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        when: Condition<'_>,
    ) -> Result<Response<Incoming>, ClientError> {
        let unclear = |what: &dyn std::fmt::Display| ClientError::Unclear(what.to_string());
        let mut sender = self.server.connect().await?;
        let method: Method = method.parse().map_err(|error| unclear(&error))?;
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, "*/*");
        request = match &self.server {
            Endpoint::Unix(_) => request.header(HOST, "localhost"),
            Endpoint::Tls { host, .. } => request.header(HOST, host),
        };
        if let Endpoint::Tls { token: Some(token), .. } = &self.server {
            request = request.header(AUTHORIZATION, bearer(&token.value)?);
        }
        request = match when {
            Condition::Always => request,
            Condition::Matches(etag) => request.header(IF_MATCH, etag),
            Condition::New => request.header(IF_NONE_MATCH, "*"),
        };
        let bytes = match body {
            None => Bytes::new(),
            Some(value) => {
                request = request.header(CONTENT_TYPE, "application/json");
                serde_json::to_vec(value).map_err(|error| unclear(&error))?.into()
            }
        };
        let request = request.body(Full::new(bytes)).map_err(|error| unclear(&error))?;
        Ok(sender.send_request(request).await?)
    }
}

/// The header that proves the client.
fn bearer(token: &str) -> Result<HeaderValue, ClientError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| ClientError::Unclear("the token has characters that no header may have".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Endpoint {
    /// A connection to the server.
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let failed = |advice: String| move |source| ClientError::Connect { server: self.to_string(), advice, source };
        match self {
            Self::Unix(path) => {
                let error = match UnixStream::connect(path).await {
                    Ok(stream) => return speak(stream).await,
                    Err(error) => error,
                };
                let advice = match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "only root, the user of the server and the group in api.group may use the socket".into()
                    }
                    io::ErrorKind::ConnectionRefused if !is_socket(path) => {
                        "it is no socket; write the path that --api or api.listen of the server has".into()
                    }
                    _ => format!("is the server running, with --api unix:{}?", path.display()),
                };
                Err(failed(advice)(error))
            }
            Self::Tls { host, port, trusted, .. } => {
                let stream = in_time(TcpStream::connect((host.as_str(), *port))).await;
                let advice = "is the server running, with this address in api.listen?";
                let stream = stream.map_err(failed(advice.into()))?;
                let name = ServerName::try_from(host.clone())
                    .map_err(|_| ClientError::Unclear(format!("{host:?} is no name of a server")))?;
                let shaken = in_time(TlsConnector::from(Arc::clone(trusted)).connect(name, stream)).await;
                let shaken = shaken.map_err(|error| {
                    let advice = if is_certificate(&error) {
                        "name the server's certificate, or its authority, with --ca"
                    } else {
                        "does HTTPS answer there? Name an address of the server's api.listen"
                    };
                    failed(advice.into())(error)
                });
                speak(shaken?).await
            }
        }
    }
}

impl Endpoint {
    /// The problem that an answer tells.
    fn refused(&self, status: u16, value: &Value) -> ClientError {
        match (self, serde_json::from_value(value.clone())) {
            (Self::Tls { token, .. }, _) if status == UNAUTHORIZED => match token {
                Some(token) => ClientError::Token { server: self.to_string(), file: token.file.clone() },
                None => ClientError::Certificate(self.to_string()),
            },
            (_, Ok(problem)) => ClientError::Refused(problem),
            (_, Err(_)) => ClientError::Unclear(format!("the server answers with status {status}")),
        }
    }
}

/// The status of an answer to a wrong token.
const UNAUTHORIZED: u16 = 401;

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// The first cause of an error. A server that refuses a certificate says so after the handshake of the client.
fn cause(error: &hyper::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Whether a handshake of TLS failed because of the certificate.
fn is_certificate(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

/// The name of the server in messages.
impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tls { host, port, .. } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Tls { host, port, .. } => write!(f, "https://{host}:{port}"),
        }
    }
}

/// Runs a step of connecting within its time.
async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(CONNECT_TIMEOUT, step).await?
}

/// HTTP over a stream.
async fn speak<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, ClientError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
