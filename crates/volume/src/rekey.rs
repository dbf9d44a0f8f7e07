//! Rewriting what is sealed with older keys.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::mpsc::channel;

use lunette_buffer::Buffer;
use lunette_quanta::{SLOT_LEN, Slot};
use lunette_store::{Completion, InlineIo, StoreError};

use crate::mailbox::Job;
use crate::request::{Request, What};
use crate::shared::Shared;
use crate::unit::{Unit, doing, filled};
use crate::{Progress, Volume, VolumeError};

/// Quanta that are rewritten together, and that no other request changes meanwhile.
const REWRITTEN_TOGETHER: u64 = 64;

/// The work of [`rekey`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// Quanta that were sealed with the newest key.
    pub rewritten: u64,
    /// Quanta that could not be opened, and stay as they are.
    pub refused: u64,
    /// The first of them.
    pub first_refused: Option<u64>,
    /// Where to go on when the caller has stopped it; `None` when it came to the end.
    pub next: Option<u64>,
    /// The oldest epoch that the volume may still have quanta of. Keys before it are not needed any more.
    pub first_epoch: u32,
}

/// Rewrites every quantum that is not sealed with the newest key, from quantum `from` on. Others may use the volume
/// meanwhile, through the same [`Volume`]; what another client writes at the same moment could be lost. Clients that
/// still write with an older key must have got the newest one before.
///
/// `progress` is called after each piece, and stops the work by [`ControlFlow::Break`]: [`Rekeyed::next`] is the `from`
/// of the next call. Every quantum that is no hole is opened, also where its slot names the newest epoch. So a run from
/// 0 to the end that was refused no quantum raises the header's oldest epoch, and older keys may be destroyed; one that
/// began later does not.
///
/// # Errors
///
/// [`VolumeError::ReadOnly`], and failures of the unit. What was rewritten until then stays so.
pub fn rekey(
    volume: &Volume,
    from: u64,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Rekeyed, VolumeError> {
    let shared = &volume.shared;
    if shared.read_only {
        return Err(VolumeError::ReadOnly);
    }
    let newest = shared.owners.seals.codec().keys().newest_epoch();
    let len = shared.owners.size.bytes() as u64;
    let unit = Unit::new(&shared.owners.inner);
    let mut done =
        Rekeyed { rewritten: 0, refused: 0, first_refused: None, next: None, first_epoch: volume.header().first_epoch };
    let mut next = from;
    while next < shared.quanta {
        let piece = next..shared.quanta.min(next + REWRITTEN_TOGETHER);
        next = piece.end;
        rewrite(volume, &unit, newest, &piece, &mut done)?;
        let flow = progress(Progress { done_bytes: next * len, total_bytes: shared.quanta * len });
        if flow.is_break() && next < shared.quanta {
            done.next = Some(next);
            break;
        }
    }
    volume.close()?;
    if from == 0 && done.next.is_none() && done.refused == 0 {
        volume.forget_older_epochs(newest)?;
        done.first_epoch = volume.header().first_epoch;
    }
    Ok(done)
}

/// Opens some adjacent quanta, and rewrites those that have older epochs, while no other request changes them.
fn rewrite(
    volume: &Volume,
    unit: &Unit,
    newest: u32,
    piece: &Range<u64>,
    done: &mut Rekeyed,
) -> Result<(), VolumeError> {
    let shared = &volume.shared;
    let (tx, rx) = channel();
    let later = |id| Job::Tell(tx, id);
    let claim = match shared.owners.claims.claim(piece.clone(), true, later) {
        Some(claim) => claim,
        None => rx.recv().expect("a claim is granted when the requests before it have ended"),
    };
    let result = (|| {
        for run in runs(shared, unit, newest, piece)? {
            let quanta = run.end - run.start;
            match rewrite_run(shared, unit, newest, run.clone()) {
                Ok(true) => done.rewritten += quanta,
                Ok(false) => {}
                // One by one, to pass by those that cannot be opened.
                Err(StoreError::Refused { .. }) => {
                    for position in run {
                        match rewrite_run(shared, unit, newest, position..position + 1) {
                            Ok(rewritten) => done.rewritten += u64::from(rewritten),
                            Err(StoreError::Refused { .. }) => {
                                done.refused += 1;
                                done.first_refused.get_or_insert(position);
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })();
    shared.owners.claims.release(claim);
    result.map_err(doing("rewriting quanta"))
}

/// Opens some adjacent quanta, and seals them again unless all turn out to be of the newest epoch. Whether it did.
fn rewrite_run(shared: &Arc<Shared>, unit: &Unit, newest: u32, run: Range<u64>) -> Result<bool, StoreError> {
    let buffer = unit.take((run.end - run.start) as usize * shared.owners.size.bytes())?;
    let (buffer, oldest_epoch) = request(shared, What::Read, run.clone(), buffer)?;
    if oldest_epoch >= newest {
        return Ok(false);
    }
    request(shared, What::Write { fua: false }, run, buffer)?;
    Ok(true)
}

/// Makes a request of the volume and waits for it, and gives the oldest epoch that a read has opened. The caller has
/// claimed the range.
fn request(shared: &Arc<Shared>, what: What, range: Range<u64>, buffer: Buffer) -> Result<(Buffer, u32), StoreError> {
    let (tx, rx) = channel();
    // The receiver waits below.
    let done = Completion::call(move |outcome| drop(tx.send(outcome)));
    let request = Request::new(Arc::<Shared>::clone(shared), shared.owners.size, what, range, Some(buffer), true, done);
    shared.begin(&request, &InlineIo);
    let buffer = filled(rx.recv().expect("a volume ends every request"))?;
    Ok((buffer, request.oldest_epoch()))
}

/// The runs of quanta whose slots are alike: those of the newest epoch and those of others, holes left out.
///
/// The slots only say what is read together. Quanta of the newest epoch are opened, too, because a slot that was read
/// wrongly could hide an older one.
fn runs(shared: &Shared, unit: &Unit, newest: u32, piece: &Range<u64>) -> Result<Vec<Range<u64>>, StoreError> {
    let mut runs: Vec<(bool, Range<u64>)> = Vec::new();
    for (position, slot) in piece.clone().zip(shared.slots(unit, piece)?) {
        if slot == [0; SLOT_LEN] {
            continue;
        }
        let is_newest = Slot::decode(&slot).epoch == newest;
        match runs.last_mut() {
            Some((of, run)) if *of == is_newest && run.end == position => run.end += 1,
            _ => runs.push((is_newest, position..position + 1)),
        }
    }
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}
