//! The check of what ARCHITECTURE.md, docs/glossary.md and CONTRIBUTING.md say of the code: layers, paths and unsafe
//! code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::process::{cargo, root};
use crate::tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const GLOSSARY: &str = "docs/glossary.md";
const CONTRIBUTING: &str = "CONTRIBUTING.md";

/// The heading above the list of files that may use unsafe code.
const UNSAFE_LIST: &str = "## Unsafe code";

/// The crate that has rooms, and these from the top: none imports from one above it. Below them are its other files.
const COMMAND: &str = "crates/lunette/src/";
const ROOMS: [&str; 4] = ["commands", "server", "config", "disks"];

/// Folders below which the documents name files.
const FOLDERS: [&str; 2] = ["crates", ""];

/// Fails with everything that has changed in the code and not in the documents.
pub(crate) fn check() -> Result<()> {
    let mut faults = Vec::new();
    layers(&read(ARCHITECTURE)?, &crates()?, &mut faults)?;
    for document in [ARCHITECTURE, GLOSSARY] {
        let text = read(document)?;
        let lost = paths(&text).filter(|path| !FOLDERS.iter().any(|folder| root().join(folder).join(path).exists()));
        faults.extend(lost.map(|path| format!("{document} names {path}, which does not exist")));
    }
    let words: Vec<String> = rows(&read(GLOSSARY)?).map(|row| first_cell(row).to_lowercase()).collect();
    faults.extend(
        words
            .windows(2)
            .filter(|pair| pair[0] >= pair[1])
            .map(|pair| format!("{GLOSSARY}: {:?} stands before {:?}", pair[0], pair[1])),
    );
    unsafe_code(&read(CONTRIBUTING)?, &mut faults)?;
    for file in tree::files("rs")? {
        rooms(&file.path, &file.text, &mut faults);
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{}", faults.join("\n"))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// A crate of `crates/`, by the name of its folder.
struct Crate {
    layer: usize,
    over: BTreeSet<String>,
    under: BTreeSet<String>,
}

impl Crate {
    /// The paragraph of its documentation that says where it stands.
    fn place(&self) -> String {
        let list = |crates: &BTreeSet<String>| {
            if crates.is_empty() {
                "no other crate".into()
            } else {
                crates.iter().cloned().collect::<Vec<_>>().join(", ")
            }
        };
        format!("Layer {}: over {}; under {}.", self.layer, list(&self.over), list(&self.under))
    }
}

/// The crates with what each imports, tests and build scripts aside.
fn crates() -> Result<BTreeMap<String, Crate>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
        manifest_path: String,
        dependencies: Vec<Dependency>,
    }
    #[derive(Deserialize)]
    struct Dependency {
        name: String,
        kind: Option<String>,
    }
    let output = cargo(["metadata", "--locked", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let folder = |package: &Package| {
        let (_, behind) = package.manifest_path.rsplit_once("/crates/")?;
        behind.strip_suffix("/Cargo.toml").map(str::to_owned)
    };
    let folders: BTreeMap<&str, String> =
        metadata.packages.iter().filter_map(|package| Some((package.name.as_str(), folder(package)?))).collect();
    let over = |package: &Package| {
        let normal = package.dependencies.iter().filter(|dependency| dependency.kind.is_none());
        let others = normal.filter(|dependency| dependency.name != package.name);
        others.filter_map(|dependency| folders.get(dependency.name.as_str()).cloned()).collect::<BTreeSet<_>>()
    };
    let over: BTreeMap<String, BTreeSet<String>> = metadata
        .packages
        .iter()
        .filter_map(|package| Some((folders.get(package.name.as_str())?.clone(), over(package))))
        .collect();
    let place = |name: &String| {
        let under = over.iter().filter(|(_, below)| below.contains(name)).map(|(above, _)| above.clone()).collect();
        Crate { layer: layer(name, &over), over: over[name].clone(), under }
    };
    Ok(over.keys().map(|name| (name.clone(), place(name))).collect())
}

/// One more than the highest layer below. Cargo refuses circles.
fn layer(name: &str, over: &BTreeMap<String, BTreeSet<String>>) -> usize {
    over[name].iter().map(|below| layer(below, over) + 1).max().unwrap_or(0)
}

fn layers(architecture: &str, crates: &BTreeMap<String, Crate>, faults: &mut Vec<String>) -> Result<()> {
    let drawn = drawn_layers(architecture);
    for (name, its) in crates {
        if drawn.get(name.as_str()) != Some(&its.layer) {
            faults.push(format!("{ARCHITECTURE}: the tree does not show crates/{name} in layer {}", its.layer));
        }
        let library = format!("crates/{name}/src/lib.rs");
        let source = if root().join(&library).exists() { library } else { format!("crates/{name}/src/main.rs") };
        if second_paragraph(&read(&source)?) != its.place() {
            faults.push(format!("{source}: the second paragraph should be: {}", its.place()));
        }
    }
    let gone = drawn.keys().filter(|name| !crates.contains_key(**name));
    faults.extend(gone.map(|name| format!("{ARCHITECTURE}: there is no crates/{name}")));
    Ok(())
}

/// The imports of a file that lead to a room above its own.
fn rooms(path: &str, text: &str, faults: &mut Vec<String>) {
    let Some(path_inside) = path.strip_prefix(COMMAND).filter(|inside| *inside != "main.rs") else { return };
    let named = |from: &str| ROOMS.iter().position(|room| from.split([':', '/', '.', ';']).next() == Some(room));
    let own = named(path_inside).unwrap_or(ROOMS.len());
    let above = text.split("crate::").skip(1).filter_map(named).filter(|room| *room < own).collect::<BTreeSet<_>>();
    faults.extend(above.into_iter().map(|room| format!("{path} imports from {}, which is above it", ROOMS[room])));
}

/// The crates in the tree, each with its number: `  name/   2  words`.
fn drawn_layers(architecture: &str) -> BTreeMap<&str, usize> {
    fn entry(line: &str) -> Option<(&str, usize)> {
        let (name, behind) = line.strip_prefix("  ")?.split_once('/')?;
        Some((name, behind.split_whitespace().next()?.parse().ok()?))
    }
    architecture.lines().filter_map(entry).collect()
}

/// The second paragraph of a file's own documentation, in one line.
fn second_paragraph(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let second = lines.skip_while(|line| !line.is_empty()).skip(1).take_while(|line| !line.is_empty());
    second.collect::<Vec<_>>().join(" ")
}

/// The paths between backticks in the rows of tables.
fn paths(document: &str) -> impl Iterator<Item = &str> {
    let quoted = rows(document).flat_map(|row| row.split('`').skip(1).step_by(2));
    quoted.filter(|word| word.contains('/') && !word.contains([' ', '<', '*']))
}

/// The rows of tables, without heads.
fn rows(document: &str) -> impl Iterator<Item = &str> {
    document.lines().filter(|line| line.starts_with("| ")).skip(1)
}

fn first_cell(row: &str) -> &str {
    row.trim_matches('|').split('|').next().unwrap_or_default().trim()
}

fn unsafe_code(contributing: &str, faults: &mut Vec<String>) -> Result<()> {
    let (_, behind) =
        contributing.split_once(UNSAFE_LIST).with_context(|| format!("{CONTRIBUTING} has no {UNSAFE_LIST:?}"))?;
    let section = behind.split("\n## ").next().unwrap_or_default();
    let listed: BTreeSet<&str> =
        section.lines().filter_map(|line| line.strip_prefix("- `")?.split('`').next()).collect();
    let sources = tree::files("rs")?;
    let allows = |text: &str| {
        text.lines().any(|line| {
            ["allow(unsafe_code", "expect(unsafe_code"]
                .iter()
                .any(|mark| line.trim_start().trim_start_matches("#![").trim_start_matches("#[").starts_with(mark))
        })
    };
    let mut allowed: BTreeSet<&str> =
        sources.iter().filter(|file| allows(&file.text)).map(|file| file.path.as_str()).collect();
    // A crate that neither forbids nor denies it has it everywhere.
    let roots = sources.iter().filter(|file| file.path.ends_with("/src/lib.rs"));
    allowed.extend(roots.filter(|file| !file.text.contains("(unsafe_code)]")).map(|file| file.path.as_str()));
    faults.extend(
        allowed.difference(&listed).map(|path| format!("{CONTRIBUTING}: {path} uses unsafe code and is not listed")),
    );
    faults.extend(
        listed.difference(&allowed).map(|path| format!("{CONTRIBUTING}: {path} is listed and uses no unsafe code")),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_one_above_the_highest_below() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let over = BTreeMap::from([("a".into(), set(&[])), ("b".into(), set(&["a"])), ("c".into(), set(&["a", "b"]))]);
        assert_eq!(["a", "b", "c"].map(|name| layer(name, &over)), [0, 1, 2]);
    }

    #[test]
    fn wrong_layers_are_found_in_tree_and_source() {
        let crates = |layer| {
            BTreeMap::from([("pdu".to_owned(), Crate { layer, over: BTreeSet::new(), under: BTreeSet::new() })])
        };
        let mut faults = Vec::new();
        layers("  pdu/     7  bytes\n  no/   1  nothing\n", &crates(7), &mut faults).unwrap();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].ends_with("Layer 7: over no other crate; under no other crate."), "{faults:?}");
        assert_eq!(faults[1], "ARCHITECTURE.md: there is no crates/no");
        faults.clear();
        layers("  pdu/     6  bytes\n", &crates(7), &mut faults).unwrap();
        assert!(faults[0].contains("does not show crates/pdu in layer 7"), "{faults:?}");
    }

    #[test]
    fn the_place_of_a_crate_is_its_second_paragraph() {
        assert_eq!(
            second_paragraph("//! One.\n//!\n//! Layer 1: over a,\n//! b.\n//!\n//! More.\n"),
            "Layer 1: over a, b."
        );
    }

    #[test]
    fn an_import_from_a_room_above_is_found() {
        let mut faults = Vec::new();
        for (path, text) in [
            ("server/reload.rs", "use crate::config::Config;\nuse crate::failure::Failure;\n"),
            ("commands/serve.rs", "use crate::commands::nbd;\nuse crate::server::served::Served;\n"),
            ("main.rs", "use crate::commands;\n"),
        ] {
            rooms(&format!("{COMMAND}{path}"), text, &mut faults);
        }
        assert!(faults.is_empty(), "{faults:?}");
        rooms(&format!("{COMMAND}config.rs"), "crate::server::x();\ncrate::server::y();\n", &mut faults);
        rooms(&format!("{COMMAND}size.rs"), "use crate::disks;\n", &mut faults);
        assert_eq!(faults.len(), 2, "{faults:?}");
    }

    #[test]
    fn unsafe_files_that_are_not_listed_are_found() {
        let mut faults = Vec::new();
        unsafe_code("## Unsafe code\n\n- `no.rs`\n\n## Next\n", &mut faults).unwrap();
        assert!(faults.iter().any(|fault| fault.contains("crates/crc32c/src/lib.rs uses unsafe code")), "{faults:?}");
        assert!(faults.iter().any(|fault| fault.contains("no.rs is listed")), "{faults:?}");
    }

    #[test]
    fn paths_are_found_in_tables_alone() {
        let document = "`a/b.rs`\n| word | where |\n|---|---|\n| `X`, `c/d.rs` | `e/` |\n";
        assert_eq!(paths(document).collect::<Vec<_>>(), ["c/d.rs", "e/"]);
    }
}
