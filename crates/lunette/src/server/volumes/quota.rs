//! Quotas: the volumes that a client may change without being an administrator, and the bytes that it may have.
//!
//! A label of a volume names the client that owns it, so ownership survives a restart and a rename. Each change of such
//! a client claims the volume first, until it is made. The claim has the length that the volume is about to have, so
//! changes that are made side by side count each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use lunette_api::volumes::{FillOrder, Labels, NewVolume, SnapshotOrder, VolumeChange};
use lunette_api::{Caller, Problem, Role};
use lunette_pools::{Name, Origin, Pool, PoolError, Volume};

use super::change::origin;
use super::fill::find;
use super::mark::{self, Mark};
use super::{At, ServedVolumes, lock, problem};
use crate::config::pools::PoolEntry;
use crate::size::shown;

/// The label of a volume with the name of the client that owns it.
const OWNER: &str = "lunette.owner";

/// The label of a volume that every client may clone.
const PUBLIC: &str = "lunette.public";

/// The claims of each pool. A pool that does not answer holds up no other.
#[derive(Default)]
pub(super) struct Claims(Mutex<BTreeMap<Name, OfPool>>);

/// The claims of a pool. They are locked while its volumes are counted.
type OfPool = Arc<Mutex<Claimed>>;

/// The volumes that are claimed.
type Claimed = BTreeMap<Name, Wanted>;

/// The length that a volume is about to have; zero when it gets no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    owner: String,
    len_bytes: u64,
}

/// A volume that its owner changes, until it is dropped.
pub(super) struct Claim {
    of_pool: OfPool,
    volume: Name,
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.of_pool).remove(&self.volume);
    }
}

/// A bound, with the pool that it is in.
type InPool = (Bound, Arc<dyn Pool>);

/// A client that is no administrator, in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    owner: String,
    pool: Name,
    pub(super) quota_bytes: u64,
}

impl Bound {
    /// The bound of a client; an administrator has none.
    pub(super) fn of(caller: &Caller, pool: &PoolEntry) -> Result<Option<Self>, Problem> {
        if caller.role == Role::Admin {
            return Ok(None);
        }
        caller.check_role(Role::Operate)?;
        let Caller { name, is_named, .. } = caller;
        let Some(quota) = &pool.quota else {
            return Err(Problem::forbidden(format!(
                "pool {} has no quota for {name}, whose role is operate; give the pool quota = {{ operate = \"SIZE\" }}, \
                 or use the token of an administrator",
                pool.name
            )));
        };
        if !is_named {
            return Err(Problem::forbidden(format!(
                "the {name} has no name, and only a client with a name owns volumes; write name=NAME behind the token"
            )));
        }
        Ok(Some(Self { owner: name.clone(), pool: pool.name.clone(), quota_bytes: quota.operate.0 }))
    }

    /// The lengths of the client's volumes together, counting those that it is about to have.
    pub(super) fn used(&self, volumes: &[Volume], claimed: &Claimed) -> u64 {
        let wanted = claimed.iter().filter(|(_, wanted)| wanted.owner == self.owner);
        let mut lens: BTreeMap<&Name, u64> = wanted.map(|(name, wanted)| (name, wanted.len_bytes)).collect();
        for volume in volumes.iter().filter(|volume| self.owns(volume)) {
            let len = lens.entry(&volume.name).or_default();
            *len = volume.len_bytes.max(*len);
        }
        lens.into_values().fold(0, u64::saturating_add)
    }

    /// Refuses to get longer by these bytes when that is too much.
    fn check_room(&self, used: u64, asked: u64) -> Result<(), Problem> {
        let Self { owner, pool, quota_bytes } = self;
        if used.saturating_add(asked) <= *quota_bytes {
            return Ok(());
        }
        Err(Problem::over_quota(format!(
            "{owner} has a quota of {} in pool {pool}, uses {}, and asks for {} more; \
             remove volumes, make them shorter, or ask an administrator for a greater quota",
            shown(*quota_bytes),
            shown(used),
            shown(asked)
        )))
    }

    fn owns(&self, volume: &Volume) -> bool {
        volume.labels.get(OWNER) == Some(&self.owner)
    }

    fn check_owns(&self, volume: &Volume) -> Result<(), Problem> {
        if self.owns(volume) {
            return Ok(());
        }
        let owner = volume.labels.get(OWNER).map_or("an administrator", String::as_str);
        Err(Problem::forbidden(format!(
            "volume {}/{} is of {owner}, and {} changes its own volumes alone; use the token of its owner, or of an \
             administrator",
            self.pool, volume.name, self.owner
        )))
    }

    fn check_clones(&self, volume: &Volume) -> Result<(), Problem> {
        if self.owns(volume) || volume.labels.contains_key(PUBLIC) {
            return Ok(());
        }
        Err(Problem::forbidden(format!(
            "{} clones its own volumes, and those with the label {PUBLIC}; ask an administrator to give it to volume \
             {}/{}",
            self.owner, self.pool, volume.name
        )))
    }

    /// The length of what is cloned, if the client may clone it.
    fn len_of_origin(&self, pool: &dyn Pool, origin: &Origin) -> Result<u64, Problem> {
        let volume = pool.volume(&origin.volume).map_err(|error| problem(&error))?;
        self.check_clones(&volume)?;
        match &origin.snapshot {
            Some(snapshot) => len_of(pool, &origin.volume, snapshot),
            None => Ok(volume.len_bytes),
        }
    }

    /// The labels that the client wants, with those of the server that the volume has.
    fn kept(&self, wanted: Labels, now: &Labels) -> Result<Labels, Problem> {
        // A client may send back what it has read.
        let is_new = |(key, value): &(&String, &String)| mark::is_own(key) && now.get(*key) != Some(*value);
        if let Some((key, _)) = wanted.iter().find(is_new) {
            return Err(Problem::forbidden(format!(
                "label {key}: {} changes no label that begins with lunette.; leave it out, or ask an administrator",
                self.owner
            )));
        }
        let own = now.iter().filter(|(key, _)| mark::is_own(key));
        Ok(wanted.into_iter().chain(own.map(|(key, value)| (key.clone(), value.clone()))).collect())
    }

    /// The labels of a new volume of the client.
    fn labels(&self, wanted: Labels) -> Result<Labels, Problem> {
        let mut labels = self.kept(wanted, &Labels::new())?;
        labels.insert(OWNER.into(), self.owner.clone());
        Ok(labels)
    }
}

impl ServedVolumes {
    /// Claims a volume that a client changes and that gets no longer. This and all others give `None` for an
    /// administrator.
    pub(super) fn claim(&self, caller: &Caller, at: &At) -> Result<Option<Claim>, Problem> {
        self.claim_len(caller, at, |_, _| Ok(0))
    }

    /// Claims a volume that is created, and gives it its owner.
    pub(super) fn claim_new(&self, caller: &Caller, at: &At, new: &mut NewVolume) -> Result<Option<Claim>, Problem> {
        let Some((bound, pool)) = self.bound(caller, &at.pool)? else { return Ok(None) };
        let NewVolume { size_bytes, clone_of, source, full: _, serial, labels } = new;
        self.check_is_new(at, serial.as_deref())?;
        if source.is_some() {
            let why =
                format!("{} takes no disk over: only an administrator names the files of the server", bound.owner);
            return Err(Problem::forbidden(format!("{why}; copy the disk with --from")));
        }
        *labels = bound.labels(std::mem::take(labels))?;
        if let Some(text) = clone_of {
            let len_bytes = bound.len_of_origin(&*pool, &origin(text)?)?;
            // The clone gets no other length, even if its origin gets longer meanwhile.
            size_bytes.get_or_insert(len_bytes);
        }
        self.claims.of_new(&bound, &*pool, &at.volume, size_bytes.unwrap_or(0)).map(Some)
    }

    /// Claims a volume that gets other labels, another length or another name. It keeps the labels of the server.
    pub(super) fn claim_change(
        &self,
        caller: &Caller,
        at: &At,
        change: &mut VolumeChange,
    ) -> Result<Option<Claim>, Problem> {
        let Some((bound, pool)) = self.bound(caller, &at.pool)? else { return Ok(None) };
        let VolumeChange { labels, size_bytes, force: _, name: _ } = change;
        let len_bytes = size_bytes.unwrap_or(0);
        let (claim, volume) = self.claims.of_present(&bound, &*pool, &at.volume, |_| Ok(len_bytes))?;
        if let Some(wanted) = labels {
            *wanted = bound.kept(std::mem::take(wanted), &volume.labels)?;
        }
        Ok(Some(claim))
    }

    /// Claims the volumes of a snapshot.
    pub(super) fn claim_all(&self, caller: &Caller, order: &SnapshotOrder) -> Result<Vec<Claim>, Problem> {
        let volumes = order.volumes.iter().map(|text| At::parse(text)).collect::<Result<BTreeSet<_>, _>>()?;
        let mut claims = Vec::new();
        for at in &volumes {
            let Some((bound, pool)) = self.bound(caller, &at.pool)? else { continue };
            bound.kept(order.labels.clone(), &Labels::new())?;
            claims.push(self.claims.of_present(&bound, &*pool, &at.volume, |_| Ok(0))?.0);
        }
        Ok(claims)
    }

    /// Claims a volume that gets the content and the length of a snapshot.
    pub(super) fn claim_rollback(&self, caller: &Caller, at: &At, snapshot: &Name) -> Result<Option<Claim>, Problem> {
        self.claim_len(caller, at, |pool, _| len_of(pool, &at.volume, snapshot))
    }

    /// Claims a volume that is filled, and gives a new one its owner.
    pub(super) fn claim_filling(
        &self,
        caller: &Caller,
        at: &At,
        order: &mut FillOrder,
    ) -> Result<Option<Claim>, Problem> {
        let Some((bound, pool)) = self.bound(caller, &at.pool)? else { return Ok(None) };
        let FillOrder {
            size_bytes,
            labels,
            since,
            serial,
            origin_serial: _,
            snapshot: _,
            force: _,
            resume: _,
            full: _,
        } = order;
        *labels = bound.labels(std::mem::take(labels))?;
        if present(&*pool, &at.volume)?.is_none() {
            self.check_is_new(at, serial.as_deref())?;
            return self.claims.of_new(&bound, &*pool, &at.volume, *size_bytes).map(Some);
        }
        // It may be rolled back before it is filled, or when that is undone.
        let longest = |volume: &Volume| {
            let since = since.as_ref().map(|since| since.id.as_str());
            Ok(len_of_base(&*pool, volume, since)?.max(*size_bytes))
        };
        self.claims.of_present(&bound, &*pool, &at.volume, longest).map(|(claim, _)| Some(claim))
    }

    /// Claims a volume that gets back the content that it had before it was filled.
    pub(super) fn claim_undo(&self, caller: &Caller, at: &At) -> Result<Option<Claim>, Problem> {
        self.claim_len(caller, at, |pool, volume| {
            let mark = Mark::of(&volume.labels);
            len_of_base(pool, volume, mark.as_ref().and_then(|mark| mark.since.as_deref()))
        })
    }

    fn claim_len(
        &self,
        caller: &Caller,
        at: &At,
        wanted: impl FnOnce(&dyn Pool, &Volume) -> Result<u64, Problem>,
    ) -> Result<Option<Claim>, Problem> {
        let Some((bound, pool)) = self.bound(caller, &at.pool)? else { return Ok(None) };
        let claimed = self.claims.of_present(&bound, &*pool, &at.volume, |volume| wanted(&*pool, volume));
        claimed.map(|(claim, _)| Some(claim))
    }

    /// Refuses the name of a volume that a LUN waits for, and a serial number by which initiators know another volume.
    fn check_is_new(&self, at: &At, serial: Option<&str>) -> Result<(), Problem> {
        let luns = self.look().luns(at, None);
        if !luns.is_empty() {
            let why = format!("volume {at} is what {} waits for; choose another name", luns.join(", "));
            return Err(Problem::forbidden(format!("{why}, or ask an administrator")));
        }
        match serial.filter(|serial| self.has_serial(serial)) {
            Some(serial) => Err(Problem::forbidden(format!(
                "another volume has the serial number {serial}; leave it out, or ask an administrator"
            ))),
            None => Ok(()),
        }
    }

    /// The bound of a client in a pool, with the pool; `None` for an administrator.
    fn bound(&self, caller: &Caller, pool: &Name) -> Result<Option<InPool>, Problem> {
        match Bound::of(caller, self.look().pool(pool.as_str())?)? {
            Some(bound) => Ok(Some((bound, self.pool(pool.as_str())?))),
            None => Ok(None),
        }
    }
}

impl Claims {
    /// Claims a volume that is there, which gets the length that `wanted` gives.
    fn of_present(
        &self,
        bound: &Bound,
        pool: &dyn Pool,
        volume: &Name,
        wanted: impl FnOnce(&Volume) -> Result<u64, Problem>,
    ) -> Result<(Claim, Volume), Problem> {
        self.claim(bound, volume, |claimed| {
            let none = || problem(&PoolError::NoVolume(volume.clone()));
            let volume = present(pool, volume)?.ok_or_else(none)?;
            bound.check_owns(&volume)?;
            let len_bytes = wanted(&volume)?;
            if len_bytes <= volume.len_bytes {
                // A list of volumes that is read while this one is renamed may be without it.
                return Ok((volume.len_bytes, volume));
            }
            let used = bound.used(&all(pool)?, claimed);
            bound.check_room(used, len_bytes - volume.len_bytes)?;
            Ok((len_bytes, volume))
        })
    }

    /// Claims a volume that is not there yet.
    fn of_new(&self, bound: &Bound, pool: &dyn Pool, volume: &Name, len_bytes: u64) -> Result<Claim, Problem> {
        let claim = self.claim(bound, volume, |claimed| {
            let volumes = all(pool)?;
            if volumes.iter().any(|known| known.name == *volume) {
                return Err(problem(&PoolError::VolumeExists(volume.clone())));
            }
            bound.check_room(bound.used(&volumes, claimed), len_bytes)?;
            Ok((len_bytes, ()))
        });
        claim.map(|(claim, ())| claim)
    }

    /// Claims a volume with the length that `check` gives. Meanwhile nothing else is claimed in its pool.
    fn claim<T>(
        &self,
        bound: &Bound,
        volume: &Name,
        check: impl FnOnce(&Claimed) -> Result<(u64, T), Problem>,
    ) -> Result<(Claim, T), Problem> {
        let Bound { owner, pool, .. } = bound;
        let of_pool = Arc::clone(lock(&self.0).entry(pool.clone()).or_default());
        let mut claimed = lock(&of_pool);
        if claimed.contains_key(volume) {
            let why = format!("volume {pool}/{volume} is being changed already; wait until that is done");
            return Err(Problem::conflict(why));
        }
        let (len_bytes, found) = check(&claimed)?;
        claimed.insert(volume.clone(), Wanted { owner: owner.clone(), len_bytes });
        drop(claimed);
        Ok((Claim { of_pool, volume: volume.clone() }, found))
    }
}

/// A volume, if there is one of this name.
fn present(pool: &dyn Pool, name: &Name) -> Result<Option<Volume>, Problem> {
    match pool.volume(name) {
        Err(PoolError::NoVolume(_)) => Ok(None),
        volume => volume.map(Some).map_err(|error| problem(&error)),
    }
}

fn all(pool: &dyn Pool) -> Result<Vec<Volume>, Problem> {
    pool.volumes().map(|(volumes, _)| volumes).map_err(|error| problem(&error))
}

/// The length of a snapshot.
fn len_of(pool: &dyn Pool, volume: &Name, snapshot: &Name) -> Result<u64, Problem> {
    let snapshots = pool.snapshots(volume).map_err(|error| problem(&error))?;
    let found = snapshots.into_iter().find(|known| known.name == *snapshot);
    let none = || PoolError::NoSnapshot { volume: volume.clone(), snapshot: snapshot.clone() };
    found.map(|snapshot| snapshot.len_bytes).ok_or_else(|| problem(&none()))
}

/// The length of the snapshot of this identity; zero when there is none.
fn len_of_base(pool: &dyn Pool, volume: &Volume, id: Option<&str>) -> Result<u64, Problem> {
    let Some(id) = id else { return Ok(0) };
    let snapshots = pool.snapshots(&volume.name).map_err(|error| problem(&error))?;
    Ok(find(volume, &snapshots, id).map_or(0, |base| base.len_bytes))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use lunette_pools::{Location, NewVolume as Made};

    use super::*;
    use crate::config::pools::QuotaEntry;
    use crate::size::Size;

    fn operator(name: &str) -> Caller {
        Caller { role: Role::Operate, ..Caller::admin(name, "here") }
    }

    fn entry(place: &str, quota: Option<u64>) -> PoolEntry {
        let quota = quota.map(|bytes| QuotaEntry { operate: Size(bytes) });
        let place: Location = place.parse().unwrap();
        PoolEntry { name: "tank".parse().unwrap(), place, low_space: None, quota, schedules: Vec::new() }
    }

    fn bound(owner: &str, quota_bytes: u64) -> Bound {
        Bound { owner: owner.into(), pool: "tank".parse().unwrap(), quota_bytes }
    }

    fn labels<const N: usize>(words: [(&str, &str); N]) -> Labels {
        words.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn volume(name: &str, len_bytes: u64, labels: Labels) -> Volume {
        let (serial, created) = ("s".to_owned(), SystemTime::UNIX_EPOCH);
        Volume { name: name.parse().unwrap(), len_bytes, serial, created, labels, origin: None, is_filling: false }
    }

    /// A new volume of a client.
    fn made(owner: &str, len_bytes: u64) -> Made {
        let labels = bound(owner, 0).labels(Labels::new()).unwrap();
        Made { len_bytes, is_full: false, is_filling: false, serial: "s".into(), labels }
    }

    #[test]
    fn a_client_has_volumes_by_its_role_its_name_and_a_quota() {
        let nameless = Caller { is_named: false, ..operator("token of line 3") };
        let reader = Caller { role: Role::Read, ..operator("a") };
        for (caller, quota, expected) in [
            (Caller::admin("root", "here"), None, Ok(None)),
            (Caller::admin("root", "here"), Some(4), Ok(None)),
            (operator("a"), Some(4), Ok(Some(bound("a", 4)))),
            (operator("a"), Some(0), Ok(Some(bound("a", 0)))),
            (operator("a"), None, Err("pool tank has no quota for a")),
            (nameless, Some(4), Err("write name=NAME")),
            (reader, Some(4), Err("this takes operate")),
        ] {
            let found = Bound::of(&caller, &entry("/srv/tank", quota));
            match expected {
                Ok(bound) => assert_eq!(found, Ok(bound), "{caller:?}"),
                Err(why) => {
                    let refused = found.unwrap_err();
                    assert!(refused.status == 403 && refused.detail.contains(why), "{caller:?}: {refused}");
                }
            }
        }
    }

    #[test]
    fn a_client_changes_its_own_volumes_and_clones_public_ones_as_well() {
        let bound = bound("a", 4);
        for (words, changes, clones) in [
            (labels([(OWNER, "a")]), true, true),
            (labels([(OWNER, "ab")]), false, false),
            (labels([]), false, false),
            (labels([("owner", "a")]), false, false),
            (labels([(PUBLIC, "")]), false, true),
            (labels([(OWNER, "b"), (PUBLIC, "yes")]), false, true),
        ] {
            let volume = volume("v", 1, words);
            assert_eq!(bound.check_owns(&volume).is_ok(), changes, "{:?}", volume.labels);
            assert_eq!(bound.check_clones(&volume).is_ok(), clones, "{:?}", volume.labels);
        }
    }

    #[test]
    fn labels_of_the_server_stay_whatever_a_client_wants() {
        let now = labels([(OWNER, "a"), ("lunette.x", "1"), ("of", "us")]);
        for (wanted, expected) in [
            (labels([]), Some(labels([(OWNER, "a"), ("lunette.x", "1")]))),
            (labels([("of", "you")]), Some(labels([(OWNER, "a"), ("lunette.x", "1"), ("of", "you")]))),
            (now.clone(), Some(now.clone())),
            (labels([(OWNER, "b")]), None),
            (labels([(PUBLIC, "yes")]), None),
            (labels([("lunette.x", "2")]), None),
            (labels([("lunette.", "")]), None),
        ] {
            assert_eq!(bound("a", 4).kept(wanted.clone(), &now).ok(), expected, "{wanted:?}");
        }
        assert_eq!(bound("a", 4).labels(labels([("of", "us")])), Ok(labels([(OWNER, "a"), ("of", "us")])));
        assert!(bound("a", 4).labels(labels([(OWNER, "a")])).is_err());
    }

    #[test]
    fn the_lengths_of_a_client_are_counted_with_those_that_it_is_about_to_have() {
        let of = |owner: &str| labels([(OWNER, owner)]);
        let volumes = [volume("v", 10, of("a")), volume("w", 20, of("a")), volume("x", 40, of("b"))];
        let claimed = |claims: &[(&str, &str, u64)]| -> Claimed {
            let claim = |(name, owner, len_bytes): &(&str, &str, u64)| {
                (name.parse().unwrap(), Wanted { owner: (*owner).into(), len_bytes: *len_bytes })
            };
            claims.iter().map(claim).collect()
        };
        for (claims, used) in [
            (&[][..], 30),
            (&[("v", "a", 15)], 35),
            (&[("v", "a", 0)], 30),
            (&[("new", "a", 5)], 35),
            (&[("new", "b", 5), ("x", "b", 50)], 30),
            (&[("new", "a", u64::MAX)], u64::MAX),
        ] {
            assert_eq!(bound("a", 0).used(&volumes, &claimed(claims)), used, "{claims:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_quota_and_what_is_used_and_asked_for() {
        bound("a", 4096).check_room(3072, 1024).unwrap();
        let refused = bound("a", 4096).check_room(3072, 1025).unwrap_err();
        assert_eq!((refused.status, refused.title.as_str()), (409, Problem::OVER_QUOTA));
        for bytes in ["4096 bytes", "3072 bytes", "1025 bytes"] {
            assert!(refused.detail.contains(bytes), "{refused}");
        }
        assert!(bound("a", 4096).check_room(3072, u64::MAX).is_err());
    }

    /// Claims and volumes of a real pool, with a quota of three volumes.
    #[test]
    fn changes_that_are_made_side_by_side_do_not_exceed_the_quota_together() {
        const LEN: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let pool = entry(folder.path().to_str().unwrap(), None).place.open().unwrap();
        let client = bound;
        let (claims, bound) = (Claims::default(), client("a", 3 * LEN));
        let name = |name: &str| -> Name { name.parse().unwrap() };
        let of_new = |volume: &str, len_bytes| claims.of_new(&bound, &*pool, &name(volume), len_bytes);
        let of_present = |volume: &str, len_bytes| claims.of_present(&bound, &*pool, &name(volume), |_| Ok(len_bytes));
        let title = |refused: Problem| refused.title;

        // The volume of the first claim is not there yet.
        let first = of_new("v", 2 * LEN).unwrap();
        assert_eq!(of_new("w", 2 * LEN).map(drop).map_err(title), Err(Problem::OVER_QUOTA.into()));
        assert_eq!(of_new("v", LEN).map(drop).map_err(|refused| refused.status), Err(409));
        let second = of_new("w", LEN).unwrap();
        // What is claimed and made counts once.
        pool.create(&name("v"), &made("a", 2 * LEN)).unwrap();
        assert_eq!(of_new("x", LEN).map(drop).map_err(title), Err(Problem::OVER_QUOTA.into()));
        drop((first, second));
        // The second one was not made, so its room is free.
        let grown = of_present("v", 3 * LEN).unwrap();
        assert_eq!(of_new("x", LEN).map(drop).map_err(title), Err(Problem::OVER_QUOTA.into()));
        drop(grown);
        assert_eq!(of_present("v", 4 * LEN).map(drop).map_err(title), Err(Problem::OVER_QUOTA.into()));
        // One that gets no longer may be changed, even if the quota has got smaller.
        claims.of_present(&client("a", 0), &*pool, &name("v"), |_| Ok(LEN)).unwrap();
        let other = claims.of_present(&client("b", 9 * LEN), &*pool, &name("v"), |_| Ok(0));
        assert_eq!(other.map(drop).map_err(|refused| refused.status), Err(403));
        assert_eq!(of_present("none", 0).map(drop).map_err(|refused| refused.status), Err(404));
        assert_eq!(of_new("v", 0).map(drop).map_err(|refused| refused.status), Err(409));

        // Of the clients that ask at once, one gets what is left.
        let (of_new, pool) = (&of_new, &pool);
        let served = std::thread::scope(|scope| {
            let ask = |number: u32| {
                let volume = format!("c{number}");
                let claim = of_new(&volume, LEN);
                claim.map(|_claim| pool.create(&name(&volume), &made("a", LEN)).unwrap()).is_ok()
            };
            let clients: Vec<_> = (0..8).map(|number| scope.spawn(move || ask(number))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).filter(|served| *served).count()
        });
        assert_eq!(served, 1);
        assert_eq!(bound.used(&all(&**pool).unwrap(), &Claimed::new()), 3 * LEN);
    }
}
