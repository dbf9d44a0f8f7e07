//! `lunette cp`: copies a disk.

mod destination;
mod endpoint;
mod engine;
mod filling;
mod flight;
mod io;
mod journal;
mod plan;
mod progress;
mod streams;
#[cfg(test)]
mod tests;

use std::io::{Write, stderr, stdin, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::BinaryBytes;
use lunette_buffer::{MAX_BUFFER_LEN, PAGE_LEN};
use rustix::io::Errno;

pub(super) use self::destination::Destination;
pub(super) use self::endpoint::End;
use self::endpoint::{Disk, Role, Volumes};
use self::engine::{CopyError, Engine, Options, Totals};
pub(super) use self::filling::Content;
use self::io::CopyIo;
use self::journal::{Entry, Journal};
use self::plan::Plan;
pub(super) use self::progress::Progress;
use crate::commands::depth::Depth;
use crate::disks::DiskName;
use crate::failure::Failure;
use crate::size::Size;

/// Bytes of data between two entries of the journal, and between two rounds of reading back.
const WINDOW_BYTES: u64 = 64 << 20;

/// The most requests in flight.
const MAX_DEPTH: u16 = 256;

/// Bytes of buffers that a copy takes at most when it measures how many requests it needs: enough for 10 Gb/s over 100
/// ms.
const MAX_MEASURED_BYTES: u64 = 256 << 20;

const AFTER_HELP: &str = "\
A file as DST becomes exactly as long as SRC; holes of SRC, and blocks of zeroes, become holes. After a failure it is removed,
or emptied when it was there before, but for --resume. A device as DST may be longer
than SRC: what lies behind stays as it is, but for the rest of the last block, which becomes zero.

--resume keeps a journal beside DST (DST.lunette-cp), or where --journal says, which other kinds of DST need. A copy that was
killed goes on where everything is known to be durable when the same command is run again. Do not write to SRC or DST in
between.

URLs: iscsi://[USER@]HOST[:PORT]/TARGET/LUN[?header_digest=crc32c&data_digest=crc32c&...], with the secret of USER in
LUNETTE_CHAP_PASSWORD or behind chap_secret_file=FILE. Exports of NBD servers: nbd://HOST[:PORT]/NAME,
nbd+unix:///NAME?socket=PATH, and in TLS nbds://HOST[:PORT]/NAME?tls-certificates=DIR.

Encrypted disks: PATH?keys=..., URL?keys=..., with keys=file:KEYS or keys=kmip://HOST[:PORT]/NAME, and behind it
&passphrase_file=FILE, &passphrase_credential=NAME (of systemd) or &tls=DIR (with the certificate for the key server).
Without keys an encrypted disk is copied as it is, still encrypted. As DST it is overwritten only by another one, or with
--overwrite-volume.

Success means that DST was flushed. With --verify it also means that DST was read back and gave the bytes of SRC.

Exit codes: 0 copied and flushed, 1 other failure, 2 bad usage, 3 keys that cannot be used, 5 a disk is missing, unreadable, too small or in use, 6 a read
or write failed, 7 DST gave other bytes back.";

/// Copy a disk: files, block devices, iSCSI URLs, standard input and output.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// A file, a block device, iscsi://HOST/TARGET/LUN, nbd://HOST/NAME, nbd+unix:///NAME?socket=PATH, or - for
    /// standard input; ?keys=file:KEYS behind it decrypts it
    #[arg(value_name = "SRC")]
    source: End,
    /// A file, a block device, iscsi://HOST/TARGET/LUN, nbd://HOST/NAME, nbd+unix:///NAME?socket=PATH, or - for
    /// standard output; ?keys=file:KEYS behind it encrypts for it
    #[arg(value_name = "DST")]
    destination: End,
    /// Requests in flight [default: as many as fill the path, measured on the way]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_DEPTH)))]
    depth: Option<u16>,
    /// Bytes of a request: a multiple of 4K, 16M at most
    #[arg(long, value_name = "SIZE", default_value = "256K", value_parser = block)]
    bs: u64,
    /// Read DST back and compare it, by CRC32C, with what was read from SRC
    #[arg(long)]
    verify: bool,
    /// Go on with a copy that was killed, and be ready for that
    #[arg(long)]
    resume: bool,
    /// Keep the journal of --resume in FILE
    #[arg(long, value_name = "FILE", requires = "resume")]
    journal: Option<PathBuf>,
    /// Overwrite an encrypted volume on DST, though no keys are given for it
    #[arg(long)]
    overwrite_volume: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn on_volumes(&self) -> Volumes {
        if self.overwrite_volume { Volumes::Overwritten } else { Volumes::Kept }
    }
}

/// The number of requests in flight: given, or measured within the memory that a copy may take.
fn depth(arguments: &Arguments) -> Depth {
    // The pool gives out powers of two, and has one buffer more than requests in flight.
    let affordable =
        (MAX_MEASURED_BYTES / arguments.bs.next_power_of_two()).saturating_sub(1).clamp(1, MAX_DEPTH.into());
    arguments.depth.map_or(Depth::Measured(affordable as usize), |depth| Depth::Given(depth.into()))
}

fn block(text: &str) -> Result<u64, String> {
    let Size(bytes) = text.parse().map_err(|error: crate::size::NotASize| error.to_string())?;
    let good = bytes > 0 && bytes.is_multiple_of(PAGE_LEN as u64) && bytes <= MAX_BUFFER_LEN as u64;
    if good { Ok(bytes) } else { Err("write a multiple of 4K, 16M at most".into()) }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let started = Instant::now();
    let options = Options {
        depth: depth(arguments),
        block: arguments.bs,
        verify: arguments.verify,
        window_bytes: if arguments.verify || arguments.resume { WINDOW_BYTES } else { u64::MAX },
    };
    let copied = match (&arguments.source, &arguments.destination) {
        (End::Standard, End::Standard) => Err(Failure::Usage("one of SRC and DST must be a disk".into())),
        (End::Standard, _) | (_, End::Standard) if arguments.resume => {
            Err(Failure::Usage("a stream cannot be resumed".into()))
        }
        (End::Disk(_), End::Standard) if arguments.verify || arguments.json => {
            Err(Failure::Usage("standard output is the copy: it cannot be read back or hold JSON".into()))
        }
        (End::Standard, End::Disk(to)) => from_stream(to, arguments.on_volumes(), options),
        (End::Disk(from), End::Standard) => to_stream(from, options),
        (End::Disk(from), End::Disk(to)) => between_disks(from, to, arguments, options),
    }?;
    copied.print(arguments, started.elapsed()).map_err(Failure::other)
}

/// The result of a copy.
#[derive(Debug, Default)]
struct Copied {
    len: u64,
    resumed_at: u64,
    totals: Totals,
}

fn from_stream(to: &DiskName, volumes: Volumes, options: Options) -> Result<Copied, Failure> {
    if let Some(path) = endpoint::file_path(to) {
        Journal::beside(path).remove()?;
    }
    let disk = endpoint::open(to, Role::Fresh(0), volumes)?;
    stream_into(&disk, options).map_err(|failure| failure.with(disk.abandon()))
}

fn stream_into(disk: &Disk, options: Options) -> Result<Copied, Failure> {
    let options = aligned(options, disk.granularity());
    let progress = Progress::new(None, 0);
    let mut engine = Engine::new(disk, options, CopyIo::on_threads()?, &progress);
    let len = streams::copy_in(&mut stdin().lock(), &mut engine, options.block)?;
    engine.settle()?;
    progress.finish();
    let totals = engine.totals;
    disk.close()?;
    Ok(Copied { len, resumed_at: 0, totals })
}

fn to_stream(from: &DiskName, options: Options) -> Result<Copied, Failure> {
    let disk = endpoint::open(from, Role::Source, Volumes::Kept)?;
    let len = disk.len_bytes();
    let options = aligned(options, disk.granularity());
    let progress = Progress::new(Some(len), 0);
    let mut output = stdout().lock();
    let totals = streams::copy_out(&disk, &mut output, options, CopyIo::on_threads()?, &progress)?;
    match rustix::fs::fsync(output.as_fd()) {
        // A pipe or terminal has nothing to make durable.
        Ok(()) | Err(Errno::INVAL | Errno::ROFS | Errno::NOTSUP) => {}
        Err(error) => {
            return Err(
                CopyError::Stream { action: "flush standard output at", offset: len, error: error.into() }.into()
            );
        }
    }
    progress.finish();
    Ok(Copied { len, resumed_at: 0, totals })
}

fn between_disks(from: &DiskName, to: &DiskName, arguments: &Arguments, options: Options) -> Result<Copied, Failure> {
    if endpoint::are_same(from, to) {
        return Err(Failure::Usage(format!("{from} and {to} are the same disk")));
    }
    let source = endpoint::open(from, Role::Source, Volumes::Kept)?;
    let len = source.len_bytes();
    let journal = arguments.journal.clone().map(Journal::at).or_else(|| endpoint::file_path(to).map(Journal::beside));
    let old = match &journal {
        Some(journal) if arguments.resume => journal.read()?,
        // The folder of devices is the wrong place for a journal: it does not outlive a restart.
        None if arguments.resume => {
            return Err(Failure::Usage(format!("{to} is no file: say with --journal where to keep the journal")));
        }
        _ => None,
    };
    let role = if old.is_some() { Role::Resumed(len) } else { Role::Fresh(len) };
    if let (Some(journal), None) = (&journal, &old) {
        // From here on an old journal would be wrong.
        journal.remove()?;
    }
    let volumes = match arguments.on_volumes() {
        Volumes::Kept => source.on_volumes(),
        Volumes::Overwritten => Volumes::Overwritten,
    };
    let destination = endpoint::open(to, role, volumes)?;
    let entry = Entry {
        source: source.identity.clone(),
        destination: destination.identity.clone(),
        verified: options.verify,
        done: 0,
    };
    let journal = journal.filter(|_| arguments.resume);
    let start = match (&old, &journal) {
        (Some(old), Some(journal)) => resume_at(old, &entry, journal)?,
        _ => 0,
    };
    let copied = copy(&source, &destination, start, options, journal.as_ref().map(|journal| (journal, entry)));
    let copied = copied.and_then(|totals| {
        destination.close()?;
        if endpoint::has_changed(from, &source)? {
            return Err(Failure::Transfer(format!(
                "{} was written to while it was copied; copy it again",
                source.name
            )));
        }
        Ok(totals)
    });
    // With a journal the copy can go on.
    let abandon = |failure: Failure| if journal.is_some() { failure } else { failure.with(destination.abandon()) };
    let totals = copied.map_err(abandon)?;
    if let Some(journal) = journal {
        journal.remove()?;
    }
    Ok(Copied { len, resumed_at: start, totals })
}

/// The position at which to continue, when the journal belongs to this copy.
fn resume_at(old: &Entry, new: &Entry, journal: &Journal) -> Result<u64, Failure> {
    let end = match () {
        () if old.source != new.source => "SRC is another one, or was written to",
        () if old.destination != new.destination => "DST is another one",
        () if new.verified && !old.verified => "the first part was copied without --verify",
        () => return Ok(old.done),
    };
    let path = journal.path().display();
    Err(Failure::Usage(format!("{path}: cannot go on: {end}; remove this file to start over")))
}

/// Aligns requests to blocks of `align` bytes. They are no longer than asked for, unless a block is. A buffer has room
/// for either.
fn aligned(options: Options, align: u64) -> Options {
    Options { block: (options.block / align * align).max(align), ..options }
}

/// The least number of bytes that is whole blocks at both ends.
fn common_blocks(source: &Disk, destination: &Disk) -> Result<u64, Failure> {
    let (from, to) = (source.granularity(), destination.granularity());
    let (shorter, longer) = (from.min(to), from.max(to));
    if longer.is_multiple_of(shorter) {
        return Ok(longer);
    }
    let (source, destination) = (&source.name, &destination.name);
    Err(Failure::disk(format!(
        "{source} has blocks of {from} bytes and {destination} of {to}: no request is whole blocks of both; copy by way of a file"
    )))
}

/// Copies from `start` on, and updates the journal when there is one.
fn copy(
    source: &Disk,
    destination: &Disk,
    start: u64,
    options: Options,
    mut journal: Option<(&Journal, Entry)>,
) -> Result<Totals, Failure> {
    let len = source.len_bytes();
    let align = common_blocks(source, destination)?;
    let options = aligned(options, align);
    let start = start.min(len) / align * align;
    let progress = Progress::new(Some(len), start);
    let mut plan = Plan::new(start, len, align, options.block);
    let io = CopyIo::between(source, destination)?;
    let mut engine = Engine::new(destination, options, io, &progress);
    loop {
        engine.copy(source, &mut plan)?;
        engine.settle()?;
        if let Some((journal, entry)) = &mut journal {
            entry.done = plan.position();
            journal.write(entry)?;
        }
        if plan.position() == len {
            progress.finish();
            return Ok(engine.totals);
        }
    }
}

impl Copied {
    fn print(&self, arguments: &Arguments, time: Duration) -> std::io::Result<()> {
        let Self { len, resumed_at, totals: Totals { data_bytes, zero_bytes } } = *self;
        let seconds = time.as_secs_f64();
        if arguments.json {
            let verified = arguments.verify;
            return writeln!(
                stdout(),
                "{{\"bytes\":{len},\"data_bytes\":{data_bytes},\"zero_bytes\":{zero_bytes},\"resumed_at\":{resumed_at},\
                 \"verified\":{verified},\"flushed\":true,\"seconds\":{seconds:.3}}}"
            );
        }
        let verified = if arguments.verify { ", verified" } else { "" };
        writeln!(
            stderr(),
            "{}: {} of data and {} of zeroes in {seconds:.1} s{verified}, flushed",
            BinaryBytes(len),
            BinaryBytes(data_bytes),
            BinaryBytes(zero_bytes),
        )
    }
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Differs { .. } => Self::Mismatch(error.to_string()),
            CopyError::Disk { .. }
            | CopyError::Flush { .. }
            | CopyError::LongStream { .. }
            | CopyError::Stream { .. } => Self::Transfer(error.to_string()),
        }
    }
}
