//! The content of a unit.

use std::sync::Arc;

use lunette_buffer::Buffer;
use lunette_quanta::packed::Layout;
use lunette_quanta::{HEADER_LEN, Header, HeaderError, KeyRing, Placement, QuantumSize, Seed};
use lunette_store::{Store, StoreError};

use crate::VolumeError;
use crate::unit::{Unit, doing};

/// Bytes in which all copies of the header are, in every placement, unless blocks are longer.
const SEARCHED_BYTES: u64 = 8192;

/// A volume on a unit, as its headers describe it.
#[derive(Debug, Clone)]
pub struct Found {
    header: Header,
    copies: [Result<Header, HeaderError>; 2],
    bytes: [[u8; HEADER_LEN]; 2],
}

/// Reads the copies of a volume's header. No key is needed, so what they say is not verified:
/// [`Volume::open`](crate::Volume::open) does that.
///
/// # Errors
///
/// [`VolumeError::NoVolume`] when the unit holds none, [`VolumeError::Header`] when no copy is whole,
/// [`VolumeError::Unit`].
pub fn find(inner: &Arc<dyn Store>) -> Result<Found, VolumeError> {
    let geometry = inner.geometry();
    let granularity = u64::from(geometry.granularity_bytes);
    let len = SEARCHED_BYTES.next_multiple_of(granularity).min(geometry.len_bytes / granularity * granularity);
    let read = Unit::new(inner).read(0, len as usize).map_err(doing("reading the headers of the volume"))?;
    find_in(&read)
}

fn find_in(read: &Buffer) -> Result<Found, VolumeError> {
    let first = copy_at(read, 0);
    // The first copy says where the second one is; without it every place is tried.
    let places = QuantumSize::ALL.map(QuantumSize::edu_len).into_iter().chain([Layout::header_offset(1) as usize]);
    let second = places.map(|at| copy_at(read, at)).find(|(found, _)| *found != Err(HeaderError::NoHeader));
    let second = second.unwrap_or((Err(HeaderError::NoHeader), [0; HEADER_LEN]));
    let copies = [first.0, second.0];
    let bytes = [first.1, second.1];
    let newest = copies.iter().filter_map(|copy| copy.ok()).max_by_key(|header| header.generation);
    match newest {
        Some(header) => Ok(Found { header, copies, bytes }),
        None => Err(copies
            .into_iter()
            .filter_map(Result::err)
            .find(|error| *error != HeaderError::NoHeader)
            .map_or(VolumeError::NoVolume, VolumeError::Header)),
    }
}

/// The copy of the header at an offset. One that belongs elsewhere is none.
fn copy_at(read: &[u8], at: usize) -> (Result<Header, HeaderError>, [u8; HEADER_LEN]) {
    let Some(bytes) = read.get(at..).and_then(|rest| rest.first_chunk()) else {
        return (Err(HeaderError::NoHeader), [0; HEADER_LEN]);
    };
    let header = Header::decode(bytes);
    let in_place = header.as_ref().is_ok_and(|header| header_offset(header) == at as u64);
    (if in_place || header.is_err() { header } else { Err(HeaderError::NoHeader) }, *bytes)
}

/// Where a header is on its unit, in bytes.
fn header_offset(header: &Header) -> u64 {
    match header.placement {
        Placement::Native => header.copy() * header.size.edu_len() as u64,
        Placement::Packed { .. } => Layout::header_offset(header.copy()),
    }
}

/// Seals a header, writes it to the copy that its generation names, and flushes it.
pub(crate) fn write_header(unit: &Unit, header: &Header, keys: &KeyRing) -> Result<(), VolumeError> {
    let bytes = header.seal(keys, &random_seed()?)?;
    let block_len = match header.placement {
        Placement::Native => header.size.edu_len(),
        Placement::Packed { block_len, .. } => block_len as usize,
    };
    let write = || -> Result<(), StoreError> {
        unit.write_padded(header_offset(header), &bytes, block_len)?;
        unit.flush()
    };
    write().map_err(doing("writing the header of the volume"))
}

/// A seed from the system's generator.
pub(crate) fn random_seed() -> Result<Seed, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Seed::new(bytes))
}

impl Found {
    /// The header of the highest generation. Without keys it is believed.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The header of the highest generation as it is sealed on the unit. A seal is made with a random nonce, so after
    /// another format the bytes are others, whatever the volume's number.
    pub fn sealed(&self) -> &[u8; HEADER_LEN] {
        &self.bytes[self.header.copy() as usize]
    }

    /// The content of each copy of the header.
    pub fn copies(&self) -> &[Result<Header, HeaderError>; 2] {
        &self.copies
    }

    /// The header that counts: of the copies that an owner of the keys made, the one with the highest generation.
    ///
    /// # Errors
    ///
    /// [`VolumeError::OtherCipher`], and [`VolumeError::Header`] when no copy is authentic, or the newest one is sealed
    /// with a key that `keys` does not have.
    pub fn authenticate(&self, keys: &KeyRing) -> Result<Header, VolumeError> {
        let cipher = self.header.cipher;
        if keys.cipher() != cipher {
            return Err(VolumeError::OtherCipher { keys: keys.cipher(), volume: cipher });
        }
        let generation = |copy: &usize| self.copies[*copy].as_ref().map_or(0, |header| header.generation);
        let mut whole: Vec<usize> = (0..2).filter(|copy| self.copies[*copy].is_ok()).collect();
        whole.sort_by_key(|copy| std::cmp::Reverse(generation(copy)));
        let mut first = None;
        for copy in whole {
            match Header::open(&self.bytes[copy], keys) {
                Ok(header) => return Ok(header),
                // The other copy is older: to go on with it would hide that the keys were changed.
                Err(error @ HeaderError::UnknownEpoch(_)) => return Err(error.into()),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(HeaderError::NoHeader).into())
    }

    /// Whether each copy is whole, and with keys authentic.
    pub(crate) fn whole_copies(&self, keys: Option<&KeyRing>) -> [bool; 2] {
        [0, 1].map(|copy: usize| {
            let authentic = keys.is_none_or(|keys| Header::open(&self.bytes[copy], keys).is_ok());
            self.copies[copy].is_ok() && authentic
        })
    }
}
