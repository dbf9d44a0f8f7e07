//! The configuration file. Its reference is `docs/configuration.md`.

pub(crate) mod adapters;
pub(crate) mod api;
mod chap;
pub(crate) mod check;
pub(crate) mod clones;
pub(crate) mod diff;
mod document;
pub(crate) mod ecl;
pub(crate) mod gateways;
pub(crate) mod hosts;
pub(crate) mod left_out;
pub(crate) mod limits;
mod listen;
mod lun;
pub(crate) mod metrics;
pub(crate) mod mistakes;
pub(crate) mod nbd;
pub(crate) mod pools;
pub(crate) mod port_groups;
mod readable;
pub(crate) mod schedules;
pub(crate) mod session;
pub(crate) mod sources;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use lunette_api::Subject;
use lunette_files::Content;
use lunette_initiator::Url;
use lunette_session::ChapAlgorithms;
use lunette_session::keys::{MARKER_INTERVAL, Offer};
use lunette_session::limits::{MAX_MOVED_ADDRESSES, MAX_SESSION_CONNECTIONS, MIN_MARKER_INTERVAL_WORDS};
use lunette_target::{DatagramPlace, DatagramPortalConfig, MAX_CORES, PortalConfig, PortalTls};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::failure::Failure;
use adapters::Adapters;
use api::Api;
pub(crate) use chap::{Chap, Discovery, SHUT, authentication};
use gateways::Gateways;
use hosts::HostEntry;
use limits::Limits;
pub(crate) use listen::Listen;
pub(crate) use lun::{LunEntry, Provisioning, quantum};
use metrics::Metrics;
use pools::PoolEntry;
use port_groups::{Access, PortGroupEntry};
use session::SessionKeys;

/// The port of iSCSI (RFC 7143 section 15).
const DEFAULT_PORT: u16 = 3260;

/// The portal group tag of portals that specify none.
pub(crate) const DEFAULT_PORTAL_GROUP: u16 = 1;

/// The longest address of a redirection: a DNS name with a port and a portal group.
const MAX_ADDRESS_CHARACTERS: usize = 255 + 12;

/// A configuration file, as far as it is read.
pub(crate) const CONFIGURATION: Content = Content { name: "a configuration", max_bytes: 4 << 20 };

/// A whole configuration, from a file or from arguments.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Refuses to serve anything while an object cannot be served.
    #[serde(default)]
    pub(crate) strict: bool,
    pub(crate) listen: Option<Vec<Listen>>,
    /// Where the Effective Cross Layer is spoken.
    #[serde(default)]
    pub(crate) ecl: Vec<ecl::Place>,
    /// Whether its datagrams pass the system joined.
    #[serde(default = "yes")]
    pub(crate) ecl_offloads: bool,
    /// The traffic to encrypt. Without it, what goes to other machines.
    pub(crate) ecl_protect: Option<ecl::Protect>,
    #[serde(default)]
    pub(crate) ecl_congestion_control: ecl::CongestionControl,
    #[serde(rename = "portal", default)]
    pub(crate) portals: Vec<Portal>,
    pub(crate) state: Option<PathBuf>,
    #[serde(default = "default_cores")]
    pub(crate) cores: usize,
    #[serde(default)]
    pub(crate) limits: Limits,
    #[serde(default)]
    pub(crate) discovery: Discovery,
    /// Where the API is served. Without it, it is not.
    pub(crate) api: Option<Api>,
    /// Where tools of other targets manage this one.
    #[serde(default)]
    pub(crate) adapters: Adapters,
    /// Where the numbers are read without TLS. Without it, by the API alone.
    pub(crate) metrics: Option<Metrics>,
    /// Where the disks are served by NBD, too.
    pub(crate) nbd: Option<nbd::Nbd>,
    /// The pools of volumes.
    #[serde(rename = "pool", default)]
    pub(crate) pools: Vec<PoolEntry>,
    #[serde(rename = "target", default)]
    pub(crate) targets: Vec<Target>,
}

/// A portal, with the portal group that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Portal {
    #[schema(value_type = String, example = "192.0.2.1:3260")]
    pub(crate) address: Listen,
    #[serde(default = "default_portal_group")]
    #[schema(minimum = 1, maximum = 65535)]
    pub(crate) group: u16,
    /// The folder with the certificates of a portal that speaks TLS and nothing else.
    #[schema(value_type = Option<String>, example = "/etc/lunette/tls")]
    pub(crate) tls: Option<PathBuf>,
}

/// A target node.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    // Characters of ASCII that are no part of an iSCSI name. Some beyond ASCII are none either.
    #[schema(
        pattern = r"^(iqn|eui|naa)\.[^\x00-\x2c\x2f\x3b-\x60\x7b-\x7f]+$",
        max_length = 223,
        example = "iqn.2026-11.org.example:db"
    )]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "chap::local_name")]
    #[schema(max_length = 255)]
    pub(crate) alias: Option<String>,
    pub(crate) allow: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) chap: Vec<Chap>,
    pub(crate) mutual_chap: Option<Chap>,
    #[serde(default, deserialize_with = "chap::algorithms")]
    #[schema(value_type = Option<Vec<chap::Algorithm>>, min_items = 1, example = json!(["sha3-256", "sha256"]))]
    pub(crate) chap_algorithms: Option<ChapAlgorithms>,
    #[serde(default = "default_max_connections")]
    pub(crate) max_connections: u32,
    /// The interval in 4-byte words; without it, no markers.
    pub(crate) marker_interval: Option<u32>,
    #[serde(default)]
    pub(crate) session: SessionKeys,
    #[serde(rename = "lun", default)]
    pub(crate) luns: Vec<LunEntry>,
    pub(crate) redirect: Option<Redirect>,
    #[serde(default)]
    pub(crate) access: Access,
    /// The gateways that offer its disks, this one among them.
    pub(crate) gateways: Option<Gateways>,
    #[serde(rename = "host", default)]
    pub(crate) hosts: Vec<HostEntry>,
    #[serde(rename = "port_group", default)]
    pub(crate) port_groups: Vec<PortGroupEntry>,
    /// The numbers of logical units that are left out.
    #[serde(skip)]
    pub(crate) absent: BTreeSet<u16>,
}

/// The address to which logins to a target are redirected.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redirect {
    pub(crate) to: Vec<String>,
    #[serde(default)]
    pub(crate) permanent: bool,
}

impl Redirect {
    /// All its mistakes: the key, perhaps with the place in its list, and the reason.
    fn mistakes(&self) -> Vec<(Vec<mistakes::Step>, String)> {
        use mistakes::Step::{Index, Key};
        let mut found = Vec::new();
        if self.to.is_empty() || self.to.len() > MAX_MOVED_ADDRESSES {
            found.push((vec![Key("to")], format!("to needs 1 to {MAX_MOVED_ADDRESSES} addresses")));
        }
        for (index, address) in self.to.iter().enumerate() {
            let wrong = check_moved(address).err();
            found.extend(wrong.map(|why| (vec![Key("to"), Index(index)], format!("{address:?}{why}"))));
        }
        found
    }
}

/// Checks an address to which initiators are redirected (RFC 7143 section 13.8).
fn check_moved(address: &str) -> Result<(), &'static str> {
    let is_address = address.len() <= MAX_ADDRESS_CHARACTERS
        && address.is_ascii()
        && lunette_initiator::Portal::parse(address).is_ok();
    let is_group = |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
    match address.split_once(',') {
        _ if !is_address => Err(" is no address; write HOST[:PORT][,GROUP], such as 192.0.2.9:3260,1"),
        Some((_, group)) if !is_group(group) || group.parse::<u16>().is_err() => {
            Err(": a portal group is a number up to 65535; write HOST[:PORT][,GROUP], such as 192.0.2.9:3260,1")
        }
        _ if address.contains('%') => {
            Err(": a zone means nothing to initiators, which have interfaces of their own; leave out the zone")
        }
        _ => Ok(()),
    }
}

pub(crate) fn default_cores() -> usize {
    1
}

fn default_portal_group() -> u16 {
    DEFAULT_PORTAL_GROUP
}

/// The number of connections that a session may have by default.
pub(crate) fn default_max_connections() -> u32 {
    Offer::default().max_connections
}

/// Checks a session's number of connections.
pub(crate) fn check_max_connections(connections: u32) -> Result<(), String> {
    if (1..=MAX_SESSION_CONNECTIONS).contains(&connections) {
        return Ok(());
    }
    Err(format!("max_connections = {connections}: a session has 1 to {MAX_SESSION_CONNECTIONS} connections"))
}

/// Checks a server's number of event loops.
pub(crate) fn check_cores(cores: usize) -> Result<(), String> {
    if (1..=MAX_CORES).contains(&cores) {
        return Ok(());
    }
    Err(format!("cores = {cores}: a server has 1 to {MAX_CORES} cores"))
}

fn check_marker_interval(words: Option<u32>) -> Result<(), String> {
    let (least, most) = (MIN_MARKER_INTERVAL_WORDS, *MARKER_INTERVAL.end());
    match words {
        Some(words) if !(least..=most).contains(&words) => {
            Err(format!("marker_interval = {words}: write {least} to {most} (4-byte words)"))
        }
        _ => Ok(()),
    }
}

impl Target {
    /// Whether initiators find something at it.
    pub(crate) fn has_use(&self) -> bool {
        !self.luns.is_empty() || self.redirect.is_some() || self.has_templates()
    }

    /// The files of its secrets, and of the secrets of its hosts.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let of_hosts = self.hosts.iter().flat_map(|host| chap::secret_files(&host.chap, host.mutual_chap.as_ref()));
        let of_disks = self.luns.iter().filter_map(|lun| lun.disk.place.url()).flat_map(Url::secret_files);
        chap::secret_files(&self.chap, self.mutual_chap.as_ref()).chain(of_hosts).chain(of_disks)
    }

    /// Whether there is a logical unit of this number, or would be without its mistake.
    fn has_number(&self, number: u16) -> bool {
        self.lun(number).is_some() || self.absent.contains(&number)
    }

    /// Leaves out the logical units of this number. Of two none is served: it may be the wrong one.
    fn leave_out(&mut self, number: u16) {
        self.luns.retain(|lun| lun.number != number);
        self.absent.insert(number);
    }

    /// The host of this name.
    pub(crate) fn host(&self, name: &str) -> Option<&HostEntry> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The logical unit of this number.
    pub(crate) fn lun(&self, number: u16) -> Option<&LunEntry> {
        self.luns.iter().find(|lun| lun.number == number)
    }
}

fn yes() -> bool {
    true
}

/// The TLS of a portal, whose files are read when it is served.
fn tls_of(folder: &Path) -> PortalTls {
    let source = Err("its certificates were not read".into());
    PortalTls { name: folder.to_string_lossy().into(), source }
}

impl Config {
    /// The portals of `listen`, then those with their own table; without either, the default one.
    pub(crate) fn portals(&self) -> Vec<PortalConfig> {
        let of_group = |group: u16| move |address: &SocketAddr| PortalConfig::new(*address, group);
        if self.listen.is_none() && self.portals.is_empty() {
            return vec![of_group(DEFAULT_PORTAL_GROUP)(&SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))];
        }
        let listen = self.listen.iter().flatten().flat_map(|listen| &listen.addresses);
        let simple = listen.map(of_group(DEFAULT_PORTAL_GROUP));
        let others = self.portals.iter().flat_map(|portal| {
            let tls = portal.tls.as_deref().map(tls_of);
            let of_portal = of_group(portal.group);
            portal.address.addresses.iter().map(move |address| PortalConfig { tls: tls.clone(), ..of_portal(address) })
        });
        simple.chain(others).collect()
    }

    /// The portals of `ecl`: one portal group, after all others.
    pub(crate) fn datagram_portals(&self) -> Vec<DatagramPortalConfig> {
        let last = self.portals().iter().map(|portal| portal.group).max().unwrap_or_default();
        let group = last.saturating_add(1);
        self.ecl_places().map(|place| DatagramPortalConfig { place, group }).collect()
    }

    /// Where the Effective Cross Layer is spoken.
    pub(crate) fn ecl_places(&self) -> impl Iterator<Item = DatagramPlace> {
        self.ecl.iter().flat_map(ecl::Place::places)
    }

    /// The texts of portals that mean no address now: the system does not know their names or zones. With each the
    /// reason.
    pub(crate) fn unknown_portals(&self) -> impl Iterator<Item = (&Listen, &str)> {
        let own = self.listen.iter().flatten().chain(self.portals.iter().map(|portal| &portal.address));
        let all = own.chain(self.ecl.iter().filter_map(ecl::Place::listen));
        all.filter_map(|listen| Some((listen, listen.unknown.as_deref()?)))
    }

    /// Takes over what was found for texts that meant no address.
    pub(crate) fn take_found(&mut self, found: &[Listen]) {
        let own = self.listen.iter_mut().flatten().chain(self.portals.iter_mut().map(|portal| &mut portal.address));
        for listen in own.chain(self.ecl.iter_mut().filter_map(ecl::Place::listen_mut)) {
            if let Some(found) = found.iter().find(|found| found.text == listen.text && listen.unknown.is_some()) {
                *listen = found.clone();
            }
        }
    }
}

impl Config {
    /// The files of all secrets of users.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = &Path> {
        self.discovery.secret_files().chain(self.targets.iter().flat_map(Target::secret_files))
    }

    /// Whether the configuration has this object.
    pub(crate) fn has(&self, subject: &Subject) -> bool {
        let target = || subject.target().and_then(|name| self.target(name));
        match subject {
            Subject::Target(_) => target().is_some(),
            Subject::Lun { number, .. } => target().is_some_and(|target| target.lun(*number).is_some()),
            Subject::Host { name, .. } => target().is_some_and(|target| target.host(name).is_some()),
            Subject::Portal(_) | Subject::Discovery | Subject::Api(_) | Subject::File(_) | Subject::Certificate(_) => {
                true
            }
        }
    }
}

/// Reads the text of a configuration that an argument names.
pub(crate) fn read_bounded(path: &Path) -> Result<String, Failure> {
    lunette_files::read_argument(path, CONFIGURATION).map_err(Failure::configuration)
}

/// Checks a text without opening anything that it names.
pub(crate) fn check_text(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

/// Reads and checks the text of a whole configuration. Errors name the line.
pub(crate) fn parse(text: &str) -> Result<Config, String> {
    let mut config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
    config.find_volumes();
    check(&config)?;
    Ok(config)
}

/// Checks what no single key shows.
fn check(config: &Config) -> Result<(), String> {
    let all: Vec<_> = mistakes::of(config, true).into_iter().map(|mistake| mistake.text).collect();
    if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
}

/// Like [`lunette_session::check_initiator_name`], with an error message.
pub(crate) fn check_initiator_name(name: &str) -> Result<(), String> {
    lunette_session::check_initiator_name(name).map_err(|error| error.to_string())
}

/// Like [`lunette_session::check_name`], with an error message.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    lunette_session::check_name(name).map_err(|error| error.to_string())
}

/// Parses a text without looking for contradictions.
#[cfg(test)]
pub(crate) fn parse_only(text: &str) -> Config {
    toml::from_str(text).expect("a configuration")
}

/// Parses the disk of a table with these keys.
#[cfg(test)]
pub(crate) fn one_lun(keys: &str) -> LunEntry {
    let config = parse(&format!("[[target]]\nname = \"iqn.a\"\nlun = [{{ number = 0, {keys} }}]"));
    config.expect("a configuration").targets.remove(0).luns.remove(0)
}

#[cfg(test)]
mod tests;
