//! Whether docs/protocol.md still names files and tests that exist.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::root;

/// The document, below the root.
const DOCUMENT: &str = "docs/protocol.md";

/// Folders whose tests it may name.
const FOLDERS: [&str; 5] = ["crates", "fuzz", "sim", "tests", "xtask"];

/// Fails with the names that lead nowhere.
pub(crate) fn check() -> Result<()> {
    let path = root().join(DOCUMENT);
    let document = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut functions = HashSet::new();
    for folder in FOLDERS {
        collect_functions(&root().join(folder), &mut functions)?;
    }
    let lost: Vec<&str> = quoted(&document).filter(|name| !exists(name, &functions)).collect();
    if !lost.is_empty() {
        bail!("{DOCUMENT} names what does not exist: {}", lost.join(", "));
    }
    Ok(())
}

/// What stands between backticks in the rows of tables.
fn quoted(document: &str) -> impl Iterator<Item = &str> {
    document.lines().filter(|line| line.starts_with('|')).flat_map(|row| row.split('`').skip(1).step_by(2))
}

fn exists(name: &str, functions: &HashSet<String>) -> bool {
    if Path::new(name).extension().is_some_and(|extension| extension == "rs") {
        return ["crates/session/src", "crates", ""].iter().any(|folder| root().join(folder).join(name).is_file());
    }
    // Tests have names of several words; keys and values of the protocol have none with an underscore.
    !is_function_name(name) || functions.contains(name)
}

fn is_function_name(name: &str) -> bool {
    name.contains('_') && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn collect_functions(folder: &Path, functions: &mut HashSet<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        // What cargo builds for the fuzz targets is not ours.
        if path.is_dir() && !path.ends_with("fuzz/target") {
            collect_functions(&path, functions)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            functions.extend(fs::read_to_string(&path)?.lines().filter_map(function_name).map(str::to_owned));
        }
    }
    Ok(())
}

/// The function that a line of source defines.
fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let defines = before.is_empty() || before.ends_with([' ', '(']);
    let len = after.bytes().position(|byte| byte != b'_' && !byte.is_ascii_alphanumeric())?;
    (defines && len > 0).then(|| &after[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_rows_alone() {
        let document = "`not_here` in prose\n| 4.2 | a rule | `target/window.rs` | `a_test`, `Value` |\n";
        assert_eq!(quoted(document).collect::<Vec<_>>(), ["target/window.rs", "a_test", "Value"]);
    }

    #[test]
    fn functions_are_told_from_other_words() {
        for (line, name) in [
            ("fn a_test() {", Some("a_test")),
            ("    pub(crate) async fn other<T>(", Some("other")),
            ("// often () ", None),
            ("let x = 1;", None),
        ] {
            assert_eq!(function_name(line), name, "{line}");
        }
    }

    #[test]
    fn tests_are_found_wherever_they_are() {
        let mut functions = HashSet::new();
        collect_functions(&root().join("crates/session"), &mut functions).unwrap();
        for name in ["commands_arrive_in_order_and_once", "abort_task_names_a_task_that_lives", "every_byte_arrives"] {
            assert!(functions.contains(name), "{name}");
        }
    }

    #[test]
    fn what_does_not_exist_is_noticed() {
        let functions = HashSet::from(["a_test".to_owned()]);
        for (name, known) in
            [("a_test", true), ("no_test", false), ("pdu/src/ahs.rs", true), ("no.rs", false), ("Yes", true)]
        {
            assert_eq!(exists(name, &functions), known, "{name}");
        }
    }
}
