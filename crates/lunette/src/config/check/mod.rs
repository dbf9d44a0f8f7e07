//! All mistakes of configuration files, with their places.
//!
//! A text is read by [`text`], its parts are compared by [`crate::config::mistakes`], and [`machine`] looks at what
//! they name. The server refuses a file with the same words, a reload logs them, and a plan says of each change what
//! stands in its way.

pub(crate) mod machine;
mod print;
mod secrets;
mod text;

use std::path::Path;

use lunette_api::conf_d::object_texts;
use lunette_api::{Objects, Subject};
use serde::{Deserialize, Serialize};

use crate::config::left_out::{LeftOut, object_at};
use crate::config::mistakes::{self, Double, Mistake, Step};
use crate::config::sources::{self, conf_d_of};
use crate::config::{Config, Portal, Target, read_bounded};
use crate::failure::Failure;
use machine::Machine;
use text::{Found, Reading};

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
    /// The object that it stands in, if one can be left out.
    #[serde(skip)]
    pub(crate) subject: Option<Subject>,
}

impl Located {
    /// The mistake in one line.
    pub(crate) fn summary(&self) -> String {
        Self { excerpt: String::new(), ..self.clone() }.to_string()
    }
}

/// The mistake of a main file that cannot be read.
pub(crate) fn unreadable(main: &Path, failure: &Failure) -> Located {
    let found = Found { span: None, text: failure.to_string(), object: None };
    print::located(&main.display().to_string(), "", Severity::Error, &found)
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

    /// The mistakes of a main file. Those within a portal or a target take nothing else away.
    fn of_main(&self) -> impl Iterator<Item = Located> {
        self.reading.mistakes.iter().map(|found| {
            let subject = found.object.clone();
            let severity = if subject.is_some() { Severity::Degraded } else { Severity::Error };
            Located { subject, ..print::located(&self.name, self.text, severity, found) }
        })
    }

    /// The mistakes of a file of `conf.d`.
    fn of_object(&self) -> impl Iterator<Item = Located> {
        let own = object_of(&self.name);
        let found = self.reading.mistakes.iter().map({
            let own = own.clone();
            move |found| {
                let part = found.object.clone().filter(|part| is_part(part, &own));
                let subject = Some(part.unwrap_or_else(|| own.clone()));
                Located { subject, ..print::located(&self.name, self.text, Severity::Degraded, found) }
            }
        });
        found.chain(self.wrong_name().map(|located| Located { subject: Some(own), ..located }))
    }

    /// The fault of a file whose name does not tell its content, and which has no other mistake.
    fn wrong_name(&self) -> Option<Located> {
        let file = file_name(&self.name);
        let why = Objects::default().add_file(file, self.text).err().filter(|_| self.reading.mistakes.is_empty())?;
        Some(print::located(&self.name, self.text, Severity::Degraded, &Found { span: None, text: why, object: None }))
    }

    fn locate(&self, severity: Severity, at: &[Step], text: String) -> Located {
        let found = Found { span: Some(self.reading.place(at)), text, object: None };
        print::located(&self.name, self.text, severity, &found)
    }
}

/// Whether the first one is a logical unit or a host of the second one.
fn is_part(part: &Subject, of: &Subject) -> bool {
    matches!(part, Subject::Lun { .. } | Subject::Host { .. }) && part.target() == of.target()
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The object of a file of `conf.d`.
fn object_of(path: &str) -> Subject {
    sources::object_of(file_name(path))
}

/// The places of an object's mistakes.
pub(crate) fn place_of(left_out: &LeftOut, all: &[Located]) -> Option<String> {
    let own = all.iter().filter(|located| located.subject.as_ref() == Some(&left_out.subject));
    let places: Vec<_> =
        own.map(|located| Located { severity: Severity::Error, ..located.clone() }.summary()).collect();
    (!places.is_empty()).then(|| places.join("; "))
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
    let named: Vec<_> =
        objects.iter().map(|(file, text)| (name(file), text.as_deref().map_err(ToString::to_string))).collect();
    Ok(of_texts(&main.display().to_string(), &text, &named, machine))
}

/// All mistakes of the text of a main file, and of the named texts of `conf.d`.
pub(crate) fn of_texts(
    main: &str,
    text: &str,
    objects: &[(String, Result<&str, String>)],
    machine: Option<&dyn Machine>,
) -> Vec<Located> {
    let fragments = objects.iter().filter_map(|(name, text)| Some(Named::read(name, text.as_ref().ok()?))).collect();
    let texts = Texts { main: Named::read(main, text), fragments };
    let mut located: Vec<_> = texts.main.of_main().collect();
    located.extend(texts.fragments.iter().flat_map(Named::of_object));
    for (name, why) in objects.iter().filter_map(|(name, text)| Some((name, text.as_ref().err()?))) {
        let found = Found { span: None, text: why.clone(), object: None };
        located
            .push(Located { subject: Some(object_of(name)), ..print::located(name, "", Severity::Degraded, &found) });
    }
    let Some(mut config) = texts.main.reading.value.clone() else { return located };
    for Fragment { portals, targets } in texts.named_fragments().filter_map(|fragment| fragment.reading.value.as_ref())
    {
        config.portals.extend(portals.iter().cloned());
        config.targets.extend(targets.iter().cloned());
    }
    config.find_volumes();
    let unread: Vec<_> = located.iter().filter_map(|one| one.subject.clone()).collect();
    let mut mistakes = mistakes::of(&config, located.is_empty());
    mistakes.retain(|mistake| match mistake.at.as_slice() {
        [Step::Key(key)] => !texts.main.reading.is_partial(key),
        _ => true,
    });
    let severity = |at: &[Step]| if object_at(&config, at).is_some() { Severity::Degraded } else { Severity::Error };
    let mut of_texts: Vec<_> = mistakes.iter().map(|mistake| (severity(&mistake.at), mistake.clone())).collect();
    of_texts.extend(mistakes::doubles(&config).iter().filter_map(shared_disk));
    located.extend(of_texts.into_iter().map(|(severity, mistake)| {
        let subject = object_at(&config, &mistake.at);
        Located { subject, ..texts.locate(severity, mistake) }
    }));
    let mut left = config.clone();
    // What cannot be left out is an error already.
    let _ = left.leave_out(mistakes);
    for lun in &unread {
        if let Subject::Lun { target, number } = lun
            && let Some(target) = left.targets.iter_mut().find(|known| known.name == *target)
        {
            target.luns.retain(|known| known.number != *number);
        }
    }
    let is_lost = |target: &Target| unread.contains(&Subject::Target(target.name.clone()));
    let refuses = config.api.is_none() && !left.targets.iter().any(|target| target.has_use() && !is_lost(target));
    let lacks = machine.into_iter().flat_map(|machine| machine::lacks(&config, machine));
    located.extend(lacks.map(|(severity, mistake)| texts.locate(severity, mistake)));
    for one in &mut located {
        if one.severity == Severity::Degraded && (config.strict || refuses && one.subject.is_some()) {
            one.severity = Severity::Error;
        }
    }
    located.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    located
}

/// A disk of two logical units that is not encrypted. Of a file or device only one of them gets the lock, unless
/// neither writes.
fn shared_disk(double: &Double<'_>) -> Option<(Severity, Mistake)> {
    if double.is_encrypted() {
        return None;
    }
    let (first, second) = (double.first.1, double.second.1);
    let is_locked = second.disk.place.path().is_some() && !(first.read_only && second.read_only);
    Some((if is_locked { Severity::Degraded } else { Severity::Note }, double.mistake()))
}

impl Texts<'_> {
    /// The files of `conf.d` whose names tell what they hold.
    fn named_fragments(&self) -> impl Iterator<Item = &Named<'_, Fragment>> {
        self.fragments.iter().filter(|fragment| fragment.wrong_name().is_none())
    }

    /// Finds the place of a mistake, which may be in an object of `conf.d`.
    fn locate(&self, severity: Severity, mistake: Mistake) -> Located {
        let Mistake { mut at, text } = mistake;
        if let [Step::Key(kind @ ("portal" | "target")), Step::Index(index), ..] = at.as_mut_slice() {
            let count = |portals: usize, targets: usize| if *kind == "portal" { portals } else { targets };
            let main = self.main.reading.value.as_ref();
            let in_main = main.map_or(0, |config| count(config.portals.len(), config.targets.len()));
            if let Some(mut rest) = index.checked_sub(in_main) {
                for fragment in self.named_fragments() {
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
