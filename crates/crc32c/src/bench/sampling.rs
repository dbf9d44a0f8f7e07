//! Samples: how calls are timed.

use std::time::Instant;

use super::Options;
use super::contestants::Contestant;

/// Sources and destinations begin at the start of a cache line.
const LINE: usize = 64;

/// Untimed calls before a warm sample. The first brings the destination back into the cache after a contestant that
/// stored past it.
const WARM_UPS: usize = 3;

/// The step from one slot of the memory for cold calls to the next. It visits each slot once and never two neighbours
/// in a row, because it is coprime to any power of two and to most counts.
const STRIDE: usize = 7919;

/// The memory that all samples use.
pub(super) struct Arena {
    src: Vec<u8>,
    dst: Vec<u8>,
    /// The slot of the next cold call.
    slot: usize,
}

impl Arena {
    pub(super) fn new(options: &Options) -> Self {
        let longest = options.sizes.iter().copied().max().unwrap_or(0);
        let len = options.cold_bytes.max(longest) + LINE;
        // The bytes are not zero, so that no two pages are the shared page of zeroes.
        Self { src: vec![0x5A; len], dst: vec![0xA5; len], slot: 0 }
    }

    /// The median of the seconds that one call takes, for each contestant.
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

    /// The seconds that one call takes, from one series of calls.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn sample(&mut self, contestant: &Contestant, bytes: usize, cold: bool, options: &Options) -> f64 {
        let calls = options.bytes_per_sample.div_ceil(bytes.max(1));
        // Cold calls on short messages would touch pages faster than any real use does: a quarter of the calls is
        // enough.
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

    /// Pairs of buffers of `bytes` bytes each from the first `region` bytes; always the same pair if one fills the
    /// region.
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
    /// The next pair of destination and source.
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
