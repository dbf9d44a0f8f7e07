//! Logical units, as a target has them.

use std::sync::Arc;

use lunette_device::{
    DEFAULT_PRODUCT, DEFAULT_REVISION, DEFAULT_VENDOR, LogicalUnitConfig, LogicalUnitError, QuantaOptions,
};
use lunette_initiator::ChapIdentity;
use lunette_quanta::QuantumSize;
use lunette_scsi::MAX_FLAT_LUN;
use lunette_session::Authentication;
use lunette_store::{OpenOptions, Store, check_asked_len};
use serde::Deserialize;
use utoipa::ToSchema;

use super::pools;
use crate::disks::memory::no_bytes;
use crate::disks::{DiskName, encrypted};
use crate::secret::SecretFiles;
use crate::size::Size;
use crate::text;

/// The time at which blocks get their space (SBC-4 4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Provisioning {
    /// On the first write; initiators may free it.
    #[default]
    Thin,
    /// All at once, for good.
    Full,
}

/// A logical unit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Lun)]
pub(crate) struct LunEntry {
    #[schema(maximum = 16383)]
    pub(crate) number: u16,
    #[schema(value_type = String, example = "/srv/db.img")]
    pub(crate) disk: DiskName,
    #[schema(value_type = Option<String>, example = "100G")]
    pub(crate) create: Option<Size>,
    pub(crate) block_size: Option<u32>,
    /// Instead of `block_size`: the bytes of a quantum. A block is a quantum with its slot.
    pub(crate) quantum: Option<u32>,
    #[serde(default)]
    pub(crate) check_quanta: bool,
    #[schema(value_type = Option<String>, example = "1M")]
    pub(crate) scrub_rate: Option<Size>,
    #[serde(default)]
    pub(crate) stored_digests: bool,
    #[serde(default)]
    pub(crate) read_only: bool,
    #[serde(default)]
    pub(crate) removable: bool,
    #[schema(value_type = Option<String>, example = "1G")]
    pub(crate) thin_threshold: Option<Size>,
    #[schema(value_type = Option<String>, example = "100M")]
    pub(crate) sanitize_rate: Option<Size>,
    #[serde(default)]
    pub(crate) long_cdbs: bool,
    #[serde(default)]
    pub(crate) zero_copy: bool,
    #[serde(default)]
    pub(crate) provisioning: Provisioning,
    pub(crate) serial: Option<String>,
    #[schema(example = "LUNETTE", max_length = 8)]
    pub(crate) vendor: Option<String>,
    #[schema(example = "DISK", max_length = 16)]
    pub(crate) product: Option<String>,
    #[schema(max_length = 4)]
    pub(crate) revision: Option<String>,
    /// Whether it stands in no file: an initiator of a template was given it.
    #[serde(skip)]
    pub(crate) is_given: bool,
}

/// The values of `block_size`.
const SECTOR_SIZES: [u32; 2] = [512, 4096];

/// Bytes of a logical block when nothing else is asked for.
const DEFAULT_BLOCK_SIZE: u32 = 512;

/// The size of a quantum of this many bytes.
pub(crate) fn quantum(bytes: u32) -> Result<QuantumSize, String> {
    let sizes = || QuantumSize::ALL.map(QuantumSize::bytes);
    QuantumSize::of_bytes(bytes.into()).ok_or_else(|| format!("quantum = {bytes}: write one of {:?}", sizes()))
}

impl LunEntry {
    /// Bytes of a logical block.
    pub(crate) fn block_size(&self) -> u32 {
        let quantum = self.quantum.and_then(|bytes| QuantumSize::of_bytes(bytes.into()));
        quantum.and_then(|size| u32::try_from(size.edu_len()).ok()).or(self.block_size).unwrap_or(DEFAULT_BLOCK_SIZE)
    }

    /// The secrets with which the server logs in to the target of the disk, as a rule: it is the initiator there.
    /// `None` for another disk, and where a secret is missing.
    pub(crate) fn login(&self, secrets: &SecretFiles) -> Option<Authentication> {
        let url = self.disk.place.url()?;
        let identity = url.chap_by(|name| std::env::var(name).ok(), |file| secrets.secret(file));
        let ChapIdentity { initiator, target, algorithms } = identity.ok()??;
        Some(Authentication::Chap { initiators: vec![initiator], target, algorithms })
    }

    /// The way in which its disk is opened.
    pub(crate) fn store_options(&self) -> OpenOptions {
        OpenOptions {
            create: self.create.map(|Size(bytes)| bytes),
            read_only: self.read_only,
            preallocate: self.provisioning == Provisioning::Full,
            // A quantum with its slot is no whole number of sectors.
            any_length: !self.block_size().is_multiple_of(512),
            // Another disk of the same change may be refused.
            tentative: true,
        }
    }

    /// The free space below which initiators are warned: that of the disk, or that of its pool.
    pub(crate) fn soft_threshold(&self) -> Option<Size> {
        self.thin_threshold.or_else(|| pools::volume(self)?.low_space())
    }

    /// The serial number at `target`: initiators recognize the disk by it.
    pub(crate) fn serial_at(&self, target: &str) -> String {
        self.serial.clone().unwrap_or_else(|| derived_serial(target, self.number))
    }

    /// The configuration of its unit at `target`, over this store.
    pub(crate) fn unit_config(&self, target: &str, store: Arc<dyn Store>) -> LogicalUnitConfig {
        let named = |name: &Option<String>, default: &str| name.clone().unwrap_or_else(|| default.into());
        LogicalUnitConfig {
            vendor: named(&self.vendor, DEFAULT_VENDOR),
            product: named(&self.product, DEFAULT_PRODUCT),
            revision: named(&self.revision, DEFAULT_REVISION),
            block_size: self.block_size(),
            quanta: self.quanta_options(),
            read_only: self.read_only,
            removable: self.removable,
            soft_threshold_bytes: self.soft_threshold().map(|Size(bytes)| bytes),
            sanitize_rate: self.sanitize_rate.map(|Size(bytes)| bytes),
            long_cdbs: self.long_cdbs,
            zero_copy: self.zero_copy,
            ..LogicalUnitConfig::new(store, self.serial_at(target))
        }
    }

    /// All that is wrong with it at `target`, whatever this machine has: keys, each with the reason.
    pub(crate) fn mistakes(&self, target: &str) -> Vec<(&'static str, String)> {
        let own = [self.wrong_number(), self.wrong_place(), self.wrong_block(), self.wrong_quanta(), self.wrong_len()];
        let of_unit = self.unit_config(target, no_bytes()).wrong_settings();
        let of_unit = of_unit.into_iter().filter_map(|error| Some((key_of(&error)?, error.to_string())));
        own.into_iter().flatten().chain(of_unit).collect()
    }

    fn wrong_number(&self) -> Option<(&'static str, String)> {
        (self.number > MAX_FLAT_LUN).then(|| ("number", format!("LUNs end at {MAX_FLAT_LUN}")))
    }

    /// A key that the disk does not allow, wherever it is.
    fn wrong_place(&self) -> Option<(&'static str, String)> {
        let creates = self.create.is_some();
        let of_encrypted = if creates && self.disk.keys.is_some() { Some(encrypted::REFUSES_CREATE) } else { None };
        let of_place = || self.disk.place.refusal(creates, self.provisioning == Provisioning::Full);
        let why = of_encrypted.or_else(of_place).map(str::to_owned);
        why.or_else(|| pools::wrong_volume(self)).map(|why| ("disk", why))
    }

    fn wrong_block(&self) -> Option<(&'static str, String)> {
        let why = match (self.block_size, self.quantum) {
            (Some(_), Some(_)) => "quantum decides the length of a block; leave out block_size".into(),
            (Some(bytes), None) if !SECTOR_SIZES.contains(&bytes) => {
                format!("block_size = {bytes}: write one of {SECTOR_SIZES:?}")
            }
            _ => return None,
        };
        Some(("block_size", why))
    }

    fn wrong_quanta(&self) -> Option<(&'static str, String)> {
        let options = [
            ("check_quanta", self.check_quanta),
            ("scrub_rate", self.scrub_rate.is_some()),
            ("stored_digests", self.stored_digests),
        ];
        match (self.quantum, options.iter().find(|(_, on)| *on)) {
            (Some(bytes), _) => quantum(bytes).err().map(|why| ("quantum", why)),
            (None, Some((key, _))) => {
                Some((*key, format!("{key} is for disks of quanta; write quantum, too, or leave it out")))
            }
            (None, None) => None,
        }
    }

    /// A length that is not one of whole blocks. A quantum with its slot is no part of a length that people write, so
    /// disks of quanta have the whole ones of any length.
    fn wrong_len(&self) -> Option<(&'static str, String)> {
        let named = self.disk.place.named_len().map(|size| ("disk", size));
        let (key, Size(bytes)) = named.or(self.create.map(|size| ("create", size)))?;
        let block_size = self.block_size();
        let is_checked = block_size.is_multiple_of(DEFAULT_BLOCK_SIZE);
        let error = if is_checked { check_asked_len(bytes, block_size).err() } else { None };
        error.map(|error| (key, error.to_string()))
    }

    /// The target's options for quanta.
    pub(crate) fn quanta_options(&self) -> QuantaOptions {
        QuantaOptions {
            check_writes: self.check_quanta,
            scrub_rate: self.scrub_rate.map(|Size(bytes)| bytes),
            stored_digests: self.stored_digests,
        }
    }
}

/// The key of a setting of the unit that does not fit. The length of a block follows from keys that are checked before,
/// and what a unit finds in its store is no mistake of a key.
fn key_of(error: &LogicalUnitError) -> Option<&'static str> {
    match error {
        LogicalUnitError::SanitizeRate(_) => Some("sanitize_rate"),
        LogicalUnitError::ScrubRate(_) => Some("scrub_rate"),
        LogicalUnitError::Text { field, .. } => Some(field),
        LogicalUnitError::BlockSize(_)
        | LogicalUnitError::Quanta(_)
        | LogicalUnitError::Granularity { .. }
        | LogicalUnitError::Empty { .. }
        | LogicalUnitError::Threshold
        | LogicalUnitError::State(_) => None,
    }
}

/// A serial number that is the same after a restart, and different for each disk.
fn derived_serial(target: &str, lun: u16) -> String {
    text::digest16(&format!("{}/{lun}", target.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_stable_and_differ() {
        assert_eq!(derived_serial("iqn.A", 0), derived_serial("iqn.a", 0));
        assert_eq!(derived_serial("iqn.a", 0).len(), 16);
        assert_ne!(derived_serial("iqn.a", 0), derived_serial("iqn.a", 1));
        assert_ne!(derived_serial("iqn.a", 0), derived_serial("iqn.b", 0));
    }

    /// All mistakes of a unit with these keys, which stand in one line.
    fn mistakes(keys: &str) -> Vec<(&'static str, String)> {
        let entry: LunEntry = toml::from_str(&format!("number = 0\n{keys}")).unwrap();
        entry.mistakes("iqn.a")
    }

    #[test]
    fn each_setting_that_its_unit_would_refuse_is_a_mistake_of_its_key() {
        let long = format!("serial = \"{}\"", "s".repeat(201));
        for (keys, key, part) in [
            ("vendor = \"muchtoolongvendor\"", "vendor", "1 to 8 bytes"),
            ("vendor = \"\"", "vendor", "printable ASCII"),
            ("product = \"ünïcode\"", "product", "printable ASCII"),
            ("revision = \"12345\"", "revision", "1 to 4 bytes"),
            ("serial = \"\"", "serial", "printable ASCII"),
            (&*long, "serial", "1 to 200 bytes"),
            ("sanitize_rate = \"1K\"", "sanitize_rate", "too slow"),
            ("quantum = 512\nscrub_rate = \"1K\"", "scrub_rate", "too slow"),
        ] {
            let found = mistakes(&format!("disk = \"/d\"\n{keys}"));
            assert!(matches!(&*found, [(of, why)] if *of == key && why.contains(part)), "{keys}: {found:?}");
        }
        let all = mistakes("disk = \"mem:1000\"\nvendor = \"\"\nblock_size = 5\nsanitize_rate = \"1\"");
        let keys: Vec<_> = all.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["block_size", "sanitize_rate", "vendor"], "{all:?}");
    }
}
