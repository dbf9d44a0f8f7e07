//! The value in the cluster: the configuration, and the change that is under way.

use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::refusal::Refusal;

/// The number of this format. A later one is refused by what does not know it.
const FORMAT: u32 = 1;

/// The value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stored {
    format: u32,
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
        Self { format: FORMAT, document, pending: None }
    }

    /// A configuration that gateways are about to follow, by a change of the instance `by`.
    pub(crate) fn pending(document: Document, by: u64, before: Document) -> Self {
        Self { format: FORMAT, document, pending: Some(Pending { by, before }) }
    }

    /// The value of the cluster.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, Refusal> {
        if value.is_empty() {
            return Ok(Self::settled(Document::default()));
        }
        let unknown = |why: String| {
            Refusal::failed(format!(
                "the configuration in the cluster cannot be read: {why}; all gateways need one version of Lunette, or \
                 remove the object lunette_dashboard of the pool by rados rm and make the targets again"
            ))
        };
        let stored: Self = serde_json::from_slice(value).map_err(|error| unknown(error.to_string()))?;
        if stored.format == FORMAT { Ok(stored) } else { Err(unknown(format!("it has format {}", stored.format))) }
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
