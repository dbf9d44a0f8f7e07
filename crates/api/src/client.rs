//! A client of the API, for the command line. It waits.

use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, ETAG, HOST, IF_MATCH};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::problem::Problem;

/// What stays as it is in a part of a path (RFC 3986 section 3.3).
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// The path of what these parts name.
pub fn path(parts: &[impl AsRef<str>]) -> String {
    let encode = |part: &_| format!("/{}", utf8_percent_encode(AsRef::<str>::as_ref(part), PLAIN));
    std::iter::once("/v1".to_owned()).chain(parts.iter().map(encode)).collect()
}

/// A client over a Unix socket.
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

/// What the server has answered.
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
pub enum ClientError {
    /// The server cannot be reached.
    #[error("{path}: {source}; is the server running, with --api unix:{path}?")]
    Connect {
        /// The socket.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The connection has ended in the middle.
    #[error("the connection to the server has ended: {0}")]
    Lost(#[from] hyper::Error),
    /// The server has refused the request.
    #[error(transparent)]
    Refused(Problem),
    /// The request or the answer is not what it should be.
    #[error("{0}")]
    Unclear(String),
}

impl Client {
    /// A client of the server that listens at this socket.
    ///
    /// # Errors
    ///
    /// When the system has no resources left.
    pub fn new(socket: &Path) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { socket: socket.into(), runtime })
    }

    /// Sends a request and waits for the whole answer. `path` begins with a slash; what is no part of its structure is percent-encoded.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, ClientError> {
        self.runtime.block_on(async {
            let response = self.send(method, path, body, if_match).await?;
            let (head, body) = response.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
            let json = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
            let value = if bytes.is_empty() { Value::Null } else { json };
            if !head.status.is_success() {
                return Err(refused(head.status.as_u16(), &value));
            }
            let etag = head.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
            Ok(Answer { status: head.status.as_u16(), etag, value })
        })
    }

    /// Reads server-sent events until the server ends or `take` says that it is enough. `take` gets the data of each event.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn events(&self, path: &str, mut take: impl FnMut(&str) -> bool) -> Result<(), ClientError> {
        self.runtime.block_on(async {
            let mut response = self.send("GET", path, None, None).await?;
            if !response.status().is_success() {
                let status = response.status().as_u16();
                let bytes = response.into_body().collect().await?.to_bytes();
                return Err(refused(status, &serde_json::from_slice(&bytes).unwrap_or_default()));
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
        if_match: Option<&str>,
    ) -> Result<Response<Incoming>, ClientError> {
        let unclear = |what: &dyn std::fmt::Display| ClientError::Unclear(what.to_string());
        let stream = UnixStream::connect(&self.socket).await;
        let path_of = || self.socket.display().to_string();
        let stream = stream.map_err(|source| ClientError::Connect { path: path_of(), source })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let method: Method = method.parse().map_err(|error| unclear(&error))?;
        let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost").header(ACCEPT, "*/*");
        if let Some(etag) = if_match {
            request = request.header(IF_MATCH, etag);
        }
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

/// The problem that an answer tells.
fn refused(status: u16, value: &Value) -> ClientError {
    match serde_json::from_value(value.clone()) {
        Ok(problem) => ClientError::Refused(problem),
        Err(_) => ClientError::Unclear(format!("the server answers with status {status}")),
    }
}
