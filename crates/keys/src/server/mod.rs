//! The key server: KMIP over mutual TLS.
//!
//! [`Engine`] has the rules of objects and no I/O. [`Service`] turns the bytes of a message into the bytes of an
//! answer: it asks the engine, keeps changes in the [`ObjectStore`] and writes the [`AuditLog`] before anything is
//! answered. [`Server`] accepts connections, one thread for each: a key server has few clients, and each request waits
//! for the medium anyway.
//!
//! A client is the name in its certificate (the common name of the subject). An object belongs to the client that made
//! it; the attribute `x-lunette-user` names other clients that may read it. Objects of others do not exist for a
//! client.

mod attributes;
mod audit;
mod engine;
pub mod limits;
mod listener;
mod object;
mod service;
mod store;
#[cfg(test)]
mod tests;

pub use attributes::USER_ATTRIBUTE;
pub use audit::{AuditEntry, AuditLog};
pub use engine::{Engine, Outcome};
pub use listener::{Server, Stopper};
pub use object::Object;
pub use service::{Client, Keep, Service};
pub use store::{Master, ObjectStore, StoreError};
