//! Where a configuration comes from: the main file, and the objects of `conf.d` beside it.

use std::path::{Path, PathBuf};

use lunette_api::conf_d::{BrokenFile, ConfD, Contents, DiskFolder, Seen};
use lunette_api::objects::FileChange;
use lunette_api::{Catalog, Document, Key, Kind, Objects, Subject};
use serde_json::{Value, json};

use super::api::Place;
use super::left_out::LeftOut;
use super::{Config, Listen, Portal, Target, document, mistakes, read_bounded, readable};
use crate::config::check::{self, Located, Severity};
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
    /// The main file alone, without the objects that cannot be read.
    main: Config,
    /// The targets of the main file, as they stand there.
    targets: Vec<Document>,
    objects: Objects,
    /// The objects of the main file that cannot be read.
    unread: Vec<LeftOut>,
    /// The files of `conf.d` that cannot be read.
    broken: Vec<BrokenFile>,
    /// The texts of the files of `conf.d`.
    seen: Seen,
}

/// A configuration that was read.
pub(crate) struct Read {
    pub(crate) sources: Sources,
    pub(crate) config: Config,
    /// The objects with mistakes, which it is without, or has as they were before.
    pub(crate) left_out: Vec<LeftOut>,
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

    /// The folder of the objects.
    pub(crate) fn folder(&self) -> PathBuf {
        conf_d_of(&self.main)
    }

    /// The objects.
    pub(crate) fn conf_d(&self) -> &ConfD {
        &self.conf_d
    }

    /// Reads all of them. An error has all mistakes, with their lines. Of an object with a mistake is kept what was
    /// served `before`.
    pub(crate) fn read(&self, before: Option<(&Sources, &Config)>) -> Result<Read, Failure> {
        if lunette_files::is_given_pipe(&self.main) {
            // Its text can be read once.
            return self.read_once(before);
        }
        match self.read_once(before) {
            Ok(mut read) if !read.left_out.is_empty() => {
                let located = check::of_file(&self.main, None).unwrap_or_default();
                read.left_out.iter_mut().for_each(|left_out| left_out.place = check::place_of(left_out, &located));
                Ok(read)
            }
            Err(failure) => {
                let all = self.found();
                if !all.iter().any(|one| one.severity == Severity::Error) {
                    return Err(failure);
                }
                let lines: Vec<_> = all.iter().map(ToString::to_string).collect();
                Err(Failure::Configuration(lines.join("\n")))
            }
            read => read,
        }
    }

    /// The mistakes for which the texts are refused, each in one line.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let all = self.found();
        all.iter().filter(|one| one.severity == Severity::Error).map(Located::summary).collect()
    }

    /// All mistakes of the texts, as the command line lets them count.
    fn found(&self) -> Vec<Located> {
        let mut all = check::of_file(&self.main, None).unwrap_or_default();
        for one in all.iter_mut().filter(|one| self.strict && one.severity == Severity::Degraded) {
            one.severity = Severity::Error;
        }
        all
    }

    fn read_once(&self, before: Option<(&Sources, &Config)>) -> Result<Read, Failure> {
        let text = read_bounded(&self.main)?;
        let failed = |why: String| Failure::configuration(format!("{}: {why}", self.main.display()));
        let MainFile { config: mut main, targets, unread } = MainFile::parse(&text).map_err(failed)?;
        main.strict |= self.strict;
        if !self.api.is_empty() {
            main.api.get_or_insert_default().listen.extend(self.api.iter().cloned());
        }
        if let Some((before, _)) = before {
            self.check_folder(before).map_err(Failure::configuration)?;
        }
        let read = self.conf_d.read().map_err(|error| Failure::configuration(format!("{FOLDER}/{error}")))?;
        let Contents { mut objects, broken, seen } = read;
        if let Some((before, _)) = before {
            for key in broken.iter().flat_map(BrokenFile::keys) {
                if let (Some(document), None) = (before.objects.get(&key), objects.get(&key)) {
                    // There were not more objects before than there may be.
                    let _ = objects.put(key, document.clone());
                }
            }
        }
        let sources = Sources { main, targets, objects, unread, broken, seen };
        let (config, left_out) = sources.config(before.map(|(_, config)| config)).map_err(failed)?;
        Ok(Read { sources, config, left_out })
    }

    /// Refuses a folder that is gone with the objects that are served.
    fn check_folder(&self, known: &Sources) -> Result<(), String> {
        let folder = self.folder();
        if known.objects.is_empty() || folder.exists() {
            return Ok(());
        }
        Err(format!(
            "{}: the folder is gone, and the objects in it are served; put it back, or make an empty one to remove \
             them all",
            folder.display()
        ))
    }

    /// Refuses a change of `conf.d` when the folder, or a file that the change is about, is not as it was read.
    pub(crate) fn check_change(&self, known: &Sources, changes: &[FileChange]) -> Result<(), String> {
        self.check_folder(known)?;
        self.conf_d.recover().map_err(|error| format!("{FOLDER}/{error}"))?;
        self.conf_d.check(&known.seen, changes)
    }
}

/// The main file, without its targets and portals that cannot be read.
struct MainFile {
    config: Config,
    /// All its targets.
    targets: Vec<Document>,
    unread: Vec<LeftOut>,
}

impl MainFile {
    fn parse(text: &str) -> Result<Self, String> {
        let mut tables: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut take = |kind: Kind| match tables.remove(kind.table()) {
            Some(toml::Value::Array(all)) => Ok(all),
            Some(_) => Err(format!("write [[{}]]", kind.table())),
            None => Ok(Vec::new()),
        };
        let (portals, targets) = (take(Kind::Portal)?, take(Kind::Target)?);
        let mut config: Config = tables.try_into().map_err(|error| error.to_string())?;
        let mut unread = Vec::new();
        config.portals = portals_of(portals, &mut unread);
        let mut named: Vec<(String, Document)> = Vec::new();
        for (index, target) in targets.into_iter().enumerate() {
            let name = target.get(Kind::Target.name_key()).and_then(toml::Value::as_str).map(str::to_owned);
            let name = name.unwrap_or_else(|| nameless(index));
            match target.try_into() {
                Ok(document) => named.push((name, document)),
                Err(error) => unread.push(LeftOut::new(Subject::Target(name), error.message())),
            }
        }
        config.targets = targets_of(named.iter().map(|(name, target)| (name.as_str(), target)), &mut unread);
        Ok(Self { config, targets: named.into_iter().map(|(_, target)| target).collect(), unread })
    }
}

/// The targets of documents, as far as they can be read.
fn targets_of<'d>(named: impl Iterator<Item = (&'d str, &'d Document)>, unread: &mut Vec<LeftOut>) -> Vec<Target> {
    let mut read = Vec::new();
    for (name, document) in named {
        match readable::target(document) {
            Ok((target, parts)) => {
                read.push(target);
                unread.extend(parts);
            }
            Err(why) => unread.push(LeftOut::new(Subject::Target(name.into()), &why)),
        }
    }
    read
}

/// The portals that can be read.
fn portals_of(tables: Vec<toml::Value>, unread: &mut Vec<LeftOut>) -> Vec<Portal> {
    let mut read = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let name = table.get(Kind::Portal.name_key()).and_then(toml::Value::as_str).map(str::to_owned);
        match table.try_into() {
            Ok(one) => read.push(one),
            Err(error) => {
                let name = name.unwrap_or_else(|| nameless(index));
                unread.push(LeftOut::new(Subject::Portal(name), error.message()));
            }
        }
    }
    read
}

/// The name for people of a table of the main file that has none.
pub(crate) fn nameless(index: usize) -> String {
    format!("number {} of the main file", index + 1)
}

/// An object, as it is named where it is not served.
pub(crate) fn subject(kind: Kind, name: &str) -> Subject {
    match kind {
        Kind::Portal => Subject::Portal(name.into()),
        Kind::Target => Subject::Target(name.into()),
    }
}

/// The object that the name of a file of `conf.d` promises, or that file.
pub(crate) fn object_of(file: &str) -> Subject {
    let file_alone = || Subject::File(format!("{FOLDER}/{file}"));
    Key::of_file(file).map_or_else(file_alone, |key| subject(key.kind, &key.name))
}

/// An object whose file cannot be read.
fn left_out(BrokenFile { file, why, .. }: &BrokenFile) -> LeftOut {
    LeftOut::new(object_of(file), &format!("{FOLDER}/{file}: {why}"))
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

    /// The texts of the files of `conf.d`.
    pub(crate) fn seen_mut(&mut self) -> &mut Seen {
        &mut self.seen
    }

    /// The objects of `conf.d`.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// A file of `conf.d` that cannot be read.
    pub(crate) fn broken(&self, file: &str) -> Option<&BrokenFile> {
        self.broken.iter().find(|broken| broken.file == file)
    }

    /// All parts as one configuration, checked as a whole. The main file's targets and portals come first. Objects with
    /// mistakes are left out, or stay as they were `before`.
    ///
    /// # Errors
    ///
    /// The mistakes, when one stands in no object, when nothing is left to serve, or when the configuration is strict.
    pub(crate) fn config(&self, before: Option<&Config>) -> Result<(Config, Vec<LeftOut>), String> {
        let mut config = self.main.clone();
        let mut all = self.unread.clone();
        all.extend(self.broken.iter().map(left_out));
        config.portals.extend(self.portals(&mut all));
        config.targets.extend(targets_of(self.objects.of(Kind::Target), &mut all));
        config.find_volumes();
        if !all.is_empty() {
            nothing_left(&config, &all)?;
        }
        // Without a portal, a group of portals has no members; that is no mistake of its target.
        let is_whole = !all.iter().any(|one| matches!(one.subject, Subject::Portal(_)));
        all.extend(config.leave_out(mistakes::of(&config, is_whole))?);
        if let Some(before) = before {
            config.keep(before, &all);
            config.find_volumes();
            let still = config.leave_out(mistakes::of(&config, is_whole))?;
            all.extend(still);
        }
        nothing_left(&config, &all)?;
        if config.strict && !all.is_empty() {
            return Err(joined(&all));
        }
        if config.listen.is_none()
            && config.portals.is_empty()
            && all.iter().any(|one| matches!(one.subject, Subject::Portal(_)))
        {
            // The default is for configurations without portals, which this one is not.
            config.listen = Some(Vec::new());
        }
        Ok((config, all))
    }

    fn portals(&self, left_out: &mut Vec<LeftOut>) -> Vec<Portal> {
        let mut read = Vec::new();
        for (name, document) in self.objects.of(Kind::Portal) {
            match document::read(&Value::Object(document.clone())) {
                Ok(one) => read.push(one),
                Err(why) => left_out.push(LeftOut::new(subject(Kind::Portal, name), &why)),
            }
        }
        read
    }

    /// The objects as the API shows them. `config` is what they make together.
    pub(crate) fn catalog(&self, files: &Files, config: &Config) -> Catalog {
        let mut main = Objects::default();
        let is_default = self.main.listen.is_none() && self.main.portals.is_empty() && !config.portals.is_empty();
        let of_main = if is_default { Vec::new() } else { self.main.portals() };
        for portal in of_main {
            let document = json!({ "address": portal.address.to_string(), "group": portal.group });
            add(&mut main, Kind::Portal, &portal.address.to_string(), &document);
        }
        for document in &self.targets {
            if let Some(Value::String(name)) = document.get("name") {
                add(&mut main, Kind::Target, name, &Value::Object(document.clone()));
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

/// Refuses a configuration that serves nothing because of its mistakes, and that no API can mend.
fn nothing_left(config: &Config, left_out: &[LeftOut]) -> Result<(), String> {
    let is_lost = config.api.is_none() && !config.targets.iter().any(Target::has_use) && !left_out.is_empty();
    if is_lost { Err(joined(left_out)) } else { Ok(()) }
}

fn joined(left_out: &[LeftOut]) -> String {
    left_out.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lunette_api::Origin;

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
        let Read { sources, config, left_out } = files.read(None).map_err(|failure| failure.to_string())?;
        let catalog = sources.catalog(&files, &config);
        if !left_out.is_empty() {
            let all: Vec<_> = left_out.iter().map(|one| format!("{}: {}", one.subject, one.text())).collect();
            return Err(all.join("\n"));
        }
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
        let (fewer, _) = sources.with(Objects::default()).config(None).unwrap();
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
            (MAIN, "a.toml", "[[target]]\nname = \"iqn.a\"", "a.toml: a file that holds target iqn.a has the name"),
            ("colour = 1", "a.txt", "", "line 1"),
            ("", "a.txt", "", "there is no [[target]]"),
        ] {
            let error = read(main, &[(file, content)]).err().unwrap();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_mistake_takes_no_other_object_away_and_is_named_with_its_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lunette.toml");
        fs::write(&path, format!("{MAIN}lun = [{{ number = 0, disk = \"mem:1M\" }}]\n[[target]]\nname = \"iqn.bad\"\ncolour = 1\n[[target]]\nname = \"iqn.two\"\nmax_connections = 0\n")).unwrap();
        fs::create_dir(place.path().join(FOLDER)).unwrap();
        let write = |file: &str, text: &str| fs::write(place.path().join(FOLDER).join(file), text).unwrap();
        write("target-iqn.good.toml", "[[target]]\nname = \"iqn.good\"");
        write("target-iqn.torn.toml", "[[target]]\nname = ");
        write("notes.toml", "");
        let files = Files::new(path.clone(), Vec::new(), false);
        let Read { sources, config, left_out } = files.read(None).unwrap();
        let names = |config: &Config| config.targets.iter().map(|target| target.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&config), ["iqn.main", "iqn.good"]);
        let texts: Vec<_> = left_out.iter().map(|one| format!("{}: {}", one.subject, one.text())).collect();
        for (subject, place) in [
            ("target iqn.bad: ", "lunette.toml: line 8, column 1: unknown field `colour`"),
            ("file conf.d/notes.toml: ", "holds 0"),
            ("target iqn.torn: ", "target-iqn.torn.toml: line 2"),
            ("target iqn.two: ", "lunette.toml: line 11, column 19: "),
        ] {
            assert!(
                texts.iter().any(|text| text.starts_with(subject) && text.contains(place)),
                "{subject}: {texts:#?}"
            );
        }
        assert_eq!(texts.len(), 4, "{texts:#?}");
        // What was served stays.
        let whole = "[[target]]\nname = \"iqn.torn\"\nalias = \"served\"";
        write("target-iqn.torn.toml", whole);
        let before = files.read(None).unwrap();
        write("target-iqn.torn.toml", "[[target]");
        let kept = files.read(Some((&before.sources, &before.config))).unwrap();
        assert_eq!(kept.config.target("iqn.torn").unwrap().alias.as_deref(), Some("served"));
        assert!(
            kept.sources.broken("target-iqn.torn.toml").is_some() && sources.broken("target-iqn.good.toml").is_none()
        );
        let file = |name: &str| place.path().join(FOLDER).join(name);
        fs::rename(file("target-iqn.good.toml"), file("target-iqn.other.toml")).unwrap();
        let with_other_name = files.read(Some((&kept.sources, &kept.config))).unwrap().config;
        assert!(with_other_name.target("iqn.good").is_some(), "its file has the wrong name, and it is served");
        // Strict refuses all of it.
        let refused = Files::new(path, Vec::new(), true).read(None).err().unwrap().to_string();
        assert!(refused.contains("line 8") && refused.contains("target-iqn.torn.toml: line 1"), "{refused}");
    }

    #[test]
    fn a_folder_that_is_gone_removes_nothing_and_an_empty_one_does() {
        let place = tempfile::tempdir().unwrap();
        let (path, folder) = (place.path().join("lunette.toml"), place.path().join(FOLDER));
        fs::write(&path, MAIN).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("target-iqn.a.toml"), "[[target]]\nname = \"iqn.a\"").unwrap();
        let files = Files::new(path, Vec::new(), false);
        let Read { sources, config, .. } = files.read(None).unwrap();
        let again = || files.read(Some((&sources, &config)));
        fs::rename(&folder, place.path().join("moved")).unwrap();
        let refused = again().err().unwrap().to_string();
        assert!(refused.contains("make an empty one"), "{refused}");
        fs::create_dir(&folder).unwrap();
        let emptied = again().unwrap();
        assert_eq!(emptied.config.targets.len(), 1);
        fs::remove_dir(&folder).unwrap();
        assert!(files.read(Some((&emptied.sources, &emptied.config))).is_ok(), "it held nothing");
    }

    #[test]
    fn the_api_shows_the_one_of_two_that_is_served() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lunette.toml");
        fs::write(&path, format!("{MAIN}lun = [{{ number = 0, disk = \"mem:1M\" }}]\n")).unwrap();
        fs::create_dir(place.path().join(FOLDER)).unwrap();
        let second = "[[target]]\nname = \"iqn.main\"\nalias = \"second\"";
        fs::write(place.path().join(FOLDER).join("target-iqn.main.toml"), second).unwrap();
        let files = Files::new(path, Vec::new(), false);
        let Read { sources, config, .. } = files.read(None).unwrap();
        assert_eq!(config.target("iqn.main").unwrap().alias.as_deref(), Some("first"));
        let catalog = sources.catalog(&files, &config);
        let shown: Vec<_> = catalog.of(Kind::Target).map(|(_, target, origin)| (&target["alias"], origin)).collect();
        assert_eq!(shown, [(&json!("first"), Origin::Main)]);
    }

    #[test]
    fn a_server_with_an_api_may_begin_without_targets() {
        let (_, config, _) = read("[api]\nlisten = [\"unix:/run/api.sock\"]", &[]).unwrap();
        assert!(config.targets.is_empty());
    }
}
