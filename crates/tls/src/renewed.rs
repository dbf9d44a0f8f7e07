//! Certificates that are read again when their files have changed.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_files::Stamp;

use crate::TlsError;

/// A configuration of files, as it was read last. Files that change for the worse take nothing away.
pub struct Renewed<T> {
    files: Vec<PathBuf>,
    read: Box<Read<T>>,
    state: Mutex<State<T>>,
}

type Read<T> = dyn Fn() -> Result<T, TlsError> + Send + Sync;

/// The state of each file; `None` when it is missing or cannot be looked at.
type Stamps = Vec<Option<Stamp>>;

struct State<T> {
    value: T,
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
    /// The error of `read`.
    pub fn open(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        // Looked at first: a change while they are read is seen the next time.
        let used = stamps(&files);
        let value = read()?;
        Ok(Self { files, read: Box::new(read), state: Mutex::new(State { value, used, told: Stamps::new() }) })
    }

    /// The configuration that was read last, without a look at the files.
    pub fn now(&self) -> T {
        self.state().value.clone()
    }

    /// The configuration of the files as they are now. While they cannot be used, or one is missing that was there, the
    /// one before stays, and the log says so once: without a list of what is revoked everyone would be let in.
    pub fn look(&self) -> T {
        let mut state = self.state();
        let stamps = stamps(&self.files);
        if state.used == stamps {
            return state.value.clone();
        }
        let lost = state.used.iter().zip(&stamps).position(|(before, now)| before.is_some() && now.is_none());
        let found = match lost {
            Some(at) => {
                Err(format!("{} is missing; put it back, or restart to go on without it", self.files[at].display()))
            }
            None => (self.read)().map_err(|error| error.to_string()),
        };
        match found {
            Ok(value) => {
                *state = State { value, used: stamps, told: Stamps::new() };
                tracing::info!(file = %self.files[0].display(), "the certificates were read again");
            }
            // Each look tries again: what cannot be read now may be readable then.
            Err(error) if state.told != stamps => {
                state.told = stamps;
                tracing::error!(error, "certificates that have changed cannot be used; those from before are in use");
            }
            Err(_) => {}
        }
        state.value.clone()
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamps(files: &[PathBuf]) -> Stamps {
    files.iter().map(|file| Stamp::of(file).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

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
}
