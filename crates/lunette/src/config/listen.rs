//! Addresses to listen on, as people write them.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Deserializer};

use super::DEFAULT_PORT;
use crate::address::{self, NoAddress};
use crate::text;

/// Addresses to listen on, in one of the forms of [`address`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(super) text: String,
    pub(crate) addresses: Vec<SocketAddr>,
    /// Why there is none: the system does not know the name or the zone.
    pub(super) unknown: Option<String>,
}

impl Listen {
    /// The standard port at the loopback address.
    pub(crate) fn standard() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT));
        Self { text: address.to_string(), addresses: vec![address], unknown: None }
    }

    /// Why it means no address, if so.
    pub(crate) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// Asks the system again for a name or a zone that it did not know.
    pub(crate) fn look_up(&mut self) {
        match address::resolve(&self.text, DEFAULT_PORT) {
            Ok(addresses) => (self.addresses, self.unknown) = (addresses, None),
            Err(why) => self.unknown = Some(why.into_message()),
        }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (addresses, unknown) = match address::resolve(text, DEFAULT_PORT) {
            Ok(addresses) => (addresses, None),
            Err(NoAddress::Unknown(why)) => (Vec::new(), Some(why)),
            Err(NoAddress::Form(why)) => return Err(why),
        };
        Ok(Self { text: text.into(), addresses, unknown })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::read(from)
    }
}
