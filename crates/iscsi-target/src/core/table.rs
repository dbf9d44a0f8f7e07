//! Tables by small numbers.

use lunette_reactor::ConnectionId;
use lunette_session::iscsi_target::TaskTag;

/// Values by connection. Ids of connections that are gone find nothing, unless their value was parked.
pub(super) struct ConnectionTable<T> {
    entries: Vec<Option<(ConnectionId, T)>>,
    len: usize,
    /// Values that have outlived their connection, whose place another one may have taken. The longest here come first.
    parked: Vec<(ConnectionId, T)>,
}

impl<T> Default for ConnectionTable<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), len: 0, parked: Vec::new() }
    }
}

impl<T> ConnectionTable<T> {
    pub(super) fn insert(&mut self, id: ConnectionId, value: T) {
        let index = id.index();
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        self.len += usize::from(self.entries[index].is_none());
        self.entries[index] = Some((id, value));
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&T> {
        match self.entries.get(id.index()) {
            Some(Some((owner, value))) if *owner == id => Some(value),
            _ => self.parked.iter().find(|(owner, _)| *owner == id).map(|(_, value)| value),
        }
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        match self.entries.get_mut(id.index()) {
            Some(Some((owner, value))) if *owner == id => Some(value),
            _ => self.parked.iter_mut().find(|(owner, _)| *owner == id).map(|(_, value)| value),
        }
    }

    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<T> {
        if let Some(at) = self.parked.iter().position(|(owner, _)| *owner == id) {
            return Some(self.parked.remove(at).1);
        }
        let entry = self.entries.get_mut(id.index())?;
        let (_, value) = entry.take_if(|(owner, _)| *owner == id)?;
        self.len -= 1;
        Some(value)
    }

    /// Keeps a value beyond the end of its connection.
    pub(super) fn park(&mut self, id: ConnectionId) {
        if let Some(value) = self.remove(id) {
            self.parked.push((id, value));
        }
    }

    pub(super) fn is_parked(&self, id: ConnectionId) -> bool {
        self.parked.iter().any(|(owner, _)| *owner == id)
    }

    /// The values that were parked, the longest here first.
    pub(super) fn parked(&self) -> impl Iterator<Item = (ConnectionId, &T)> {
        self.parked.iter().map(|(id, value)| (*id, value))
    }

    /// How many are not parked.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnectionId, &mut T)> {
        self.entries.iter_mut().flatten().chain(&mut self.parked).map(|(id, value)| (*id, value))
    }
}

/// Names a value in a [`Slab`]; not given out again while the slab lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    pub(super) fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(super) fn from_u64(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Values that find their place themselves.
pub(super) struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            (self.entries.len() - 1) as u32
        });
        let (generation, entry) = &mut self.entries[index as usize];
        *entry = Some(value);
        Key { index, generation: *generation }
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let (generation, entry) = self.entries.get(key.index as usize)?;
        if *generation == key.generation { entry.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, entry) = self.entries.get_mut(key.index as usize)?;
        if *generation == key.generation { entry.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, entry) = self.entries.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let value = entry.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, (generation, entry))| {
            let key = Key { index: index as u32, generation: *generation };
            entry.as_ref().map(|value| (key, value))
        })
    }
}

/// The tasks of a connection, by the name that its protocol gives them.
#[derive(Default)]
pub(super) struct TaskKeys {
    keys: Vec<Option<(TaskTag, Key)>>,
    len: usize,
}

impl TaskKeys {
    pub(super) fn insert(&mut self, tag: TaskTag, key: Key) {
        if tag.index() >= self.keys.len() {
            self.keys.resize(tag.index() + 1, None);
        }
        let before = self.keys[tag.index()].replace((tag, key));
        self.len += usize::from(before.is_none());
    }

    pub(super) fn get(&self, tag: TaskTag) -> Option<Key> {
        let (owner, key) = (*self.keys.get(tag.index())?)?;
        (owner == tag).then_some(key)
    }

    pub(super) fn remove(&mut self, tag: TaskTag) -> Option<Key> {
        let entry = self.keys.get_mut(tag.index())?;
        let (_, key) = entry.take_if(|(owner, _)| *owner == tag)?;
        self.len -= 1;
        Some(key)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.keys.iter().flatten().map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_removed_values_find_nothing_after_the_place_is_used_again() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(Key::from_u64(second.to_u64()), second);
        assert_eq!(slab.iter().map(|(_, value)| *value).collect::<Vec<_>>(), ['b']);
    }
}
