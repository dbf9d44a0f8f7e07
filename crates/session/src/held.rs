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

    /// Puts bytes before all others.
    pub(crate) fn put_front(&mut self, mut bytes: Vec<u8>) {
        bytes.extend_from_slice(self.rest());
        *self = Self { bytes, taken: 0 };
    }

    /// The rest of the bytes.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Lets `advance` take bytes from the front of what is held, or of `input` when that is nothing. Gives what is
    /// left, and whether there is more to do: what was held may end in the middle of something that goes on in `input`.
    pub(crate) fn consume(self, input: &mut &[u8], advance: impl FnOnce(&mut &[u8]) -> bool) -> (bool, Self) {
        if self.is_empty() {
            return (advance(input), self);
        }
        let mut rest = self.rest();
        let moved = advance(&mut rest);
        match rest.len() {
            0 => (moved || !input.is_empty(), Self::default()),
            left => (moved, self.keep_last(left)),
        }
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
