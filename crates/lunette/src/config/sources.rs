//! Where a configuration comes from: the main file, and the objects of `conf.d` beside it.

use std::path::{Path, PathBuf};

use lunette_api::conf_d::{ConfD, DiskFolder};
use lunette_api::{Catalog, Document, Key, Kind, Objects};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::api::Place;
use super::{Config, Listen, Portal, Target, check, read_bounded};
use crate::check;
use crate::failure::Failure;

/// The folder of the objects, beside the main file.
const FOLDER: &str = "conf.d";

/// The files of a configuration.
pub(crate) struct Files {
    main: PathBuf,
    conf_d: ConfD,
    /// Where the API is served, as the command line says.
    api: Vec<Place>,
    /// Whether the command line says so.
    strict: bool,
}

/// The content of the files, part by part.
#[derive(Clone)]
pub(crate) struct Sources {
    /// The main file alone.
    main: Config,
    /// The targets of the main file, as they stand there.
    targets: Vec<Document>,
    objects: Objects,
}

/// The part of the main file that is kept as it stands there.
#[derive(Deserialize)]
struct Listed {
    #[serde(default, rename = "target")]
    targets: Vec<Document>,
}

/// The folder of the objects beside a main file.
pub(crate) fn conf_d_of(main: &Path) -> PathBuf {
    match main.parent() {
        Some(folder) if folder != Path::new("") => folder.join(FOLDER),
        _ => FOLDER.into(),
    }
}

impl Files {
    /// The files around the main file `main`. `api` is added to its places of the API, and `strict` makes it strict.
    pub(crate) fn new(main: PathBuf, api: Vec<Place>, strict: bool) -> Self {
        let folder = conf_d_of(&main);
        Self { main, conf_d: ConfD::new(DiskFolder::new(folder)), api, strict }
    }

    /// The main file.
    pub(crate) fn main(&self) -> &Path {
        &self.main
    }

    /// The objects.
    pub(crate) fn conf_d(&self) -> &ConfD {
        &self.conf_d
    }

    /// Reads all of them. An error has all mistakes, with their lines.
    pub(crate) fn read(&self) -> Result<(Sources, Config), Failure> {
        if lunette_files::is_given_pipe(&self.main) {
            // Its text can be read once.
            return self.read_once();
        }
        self.read_once().map_err(|failure| match check::of_file(&self.main, None) {
            Ok(all) if !all.is_empty() => {
                let lines: Vec<_> = all.iter().map(ToString::to_string).collect();
                Failure::Configuration(lines.join("\n"))
            }
            _ => failure,
        })
    }

    /// The mistakes of the texts, each in one line.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let all = check::of_file(&self.main, None).unwrap_or_default();
        all.iter().map(check::Located::summary).collect()
    }

    fn read_once(&self) -> Result<(Sources, Config), Failure> {
        let text = read_bounded(&self.main)?;
        let failed = |why: String| Failure::configuration(format!("{}: {why}", self.main.display()));
        let mut main: Config = toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
        let Listed { targets } = toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
        main.strict |= self.strict;
        if !self.api.is_empty() {
            main.api.get_or_insert_default().listen.extend(self.api.iter().cloned());
        }
        let objects = self.conf_d.read().map_err(|error| Failure::configuration(format!("{FOLDER}/{error}")))?;
        let sources = Sources { main, targets, objects };
        let config = sources.config().map_err(failed)?;
        Ok((sources, config))
    }
}

impl Sources {
    /// The sources with this main file and these objects.
    pub(crate) fn with(&self, objects: Objects) -> Self {
        Self { objects, ..self.clone() }
    }

    /// Takes over what was found for texts of portals in the main file that meant no address.
    pub(crate) fn take_found(&mut self, found: &[Listen]) {
        self.main.take_found(found);
    }

    /// The objects of `conf.d`.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// All parts as one configuration, checked as a whole. The main file's targets and portals come first.
    pub(crate) fn config(&self) -> Result<Config, String> {
        let mut config = self.main.clone();
        for (name, document) in self.objects.of(Kind::Portal) {
            config.portals.push(typed::<Portal>(Kind::Portal, name, document)?);
        }
        for (name, document) in self.objects.of(Kind::Target) {
            config.targets.push(typed::<Target>(Kind::Target, name, document)?);
        }
        check(&config)?;
        Ok(config)
    }

    /// The objects as the API shows them. `config` is what they make together.
    pub(crate) fn catalog(&self, files: &Files, config: &Config) -> Catalog {
        let mut main = Objects::default();
        // Those of objects stand last.
        let of_objects = config.portals.iter().rev().take(self.objects.of(Kind::Portal).count());
        let of_main = config.portals().len() - of_objects.map(|portal| portal.address.addresses.len()).sum::<usize>();
        for portal in config.portals().into_iter().take(of_main) {
            let document = json!({ "address": portal.address.to_string(), "group": portal.group });
            add(&mut main, Kind::Portal, &portal.address.to_string(), &document);
        }
        for document in &self.targets {
            if let Some(Value::String(name)) = document.get("name") {
                add(&mut main, Kind::Target, name, &Value::Object(document.clone()));
            }
        }
        for kind in Kind::ALL {
            for (name, _) in self.objects.of(kind) {
                if let Ok(key) = Key::new(kind, name) {
                    main.remove(&key);
                }
            }
        }
        Catalog { main_file: files.main.display().to_string(), main, objects: self.objects.clone() }
    }
}

/// Adds a part of a configuration that was checked.
fn add(objects: &mut Objects, kind: Kind, name: &str, document: &Value) {
    if let (Ok(key), Value::Object(document)) = (Key::new(kind, name), document) {
        // It has its name, and a file of the permitted length has fewer of them than objects may be.
        let _ = objects.put(key, document.clone());
    }
}

fn typed<T: DeserializeOwned>(kind: Kind, name: &str, document: &Document) -> Result<T, String> {
    serde_json::from_value(Value::Object(document.clone())).map_err(|error| format!("{} {name}: {error}", kind.table()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MAIN: &str = "listen = [\"192.0.2.1\"]\n[[target]]\nname = \"iqn.main\"\nalias = \"first\"\n";

    fn read(main: &str, objects: &[(&str, &str)]) -> Result<(Sources, Config, Catalog), String> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lunette.toml");
        fs::write(&path, main).unwrap();
        fs::create_dir(place.path().join(FOLDER)).unwrap();
        for (file, content) in objects {
            fs::write(place.path().join(FOLDER).join(file), content).unwrap();
        }
        let files = Files::new(path, Vec::new(), false);
        let (sources, config) = files.read().map_err(|failure| failure.to_string())?;
        let catalog = sources.catalog(&files, &config);
        Ok((sources, config, catalog))
    }

    #[test]
    fn the_main_file_and_its_folder_make_one_configuration() {
        let target = "[[target]]\nname = \"iqn.more\"\nlun = [{ number = 7, disk = \"mem:1M\" }]";
        let portal = "[[portal]]\naddress = \"[::1]:3261\"\ngroup = 2";
        let objects = [("target-iqn.more.toml", target), ("portal-[::1]:3261.toml", portal), ("notes.txt", "?")];
        let (sources, config, catalog) = read(MAIN, &objects).unwrap();
        assert_eq!(config.targets.iter().map(|target| &*target.name).collect::<Vec<_>>(), ["iqn.main", "iqn.more"]);
        assert_eq!(config.targets[1].luns[0].number, 7);
        assert_eq!(config.portals().iter().map(|portal| portal.group).collect::<Vec<_>>(), [1, 2]);
        let names = |objects: &Objects, kind| objects.of(kind).map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&catalog.main, Kind::Target), ["iqn.main"]);
        assert_eq!(names(&catalog.main, Kind::Portal), ["192.0.2.1:3260"]);
        assert_eq!(names(&catalog.objects, Kind::Target), ["iqn.more"]);
        assert_eq!(catalog.main.of(Kind::Target).next().unwrap().1["alias"], "first");
        let fewer = sources.with(Objects::default()).config().unwrap();
        assert_eq!(fewer.targets.len(), 1);
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (main, file, content, expected) in [
            (MAIN, "target-iqn.main.toml", "[[target]]\nname = \"iqn.main\"", "target iqn.main is there twice"),
            (
                MAIN,
                "target-iqn.a.toml",
                "[[target]]\nname = \"iqn.a\"\ncolour = 1",
                "target-iqn.a.toml: line 3, column 1: unknown field `colour`",
            ),
            (
                MAIN,
                "a.toml",
                "[[target]]\nname = \"iqn.a\"",
                "conf.d/a.toml: a file that holds target iqn.a has the name",
            ),
            ("colour = 1", "a.txt", "", "line 1"),
            ("", "a.txt", "", "there is no [[target]]"),
        ] {
            let error = read(main, &[(file, content)]).err().unwrap();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_server_with_an_api_may_begin_without_targets() {
        let (_, config, _) = read("[api]\nlisten = [\"unix:/run/api.sock\"]", &[]).unwrap();
        assert!(config.targets.is_empty());
    }
}
