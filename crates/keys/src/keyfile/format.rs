//! The format of key files, version 1: strict JSON with an authentication code at its end.
//!
//! `docs/keys.md` describes it field by field. JSON, because a key file outlives programs: every language reads it, and
//! people can see what they have. Its looseness does no harm, because the code authenticates bytes and not values: all
//! bytes before [`MAC_MEMBER`], and what follows is exactly the code.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::KeyFileError;
use super::cipher::Cipher;
use super::limits::{MAX_EPOCHS, MAX_HOLDERS, MAX_KEY_FILE_BYTES, MAX_LOCATION_BYTES, MAX_NAME_BYTES};
use crate::hex::Hex;
use crate::passphrase::{Argon2Cost, SALT_LEN};
use crate::seal;
use crate::secret::Key;

/// The value of `format`.
const FORMAT: &str = "lunette key file";

/// The version that this code writes, and the only one that it reads.
const VERSION: u32 = 1;

/// Where the authenticated bytes end.
const MAC_MEMBER: &str = ",\n  \"mac\": \"";

/// The text behind the digits of the authentication code.
const END: &str = "\"\n}\n";

/// The length of a wrapped key in bytes.
pub(super) const WRAPPED_LEN: usize = Key::LEN + seal::OVERHEAD;

/// A key that is encrypted and authenticated.
pub(super) type WrappedKey = Hex<WRAPPED_LEN>;

/// Everything that a key file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    format: String,
    version: u32,
    /// The volume's number, drawn when the file is made.
    pub(super) volume: Hex<16>,
    /// Counts the changes of the file.
    pub(super) generation: u64,
    pub(super) holders: Vec<HolderRecord>,
    /// In the order of their numbers. The last one is current.
    pub(super) epochs: Vec<EpochRecord>,
    mac: Hex<32>,
}

/// A holder, with the volume key for it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HolderRecord {
    pub(super) name: String,
    pub(super) lock: Lock,
    pub(super) volume_key: WrappedKey,
}

/// Where the key comes from that wraps the volume key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Lock {
    Passphrase { salt: Hex<SALT_LEN>, cost: Argon2Cost },
    Kmip { server: String, object: String },
}

/// An epoch, with its data key wrapped by the volume key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EpochRecord {
    pub(super) epoch: u32,
    pub(super) cipher: String,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) key: WrappedKey,
}

impl EpochRecord {
    pub(super) fn cipher(&self) -> Cipher {
        Cipher::by_name(&self.cipher).expect("checked when the file was read")
    }
}

impl Document {
    pub(super) fn new(volume: [u8; 16]) -> Self {
        Self {
            format: FORMAT.into(),
            version: VERSION,
            volume: Hex(volume),
            generation: 0,
            holders: Vec::new(),
            epochs: Vec::new(),
            mac: Hex([0; 32]),
        }
    }

    /// Reads a key file. The second value is the number of authenticated bytes.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, usize), KeyFileError> {
        if bytes.len() > MAX_KEY_FILE_BYTES {
            return Err(KeyFileError::Malformed(format!("it is longer than {MAX_KEY_FILE_BYTES} bytes")));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| KeyFileError::Malformed("it is no UTF-8".into()))?;
        version_of(text)?;
        let document: Self = serde_json::from_str(text).map_err(|error| malformed(&error))?;
        let authenticated = text.rfind(MAC_MEMBER).filter(|at| {
            let code = text[at + MAC_MEMBER.len()..].strip_suffix(END);
            code == Some(crate::hex::encode(&document.mac.0).as_str())
        });
        let end = "it does not end with its authentication code as lunette writes it";
        let authenticated = authenticated.ok_or_else(|| KeyFileError::Malformed(end.into()))?;
        document.check().map_err(KeyFileError::Malformed)?;
        Ok((document, authenticated))
    }

    /// The bytes of the file, with the code that `mac` makes for the authenticated ones.
    pub(super) fn render(&mut self, mac: impl FnOnce(&[u8]) -> [u8; 32]) -> Vec<u8> {
        self.mac = Hex([0; 32]);
        let mut text = serde_json::to_string_pretty(self).expect("a document has no map with other keys than text");
        text.truncate(text.rfind(MAC_MEMBER).expect("the code is the last member"));
        self.mac = Hex(mac(text.as_bytes()));
        text.push_str(MAC_MEMBER);
        text.push_str(&crate::hex::encode(&self.mac.0));
        text.push_str(END);
        text.into_bytes()
    }

    pub(super) fn mac(&self) -> &[u8; 32] {
        &self.mac.0
    }

    /// The rules that types do not express.
    fn check(&self) -> Result<(), String> {
        if !(1..=MAX_HOLDERS).contains(&self.holders.len()) {
            return Err(format!("it has {} holders; 1 to {MAX_HOLDERS} are allowed", self.holders.len()));
        }
        if !(1..=MAX_EPOCHS).contains(&self.epochs.len()) {
            return Err(format!("it has {} epochs; 1 to {MAX_EPOCHS} are allowed", self.epochs.len()));
        }
        let mut names = HashSet::new();
        for holder in &self.holders {
            check_name(&holder.name)?;
            if !names.insert(&holder.name) {
                return Err(format!("two holders have the name {}", holder.name));
            }
            holder.lock.check()?;
        }
        let mut last = 0;
        for EpochRecord { epoch, cipher, .. } in &self.epochs {
            if *epoch <= last {
                return Err(format!("epoch {epoch} stands behind epoch {last}"));
            }
            last = *epoch;
            if Cipher::by_name(cipher).is_none() {
                let known: Vec<_> = Cipher::all().map(Cipher::name).collect();
                return Err(format!("epoch {epoch} has an unknown cipher; known are {}", known.join(", ")));
            }
        }
        Ok(())
    }
}

impl Lock {
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Passphrase { cost, .. } => cost.check().map(|_| ()).map_err(|error| error.to_string()),
            Self::Kmip { server, object } => {
                let fits = |text: &str| {
                    (1..=MAX_LOCATION_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
                };
                let rule =
                    format!("server and object of a holder have 1 to {MAX_LOCATION_BYTES} visible ASCII characters");
                (fits(server) && fits(object)).then_some(()).ok_or(rule)
            }
        }
    }
}

/// Names are shown on terminals and given as arguments: letters, digits and `._@-`.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(format!("the name of a holder has 1 to {MAX_NAME_BYTES} letters, digits or . _ @ -"))
}

/// A version that is not known may have other members, so it is looked at first.
fn version_of(text: &str) -> Result<(), KeyFileError> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
        version: u32,
    }
    let Head { format, version } = serde_json::from_str(text).map_err(|error| malformed(&error))?;
    if format != FORMAT {
        return Err(KeyFileError::Malformed(format!("its format is not \"{FORMAT}\"")));
    }
    if version != VERSION {
        return Err(KeyFileError::Version(version));
    }
    Ok(())
}

fn malformed(error: &serde_json::Error) -> KeyFileError {
    if error.is_eof() { KeyFileError::Truncated } else { KeyFileError::Malformed(error.to_string()) }
}
