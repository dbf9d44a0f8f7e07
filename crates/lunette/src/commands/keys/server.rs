//! `lunette keys serve`: the key server.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;
use lunette_files::remedy;
use lunette_keys::server::{AuditLog, Engine, Master, ObjectStore, Server, Service};
use lunette_keys::{Argon2Cost, Key, Passphrase, write_private};
use lunette_tls::authority::Identities;
use lunette_tls::folder::TlsFiles;

use super::authority;
use super::secrets::{now, read_key, read_passphrase};
use crate::failure::Failure;
use crate::output;
use crate::system::{listen_failure, stop_on_signals};

/// How long the server's certificate is valid that is made on the first start.
const CERTIFICATE_SECONDS: i64 = 10 * 365 * 24 * 3600;

/// Serve keys by KMIP 1.0 to 1.4 over mutual TLS
///
/// On the first start with a new store, it makes what is missing: a master key in STORE/master.key, and an authority in
/// STORE/ca with a certificate for the server. `lunette keys ca issue STORE/ca NAME` then makes the files for a client.
///
/// The store is encrypted with the master key. Keep the master key on another medium than the store
/// (--master-key-file), in a systemd credential (--master-credential), or in a head (--master-passphrase-file); in the
/// store's folder it protects nothing from a thief of the disk.
///
/// The list of revoked certificates is read again when it changes. The audit log has one line of JSON for each request.
#[derive(Args)]
pub(super) struct Serve {
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5696", value_parser = crate::address::one)]
    listen: SocketAddr,
    /// The folder of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// The folder with ca-cert.pem, server-cert.pem, server-key.pem and ca-crl.pem [default: STORE/ca/server]
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// The audit log [default: STORE/audit.log]
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    #[command(flatten)]
    master: MasterSource,
}

/// Where the master key comes from.
#[derive(Args)]
#[group(multiple = false)]
#[expect(clippy::struct_field_names, reason = "the names are those of the options")]
struct MasterSource {
    /// A file of 32 bytes that is the master key [default: STORE/master.key]
    #[arg(long, value_name = "FILE")]
    master_key_file: Option<PathBuf>,
    /// The name of a systemd credential of 32 bytes that is the master key
    #[arg(long, value_name = "NAME")]
    master_credential: Option<String>,
    /// A file with the passphrase from which the master key is made
    #[arg(long, value_name = "FILE")]
    master_passphrase_file: Option<PathBuf>,
}

/// The secret of a [`MasterSource`].
enum MasterSecret {
    Key(Key),
    Passphrase(Passphrase),
}

pub(super) fn run(arguments: &Serve) -> Result<(), Failure> {
    let folder = &arguments.store;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| Failure::Configuration(format!("{}: {error}{}", folder.display(), remedy(&error))))?;
    let file = folder.join("keys.redb");
    let secret = arguments.master.read(folder, !file.exists())?;
    let master = match &secret {
        MasterSecret::Key(key) => Master::Key(key),
        MasterSecret::Passphrase(passphrase) => Master::Passphrase(passphrase, Argon2Cost::DEFAULT),
    };
    let store = ObjectStore::open(&file, master).map_err(Failure::configuration)?;
    let engine = Engine::new(store.load().map_err(Failure::configuration)?);
    tracing::info!(objects = engine.len(), "the key store is open");

    let tls = match &arguments.tls {
        Some(folder) => folder.clone(),
        None => own_certificate(folder, arguments.listen)?,
    };
    let path = arguments.audit.clone().unwrap_or_else(|| folder.join("audit.log"));
    let audit = AuditLog::open(&path)
        .map_err(|error| Failure::Configuration(format!("{}: {error}{}", path.display(), remedy(&error))))?;
    let listener = Server::listen(arguments.listen).map_err(|error| listen_failure(arguments.listen, &error))?;
    let address = listener.local_addr().map_err(Failure::other)?;
    let service = Service::new(engine, store, audit);
    let server = Server::new(listener, TlsFiles::in_folder(&tls), service).map_err(Failure::configuration)?;
    let stopper = server.stopper().map_err(Failure::other)?;
    stop_on_signals(move || stopper.stop()).map_err(Failure::other)?;
    output::line(format_args!("kmip://{address}"))?;
    server.run();
    Ok(())
}

impl MasterSource {
    fn read(&self, store: &Path, is_new: bool) -> Result<MasterSecret, Failure> {
        if let Some(path) = &self.master_passphrase_file {
            return read_passphrase(path).map(MasterSecret::Passphrase);
        }
        if let Some(name) = &self.master_credential {
            let path = lunette_keys::source::credential(name).map_err(Failure::configuration)?;
            return read_key(&path).map(MasterSecret::Key);
        }
        if let Some(path) = &self.master_key_file {
            return read_key(path).map(MasterSecret::Key);
        }
        let path = store.join("master.key");
        if is_new && !path.exists() {
            write_private(&path, Key::random().expose()).map_err(Failure::configuration)?;
            tracing::warn!("the master key lies beside the store, in {}: move it to another medium", path.display());
        }
        read_key(&path).map(MasterSecret::Key)
    }
}

/// The folder with a certificate for this address, which is issued when it is missing.
fn own_certificate(store: &Path, listen: SocketAddr) -> Result<PathBuf, Failure> {
    let folder = store.join("ca/server");
    if folder.join("server-cert.pem").exists() {
        return Ok(folder);
    }
    let now = now().cast_signed();
    let mut authority = authority::open(&store.join("ca"), now)?;
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let own = listen.ip();
    if !own.is_unspecified() && !own.is_loopback() {
        hosts.push(own.to_string());
    }
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    hosts.extend(Some(name.trim()).filter(|name| is_host(name)).map(Into::into));
    let identities = Identities::server(&hosts);
    authority.issue("server", &identities, now, now + CERTIFICATE_SECONDS).map_err(Failure::configuration)
}

/// Whether a name of this machine can be in a certificate.
fn is_host(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    !name.is_empty() && name.len() < 64 && name.bytes().all(plain)
}
