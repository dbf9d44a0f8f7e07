//! The calls of ceph-iscsi's `rbd-target-api`: Ceph's dashboard manages the targets of several servers as if they were
//! its gateways.
//!
//! Layer 2: over api, files; under lunette.
//!
//! A translation to the control plane, and nothing else. The dashboard has one configuration for all gateways. The
//! servers keep it as one value in the [`Cluster`], and each makes its own targets and portals of it.
//!
//! - `document` is that configuration, in the words of the dashboard; `calls` are the changes of it, without I/O.
//! - `wanted` makes objects of the API of it, for one server; `book` keeps which of them are there, and secrets.
//! - `settings` says which backstores and controls there are.
//! - `adapter` changes the document, and has all servers follow; `follow` is what each of them does.
//! - `http` has the routes.

#![forbid(unsafe_code)]

mod adapter;
mod book;
mod calls;
mod cluster;
mod document;
mod follow;
mod form;
mod http;
pub mod limits;
#[cfg(test)]
mod model;
mod names;
mod refusal;
mod settings;
mod stored;
mod wanted;

pub use adapter::{Adapter, Options};
pub use cluster::{Answered, Cluster};
pub use http::{NAME, account, routes};
pub use names::is_gateway_name;
