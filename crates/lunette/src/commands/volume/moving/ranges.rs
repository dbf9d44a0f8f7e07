//! The ranges that move: asked of the server page by page, and cut into pieces.

use std::collections::VecDeque;

use lunette_api::volumes::{ChangedRange, Changes};

use super::super::super::ctl::Server;
use super::super::names::SnapshotPath;
use super::super::value;
use crate::failure::Failure;

/// Bytes of a piece that is read or written at once.
pub(super) const PIECE_BYTES: u64 = 1 << 20;

/// Bytes of a piece of zeroes.
const ZERO_BYTES: u64 = 1 << 30;

/// The content of a snapshot, or what it changed of an earlier one.
pub(super) struct Ranges<'s> {
    server: &'s Server,
    url: String,
    since: String,
    /// The answer without its ranges.
    pub(super) changes: Changes,
    waiting: VecDeque<ChangedRange>,
}

impl<'s> Ranges<'s> {
    /// Asks for the ranges of a snapshot from an offset on.
    pub(super) fn ask(
        server: &'s Server,
        snapshot: &SnapshotPath,
        since: Option<&str>,
        from: u64,
    ) -> Result<Self, Failure> {
        let url = snapshot.url(&["changes"]);
        let since = since.map_or(String::new(), |since| format!("&since={since}"));
        let changes = page(server, &url, &since, from)?;
        Ok(Self { server, url, since, waiting: VecDeque::new(), changes }.with_page())
    }

    fn with_page(mut self) -> Self {
        self.waiting = std::mem::take(&mut self.changes.ranges).into();
        self
    }

    /// The next piece, in the order of the offsets.
    pub(super) fn next(&mut self) -> Result<Option<ChangedRange>, Failure> {
        if self.waiting.is_empty()
            && let Some(from) = self.changes.next.take()
        {
            let Changes { ranges, next, .. } = page(self.server, &self.url, &self.since, from)?;
            (self.waiting, self.changes.next) = (ranges.into(), next);
        }
        let Some(first) = self.waiting.front_mut() else { return Ok(None) };
        let most = if first.zero { ZERO_BYTES } else { PIECE_BYTES };
        let piece = ChangedRange { len: first.len.min(most), ..first.clone() };
        first.offset = first.offset.saturating_add(piece.len);
        first.len -= piece.len;
        if first.len == 0 {
            self.waiting.pop_front();
        }
        Ok(Some(piece))
    }
}

fn page(server: &Server, url: &str, since: &str, from: u64) -> Result<Changes, Failure> {
    value(server.get(&format!("{url}?from={from}{since}"))?.value)
}
