//! Certificates that are read again when their files have changed.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock};

use lunette_files::Stamp;

use crate::TlsError;

/// Tries to read files that change meanwhile.
const MAX_TRIES: usize = 4;

/// A configuration of files, as it was read last. Files that change for the worse take nothing away.
pub struct Renewed<T> {
    files: Vec<PathBuf>,
    read: Box<Read<T>>,
    /// Apart from the looks, which may wait for a file system: whoever needs the value does not.
    value: RwLock<T>,
    looks: Mutex<Looks>,
}

type Read<T> = dyn Fn() -> Result<T, TlsError> + Send + Sync;

/// The state of each file; `None` when it is missing or cannot be looked at.
type Stamps = Vec<Option<Stamp>>;

struct Looks {
    /// The files of the value.
    used: Stamps,
    /// Files that could not be used, of which the log has told.
    told: Stamps,
}

impl<T: Clone> Renewed<T> {
    /// Reads a configuration, which is of `files`. Those that are missing now need not be there later.
    ///
    /// # Errors
    ///
    /// The error of `read`, and one for files that change again and again meanwhile.
    pub fn open(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        for _ in 0..MAX_TRIES {
            let used = stamps(&files);
            let value = read()?;
            // A list that goes while the files are read would be missed for as long as it stays away.
            if stamps(&files) == used {
                let (value, looks) = (RwLock::new(value), Mutex::new(Looks { used, told: Stamps::new() }));
                return Ok(Self { files, read: Box::new(read), value, looks });
            }
        }
        Err(TlsError::at(&files[0], CHANGING))
    }

    /// The configuration that was read last, without a look at the files.
    pub fn now(&self) -> T {
        self.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The configuration of the files as they are now. While they cannot be used, or one is missing that was there, the
    /// one before stays, and the log says so once: without a list of what is revoked everyone would be let in.
    pub fn look(&self) -> T {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        if looks.used == stamps {
            return self.now();
        }
        match self.read_again(&looks.used, &stamps) {
            Ok(value) => {
                *self.value.write().unwrap_or_else(PoisonError::into_inner) = value;
                *looks = Looks { used: stamps, told: Stamps::new() };
                tracing::info!(file = %self.files[0].display(), "the certificates were read again");
            }
            // Each look tries again: what cannot be read now may be readable then.
            Err(error) if looks.told != stamps => {
                looks.told = stamps;
                tracing::error!(error, "certificates that have changed cannot be used; those from before are in use");
            }
            Err(_) => {}
        }
        self.now()
    }

    /// Reads files that were `used` and are like `found` now.
    fn read_again(&self, used: &Stamps, found: &Stamps) -> Result<T, String> {
        let lost = used.iter().zip(found).position(|(before, now)| before.is_some() && now.is_none());
        if let Some(at) = lost {
            let file = self.files[at].display();
            return Err(format!("{file} is missing; put it back, or restart to go on without it"));
        }
        let value = (self.read)().map_err(|error| error.to_string())?;
        if stamps(&self.files) == *found { Ok(value) } else { Err(CHANGING.into()) }
    }
}

/// The reason against files that are not what they were a moment ago.
const CHANGING: &str = "the files change while they are read";

fn stamps(files: &[PathBuf]) -> Stamps {
    files.iter().map(|file| Stamp::of(file).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn files_are_read_again_when_they_have_changed_and_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let [one, list] = ["one", "list"].map(|name| folder.path().join(name));
        let read = |one: &Path| match fs::read_to_string(one) {
            Ok(text) if text != "bad" => Ok(text),
            _ => Err(TlsError::at(one, "no certificate")),
        };
        let (files, path) = (vec![one.clone(), list.clone()], one.clone());
        assert!(Renewed::open(files.clone(), move || read(&path)).is_err());
        fs::write(&one, "first").unwrap();
        let path = one.clone();
        let renewed = Renewed::open(files, move || read(&path)).unwrap();
        for (write, expected) in [("first, again", "first, again"), ("bad", "first, again"), ("third", "third")] {
            fs::write(&one, write).unwrap();
            let before = renewed.now();
            assert_eq!((renewed.look().as_str(), renewed.now().as_str()), (expected, expected), "{before}");
        }
        fs::remove_file(&one).unwrap();
        assert_eq!(renewed.look(), "third");
        // A list that comes counts from then on, and then does not go without a word.
        fs::write(&one, "fourth").unwrap();
        fs::write(&list, "").unwrap();
        assert_eq!(renewed.look(), "fourth");
        fs::remove_file(&list).unwrap();
        fs::write(&one, "fifth").unwrap();
        assert_eq!(renewed.look(), "fourth");
    }

    #[test]
    fn a_list_that_goes_while_it_is_read_goes_on_to_count() {
        let folder = tempfile::tempdir().unwrap();
        let [one, list] = ["one", "list"].map(|name| folder.path().join(name));
        fs::write(&one, "first").unwrap();
        fs::write(&list, "revoked").unwrap();
        let (files, goes) = (vec![one.clone(), list.clone()], Arc::new(AtomicBool::new(false)));
        let (path, told) = (list.clone(), Arc::clone(&goes));
        let read = move || {
            if told.load(Ordering::Relaxed) {
                fs::remove_file(&path).unwrap();
            }
            Ok(fs::read_to_string(&path).ok())
        };
        let renewed = Renewed::open(files, read).unwrap();
        goes.store(true, Ordering::Relaxed);
        fs::write(&one, "second").unwrap();
        assert_eq!(renewed.look().as_deref(), Some("revoked"));
        assert_eq!(renewed.look().as_deref(), Some("revoked"));
        goes.store(false, Ordering::Relaxed);
        fs::write(&list, "revoked, too").unwrap();
        assert_eq!(renewed.look().as_deref(), Some("revoked, too"));
    }
}
