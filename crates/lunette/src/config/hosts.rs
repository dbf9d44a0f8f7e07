//! Hosts: the initiators of a target that have rules of their own, and what they see of it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use lunette_scsi::Lun;
use lunette_session::ChapAlgorithms;
use lunette_target::{Authentication, Host, HostConfig, LunMap, Place};
use lunette_tls::Fingerprint;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::clones::{CloneOf, Ephemeral};
use super::mistakes::Step;
use super::{Chap, SHUT, Target, authentication, check_initiator_name};
use crate::failure::Failure;
use crate::secret::SecretFiles;
use crate::text;

/// The longest name of a host.
pub(crate) const MAX_HOST_NAME_CHARACTERS: usize = 64;

/// The longest identity of a certificate: a DNS name.
const MAX_IDENTITY_BYTES: usize = 253;

/// Initiators with rules of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Host)]
pub(crate) struct HostEntry {
    #[schema(pattern = r"^[A-Za-z0-9._-]{1,64}$")]
    pub(crate) name: String,
    pub(crate) initiators: Option<Vec<String>>,
    #[schema(value_type = Option<Vec<String>>, example = json!(["192.0.2.0/24"]))]
    pub(crate) networks: Option<Vec<Network>>,
    /// The identities of which a certificate proves one.
    #[schema(example = json!(["db1.example.org"]))]
    pub(crate) certificates: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) chap: Vec<Chap>,
    pub(crate) mutual_chap: Option<Chap>,
    /// Without it, the target's.
    #[serde(default, deserialize_with = "super::chap::algorithms")]
    #[schema(value_type = Option<Vec<super::chap::Algorithm>>, min_items = 1, example = json!(["sha3-256", "sha256"]))]
    pub(crate) chap_algorithms: Option<ChapAlgorithms>,
    #[serde(default)]
    pub(crate) read_only: bool,
    #[serde(rename = "lun")]
    pub(crate) luns: Option<Vec<MappedLun>>,
    #[serde(default, deserialize_with = "read_some")]
    #[schema(value_type = Option<String>, example = "tank/golden@v3")]
    pub(crate) clone: Option<CloneOf>,
    /// The number by which its initiators see their clones.
    #[serde(default)]
    #[schema(maximum = 16383)]
    pub(crate) clone_as: u16,
    #[serde(default, deserialize_with = "read_some")]
    #[schema(value_type = Option<String>, example = "10m")]
    pub(crate) ephemeral: Option<Ephemeral>,
    #[schema(minimum = 1, maximum = 1024)]
    pub(crate) max_clones: Option<u32>,
    /// Whether it lets no initiator in, because its text has a mistake.
    #[serde(skip)]
    pub(crate) is_shut: bool,
    /// Whether it stands in no file: an initiator of a template was given it.
    #[serde(skip)]
    pub(crate) is_given: bool,
}

fn read_some<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    text::read(from).map(Some)
}

/// The initiators that a host is for.
#[derive(Deserialize)]
struct Selectors {
    name: String,
    initiators: Option<Vec<String>>,
    networks: Option<Vec<Network>>,
    certificates: Option<Vec<String>>,
}

impl HostEntry {
    /// The host of a text with a mistake. `None` when not even its name can be read.
    pub(super) fn shut_of(value: &serde_json::Value) -> Option<Self> {
        let name = value.get("name")?.as_str()?.to_owned();
        let all = Selectors { name, initiators: None, networks: None, certificates: None };
        let Selectors { name, initiators, networks, certificates } = Selectors::deserialize(value).unwrap_or(all);
        let mut host = Self { name, initiators, networks, certificates, ..Self::default() };
        host.shut();
        Some(host)
    }

    /// Lets no initiator in from now on, and no later host takes its place. When it is not known which initiators it is
    /// for, these may be any.
    pub(super) fn shut(&mut self) {
        if !self.initiators.iter().flatten().all(|name| check_initiator_name(name).is_ok()) {
            self.initiators = None;
        }
        self.chap.clear();
        (self.mutual_chap, self.chap_algorithms) = (None, None);
        self.luns = Some(Vec::new());
        (self.clone, self.clone_as, self.ephemeral, self.max_clones) = (None, 0, None, None);
        self.is_shut = true;
    }
}

/// A logical unit that a host sees.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MappedLun {
    /// The number of the LUN in the target.
    #[schema(maximum = 16383)]
    pub(crate) number: u16,
    /// The number that the host uses; without it, the same.
    #[schema(maximum = 16383)]
    #[serde(rename = "as")]
    pub(crate) seen_as: Option<u16>,
    #[serde(default)]
    pub(crate) read_only: bool,
}

/// A network, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network(pub(super) IpNet);

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::read(from)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
            format!("{text:?} is no network; write ADDR/BITS, such as 192.0.2.0/24 or 2001:db8::/32, or an address")
        })?;
        if network.trunc() != network {
            return Err(format!("{text}: the address has bits beyond the network; write {}", network.trunc()));
        }
        Ok(Self(network))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checks that a target lets initiators in by one list alone.
pub(super) fn check_allow(target: &Target) -> Result<(), String> {
    if target.allow.as_ref().is_some_and(|allow| !allow.is_empty()) && !target.hosts.is_empty() {
        return Err("allow is for targets without hosts; write initiators of a host instead".into());
    }
    Ok(())
}

/// Checks the name of the host at `index` of a target.
pub(super) fn check_host_name(host: &HostEntry, index: usize, target: &Target) -> Result<(), String> {
    if target.hosts[..index].iter().any(|other| other.name == host.name) {
        return Err("the name is there twice".into());
    }
    check_plain_name(&host.name)
}

/// Checks a name of a host or a client.
pub(super) fn check_plain_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || name.len() > MAX_HOST_NAME_CHARACTERS || !name.chars().all(is_plain) {
        return Err(format!("a name has 1 to {MAX_HOST_NAME_CHARACTERS} letters, digits, '-', '.' and '_'"));
    }
    Ok(())
}

/// All mistakes of a host of a target, except for those of its name and of what its secret files hold: the key, perhaps
/// with the place in its list, and the reason. Its LUNs are compared where all of the target could be read.
pub(super) fn mistakes(host: &HostEntry, target: &Target, is_whole: bool) -> Vec<(Vec<Step>, String)> {
    if host.is_shut {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, name) in host.initiators.iter().flatten().enumerate().filter(|(_, name)| *name != ALL) {
        let at = || vec![Step::Key("initiators"), Step::Index(index)];
        found.extend(check_initiator_name(name).err().map(|why| (at(), why)));
    }
    for (index, name) in host.certificates.iter().flatten().enumerate() {
        let at = || vec![Step::Key("certificates"), Step::Index(index)];
        found.extend(check_identity(name).err().map(|why| (at(), why)));
    }
    if host.mutual_chap.is_some() && host.chap.is_empty() {
        found.push((vec![Step::Key("mutual_chap")], "mutual_chap needs a chap user too".into()));
    }
    if host.chap_algorithms.is_some() && host.chap.is_empty() {
        let text = "chap_algorithms is for chap users of the host; add some, or write it into the target";
        found.push((vec![Step::Key("chap_algorithms")], text.into()));
    }
    let luns = host.luns.iter().flatten().enumerate();
    let unknown: Vec<_> = luns.filter(|(_, lun)| is_whole && !target.has_number(lun.number)).collect();
    for (index, lun) in unknown {
        found.push((vec![Step::Key("lun"), Step::Index(index)], format!("the target has no LUN {}", lun.number)));
    }
    found.extend(super::clones::mistakes(host, target, is_whole));
    found.extend(lun_map(host, target).err().map(|why| (vec![Step::Key("lun")], why)));
    found
}

/// Checks an identity of a certificate: an iSCSI name or another URI, a DNS name, or a fingerprint.
pub(super) fn check_identity(name: &str) -> Result<(), String> {
    if let Some(digits) = name.strip_prefix("sha256:") {
        let lower = digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        return name.parse::<Fingerprint>().map(drop).map_err(|error| error.to_string()).and_then(|()| {
            if lower { Ok(()) } else { Err(format!("{name}: write a fingerprint in lower case, without colons")) }
        });
    }
    let is_plain = |c: char| c.is_ascii_graphic();
    if name.is_empty() || name.len() > MAX_IDENTITY_BYTES || !name.chars().all(is_plain) {
        return Err(format!("{name:?} is no identity: write a URI, a DNS name or sha256:DIGITS"));
    }
    Ok(())
}

fn lun_map(host: &HostEntry, target: &Target) -> Result<LunMap, String> {
    // No host sees the clones of another's initiators.
    let own = target.luns.iter().filter(|lun| !lun.is_given);
    let own = own.map(|lun| MappedLun { number: lun.number, seen_as: None, read_only: false });
    let luns: Vec<MappedLun> = match &host.luns {
        Some(luns) => luns.clone(),
        None if target.has_templates() => own.collect(),
        None => return Ok(LunMap::all(host.read_only)),
    };
    let lun =
        |number: u16| Lun::new(number).ok_or_else(|| format!("LUN {number} is beyond {}", lunette_scsi::MAX_FLAT_LUN));
    let entry = |mapped: &MappedLun| {
        let seen_as = lun(mapped.seen_as.unwrap_or(mapped.number))?;
        Ok((lun(mapped.number)?, Place { lun: seen_as, read_only: mapped.read_only }))
    };
    let entries = luns.iter().map(entry).collect::<Result<Vec<_>, String>>()?;
    LunMap::only(entries, host.read_only).map_err(|error| error.to_string())
}

/// In `allow` and `initiators`: all initiators.
pub(crate) const ALL: &str = "*";

/// The initiators that a list names; `None` for all.
fn named(list: Option<&Vec<String>>) -> Option<Vec<String>> {
    list.filter(|list| !list.iter().any(|name| name == ALL)).cloned()
}

/// Hosts whose secrets cannot be used: the name, and why.
pub(crate) type Unusable = Vec<(String, String)>;

/// The hosts of a target, with their secrets. Without hosts there is one: of the initiators that `allow` names, or
/// of all.
pub(crate) fn read(target: &Target, secrets: &SecretFiles) -> Result<(Vec<HostConfig>, Unusable), Failure> {
    if target.hosts.is_empty() {
        let one = HostConfig { host: Host::of_initiators(named(target.allow.as_ref())), ..HostConfig::everyone() };
        return Ok((vec![one], Vec::new()));
    }
    let (mut hosts, mut unusable) = (Vec::new(), Vec::new());
    for entry in &target.hosts {
        let (host, why) = read_host(entry, target, secrets)?;
        hosts.push(host);
        // Its template tells why, for all.
        unusable.extend(why.filter(|_| !entry.is_given).map(|why| (entry.name.clone(), why)));
    }
    Ok((hosts, unusable))
}

fn read_host(
    entry: &HostEntry,
    target: &Target,
    secrets: &SecretFiles,
) -> Result<(HostConfig, Option<String>), Failure> {
    let algorithms = entry.chap_algorithms.or(target.chap_algorithms);
    let (authentication, why) = match authentication(&entry.chap, entry.mutual_chap.as_ref(), algorithms, secrets) {
        (Authentication::None, why) => (None, why),
        (chap @ Authentication::Chap { .. }, why) => (Some(chap), why),
    };
    let authentication = if entry.is_shut { Some(SHUT) } else { authentication };
    let failed = |why: String| Failure::Configuration(format!("target {}: host {}: {why}", target.name, entry.name));
    let config =
        HostConfig { host: Host { authentication, ..host(entry) }, luns: lun_map(entry, target).map_err(failed)? };
    Ok((config, why))
}

/// The hosts of a target without their secrets: what decides which initiator belongs to which host.
pub(crate) fn without_secrets(target: &Target) -> Vec<Arc<Host>> {
    match target.hosts.as_slice() {
        [] => vec![Arc::new(Host::of_initiators(named(target.allow.as_ref())))],
        hosts => hosts.iter().map(|entry| Arc::new(host(entry))).collect(),
    }
}

fn host(entry: &HostEntry) -> Host {
    Host {
        name: entry.name.as_str().into(),
        initiators: named(entry.initiators.as_ref()),
        networks: entry.networks.as_ref().map(|networks| networks.iter().map(|Network(network)| *network).collect()),
        certificates: entry.certificates.clone(),
        authentication: None,
        is_template: entry.clone.is_some(),
    }
}

/// Whether the hosts that are in both lists ask for the same proofs and give the same ones.
pub(crate) fn have_same_secrets(old: &[HostConfig], new: &[HostConfig]) -> bool {
    let known: BTreeMap<_, _> = old.iter().map(|old| (&old.host.name, &old.host.authentication)).collect();
    new.iter().all(|new| match (known.get(&new.host.name), &new.host.authentication) {
        (Some(Some(old)), Some(new)) => old.has_secrets_of(new),
        (Some(old), new) => old.is_none() && new.is_none(),
        (None, _) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn target(hosts: &str) -> Result<Target, String> {
        let luns = "lun = [{ number = 0, disk = \"mem:1M\" }, { number = 5, disk = \"mem:1M\" }]";
        parse(&format!("[[target]]\nname = \"iqn.a\"\n{luns}\n{hosts}")).map(|mut config| config.targets.remove(0))
    }

    fn read(target: &Target) -> Result<(Vec<HostConfig>, Unusable), Failure> {
        super::read(target, &SecretFiles::read(target.secret_files()))
    }

    #[test]
    fn a_host_that_comes_or_goes_changes_no_secret() {
        let read = |hosts: &str| read(&target(hosts).unwrap()).unwrap().0;
        let one = read("[[target.host]]\nname = \"b\"");
        let two = read("[[target.host]]\nname = \"a\"\n[[target.host]]\nname = \"b\"");
        assert!(have_same_secrets(&one, &two) && have_same_secrets(&two, &one));
    }

    /// Never more open than with the secrets.
    #[test]
    fn a_host_whose_secrets_cannot_be_used_admits_no_initiator_by_its_rule() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, secret: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, secret).unwrap();
            path
        };
        let (good, same, absent) = (
            file("good", "a secret of some length"),
            file("same", "a secret of some length"),
            folder.path().join("no"),
        );
        let user = |user: &str, path: &std::path::Path| format!("{{ user = \"{user}\", secret_file = {path:?} }}");
        let users_of = |chap: &[String], mutual: Option<String>| {
            let mutual = mutual.map(|mutual| format!("\nmutual_chap = {mutual}")).unwrap_or_default();
            let text = format!("[[target.host]]\nname = \"h\"\nchap = [{}]{mutual}", chap.join(", "));
            let (hosts, unusable) = read(&target(&text).unwrap()).unwrap();
            match hosts[0].host.authentication.clone() {
                Some(Authentication::Chap { initiators, .. }) => {
                    let users: Vec<_> = initiators.into_iter().map(|credentials| credentials.user).collect();
                    (users.join(" "), unusable.into_iter().map(|(host, _)| host).collect::<String>())
                }
                other => panic!("it asks for a proof: {other:?}"),
            }
        };
        assert_eq!(users_of(&[user("a", &good)], None), ("a".into(), String::new()));
        assert_eq!(users_of(&[user("a", &good), user("b", &absent)], None), ("a".into(), "h".into()));
        assert_eq!(users_of(&[user("b", &absent)], None), (String::new(), "h".into()));
        assert_eq!(users_of(&[user("a", &good)], Some(user("t", &absent))), (String::new(), "h".into()));
        assert_eq!(users_of(&[user("a", &good)], Some(user("t", &same))), (String::new(), "h".into()));
    }

    #[test]
    fn a_host_allows_the_algorithms_of_its_target_unless_it_says_others() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "a secret of some length").unwrap();
        let chap = format!("chap = [{{ user = \"u\", secret_file = {secret:?} }}]");
        let allowed = |of_target: &str, of_host: &str| {
            let target = target(&format!("{of_target}\n[[target.host]]\nname = \"h\"\n{chap}\n{of_host}")).unwrap();
            match read(&target).unwrap().0[0].host.authentication {
                Some(Authentication::Chap { algorithms, .. }) => algorithms.to_string(),
                ref other => panic!("it asks for a proof: {other:?}"),
            }
        };
        let (strong, weak) = ("chap_algorithms = [\"sha256\", \"sha3-256\"]", "chap_algorithms = [\"md5\"]");
        assert_eq!(allowed("", ""), "sha3-256, sha256, sha1, md5");
        assert_eq!(allowed(strong, ""), "sha3-256, sha256");
        assert_eq!(allowed("", strong), "sha3-256, sha256");
        assert_eq!(allowed(strong, weak), "md5");
    }

    #[test]
    fn a_host_says_who_it_is_and_what_it_sees() {
        let target = target(
            "[[target.host]]\nname = \"db-1\"\ninitiators = [\"iqn.db\"]\nnetworks = [\"192.0.2.0/24\", \"2001:db8::1\"]\n\
             lun = [{ number = 5, as = 0, read_only = true }]\n\
             [[target.host]]\nname = \"rest\"\nread_only = true\n\
             [[target.host]]\nname = \"all\"\ninitiators = [\"*\"]",
        );
        let (hosts, _) = read(&target.unwrap()).unwrap();
        assert_eq!(hosts[0].host.initiators, Some(vec!["iqn.db".into()]));
        let networks: Vec<_> = hosts[0].host.networks.iter().flatten().map(IpNet::to_string).collect();
        assert_eq!(networks, ["192.0.2.0/24", "2001:db8::1/128"]);
        let (zero, five) = (Lun::new(0).unwrap(), Lun::new(5).unwrap());
        assert_eq!(hosts[0].luns.place(five), Some(Place { lun: zero, read_only: true }));
        assert_eq!(hosts[0].luns.place(zero), None);
        assert_eq!(hosts[1].luns, LunMap::all(true));
        assert_eq!((&*hosts[1].host.name, &hosts[1].host.initiators), ("rest", &None));
        assert_eq!((&*hosts[2].host.name, &hosts[2].host.initiators), ("all", &None));
    }

    #[test]
    fn without_hosts_allow_decides_and_an_asterisk_is_all() {
        for (keys, expected) in [
            ("", None),
            ("allow = [\"*\"]", None),
            ("allow = []", Some(Vec::new())),
            ("allow = [\"iqn.x\"]", Some(vec!["iqn.x".to_owned()])),
        ] {
            let target = target(keys).unwrap();
            assert_eq!(read(&target).unwrap().0[0].host.initiators, expected, "{keys}");
            assert_eq!(without_secrets(&target)[0].initiators, expected, "{keys}");
        }
        let closed = target("allow = []\n[[target.host]]\nname = \"h\"").unwrap();
        assert_eq!(read(&closed).unwrap().0.len(), 1, "hosts decide, and without them nothing is let in");
    }

    #[test]
    fn mistakes_in_hosts_are_named() {
        let host = |keys: &str| format!("[[target.host]]\nname = \"h\"\n{keys}");
        for (hosts, expected) in [
            (host("[[target.host]]\nname = \"h\""), "host h: the name is there twice"),
            (host("networks = [\"192.0.2.7/24\"]"), "write 192.0.2.0/24"),
            (host("networks = [\"lab\"]"), "no network"),
            (host("initiators = [\"Db 1\"]"), "not an iSCSI name"),
            (host("lun = [{ number = 1 }]"), "host h: the target has no LUN 1"),
            (host("lun = [{ number = 0 }, { number = 5, as = 0 }]"), "mapped to LUN 0"),
            (host("lun = [{ number = 0 }, { number = 0, as = 1 }]"), "LUN 0 is mapped twice"),
            (host("lun = [{ number = 0, as = 16384 }]"), "beyond 16383"),
            (host("mutual_chap = { user = \"a\", secret_file = \"b\" }"), "needs a chap user"),
            (host("chap_algorithms = [\"sha256\"]"), "host h: chap_algorithms is for chap users of the host"),
            (host("chap_algorithms = []"), "no initiator could log in"),
            ("[[target.host]]\nname = \"a b\"".into(), "letters, digits"),
            (format!("allow = [\"iqn.x\"]\n{}", host("")), "allow is for targets without hosts"),
        ] {
            let error = target(&hosts).err().unwrap_or_default();
            assert!(error.contains(expected), "{hosts}: {error}");
        }
    }
}
