//! Pools of volumes: disks that are created, grown, snapshotted, cloned, rolled back and removed.
//!
//! Layer 3: over crc32c, files, rbd, store; under lunette.
//!
//! A [`Pool`] keeps *volumes*. A volume is a disk with a serial number for life, labels, and *snapshots* of its
//! content. This crate manages them, and moves none of their blocks: a [`Place`] says where the blocks are, and
//! `lunette-store` or `lunette-rbd` opens it. A pool knows nothing of targets, initiators, the API or the
//! configuration.
//!
//! # Contract
//!
//! - A change happens as a whole or not at all, also when the process or the power fails within it. After a call has
//!   succeeded, its change is on stable storage. The next opening of the pool ends or undoes what was interrupted.
//! - A snapshot never changes. It has its length, its labels and the time of its instant.
//! - A snapshot of several volumes is taken in steps, so that requests to their disks wait as short as possible:
//!   [`Pool::prepare`], [`Snapshots::take`] at the instant, each [`Part`] after it, and [`Snapshots::keep`].
//! - The caller lets no write begin during `take` and [`Pool::roll_back`], and to what was not taken of a part. It
//!   removes no volume that is in use. All other methods may run while a volume is written to.
//! - A volume that is being filled has no snapshots and clones, and keeps its name and its length.
//! - One process uses a pool at a time. Its methods may be called from several threads, and wait for the medium.
//!
//! [`stream`] is the format in which the content of a snapshot moves to another pool. It is pure.
//!
//! Clones depend on their origin where the medium says so: see [`Volume::origin`].

#![forbid(unsafe_code)]

mod ceph;
mod changes;
mod check;
mod error;
mod folder;
pub mod limits;
mod location;
mod name;
mod pool;
pub mod schedule;
pub mod stream;

pub use ceph::CephPool;
pub use error::PoolError;
pub use folder::FolderPool;
pub use location::{Location, LocationError};
pub use name::{Name, NameError};
pub use pool::{
    Change, Labels, NewVolume, Origin, Part, Place, Pool, PoolSpace, Progress, Snapshot, SnapshotOf, Snapshots, Volume,
    VolumeSpace,
};
