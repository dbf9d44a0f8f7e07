//! `lunette volume copy`: a snapshot, or what it changed, to a file or disk.

use std::time::Instant;

use clap::Args;
use indicatif::BinaryBytes;
use lunette_pools::Name;
use serde_json::json;

use super::super::super::cp::{Destination, Progress};
use super::super::super::ctl::Server;
use super::super::names::SnapshotPath;
use super::ranges::Ranges;
use super::store::{self, Queue, is_zero};
use crate::disks::DiskName;
use crate::failure::Failure;

#[derive(Args)]
pub(in super::super) struct Arguments {
    #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
    snapshot: SnapshotPath,
    /// A file, a block device, or a URL, as `lunette cp` takes it
    #[arg(value_name = "DST")]
    destination: DiskName,
    /// Copy what was changed since this earlier snapshot, whose content DST must have
    #[arg(long, value_name = "SNAPSHOT")]
    since: Option<Name>,
}

pub(in super::super) fn run(server: &Server, arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { snapshot, destination, since } = arguments;
    snapshot.check_is_snapshot()?;
    let started = Instant::now();
    let mut ranges = Ranges::ask(server, snapshot, since.as_ref().map(Name::as_str), 0)?;
    let len = ranges.changes.size_bytes;
    let from = store::open(&ranges.changes.place, true)?;
    let to = Destination::open(destination, len, since.is_some())?;
    let into = Queue::new(to.name().into(), to.store())?;
    let gaps = match since {
        // What is not listed is what DST has.
        Some(_) => Gaps::Kept,
        None if to.is_blank() => Gaps::Kept,
        None => Gaps::Zeroed,
    };
    let copied = copy(&mut ranges, from, into, len, gaps).and_then(|bytes| to.close().map(|()| bytes));
    let data_bytes = copied.map_err(|failure| failure.with(to.abandon()))?;
    let seconds = started.elapsed().as_secs_f64();
    let copied = json!({ "bytes": len, "data_bytes": data_bytes, "flushed": true, "seconds": seconds });
    server.print(&copied, |_| {
        format!("{}: {} of data in {seconds:.1} s, flushed", BinaryBytes(len), BinaryBytes(data_bytes))
    })
}

/// The fate of what no range has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gaps {
    Kept,
    Zeroed,
}

/// Copies all ranges. Gives the bytes of data.
fn copy(ranges: &mut Ranges<'_>, mut from: Queue, mut into: Queue, len: u64, gaps: Gaps) -> Result<u64, Failure> {
    let progress = Progress::new(Some(len), 0);
    let (mut position, mut data_bytes) = (0, 0);
    loop {
        while !from.is_full()
            && let Some(piece) = ranges.next()?
        {
            if piece.zero {
                from.pass(piece.offset, piece.len);
            } else {
                from.read(piece.offset, piece.len)?;
            }
        }
        let Some((piece, buffer)) = from.land()? else { break };
        if gaps == Gaps::Zeroed && piece.offset > position {
            into.write_zeroes(position, piece.offset - position)?;
        }
        match buffer.filter(|buffer| !is_zero(buffer)) {
            Some(buffer) => {
                data_bytes += piece.len;
                into.write(piece.offset, buffer)?;
            }
            None => into.write_zeroes(piece.offset, piece.len)?,
        }
        let end = piece.offset + piece.len;
        progress.advance(end.saturating_sub(position));
        position = end;
    }
    if gaps == Gaps::Zeroed && len > position {
        into.write_zeroes(position, len - position)?;
    }
    into.flush()?;
    progress.finish();
    Ok(data_bytes)
}
