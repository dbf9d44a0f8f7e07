//! Tables by small numbers.

use lunette_reactor::{ConnectionId, Key};
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

    /// All values, those that were parked last.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &T)> {
        self.entries.iter().flatten().chain(&self.parked).map(|(id, value)| (*id, value))
    }
}

/// The tasks of a connection, by the name that its protocol gives them.
#[derive(Default)]
pub(in crate::core) struct TaskKeys {
    keys: Vec<Option<(TaskTag, Key)>>,
    len: usize,
}

impl TaskKeys {
    pub(in crate::core) fn insert(&mut self, tag: TaskTag, key: Key) {
        if tag.index() >= self.keys.len() {
            self.keys.resize(tag.index() + 1, None);
        }
        let before = self.keys[tag.index()].replace((tag, key));
        self.len += usize::from(before.is_none());
    }

    pub(in crate::core) fn get(&self, tag: TaskTag) -> Option<Key> {
        let (owner, key) = (*self.keys.get(tag.index())?)?;
        (owner == tag).then_some(key)
    }

    pub(in crate::core) fn remove(&mut self, tag: TaskTag) -> Option<Key> {
        let entry = self.keys.get_mut(tag.index())?;
        let (_, key) = entry.take_if(|(owner, _)| *owner == tag)?;
        self.len -= 1;
        Some(key)
    }

    pub(in crate::core) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::core) fn keys(&self) -> impl Iterator<Item = Key> {
        self.keys.iter().flatten().map(|(_, key)| *key)
    }
}
