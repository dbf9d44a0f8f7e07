//! Where `lunette ctl` finds the server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use lunette_api::address::{Url, read_token};
use lunette_api::client::{Endpoint, Token};

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
    /// A folder with ca-cert.pem instead of --ca, and client-cert.pem with client-key.pem instead of --token-file [env:
    /// LUNETTE_TLS]
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "ca")]
    tls: Option<PathBuf>,
}

/// The value of a variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A server, before anything of it is read.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Socket(PathBuf),
    Remote { url: Url, token_file: Option<PathBuf>, trusted: Trusted },
}

/// The certificates that a server may have.
#[derive(Debug, PartialEq, Eq)]
enum Trusted {
    /// Certificates in a file, or those of their authorities.
    Ca(PathBuf),
    /// Certificates of the authority in a folder, which may have one of the client, too.
    Tls(PathBuf),
}

impl To {
    /// The server that the options name, or else the environment.
    pub(super) fn endpoint(&self) -> Result<Endpoint, Failure> {
        let (url, token_file, trusted) = match self.named(&|name| std::env::var_os(name))? {
            Named::Socket(path) => return Ok(Endpoint::Unix(path)),
            Named::Remote { url, token_file, trusted } => (url, token_file, trusted),
        };
        let config = match &trusted {
            Trusted::Ca(ca) => lunette_tls::client(ca, None).map(|config| (config, false)),
            Trusted::Tls(folder) => lunette_tls::web_client(folder),
        };
        let (config, has_certificate) = config.map_err(Failure::configuration)?;
        if token_file.is_none() && !has_certificate {
            let what = "with a token of its api.tokens, or a folder with client-cert.pem in --tls";
            return Err(Failure::Usage(format!("--server needs --token-file FILE, {what}")));
        }
        let read = |file: PathBuf| read_token(&file).map(|value| Token { value, file });
        let token = token_file.map(read).transpose().map_err(Failure::configuration)?;
        Ok(Endpoint::Tls { host: url.host, port: url.port, trusted: Arc::new(config), token })
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
        // A folder that is an option says by which certificate to come; the server would count a token before it.
        let token_file = match &self.tls {
            Some(_) => self.token_file.clone(),
            None => file(&self.token_file, "LUNETTE_TOKEN_FILE"),
        };
        let trusted = match (&self.tls, &self.ca) {
            (Some(folder), _) => Some(Trusted::Tls(folder.clone())),
            (None, Some(ca)) => Some(Trusted::Ca(ca.clone())),
            (None, None) => {
                let folder = file(&None, "LUNETTE_TLS").map(Trusted::Tls);
                folder.or_else(|| file(&None, "LUNETTE_CA").map(Trusted::Ca))
            }
        };
        let trusted = trusted.ok_or_else(|| {
            let what = "with its certificate or that of its authority, or --tls DIR";
            Failure::Usage(format!("--server needs --ca FILE, {what}"))
        })?;
        Ok(Named::Remote { url, token_file, trusted })
    }

    fn socket(&self, variable: Variable<'_>) -> Result<Named, Failure> {
        if self.token_file.is_some() || self.ca.is_some() || self.tls.is_some() {
            return Err(Failure::Usage("--token-file, --ca and --tls are for --server https://HOST:PORT".into()));
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
        let by = |trusted, host: &str| Named::Remote { url: url(host), token_file: Some("/t".into()), trusted };
        let (ca, tls) = (|path: &str| Trusted::Ca(path.into()), |path: &str| Trusted::Tls(path.into()));
        let remote = |host: &str| by(ca("/c"), host);
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
        let folder = ("LUNETTE_TLS", "/d");
        let to = |own: Option<Trusted>| match own {
            Some(Trusted::Ca(path)) => To { ca: Some(path), ..options(None, Some("https://h")) },
            Some(Trusted::Tls(path)) => To { tls: Some(path), ..options(None, Some("https://h")) },
            None => options(None, Some("https://h")),
        };
        for (own, expected) in [(None, tls("/d")), (Some(ca("/e")), ca("/e"))] {
            assert_eq!(named(to(own), &[folder]), Ok(by(expected, "h")));
        }
        let by_certificate = Named::Remote { url: url("h"), token_file: None, trusted: tls("/f") };
        assert_eq!(named(to(Some(tls("/f"))), &[folder]), Ok(by_certificate));
        let both = named(options(Some("unix:/a"), Some("https://h")), &[]).unwrap_err();
        assert!(both.contains("leave one of them out"), "{both}");
        let wrong = named(options(None, None), &[("LUNETTE_SERVER", "host")]).unwrap_err();
        assert!(wrong.contains("LUNETTE_SERVER: "), "{wrong}");
        let files = To { ca: Some("/c".into()), ..options(Some("unix:/a"), None) };
        assert!(named(files, &[]).unwrap_err().contains("are for --server"));
    }
}
