//! Values that a logical unit or a target device saves in the state store, so that they survive a restart.

mod codec;
mod slot;

pub(crate) use codec::{ValueReader, put_bytes};
pub(crate) use slot::{PendingSave, StateSlot, Turn, open};
