//! Addresses that are listened at.

use lunette_api::edits::{self, Precondition};
use lunette_api::{Document, Key, Kind};

use super::Adapter;
use crate::params;
use crate::wire::Fault;

/// The portal group without a word.
const DEFAULT_GROUP: u64 = 1;

impl Adapter {
    pub(super) fn new_portal(&self, text: &str) -> Result<(), Fault> {
        let (key, group) = portal(text)?;
        let mut document = Document::new();
        document.insert("group".into(), group.into());
        let is_new = Precondition { matches: None, is_new: true };
        let what = key.to_string();
        self.change(&what, false, move |catalog| edits::put(catalog, &key, document, &is_new))
    }

    pub(super) fn delete_portal(&self, text: &str) -> Result<(), Fault> {
        let (key, _) = portal(text)?;
        let what = key.to_string();
        self.change(&what, true, move |catalog| edits::delete(catalog, &key, &super::there()))
    }

    pub(super) fn show_portals(&self) -> String {
        let catalog = self.server.catalog();
        let group =
            |portal: &Document| portal.get("group").and_then(serde_json::Value::as_u64).unwrap_or(DEFAULT_GROUP);
        catalog
            .of(Kind::Portal)
            .map(|(address, portal, _)| format!("Portal: {address},{}\n", group(portal)))
            .collect::<Vec<_>>()
            .concat()
    }
}

/// The portal that a request names: `ADDR:PORT`, with the tag of its portal group behind a comma.
fn portal(text: &str) -> Result<(Key, u64), Fault> {
    let all = params::list(text)?;
    let [("portal", portal)] = all.as_slice() else { return Err(Fault::Invalid) };
    let (address, group) = match portal.split_once(',') {
        Some((address, group)) => (address, group.parse().map_err(|_| Fault::Invalid)?),
        None => (portal.as_str(), DEFAULT_GROUP),
    };
    Ok((Key::new(Kind::Portal, address).map_err(|_| Fault::Invalid)?, group))
}
