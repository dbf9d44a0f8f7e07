//! The current mode parameters of a unit that several servers offer, as the entry that they have in common. It lasts as
//! long as there is a server, and nothing of it is saved.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | nexus | the one whose MODE SELECT was the last; a nexus is as in the entry of the reservations |
//! | n | the changeable pages, as they are saved |

use std::sync::Arc;

use lunette_gateway::{Entry, Value};
use lunette_scsi::SenseData;
use lunette_scsi::mode::select::SelectedPage;

use super::{ModeState, PageValues, decode, defaults, encode, selected};
use crate::nexus::ItNexus;
use crate::persist::ValueReader;

/// The name of the entry.
pub(crate) const NAME: &str = "mode-pages";

const VERSION: u8 = 1;

/// The last value that the gateway of the unit has published.
#[derive(Default)]
pub(super) struct Published {
    /// The version of the value; 0 before the first one.
    version: u64,
    entry: Option<Arc<[u8]>>,
}

/// Parameters have changed.
pub(crate) struct ModeChange {
    /// The nexus whose MODE SELECT has changed them; `None` when the entry is gone.
    pub(crate) by: Option<Arc<ItNexus>>,
}

/// The entry is of a version that this one of Lunette does not know.
pub(crate) struct UnknownEntry;

impl ModeState {
    /// Decides on a MODE SELECT of `nexus`: gives the version of the value on which the decision rests, and the changed
    /// entry; `None` when nothing changes. Nothing changes before the gateway has published it.
    ///
    /// # Errors
    ///
    /// The errors of [`ModeState::select`].
    pub(crate) fn decide(
        &self,
        nexus: &ItNexus,
        pages: &[SelectedPage<'_>],
    ) -> Result<(u64, Option<Entry>), SenseData> {
        let values = self.values();
        let next = selected(pages, &values.current, self.traits)?;
        let entry = (next != values.current).then(|| {
            let mut bytes = vec![VERSION];
            nexus.encode(&mut bytes);
            bytes.extend(encode(&next, self.traits));
            Entry { bytes: bytes.into(), survives: false }
        });
        Ok((values.published.version, entry))
    }

    /// The entry of the last value that a gateway has published.
    pub(crate) fn published(&self) -> Option<Arc<[u8]>> {
        self.values().published.entry.clone()
    }

    /// Takes over what a gateway has published. `None` when that changes no parameter of which a nexus knows.
    pub(crate) fn publish(&self, value: &Value) -> Result<Option<ModeChange>, UnknownEntry> {
        let mut values = self.values();
        let entry = value.entries.get(NAME).map(|entry| &entry.bytes);
        if values.published.version != 0 && values.published.entry.as_ref() == entry {
            values.published.version = value.version;
            return Ok(None);
        }
        let (by, next) = match entry {
            None => (None, defaults(self.traits)),
            Some(bytes) => self.decode_entry(bytes).map(|(by, next)| (Some(by), next)).ok_or(UnknownEntry)?,
        };
        let is_news = values.published.version != 0 && next != values.current;
        values.published = Published { version: value.version, entry: entry.cloned() };
        self.take_over(&mut values, next);
        Ok(is_news.then_some(ModeChange { by }))
    }

    fn decode_entry(&self, bytes: &[u8]) -> Option<(Arc<ItNexus>, PageValues)> {
        let mut reader = ValueReader(bytes);
        let [VERSION] = reader.take()? else { return None };
        let by = ItNexus::decode(&mut reader)?;
        Some((by, decode(reader.0, self.traits)?))
    }
}
