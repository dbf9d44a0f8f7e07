//! Logical units.

use lunette_api::Document;
use serde_json::{Value, json};

use super::Adapter;
use crate::book::Unit;
use crate::document;
use crate::limits::MAX_SCSI_ID_CHARS;
use crate::params;
use crate::wire::{Fault, Request};

/// The number that tgtd gives the unit that is no disk.
const CONTROLLER: u64 = 0;

/// The type of a device that is a disk.
const DISK: u32 = 0;

/// The backing store that tgtd takes without a word.
const DEFAULT_TYPE: &str = "rdwr";

/// Backing stores whose paths are files or block devices.
const FILE_TYPES: [&str; 2] = [DEFAULT_TYPE, "aio"];

/// The backing store whose paths are images in Ceph.
const RBD_TYPE: &str = "rbd";

/// The backing store whose paths are sockets of Longhorn's engines. The length stands in the options.
const LONGHORN_TYPE: &str = "longhorn";

/// The options of that store: the length, and a time that initiators have of their own.
const LONGHORN_OPTIONS: [&str; 2] = ["size", "request_timeout"];

/// The end of the name of such a disk that frees space.
const LONGHORN_UNMAP: &str = "&unmap=true";

/// Names of disks that no path begins with. They are taken as the configuration takes them.
const NAMED: [&str; 2] = ["volume:", "rbd:"];

/// The caching mode page with a write cache, as tgt-admin writes it: bit 2 of byte 2 is WCE.
const WRITE_CACHE_ON: &str = "8:0:18:0x14:";

/// Caching without a write cache, in the same form.
const WRITE_CACHE_OFF: &str = "8:0:18:0x10:";

/// The effect of a parameter of a unit.
enum Setting {
    /// Sets a key to a text, of which tgtd takes this many bytes.
    Text(&'static str, usize),
    /// Sets a key to true or false.
    Flag(&'static str),
    /// Is taken with the value that holds anyway.
    Only(&'static str),
}

const SETTINGS: [(&str, Setting); 8] = [
    ("vendor_id", Setting::Text("vendor", 8)),
    ("product_id", Setting::Text("product", 16)),
    ("product_rev", Setting::Text("revision", 4)),
    ("scsi_sn", Setting::Text("serial", 200)),
    ("removable", Setting::Flag("removable")),
    ("readonly", Setting::Flag("read_only")),
    ("online", Setting::Only("1")),
    ("sense_format", Setting::Only("0")),
];

impl Adapter {
    pub(super) fn new_unit(&mut self, request: &Request, text: &str) -> Result<(), Fault> {
        let (name, document) = self.target(request)?;
        let lun = u16::try_from(request.lun).map_err(|_| Fault::Invalid)?;
        if request.lun == CONTROLLER || document::units(&document).iter().any(|(number, _)| *number == lun) {
            return Err(Fault::UnitExists);
        }
        if request.device_type != DISK {
            return Err(Fault::Invalid);
        }
        let (unit, backing_type) = unit(lun, text)?;
        self.change_target(&name, false, move |target| {
            let units = target.entry("lun").or_insert_with(|| json!([]));
            units.as_array_mut().ok_or(Fault::Invalid)?.push(Value::Object(unit.clone()));
            Ok(())
        })?;
        let backing_type = Some(backing_type).filter(|one| one != DEFAULT_TYPE);
        self.book.set_unit(&name, lun, Unit { backing_type, scsi_id: None })
    }

    /// Removes a unit, also while commands are under way: those that have begun end.
    pub(super) fn delete_unit(&mut self, request: &Request) -> Result<(), Fault> {
        let (name, lun) = self.unit(request)?;
        self.change_target(&name, true, move |target| {
            let units = target.get_mut("lun").and_then(Value::as_array_mut).ok_or(Fault::NoUnit)?;
            units.retain(|unit| unit.get("number") != Some(&lun.into()));
            Ok(())
        })?;
        self.book.set_unit(&name, lun, Unit::default())
    }

    pub(super) fn update_unit(&mut self, request: &Request, text: &str) -> Result<(), Fault> {
        if request.lun == CONTROLLER && self.target(request).is_ok() && self.unit(request).is_err() {
            return Err(Fault::Unsupported);
        }
        // tgtd misses the target before the unit here, and not when a unit is removed.
        self.target(request)?;
        let (name, lun) = self.unit(request)?;
        let (id, parameters): (Vec<_>, Vec<_>) =
            params::list(text)?.into_iter().partition(|(parameter, _)| *parameter == "scsi_id");
        let parameters: Vec<(String, String)> =
            parameters.into_iter().map(|(parameter, value)| (parameter.to_owned(), value)).collect();
        if !parameters.is_empty() {
            self.change_target(&name, true, move |target| {
                let units = target.get_mut("lun").and_then(Value::as_array_mut).ok_or(Fault::NoUnit)?;
                let unit = units.iter_mut().find(|unit| unit.get("number") == Some(&lun.into()));
                let unit = unit.and_then(Value::as_object_mut).ok_or(Fault::NoUnit)?;
                parameters.iter().try_for_each(|(parameter, value)| set(unit, parameter, value))
            })?;
        }
        match id.into_iter().next_back() {
            Some((_, id)) => {
                let known = self.book.unit(&name, lun);
                let id = id.chars().take(MAX_SCSI_ID_CHARS).collect();
                self.book.set_unit(&name, lun, Unit { scsi_id: Some(id), ..known })
            }
            None => Ok(()),
        }
    }

    /// The unit that a request names. tgtd misses the unit when it has no such target.
    fn unit(&mut self, request: &Request) -> Result<(String, u16), Fault> {
        // The controller cannot be removed, of whatever target.
        let missing = if request.lun == CONTROLLER { Fault::Invalid } else { Fault::NoUnit };
        let (name, document) = self.target(request).map_err(|_| missing)?;
        let lun = u16::try_from(request.lun).map_err(|_| missing)?;
        if document::units(&document).iter().any(|(number, _)| *number == lun) { Ok((name, lun)) } else { Err(missing) }
    }
}

/// A new unit, and the type of its backing store.
fn unit(lun: u16, text: &str) -> Result<(Document, String), Fault> {
    let mut unit = Document::new();
    unit.insert("number".into(), lun.into());
    let (mut path, mut options, mut backing_type) = (None, String::new(), DEFAULT_TYPE.to_owned());
    for (parameter, value) in params::list(text)? {
        match (parameter, value.as_str()) {
            ("path", _) => path = Some(value),
            ("bstype", _) => backing_type = value,
            ("blocksize", "4096") => drop(unit.insert("block_size".into(), 4096.into())),
            ("bsopts", _) => options = value,
            // Flags would ask for what these disks cannot do.
            ("blocksize", "512") | ("bsoflags", "") => {}
            _ => return Err(Fault::Invalid),
        }
    }
    let path = path.ok_or(Fault::Invalid)?;
    unit.insert("disk".into(), disk(&path, &backing_type, &options)?.into());
    Ok((unit, backing_type))
}

/// The disk of a path of tgtd.
fn disk(path: &str, backing_type: &str, options: &str) -> Result<String, Fault> {
    let is_named = NAMED.iter().any(|prefix| path.starts_with(prefix));
    // What follows would be parameters, and tgtd takes it for a part of the path.
    if path.contains('?') && !is_named {
        return Err(Fault::Invalid);
    }
    match backing_type {
        LONGHORN_TYPE => Ok(format!("longhorn:{path}?size={}", longhorn_size(options)?)),
        _ if !options.is_empty() => Err(Fault::Invalid),
        RBD_TYPE if !is_named => Ok(format!("rbd:{path}")),
        known if FILE_TYPES.contains(&known) && (is_named || path.starts_with('/')) => Ok(path.to_owned()),
        _ => Err(Fault::Invalid),
    }
}

/// The length among the options of Longhorn's store.
fn longhorn_size(options: &str) -> Result<&str, Fault> {
    let mut size = None;
    for option in options.split(';') {
        match option.split_once('=') {
            Some(("size", value)) => size = Some(value),
            Some((known, _)) if LONGHORN_OPTIONS.contains(&known) => {}
            _ => return Err(Fault::Invalid),
        }
    }
    size.filter(|size| size.bytes().all(|byte| byte.is_ascii_digit())).ok_or(Fault::Invalid)
}

/// Lets a disk free space or not. A volume of Longhorn does it when it is asked to; others are as they are.
fn set_thin(unit: &mut Document, wanted: bool) -> Result<(), Fault> {
    let is_thin = document::is_thin(unit);
    if is_thin == wanted {
        return Ok(());
    }
    let disk = document::text(unit, "disk").filter(|_| longhorn_socket(unit).is_some()).ok_or(Fault::Invalid)?;
    let disk = match disk.strip_suffix(LONGHORN_UNMAP) {
        Some(plain) => plain.to_owned(),
        None => format!("{disk}{LONGHORN_UNMAP}"),
    };
    unit.insert("disk".into(), disk.into());
    Ok(())
}

/// The socket of a disk that is a volume of Longhorn.
fn longhorn_socket(unit: &Document) -> Option<&str> {
    let (socket, _) = document::text(unit, "disk")?.strip_prefix("longhorn:")?.split_once('?')?;
    Some(socket)
}

/// Sets a parameter of a unit.
fn set(unit: &mut Document, parameter: &str, value: &str) -> Result<(), Fault> {
    match parameter {
        "path" if document::text(unit, "disk") == Some(value) => return Ok(()),
        "mode_page" if value.starts_with(WRITE_CACHE_ON) => return Ok(()),
        // The engine has no cache.
        "mode_page" if value.starts_with(WRITE_CACHE_OFF) && longhorn_socket(unit).is_some() => return Ok(()),
        "bsopts" => {
            let name = document::text(unit, "disk").ok_or(Fault::Invalid)?;
            let (socket, unmap) = (longhorn_socket(unit).ok_or(Fault::Invalid)?, name.ends_with(LONGHORN_UNMAP));
            let unmap = if unmap { LONGHORN_UNMAP } else { "" };
            let disk = format!("longhorn:{socket}?size={}{unmap}", longhorn_size(value)?);
            unit.insert("disk".into(), disk.into());
            return Ok(());
        }
        "thin_provisioning" => {
            return set_thin(unit, params::flag(value)?);
        }
        _ => {}
    }
    let found = SETTINGS.iter().find(|(name, _)| *name == parameter);
    let (_, setting) = found.ok_or(Fault::Invalid)?;
    match setting {
        Setting::Text(key, bytes) => {
            let text: String = value.chars().take(*bytes).collect();
            unit.insert((*key).into(), text.into());
        }
        Setting::Flag(key) => drop(unit.insert((*key).into(), params::flag(value)?.into())),
        Setting::Only(taken) if *taken == value => {}
        Setting::Only(_) => return Err(Fault::Invalid),
    }
    Ok(())
}
