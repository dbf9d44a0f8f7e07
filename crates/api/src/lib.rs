//! The control plane of a target: its objects, their files, and the HTTP API over them.
//!
//! Layer 1: over files; under console, csi, dashboard, lunette, targetcli, tgt.
//!
//! The server behind the API is a trait, so this crate knows no target.
//!
//! - [`objects`] says what an object is and what its file is called, without I/O.
//! - [`conf_d`] keeps objects in files, so that a change happens as a whole or not at all.
//! - [`edits`] turns what a request asks for into the objects that are wanted.
//! - [`jobs`] are actions that take longer than a request.
//! - [`health`] has what is not served as the configuration says.
//! - [`server`] is the trait, and what a server tells; [`serve`] puts the routes in front of it, on a thread of their
//!   own.
//! - [`volumes`] has pools of volumes, for a server that has some.
//! - [`callers`] says what a client may do, and [`audit`] what clients have done.
//! - [`client`] is the other side, for the command line, and [`address`] says where it finds a server.
//! - [`problem`] has the errors that clients see, [`limits`] the bounds of what they can ask for.

#![forbid(unsafe_code)]

mod access;
pub mod address;
pub mod audit;
pub mod callers;
pub mod client;
pub mod conf_d;
pub mod edits;
pub mod health;
pub mod jobs;
pub mod limits;
mod listen;
pub mod objects;
pub mod problem;
mod proofs;
mod routes;
mod scope;
pub mod server;
mod tokens;
pub mod volumes;

pub use audit::AuditLog;
pub use callers::{Caller, Grant, Role};
pub use health::{Cause, Health, Subject, Trouble};
pub use listen::{
    Access, Account, Duplicate, Listener, Place, ServerTls, Site, remove_stale_socket, serve, serve_apart, serve_with,
};
pub use objects::{Document, Key, Kind, Objects, Tables};
pub use problem::Problem;
pub use proofs::Certificates;
pub use routes::{read_body, router};
pub use scope::seen_by;
pub use server::{
    Catalog, Changed, Disk, Edit, Event, Events, Notice, Order, Origin, Plan, PlannedChange, Server, Session,
};
pub use tokens::TokenFile;
