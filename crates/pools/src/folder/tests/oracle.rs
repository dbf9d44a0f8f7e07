//! A pool as a plain map, which says what each action does.

use std::collections::{BTreeMap, BTreeSet};

use super::model::BLOCK;
use crate::name::Name;
use crate::pool::{Labels, Origin};

/// An action on a pool, or on the blocks of a volume.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Create {
        name: Name,
        blocks: usize,
        is_full: bool,
        is_filling: bool,
    },
    Filled {
        name: Name,
    },
    Resize {
        name: Name,
        blocks: usize,
    },
    Rename {
        from: Name,
        to: Name,
    },
    SetLabels {
        name: Name,
        value: u8,
    },
    Remove {
        name: Name,
    },
    /// Snapshots of a group. A user of the first volume writes between the preparation and the instant, and
    /// [another value](later) after it.
    Snapshot {
        group: BTreeSet<Name>,
        snapshot: Name,
        value: u8,
    },
    /// Snapshots of a group that are prepared and given up.
    GiveUp {
        group: BTreeSet<Name>,
        snapshot: Name,
    },
    RemoveSnapshot {
        name: Name,
        snapshot: Name,
    },
    RollBack {
        name: Name,
        snapshot: Name,
    },
    Clone {
        origin: Origin,
        name: Name,
    },
    Flatten {
        name: Name,
    },
    Write {
        name: Name,
        at: usize,
        value: u8,
        is_flushed: bool,
    },
}

/// The pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Oracle(pub(super) BTreeMap<Name, VolumeState>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumeState {
    pub(super) serial: String,
    pub(super) labels: Labels,
    pub(super) origin: Option<Origin>,
    pub(super) is_filling: bool,
    pub(super) content: Content,
    pub(super) snapshots: BTreeMap<Name, (Vec<u8>, Labels)>,
}

/// The blocks of a volume.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pub(super) blocks: Vec<u8>,
    /// Former values of blocks that are not flushed. A power cut may bring them back.
    former: BTreeMap<usize, BTreeSet<u8>>,
}

/// Whether they may be one after a power cut.
impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        let may_be = |at: usize, value| {
            [self, other].iter().any(|it| it.former.get(&at).is_some_and(|was| was.contains(&value)))
        };
        let is_like = |at: usize| {
            self.blocks[at] == other.blocks[at] || may_be(at, self.blocks[at]) || may_be(at, other.blocks[at])
        };
        self.blocks.len() == other.blocks.len() && (0..self.blocks.len()).all(is_like)
    }
}

impl Eq for Content {}

impl Content {
    pub(super) fn new(blocks: Vec<u8>) -> Self {
        Self { blocks, former: BTreeMap::new() }
    }

    fn write(&mut self, at: usize, value: u8, is_flushed: bool) {
        let was = std::mem::replace(&mut self.blocks[at], value);
        self.former.entry(at).or_default().insert(was);
        if is_flushed {
            self.former.clear();
        }
    }
}

/// The labels by which tests tell states apart.
pub(super) fn labels(value: u8) -> Labels {
    [("value".to_owned(), value.to_string())].into()
}

/// The value that a user writes over this one, when its block has been taken.
pub(super) fn later(value: u8) -> u8 {
    value ^ 0x80
}

/// The serial number of a volume that is created under this name.
pub(super) fn serial(name: &Name) -> String {
    format!("serial of {name}")
}

/// The variant of the error that an action gets.
type Refusal = &'static str;

impl Oracle {
    /// Opens the pool.
    pub(super) fn open(&mut self) {
        self.0.retain(|_, volume| !volume.is_filling);
    }

    /// The pool as it is while the power lasts.
    pub(super) fn with_power(&self) -> Self {
        let mut pool = self.clone();
        pool.0.values_mut().for_each(|volume| volume.content.former.clear());
        pool
    }

    /// Whether a user may write there.
    pub(super) fn has_block(&self, name: &Name, at: usize) -> bool {
        self.0.get(name).is_some_and(|volume| at < volume.content.blocks.len())
    }

    /// The pools that an action may leave when it has failed: as it was, but users may have written meanwhile.
    pub(super) fn after_failure(&self, action: &Action) -> Vec<Self> {
        let mut possible = vec![self.clone()];
        if let Action::Snapshot { group, value, .. } = action
            && let Some(first) = group.first()
            && self.has_block(first, 0)
        {
            let mut written = self.clone();
            for value in [*value, later(*value)] {
                written.0.get_mut(first).expect("a volume with a block").content.write(0, value, false);
                possible.push(written.clone());
            }
        }
        possible
    }

    pub(super) fn apply(&mut self, action: &Action) -> Result<(), Refusal> {
        match action.clone() {
            Action::Create { name, blocks, is_full: _, is_filling } => {
                self.add(name, vec![0; blocks], None, is_filling)?;
            }
            Action::Filled { name } => self.volume(&name)?.is_filling = false,
            Action::Resize { name, blocks } => {
                // Former values stay possible: a cut may come before the flush.
                let content = &mut self.filled(&name)?.content;
                content.former.retain(|at, _| *at < blocks);
                content.blocks.resize(blocks, 0);
            }
            Action::Rename { from, to } => {
                let volume = self.filled(&from)?.clone();
                if self.0.contains_key(&to) {
                    return Err("VolumeExists");
                }
                self.0.remove(&from);
                self.0.insert(to, volume);
            }
            Action::SetLabels { name, value } => self.volume(&name)?.labels = labels(value),
            Action::Remove { name } => {
                if !self.volume(&name)?.snapshots.is_empty() {
                    return Err("HasSnapshots");
                }
                self.0.remove(&name);
            }
            Action::Snapshot { group, snapshot, value } => {
                self.check_group(&group, &snapshot)?;
                for (number, name) in group.iter().enumerate() {
                    let volume = self.filled(name)?;
                    volume.content.former.clear();
                    if number == 0 {
                        volume.content.write(0, value, false);
                    }
                    let taken = (volume.content.blocks.clone(), labels(value));
                    volume.snapshots.insert(snapshot.clone(), taken);
                    if number == 0 {
                        volume.content.write(0, later(value), false);
                    }
                }
            }
            Action::GiveUp { group, snapshot } => self.check_group(&group, &snapshot)?,
            Action::RemoveSnapshot { name, snapshot } => {
                self.volume(&name)?.snapshots.remove(&snapshot).ok_or("NoSnapshot")?;
            }
            Action::RollBack { name, snapshot } => {
                let volume = self.filled(&name)?;
                let (blocks, _) = volume.snapshots.get(&snapshot).ok_or("NoSnapshot")?;
                volume.content = Content::new(blocks.clone());
            }
            Action::Clone { origin, name } => {
                let volume = self.filled(&origin.volume)?;
                let blocks = match &origin.snapshot {
                    Some(snapshot) => volume.snapshots.get(snapshot).ok_or("NoSnapshot")?.0.clone(),
                    None => volume.content.blocks.clone(),
                };
                self.add(name, blocks, Some(origin), false)?;
            }
            Action::Flatten { name } => self.volume(&name)?.origin = None,
            Action::Write { name, at, value, is_flushed } => {
                self.volume(&name)?.content.write(at, value, is_flushed);
            }
        }
        Ok(())
    }

    fn add(&mut self, name: Name, blocks: Vec<u8>, origin: Option<Origin>, is_filling: bool) -> Result<(), Refusal> {
        if self.0.contains_key(&name) {
            return Err("VolumeExists");
        }
        let (serial, labels) = (serial(&name), labels(0));
        let content = Content::new(blocks);
        self.0.insert(name, VolumeState { serial, labels, origin, is_filling, content, snapshots: BTreeMap::new() });
        Ok(())
    }

    fn volume(&mut self, name: &Name) -> Result<&mut VolumeState, Refusal> {
        self.0.get_mut(name).ok_or("NoVolume")
    }

    fn filled(&mut self, name: &Name) -> Result<&mut VolumeState, Refusal> {
        let volume = self.volume(name)?;
        if volume.is_filling { Err("Filling") } else { Ok(volume) }
    }

    fn check_group(&mut self, group: &BTreeSet<Name>, snapshot: &Name) -> Result<(), Refusal> {
        if group.is_empty() {
            return Err("Value");
        }
        let mut names = group.iter();
        names.try_for_each(|name| {
            let is_taken = self.filled(name)?.snapshots.contains_key(snapshot);
            if is_taken { Err("SnapshotExists") } else { Ok(()) }
        })
    }
}

/// Checks that all that differs between two contents is among the changes, and that what is called zero is.
pub(super) fn check_changes(earlier: &[u8], later: &[u8], changes: &[crate::pool::Change]) {
    for (at, value) in later.iter().enumerate() {
        let offset = at as u64 * BLOCK;
        let change = changes.iter().find(|change| change.range.contains(&offset));
        if earlier.get(at) != Some(value) {
            assert!(change.is_some(), "block {at} has changed: {changes:?}");
        }
        assert!(change.is_none_or(|change| !change.is_zero || *value == 0), "block {at} is not zero: {changes:?}");
    }
    let len_bytes = later.len() as u64 * BLOCK;
    assert!(changes.iter().all(|change| !change.range.is_empty() && change.range.end <= len_bytes), "{changes:?}");
    assert!(changes.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start), "{changes:?}");
}
