//! Reading and writing blocks.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use lunette_buffer::{Buffer, SharedBuffer};
use lunette_scsi::requests;

use super::Disk;
use crate::limits::{MAX_BLOCK_BYTES, MAX_REQUEST_BYTES};
use crate::{Error, Outcome, Pending, Request};

/// Bytes of one piece of a transfer that is longer than a request.
const PIECE_BYTES: u32 = 1 << 20;

/// Pieces of one transfer that are in flight together.
const PIECES_IN_FLIGHT: usize = 8;

/// A part of a transfer: first block, blocks, bytes.
type Piece = (u64, u32, usize);

impl Disk {
    /// Reads `blocks` blocks, at most [`max_transfer_blocks`](Self::max_transfer_blocks): one request.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::TooMuch`], [`Error::NoBuffer`], and the errors of the command.
    pub async fn read(&self, lba: u64, blocks: u32) -> Result<Buffer, Error> {
        let len = self.check_request(lba, blocks)?;
        whole(self.start_read(lba, blocks, self.session().reserve(len)?).await)
    }

    /// Reads any number of whole blocks into the caller's memory. The bytes are copied once.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read). The memory may then hold some of the blocks.
    pub async fn read_into(&self, lba: u64, into: &mut [u8]) -> Result<(), Error> {
        self.read_vectored(lba, &mut [IoSliceMut::new(into)]).await
    }

    /// Reads whole blocks into several pieces of memory, one after the other. The bytes are copied once.
    ///
    /// # Errors
    ///
    /// The errors of [`read_into`](Self::read_into).
    pub async fn read_vectored(&self, lba: u64, mut into: &mut [IoSliceMut<'_>]) -> Result<(), Error> {
        let mut pieces = self.pieces(lba, into.iter().map(|slice| slice.len()).sum())?;
        let mut running = VecDeque::with_capacity(PIECES_IN_FLIGHT);
        loop {
            while running.len() < PIECES_IN_FLIGHT
                && let Some((lba, blocks, len)) = pieces.next()
            {
                running.push_back(self.start_read(lba, blocks, self.session().reserve(len)?));
            }
            let Some(pending) = running.pop_front() else { return Ok(()) };
            into = scatter(&whole(pending.await)?, into);
        }
    }

    /// Writes whole blocks from the caller's memory. The bytes are copied once. With `fua` they are on the medium when
    /// it returns.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read). Some of the blocks may then be written.
    pub async fn write(&self, lba: u64, from: &[u8], fua: bool) -> Result<(), Error> {
        self.write_vectored(lba, &mut [IoSlice::new(from)], fua).await
    }

    /// Writes whole blocks from several pieces of memory, one after the other. The bytes are copied once.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write).
    pub async fn write_vectored(&self, lba: u64, mut from: &mut [IoSlice<'_>], fua: bool) -> Result<(), Error> {
        let mut pieces = self.pieces(lba, from.iter().map(|slice| slice.len()).sum())?;
        let mut running = VecDeque::with_capacity(PIECES_IN_FLIGHT);
        loop {
            while running.len() < PIECES_IN_FLIGHT
                && let Some((lba, blocks, len)) = pieces.next()
            {
                let mut buffer = self.session().buffer(len)?;
                from = gather(&mut buffer, from);
                running.push_back(self.start_write(lba, blocks, buffer.share(), fua));
            }
            let Some(pending) = running.pop_front() else { return Ok(()) };
            pending.await.check_whole()?;
        }
    }

    /// Writes blocks from a buffer of the pool without a copy, and gives the buffer back.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write).
    pub async fn write_buffer(&self, lba: u64, from: SharedBuffer, fua: bool) -> Result<Option<SharedBuffer>, Error> {
        let blocks = self.whole_blocks(lba, from.len())?;
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.check_request(lba, blocks)?;
        let outcome = self.start_write(lba, blocks, from, fua).await;
        outcome.check_whole()?;
        Ok(outcome.data_out)
    }

    fn start_read(&self, lba: u64, blocks: u32, into: Buffer) -> Pending {
        let request = Request { data_in: Some(into), ..self.request(requests::read(lba, blocks, false)) };
        self.execute(request)
    }

    fn start_write(&self, lba: u64, blocks: u32, from: SharedBuffer, fua: bool) -> Pending {
        let request = self.request(requests::write(lba, blocks, fua));
        let request = Request {
            data_out: Some(from),
            block_len: u16::try_from(self.facts().block_len()).unwrap_or(0),
            ..request
        };
        self.execute(request)
    }

    /// Checks what one request is to transfer, and gives its length in bytes.
    pub(crate) fn check_request(&self, lba: u64, blocks: u32) -> Result<usize, Error> {
        let len = self.check(lba, blocks.into())?;
        if blocks > self.max_transfer_blocks() {
            let limit = self.max_transfer_blocks() as usize * self.facts().block_len() as usize;
            return Err(Error::TooMuch { what: "the length of a request", limit });
        }
        // At most MAX_REQUEST_BYTES.
        Ok(len as usize)
    }

    /// The number of blocks in `len` bytes at `lba`, when they are whole and on the disk.
    fn whole_blocks(&self, lba: u64, len: usize) -> Result<u64, Error> {
        let (len, block_len) = (len as u64, u64::from(self.facts().block_len()));
        let blocks = len / block_len;
        if !len.is_multiple_of(block_len) {
            return Err(self.out_of_range(lba, blocks));
        }
        self.check(lba, blocks)?;
        Ok(blocks)
    }

    /// Cuts a transfer into requests.
    fn pieces(&self, lba: u64, len: usize) -> Result<impl Iterator<Item = Piece> + use<>, Error> {
        let block_len = self.facts().block_len();
        let blocks = self.whole_blocks(lba, len)?;
        let step = (PIECE_BYTES / block_len).clamp(1, self.max_transfer_blocks());
        Ok((0..blocks).step_by(step as usize).map(move |at| {
            let blocks = u64::from(step).min(blocks - at) as u32;
            (lba + at, blocks, blocks as usize * block_len as usize)
        }))
    }
}

const _: () = assert!(PIECE_BYTES as usize <= MAX_REQUEST_BYTES, "a piece is a request");
const _: () = assert!(PIECE_BYTES >= MAX_BLOCK_BYTES, "a piece has at least one block");

/// The data of a read that must be complete.
fn whole(outcome: Outcome) -> Result<Buffer, Error> {
    outcome.check_whole()?;
    // Without its memory a request has not ended well.
    outcome.data_in.ok_or(Error::Closed)
}

/// Fills the slices with `bytes`; gives what is left of them.
fn scatter<'a, 'b>(mut bytes: &[u8], mut into: &'a mut [IoSliceMut<'b>]) -> &'a mut [IoSliceMut<'b>] {
    while let Some(first) = into.first_mut().filter(|_| !bytes.is_empty()) {
        let len = first.len().min(bytes.len());
        first[..len].copy_from_slice(&bytes[..len]);
        bytes = &bytes[len..];
        IoSliceMut::advance_slices(&mut into, len);
    }
    into
}

/// Fills `into` from the slices; gives what is left of them.
fn gather<'a, 'b>(mut into: &mut [u8], mut from: &'a mut [IoSlice<'b>]) -> &'a mut [IoSlice<'b>] {
    while let Some(first) = from.first().filter(|_| !into.is_empty()) {
        let len = first.len().min(into.len());
        into[..len].copy_from_slice(&first[..len]);
        into = &mut into[len..];
        IoSlice::advance_slices(&mut from, len);
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spread_over_slices_and_collected_again() {
        let (mut a, mut b, mut c) = ([0; 3], [0; 0], [0; 4]);
        let mut slices = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        let rest = scatter(&[1, 2], &mut slices);
        scatter(&[3, 4, 5, 6, 7], rest);
        assert_eq!((a, c), ([1, 2, 3], [4, 5, 6, 7]));

        let mut slices = [IoSlice::new(&a), IoSlice::new(&b), IoSlice::new(&c)];
        let mut out = [0; 7];
        let rest = gather(&mut out[..5], &mut slices);
        gather(&mut out[5..], rest);
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 7]);
    }
}
