//! The tasks under way, found by their initiator task tag without a hash: the tag is slot and generation.

use lunette_pdu::InitiatorTaskTag;

use super::event::TaskTag;

impl TaskTag {
    /// The tag as it stands on the wire.
    pub(crate) fn itt(self) -> InitiatorTaskTag {
        InitiatorTaskTag(u32::from(self.slot) << 16 | u32::from(self.generation))
    }

    /// The tag that the target has sent; it may name nothing.
    pub(crate) fn from_itt(itt: InitiatorTaskTag) -> Self {
        Self { slot: (itt.0 >> 16) as u16, generation: itt.0 as u16 }
    }
}

struct Slot<T> {
    generation: u16,
    entry: Option<T>,
}

/// A slab with generations: a tag that was given back is not soon valid again.
///
/// It is not `lunette_reactor::Slab`, which retires a slot whose generations are used up: a tag has 16 bits of them on
/// the wire, so here they wrap around, and the slots of two tables share one space. The target's table of tasks is not
/// that slab either: its slots are half of a transfer tag, and keep memory and the next transfer tag for the task that
/// comes next.
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
    /// The first slot's number on the wire. Two tables with separate numbers share one space of tags.
    base: u16,
    at_most: usize,
}

impl<T> Table<T> {
    /// An empty table with slots from `base` on.
    pub(crate) fn new(base: u16, at_most: usize) -> Self {
        assert!(usize::from(base) + at_most < usize::from(u16::MAX), "the reserved tag is in no slot");
        Self { slots: Vec::new(), free: Vec::new(), base, at_most }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many more it takes.
    pub(crate) fn room(&self) -> usize {
        self.at_most - self.len()
    }

    /// Adds an entry, or gives it back when the table is full.
    #[inline]
    pub(crate) fn insert(&mut self, entry: T) -> Result<TaskTag, T> {
        let Some((tag, place)) = self.place() else { return Err(entry) };
        *place = Some(entry);
        Ok(tag)
    }

    /// A place for an entry, which the caller puts there, and its tag. `None` when the table is full.
    #[inline]
    pub(crate) fn place(&mut self) -> Option<(TaskTag, &mut Option<T>)> {
        if self.room() == 0 {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, entry: None });
            (self.slots.len() - 1) as u16
        });
        let slot = &mut self.slots[usize::from(index)];
        Some((TaskTag { slot: self.base + index, generation: slot.generation }, &mut slot.entry))
    }

    #[inline]
    fn slot(&self, tag: TaskTag) -> Option<&Slot<T>> {
        let index = usize::from(tag.slot.checked_sub(self.base)?);
        self.slots.get(index).filter(|slot| slot.generation == tag.generation)
    }

    #[inline]
    pub(crate) fn get(&self, tag: TaskTag) -> Option<&T> {
        self.slot(tag)?.entry.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, tag: TaskTag) -> Option<&mut T> {
        let index = usize::from(tag.slot.checked_sub(self.base)?);
        self.slots.get_mut(index).filter(|slot| slot.generation == tag.generation)?.entry.as_mut()
    }

    #[inline]
    pub(crate) fn remove(&mut self, tag: TaskTag) -> Option<T> {
        let index = tag.slot.checked_sub(self.base)?;
        let slot = self.slots.get_mut(usize::from(index)).filter(|slot| slot.generation == tag.generation)?;
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(entry)
    }

    /// Drops an entry in its place when `look` has looked at it, for large ones: what is removed is moved.
    #[inline]
    pub(crate) fn end<R>(&mut self, tag: TaskTag, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        let index = tag.slot.checked_sub(self.base)?;
        let slot = self.slots.get_mut(usize::from(index)).filter(|slot| slot.generation == tag.generation)?;
        let said = take(slot.entry.as_mut()?);
        slot.entry = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(said)
    }

    /// All entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskTag, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let tag = TaskTag { slot: self.base + index as u16, generation: slot.generation };
            Some((tag, slot.entry.as_ref()?))
        })
    }

    /// All entries, in no order, to be changed.
    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.entry.as_mut())
    }

    /// All entries, in no order.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = T> {
        self.slots.into_iter().filter_map(|slot| slot.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_survive_the_wire_and_old_ones_name_nothing() {
        let mut table = Table::new(0x8000, 2);
        let first = table.insert('a').unwrap();
        assert_eq!(TaskTag::from_itt(first.itt()), first);
        assert_eq!(first.itt(), InitiatorTaskTag(0x8000_0000));
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b').unwrap();
        assert_eq!(table.end(first, |_| ()), None);
        assert_eq!((second.slot, second.generation), (0x8000, 1));
        assert_eq!((table.get(first), table.get(second)), (None, Some(&'b')));
        assert_eq!(table.remove(first), None);
        assert_eq!([(); 2].map(|()| table.end(second, |entry| *entry)), [Some('b'), None]);
        assert_eq!((table.len(), table.get(second)), (0, None));
        for itt in [0, 0x7fff_0001, 0x8001_0000, 0xffff_ffff] {
            assert_eq!(table.get(TaskTag::from_itt(InitiatorTaskTag(itt))), None, "{itt:#x}");
        }
    }

    #[test]
    fn a_full_table_gives_the_entry_back() {
        let mut table = Table::new(0, 2);
        assert!(table.insert(1).is_ok() && table.insert(2).is_ok());
        assert_eq!((table.insert(3), table.len(), table.room()), (Err(3), 2, 0));
    }
}
