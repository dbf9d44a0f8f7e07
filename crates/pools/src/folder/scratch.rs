//! Places for what is being made, and is no part of the pool yet.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::files::{Files, remove_all};
use super::{FolderPool, layout};

/// A place below `.lunette`. What is there goes with this value, unless it was given another name.
#[derive(Debug)]
pub(super) struct Scratch<'p, F: Files> {
    files: &'p F,
    path: PathBuf,
    is_left: bool,
}

impl<F: Files> FolderPool<F> {
    /// A place that nothing else has.
    pub(super) fn scratch(&self) -> Scratch<'_, F> {
        let number = self.next_scratch.fetch_add(1, Ordering::Relaxed);
        let path = layout::work().join(format!("{}{number}", layout::SCRATCH));
        Scratch { files: &self.files, path, is_left: false }
    }
}

impl<F: Files> Scratch<'_, F> {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves what is there to the journal, which names it.
    pub(super) fn leave(&mut self) {
        self.is_left = true;
    }
}

impl<F: Files> Drop for Scratch<'_, F> {
    fn drop(&mut self) {
        if !self.is_left {
            // What cannot be removed now is removed when the pool is opened again.
            let _ = remove_all(self.files, &self.path);
        }
    }
}
