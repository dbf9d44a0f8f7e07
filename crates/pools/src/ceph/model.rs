//! A cluster in memory, for tests: it does what librbd does step by step, and can fail after any step.
//!
//! An image has objects of [`OBJECT`] bytes, and an object is one byte that stands for all of its bytes.

use std::collections::BTreeMap;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use lunette_rbd::{ImageName, ImageSnapshot, PoolRoom, Relative};

use super::cluster::{Cluster, Image};

/// Bytes of an object.
pub(super) const OBJECT: u64 = 512;

/// A cluster. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Model(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The ids of images by the names that the directory has.
    directory: BTreeMap<String, String>,
    /// The ids of images by the names that they have taken.
    taken: BTreeMap<String, String>,
    /// The names of images that are being removed, by their ids.
    trash: BTreeMap<String, String>,
    images: BTreeMap<String, ModelImage>,
    metadata: BTreeMap<String, String>,
    /// The last number of an image or snapshot.
    last: u64,
    /// Steps that are made.
    steps: u64,
    failure: Failure,
}

/// When the cluster fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Failure {
    #[default]
    Never,
    /// Nothing works after this many steps.
    After(u64),
    /// The step of this number fails, others do not; it is made all the same if the flag says so.
    At(u64, bool),
}

#[derive(Clone, Default)]
struct ModelImage {
    /// Objects that it has not itself are the origin's.
    objects: Vec<Option<u8>>,
    metadata: BTreeMap<String, String>,
    snapshots: Vec<ModelSnapshot>,
    /// The image and the id of the snapshot.
    origin: Option<(String, u64)>,
    /// How many have it open to change it.
    watchers: usize,
}

#[derive(Clone)]
struct ModelSnapshot {
    id: u64,
    name: String,
    objects: Vec<Option<u8>>,
    /// Whether it is there for clones alone.
    is_in_trash: bool,
}

impl Model {
    /// Fails from now on as said; steps count from here.
    pub(super) fn fail(&self, failure: Failure) {
        let mut state = self.state();
        (state.steps, state.failure) = (0, failure);
    }

    /// Steps since the last [`fail`](Self::fail).
    pub(super) fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Writes to an object, as a client would.
    pub(super) fn write(&self, image: &str, object: usize, byte: u8) {
        let mut state = self.state();
        let id = state.directory[image].clone();
        state.images.get_mut(&id).unwrap().objects[object] = Some(byte);
    }

    /// The content of an image, or of its snapshot.
    pub(super) fn content(&self, image: &str, snapshot: Option<&str>) -> Vec<u8> {
        let state = self.state();
        let id = &state.directory[image];
        let objects = match snapshot {
            Some(name) => &state.images[id].snapshots.iter().find(|taken| taken.name == name).unwrap().objects,
            None => &state.images[id].objects,
        };
        state.resolve(id, objects)
    }

    /// Whether nothing is there but what the directory names, and no change is written down.
    pub(super) fn assert_is_tidy(&self) {
        let state = self.state();
        assert_eq!(state.directory, state.taken);
        let ids: Vec<&String> = state.images.keys().collect();
        let mut named: Vec<&String> = state.directory.values().collect();
        named.sort();
        assert_eq!((ids, &state.trash), (named, &BTreeMap::new()));
        assert_eq!(state.metadata, BTreeMap::new());
        for image in state.images.values() {
            assert!(image.snapshots.iter().all(|snapshot| snapshot.is_in_trash || !snapshot.name.starts_with('.')));
            assert_eq!(image.watchers, 0);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    /// Makes a step, or fails.
    fn step(&mut self, step: impl FnOnce(&mut Self)) -> io::Result<()> {
        self.check()?;
        self.steps += 1;
        match self.failure {
            Failure::At(number, is_made) if number == self.steps => {
                if is_made {
                    step(self);
                }
                Err(io::ErrorKind::TimedOut.into())
            }
            _ => {
                step(self);
                Ok(())
            }
        }
    }

    /// Fails when nothing works any more.
    fn check(&self) -> io::Result<()> {
        match self.failure {
            Failure::After(steps) if steps <= self.steps => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn id_of(&self, image: &str) -> io::Result<String> {
        self.check()?;
        self.taken.get(image).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn image(&mut self, id: &str) -> io::Result<&mut ModelImage> {
        self.check()?;
        self.images.get_mut(id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn resolve(&self, id: &str, objects: &[Option<u8>]) -> Vec<u8> {
        let origin = self.images[id].origin.as_ref().map(|(origin, snapshot)| {
            let snapshots = &self.images[origin].snapshots;
            self.resolve(origin, &snapshots.iter().find(|taken| taken.id == *snapshot).unwrap().objects)
        });
        let origin = origin.unwrap_or_default();
        let resolve = |(number, object): (usize, &Option<u8>)| object.or(origin.get(number).copied()).unwrap_or(0);
        objects.iter().enumerate().map(resolve).collect()
    }

    /// The ids of the clones of a snapshot, or of any.
    fn clones<'a>(&'a self, id: &'a str, snapshot: Option<u64>) -> impl Iterator<Item = &'a String> {
        let is_clone = move |image: &ModelImage| {
            image
                .origin
                .as_ref()
                .is_some_and(|origin| origin.0 == id && snapshot.is_none_or(|wanted| wanted == origin.1))
        };
        self.images.iter().filter(move |(_, image)| is_clone(image)).map(|(id, _)| id)
    }

    fn relative(&self, id: &str, snapshot: Option<String>) -> Relative {
        let named = self.directory.iter().find(|(_, named)| *named == id).map(|(name, _)| name.clone());
        Relative {
            pool: "pool".into(),
            namespace: String::new(),
            is_in_trash: named.is_none(),
            image: named.unwrap_or_default(),
            snapshot,
        }
    }

    /// Makes an image that has a name, and a header in the end.
    fn make(&mut self, name: &str, image: ModelImage) -> io::Result<String> {
        self.check()?;
        if self.taken.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = format!("id{}", self.number());
        self.step(|state| _ = state.taken.insert(name.into(), id.clone()))?;
        self.step(|state| _ = state.directory.insert(name.into(), id.clone()))?;
        self.step(|state| _ = state.images.insert(id.clone(), image))?;
        Ok(id)
    }

    /// Ends what a clone has of its origin, and a snapshot that only it needed.
    fn detach(&mut self, id: &str) -> io::Result<()> {
        let Some((origin, snapshot)) = self.image(id)?.origin.clone() else { return Ok(()) };
        self.step(|state| state.images.get_mut(id).unwrap().origin = None)?;
        let is_last = self.clones(&origin, Some(snapshot)).next().is_none();
        // librbd does it in the same breath; nothing depends on it.
        let snapshots = &mut self.image(&origin)?.snapshots;
        snapshots.retain(|taken| !(is_last && taken.is_in_trash && taken.id == snapshot));
        Ok(())
    }
}

impl Cluster for Model {
    fn list(&self) -> io::Result<Vec<ImageName>> {
        let state = self.state();
        state.check()?;
        let name = |(name, id): (&String, &String)| ImageName { name: name.clone(), id: id.clone() };
        Ok(state.directory.iter().map(name).collect())
    }

    fn open(&self, image: &str, snapshot: Option<&str>) -> io::Result<Box<dyn Image>> {
        let mut state = self.state();
        let id = state.id_of(image)?;
        let snapshots = &state.image(&id)?.snapshots;
        let snapshot = match snapshot {
            Some(name) => {
                let found = snapshots.iter().find(|taken| taken.name == name && !taken.is_in_trash);
                Some(found.ok_or(io::ErrorKind::NotFound)?.id)
            }
            None => None,
        };
        Ok(Box::new(Opened { model: self.clone(), id, snapshot, is_watcher: false }))
    }

    fn open_to_change(&self, image: &str) -> io::Result<Box<dyn Image>> {
        let mut state = self.state();
        let id = state.id_of(image)?;
        state.image(&id)?.watchers += 1;
        Ok(Box::new(Opened { model: self.clone(), id, snapshot: None, is_watcher: true }))
    }

    fn create(&self, image: &str, len_bytes: u64) -> io::Result<()> {
        let objects = vec![None; (len_bytes / OBJECT) as usize];
        self.state().make(image, ModelImage { objects, ..ModelImage::default() }).map(|_| ())
    }

    fn clone_image(&self, origin: &str, snapshot: &str, image: &str) -> io::Result<()> {
        let mut state = self.state();
        let origin = state.id_of(origin)?;
        let source = state.image(&origin)?.clone();
        let taken = source.snapshots.iter().find(|taken| taken.name == snapshot && !taken.is_in_trash);
        let taken = taken.ok_or(io::ErrorKind::NotFound)?;
        let objects = vec![None; taken.objects.len()];
        let id = state.make(image, ModelImage { objects, ..ModelImage::default() })?;
        state.step(|state| state.images.get_mut(&id).unwrap().origin = Some((origin, taken.id)))?;
        state.step(|state| state.images.get_mut(&id).unwrap().metadata = source.metadata)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let id = state.id_of(from)?;
        if state.taken.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.step(|state| _ = state.taken.insert(to.into(), id.clone()))?;
        state.step(|state| {
            state.directory.remove(from);
            state.directory.insert(to.into(), id);
        })?;
        state.step(|state| _ = state.taken.remove(from))
    }

    fn release_name(&self, image: &str, id: &str) -> io::Result<()> {
        let mut state = self.state();
        if state.taken.get(image).is_some_and(|taken| taken == id) {
            state.step(|state| _ = state.taken.remove(image))?;
        }
        if state.directory.get(image).is_some_and(|listed| listed == id) {
            state.step(|state| _ = state.directory.remove(image))?;
        }
        Ok(())
    }

    fn remove(&self, image: &str) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        let id = if let Some(id) = state.taken.get(image).cloned() {
            if let Some(found) = state.images.get(&id) {
                if found.snapshots.iter().any(|taken| !taken.is_in_trash) {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
                if found.watchers > 0 || state.clones(&id, None).next().is_some() {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
            }
            state.step(|state| _ = state.trash.insert(id.clone(), image.into()))?;
            state.step(|state| _ = state.taken.remove(image))?;
            state.step(|state| _ = state.directory.remove(image))?;
            id
        } else {
            let left = state.trash.iter().find(|(_, name)| *name == image).map(|(id, _)| id.clone());
            left.ok_or(io::ErrorKind::NotFound)?
        };
        for object in 0..state.images.get(&id).map_or(0, |image| image.objects.len()) {
            state.step(|state| state.images.get_mut(&id).unwrap().objects[object] = None)?;
        }
        if state.images.contains_key(&id) {
            state.detach(&id)?;
            state.step(|state| _ = state.images.remove(&id))?;
        }
        state.step(|state| _ = state.trash.remove(&id))
    }

    fn metadata(&self, prefix: &str) -> io::Result<BTreeMap<String, String>> {
        let state = self.state();
        state.check()?;
        Ok(with_prefix(&state.metadata, prefix))
    }

    fn set_metadata(&self, key: &str, value: &str) -> io::Result<()> {
        self.state().step(|state| _ = state.metadata.insert(key.into(), value.into()))
    }

    fn remove_metadata(&self, key: &str) -> io::Result<()> {
        self.state().step(|state| _ = state.metadata.remove(key))
    }

    fn room(&self) -> io::Result<Option<PoolRoom>> {
        Ok(None)
    }
}

/// An image that is open, or a snapshot of one.
struct Opened {
    model: Model,
    id: String,
    snapshot: Option<u64>,
    is_watcher: bool,
}

impl Opened {
    /// Makes a step that changes the image.
    fn change(&self, change: impl FnOnce(&mut ModelImage)) -> io::Result<()> {
        let mut state = self.model.state();
        state.image(&self.id)?;
        state.step(|state| change(state.images.get_mut(&self.id).unwrap()))
    }

    fn read<T>(&self, read: impl FnOnce(&mut ModelImage) -> T) -> io::Result<T> {
        self.model.state().image(&self.id).map(read)
    }

    fn objects(&self) -> io::Result<Vec<Option<u8>>> {
        self.read(|image| match self.snapshot {
            Some(id) => image.snapshots.iter().find(|taken| taken.id == id).map(|taken| taken.objects.clone()),
            None => Some(image.objects.clone()),
        })?
        .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn find(&self, snapshot: &str) -> io::Result<ModelSnapshot> {
        let found = self
            .read(|image| image.snapshots.iter().find(|taken| taken.name == snapshot && !taken.is_in_trash).cloned());
        found?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.is_watcher
            && let Some(image) = self.model.state().images.get_mut(&self.id)
        {
            image.watchers -= 1;
        }
    }
}

impl Image for Opened {
    fn id(&self) -> io::Result<String> {
        Ok(self.id.clone())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.objects()?.len() as u64 * OBJECT)
    }

    fn created(&self) -> io::Result<SystemTime> {
        Ok(SystemTime::UNIX_EPOCH)
    }

    fn has_fast_diff(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// The content that is cut off goes before the length does.
    fn resize(&self, len_bytes: u64) -> io::Result<()> {
        let (objects, len) = (self.objects()?.len(), (len_bytes / OBJECT) as usize);
        for object in len.min(objects)..objects {
            self.change(|image| image.objects[object] = Some(0))?;
        }
        self.change(|image| image.objects.resize(len, Some(0)))
    }

    fn lock_if_free(&self) -> io::Result<()> {
        Ok(())
    }

    fn roll_back(&self, snapshot: &str, told: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        let (taken, len) = (self.find(snapshot)?.objects, self.objects()?.len());
        self.change(|image| image.objects.resize(taken.len(), Some(0)))?;
        for (number, object) in taken.iter().enumerate() {
            told(number as u64 * OBJECT, len as u64 * OBJECT);
            self.change(|image| image.objects[number] = *object)?;
        }
        Ok(())
    }

    fn flatten(&self, told: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> io::Result<()> {
        let objects = self.objects()?;
        let content = self.model.state().resolve(&self.id, &objects);
        for (number, byte) in content.into_iter().enumerate() {
            if told(number as u64 * OBJECT, objects.len() as u64 * OBJECT).is_break() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.change(|image| image.objects[number] = Some(byte))?;
        }
        let mut state = self.model.state();
        // Snapshots get blocks of their own, too.
        let snapshots = state.image(&self.id)?.snapshots.clone();
        for (number, taken) in snapshots.iter().enumerate() {
            let objects = state.resolve(&self.id, &taken.objects).into_iter().map(Some).collect();
            state.step(|state| state.images.get_mut(&self.id).unwrap().snapshots[number].objects = objects)?;
        }
        state.detach(&self.id)
    }

    fn differences(
        &self,
        since: Option<&str>,
        range: Range<u64>,
        with_origin: bool,
        _: bool,
        found: &mut (dyn FnMut(u64, u64, bool) + Send),
    ) -> io::Result<()> {
        let (objects, old) = (self.objects()?, since.map(|since| self.find(since)).transpose()?);
        let old = old.map(|old| old.objects).unwrap_or_default();
        let state = self.model.state();
        let content = state.resolve(&self.id, &objects);
        for (number, object) in objects.iter().enumerate() {
            let offset = number as u64 * OBJECT;
            let has_space = object.is_some() || (with_origin && content[number] != 0);
            let is_other = if since.is_some() { old.get(number) != Some(object) } else { has_space };
            if is_other && range.contains(&offset) {
                found(offset, OBJECT, has_space);
            }
        }
        Ok(())
    }

    fn metadata_of(&self, key: &str) -> io::Result<Option<String>> {
        self.read(|image| image.metadata.get(key).cloned())
    }

    fn metadata(&self, prefix: &str) -> io::Result<BTreeMap<String, String>> {
        self.read(|image| with_prefix(&image.metadata, prefix))
    }

    fn set_metadata(&self, key: &str, value: &str) -> io::Result<()> {
        self.change(|image| _ = image.metadata.insert(key.into(), value.into()))
    }

    fn remove_metadata(&self, key: &str) -> io::Result<()> {
        self.change(|image| _ = image.metadata.remove(key))
    }

    fn snapshots(&self) -> io::Result<Vec<ImageSnapshot>> {
        let snapshot = |taken: &ModelSnapshot| ImageSnapshot {
            id: taken.id,
            name: taken.name.clone(),
            len_bytes: taken.objects.len() as u64 * OBJECT,
            created: SystemTime::UNIX_EPOCH + Duration::from_secs(taken.id),
        };
        self.read(|image| image.snapshots.iter().filter(|taken| !taken.is_in_trash).map(snapshot).collect())
    }

    fn lengths(&self) -> io::Result<BTreeMap<u64, u64>> {
        self.read(|image| image.snapshots.iter().map(|taken| (taken.id, taken.objects.len() as u64 * OBJECT)).collect())
    }

    fn create_snapshot(&self, snapshot: &str) -> io::Result<()> {
        if self.find(snapshot).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = self.model.state().number();
        self.change(|image| {
            let (name, objects) = (snapshot.into(), image.objects.clone());
            image.snapshots.push(ModelSnapshot { id, name, objects, is_in_trash: false });
        })
    }

    fn remove_snapshot(&self, snapshot: &str) -> io::Result<()> {
        let id = self.find(snapshot)?.id;
        let has_clones = self.model.state().clones(&self.id, Some(id)).next().is_some();
        self.change(|image| {
            if has_clones {
                image.snapshots.iter_mut().filter(|taken| taken.id == id).for_each(|taken| taken.is_in_trash = true);
            } else {
                image.snapshots.retain(|taken| taken.id != id);
            }
        })
    }

    fn origin(&self) -> io::Result<Option<Relative>> {
        let origin = self.read(|image| image.origin.clone())?;
        let state = self.model.state();
        Ok(origin.map(|(id, snapshot)| {
            let taken = state.images[&id].snapshots.iter().find(|taken| taken.id == snapshot).unwrap();
            state.relative(&id, Some(taken.name.clone()).filter(|_| !taken.is_in_trash))
        }))
    }

    fn clones(&self) -> io::Result<Vec<Relative>> {
        let state = self.model.state();
        state.check()?;
        Ok(state.clones(&self.id, self.snapshot).map(|id| state.relative(id, None)).collect())
    }
}

fn with_prefix(metadata: &BTreeMap<String, String>, prefix: &str) -> BTreeMap<String, String> {
    let has_prefix = |(key, _): &(&String, &String)| key.starts_with(prefix);
    metadata.iter().filter(has_prefix).map(|(key, value)| (key.clone(), value.clone())).collect()
}
