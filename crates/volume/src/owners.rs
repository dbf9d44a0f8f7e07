//! The owners of what the requests to an open volume share.

use std::ops::Range;
use std::sync::Arc;

use lunette_quanta::{Codec, OpenError, QuantumSize};
use lunette_store::Store;

use crate::awaited::AwaitedKeys;
use crate::buffers::Buffers;
use crate::claims::Claims;
use crate::counts::Tally;
use crate::mailbox::Mailbox;
use crate::request::Request;
use crate::seals::Seals;

/// Handles of the owners. Each has locks of its own, and none knows where quanta lie.
#[derive(Clone)]
pub(crate) struct Owners {
    /// The unit, or the [`ParityUnit`](crate::parity::ParityUnit) over it.
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) size: QuantumSize,
    pub(crate) seals: Arc<Seals>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) tally: Arc<Tally>,
    /// Reads that wait for keys.
    pub(crate) awaited: Arc<AwaitedKeys>,
}

impl Owners {
    /// Lets a piece that could not be opened wait for its key. False when it is to be refused at once.
    pub(crate) fn waits_for_key(&self, request: &Request, piece: &Range<u64>, error: OpenError) -> bool {
        let waits = self.awaited.add(request, piece, error);
        if waits {
            // The key may have come since the quantum was opened.
            let codec = self.seals.codec().clone();
            self.key_came(&codec);
        }
        waits
    }

    /// Reads what a key of `codec` can open.
    pub(crate) fn key_came(&self, codec: &Codec) {
        for (request, piece) in self.awaited.take_known(codec) {
            self.claims.try_again(&request, &piece);
        }
    }
}
