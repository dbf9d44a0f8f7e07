//! iSCSI URLs: the portal, target and logical unit, the credentials, and the parameters of the session.
//!
//! `iscsi://[USER[%PASSWORD]@]HOST[:PORT][/TARGET[/LUN]][?PARAMETER=VALUE&…]`; `iscsis://` for TLS;
//! `ecl://` for the Effective Cross Layer, and below IP
//! `ecl+eth://[USER[%PASSWORD]@]INTERFACE/MAC[/TARGET[/LUN]][?PARAMETER=VALUE&…]`.
//!
//! The form is libiscsi's, with more parameters: every key of RFC 7143 that is negotiated, in lower snake case
//! ([`parameters`]), files for secrets, and where the keys of an encrypted disk are ([`keys`]). [`Url::parse`] is pure;
//! [`Url::chap`] fetches the secrets.

mod error;
mod keys;
mod parameters;
mod redacted;
#[cfg(test)]
mod tests;
mod tls;

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use lunette_ecl_endpoint::DatagramOptions;
use lunette_reactor::{Mac, TcpOptions};
use lunette_scsi::{Lun, MAX_FLAT_LUN};
use lunette_session::iscsi_initiator::ChapIdentity;
use lunette_session::keys::Offer;
use lunette_session::{ChapAlgorithms, Credentials, Secret, check_foreign_name};

use crate::error::Error;
use crate::options::{Options, Transport};
use crate::portal::{DEFAULT_PORT, Portal, check_bracketed};
use crate::secret::read_secret;
use crate::session::{Initiator, Session};
use crate::tls::ClientTls;
pub use error::UrlError;
use error::wrong;
pub use keys::KeyParameters;
pub use redacted::{REDACTED, redacted, redacted_url};

/// The length of the longest URL, in bytes.
const MAX_LEN: usize = 8192;

/// The environment variable with the secret of the user, for URLs that do not say where it is.
const PASSWORD_VARIABLE: &str = "LUNETTE_CHAP_PASSWORD";

/// The environment variable with the secret that the target must prove to know.
const TARGET_PASSWORD_VARIABLE: &str = "LUNETTE_CHAP_TARGET_PASSWORD";

/// An iSCSI URL.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Url {
    /// The transport of the session: `iscsi://` is TCP, `ecl://` and `ecl+eth://` the Effective Cross Layer.
    pub transport: Transport,
    /// The host, as in [`Portal::host`].
    pub host: String,
    /// The port, as in [`Portal::port`].
    pub port: u16,
    /// The iSCSI name of the target, as it is sent; if absent, the URL names a portal.
    pub target: Option<String>,
    /// The paths to the disk, if more than one portal is to be used.
    pub paths: Option<Paths>,
    /// The logical unit number; if absent, the URL names a target.
    pub lun: Option<Lun>,
    /// The values that the login offers.
    pub offer: Offer,
    /// The option [`Options::coalesce`].
    pub coalesce: bool,
    /// The options [`Options::datagrams`].
    pub datagrams: DatagramOptions,
    /// The options [`Options::tcp`].
    pub tcp: TcpOptions,
    /// The iSCSI name to log in with, if the URL gives one.
    pub initiator_name: Option<String>,
    /// TLS of `iscsis://`: the options [`Options::tls`].
    pub tls: Option<ClientTls>,
    /// Where the keys are, if the disk is encrypted. With keys, [`connect`](Self::connect) refuses, because what it
    /// gives would be ciphertext.
    pub keys: Option<KeyParameters>,
    login: Login,
}

/// The portals that several paths to a disk lead through.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Paths {
    /// The portals that discovery gives: this many, or all up to [`MAX_PATHS`](crate::limits::MAX_PATHS).
    Discovered(Option<usize>),
    /// The portals besides that of the URL.
    Portals(Vec<Portal>),
}

/// The user that logs in, and where the secrets are.
#[derive(Debug, Clone, Default)]
struct Login {
    user: Option<String>,
    password: Option<Secret>,
    secret_file: Option<PathBuf>,
    target_user: Option<String>,
    target_password: Option<Secret>,
    target_secret_file: Option<PathBuf>,
    algorithms: Option<ChapAlgorithms>,
}

/// The scheme of URLs with a station on an Ethernet.
const ETHERNET: &str = "ecl+eth";

/// The scheme of URLs whose connections speak TLS.
const TLS: &str = "iscsis";

/// Bytes of an interface's name (`IFNAMSIZ` of Linux, less its end).
const MAX_INTERFACE_LEN: usize = 15;

/// In the first byte of a MAC address: it is that of several stations.
const GROUP_BIT: u8 = 1;

/// The initiator name if neither the URL nor the caller gives one.
const INITIATOR_NAME: &str = "iqn.2026-11.lunette:initiator";

/// Whether `text` is meant to be an iSCSI URL, rather than a path.
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        ["iscsi", TLS, "ecl", ETHERNET, "iser"].iter().any(|s| scheme.eq_ignore_ascii_case(s))
    })
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// [`UrlError`]. It never repeats a password.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = match Self::read(text) {
            Ok(url) => url,
            // What is wrong may be a part of the password, so the message is that of the text without it.
            Err(error) => match redacted_url(text) {
                shown if shown == text => return Err(error),
                shown => return Err(Self::read(&shown).err().unwrap_or_else(|| UrlError(UNENCODED.into()))),
            },
        };
        let passwords = [&url.login.password, &url.login.target_password];
        let placeholder = Secret::new(REDACTED.as_bytes().to_vec());
        let in_user = url.login.user.as_ref().is_some_and(|user| user.ends_with(&format!(":{REDACTED}")));
        if in_user || passwords.into_iter().flatten().any(|password| password.same_as(&placeholder)) {
            return wrong(format!(
                "{REDACTED} stands where a password is not shown; write the password, or put it into a file and write chap_secret_file=FILE or \
                 chap_target_secret_file=FILE"
            ));
        }
        Ok(url)
    }

    fn read(text: &str) -> Result<Self, UrlError> {
        if text.len() > MAX_LEN {
            return wrong(format!("a URL of {} bytes is too long (at most {MAX_LEN})", text.len()));
        }
        let (transport, portal_of, rest): (_, PortalReader, _) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("iscsi") => (Transport::Tcp, host_of, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(TLS) => (Transport::Tcp, host_of, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ecl") => (Transport::Ecl, host_of, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(ETHERNET) => (Transport::Ecl, station_of, rest),
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("iser") => return wrong(NO_ISER),
            _ => return wrong("an iSCSI URL starts with iscsi://, iscsis://, ecl:// or ecl+eth://"),
        };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
        let (user, portal) = authority.rsplit_once('@').map_or((None, authority), |(user, rest)| (Some(user), rest));
        let (Portal { host, port }, path) = portal_of(portal, path)?;
        let (target, lun) = path_of(path)?;
        let mut url = Self {
            transport,
            host,
            port,
            target,
            paths: None,
            lun,
            offer: Offer::initiator(),
            coalesce: true,
            datagrams: DatagramOptions::default(),
            tcp: TcpOptions::default(),
            initiator_name: None,
            tls: None,
            keys: None,
            login: Login::default(),
        };
        let speaks_tls = text.get(..TLS.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(TLS));
        parameters::read(&mut url, speaks_tls, query.unwrap_or(""))?;
        if let Some(user) = user {
            let (name, password) = user_of(user, url.login.secret_file.is_some())?;
            (url.login.user, url.login.password) = (Some(name), password);
        }
        url.check_login()?;
        Ok(url)
    }

    fn check_login(&self) -> Result<(), UrlError> {
        let Login { user, password, secret_file, target_user, target_password, target_secret_file, algorithms } =
            &self.login;
        let target = target_user.is_some() || target_password.is_some() || target_secret_file.is_some();
        match () {
            () if user.is_none() && (password.is_some() || secret_file.is_some()) => {
                wrong("there is a secret for CHAP and no user; write iscsi://USER@HOST")
            }
            () if user.is_none() && target => {
                wrong("a target proves itself only to a user who does (mutual CHAP); write iscsi://USER@HOST")
            }
            () if user.is_none() && algorithms.is_some() => {
                wrong("chap_algorithms is for a user who proves to be one; write iscsi://USER@HOST")
            }
            () if password.is_some() && secret_file.is_some() => {
                wrong("the secret stands in the URL and in chap_secret_file; leave out one of them")
            }
            () if target_password.is_some() && target_secret_file.is_some() => {
                wrong("the target's secret stands in the URL and in chap_target_secret_file; leave out one of them")
            }
            () => Ok(()),
        }
    }

    /// The portal to connect to.
    pub fn portal(&self) -> Portal {
        Portal { host: self.host.clone(), port: self.port }
    }

    /// The options of the session, with secrets from the places that the URL names or from the environment.
    ///
    /// # Errors
    ///
    /// The errors of [`chap`](Self::chap).
    pub fn options(&self) -> Result<Options, UrlError> {
        Ok(Options {
            chap: self.chap(|variable| std::env::var(variable).ok())?,
            transport: self.transport,
            offer: self.offer.clone(),
            coalesce: self.coalesce,
            datagrams: self.datagrams,
            tls: self.tls.clone(),
            tcp: self.tcp.clone(),
            ..Options::new(self.initiator_name.as_deref().unwrap_or(INITIATOR_NAME))
        })
    }

    /// Logs in to the target of the URL.
    ///
    /// # Errors
    ///
    /// [`Error::Url`] if the URL names no target, [`keys`](Self::keys) or [`paths`](Self::paths), and those of
    /// [`Session::connect`].
    pub async fn connect(&self, initiator: &Initiator, options: Options) -> Result<Session, Error> {
        if self.paths.is_some() {
            return Err(
                UrlError(format!("{self} is to have several paths, and this is one session; {ONE_PATH}")).into()
            );
        }
        Session::connect(initiator, &self.portal(), self.plain_target()?, options).await
    }

    /// The target of a URL without keys.
    pub(crate) fn plain_target(&self) -> Result<&str, UrlError> {
        if self.keys.is_some() {
            return Err(UrlError(format!(
                "{self} names keys, and this would read and write the disk without decrypting; {KEYED}"
            )));
        }
        let no_target = || UrlError(format!("{self} names no target; write {self}/TARGET/LUN"));
        self.target.as_deref().ok_or_else(no_target)
    }

    /// Whether the URL contains secrets, which other users of the machine may be able to read.
    pub fn shows_secrets(&self) -> bool {
        self.login.password.is_some() || self.login.target_password.is_some()
    }

    /// The files with its secrets.
    pub fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let Login { secret_file, target_secret_file, .. } = &self.login;
        [secret_file, target_secret_file].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Fetches the secrets: from the URL, a file that it names, or the `environment`. `None` without a user.
    ///
    /// # Errors
    ///
    /// A secret is nowhere, or its file cannot be used.
    pub fn chap(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Option<ChapIdentity>, UrlError> {
        self.chap_by(environment, |file| read_secret(file).map_err(|error| error.to_string()))
    }

    /// Fetches the secrets as [`chap`](Self::chap) does, those in files by `read`.
    ///
    /// # Errors
    ///
    /// A secret is nowhere, or that of `read`.
    pub fn chap_by(
        &self,
        environment: impl Fn(&str) -> Option<String>,
        read: impl Fn(&Path) -> Result<Secret, String>,
    ) -> Result<Option<ChapIdentity>, UrlError> {
        let read = |file: &Path| read(file).map_err(UrlError);
        let Some(user) = &self.login.user else { return Ok(None) };
        let secret = |variable: &str| {
            let value = environment(variable).filter(|value| !value.is_empty());
            value.map(|value| Secret::new(value.into_bytes()))
        };
        let initiator = match (&self.login.password, &self.login.secret_file) {
            (Some(password), _) => Credentials { user: user.clone(), secret: password.clone() },
            (None, Some(file)) => Credentials { user: user.clone(), secret: read(file)? },
            (None, None) => match secret(PASSWORD_VARIABLE) {
                Some(secret) => Credentials { user: user.clone(), secret },
                None => return Err(no_secret(user)),
            },
        };
        let target_user = self.login.target_user.clone().unwrap_or_default();
        let target = match (&self.login.target_password, &self.login.target_secret_file) {
            (Some(password), _) => Some(Credentials { user: target_user, secret: password.clone() }),
            (None, Some(file)) => Some(Credentials { user: target_user, secret: read(file)? }),
            (None, None) => secret(TARGET_PASSWORD_VARIABLE).map(|secret| Credentials { user: target_user, secret }),
        };
        if target.is_none() && self.login.target_user.is_some() {
            return Err(UrlError(format!(
                "no secret for target_user; put it into {TARGET_PASSWORD_VARIABLE}, or into a file and write \
                 chap_target_secret_file=FILE"
            )));
        }
        Ok(Some(ChapIdentity { initiator, target, algorithms: self.login.algorithms.unwrap_or_default() }))
    }
}

impl fmt::Display for Url {
    /// The place, without the user and the parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let portal = self.portal();
        let scheme = match self.transport {
            Transport::Tcp if self.tls.is_some() => TLS,
            Transport::Tcp => "iscsi",
            Transport::Ecl if portal.station().is_some() => ETHERNET,
            Transport::Ecl => "ecl",
        };
        // In URLs the percent sign before a zone is encoded (RFC 6874).
        write!(f, "{scheme}://{}", portal.to_string().replace('%', "%25"))?;
        if let Some(target) = &self.target {
            write!(f, "/{}", encode(target))?;
        }
        match self.lun.and_then(Lun::number) {
            Some(lun) => write!(f, "/{lun}"),
            None => Ok(()),
        }
    }
}

/// The error of a user without a secret. What stands behind a colon may be one, and is not shown.
fn no_secret(user: &str) -> UrlError {
    let places = format!("put it into {PASSWORD_VARIABLE}, or into a file and write chap_secret_file=FILE");
    UrlError(match user.split_once(':') {
        Some((user, _)) => format!(
            "no secret for \"{user}:{REDACTED}\"; a password stands behind a percent sign ({user}%PASSWORD), not behind a \
             colon. If that is the user's whole name, {places}"
        ),
        None => format!("no secret for {user:?}; {places}"),
    })
}

/// The mistake in a URL that is right with another password.
const UNENCODED: &str = "the password has a character that has to be written as '%' and two hexadecimal digits: write %2F for '/', %3F for '?', %26 for '&' and %25 for '%'";

/// The remedy for a URL that asks for several paths where there is one session.
const ONE_PATH: &str = "leave out paths and portals";

/// The remedy for a URL that names keys.
#[cfg(feature = "encryption")]
const KEYED: &str = "open it with lunette_initiator::encryption, or leave out keys";
#[cfg(not(feature = "encryption"))]
const KEYED: &str = "use the crate's feature encryption to decrypt it, or leave out keys";

const NO_ISER: &str = "iSER (RDMA) is not supported; leave it out to use TCP";

/// `USER`, or `USER%PASSWORD` as libiscsi has it. In both, `%XX` stands for a byte.
///
/// The first percent sign that does not stand for a byte begins the password. When all could stand for one, it is the
/// first of all, as libiscsi reads it; but with `has_secret` the secret is elsewhere, and there is no password.
fn user_of(text: &str, has_secret: bool) -> Result<(String, Option<Secret>), UrlError> {
    let is_byte =
        |at: usize| text.as_bytes().get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    let mut signs = text.match_indices('%').map(|(at, _)| at);
    let plain = signs.clone().find(|at| !is_byte(*at));
    let separator = plain.or_else(|| signs.next().filter(|_| !has_secret));
    let (user, password) = separator.map_or((text, None), |at| (&text[..at], Some(&text[at + 1..])));
    let user = decode(user)?;
    if user.is_empty() {
        return wrong("the user before '@' has no name; write iscsi://USER@HOST");
    }
    let password = match password {
        None => None,
        Some("") => return wrong("the password behind '%' is empty; leave out the '%' to take it from elsewhere"),
        Some(password) => Some(Secret::new(decode_bytes(password).ok_or_else(|| {
            UrlError("the password has a '%' that is not followed by two hexadecimal digits; write %25 for '%'".into())
        })?)),
    };
    Ok((user, password))
}

/// Reads a portal from what stands before the first slash and what stands behind it; gives what is left of the latter.
type PortalReader = for<'a> fn(&str, &'a str) -> Result<(Portal, &'a str), UrlError>;

/// `INTERFACE`, and behind the slash `MAC`, `MAC/…`.
fn station_of<'a>(interface: &str, rest: &'a str) -> Result<(Portal, &'a str), UrlError> {
    let interface = decode(interface)?;
    let is_name = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
    if interface.is_empty() || interface.len() > MAX_INTERFACE_LEN || !interface.chars().all(is_name) {
        return wrong(format!(
            "{interface:?} is no interface; write its name first, as in ecl+eth://eth0/02:00:00:00:00:01"
        ));
    }
    let (mac, path) = rest.split_once('/').unwrap_or((rest, ""));
    match decode(mac)?.parse::<Mac>() {
        Ok(mac) if mac.0[0] & GROUP_BIT == 0 && mac != Mac::default() => {
            Ok((Portal::on_ethernet(&interface, mac), path))
        }
        Ok(mac) => wrong(format!("{mac} is the address of no single station; write that of the target's interface")),
        Err(_) => wrong(format!(
            "{mac:?} is no MAC address; write that of the target behind the interface, as in ecl+eth://eth0/02:00:00:00:00:01"
        )),
    }
}

/// `HOST`, `HOST:PORT`, `[IPV6]`, `[IPV6]:PORT`.
fn host_of<'a>(text: &str, path: &'a str) -> Result<(Portal, &'a str), UrlError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, rest)) if rest.starts_with(':') => (host, rest.strip_prefix(':')),
            _ => return wrong("an IPv6 address stands in brackets: iscsi://[2001:db8::1]:3260"),
        },
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let in_brackets = text.starts_with('[');
    let host = if in_brackets { with_plain_zone(host)? } else { host.to_owned() };
    if in_brackets && check_bracketed(&host).is_err() {
        return wrong(format!("{host:?} in brackets is no IPv6 address"));
    }
    if !in_brackets && port.is_some_and(|port| port.contains(':')) {
        return wrong("an IPv6 address stands in brackets: iscsi://[2001:db8::1]:3260");
    }
    let legal = |c: char| c.is_alphanumeric() || "-._".contains(c);
    if host.is_empty() || !in_brackets && !host.chars().all(legal) {
        return wrong(format!("{host:?} is no host; write a name or an address, as in iscsi://192.0.2.1"));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) => match text.parse() {
            Ok(port) if port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => return wrong(format!("{text:?} is no port; write a number from 1 to 65535, or nothing for 3260")),
        },
    };
    Ok((Portal { host, port }, path))
}

/// An IPv6 address as the system takes it: behind its percent sign a zone, which stands behind `%25` in a URL (RFC
/// 6874), and which people write behind `%`.
fn with_plain_zone(host: &str) -> Result<String, UrlError> {
    match host.split_once('%') {
        Some((address, zone)) => {
            let zone = zone.strip_prefix("25").filter(|zone| !zone.is_empty()).unwrap_or(zone);
            Ok(format!("{address}%{}", decode(zone)?))
        }
        None => Ok(host.into()),
    }
}

/// Nothing, `TARGET`, or `TARGET/LUN`.
fn path_of(text: &str) -> Result<(Option<String>, Option<Lun>), UrlError> {
    let (target, lun) = text.split_once('/').map_or((text, ""), |(target, lun)| (target, lun));
    if target.is_empty() {
        return if lun.is_empty() { Ok((None, None)) } else { wrong("the target's name is missing before the LUN") };
    }
    let target = decode(target)?;
    check_foreign_name(&target).map_err(|error| UrlError(error.to_string()))?;
    if lun.is_empty() {
        return Ok((Some(target), None));
    }
    let number = lun.parse().ok().filter(|_| lun.bytes().all(|byte| byte.is_ascii_digit()));
    match number.and_then(Lun::new) {
        Some(lun) => Ok((Some(target), Some(lun))),
        None => wrong(format!("{lun:?} is no LUN; write a number from 0 to {MAX_FLAT_LUN} behind the target's name")),
    }
}

/// The name of a target as [`decode`] reads it.
fn encode(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            // Writing to a string cannot fail.
            '%' | '/' | '?' | '#' | '@' | ' ' | '"' | '\'' | '`' => drop(write!(text, "%{:02X}", u32::from(character))),
            other => text.push(other),
        }
    }
    text
}

/// `%XX` becomes a byte, and all bytes together must be UTF-8.
fn decode(text: &str) -> Result<String, UrlError> {
    let bytes = decode_bytes(text).ok_or_else(|| {
        UrlError(format!("in {text:?} a '%' is not followed by two hexadecimal digits; write %25 for '%'"))
    })?;
    String::from_utf8(bytes).map_err(|_| UrlError(format!("{text:?} is no UTF-8 behind its percent signs")))
}

fn decode_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(match byte {
            b'%' => (digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8,
            byte => byte,
        });
    }
    Some(bytes)
}
