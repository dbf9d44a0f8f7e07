//! The facts that a disk tells about itself.

use lunette_scsi::answers::{self, BlockLimits, Capacity, Inquiry, Provisioning};
use lunette_scsi::mode::PageCode as ModePageCode;
use lunette_scsi::vpd::PageCode;
use lunette_scsi::{Lun, requests};

use super::query::{Query, ask};
use crate::limits::{MAX_BLOCK_BYTES, MAX_DISK_BYTES};
use crate::{Error, Session};

/// Identity, capacity and features of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The standard INQUIRY data.
    pub inquiry: Inquiry,
    /// The unit serial number, if the disk has one.
    pub serial_number: Option<String>,
    /// The world wide name of the logical unit, if it has one: `naa.…`, `eui.…` or `t10.…`.
    pub name: Option<String>,
    /// The number of blocks and their length.
    pub capacity: Capacity,
    /// Whether the disk refuses writes (WP).
    pub read_only: bool,
    /// Whether a power cut may lose acknowledged writes until they are flushed (WCE); assumed if the disk does not say.
    pub volatile_cache: bool,
    /// The limits of single commands (Block Limits VPD page).
    pub limits: BlockLimits,
    /// How the disk allocates space (Logical Block Provisioning VPD page).
    pub provisioning: Provisioning,
}

/// The longest VPD page that is asked for.
const PAGE_LEN: u16 = 1024;

/// The length of the answer to READ CAPACITY (16).
const CAPACITY_LEN: u32 = 32;

/// The longest mode page that is asked for.
const MODE_LEN: u8 = 255;

impl Facts {
    /// The length of a logical block, in bytes.
    pub fn block_len(&self) -> u32 {
        self.capacity.block_len
    }

    /// The length of the disk, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.capacity.len_bytes()
    }

    /// The length of a physical block, in bytes.
    pub fn physical_block_len(&self) -> u64 {
        // The exponent has four bits.
        u64::from(self.block_len()) << (self.capacity.physical_exponent & 0x0f)
    }

    /// Whether the disk supports UNMAP, and frees space by it.
    pub fn can_unmap(&self) -> bool {
        self.capacity.provisioned && self.provisioning.unmap && self.limits.max_unmap_blocks > 0
    }

    /// Asks in two rounds, so that a disk far away is open soon: all that the answer to one command does not decide
    /// about another is asked for at one time.
    pub(super) async fn ask(session: &Session, lun: Lun) -> Result<Self, Error> {
        let send = |cdb, len: usize| Query::send(session, lun, cdb, len);
        let page = |code| send(requests::inquiry(Some(code), PAGE_LEN), PAGE_LEN.into());

        let inquiry = send(requests::inquiry(None, Inquiry::LEN), Inquiry::LEN.into())?;
        let ready = send(requests::test_unit_ready(), 0)?;
        let supported = page(PageCode(0))?;
        let inquiry = standard_inquiry(&inquiry.answer().await?, lun)?;
        ready.answer().await?;
        let supported = optional(supported.answer().await)?;
        let supported = supported.as_deref().and_then(answers::supported_pages).unwrap_or_default();

        let capacity_16 = send(requests::read_capacity_16(CAPACITY_LEN), CAPACITY_LEN as usize)?;
        let wanted = [PageCode(0x80), PageCode(0x83), PageCode::BLOCK_LIMITS, PageCode::LOGICAL_BLOCK_PROVISIONING];
        let mut asked = Vec::new();
        for code in wanted {
            asked.push(if supported.contains(&code.0) { Some(page(code)?) } else { None });
        }
        let caching_page = send(requests::mode_sense_6(ModePageCode::CACHING, MODE_LEN), MODE_LEN.into())?;
        let capacity = capacity(session, lun, capacity_16.answer().await).await?;
        let mut pages = [None, None, None, None];
        for (place, asked) in pages.iter_mut().zip(asked) {
            if let Some(asked) = asked {
                *place = optional(asked.answer().await)?;
            }
        }
        let (read_only, volatile_cache) = caching(&optional(caching_page.answer().await)?.unwrap_or_default());
        let [serial, identification, limits, provisioning] = pages;
        Ok(Self {
            inquiry,
            serial_number: serial.as_deref().and_then(answers::serial_number),
            name: identification.as_deref().and_then(answers::unit_name),
            capacity,
            read_only,
            volatile_cache,
            limits: limits.as_deref().and_then(BlockLimits::parse).unwrap_or_default(),
            provisioning: provisioning.as_deref().and_then(Provisioning::parse).unwrap_or_default(),
        })
    }
}

fn standard_inquiry(data: &[u8], lun: Lun) -> Result<Inquiry, Error> {
    const DISK: u8 = 0;
    let inquiry =
        Inquiry::parse(data).ok_or(Error::BadAnswer { command: "INQUIRY", what: "shorter than 36 bytes".into() })?;
    let what = match (inquiry.qualifier, inquiry.device_type) {
        (0, DISK) => return Ok(inquiry),
        (0, kind) => format!("is of device type {kind:#04x}, not a disk"),
        _ => "there is no logical unit of this number".into(),
    };
    Err(Error::NotADisk { lun: lun.to_string(), what })
}

/// The capacity by the answer to READ CAPACITY (16), or what an older command says.
async fn capacity(session: &Session, lun: Lun, answer: Result<Vec<u8>, Error>) -> Result<Capacity, Error> {
    let found = match answer {
        Ok(data) => Capacity::parse_16(&data),
        // Old disks do not know it.
        Err(Error::Sense { .. }) => Capacity::parse_10(&ask(session, lun, requests::read_capacity_10(), 8).await?),
        Err(error) => return Err(error),
    };
    let bad = |what: String| Error::BadAnswer { command: "READ CAPACITY", what: what.into() };
    within_limits(found.map_err(|error| bad(error.to_string()))?).map_err(bad)
}

/// Whether the client can work with a disk of this size. Everything that computes with blocks and offsets counts on it.
fn within_limits(capacity: Capacity) -> Result<Capacity, String> {
    let Capacity { block_len, blocks, .. } = capacity;
    if block_len > MAX_BLOCK_BYTES {
        return Err(format!("a logical block length of {block_len} bytes; at most {MAX_BLOCK_BYTES} are supported"));
    }
    if capacity.len_bytes() > MAX_DISK_BYTES {
        let last = blocks - 1;
        return Err(format!(
            "last logical block {last} of {block_len} bytes; a disk of at most {MAX_DISK_BYTES} bytes is supported"
        ));
    }
    Ok(capacity)
}

/// The answer to what a disk need not know. One that does not answer at all is an error.
fn optional(answer: Result<Vec<u8>, Error>) -> Result<Option<Vec<u8>>, Error> {
    match answer {
        Ok(data) => Ok(Some(data)),
        Err(error) if error.is_an_answer() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Write protection and the volatile cache, by the answer to MODE SENSE.
fn caching(data: &[u8]) -> (bool, bool) {
    match answers::mode_page_6(data, ModePageCode::CACHING) {
        Some(page) if page.parameters.is_empty() => (page.write_protected, true),
        Some(page) => (page.write_protected, answers::write_cache_enabled(page.parameters)),
        None => (false, true),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lunette_scsi::{AdditionalSense, SenseData, Status};

    use super::*;

    #[test]
    fn a_page_that_is_refused_is_missing_and_a_disk_that_does_not_answer_is_none() {
        assert_eq!(optional(Ok(vec![1])).unwrap(), Some(vec![1]));
        let (command, timeout) = ("INQUIRY", Duration::from_secs(30));
        let sense = SenseData::illegal_request(AdditionalSense::INVALID_FIELD_IN_CDB);
        for refusal in [Error::Sense { command, sense }, Error::Status { command, status: Status::BUSY }] {
            assert_eq!(optional(Err(refusal)).unwrap(), None);
        }
        for silence in [Error::TimedOut { command, timeout }, Error::InDoubt { command }, Error::Closed] {
            assert!(optional(Err(silence)).is_err());
        }
    }

    #[test]
    fn a_disk_that_the_client_cannot_compute_with_is_refused_by_the_field_that_is_wrong() {
        let capacity = |last_lba: u64, block_len: u32| {
            Capacity::parse_16(&[&last_lba.to_be_bytes()[..], &block_len.to_be_bytes()].concat()).unwrap()
        };
        for (last_lba, block_len, expected) in [
            (0, 1, None),
            (9, 513, None),
            (9, MAX_BLOCK_BYTES, None),
            (MAX_DISK_BYTES - 1, 1, None),
            ((MAX_DISK_BYTES / 512) - 1, 512, None),
            (9, MAX_BLOCK_BYTES + 1, Some("a logical block length of 1048577 bytes")),
            (9, 1 << 25, Some("a logical block length of 33554432 bytes")),
            (9, u32::MAX, Some("a logical block length of 4294967295 bytes")),
            (MAX_DISK_BYTES, 1, Some("last logical block 9223372036854775807 of 1 bytes")),
            (u64::MAX - 1, 1, Some("last logical block 18446744073709551614 of 1 bytes")),
        ] {
            let result = within_limits(capacity(last_lba, block_len));
            match expected {
                None => assert!(result.is_ok(), "{last_lba} {block_len}: {result:?}"),
                Some(text) => assert!(result.clone().unwrap_err().starts_with(text), "{result:?}"),
            }
        }
    }
}
