//! The objects of the API as the tree of LIO, and back.
//!
//! The API has the truth. What LIO has beside it stands in [`State`], and counts where the API says nothing. A target
//! that no command has changed is written back as it was read.

mod access;
mod luns;
mod parameters;

use std::collections::BTreeMap;

use lunette_api::objects::{Document, Kind};
use serde_json::Value;

use crate::model::{Model, Target};
use crate::state::{SavedAcl, SavedAuth, SavedObject, SavedTarget, State};
pub(crate) use parameters::{get as parameter, names as parameter_names, set as set_parameter};

/// All objects of a server, by their names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Objects {
    pub(crate) targets: BTreeMap<String, Document>,
    pub(crate) portals: BTreeMap<String, Document>,
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// The object from now on; `None` to remove it.
    pub(crate) document: Option<Document>,
}

/// The world as a translation sees it.
pub(crate) trait Surroundings {
    /// The content of a file of a secret; `None` when it cannot be read.
    fn secret(&self, file: &str) -> Option<String>;
    /// Whether a path is that of a block device.
    fn is_block_device(&self, path: &str) -> bool;
    /// The length of the disk of a logical unit.
    fn size(&self, target: &str, lun: u16) -> Option<u64>;
}

/// A place for new secrets.
pub(crate) trait Secrets {
    /// The path of a file that will hold this secret.
    fn file_for(&mut self, secret: &str) -> String;
}

/// The tree that these objects are.
pub(crate) fn read(objects: &Objects, state: &State, surroundings: &dyn Surroundings) -> Model {
    let mut model = Model {
        objects: state.objects.iter().filter_map(SavedObject::object).collect(),
        targets: BTreeMap::new(),
        portals: objects.portals.clone(),
        preferences: state.preferences.clone(),
    };
    for (name, document) in &objects.targets {
        let nothing = SavedTarget::default();
        let saved = state.targets.get(name).unwrap_or(&nothing);
        let luns = luns::read(name, document, &mut model.objects, surroundings);
        let access = access::read(document, saved, surroundings);
        let target = Target {
            access_as_read: access.clone(),
            access,
            luns,
            parameters: saved.parameters.clone(),
            document: document.clone(),
        };
        model.targets.insert(name.clone(), target);
    }
    model
}

/// The changes from one tree to another, and the state that belongs to the second.
pub(crate) fn write(before: &Model, after: &Model, secrets: &mut dyn Secrets) -> (Vec<Change>, State) {
    let mut changes = Vec::new();
    for name in before.targets.keys().filter(|name| !after.targets.contains_key(*name)) {
        changes.push(Change { kind: Kind::Target, name: name.clone(), document: None });
    }
    for (name, target) in &after.targets {
        let old = before.targets.get(name);
        let document = write_target(target, after, secrets);
        let is_same = old.is_some_and(|old| old.document == document);
        if !is_same {
            changes.push(Change { kind: Kind::Target, name: name.clone(), document: Some(document) });
        }
    }
    for name in before.portals.keys().filter(|name| !after.portals.contains_key(*name)) {
        changes.push(Change { kind: Kind::Portal, name: name.clone(), document: None });
    }
    for (name, document) in after.portals.iter().filter(|(name, document)| before.portals.get(*name) != Some(*document))
    {
        changes.push(Change { kind: Kind::Portal, name: name.clone(), document: Some(document.clone()) });
    }
    (changes, state_of(after))
}

fn write_target(target: &Target, model: &Model, secrets: &mut dyn Secrets) -> Document {
    let mut document = target.document.clone();
    luns::write(&mut document, target, model);
    access::write(&mut document, target, secrets);
    document
}

fn state_of(model: &Model) -> State {
    let objects = model.objects.iter().filter(|(_, object)| object.is_kept);
    let targets = model.targets.iter().map(|(name, target)| (name.clone(), saved_target(target)));
    State {
        objects: objects.map(|(name, object)| SavedObject::of(name, object)).collect(),
        targets: targets.filter(|(_, saved)| *saved != SavedTarget::default()).collect(),
        preferences: model.preferences.clone(),
    }
}

fn saved_target(target: &Target) -> SavedTarget {
    let asks_for_proof = target.access.is_set("authentication");
    // What counts stands in the API, with its secrets in files.
    let pending = |auth: &crate::model::Auth, counts: bool| match counts && asks_for_proof && auth.is_complete() {
        true if auth.is_mutual() || auth.mutual_userid.is_empty() => SavedAuth::default(),
        true => SavedAuth { userid: String::new(), password: String::new(), ..SavedAuth::of(auth) },
        false => SavedAuth::of(auth),
    };
    let acls = target.access.acls.iter().map(|(name, acl)| {
        (name.clone(), SavedAcl { attributes: acl.attributes.clone(), auth: pending(&acl.auth, true) })
    });
    let mut attributes = target.access.attributes.clone();
    attributes.retain(|name, _| !access::is_said_by_objects(&target.access, name));
    SavedTarget {
        attributes,
        parameters: target.parameters.clone(),
        auth: pending(&target.access.auth, target.access.is_set("generate_node_acls")),
        acls: acls.filter(|(_, saved)| *saved != SavedAcl::default()).collect(),
    }
}

/// The tables in a list of a document.
fn tables<'a>(document: &'a Document, key: &str) -> impl Iterator<Item = &'a Document> {
    document.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

/// The texts in a list of a document; `None` when it has no such list.
fn texts(document: &Document, key: &str) -> Option<Vec<String>> {
    let list = document.get(key)?.as_array()?;
    Some(list.iter().filter_map(Value::as_str).map(Into::into).collect())
}

fn text<'a>(document: &'a Document, key: &str) -> Option<&'a str> {
    document.get(key).and_then(Value::as_str)
}

fn flag(document: &Document, key: &str) -> bool {
    document.get(key).and_then(Value::as_bool).unwrap_or_default()
}

#[cfg(test)]
mod tests;
