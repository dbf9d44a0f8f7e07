//! Identifying information that initiators set on the unit (SPC-5 5.7).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_state::{StateError, StateStore};

use crate::limits::{MAX_IDENTIFYING_BYTES, MAX_IDENTIFYING_TEXT_BYTES};
use crate::persist::{self, StateSlot, ValueReader, put_bytes};

/// INFORMATION TYPE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InformationType {
    /// Arbitrary bytes.
    Binary = 0,
    /// UTF-8 that ends with a zero byte.
    Text = 2,
}

impl InformationType {
    /// All kinds, in the order of their types.
    pub(crate) const ALL: [Self; 2] = [Self::Binary, Self::Text];

    /// The type of an INFORMATION TYPE field.
    pub(crate) fn decode(information_type: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == information_type)
    }

    pub(crate) fn max_len(self) -> u16 {
        match self {
            Self::Binary => MAX_IDENTIFYING_BYTES,
            Self::Text => MAX_IDENTIFYING_TEXT_BYTES,
        }
    }

    /// Whether `information`, which is not empty, has the format of the type.
    pub(crate) fn accepts(self, information: &[u8]) -> bool {
        match self {
            Self::Binary => true,
            Self::Text => information.last() == Some(&0) && std::str::from_utf8(information).is_ok(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct IdentifyingValues {
    binary: Vec<u8>,
    text: Vec<u8>,
}

/// The identifying information of a unit. It is supported only with a state store.
pub(crate) struct IdentifyingInformation {
    values: Mutex<IdentifyingValues>,
    slot: Option<Arc<StateSlot>>,
}

impl IdentifyingInformation {
    /// Loads the information that `state` holds for the unit with this serial number.
    pub(crate) fn open(state: Option<&Arc<dyn StateStore>>, serial: &str) -> Result<Self, StateError> {
        let (slot, saved) = persist::open(state, format!("identifying/{serial}"), IdentifyingValues::decode)?;
        Ok(Self { values: Mutex::new(saved.unwrap_or_default()), slot })
    }

    pub(crate) fn read(&self, kind: InformationType) -> Vec<u8> {
        self.values().get(kind).clone()
    }

    /// Replaces the information of a type by `information`, which may be empty, once it is saved. Returns whether it
    /// differs from what was there.
    pub(crate) fn set(&self, kind: InformationType, information: Vec<u8>) -> Result<bool, StateError> {
        let turn = self.slot.as_ref().map(|slot| slot.turn());
        let mut next = self.values().clone();
        *next.get(kind) = information;
        if let Some(turn) = &turn {
            turn.save(next.encode().as_deref())?;
        }
        let mut values = self.values();
        let is_change = *values != next;
        *values = next;
        Ok(is_change)
    }

    fn values(&self) -> MutexGuard<'_, IdentifyingValues> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdentifyingValues {
    /// Version of the encoding: version; the binary and the text information, each after its length in two bytes.
    const VERSION: u8 = 1;

    fn get(&mut self, kind: InformationType) -> &mut Vec<u8> {
        match kind {
            InformationType::Binary => &mut self.binary,
            InformationType::Text => &mut self.text,
        }
    }

    fn encode(&self) -> Option<Vec<u8>> {
        if *self == Self::default() {
            return None;
        }
        let mut bytes = vec![Self::VERSION];
        put_bytes(&mut bytes, &self.binary);
        put_bytes(&mut bytes, &self.text);
        Some(bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ValueReader(bytes);
        if reader.take()? != [Self::VERSION] {
            return None;
        }
        let values = Self { binary: reader.bytes()?.to_vec(), text: reader.bytes()?.to_vec() };
        reader.is_empty().then_some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_values_round_trip_and_others_are_refused() {
        let values = IdentifyingValues { binary: vec![1, 2, 3], text: b"disk\0".to_vec() };
        let bytes = values.encode().unwrap();
        assert_eq!(IdentifyingValues::decode(&bytes), Some(values));
        assert_eq!(IdentifyingValues::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(IdentifyingValues::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(IdentifyingValues::decode(&[2, 0, 0, 0, 0]), None);
        assert_eq!(IdentifyingValues::default().encode(), None, "an empty value is not saved");
    }

    #[test]
    fn a_text_is_utf_8_with_a_zero_byte_at_its_end() {
        assert!(InformationType::Text.accepts("größe\0\0".as_bytes()));
        assert!(!InformationType::Text.accepts(b"no end"));
        assert!(!InformationType::Text.accepts(b"\xff\0"));
        assert!(InformationType::Binary.accepts(b"\xff"));
    }
}
