//! Users of CHAP, and the secrets that their files hold.

use std::path::{Path, PathBuf};

use lunette_session::{Authentication, ChapAlgorithm, ChapAlgorithms, Credentials, Secret};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::secret::SecretFiles;
use crate::systemd::credentials;

/// The access rules for discovery.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Discovery {
    #[serde(default)]
    pub(crate) chap: Vec<Chap>,
    pub(crate) mutual_chap: Option<Chap>,
    #[serde(default, deserialize_with = "algorithms")]
    pub(crate) chap_algorithms: Option<ChapAlgorithms>,
}

impl Discovery {
    /// The files of its secrets.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = &Path> {
        secret_files(&self.chap, self.mutual_chap.as_ref())
    }
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

/// An algorithm of CHAP.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[schema(as = ChapAlgorithm)]
pub(super) enum Algorithm {
    #[serde(rename = "sha3-256")]
    Sha3_256,
    #[serde(rename = "sha256")]
    Sha256,
    #[serde(rename = "sha1")]
    Sha1,
    #[serde(rename = "md5")]
    Md5,
}

/// Reads the algorithms that a rule allows.
pub(super) fn algorithms<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ChapAlgorithms>, D::Error> {
    let Some(list) = Option::<Vec<Algorithm>>::deserialize(from)? else { return Ok(None) };
    if list.is_empty() {
        return Err(D::Error::custom(format!(
            "no algorithm is allowed, so no initiator could log in; write some of {}, or leave it out for all",
            ChapAlgorithms::ALL
        )));
    }
    let algorithm = |algorithm| match algorithm {
        Algorithm::Sha3_256 => ChapAlgorithm::Sha3_256,
        Algorithm::Sha256 => ChapAlgorithm::Sha256,
        Algorithm::Sha1 => ChapAlgorithm::Sha1,
        Algorithm::Md5 => ChapAlgorithm::Md5,
    };
    Ok(Some(list.into_iter().map(algorithm).collect()))
}

pub(super) fn local_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    user(from).map(Some)
}

/// Reads a text that a login carries.
fn user<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    lunette_session::check_local_name(&text).map_err(D::Error::custom)?;
    Ok(text)
}

/// The files of the secrets of a policy.
pub(super) fn secret_files<'a>(chap: &'a [Chap], mutual: Option<&'a Chap>) -> impl Iterator<Item = &'a Path> + use<'a> {
    chap.iter().chain(mutual).map(|chap| &*chap.secret_file)
}

/// A rule that no initiator can satisfy.
pub(crate) const SHUT: Authentication =
    Authentication::Chap { initiators: Vec::new(), target: None, algorithms: ChapAlgorithms::ALL };

/// Finds the secrets of a policy. A user whose secret cannot be used is not let in. Without the target's own secret no
/// user is. The second value says why.
pub(crate) fn authentication(
    chap: &[Chap],
    mutual: Option<&Chap>,
    algorithms: Option<ChapAlgorithms>,
    secrets: &SecretFiles,
) -> (Authentication, Option<String>) {
    if chap.is_empty() {
        return (Authentication::None, None);
    }
    let mut failed = Vec::new();
    let mut read = |chap: &Chap| credentials_of(chap, secrets).map_err(|why| failed.push(why)).ok();
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
    let algorithms = algorithms.unwrap_or_default();
    (Authentication::Chap { initiators, target: target.flatten(), algorithms }, why)
}

/// The user of a rule with the secret.
fn credentials_of(Chap { user, secret_file }: &Chap, secrets: &SecretFiles) -> Result<Credentials, String> {
    let secret = secrets.secret(secret_file)?;
    if secret.is_short() {
        tracing::warn!(user, "the secret is shorter than {} bytes", Secret::RECOMMENDED_BYTES);
    }
    Ok(Credentials { user: user.clone(), secret })
}
