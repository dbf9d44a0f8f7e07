//! Commands that a disk answers with a few bytes.

use lunette_scsi::Lun;

use crate::error::Error;
use crate::request::{Outcome, Repeat, Request};
use crate::session::{Pending, Session};

/// Sends a command that answers with at most `len` bytes.
pub(crate) async fn ask(session: &Session, lun: Lun, cdb: [u8; 16], len: usize) -> Result<Vec<u8>, Error> {
    Query::send(session, lun, cdb, len)?.answer().await
}

/// A command that is on its way. Several may be at one time, so that a distance is waited for once.
pub(crate) struct Query(Pending);

impl Query {
    /// Sends a command that answers with at most `len` bytes.
    pub(crate) fn send(session: &Session, lun: Lun, cdb: [u8; 16], len: usize) -> Result<Self, Error> {
        let data_in = if len > 0 { Some(session.buffer(len)?) } else { None };
        let request = Request { data_in, repeat: Repeat::Always, ..Request::new(lun, cdb) };
        Ok(Self(session.execute(request)))
    }

    /// The bytes of its answer.
    pub(crate) async fn answer(self) -> Result<Vec<u8>, Error> {
        let outcome: Outcome = self.0.await;
        Ok(outcome.into_data()?.map(|data| data.to_vec()).unwrap_or_default())
    }
}
