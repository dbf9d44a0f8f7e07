//! Recovery within a connection, from recovery level 1 on: responses that were lost (RFC 7143 sections 7.1.4.2, 7.8 and
//! 7.9).
//!
//! A PDU with a damaged data segment is discarded. What was lost shows by its own header, or by the numbers of what
//! comes later, and is asked for by a SNACK. Everything with a status number is dealt with in the order of these
//! numbers, so what lies above sees the same as without losses.

use std::time::Duration;

use lunette_buffer::Payload;
use lunette_pdu::{InitiatorTaskTag, LunField, SerialNumber, SnackRequest, SnackType, TargetPdu, TargetTransferTag};

use super::FullFeature;
use super::control::answers_are_read;
use crate::Time;
use crate::iscsi_initiator::attempts::Attempts;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::iscsi_initiator::event::TaskTag;
use crate::iscsi_initiator::statuses::Statuses;
use crate::iscsi_initiator::turn_context::TurnContext;
use crate::limits::MAX_STATUSES_AHEAD;

/// The knowledge of a connection about losses.
#[derive(Default)]
pub(super) struct Recovery {
    pub(super) statuses: Statuses<Held>,
    /// Commands that lack data, and when it was asked for.
    lacking: Vec<(TaskTag, Attempts)>,
}

impl Recovery {
    /// Data of the command was asked for.
    pub(super) fn note_lacking(&mut self, tag: TaskTag, now: Time) {
        if self.attempts_for(tag).is_none() {
            self.lacking.push((tag, Attempts::begin(now)));
        }
    }

    pub(super) fn attempts_for(&mut self, tag: TaskTag) -> Option<&mut Attempts> {
        self.lacking.iter_mut().find(|(known, _)| *known == tag).map(|(_, attempts)| attempts)
    }

    /// Some of it has come.
    pub(super) fn found(&mut self, tag: TaskTag, lacks_more: bool, now: Time) {
        if !lacks_more {
            self.forget(tag);
        } else if let Some(attempts) = self.attempts_for(tag) {
            *attempts = Attempts::begin(now);
        }
    }

    pub(super) fn forget(&mut self, tag: TaskTag) {
        self.lacking.retain(|(known, _)| *known != tag);
    }

    /// The commands whose data has not come in time.
    pub(super) fn overdue(&self, now: Time, patience: Duration) -> Vec<TaskTag> {
        self.lacking.iter().filter(|(_, attempts)| attempts.due(patience) <= now).map(|(tag, _)| *tag).collect()
    }

    fn next_timeout(&self, patience: Duration) -> Option<Time> {
        let data = self.lacking.iter().map(|(_, attempts)| attempts.due(patience)).min();
        data.into_iter().chain(self.statuses.next_timeout(patience)).min()
    }
}

/// A PDU that waits for its turn.
pub(super) struct Held {
    pdu: TargetPdu,
    segment: Box<[u8]>,
    /// Only its number waits.
    dealt_with: bool,
}

/// The status number of a PDU.
enum Number {
    /// The PDU has this number.
    Own(SerialNumber),
    /// The next PDU that has one will have this.
    Next(SerialNumber),
    Nothing,
}

fn number(pdu: &TargetPdu) -> Number {
    match pdu {
        TargetPdu::ScsiResponse(pdu) => Number::Own(pdu.stat_sn),
        TargetPdu::TaskManagementResponse(pdu) => Number::Own(pdu.stat_sn),
        TargetPdu::TextResponse(pdu) => Number::Own(pdu.stat_sn),
        TargetPdu::LogoutResponse(pdu) => Number::Own(pdu.stat_sn),
        TargetPdu::AsyncMessage(pdu) => Number::Own(pdu.stat_sn),
        TargetPdu::Reject(pdu) => Number::Own(pdu.stat_sn),
        TargetPdu::NopIn(pdu) if pdu.itt.is_reserved() => Number::Next(pdu.stat_sn),
        TargetPdu::NopIn(pdu) => Number::Own(pdu.stat_sn),
        TargetPdu::R2t(pdu) => Number::Next(pdu.stat_sn),
        TargetPdu::DataIn(pdu) => pdu.status.map_or(Number::Nothing, |status| Number::Own(status.stat_sn)),
        TargetPdu::LoginResponse(_) => Number::Nothing,
    }
}

impl FullFeature {
    /// A PDU has come undamaged, with its data segment.
    pub(super) fn arrived(
        &mut self,
        pdu: &TargetPdu,
        segment: &[u8],
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        let stat_sn = match number(pdu) {
            Number::Own(stat_sn) => stat_sn,
            Number::Next(next) => {
                let known = place(next, context)?.unwrap_or(0);
                self.learn_statuses(known, context)?;
                return self.deal_with(pdu, segment, context);
            }
            Number::Nothing => return self.deal_with(pdu, segment, context),
        };
        // What comes twice is discarded.
        let Some(place) = place(stat_sn, context)? else { return Ok(()) };
        let whole = self.is_whole(pdu, context)?;
        if place == 0 && whole && self.recovery().statuses.is_empty() {
            return self.deal_with(pdu, segment, context);
        }
        if self.recovery().statuses.is_here(place) {
            return Ok(());
        }
        self.learn_statuses(place, context)?;
        if let TargetPdu::LogoutResponse(_) = pdu
            && self.logging_out
        {
            // Nothing comes after it: what was lost is lost.
            context.sender.skip_to(stat_sn);
            return self.deal_with(pdu, segment, context);
        }
        // A Reject may be what those before it wait for: only its number has to wait.
        let early = matches!(pdu, TargetPdu::Reject(_));
        let kept = if early { &[] } else { segment };
        let statuses = &mut self.recovery().statuses;
        statuses.learn(place + 1, context.now);
        statuses.put(place, Held { pdu: *pdu, segment: kept.into(), dealt_with: early }, kept.len());
        if let TargetPdu::Reject(reject) = pdu {
            context.shared.window.update(reject.exp_cmd_sn, reject.max_cmd_sn)?;
            self.rejected(reject, segment, context)?;
        }
        self.deal_with_waiting(context)
    }

    /// A PDU has come whose data digest is wrong. Its header says what is to be asked for.
    pub(in crate::iscsi_initiator) fn damaged(
        &mut self,
        pdu: &TargetPdu,
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        let Number::Own(stat_sn) = number(pdu) else { return Ok(()) };
        let Some(place) = place(stat_sn, context)? else { return Ok(()) };
        if self.recovery().statuses.damaged(place, context.now)? {
            return self.ask_for_statuses(place, 1, context);
        }
        self.learn_statuses(place + 1, context)
    }

    /// All status numbers before this place have been sent. Asks for those that were not known of.
    fn learn_statuses(&mut self, end: usize, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
        let lost = self.recovery().statuses.learn(end, context.now);
        if lost.is_empty() { Ok(()) } else { self.ask_for_statuses(lost.start, lost.len(), context) }
    }

    /// Status SNACK (RFC 7143 section 11.16). After a logout nothing more may be asked for (section 11.14).
    fn ask_for_statuses(
        &mut self,
        place: usize,
        len: usize,
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        if self.logging_out || context.shared.logging_out {
            return Ok(());
        }
        answers_are_read(context)?;
        context.shared.recoveries.status_snacks += 1;
        let exp_stat_sn = context.sender.exp_stat_sn();
        let pdu = SnackRequest {
            snack_type: SnackType::STATUS,
            lun: LunField::default(),
            itt: InitiatorTaskTag::RESERVED,
            ttt: TargetTransferTag::RESERVED,
            exp_stat_sn,
            beg_run: exp_stat_sn.add(place as u32).0,
            run_length: len as u32,
        };
        context.sender.outbox.push(pdu.emit(), Payload::Empty);
        Ok(())
    }

    /// Deals with what waits, as far as it is complete.
    pub(super) fn deal_with_waiting(&mut self, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
        while let Some(first) = self.recovery().statuses.first().map(|held| held.pdu) {
            if !self.is_whole(&first, context)? {
                return Ok(());
            }
            let Some(held) = self.recovery().statuses.take_first() else { return Ok(()) };
            match number(&held.pdu) {
                Number::Own(stat_sn) if held.dealt_with || has_ended(&held.pdu, context) => {
                    context.sender.status(stat_sn)?;
                }
                _ => self.deal_with(&held.pdu, &held.segment, context)?,
            }
        }
        Ok(())
    }

    /// The PDU with this status number was asked for otherwise.
    pub(super) fn will_come(
        &mut self,
        stat_sn: SerialNumber,
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        let Some(place) = place(stat_sn, context)? else { return Ok(()) };
        self.learn_statuses(place, context)?;
        self.recovery().statuses.learn(place + 1, context.now);
        Ok(())
    }

    /// A SNACK was refused. That matters while something that it asked for is missing: nothing else brings it.
    pub(super) fn snack_rejected(
        &mut self,
        refused: &SnackRequest,
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        match refused.snack_type {
            SnackType::STATUS => {}
            SnackType::DATA_R2T => return self.data_snack_rejected(refused, context),
            // An acknowledgement: there is nothing to wait for.
            _ => return Ok(()),
        }
        let due = context.sender.exp_stat_sn();
        let first = SerialNumber(refused.beg_run);
        let place_of = |stat_sn: SerialNumber| usize::try_from(stat_sn.distance_from(due)).unwrap_or(0);
        let places = place_of(first)..place_of(first.add(refused.run_length));
        if places.start < places.end && self.recovery().statuses.lacks(places) {
            return Err(SessionError::Unrecovered("a response"));
        }
        Ok(())
    }

    /// Whether PDUs may be lost without an end of the connection.
    pub(in crate::iscsi_initiator) fn recovers(&self) -> bool {
        self.recovery.is_some()
    }

    pub(super) fn recovery(&mut self) -> &mut Recovery {
        self.recovery.get_or_insert_default()
    }

    /// When what was asked for should have come.
    pub(in crate::iscsi_initiator) fn resend_timeout(&self, patience: Duration) -> Option<Time> {
        self.recovery.as_ref()?.next_timeout(patience)
    }

    /// Asks again for what has not come in time.
    pub(in crate::iscsi_initiator) fn ask_again(
        &mut self,
        heard: Time,
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        let patience = context.shared.config.timers.resend;
        let overdue = self.resend_timeout(patience).is_some_and(|due| due <= context.now);
        if overdue && heard + patience <= context.now {
            // Whether the target is there at all is the first question.
            self.keep_alive(context);
        }
        for run in self.recovery().statuses.overdue(context.now, patience, heard)? {
            self.ask_for_statuses(run.start, run.len(), context)?;
        }
        self.ask_for_data_again(heard, context)?;
        self.repeat_unanswered(heard, context)
    }
}

/// How far a status number lies behind the one that is due. `None` when it was dealt with before.
fn place(stat_sn: SerialNumber, context: &TurnContext<'_>) -> Result<Option<usize>, SessionError> {
    let due = context.sender.exp_stat_sn();
    match usize::try_from(stat_sn.distance_from(due)) {
        Ok(place) if place < MAX_STATUSES_AHEAD => Ok(Some(place)),
        Ok(_) => Err(broken("4.2.2.2", format!("StatSN {stat_sn} is far beyond {due}, which was due"))),
        Err(_) => Ok(None),
    }
}

/// Whether a status has waited until its task was ended otherwise.
fn has_ended(pdu: &TargetPdu, context: &mut TurnContext<'_>) -> bool {
    command(pdu).is_some_and(|tag| context.task(tag).is_none())
}

/// The command that a PDU with a status is for.
fn command(pdu: &TargetPdu) -> Option<TaskTag> {
    match pdu {
        TargetPdu::ScsiResponse(pdu) => Some(TaskTag::from_itt(pdu.itt)),
        TargetPdu::DataIn(pdu) => Some(TaskTag::from_itt(pdu.itt)),
        _ => None,
    }
}
