//! Data-In that is asked for again after our MaxRecvDataSegmentLength has changed (RFC 7143 sections 11.4.4 and 11.16.3).
//!
//! It may have been cut for the former length. So all that was not acknowledged is asked for at once, by an R-Data SNACK, and
//! comes cut anew: the numbers begin again, and a status that was said under the old ones does not count. The new run shows by a
//! number that goes back; what it lacks is asked for as usual. Bytes that come before it are those of the old run, and right:
//! they count.

use std::ops::Range;

use lunette_pdu::{ScsiResponse, ScsiResponseCode};

use super::Task;
use super::recovery::DATA;
use crate::extents::Extents;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::limits::MAX_DAMAGED_RESENDS;

/// How the data of a task is asked for again.
#[derive(Debug, Default)]
pub(super) struct Recut {
    /// Of the last R-Data SNACK on this connection; 0 before the first.
    snack_tag: u32,
    /// The length has changed since then.
    changed: bool,
    /// The new run was asked for and has not begun.
    awaited: bool,
    /// The run has begun more than once, so copies are on their way that nobody has counted. What is asked for before they have
    /// come makes more of them, each of which may look like another beginning.
    unsettled: bool,
    /// The run was asked for once more, as it had been mistaken.
    mistaken: bool,
}

impl Recut {
    /// Whether an R-Data SNACK went out on this connection.
    pub(super) fn was_asked_for(&self) -> bool {
        self.snack_tag > 0
    }
}

impl Task {
    /// Another length holds from now on.
    pub(crate) fn segment_len_changed(&mut self) {
        if self.command.data_in.is_some() {
            self.recut.get_or_insert_default().changed = true;
        }
    }

    /// Whether what is lost is to be asked for by an R-Data SNACK. Of a bidirectional command, R2Ts may be lost too; they are
    /// not when everything was asked for.
    pub(crate) fn needs_cut(&self) -> bool {
        let needs = self.recut.as_ref().is_some_and(|recut| recut.changed || recut.awaited);
        needs && self.granted.missing(0..self.data_out_len()).next().is_none()
    }

    /// Whether the new run was asked for and has not begun.
    pub(crate) fn awaits_cut(&self) -> bool {
        self.recut.as_ref().is_some_and(|recut| recut.awaited)
    }

    /// The tag of the next R-Data SNACK. The data comes from its beginning, or from what was acknowledged on.
    pub(crate) fn cut_anew(&mut self) -> Result<u32, SessionError> {
        let recut = self.recut.get_or_insert_default();
        if recut.snack_tag > MAX_DAMAGED_RESENDS {
            return Err(SessionError::Unrecovered(DATA));
        }
        *recut = Recut { snack_tag: recut.snack_tag + 1, awaited: true, ..Recut::default() };
        let snack_tag = recut.snack_tag;
        // They name the old numbers.
        self.lost().acks.clear();
        self.incoming.comes_again();
        Ok(snack_tag)
    }

    /// Whether an R-Data SNACK with that tag was the last one.
    pub(crate) fn last_cut_was(&self, snack_tag: u32) -> bool {
        self.recut.as_ref().is_some_and(|recut| recut.snack_tag == snack_tag)
    }

    /// Whether a status is the last one of the command: that with the tag of the last R-Data SNACK. `None`: it came with data.
    pub(crate) fn is_last_status(&self, snack_tag: Option<u32>) -> bool {
        let refused = self.lost.as_ref().is_some_and(|lost| lost.refused);
        let Some(recut) = self.recut.as_ref().filter(|recut| recut.was_asked_for() && !refused) else { return true };
        snack_tag == Some(recut.snack_tag)
    }

    /// A Data-In with this number has come, maybe damaged. Gives what [`number_came`](Self::number_came) does.
    pub(crate) fn data_number_came(&mut self, number: u32) -> Result<Option<Range<u32>>, SessionError> {
        let Some(recut) = self.recut.as_ref().filter(|recut| recut.was_asked_for()) else {
            return self.number_came(number);
        };
        if number < self.next_sn && (recut.awaited || !self.is_lost(number)) {
            self.begin_run(number);
        } else if recut.awaited {
            // Of the old run: gaps in it do not matter any more.
            self.next_sn = number.checked_add(1).ok_or_else(|| broken("4.2.2.4", "2^32 PDUs for one task"))?;
            return Ok(Some(number..number));
        }
        self.number_came(number)
    }

    /// The numbers have gone back: what is cut anew begins. It may do so twice, when data comes that was asked for before.
    fn begin_run(&mut self, number: u32) {
        self.next_sn = self.resend_from.min(number);
        self.lost().numbers = Extents::default();
        if let Some(recut) = &mut self.recut {
            recut.unsettled = !std::mem::take(&mut recut.awaited);
        }
    }

    /// The status is here, and bytes are missing though no number is: a copy of the old run was taken for the beginning of the new
    /// one, and what has the same number there was lost. Gives the whole run, which is lost now; not twice, for the target may be
    /// wrong.
    pub(crate) fn mistaken_run(&mut self, pdu: &ScsiResponse) -> Result<Option<Range<u32>>, SessionError> {
        let may_be = self.recut.as_ref().is_some_and(|recut| recut.was_asked_for() && !recut.mistaken);
        if !may_be || pdu.response != ScsiResponseCode::COMMAND_COMPLETED {
            return Ok(None);
        }
        let run = self.resend_from..self.next_sn;
        let refused = self.lost.as_ref().is_some_and(|lost| lost.refused);
        let is_right = self.check_moved(pdu.status, pdu.residual, pdu.bidi_read_residual).is_ok();
        if is_right || refused || run.is_empty() {
            return Ok(None);
        }
        self.lose(run.clone())?;
        if let Some(recut) = &mut self.recut {
            recut.mistaken = true;
        }
        Ok(Some(run))
    }

    /// Whether copies of what is lost may be on their way: it is asked for when nothing has come for a while.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.recut.as_ref().is_some_and(|recut| recut.unsettled)
    }

    /// Nothing has come for a while.
    pub(crate) fn settle(&mut self) {
        if let Some(recut) = &mut self.recut {
            recut.unsettled = false;
        }
    }
}
