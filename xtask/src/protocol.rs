//! The check that docs/protocol.md, docs/limits.md, docs/disks.md and docs/ecl-rules.md name only files, tests and
//! constants that exist.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::root;

/// The documents, relative to the root.
const PROTOCOL: &str = "docs/protocol.md";
const LIMITS: &str = "docs/limits.md";
const DISKS: &str = "docs/disks.md";
const ECL_RULES: &str = "docs/ecl-rules.md";

/// Where the tests of docs/ecl-rules.md are that it names without a file, and the folder of the files that it names.
const ECL_RULES_TESTS: &str = "association/tests/rules.rs";
const ECL_SOURCES: &str = "crates/ecl/src";

/// Keys of the configuration that the documents name.
const CONFIGURATION_KEYS: [&str; 6] =
    ["data_timeout", "login_timeout", "max_connections", "max_outstanding_r2t", "max_time2wait", "default_time2retain"];

/// Folders whose tests the documents may name.
const FOLDERS: [&str; 6] = ["crates", "fuzz", "lab", "sim", "tests", "xtask"];

/// Fails with the names that do not exist.
pub(crate) fn check() -> Result<()> {
    let mut definitions = Definitions::default();
    for folder in FOLDERS {
        definitions.collect(&root().join(folder))?;
    }
    for document in [PROTOCOL, LIMITS, DISKS, ECL_RULES] {
        let text = read(document)?;
        // The other cells of docs/disks.md have names of metrics and causes.
        let names: Vec<&str> = if document == DISKS { proofs(&text).collect() } else { quoted(&text).collect() };
        let lost: Vec<&str> = names.into_iter().filter(|name| !definitions.have(name)).collect();
        if !lost.is_empty() {
            bail!("{document} names what does not exist: {}", lost.join(", "));
        }
    }
    for document in [LIMITS, DISKS, ECL_RULES] {
        let unproven: Vec<String> = unproven_rows(&read(document)?);
        if !unproven.is_empty() {
            bail!("{document} has rows without a test: {}", unproven.join(", "));
        }
    }
    let elsewhere = tests_elsewhere(&read(ECL_RULES)?);
    if !elsewhere.is_empty() {
        bail!("{ECL_RULES} names tests that are not where it says: {}", elsewhere.join(", "));
    }
    Ok(())
}

/// The tests of docs/ecl-rules.md that are not in the file that it names for them.
fn tests_elsewhere(document: &str) -> Vec<String> {
    let is_there = |(test, file): &(&str, &str)| {
        let paths = [ECL_SOURCES, ""].map(|folder| root().join(folder).join(file));
        let source = paths.iter().find_map(|path| fs::read_to_string(path).ok());
        source.is_some_and(|source| source.lines().filter_map(function_name).any(|name| name == *test))
    };
    let rows = document.lines().filter(|line| line.starts_with('|'));
    let tests = rows.flat_map(tests_of_row);
    tests.filter(|test| !is_there(test)).map(|(test, file)| format!("{test} ({file})")).collect()
}

/// The tests that the last cell of a row names, each with the file that stands behind it in parentheses.
fn tests_of_row(row: &str) -> Vec<(&str, &str)> {
    let cell = row.trim_matches('|').rsplit('|').next().unwrap_or_default();
    let pieces: Vec<&str> = cell.split('`').collect();
    let quoted = pieces.iter().enumerate().skip(1).step_by(2);
    let tests = quoted.filter(|(_, piece)| is_function_name(piece));
    let file = |at: usize| match (pieces.get(at + 1), pieces.get(at + 2)) {
        (Some(&" ("), Some(file)) => *file,
        _ => ECL_RULES_TESTS,
    };
    tests.map(|(at, test)| (*test, file(at))).collect()
}

fn read(document: &str) -> Result<String> {
    let path = root().join(document);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The first cells of rows whose last cell names no test.
fn unproven_rows(document: &str) -> Vec<String> {
    let mut in_table = false;
    let mut unproven = Vec::new();
    for line in document.lines() {
        let was_in_table = std::mem::replace(&mut in_table, line.starts_with('|'));
        let is_row = in_table && was_in_table && !line.starts_with("|--");
        if !is_row {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let proofs = cells.last().map_or("", |last| *last);
        if !proofs.split('`').skip(1).step_by(2).any(is_function_name) {
            unproven.push(cells[0].to_owned());
        }
    }
    unproven
}

/// The texts between backticks in the rows of tables.
fn quoted(document: &str) -> impl Iterator<Item = &str> {
    document.lines().filter(|line| line.starts_with('|')).flat_map(|row| row.split('`').skip(1).step_by(2))
}

/// The texts between backticks in the last cells of the rows of tables.
fn proofs(document: &str) -> impl Iterator<Item = &str> {
    let rows = document.lines().filter(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').rsplit('|').next().unwrap_or_default());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2))
}

/// The names that the sources define.
#[derive(Default)]
struct Definitions {
    functions: HashSet<String>,
    constants: HashSet<String>,
}

impl Definitions {
    /// Whether a name from a document exists. Names of one word, such as keys and values of the protocol, may be
    /// anything.
    fn have(&self, name: &str) -> bool {
        if Path::new(name).extension().is_some_and(|extension| extension == "rs") {
            return ["crates/session/src", ECL_SOURCES, "crates", ""]
                .iter()
                .any(|folder| root().join(folder).join(name).is_file());
        }
        if is_constant_name(name) {
            return self.constants.contains(name);
        }
        !is_function_name(name) || CONFIGURATION_KEYS.contains(&name) || self.functions.contains(name)
    }

    fn collect(&mut self, folder: &Path) -> Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                self.collect(&path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(&path)?;
                self.functions.extend(source.lines().filter_map(function_name).map(str::to_owned));
                self.constants.extend(source.lines().filter_map(constant_name).map(str::to_owned));
            }
        }
        Ok(())
    }
}

fn is_constant_name(name: &str) -> bool {
    name.contains('_') && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// The constant that a line of source defines.
fn constant_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("const ")?;
    let (name, _) = after.split_once(':')?;
    let defines = before.trim().is_empty() || before.trim_start().starts_with("pub");
    (defines && is_constant_name(name)).then_some(name)
}

fn is_function_name(name: &str) -> bool {
    name.contains('_') && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
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
    fn tests_of_rules_are_looked_for_in_their_files() {
        let row = "| flags | `any_word` | dropped | `a_test`, `b_test` (`close/tests.rs`), and `Upper::placed` |";
        assert_eq!(tests_of_row(row), [("a_test", ECL_RULES_TESTS), ("b_test", "close/tests.rs")]);
        assert_eq!(tests_elsewhere(row), ["a_test (association/tests/rules.rs)", "b_test (close/tests.rs)"]);
        let right =
            "| a | `keys_are_those_that_the_flag_names`, `each_rule_of_the_payload_is_checked` (`close/tests.rs`) |";
        assert_eq!(tests_elsewhere(right), [""; 0]);
    }

    #[test]
    fn functions_are_distinguished_from_other_words() {
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
    fn constants_are_distinguished_from_other_words() {
        for (line, name) in [
            ("const A_B: usize = 1;", Some("A_B")),
            ("    pub(crate) const MAX_2: u8 = 1;", Some("MAX_2")),
            ("pub const fn max_it(a: usize) {", None),
            ("// a const A_B: no", None),
        ] {
            assert_eq!(constant_name(line), name, "{line}");
        }
    }

    #[test]
    fn tests_are_found_wherever_they_are() {
        let mut definitions = Definitions::default();
        definitions.collect(&root().join("crates/session")).unwrap();
        for name in ["commands_arrive_in_order_and_once", "abort_task_names_a_task_that_lives", "every_byte_arrives"] {
            assert!(definitions.functions.contains(name), "{name}");
        }
        assert!(definitions.have("COMMAND_WINDOW"));
    }

    #[test]
    fn what_does_not_exist_is_noticed() {
        let definitions = Definitions {
            functions: HashSet::from(["a_test".to_owned()]),
            constants: HashSet::from(["A_LIMIT".into()]),
        };
        for (name, known) in [
            ("a_test", true),
            ("no_test", false),
            ("A_LIMIT", true),
            ("NO_LIMIT", false),
            ("data_timeout", true),
            ("pdu/src/ahs.rs", true),
            ("no.rs", false),
            ("Yes", true),
        ] {
            assert_eq!(definitions.have(name), known, "{name}");
        }
    }

    #[test]
    fn rows_without_a_test_are_noticed() {
        let document = "| what | test |\n|---|---|\n| a | `a_test` |\n| b | none |\n\ntext\n| c | test |\n|---|---|\n| d | `One` |\n";
        assert_eq!(unproven_rows(document), ["b", "d"]);
    }
}
