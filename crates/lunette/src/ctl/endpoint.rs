//! Where `lunette ctl` finds the server.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use lunette_api::client::Endpoint;
use lunette_files::Content;
use zeroize::Zeroizing;

use crate::config::api::Place;
use crate::failure::Failure;

/// The port of HTTPS.
const HTTPS: u16 = 443;

/// The file that `--token-file` names.
const TOKEN: Content = Content { name: "a token", max_bytes: 4096 };

#[derive(Args)]
pub(super) struct To {
    /// The server's socket on this machine
    #[arg(
        long,
        value_name = "unix:PATH",
        env = "LUNETTE_API",
        default_value = "unix:/run/lunette/api.sock",
        global = true
    )]
    api: Place,
    /// The server's address, if it is another machine
    #[arg(long, value_name = "https://HOST[:PORT]", env = "LUNETTE_SERVER", global = true)]
    server: Option<Url>,
    /// The file that holds the token for --server
    #[arg(long, value_name = "FILE", env = "LUNETTE_TOKEN_FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The certificates that --server may have, or those of its authorities, in PEM
    #[arg(long, value_name = "FILE", env = "LUNETTE_CA", global = true)]
    ca: Option<PathBuf>,
}

/// `https://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Url {
    host: String,
    port: u16,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address of a server; write https://HOST or https://HOST:PORT");
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

impl To {
    /// The server that the options name.
    pub(super) fn endpoint(&self) -> Result<Endpoint, Failure> {
        let Some(Url { host, port }) = &self.server else {
            return match &self.api {
                _ if self.token_file.is_some() || self.ca.is_some() => {
                    Err(Failure::Usage("--token-file and --ca are for --server https://HOST:PORT".into()))
                }
                Place::Unix(path) => Ok(Endpoint::Unix(path.clone())),
                Place::Tcp(address) => Err(Failure::Usage(format!(
                    "--api is for a socket of this machine; write --server https://{address}"
                ))),
            };
        };
        let needs = |option: &str, what: &str| Failure::Usage(format!("--server needs {option} FILE, {what}"));
        let token =
            self.token_file.as_deref().ok_or_else(|| needs("--token-file", "with a token of its api.tokens"))?;
        let ca = self.ca.as_deref().ok_or_else(|| needs("--ca", "with its certificate or that of its authority"))?;
        let trusted = Arc::new(lunette_tls::client(ca, None).map_err(Failure::configuration)?);
        Ok(Endpoint::Tls { host: host.clone(), port: *port, trusted, token: read_token(token)? })
    }
}

/// The first word of the first line that is no comment: a line of the server's file is a token, too.
fn read_token(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let bytes = lunette_files::read_secret(path, TOKEN).map_err(Failure::configuration)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let token = lines.find_map(|line| line.split_whitespace().next());
    let none = || Failure::configuration(format!("{}: there is no token in it", path.display()));
    token.map(|token| Zeroizing::new(token.to_owned())).ok_or_else(none)
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
