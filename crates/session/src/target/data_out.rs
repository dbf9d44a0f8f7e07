//! Collecting the data of one task: immediate, unsolicited and solicited (RFC 7143 sections 4.2.5.2 and 11.7).
//!
//! This is bookkeeping only. Where the bytes go is decided here; that they arrived whole is the receiver's word.

use std::ops::Range;

use lunette_buffer::Buffer;
use lunette_pdu::{DataOut, TargetTransferTag};

/// A rule that a Data-Out PDU broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataOutError {
    #[error("DataSN {got} where {expected} was due")]
    DataSn { got: u32, expected: u32 },
    #[error("offset {got} where {expected} was due")]
    Offset { got: u32, expected: u32 },
    #[error("bytes up to {got} in a sequence that ends at {end}")]
    TooFar { got: u64, end: u32 },
    #[error("the F bit does not stand at the end of the sequence")]
    Final,
    #[error("unsolicited data where none was announced")]
    Unannounced,
}

impl DataOutError {
    /// Sense data for the task, in fixed format: ABORTED COMMAND with the additional sense of RFC 7143 section 11.4.7.2.
    pub(crate) fn sense(self) -> Vec<u8> {
        let [code, qualifier] = match self {
            // Protocol service CRC error: what a lost PDU looks like.
            Self::DataSn { .. } | Self::Offset { .. } => [0x47, 0x05],
            // Incorrect amount of data.
            Self::TooFar { .. } | Self::Final => [0x0c, 0x0d],
            // Unexpected unsolicited data.
            Self::Unannounced => [0x0c, 0x0c],
        };
        vec![0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0]
    }
}

/// A run of Data-Out PDUs that ends with the F bit.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    next_offset: u32,
    end: u32,
    data_sn: u32,
    /// A solicited sequence must fill its R2T; an unsolicited one may end before its limit.
    exact: bool,
}

impl Sequence {
    /// Checks the next PDU. True when it is the last one.
    fn accept(&mut self, pdu: &DataOut) -> Result<bool, DataOutError> {
        if pdu.data_sn != self.data_sn {
            return Err(DataOutError::DataSn { got: pdu.data_sn, expected: self.data_sn });
        }
        // DataPDUInOrder=Yes is all that we negotiate.
        if pdu.buffer_offset != self.next_offset {
            return Err(DataOutError::Offset { got: pdu.buffer_offset, expected: self.next_offset });
        }
        let reach = u64::from(pdu.buffer_offset) + pdu.data_segment_len as u64;
        if reach > u64::from(self.end) {
            return Err(DataOutError::TooFar { got: reach, end: self.end });
        }
        self.next_offset = reach as u32;
        self.data_sn = self.data_sn.wrapping_add(1);
        let full = self.next_offset == self.end;
        if (full && !pdu.final_) || (self.exact && pdu.final_ && !full) {
            return Err(DataOutError::Final);
        }
        Ok(pdu.final_)
    }
}

/// An R2T to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Solicitation {
    pub(crate) r2t_sn: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// The data of one task on its way.
#[derive(Debug)]
pub(crate) struct Collector {
    /// Where it goes; none before the device has said, and none when nobody wants it any more.
    buffer: Option<Buffer>,
    /// Bytes that are wanted: the buffer's length, or less when the initiator announced less.
    wanted: u32,
    /// Of these, the bytes that have arrived and been verified.
    verified: u32,
    unsolicited: Option<Sequence>,
    solicited: Vec<(TargetTransferTag, Sequence)>,
    /// A PDU whose header has been accepted and whose data segment has not been verified.
    arriving: bool,
    next_offset: u32,
    next_r2t_sn: u32,
}

impl Collector {
    /// `immediate` bytes come with the command. `unsolicited_end` is how far unsolicited Data-Out PDUs may reach, when the
    /// command announced some.
    pub(crate) fn new(immediate: u32, unsolicited_end: Option<u32>) -> Self {
        let sequence = |end| Sequence { next_offset: immediate, end, data_sn: 0, exact: false };
        Self {
            buffer: None,
            wanted: 0,
            verified: 0,
            unsolicited: unsolicited_end.map(sequence),
            solicited: Vec::new(),
            arriving: immediate > 0,
            next_offset: immediate,
            next_r2t_sn: 0,
        }
    }

    /// Names the place of the data. `announced` is what the initiator will send at most.
    pub(crate) fn want(&mut self, buffer: Buffer, announced: u32) {
        self.wanted = announced.min(u32::try_from(buffer.len()).unwrap_or(u32::MAX));
        self.buffer = Some(buffer);
    }

    /// Nobody wants the data any more. What is under way is still checked, then dropped.
    pub(crate) fn discard(&mut self) {
        self.buffer = None;
        self.wanted = 0;
    }

    /// Whether any data is still to come.
    pub(crate) fn open(&self) -> bool {
        self.arriving || self.unsolicited.is_some() || !self.solicited.is_empty()
    }

    /// R2Ts that have been sent.
    pub(crate) fn r2ts(&self) -> u32 {
        self.next_r2t_sn
    }

    /// Checks a Data-Out header against what is expected of its sequence.
    pub(crate) fn accept(&mut self, pdu: &DataOut) -> Result<(), DataOutError> {
        if pdu.ttt.is_reserved() {
            let sequence = self.unsolicited.as_mut().ok_or(DataOutError::Unannounced)?;
            if sequence.accept(pdu)? {
                self.next_offset = sequence.next_offset;
                self.unsolicited = None;
            }
            self.arriving = true;
            return Ok(());
        }
        let index = self.solicited.iter().position(|(ttt, _)| *ttt == pdu.ttt).ok_or(DataOutError::Unannounced)?;
        if self.solicited[index].1.accept(pdu)? {
            self.solicited.remove(index);
        }
        self.arriving = true;
        Ok(())
    }

    /// Whether `ttt` belongs to an R2T that is outstanding.
    pub(crate) fn solicits(&self, ttt: TargetTransferTag) -> bool {
        self.solicited.iter().any(|(outstanding, _)| *outstanding == ttt)
    }

    /// Where bytes `offset..offset + len` of the task go. What lies beyond is to be dropped.
    pub(crate) fn place(&mut self, offset: u32, len: u32) -> &mut [u8] {
        let range = self.wanted_part(offset, len);
        self.buffer.as_mut().and_then(|buffer| buffer.get_mut(range)).unwrap_or_default()
    }

    /// These bytes have arrived and been verified.
    pub(crate) fn verified(&mut self, offset: u32, len: u32) {
        self.arriving = false;
        self.verified += self.wanted_part(offset, len).len() as u32;
    }

    /// The next R2T, when one is due: nothing is asked for while unsolicited data is under way, and no more than `at_most`
    /// sequences at a time.
    pub(crate) fn solicit(&mut self, max_burst_len: u32, at_most: u32) -> Option<Solicitation> {
        if self.unsolicited.is_some() || self.next_offset >= self.wanted || self.solicited.len() >= at_most as usize {
            return None;
        }
        let offset = self.next_offset;
        let len = max_burst_len.min(self.wanted - offset);
        let r2t_sn = self.next_r2t_sn;
        self.next_offset += len;
        self.next_r2t_sn += 1;
        Some(Solicitation { r2t_sn, offset, len })
    }

    /// The R2T was sent under this tag.
    pub(crate) fn solicited(&mut self, ttt: TargetTransferTag, asked: Solicitation) {
        let end = asked.offset + asked.len;
        self.solicited.push((ttt, Sequence { next_offset: asked.offset, end, data_sn: 0, exact: true }));
    }

    /// The buffer, once all that was wanted is in it.
    pub(crate) fn take_complete(&mut self) -> Option<Buffer> {
        if self.open() || self.verified < self.wanted { None } else { self.buffer.take() }
    }

    fn wanted_part(&self, offset: u32, len: u32) -> Range<usize> {
        let end = offset.saturating_add(len).min(self.wanted);
        offset.min(end) as usize..end as usize
    }
}
