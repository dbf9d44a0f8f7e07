//! The truth: every command from its submission to its end, and the writer of each block.

use std::collections::{BTreeMap, BTreeSet};

use crate::medium::{Medium, Writer};
use crate::scenario::{Load, UNITS};

/// The initiators' name for a command. Also the name of what it writes.
pub(crate) type User = u64;

/// The operation of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// COMPARE AND WRITE: writes a block when it is as it was last acknowledged.
    Exchange,
}

impl Kind {
    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Blocks of a logical unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) unit: usize,
    pub(crate) first: usize,
    pub(crate) blocks: usize,
}

impl Extent {
    fn places(self) -> impl Iterator<Item = (usize, usize)> {
        (self.first..self.first + self.blocks).map(move |block| (self.unit, block))
    }
}

/// A command, as it is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Submission {
    pub(crate) client: usize,
    pub(crate) kind: Kind,
    pub(crate) extent: Extent,
    /// The initiator may send it a second time when nothing is known of the first.
    pub(crate) may_repeat: bool,
    /// Another initiator holds the unit: a write does not run.
    pub(crate) is_barred: bool,
}

/// The initiator's knowledge of a command's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The command has not ended.
    Open,
    /// Answered by the target: nothing of it happens any more.
    Answered,
    /// Given back without an answer. It may still run until its initiator has a new session.
    InDoubt,
    /// The command was in doubt, and nothing of it happens any more.
    Over,
}

struct Entry {
    submission: Submission,
    end: End,
    /// How often its blocks were written.
    runs: u32,
    /// The last acknowledged writes to its blocks when it was submitted.
    acknowledged: Vec<Writer>,
}

/// A rule that was broken.
pub(crate) type Broken = String;

pub(crate) struct Oracle {
    pub(crate) medium: Medium,
    entries: Vec<Entry>,
    /// The last acknowledged write of each block.
    acknowledged: BTreeMap<(usize, usize), Writer>,
    /// Blocks that a write is under way to, or may be.
    locked: BTreeSet<(usize, usize)>,
    /// The initiator whose writes never run.
    reader: Option<usize>,
}

impl Oracle {
    pub(crate) fn new(load: &Load, reader: Option<usize>) -> Self {
        Self {
            medium: Medium::new(UNITS, load.blocks, load.block_len),
            entries: Vec::new(),
            acknowledged: BTreeMap::new(),
            locked: BTreeSet::new(),
            reader,
        }
    }

    /// Whether a write may go there: writes under way never overlap.
    pub(crate) fn is_free(&self, extent: Extent) -> bool {
        extent.places().all(|place| !self.locked.contains(&place))
    }

    // The initiators' side.

    /// A command is on its way. Gives its name.
    pub(crate) fn submitted(&mut self, submission: Submission) -> User {
        let extent = submission.extent;
        let acknowledged = self.last_acknowledged(extent);
        if submission.kind.writes() {
            self.locked.extend(extent.places());
        }
        self.entries.push(Entry { submission, end: End::Open, runs: 0, acknowledged });
        self.entries.len() as User
    }

    /// The last acknowledged write of each block.
    pub(crate) fn last_acknowledged(&self, extent: Extent) -> Vec<Writer> {
        extent.places().map(|place| self.acknowledged.get(&place).copied().unwrap_or(0)).collect()
    }

    /// The target has answered a write GOOD.
    pub(crate) fn write_succeeded(&mut self, user: User) -> Result<(), Broken> {
        let entry = self.end(user, End::Answered)?;
        if entry.runs == 0 {
            return Err(format!("command {user} was answered GOOD and has not run"));
        }
        let extent = entry.submission.extent;
        self.acknowledged.extend(extent.places().map(|place| (place, user)));
        self.unlock(user);
        Ok(())
    }

    /// The target has answered a read GOOD with these bytes.
    pub(crate) fn read_succeeded(&mut self, user: User, bytes: &[u8]) -> Result<(), Broken> {
        let entry = self.end(user, End::Answered)?;
        let Submission { extent, .. } = entry.submission;
        let acknowledged = std::mem::take(&mut entry.acknowledged);
        let found = self.medium.read(extent.unit, extent.first, bytes);
        let found = found.map_err(|at| format!("command {user} read wrong bytes from byte {at} on"))?;
        for (index, (found, acknowledged)) in found.into_iter().zip(acknowledged).enumerate() {
            let block = extent.first + index;
            // Names grow: what is older than the last acknowledged write is gone for good.
            if found < acknowledged {
                return Err(format!(
                    "command {user} read block {block} of write {found}, but {acknowledged} is acknowledged"
                ));
            }
            let has_run = found == 0 || self.entries.get(found as usize - 1).is_some_and(|entry| entry.runs > 0);
            if !has_run {
                return Err(format!("command {user} read block {block} of write {found}, which has not run"));
            }
        }
        Ok(())
    }

    /// The target has answered with an error: the command did not run.
    pub(crate) fn failed(&mut self, user: User, status: &str) -> Result<(), Broken> {
        let entry = self.end(user, End::Answered)?;
        if entry.runs > 0 && !entry.submission.may_repeat {
            return Err(format!("command {user} has run and was answered with {status}"));
        }
        // An earlier attempt may have run.
        self.unlock(user);
        Ok(())
    }

    /// The command was given back without an answer.
    pub(crate) fn doubted(&mut self, user: User) -> Result<(), Broken> {
        self.end(user, End::InDoubt).map(drop)
    }

    /// An initiator has a new session: nothing of what it lost runs any more.
    pub(crate) fn session_replaced(&mut self, client: usize) {
        for user in 1..=self.entries.len() as User {
            let entry = &mut self.entries[user as usize - 1];
            if entry.end == End::InDoubt && entry.submission.client == client {
                entry.end = End::Over;
                self.unlock(user);
            }
        }
    }

    /// Commands without an end.
    pub(crate) fn open(&self) -> Vec<User> {
        let open = self.entries.iter().enumerate().filter(|(_, entry)| entry.end == End::Open);
        open.map(|(index, _)| index as User + 1).collect()
    }

    fn end(&mut self, user: User, end: End) -> Result<&mut Entry, Broken> {
        let entry = find(&mut self.entries, user)?;
        if entry.end != End::Open {
            return Err(format!("command {user} ended twice: {:?}, then {end:?}", entry.end));
        }
        entry.end = end;
        Ok(entry)
    }

    fn unlock(&mut self, user: User) {
        let Submission { kind, extent, .. } = self.entries[user as usize - 1].submission;
        if kind.writes() {
            for place in extent.places() {
                self.locked.remove(&place);
            }
        }
    }

    // Reservations.

    /// The writes of an initiator to a unit do not run any more.
    pub(crate) fn bar(&mut self, unit: usize, client: usize) {
        self.set_barred(unit, true, |submission| submission.client == client);
    }

    /// The unit is held by no initiator, or by one that is not known.
    pub(crate) fn unbar(&mut self, unit: usize) {
        self.set_barred(unit, false, |_| true);
    }

    fn set_barred(&mut self, unit: usize, is_barred: bool, concerns: impl Fn(&Submission) -> bool) {
        let all = self.entries.iter_mut().map(|entry| &mut entry.submission);
        for submission in all.filter(|submission| submission.extent.unit == unit && concerns(submission)) {
            submission.is_barred = is_barred;
        }
    }

    // The device's side.

    /// The client that wrote these bytes.
    pub(crate) fn client_of(&self, bytes: &[u8]) -> Option<usize> {
        let user = User::from_le_bytes(*bytes.first_chunk()?);
        Some(self.entries.get(usize::try_from(user).ok()?.checked_sub(1)?)?.submission.client)
    }

    /// A store reads blocks from `first` on.
    pub(crate) fn read(&self, unit: usize, first: usize, into: &mut [u8]) {
        let writers = self.medium.writers(unit, first, into.len() / self.medium.block_len());
        self.medium.fill(unit, first, &writers, into);
    }

    /// A store writes blocks from `first` on.
    pub(crate) fn written(&mut self, unit: usize, first: usize, bytes: &[u8]) -> Result<(), Broken> {
        let writers = self.medium.read(unit, first, bytes);
        let writers = writers.map_err(|at| {
            format!("bytes that no command has are written at block {first} of unit {unit}, byte {at}")
        })?;
        let Some(user) = writers.first().copied().filter(|user| writers.iter().all(|writer| writer == user)) else {
            return Err(format!("bytes of several commands are written together: {writers:?}"));
        };
        let entry = find(&mut self.entries, user)?;
        let Submission { client, kind, extent, may_repeat, is_barred } = entry.submission;
        if self.reader == Some(client) {
            return Err(format!("command {user} ran, and initiator {client} may only read"));
        }
        if is_barred {
            return Err(format!("command {user} ran while another initiator held the unit"));
        }
        if !kind.writes() || (extent.unit, extent.first, extent.blocks) != (unit, first, writers.len()) {
            return Err(format!("command {user} writes {} blocks from block {first} of unit {unit} on", writers.len()));
        }
        if matches!(entry.end, End::Answered | End::Over) {
            return Err(format!("command {user} ran after its end: {:?}", entry.end));
        }
        if entry.runs > 0 && !may_repeat {
            return Err(format!("command {user} ran twice"));
        }
        entry.runs += 1;
        self.medium.write(unit, first, writers.len(), user);
        Ok(())
    }
}

fn find(entries: &mut [Entry], user: User) -> Result<&mut Entry, Broken> {
    let known = usize::try_from(user).ok().and_then(|user| user.checked_sub(1));
    known.and_then(|index| entries.get_mut(index)).ok_or_else(|| format!("there is no command {user}"))
}

#[cfg(test)]
mod tests;
