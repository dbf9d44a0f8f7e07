//! Persistent reservations over several paths.
//!
//! A registration belongs to an I_T nexus (SPC-6 5.14.7), and each path is one. So what registers or releases goes over
//! each path that is there, and a path that is made later is registered before it carries anything.

use lunette_scsi::{Lun, OpCode};

use super::check::optional;
use crate::disk::query::ask;
use crate::{Error, Request, Session};

/// Service actions of PERSISTENT RESERVE OUT (SPC-6 6.16.2).
const REGISTER: u8 = 0x00;
const RELEASE: u8 = 0x02;
const REGISTER_AND_IGNORE_EXISTING_KEY: u8 = 0x06;

/// Bytes of the parameter list without TransportIDs.
const LIST_LEN: usize = 24;

/// APTPL, in byte 20 of the parameter list.
const APTPL: u8 = 0x01;

/// The longest READ KEYS data that is asked for, in bytes: 1023 keys.
const KEYS_LEN: u16 = 8192;

/// The registration of the nexuses of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Registration {
    /// Zero when they are not.
    key: [u8; 8],
    /// Whether it survives a power loss.
    persists: bool,
}

fn action(request: &Request) -> Option<u8> {
    (OpCode(request.cdb[0]) == OpCode::PERSISTENT_RESERVE_OUT).then_some(request.cdb[1] & 0x1f)
}

/// Whether a command concerns the nexus by which it comes.
pub(super) fn is_for_each_path(request: &Request) -> bool {
    matches!(action(request), Some(REGISTER | RELEASE | REGISTER_AND_IGNORE_EXISTING_KEY))
}

/// The registration that a command leaves when it ends well; `None` for one that changes none.
pub(super) fn registration(request: &Request) -> Option<Registration> {
    if !matches!(action(request), Some(REGISTER | REGISTER_AND_IGNORE_EXISTING_KEY)) {
        return None;
    }
    let list = request.data_out.as_deref()?.first_chunk::<LIST_LEN>()?;
    let [_, key, _] = list.as_chunks::<8>().0 else { return None };
    Some(Registration { key: *key, persists: list[20] & APTPL != 0 })
}

impl Registration {
    /// Registers the nexus of a path that was made again, unless the disk knows the key of none of our nexuses any
    /// more: another initiator has shut us out, and that must stay so.
    pub(super) async fn restore(self, session: &Session, lun: Lun) -> Result<(), Error> {
        if self.key == [0; 8] {
            return Ok(());
        }
        let keys = optional(ask(session, lun, read_keys(), KEYS_LEN.into()).await)?.unwrap_or_default();
        let (keys, _) = keys.get(8..).unwrap_or_default().as_chunks::<8>();
        if !keys.contains(&self.key) {
            return Ok(());
        }
        let mut list = session.buffer(LIST_LEN)?;
        list.fill(0);
        list[8..16].copy_from_slice(&self.key);
        list[20] = if self.persists { APTPL } else { 0 };
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[8]) = (OpCode::PERSISTENT_RESERVE_OUT.0, REGISTER_AND_IGNORE_EXISTING_KEY, LIST_LEN as u8);
        let request = Request::new(lun, cdb).with_data_out(list.share()).with_repeat(crate::Repeat::Always);
        session.execute(request).await.check_whole()
    }
}

/// PERSISTENT RESERVE IN, READ KEYS.
fn read_keys() -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = OpCode::PERSISTENT_RESERVE_IN.0;
    cdb[7..9].copy_from_slice(&KEYS_LEN.to_be_bytes());
    cdb
}
