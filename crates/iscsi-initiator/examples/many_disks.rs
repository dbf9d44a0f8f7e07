//! Reads the beginning of many disks at once. One thread with one event loop serves all of them.
//!
//! `cargo run --example many_disks -- iscsi://HOST/TARGET/LUN iscsi://HOST/TARGET/LUN …`

use std::env;
use std::error::Error;
use std::time::Instant;

use lunette_initiator::scsi::requests;
use lunette_initiator::{Disk, Initiator, Lun, Repeat, Request, Url, wait};

/// Bytes that are read from each disk, in requests of [`REQUEST_BYTES`].
const READ_BYTES: u64 = 16 << 20;

/// Bytes of one request.
const REQUEST_BYTES: u32 = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let urls: Vec<String> = env::args().skip(1).collect();
    if urls.is_empty() {
        return Err("usage: many_disks iscsi://HOST/TARGET/LUN …".into());
    }
    let initiator = Initiator::start()?;
    let disks = open(&initiator, &urls)?;
    let start = Instant::now();
    let bytes = read_all(&disks)?;
    let counts = initiator.counts();
    println!("read {bytes} bytes of {} disks in {:?}", disks.len(), start.elapsed());
    println!("one event loop, {} turns, {} bytes received", counts.batches, counts.received_bytes);
    Ok(())
}

/// Opens all disks on one event loop.
pub(crate) fn open(initiator: &Initiator, urls: &[String]) -> Result<Vec<Disk>, Box<dyn Error>> {
    let mut disks = Vec::new();
    for url in urls {
        let url = Url::parse(url)?;
        let session = wait(url.connect(initiator, url.options()?))?;
        disks.push(wait(Disk::open(session, url.lun.unwrap_or(Lun::ZERO)))?);
    }
    Ok(disks)
}

/// Reads the beginning of all disks, one request of each under way at any time. Gives the number of bytes.
pub(crate) fn read_all(disks: &[Disk]) -> Result<u64, Box<dyn Error>> {
    let mut bytes = 0;
    for offset in (0..READ_BYTES).step_by(REQUEST_BYTES as usize) {
        // `execute` sends at once, so all disks work while this thread waits for the first.
        let mut pending = Vec::new();
        for disk in disks.iter().filter(|disk| offset + u64::from(REQUEST_BYTES) <= disk.facts().len_bytes()) {
            let block_len = disk.facts().block_len();
            let cdb = requests::read(offset / u64::from(block_len), REQUEST_BYTES / block_len, false);
            // The event loop's buffers are limited: `reserve` fails with `Error::NoBuffer` when all are in use.
            let buffer = disk.session().reserve(REQUEST_BYTES as usize)?;
            let request = Request::new(disk.lun(), cdb).with_data_in(buffer).with_repeat(Repeat::Always);
            pending.push(disk.session().execute(request));
        }
        for read in pending {
            let outcome = wait(read);
            outcome.check_whole()?;
            bytes += outcome.data_in.map_or(0, |data| data.len() as u64);
        }
    }
    Ok(bytes)
}
