use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use rustls::{ClientConnection, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::*;

/// A folder with the certificate and the key of `localhost`, which is its own authority.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(folder.path().join("cert.pem"), identity.cert.pem()).unwrap();
        fs::write(folder.path().join("key.pem"), identity.signing_key.serialize_pem()).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The text that the server reads from a client, or why there is no connection.
fn spoken(server: ServerConfig, client: ClientConfig) -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let session = ServerConnection::new(Arc::new(server)).unwrap();
        let mut stream = StreamOwned::new(session, listener.accept().unwrap().0);
        let mut said = [0; 5];
        stream.read_exact(&mut said).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    });
    let session = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(address).unwrap());
    // The server says whether it came.
    let _ = stream.write_all(b"hello").and_then(|()| stream.flush());
    let outcome = serving.join().unwrap();
    drop(stream);
    outcome
}

#[test]
fn sides_trust_each_other_by_their_files() {
    let files = Files::new();
    let (certificates, key) = (files.path("cert.pem"), files.path("key.pem"));
    let own = Identity { certificates: &certificates, key: &key };
    assert_eq!(spoken(server(own, None).unwrap(), client(&certificates, None).unwrap()).as_deref(), Ok("hello"));
    let clients = Clients { authorities: &certificates, revoked: &files.path("missing.pem") };
    let refused = spoken(server(own, Some(clients)).unwrap(), client(&certificates, None).unwrap());
    assert!(refused.unwrap_err().contains("certificate"), "a client without a certificate");
    let stranger = Files::new();
    let refused = spoken(server(own, None).unwrap(), client(&stranger.path("cert.pem"), None).unwrap());
    assert!(refused.is_err(), "a server of another authority");
}

#[test]
fn mistakes_name_their_file_and_never_the_key() {
    let (files, other) = (Files::new(), Files::new());
    let (certificates, key) = (files.path("cert.pem"), files.path("key.pem"));
    let (empty, missing, foreign) = (files.path("empty.pem"), files.path("missing.pem"), other.path("key.pem"));
    fs::write(&empty, "").unwrap();
    let said = |certificates: &Path, key: &Path| server(Identity { certificates, key }, None).unwrap_err().to_string();
    let with_lists = |revoked: &Path| {
        let clients = Clients { authorities: &certificates, revoked };
        server(Identity { certificates: &certificates, key: &key }, Some(clients)).unwrap_err().to_string()
    };
    for (message, file, reason) in [
        (with_lists(&empty), &empty, "there is no revocation list in it"),
        (with_lists(&key), &key, "there is no revocation list in it"),
        (said(&missing, &key), &missing, "no such file"),
        (said(&empty, &key), &empty, "there is no certificate in it"),
        (said(&certificates, &empty), &empty, "no items found"),
        (said(&certificates, &certificates), &certificates, "no items found"),
        (said(&certificates, &foreign), &certificates, "cannot be used with the key"),
        (client(&empty, None).unwrap_err().to_string(), &empty, "there is no certificate in it"),
    ] {
        assert!(message.starts_with(file.to_str().unwrap()), "{message}");
        assert!(message.to_lowercase().contains(reason), "{message}: {reason}");
    }
}
