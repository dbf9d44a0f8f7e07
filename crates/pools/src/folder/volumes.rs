//! Volumes: created, changed and removed.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::SystemTime;

use super::files::{Files, Kind};
use super::record::{self, VolumeRecord};
use super::{FolderPool, failed, layout};
use crate::check;
use crate::error::PoolError;
use crate::limits::MAX_VOLUMES;
use crate::name::Name;
use crate::pool::{NewVolume, Origin, Volume};

impl<F: Files> FolderPool<F> {
    pub(super) fn list_volumes(&self) -> Result<(Vec<Volume>, Vec<PoolError>), PoolError> {
        let _reading = self.reading();
        let mut names = self.names_of_volumes()?;
        names.sort_unstable();
        let (mut volumes, mut unreadable) = (Vec::new(), Vec::new());
        for name in names {
            match self.read_volume(&name) {
                Ok(volume) => volumes.push(volume),
                Err(error) => unreadable.push(error),
            }
        }
        Ok((volumes, unreadable))
    }

    /// The volume of this name, with what its record has and the length of its image.
    pub(super) fn read_volume(&self, name: &Name) -> Result<Volume, PoolError> {
        let VolumeRecord { serial, created, labels, origin, is_filling, is_full: _ } = self.record(name)?;
        let image = self.files.open_image(&layout::disk(name)).map_err(failed)?;
        let len_bytes = self.files.len(&image).map_err(failed)?;
        Ok(Volume { name: name.clone(), len_bytes, serial, created, labels, origin, is_filling })
    }

    pub(super) fn record(&self, name: &Name) -> Result<VolumeRecord, PoolError> {
        let path = layout::record(name);
        if self.files.kind(&layout::volume(name)).map_err(failed)? != Some(Kind::Folder) {
            return Err(PoolError::NoVolume(name.clone()));
        }
        let text = self.files.read(&path).map_err(failed)?.ok_or_else(|| PoolError::NoVolume(name.clone()))?;
        record::parse(&text).map_err(|why| self.unreadable(&path, why))
    }

    /// The record of a volume that has content.
    pub(super) fn record_of_filled(&self, name: &Name) -> Result<VolumeRecord, PoolError> {
        let record = self.record(name)?;
        if record.is_filling { Err(PoolError::Filling(name.clone())) } else { Ok(record) }
    }

    pub(super) fn create_volume(&self, name: &Name, new: &NewVolume) -> Result<Volume, PoolError> {
        check::new_volume(new)?;
        self.make(name, new, None, |image| {
            self.files.set_len(image, new.len_bytes)?;
            if new.is_full { self.files.allocate(image, 0..new.len_bytes) } else { Ok(()) }
        })
    }

    pub(super) fn clone_volume(&self, origin: &Origin, name: &Name, new: &NewVolume) -> Result<Volume, PoolError> {
        check::clone(new)?;
        self.need_reflinks()?;
        let image = {
            let _reading = self.reading();
            self.record_of_filled(&origin.volume)?;
            self.image_of(&origin.volume, origin.snapshot.as_ref())?
        };
        self.make(name, new, Some(origin.clone()), |into| self.files.clone_into(&image, into))
    }

    /// Opens the image of a volume, or of its snapshot.
    pub(super) fn image_of(&self, volume: &Name, snapshot: Option<&Name>) -> Result<F::Image, PoolError> {
        let Some(snapshot) = snapshot else {
            self.record(volume)?;
            return self.files.open_image(&layout::disk(volume)).map_err(failed);
        };
        self.snapshot_record(volume, snapshot)?;
        self.files.open_image(&layout::snapshot(volume, snapshot)).map_err(failed)
    }

    /// Makes a volume as a whole, with the content that `fill` gives its image, and puts it where it belongs.
    fn make(
        &self,
        name: &Name,
        new: &NewVolume,
        origin: Option<Origin>,
        fill: impl FnOnce(&F::Image) -> io::Result<()>,
    ) -> Result<Volume, PoolError> {
        self.check_is_free(name)?;
        let NewVolume { len_bytes: _, is_full, is_filling, serial, labels } = new.clone();
        let record = VolumeRecord { serial, created: SystemTime::now(), labels, origin, is_filling, is_full };
        let scratch = self.scratch();
        let folder = scratch.path();
        let made = || {
            self.files.make_folder(folder)?;
            self.files.make_folder(&folder.join(layout::SNAPSHOTS))?;
            let image = self.files.make_image(&folder.join(layout::DISK), false)?;
            fill(&image)?;
            self.files.flush(&image)?;
            self.files.write(&folder.join(layout::RECORD), &record::to_text(&record))?;
            self.files.sync(folder)
        };
        made().map_err(no_reflinks_or_failed)?;

        let _change = self.begin()?;
        if self.names_of_volumes()?.len() >= MAX_VOLUMES {
            return Err(PoolError::TooManyVolumes);
        }
        self.move_to(folder, &layout::volume(name)).map_err(|error| taken_or_failed(name, error))?;
        self.read_volume(name)
    }

    pub(super) fn resize_volume(&self, name: &Name, len_bytes: u64) -> Result<(), PoolError> {
        check::len(len_bytes)?;
        let _change = self.begin()?;
        self.in_place.check_has_not(name)?;
        let record = self.record_of_filled(name)?;
        let resized = || {
            let image = self.files.change_image(&layout::disk(name))?;
            let old_len = self.files.len(&image)?;
            if record.is_full
                && len_bytes > old_len
                && let Err(error) = self.files.allocate(&image, old_len..len_bytes)
            {
                // A part of the space may have been set aside. To cut the image behind its end gives it back.
                let _ = self.files.set_len(&image, len_bytes).and_then(|()| self.files.set_len(&image, old_len));
                return Err(error);
            }
            self.files.set_len(&image, len_bytes)?;
            self.files.flush(&image)
        };
        resized().map_err(failed)
    }

    pub(super) fn rename_volume(&self, from: &Name, to: &Name) -> Result<(), PoolError> {
        let _change = self.begin()?;
        self.in_place.check_has_not(from)?;
        self.record_of_filled(from)?;
        self.move_to(&layout::volume(from), &layout::volume(to)).map_err(|error| taken_or_failed(to, error))
    }

    /// Gives a volume another record.
    pub(super) fn change_record(&self, name: &Name, edit: impl FnOnce(&mut VolumeRecord)) -> Result<(), PoolError> {
        let _change = self.begin()?;
        let mut record = self.record(name)?;
        edit(&mut record);
        self.put_record(name, &record).map_err(failed)
    }

    /// Puts a record in the place of that which a volume has.
    pub(super) fn put_record(&self, name: &Name, record: &VolumeRecord) -> io::Result<()> {
        let (scratch, path) = (self.scratch(), layout::record(name));
        self.files.write(scratch.path(), &record::to_text(record))?;
        self.files.replace(scratch.path(), &path)?;
        self.sync_both(scratch.path(), &path)
    }

    pub(super) fn remove_volume(&self, name: &Name) -> Result<(), PoolError> {
        let scratch = self.scratch();
        let _change = self.begin()?;
        self.in_place.check_has_not(name)?;
        self.record(name)?;
        let count = self.names_of_snapshots(name)?.len();
        if count > 0 {
            return Err(PoolError::HasSnapshots { volume: name.clone(), count });
        }
        self.check_holds_nothing_else(name)?;
        // The blocks are freed when the scratch is dropped, which is after the lock is.
        self.move_to(&layout::volume(name), scratch.path()).map_err(failed)
    }

    /// Refuses a folder with files that this crate did not make: they would be lost.
    fn check_holds_nothing_else(&self, name: &Name) -> Result<(), PoolError> {
        let own = [layout::DISK, layout::RECORD, layout::SNAPSHOTS];
        let in_volume = self.files.names(&layout::volume(name)).map_err(failed)?;
        let stranger = in_volume.into_iter().find(|file| !own.contains(&&**file));
        let in_snapshots = || self.files.names(&layout::snapshots(name)).map(|names| names.into_iter().next());
        let stranger = match stranger {
            Some(stranger) => Some(layout::volume(name).join(stranger)),
            None => in_snapshots().map_err(failed)?.map(|file| layout::snapshots(name).join(file)),
        };
        let Some(stranger) = stranger else { return Ok(()) };
        let why = format!("{} is no part of it; move that elsewhere", self.root.join(stranger).display());
        Err(PoolError::Busy(name.clone(), why))
    }

    fn check_is_free(&self, name: &Name) -> Result<(), PoolError> {
        match self.files.kind(&layout::volume(name)).map_err(failed)? {
            None => Ok(()),
            Some(_) => Err(PoolError::VolumeExists(name.clone())),
        }
    }

    pub(super) fn need_reflinks(&self) -> Result<(), PoolError> {
        if self.has_reflinks { Ok(()) } else { Err(PoolError::NoReflinks) }
    }

    fn names_of_volumes(&self) -> Result<Vec<Name>, PoolError> {
        let mut names: Vec<Name> = Vec::new();
        for file in self.files.names(&layout::pool()).map_err(failed)? {
            let Ok(name) = file.parse() else { continue };
            if self.files.kind(&layout::record(&name)).map_err(failed)?.is_some() {
                names.push(name);
            }
        }
        Ok(names)
    }

    pub(super) fn unreadable(&self, record: &Path, why: String) -> PoolError {
        PoolError::Unusable { place: self.root.join(record).display().to_string(), why }
    }
}

/// The error of a change that gives a volume this name.
fn taken_or_failed(name: &Name, error: io::Error) -> PoolError {
    if error.kind() == ErrorKind::AlreadyExists { PoolError::VolumeExists(name.clone()) } else { failed(error) }
}

/// The error of a change that shares blocks.
pub(super) fn no_reflinks_or_failed(error: io::Error) -> PoolError {
    if error.kind() == ErrorKind::Unsupported { PoolError::NoReflinks } else { failed(error) }
}
