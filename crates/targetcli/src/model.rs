//! The tree of LIO as values: what a running server serves, and what LIO has beside it.
//!
//! [`crate::translate`] makes it of the objects of the API, and makes objects of it. Commands change it, and nothing
//! else. Nothing here does I/O.

use std::collections::BTreeMap;
use std::fmt;

use lunette_api::objects::Document;

use crate::attributes::{self, Numbers, OF_OBJECTS, OF_TPGS};
use crate::failure::Failure;
use crate::limits::{MAX_LUN, MAX_MAPPED_LUN, MAX_NAME_BYTES};

/// The kind of a storage object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Plugin {
    /// A block device.
    Block,
    /// A file.
    Fileio,
    /// Memory.
    Ramdisk,
    /// Whatever else a disk of Lunette can be, such as a volume or an image in Ceph.
    User,
}

impl Plugin {
    pub(crate) const ALL: [Self; 4] = [Self::Block, Self::Fileio, Self::Ramdisk, Self::User];

    /// The name in `saveconfig.json` and in paths of storage objects.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Fileio => "fileio",
            Self::Ramdisk => "ramdisk",
            Self::User => "user",
        }
    }

    /// The name in the tree.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::User => "user:lunette",
            other => other.name(),
        }
    }

    /// The kind with this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name || kind.folder() == name)
    }
}

/// The name of a storage object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    pub(crate) plugin: Plugin,
    pub(crate) name: String,
}

/// `block/NAME`.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.plugin.name(), self.name)
    }
}

/// A storage object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StorageObject {
    /// The disk, as a LUN of Lunette names it.
    pub(crate) disk: String,
    /// The length in bytes, where it is known.
    pub(crate) size: Option<u64>,
    /// Whether the server makes the file, when the object gets a LUN.
    pub(crate) is_new_file: bool,
    /// Whether all of its space is taken at once.
    pub(crate) is_full: bool,
    pub(crate) read_only: bool,
    /// The serial number.
    pub(crate) wwn: String,
    pub(crate) attributes: Numbers,
    /// Whether it stays when it has no LUN: it was made by a command of LIO.
    pub(crate) is_kept: bool,
}

/// A secret of CHAP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Secret {
    /// The text; none when the file cannot be read.
    pub(crate) text: Option<String>,
    /// The file from which the server reads it.
    pub(crate) file: Option<String>,
}

impl Secret {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: (!text.is_empty()).then(|| text.into()), file: None }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.text.is_some() || self.file.is_some()
    }
}

/// Users of CHAP, of the initiator and of the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Auth {
    pub(crate) userid: String,
    pub(crate) password: Secret,
    pub(crate) mutual_userid: String,
    pub(crate) mutual_password: Secret,
}

impl Auth {
    /// Whether an initiator can prove itself.
    pub(crate) fn is_complete(&self) -> bool {
        !self.userid.is_empty() && self.password.is_there()
    }

    /// Whether the target can.
    pub(crate) fn is_mutual(&self) -> bool {
        !self.mutual_userid.is_empty() && self.mutual_password.is_there()
    }
}

/// A logical unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lun {
    pub(crate) object: ObjectName,
    /// All of its keys in the API; empty for a new one.
    pub(crate) document: Document,
}

/// A logical unit as an initiator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// The number in the target.
    pub(crate) lun: u16,
    pub(crate) write_protect: bool,
}

/// The rules for one initiator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) auth: Auth,
    /// The logical units by their numbers for the initiator; `None` for all under their own numbers.
    pub(crate) mapped: Option<BTreeMap<u16, Mapped>>,
    pub(crate) attributes: Numbers,
}

/// The initiators that may log in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// The attributes of the portal group.
    pub(crate) attributes: Numbers,
    pub(crate) auth: Auth,
    pub(crate) acls: BTreeMap<String, Acl>,
}

impl Access {
    pub(crate) fn is_set(&self, name: &str) -> bool {
        attributes::value(OF_TPGS, &self.attributes, name) != 0
    }
}

/// A target with its one portal group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) access: Access,
    /// The access when the target was read. Without a change it is not written again.
    pub(crate) access_as_read: Access,
    pub(crate) luns: BTreeMap<u16, Lun>,
    /// Parameters without a meaning for Lunette.
    pub(crate) parameters: BTreeMap<String, String>,
    /// All of its keys in the API, with parameters that have a meaning.
    pub(crate) document: Document,
}

impl Target {
    /// The logical units of an initiator.
    pub(crate) fn mapped(&self, acl: &Acl) -> BTreeMap<u16, Mapped> {
        let all = || self.luns.keys().map(|lun| (*lun, Mapped { lun: *lun, write_protect: false })).collect();
        acl.mapped.clone().unwrap_or_else(all)
    }
}

/// The whole tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<ObjectName, StorageObject>,
    pub(crate) targets: BTreeMap<String, Target>,
    /// The addresses of portals with their documents. Each leads to all targets.
    pub(crate) portals: BTreeMap<String, Document>,
    /// Preferences that are not as by default.
    pub(crate) preferences: BTreeMap<String, String>,
}

impl Model {
    pub(crate) fn target(&self, iqn: &str) -> Result<&Target, Failure> {
        self.targets.get(iqn).ok_or_else(|| no_target(iqn))
    }

    pub(crate) fn target_mut(&mut self, iqn: &str) -> Result<&mut Target, Failure> {
        self.targets.get_mut(iqn).ok_or_else(|| no_target(iqn))
    }

    /// Whether a preference is on. All that count here are on by default, but one.
    pub(crate) fn prefers(&self, name: &str) -> bool {
        self.preferences.get(name).map_or(name != "auto_cd_after_create", |value| value == "true")
    }

    /// Adds a storage object.
    pub(crate) fn add_object(&mut self, name: ObjectName, object: StorageObject) -> Result<(), Failure> {
        if name.name.contains('/') || name.name.len() > MAX_NAME_BYTES || name.name.is_empty() {
            return Err(Failure::new("A storage object's name cannot contain  /, newline or spaces/tabs"));
        }
        if let Some(known) = self.objects.get(&name) {
            let text = format!("Storage object {name} exists");
            let is_it = known.disk == object.disk && known.read_only == object.read_only;
            return Err(if is_it { Failure::done_already(text) } else { Failure::new(text) });
        }
        let is_memory = name.plugin == Plugin::Ramdisk;
        if self.objects.values().any(|known| !is_memory && known.disk == object.disk) {
            return Err(Failure::new(format!(
                "Cannot configure StorageObject because device {} is already in use",
                object.disk
            )));
        }
        self.objects.insert(name, object);
        Ok(())
    }

    /// Removes a storage object, with all logical units that lead to it.
    pub(crate) fn remove_object(&mut self, name: &ObjectName) -> Result<(), Failure> {
        if self.objects.remove(name).is_none() {
            return Err(Failure::done_already(format!("No storage object named {}.", name.name)));
        }
        for target in self.targets.values_mut() {
            let numbers: Vec<u16> =
                target.luns.iter().filter(|(_, lun)| lun.object == *name).map(|(number, _)| *number).collect();
            for number in numbers {
                target.remove_lun(number);
            }
        }
        Ok(())
    }

    /// Adds a logical unit that leads to a storage object, under the first free number or a certain one.
    pub(crate) fn add_lun(&mut self, iqn: &str, object: &ObjectName, number: Option<u16>) -> Result<u16, Failure> {
        if !self.objects.contains_key(object) {
            return Err(Failure::new("storage object or path not valid"));
        }
        let target = self.target_mut(iqn)?;
        if target.luns.values().any(|lun| lun.object == *object) {
            return Err(Failure::done_already(format!("lun for storage object {object} already exists")));
        }
        let free = |number: &u16| !target.luns.contains_key(number);
        let number = match number {
            None => (0..=MAX_LUN).find(free).ok_or_else(|| Failure::new(format!("All LUNs 0-{MAX_LUN} in use")))?,
            Some(number) if number > MAX_LUN => {
                return Err(Failure::new(format!("LUN must be 0 to {MAX_LUN}")));
            }
            Some(number) if free(&number) => number,
            Some(_) => return Err(Failure::new("This LUN already exists in configFS")),
        };
        target.luns.insert(number, Lun { object: object.clone(), document: Document::new() });
        Ok(number)
    }

    /// Removes a logical unit. Its storage object stays, as LIO has it.
    pub(crate) fn remove_lun(&mut self, iqn: &str, number: u16) -> Result<(), Failure> {
        let target = self.target_mut(iqn)?;
        let Some(lun) = target.luns.get(&number) else {
            return Err(Failure::done_already("Invalid LUN"));
        };
        let object = lun.object.clone();
        target.remove_lun(number);
        self.keep(&object);
        Ok(())
    }

    /// Removes a target. Its storage objects stay.
    pub(crate) fn remove_target(&mut self, iqn: &str) -> Result<(), Failure> {
        let target = self.targets.remove(iqn).ok_or_else(|| no_target(iqn))?;
        target.luns.values().for_each(|lun| self.keep(&lun.object));
        Ok(())
    }

    fn keep(&mut self, object: &ObjectName) {
        if let Some(object) = self.objects.get_mut(object) {
            object.is_kept = true;
            object.is_new_file = false;
        }
    }

    /// Adds an empty target into which no initiator is let.
    pub(crate) fn add_target(&mut self, iqn: &str) -> Result<(), Failure> {
        if self.targets.contains_key(iqn) {
            return Err(Failure::done_already("This Target already exists in configFS"));
        }
        self.targets.insert(iqn.into(), Target::default());
        Ok(())
    }

    /// Sets an attribute of a storage object.
    pub(crate) fn set_attribute(&mut self, name: &ObjectName, attribute: &str, value: i64) -> Result<(), Failure> {
        let has_lun = self.targets.values().flat_map(|target| target.luns.values()).any(|lun| lun.object == *name);
        let object = self.objects.get_mut(name).ok_or_else(|| no_object(&name.name))?;
        let before = attributes::value(OF_OBJECTS, &object.attributes, attribute);
        if attribute == "block_size" && has_lun && value != before {
            return Err(Failure::new(
                "Cannot set attribute block_size: [Errno 22] Invalid argument; the storage object has a LUN",
            ));
        }
        attributes::set(OF_OBJECTS, &mut object.attributes, attribute, value)?;
        object.is_kept = true;
        Ok(())
    }
}

impl Target {
    fn remove_lun(&mut self, number: u16) {
        self.luns.remove(&number);
        for acl in self.access.acls.values_mut() {
            if let Some(mapped) = &mut acl.mapped {
                mapped.retain(|_, mapped| mapped.lun != number);
            }
        }
    }

    /// Shows a logical unit to an initiator under a number.
    pub(crate) fn map(&mut self, initiator: &str, number: u16, mapped: Mapped) -> Result<(), Failure> {
        if number > MAX_MAPPED_LUN {
            return Err(Failure::new(format!("Mapped LUN must be 0 to {MAX_MAPPED_LUN}")));
        }
        if !self.luns.contains_key(&mapped.lun) {
            return Err(Failure::new(format!("LUN {} does not exist in this TPG", mapped.lun)));
        }
        let mut all = self.mapped(self.acl(initiator)?);
        if let Some(known) = all.get(&number) {
            let text = "This MappedLUN already exists in configFS";
            return Err(if *known == mapped { Failure::done_already(text) } else { Failure::new(text) });
        }
        all.insert(number, mapped);
        self.acl_mut(initiator)?.mapped = Some(all);
        Ok(())
    }

    /// Hides what an initiator sees under a number.
    pub(crate) fn unmap(&mut self, initiator: &str, number: u16) -> Result<(), Failure> {
        let mut all = self.mapped(self.acl(initiator)?);
        if all.remove(&number).is_none() {
            return Err(Failure::done_already(format!("No such MappedLUN in configfs: {number}")));
        }
        self.acl_mut(initiator)?.mapped = Some(all);
        Ok(())
    }

    /// Adds the rules of an initiator, which sees nothing yet.
    pub(crate) fn add_acl(&mut self, initiator: &str) -> Result<(), Failure> {
        if self.access.acls.contains_key(initiator) {
            return Err(Failure::done_already("This NodeACL already exists in configFS"));
        }
        let acl = Acl { mapped: Some(BTreeMap::new()), ..Acl::default() };
        self.access.acls.insert(initiator.into(), acl);
        Ok(())
    }

    pub(crate) fn remove_acl(&mut self, initiator: &str) -> Result<(), Failure> {
        self.access.acls.remove(initiator).map(drop).ok_or_else(|| no_acl(initiator))
    }

    pub(crate) fn acl(&self, initiator: &str) -> Result<&Acl, Failure> {
        self.access.acls.get(initiator).ok_or_else(|| no_acl(initiator))
    }

    pub(crate) fn acl_mut(&mut self, initiator: &str) -> Result<&mut Acl, Failure> {
        self.access.acls.get_mut(initiator).ok_or_else(|| no_acl(initiator))
    }
}

fn no_target(iqn: &str) -> Failure {
    Failure::done_already(format!("No such Target in configfs: {CONFIGFS}/{iqn}"))
}

fn no_acl(initiator: &str) -> Failure {
    Failure::done_already(format!("No such NodeACL in configfs: {initiator}"))
}

pub(crate) fn no_object(name: &str) -> Failure {
    Failure::done_already(format!("No storage object named {name}."))
}

/// The folder by which rtslib names what is not there.
pub(crate) const CONFIGFS: &str = "/sys/kernel/config/target/iscsi";

/// A name of a target or of an initiator as rtslib has it.
pub(crate) fn wwn(name: &str) -> Result<String, Failure> {
    let wrong = || Failure::new("WWN not valid as: iqn, naa, eui");
    let name = name.trim().to_lowercase();
    if let Some(rest) = name.strip_prefix("iqn.") {
        let is_plain = rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'_' && byte != b'/');
        return if is_plain && has_date(rest) { Ok(name) } else { Err(wrong()) };
    }
    let plain = name.strip_prefix("0x").unwrap_or(&name).replace(['-', ':'], "");
    let (kind, digits) = plain.split_once('.').unwrap_or(("naa", &plain));
    let is_known = kind == "eui" || kind == "naa" && digits.starts_with(['1', '2', '5']);
    let is_number = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_known && is_number { Ok(format!("{kind}.{digits}")) } else { Err(wrong()) }
}

/// Whether a text begins with a year, a month and a domain of two parts, as `2003-01.org.example`.
fn has_date(text: &str) -> bool {
    let Some((date, domain)) = text.split_once('.') else { return false };
    let is_date = date.len() == 7
        && date.bytes().enumerate().all(|(at, byte)| match at {
            4 => byte == b'-',
            5 => byte == b'0' || byte == b'1',
            _ => byte.is_ascii_digit(),
        });
    is_date && domain.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_rtslib_takes() {
        for (name, expected) in [
            ("iqn.2003-01.org.example:Disk", Some("iqn.2003-01.org.example:disk")),
            ("iqn.2003-01.org.example", Some("iqn.2003-01.org.example")),
            ("eui.02004567a425678d", Some("eui.02004567a425678d")),
            ("naa.5001405-0123456789", None),
            ("5001:4050:1234:5678", Some("naa.5001405012345678")),
            ("iqn.2003-01.org.example:a_b", None),
            ("iqn.example:a", None),
            ("iqn.2003-01.org/x.y", None),
            ("iqn.2003-01.org:x", None),
            ("iqn.2003-21.org.example", None),
            ("0x5001405012345678", Some("naa.5001405012345678")),
            ("", None),
        ] {
            assert_eq!(wwn(name).ok().as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_storage_object_takes_its_logical_units_along_and_outlives_them() {
        let name = ObjectName { plugin: Plugin::Block, name: "d".into() };
        let mut model = Model::default();
        model.add_object(name.clone(), StorageObject { disk: "/dev/d".into(), ..StorageObject::default() }).unwrap();
        model.add_target("iqn.a").unwrap();
        model.targets.get_mut("iqn.a").unwrap().add_acl("iqn.h").unwrap();
        assert_eq!(model.add_lun("iqn.a", &name, None), Ok(0));
        assert!(model.add_lun("iqn.a", &name, None).unwrap_err().is_done_already());
        model.targets.get_mut("iqn.a").unwrap().map("iqn.h", 3, Mapped { lun: 0, write_protect: true }).unwrap();
        model.remove_lun("iqn.a", 0).unwrap();
        assert!(model.objects[&name].is_kept);
        assert_eq!(model.targets["iqn.a"].access.acls["iqn.h"].mapped, Some(BTreeMap::new()));
        assert_eq!(model.add_lun("iqn.a", &name, Some(7)), Ok(7));
        model.remove_object(&name).unwrap();
        assert!(model.targets["iqn.a"].luns.is_empty());
    }
}
