//! Reads a block every half second, and tells what happens when the target goes away and comes back.
//!
//! `cargo run --example reconnect -- iscsi://HOST/TARGET/LUN`
//!
//! Stop the target while this runs, and start it again: the session logs in again by itself, and a read that was under
//! way is sent again. Nothing of that is an error. A target that stays away for longer than `reconnect_for` ends the
//! session.

use std::env;
use std::error::Error as StdError;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lunette_initiator::{Disk, Error, Initiator, Lun, SessionEvent, Url, wait};

fn main() -> Result<(), Box<dyn StdError>> {
    let url = env::args().nth(1).ok_or("usage: reconnect iscsi://HOST/TARGET/LUN [READS]")?;
    let reads: u32 = env::args().nth(2).map_or(Ok(120), |reads| reads.parse())?;
    let disk = open(&url, Duration::from_secs(20))?;
    for _ in 0..reads {
        println!("{}", read(&disk).map_err(|error| error.to_string())?);
        sleep(Duration::from_millis(500));
    }
    Ok(())
}

/// Opens a disk that survives outages of `reconnect_for`, and prints what happens to its session.
pub(crate) fn open(url: &str, reconnect_for: Duration) -> Result<Disk, Box<dyn StdError>> {
    let url = Url::parse(url)?;
    let mut options = url.options()?;
    options.reconnect_for = reconnect_for;
    // A request that waits for a new connection counts its time, too.
    options.request_timeout = reconnect_for + Duration::from_secs(10);
    // Called on the event loop's thread, so it must not block.
    options.listener = Some(Arc::new(|event: &SessionEvent| match event {
        SessionEvent::Connected { portal, .. } => println!("  logged in at {portal}"),
        SessionEvent::Lost { why } => println!("  session lost: {why}"),
        SessionEvent::UnitAttention { lun, sense } => println!("  LUN {lun} says {:?}", sense.code),
        SessionEvent::Async { message, .. } => println!("  the target sends {:?}", message.event),
        SessionEvent::Over(error) => println!("  given up: {error}"),
        other => println!("  {other:?}"),
    }));
    let session = wait(url.connect(&Initiator::start()?, options))?;
    Ok(wait(Disk::open(session, url.lun.unwrap_or(Lun::ZERO)))?)
}

/// Reads the first block. Gives a line about it, or the error that no further read will survive.
pub(crate) fn read(disk: &Disk) -> Result<String, Error> {
    let start = Instant::now();
    match wait(disk.read(0, 1)) {
        Ok(data) => Ok(format!("{} bytes after {:?}", data.len(), start.elapsed())),
        // The disk answered, with an error; the session is well.
        Err(error) if error.is_an_answer() => Ok(format!("the disk refuses: {error}")),
        // TimedOut: the target did not answer; the command was aborted, and the session goes on. InDoubt: the
        // connection was lost while a command ran that must not run twice. Operations of `Disk` may, all but
        // `compare_and_write`; a raw command may with `Repeat::Always`. Look at what the disk holds before such a
        // command is tried again.
        Err(error @ (Error::TimedOut { .. } | Error::InDoubt { .. })) => Ok(error.to_string()),
        // `Error::Lost` and all others: the session is over, and a new one needs a new `Session::connect`.
        Err(error) => Err(error),
    }
}
