//! The pieces of a copy: data in requests of a fixed size, holes in long strides. Pure.

use std::collections::VecDeque;

use lunette_store::Run;

/// The longest hole in one piece.
const MAX_HOLE_BYTES: u64 = 64 << 20;

/// With fewer known runs than this, the source is asked for more.
const LOW_RUNS: usize = 64;

/// A part of the disk that is copied in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Whether the source says that it has no data there.
    pub(crate) hole: bool,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// Cuts the source into pieces, as far as the position of its data is known.
#[derive(Debug)]
pub(crate) struct Plan {
    len: u64,
    /// Pieces start on a multiple of this. So do holes, which shrink to fit.
    align: u64,
    /// Data is cut at multiples of this length, itself a multiple of `align`.
    block: u64,
    /// The start of the next piece.
    next: u64,
    /// The end of the known runs.
    known: u64,
    /// The ends of the known runs, and whether they hold data.
    runs: VecDeque<(u64, bool)>,
}

impl Plan {
    /// A plan for the bytes from `start`, a multiple of `align`, to `len`.
    pub(crate) fn new(start: u64, len: u64, align: u64, block: u64) -> Self {
        Self { len, align, block, next: start, known: start, runs: VecDeque::new() }
    }

    /// The range, up to the end, for which the source should now be asked where its data lies.
    pub(crate) fn unknown(&self) -> Option<(u64, u64)> {
        (self.runs.len() < LOW_RUNS && self.known < self.len).then(|| (self.known, self.len - self.known))
    }

    /// Adds runs, which begin at the first unknown byte. Without any, the source cannot tell, and all of it is data.
    pub(crate) fn learn(&mut self, runs: &[Run]) {
        for run in runs {
            self.known = self.known.saturating_add(run.len).min(self.len);
            self.runs.push_back((self.known, run.allocated));
        }
        if runs.is_empty() {
            self.known = self.len;
            self.runs.push_back((self.len, true));
        }
    }

    /// The end of the pieces handed out so far.
    pub(crate) fn position(&self) -> u64 {
        self.next
    }
}

impl Iterator for Plan {
    type Item = Piece;

    /// Takes the next piece, if it is known.
    fn next(&mut self) -> Option<Piece> {
        while let Some(&(end, data)) = self.runs.front() {
            // A block with data and hole counts as data.
            let end = match data {
                _ if end == self.len => end,
                true => end.next_multiple_of(self.align).min(self.len),
                false => end / self.align * self.align,
            };
            if end > self.next {
                let offset = self.next;
                let cut = if data { (offset / self.block + 1) * self.block } else { offset + MAX_HOLE_BYTES };
                self.next = end.min(cut);
                return Some(Piece { offset, len: self.next - offset, hole: !data });
            }
            self.runs.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(len: u64, allocated: bool) -> Run {
        Run { len, allocated }
    }

    fn pieces(plan: &mut Plan) -> Vec<(u64, u64, bool)> {
        plan.map(|piece| (piece.offset, piece.len, piece.hole)).collect()
    }

    #[test]
    fn data_is_cut_at_blocks_and_holes_stay_whole() {
        let mut plan = Plan::new(0, 100_000, 512, 16_384);
        plan.learn(&[run(4096, true), run(40_960, false), run(u64::MAX, true)]);
        let expected = [
            (0, 4096, false),
            (4096, 40_960, true),
            (45_056, 4096, false),
            (49_152, 16_384, false),
            (65_536, 16_384, false),
            (81_920, 16_384, false),
            (98_304, 1696, false),
        ];
        assert_eq!(pieces(&mut plan), expected);
        assert_eq!(plan.unknown(), None);
    }

    #[test]
    fn a_block_that_is_part_hole_is_data() {
        let mut plan = Plan::new(0, 16_384, 4096, 65_536);
        plan.learn(&[run(512, false), run(1024, true), run(7168, false)]);
        assert_eq!(pieces(&mut plan), [(0, 4096, false), (4096, 4096, true)]);
        assert_eq!(plan.unknown(), Some((8704, 7680)));
        plan.learn(&[]);
        assert_eq!(pieces(&mut plan), [(8192, 8192, false)]);
    }

    proptest! {
        /// For any answers of the source, each byte is in exactly one piece, and no data is in a hole.
        #[test]
        fn nothing_is_lost(
            runs in prop::collection::vec((0u64..20_000, any::<bool>()), 0..40),
            len in 0u64..300_000,
            align in prop::sample::select(vec![1u64, 512, 4096]),
            start_blocks in 0u64..10,
        ) {
            let start = (start_blocks * 4096).min(len / align * align);
            let mut plan = Plan::new(start, len, align, 16_384);
            let mut data = vec![false; len as usize];
            let mut at = start as usize;
            let mut answers = runs.chunks(3);
            let mut found = Vec::new();
            loop {
                if plan.unknown().is_some() {
                    let answer: Vec<Run> =
                        answers.next().unwrap_or(&[]).iter().map(|(len, data)| run(*len, *data)).collect();
                    for run in &answer {
                        let to = (at + run.len as usize).min(data.len());
                        data[at..to].fill(run.allocated);
                        at = to;
                    }
                    if answer.is_empty() {
                        data[at..].fill(true);
                        at = data.len();
                    }
                    plan.learn(&answer);
                }
                match plan.next() {
                    Some(piece) => found.push(piece),
                    None if plan.unknown().is_none() => break,
                    None => {}
                }
            }
            let mut next = start;
            for piece in &found {
                prop_assert_eq!(piece.offset, next);
                prop_assert!(piece.len > 0 && piece.offset % align == 0);
                prop_assert!(piece.hole || piece.len <= 16_384);
                let held = &data[piece.offset as usize..piece.end() as usize];
                prop_assert!(!piece.hole || !held.contains(&true));
                next = piece.end();
            }
            prop_assert_eq!(next, len);
            prop_assert_eq!(plan.position(), len);
        }
    }
}
