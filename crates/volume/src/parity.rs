//! A unit with parity groups: a store over the unit that keeps the parity of a native volume, and repairs damaged EDUs.
//!
//! It stands between the volume and the unit, and knows no key. Reads go to the unit at once; those that bring damaged
//! EDUs, and all that changes EDUs, go to one thread. So writers of one group take turns, and whoever repairs a group
//! has it to itself. What a repair does not confirm without a key is shown to the seals of the volume.

mod group;

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use lunette_buffer::Buffer;
use lunette_quanta::{Condition, Header, Holes, Native, Parity, check};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, Op, Outcome, Store, StoreError};

use crate::VolumeError;
use crate::seals::Seals;
use crate::unit::Unit;
use group::Groups;

/// The unit, with its parity kept.
pub(crate) struct ParityUnit {
    inner: Arc<dyn Store>,
    native: Native,
    edu_len: u64,
    holes: Holes,
    jobs: Sender<Job>,
}

/// The work for the thread.
enum Job {
    /// A request that changes the quanta of the range.
    Change(Op, Range<u64>, Completion),
    /// A read of the quanta of the range that failed, or met damaged EDUs.
    Repair(Range<u64>, Outcome, Completion),
    /// Look after one group, and tell what was found.
    Scrub(u64, Sender<Result<GroupState, StoreError>>),
}

/// The state of a group, as a scrub found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupState {
    Whole,
    /// The scrub repaired this many data EDUs.
    Repaired(u64),
    /// All data EDUs are intact, and the parity was not theirs. It is now.
    Encoded,
    /// The group has this many damaged data EDUs, which stay so.
    Lost(u64),
}

impl ParityUnit {
    /// The unit of a volume whose `seals` tell whether a repaired quantum is genuine. Without seals, no repair counts
    /// that needs them.
    ///
    /// # Errors
    ///
    /// [`VolumeError::Thread`], and [`VolumeError::Header`] for sizes of groups that no header has.
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        header: &Header,
        native: Native,
        seals: Option<Arc<Seals>>,
        read_only: bool,
    ) -> Result<Self, VolumeError> {
        let group = header.group.expect("whoever calls has looked");
        let parity = Parity::new(group, header.size, header.holes)?;
        let mut groups = Groups::new(Unit::new(&inner), parity, native, header.size, seals, read_only);
        let (jobs, todo) = channel();
        let run = move || {
            while let Ok(job) = todo.recv() {
                match job {
                    Job::Change(op, quanta, done) => groups.change(op, &quanta, done),
                    Job::Repair(quanta, outcome, done) => groups.repair_read(&quanta, outcome, done),
                    // A receiver that is gone has given up.
                    Job::Scrub(group, to) => drop(to.send(groups.scrub(group))),
                }
            }
        };
        thread::Builder::new().name("parity".to_owned()).spawn(run).map_err(VolumeError::Thread)?;
        Ok(Self { inner, native, edu_len: header.size.edu_len() as u64, holes: header.holes, jobs })
    }

    /// Looks after one group on the thread.
    pub(crate) fn scrub(&self, group: u64) -> Result<GroupState, StoreError> {
        let (to, from) = channel();
        self.push(Job::Scrub(group, to));
        from.recv().expect("the thread does every job")
    }

    pub(crate) fn groups(&self) -> u64 {
        self.native.groups()
    }

    fn push(&self, job: Job) {
        assert!(self.jobs.send(job).is_ok(), "the thread ends with the last sender");
    }

    /// The quanta whose EDUs are in a range of bytes.
    fn quanta(&self, (offset, len): (u64, u64)) -> Range<u64> {
        let first = self.native.lba(0);
        let position = |bytes: u64| (bytes / self.edu_len).saturating_sub(first).min(self.native.quanta());
        position(offset)..position(offset + len)
    }
}

/// Whether all of some EDUs are intact, or holes where there may be such.
fn intact(first: u64, edu_len: usize, holes: Holes, edus: &[u8]) -> bool {
    edus.chunks_exact(edu_len).zip(first..).all(|(edu, position)| {
        let (data, slot) = edu.split_last_chunk().expect("an EDU is longer than its slot");
        match check(position, data, slot) {
            Condition::Intact => true,
            Condition::NeverWritten => holes == Holes::Allowed,
            Condition::Damaged => false,
        }
    })
}

impl Store for ParityUnit {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let quanta = self.quanta(op.range());
        // A search for the header reads EDUs behind it, which are none of its concern.
        let from_header = op.range().0 < self.native.lba(0) * self.edu_len;
        match op {
            // The header, and what holds no EDU.
            op if quanta.is_empty() || from_header => self.inner.submit(op, io, done),
            Op::Read { .. } => {
                let (jobs, edu_len, holes) = (self.jobs.clone(), self.edu_len as usize, self.holes);
                let look = move |outcome: Outcome| {
                    let whole = |edus: &Buffer| intact(quanta.start, edu_len, holes, edus);
                    if outcome.result.is_ok() && outcome.buffer.as_ref().is_none_or(whole) {
                        return done.complete(outcome);
                    }
                    if let Err(unsent) = jobs.send(Job::Repair(quanta, outcome, done)) {
                        let Job::Repair(_, outcome, done) = unsent.0 else { return };
                        done.complete(outcome);
                    }
                };
                self.inner.submit(op, io, Completion::call(look));
            }
            Op::Write { .. } | Op::WriteZeroes { .. } | Op::Unmap { .. } => self.push(Job::Change(op, quanta, done)),
            Op::Flush | Op::Allocation { .. } | Op::Copy { .. } => self.inner.submit(op, io, done),
        }
    }
}
