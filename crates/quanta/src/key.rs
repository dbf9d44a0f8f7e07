//! Data keys, and the keys of all epochs of a volume.

use std::fmt;
use std::sync::Arc;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::cipher::{Aead, Cipher};
use crate::limits::MAX_EPOCHS;

/// Bytes of a data key, for every cipher.
pub const KEY_LEN: usize = 32;

/// The key of one epoch of one volume. Its memory is overwritten when it is dropped, and it is never printed.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct DataKey([u8; KEY_LEN]);

impl DataKey {
    /// A key of these bytes, which come from a random generator for secrets and serve one volume and one cipher.
    pub fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl Clone for DataKey {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(secret)")
    }
}

/// Why a key could not be added to a [`KeyRing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyRingError {
    /// Epochs begin with 1.
    #[error("epoch 0 does not exist; the first epoch of a volume is 1")]
    EpochZero,
    /// The ring has a key of this epoch already.
    #[error("there is a key of epoch {0} already; an epoch has one key")]
    SecondKey(u32),
    /// The ring is full.
    #[error("a volume has at most {MAX_EPOCHS} epochs at one time; rekey it, then drop old epochs")]
    TooMany,
}

/// The keys of a volume, by epoch. The newest seals; all of them open.
///
/// A clone shares the prepared keys and is cheap: when a key comes or goes, make another ring and replace the
/// [`Codec`](crate::Codec) that uses it.
#[derive(Clone)]
pub struct KeyRing {
    cipher: Cipher,
    /// In the order of epochs; never empty.
    keys: Vec<(u32, Arc<dyn Aead>)>,
}

impl KeyRing {
    /// A ring with one key.
    ///
    /// # Errors
    ///
    /// [`KeyRingError::EpochZero`].
    pub fn new(cipher: Cipher, epoch: u32, key: &DataKey) -> Result<Self, KeyRingError> {
        let mut ring = Self { cipher, keys: Vec::new() };
        ring.add(epoch, key)?;
        Ok(ring)
    }

    /// Adds the key of another epoch. The highest epoch seals from then on.
    ///
    /// # Errors
    ///
    /// [`KeyRingError`]; the ring stays as it was.
    pub fn add(&mut self, epoch: u32, key: &DataKey) -> Result<(), KeyRingError> {
        if epoch == 0 {
            return Err(KeyRingError::EpochZero);
        }
        let Err(at) = self.find(epoch) else { return Err(KeyRingError::SecondKey(epoch)) };
        if self.keys.len() >= MAX_EPOCHS as usize {
            return Err(KeyRingError::TooMany);
        }
        self.keys.insert(at, (epoch, (self.cipher.row().prepare)(key)));
        Ok(())
    }

    /// The cipher of all keys.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The newest epoch, whose key seals.
    pub fn newest_epoch(&self) -> u32 {
        self.newest().0
    }

    /// Whether there is a key of `epoch`.
    pub fn has(&self, epoch: u32) -> bool {
        self.find(epoch).is_ok()
    }

    pub(crate) fn newest(&self) -> (u32, &dyn Aead) {
        let (epoch, key) = self.keys.last().expect("a ring has at least one key");
        (*epoch, &**key)
    }

    pub(crate) fn get(&self, epoch: u32) -> Option<&dyn Aead> {
        self.find(epoch).ok().map(|at| &*self.keys[at].1)
    }

    fn find(&self, epoch: u32) -> Result<usize, usize> {
        self.keys.binary_search_by_key(&epoch, |(of, _)| *of)
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epochs = self.keys.iter().map(|(epoch, _)| epoch).collect::<Vec<_>>();
        f.debug_struct("KeyRing").field("cipher", &self.cipher).field("epochs", &epochs).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_epoch_seals_in_whatever_order_keys_come() {
        let key = DataKey::new([1; KEY_LEN]);
        let mut ring = KeyRing::new(Cipher::Aegis256, 7, &key).unwrap();
        ring.add(2, &key).unwrap();
        assert_eq!(ring.newest_epoch(), 7);
        ring.add(9, &key).unwrap();
        assert_eq!(ring.newest_epoch(), 9);
        assert!(ring.has(2) && ring.has(7) && ring.has(9) && !ring.has(8));
        assert_eq!(ring.add(7, &key), Err(KeyRingError::SecondKey(7)));
        assert_eq!(ring.add(0, &key), Err(KeyRingError::EpochZero));
    }

    #[test]
    fn keys_are_not_printed() {
        let key = DataKey::new([0xab; KEY_LEN]);
        let ring = KeyRing::new(Cipher::Aegis256, 1, &key).unwrap();
        for printed in [format!("{key:?}"), format!("{ring:?}")] {
            assert!(!printed.contains("171") && !printed.to_lowercase().contains("ab, ab"), "{printed}");
        }
    }
}
