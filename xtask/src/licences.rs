//! The crates of others that the command contains, and their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use crate::process::cargo;

/// Licences under which a program can be passed on with its own licence, as long as their texts go with it.
const ALLOWED: [&str; 9] =
    ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "Unicode-3.0", "Zlib"];

/// The beginnings of the names of files with licences, in lower case.
const TEXTS: [&str; 4] = ["licen", "copying", "copyright", "notice"];

/// The facts of cargo about the workspace.
#[derive(Deserialize)]
pub(crate) struct Workspace {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    /// Members of the workspace have none.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `dev` and `build` are not in the program.
    kind: Option<String>,
}

/// Checks that the command contains nothing whose licence is not allowed.
pub(crate) fn step() -> Result<()> {
    let workspace = Workspace::read()?;
    let mut wrong = Vec::new();
    for package in workspace.foreign() {
        if let Err(error) = package.check() {
            wrong.push(format!("{} {}: {error}", package.name, package.version));
        }
    }
    ensure!(wrong.is_empty(), "licences that xtask/src/licences.rs does not allow:\n{}", wrong.join("\n"));
    Ok(())
}

impl Workspace {
    pub(crate) fn read() -> Result<Self> {
        let mut command = cargo(["metadata", "--locked", "--format-version", "1", "--filter-platform"]);
        let output = command.arg(host()?).output()?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The folders of the workspace's own packages.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Path> {
        self.packages
            .iter()
            .filter(|package| package.source.is_none())
            .filter_map(|package| package.manifest_path.parent())
    }

    /// The packages of others that are in the command, by name and version.
    fn foreign(&self) -> Vec<&Package> {
        let dependencies: BTreeMap<&str, &Node> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let command = self.packages.iter().filter(|package| package.source.is_none() && package.name == "lunette");
        let mut ahead: Vec<&str> = command.map(|package| package.id.as_str()).collect();
        let mut linked = BTreeSet::new();
        while let Some(id) = ahead.pop() {
            if linked.insert(id) {
                let below = dependencies.get(id).into_iter().flat_map(|node| &node.deps);
                ahead.extend(
                    below.filter(|dependency| dependency.is_linked()).map(|dependency| dependency.pkg.as_str()),
                );
            }
        }
        let mut foreign: Vec<&Package> = self
            .packages
            .iter()
            .filter(|package| package.source.is_some() && linked.contains(package.id.as_str()))
            .collect();
        foreign.sort_by_key(|package| (&package.name, &package.version));
        foreign
    }

    /// One page with the texts of all licences; a text that several packages have stands there once.
    pub(crate) fn texts(&self) -> Result<String> {
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut page = "The crates of others in the command lunette, and their licences.\n\n".to_owned();
        for package in self.foreign() {
            let licence = package.license.as_deref().unwrap_or_default();
            let name = format!("{} {}", package.name, package.version);
            writeln!(page, "{name}: {licence}")?;
            for text in package.texts()? {
                texts.entry(text).or_default().push(name.clone());
            }
        }
        for (text, packages) in texts {
            write!(page, "\n{}\n{}\n\n{}\n", "-".repeat(80), packages.join(", "), text.trim_end())?;
        }
        Ok(page)
    }
}

impl Dependency {
    fn is_linked(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.is_none())
    }
}

impl Package {
    fn check(&self) -> Result<()> {
        let licence = self.license.as_deref().context("it names no licence")?;
        if is_allowed(licence)? { Ok(()) } else { bail!("{licence}") }
    }

    /// The texts of its licences, as it comes with them.
    fn texts(&self) -> Result<Vec<String>> {
        let folder = self.manifest_path.parent().context("a manifest lies in a folder")?;
        let mut texts = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().to_lowercase();
            if entry.file_type()?.is_file() && TEXTS.iter().any(|text| name.starts_with(text)) {
                texts.push(String::from_utf8_lossy(&fs::read(entry.path())?).into_owned());
            }
        }
        Ok(texts)
    }
}

/// Whether an expression of SPDX, or the older form with slashes, can be met by licences that are allowed.
fn is_allowed(licence: &str) -> Result<bool> {
    let expression = Expression::parse_mode(licence, ParseMode::LAX)?;
    let allowed = |id: spdx::LicenseId| ALLOWED.contains(&id.name);
    Ok(expression.evaluate(|wanted| wanted.addition.is_none() && wanted.license.id().is_some_and(allowed)))
}

fn host() -> Result<String> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV").output()?;
    let told = String::from_utf8(output.stdout)?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_licences_is_enough_and_all_of_a_conjunction_are_needed() {
        for licence in
            ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0", "Unlicense OR MIT"]
        {
            assert!(is_allowed(licence).unwrap(), "{licence}");
        }
        for licence in ["GPL-2.0-only", "MIT AND GPL-3.0-or-later", "AGPL-3.0-only WITH LLVM-exception"] {
            assert!(!is_allowed(licence).unwrap(), "{licence}");
        }
        assert!(is_allowed("Own licence").is_err());
    }
}
