//! `saveconfig.json`, as rtslib writes and reads it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::attributes::{self, Attribute, Numbers, OF_ACLS, OF_OBJECTS, OF_TPGS, Takes};
use crate::failure::Failure;
use crate::model::{Acl, Auth, Mapped, Model, ObjectName, Plugin, Secret, StorageObject, Target, wwn};
use crate::portal;
use crate::translate::{parameter, parameter_names, set_parameter};

/// The key by which a file of ours is known. rtslib and Proxmox pass over it.
pub(crate) const MARK: &str = "lunette";

/// The group of ports in which each logical unit is.
const DEFAULT_PORTS: &str = "default_tg_pt_gp";

/// The whole tree as rtslib saves it.
pub(crate) fn write(model: &Model) -> Value {
    let objects: Vec<Value> = model.objects.iter().map(|(name, object)| write_object(name, object)).collect();
    let targets: Vec<Value> = model.targets.iter().map(|(iqn, target)| write_target(iqn, target, model)).collect();
    json!({ "fabric_modules": [], "storage_objects": objects, "targets": targets, MARK: true })
}

/// Says that an object may only be read, where LIO has no word for it.
fn add_protection(add: &mut impl FnMut(&str, Value), object: &StorageObject) {
    if object.read_only {
        add("readonly", true.into());
    }
}

fn write_object(name: &ObjectName, object: &StorageObject) -> Value {
    let mut saved = Map::from_iter([
        ("name".to_owned(), Value::from(name.name.as_str())),
        ("plugin".into(), name.plugin.name().into()),
        ("wwn".into(), object.wwn.as_str().into()),
        ("alua_tpgs".into(), json!([])),
        ("attributes".into(), numbers(OF_OBJECTS, &object.attributes)),
    ]);
    let size = || object.size.unwrap_or_default().into();
    let mut add = |key: &str, value: Value| drop(saved.insert(key.into(), value));
    match name.plugin {
        Plugin::Block => {
            add("dev", object.disk.as_str().into());
            add("readonly", object.read_only.into());
            add("write_back", true.into());
        }
        Plugin::Fileio => {
            add("dev", object.disk.as_str().into());
            add("size", size());
            add("write_back", true.into());
            add("aio", false.into());
            add_protection(&mut add, object);
        }
        Plugin::Ramdisk => add("size", size()),
        Plugin::User => {
            add("config", format!("lunette/{}", object.disk).into());
            add("size", size());
            add_protection(&mut add, object);
        }
    }
    Value::Object(saved)
}

/// The attribute of groups and ACLs that asks for a proof.
const AUTHENTICATION: &str = "authentication";

/// The attributes that can be set.
fn numbers(table: &'static [Attribute], numbers: &Numbers) -> Value {
    let settable = table.iter().filter(|attribute| attribute.takes != Takes::Nothing);
    Value::Object(
        settable
            .map(|attribute| (attribute.name.into(), attributes::value(table, numbers, attribute.name).into()))
            .collect(),
    )
}

fn write_target(iqn: &str, target: &Target, model: &Model) -> Value {
    let luns = target.luns.iter().map(|(number, lun)| {
        json!({
            "index": number,
            "storage_object": format!("/backstores/{}", lun.object),
            "alias": format!("{:.10}", format!("{number:x}{iqn}").replace(['.', ':', '-'], "")),
            "alua_tg_pt_gp_name": DEFAULT_PORTS,
        })
    });
    let portals = model
        .portals
        .keys()
        .filter_map(|address| portal::split(address))
        .map(|(ip, port)| json!({ "ip_address": ip, "port": port, "iser": false, "offload": false }));
    let acls = target.access.acls.iter().map(|(initiator, acl)| write_acl(initiator, acl, target));
    let parameters: Map<String, Value> =
        parameter_names().filter_map(|name| Some((name.to_owned(), parameter(target, name)?.into()))).collect();
    let mut tpg = Map::from_iter([
        ("tag".to_owned(), Value::from(1)),
        ("enable".into(), true.into()),
        ("attributes".into(), numbers(OF_TPGS, &target.access.attributes)),
        ("parameters".into(), parameters.into()),
        ("luns".into(), luns.collect()),
        ("portals".into(), portals.collect()),
        ("node_acls".into(), acls.collect()),
    ]);
    write_auth(&mut tpg, &target.access.auth);
    json!({ "fabric": "iscsi", "wwn": iqn, "tpgs": [tpg] })
}

fn write_acl(initiator: &str, acl: &Acl, target: &Target) -> Value {
    let mapped = target.mapped(acl).into_iter().map(|(number, Mapped { lun, write_protect })| {
        json!({ "index": number, "tpg_lun": lun, "write_protect": write_protect, "alias": format!("{number:010x}") })
    });
    let mut saved = Map::from_iter([
        ("node_wwn".to_owned(), Value::from(initiator)),
        ("mapped_luns".into(), mapped.collect()),
        ("attributes".into(), numbers(OF_ACLS, &acl.attributes)),
    ]);
    write_auth(&mut saved, &acl.auth);
    Value::Object(saved)
}

fn write_auth(saved: &mut Map<String, Value>, auth: &Auth) {
    let secret = |secret: &Secret| secret.text.clone().unwrap_or_default();
    for (key, value) in [
        ("chap_userid", auth.userid.clone()),
        ("chap_password", secret(&auth.password)),
        ("chap_mutual_userid", auth.mutual_userid.clone()),
        ("chap_mutual_password", secret(&auth.mutual_password)),
    ] {
        if !value.is_empty() {
            saved.insert(key.into(), value.into());
        }
    }
}

/// The parts of a file that are read; anything else in it has no equivalent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Saved {
    storage_objects: Vec<Value>,
    targets: Vec<Value>,
    fabric_modules: Vec<Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SavedObject {
    name: String,
    plugin: String,
    dev: Option<String>,
    config: Option<String>,
    size: Option<u64>,
    wwn: Option<String>,
    readonly: bool,
    write_back: Option<bool>,
    nullio: bool,
    attributes: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SavedTarget {
    wwn: String,
    fabric: String,
    tpgs: Vec<SavedTpg>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SavedTpg {
    tag: u16,
    enable: Option<bool>,
    attributes: BTreeMap<String, Value>,
    parameters: BTreeMap<String, String>,
    luns: Vec<SavedLun>,
    portals: Vec<SavedPortal>,
    node_acls: Vec<SavedAcl>,
    #[serde(flatten)]
    auth: SavedAuth,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SavedLun {
    index: u16,
    storage_object: String,
    alua_tg_pt_gp_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SavedPortal {
    ip_address: String,
    port: Option<u16>,
    iser: bool,
    offload: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SavedAcl {
    node_wwn: String,
    mapped_luns: Vec<SavedMapped>,
    attributes: BTreeMap<String, Value>,
    #[serde(flatten)]
    auth: SavedAuth,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SavedMapped {
    index: u16,
    tpg_lun: u16,
    write_protect: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SavedAuth {
    #[serde(rename = "chap_userid")]
    userid: String,
    #[serde(rename = "chap_password")]
    password: String,
    #[serde(rename = "chap_mutual_userid")]
    mutual_userid: String,
    #[serde(rename = "chap_mutual_password")]
    mutual_password: String,
}

impl SavedAuth {
    fn auth(self) -> Auth {
        Auth {
            userid: self.userid,
            password: Secret::new(&self.password),
            mutual_userid: self.mutual_userid,
            mutual_password: Secret::new(&self.mutual_password),
        }
    }
}

/// The parts of a file to restore; all of it without a name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Only<'a> {
    pub(crate) target: Option<&'a str>,
    pub(crate) object: Option<&'a str>,
}

impl Only<'_> {
    fn has_object(self, name: &str) -> bool {
        self.object.map_or(self.target.is_none(), |only| only == name)
    }

    fn has_target(self, name: &str) -> bool {
        self.target.map_or(self.object.is_none(), |only| only == name)
    }
}

/// The keys of a logical unit that a file of LIO can say.
const SAID_KEYS: [&str; 8] =
    ["number", "disk", "create", "block_size", "read_only", "serial", "product", "provisioning"];

/// Removes what a file would replace. Units with keys that no file can say are left as they are: served without them,
/// the bytes of a disk would mean something else.
pub(crate) fn clear(model: &mut Model, only: Only<'_>) -> Result<(), Failure> {
    let targets: Vec<String> = model.targets.keys().filter(|name| only.has_target(name)).cloned().collect();
    for (name, target) in &model.targets {
        for (number, lun) in &target.luns {
            let goes = targets.contains(name) || only.has_object(&lun.object.name);
            let unsaid = || lun.document.keys().find(|key| !SAID_KEYS.contains(&key.as_str()));
            if let Some(key) = goes.then(unsaid).flatten() {
                return Err(Failure::new(format!(
                    "LUN {number} of {name} has {key}, which no saved configuration says; remove the LUN first"
                )));
            }
        }
    }
    let objects: Vec<ObjectName> = model.objects.keys().filter(|name| only.has_object(&name.name)).cloned().collect();
    for name in targets {
        let _ = model.remove_target(&name);
    }
    for name in objects {
        let _ = model.remove_object(&name);
    }
    Ok(())
}

/// Adds what a file holds to a tree. What cannot be added is told, as rtslib tells it.
pub(crate) fn restore(
    model: &mut Model,
    text: &str,
    only: Only<'_>,
    serial: &dyn Fn() -> String,
) -> Result<Vec<String>, Failure> {
    let saved: Saved = serde_json::from_str(text)
        .map_err(|error| Failure::new(format!("the file is no saved configuration: {error}")))?;
    let mut errors = Errors(Vec::new());
    let objects: Vec<SavedObject> = errors.readable(saved.storage_objects, "storage object");
    let targets: Vec<SavedTarget> = errors.readable(saved.targets, "target");
    let objects: Vec<SavedObject> = objects.into_iter().filter(|object| only.has_object(&object.name)).collect();
    let targets: Vec<SavedTarget> = targets.into_iter().filter(|target| only.has_target(&target.wwn)).collect();
    for (wanted, is_missing) in [(only.object, objects.is_empty()), (only.target, targets.is_empty())] {
        if let Some(name) = wanted.filter(|_| is_missing) {
            return Err(Failure::new(format!("the file has no {name}; nothing is changed")));
        }
    }
    for object in &objects {
        let is_there = |name: &&ObjectName| name.plugin.name() == object.plugin && name.name == object.name;
        if model.objects.keys().any(|name| is_there(&name)) {
            let SavedObject { plugin, name, .. } = object;
            return Err(Failure::new(format!("storageobject '{plugin}:{name}' exist not restoring")));
        }
    }
    if let Some(target) = targets.iter().find(|target| model.targets.contains_key(&target.wwn)) {
        return Err(Failure::new(format!("target with wwn {} exist, not restoring", target.wwn)));
    }
    for fabric in &saved.fabric_modules {
        if fabric.get("discovery_enable_auth").is_some_and(|value| *value == true || *value == 1) {
            errors.add("the users of discovery stand in the configuration file of Lunette");
        }
    }
    for object in objects {
        restore_object(model, object, serial, &mut errors);
    }
    errors.note_portals(&targets);
    for target in targets {
        restore_target(model, target, &mut errors);
    }
    Ok(errors.0)
}

struct Errors(Vec<String>);

impl Errors {
    fn add(&mut self, what: impl std::fmt::Display) {
        self.0.push(format!("{what}, skipped"));
    }

    /// Tells of portals that lead to some of the targets alone. Here each leads to all of them.
    fn note_portals(&mut self, targets: &[SavedTarget]) {
        let portals = |target: &SavedTarget| -> BTreeSet<(String, Option<u16>)> {
            let all = target.tpgs.iter().flat_map(|tpg| &tpg.portals);
            all.map(|portal| (portal.ip_address.clone(), portal.port)).collect()
        };
        let sets: BTreeSet<_> = targets.iter().map(portals).collect();
        if sets.len() > 1 {
            self.0.push("the targets have different portals, and here each portal leads to all targets".into());
        }
    }

    fn take<T>(&mut self, place: &str, result: Result<T, Failure>) -> Option<T> {
        result.map_err(|error| self.add(format_args!("{place}: {error}"))).ok()
    }

    fn readable<T: serde::de::DeserializeOwned>(&mut self, values: Vec<Value>, what: &str) -> Vec<T> {
        let read = |(index, value)| {
            let read = serde_json::from_value(value).map_err(|error| Failure::new(error.to_string()));
            self.take(&format!("{what} {index}"), read)
        };
        values.into_iter().enumerate().filter_map(read).collect()
    }

    /// Sets attributes that are not as by default already.
    fn numbers(&mut self, place: &str, table: &'static [Attribute], saved: BTreeMap<String, Value>) -> Numbers {
        let mut numbers = Numbers::new();
        for (name, value) in saved {
            let value = match &value {
                Value::String(text) => text.parse().ok(),
                Value::Bool(flag) => Some(i64::from(*flag)),
                other => other.as_i64(),
            };
            let is_known = attributes::find(table, &name).is_some_and(|attribute| attribute.takes != Takes::Nothing);
            match value {
                Some(value) if is_known && value == attributes::value(table, &numbers, &name) => {}
                Some(value) => drop(self.take(place, attributes::set(table, &mut numbers, &name, value))),
                None => self.add(format_args!("{place}: Cannot set attribute {name}: it is no number")),
            }
        }
        numbers
    }
}

fn restore_object(model: &mut Model, saved: SavedObject, serial: &dyn Fn() -> String, errors: &mut Errors) {
    let SavedObject { name, plugin, dev, config, size, wwn, readonly, write_back, nullio, attributes } = saved;
    let place = format!("Storage Object {plugin}/{name}");
    let disk = match (Plugin::of(&plugin), dev, config) {
        (Some(plugin @ (Plugin::Block | Plugin::Fileio)), Some(dev), _) => Ok((plugin, dev)),
        (Some(plugin @ Plugin::Ramdisk), ..) if !nullio => Ok((plugin, format!("mem:{}", size.unwrap_or_default()))),
        (Some(plugin @ Plugin::User), _, Some(config)) => match config.strip_prefix("lunette/") {
            Some(disk) => Ok((plugin, disk.into())),
            None => Err("a handler of TCMU"),
        },
        _ => Err("a kind that Lunette does not have"),
    };
    let (plugin, disk) = match disk {
        Ok(known) => known,
        Err(why) => return errors.add(format_args!("Could not create StorageObject {name}: {why}")),
    };
    if plugin == Plugin::Fileio && write_back == Some(false) {
        errors.add(format_args!("{place}: write_back=False, which Lunette does not have"));
    }
    let object = StorageObject {
        disk,
        size,
        read_only: readonly,
        wwn: wwn.filter(|wwn| !wwn.is_empty()).unwrap_or_else(serial),
        attributes: errors.numbers(&place, OF_OBJECTS, attributes),
        is_kept: true,
        ..StorageObject::default()
    };
    let added = model.add_object(ObjectName { plugin, name }, object);
    errors.take(&place, added);
}

fn restore_target(model: &mut Model, saved: SavedTarget, errors: &mut Errors) {
    if saved.fabric != "iscsi" {
        return errors.add(format_args!("Unknown fabric '{}'", saved.fabric));
    }
    let Some(iqn) = errors.take("target", wwn(&saved.wwn)) else { return };
    let added = model.add_target(&iqn);
    if errors.take(&iqn, added).is_none() {
        return;
    }
    let mut tpgs = saved.tpgs.into_iter();
    let Some(tpg) = tpgs.next() else { return };
    for other in tpgs {
        errors.add(format_args!("{iqn}: TPG {}, because a target of Lunette has one", other.tag));
    }
    if tpg.tag != 1 {
        errors.add(format_args!("{iqn}: the tag {} of the TPG, which becomes 1", tpg.tag));
    }
    if tpg.enable == Some(false) {
        errors.add(format_args!("{iqn}: TPG {} is not enabled, and no initiator is let in", tpg.tag));
        return;
    }
    for lun in tpg.luns {
        let place = format!("{iqn}: LUN {}", lun.index);
        if lun.alua_tg_pt_gp_name.is_some_and(|name| !["", DEFAULT_PORTS].contains(&name.as_str())) {
            errors.add(format_args!("{place}: its group of ports (ALUA)"));
        }
        let object = lun.storage_object.strip_prefix("/backstores/").and_then(|path| path.split_once('/'));
        let object =
            object.and_then(|(plugin, name)| Some(ObjectName { plugin: Plugin::of(plugin)?, name: name.into() }));
        match object {
            Some(object) => drop(errors.take(&place, model.add_lun(&iqn, &object, Some(lun.index)))),
            None => errors.add(format_args!("{place}: {} is not there", lun.storage_object)),
        }
    }
    for saved in tpg.portals {
        if saved.iser || saved.offload {
            errors.add(format_args!("{iqn}: portal {}: iSER and offload", saved.ip_address));
        }
        match portal::address(&saved.ip_address, saved.port.unwrap_or(portal::DEFAULT_PORT)) {
            Ok(address) => portal::add(&mut model.portals, &address),
            Err(error) => errors.add(format_args!("{iqn}: {error}")),
        }
    }
    if let Ok(target) = model.target_mut(&iqn) {
        let asks_for_proof = asks_for_proof(&tpg.attributes, &tpg.parameters, &tpg.node_acls);
        target.access.attributes = errors.numbers(&iqn, OF_TPGS, tpg.attributes);
        if asks_for_proof {
            target.access.attributes.insert(AUTHENTICATION.into(), 1);
        }
        for (name, value) in tpg.parameters {
            if parameter(target, &name).is_none_or(|is| is != value) {
                let set = set_parameter(target, &name, &value);
                errors.take(&iqn, set);
            }
        }
        target.access.auth = tpg.auth.auth();
        tpg.node_acls.into_iter().for_each(|acl| restore_acl(target, &iqn, acl, errors));
    }
}

/// Whether a saved target asks some initiator for a proof. Then it is asked for from all of them here. The kernel asks
/// for one unless the file says otherwise.
fn asks_for_proof(
    attributes: &BTreeMap<String, Value>,
    parameters: &BTreeMap<String, String>,
    acls: &[SavedAcl],
) -> bool {
    let is_off = |value: &Value| *value == json!(0) || *value == json!("0") || *value == json!(false);
    let as_the_target = |value: &Value| *value == json!(-1) || *value == json!("-1") || is_off(value);
    let of_acl = |acl: &SavedAcl| acl.attributes.get(AUTHENTICATION).is_some_and(|value| !as_the_target(value));
    let methods = parameters.get("AuthMethod");
    !attributes.get(AUTHENTICATION).is_some_and(is_off)
        || acls.iter().any(of_acl)
        || methods.is_some_and(|methods| !methods.split(',').any(|method| method.trim() == "None"))
}

fn restore_acl(target: &mut Target, iqn: &str, saved: SavedAcl, errors: &mut Errors) {
    let place = format!("{iqn}: {}", saved.node_wwn);
    let Some(initiator) = errors.take(&place, wwn(&saved.node_wwn)) else { return };
    let added = target.add_acl(&initiator);
    if errors.take(&place, added).is_none() {
        return;
    }
    for SavedMapped { index, tpg_lun, write_protect } in saved.mapped_luns {
        let mapped = target.map(&initiator, index, Mapped { lun: tpg_lun, write_protect });
        errors.take(&place, mapped);
    }
    if let Ok(acl) = target.acl_mut(&initiator) {
        acl.attributes = errors.numbers(&place, OF_ACLS, saved.attributes);
        acl.auth = saved.auth.auth();
    }
}
