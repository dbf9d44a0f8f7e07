//! The ranges that differ between two states of a volume.

use std::io;
use std::ops::Range;

use lunette_rbd::ImageSnapshot;

use super::CephPool;
use super::cluster::Image;
use super::error::of_volume;
use crate::changes::Changes;
use crate::error::PoolError;
use crate::name::Name;
use crate::pool::Change;

impl CephPool {
    pub(super) fn list_changes(
        &self,
        volume: &Name,
        since: Option<&Name>,
        until: Option<&Name>,
    ) -> Result<Vec<Change>, PoolError> {
        let failed = |error| of_volume(volume, "its changes cannot be listed", error);
        let present = self.open_to_read(volume, None)?;
        let later = until.map(|until| self.open_to_read(volume, Some(until))).transpose()?;
        let snapshots = present.snapshots().map_err(failed)?;
        let find = |name: &Name| {
            let found = snapshots.iter().find(|snapshot| snapshot.name == name.as_str());
            found.ok_or_else(|| PoolError::NoSnapshot { volume: volume.clone(), snapshot: name.clone() })
        };
        let (since, until) = (since.map(find).transpose()?, until.map(find).transpose()?);
        if let (Some(since), Some(until)) = (since, until)
            && since.id > until.id
        {
            let (since, until) = (&since.name, &until.name);
            return Err(PoolError::Value(format!("snapshot {since} of {volume} is later than {until}; swap them")));
        }
        if since.is_some() && since == until {
            return Ok(Vec::new());
        }
        let image = later.as_deref().unwrap_or(&*present);
        changes(image, since, until.map_or(u64::MAX, |until| until.id)).map_err(failed)
    }
}

/// The ranges of an image, open at the snapshot of the id `until` or later, that may differ from its snapshot `since`.
fn changes(image: &dyn Image, since: Option<&ImageSnapshot>, until: u64) -> io::Result<Vec<Change>> {
    let (len_bytes, name) = (image.len_bytes()?, since.map(|since| &*since.name));
    let mut changes = Beyond::new(since.map_or(u64::MAX, |since| since.len_bytes));
    for range in worth_looking_at(image, since, until)? {
        image.differences(name, range, true, false, &mut |offset, len, has_space| {
            changes.push(offset..offset.saturating_add(len).min(len_bytes), !has_space);
        })?;
    }
    Ok(changes.into_list(len_bytes))
}

/// The ranges to ask for each object of, in their order. With fast-diff, those are known without asking for the others,
/// as long as the image had one length all the time.
fn worth_looking_at(image: &dyn Image, since: Option<&ImageSnapshot>, until: u64) -> io::Result<Vec<Range<u64>>> {
    let (len_bytes, lengths) = (image.len_bytes()?, image.lengths()?);
    let mut between = lengths.range(since.map_or(0, |since| since.id)..=until);
    let mut coarse = Beyond::new(u64::MAX);
    if image.has_fast_diff()? && between.all(|(_, snapshot_len_bytes)| *snapshot_len_bytes == len_bytes) {
        image.differences(since.map(|since| &*since.name), 0..len_bytes, true, true, &mut |offset, len, _| {
            coarse.push(offset..offset.saturating_add(len).min(len_bytes), false);
        })?;
    } else {
        coarse.push(0..len_bytes, false);
    }
    Ok(coarse.into_list(len_bytes).into_iter().map(|change| change.range).collect())
}

/// Changes, among which all counts that the earlier state did not have.
struct Beyond {
    changes: Changes,
    since_len_bytes: u64,
    /// The end of what counts beyond the length of the earlier state.
    next: u64,
    /// The end of all changes so far.
    end: u64,
}

impl Beyond {
    fn new(since_len_bytes: u64) -> Self {
        Self { changes: Changes::new(), since_len_bytes, next: since_len_bytes, end: 0 }
    }

    /// Adds a range. Ranges come in their order.
    fn push(&mut self, range: Range<u64>, is_zero: bool) {
        let range = range.start.max(self.end)..range.end;
        if range.is_empty() {
            return;
        }
        if range.end > self.since_len_bytes {
            self.fill(range.start);
            self.next = range.end;
        }
        self.end = range.end;
        self.changes.push(range, is_zero);
    }

    /// Up to `end` there are only zeroes.
    fn fill(&mut self, end: u64) {
        if end > self.next {
            self.changes.push(self.next..end, true);
            self.next = end;
        }
    }

    fn into_list(mut self, len_bytes: u64) -> Vec<Change> {
        self.fill(len_bytes);
        self.changes.into_list()
    }
}
