//! The certificates of portals that speak TLS. They are read at the start, and again when their files have changed:
//! sessions go on, and further connections meet the new ones.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lunette_reactor::TlsSource;
use lunette_target::{PortalConfig, PortalTls};
use lunette_tls::{Clients, ISCSI, Identity, Renewed, TlsError, UNNAMED, stream_server};
use rustls::ServerConfig;

use crate::config::Config;
use crate::failure::Failure;

/// The time between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(10);

/// The files of a folder, under the names that QEMU and libvirt use. They are the server's certificate and key, the
/// authorities of clients, and the list of what is revoked.
const FILES: [&str; 4] = ["server-cert.pem", "server-key.pem", "ca-cert.pem", "ca-crl.pem"];

/// The name of a protocol in ALPN.
type Protocol = &'static [u8];

/// A folder whose files can be used.
type Folder = Arc<Renewed<Arc<ServerConfig>>>;

/// The folders of all portals, with the protocol that is spoken within TLS, as long as the process lives: a portal that
/// goes may come back.
static FOLDERS: Mutex<BTreeMap<(PathBuf, Protocol), Folder>> = Mutex::new(BTreeMap::new());

/// The portals of a configuration with the certificates that they have now.
pub(crate) fn portals(config: &Config) -> Vec<PortalConfig> {
    let read = |tls: PortalTls| PortalTls { source: source(Path::new(&*tls.name), ISCSI), ..tls };
    let portals = config.portals().into_iter();
    portals.map(|portal| PortalConfig { tls: portal.tls.map(read), ..portal }).collect()
}

/// Looks at the files of all folders now and then, until the process ends.
pub(crate) fn follow() -> Result<(), Failure> {
    let run = || {
        loop {
            thread::sleep(INTERVAL);
            read_again();
        }
    };
    thread::Builder::new().name("lunette-tls".into()).spawn(run).map(drop).map_err(Failure::no_thread)
}

/// Reads the files that have changed. Certificates that cannot be used take nothing away: the ones before stay.
pub(crate) fn read_again() {
    let known: Vec<Folder> = folders().values().cloned().collect();
    for folder in known {
        folder.look();
    }
}

/// The TLS of a folder, as its files are at the time of a connection.
pub(crate) fn source(path: &Path, protocol: Protocol) -> Result<TlsSource, String> {
    let known = folders().get(&(path.to_owned(), protocol)).cloned();
    let folder = if let Some(folder) = known {
        folder.look();
        folder
    } else {
        let (files, place) = (FILES.map(|name| path.join(name)).to_vec(), path.to_owned());
        let folder = Renewed::open(files, move || read(&place, protocol)).map_err(|error| error.to_string())?;
        let folder = Arc::new(folder);
        folders().insert((path.into(), protocol), Arc::clone(&folder));
        folder
    };
    Ok(Arc::new(move || folder.now()))
}

/// Whether the files of a folder can be used.
pub(crate) fn check(folder: &Path) -> Result<(), TlsError> {
    read(folder, UNNAMED).map(drop)
}

fn folders() -> MutexGuard<'static, BTreeMap<(PathBuf, Protocol), Folder>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The configuration of a folder. Clients are asked for certificates when it names their authorities.
fn read(folder: &Path, protocol: Protocol) -> Result<Arc<ServerConfig>, TlsError> {
    let [certificates, key, authorities, revoked] = FILES.map(|name| folder.join(name));
    // A link that leads nowhere is a mistake, and not the wish to ask no client.
    let is_there = !authorities.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let clients = is_there.then_some(Clients { authorities: &authorities, revoked: &revoked });
    stream_server(Identity { certificates: &certificates, key: &key }, clients, protocol).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(folder: &Path) {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(folder.join(FILES[0]), own.cert.pem()).unwrap();
        fs::write(folder.join(FILES[1]), own.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_portal_that_is_open_meets_the_certificates_that_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(source(path, ISCSI).err().is_some_and(|why| why.contains("server-cert.pem")));
        write(path);
        let source = source(path, ISCSI).unwrap();
        let first = source();
        fs::write(path.join(FILES[1]), "no key").unwrap();
        read_again();
        assert!(Arc::ptr_eq(&first, &source()), "it cannot be used");
        write(path);
        read_again();
        assert!(!Arc::ptr_eq(&first, &source()));
    }

    #[test]
    fn each_portal_has_the_certificates_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let portal = |address: &str, folder: &Path| {
            format!("[[portal]]\naddress = \"{address}\"\ngroup = 2\ntls = {:?}\n", folder.display().to_string())
        };
        let target = "[[target]]\nname = \"iqn.a\"\n";
        let text = portal("127.0.0.1:1", folder.path()) + &portal("127.0.0.1:2", Path::new("/nowhere")) + target;
        let portals = portals(&crate::config::parse(&text).unwrap());
        let usable: Vec<_> = portals.iter().map(|portal| portal.tls.as_ref().map(|tls| tls.source.is_ok())).collect();
        assert_eq!(usable, [Some(true), Some(false)]);
    }
}
