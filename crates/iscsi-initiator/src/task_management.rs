//! Task management functions, as methods.

use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_scsi::{AdditionalSense, Lun, SenseKey};

use crate::engine::message::{Question, TmfResult};
use crate::{Error, Pending, Session};

/// A unit attention or deferred error that waits at a logical unit (SAM-5 7.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingEvent {
    /// The sense key: UNIT ATTENTION, or that of the deferred error.
    pub key: SenseKey,
    /// The additional sense code.
    pub code: AdditionalSense,
    /// Whether no other one waits; `None` if the logical unit does not say.
    pub is_only_one: Option<bool>,
}

impl PendingEvent {
    /// Decodes the additional response information: UADE DEPTH and SENSE KEY, then the additional sense code.
    fn decode([depth_and_key, asc, ascq]: [u8; 3]) -> Self {
        let is_only_one = match depth_and_key >> 4 & 0b11 {
            0b01 => Some(true),
            0b10 => Some(false),
            _ => None,
        };
        Self { key: SenseKey(depth_and_key & 0x0f), code: AdditionalSense { asc, ascq }, is_only_one }
    }
}

/// Requests that the functions end without an answer end as if their connection was lost: they are sent again or are
/// [`Error::InDoubt`].
///
/// # Errors
///
/// Every function fails with [`Error::TaskManagement`] when the target did not do it; [`Error::NotAgreed`] for
/// functions of RFC 7144 without iSCSIProtocolLevel 2 (see [`Options::offer`](crate::Options::offer));
/// [`Error::Session`] when there is no connection now.
impl Session {
    /// Sends a task management request that names no task. Functions of the target or the nexus ignore `lun`.
    ///
    /// # Errors
    ///
    /// [`Error::NotAgreed`] and [`Error::Session`]; every response of the target is a result.
    pub async fn manage_tasks(&self, function: Function, lun: Lun) -> Result<Answer, Error> {
        Ok(self.managed(function, lun).await?.response)
    }

    /// ABORT TASK SET: ends all tasks of this session on a logical unit.
    ///
    /// # Errors
    ///
    /// The errors of all functions.
    pub async fn abort_task_set(&self, lun: Lun) -> Result<(), Error> {
        self.done(Function::ABORT_TASK_SET, lun).await
    }

    /// CLEAR TASK SET: ends the tasks of all initiators on a logical unit.
    ///
    /// # Errors
    ///
    /// The errors of all functions.
    pub async fn clear_task_set(&self, lun: Lun) -> Result<(), Error> {
        self.done(Function::CLEAR_TASK_SET, lun).await
    }

    /// LOGICAL UNIT RESET: ends all tasks of a logical unit and resets it.
    ///
    /// # Errors
    ///
    /// The errors of all functions.
    pub async fn reset_logical_unit(&self, lun: Lun) -> Result<(), Error> {
        self.done(Function::LOGICAL_UNIT_RESET, lun).await
    }

    /// TARGET WARM RESET: a reset of all logical units of the target.
    ///
    /// # Errors
    ///
    /// The errors of all functions.
    pub async fn reset_target(&self) -> Result<(), Error> {
        self.done(Function::TARGET_WARM_RESET, Lun::ZERO).await
    }

    /// I_T NEXUS RESET: the target ends the session with all its tasks, and forgets what it keeps for this session
    /// alone (SAM-5 7.6, RFC 7144 section 6.3). A new session takes its place. Needs iSCSIProtocolLevel 2.
    ///
    /// # Errors
    ///
    /// The errors of all functions; the answer may be lost with the connection, which is [`Error::Session`] or
    /// [`Error::TimedOut`].
    pub async fn reset_nexus(&self) -> Result<(), Error> {
        self.done(Function::I_T_NEXUS_RESET, Lun::ZERO).await
    }

    /// QUERY TASK SET: whether a logical unit has any task of this session. Needs iSCSIProtocolLevel 2.
    ///
    /// # Errors
    ///
    /// The errors of all functions.
    pub async fn query_task_set(&self, lun: Lun) -> Result<bool, Error> {
        let function = Function::QUERY_TASK_SET;
        Ok(asked(function, self.managed(function, lun).await?)?.is_some())
    }

    /// QUERY ASYNCHRONOUS EVENT: the unit attention or deferred error that waits for this session at a logical unit,
    /// and stays there. Needs iSCSIProtocolLevel 2.
    ///
    /// # Errors
    ///
    /// The errors of all functions.
    pub async fn query_asynchronous_event(&self, lun: Lun) -> Result<Option<PendingEvent>, Error> {
        let function = Function::QUERY_ASYNCHRONOUS_EVENT;
        Ok(asked(function, self.managed(function, lun).await?)?.map(PendingEvent::decode))
    }

    async fn managed(&self, function: Function, lun: Lun) -> Result<TmfResult, Error> {
        self.question(|done| Question::TaskManagement { function, lun, task: None, done }).await
    }

    async fn done(&self, function: Function, lun: Lun) -> Result<(), Error> {
        match self.managed(function, lun).await?.response {
            Answer::FUNCTION_COMPLETE => Ok(()),
            response => Err(Error::TaskManagement { function, response }),
        }
    }
}

impl Pending {
    /// QUERY TASK: whether the target has the task. It has not before it is sent and after it has ended. Needs
    /// iSCSIProtocolLevel 2.
    ///
    /// # Errors
    ///
    /// The errors of the functions of [`Session`].
    pub async fn query(&self) -> Result<bool, Error> {
        let (function, task) = (Function::QUERY_TASK, Some(self.id));
        let question = |done| Question::TaskManagement { function, lun: Lun::ZERO, task, done };
        Ok(asked(function, self.session.question(question).await?)?.is_some())
    }
}

/// Reads the answer to a query function: yes, with the response information, or no.
fn asked(function: Function, answer: TmfResult) -> Result<Option<[u8; 3]>, Error> {
    match answer.response {
        Answer::FUNCTION_SUCCEEDED => Ok(Some(answer.information)),
        Answer::FUNCTION_COMPLETE => Ok(None),
        response => Err(Error::TaskManagement { function, response }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_information_of_an_event_is_read() {
        let code = AdditionalSense::CAPACITY_DATA_CHANGED;
        for (depth, is_only_one) in [(0x00, None), (0x10, Some(true)), (0x20, Some(false)), (0x30, None)] {
            let event = PendingEvent::decode([depth | 0xc0 | 6, code.asc, code.ascq]);
            assert_eq!(event, PendingEvent { key: SenseKey::UNIT_ATTENTION, code, is_only_one });
        }
    }
}
