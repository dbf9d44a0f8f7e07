//! Task management functions, and the tasks that they end.

use lunette_pdu::{
    InitiatorTaskTag, LunField, SerialNumber, TaskManagementFunction, TaskManagementRequest, TaskManagementResponse,
    TaskManagementResponseCode,
};

use crate::iscsi_initiator::error::SessionError;
use crate::iscsi_initiator::event::{Event, TaskTag};
use crate::iscsi_initiator::lost::Answer;
use crate::iscsi_initiator::request::Request;
use crate::iscsi_initiator::shared::Shared;
use crate::iscsi_initiator::task::Task;
use crate::iscsi_initiator::turn_context::TurnContext;
use crate::keys::TaskReporting;

/// Sends a request, ahead of the window. False when it cannot be sent.
pub(in crate::iscsi_initiator) fn manage_tasks(
    user: u64,
    function: TaskManagementFunction,
    lun: LunField,
    referenced: Option<TaskTag>,
    context: &mut TurnContext<'_>,
) -> bool {
    let cmd_sn = context.shared.window.cmd_sn();
    if function >= TaskManagementFunction::QUERY_TASK && !context.shared.agreed.parameters().has_sam5_features() {
        return false;
    }
    let names_one = matches!(function, TaskManagementFunction::ABORT_TASK | TaskManagementFunction::QUERY_TASK);
    let (referenced_task_tag, ref_cmd_sn) = match (names_one, referenced) {
        (false, _) => (InitiatorTaskTag::RESERVED, SerialNumber(0)),
        (true, None) => return false,
        (true, Some(tag)) => {
            let Some(task) = context.shared.tasks.get(tag) else {
                // It has ended in the meantime.
                let response = answer_of_none(function);
                context.events.push_back(Event::TaskManagementDone { user, response, information: [0; 3] });
                return true;
            };
            (tag.itt(), task.cmd_sn)
        }
    };
    if !context.shared.takes_requests() {
        return false;
    }
    let order = context.shared.next_order();
    let may_be_lost = function == TaskManagementFunction::QUERY_TASK
        && context.shared.agreed.parameters().error_recovery_level > 0
        && !context.shared.window.is_acknowledged(ref_cmd_sn);
    let request = Request::TaskManagement { user, function, lun, referenced, order, may_be_lost };
    let Some(tag) = context.add_request(request) else { return false };
    let pdu = TaskManagementRequest {
        immediate: true,
        function,
        lun,
        itt: tag.itt(),
        referenced_task_tag,
        cmd_sn,
        exp_stat_sn: context.sender.exp_stat_sn(),
        ref_cmd_sn,
        exp_data_sn: 0,
    };
    context.send_request(tag, pdu.emit(), Vec::new());
    mute(context);
    true
}

/// The answer of a target to a function for a task that it does not have.
fn answer_of_none(function: TaskManagementFunction) -> TaskManagementResponseCode {
    match function {
        TaskManagementFunction::QUERY_TASK => TaskManagementResponseCode::FUNCTION_COMPLETE,
        _ => TaskManagementResponseCode::TASK_DOES_NOT_EXIST,
    }
}

/// The scope of a function that ends many tasks.
enum Scope {
    Unit,
    All,
}

fn scope(function: TaskManagementFunction) -> Option<Scope> {
    match function {
        TaskManagementFunction::ABORT_TASK_SET
        | TaskManagementFunction::CLEAR_TASK_SET
        | TaskManagementFunction::LOGICAL_UNIT_RESET => Some(Scope::Unit),
        TaskManagementFunction::TARGET_WARM_RESET
        | TaskManagementFunction::TARGET_COLD_RESET
        | TaskManagementFunction::I_T_NEXUS_RESET => Some(Scope::All),
        _ => None,
    }
}

/// Whether a request concerns a task that was submitted before it.
fn covers(request: &Request, task: &Task) -> bool {
    let Request::TaskManagement { function, lun, order, .. } = request else { return false };
    let is_in_scope = match scope(*function) {
        Some(Scope::Unit) => task.command.lun == *lun,
        Some(Scope::All) => true,
        None => false,
    };
    is_in_scope && task.order < *order
}

/// RFC 7143 section 4.2.3.4: with FastAbort no more data of the tasks concerned goes over the issuing connection. When
/// a request is refused, what only it has held back follows.
fn mute(context: &mut TurnContext<'_>) {
    if context.shared.agreed.parameters().task_reporting != TaskReporting::FastAbort {
        return;
    }
    let cid = context.cid;
    let requests = context.shared.requests.iter().map(|(_, underway)| underway).filter(|underway| underway.cid == cid);
    let requests: Vec<&Request> = requests.map(|underway| &underway.request).collect();
    let is_muted = |task: &Task| requests.iter().any(|request| covers(request, task));
    let turned = context.shared.tasks_where(|task| task.cid == cid && task.is_muted() != is_muted(task));
    for tag in turned {
        if let Some(task) = context.shared.tasks.get_mut(tag) {
            task.set_muted(!task.is_muted());
        }
    }
    context.sender.resume_data(&context.shared.tasks);
}

pub(super) fn task_management_response(
    pdu: &TaskManagementResponse,
    context: &mut TurnContext<'_>,
) -> Result<(), SessionError> {
    let tag = TaskTag::from_itt(pdu.itt);
    context.status(pdu.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
    let is_kind = |request: &Request| matches!(request, Request::TaskManagement { .. } | Request::Reassign { .. });
    let Some(request) = context.take_request(tag, "Task Management Function Response", is_kind)? else { return Ok(()) };
    match request {
        Request::TaskManagement { user, function, lun, referenced, order, may_be_lost } => {
            end_tasks(pdu.response, function, lun, referenced, order, context);
            // RFC 7144 section 6.3.3: it counts as received now, and is never answered.
            if may_be_lost
                && pdu.response == TaskManagementResponseCode::FUNCTION_COMPLETE
                && let Some(task) = referenced.and_then(|tag| context.shared.tasks.get_mut(tag))
            {
                task.set_unknown();
            }
            request_ended(context);
            let information = if context.shared.agreed.parameters().has_sam5_features() {
                pdu.additional_response_information
            } else {
                [0; 3]
            };
            context.events.push_back(Event::TaskManagementDone { user, response: pdu.response, information });
        }
        Request::Reassign { task, .. } => context.answered(Answer::Reassigned { task, response: pdu.response }),
        _ => {}
    }
    Ok(())
}

/// A task management request has ended: what only it has held up goes on.
pub(super) fn request_ended(context: &mut TurnContext<'_>) {
    give_back_unknown(context);
    mute(context);
}

/// Ends the commands that the target has said not to know, but for those that it may have aborted: it may still work on
/// them until it has answered the abort.
fn give_back_unknown(context: &mut TurnContext<'_>) {
    let Shared { tasks, requests, .. } = &context.shared;
    let unknown = tasks.iter().filter(|(_, task)| task.is_unknown());
    let may_end = |tag: TaskTag, task: &Task| {
        requests.iter().any(|(_, underway)| names_for_abort(&underway.request, tag) || covers(&underway.request, task))
    };
    let lost: Vec<TaskTag> = unknown.filter(|(tag, task)| !may_end(*tag, task)).map(|(tag, _)| tag).collect();
    context.give_back(&lost);
}

fn names_for_abort(request: &Request, tag: TaskTag) -> bool {
    matches!(request, Request::TaskManagement { function: TaskManagementFunction::ABORT_TASK, referenced, .. }
        if *referenced == Some(tag))
}

/// RFC 7143 section 4.2.3: what was submitted before the request and is not answered by now has ended with it.
fn end_tasks(
    response: TaskManagementResponseCode,
    function: TaskManagementFunction,
    lun: LunField,
    referenced: Option<TaskTag>,
    order: u64,
    context: &mut TurnContext<'_>,
) {
    let complete = response == TaskManagementResponseCode::FUNCTION_COMPLETE;
    match function {
        // A task that the target does not know will never be answered: its response would have come before this one.
        TaskManagementFunction::ABORT_TASK
            if complete || response == TaskManagementResponseCode::TASK_DOES_NOT_EXIST =>
        {
            context.give_back(referenced.as_slice());
        }
        _ if complete => match scope(function) {
            Some(Scope::Unit) => context.give_back_unit(lun, order),
            Some(Scope::All) => {
                let tasks = context.shared.tasks_ended_by_others(|task| task.order < order);
                context.give_back(&tasks);
            }
            None => {}
        },
        _ => {}
    }
}
