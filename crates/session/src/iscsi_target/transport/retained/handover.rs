//! PDUs that may have to be sent again, as a value.

use lunette_buffer::Payload;
use lunette_handover::{ByteBuf, Sent};
use lunette_pdu::{BHS_LEN, SerialNumber};

use super::{Answer, Entry, Retained};
use crate::iscsi_target::handover::{InheritError, bytes_of};
use crate::limits::MAX_RETAINED_STATUSES;

impl Retained {
    /// The entries, up to the newest.
    pub(crate) fn hand_over(&self) -> Vec<Sent> {
        let sent = |entry: &Entry| match entry {
            Entry::Pdu { bhs, segment } => Sent::Pdu { bhs: ByteBuf::from(bhs.to_vec()), segment: bytes_of(segment) },
            Entry::Answer { answer, .. } => Sent::Answer(Box::new(answer.hand_over())),
            Entry::Forgotten => Sent::Forgotten,
        };
        self.entries.iter().map(sent).collect()
    }

    /// The entries before `next`.
    pub(crate) fn inherit(next: SerialNumber, sent: &[Sent]) -> Result<Self, InheritError> {
        let newest = &sent[sent.len().saturating_sub(MAX_RETAINED_STATUSES)..];
        let mut retained = Self::new(SerialNumber(next.0.wrapping_sub(newest.len() as u32)));
        for sent in newest {
            match sent {
                Sent::Pdu { bhs, segment } => {
                    let bhs: [u8; BHS_LEN] =
                        bhs.as_slice().try_into().map_err(|_| InheritError::Malformed("a header"))?;
                    retained.keep(bhs, &Payload::from(segment.to_vec()));
                }
                Sent::Answer(answer) => retained.keep_answer(Answer::inherit(answer)?),
                Sent::Forgotten => retained.push(Entry::Forgotten),
            }
        }
        Ok(retained)
    }
}
