//! Where `lunette ctl` finds the server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use lunette_api::address::{Url, read_token};
use lunette_api::client::Endpoint;

use crate::config::api::Place;
use crate::failure::Failure;

/// The socket of a server that is installed as a service.
const SOCKET: &str = "unix:/run/lunette/api.sock";

/// The server. An option counts before all variables: a variable may be left over from another server.
#[derive(Args, Default)]
pub(in crate::commands) struct To {
    /// The server's socket on this machine [env: LUNETTE_API] [default: unix:/run/lunette/api.sock]
    #[arg(long, value_name = "unix:PATH", global = true)]
    api: Option<Place>,
    /// The server's address, if it is another machine [env: LUNETTE_SERVER]
    #[arg(long, value_name = "https://HOST[:PORT]", global = true)]
    server: Option<Url>,
    /// The file that holds the token for --server [env: LUNETTE_TOKEN_FILE]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The certificates that --server may have, or those of its authorities, in PEM [env: LUNETTE_CA]
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
}

/// The value of a variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A server, before anything of it is read.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Socket(PathBuf),
    Remote { url: Url, token_file: PathBuf, ca: PathBuf },
}

impl To {
    /// The server that the options name, or else the environment.
    pub(super) fn endpoint(&self) -> Result<Endpoint, Failure> {
        let (url, token_file, ca) = match self.named(&|name| std::env::var_os(name))? {
            Named::Socket(path) => return Ok(Endpoint::Unix(path)),
            Named::Remote { url, token_file, ca } => (url, token_file, ca),
        };
        let trusted = Arc::new(lunette_tls::client(&ca, None).map_err(Failure::configuration)?);
        let token = read_token(&token_file).map_err(Failure::configuration)?;
        Ok(Endpoint::Tls { host: url.host, port: url.port, trusted, token, token_file })
    }

    /// Whether the server is on this machine.
    pub(in crate::commands) fn is_here(&self) -> Result<bool, Failure> {
        Ok(matches!(self.named(&|name| std::env::var_os(name))?, Named::Socket(_)))
    }

    fn named(&self, variable: Variable<'_>) -> Result<Named, Failure> {
        let server = match (&self.server, &self.api) {
            (Some(_), Some(_)) => {
                return Err(Failure::Usage("--api and --server name two servers; leave one of them out".into()));
            }
            (None, Some(_)) => None,
            (Some(url), None) => Some(url.clone()),
            (None, None) => parsed(variable, "LUNETTE_SERVER")?,
        };
        let Some(url) = server else { return self.socket(variable) };
        let file = |option: &Option<PathBuf>, name: &str| {
            option.clone().or_else(|| variable(name).filter(|file| !file.is_empty()).map(PathBuf::from))
        };
        let needs = |option: &str, what: &str| Failure::Usage(format!("--server needs {option} FILE, {what}"));
        let token_file = file(&self.token_file, "LUNETTE_TOKEN_FILE");
        let ca = file(&self.ca, "LUNETTE_CA");
        Ok(Named::Remote {
            url,
            token_file: token_file.ok_or_else(|| needs("--token-file", "with a token of its api.tokens"))?,
            ca: ca.ok_or_else(|| needs("--ca", "with its certificate or that of its authority"))?,
        })
    }

    fn socket(&self, variable: Variable<'_>) -> Result<Named, Failure> {
        if self.token_file.is_some() || self.ca.is_some() {
            return Err(Failure::Usage("--token-file and --ca are for --server https://HOST:PORT".into()));
        }
        let api = match &self.api {
            Some(place) => Some(place.clone()),
            None => parsed(variable, "LUNETTE_API")?,
        };
        match api.map_or_else(|| SOCKET.parse().map_err(Failure::Usage), Ok)? {
            Place::Unix(path) => Ok(Named::Socket(path)),
            Place::Tcp(address) => {
                Err(Failure::Usage(format!("--api is for a socket of this machine; write --server https://{address}")))
            }
        }
    }
}

/// The value of a variable, if it is set and not empty.
fn parsed<T: FromStr<Err = String>>(variable: Variable<'_>, name: &str) -> Result<Option<T>, Failure> {
    let Some(value) = variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let wrong = |why: String| Failure::Usage(format!("{name}: {why}"));
    value.to_str().ok_or_else(|| "it is no text".into()).and_then(str::parse).map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_counts_before_all_variables() {
        let url = |host: &str| Url { host: host.into(), port: 443 };
        let remote = |host: &str| Named::Remote { url: url(host), token_file: "/t".into(), ca: "/c".into() };
        let socket = |path: &str| Named::Socket(path.into());
        let files = [("LUNETTE_TOKEN_FILE", "/t"), ("LUNETTE_CA", "/c")];
        let (api, server) = (("LUNETTE_API", "unix:/env"), ("LUNETTE_SERVER", "https://env"));
        let options = |api: Option<&str>, server: Option<&str>| To {
            api: api.map(|text| text.parse().unwrap()),
            server: server.map(|text| text.parse().unwrap()),
            ..To::default()
        };
        let named = |options: To, variables: &[(&str, &str)]| {
            let find = |name: &str| {
                let all = variables.iter().chain(&files);
                all.filter(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)).next()
            };
            options.named(&find).map_err(|failure| failure.to_string())
        };
        for (to, variables, expected) in [
            (options(Some("unix:/a"), None), &[api, server][..], socket("/a")),
            (options(None, Some("https://h")), &[api, server], remote("h")),
            (options(None, None), &[server], remote("env")),
            (options(None, None), &[api], socket("/env")),
            (options(None, None), &[("LUNETTE_API", ""), ("LUNETTE_SERVER", "")], socket("/run/lunette/api.sock")),
        ] {
            assert_eq!(named(to, variables), Ok(expected), "{variables:?}");
        }
        let both = named(options(Some("unix:/a"), Some("https://h")), &[]).unwrap_err();
        assert!(both.contains("leave one of them out"), "{both}");
        let wrong = named(options(None, None), &[("LUNETTE_SERVER", "host")]).unwrap_err();
        assert!(wrong.contains("LUNETTE_SERVER: "), "{wrong}");
        let files = To { ca: Some("/c".into()), ..options(Some("unix:/a"), None) };
        assert!(named(files, &[]).unwrap_err().contains("are for --server"));
    }
}
