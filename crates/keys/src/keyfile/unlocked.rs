//! Unlocked key files: the keys, and what can be changed.

use super::format::{Document, EpochRecord, WrappedKey, check_name};
use super::holder::{self, NewHolder};
use super::limits::{MAX_EPOCHS, MAX_HOLDERS};
use super::{Cipher, Holder, KeyFileError, holders};
use crate::hex::Hex;
use crate::seal;
use crate::secret::{Key, random};

/// A key file with its keys. Changes happen in memory; [`to_bytes`](Self::to_bytes) gives the changed file.
#[derive(Debug)]
pub struct Unlocked {
    document: Document,
    volume_key: Key,
    keys: Vec<EpochKey>,
    opened_by: String,
}

/// The data key of an epoch.
#[derive(Debug, Clone)]
pub struct EpochKey {
    epoch: u32,
    cipher: Cipher,
    key: Key,
}

impl EpochKey {
    /// The number of the epoch, from 1.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The cipher of the key.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl Unlocked {
    /// Draws the keys of a new volume with one holder and one epoch. `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// When the holder's name or cost is out of bounds.
    pub fn create(name: &str, holder: NewHolder<'_>, cipher: Cipher, now: u64) -> Result<Self, KeyFileError> {
        let mut volume = [0; 16];
        random(&mut volume);
        let document = Document::new(volume);
        let mut new = Self { document, volume_key: Key::random(), keys: Vec::new(), opened_by: name.into() };
        new.grant(name, holder)?;
        new.rotate(cipher, now)?;
        new.document.generation = 1;
        Ok(new)
    }

    pub(super) fn open(document: Document, volume_key: Key, opened_by: String) -> Result<Self, KeyFileError> {
        let wrapping = wrapping_key(&document.volume.0, &volume_key);
        let open = |record: &EpochRecord| {
            let opened =
                seal::open(&wrapping, &place(&document.volume.0, record.epoch, record.cipher()), &record.key.0);
            let key = opened.ok().and_then(|opened| Key::from_slice(&opened)).ok_or(KeyFileError::Altered)?;
            Ok(EpochKey { epoch: record.epoch, cipher: record.cipher(), key })
        };
        let keys = document.epochs.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { document, volume_key, keys, opened_by })
    }

    /// The number of the volume.
    pub fn volume(&self) -> [u8; 16] {
        self.document.volume.0
    }

    /// How many times the file was changed.
    pub fn generation(&self) -> u64 {
        self.document.generation
    }

    /// The holder whose secret opened the file.
    pub fn opened_by(&self) -> &str {
        &self.opened_by
    }

    /// The holders.
    pub fn holders(&self) -> impl Iterator<Item = Holder<'_>> {
        holders(&self.document)
    }

    /// The keys of all epochs, the current one last.
    pub fn epochs(&self) -> &[EpochKey] {
        &self.keys
    }

    /// The key of what is written from now on.
    pub fn current(&self) -> &EpochKey {
        self.keys.last().expect("a key file has one epoch at least")
    }

    /// Adds a holder.
    ///
    /// # Errors
    ///
    /// When there are too many, the name is taken or not allowed, or a cost is out of bounds.
    pub fn grant(&mut self, name: &str, holder: NewHolder<'_>) -> Result<(), KeyFileError> {
        check_name(name).map_err(KeyFileError::Refused)?;
        if self.position(name).is_some() {
            return Err(refused(format!("there is a holder {name} already")));
        }
        if self.document.holders.len() >= MAX_HOLDERS {
            return Err(refused(format!("there are {MAX_HOLDERS} holders already, and more are not allowed")));
        }
        let record = holder::wrap(&self.document.volume.0, name, holder, &self.volume_key)?;
        self.document.holders.push(record);
        self.changed();
        Ok(())
    }

    /// Removes a holder. Its secret still opens old copies of the file, and through them the volume key;
    /// [`replace_volume_key`](Self::replace_volume_key) makes it useless for later files.
    ///
    /// # Errors
    ///
    /// When there is no such holder, or no other one.
    pub fn revoke(&mut self, name: &str) -> Result<(), KeyFileError> {
        let at = self.position(name).ok_or_else(|| refused(format!("there is no holder {name}")))?;
        if self.document.holders.len() == 1 {
            return Err(refused(format!("{name} is the last holder; without one, all data would be lost")));
        }
        self.document.holders.remove(at);
        self.changed();
        Ok(())
    }

    /// Draws another volume key and wraps all data keys with it, for one holder. All others are removed, because their
    /// secrets are not here; they can be granted again.
    ///
    /// # Errors
    ///
    /// When the holder's name or cost is not allowed. Nothing is changed then.
    pub fn replace_volume_key(&mut self, name: &str, holder: NewHolder<'_>) -> Result<(), KeyFileError> {
        check_name(name).map_err(KeyFileError::Refused)?;
        let volume_key = Key::random();
        let record = holder::wrap(&self.document.volume.0, name, holder, &volume_key)?;
        self.document.holders = vec![record];
        self.volume_key = volume_key;
        let wrapping = wrapping_key(&self.document.volume.0, &self.volume_key);
        for (record, key) in self.document.epochs.iter_mut().zip(&self.keys) {
            record.key = wrap(&wrapping, &self.document.volume.0, key);
        }
        self.opened_by = name.into();
        self.changed();
        Ok(())
    }

    /// Begins an epoch, and returns its number. `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// When there are too many epochs.
    pub fn rotate(&mut self, cipher: Cipher, now: u64) -> Result<u32, KeyFileError> {
        if self.keys.len() >= MAX_EPOCHS {
            return Err(refused(format!("there are {MAX_EPOCHS} epochs; rewrite the data and destroy old ones first")));
        }
        let last = self.keys.last().map_or(0, EpochKey::epoch);
        let epoch = last.checked_add(1).ok_or_else(|| refused("the numbers of epochs are used up".into()))?;
        let key = EpochKey { epoch, cipher, key: Key::random() };
        let wrapping = wrapping_key(&self.document.volume.0, &self.volume_key);
        let wrapped = wrap(&wrapping, &self.document.volume.0, &key);
        self.document.epochs.push(EpochRecord { epoch, cipher: cipher.name().into(), created: now, key: wrapped });
        self.keys.push(key);
        self.changed();
        Ok(epoch)
    }

    /// Removes the key of an epoch that is not current. What was written in that epoch and not rewritten since is lost.
    ///
    /// # Errors
    ///
    /// When there is no such epoch, or it is the current one.
    pub fn destroy_epoch(&mut self, epoch: u32) -> Result<(), KeyFileError> {
        if self.current().epoch == epoch {
            return Err(refused(format!(
                "epoch {epoch} is the current one; rotate first, or destroy the whole key file"
            )));
        }
        let at = self.keys.iter().position(|key| key.epoch == epoch);
        let at = at.ok_or_else(|| refused(format!("there is no epoch {epoch}")))?;
        self.keys.remove(at);
        self.document.epochs.remove(at);
        self.changed();
        Ok(())
    }

    /// The bytes of the key file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let key = mac_key(&self.document.volume.0, &self.volume_key);
        self.document.clone().render(|text| seal::mac(&key, text))
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.document.holders.iter().position(|holder| holder.name == name)
    }

    fn changed(&mut self) {
        self.document.generation += 1;
    }
}

fn refused(why: String) -> KeyFileError {
    KeyFileError::Refused(why)
}

/// The key that authenticates a key file.
pub(super) fn mac_key(volume: &[u8; 16], volume_key: &Key) -> Key {
    seal::derive(volume_key, volume, "lunette key file 1: authentication")
}

/// The key that wraps data keys.
fn wrapping_key(volume: &[u8; 16], volume_key: &Key) -> Key {
    seal::derive(volume_key, volume, "lunette key file 1: data keys")
}

fn wrap(wrapping: &Key, volume: &[u8; 16], key: &EpochKey) -> WrappedKey {
    let sealed = seal::seal(wrapping, &place(volume, key.epoch, key.cipher), key.key.expose());
    Hex(sealed.try_into().expect("a wrapped key has one length"))
}

/// The associated data of a wrapped data key.
fn place(volume: &[u8; 16], epoch: u32, cipher: Cipher) -> Vec<u8> {
    let mut place = b"lunette key file 1: data key".to_vec();
    place.extend_from_slice(volume);
    place.extend_from_slice(&epoch.to_be_bytes());
    place.push(cipher.id());
    place
}
