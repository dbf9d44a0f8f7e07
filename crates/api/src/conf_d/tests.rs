use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use crate::objects::{Document, Key, Kind};

type Files = BTreeMap<String, String>;

/// An operation that a folder was told of and may not have on stable storage.
#[derive(Debug, Clone)]
enum Pending {
    Link(String, String),
    Rename { from: String, to: String, content: String },
    Remove(String),
}

/// A folder whose power fails after some operations. Contents are durable when `write` returns, names when `sync` does;
/// in between, each change of a name may have reached the disk or not, whatever came before it.
struct Fragile {
    now: RefCell<Files>,
    durable: RefCell<Files>,
    pending: RefCell<Vec<Pending>>,
    operations_left: RefCell<usize>,
}

impl Fragile {
    fn new(files: Files, operations: usize) -> Self {
        Self {
            now: files.clone().into(),
            durable: files.into(),
            pending: RefCell::default(),
            operations_left: operations.into(),
        }
    }

    fn step(&self) -> io::Result<()> {
        let mut left = self.operations_left.borrow_mut();
        *left = left.checked_sub(1).ok_or_else(|| io::Error::other("the power has failed"))?;
        Ok(())
    }

    fn change(&self, change: Pending) {
        apply(&mut self.now.borrow_mut(), &change);
        self.pending.borrow_mut().push(change);
    }

    /// All that the disk may hold after a power failure now.
    fn after_failure(&self) -> Vec<Files> {
        let pending = self.pending.borrow();
        (0..1_u32 << pending.len())
            .map(|chosen| {
                let mut files = self.durable.borrow().clone();
                let reached = pending.iter().enumerate().filter(|(index, _)| chosen >> index & 1 == 1);
                reached.for_each(|(_, change)| apply(&mut files, change));
                files
            })
            .collect()
    }
}

fn apply(files: &mut Files, change: &Pending) {
    match change {
        Pending::Link(name, content) => drop(files.insert(name.clone(), content.clone())),
        Pending::Rename { from, to, content } => {
            files.remove(from);
            files.insert(to.clone(), content.clone());
        }
        Pending::Remove(name) => drop(files.remove(name)),
    }
}

impl Folder for &Fragile {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.now.borrow().keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Option<String>> {
        Ok(self.now.borrow().get(name).cloned())
    }

    fn write(&self, name: &str, content: &str) -> io::Result<()> {
        if *self.operations_left.borrow() == 0 {
            // Half of it may be there.
            self.change(Pending::Link(name.into(), content[..content.len() / 2].into()));
        }
        self.step()?;
        self.change(Pending::Link(name.into(), content.into()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.step()?;
        let content = self.now.borrow().get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        self.change(Pending::Rename { from: from.into(), to: to.into(), content });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.step()?;
        self.change(Pending::Remove(name.into()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.step()?;
        self.durable.replace(self.now.borrow().clone());
        self.pending.borrow_mut().clear();
        Ok(())
    }
}

fn objects(names: &[(&str, &str)]) -> Objects {
    let mut objects = Objects::default();
    for (name, alias) in names {
        let document: Document = [("alias".to_owned(), (*alias).into())].into_iter().collect();
        objects.put(Key::new(Kind::Target, name).unwrap(), document).unwrap();
    }
    objects
}

fn files(objects: &Objects) -> Files {
    let changes = Objects::default().file_changes(objects).unwrap();
    changes.into_iter().filter_map(|change| Some((change.file, change.content?))).collect()
}

fn change(conf_d: &ConfD<&Fragile>, old: &Objects, new: &Objects) -> io::Result<()> {
    let staged = conf_d.stage(old.file_changes(new).unwrap())?;
    conf_d.commit(&staged)
}

/// The objects of a folder without broken files.
fn read_whole<F: Folder>(conf_d: &ConfD<F>) -> Objects {
    let Contents { objects, broken, .. } = conf_d.read().unwrap();
    assert_eq!(broken, []);
    objects
}

/// Reads what a power failure has left; a second one may come at any moment of that.
fn read_after_failure(files: &Files) -> Objects {
    let whole = Fragile::new(files.clone(), usize::MAX);
    let read = read_whole(&ConfD::new(&whole));
    for operations in 0.. {
        let fragile = Fragile::new(files.clone(), operations);
        let is_whole = ConfD::new(&fragile).read().is_ok();
        for left in fragile.after_failure() {
            let again = Fragile::new(left, usize::MAX);
            assert_eq!(read_whole(&ConfD::new(&again)), read, "the second power failure after {operations}");
        }
        if is_whole {
            break;
        }
    }
    read
}

#[test]
fn a_power_failure_after_any_operation_leaves_the_old_or_the_new_objects() {
    let old = objects(&[("iqn.kept", "a"), ("iqn.gone", "b"), ("iqn.changed", "c")]);
    let new = objects(&[("iqn.kept", "a"), ("iqn.changed", "d"), ("iqn.come", "e")]);
    let (mut seen_old, mut seen_new) = (false, false);
    for operations in 0.. {
        let fragile = Fragile::new(files(&old), operations);
        let done = change(&ConfD::new(&fragile), &old, &new).is_ok();
        for left in fragile.after_failure() {
            let read = read_after_failure(&left);
            assert!(read == new || (read == old && !done), "after {operations} operations: {left:?}");
            seen_old |= read == old;
            seen_new |= read == new;
        }
        if done {
            assert!(operations >= 8, "the test stops at each of the operations");
            break;
        }
    }
    assert!(seen_old && seen_new);
}

#[test]
fn a_change_that_was_staged_and_dropped_means_nothing() {
    let (old, new) = (objects(&[("iqn.a", "a")]), objects(&[("iqn.b", "b")]));
    let folder = Fragile::new(files(&old), usize::MAX);
    let conf_d = ConfD::new(&folder);
    conf_d.stage(old.file_changes(&new).unwrap()).unwrap();
    assert_eq!(read_whole(&conf_d), old);
    conf_d.unstage().unwrap();
    assert_eq!(folder.now.into_inner(), files(&old));
}

#[test]
fn the_log_of_an_earlier_change_does_not_undo_a_later_one() {
    let (first, second, third) = (objects(&[("iqn.a", "1")]), objects(&[("iqn.a", "2")]), objects(&[("iqn.a", "3")]));
    for operations in 0..20 {
        let fragile = Fragile::new(files(&first), usize::MAX);
        let conf_d = ConfD::new(&fragile);
        change(&conf_d, &first, &second).unwrap();
        fragile.operations_left.replace(operations);
        let done = change(&conf_d, &second, &third).is_ok();
        for left in fragile.after_failure() {
            let read = read_after_failure(&left);
            assert!(read == third || (read == second && !done), "after {operations} operations: {left:?}");
        }
    }
}

#[test]
fn a_damaged_log_is_told_and_not_applied() {
    let mut on_disk = files(&objects(&[("iqn.a", "a")]));
    on_disk.insert(REDO.into(), r#"{"changes":[{"file":"target-iqn.a.toml","content":null}],"sum":"x"}"#.into());
    let folder = Fragile::new(on_disk, usize::MAX);
    let error = ConfD::new(&folder).read().unwrap_err().to_string();
    assert!(error.contains(".redo: ") && error.contains("then remove it"), "{error}");
}

#[test]
fn a_log_that_leads_out_of_the_folder_is_told_and_not_applied() {
    let folder = tempfile::tempdir().unwrap();
    let conf_d = folder.path().join("conf.d");
    std::fs::create_dir(&conf_d).unwrap();
    for name in ["../lunette.toml", "/etc/target-iqn.a.toml", "below/target-iqn.a.toml", ".redo", "..", "notes.txt", ""]
    {
        let changes = vec![FileChange { file: name.into(), content: Some("x = 1".into()) }];
        let sum = objects::etag(&changes);
        std::fs::write(conf_d.join(REDO), serde_json::to_string(&Redo { changes, sum }).unwrap()).unwrap();
        let error = ConfD::new(DiskFolder::new(&conf_d)).read().unwrap_err().to_string();
        assert!(error.contains("no file of an object in this folder"), "{name}: {error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{name}");
    }
}

#[test]
fn a_folder_of_the_file_system_keeps_objects() {
    let place = tempfile::tempdir().unwrap();
    let folder = || DiskFolder::new(place.path().join("conf.d"));
    let (none, some) = (Objects::default(), objects(&[("iqn.a", "a"), ("iqn.b", "b")]));
    let conf_d = ConfD::new(folder());
    assert_eq!(read_whole(&conf_d), none, "without a folder there is nothing");
    let staged = conf_d.stage(none.file_changes(&some).unwrap()).unwrap();
    conf_d.commit(&staged).unwrap();
    assert_eq!(read_whole(&ConfD::new(folder())), some);
    let mut names = folder().names().unwrap();
    names.sort_unstable();
    assert_eq!(names, ["target-iqn.a.toml", "target-iqn.b.toml"]);
}

#[test]
fn a_broken_file_takes_no_other_object_away() {
    let place = tempfile::tempdir().unwrap();
    let conf_d = ConfD::new(DiskFolder::new(place.path()));
    let good = objects(&[("iqn.a", "a"), ("iqn.b", "b")]);
    conf_d.commit(&conf_d.stage(Objects::default().file_changes(&good).unwrap()).unwrap()).unwrap();
    std::fs::create_dir(place.path().join("target-iqn.folder.toml")).unwrap();
    std::os::unix::fs::symlink("target-iqn.loop.toml", place.path().join("target-iqn.loop.toml")).unwrap();
    let long = std::fs::File::create(place.path().join("target-iqn.long.toml")).unwrap();
    long.set_len(1 << 30).unwrap();
    let broken: [(&str, &[u8]); 4] = [
        ("portal-192.0.2.1:3260.toml", b"[[portal]"),
        ("target-iqn.copy.toml", b"[[target]]\nname = \"iqn.a\""),
        ("target-iqn.latin.toml", b"[[target]]\nname = \"iqn.latin\"\nalias = \"\xe4\""),
        ("whatever.toml", b""),
    ];
    for (file, text) in broken {
        std::fs::write(place.path().join(file), text).unwrap();
    }
    let contents = conf_d.read().unwrap();
    assert_eq!(contents.objects, good);
    let keys: Vec<_> = contents.broken.iter().map(|broken| broken.key().map(|key| key.to_string())).collect();
    let target = |name: &str| Some(format!("target iqn.{name}"));
    assert_eq!(
        keys,
        [
            Some("portal 192.0.2.1:3260".into()),
            target("copy"),
            target("folder"),
            target("latin"),
            target("long"),
            target("loop"),
            None
        ]
    );
    assert!(contents.broken.iter().all(|broken| !broken.why.is_empty()));
}

#[test]
fn a_name_that_leads_to_no_file_is_told() {
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("nowhere", place.path().join("target-iqn.link.toml")).unwrap();
    let latin = std::os::unix::ffi::OsStrExt::from_bytes(b"target-iqn.\xff.toml");
    std::fs::write(place.path().join::<&std::ffi::OsStr>(latin), "[[target]]\nname = \"iqn.a\"").unwrap();
    let broken = ConfD::new(DiskFolder::new(place.path())).read().unwrap().broken;
    let told: Vec<_> = broken.iter().map(|one| (one.file.as_str(), one.why.as_str())).collect();
    let [("target-iqn.link.toml", link), ("target-iqn.\u{fffd}.toml", latin)] = told[..] else { panic!("{told:?}") };
    assert!(link.contains("no such file") && latin.contains("not UTF-8"), "{told:?}");
}
