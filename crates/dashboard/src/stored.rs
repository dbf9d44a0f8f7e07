//! The value in the cluster: the configuration, and the change that is under way.

use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::refusal::Refusal;

/// The value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Stored {
    /// The configuration that all gateways follow.
    pub(crate) document: Document,
    /// The change by which it came, until all of them have followed.
    pub(crate) pending: Option<Pending>,
}

/// A change that is under way, or whose gateway has ended in the midst of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// The instance of the gateway that makes it.
    pub(crate) by: u64,
    /// The configuration before it.
    pub(crate) before: Document,
}

impl Stored {
    /// A configuration that all gateways have followed, or that they go back to.
    pub(crate) fn settled(document: Document) -> Self {
        Self { document, pending: None }
    }

    /// The value of the cluster.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, Refusal> {
        if value.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(value)
            .map_err(|error| Refusal::failed(format!("the configuration in the cluster cannot be read: {error}")))
    }

    /// The value for the cluster.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Refusal> {
        // Maps with texts as keys become JSON.
        serde_json::to_vec(self).map_err(|error| Refusal::failed(error.to_string()))
    }

    /// The configuration that counts: a change that is under way does not yet.
    pub(crate) fn in_force(&self) -> &Document {
        self.pending.as_ref().map_or(&self.document, |pending| &pending.before)
    }
}
