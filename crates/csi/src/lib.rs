//! The CSI driver of Lunette: volumes of its pools for Kubernetes, over iSCSI.
//!
//! Layer 2: over api, files, tls; under no other crate.
//!
//! The driver translates. The controller asks the API of a server for volumes, targets and hosts, and keeps nothing of
//! its own: what it has to know again stands in labels of the volumes. The node drives open-iscsi and mount(8) through
//! the trait [`System`].
//!
//! - `identity`, `controller` and `node` are the services of the specification, in methods that wait.
//! - `lunette` has the requests to the API, `status` their errors as those of gRPC.
//! - `names`, `capacity` and `paging` are pure.
//! - [`limits`] has the bounds, [`options`] the command line, [`mod@serve`] the socket.

#![forbid(unsafe_code)]
#![allow(clippy::trivially_copy_pass_by_ref, reason = "all calls take their request so, and some are empty")]

mod busy;
mod capacity;
mod checks;
mod controller;
mod identity;
pub mod limits;
mod lunette;
pub mod names;
mod node;
pub mod options;
mod paging;
pub mod proto;
mod rpcs;
pub mod serve;
mod status;

pub use controller::{Controller, Settings};
pub use identity::Identity;
pub use node::{Kind, Node, NodeSettings, Programs, Ran, Space, System};
pub use options::Options;
pub use serve::{Driver, serve};
