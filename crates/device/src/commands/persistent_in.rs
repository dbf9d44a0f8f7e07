//! PERSISTENT RESERVE IN (SPC-5 6.16), which reports registrations and reservations.

use lunette_scsi::FieldPointer;
use lunette_scsi::persistent::{self, FullStatus};

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::reservations::Reservations;

/// Executes PERSISTENT RESERVE IN, with all its service actions.
pub(crate) async fn persistent_reserve_in(cx: Cx) -> Reply {
    cx.confirm().await?;
    let unit = cx.unit()?;
    let shared = unit.reservations();
    // SPC-2 5.5.3.1: while a RESERVE holds, the command conflicts even for its holder.
    if shared.read(Reservations::is_legacy) {
        return cx.conflict();
    }
    let data = match cx.cdb.service_action().0 {
        0 => shared.read(|all| persistent::read_keys(all.generation(), all.registrations().map(|(_, key, _)| key))),
        1 => shared.read(|all| persistent::read_reservation(all.generation(), all.reservation())),
        2 => {
            let (persistent, active) = (shared.can_persist(), shared.read(Reservations::persists));
            persistent::report_capabilities(!unit.config().shared, persistent, active).to_vec()
        }
        3 => shared.read(full_status),
        _ => return Err(FieldPointer::cdb(1).bit(4).into()),
    };
    cx.reply(&data, usize::from(cx.cdb.u16_at(7))).await
}

fn full_status(all: &Reservations) -> Vec<u8> {
    let registrations = all.registrations().map(|(nexus, key, holds)| FullStatus {
        key,
        holds,
        relative_port: nexus.port.relative,
        initiator: &nexus.initiator,
    });
    persistent::read_full_status(all.generation(), registrations)
}
