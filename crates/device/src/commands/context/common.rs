//! The questions of commands to the gateway of a shared unit.

use std::sync::Arc;

use lunette_gateway::{Answer, Request};
use lunette_scsi::{AdditionalSense, SenseData};

use super::Cx;
use crate::gateway::Question;
use crate::wait::Waitable;

/// The sense data of a command of which the gateway does not know whether it has taken effect, or that it could not ask
/// others about. It is no RESERVATION CONFLICT, from which an initiator would conclude that it has lost its
/// registration. Sent again, a command that has taken effect may be refused.
pub(crate) const UNKNOWN_OUTCOME: SenseData =
    SenseData::aborted_command(AdditionalSense::LOGICAL_UNIT_COMMUNICATION_FAILURE);

impl Cx {
    /// Lets this server find everything that any server of the unit has answered before. On a unit of one server there
    /// is nothing to do.
    pub(crate) async fn confirm(&self) -> Result<(), SenseData> {
        if !self.unit()?.config().shared {
            return Ok(());
        }
        match self.ask_gateway(Request::Confirm).await? {
            Answer::Done => Ok(()),
            Answer::Changed | Answer::TooLong | Answer::Refused => Err(UNKNOWN_OUTCOME),
        }
    }

    /// Asks the gateway of the unit for something, and waits for the answer.
    pub(crate) async fn ask_gateway(&self, request: Request) -> Result<Answer, SenseData> {
        let question = Arc::new(Question::new(self.unit()?.gateway(), request));
        self.wait(Arc::clone(&question) as Arc<dyn Waitable>).await?;
        Ok(question.answer())
    }
}
