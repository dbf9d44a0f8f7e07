//! The encoding of access states that initiators have set, in the state store.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | then for each state: 8 | LUN, as REPORT LUNS lists it |
//! | 2 | TARGET PORT GROUP, big-endian |
//! | 1 | ASYMMETRIC ACCESS STATE |

use std::collections::BTreeMap;

use lunette_scsi::Lun;
use lunette_scsi::port_groups::{AccessState, StatusCode};

use super::GroupState;
use crate::persist::ValueReader;

const VERSION: u8 = 1;

/// The encoded value; `None` when nothing has to survive.
pub(crate) fn encode(states: &BTreeMap<(Lun, u16), GroupState>) -> Option<Vec<u8>> {
    let mut bytes = vec![VERSION];
    for ((lun, group), current) in states.iter().filter(|(_, current)| current.status == StatusCode::Explicit) {
        bytes.extend_from_slice(&lun.encode());
        bytes.extend_from_slice(&group.to_be_bytes());
        bytes.push(current.state.code());
    }
    (bytes.len() > 1).then_some(bytes)
}

/// Decodes a value of [`encode`]; `None` for any other bytes.
pub(crate) fn decode(bytes: &[u8]) -> Option<BTreeMap<(Lun, u16), GroupState>> {
    let mut reader = ValueReader(bytes);
    if reader.take()? != [VERSION] {
        return None;
    }
    let mut states = BTreeMap::new();
    while !reader.is_empty() {
        let lun = Lun::decode(reader.take()?);
        let group = u16::from_be_bytes(reader.take()?);
        let [state] = reader.take()?;
        let current = GroupState { state: AccessState::decode(state)?, status: StatusCode::Explicit };
        states.insert((lun, group), current);
    }
    Some(states)
}
