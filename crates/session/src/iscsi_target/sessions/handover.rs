//! Sessions that an earlier process has left.

use std::sync::Arc;

use lunette_handover as handover;
use lunette_pdu::Tsih;

use super::{Session, SessionKey, Sessions};
use crate::iscsi_target::directory::Directory;
use crate::iscsi_target::handover::InheritError;
use crate::limits::max_table_sessions;
use crate::{Time, Timers};

impl<H: Copy + PartialEq> Sessions<H> {
    /// The number of the table, among `sharers`, that has the session of that value.
    pub fn table_of(from: &handover::Session, sharers: usize) -> usize {
        usize::from(from.tsih) % sharers.max(1)
    }

    /// Takes on a session, with `handles` for its connections, if `directory` still admits its initiator. It goes on
    /// when its connections are asked for their next event.
    ///
    /// # Errors
    ///
    /// [`InheritError`]: its connections are to be closed.
    pub fn inherit(
        &mut self,
        from: &handover::Session,
        handles: &[H],
        directory: &Arc<Directory>,
        timers: Timers,
        now: Time,
    ) -> Result<SessionKey, InheritError> {
        let tsih = Tsih(from.tsih);
        let is_ours = from.tsih % self.sharers == self.remainder && tsih != Tsih::NEW;
        if !is_ours || self.by_tsih.contains_key(&tsih) {
            return Err(InheritError::Malformed("the number of a session"));
        }
        if self.by_tsih.len() >= max_table_sessions(self.sharers.into()) {
            return Err(InheritError::TooMany);
        }
        let session = Session::inherit(from, handles, directory, timers, now)?;
        let key = SessionKey { index: self.free_slot(), tsih };
        self.slots[key.index] = Some(Box::new(session));
        self.by_tsih.insert(tsih, key);
        self.last_tsih = self.last_tsih.max(from.tsih);
        self.change_window(key, |_, _| 0);
        Ok(key)
    }
}
