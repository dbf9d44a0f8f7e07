//! The moving of content: out of a snapshot, and into a volume.
//!
//! The server knows the places of the blocks and keeps the steps, and the command moves the blocks. So it runs on the
//! machine of the server.

pub(super) mod copy;
pub(super) mod create;
mod filling;
mod ranges;
pub(super) mod receive;
pub(super) mod send;
mod store;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::failure::Failure;

/// Standard input or output, without a buffer of its own.
fn plain(standard: &impl AsFd) -> io::Result<File> {
    standard.as_fd().try_clone_to_owned().map(File::from)
}

/// Why a command that moves blocks cannot run here.
pub(super) fn check_is_here(to: &super::To) -> Result<(), Failure> {
    if to.is_here()? {
        return Ok(());
    }
    Err(Failure::Usage("the blocks are moved on the machine of the server; run this command there, by ssh".into()))
}
