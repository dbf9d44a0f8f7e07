//! `lunette-lab rewrite`: pages of a file are rewritten while they are sent.
//!
//! Each block of a file is written to a disk again and again. As soon as a write of it is on its way, a second thread,
//! as another program would, rewrites the block's pages. Then the block is read back, and compared with what it was
//! when its write was asked for. The data leaves from the pages themselves, which nothing that ships does for writes,
//! or from a copy, as everything that ships does.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lunette_buffer::Pool;
use lunette_quanta::{Cipher, Codec, DataKey, Holes, KeyRing, QuantumSize, Sealing, Seed, VolumeId};
use lunette_session::keys::{Choices, Offer};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};

use super::client::{Client, PLAIN_BLOCK, Pages, plain_offer, read, write};
use crate::experiment::Figures;

/// Blocks of the file.
const BLOCKS: usize = 16;
/// From one block to the next: whole pages.
const STRIDE: usize = 8192;
/// Bytes of an EDU with a quantum of 4,096.
const EDU_LEN: usize = 4096 + 64;
/// Blocks before the first EDU: the copies of the header.
const HEADERS: u32 = 2;
const POOL_LEN: usize = 16 << 20;
/// How long either thread leaves the blocks alone when there is nothing to do.
const PAUSE: Duration = Duration::from_micros(5);

/// Writes that were read back.
pub(super) const WRITES: &str = "writes";
/// The name of blocks that were stored in whole as they became later.
pub(super) const LATER: &str = "later";
/// The name of blocks that were stored as a mixture.
pub(super) const MIXED: &str = "mixed";
/// Data segments that the target has refused for their digest, and that were sent again from a copy.
pub(super) const DIGEST_ERRORS: &str = "digest_errors";

/// Write blocks of a file whose pages are rewritten meanwhile, and say what was stored.
///
/// Prints it as one line of JSON.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    /// The target, whose disk is LUN 0
    target: SocketAddr,
    /// Send the pages of the file themselves; without it, a copy
    #[arg(long)]
    pages: bool,
    /// With data digests; what has a wrong one is sent again (recovery level 1)
    #[arg(long)]
    digests: bool,
    /// The blocks are EDUs, for a disk with quanta of 4096 bytes
    #[arg(long)]
    quanta: bool,
    /// Seconds
    #[arg(long, default_value_t = 60.0)]
    time: f64,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let content = if options.quanta { Content::Edus(codec()?) } else { Content::Words };
    let shared = Shared::new(content)?;
    shared.fill_all()?;
    let figures = thread::scope(|scope| {
        let rewriter = scope.spawn(|| shared.rewrite());
        let figures = write_all(&shared, options);
        shared.over.store(true, Ordering::Release);
        rewriter.join().expect("the thread does not panic")?;
        figures
    })?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(ExitCode::SUCCESS)
}

/// The file, and what both threads know of its blocks.
struct Shared {
    file: File,
    content: Content,
    /// The generation that each block has to get, and the one that it has.
    wanted: [AtomicU64; BLOCKS],
    there: [AtomicU64; BLOCKS],
    over: AtomicBool,
}

/// The content of blocks.
enum Content {
    /// The number of their generation, in each word.
    Words,
    /// An EDU of that.
    Edus(Codec),
}

/// The content of a block that was read back.
#[derive(Debug, PartialEq)]
enum Found {
    /// All of it is of one generation.
    Whole(u64),
    Mixed,
}

impl Content {
    fn len(&self) -> usize {
        if matches!(self, Self::Words) { STRIDE } else { EDU_LEN }
    }

    fn block_len(&self) -> usize {
        if matches!(self, Self::Words) { PLAIN_BLOCK } else { EDU_LEN }
    }

    fn lba(&self, block: usize) -> u32 {
        if matches!(self, Self::Words) { (block * STRIDE / PLAIN_BLOCK) as u32 } else { block as u32 + HEADERS }
    }

    /// A block of that generation.
    fn make(&self, block: usize, generation: u64, bytes: &mut [u8]) {
        match self {
            Self::Words => stamp(bytes, generation),
            Self::Edus(codec) => {
                let mut plain = [0; 4096];
                stamp(&mut plain, generation);
                // A seed of its own for each block and generation; the key serves no other process.
                let mut seed = [0; 32];
                seed[8..16].copy_from_slice(&generation.to_le_bytes());
                seed[16..24].copy_from_slice(&(block as u64).to_le_bytes());
                codec.seal(
                    Sealing { position: block as u64, version: generation, seed: Seed::new(seed) },
                    &plain,
                    bytes,
                );
            }
        }
    }

    fn look(&self, block: usize, bytes: &[u8]) -> Found {
        match self {
            Self::Words => uniform(bytes),
            Self::Edus(codec) => {
                let mut plain = [0; 4096];
                let opened = codec.open(block as u64, bytes, &mut plain);
                if opened.is_ok() { uniform(&plain) } else { Found::Mixed }
            }
        }
    }
}

fn stamp(bytes: &mut [u8], generation: u64) {
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&generation.to_le_bytes()));
}

fn uniform(bytes: &[u8]) -> Found {
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let first = words.next().unwrap_or_default();
    if words.all(|word| word == first) { Found::Whole(first) } else { Found::Mixed }
}

fn codec() -> Result<Codec> {
    let keys = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32]))?;
    Ok(Codec::new(VolumeId([1; 16]), QuantumSize::B4096, Holes::Allowed, keys))
}

impl Shared {
    fn new(content: Content) -> Result<Self> {
        let file = File::from(memfd_create("blocks", MemfdFlags::CLOEXEC)?);
        let numbers = || std::array::from_fn(|_| AtomicU64::new(0));
        Ok(Self { file, content, wanted: numbers(), there: numbers(), over: AtomicBool::new(false) })
    }

    fn fill_all(&self) -> Result<()> {
        (0..BLOCKS).try_for_each(|block| self.fill(block, 0))
    }

    fn fill(&self, block: usize, generation: u64) -> Result<()> {
        let mut bytes = vec![0; self.content.len()];
        self.content.make(block, generation, &mut bytes);
        Ok(self.file.write_all_at(&bytes, (block * STRIDE) as u64)?)
    }

    /// Rewrites each block whose write is on its way, until it is over.
    fn rewrite(&self) -> Result<()> {
        // Where the measured processes are is not its business.
        let _ = crate::net::sys::stay_on_any();
        while !self.over.load(Ordering::Acquire) {
            let mut idle = true;
            for block in 0..BLOCKS {
                let wanted = self.wanted[block].load(Ordering::Acquire);
                if wanted > self.there[block].load(Ordering::Relaxed) {
                    self.fill(block, wanted)?;
                    self.there[block].store(wanted, Ordering::Release);
                    idle = false;
                }
            }
            if idle {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

/// The knowledge of the writing thread about a block.
#[derive(Default)]
struct Block {
    generation: u64,
    /// A write or a read of it is under way.
    busy: bool,
    /// Where the copy of its content lies.
    place: usize,
    /// Bytes that have to leave from its pages.
    unsent: usize,
}

struct FromPages<'a> {
    shared: &'a Shared,
    blocks: [Block; BLOCKS],
}

impl FromPages<'_> {
    fn block_of(&self, slice: &[u8]) -> Option<usize> {
        let (at, len) = (slice.as_ptr() as usize, self.shared.content.len());
        self.blocks.iter().position(|block| block.unsent > 0 && (block.place..block.place + len).contains(&at))
    }
}

impl Pages for FromPages<'_> {
    fn offset_of(&self, slice: &[u8]) -> Option<u64> {
        let block = self.block_of(slice)?;
        Some((block * STRIDE + slice.as_ptr() as usize - self.blocks[block].place) as u64)
    }

    /// When all of a block is on its way, its pages may be rewritten. What is sent a second time comes from the copy.
    fn send(&mut self, stream: &TcpStream, slice: &[u8], offset: u64) -> Result<usize> {
        let sent = sendfile(stream, &self.shared.file, Some(&mut { offset }), slice.len())?;
        let block = self.block_of(slice).context("a slice of a block")?;
        self.blocks[block].unsent -= sent;
        if self.blocks[block].unsent == 0 {
            self.shared.wanted[block].store(self.blocks[block].generation + 1, Ordering::Release);
        }
        Ok(sent)
    }
}

fn write_all(shared: &Shared, options: &Options) -> Result<Figures> {
    let offer = if options.digests {
        // Recovery asks for Data-Out again, and not for commands.
        Offer { data_digest: Choices(0b10), error_recovery_level: 1, immediate_data: false, ..plain_offer() }
    } else {
        plain_offer()
    };
    let mut client = Client::log_in(options.target, offer)?;
    let pool = Pool::new(POOL_LEN);
    let mut pages = FromPages { shared, blocks: Default::default() };
    let (mut writes, mut later, mut mixed) = (0_u32, 0_u32, 0_u32);
    let end = Instant::now() + Duration::from_secs_f64(options.time);
    loop {
        for block in 0..BLOCKS {
            let is_there = shared.there[block].load(Ordering::Acquire) == pages.blocks[block].generation;
            if !pages.blocks[block].busy && is_there {
                submit(&mut client, &pool, &mut pages, block, options.pages)?;
            }
        }
        if pages.blocks.iter().all(|block| !block.busy) {
            // The other thread has not come to any of them. With a real-time priority, this one would keep the system
            // from its work on packets.
            thread::sleep(PAUSE);
            continue;
        }
        let (command, response) = client.completed(&mut pages)?;
        ensure!(response.response == 0 && response.status == 0, "a command ended with {response:?}");
        let number = command.user as usize;
        let block = &mut pages.blocks[number];
        let Some(bytes) = command.data_in else {
            let place = pool.take(shared.content.len()).context("the pool is too small")?;
            let lba = shared.content.lba(number);
            client.submit(read(command.user, lba, shared.content.block_len(), place))?;
            continue;
        };
        writes += 1;
        match shared.content.look(number, &bytes) {
            Found::Whole(generation) if generation == block.generation => {}
            Found::Whole(generation) if generation == block.generation + 1 => later += 1,
            Found::Whole(generation) => bail!("a block of generation {} came back as {generation}", block.generation),
            Found::Mixed => mixed += 1,
        }
        (block.busy, block.generation) = (false, block.generation + 1);
        if Instant::now() >= end {
            break;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let digest_errors = client.recovery_r2ts() as f64;
    let counts = [(WRITES, writes), (LATER, later), (MIXED, mixed)];
    let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), f64::from(count)));
    Ok(counts.chain([(DIGEST_ERRORS.to_owned(), digest_errors)]).collect())
}

/// Writes a block as it is now.
fn submit(client: &mut Client, pool: &Pool, pages: &mut FromPages<'_>, number: usize, by_pages: bool) -> Result<()> {
    let content = &pages.shared.content;
    let mut copy = pool.take(content.len()).context("the pool is too small")?;
    pages.shared.file.read_exact_at(&mut copy, (number * STRIDE) as u64)?;
    let (len, data) = (copy.len(), copy.share());
    let block = &mut pages.blocks[number];
    block.busy = true;
    block.place = data.as_ptr() as usize;
    block.unsent = if by_pages { len } else { 0 };
    client.submit(write(number as u64, content.lba(number), content.block_len(), data))?;
    client.send(pages)?;
    if !by_pages {
        pages.shared.wanted[number].store(pages.blocks[number].generation + 1, Ordering::Release);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_mixed_blocks_are_told_apart() {
        for content in [Content::Words, Content::Edus(codec().expect("a key"))] {
            let len = content.len();
            let [mut one, mut other] = [vec![0; len], vec![0; len]];
            content.make(3, 7, &mut one);
            content.make(3, 8, &mut other);
            assert_eq!(content.look(3, &one), Found::Whole(7));
            assert_eq!(content.look(3, &other), Found::Whole(8));
            one[len / 2..].copy_from_slice(&other[len / 2..]);
            assert_eq!(content.look(3, &one), Found::Mixed);
        }
    }

    /// The way out: what a digest says of an EDU depends on its place alone, so another intact one in that place has
    /// the same.
    #[test]
    fn all_edus_of_a_block_have_one_digest() {
        let content = Content::Edus(codec().expect("a key"));
        let digest = |block, generation| {
            let mut edu = [0; EDU_LEN];
            content.make(block, generation, &mut edu);
            lunette_crc32c::crc32c(&edu)
        };
        assert_eq!(digest(3, 7), digest(3, 8));
        assert_ne!(digest(3, 7), digest(4, 7));
    }
}
