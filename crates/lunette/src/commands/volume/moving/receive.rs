//! `lunette volume receive`: a stream from standard input becomes a volume, or changes one.

use std::io::{IsTerminal, Read, stdin};
use std::ops::Range;

use clap::Args;
use lunette_api::volumes::{BaseSnapshot, FillOrder, MovedSnapshot};
use lunette_pools::stream::{Header, Item, Reader, StreamError};

use super::super::super::cp::Progress;
use super::super::super::ctl::Server;
use super::super::names::VolumePath;
use super::super::print;
use super::filling::Filling;
use super::store::{self, Queue};
use crate::failure::Failure;

/// Bytes of data after which what was received is kept on stable storage, for a receive that goes on.
const STEP_BYTES: u64 = 1 << 30;

/// Bytes of zeroes that are written at once.
const ZERO_BYTES: u64 = 1 << 30;

#[derive(Args)]
pub(in super::super) struct Arguments {
    #[arg(value_name = "POOL/VOLUME")]
    volume: VolumePath,
    /// The serial number of a new volume [default: that of the volume that was sent, unless another one here has it]
    #[arg(long)]
    serial: Option<String>,
    /// Roll back a volume that was changed since the snapshot; what it has becomes a snapshot
    #[arg(long)]
    force: bool,
    /// Go on with a receive that was cut, and be ready for that
    #[arg(long)]
    resume: bool,
}

pub(in super::super) fn run(server: &Server, arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { volume, serial, force, resume } = arguments;
    if stdin().is_terminal() {
        return Err(Failure::Usage("a stream comes from a file or a pipe, and standard input is a terminal".into()));
    }
    let input = super::plain(&stdin()).map_err(|error| unreadable(&error))?;
    let mut stream = Stream { input, reader: Reader::default() };
    let header = stream.header()?;
    if header.from > 0 && !resume {
        let from = header.from;
        return Err(Failure::Usage(format!("this stream begins at byte {from}; it is for receive --resume")));
    }
    let order = order(&header, serial.as_deref(), *force, *resume);
    let filling = Filling::begin(server, volume, order)?;
    let done = filling.begun.done_bytes;
    if header.from > done {
        let from = header.from;
        return Err(Failure::Usage(format!(
            "this stream begins at byte {from}, and {volume} has what is before byte {done}; send it --from {done}"
        )));
    }
    match receive(&mut stream, &header, &filling, *resume) {
        Received::Whole => server.print(&filling.end()?, print::object),
        Received::Cut(failure, _) if !resume => Err(filling.undo(failure)),
        Received::Cut(failure, done) => {
            // The server may be gone as well.
            let kept = crate::disks::close().and_then(|()| filling.keep(done));
            let hint = format!("; send it again --from {done}, and receive it with --resume");
            Err(failure.with(if kept.is_ok() { &hint } else { "; send it again, and receive it with --resume" }))
        }
    }
}

fn order(header: &Header, serial: Option<&str>, force: bool, resume: bool) -> FillOrder {
    let Header { labels, snapshot, since, size_bytes, serial: origin_serial, .. } = header.clone();
    FillOrder {
        size_bytes,
        serial: serial.map(str::to_owned),
        origin_serial: Some(origin_serial),
        labels,
        snapshot: Some(MovedSnapshot { name: snapshot.name.to_string(), id: snapshot.id, labels: snapshot.labels }),
        since: since.map(|since| BaseSnapshot { name: since.name.to_string(), id: since.id }),
        force,
        resume,
        full: false,
    }
}

/// The outcome of a stream.
enum Received {
    Whole,
    /// A failure. The bytes before this offset are on stable storage.
    Cut(Failure, u64),
}

/// Writes what comes. The blocks are closed afterwards.
fn receive(stream: &mut Stream<impl Read>, header: &Header, filling: &Filling<'_>, resume: bool) -> Received {
    let mut done = header.from.max(filling.begun.done_bytes);
    let mut queue = match store::open(&filling.begun.place, false) {
        Ok(queue) if queue.len_bytes() >= header.size_bytes => queue,
        Ok(_) => return Received::Cut(Failure::disk("the volume has another length"), done),
        Err(failure) => return Received::Cut(failure, done),
    };
    let progress = Progress::new(Some(header.size_bytes), header.from);
    let (mut position, mut step) = (header.from, 0);
    let mut all = || loop {
        let range = match stream.next(&mut queue)? {
            Event::Range(range) => range,
            Event::End => break queue.flush(),
        };
        progress.advance(range.end.saturating_sub(position));
        step += range.end - range.start;
        position = range.end;
        if resume && step >= STEP_BYTES {
            step = 0;
            queue.flush()?;
            done = done.max(position);
            filling.keep(done)?;
        }
    };
    let outcome = all();
    match outcome {
        Ok(()) => {
            progress.finish();
            Received::Whole
        }
        Err(failure) => {
            // What has come before is kept.
            let flushed = queue.flush().is_ok();
            Received::Cut(failure, if flushed { done.max(position) } else { done })
        }
    }
}

/// A stream that is read.
struct Stream<I> {
    input: I,
    reader: Reader,
}

/// The next thing of a stream that is written.
enum Event {
    /// The range was written.
    Range(Range<u64>),
    End,
}

impl<I: Read> Stream<I> {
    fn header(&mut self) -> Result<Header, Failure> {
        loop {
            let mut bytes = vec![0; self.reader.wanted()];
            self.fill(&mut bytes)?;
            if let Some(Item::Header(header)) = self.reader.feed(&bytes).map_err(|error| wrong(&error))? {
                return Ok(*header);
            }
        }
    }

    /// Starts to write the next piece.
    fn next(&mut self, queue: &mut Queue) -> Result<Event, Failure> {
        loop {
            let is_data = self.reader.wants_data();
            let mut bytes = queue.buffer(self.reader.wanted())?;
            self.fill(&mut bytes)?;
            match self.reader.feed(&bytes).map_err(|error| wrong(&error))? {
                Some(Item::Data(offset)) if is_data => {
                    let end = offset + bytes.len() as u64;
                    queue.write(offset, bytes)?;
                    return Ok(Event::Range(offset..end));
                }
                Some(Item::Zeroes(range)) => {
                    let mut offset = range.start;
                    while offset < range.end {
                        let len = (range.end - offset).min(ZERO_BYTES);
                        queue.write_zeroes(offset, len)?;
                        offset += len;
                    }
                    return Ok(Event::Range(range));
                }
                Some(Item::End) => return Ok(Event::End),
                Some(Item::Header(_) | Item::Data(_)) | None => {}
            }
        }
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), Failure> {
        self.input.read_exact(into).map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return Failure::Transfer("this stream was cut: it has no end".into());
    }
    Failure::Transfer(format!("standard input: {error}"))
}

fn wrong(error: &StreamError) -> Failure {
    Failure::Transfer(error.to_string())
}
