//! Commands that end with a status.

use lunette_pdu::{Cid, DataInStatus, ScsiResponse, ScsiResponseCode, sense};

use super::error::{SessionError, broken};
use super::event::{Command, Event, Response, TaskTag};
use super::shared::Shared;
use super::turn_context::TurnContext;

/// A command whose status is right. Its task is there until its end is told.
pub(super) struct Ended {
    tag: TaskTag,
    response: Response,
}

impl Ended {
    /// Has `told` take the memory out of the command where it is, for commands are large to be moved; then the task is
    /// gone.
    #[expect(clippy::inline_always, reason = "it is the end of each command, and a call would cost a quarter of it")]
    #[inline(always)]
    pub(super) fn tell<R>(
        mut self,
        shared: &mut Shared,
        told: impl FnOnce(&mut Command, &mut Response) -> R,
    ) -> Option<R> {
        shared.end_task(self.tag, |command| told(command, &mut self.response))
    }
}

/// The data of a Data-In that carried the status is here. Gives the end of its command.
#[inline]
pub(super) fn data_in_ended(
    tag: TaskTag,
    status: DataInStatus,
    context: &TurnContext<'_>,
) -> Result<Option<Ended>, SessionError> {
    let Some(task) = context.shared.tasks.get(tag) else { return Ok(None) };
    let response = task.end_with_data(status.status, status.residual)?;
    Ok(Some(Ended { tag, response }))
}

/// Gives the end of a command that ends with a SCSI Response.
#[inline]
pub(super) fn scsi_response(
    cid: Cid,
    pdu: &ScsiResponse,
    segment: &[u8],
    context: &mut TurnContext<'_>,
) -> Result<Option<Ended>, SessionError> {
    context.status(pdu.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
    let tag = TaskTag::from_itt(pdu.itt);
    let Some(task) = context.shared.tasks.get(tag).filter(|task| task.cid == cid) else {
        if context.shared.is_withdrawn(cid, tag) {
            return Ok(None);
        }
        return Err(broken("11.2.1.8", format!("SCSI Response for tag {}, which names no command here", pdu.itt)));
    };
    let sense = if pdu.response == ScsiResponseCode::COMMAND_COMPLETED {
        sense::split_sense(segment).map_err(|error| broken("11.4.7.1", error.to_string()))?.0
    } else {
        &[]
    };
    let response = task.end(pdu, sense)?;
    Ok(Some(Ended { tag, response }))
}

impl TurnContext<'_> {
    /// Tells of the end of a command, in its turn among other events.
    pub(super) fn end(&mut self, ended: Option<Ended>) {
        if let Some(ended) = ended {
            self.events.extend(ended.tell(self.shared, Event::completed));
        }
    }
}
