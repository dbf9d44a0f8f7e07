//! Logical units, and the storage objects that they lead to.

use std::collections::BTreeMap;

use lunette_api::objects::Document;
use serde_json::Value;

use super::{Surroundings, flag, tables, text};
use crate::attributes::{self, OF_OBJECTS};
use crate::model::{Lun, Model, ObjectName, Plugin, StorageObject, Target};

/// The bytes of a product in INQUIRY data (SPC-4).
const MAX_PRODUCT_BYTES: usize = 16;

/// The length of a logical block that a document does not say.
const DEFAULT_BLOCK_SIZE: i64 = 512;

type Disks = BTreeMap<ObjectName, StorageObject>;

pub(super) fn read(
    target: &str,
    document: &Document,
    objects: &mut Disks,
    surroundings: &dyn Surroundings,
) -> BTreeMap<u16, Lun> {
    let mut luns = BTreeMap::new();
    for lun in tables(document, "lun") {
        let number = lun.get("number").and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
        let (Some(number), Some(disk)) = (number, text(lun, "disk")) else { continue };
        let known = objects.iter().find(|(_, object)| is_disk_of(object, disk, lun)).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name = new_name(disk, objects, surroundings);
            objects.insert(name.clone(), StorageObject { disk: disk.into(), ..StorageObject::default() });
            name
        });
        if let Some(object) = objects.get_mut(&name) {
            refresh(object, lun);
            object.size = surroundings.size(target, number).or(object.size);
        }
        luns.insert(number, Lun { object: name, document: lun.clone() });
    }
    luns
}

/// Whether a storage object is the disk of a logical unit. Disks in memory have no names, so their serial numbers
/// count.
fn is_disk_of(object: &StorageObject, disk: &str, lun: &Document) -> bool {
    object.disk == disk && (!disk.starts_with("mem:") || text(lun, "serial") == Some(&object.wwn))
}

/// The name of a storage object that no command has made, as rtslib names one after its path.
fn new_name(disk: &str, objects: &Disks, surroundings: &dyn Surroundings) -> ObjectName {
    let plugin = match disk {
        _ if disk.starts_with("mem:") => Plugin::Ramdisk,
        _ if !disk.starts_with('/') => Plugin::User,
        _ if disk.starts_with("/dev/") || surroundings.is_block_device(disk) => Plugin::Block,
        _ => Plugin::Fileio,
    };
    let stem = disk.trim_matches('/').replace(|c: char| c == '/' || c.is_whitespace(), "-");
    let names = (1..).map(|n| if n == 1 { stem.clone() } else { format!("{stem}-{n}") });
    let mut names = names.map(|name| ObjectName { plugin, name });
    names.find(|name| !objects.contains_key(name)).unwrap_or(ObjectName { plugin, name: stem })
}

/// Takes over what the API says of a disk.
fn refresh(object: &mut StorageObject, lun: &Document) {
    if let Some(serial) = text(lun, "serial") {
        object.wwn = serial.into();
    }
    object.read_only = flag(lun, "read_only");
    object.is_full = text(lun, "provisioning") == Some("full");
    let block_size = lun.get("block_size").and_then(Value::as_i64).unwrap_or(DEFAULT_BLOCK_SIZE);
    match block_size {
        DEFAULT_BLOCK_SIZE => drop(object.attributes.remove("block_size")),
        other => drop(object.attributes.insert("block_size".into(), other)),
    }
}

pub(super) fn write(document: &mut Document, target: &Target, model: &Model) {
    let wanted: Vec<Value> = target
        .luns
        .iter()
        .filter_map(|(number, lun)| Some(Value::Object(lun_document(*number, lun, model.objects.get(&lun.object)?))))
        .collect();
    let number = |lun: &Value| lun.get("number").and_then(Value::as_u64);
    // In the order of the file, if there are the same ones.
    let mut before = document.get("lun").and_then(Value::as_array).cloned().unwrap_or_default();
    before.sort_by_key(number);
    match wanted.is_empty() {
        _ if before == wanted => {}
        true => drop(document.remove("lun")),
        false => drop(document.insert("lun".into(), Value::Array(wanted))),
    }
}

/// A logical unit with the keys that follow from its storage object. Other keys stay.
fn lun_document(number: u16, lun: &Lun, object: &StorageObject) -> Document {
    let is_new = lun.document.is_empty();
    let mut document = lun.document.clone();
    if is_new {
        document.insert("number".into(), number.into());
        document.insert("disk".into(), object.disk.as_str().into());
        if !object.wwn.is_empty() {
            document.insert("serial".into(), object.wwn.as_str().into());
        }
        if object.read_only {
            document.insert("read_only".into(), true.into());
        }
        if object.is_full {
            document.insert("provisioning".into(), "full".into());
        }
        if let Some(size) = object.size.filter(|_| object.is_new_file) {
            document.insert("create".into(), size.to_string().into());
        }
        let block_size = attributes::value(OF_OBJECTS, &object.attributes, "block_size");
        if block_size != DEFAULT_BLOCK_SIZE {
            document.insert("block_size".into(), block_size.into());
        }
    }
    if let Some(product) = product(lun, object).filter(|_| object.is_kept) {
        match attributes::value(OF_OBJECTS, &object.attributes, "emulate_model_alias") {
            0 if document.get("product").and_then(Value::as_str) == Some(&product) => drop(document.remove("product")),
            0 => {}
            _ if is_new
                || document.contains_key("product")
                || object.attributes.contains_key("emulate_model_alias") =>
            {
                document.insert("product".into(), product.into());
            }
            _ => {}
        }
    }
    document
}

/// The product that LIO shows: the name of the storage object, as far as it fits.
fn product(lun: &Lun, object: &StorageObject) -> Option<String> {
    let name = &lun.object.name;
    let is_plain = name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !object.disk.is_empty();
    is_plain.then(|| name.chars().take(MAX_PRODUCT_BYTES).collect())
}
