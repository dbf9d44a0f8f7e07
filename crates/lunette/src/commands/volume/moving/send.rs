//! `lunette volume send`: a snapshot, or what it changed, as a stream on standard output.

use std::io::{IsTerminal, Write, stdout};
use std::time::Instant;

use clap::Args;
use indicatif::BinaryBytes;
use lunette_api::volumes::Changes;
use lunette_pools::limits::BLOCK_BYTES;
use lunette_pools::stream::{Header, SentSnapshot, Since, Writer};
use lunette_pools::{Name, NameError};

use super::super::super::cp::Progress;
use super::super::super::ctl::Server;
use super::super::names::SnapshotPath;
use super::ranges::Ranges;
use super::store::{self, Queue, is_zero};
use crate::failure::Failure;
use crate::output::note;
use crate::size::Size;

#[derive(Args)]
pub(in super::super) struct Arguments {
    #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
    snapshot: SnapshotPath,
    /// Send what was changed since this earlier snapshot of the volume
    #[arg(long, value_name = "SNAPSHOT")]
    since: Option<Name>,
    /// Leave out what a receiver has already, up to this byte
    #[arg(long, value_name = "OFFSET")]
    from: Option<Size>,
}

pub(in super::super) fn run(server: &Server, arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let Arguments { snapshot, since, from } = arguments;
    snapshot.check_is_snapshot()?;
    let from = from.as_ref().map_or(0, |from| from.0);
    if json {
        return Err(Failure::Usage("standard output is the stream: it cannot hold JSON".into()));
    }
    if stdout().is_terminal() {
        return Err(Failure::Usage("a stream is for a file or a pipe, and standard output is a terminal".into()));
    }
    if !from.is_multiple_of(BLOCK_BYTES.into()) {
        return Err(Failure::Usage(format!("--from is a multiple of {BLOCK_BYTES}, as receive tells it")));
    }
    let started = Instant::now();
    let mut ranges = Ranges::ask(server, snapshot, since.as_ref().map(Name::as_str), from)?;
    let header = header(&ranges.changes, &snapshot.to_string(), from)?;
    let queue = store::open(&ranges.changes.place, true)?;
    if queue.len_bytes() < header.size_bytes || from > header.size_bytes {
        return Err(Failure::disk(format!("{snapshot}: it ends before byte {}", from.max(header.size_bytes))));
    }
    let sent = Sender::new(queue, &header)?.run(&mut ranges, &header)?;
    let since = since.as_ref().map_or(String::new(), |since| format!(" since {since}"));
    let seconds = started.elapsed().as_secs_f64();
    note(format_args!("{snapshot}{since}: {} of data in {seconds:.1} s", BinaryBytes(sent)));
    Ok(())
}

fn header(changes: &Changes, volume: &str, from: u64) -> Result<Header, Failure> {
    let Changes { snapshot, since, size_bytes, serial, labels, .. } = changes.clone();
    let name = |text: &str| text.parse().map_err(|error: NameError| Failure::other(error));
    Ok(Header {
        volume: volume.into(),
        serial,
        labels,
        snapshot: SentSnapshot { name: name(&snapshot.name)?, id: snapshot.id, labels: snapshot.labels },
        since: match since {
            Some(since) => Some(Since { name: name(&since.name)?, id: since.id }),
            None => None,
        },
        size_bytes,
        from,
    })
}

struct Sender<O> {
    queue: Queue,
    output: O,
    writer: Writer,
    /// Whether the receiver begins with zeroes, which need not be sent.
    is_blank: bool,
    sent_bytes: u64,
}

impl Sender<std::fs::File> {
    fn new(queue: Queue, header: &Header) -> Result<Self, Failure> {
        let output = super::plain(&stdout()).map_err(|error| unwritten(&error))?;
        let is_blank = header.since.is_none();
        Ok(Self { queue, output, writer: Writer::default(), is_blank, sent_bytes: 0 })
    }
}

impl<O: Write> Sender<O> {
    /// Sends the stream. Gives the bytes of data.
    fn run(mut self, ranges: &mut Ranges<'_>, header: &Header) -> Result<u64, Failure> {
        self.put(&Writer::preamble(header))?;
        let progress = Progress::new(Some(header.size_bytes), header.from);
        let mut position = header.from;
        loop {
            while !self.queue.is_full()
                && let Some(piece) = ranges.next()?
            {
                if piece.zero {
                    self.queue.pass(piece.offset, piece.len);
                } else {
                    self.queue.read(piece.offset, piece.len)?;
                }
            }
            let Some((piece, buffer)) = self.queue.land()? else { break };
            let end = piece.offset + piece.len;
            match buffer.filter(|buffer| !is_zero(buffer)) {
                Some(buffer) => {
                    let record = self.writer.data(piece.offset, &buffer);
                    self.put(&record)?;
                    self.put(&buffer)?;
                    self.sent_bytes += piece.len;
                }
                None if self.is_blank => {}
                None => {
                    let record = self.writer.zeroes(piece.offset..end);
                    self.put(&record)?;
                }
            }
            progress.advance(end.saturating_sub(position));
            position = end;
        }
        let end = std::mem::take(&mut self.writer).end();
        self.put(&end)?;
        self.output.flush().map_err(|error| unwritten(&error))?;
        progress.finish();
        Ok(self.sent_bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.output.write_all(bytes).map_err(|error| unwritten(&error))
    }
}

fn unwritten(error: &std::io::Error) -> Failure {
    Failure::Transfer(format!("standard output: {error}{}", lunette_files::remedy(error)))
}
