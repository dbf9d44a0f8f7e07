//! Logical units, as a target has them.

use lunette_device::QuantaOptions;
use lunette_quanta::QuantumSize;
use lunette_scsi::MAX_FLAT_LUN;
use lunette_store::{LengthError, OpenOptions, check_asked_len};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::disks::{DiskName, encrypted};
use crate::size::Size;

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

    /// Refuses keys that the disk does not allow, wherever it is.
    fn check_place(&self) -> Result<(), String> {
        let creates = self.create.is_some();
        let of_volume = if creates && self.disk.keys.is_some() { Some(encrypted::REFUSES_CREATE) } else { None };
        let of_place = || self.disk.place.refusal(creates, self.provisioning == Provisioning::Full);
        of_volume.or_else(of_place).map_or(Ok(()), |why| Err(why.into()))
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_settings()?;
        self.check_lengths().map_err(|error| error.to_string())
    }

    /// Checks the lengths that it asks for. A quantum with its slot is no part of a length that people write, so disks
    /// of quanta have the whole ones of any length.
    fn check_lengths(&self) -> Result<(), LengthError> {
        let asked = self.disk.place.named_len().or(self.create);
        let block_size = self.block_size();
        match asked.filter(|_| block_size.is_multiple_of(DEFAULT_BLOCK_SIZE)) {
            Some(Size(bytes)) => check_asked_len(bytes, block_size),
            None => Ok(()),
        }
    }

    fn check_settings(&self) -> Result<(), String> {
        if self.number > MAX_FLAT_LUN {
            return Err(format!("LUNs end at {MAX_FLAT_LUN}"));
        }
        self.check_place()?;
        if self.block_size.is_some() && self.quantum.is_some() {
            return Err("quantum decides the length of a block; leave out block_size".into());
        }
        if let Some(bytes) = self.block_size.filter(|bytes| !SECTOR_SIZES.contains(bytes)) {
            return Err(format!("block_size = {bytes}: write one of {SECTOR_SIZES:?}"));
        }
        let options = [
            ("check_quanta", self.check_quanta),
            ("scrub_rate", self.scrub_rate.is_some()),
            ("stored_digests", self.stored_digests),
        ];
        match (self.quantum, options.iter().find(|(_, on)| *on)) {
            (Some(bytes), _) => quantum(bytes).map(drop),
            (None, Some((key, _))) => Err(format!("{key} is for disks of quanta; write quantum, too, or leave it out")),
            (None, None) => Ok(()),
        }
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
