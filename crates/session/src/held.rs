//! Bytes that came while a connection could not take them.

/// A piece of the stream, taken from the front.
#[derive(Default)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    /// How many of them have been taken.
    taken: usize,
}

impl Held {
    /// Appends bytes. What has been taken makes room first.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Takes all but the last `len` bytes.
    pub(crate) fn keep_last(mut self, len: usize) -> Self {
        self.taken = self.bytes.len() - len;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_does_not_pile_up() {
        let mut held = Held::default();
        for n in 1..=100 {
            held.push(&[n; 10]);
            held = held.keep_last(3);
            assert_eq!(held.rest(), [n; 3]);
        }
        assert!(held.bytes.len() <= 13);
        assert!(!held.is_empty());
        assert!(held.keep_last(0).is_empty());
    }
}
