//! The way out of a connection: its PDU queue, its StatSN, and what may have to be sent again.

mod handover;

use lunette_buffer::Payload;
use lunette_pdu::{BHS_LEN, InitiatorTaskTag, SerialNumber};

use super::answer::{Answer, Unsendable};
use super::held_answers::HeldAnswers;
use super::retained::Retained;
use crate::markers::MarkedOutbox;
use crate::{OutgoingPdu, Unacknowledged};

pub(crate) struct Sender {
    pub(crate) outbox: MarkedOutbox,
    stat_sn: SerialNumber,
    /// ExpStatSN, as the initiator reported it last.
    acknowledged: SerialNumber,
    /// At recovery level 1 and above.
    retained: Option<Box<Retained>>,
    answers: HeldAnswers,
    /// The unacknowledged PDUs of a transport that keeps PDUs apart.
    unacknowledged: Unacknowledged,
}

impl Sender {
    pub(crate) fn new(first: SerialNumber) -> Self {
        Self {
            outbox: MarkedOutbox::default(),
            stat_sn: first,
            acknowledged: first,
            retained: None,
            answers: HeldAnswers::default(),
            unacknowledged: Unacknowledged::default(),
        }
    }

    /// From now on, what carries a StatSN is kept until it is acknowledged.
    pub(crate) fn retain(&mut self) {
        self.retained = Some(Box::new(Retained::new(self.stat_sn)));
    }

    /// Nothing will be sent again: the connection is over.
    pub(crate) fn release(&mut self) {
        self.retained = None;
    }

    /// Bytes of data that were sent and may have to be sent again.
    pub(crate) fn retained_bytes(&self) -> usize {
        self.retained.as_ref().map_or(0, |retained| retained.data_bytes())
    }

    /// The PDUs that may have to be sent again.
    pub(crate) fn retains(&self) -> Option<&Retained> {
        self.retained.as_deref()
    }

    /// The PDUs that may have to be sent again; `None` at recovery level 0.
    pub(crate) fn retained(&mut self) -> Option<&mut Retained> {
        self.retained.as_deref_mut()
    }

    /// The StatSN of a PDU that carries a new one: [`push_numbered`](Self::push_numbered) it next.
    pub(crate) fn next_stat_sn(&mut self) -> SerialNumber {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.next();
        stat_sn
    }

    /// Queues the PDU that carries the StatSN given out last.
    pub(crate) fn push_numbered(&mut self, bhs: [u8; BHS_LEN], segment: Payload) {
        if let Some(retained) = &mut self.retained {
            retained.keep(bhs, &segment);
        }
        self.outbox.push(bhs, segment);
    }

    /// Queues the PDU whose data segment is in its place in the outbox, and that carries the StatSN given out last.
    #[inline]
    pub(crate) fn push_placed(&mut self, bhs: &[u8; BHS_LEN], data_len: usize) {
        let before = self.outbox.sheet_len();
        self.outbox.push_placed(bhs, data_len);
        let len = self.outbox.sheet_len() - before;
        if before == 0 {
            self.answers.push(len, self.outbox.sheet_room());
        } else {
            self.answers.extend(len);
        }
    }

    /// Queues everything that answers a command.
    pub(crate) fn push_answer(&mut self, mut answer: Answer, numbers: (SerialNumber, SerialNumber)) {
        let stat_sn = self.next_stat_sn();
        let asks = self.retained.as_ref().is_some_and(|retained| retained.is_much_with(&answer));
        let pooled_bytes = answer.pooled_bytes();
        let before = if pooled_bytes > 0 { self.outbox.segment_bytes() } else { 0 };
        answer.send(stat_sn, asks, numbers, &mut self.outbox);
        if pooled_bytes > 0 {
            self.answers.push(self.outbox.segment_bytes() - before, pooled_bytes);
        }
        if let Some(retained) = &mut self.retained {
            retained.keep_answer(answer);
        }
    }

    /// The StatSN that the next such PDU will carry.
    pub(crate) fn stat_sn(&self) -> SerialNumber {
        self.stat_sn
    }

    /// ExpStatSN, as the initiator reported it last.
    pub(crate) fn acknowledged(&self) -> SerialNumber {
        self.acknowledged
    }

    /// The initiator has received all statuses before `exp_stat_sn`. What was not sent cannot be acknowledged.
    pub(crate) fn acknowledge(&mut self, exp_stat_sn: SerialNumber) {
        if exp_stat_sn.is_after(self.acknowledged) && !exp_stat_sn.is_after(self.stat_sn) {
            self.acknowledged = exp_stat_sn;
            if let Some(retained) = &mut self.retained {
                retained.acknowledge(exp_stat_sn);
            }
        }
    }

    /// Takes the first PDU out. The transport keeps it until the peer has acknowledged it.
    pub(crate) fn take_pdu(&mut self) -> Option<OutgoingPdu> {
        let pdu = self.outbox.take_pdu()?;
        self.unacknowledged.bytes += BHS_LEN + pdu.body_len();
        self.unacknowledged.data_bytes += pdu.data_len();
        Some(pdu)
    }

    /// The transport keeps that of what it has taken. Gives the bytes that were acknowledged since this was said last.
    pub(crate) fn set_unacknowledged(&mut self, unacknowledged: Unacknowledged) -> usize {
        let before = std::mem::replace(&mut self.unacknowledged, unacknowledged);
        before.bytes.saturating_sub(unacknowledged.bytes)
    }

    /// Bytes that wait for the socket or, where the transport keeps PDUs apart, for their acknowledgement.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outbox.unsent_bytes() + self.unacknowledged.bytes
    }

    /// Bytes of data segments that wait to be sent, or to be acknowledged to the transport, or may have to be sent
    /// again. All are the end of one stream of answers, so the longer part holds the other.
    pub(crate) fn kept_bytes(&self) -> usize {
        (self.outbox.segment_bytes() + self.unacknowledged.data_bytes).max(self.retained_bytes())
    }

    /// Bytes of the pool that answers hold which were queued.
    pub(crate) fn held_bytes(&mut self) -> usize {
        let left = self.kept_bytes();
        self.answers.bytes(left)
    }

    /// Bytes of the pool that are kept to be sent again.
    pub(crate) fn pooled_bytes(&self) -> usize {
        self.retains().map_or(0, |retained| retained.answers().map(Answer::pooled_bytes).sum())
    }

    /// Queues statuses again, as [`Retained::resend_statuses`] says.
    pub(crate) fn resend_statuses(
        &mut self,
        beg_run: u32,
        sheet_length: u32,
        numbers: (SerialNumber, SerialNumber),
    ) -> Result<(), Unsendable> {
        let Some(retained) = &self.retained else { return Err(Unsendable::Forgotten) };
        retained.resend_statuses(beg_run, sheet_length, self.acknowledged, numbers, &mut self.outbox)
    }

    /// The answer to an ended task that the initiator has not acknowledged, and the way out.
    pub(crate) fn find_answer(&mut self, itt: InitiatorTaskTag) -> Option<(&mut Answer, &mut MarkedOutbox)> {
        Some((self.retained.as_mut()?.find(itt)?, &mut self.outbox))
    }
}
