//! The check of links between Markdown files: the file exists, and the heading in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, bail};

use crate::process::root;
use crate::tree::{self, File};

/// The laboratory's templates of reports, which stand in docs/papers once they are filled in.
const TEMPLATES: &str = "lab/src/";

/// Fails with the links that lead nowhere.
pub(crate) fn check() -> Result<()> {
    let files = tree::files("md")?;
    let headings: BTreeMap<&Path, BTreeSet<String>> =
        files.iter().map(|file| (Path::new(&file.path), headings(&file.text))).collect();
    let written = files.iter().filter(|file| !file.path.starts_with(TEMPLATES));
    let broken: Vec<String> = written.flat_map(|file| broken(file, &headings)).collect();
    if broken.is_empty() {
        return Ok(());
    }
    bail!("links that lead nowhere:\n{}", broken.join("\n"))
}

fn broken(file: &File, headings: &BTreeMap<&Path, BTreeSet<String>>) -> Vec<String> {
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let is_broken = |link: &&str| {
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let place = if path.is_empty() { PathBuf::from(&file.path) } else { resolve(&folder.join(path)) };
        let has_heading = heading.is_empty() || headings.get(place.as_path()).is_none_or(|all| all.contains(heading));
        !root().join(&place).exists() || !has_heading
    };
    links(&file.text).filter(is_broken).map(|link| format!("{}: {link}", file.path)).collect()
}

/// The targets of links, but for those to other places in the network.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|behind| behind.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains(':') && !target.contains(char::is_whitespace) && !target.is_empty())
}

/// The path without `.` and `..`.
fn resolve(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, component| {
        match component {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            other => whole.push(other),
        }
        whole
    })
}

/// The anchors of all headings, as GitHub makes them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |char: &char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_');
        let anchor: String = heading.trim().to_lowercase().chars().filter(kept).collect();
        let anchor = anchor.replace(' ', "-");
        let free = (1..text.len()).map(|n| format!("{anchor}-{n}")).find(|name| !anchors.contains(name));
        let is_new = anchors.insert(anchor);
        anchors.extend(free.filter(|_| !is_new));
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# A `b_c`: d, e-f\n## Same\n## Same\n```\n# no\n```\n#no\n";
        assert_eq!(headings(text).into_iter().collect::<Vec<_>>(), ["a-b_c-d-e-f", "same", "same-1"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text =
            "# Here\n[a](../README.md) [b](#here) [c](https://no.example/) [d](no.md) [e](#no) [f](../README.md#no)\n";
        let file = File { path: "docs/x.md".into(), text: text.into() };
        let headings =
            BTreeMap::from([(Path::new("docs/x.md"), headings(text)), (Path::new("README.md"), BTreeSet::new())]);
        // The page itself is not in the checkout.
        assert_eq!(
            broken(&file, &headings),
            ["#here", "no.md", "#no", "../README.md#no"].map(|to| format!("docs/x.md: {to}"))
        );
    }
}
