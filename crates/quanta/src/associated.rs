//! The associated data of a quantum: what its tag covers beside its bytes.

use std::fmt;

use crate::cipher::Cipher;
use crate::size::QuantumSize;

/// Bytes of the associated data of a quantum.
pub(crate) const LEN: usize = 48;

/// Opens the associated data: what is sealed is a quantum, in the first version of the format. A header opens
/// differently.
const MAGIC: [u8; 8] = *b"LUNEDU01";

/// The name of a volume: 16 random bytes from its creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VolumeId(pub [u8; 16]);

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeId({self})")
    }
}

/// The associated data of the quanta of one volume, with the fields of the present one.
pub(crate) struct Associated([u8; LEN]);

impl Associated {
    pub(crate) fn new(volume: VolumeId, size: QuantumSize, cipher: Cipher) -> Self {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&volume.0);
        bytes[44..46].copy_from_slice(&(size.bytes() as u16).to_le_bytes());
        bytes[46] = cipher.row().id;
        Self(bytes)
    }

    pub(crate) fn of(&mut self, position: u64, version: u64, epoch: u32) -> &[u8; LEN] {
        self.0[24..32].copy_from_slice(&position.to_le_bytes());
        self.0[32..40].copy_from_slice(&version.to_le_bytes());
        self.0[40..44].copy_from_slice(&epoch.to_le_bytes());
        &self.0
    }
}
