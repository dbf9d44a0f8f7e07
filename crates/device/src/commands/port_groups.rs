//! REPORT TARGET PORT GROUPS and SET TARGET PORT GROUPS (SPC-4 6.37, 6.45).

use std::sync::Arc;

use lunette_gateway::{Answer, Request};
use lunette_scsi::port_groups::{self, SET_DESCRIPTOR_LEN, SET_HEADER_LEN, SetDescriptor};
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData};

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::limits::MAX_PORT_GROUPS;

/// Length in bytes of the longest parameter list, with every group once.
const MAX_LIST_LEN: usize = SET_HEADER_LEN + MAX_PORT_GROUPS * SET_DESCRIPTOR_LEN;

/// Executes REPORT TARGET PORT GROUPS, in both parameter data formats.
pub(crate) async fn report_target_port_groups(cx: Cx) -> Reply {
    let (groups, transition_time_s) = cx.device.port_groups(cx.itl()?.unit_lun);
    let data = match cx.cdb.byte(1) >> 5 {
        0 => port_groups::report(&groups, None),
        1 => port_groups::report(&groups, Some(transition_time_s)),
        _ => return Err(FieldPointer::cdb(1).bit(7).into()),
    };
    cx.reply(&data, cx.cdb.u32_at(6) as usize).await
}

/// Moves a unit that several servers offer. SPC-4 6.45 leaves open whether the command ends before the transition does;
/// it ends when the unit has moved, so its status tells.
async fn move_unit(cx: &Cx, set: &[SetDescriptor]) -> Reply {
    let Some(to) = cx.device.select_owner(cx.itl()?.unit_lun, set)? else { return Ok(None) };
    match cx.ask_gateway(Request::Move { to }).await? {
        Answer::Done => Ok(None),
        _ => Err(SenseData::hardware_error(AdditionalSense::SET_TARGET_PORT_GROUPS_FAILED)),
    }
}

/// Executes SET TARGET PORT GROUPS: all changes of the list, or none. A transition is a single indivisible event, which
/// is over when the command ends.
pub(crate) async fn set_target_port_groups(cx: Cx) -> Reply {
    let list_len = cx.cdb.u32_at(6);
    if list_len == 0 {
        return Ok(None);
    }
    let whole = (list_len as usize).checked_sub(SET_HEADER_LEN).is_some_and(|len| len % SET_DESCRIPTOR_LEN == 0);
    if !whole || list_len as usize > MAX_LIST_LEN {
        return Err(FieldPointer::cdb(6).into());
    }
    if list_len > cx.data_out_len {
        return Err(SenseData::PARAMETER_LIST_LENGTH_ERROR);
    }
    let list = cx.data_out(u64::from(list_len), 1).await?.ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let set = port_groups::parse_set(&list)?;
    drop(list);
    if cx.unit()?.config().shared {
        return move_unit(&cx, &set).await;
    }
    let (device, by, lun) = (Arc::clone(&cx.device), Arc::clone(&cx.nexus.it_nexus), cx.itl()?.unit_lun);
    let done = cx.persist(move || device.set_port_groups(&by, lun, &set)).await;
    done.map_err(|_| SenseData::hardware_error(AdditionalSense::SET_TARGET_PORT_GROUPS_FAILED))??;
    Ok(None)
}
