//! `lunette check`: all mistakes of configuration files, before they are used.
//!
//! A text is read by [`text`], its parts are compared by [`crate::config::mistakes`], and [`machine`] looks at what they name. The server refuses a file with
//! the same words, a reload logs them, and a plan says of each change what stands in its way.

pub(crate) mod machine;
mod print;
mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use lunette_api::Objects;
use lunette_api::conf_d::object_texts;
use serde::{Deserialize, Serialize};

use crate::config::mistakes::{self, Mistake, Step};
use crate::config::sources::conf_d_of;
use crate::config::{Config, Portal, Target, read_bounded};
use crate::failure::Failure;
use crate::output;
use crate::served::check_encrypted;
use machine::{Machine, ThisMachine};
use text::{Found, Reading};

const AFTER_HELP: &str = "\
Severities: \"error\" keeps the server from starting; \"degraded\" is not served, and all else is, unless the file says strict = true; \"note\" is no mistake, but
seldom meant, such as an address that another program listens on now.

Exit codes: 0 no mistakes, 1 other failure, 2 bad usage, 3 an error: the server would refuse the file, 5 the server would start without what is degraded (0 with
--allow-degraded).";

/// Find all mistakes of configuration files, and what of them this machine lacks
///
/// Each FILE is read as `lunette serve --config FILE` reads it, with conf.d beside it. Disks in Ceph and of other targets are not asked for.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The main file of a configuration
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Look at the texts alone, not at what this machine has: for files of another machine
    #[arg(long)]
    text_only: bool,
    /// Exit with 0 when the server would start, whatever it could not serve
    #[arg(long)]
    allow_degraded: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// The consequence of a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Nothing: it is no mistake.
    Note,
    /// The object in question is not served.
    Degraded,
    /// The whole file is refused.
    Error,
}

/// A mistake with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Located {
    pub(crate) file: String,
    /// From 1; `None` where it is in no line.
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
    pub(crate) severity: Severity,
    pub(crate) text: String,
    /// The line with a mark below the mistake.
    #[serde(skip)]
    pub(crate) excerpt: String,
}

impl Located {
    /// The mistake in one line.
    pub(crate) fn summary(&self) -> String {
        Self { excerpt: String::new(), ..self.clone() }.to_string()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut all = Vec::new();
    for file in &arguments.files {
        let this_machine = ThisMachine;
        let machine: Option<&dyn Machine> = if arguments.text_only { None } else { Some(&this_machine) };
        all.extend(of_file(file, machine)?);
    }
    if arguments.json {
        output::json(&all)?;
    } else {
        for mistake in &all {
            eprintln!("{mistake}");
        }
    }
    let count = |severity| all.iter().filter(|mistake| mistake.severity == severity).count();
    match (count(Severity::Error), count(Severity::Degraded)) {
        (0, 0) if arguments.json => Ok(()),
        (0, 0) => output::line("no mistakes"),
        (0, degraded) if arguments.allow_degraded => {
            tracing::warn!("the server would start, and not serve all: {degraded} degraded");
            Ok(())
        }
        (0, degraded) => Err(Failure::Disk(format!("the server would start, and not serve all: {degraded} degraded"))),
        (errors, _) => Err(Failure::Configuration(format!("the server would refuse this: {errors} errors"))),
    }
}

/// The objects of a file of `conf.d`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fragment {
    #[serde(default, rename = "portal")]
    portals: Vec<Portal>,
    #[serde(default, rename = "target")]
    targets: Vec<Target>,
}

/// A text with its name.
struct Named<'i, T> {
    name: String,
    text: &'i str,
    reading: Reading<'i, T>,
}

impl<'i, T: serde::de::DeserializeOwned> Named<'i, T> {
    fn read(name: &str, text: &'i str) -> Self {
        Self { name: name.into(), text, reading: text::read(text) }
    }

    fn mistakes(&self) -> impl Iterator<Item = Located> {
        let mistakes = self.reading.mistakes.iter();
        mistakes.map(|found| print::located(&self.name, self.text, Severity::Error, found))
    }

    /// The fault of a file whose name does not tell its content, and which has no other mistake.
    fn wrong_name(&self) -> Option<Located> {
        let file = Path::new(&self.name).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let why = Objects::default().add_file(file, self.text).err().filter(|_| self.reading.mistakes.is_empty())?;
        Some(print::located(&self.name, self.text, Severity::Error, &Found { span: None, text: why }))
    }

    fn locate(&self, severity: Severity, at: &[Step], text: String) -> Located {
        let found = Found { span: Some(self.reading.place(at)), text };
        print::located(&self.name, self.text, severity, &found)
    }
}

/// All texts of a configuration.
struct Texts<'i> {
    main: Named<'i, Config>,
    fragments: Vec<Named<'i, Fragment>>,
}

/// All mistakes of a configuration: of its texts, and of what they name on a machine.
pub(crate) fn of_file(main: &Path, machine: Option<&dyn Machine>) -> Result<Vec<Located>, Failure> {
    let text = read_bounded(main)?;
    let folder = conf_d_of(main);
    let objects =
        object_texts(&folder).map_err(|error| Failure::configuration(format!("{}: {error}", folder.display())))?;
    let name = |file: &str| folder.join(file).display().to_string();
    let named: Vec<_> = objects.iter().map(|(file, text)| (name(file), text.as_str())).collect();
    Ok(of_texts(&main.display().to_string(), &text, &named, machine))
}

/// All mistakes of the text of a main file, and of the named texts of `conf.d`.
pub(crate) fn of_texts(
    main: &str,
    text: &str,
    objects: &[(String, &str)],
    machine: Option<&dyn Machine>,
) -> Vec<Located> {
    let fragments = objects.iter().map(|(name, text)| Named::read(name, text)).collect();
    let texts = Texts { main: Named::read(main, text), fragments };
    let mut located: Vec<_> = texts.main.mistakes().collect();
    located.extend(texts.fragments.iter().flat_map(Named::mistakes));
    located.extend(texts.fragments.iter().filter_map(Named::wrong_name));
    let Some(mut config) = texts.main.reading.value.clone() else { return located };
    for Fragment { portals, targets } in texts.fragments.iter().filter_map(|fragment| fragment.reading.value.as_ref()) {
        config.portals.extend(portals.iter().cloned());
        config.targets.extend(targets.iter().cloned());
    }
    let is_whole = located.is_empty();
    let mut found: Vec<_> =
        mistakes::of(&config, is_whole).into_iter().map(|mistake| (Severity::Error, mistake)).collect();
    if let Err(failure) = check_encrypted(&config) {
        found.push((Severity::Error, Mistake { at: vec![Step::Key("target")], text: failure.to_string() }));
    }
    if let Some(machine) = machine {
        found.extend(machine::lacks(&config, machine));
    }
    let strict = |severity| if config.strict && severity == Severity::Degraded { Severity::Error } else { severity };
    located.extend(found.into_iter().map(|(severity, mistake)| texts.locate(strict(severity), mistake)));
    located.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    located
}

impl Texts<'_> {
    /// Finds the place of a mistake, which may be in an object of `conf.d`.
    fn locate(&self, severity: Severity, mistake: Mistake) -> Located {
        let Mistake { mut at, text } = mistake;
        if let [Step::Key(kind @ ("portal" | "target")), Step::Index(index), ..] = at.as_mut_slice() {
            let count = |portals: usize, targets: usize| if *kind == "portal" { portals } else { targets };
            let main = self.main.reading.value.as_ref();
            let in_main = main.map_or(0, |config| count(config.portals.len(), config.targets.len()));
            if let Some(mut rest) = index.checked_sub(in_main) {
                for fragment in &self.fragments {
                    let value = fragment.reading.value.as_ref();
                    let here = value.map_or(0, |value| count(value.portals.len(), value.targets.len()));
                    if rest < here {
                        *index = rest;
                        return fragment.locate(severity, &at, text);
                    }
                    rest -= here;
                }
            }
        }
        self.main.locate(severity, &at, text)
    }
}

#[cfg(test)]
mod tests;
