//! The configuration file. Its reference is `docs/configuration.md`.

pub(crate) mod api;
pub(crate) mod diff;
pub(crate) mod ecl;
pub(crate) mod gateways;
pub(crate) mod hosts;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod mistakes;
pub(crate) mod port_groups;
pub(crate) mod session;
pub(crate) mod sources;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use lunette_api::Subject;
use lunette_device::QuantaOptions;
use lunette_files::Content;
use lunette_quanta::QuantumSize;
use lunette_scsi::MAX_FLAT_LUN;
use lunette_session::keys::{MARKER_INTERVAL, Offer};
use lunette_session::limits::{MAX_MOVED_ADDRESSES, MAX_SESSION_CONNECTIONS, MIN_MARKER_INTERVAL_WORDS};
use lunette_session::{Authentication, Credentials};
use lunette_store::{LengthError, check_asked_len};
use lunette_target::{DatagramPlace, DatagramPortalConfig, MAX_CORES, PortalConfig};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::address::{self, NoAddress};
use crate::disk::{DiskConfig, DiskName, Place, Provisioning};
use crate::failure::Failure;
use crate::secret;
use crate::size::Size;
use crate::systemd::credentials;
use api::Api;
use gateways::Gateways;
use hosts::HostEntry;
use limits::Limits;
use metrics::Metrics;
use port_groups::{Access, PortGroupEntry};
use session::SessionKeys;

/// The port of iSCSI (RFC 7143 section 15).
const DEFAULT_PORT: u16 = 3260;

/// The portal group tag of portals that specify none.
const DEFAULT_PORTAL_GROUP: u16 = 1;

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
    /// Whether it sends parity when packets are lost.
    #[serde(default)]
    pub(crate) ecl_parity: bool,
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
    /// Where the numbers are read without TLS. Without it, by the API alone.
    pub(crate) metrics: Option<Metrics>,
    #[serde(rename = "target", default)]
    pub(crate) targets: Vec<Target>,
}

/// Addresses to listen on, in one of the forms of [`address`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Listen {
    text: String,
    pub(crate) addresses: Vec<SocketAddr>,
    /// Why there is none: the system does not know the name or the zone.
    unknown: Option<String>,
}

impl Listen {
    /// Why it means no address, if so.
    pub(crate) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// Asks the system again for a name or a zone that it did not know.
    pub(crate) fn look_up(&mut self) {
        match address::resolve(&self.text, DEFAULT_PORT) {
            Ok(addresses) => (self.addresses, self.unknown) = (addresses, None),
            Err(why) => self.unknown = Some(why.into_message()),
        }
    }
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
}

/// The access rules for discovery.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Discovery {
    #[serde(default)]
    pub(crate) chap: Vec<Chap>,
    pub(crate) mutual_chap: Option<Chap>,
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
    #[serde(default, deserialize_with = "local_name")]
    #[schema(max_length = 255)]
    pub(crate) alias: Option<String>,
    pub(crate) allow: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) chap: Vec<Chap>,
    pub(crate) mutual_chap: Option<Chap>,
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
}

/// The address to which logins to a target are redirected.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redirect {
    pub(crate) to: Vec<String>,
    #[serde(default)]
    pub(crate) permanent: bool,
}

/// A user and the file with its secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chap {
    #[serde(deserialize_with = "user")]
    pub(crate) user: String,
    #[schema(value_type = String, example = "/etc/lunette/db-host")]
    #[serde(deserialize_with = "credentials::read_path")]
    pub(crate) secret_file: PathBuf,
}

/// A logical unit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Lun)]
pub(crate) struct LunEntry {
    #[schema(maximum = 16383)]
    pub(crate) number: u16,
    #[schema(value_type = String, example = "/srv/db.img")]
    pub(crate) disk: DiskName,
    #[schema(value_type = Option<String>, example = "100G")]
    pub(crate) create: Option<Size>,
    pub(crate) block_size: Option<u32>,
    /// Instead of `block_size`: the bytes of a quantum. A block is a quantum with its slot.
    pub(crate) quantum: Option<u32>,
    #[serde(default)]
    pub(crate) check_quanta: bool,
    #[schema(value_type = Option<String>, example = "1M")]
    pub(crate) scrub_rate: Option<Size>,
    #[serde(default)]
    pub(crate) stored_digests: bool,
    #[serde(default)]
    pub(crate) read_only: bool,
    #[serde(default)]
    pub(crate) removable: bool,
    #[schema(value_type = Option<String>, example = "1G")]
    pub(crate) thin_threshold: Option<Size>,
    #[schema(value_type = Option<String>, example = "100M")]
    pub(crate) sanitize_rate: Option<Size>,
    #[serde(default)]
    pub(crate) long_cdbs: bool,
    #[serde(default)]
    pub(crate) zero_copy: bool,
    #[serde(default)]
    pub(crate) provisioning: Provisioning,
    pub(crate) serial: Option<String>,
    #[schema(example = "LUNETTE", max_length = 8)]
    pub(crate) vendor: Option<String>,
    #[schema(example = "DISK", max_length = 16)]
    pub(crate) product: Option<String>,
    #[schema(max_length = 4)]
    pub(crate) revision: Option<String>,
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

fn yes() -> bool {
    true
}

/// The values of `block_size`.
const SECTOR_SIZES: [u32; 2] = [512, 4096];

/// Bytes of a logical block when nothing else is asked for.
const DEFAULT_BLOCK_SIZE: u32 = 512;

/// The size of a quantum of this many bytes.
pub(crate) fn quantum(bytes: u32) -> Result<QuantumSize, String> {
    let sizes = || QuantumSize::ALL.map(QuantumSize::bytes);
    QuantumSize::of_bytes(bytes.into()).ok_or_else(|| format!("quantum = {bytes}: write one of {:?}", sizes()))
}

impl LunEntry {
    /// Bytes of a logical block.
    pub(crate) fn block_size(&self) -> u32 {
        let quantum = self.quantum.and_then(|bytes| QuantumSize::of_bytes(bytes.into()));
        quantum.and_then(|size| u32::try_from(size.edu_len()).ok()).or(self.block_size).unwrap_or(DEFAULT_BLOCK_SIZE)
    }

    /// Refuses keys that the disk's place does not allow, wherever that is.
    fn check_place(&self) -> Result<(), String> {
        let (creates, is_full) = (self.create.is_some(), self.provisioning == Provisioning::Full);
        match &self.disk.place {
            _ if creates && self.disk.keys.is_some() => {
                Err("an encrypted disk is made by lunette quanta format; leave out create".into())
            }
            Place::Memory(_) if is_full => Err("memory is always thin; leave out provisioning".into()),
            Place::Image(_) if is_full => Err("an image is always thin; leave out provisioning".into()),
            Place::Image(_) if creates => Err("an image is made by rbd create; leave out create".into()),
            Place::Remote(_) if creates => Err("a disk of another target cannot be created; leave out create".into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_settings()?;
        self.check_lengths().map_err(|error| error.to_string())
    }

    /// Checks the lengths that it asks for. A quantum with its slot is no part of a length that people write, so disks of
    /// quanta have the whole ones of any length.
    fn check_lengths(&self) -> Result<(), LengthError> {
        let asked = match &self.disk.place {
            Place::Memory(size) => Some(*size),
            _ => self.create,
        };
        let block_size = self.block_size();
        match asked.filter(|_| block_size.is_multiple_of(DEFAULT_BLOCK_SIZE)) {
            Some(Size(bytes)) => check_asked_len(bytes, block_size),
            None => Ok(()),
        }
    }

    fn check_settings(&self) -> Result<(), String> {
        if self.number > MAX_FLAT_LUN {
            return Err(format!("LUNs end at {MAX_FLAT_LUN}"));
        }
        self.check_place()?;
        if self.block_size.is_some() && self.quantum.is_some() {
            return Err("quantum decides the length of a block; leave out block_size".into());
        }
        if let Some(bytes) = self.block_size.filter(|bytes| !SECTOR_SIZES.contains(bytes)) {
            return Err(format!("block_size = {bytes}: write one of {SECTOR_SIZES:?}"));
        }
        let options = [
            ("check_quanta", self.check_quanta),
            ("scrub_rate", self.scrub_rate.is_some()),
            ("stored_digests", self.stored_digests),
        ];
        match (self.quantum, options.iter().find(|(_, on)| *on)) {
            (Some(bytes), _) => quantum(bytes).map(drop),
            (None, Some((key, _))) => Err(format!("{key} is for disks of quanta; write quantum, too, or leave it out")),
            (None, None) => Ok(()),
        }
    }

    /// The target's options for quanta.
    fn quanta_options(&self) -> QuantaOptions {
        QuantaOptions {
            check_writes: self.check_quanta,
            scrub_rate: self.scrub_rate.map(|Size(bytes)| bytes),
            stored_digests: self.stored_digests,
        }
    }
}

impl Config {
    /// The portals of `listen`, then those with their own table; without either, the default one.
    pub(crate) fn portals(&self) -> Vec<PortalConfig> {
        let of_group = |group: u16| move |address: &SocketAddr| PortalConfig { address: *address, group };
        if self.listen.is_none() && self.portals.is_empty() {
            return vec![of_group(DEFAULT_PORTAL_GROUP)(&SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))];
        }
        let listen = self.listen.iter().flatten().flat_map(|listen| &listen.addresses);
        let simple = listen.map(of_group(DEFAULT_PORTAL_GROUP));
        let others = self.portals.iter().flat_map(|portal| portal.address.addresses.iter().map(of_group(portal.group)));
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

    /// The texts of portals that mean no address now: the system does not know their names or zones. With each the reason.
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
    /// Whether the configuration has this object.
    pub(crate) fn has(&self, subject: &Subject) -> bool {
        let target = || self.targets.iter().find(|target| Some(target.name.as_str()) == subject.target());
        match subject {
            Subject::Target(_) => target().is_some(),
            Subject::Lun { number, .. } => {
                target().is_some_and(|target| target.luns.iter().any(|lun| lun.number == *number))
            }
            Subject::Host { name, .. } => {
                target().is_some_and(|target| target.hosts.iter().any(|host| host.name == *name))
            }
            Subject::Portal(_) | Subject::Discovery | Subject::Api(_) => true,
        }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (addresses, unknown) = match address::resolve(text, DEFAULT_PORT) {
            Ok(addresses) => (addresses, None),
            Err(NoAddress::Unknown(why)) => (Vec::new(), Some(why)),
            Err(NoAddress::Form(why)) => return Err(why),
        };
        Ok(Self { text: text.into(), addresses, unknown })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<&LunEntry> for DiskConfig {
    fn from(entry: &LunEntry) -> Self {
        Self {
            name: entry.disk.clone(),
            create: entry.create,
            block_size: entry.block_size(),
            quanta: entry.quanta_options(),
            read_only: entry.read_only,
            removable: entry.removable,
            thin_threshold: entry.thin_threshold,
            sanitize_rate: entry.sanitize_rate,
            long_cdbs: entry.long_cdbs,
            zero_copy: entry.zero_copy,
            provisioning: entry.provisioning,
            serial: entry.serial.clone(),
            vendor: entry.vendor.clone(),
            product: entry.product.clone(),
            revision: entry.revision.clone(),
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
    let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
    check(&config)?;
    Ok(config)
}

/// Checks what no single key shows.
fn check(config: &Config) -> Result<(), String> {
    let all: Vec<_> = mistakes::of(config, true).into_iter().map(|mistake| mistake.text).collect();
    if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
}

fn check_redirect(redirect: &Redirect) -> Result<(), String> {
    if redirect.to.is_empty() || redirect.to.len() > MAX_MOVED_ADDRESSES {
        return Err(format!("to needs 1 to {MAX_MOVED_ADDRESSES} addresses"));
    }
    let wrong = |address: &&String| {
        address.len() > MAX_ADDRESS_CHARACTERS
            || !address.is_ascii()
            || lunette_initiator::Portal::parse(address).is_err()
    };
    match redirect.to.iter().find(|address| wrong(address) || address.contains('%')) {
        Some(address) if !wrong(&address) => Err(format!(
            "{address:?}: a zone means nothing to initiators, which have interfaces of their own; leave out the zone"
        )),
        Some(address) => Err(format!("{address:?} is no address; write HOST[:PORT][,GROUP], such as 192.0.2.9:3260,1")),
        None => Ok(()),
    }
}

/// Like [`lunette_session::check_name`], with an error message.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    lunette_session::check_name(name).map_err(|error| error.to_string())
}

fn local_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    user(from).map(Some)
}

/// Reads a text that a login carries.
fn user<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    lunette_session::check_local_name(&text).map_err(D::Error::custom)?;
    Ok(text)
}

/// Reads the secrets of a policy. A user whose secret cannot be used is not let in. Without the target's own secret no user is. The second value says why.
pub(crate) fn authentication(chap: &[Chap], mutual: Option<&Chap>) -> (Authentication, Option<String>) {
    if chap.is_empty() {
        return (Authentication::None, None);
    }
    let mut failed = Vec::new();
    let mut read = |chap: &Chap| {
        let credentials = secret::credentials(&chap.user, &chap.secret_file);
        credentials.map_err(|failure| failed.push(failure.to_string())).ok()
    };
    let mut initiators: Vec<Credentials> = chap.iter().filter_map(&mut read).collect();
    let target = mutual.map(read);
    if let Some(target) = &target {
        let is_same = |ours: &Credentials| initiators.iter().any(|initiator| initiator.secret.same_as(&ours.secret));
        if target.as_ref().is_some_and(is_same) {
            failed.push("the secret of the target must differ from those of its initiators".into());
        }
        if !failed.is_empty() {
            initiators.clear();
        }
    }
    let why = (!failed.is_empty()).then(|| failed.join("; "));
    (Authentication::Chap { initiators, target: target.flatten() }, why)
}

/// Parses the disk of a table with these keys.
#[cfg(test)]
pub(crate) fn one_lun(keys: &str) -> DiskConfig {
    let config = parse(&format!("[[target]]\nname = \"iqn.a\"\nlun = [{{ number = 0, {keys} }}]"));
    DiskConfig::from(&config.expect("a configuration").targets[0].luns[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asked_lengths_of_disks_are_whole_blocks() {
        let said = |keys: &str| {
            parse(&format!("[[target]]\nname = \"iqn.a\"\nlun = [{{ number = 0, {keys} }}]")).map(drop).err()
        };
        for (keys, nearest) in [
            (r#"disk = "/d", create = "2097153""#, "use 2097152 or 2097664"),
            (r#"disk = "/d", create = "2097664", block_size = 4096"#, "use 2097152 or 2101248"),
            (r#"disk = "/d", create = "0""#, "use 512"),
            (r#"disk = "mem:1000""#, "use 512 or 1024"),
        ] {
            let said = said(keys).unwrap_or_default();
            assert!(said.contains("LUN 0") && said.contains(nearest), "{keys}: {said}");
        }
        for keys in [r#"disk = "/d", create = "2097664""#, r#"disk = "mem:1M", quantum = 4096"#] {
            assert_eq!(said(keys), None, "{keys}");
        }
    }

    const WHOLE: &str = r#"
        listen = ["0.0.0.0:3260", "[::1]:860", "192.0.2.7"]
        state = "/var/lib/lunette/state"

        [discovery]
        chap = [{ user = "scan", secret_file = "/etc/lunette/scan" }]

        [[target]]
        name = "iqn.2026-11.org.example:disk1"
        alias = "first"
        allow = ["iqn.2026-11.org.example:host"]
        chap = [{ user = "alice", secret_file = "/etc/lunette/alice" }]
        mutual_chap = { user = "disk", secret_file = "/etc/lunette/disk" }
        lun = [
            { number = 0, disk = "/srv/a.img", create = "10G", block_size = 4096, provisioning = "full" },
            { number = 300, disk = "mem:64M", read_only = true, removable = true, long_cdbs = true, serial = "S1" },
        ]
    "#;

    #[test]
    fn a_whole_file_is_read() {
        let config = parse(WHOLE).unwrap();
        assert_eq!(config.listen.as_ref().unwrap()[2].addresses, ["192.0.2.7:3260".parse().unwrap()]);
        assert_eq!(config.state, Some("/var/lib/lunette/state".into()));
        let target = &config.targets[0];
        assert_eq!(target.luns[0].create, Some(Size(10 << 30)));
        assert_eq!(target.luns.iter().map(LunEntry::block_size).collect::<Vec<_>>(), [4096, 512]);
        assert_eq!(target.luns[1].number, 300);
        assert!(target.luns[1].removable && !target.luns[0].removable);
        assert_eq!(target.luns[0].provisioning, Provisioning::Full);
        assert_eq!(target.luns[1].provisioning, Provisioning::Thin);
        assert!(target.luns[1].long_cdbs && !target.luns[0].long_cdbs);
        assert_eq!(target.luns[1].disk, "mem:64M".parse().unwrap());
        assert_eq!((config.discovery.chap[0].user.as_str(), config.cores), ("scan", 1));
    }

    #[test]
    fn what_is_done_with_quanta_is_read_key_by_key() {
        let options = |keys: &str| {
            let lun = format!("{{ number = 0, disk = \"mem:1M\", quantum = 4096, {keys} }}");
            let config = parse(&format!("[[target]]\nname = \"iqn.a\"\nlun = [{lun}]")).unwrap();
            DiskConfig::from(&config.targets[0].luns[0]).quanta
        };
        let none = QuantaOptions::default();
        assert_eq!(options("check_quanta = true"), QuantaOptions { check_writes: true, ..none });
        assert_eq!(options("scrub_rate = \"1M\""), QuantaOptions { scrub_rate: Some(1 << 20), ..none });
        assert_eq!(options("stored_digests = true"), QuantaOptions { stored_digests: true, ..none });
        assert_eq!(options("check_quanta = false"), none);
    }

    #[test]
    fn portals_have_the_group_of_their_table_or_group_1() {
        let portals = |head: &str| {
            let config = parse(&format!("{head}\n[[target]]\nname = \"iqn.a\"")).unwrap();
            config.portals().iter().map(|portal| (portal.address.to_string(), portal.group)).collect::<Vec<_>>()
        };
        assert_eq!(portals(""), [("127.0.0.1:3260".into(), 1)]);
        assert_eq!(portals("[[portal]]\naddress = \"[::1]\"\ngroup = 7"), [("[::1]:3260".into(), 7)]);
        let both = "listen = [\"192.0.2.1\"]\nportal = [{ address = \"192.0.2.2:1\" }, { address = \"192.0.2.3\", group = 2 }]";
        let expected = [("192.0.2.1:3260".into(), 1), ("192.0.2.2:1".into(), 1), ("192.0.2.3:3260".into(), 2)];
        assert_eq!(portals(both), expected);
        let every = "listen = [\"*:860\"]\nportal = [{ address = \"[fe80::1%lo]\", group = 2 }]";
        let expected = [("0.0.0.0:860".into(), 1), ("[::]:860".into(), 1), ("[fe80::1%1]:3260".into(), 2)];
        assert_eq!(portals(every), expected);
    }

    #[test]
    fn a_zone_that_is_not_known_waits_until_it_is() {
        const TEXT: &str = "listen = [\"127.0.0.1:1\", \"[fe80::1%nowhere]:2\"]\necl = [\"[fe80::1%nowhere]:2\"]\n[[target]]\nname = \"iqn.a\"";
        assert!(parse(&format!("strict = true\n{TEXT}")).unwrap_err().contains("fe80::1%nowhere has no address here"));
        let mut config = parse(TEXT).unwrap();
        assert_eq!((config.portals().len(), config.datagram_portals().len()), (1, 0));
        assert_eq!(config.unknown_portals().count(), 2);
        let address = "[fe80::1%1]:2".parse().unwrap();
        config.take_found(&[Listen { text: "[fe80::1%nowhere]:2".into(), addresses: vec![address], unknown: None }]);
        assert_eq!(config.unknown_portals().count(), 0);
        assert_eq!((config.portals()[1].address, config.datagram_portals().len()), (address, 1));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (wrong, right, expected) in [
            ("colour = 1\n[discovery]", "[discovery]", "line 5"),
            ("cores = 0\n[discovery]", "[discovery]", "cores = 0: a server has 1 to 64 cores"),
            ("block_sise", "block_size", "unknown field `block_sise`"),
            ("10X", "10G", "not a size"),
            ("0.0.0:3260", "0.0.0.0:3260", "not an address"),
            ("alias = \"a\\nb\"", "alias = \"first\"", "without control characters"),
            ("user = \"a\\u0007\"", "user = \"disk\"", "without control characters"),
            ("number = 300", "number = 0", ""),
        ] {
            let error = parse(&WHOLE.replacen(right, wrong, 1)).err();
            if expected.is_empty() {
                assert!(error.unwrap().contains("LUN 300 is there twice"));
            } else {
                let error = error.unwrap();
                assert!(error.contains(expected), "{error}");
            }
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for (text, expected) in [
            ("listen = []\n[[target]]\nname = \"iqn.a\"", "listen is empty"),
            ("portal = [{ address = \"::1\", group = 0 }]\n[[target]]\nname = \"iqn.a\"", "group 0 is reserved"),
            ("target = []", "no [[target]]"),
            ("[[target]]\nname = \"iqn.a\"\n[[target]]\nname = \"iqn.a\"", "target iqn.a is there twice"),
            ("[[target]]\nname = \"Disk\"", "not an iSCSI name"),
            ("[[target]]\nname = \"iqn.a:Disk\"", "has capitals; write \"iqn.a:disk\""),
            ("[[target]]\nname = \"iqn.a\"\nallow = [\"iqn.B\"]", "has capitals; write \"iqn.b\""),
            ("[[target]]\nname = \"iqn.a\"\nallow = [\"iqn.B C\"]", "not an iSCSI name"),
            ("[[target]]\nname = \"iqn.a\"\nmax_connections = 0", "1 to 64 connections"),
            ("[[target]]\nname = \"iqn.a\"\nmax_connections = 65", "1 to 64 connections"),
            ("[[target]]\nname = \"iqn.a\"\nmarker_interval = 63", "64 to 65535"),
            ("[[target]]\nname = \"iqn.a\"\nredirect = { to = [] }", "1 to 16 addresses"),
            ("[[target]]\nname = \"iqn.a\"\nredirect = { to = [\"host:port\"] }", "\"host:port\" is no address"),
            ("[[target]]\nname = \"iqn.a\"\nredirect = { to = [\"[fe80::1%eth0]\"] }", "leave out the zone"),
            ("[[target]]\nname = \"iqn.a\"\nsession = { max_burst_length = \"1\" }", "session: max_burst_length = 1"),
            (
                "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", quantum = 4160 }]",
                "LUN 3: quantum = 4160: write one of",
            ),
            (
                "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", block_size = 4160 }]",
                "write one of [512, 4096]",
            ),
            (
                "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", quantum = 512, block_size = 512 }]",
                "leave out block_size",
            ),
            (
                "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", check_quanta = true }]",
                "LUN 3: check_quanta is for disks of quanta",
            ),
            (
                "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", scrub_rate = \"1M\" }]",
                "LUN 3: scrub_rate is for disks of quanta",
            ),
            ("[[target]]\nname = \"iqn.a\"\nlun = [{ number = 16384, disk = \"/a\" }]", "LUN 16384: LUNs end at 16383"),
            (
                "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"mem:1M\", provisioning = \"full\" }]",
                "LUN 3: memory is always thin",
            ),
            (
                "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"rbd:a/b\", create = \"1G\" }]",
                "LUN 3: an image is made by rbd create",
            ),
            (
                "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a?keys=file:/k\", create = \"1G\" }]",
                "LUN 3: an encrypted disk is made by lunette quanta format",
            ),
            ("[[target]]\nname = \"iqn.a\"\nmutual_chap = { user = \"a\", secret_file = \"b\" }", "needs a chap user"),
        ] {
            let error = parse(text).err().unwrap_or_default();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
