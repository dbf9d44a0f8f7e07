//! A filter that fails requests on demand.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Capabilities, Completion, FileIo, Geometry, Op, OpKind, Outcome, Space, Store, StoreError};

/// A rule that selects requests to fail.
///
/// ```
/// use lunette_store::StoreError;
/// use lunette_store::filters::Rule;
/// use lunette_store::OpKind;
///
/// // The third write from now, and no other.
/// let third_write = Rule { kind: Some(OpKind::Write), skip: 2, times: 1, ..Rule::always(|| StoreError::NoSpace) };
/// ```
#[derive(Debug, Clone)]
pub struct Rule {
    /// The kind of request that the rule matches; `None` matches every kind.
    pub kind: Option<OpKind>,
    /// The bytes of which a matching request touches one; `None` matches every range.
    pub range: Option<Range<u64>>,
    /// Number of matching requests that pass before the first failure.
    pub skip: u64,
    /// Number of matching requests that fail before the rule ends.
    pub times: u64,
    /// Creates the error of a failed request.
    pub error: fn() -> StoreError,
}

impl Rule {
    /// A rule by which every request fails with `error`.
    pub fn always(error: fn() -> StoreError) -> Self {
        Self { kind: None, range: None, skip: 0, times: u64::MAX, error }
    }

    fn matches(&self, op: &Op) -> bool {
        let (offset, len) = op.range();
        let touches = |range: &Range<u64>| offset < range.end && range.start < offset.saturating_add(len);
        self.kind.is_none_or(|kind| kind == op.kind()) && self.range.as_ref().is_none_or(touches)
    }

    /// Counts a matching request. Returns the error if the request is to fail.
    fn count(&mut self) -> Option<StoreError> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times = self.times.checked_sub(1)?;
        Some((self.error)())
    }
}

/// Fails requests by [`Rule`]s. A failed request does not reach the inner store.
pub struct Fault {
    inner: Arc<dyn Store>,
    rules: Mutex<Vec<Rule>>,
}

impl Fault {
    /// A filter without rules, which passes every request to `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, rules: Mutex::default() }
    }

    /// Adds a rule. The oldest rule that matches and is due decides; a rule that is not due yet counts the request and
    /// leaves it to the next rule.
    pub fn add(&self, rule: Rule) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn error_for(&self, op: &Op) -> Option<StoreError> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.iter_mut().filter(|rule| rule.matches(op)).find_map(Rule::count)
    }
}

impl Store for Fault {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn space(&self) -> std::io::Result<Option<Space>> {
        self.inner.space()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        match self.error_for(&op) {
            Some(error) => done.complete(Outcome::of(op, Err(error))),
            None => self.inner.submit(op, io, done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, execute};

    fn zero(store: &Fault, offset: u64, len: u64) -> bool {
        execute(store, Op::WriteZeroes { offset, len, may_unmap: false, fua: false }).result.is_ok()
    }

    fn store() -> Fault {
        Fault::new(Arc::new(MemoryStore::new(1 << 20).unwrap()))
    }

    #[test]
    fn the_nth_of_a_kind_fails() {
        let store = store();
        let kind = Some(OpKind::WriteZeroes);
        store.add(Rule { kind, skip: 1, times: 2, ..Rule::always(|| StoreError::NoSpace) });
        let mut ends = Vec::new();
        for _ in 0..4 {
            assert!(execute(&store, Op::Flush).result.is_ok(), "another kind is neither failed nor counted");
            ends.push(zero(&store, 0, 512));
        }
        assert_eq!(ends, [true, false, false, true]);
    }

    #[test]
    fn a_bad_range_fails_what_touches_it() {
        let store = store();
        store.add(Rule { range: Some(4096..8192), ..Rule::always(|| StoreError::NoSpace) });
        let touched = [(0, 4096, true), (0, 4097, false), (8191, 1, false), (8192, 10, true), (5000, 1, false)];
        for (offset, len, passes) in touched {
            assert_eq!(zero(&store, offset, len), passes, "{offset}+{len}");
        }
        store.clear();
        assert!(zero(&store, 4096, 4096));
    }

    #[test]
    fn the_buffer_comes_back_from_a_failure() {
        let store = store();
        store.add(Rule::always(|| StoreError::NoSpace));
        let into = lunette_buffer::Pool::new(4096).take(512).unwrap();
        let outcome = execute(&store, Op::Read { offset: 0, into });
        assert!(matches!(outcome.result, Err(StoreError::NoSpace)));
        assert_eq!(outcome.buffer.unwrap().len(), 512);
    }
}
