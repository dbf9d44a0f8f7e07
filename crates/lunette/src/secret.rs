//! CHAP credentials: a user name, and a file that holds the secret. Secrets are never given as arguments or in the
//! configuration, where other users of the machine could read them.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use lunette_session::{Credentials, Secret};

use crate::failure::Failure;
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

/// Reads the secret of `user`: the content of the file without a final line end.
pub(crate) fn credentials(user: &str, file: &Path) -> Result<Credentials, Failure> {
    let file = credentials::found(file).map_err(Failure::Configuration)?;
    let secret = lunette_initiator::read_secret(&file).map_err(Failure::configuration)?;
    if secret.is_short() {
        tracing::warn!(user, "the secret is shorter than {} bytes", Secret::RECOMMENDED_BYTES);
    }
    Ok(Credentials { user: user.into(), secret })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(content: &[u8]) -> Result<Credentials, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, content).unwrap();
        credentials("alice", &file)
    }

    #[test]
    fn the_line_end_is_not_part_of_the_secret() {
        let expected = Secret::new(b"correct horse battery".to_vec());
        for content in ["correct horse battery", "correct horse battery\n", "correct horse battery\r\n"] {
            assert!(read(content.as_bytes()).unwrap().secret.same_as(&expected), "{content:?}");
        }
    }

    #[test]
    fn an_empty_long_or_missing_file_is_refused() {
        for content in [&b""[..], b"\n", &[b'x'; 1025]] {
            assert!(matches!(read(content), Err(Failure::Configuration(_))));
        }
        assert!(matches!(credentials("a", Path::new("/nonexistent/secret")), Err(Failure::Configuration(_))));
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
