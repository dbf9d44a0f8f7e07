//! How it is measured.

use std::time::Instant;

use super::Options;
use super::contestants::Contestant;

/// Sources and destinations begin at the start of a cache line.
const LINE: usize = 64;

/// Untimed calls before a warm sample. The first brings the destination back that another contestant may have put past the cache.
const WARM_UPS: usize = 3;

/// A step through the slots of the memory for cold calls that visits each once and has no neighbours following one another: coprime to any power
/// of two and to most counts.
const STRIDE: usize = 7919;

/// The memory that all samples use.
pub(super) struct Arena {
    src: Vec<u8>,
    dst: Vec<u8>,
    /// Where the next cold call goes.
    slot: usize,
}

impl Arena {
    pub(super) fn new(options: &Options) -> Self {
        let longest = options.sizes.iter().copied().max().unwrap_or(0);
        let len = options.cold_bytes.max(longest) + LINE;
        // Written to, so that no two pages are one page of zeroes.
        Self { src: vec![0x5A; len], dst: vec![0xA5; len], slot: 0 }
    }

    /// The median seconds of one call, for each contestant.
    pub(super) fn medians(
        &mut self,
        contestants: &[Contestant],
        bytes: usize,
        cold: bool,
        options: &Options,
    ) -> Vec<Option<f64>> {
        let rounds = if bytes > 1 << 20 { options.rounds.div_ceil(3) } else { options.rounds };
        let mut samples = vec![Vec::new(); contestants.len()];
        for round in 0..rounds {
            for (contestant, samples) in contestants.iter().zip(&mut samples) {
                if contestant.takes_part(bytes, round) {
                    samples.push(self.sample(contestant, bytes, cold, options));
                }
            }
        }
        samples.iter_mut().map(|samples| median(samples)).collect()
    }

    /// Seconds of one call, from one series of them.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn sample(&mut self, contestant: &Contestant, bytes: usize, cold: bool, options: &Options) -> f64 {
        let calls = options.bytes_per_sample.div_ceil(bytes.max(1));
        // Short messages would walk through pages faster than anything else does: a quarter of the calls will do for them.
        let calls = if cold { calls.div_ceil(4) } else { calls };
        let mut slots = self.slots(bytes, if cold { options.cold_bytes } else { 0 });
        if !cold {
            contestant.work(&mut slots, WARM_UPS);
        }
        let begin = Instant::now();
        contestant.work(&mut slots, calls);
        let seconds = begin.elapsed().as_secs_f64() / calls as f64;
        self.slot = slots.slot;
        seconds
    }

    /// Buffers of `bytes` bytes from the first `region` bytes; always the same if they fill that.
    fn slots(&mut self, bytes: usize, region: usize) -> Slots<'_> {
        let slot_bytes = bytes.next_multiple_of(LINE).max(LINE);
        let src_start = self.src.as_ptr().align_offset(LINE);
        let dst_start = self.dst.as_ptr().align_offset(LINE);
        Slots {
            src: &self.src[src_start..],
            dst: &mut self.dst[dst_start..],
            bytes,
            slot_bytes,
            count: (region / slot_bytes).max(1),
            slot: self.slot,
        }
    }
}

/// Pairs of buffers, one after another.
pub(super) struct Slots<'a> {
    src: &'a [u8],
    dst: &'a mut [u8],
    bytes: usize,
    slot_bytes: usize,
    count: usize,
    slot: usize,
}

impl Slots<'_> {
    /// The next destination and source.
    #[inline]
    pub(super) fn next(&mut self) -> (&mut [u8], &[u8]) {
        if self.count > 1 {
            self.slot = (self.slot + STRIDE) % self.count;
        } else {
            self.slot = 0;
        }
        let offset = self.slot * self.slot_bytes;
        (&mut self.dst[offset..offset + self.bytes], &self.src[offset..offset + self.bytes])
    }
}

fn median(samples: &mut [f64]) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}
