//! The certificates of portals that speak TLS, of the API and of adapters. They are read at the start, and again when
//! their files have changed: sessions go on, and further connections meet the new ones.

mod ends;
mod files;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use lunette_api::Health;
use lunette_reactor::TlsSource;
use lunette_target::{PortalConfig, PortalTls};
use lunette_tls::{Renewed, TlsError};

use crate::config::Config;
use crate::failure::Failure;
pub(crate) use ends::{End, Kind};
pub(crate) use files::{Files, Read, Use};

/// The time between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(10);

/// Certificates of the server, which are in use as long as there is one of these.
#[derive(Clone)]
pub(crate) struct Certificates {
    known: Arc<Known>,
    _in_use: Arc<()>,
}

/// Files that can be used.
type Known = Renewed<Arc<Read>>;

/// All files that are in use, and some that were.
static ALL: Mutex<BTreeMap<(Use, Files), Entry>> = Mutex::new(BTreeMap::new());

struct Entry {
    known: Arc<Known>,
    users: Weak<()>,
}

impl Certificates {
    /// Reads certificates.
    pub(crate) fn open(of: Use, files: Files) -> Result<Self, TlsError> {
        let key = (of, files);
        let used = |entry: &&Entry| entry.users.strong_count() > 0;
        let known = all().get(&key).filter(used).map(|entry| Arc::clone(&entry.known));
        let known = if let Some(known) = known {
            known.look();
            known
        } else {
            let (of, files) = key.clone();
            Arc::new(Renewed::open(files.all(), move || files.read(of))?)
        };
        let mut all = all();
        all.retain(|_, entry| entry.users.strong_count() > 0);
        let entry = all.entry(key).or_insert_with(|| Entry { known, users: Weak::new() });
        let in_use = entry.users.upgrade().unwrap_or_default();
        entry.users = Arc::downgrade(&in_use);
        Ok(Self { known: Arc::clone(&entry.known), _in_use: in_use })
    }

    /// The certificates as they were read last.
    pub(crate) fn now(&self) -> Arc<Read> {
        self.known.now()
    }
}

/// The portals of a configuration with the certificates that they have now.
pub(crate) fn portals(config: &Config) -> Vec<PortalConfig> {
    let read = |tls: PortalTls| PortalTls { source: source(Use::Portal, Path::new(&*tls.name)), ..tls };
    let portals = config.portals().into_iter();
    portals.map(|portal| PortalConfig { tls: portal.tls.map(read), ..portal }).collect()
}

/// Looks at all files now and then, until the process ends.
pub(crate) fn follow(health: Health) -> Result<(), Failure> {
    ends::tell(&in_use(), &health, false);
    let run = move || {
        loop {
            thread::sleep(INTERVAL);
            look();
            ends::tell(&in_use(), &health, false);
        }
    };
    thread::Builder::new().name("lunette-tls".into()).spawn(run).map(drop).map_err(Failure::no_thread)
}

/// Reads the files that have changed, and tells of all that end.
pub(crate) fn read_again(health: &Health) {
    look();
    ends::tell(&in_use(), health, true);
}

/// The ends of the certificates and lists that are in use.
pub(crate) fn in_use() -> Vec<End> {
    let all = all();
    let used = all.values().filter(|entry| entry.users.strong_count() > 0);
    used.flat_map(|entry| entry.known.now().ends.clone()).collect()
}

/// Reads the files that have changed. Those that cannot be used take nothing away: the ones before stay.
fn look() {
    let known: Vec<_> = all().values().map(|entry| Arc::clone(&entry.known)).collect();
    for known in known {
        known.look();
    }
}

/// The TLS of a folder, as its files are at the time of a connection.
pub(crate) fn source(of: Use, folder: &Path) -> Result<TlsSource, String> {
    let certificates = Certificates::open(of, Files::in_folder(folder)).map_err(|error| error.to_string())?;
    Ok(Arc::new(move || Arc::clone(&certificates.now().config)))
}

/// Whether the files of a folder can be used.
pub(crate) fn check(of: Use, folder: &Path) -> Result<(), TlsError> {
    Files::in_folder(folder).read(of).map(drop)
}

fn all() -> MutexGuard<'static, BTreeMap<(Use, Files), Entry>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CERTIFICATE: &str = "server-cert.pem";
    const KEY: &str = "server-key.pem";

    fn write(folder: &Path) {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(folder.join(CERTIFICATE), own.cert.pem()).unwrap();
        fs::write(folder.join(KEY), own.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_portal_that_is_open_meets_the_certificates_that_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(source(Use::Portal, path).err().is_some_and(|why| why.contains(CERTIFICATE)));
        write(path);
        let source = source(Use::Portal, path).unwrap();
        let first = source();
        fs::write(path.join(KEY), "no key").unwrap();
        look();
        assert!(Arc::ptr_eq(&first, &source()), "it cannot be used");
        write(path);
        look();
        assert!(!Arc::ptr_eq(&first, &source()));
    }

    #[test]
    fn certificates_have_an_end_as_long_as_something_uses_them() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let file = folder.path().join(CERTIFICATE);
        let ends =
            || in_use().into_iter().filter(|end| end.file == file).map(|end| (end.of, end.kind)).collect::<Vec<_>>();
        let api = Certificates::open(Use::Api, Files::in_folder(folder.path())).unwrap();
        let of_api = (Use::Api, Kind::Certificate);
        assert_eq!(ends(), [of_api]);
        let portal = source(Use::Portal, folder.path()).unwrap();
        let other = source(Use::Portal, folder.path()).unwrap();
        drop(portal);
        assert_eq!(ends(), [(Use::Portal, Kind::Certificate), of_api]);
        drop(other);
        assert_eq!(ends(), [of_api]);
        drop(api);
        assert_eq!(ends(), []);
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
