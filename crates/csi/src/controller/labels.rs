//! Labels by which the driver knows its volumes and snapshots again.

use lunette_api::volumes::Labels;

use super::parameters::{Chap, Parameters};

/// The driver that has made the volume or snapshot.
pub(super) const DRIVER: &str = "csi.driver";
/// The name that the caller has suggested.
pub(super) const NAME: &str = "csi.name";
/// The volume or snapshot that the volume was made from.
pub(super) const SOURCE: &str = "csi.source";
/// The digest of the parameters that the volume was made with.
pub(super) const PARAMETERS: &str = "csi.parameters";
/// The target that serves the volume.
pub(super) const TARGET: &str = "csi.target";
/// The group of snapshots that the snapshot belongs to.
pub(super) const GROUP: &str = "csi.group";
/// The digest of the identifiers of all volumes of the group.
pub(super) const GROUP_VOLUMES: &str = "csi.group-volumes";

/// The keys of a user of CHAP and of the file with its secret, for nodes and for the target.
const CHAP: (&str, &str) = ("csi.chap-user", "csi.chap-secret-file");
const MUTUAL_CHAP: (&str, &str) = ("csi.mutual-chap-user", "csi.mutual-chap-secret-file");

/// The labels of a new volume.
pub(super) fn of_volume(driver: &str, name: &str, target: &str, source: &str, parameters: &Parameters) -> Labels {
    let mut labels = parameters.labels.clone();
    let own = [(DRIVER, driver), (NAME, name), (TARGET, target), (SOURCE, source), (PARAMETERS, &parameters.digest)];
    let present = own.into_iter().filter(|(_, value)| !value.is_empty());
    labels.extend(present.map(|(key, value)| (key.to_owned(), value.to_owned())));
    for ((user_key, file_key), chap) in [(CHAP, &parameters.chap), (MUTUAL_CHAP, &parameters.mutual_chap)] {
        if let Some(Chap { user, secret_file }) = chap {
            labels.insert(user_key.into(), user.clone());
            labels.insert(file_key.into(), secret_file.clone());
        }
    }
    labels
}

/// The users of CHAP that nodes log in to the volume's target with, and the target to nodes.
pub(super) fn chap(labels: &Labels) -> (Option<Chap>, Option<Chap>) {
    let pair = |(user_key, file_key): (&str, &str)| {
        Some(Chap { user: labels.get(user_key)?.clone(), secret_file: labels.get(file_key)?.clone() })
    };
    (pair(CHAP), pair(MUTUAL_CHAP))
}

/// The value of a label, empty without it.
pub(super) fn value<'a>(labels: &'a Labels, key: &str) -> &'a str {
    labels.get(key).map_or("", String::as_str)
}
