//! What is true: every command from its submission to its end, and who wrote each block.

use std::collections::{BTreeMap, BTreeSet};

use crate::medium::{Medium, Writer};
use crate::scenario::{Load, UNITS};

/// The initiator's name for a command. Also the name of what it writes.
pub(crate) type User = u64;

/// What a command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// Writes blocks and reads what was there before: data both ways.
    Exchange,
}

impl Kind {
    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }

    pub(crate) fn reads(self) -> bool {
        self != Self::Write
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

/// What the initiator knows of a command's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It has not ended.
    Open,
    /// Answered by the target.
    Answered,
    /// Given back without an answer: nothing of it happens any more.
    Aborted,
    /// Its session was lost. It may still run, until the next session is there.
    Lost,
}

struct Entry {
    kind: Kind,
    extent: Extent,
    end: End,
    /// It may not run any more.
    over: bool,
    delivered: bool,
    executed: bool,
    /// The device did not run it, and answers with this status.
    refused: Option<u8>,
    /// What the device read.
    found: Vec<Writer>,
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
}

impl Oracle {
    pub(crate) fn new(load: &Load) -> Self {
        Self {
            medium: Medium::new(UNITS, load.blocks, load.block_len),
            entries: Vec::new(),
            acknowledged: BTreeMap::new(),
            locked: BTreeSet::new(),
        }
    }

    /// Whether a write may go there: writes under way never overlap.
    pub(crate) fn is_free(&self, extent: Extent) -> bool {
        extent.places().all(|place| !self.locked.contains(&place))
    }

    // The initiator's side.

    /// The name of the next command.
    pub(crate) fn next_user(&self) -> User {
        self.entries.len() as User + 1
    }

    /// A command is on its way.
    pub(crate) fn submitted(&mut self, kind: Kind, extent: Extent) {
        let acknowledged = extent.places().map(|place| self.acknowledged.get(&place).copied().unwrap_or(0)).collect();
        if kind.writes() {
            self.locked.extend(extent.places());
        }
        self.entries.push(Entry {
            kind,
            extent,
            end: End::Open,
            over: false,
            delivered: false,
            executed: false,
            refused: None,
            found: Vec::new(),
            acknowledged,
        });
    }

    /// The target has answered GOOD. `data_in`: what came, as far as it was to come.
    pub(crate) fn succeeded(&mut self, user: User, data_in: Option<&[u8]>) -> Result<(), Broken> {
        let entry = self.end(user, End::Answered)?;
        if !entry.executed {
            return Err(format!("command {user} was answered GOOD and has not run"));
        }
        let (kind, extent) = (entry.kind, entry.extent);
        if kind.reads() {
            let (entry, medium) = (&self.entries[user as usize - 1], &self.medium);
            let data_in = data_in.unwrap_or_default();
            if let Some(at) = medium.first_wrong(extent.unit, extent.first, &entry.found, data_in) {
                return Err(format!("command {user} read wrong bytes from byte {at} on"));
            }
            // Names grow: what is older than the last acknowledged write is gone for good.
            let stale = entry.found.iter().zip(&entry.acknowledged).position(|(found, acked)| found < acked);
            if let Some(at) = stale {
                let (found, acked) = (entry.found[at], entry.acknowledged[at]);
                let block = extent.first + at;
                return Err(format!("command {user} read block {block} of write {found}, but {acked} is acknowledged"));
            }
        }
        if kind.writes() {
            self.acknowledged.extend(extent.places().map(|place| (place, user)));
            self.unlock(extent);
        }
        Ok(())
    }

    /// The target has answered with an error.
    pub(crate) fn failed(&mut self, user: User, status: u8) -> Result<(), Broken> {
        let entry = self.end(user, End::Answered)?;
        if entry.executed {
            return Err(format!("command {user} has run and was answered with status {status:#x}"));
        }
        if let Some(refused) = entry.refused.filter(|refused| *refused != status) {
            return Err(format!("command {user} was answered with status {status:#x} and not {refused:#x}"));
        }
        self.unlock_written(user);
        Ok(())
    }

    /// The target has answered that it does not keep the data any more that was to be sent again: the command has run.
    pub(crate) fn forgotten(&mut self, user: User) -> Result<(), Broken> {
        let entry = self.end(user, End::Answered)?;
        if !entry.executed || !entry.kind.reads() {
            return Err(format!("command {user} was answered as one whose data was forgotten"));
        }
        self.unlock_written(user);
        Ok(())
    }

    /// The command was given back without an answer.
    pub(crate) fn aborted(&mut self, user: User) -> Result<(), Broken> {
        self.end(user, End::Aborted)?;
        self.unlock_written(user);
        Ok(())
    }

    /// The session is over and the command was not answered.
    pub(crate) fn lost(&mut self, user: User) -> Result<(), Broken> {
        let entry = self.end(user, End::Lost)?;
        entry.over = false;
        Ok(())
    }

    /// A session is there that follows a lost one: nothing of the lost one runs any more.
    pub(crate) fn session_replaced(&mut self) {
        for user in 1..=self.entries.len() as User {
            let entry = &mut self.entries[user as usize - 1];
            if entry.end == End::Lost && !entry.over {
                entry.over = true;
                self.unlock_written(user);
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
        (entry.end, entry.over) = (end, true);
        Ok(entry)
    }

    fn unlock_written(&mut self, user: User) {
        let Entry { kind, extent, .. } = self.entries[user as usize - 1];
        if kind.writes() {
            self.unlock(extent);
        }
    }

    fn unlock(&mut self, extent: Extent) {
        for place in extent.places() {
            self.locked.remove(&place);
        }
    }

    /// Whether a command to that unit was submitted after the one named.
    pub(crate) fn has_younger(&self, than: User, unit: usize) -> bool {
        self.entries.iter().skip(than as usize).any(|entry| entry.extent.unit == unit)
    }

    /// Whether the device has been given the command, and has not come to its end.
    pub(crate) fn is_running(&self, user: User) -> bool {
        let entry = usize::try_from(user - 1).ok().and_then(|index| self.entries.get(index));
        entry.is_some_and(|entry| entry.delivered && !entry.executed && entry.refused.is_none() && !entry.over)
    }

    // The device's side.

    /// The device has been given a command.
    pub(crate) fn delivered(&mut self, user: User, kind: Kind, extent: Extent) -> Result<(), Broken> {
        let entry = find(&mut self.entries, user)?;
        if (entry.kind, entry.extent) != (kind, extent) {
            return Err(format!("command {user} came as another one: {kind:?} {extent:?}"));
        }
        if entry.delivered {
            return Err(format!("command {user} was delivered twice"));
        }
        if entry.over {
            return Err(format!("command {user} was delivered after its end: {:?}", entry.end));
        }
        entry.delivered = true;
        Ok(())
    }

    /// The device does not run it.
    pub(crate) fn refused(&mut self, user: User, status: u8) -> Result<(), Broken> {
        find(&mut self.entries, user)?.refused = Some(status);
        Ok(())
    }

    /// The device runs a command, over the bytes that came for it. Gives what it finds there.
    pub(crate) fn execute(&mut self, user: User, data_out: Option<&[u8]>) -> Result<Vec<Writer>, Broken> {
        let entry = find(&mut self.entries, user)?;
        let Extent { unit, first, blocks } = entry.extent;
        if entry.executed {
            return Err(format!("command {user} ran twice"));
        }
        if entry.over {
            return Err(format!("command {user} ran after its end: {:?}", entry.end));
        }
        entry.executed = true;
        entry.found = self.medium.writers(unit, first, blocks);
        let found = entry.found.clone();
        if entry.kind.writes() {
            let written = vec![user; blocks];
            let data_out = data_out.unwrap_or_default();
            if let Some(at) = self.medium.first_wrong(unit, first, &written, data_out) {
                return Err(format!("the data of write {user} is wrong from byte {at} on"));
            }
            self.medium.write(unit, first, blocks, user);
        }
        Ok(found)
    }
}

fn find(entries: &mut [Entry], user: User) -> Result<&mut Entry, Broken> {
    let known = usize::try_from(user).ok().and_then(|user| user.checked_sub(1));
    known.and_then(|index| entries.get_mut(index)).ok_or_else(|| format!("there is no command {user}"))
}

#[cfg(test)]
mod tests;
