//! The check of published crates: their manifests say what a registry shows, and the texts of their licences lie beside
//! them.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::process::cargo;

/// The fields that a published crate has, as `cargo metadata` names them.
const FIELDS: [&str; 8] =
    ["description", "license", "repository", "homepage", "documentation", "readme", "keywords", "categories"];

/// The files that go into each package.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    /// The registries that it may be published to: any without a list, none with an empty one.
    publish: Option<Vec<String>>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// Fails with all that published crates lack.
pub(crate) fn check() -> Result<()> {
    let output = cargo(["metadata", "--locked", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let lacking: Vec<String> = metadata.packages.iter().filter_map(Package::lacking).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    bail!("published crates that are not complete; crates/pdu shows how:\n{}", lacking.join("\n"))
}

impl Package {
    /// Names the missing fields and files of a published crate, in one line.
    fn lacking(&self) -> Option<String> {
        if self.publish.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let folder = self.manifest_path.parent().unwrap_or(Path::new(""));
        let readme = self.fields.get("readme").and_then(Value::as_str);
        let fields = FIELDS.into_iter().filter(|field| self.fields.get(*field).is_none_or(is_empty));
        let files = LICENCES.into_iter().chain(readme).filter(|file| !folder.join(file).is_file());
        let lacking: Vec<&str> = fields.chain(files).collect();
        (!lacking.is_empty()).then(|| format!("{}: {}", self.name, lacking.join(", ")))
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_crate_is_told_what_it_lacks() {
        let package = |publish: &str| -> Package {
            let text = format!(
                r#"{{"name":"a","manifest_path":"/nowhere/Cargo.toml","publish":{publish},"description":"d","license":"MIT",
                "repository":"r","homepage":null,"documentation":"d","readme":"README.md","keywords":[],"categories":["c"]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let lacking = package("null").lacking();
        assert_eq!(lacking.as_deref(), Some("a: homepage, keywords, LICENSE-MIT, LICENSE-APACHE, README.md"));
        assert_eq!(package("[]").lacking(), None);
    }
}
