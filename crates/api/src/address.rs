//! The names by which a client finds a server of the API on another machine, and the file with its token.

use std::path::Path;
use std::str::FromStr;

use lunette_files::{Content, FileProblem};
use zeroize::Zeroizing;

/// The port of HTTPS.
const HTTPS: u16 = 443;

/// The file that holds a token.
const TOKEN: Content = Content { name: "a token", max_bytes: 4096 };

/// `https://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// The name or address, without brackets.
    pub host: String,
    /// The port, that of HTTPS if the text has none.
    pub port: u16,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The text is not repeated here: it may hold a password.
        let wrong = || "that is no address of a server; write https://HOST or https://HOST:PORT".to_owned();
        let authority = text.strip_prefix("https://").ok_or_else(wrong)?.trim_end_matches('/');
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (authority, HTTPS),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || host.contains(['/', '@', '?', '#', '[', ']', ' ']) {
            return Err(wrong());
        }
        Ok(Self { host: host.into(), port })
    }
}

/// Says why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileProblem),
    /// The file has comments alone, or nothing.
    #[error("{0}: there is no token in it")]
    Empty(String),
}

/// Reads the first word of the first line that is no comment: a line of the server's file is a token, too.
///
/// # Errors
///
/// [`TokenError`].
pub fn read_token(path: &Path) -> Result<Zeroizing<String>, TokenError> {
    let bytes = lunette_files::read_secret(path, TOKEN)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let token = lines.find_map(|line| line.split_whitespace().next());
    token.map(|token| Zeroizing::new(token.to_owned())).ok_or_else(|| TokenError::Empty(path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_hosts_with_or_without_a_port() {
        for (text, host, port) in [
            ("https://host", "host", 443),
            ("https://host:8443/", "host", 8443),
            ("https://192.0.2.1:8443", "192.0.2.1", 8443),
            ("https://[2001:db8::1]:8443", "2001:db8::1", 8443),
            ("https://[::1]", "::1", 443),
        ] {
            assert_eq!(text.parse(), Ok(Url { host: host.into(), port }), "{text}");
        }
        for text in
            ["host:8443", "http://host", "https://", "https://host:x", "https://u@host", "https://h/v1", "https://:1"]
        {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_is_the_first_word_of_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (content, token) in
            [("abc\n", Some("abc")), ("# admin\n\n abc role=read\nx\n", Some("abc")), ("# none\n", None)]
        {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read_token(&path).ok().as_deref().map(String::as_str), token, "{content:?}");
        }
    }
}
