//! Flushing, zeroes, space, and comparing.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use lunette_buffer::SharedBuffer;
use lunette_scsi::unmap::{self, UnmapRange};
use lunette_scsi::{SenseKey, answers, requests};

use super::Disk;
use crate::limits::MAX_MAP_COMMANDS;
use crate::{Error, Repeat, Request};

/// The ways to write zeroes, the best first. When a disk refuses one, the next one is used from then on.
///
/// WRITE SAME without data (NDOB) is not among them: it would save one block, and disks older than the bit ignore it.
/// istgt then waits for the block for ever, tgt answers with MEDIUM ERROR.
const ZEROES: [Zeroes; 2] = [Zeroes::OneBlock, Zeroes::Plain];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zeroes {
    /// WRITE SAME(16) with one block of zeroes.
    OneBlock,
    /// WRITE with all the zeroes.
    Plain,
}

/// Bytes of zeroes in one WRITE.
const PLAIN_BYTES: u32 = 1 << 20;

/// Blocks of one WRITE SAME to a disk without a limit of its own. Some disks take long for many.
const WRITE_SAME_BLOCKS: u64 = 65_535;

impl Disk {
    /// Puts all acknowledged writes on the medium (SYNCHRONIZE CACHE). If [`power_ons`](Self::power_ons) has changed
    /// since a write, that write may be lost all the same.
    ///
    /// # Errors
    ///
    /// The errors of the command.
    pub async fn flush(&self) -> Result<(), Error> {
        self.done(self.request(requests::synchronize_cache())).await
    }

    /// Frees the space of blocks (UNMAP).
    /// [`Provisioning::unmapped_zero`](lunette_scsi::answers::Provisioning::unmapped_zero) tells whether they read as
    /// zeroes from then on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], and the errors of the commands: a disk that cannot unmap refuses.
    pub async fn unmap(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        self.check(lba, blocks)?;
        let step = u64::from(self.facts().limits.max_unmap_blocks.max(1));
        for (lba, blocks) in steps(lba, blocks, step) {
            let list = unmap::emit(&[UnmapRange { lba, blocks }]);
            let data_out = Some(self.shared(&list)?);
            self.done(Request { data_out, ..self.request(requests::unmap(list.len() as u16)) }).await?;
        }
        Ok(())
    }

    /// Makes blocks read as zeroes, in the cheapest way that the disk supports. With `may_unmap` the disk may free
    /// their space.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], and the errors of the commands.
    pub async fn write_zeroes(&self, lba: u64, blocks: u64, may_unmap: bool) -> Result<(), Error> {
        self.check(lba, blocks)?;
        let provisioning = &self.facts().provisioning;
        let unmap = may_unmap && provisioning.write_same_16 && provisioning.unmapped_zero;
        let mut at = 0;
        while at < blocks {
            let index = usize::from(self.0.zeroes.load(Ordering::Relaxed)).min(ZEROES.len() - 1);
            let how = self.quicker(ZEROES[index]);
            let step = (blocks - at).min(self.zeroes_per_command(how)) as u32;
            match self.zeroes_by(how, lba + at, step, unmap).await {
                Ok(()) => at += u64::from(step),
                Err(error) if how != Zeroes::Plain && is_unknown(&error) => {
                    self.0.zeroes.store(index as u8 + 1, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// WRITE is quicker on a disk that accepts fewer blocks in a WRITE SAME than in a WRITE.
    fn quicker(&self, how: Zeroes) -> Zeroes {
        let is_slow = self.zeroes_per_command(how) < self.zeroes_per_command(Zeroes::Plain);
        if is_slow { Zeroes::Plain } else { how }
    }

    fn zeroes_per_command(&self, how: Zeroes) -> u64 {
        match (how, self.facts().limits.max_write_same) {
            (Zeroes::Plain, _) => {
                u64::from((PLAIN_BYTES / self.facts().block_len()).clamp(1, self.max_transfer_blocks()))
            }
            (_, 0) => WRITE_SAME_BLOCKS,
            (_, limit) => limit.min(u32::MAX.into()),
        }
    }

    async fn zeroes_by(&self, how: Zeroes, lba: u64, blocks: u32, unmap: bool) -> Result<(), Error> {
        let block_len = self.facts().block_len() as usize;
        let (cdb, len) = match how {
            Zeroes::OneBlock => (requests::write_same(lba, blocks, unmap), block_len),
            Zeroes::Plain => (requests::write(lba, blocks, false), blocks as usize * block_len),
        };
        let mut zeroes = self.session().buffer(len)?;
        zeroes.fill(0);
        self.done(Request { data_out: Some(zeroes.share()), ..self.request(cdb) }).await
    }

    /// Compares blocks with `expected` and, if they are equal, writes `new` in their place, atomically (COMPARE AND
    /// WRITE). Both have the same length, at most
    /// [`BlockLimits::max_compare_and_write`](lunette_scsi::answers::BlockLimits::max_compare_and_write).
    ///
    /// # Errors
    ///
    /// [`Error::Miscompare`]; [`Error::InDoubt`] when the connection was lost meanwhile; [`Error::OutOfRange`] and
    /// [`Error::TooMuch`].
    pub async fn compare_and_write(&self, lba: u64, expected: &[u8], new: &[u8]) -> Result<(), Error> {
        let limit = usize::from(self.facts().limits.max_compare_and_write);
        let blocks = new.len() / self.facts().block_len() as usize;
        let whole = new.len().is_multiple_of(self.facts().block_len() as usize) && new.len() == expected.len();
        if !whole || blocks == 0 {
            return Err(self.out_of_range(lba, blocks as u64));
        }
        self.check(lba, blocks as u64)?;
        if blocks > limit {
            return Err(Error::TooMuch { what: "the number of blocks to compare and write", limit });
        }
        let data_out = Some(self.shared(&[expected, new].concat())?);
        let cdb = requests::compare_and_write(lba, blocks as u8, false);
        self.done(Request { data_out, repeat: Repeat::IfNotRun, ..self.request(cdb) }).await
    }

    /// Tells which of the blocks have space allocated, as runs of a length and whether they have it, in order from the
    /// first block. The runs end before the last block if 256 commands did not tell about all. A disk without
    /// provisioning has all blocks allocated.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], and the errors of the commands.
    pub async fn allocation(&self, lba: u64, blocks: u64) -> Result<Vec<(u64, bool)>, Error> {
        /// GET LBA STATUS data of 255 descriptors.
        const LEN: u32 = 8 + 255 * 16;
        self.check(lba, blocks)?;
        if !self.facts().capacity.provisioned {
            return Ok(vec![(blocks, true)]);
        }
        let mut runs: Vec<(u64, bool)> = Vec::new();
        let mut at = 0;
        for _ in 0..MAX_MAP_COMMANDS {
            if at >= blocks {
                break;
            }
            let answer = self.ask(requests::get_lba_status(lba + at, LEN), LEN as usize).await;
            let data = match answer {
                Err(error) if is_unknown(&error) => return Ok(vec![(blocks, true)]),
                answer => answer?,
            };
            let found = answers::lba_status(&data).filter(|(first, runs)| *first <= lba + at && !runs.is_empty());
            let (first, found) = found.ok_or(BAD_MAP)?;
            // The answer may begin before the block that was asked for.
            let mut skip = lba + at - first;
            let before = at;
            for (len, mapped) in found {
                let len_left = len.saturating_sub(skip).min(blocks - at);
                skip = skip.saturating_sub(len);
                at += len_left;
                match runs.last_mut() {
                    Some(last) if last.1 == mapped => last.0 += len_left,
                    _ if len_left > 0 => runs.push((len_left, mapped)),
                    _ => {}
                }
            }
            if at == before {
                return Err(BAD_MAP);
            }
        }
        Ok(runs)
    }

    async fn done(&self, request: Request) -> Result<(), Error> {
        self.execute(request).await.check_whole()
    }

    fn shared(&self, bytes: &[u8]) -> Result<SharedBuffer, Error> {
        let mut buffer = self.session().buffer(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer.share())
    }
}

const BAD_MAP: Error =
    Error::BadAnswer { command: "GET LBA STATUS", what: Cow::Borrowed("nothing about the block asked for") };

/// Splits a run of blocks into steps that fit a command.
fn steps(lba: u64, blocks: u64, step: u64) -> impl Iterator<Item = (u64, u32)> {
    let step = step.min(u32::MAX.into());
    (0..blocks).step_by(step as usize).map(move |at| (lba + at, step.min(blocks - at) as u32))
}

/// Whether the disk does not support the command, or this form of it.
fn is_unknown(error: &Error) -> bool {
    error.sense().is_some_and(|sense| sense.key == SenseKey::ILLEGAL_REQUEST)
}
