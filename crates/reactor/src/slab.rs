//! A table whose keys go stale instead of pointing at the next tenant.

/// Place in a [`Slab`], and which tenant of the place is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Values in a dense table with reuse of places.
///
/// A place whose generations are used up is retired, so no key is ever given out twice.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// The key that the next [`insert`](Self::insert) returns.
    pub(crate) fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&index) => Key { index, generation: self.places[index as usize].generation },
            None => Key { index: u32::try_from(self.places.len()).expect("fewer values than 2^32"), generation: 0 },
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        if self.free.pop().is_some() {
            self.places[key.index as usize].value = Some(value);
        } else {
            self.places.push(Place { generation: 0, value: Some(value) });
        }
        key
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        if place.generation == key.generation { place.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation { place.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation {
            return None;
        }
        let value = place.value.take()?;
        if let Some(next) = place.generation.checked_add(1) {
            place.generation = next;
            self.free.push(key.index);
        }
        Some(value)
    }

    /// Takes all values out, for good.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        self.places.drain(..).filter_map(|place| place.value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0..).zip(&self.places).filter_map(|(index, place)| {
            let value = place.value.as_ref()?;
            Some((Key { index, generation: place.generation }, value))
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        (0..).zip(&mut self.places).filter_map(|(index, place)| {
            let value = place.value.as_mut()?;
            Some((Key { index, generation: place.generation }, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_dies_with_its_value() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.index, first.index);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
    }

    #[test]
    fn the_announced_key_is_the_one_given() {
        let mut slab = Slab::new();
        let keys: Vec<Key> = (0..3)
            .map(|i| {
                let next = slab.next_key();
                assert_eq!(slab.insert(i), next);
                next
            })
            .collect();
        slab.remove(keys[1]);
        let next = slab.next_key();
        assert_eq!(slab.insert(7), next);
        assert_eq!(slab.iter().map(|(key, &value)| (key.index, value)).collect::<Vec<_>>(), [(0, 0), (1, 7), (2, 2)]);
    }

    #[test]
    fn a_place_without_generations_left_is_retired() {
        let mut slab = Slab::new();
        let first = slab.insert(());
        slab.places[first.index as usize].generation = u32::MAX;
        slab.remove(Key { generation: u32::MAX, ..first });
        assert_ne!(slab.insert(()).index, first.index);
    }
}
