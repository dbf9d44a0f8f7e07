//! Reading everything, to know whether it is whole.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use lunette_buffer::Buffer;
use lunette_quanta::packed::{Journal, Layout, ReplayError, salvage};
use lunette_quanta::{
    Codec, Condition, Header, Holes, KeyRing, Native, Placement, QuantumSize, Reason, SLOT_LEN, Slot, check,
};
use lunette_store::{Store, StoreError};

use crate::anchor::version;
use crate::packed::journal::{block_len, read_journal};
use crate::unit::{Unit, doing};
use crate::{Anchor, Found, Progress, VolumeError};

/// Quanta that are read together: with 4096 bytes each as much as tgt answers in one read without breaking
/// MaxBurstLength.
const READ_TOGETHER: u64 = 64;

const MAX_QUANTUM_LEN: usize = QuantumSize::B4096.bytes();

/// The ciphertext of a hole.
static ZEROES: [u8; MAX_QUANTUM_LEN] = [0; MAX_QUANTUM_LEN];

/// Bad quanta that a [`Report`] lists; the others are only counted.
pub const MAX_BAD: usize = 1000;

/// The fault of a quantum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// The unit failed to read it.
    Unreadable,
    /// The CRC is wrong.
    Damaged,
    /// All zeroes in a volume without holes.
    Hole,
    /// No key of the quantum's epoch is known. Without keys: an epoch that the header does not know.
    UnknownEpoch,
    /// Wrong tag. Only seen with keys.
    NotAuthentic,
    /// Older than the anchor knows it to be, or erased since. Only seen with keys and an anchor.
    RolledBack,
}

/// A quantum that is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad {
    /// The number of the quantum in the volume.
    pub position: u64,
    /// The fault of the quantum.
    pub verdict: Verdict,
}

/// The content of the journal of a packed volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalState {
    /// Nothing that is needed.
    Empty,
    /// Content of this many quanta, which the next client to open the volume takes from there.
    Quanta(u64),
    /// The journal has lost this many records that had been flushed, or they are damaged. The quanta were verified as
    /// the other records have them.
    RecordsLost(u64),
    /// The journal's two tails are damaged. The quanta were verified as they are in their places.
    TailLost,
}

/// The findings of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Quanta of the volume.
    pub quanta: u64,
    /// Quanta that are whole, by what was checked: with keys, that an owner of the volume made them; without, their
    /// CRCs.
    pub intact: u64,
    /// Quanta without content, in a volume that may have such.
    pub holes: u64,
    /// The whole quanta that are not of the newest epoch of the keys, or without keys of the header:
    /// [`rekey`](crate::rekey) rewrites them.
    pub older_epochs: u64,
    /// Quanta that are not whole, by what is wrong with them.
    pub bad: BTreeMap<Verdict, u64>,
    /// The first [`MAX_BAD`] of them.
    pub first_bad: Vec<Bad>,
    /// The journal; `None` for a native volume.
    pub journal: Option<JournalState>,
    /// Records of the journal that are not whole although a later one is, or although they had been flushed
    /// ([`JournalState::RecordsLost`]). Of the former, the writes had failed or were not flushed before a power cut, or
    /// they are damaged, and then the content that they had is lost. Which of these cannot be told.
    pub missing_records: u64,
    /// Whether each copy of the header is whole, and with keys authentic. One of them may be stale; that is no fault.
    pub header_copies: [bool; 2],
}

impl Report {
    /// Whether every quantum is whole, and the journal can be read.
    pub fn is_whole(&self) -> bool {
        self.bad.is_empty() && !matches!(self.journal, Some(JournalState::TailLost | JournalState::RecordsLost(_)))
    }
}

/// Reads a whole volume, and counts what is whole and what is not. Nothing is changed.
///
/// Without keys it checks CRCs alone, which finds damage and quanta in the wrong place, not forgeries. It does not stop
/// at what is bad. A packed volume that someone writes to at the same time shows quanta as bad that are not. With keys
/// and an anchor it also finds quanta that are older than the anchor knows; the anchor remembers what is newer, which
/// [`Anchor::save`] makes last.
///
/// # Errors
///
/// [`VolumeError`] when the volume itself cannot be understood, or the unit serves nothing; bad quanta are no error.
pub fn verify(
    inner: &Arc<dyn Store>,
    found: &Found,
    keys: Option<&KeyRing>,
    anchor: Option<&Anchor>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, VolumeError> {
    let header = match keys {
        Some(keys) => found.authenticate(keys)?,
        None => *found.header(),
    };
    let unit = Unit::new(inner);
    let (size, placement) = (header.size, header.placement);
    let codec = keys.map(|keys| Codec::new(header.volume, size, header.holes, keys.clone()));
    let mut report = Report {
        quanta: header.quanta,
        intact: 0,
        holes: 0,
        older_epochs: 0,
        bad: BTreeMap::new(),
        first_bad: Vec::new(),
        journal: None,
        missing_records: 0,
        header_copies: found.whole_copies(keys),
    };
    let place = match placement {
        Placement::Native => Place::Native(Native::of(&header, inner.geometry().len_bytes / size.edu_len() as u64)?),
        Placement::Packed { .. } => {
            let layout = Layout::of(&header, inner.geometry().len_bytes)?;
            let area = read_journal(&unit, &layout)?;
            let journal = match salvage(&area, &layout, header.volume) {
                Ok(journal) => Some(journal),
                Err(ReplayError::TailLost) => None,
                Err(error) => return Err(error.into()),
            };
            report.missing_records = journal.as_ref().map_or(0, Journal::missing);
            report.journal = Some(match journal.as_ref().map(|journal| (journal.lost(), journal.live_len())) {
                None => JournalState::TailLost,
                Some((0, 0)) => JournalState::Empty,
                Some((0, quanta)) => JournalState::Quanta(quanta as u64),
                Some((lost, _)) => JournalState::RecordsLost(lost),
            });
            Place::Packed(layout, Box::new(journal.unwrap_or_else(|| Journal::new(layout, header.volume))), area)
        }
    };
    let judge = Judge { header, codec, anchor };
    let mut check = Check { unit, judge, place, report };
    check.all(progress).map_err(doing("reading quanta"))?;
    Ok(check.report)
}

enum Place {
    Native(Native),
    /// The journal, and its bytes.
    Packed(Layout, Box<Journal>, Vec<u8>),
}

/// Knows of one quantum what it is.
struct Judge<'a> {
    header: Header,
    codec: Option<Codec>,
    anchor: Option<&'a Anchor>,
}

impl Judge<'_> {
    /// `Ok` with the epoch of a quantum that is whole; `None` for a hole.
    fn judge(&self, position: u64, data: &[u8], slot: &[u8; SLOT_LEN]) -> Result<Option<u32>, Verdict> {
        let epoch = self.judge_alone(position, data, slot)?;
        match self.anchor {
            // Without keys, a version is what anyone says.
            Some(anchor) if self.codec.is_some() && !anchor.admit(position, version(slot)) => Err(Verdict::RolledBack),
            _ => Ok(epoch),
        }
    }

    /// The epoch of which quanta should be: that of the keys, which may be newer than what the header knows.
    fn newest_epoch(&self) -> u32 {
        self.codec.as_ref().map_or(self.header.newest_epoch, |codec| codec.keys().newest_epoch())
    }

    /// The judgement on the bytes alone.
    fn judge_alone(&self, position: u64, data: &[u8], slot: &[u8; SLOT_LEN]) -> Result<Option<u32>, Verdict> {
        match check(position, data, slot) {
            Condition::Damaged => return Err(Verdict::Damaged),
            Condition::NeverWritten if self.header.holes == Holes::Refused => return Err(Verdict::Hole),
            Condition::NeverWritten => return Ok(None),
            Condition::Intact => {}
        }
        let epoch = Slot::decode(slot).epoch;
        let Some(codec) = &self.codec else {
            let known = (self.header.first_epoch..=self.header.newest_epoch).contains(&epoch);
            return if known { Ok(Some(epoch)) } else { Err(Verdict::UnknownEpoch) };
        };
        let mut plain = [0; MAX_QUANTUM_LEN];
        match codec.open_split(position, data, slot, &mut plain[..data.len()]) {
            Ok(()) => Ok(Some(epoch)),
            Err(error) => Err(match error.reason {
                Reason::Damaged => Verdict::Damaged,
                Reason::Hole => Verdict::Hole,
                Reason::UnknownEpoch(_) => Verdict::UnknownEpoch,
                Reason::NotAuthentic => Verdict::NotAuthentic,
                Reason::RolledBack => Verdict::RolledBack,
            }),
        }
    }
}

struct Check<'a> {
    unit: Unit,
    judge: Judge<'a>,
    place: Place,
    report: Report,
}

impl Check<'_> {
    fn all(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), StoreError> {
        let quanta = self.judge.header.quanta;
        let len = self.judge.header.size.bytes() as u64;
        let mut done = 0;
        while done < quanta {
            let end = quanta.min(done + READ_TOGETHER);
            self.piece(done..end)?;
            done = end;
            progress(Progress { done_bytes: done * len, total_bytes: quanta * len });
        }
        Ok(())
    }

    /// Checks adjacent quanta. When they cannot be read together, each is read on its own, unless the unit serves
    /// nothing now.
    fn piece(&mut self, mut quanta: Range<u64>) -> Result<(), StoreError> {
        match self.read(&quanta) {
            Ok(read) => self.judge_all(&quanta, &read),
            Err(error) if error.concerns_all_bytes() => return Err(error),
            Err(_) if quanta.end - quanta.start == 1 => self.count(quanta.start, Err(Verdict::Unreadable)),
            Err(_) => return quanta.try_for_each(|position| self.piece(position..position + 1)),
        }
        Ok(())
    }

    /// Ciphertexts and slots in their places, or EDUs alone.
    fn read(&self, quanta: &Range<u64>) -> Result<(Buffer, Option<Buffer>), StoreError> {
        let (size, count) = (self.judge.header.size, (quanta.end - quanta.start) as usize);
        match &self.place {
            Place::Native(native) => {
                let offset = native.lba(quanta.start) * size.edu_len() as u64;
                Ok((self.unit.read(offset, count * size.edu_len())?, None))
            }
            Place::Packed(layout, ..) => {
                let data = self.unit.read(layout.data(quanta.start), count * size.bytes())?;
                let from = layout.slot_block(quanta.start);
                let until = layout.slot_block(quanta.end - 1) + block_len(layout);
                Ok((data, Some(self.unit.read(from, (until - from) as usize)?)))
            }
        }
    }

    fn judge_all(&mut self, quanta: &Range<u64>, (data, slots): &(Buffer, Option<Buffer>)) {
        let size = self.judge.header.size;
        for (index, position) in quanta.clone().enumerate() {
            let verdict = match &self.place {
                Place::Native(_) => {
                    let edu = &data[index * size.edu_len()..][..size.edu_len()];
                    let (data, slot) = edu.split_last_chunk().expect("an EDU is longer than its slot");
                    self.judge.judge(position, data, slot)
                }
                Place::Packed(layout, journal, area) => {
                    let live = journal.live(position..position + 1).next();
                    let in_place = &data[index * size.bytes()..][..size.bytes()];
                    match (live, slots) {
                        (Some((_, live)), _) => {
                            let data = live
                                .data_offset
                                .map_or(&ZEROES[..size.bytes()], |at| &area[at as usize..][..size.bytes()]);
                            self.judge.judge(position, data, &live.slot)
                        }
                        (None, Some(slots)) => {
                            let at = (layout.slot(position) - layout.slot_block(quanta.start)) as usize;
                            let slot = slots[at..].first_chunk().expect("the blocks of all slots were read");
                            self.judge.judge(position, in_place, slot)
                        }
                        (None, None) => Err(Verdict::Unreadable),
                    }
                }
            };
            self.count(position, verdict);
        }
    }

    fn count(&mut self, position: u64, verdict: Result<Option<u32>, Verdict>) {
        let report = &mut self.report;
        match verdict {
            Ok(None) => report.holes += 1,
            Ok(Some(epoch)) => {
                report.intact += 1;
                report.older_epochs += u64::from(epoch < self.judge.newest_epoch());
            }
            Err(verdict) => {
                *report.bad.entry(verdict).or_default() += 1;
                if report.first_bad.len() < MAX_BAD {
                    report.first_bad.push(Bad { position, verdict });
                }
            }
        }
    }
}
