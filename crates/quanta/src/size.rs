//! The sizes of a quantum.

use crate::slot::SLOT_LEN;

/// The number of bytes of plain text in a quantum, which a volume fixes once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuantumSize {
    /// 512 bytes, in EDUs of 576.
    B512,
    /// 1024 bytes, in EDUs of 1088.
    B1024,
    /// 2048 bytes, in EDUs of 2112.
    B2048,
    /// 4096 bytes, in EDUs of 4160.
    B4096,
}

impl QuantumSize {
    /// All sizes, the smallest first.
    pub const ALL: [Self; 4] = [Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// The size of this many bytes, if there is one.
    ///
    /// ```
    /// use lunette_quanta::QuantumSize;
    ///
    /// assert_eq!(QuantumSize::of_bytes(4096), Some(QuantumSize::B4096));
    /// assert_eq!(QuantumSize::of_bytes(8192), None);
    /// ```
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.bytes() as u64 == bytes)
    }

    /// The size whose EDU has this many bytes: what a unit's block length says of a native volume.
    pub fn of_edu_len(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.edu_len() as u64 == bytes)
    }

    /// Bytes of plain text, and of ciphertext.
    pub const fn bytes(self) -> usize {
        match self {
            Self::B512 => 512,
            Self::B1024 => 1024,
            Self::B2048 => 2048,
            Self::B4096 => 4096,
        }
    }

    /// Bytes of the EDU: ciphertext and slot.
    pub const fn edu_len(self) -> usize {
        self.bytes() + SLOT_LEN
    }
}
