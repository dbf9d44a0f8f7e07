//! The readers of a packed volume, by generation.

/// The reads under way, in two generations. A checkpoint begins the next one and waits until the last one is empty:
/// then whoever still reads began to look after that moment.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    present: usize,
    reading: [usize; 2],
}

impl Readers {
    /// A read begins. Gives its generation.
    pub(crate) fn enter(&mut self) -> usize {
        self.reading[self.present] += 1;
        self.present
    }

    /// A read of this generation has ended. True when it was the last of an earlier generation.
    pub(crate) fn leave(&mut self, generation: usize) -> bool {
        self.reading[generation] -= 1;
        self.reading[generation] == 0 && generation != self.present
    }

    /// Begins the next generation, and gives the last one, whose end the caller waits for before it calls this again.
    pub(crate) fn turn(&mut self) -> usize {
        let last = self.present;
        self.present ^= 1;
        debug_assert_eq!(self.reading[self.present], 0, "the generation before the last has ended");
        last
    }

    /// Whether a generation has no reads any more.
    pub(crate) fn is_empty(&self, generation: usize) -> bool {
        self.reading[generation] == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_waits_for_those_before_it_and_for_no_other() {
        let mut readers = Readers::default();
        let (first, second) = (readers.enter(), readers.enter());
        let last = readers.turn();
        let later = readers.enter();
        assert!(!readers.is_empty(last));
        assert!(!readers.leave(later), "it belongs to the present generation");
        assert!(!readers.leave(first));
        assert!(readers.leave(second), "the last one of its generation");
        assert!(readers.is_empty(last));
        let last = readers.turn();
        assert!(readers.is_empty(last), "the later one has left, too");
    }
}
