//! The lists of what leaves together, made once.
//!
//! A list is long, and one built for each send would be moved about: 30% of the CPU time of an initiator whose target
//! answers one request at a time.

use crate::Gather;
use crate::backend::MAX_SENDS;

/// One list for each connection that is sent on together.
pub(crate) struct Lists {
    lists: Box<[Gather<'static>]>,
    /// The lists that may not be empty.
    used: usize,
}

impl Lists {
    pub(crate) fn new() -> Self {
        Self { lists: std::iter::repeat_with(Gather::new).take(MAX_SENDS).collect(), used: 0 }
    }

    /// Empty lists, for slices of what lives for `'a`: as many as asked for, and [`MAX_SENDS`] at most.
    pub(crate) fn begin<'a>(&mut self, count: usize) -> &mut [Gather<'a>] {
        self.end();
        self.used = count.min(self.lists.len());
        let (first, len) = (self.lists.as_mut_ptr().cast(), self.used);
        #[expect(unsafe_code, reason = "no other lifetime can be named where the lists are kept")]
        // SAFETY: the types differ in the lifetime of what they borrow alone, and the lists are borrowed as `self` is.
        // The next caller finds them empty, and nothing but this function looks at them, so no slice is seen after its
        // time.
        unsafe {
            std::slice::from_raw_parts_mut(first, len)
        }
    }

    /// Lets go of what the lists own.
    pub(crate) fn end(&mut self) {
        self.lists[..self.used].iter_mut().for_each(Gather::clear);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_empty_whatever_was_in_them() {
        let mut lists = Lists::new();
        {
            let bytes = vec![7; 100];
            assert!(lists.begin(MAX_SENDS)[MAX_SENDS - 1].push(&bytes));
        }
        assert_eq!((lists.begin(1).len(), lists.begin(MAX_SENDS + 1).len()), (1, MAX_SENDS));
        assert!(lists.begin(MAX_SENDS).iter().all(|list| list.is_empty() && list.len_bytes() == 0));
    }
}
