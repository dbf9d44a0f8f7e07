//! PERSISTENT RESERVE OUT (SPC-5 6.17), which changes registrations and reservations.

use std::sync::Arc;

use lunette_gateway::{Answer, Request};
use lunette_scsi::persistent::{BASIC_LIST_LEN, RegisterAndMoveList, ReservationType, ReserveOutList};
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData};
use lunette_state::StateError;

use crate::commands::context::common::UNKNOWN_OUTCOME;
use crate::commands::context::{Cx, INTERNAL_FAILURE, not_saved};
use crate::coroutine::Reply;
use crate::coroutine::background::BackgroundCx;
use crate::limits::MAX_RESERVE_LIST_BYTES;
use crate::nexus::{ItNexus, TargetPort};
use crate::preemption;
use crate::reservations::shared::Decision;
use crate::reservations::{Refusal, ReservationChange, ReservationRequest, common};
use crate::unit::LogicalUnit;

const REGISTER: u16 = 0;
const RESERVE: u16 = 1;
const RELEASE: u16 = 2;
const CLEAR: u16 = 3;
const PREEMPT: u16 = 4;
const PREEMPT_AND_ABORT: u16 = 5;
const REGISTER_AND_IGNORE_EXISTING_KEY: u16 = 6;
const REGISTER_AND_MOVE: u16 = 7;

const SPEC_I_PT_FIELD: FieldPointer = FieldPointer::data(20).bit(3);
const APTPL_FIELD: FieldPointer = FieldPointer::data(20).bit(0);
const MOVE_APTPL_FIELD: FieldPointer = FieldPointer::data(17).bit(0);
const RELATIVE_PORT_FIELD: FieldPointer = FieldPointer::data(18);

/// Executes PERSISTENT RESERVE OUT, with all its service actions.
pub(crate) async fn persistent_reserve_out(cx: Cx) -> Reply {
    let unit = Arc::clone(cx.unit()?);
    let list_len = cx.cdb.u32_at(5);
    if list_len < BASIC_LIST_LEN as u32 || list_len > MAX_RESERVE_LIST_BYTES || list_len > cx.data_out_len {
        return Err(SenseData::PARAMETER_LIST_LENGTH_ERROR);
    }
    let list = cx.data_out(u64::from(list_len), 1).await?.ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let request = request(&cx, &list)?;
    drop(list);
    let done = if unit.config().shared {
        execute_in_common(&cx, &unit, &request).await
    } else {
        execute(&cx, &unit, request).await
    };
    match done {
        Ok(()) => Ok(None),
        Err(Refusal::Conflict) => cx.conflict(),
        Err(Refusal::Check(sense)) => Err(sense),
    }
}

/// Executes a request on a unit of this server alone.
async fn execute(cx: &Cx, unit: &Arc<LogicalUnit>, request: ReservationRequest) -> Result<(), Refusal> {
    let (unit, by) = (Arc::clone(unit), Arc::clone(&cx.nexus.it_nexus));
    if aborts(cx) && cx.may_save()? {
        return preempt_and_abort(cx, unit, by, request).await;
    }
    let change = cx.persist(move || carry_out(&unit, &by, &request)).await??;
    if aborts(cx) {
        abort_tasks(cx, &change.preempted).await?;
    }
    Ok(())
}

/// Executes PREEMPT AND ABORT where the change may have to be saved. Preempted nexuses lose their tasks even when the
/// command is aborted meanwhile.
async fn preempt_and_abort(
    cx: &Cx,
    unit: Arc<LogicalUnit>,
    by: Arc<ItNexus>,
    request: ReservationRequest,
) -> Result<(), Refusal> {
    let row = cx.row;
    let preempt = async move |cx: BackgroundCx| {
        let (on, own) = (Arc::clone(&unit), Arc::clone(&by));
        let change = cx.persist(move || carry_out(&on, &own, &request)).await;
        let (own, others): (Vec<_>, Vec<_>) =
            change.map_err(|error| not_saved(row, &error))??.preempted.into_iter().partition(|nexus| *nexus == by);
        preemption::abort(&cx, &unit, &others).await.map_err(|_| INTERNAL_FAILURE)?;
        Ok::<_, Refusal>(own)
    };
    let own = cx.run_to_end(preempt).await??;
    // The other tasks of its own nexus, or none. Asking tells the transport that the command has ended tasks.
    Ok(abort_tasks(cx, &own).await?)
}

/// Makes the change of a request of `by`, and raises its unit attentions.
fn carry_out(
    unit: &LogicalUnit,
    by: &Arc<ItNexus>,
    request: &ReservationRequest,
) -> Result<Result<ReservationChange, Refusal>, StateError> {
    let done = unit.reservations().execute(by, request)?;
    for (nexus, code) in done.iter().flat_map(|change| &change.attentions) {
        unit.raise_for(nexus, *code);
    }
    Ok(done)
}

/// Executes a request on a unit that several servers offer. All of them know the change when it ends; its unit
/// attentions, and the end of the tasks of other nexuses, come with what their gateways publish.
async fn execute_in_common(cx: &Cx, unit: &LogicalUnit, request: &ReservationRequest) -> Result<(), Refusal> {
    let own = &cx.nexus.it_nexus;
    loop {
        cx.confirm().await?;
        let Decision { base, change, entry } = unit.reservations().decide(own, request, aborts(cx))?;
        if entry.is_none() {
            return Ok(());
        }
        match cx.ask_gateway(Request::Update { base, name: common::NAME.into(), entry }).await? {
            Answer::Done if aborts(cx) && change.preempted.contains(own) => {
                return Ok(abort_tasks(cx, std::slice::from_ref(own)).await?);
            }
            Answer::Done => return Ok(()),
            // Another server was first.
            Answer::Changed => {}
            Answer::TooLong => {
                return Err(SenseData::illegal_request(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES).into());
            }
            Answer::Refused => return Err(UNKNOWN_OUTCOME.into()),
        }
    }
}

/// Whether the command ends the tasks of preempted nexuses.
fn aborts(cx: &Cx) -> bool {
    cx.cdb.service_action().0 == PREEMPT_AND_ABORT
}

/// Parses the parameter list according to the service action.
fn request(cx: &Cx, list: &[u8]) -> Result<ReservationRequest, SenseData> {
    let action = cx.cdb.service_action().0;
    if action == REGISTER_AND_MOVE {
        return move_request(cx, RegisterAndMoveList::parse(list)?);
    }
    let list = ReserveOutList::parse(list)?;
    if list.specifies_initiators && action != REGISTER {
        return Err(SPEC_I_PT_FIELD.into());
    }
    let ReserveOutList { key, action_key, .. } = list;
    Ok(match action {
        REGISTER => register_request(cx, list, Some(key))?,
        REGISTER_AND_IGNORE_EXISTING_KEY => register_request(cx, list, None)?,
        RESERVE => ReservationRequest::Reserve { key, kind: kind(cx)? },
        RELEASE => ReservationRequest::Release { key, kind: kind(cx)? },
        CLEAR => ReservationRequest::Clear { key },
        PREEMPT | PREEMPT_AND_ABORT => ReservationRequest::Preempt { key, victims_key: action_key, kind: kind(cx)? },
        _ => return Err(FieldPointer::cdb(1).bit(4).into()),
    })
}

/// TYPE, with a SCOPE that must be the logical unit. Service actions without a type ignore both fields.
fn kind(cx: &Cx) -> Result<ReservationType, SenseData> {
    const LOGICAL_UNIT: u8 = 0;
    let scope_type = cx.cdb.byte(2);
    if scope_type >> 4 != LOGICAL_UNIT {
        return Err(FieldPointer::cdb(2).bit(7).into());
    }
    ReservationType::decode(scope_type & 0x0f).ok_or(FieldPointer::cdb(2).bit(3).into())
}

fn register_request(cx: &Cx, list: ReserveOutList, key: Option<u64>) -> Result<ReservationRequest, SenseData> {
    if list.persist && !cx.unit()?.reservations().can_persist() {
        return Err(APTPL_FIELD.into());
    }
    let our_port = &cx.nexus.it_nexus.port;
    let mut other_ports = if list.all_target_ports { cx.device.ports() } else { Vec::new() };
    other_ports.retain(|port| port != our_port);
    let on = |port: &TargetPort, initiator: &Arc<str>| {
        Arc::new(ItNexus { initiator: Arc::clone(initiator), port: port.clone() })
    };
    let same = other_ports.iter().map(|port| on(port, &cx.nexus.it_nexus.initiator)).collect();
    let mut others = Vec::new();
    for initiator in list.initiators.into_iter().map(Arc::from) {
        others.push(on(our_port, &initiator));
        others.extend(other_ports.iter().map(|port| on(port, &initiator)));
    }
    Ok(ReservationRequest::Register { key, new_key: list.action_key, same, others, persist: list.persist })
}

fn move_request(cx: &Cx, list: RegisterAndMoveList) -> Result<ReservationRequest, SenseData> {
    if list.persist && !cx.unit()?.reservations().can_persist() {
        return Err(MOVE_APTPL_FIELD.into());
    }
    let RegisterAndMoveList { key, action_key: new_key, unregister, persist, relative_port, initiator } = list;
    let ports = cx.device.ports();
    let port = ports.into_iter().find(|port| port.relative == relative_port).ok_or(RELATIVE_PORT_FIELD)?;
    let to = Arc::new(ItNexus { initiator: initiator.into(), port });
    Ok(ReservationRequest::Move { key, new_key, to, unregister, persist })
}

/// Aborts the tasks of the preempted nexuses, except this command (SPC-5 5.14.11.5).
async fn abort_tasks(cx: &Cx, preempted: &[Arc<ItNexus>]) -> Result<(), SenseData> {
    let itl_nexuses = cx.unit()?.nexuses().attached();
    let preempted = itl_nexuses.iter().filter(|itl| preempted.contains(&itl.it_nexus));
    let lost = cx.abort(preempted.map(|itl| (itl.nexus, itl.lun)).collect()).await?;
    for itl in itl_nexuses.iter().filter(|itl| lost.contains(&itl.nexus) && itl.nexus != cx.nexus.id) {
        itl.unit_attentions.raise(AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR);
    }
    Ok(())
}
