//! What a unit holds.

use std::sync::Arc;

use lunette_quanta::{HEADER_LEN, Header, HeaderError, KeyRing, Placement};
use lunette_store::Store;

use crate::VolumeError;

/// A volume on a unit, as its headers describe it.
#[derive(Debug, Clone)]
pub struct Found {
    header: Header,
    copies: [Result<Header, HeaderError>; 2],
    bytes: [[u8; HEADER_LEN]; 2],
}

/// Reads the copies of a volume's header. No key is needed, so what they say is not verified: [`Volume::open`](crate::Volume::open) does that.
///
/// # Errors
///
/// [`VolumeError::NoVolume`] when the unit holds none, [`VolumeError::Header`] when no copy is whole, [`VolumeError::Unit`].
pub fn find(inner: &Arc<dyn Store>) -> Result<Found, VolumeError> {
    let _ = inner;
    todo!()
}

impl Found {
    /// The header of the highest generation. Without keys it is believed.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the volume lies on its unit.
    pub fn placement(&self) -> Placement {
        self.header.placement
    }

    /// What each copy of the header holds.
    pub fn copies(&self) -> &[Result<Header, HeaderError>; 2] {
        &self.copies
    }

    /// The header that counts: of the copies that an owner of the keys made, the one with the highest generation.
    ///
    /// # Errors
    ///
    /// [`VolumeError::OtherCipher`], and [`VolumeError::Header`] when no copy is authentic.
    pub fn authenticate(&self, keys: &KeyRing) -> Result<Header, VolumeError> {
        let _ = (keys, &self.bytes);
        todo!()
    }
}
