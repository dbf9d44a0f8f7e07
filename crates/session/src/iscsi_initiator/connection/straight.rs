//! The straight way of the PDUs that commands are made of: Data-In, and SCSI Responses without sense data, at recovery
//! level 0.
//!
//! When the header of such a PDU lies whole in what was received, it is read where it lies. The data goes to its place,
//! and the end of the command is told to the caller where the command is: no event is made, and the connection keeps a
//! header only while data of its PDU is to come. All other PDUs, and headers that come in pieces, go the [general
//! way](super::receiving). The rules are the same, for both ways call the same checks: those of the receiver for
//! digests and lengths, those of the full feature phase for all fields.

use std::ops::ControlFlow;

use lunette_pdu::{DataIn, Opcode, ScsiResponse};

use super::receiving::malformed;
use super::{Connection, Phase};
use crate::iscsi_initiator::ended::{data_in_ended, scsi_response};
use crate::iscsi_initiator::error::SessionError;
use crate::iscsi_initiator::event::{Command, Response, TaskTag};
use crate::iscsi_initiator::expect::Expect;
use crate::iscsi_initiator::shared::Shared;
use crate::iscsi_initiator::turn_context::TurnContext;

impl Connection {
    /// Takes PDUs from the front of `input`, up to the first one that has to go the general way. Tells of the commands
    /// that end, until `told` breaks off. Events that have not been told come first.
    #[expect(clippy::inline_always, reason = "it has one caller, and a call would cost a tenth of it")]
    #[inline(always)]
    pub(in crate::iscsi_initiator) fn straight(
        &mut self,
        shared: &mut Shared,
        input: &mut &[u8],
        told: impl FnMut(&mut Command, &mut Response) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !self.events.is_empty() {
            return ControlFlow::Continue(());
        }
        self.take_pdus(shared, input, told).unwrap_or_else(|error| {
            self.close(error);
            ControlFlow::Continue(())
        })
    }

    #[expect(clippy::inline_always, reason = "it has one caller, and a call would cost a tenth of it")]
    #[inline(always)]
    fn take_pdus(
        &mut self,
        shared: &mut Shared,
        input: &mut &[u8],
        mut told: impl FnMut(&mut Command, &mut Response) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, SessionError> {
        let Self { cid, receiver, sender, phase, expect, events, last_received, .. } = self;
        let done = Ok(ControlFlow::Continue(()));
        let Phase::FullFeature(full) = phase else { return done };
        if full.recovers() {
            return done;
        }
        let mut context = TurnContext { cid: *cid, shared, sender, events, now: *last_received };
        loop {
            let (itt, status) = if let Expect::Data(DataIn { itt, status, .. }) = *expect {
                let place = expect.place(&mut context.shared.tasks).unwrap_or_default();
                if !receiver.data(input, place)? {
                    return done;
                }
                *expect = Expect::Nothing;
                (itt, status)
            } else {
                let Some(pdu) = receiver.front_pdu(input) else { return done };
                let bhs = pdu.bhs();
                match bhs.opcode() {
                    Opcode::SCSI_DATA_IN => {
                        receiver.take_front(&pdu, input)?;
                        let header = DataIn::parse(bhs).map_err(malformed)?;
                        let place = full.data_in(&header, &mut context)?;
                        if !pdu.is_whole() {
                            *expect = if place.is_some() { Expect::Data(header) } else { Expect::Nothing };
                            continue;
                        }
                        receiver.whole_data(&pdu, place.unwrap_or_default())?;
                        (header.itt, header.status)
                    }
                    Opcode::SCSI_RESPONSE if bhs.data_segment_len() == 0 => {
                        receiver.take_front(&pdu, input)?;
                        let header = ScsiResponse::parse(bhs).map_err(malformed)?;
                        if let Some(ended) = scsi_response(*cid, &header, &[], &mut context)?
                            && let Some(ControlFlow::Break(())) = ended.tell(context.shared, &mut told)
                        {
                            return Ok(ControlFlow::Break(()));
                        }
                        continue;
                    }
                    _ => return done,
                }
            };
            if let Some(status) = status
                && let Some(ended) = data_in_ended(TaskTag::from_itt(itt), status, &context)?
                && let Some(ControlFlow::Break(())) = ended.tell(context.shared, &mut told)
            {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
}
