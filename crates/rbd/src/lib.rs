//! Images of Ceph RBD as stores.
//!
//! Layer 2: over buffer, gateway, store; under lunette, pools.
//!
//! [`RbdStore`] is an open image and a [`Store`](lunette_store::Store); [`RbdUrl`] is its name, as users write it. The
//! crate knows nothing of SCSI or NBD.
//!
//! librados and librbd are loaded when the first image is opened, so that a machine without Ceph needs neither. All
//! unsafe code is in `librbd`, which puts handles around them that are safe to use.
//!
//! ```no_run
//! use lunette_buffer::Pool;
//! use lunette_rbd::RbdStore;
//! use lunette_store::{Op, execute};
//!
//! let disk = RbdStore::open(&"rbd:rbd/disk?user=lunette".parse()?, false)?;
//! let mut from = Pool::new(1 << 20).take(4096).expect("room in the pool");
//! from.fill(7);
//! execute(&disk, Op::Write { offset: 0, from, fua: false }).result?;
//! disk.close(std::time::Duration::from_secs(10))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The life of a request
//!
//! A request becomes a job. librbd gets the job at once, or when there is room among the
//! [`MAX_REQUESTS`](limits::MAX_REQUESTS). librbd ends it on a thread of its own, which calls the request's completion
//! and begins a waiting job. A job has its buffer and a counted reference to the image. Both live until librbd is done
//! with them, even when the store is dropped before. A thread of the store makes the calls that librbd offers only as
//! waiting ones (allocation, length), one after the other.
//!
//! While the cluster does not answer, requests wait. No call to the store does, except those that say so.
//!

//! [`Gateway`] drives the machine of `lunette-gateway`, by which several processes offer one image. [`Register`] is a
//! value that several processes share.

// Only `librbd` has unsafe code: it calls C.
#![deny(unsafe_code)]

mod df;
mod errands;
mod error;
mod flight;
mod gateway;
mod latch;
mod length;
mod librbd;
pub mod limits;
mod register;
mod store;
#[cfg(test)]
mod tests;
mod url;

pub use df::PoolRoom;
pub use error::OpenError;
pub use gateway::{Asker, Gateway, GatewayStore, gateways_of, move_image};
pub use librbd::images::{ImageName, ImageSnapshot, Images, ManagedImage, Relative};
pub use librbd::{LibraryError, exit, exit_now};
pub use lunette_gateway::limits::MAX_MEMBERS as MAX_GATEWAYS;
pub use lunette_gateway::{Access, Answer, Publication, Request};
pub use register::Register;
pub use store::{Closer, NotClosed, RbdStore};
pub use url::{PoolUrl, RbdUrl, UrlError};
