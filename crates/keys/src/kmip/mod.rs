//! The messages of KMIP 1.0 to 1.4, for both sides, without I/O.
//!
//! A [`RequestMessage`] carries one [`Request`] or more, a [`ResponseMessage`] an answer to each. What is read is
//! checked as far as one message alone allows; the rules of objects are those of [`crate::server::Engine`]. A field
//! that is not supported is refused by its name, because to overlook it could change what a request means.
//! `docs/keys.md` lists operations and fields.

mod attribute;
mod enums;
mod fields;
pub mod limits;
mod message;
mod object;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use attribute::{Attribute, AttributeValue};
pub use enums::{
    KeyFormat, NameType, ObjectType, Operation, QueryFunction, ResultReason, ResultStatus, RevocationCode, State,
};
pub use message::{Answer, BatchItem, RequestMessage, ResponseMessage, Version};
pub use object::{Kind, ManagedObject};
pub use request::Request;
pub use response::Response;

/// A request that is not carried out, with KMIP's reason and a text for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({reason})")]
pub struct Refusal {
    /// The reason that programs understand.
    pub reason: ResultReason,
    /// The text.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: ResultReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}
