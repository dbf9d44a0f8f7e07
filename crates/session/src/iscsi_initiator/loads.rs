//! Commands under way on each connection.

use lunette_pdu::Cid;

/// The number of commands by CID.
#[derive(Default)]
pub(super) struct Loads(Vec<u32>);

impl Loads {
    /// A connection begins.
    pub(super) fn add_connection(&mut self, cid: Cid) {
        let len = self.0.len().max(usize::from(cid.0) + 1);
        self.0.resize(len, 0);
    }

    pub(super) fn get(&self, cid: Cid) -> u32 {
        self.0.get(usize::from(cid.0)).copied().unwrap_or_default()
    }

    #[inline]
    pub(super) fn command_began(&mut self, cid: Cid) {
        if let Some(load) = self.0.get_mut(usize::from(cid.0)) {
            *load += 1;
        }
    }

    #[inline]
    pub(super) fn command_ended(&mut self, cid: Cid) {
        if let Some(load) = self.0.get_mut(usize::from(cid.0)) {
            *load -= 1;
        }
    }
}
