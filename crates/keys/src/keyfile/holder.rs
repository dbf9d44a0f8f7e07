//! The secrets of holders, and the volume key wrapped with them.

use super::KeyFileError;
use super::format::{HolderRecord, Lock, WrappedKey};
use crate::hex::Hex;
use crate::passphrase::{Argon2Cost, SALT_LEN};
use crate::seal;
use crate::secret::{Key, Passphrase, random};

/// The secret that opens a key file.
#[derive(Debug, Clone, Copy)]
pub enum Secret<'a> {
    /// A passphrase.
    Passphrase(&'a Passphrase),
    /// The key that an object of a key server holds.
    Kmip {
        /// The object's unique identifier.
        object: &'a str,
        /// The key of the holder.
        key: &'a Key,
    },
}

/// A holder to be added.
#[derive(Debug, Clone, Copy)]
pub enum NewHolder<'a> {
    /// Whoever knows a passphrase.
    Passphrase {
        /// The passphrase.
        passphrase: &'a Passphrase,
        /// The cost of each guess.
        cost: Argon2Cost,
    },
    /// Whoever gets an object from a key server.
    Kmip {
        /// The server, as `HOST:PORT`.
        server: &'a str,
        /// The object's unique identifier.
        object: &'a str,
        /// The key of the holder.
        key: &'a Key,
    },
}

/// Wraps the volume key for a holder.
pub(super) fn wrap(
    volume: &[u8; 16],
    name: &str,
    holder: NewHolder<'_>,
    volume_key: &Key,
) -> Result<HolderRecord, KeyFileError> {
    let (lock, key) = match holder {
        NewHolder::Passphrase { passphrase, cost } => {
            let mut salt = [0; SALT_LEN];
            random(&mut salt);
            let key = cost.key(passphrase, &salt).map_err(|error| KeyFileError::Refused(error.to_string()))?;
            (Lock::Passphrase { salt: Hex(salt), cost }, key)
        }
        NewHolder::Kmip { server, object, key } => {
            (Lock::Kmip { server: server.into(), object: object.into() }, kmip_key(volume, key))
        }
    };
    lock.check().map_err(KeyFileError::Refused)?;
    let sealed = seal::seal(&key, &place(volume, name, &lock), volume_key.expose());
    let volume_key: WrappedKey = Hex(sealed.try_into().expect("a wrapped key has one length"));
    Ok(HolderRecord { name: name.into(), lock, volume_key })
}

/// The volume key, when the secret is that of this holder.
pub(super) fn unwrap(volume: &[u8; 16], holder: &HolderRecord, secret: Secret<'_>) -> Option<Key> {
    let key = match (&holder.lock, secret) {
        (Lock::Passphrase { salt, cost }, Secret::Passphrase(passphrase)) => cost.key(passphrase, &salt.0).ok()?,
        (Lock::Kmip { object, .. }, Secret::Kmip { object: given, key }) if object == given => kmip_key(volume, key),
        _ => return None,
    };
    let opened = seal::open(&key, &place(volume, &holder.name, &holder.lock), &holder.volume_key.0).ok()?;
    Key::from_slice(&opened)
}

/// An object of a key server may serve several volumes, so it never wraps a key itself.
fn kmip_key(volume: &[u8; 16], key: &Key) -> Key {
    seal::derive(key, volume, "lunette key file 1: holder")
}

/// The associated data of a wrapped volume key. Strings have their length in two bytes before them.
fn place(volume: &[u8; 16], name: &str, lock: &Lock) -> Vec<u8> {
    let mut place = b"lunette key file 1: volume key".to_vec();
    place.extend_from_slice(volume);
    let text = |place: &mut Vec<u8>, text: &str| {
        place.extend_from_slice(&(text.len() as u16).to_be_bytes());
        place.extend_from_slice(text.as_bytes());
    };
    text(&mut place, name);
    match lock {
        Lock::Passphrase { salt, cost } => {
            place.push(1);
            place.extend_from_slice(&salt.0);
            for part in [cost.memory_kib, cost.passes, cost.lanes] {
                place.extend_from_slice(&part.to_be_bytes());
            }
        }
        Lock::Kmip { server, object } => {
            place.push(2);
            text(&mut place, server);
            text(&mut place, object);
        }
    }
    place
}
