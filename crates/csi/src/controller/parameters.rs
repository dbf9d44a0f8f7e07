//! The parameters of a StorageClass.

use std::collections::{BTreeMap, HashMap};

use tonic::Status;

use crate::limits::MAX_PORTALS;
use crate::{checks, names};

/// The beginning of the keys that external-provisioner adds, or takes for itself.
const OF_KUBERNETES: &str = "csi.storage.k8s.io/";

/// Labels of volumes for what external-provisioner tells with `--extra-create-metadata`.
const METADATA: [(&str, &str); 3] = [
    ("csi.storage.k8s.io/pvc/name", "kubernetes.claim"),
    ("csi.storage.k8s.io/pvc/namespace", "kubernetes.namespace"),
    ("csi.storage.k8s.io/pv/name", "kubernetes.volume"),
];

/// A user of CHAP, with the file on the machine of the server that holds the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chap {
    pub(super) user: String,
    pub(super) secret_file: String,
}

/// The wishes for a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) pool: Option<String>,
    pub(super) portals: Vec<String>,
    pub(super) target_prefix: Option<String>,
    pub(super) chap: Option<Chap>,
    pub(super) mutual_chap: Option<Chap>,
    /// Whether the volume gets all of its space at once.
    pub(super) full: bool,
    /// The labels for what Kubernetes tells of the volume.
    pub(super) labels: BTreeMap<String, String>,
    /// Differs for parameters that make other volumes.
    pub(super) digest: String,
}

impl Parameters {
    pub(super) fn new(given: &HashMap<String, String>) -> Result<Self, Status> {
        checks::map("parameters", given)?;
        let mut parameters = Self::default();
        let (mut chap, mut mutual) = (Pair::default(), Pair::default());
        let mut told = Vec::new();
        for (key, value) in given.iter().collect::<BTreeMap<_, _>>() {
            if key.starts_with(OF_KUBERNETES) {
                let label = METADATA.iter().find(|(known, _)| known == key);
                parameters.labels.extend(label.map(|(_, label)| ((*label).to_owned(), value.clone())));
                continue;
            }
            told.push(format!("{key:?}={value:?}"));
            let own = || Some(value.clone());
            match key.as_str() {
                "pool" if names::is_pool(value) => parameters.pool = own(),
                "pool" => return Err(wrong(key, value, "a name of a pool of up to 41 letters, such as tank")),
                "portals" => parameters.portals = portals(value).map_err(Status::invalid_argument)?,
                "targetPrefix" => {
                    names::check_prefix(value).map_err(Status::invalid_argument)?;
                    parameters.target_prefix = own();
                }
                "chapUser" => chap.user = own(),
                "chapSecretFile" => chap.secret_file = own(),
                "mutualChapUser" => mutual.user = own(),
                "mutualChapSecretFile" => mutual.secret_file = own(),
                "full" => {
                    parameters.full = value.parse().map_err(|_| wrong(key, value, "true or false"))?;
                }
                _ => {
                    return Err(Status::invalid_argument(format!(
                        "there is no parameter {key:?}; those of a StorageClass are pool, portals, targetPrefix, full, chapUser, chapSecretFile, mutualChapUser and mutualChapSecretFile"
                    )));
                }
            }
        }
        parameters.chap = chap.whole("chapUser", "chapSecretFile")?;
        parameters.mutual_chap = mutual.whole("mutualChapUser", "mutualChapSecretFile")?;
        if parameters.mutual_chap.is_some() && parameters.chap.is_none() {
            return Err(Status::invalid_argument("mutualChapUser needs chapUser and chapSecretFile"));
        }
        parameters.digest = names::digest(&told.join(";"));
        Ok(parameters)
    }
}

/// A user and a file that are found one after the other.
#[derive(Default)]
struct Pair {
    user: Option<String>,
    secret_file: Option<String>,
}

impl Pair {
    fn whole(self, user_key: &str, file_key: &str) -> Result<Option<Chap>, Status> {
        match (self.user, self.secret_file) {
            (None, None) => Ok(None),
            (Some(user), Some(secret_file)) if !user.is_empty() && secret_file.starts_with('/') => {
                Ok(Some(Chap { user, secret_file }))
            }
            _ => Err(Status::invalid_argument(format!(
                "{user_key} and {file_key} go together: a user, and the whole path of the file with its secret on the machine of the server"
            ))),
        }
    }
}

fn wrong(key: &str, value: &str, right: &str) -> Status {
    Status::invalid_argument(format!("{key} is {value:?}; write {right}"))
}

/// Reads a list of portals.
///
/// # Errors
///
/// A sentence that says what is wrong with it.
pub(crate) fn portals(text: &str) -> Result<Vec<String>, String> {
    let all: Vec<String> = text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect();
    let is_portal = |one: &String| {
        let port = one.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        matches!(port, Some((host, Ok(1..))) if !host.is_empty() && !host.starts_with('-') && (!host.contains(':') || host.ends_with(']')))
            && one.chars().all(|c| c.is_ascii_alphanumeric() || "-.:[]%_".contains(c))
    };
    match all.iter().find(|one| !is_portal(one)) {
        Some(wrong) => {
            Err(format!("{wrong:?} is no portal; write HOST:PORT, such as 192.0.2.1:3260 or [2001:db8::1]:3260"))
        }
        None if all.len() > MAX_PORTALS => Err(format!("there are {} portals; name {MAX_PORTALS} at most", all.len())),
        None => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pairs: &[(&str, &str)]) -> Result<Parameters, Status> {
        Parameters::new(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn parameters_are_read_and_kubernetes_own_become_labels() {
        let read = given(&[
            ("pool", "tank"),
            ("portals", "192.0.2.1:3260, [2001:db8::1]:3260"),
            ("chapUser", "nodes"),
            ("chapSecretFile", "/etc/lunette/secrets/nodes"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/fstype", "xfs"),
        ])
        .unwrap();
        assert_eq!(read.pool.as_deref(), Some("tank"));
        assert_eq!(read.portals, ["192.0.2.1:3260", "[2001:db8::1]:3260"]);
        assert_eq!(read.chap.unwrap().user, "nodes");
        assert_eq!(read.labels.into_iter().collect::<Vec<_>>(), [("kubernetes.claim".into(), "data".into())]);
    }

    #[test]
    fn mistakes_are_named() {
        for (pairs, why) in [
            (&[("pol", "tank")][..], "no parameter \"pol\""),
            (&[("pool", "../x")], "pool is"),
            (&[("portals", "192.0.2.1")], "HOST:PORT"),
            (&[("portals", "2001:db8::1:3260")], "HOST:PORT"),
            (&[("chapUser", "nodes")], "chapSecretFile"),
            (&[("chapUser", "nodes"), ("chapSecretFile", "relative")], "whole path"),
            (&[("mutualChapUser", "x"), ("mutualChapSecretFile", "/x")], "needs chapUser"),
            (&[("full", "yes")], "true or false"),
            (&[("targetPrefix", "IQN.x")], "begins no name"),
        ] {
            let refused = given(pairs).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert!(refused.message().contains(why), "{pairs:?}: {refused}");
        }
    }

    #[test]
    fn the_portals_of_a_volume_are_bounded() {
        let of = |count| vec!["192.0.2.1:3260"; count].join(",");
        assert!(portals(&of(MAX_PORTALS)).is_ok() && portals(&of(MAX_PORTALS + 1)).is_err());
    }

    #[test]
    fn the_digest_is_of_what_makes_another_volume() {
        let digest = |pairs| given(pairs).unwrap().digest;
        let tank = digest(&[("pool", "tank")]);
        assert_eq!(digest(&[("pool", "tank"), ("csi.storage.k8s.io/pvc/name", "x")]), tank);
        assert_ne!(digest(&[("pool", "tank"), ("full", "true")]), tank);
    }
}
