//! Key files as objects of a key server: opaque data under a name.
//!
//! No operation of KMIP changes what an object holds. So a changed key file is a new object of the same name, and of
//! several the one with the highest generation counts. A power cut while one is replaced leaves the old one, or both.

use zeroize::Zeroizing;

use super::KeySourceError;
use crate::client::{Client, ClientError};
use crate::keyfile::{KeyFile, KeyFileError};
use crate::kmip::limits::MAX_MATERIAL_BYTES;
use crate::kmip::{Attribute, Kind, ManagedObject, ObjectType};
use crate::server::USER_ATTRIBUTE;

/// KMIP leaves the types of opaque data to its users, from this number on.
const OPAQUE_TYPE: u32 = 0x8000_0000;

/// The most objects of one name that are looked at.
const MAX_PUBLISHED_COPIES: usize = 16;

/// The newest key file of a name.
pub(super) fn fetch(client: &mut Client, name: &str) -> Result<KeyFile, ClientError> {
    let newest = copies(client, name)?.into_iter().map(|(_, file)| file).max_by_key(KeyFile::generation);
    let none = || {
        ClientError::NotFound(format!(
            "the key server has no key file {name} for this client; lunette keys publish puts one there, and lunette keys grant lets \
             others read it"
        ))
    };
    newest.ok_or_else(none)
}

/// Puts a key file into a key server under a name, in the place of older ones of the same volume, and returns the new
/// object's identifier.
///
/// # Errors
///
/// When the server refuses, has another volume's or a newer key file of this name, or the file is longer than an object
/// may be.
pub fn publish(client: &mut Client, name: &str, bytes: &[u8]) -> Result<String, KeySourceError> {
    let failure = |error| KeySourceError::KeyFile { place: name.into(), error };
    let file = KeyFile::parse(bytes).map_err(failure)?;
    if bytes.len() > MAX_MATERIAL_BYTES {
        return Err(failure(KeyFileError::Refused(format!(
            "the key file has {} bytes, and a key server takes {MAX_MATERIAL_BYTES}; rekey the volume and destroy old epochs",
            bytes.len()
        ))));
    }
    let there = copies(client, name)?;
    if there.iter().any(|(_, other)| other.volume() != file.volume()) {
        let message = "the key server has the key file of another volume under this name; choose another name";
        return Err(failure(KeyFileError::Refused(message.into())));
    }
    if there.iter().any(|(_, other)| other.generation() > file.generation()) {
        let message = "the key server has a newer key file of this volume; publish that one's successor";
        return Err(failure(KeyFileError::Refused(message.into())));
    }
    let object = ManagedObject { kind: Kind::OpaqueData(OPAQUE_TYPE), material: Zeroizing::new(bytes.to_vec()) };
    let mut attributes = vec![Attribute::named(name)];
    attributes.extend(users(client, &there)?);
    let id = client.register(object, attributes)?;
    for (old, _) in there {
        client.destroy(&old)?;
    }
    Ok(id)
}

/// The clients that may read an object that is replaced may read the new one.
fn users(client: &mut Client, there: &[(String, KeyFile)]) -> Result<Vec<Attribute>, ClientError> {
    let mut users: Vec<Attribute> = Vec::new();
    for (id, _) in there {
        let found = client.attributes(id)?.into_iter().filter(|attribute| attribute.name == USER_ATTRIBUTE);
        for user in found.map(|user| Attribute { index: None, ..user }) {
            if !users.contains(&user) {
                users.push(user);
            }
        }
    }
    Ok(users)
}

/// The key files of a name, with the identifiers of their objects. An object that is no key file is left out: whoever
/// may register one of this name must not be able to keep the others from being read.
fn copies(client: &mut Client, name: &str) -> Result<Vec<(String, KeyFile)>, ClientError> {
    let wanted = vec![Attribute::named(name), Attribute::object_type(ObjectType::OpaqueData)];
    let ids = client.locate(wanted)?;
    let mut files = Vec::new();
    for id in ids.into_iter().take(MAX_PUBLISHED_COPIES) {
        let object = client.get(&id)?;
        match KeyFile::parse(&object.material) {
            Ok(file) => files.push((id, file)),
            Err(error) => {
                tracing::warn!(%id, name, %error, "an object of the key server has the name of a key file and is none");
            }
        }
    }
    Ok(files)
}
