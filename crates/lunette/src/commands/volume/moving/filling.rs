//! A filling of a volume, from its beginning at the server to its end, or to what is left of it.

use lunette_api::client::Condition;
use lunette_api::volumes::{FillOrder, Filling as Begun, FillingEnd, FillingStep, MovedSnapshot};
use serde_json::Value;

use super::super::super::ctl::Server;
use super::super::names::VolumePath;
use super::super::{json, value};
use crate::failure::Failure;

/// A volume that this command fills.
pub(super) struct Filling<'s> {
    server: &'s Server,
    volume: &'s VolumePath,
    pub(super) begun: Begun,
    /// Whether it was there before.
    had_content: bool,
    snapshot: Option<MovedSnapshot>,
}

impl<'s> Filling<'s> {
    pub(super) fn begin(server: &'s Server, volume: &'s VolumePath, order: FillOrder) -> Result<Self, Failure> {
        let begun = server.send("POST", &volume.url(&["filling"]), Some(&json(&order)?), Condition::Always)?.value;
        let had_content = order.since.is_some();
        Ok(Self { server, volume, begun: value(begun)?, had_content, snapshot: order.snapshot })
    }

    /// Lets the server know how much is on stable storage.
    pub(super) fn keep(&self, done_bytes: u64) -> Result<(), Failure> {
        let step = FillingStep { token: self.begun.token.clone(), done_bytes };
        let url = self.volume.url(&["filling"]);
        self.server.send("PATCH", &url, Some(&json(&step)?), Condition::Always).map(drop)
    }

    /// Ends it. The store must be closed. Gives the volume.
    pub(super) fn end(self) -> Result<Value, Failure> {
        crate::disks::close()?;
        let end = FillingEnd { token: self.begun.token, snapshot: self.snapshot };
        let url = self.volume.url(&["filling", "actions", "end"]);
        Ok(self.server.send("POST", &url, Some(&json(&end)?), Condition::Always)?.value)
    }

    /// Undoes it after a failure. The store must be closed.
    pub(super) fn undo(self, failure: Failure) -> Failure {
        let url = format!("{}?token={}", self.volume.url(&["filling"]), self.begun.token);
        let undone = crate::disks::close().and_then(|()| self.server.send("DELETE", &url, None, Condition::Always));
        match (undone, self.had_content) {
            (Ok(_), true) => failure.with(&format!("; {} has its content of before", self.volume)),
            (Ok(_), false) => failure.with(&format!("; the unfinished {} was removed", self.volume)),
            (Err(error), true) => failure.with(&format!("; {} is unfinished, roll it back: {error}", self.volume)),
            (Err(error), false) => failure.with(&format!("; {} is unfinished, remove it: {error}", self.volume)),
        }
    }
}
