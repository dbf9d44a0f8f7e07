//! `lunette volume create --from`: a new volume with the content of a disk or of a stream.

use std::io::{IsTerminal, stdin};

use lunette_api::volumes::{FillOrder, NewVolume};
use lunette_pools::limits::BLOCK_BYTES;

use super::super::super::cp::{Content, End};
use super::super::super::ctl::Server;
use super::super::names::VolumePath;
use super::super::print;
use super::filling::Filling;
use super::store;
use crate::failure::Failure;

pub(in super::super) fn run(
    server: &Server,
    volume: &VolumePath,
    from: &End,
    wanted: NewVolume,
) -> Result<(), Failure> {
    if matches!(from, End::Standard) && stdin().is_terminal() {
        return Err(Failure::Usage("the content comes from a file or a pipe, and standard input is a terminal".into()));
    }
    let content = Content::open(from)?;
    let NewVolume { size_bytes, full, serial, labels, clone_of: _, source: _ } = wanted;
    let size_bytes = match (size_bytes, content.len_bytes()) {
        (None, None) => return Err(Failure::Usage("the length of a stream is unknown; write --size".into())),
        (None, Some(len)) => len.next_multiple_of(BLOCK_BYTES.into()),
        (Some(size), Some(len)) if size < len => {
            return Err(Failure::Usage(format!("the {size} bytes of --size are too few for the {len} of the content")));
        }
        (Some(size), _) => size,
    };
    let order = FillOrder { size_bytes, serial, labels, full, ..FillOrder::default() };
    let filling = Filling::begin(server, volume, order)?;
    let filled = store::disk(&filling.begun.place).and_then(|disk| content.fill(&disk));
    match filled {
        Ok(()) => server.print(&filling.end()?, print::object),
        Err(failure) => Err(filling.undo(failure)),
    }
}
