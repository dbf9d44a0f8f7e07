//! The disks of a target, as sysfs has them: no name of udev has to be there, or to be known.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tonic::Status;

use super::record::Target;
use super::sessions::LoggedIn;
use super::{Inner, failed};
use crate::limits::{DEVICE_TIMEOUT, LOOK_AGAIN, MULTIPATH_TIMEOUT};

const SESSIONS: &str = "/sys/class/iscsi_session";

/// The disk of a staged volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// The name below `/dev` and `/sys/block`.
    pub(super) name: String,
    /// The name of the map of dm-multipath, if it is one.
    pub(super) map: Option<String>,
}

impl Device {
    pub(super) fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }
}

/// A session of the kernel's initiator.
pub(super) struct Session {
    pub(super) is_logged_in: bool,
    /// The disk of the logical unit, once it is there.
    pub(super) disk: Option<String>,
}

impl Inner {
    /// Waits for the disk of a target that was logged in to, with all its paths.
    pub(super) fn await_device(&self, target: &Target, logged_in: LoggedIn) -> Result<Device, Status> {
        let mut is_rescanned = !logged_in.was_there;
        let disks = self.until(DEVICE_TIMEOUT, || {
            let disks = self.disks(target)?;
            if disks.len() < logged_in.portals && !std::mem::replace(&mut is_rescanned, true) {
                self.rescan(target)?;
            }
            Ok((disks.len() >= logged_in.portals).then_some(disks))
        })?;
        // After the time, a path that is there is better than none.
        let disks = disks.map_or_else(|| self.disks(target), Ok)?;
        let Some(first) = disks.first().cloned() else {
            return Err(Status::deadline_exceeded(format!(
                "LUN {} of {} has not appeared within {} s after the login; does the server serve it to this node?",
                target.lun,
                target.iqn,
                DEVICE_TIMEOUT.as_secs()
            )));
        };
        if disks.len() > 1 {
            // Two of them used at once would be two caches over one disk. multipathd takes them one after the other,
            // and a map of some paths is better than none.
            let whole = self.until(MULTIPATH_TIMEOUT, || self.whole_multipath_of(&disks))?;
            return whole.map_or_else(|| self.multipath_of(&disks), |map| Ok(Some(map)))?.ok_or_else(|| {
                Status::failed_precondition(format!(
                    "{} has {} paths on this node, and multipathd has made no map of them; start it, or name one portal",
                    target.iqn,
                    disks.len()
                ))
            });
        }
        // multipathd claims single paths, too, if it is told so.
        Ok(self.multipath_of(&disks)?.unwrap_or(Device { name: first, map: None }))
    }

    /// The disk of a target, if it is there.
    pub(super) fn device(&self, target: &Target) -> Result<Option<Device>, Status> {
        let disks = self.disks(target)?;
        let first = disks.first().cloned();
        Ok(self.multipath_of(&disks)?.or(first.map(|name| Device { name, map: None })))
    }

    /// The sessions with a target.
    pub(super) fn sessions(&self, target: &Target) -> Result<Vec<Session>, Status> {
        let names = self.system.list(Path::new(SESSIONS)).map_err(failed(SESSIONS))?;
        let mut found = Vec::new();
        for name in names {
            let folder = Path::new(SESSIONS).join(&name);
            // A session may end while it is looked at.
            let text = |file: &str| self.system.read(&folder.join(file)).unwrap_or_default();
            if text("targetname").trim() == target.iqn {
                let is_logged_in = text("state").trim() == "LOGGED_IN";
                found.push(Session { is_logged_in, disk: self.disk_of(&folder.join("device"), target.lun)? });
            }
        }
        Ok(found)
    }

    /// The length of a device.
    pub(super) fn device_bytes(&self, name: &str) -> Result<u64, Status> {
        let path = Path::new("/sys/block").join(name).join("size");
        let text = self.system.read(&path).map_err(failed(path.display()))?;
        let sectors: u64 =
            text.trim().parse().map_err(|_| Status::internal(format!("{}: no number", path.display())))?;
        Ok(sectors.saturating_mul(512))
    }

    /// Looks again and again, up to a limit of time, in which the looks count.
    pub(super) fn until<T>(
        &self,
        limit: std::time::Duration,
        mut look: impl FnMut() -> Result<Option<T>, Status>,
    ) -> Result<Option<T>, Status> {
        let end = Instant::now() + limit;
        let mut left = limit;
        loop {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if left.is_zero() || Instant::now() >= end {
                return Ok(None);
            }
            let pause = LOOK_AGAIN.min(left);
            self.system.wait(pause);
            left -= pause;
        }
    }

    fn disks(&self, target: &Target) -> Result<Vec<String>, Status> {
        Ok(self.sessions(target)?.into_iter().filter_map(|session| session.disk).collect())
    }

    /// The disk of a logical unit below the device of a session: `targetH:C:T/H:C:T:LUN/block/NAME`.
    fn disk_of(&self, session: &Path, lun: u16) -> Result<Option<String>, Status> {
        let list = |folder: &Path| self.system.list(folder).map_err(failed(folder.display()));
        for target in list(session)?.into_iter().filter(|name| name.starts_with("target")) {
            let target = session.join(target);
            let end = format!(":{lun}");
            let units = list(&target)?;
            let is_unit = |name: &&String| name.ends_with(&end) && name.matches(':').count() == 3;
            if let Some(unit) = units.iter().find(is_unit)
                && let Some(disk) = list(&target.join(unit).join("block"))?.into_iter().next()
            {
                return Ok(Some(disk));
            }
        }
        Ok(None)
    }

    /// The map of dm-multipath over all of these disks.
    fn whole_multipath_of(&self, disks: &[String]) -> Result<Option<Device>, Status> {
        let mut whole = None;
        for disk in disks {
            let map = self.multipath_of(std::slice::from_ref(disk))?;
            if map.is_none() || whole.as_ref().is_some_and(|whole| Some(whole) != map.as_ref()) {
                return Ok(None);
            }
            whole = map;
        }
        Ok(whole)
    }

    /// The map of dm-multipath over one of these disks.
    fn multipath_of(&self, disks: &[String]) -> Result<Option<Device>, Status> {
        for disk in disks {
            let holders = Path::new("/sys/block").join(disk).join("holders");
            for name in self.system.list(&holders).map_err(failed(holders.display()))? {
                let folder = Path::new("/sys/block").join(&name).join("dm");
                let text = |file: &str| self.system.read(&folder.join(file)).unwrap_or_default().trim().to_owned();
                if text("uuid").starts_with("mpath-") {
                    return Ok(Some(Device { map: Some(text("name")), name }));
                }
            }
        }
        Ok(None)
    }
}
