//! Standard input and output as an end of a copy.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};

use lunette_buffer::{Buffer, Pool};
use lunette_store::{Op, execute};

use super::endpoint::Disk;
use super::engine::{self, CopyError, Engine, Options, Totals};
use super::flight::{Flight, Moving, Purpose};
use super::io::CopyIo;
use super::plan::{Piece, Plan};
use super::progress::Progress;

/// Copies `input` to its end, and returns its length. A file grows with it; a device must have room.
pub(crate) fn copy_in(input: &mut impl Read, engine: &mut Engine<'_>, block: u64) -> Result<u64, CopyError> {
    let disk = engine.destination;
    let mut offset = 0;
    loop {
        engine.make_room()?;
        if engine.is_window_full() {
            engine.settle()?;
        }
        let mut buffer = engine.buffer(block);
        let len = fill(input, &mut buffer).map_err(|error| CopyError::Stream { action: "read", offset, error })?;
        buffer.truncate(len);
        if len > 0 {
            let end = offset + len as u64;
            match &disk.file {
                Some(file) => file.set_len(end).map_err(|error| CopyError::Stream {
                    action: "make room in the file for",
                    offset,
                    error,
                })?,
                // Zeroes beyond its end would be left out, and the rest refused by the store.
                None if end > disk.len_bytes() => {
                    return Err(CopyError::LongStream { disk: disk.name.clone(), len: disk.len_bytes() });
                }
                None => {}
            }
            engine.put(Piece { offset, len: len as u64, hole: false }, buffer);
        }
        offset += len as u64;
        if len < block as usize {
            return Ok(offset);
        }
    }
}

/// Reads as many bytes as there are, up to the length of `into`.
fn fill(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match input.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A piece that waits for its turn.
enum Ready {
    Data(Buffer),
    Zeroes(u64),
}

impl Ready {
    /// Writes the piece, and returns its length.
    fn write(self, output: &mut impl Write, totals: &mut Totals) -> io::Result<u64> {
        match self {
            Self::Data(bytes) => {
                output.write_all(&bytes)?;
                totals.data_bytes += bytes.len() as u64;
                Ok(bytes.len() as u64)
            }
            Self::Zeroes(len) => {
                write_zeroes(output, len)?;
                totals.zero_bytes += len;
                Ok(len)
            }
        }
    }
}

/// Writes all of `source` to `output`, in order, while later pieces are read.
pub(crate) fn copy_out(
    source: &Disk,
    output: &mut impl Write,
    options: Options,
    io: CopyIo,
    progress: &Progress,
) -> Result<Totals, CopyError> {
    let len = source.len_bytes();
    let mut plan = Plan::new(0, len, source.granularity(), options.block);
    let mut flight = Flight::new(options.depth, options.block as usize, io);
    let pool = Pool::trimmed(options.depth.most() * (options.block as usize).next_power_of_two());
    let mut ready = BTreeMap::new();
    let mut totals = Totals::default();
    let mut written = 0;
    while written < len {
        // Pieces that wait for their turn hold a buffer too.
        while flight.has_room() && flight.in_flight() + ready.len() < options.depth.most() {
            let Some(piece) = next_piece(&mut plan, source) else { break };
            if piece.hole {
                ready.insert(piece.offset, Ready::Zeroes(piece.len));
            } else {
                let into = engine::buffer(&pool, piece.len);
                flight.start(&*source.store, Op::Read { offset: piece.offset, into }, piece);
            }
        }
        let Some(next) = ready.remove(&written) else {
            // The piece whose turn it is was started before all others, so it is in flight.
            let (piece, outcome) = flight.land();
            let buffer = engine::done(source, "read", piece, outcome)?.expect("a read gives its buffer back");
            ready.insert(piece.offset, Ready::Data(buffer));
            continue;
        };
        let failed = |error| CopyError::Stream { action: "write", offset: written, error };
        let piece_len = next.write(output, &mut totals).map_err(failed)?;
        written += piece_len;
        progress.advance(piece_len);
    }
    output.flush().map_err(|error| CopyError::Stream { action: "write", offset: written, error })?;
    Ok(totals)
}

/// A read of a piece.
impl Purpose for Piece {
    fn moving(&self) -> Option<Moving> {
        Some(Moving::Read)
    }
}

fn next_piece(plan: &mut Plan, source: &Disk) -> Option<Piece> {
    if let Some((offset, len)) = plan.unknown() {
        let (op, found) = engine::allocation(offset, len);
        let outcome = execute(&*source.store, op);
        // A source that cannot tell where its data lies is read as a whole.
        plan.learn(&outcome.result.map(|()| found.take()).unwrap_or_default());
    }
    plan.next()
}

fn write_zeroes(output: &mut impl Write, len: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(len), output).map(drop)
}
