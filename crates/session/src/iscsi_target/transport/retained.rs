//! The sent PDUs without an acknowledgement, in the order of StatSN (RFC 7143 section 4.2.2.2): at recovery level 1 and
//! above the initiator may ask for them again.

mod handover;

use std::collections::VecDeque;

use lunette_buffer::Payload;
use lunette_pdu::{AsyncEvent, BHS_LEN, Bhs, InitiatorTaskTag, SerialNumber, TargetPdu};

use super::answer::{Answer, Unsendable};
use crate::limits::{ASK_RETAINED_BYTES, MAX_RETAINED_BYTES, MAX_RETAINED_OWNED_BYTES, MAX_RETAINED_STATUSES};
use crate::markers::MarkedOutbox;

enum Entry {
    /// A PDU that answers no command.
    Pdu { bhs: [u8; BHS_LEN], segment: Payload },
    /// The answer to a command, and the bytes of data that it counts for.
    Answer { answer: Answer, data_len: usize },
    /// The PDU cannot be sent again.
    Forgotten,
}

/// One entry for each StatSN from the first that is not acknowledged on.
///
/// **By StatSN** the initiator asks for statuses and acknowledges them; **by initiator task tag** it asks for data. An
/// ended task whose status is not acknowledged is here and nowhere else: [`take`](Self::take) hands its [`Answer`] on
/// to another connection, which acknowledges data for it ([`Answer::acknowledge_data`], with the ExpDataSN of the
/// reassignment), lets it be cut as its own parameters say ([`Answer::recut`]) and sends it under a StatSN of its own
/// ([`Sender::push_answer`](super::sender::Sender::push_answer)).
pub(crate) struct Retained {
    /// The StatSN of the first entry.
    first: SerialNumber,
    entries: VecDeque<Entry>,
    /// The bytes of answers.
    data_bytes: usize,
    /// The bytes of segments that were made for their PDU.
    owned_bytes: usize,
}

impl Retained {
    /// Keeps what is sent from `first` on.
    pub(crate) fn new(first: SerialNumber) -> Self {
        Self { first, entries: VecDeque::new(), data_bytes: 0, owned_bytes: 0 }
    }

    /// The PDU that carries the next StatSN.
    pub(crate) fn keep(&mut self, bhs: [u8; BHS_LEN], segment: &Payload) {
        self.owned_bytes += segment.owned_len();
        self.push(Entry::Pdu { bhs, segment: segment.clone() });
    }

    /// The answer that carries the next StatSN.
    pub(crate) fn keep_answer(&mut self, answer: Answer) {
        let data_len = answer.data_len();
        self.data_bytes += data_len;
        self.push(Entry::Answer { answer, data_len });
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.len() == MAX_RETAINED_STATUSES {
            self.pop();
        }
        self.entries.push_back(entry);
        self.bound();
    }

    /// The initiator has received everything before `exp_stat_sn`.
    pub(crate) fn acknowledge(&mut self, exp_stat_sn: SerialNumber) {
        while self.first.is_before(exp_stat_sn) && !self.entries.is_empty() {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.first = self.first.next();
            self.uncount(&entry);
        }
    }

    fn uncount(&mut self, entry: &Entry) {
        match entry {
            Entry::Pdu { segment, .. } => self.owned_bytes -= segment.owned_len(),
            Entry::Answer { data_len, .. } => self.data_bytes -= data_len,
            Entry::Forgotten => {}
        }
    }

    /// Beyond the bounds, the oldest is forgotten: all of a PDU, and of an answer its data.
    fn bound(&mut self) {
        if self.data_bytes > MAX_RETAINED_BYTES || self.owned_bytes > MAX_RETAINED_OWNED_BYTES {
            self.forget(MAX_RETAINED_BYTES, MAX_RETAINED_OWNED_BYTES);
        }
        debug_assert!(self.data_bytes <= MAX_RETAINED_BYTES && self.owned_bytes <= MAX_RETAINED_OWNED_BYTES);
    }

    /// Forgets the oldest data until no more than these bytes are left.
    fn forget(&mut self, max_data_bytes: usize, max_owned_bytes: usize) {
        for entry in &mut self.entries {
            match entry {
                Entry::Pdu { segment, .. } if self.owned_bytes > max_owned_bytes && segment.owned_len() > 0 => {
                    self.owned_bytes -= segment.owned_len();
                    *entry = Entry::Forgotten;
                }
                Entry::Answer { answer, data_len } if self.data_bytes > max_data_bytes => {
                    self.data_bytes -= std::mem::take(data_len);
                    answer.forget_data();
                }
                _ => {}
            }
        }
    }

    /// Forgets the data of answers before `stat_sn`: their buffers are needed.
    pub(crate) fn forget_data_before(&mut self, stat_sn: SerialNumber) {
        let before = usize::try_from(stat_sn.distance_from(self.first)).unwrap_or(0);
        for entry in self.entries.iter_mut().take(before) {
            if let Entry::Answer { answer, data_len } = entry {
                self.data_bytes -= std::mem::take(data_len);
                answer.forget_data();
            }
        }
    }

    /// Bytes of data that answers keep. What was acknowledged ahead of its status counts until that is acknowledged.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Whether so much is kept that the initiator should acknowledge data before the status of its command.
    pub(crate) fn is_much_with(&self, answer: &Answer) -> bool {
        self.data_bytes + answer.data_len() > ASK_RETAINED_BYTES
    }

    /// The newest answer to a task of that tag. Tags are used again, StatSNs are not.
    pub(crate) fn find(&mut self, itt: InitiatorTaskTag) -> Option<&mut Answer> {
        self.entries.iter_mut().rev().find_map(|entry| match entry {
            Entry::Answer { answer, .. } if answer.itt() == itt => Some(answer),
            _ => None,
        })
    }

    /// Takes the answer out: nothing of it can be asked for here any more.
    pub(crate) fn take(&mut self, itt: InitiatorTaskTag) -> Option<Answer> {
        let is_its = |entry: &Entry| matches!(entry, Entry::Answer { answer, .. } if answer.itt() == itt);
        let at = self.entries.iter().rposition(is_its)?;
        match std::mem::replace(self.entries.get_mut(at)?, Entry::Forgotten) {
            Entry::Answer { answer, data_len } => {
                self.data_bytes -= data_len;
                Some(answer)
            }
            _ => None,
        }
    }

    /// The last answer to a command of that name.
    pub(crate) fn answer_of(&self, itt: InitiatorTaskTag) -> Option<&Answer> {
        self.answers().rev().find(|answer| answer.itt() == itt)
    }

    pub(crate) fn answers(&self) -> impl DoubleEndedIterator<Item = &Answer> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Answer { answer, .. } => Some(answer),
            _ => None,
        })
    }

    /// Drops answers that are not for the initiator any more.
    pub(crate) fn drop_answers(&mut self, concerned: impl Fn(&Answer) -> bool) {
        for entry in &mut self.entries {
            if let Entry::Answer { answer, data_len } = entry
                && concerned(answer)
            {
                self.data_bytes -= *data_len;
                *entry = Entry::Forgotten;
            }
        }
    }

    /// The answer that carries `stat_sn`.
    pub(crate) fn answer(&mut self, stat_sn: SerialNumber) -> Option<&mut Answer> {
        let at = usize::try_from(stat_sn.distance_from(self.first)).ok()?;
        match self.entries.get_mut(at)? {
            Entry::Answer { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Queues statuses again: `run_length` of them from `beg_run` on; 0 stands for all that are left, and both 0 for
    /// all that have not been acknowledged (RFC 7143 section 11.16).
    ///
    /// # Errors
    ///
    /// Nothing is sent.
    pub(crate) fn resend_statuses(
        &self,
        beg_run: u32,
        run_length: u32,
        acknowledged: SerialNumber,
        numbers: (SerialNumber, SerialNumber),
        outbox: &mut MarkedOutbox,
    ) -> Result<(), Unsendable> {
        let end = self.first.add(self.entries.len() as u32);
        let from = if (beg_run, run_length) == (0, 0) { acknowledged } else { SerialNumber(beg_run) };
        let left = u32::try_from(end.distance_from(from)).map_err(|_| Unsendable::OutOfRange)?;
        let asks_for_none = left == 0 && (beg_run, run_length) != (0, 0);
        if from.is_before(acknowledged) || run_length > left || asks_for_none {
            return Err(Unsendable::OutOfRange);
        }
        let run_length = if run_length == 0 { left } else { run_length };
        let skipped = usize::try_from(from.distance_from(self.first)).map_err(|_| Unsendable::Forgotten)?;
        let run = || self.entries.iter().skip(skipped).take(run_length as usize);
        if !run().all(Entry::is_kept) {
            return Err(Unsendable::Forgotten);
        }
        run().for_each(|entry| entry.resend(numbers, outbox));
        Ok(())
    }
}

impl Entry {
    /// Whether its status can be sent again.
    fn is_kept(&self) -> bool {
        match self {
            Self::Pdu { .. } => true,
            Self::Answer { answer, .. } => answer.keeps_status(),
            Self::Forgotten => false,
        }
    }

    /// Queues the PDU with the status as it was, with current numbers (RFC 7143 section 11.16).
    fn resend(&self, numbers: (SerialNumber, SerialNumber), outbox: &mut MarkedOutbox) {
        match self {
            Self::Pdu { bhs, segment } if names_ended_tasks(bhs) => {
                let at_their_end = SerialNumber(u32::from_be_bytes([bhs[28], bhs[29], bhs[30], bhs[31]]));
                outbox.push(renumbered(*bhs, (at_their_end, numbers.1)), segment.clone());
            }
            Self::Pdu { bhs, segment } => outbox.push(renumbered(*bhs, numbers), segment.clone()),
            Self::Answer { answer, .. } => answer.resend_status(numbers, outbox),
            Self::Forgotten => {}
        }
    }
}

/// Whether it is news of ended tasks. Its ExpCmdSN tells them from later ones, so it stays; for the command window it
/// is old.
fn names_ended_tasks(bhs: &[u8; BHS_LEN]) -> bool {
    let parsed = TargetPdu::parse(&Bhs::from(*bhs));
    matches!(parsed, Ok(TargetPdu::AsyncMessage(message)) if message.event == AsyncEvent::TASK_TERMINATION)
}

/// ExpCmdSN and MaxCmdSN stand at the same place in every PDU of a target.
fn renumbered(mut bhs: [u8; BHS_LEN], (exp_cmd_sn, max_cmd_sn): (SerialNumber, SerialNumber)) -> [u8; BHS_LEN] {
    bhs[28..32].copy_from_slice(&exp_cmd_sn.0.to_be_bytes());
    bhs[32..36].copy_from_slice(&max_cmd_sn.0.to_be_bytes());
    bhs
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: (SerialNumber, SerialNumber) = (SerialNumber(1), SerialNumber(2));

    fn keep(retained: &mut Retained, count: usize) {
        for _ in 0..count {
            retained.keep([0; BHS_LEN], &Payload::Empty);
        }
    }

    fn resent(retained: &Retained, from: u32, len: u32, acknowledged: SerialNumber) -> Result<usize, Unsendable> {
        let mut outbox = MarkedOutbox::default();
        retained.resend_statuses(from, len, acknowledged, NUMBERS, &mut outbox)?;
        Ok(outbox.pdus())
    }

    #[test]
    fn numbers_wrap() {
        let first = SerialNumber(u32::MAX - 1);
        let mut retained = Retained::new(first);
        keep(&mut retained, 4);
        assert_eq!(resent(&retained, first.0, 4, first), Ok(4));
        assert_eq!(resent(&retained, u32::MAX, 0, first), Ok(3));
        assert_eq!(resent(&retained, 1, 2, first), Err(Unsendable::OutOfRange));
        retained.acknowledge(SerialNumber(1));
        assert_eq!(resent(&retained, 0, 0, SerialNumber(1)), Ok(1));
        assert_eq!(resent(&retained, u32::MAX, 1, SerialNumber(1)), Err(Unsendable::OutOfRange));
    }

    #[test]
    fn the_oldest_makes_room() {
        let first = SerialNumber(7);
        let mut retained = Retained::new(first);
        keep(&mut retained, MAX_RETAINED_STATUSES + 3);
        assert_eq!(resent(&retained, 9, 1, first), Err(Unsendable::Forgotten));
        assert_eq!(resent(&retained, 10, 1, first), Ok(1));
        assert_eq!(resent(&retained, 0, 0, first), Err(Unsendable::Forgotten), "not all of them are here");
        retained.acknowledge(SerialNumber(9));
        assert_eq!(resent(&retained, 10, 0, SerialNumber(9)), Ok(MAX_RETAINED_STATUSES));
    }

    #[test]
    fn echoes_are_bounded_by_their_bytes() {
        let first = SerialNumber(0);
        let mut retained = Retained::new(first);
        let half = Payload::from(vec![0; MAX_RETAINED_OWNED_BYTES / 2]);
        for _ in 0..3 {
            retained.keep([0; BHS_LEN], &half);
        }
        assert_eq!(resent(&retained, 0, 1, first), Err(Unsendable::Forgotten));
        assert_eq!(resent(&retained, 1, 2, first), Ok(2));
        retained.acknowledge(SerialNumber(3));
        assert_eq!(retained.owned_bytes, 0);
    }
}
