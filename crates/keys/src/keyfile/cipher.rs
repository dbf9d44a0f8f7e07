//! The ciphers that data keys are for.

/// A cipher of data. Key files name it, encrypted data has its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// AEGIS-256.
    Aegis256,
    /// AES-256-GCM-SIV (RFC 8452).
    Aes256GcmSiv,
    /// AEGIS-256X4.
    Aegis256X4,
}

/// Each cipher with its name and its number. One more cipher is one more row; numbers are never used again.
const TABLE: [(Cipher, &str, u8); 3] = [
    (Cipher::Aegis256, "aegis-256", 1),
    (Cipher::Aes256GcmSiv, "aes-256-gcm-siv", 2),
    (Cipher::Aegis256X4, "aegis-256x4", 3),
];

impl Cipher {
    /// The list of all ciphers.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.into_iter().map(|(cipher, ..)| cipher)
    }

    /// The name, as a key file has it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The number, as encrypted data has it.
    pub fn id(self) -> u8 {
        self.row().2
    }

    /// The cipher of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|cipher| cipher.name() == name)
    }

    fn row(self) -> (Self, &'static str, u8) {
        TABLE.into_iter().find(|row| row.0 == self).expect("the table has all ciphers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_what_files_and_disks_have() {
        let rows: Vec<_> = Cipher::all().map(|cipher| (cipher.name(), cipher.id())).collect();
        assert_eq!(rows, [("aegis-256", 1), ("aes-256-gcm-siv", 2), ("aegis-256x4", 3)]);
        assert!(Cipher::all().all(|cipher| Cipher::by_name(cipher.name()) == Some(cipher)));
        assert_eq!(Cipher::by_name("AEGIS-256"), None);
    }
}
