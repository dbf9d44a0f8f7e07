//! The files of the checkout, for the checks that read them all.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::root;

/// A file, by its path below the root.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Reads all files whose names end with this extension, in the order of their paths.
pub(crate) fn files(extension: &str) -> Result<Vec<File>> {
    let mut paths = Vec::new();
    collect(&root(), extension, &mut paths)?;
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let below = path.strip_prefix(root()).unwrap_or(&path);
        Ok(File { path: below.display().to_string(), text })
    };
    paths.into_iter().map(read).collect()
}

fn collect(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let has_manifest = folder.join("Cargo.toml").exists();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let is_output = has_manifest && name == "target";
        if is_output || name.to_string_lossy().starts_with('.') {
            continue;
        }
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, extension, found)?;
        } else if path.extension().is_some_and(|its| its == extension) {
            found.push(path);
        }
    }
    Ok(())
}
