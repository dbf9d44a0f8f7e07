//! The form of `saveconfig.json`. Lists are read item by item, so that one of another form takes nothing else with it.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::super::report::{Imported, is_on};

/// The whole file.
#[derive(Deserialize)]
pub(super) struct Saved {
    #[serde(default)]
    pub(super) fabric_modules: Vec<Value>,
    #[serde(default)]
    pub(super) storage_objects: Vec<Value>,
    #[serde(default)]
    pub(super) targets: Vec<Value>,
}

#[derive(Deserialize)]
pub(super) struct Fabric {
    pub(super) name: String,
    #[serde(default)]
    pub(super) discovery_enable_auth: Flag,
    #[serde(flatten)]
    pub(super) users: ChapUsers,
}

#[derive(Deserialize)]
pub(super) struct StorageObject {
    pub(super) name: String,
    pub(super) plugin: String,
    pub(super) dev: Option<String>,
    /// The handler of a TCMU backstore, and what that one serves.
    pub(super) config: Option<String>,
    pub(super) size: Option<u64>,
    #[serde(default)]
    pub(super) nullio: Flag,
    pub(super) wwn: Option<String>,
    #[serde(default)]
    pub(super) readonly: Flag,
    #[serde(default)]
    pub(super) attributes: Attributes,
    #[serde(default)]
    pub(super) alua_tpgs: Vec<Value>,
}

#[derive(Deserialize)]
pub(super) struct SavedTarget {
    #[serde(default)]
    pub(super) fabric: String,
    pub(super) wwn: String,
    #[serde(default)]
    pub(super) tpgs: Vec<Value>,
}

/// A portal group.
#[derive(Deserialize)]
pub(super) struct Tpg {
    #[serde(default = "first_tag", deserialize_with = "number")]
    pub(super) tag: u16,
    #[serde(default = "enabled")]
    pub(super) enable: Flag,
    #[serde(default)]
    pub(super) attributes: Attributes,
    #[serde(default)]
    pub(super) parameters: Attributes,
    #[serde(flatten)]
    pub(super) users: ChapUsers,
    #[serde(flatten)]
    pub(super) other: Attributes,
    #[serde(default)]
    pub(super) luns: Vec<Value>,
    #[serde(default)]
    pub(super) node_acls: Vec<Value>,
    #[serde(default)]
    pub(super) portals: Vec<Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ChapUsers {
    #[serde(rename = "chap_userid", alias = "discovery_userid")]
    pub(super) user: Option<String>,
    #[serde(rename = "chap_password", alias = "discovery_password")]
    pub(super) password: Option<String>,
    #[serde(rename = "chap_mutual_userid", alias = "discovery_mutual_userid")]
    pub(super) mutual_user: Option<String>,
    #[serde(rename = "chap_mutual_password", alias = "discovery_mutual_password")]
    pub(super) mutual_password: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct SavedLun {
    #[serde(deserialize_with = "number")]
    pub(super) index: u16,
    pub(super) storage_object: String,
    pub(super) alua_tg_pt_gp_name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct NodeAcl {
    pub(super) node_wwn: String,
    #[serde(default)]
    pub(super) attributes: Attributes,
    #[serde(flatten)]
    pub(super) users: ChapUsers,
    #[serde(default)]
    pub(super) mapped_luns: Vec<Value>,
}

#[derive(Deserialize)]
pub(super) struct SavedMappedLun {
    #[serde(deserialize_with = "number")]
    pub(super) index: u16,
    /// rtslib compares it with the numbers of logical units, so a text is none.
    pub(super) tpg_lun: u16,
    #[serde(default)]
    pub(super) write_protect: Flag,
}

#[derive(Deserialize)]
pub(super) struct SavedPortal {
    pub(super) ip_address: String,
    #[serde(deserialize_with = "number")]
    pub(super) port: u16,
    #[serde(default)]
    pub(super) iser: Flag,
    #[serde(default)]
    pub(super) offload: Flag,
}

/// Settings by their names. LIO writes numbers, and older versions texts.
pub(super) type Attributes = BTreeMap<String, Value>;

/// A setting that is on or off: a truth value, a number, or one of these as a text.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flag(pub(super) bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::Bool(is_on) => is_on,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => is_on(&text),
            _ => false,
        }))
    }
}

fn first_tag() -> u16 {
    1
}

fn enabled() -> Flag {
    Flag(true)
}

/// A number, or a text that is one.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = number_of(&value).and_then(|number| number.try_into().ok());
    number.ok_or_else(|| serde::de::Error::custom(format!("{value} is no number from 0 to {}", u16::MAX)))
}

/// The number that a value is or says.
pub(super) fn number_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// The items of a list that belongs to `owner`. One that has another form is reported under the value of its key
/// `name`.
pub(super) fn items<T: DeserializeOwned>(list: &[Value], owner: &str, name: &str, imported: &mut Imported) -> Vec<T> {
    let mut items = Vec::new();
    for value in list {
        match T::deserialize(value) {
            Ok(item) => items.push(item),
            Err(error) => {
                let name = match value.get(name) {
                    Some(Value::String(text)) => text.clone(),
                    Some(other) => format!("{name} {other}"),
                    None => "an item without a name".into(),
                };
                imported.note(if owner.is_empty() { name } else { format!("{owner}, {name}") }, error.to_string());
            }
        }
    }
    items
}
