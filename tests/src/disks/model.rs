//! The possible contents of a disk's blocks.

/// Bytes of a block of the model, and of the requests: a page of the system.
pub(super) const PAGE: u64 = 4096;

/// A disk of pages. Each page is filled with a number; a page that was never written has zeroes.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pages: Vec<Page>,
}

/// The possible contents of a page.
#[derive(Debug, Clone)]
struct Page {
    /// The content while the file system keeps what it has taken: one number, or several after a request that failed.
    now: Vec<u64>,
    /// When the file system forgets what was not flushed.
    flushed: Vec<u64>,
}

impl Page {
    fn of(number: u64) -> Self {
        Self { now: vec![number], flushed: vec![number] }
    }
}

impl Model {
    /// The disk over a file that is filled so.
    pub(super) fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        Self { pages: numbers.into_iter().map(Page::of).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The file has this many pages now; new ones have zeroes.
    pub(super) fn resize(&mut self, len: usize) {
        self.pages.resize(len, Page::of(0));
    }

    /// A write was acknowledged, or has failed.
    pub(super) fn write(&mut self, page: usize, number: u64, is_good: bool) {
        let page = &mut self.pages[page];
        page.flushed.push(number);
        if is_good {
            page.now = vec![number];
        } else {
            page.now.push(number);
        }
    }

    /// A flush was acknowledged.
    pub(super) fn flush(&mut self) {
        for page in &mut self.pages {
            page.flushed.clone_from(&page.now);
        }
    }

    /// The file system has forgotten what it had not written down, or not.
    pub(super) fn forget(&mut self) {
        for page in &mut self.pages {
            page.now.extend(&page.flushed);
        }
    }

    /// A page was read. From now on it holds that.
    pub(super) fn read(&mut self, page: usize, bytes: &[u8]) {
        let found = number(bytes);
        let known = &mut self.pages[page].now;
        assert!(
            found.is_some_and(|found| known.contains(&found)),
            "page {page} has {found:?}, and may have {known:?} only: {:02x?}",
            &bytes[..16]
        );
        known.retain(|number| Some(*number) == found);
        known.truncate(1);
    }
}

/// A page that is filled with a number.
pub(super) fn filled(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(PAGE as usize / 8)
}

/// The number that a page is filled with.
fn number(bytes: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (filled(first) == bytes).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_write_replaces_what_was_there_and_a_failed_one_may_have() {
        let mut model = Model::of([0; 2]);
        model.write(0, 7, true);
        model.read(0, &filled(7));
        model.write(0, 8, false);
        model.clone().read(0, &filled(7));
        model.clone().read(0, &filled(8));
        assert!(std::panic::catch_unwind(|| Model::of([1]).read(0, &filled(0))).is_err());
    }

    #[test]
    fn what_was_flushed_outlasts_a_file_system_that_forgets() {
        let mut model = Model::of([0]);
        model.write(0, 1, true);
        model.flush();
        model.write(0, 2, true);
        model.forget();
        for may in [1, 2] {
            model.clone().read(0, &filled(may));
        }
        assert!(std::panic::catch_unwind(move || model.read(0, &filled(0))).is_err());
    }

    #[test]
    fn half_a_page_is_no_page() {
        assert_eq!((number(&filled(3)), number(&[&filled(3)[..2048], &filled(4)[..2048]].concat())), (Some(3), None));
    }
}
