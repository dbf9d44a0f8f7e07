//! The contestants of the benchmark.

use std::hint::black_box;

use super::sampling::Slots;
use crate::{Crc32c, Kernel, copy, crc32c};

/// On messages longer than this, kernels without special instructions are too slow to be sampled as often as the
/// others.
const SLOW_FROM: usize = 64 << 10;

/// Rounds of a slow kernel on such messages.
const SLOW_ROUNDS: usize = 3;

/// A contestant: one way to do one operation.
pub(super) struct Contestant {
    pub(super) op: &'static str,
    pub(super) kernel: &'static str,
    slow: bool,
    series: Box<Series>,
}

/// Repeats the operation, the given number of times, each on the next pair of buffers. The loop is compiled with the
/// operation, so no indirect call is measured.
type Series = dyn Fn(&mut Slots<'_>, usize);

impl Contestant {
    /// All contestants, grouped by operation.
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::new("digest", "auto", |_, src| crc32c(src)),
            Self::new("digest", "crc-fast", |_, src| crc_fast::crc32_iscsi(src)),
            Self::new("digest", "crc32c", |_, src| ::crc32c::crc32c(src)),
            Self::new("memcpy", "memcpy", |dst, src| {
                dst.copy_from_slice(src);
                0
            }),
            Self::new("memcpy+digest", "auto", |dst, src| {
                dst.copy_from_slice(src);
                crc32c(dst)
            }),
            Self::new("memcpy+digest", "crc-fast", |dst, src| {
                dst.copy_from_slice(src);
                crc_fast::crc32_iscsi(dst)
            }),
            Self::new("copy", "auto", copy),
        ];
        for kernel in Kernel::all() {
            all.push(Self {
                slow: kernel.needs().is_none(),
                ..Self::new("digest", kernel.name(), move |_, src| kernel.crc32c(src))
            });
            all.push(Self {
                slow: kernel.needs().is_none(),
                ..Self::new("copy", kernel.name(), move |dst, src| {
                    let mut digest = Crc32c::new();
                    kernel.copy(&mut digest, dst, src);
                    digest.finish()
                })
            });
        }
        all.sort_by_key(|contestant| contestant.op);
        all
    }

    fn new(op: &'static str, kernel: &'static str, work: impl Fn(&mut [u8], &[u8]) -> u32 + 'static) -> Self {
        let series = move |slots: &mut Slots<'_>, calls| {
            for _ in 0..calls {
                let (dst, src) = slots.next();
                black_box(work(black_box(dst), black_box(src)));
            }
        };
        Self { op, kernel, slow: false, series: Box::new(series) }
    }

    /// Whether the contestant takes part in this round.
    pub(super) fn takes_part(&self, bytes: usize, round: usize) -> bool {
        !self.slow || bytes <= SLOW_FROM || round < SLOW_ROUNDS
    }

    /// Does the operation `calls` times, each on the next pair of buffers.
    pub(super) fn work(&self, slots: &mut Slots<'_>, calls: usize) {
        (self.series)(slots, calls);
    }
}
