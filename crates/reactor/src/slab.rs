//! A table whose keys go stale instead of pointing at the next tenant.

/// A place in a [`Slab`], and the tenant of the place that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// The key as a number, to travel through an interface that takes one.
    #[inline]
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key that [`to_u64`](Self::to_u64) gave `bits` for.
    #[inline]
    pub fn from_u64(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Values in a dense table with reuse of places.
///
/// A place whose generations are used up is retired, so no key is ever given out twice.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key that the next [`insert`](Self::insert) returns.
    #[inline]
    pub fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&index) => Key { index, generation: self.places[index as usize].generation },
            None => Key { index: u32::try_from(self.places.len()).expect("fewer values than 2^32"), generation: 0 },
        }
    }

    /// Adds a value.
    #[inline]
    pub fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        self.len += 1;
        if self.free.pop().is_some() {
            self.places[key.index as usize].value = Some(value);
        } else {
            self.places.push(Place { generation: 0, value: Some(value) });
        }
        key
    }

    /// The value of a key, unless it was removed.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        if place.generation == key.generation { place.value.as_ref() } else { None }
    }

    /// The value of a key, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation { place.value.as_mut() } else { None }
    }

    /// Takes the value of a key out.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize).filter(|place| place.generation == key.generation)?;
        let value = place.value.take()?;
        self.free(key);
        Some(value)
    }

    /// Drops the value of a key in its place, for large values: a value that is taken out is moved.
    #[inline]
    pub fn discard(&mut self, key: Key) {
        if let Some(place) = self.places.get_mut(key.index as usize)
            && place.generation == key.generation
            && place.value.is_some()
        {
            place.value = None;
            self.free(key);
        }
    }

    #[inline]
    fn free(&mut self, key: Key) {
        self.len -= 1;
        let generation = &mut self.places[key.index as usize].generation;
        if let Some(next) = generation.checked_add(1) {
            *generation = next;
            self.free.push(key.index);
        }
    }

    /// Removes all values, and returns them.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        let keys: Vec<Key> = self.iter().map(|(key, _)| key).collect();
        keys.into_iter().filter_map(|key| self.remove(key))
    }

    /// All values with their keys, in the order of places.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0..).zip(&self.places).filter_map(|(index, place)| {
            let value = place.value.as_ref()?;
            Some((Key { index, generation: place.generation }, value))
        })
    }

    /// All values with their keys, in the order of places.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
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
        let mut slab = Slab::default();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.index, first.index);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
    }

    #[test]
    fn a_discarded_value_is_dropped_once_and_its_place_is_used_again() {
        let (mut slab, value) = (Slab::default(), std::rc::Rc::new(()));
        let first = slab.insert(value.clone());
        slab.discard(first);
        let second = slab.insert(value.clone());
        slab.discard(first);
        assert_eq!((second.index, slab.len(), std::rc::Rc::strong_count(&value)), (first.index, 1, 2));
    }

    #[test]
    fn the_announced_key_is_the_one_given() {
        let mut slab = Slab::default();
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
        let mut slab = Slab::default();
        let first = slab.insert(());
        slab.places[first.index as usize].generation = u32::MAX;
        slab.remove(Key { generation: u32::MAX, ..first });
        assert_ne!(slab.insert(()).index, first.index);
    }
}
