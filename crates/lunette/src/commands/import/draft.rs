//! A configuration as it is written: the tables and keys of `docs/configuration.md` that other programs have, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A whole configuration.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Draft {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) listen: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) portal: Vec<Portal>,
    #[serde(skip_serializing_if = "Users::is_empty")]
    pub(super) discovery: Users,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) target: Vec<Target>,
}

impl Draft {
    /// The files of secrets that it names.
    pub(super) fn secret_files(&self) -> impl Iterator<Item = &Path> {
        self.users()
            .flat_map(|users| users.chap.iter().chain(&users.mutual_chap))
            .map(|user| user.secret_file.as_path())
    }

    /// The users of all rules.
    pub(super) fn users(&self) -> impl Iterator<Item = &Users> {
        let hosts = self.target.iter().flat_map(|target| &target.host).map(|host| &host.users);
        self.target.iter().map(|target| &target.users).chain(hosts).chain([&self.discovery])
    }
}

/// A portal of a group of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Portal {
    pub(super) address: String,
    pub(super) group: u16,
}

/// How initiators prove themselves, and the target to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Users {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) chap: Vec<User>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mutual_chap: Option<User>,
}

impl Users {
    pub(super) fn is_empty(&self) -> bool {
        self.chap.is_empty() && self.mutual_chap.is_none()
    }
}

/// A user of CHAP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct User {
    pub(super) user: String,
    pub(super) secret_file: PathBuf,
}

/// A target.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Target {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alias: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allow: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redirect: Option<Redirect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_connections: Option<u32>,
    #[serde(flatten)]
    pub(super) users: Users,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) session: BTreeMap<&'static str, toml::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) lun: Vec<Lun>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) host: Vec<Host>,
}

impl Target {
    /// Lets in no initiator.
    pub(super) fn close(&mut self) {
        self.users = Users::default();
        self.host.clear();
        self.allow = Some(Vec::new());
    }
}

/// The place where the logins of a target are sent.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Redirect {
    pub(super) to: Vec<String>,
}

/// A logical unit.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Lun {
    pub(super) number: u16,
    pub(super) disk: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) create: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) block_size: Option<u32>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) read_only: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) removable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) serial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vendor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) product: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<String>,
}

/// Initiators with rules of their own.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Host {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) initiators: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) networks: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) read_only: bool,
    #[serde(flatten)]
    pub(super) users: Users,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lun: Option<Vec<MappedLun>>,
}

/// A logical unit that a host sees.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MappedLun {
    pub(super) number: u16,
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub(super) seen_as: Option<u16>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) read_only: bool,
}

impl MappedLun {
    /// The logical unit `number`, which the host sees as `seen_as`.
    pub(super) fn new(number: u16, seen_as: u16, read_only: bool) -> Self {
        Self { number, seen_as: (seen_as != number).then_some(seen_as), read_only }
    }

    /// The number that the host sees.
    pub(super) fn seen_as(&self) -> u16 {
        self.seen_as.unwrap_or(self.number)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}
