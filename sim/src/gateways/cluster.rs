//! The cluster: an object that is replaced as a whole and watched, an image with a lock, and a blocklist that its OSDs
//! learn of one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use lunette_gateway::{Stored, Value};

use super::history::Written;

/// Blocks of the image. Each is on an OSD of its own.
pub(super) const BLOCKS: usize = 3;

/// The number of an epoch of the OSD map.
pub(super) type MapEpoch = u64;

#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// The value, as bytes.
    object: Option<Vec<u8>>,
    pub(super) map: MapEpoch,
    /// The epoch in which a client came on the blocklist.
    blocklist: BTreeMap<Arc<str>, MapEpoch>,
    /// The client that has the lock of the image.
    lock: Option<Arc<str>>,
    blocks: [Block; BLOCKS],
}

#[derive(Debug, Default)]
struct Block {
    content: Written,
    /// The newest map that its OSD knows: a request brings the one that its client knows.
    map: MapEpoch,
}

impl Cluster {
    pub(super) fn read(&self) -> Option<Arc<Value>> {
        let bytes = self.object.as_deref()?;
        Some(Arc::new(Value::decode(bytes).expect("what was stored is a value")))
    }

    /// Compares the beginning and replaces all, as the binding does.
    pub(super) fn store(&mut self, expected: u64, value: &Value) -> Stored {
        let is_expected = match &self.object {
            None => expected == 0,
            Some(bytes) => bytes.starts_with(&Value::header(expected)),
        };
        if !is_expected {
            return Stored::Outdated;
        }
        self.object = Some(value.encode().expect("it is within the limits"));
        Stored::Done
    }

    pub(super) fn blocklist(&mut self, client: Arc<str>) {
        self.map += 1;
        self.blocklist.entry(client).or_insert(self.map);
    }

    /// Whether a client is on the blocklist, which not all OSDs may know.
    pub(super) fn has_listed(&self, client: &str) -> bool {
        self.refuses(client, self.map)
    }

    /// Whether an OSD that knows the map of that epoch refuses the client.
    fn refuses(&self, client: &str, map: MapEpoch) -> bool {
        self.blocklist.get(client).is_some_and(|since| *since <= map)
    }

    /// Takes the lock, from a client on the blocklist too.
    pub(super) fn lock(&mut self, client: &Arc<str>) -> bool {
        let is_free = self.lock.as_ref().is_none_or(|holder| holder == client || self.refuses(holder, self.map));
        if !is_free || self.refuses(client, self.map) {
            return false;
        }
        self.lock = Some(Arc::clone(client));
        true
    }

    pub(super) fn unlock(&mut self, client: &str) {
        self.lock.take_if(|holder| **holder == *client);
    }

    /// Reads a block, or writes it: its content then. `None` when the client is on the blocklist.
    pub(super) fn access(
        &mut self,
        client: &str,
        map: MapEpoch,
        block: usize,
        write: Option<Written>,
    ) -> Option<Written> {
        self.blocks[block].map = self.blocks[block].map.max(map);
        if self.refuses(client, self.blocks[block].map) {
            return None;
        }
        let block = &mut self.blocks[block];
        block.content = write.unwrap_or(block.content);
        Some(block.content)
    }
}
