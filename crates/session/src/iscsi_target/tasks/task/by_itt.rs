//! Finds the slot of a task by its initiator task tag.

use lunette_pdu::InitiatorTaskTag;

/// The index that is no slot.
const END: u16 = u16::MAX;

/// A slot in the list of its bucket.
#[derive(Debug, Clone, Copy)]
struct Link {
    itt: InitiatorTaskTag,
    next: u16,
}

/// Slots in lists, one for each bucket, at least as many buckets as slots.
///
/// An initiator chooses its tags freely. Those that meet in one bucket on purpose cost a walk over all tasks of its own
/// connection, which the command window bounds, so the mixing need not resist it.
#[derive(Debug, Default)]
pub(super) struct ByItt {
    /// The first slot of each list; a power of two of them, or none.
    heads: Vec<u16>,
    /// By slot; what is not in a list is not looked at.
    links: Vec<Link>,
}

impl ByItt {
    /// Adds a slot below `u16::MAX` that is not there, under a tag that is not there.
    pub(super) fn insert(&mut self, itt: InitiatorTaskTag, slot: u16) {
        if usize::from(slot) >= self.links.len() {
            self.grow(usize::from(slot) + 1);
        }
        self.link(itt, slot);
    }

    pub(super) fn find(&self, itt: InitiatorTaskTag) -> Option<u16> {
        let mut slot = *self.heads.get(self.bucket(itt))?;
        while let Some(link) = self.links.get(usize::from(slot)) {
            if link.itt == itt {
                return Some(slot);
            }
            slot = link.next;
        }
        None
    }

    /// Takes a slot out that is there under this tag.
    pub(super) fn remove(&mut self, itt: InitiatorTaskTag, slot: u16) {
        let Some(&Link { next, .. }) = self.links.get(usize::from(slot)) else { return };
        let bucket = self.bucket(itt);
        let Some(head) = self.heads.get_mut(bucket) else { return };
        if *head == slot {
            *head = next;
            return;
        }
        let mut before = *head;
        while let Some(link) = self.links.get_mut(usize::from(before)) {
            if link.next == slot {
                link.next = next;
                return;
            }
            before = link.next;
        }
    }

    fn link(&mut self, itt: InitiatorTaskTag, slot: u16) {
        let bucket = self.bucket(itt);
        let next = std::mem::replace(&mut self.heads[bucket], slot);
        self.links[usize::from(slot)] = Link { itt, next };
    }

    /// Makes room for `slots` of them, and enters all again.
    fn grow(&mut self, slots: usize) {
        let linked: Vec<(InitiatorTaskTag, u16)> = self.heads.iter().flat_map(|head| self.list(*head)).collect();
        let slots = slots.next_power_of_two();
        self.heads = vec![END; slots];
        self.links.resize(slots, Link { itt: InitiatorTaskTag::RESERVED, next: END });
        for (itt, slot) in linked {
            self.link(itt, slot);
        }
    }

    fn list(&self, head: u16) -> impl Iterator<Item = (InitiatorTaskTag, u16)> {
        let link = |slot: u16| self.links.get(usize::from(slot)).map(|link| (slot, *link));
        let links = std::iter::successors(link(head), move |(_, before)| link(before.next));
        links.map(|(slot, link)| (link.itt, slot))
    }

    /// Tags that count up fall into neighbouring buckets, others where their upper bits take them.
    fn bucket(&self, itt: InitiatorTaskTag) -> usize {
        let mixed = itt.0 ^ (itt.0 >> 16).wrapping_mul(0x9e37_79b1);
        mixed as usize & self.heads.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Tags from few values meet often, multiples of a power of two in one bucket.
        #[test]
        fn finds_what_a_map_finds(
            shift in 0_u32..28,
            steps in prop::collection::vec((any::<bool>(), 0_u32..16, 0_u16..40), 0..200),
        ) {
            let (mut index, mut map) = (ByItt::default(), HashMap::new());
            for (insert, number, slot) in steps {
                let itt = InitiatorTaskTag(number << shift);
                match map.get(&itt).copied() {
                    None if insert && !map.values().any(|used| *used == slot) => {
                        index.insert(itt, slot);
                        map.insert(itt, slot);
                    }
                    Some(slot) if !insert => {
                        index.remove(itt, slot);
                        map.remove(&itt);
                    }
                    _ => {}
                }
                for number in 0..16 {
                    let itt = InitiatorTaskTag(number << shift);
                    prop_assert_eq!(index.find(itt), map.get(&itt).copied());
                }
            }
        }
    }
}
