//! A client of key servers: ours, and any other that speaks KMIP 1.0 to 1.4.
//!
//! ```no_run
//! use lunette_keys::client::Client;
//! use lunette_tls::folder::TlsFiles;
//!
//! let tls = TlsFiles::in_folder("/etc/lunette/tls".as_ref());
//! let mut client = Client::connect("keys.example:5696", &tls)?;
//! let id = client.create_key("volume-1", 256)?;
//! client.activate(&id)?;
//! let key = client.get_key(&id)?;
//! # Ok::<(), lunette_keys::client::ClientError>(())
//! ```

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use lunette_tls::TlsError;
use lunette_tls::folder::TlsFiles;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use zeroize::Zeroizing;

use crate::kmip::{
    Attribute, AttributeValue, BatchItem, Kind, ManagedObject, Operation, QueryFunction, Refusal, Request,
    RequestMessage, Response, ResponseMessage, RevocationCode, Version,
};
use crate::limited::Limited;
use crate::secret::Key;
use crate::ttlv;

/// The time to connect, and for the TLS handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time from a request to the last byte of its answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The port of KMIP.
pub const PORT: u16 = 5696;

/// The number of AES among the algorithms.
const AES: u32 = 3;

/// The length of a [`Key`] in bits.
const KEY_BITS: i32 = 256;
const _: () = assert!(Key::LEN == 32);

/// The usage mask of a key that encrypts and decrypts.
const ENCRYPT_AND_DECRYPT: i32 = 0x4 | 0x8;

/// Why a key server did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The certificates of this side cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address is none, or the server cannot be reached.
    #[error("the key server {server} cannot be reached: {error}")]
    Unreachable {
        /// The server.
        server: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The connection broke, or one side does not accept the other's certificate.
    #[error("the connection to the key server {server} failed: {error}{}", hint(.error))]
    Lost {
        /// The server.
        server: String,
        /// The error of the system or of TLS.
        error: io::Error,
    },
    /// The server refuses.
    #[error("the key server refuses: {0}")]
    Refused(Refusal),
    /// The answer is not one that belongs to the request.
    #[error("the key server answers nonsense: {0}")]
    Nonsense(String),
    /// The server has no object of a name, or more than one.
    #[error("{0}")]
    NotFound(String),
}

/// TLS tells the reasons of the other side in one word each.
fn hint(error: &io::Error) -> &'static str {
    let text = error.to_string();
    let table = [
        ("CertificateRevoked", ": this client's certificate was revoked"),
        ("CertificateExpired", ": this client's certificate has expired"),
        ("UnknownCA", ": the server does not trust the CA of this client's certificate"),
        ("certificate expired", ": the server's certificate has expired, or the clock is wrong"),
        ("UnknownIssuer", ": the server's certificate is not of the CA in ca-cert.pem"),
        ("not valid for name", ": the server's certificate is for another name"),
    ];
    table.iter().find(|(word, _)| text.contains(word)).map_or("", |(_, hint)| hint)
}

/// A connection to a key server. A broken one stays broken; connect again.
pub struct Client {
    server: String,
    stream: StreamOwned<ClientConnection, Limited>,
    version: Version,
}

impl Client {
    /// Connects to `HOST:PORT` and agrees on a version.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, or one side does not accept the other.
    pub fn connect(server: &str, tls: &TlsFiles) -> Result<Self, ClientError> {
        let config = tls.client()?;
        let unreachable = |error| ClientError::Unreachable { server: server.into(), error };
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(|error| unreachable(io::Error::other(error)))?;
        let socket = dial(server).map_err(unreachable)?;
        let lost = |error| ClientError::Lost { server: server.into(), error };
        socket.set_nodelay(true).map_err(lost)?;
        let tls = ClientConnection::new(config, name).map_err(|error| lost(io::Error::other(error)))?;
        let stream = StreamOwned::new(tls, Limited::new(socket, CONNECT_TIMEOUT));
        let mut client = Self { server: server.into(), stream, version: Version::SUPPORTED[0] };
        client.version = client.agree()?;
        Ok(client)
    }

    /// The version that both sides speak.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The highest common version. A server that does not know Discover Versions, which came with 1.1, speaks 1.0.
    fn agree(&mut self) -> Result<Version, ClientError> {
        self.version = Version::one(1);
        let request = Request::DiscoverVersions { versions: Version::SUPPORTED.to_vec() };
        match self.request(&request) {
            Ok(Response::Versions(versions)) => {
                let common = versions.into_iter().filter(|version| version.is_supported()).max();
                common.ok_or_else(|| ClientError::Nonsense("it speaks no version of KMIP from 1.0 to 1.4".into()))
            }
            Ok(_) => Err(unexpected()),
            Err(ClientError::Refused(_)) => Ok(Version::one(0)),
            Err(error) => Err(error),
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the connection breaks.
    pub fn request(&mut self, request: &Request) -> Result<Response, ClientError> {
        let operation = request.operation();
        let item = BatchItem { operation: operation.number(), batch_id: None, payload: request.to_payload() };
        let message =
            RequestMessage { version: self.version, maximum_response_bytes: None, goes_on: false, items: vec![item] };
        let bytes = Zeroizing::new(ttlv::encode(&message.to_item()));
        let answer = self.exchange(&bytes).map_err(|error| ClientError::Lost { server: self.server.clone(), error })?;
        let nonsense = |refusal: Refusal| ClientError::Nonsense(refusal.message);
        let item = ttlv::decode(&answer).map_err(|error| ClientError::Nonsense(error.to_string()))?;
        let message = ResponseMessage::from_item(item).map_err(nonsense)?;
        let [answer] = <[_; 1]>::try_from(message.answers).map_err(|_| unexpected())?;
        if answer.operation.is_some_and(|number| number != operation.number()) {
            return Err(unexpected());
        }
        let payload = answer.outcome.map_err(ClientError::Refused)?;
        Response::from_payload(operation, payload).map_err(nonsense)
    }

    fn exchange(&mut self, bytes: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
        self.stream.sock.start(ANSWER_TIMEOUT);
        self.stream.write_all(bytes)?;
        self.stream.flush()?;
        let mut header = [0; ttlv::HEADER_LEN];
        self.stream.read_exact(&mut header)?;
        let len = ttlv::message_len(&header).map_err(io::Error::other)?;
        let mut answer = Zeroizing::new(vec![0; len]);
        answer[..header.len()].copy_from_slice(&header);
        self.stream.read_exact(&mut answer[header.len()..])?;
        Ok(answer)
    }

    /// Draws an AES key at the server, and returns its identifier.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn create_key(&mut self, name: &str, bits: i32) -> Result<String, ClientError> {
        let attributes = vec![
            Attribute::new("Cryptographic Algorithm", AttributeValue::Enumeration(AES)),
            Attribute::new("Cryptographic Length", AttributeValue::Integer(bits)),
            Attribute::new("Cryptographic Usage Mask", AttributeValue::Integer(ENCRYPT_AND_DECRYPT)),
            Attribute::named(name),
        ];
        let object_type = crate::kmip::ObjectType::SymmetricKey;
        match self.request(&Request::Create { object_type, attributes })? {
            Response::Created { id, .. } => Ok(id),
            _ => Err(unexpected()),
        }
    }

    /// Gives the server an AES key of this side's, and returns its identifier.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn register_key(&mut self, name: &str, key: &Key) -> Result<String, ClientError> {
        let kind = Kind::SymmetricKey { algorithm: Some(AES), bits: Some(KEY_BITS) };
        let object = ManagedObject { kind, material: Zeroizing::new(key.expose().to_vec()) };
        let attributes = vec![
            Attribute::new("Cryptographic Usage Mask", AttributeValue::Integer(ENCRYPT_AND_DECRYPT)),
            Attribute::named(name),
        ];
        self.register(object, attributes)
    }

    /// Gives the server an object of this side's, and returns its identifier.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn register(&mut self, object: ManagedObject, attributes: Vec<Attribute>) -> Result<String, ClientError> {
        self.done(&Request::Register { attributes, object })
    }

    /// Fetches a key of 32 bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request), and an object that is no key.
    pub fn get_key(&mut self, id: &str) -> Result<Key, ClientError> {
        let object = self.get(id)?;
        let key = Key::from_slice(&object.material);
        key.ok_or_else(|| ClientError::NotFound(format!("the object {id} is no key of 32 bytes")))
    }

    /// Fetches an object.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn get(&mut self, id: &str) -> Result<ManagedObject, ClientError> {
        match self.request(&Request::Get { id: Some(id.into()), format: None })? {
            Response::Object { object, .. } => Ok(object),
            _ => Err(unexpected()),
        }
    }

    /// The identifiers of the objects that have all of these attributes.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn locate(&mut self, attributes: Vec<Attribute>) -> Result<Vec<String>, ClientError> {
        match self.request(&Request::Locate { maximum_items: None, offset_items: None, attributes })? {
            Response::Located { ids, .. } => Ok(ids),
            _ => Err(unexpected()),
        }
    }

    /// The identifier of the only object of a name.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request), and none or several such objects.
    pub fn find(&mut self, name: &str) -> Result<String, ClientError> {
        let ids = self.locate(vec![Attribute::named(name)])?;
        match <[String; 1]>::try_from(ids) {
            Ok([id]) => Ok(id),
            Err(ids) if ids.is_empty() => {
                Err(ClientError::NotFound(format!("the key server has no object {name} for this client")))
            }
            Err(ids) => Err(ClientError::NotFound(format!("the key server has {} objects {name}", ids.len()))),
        }
    }

    /// All attributes of an object that this client knows.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn attributes(&mut self, id: &str) -> Result<Vec<Attribute>, ClientError> {
        match self.request(&Request::GetAttributes { id: Some(id.into()), names: Vec::new() })? {
            Response::Attributes { attributes, .. } => Ok(attributes),
            _ => Err(unexpected()),
        }
    }

    /// Lets a key be used.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn activate(&mut self, id: &str) -> Result<(), ClientError> {
        self.done(&Request::Activate { id: Some(id.into()) }).map(drop)
    }

    /// Ends the use of a key.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn revoke(&mut self, id: &str, code: RevocationCode) -> Result<(), ClientError> {
        let request = Request::Revoke { id: Some(id.into()), code, message: None, occurred: None };
        self.done(&request).map(drop)
    }

    /// Destroys an object.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn destroy(&mut self, id: &str) -> Result<(), ClientError> {
        self.done(&Request::Destroy { id: Some(id.into()) }).map(drop)
    }

    /// The operations that the server supports, and the name of its maker.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn query(&mut self) -> Result<(Vec<Operation>, Option<String>), ClientError> {
        let functions = vec![QueryFunction::Operations.number(), QueryFunction::ServerInformation.number()];
        match self.request(&Request::Query { functions })? {
            Response::Query { operations, vendor, .. } => {
                Ok((operations.into_iter().filter_map(Operation::from_number).collect(), vendor))
            }
            _ => Err(unexpected()),
        }
    }

    fn done(&mut self, request: &Request) -> Result<String, ClientError> {
        match self.request(request)? {
            Response::Done { id, .. } => Ok(id),
            _ => Err(unexpected()),
        }
    }
}

fn unexpected() -> ClientError {
    ClientError::Nonsense("the answer belongs to another request".into())
}

/// Connects to the first address that answers.
fn dial(server: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
