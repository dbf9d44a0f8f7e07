//! CHAP credentials: a user name, and a file that holds the secret. Secrets are never given as arguments or in the
//! configuration, where other users of the machine could read them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lunette_session::Secret;

use crate::questions::Rounds;
use crate::systemd::credentials;

/// A `USER:FILE` argument. Users have colons where they are called after iSCSI names, and so may files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChapArgument {
    pub(crate) user: String,
    pub(crate) file: PathBuf,
}

impl FromStr for ChapArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match split(text) {
            Some((user, file)) if !user.is_empty() && !file.is_empty() => {
                lunette_session::check_local_name(user).map_err(|error| error.to_string())?;
                Ok(Self { user: user.into(), file: credentials::path(file)? })
            }
            _ => Err("write USER:FILE, where FILE holds the secret".into()),
        }
    }
}

/// Splits at the first colon behind which a path begins with `/`, `./` or `../`, or a credential is named, else at the
/// last colon.
fn split(text: &str) -> Option<(&str, &str)> {
    let parts = || text.match_indices(':').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let is_path = |file: &str| ["/", "./", "../", credentials::PREFIX].iter().any(|begin| file.starts_with(begin));
    parts().find(|(user, file)| !user.is_empty() && is_path(file)).or_else(|| parts().next_back())
}

/// The secrets in files, as they were read last.
#[derive(Clone, Default)]
pub(crate) struct SecretFiles(BTreeMap<PathBuf, Result<Secret, String>>);

impl SecretFiles {
    /// Reads all of these files, together in the time that questions to the system have. A file that does not answer,
    /// because its server is gone, has no secret, and keeps none of the others.
    pub(crate) fn read<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        Self::default().read_again(files)
    }

    /// Reads these files. One that does not answer has the secret that it had.
    pub(crate) fn read_again<'a>(&self, files: impl IntoIterator<Item = &'a Path>) -> Self {
        self.read_by(files, read)
    }

    pub(crate) fn read_by<'a>(
        &self,
        files: impl IntoIterator<Item = &'a Path>,
        read: impl Fn(&Path) -> Result<Secret, String> + Send + Sync + 'static,
    ) -> Self {
        static ROUNDS: Rounds = Rounds::new();
        let files: BTreeSet<PathBuf> = files.into_iter().map(Path::to_path_buf).collect();
        let asked: Vec<_> = files.iter().cloned().collect();
        let names = asked.iter().map(|file| format!("secret in {}", file.display())).collect();
        let answers = ROUNDS.ask(names, move |index| read(&asked[index]));
        let late = |file: &Path| Err(format!("{}: it does not answer; check what it lies on", file.display()));
        let known = |file: &Path| {
            let secret = self.0.get(file)?.as_ref().ok()?;
            tracing::warn!(file = %file.display(), "the file of a secret does not answer; the secret stays as it was");
            Some(Ok(secret.clone()))
        };
        let secret = |(file, answer): (PathBuf, Option<_>)| {
            let secret = answer.or_else(|| known(&file)).unwrap_or_else(|| late(&file));
            (file, secret)
        };
        Self(files.into_iter().zip(answers).map(secret).collect())
    }

    /// Puts what these files have over what is known, and forgets all files but those that are `wanted`.
    pub(crate) fn take<'a>(&mut self, read: Self, wanted: impl IntoIterator<Item = &'a Path>) {
        self.0.extend(read.0);
        let wanted: BTreeSet<&Path> = wanted.into_iter().collect();
        self.0.retain(|file, _| wanted.contains(file.as_path()));
    }

    /// The secret in a file that was read.
    pub(crate) fn secret(&self, file: &Path) -> Result<Secret, String> {
        self.0.get(file).cloned().unwrap_or_else(|| Err(format!("{}: it was not read", file.display())))
    }
}

/// Reads a secret: the content of the file without a final line end.
fn read(file: &Path) -> Result<Secret, String> {
    let file = credentials::found(file)?;
    lunette_initiator::read_secret(&file).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    fn of_content(content: &[u8]) -> Result<Secret, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, content).unwrap();
        read(&file)
    }

    #[test]
    fn the_line_end_is_not_part_of_the_secret() {
        let expected = Secret::new(b"correct horse battery".to_vec());
        for content in ["correct horse battery", "correct horse battery\n", "correct horse battery\r\n"] {
            assert!(of_content(content.as_bytes()).unwrap().same_as(&expected), "{content:?}");
        }
    }

    #[test]
    fn an_empty_long_or_missing_file_is_refused() {
        for content in [&b""[..], b"\n", &[b'x'; 1025]] {
            assert!(of_content(content).is_err());
        }
        assert!(read(Path::new("/nonexistent/secret")).is_err());
    }

    fn of(secrets: &SecretFiles, file: &str) -> Result<Secret, String> {
        secrets.secret(Path::new(file))
    }

    #[test]
    fn a_file_that_does_not_answer_keeps_no_other_secret() {
        let (go_on, hung) = channel::<()>();
        let hung = Mutex::new(hung);
        let read = move |file: &Path| match file.to_str() {
            Some("/hangs") => Err(format!("{:?}", hung.lock().unwrap().recv())),
            Some("/fails") => Err("it cannot be read".into()),
            _ => Ok(Secret::new(file.as_os_str().as_encoded_bytes().to_vec())),
        };
        let secrets = SecretFiles::default().read_by(["/hangs", "/a", "/fails", "/b", "/a"].map(Path::new), read);
        for file in ["/a", "/b"] {
            assert!(of(&secrets, file).unwrap().same_as(&Secret::new(file.into())));
        }
        assert_eq!(of(&secrets, "/fails").err().unwrap(), "it cannot be read");
        assert!(of(&secrets, "/hangs").err().unwrap().contains("does not answer"));
        drop(go_on);
    }

    #[test]
    fn a_file_that_does_not_answer_any_more_has_the_secret_that_it_had() {
        let mut secrets =
            SecretFiles::default().read_by(["/silent", "/gone"].map(Path::new), |_| Ok(Secret::new(vec![b'1'; 12])));
        let (go_on, hung) = channel::<()>();
        let hung = Mutex::new(hung);
        let read = move |file: &Path| match file.to_str() {
            Some("/silent") => Err(format!("{:?}", hung.lock().unwrap().recv())),
            _ => Err("it cannot be read".into()),
        };
        let again = secrets.read_by(["/silent", "/gone"].map(Path::new), read);
        assert!(of(&again, "/silent").unwrap().same_as(&Secret::new(vec![b'1'; 12])));
        assert!(of(&again, "/gone").is_err(), "a file that answers counts as it is");
        secrets.take(again, ["/gone"].map(Path::new));
        assert!(of(&secrets, "/silent").err().unwrap().contains("was not read"), "no rule names it any more");
        drop(go_on);
    }

    #[test]
    fn arguments_need_both_parts() {
        for (text, user, file) in [
            ("alice:secret", "alice", "secret"),
            ("a:/x:y", "a", "/x:y"),
            ("a:./x:y", "a", "./x:y"),
            ("iqn.1993-08.org.debian:01:abc:secret", "iqn.1993-08.org.debian:01:abc", "secret"),
            ("iqn.1993-08.org.debian:01:abc:/etc/a:b", "iqn.1993-08.org.debian:01:abc", "/etc/a:b"),
            ("iqn.1993-08.org.debian:01:abc:../secret", "iqn.1993-08.org.debian:01:abc", "../secret"),
            ("DOM\\a b%2F@c:secret", "DOM\\a b%2F@c", "secret"),
        ] {
            assert_eq!(text.parse(), Ok(ChapArgument { user: user.into(), file: file.into() }), "{text}");
        }
        for text in ["", "a", "a:", ":/x"] {
            assert!(text.parse::<ChapArgument>().is_err(), "{text:?}");
        }
    }
}
