//! A backup of a remote disk into a file: `cargo run --example backup -- iscsi://HOST/TARGET/LUN FILE`.
//!
//! Blocks that the disk has no space for stay holes.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;

use lunette_initiator::{Disk, wait};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, file] = &arguments[..] else { return Err("usage: backup URL FILE".into()) };
    println!("{} bytes of data", backup(url, &File::create(file)?)?);
    Ok(())
}

/// Copies a disk into an empty file. Gives the bytes that were read.
pub(crate) fn backup(url: &str, file: &File) -> Result<u64, Box<dyn Error>> {
    let disk = wait(Disk::connect(url))?;
    let (block_len, blocks) = (u64::from(disk.facts().block_len()), disk.facts().capacity.blocks);
    let step = u64::from(disk.max_transfer_blocks().min(2048));
    let (mut lba, mut copied) = (0, 0);
    while lba < blocks {
        // As many runs as the disk tells of at one time.
        for (len, allocated) in wait(disk.allocation(lba, blocks - lba))? {
            let end = lba + len;
            while allocated && lba < end {
                let data = wait(disk.read(lba, step.min(end - lba) as u32))?;
                file.write_all_at(&data, lba * block_len)?;
                lba += data.len() as u64 / block_len;
                copied += data.len() as u64;
            }
            lba = end;
        }
    }
    file.set_len(blocks * block_len)?;
    file.sync_all()?;
    Ok(copied)
}
