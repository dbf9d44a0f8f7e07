//! Writes and reads a disk from async code, here with tokio. It overwrites the first 4 MiB of the disk.
//!
//! `cargo run --example tokio -- iscsi://HOST/TARGET/LUN`
//!
//! Every operation is a plain future that the library's event loop wakes, so it runs on any executor without an
//! adapter.

use std::env;
use std::error::Error;
use std::time::Duration;

use lunette_initiator::{Disk, Initiator, Lun, Url};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Writes that are under way together.
const WRITES: u64 = 16;

/// Bytes of each write.
const WRITE_BYTES: usize = 256 << 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().nth(1).ok_or("usage: tokio iscsi://HOST/TARGET/LUN")?;
    let bytes = write_and_read(&url).await?;
    println!("wrote {bytes} bytes in {WRITES} tasks, flushed them, and read them back");
    Ok(())
}

/// Writes in several tasks at once, flushes, and compares what is read. Gives the number of bytes.
pub(crate) async fn write_and_read(url: &str) -> Result<usize, Box<dyn Error>> {
    let url = Url::parse(url)?;
    let session = url.connect(&Initiator::start()?, url.options()?).await?;
    let disk = Disk::open(session.clone(), url.lun.unwrap_or(Lun::ZERO)).await?;
    let blocks = WRITE_BYTES as u64 / u64::from(disk.facts().block_len());

    // A `Disk` is a cheap handle: each task has its own.
    let mut writes = JoinSet::new();
    for n in 0..WRITES {
        let disk = disk.clone();
        writes.spawn(async move { disk.write(n * blocks, &pattern(n), false).await });
    }
    while let Some(write) = writes.join_next().await {
        write??;
    }
    disk.flush().await?;

    for n in 0..WRITES {
        // A future that is dropped, as by this timeout, aborts its task at the target.
        let data = timeout(Duration::from_secs(10), disk.read(n * blocks, blocks as u32)).await??;
        if data[..] != pattern(n) {
            return Err(format!("write {n} reads back differently").into());
        }
    }
    // The last handle logs out as well, without waiting for the target's answer.
    session.close().await?;
    Ok(WRITES as usize * WRITE_BYTES)
}

/// The bytes of the write number `n`.
fn pattern(n: u64) -> Vec<u8> {
    (0..WRITE_BYTES as u64).map(|at| (at ^ n) as u8).collect()
}
