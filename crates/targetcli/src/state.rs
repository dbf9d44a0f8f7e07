//! Things that LIO keeps and Lunette has no object for: storage objects without a LUN, attributes without a meaning.
//!
//! It stands in a file of its own, in JSON. What the API says counts before it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::attributes::Numbers;
use crate::model::{Auth, ObjectName, Plugin, Secret, StorageObject};

/// Whether a value says nothing, so that it need not be written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) objects: Vec<SavedObject>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) targets: BTreeMap<String, SavedTarget>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) preferences: BTreeMap<String, String>,
}

/// A storage object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedObject {
    pub(crate) plugin: String,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) disk: String,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) size: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) is_new_file: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) is_full: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) read_only: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) wwn: String,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) attributes: Numbers,
}

/// A target.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedTarget {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) attributes: Numbers,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) parameters: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) auth: SavedAuth,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) acls: BTreeMap<String, SavedAcl>,
}

/// An ACL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedAcl {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) attributes: Numbers,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) auth: SavedAuth,
}

/// Users that do not count yet, because no proof is asked for or something is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedAuth {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) userid: String,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) password: String,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) mutual_userid: String,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) mutual_password: String,
}

impl SavedAuth {
    pub(crate) fn of(auth: &Auth) -> Self {
        let text = |secret: &Secret| secret.text.clone().unwrap_or_default();
        Self {
            userid: auth.userid.clone(),
            password: text(&auth.password),
            mutual_userid: auth.mutual_userid.clone(),
            mutual_password: text(&auth.mutual_password),
        }
    }

    pub(crate) fn auth(&self) -> Auth {
        Auth {
            userid: self.userid.clone(),
            password: Secret::new(&self.password),
            mutual_userid: self.mutual_userid.clone(),
            mutual_password: Secret::new(&self.mutual_password),
        }
    }
}

impl SavedObject {
    pub(crate) fn of(name: &ObjectName, object: &StorageObject) -> Self {
        let StorageObject { disk, size, is_new_file, is_full, read_only, wwn, attributes, is_kept: _ } = object.clone();
        let ObjectName { plugin, name } = name;
        Self {
            plugin: plugin.name().into(),
            name: name.clone(),
            disk,
            size,
            is_new_file,
            is_full,
            read_only,
            wwn,
            attributes,
        }
    }

    /// The storage object with its name; `None` for a kind that is not known.
    pub(crate) fn object(&self) -> Option<(ObjectName, StorageObject)> {
        let Self { plugin, name, disk, size, is_new_file, is_full, read_only, wwn, attributes } = self.clone();
        let name = ObjectName { plugin: Plugin::of(&plugin)?, name };
        Some((name, StorageObject { disk, size, is_new_file, is_full, read_only, wwn, attributes, is_kept: true }))
    }
}
