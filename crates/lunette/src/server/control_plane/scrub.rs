//! Scrubs that clients of the API start: what a pass finds becomes the result of a job.

use std::ops::ControlFlow;

use lunette_api::jobs::{JobRun, Outcome};
use lunette_device::{ScrubEnd, ScrubOwner, ScrubbedBlocks};
use serde::Serialize;

/// Entries of each list of a result. Its counts cover all.
const MAX_FINDINGS: usize = 64;

/// The longest text of an error in a result.
const MAX_ERROR_BYTES: usize = 256;

/// The owner of a pass that is a job.
pub(super) struct ScrubJob {
    run: JobRun,
    block_size: u64,
    unit_bytes: u64,
    found: Findings,
}

/// The result of a job.
#[derive(Debug, Default, Serialize)]
struct Findings {
    /// Bytes that were read, or could not be.
    scrubbed_bytes: u64,
    damaged_blocks: u64,
    /// The LBAs of the first ones.
    damaged: Vec<u64>,
    unreadable_blocks: u64,
    /// The first runs of them.
    unreadable: Vec<Unreadable>,
}

/// Neighbouring blocks that cannot be read.
#[derive(Debug, Serialize)]
struct Unreadable {
    first_lba: u64,
    blocks: u64,
    error: String,
}

impl ScrubJob {
    pub(super) fn new(run: JobRun, block_size: u32) -> Self {
        Self { run, block_size: block_size.into(), unit_bytes: 0, found: Findings::default() }
    }
}

impl Findings {
    fn add(&mut self, ScrubbedBlocks { first_lba, blocks, damaged, .. }: ScrubbedBlocks) {
        match damaged {
            Ok(damaged) => {
                self.damaged_blocks += damaged.len() as u64;
                let room = MAX_FINDINGS - self.damaged.len();
                self.damaged.extend(damaged.into_iter().take(room));
            }
            Err(error) => {
                self.unreadable_blocks += blocks;
                let mut error = error.to_string();
                error.truncate(error.floor_char_boundary(MAX_ERROR_BYTES));
                let is_full = self.unreadable.len() >= MAX_FINDINGS;
                match self.unreadable.last_mut() {
                    // Neighbours that fail alike are one run.
                    Some(last) if last.first_lba + last.blocks == first_lba && last.error == error => {
                        last.blocks += blocks;
                    }
                    _ if is_full => {}
                    _ => self.unreadable.push(Unreadable { first_lba, blocks, error }),
                }
            }
        }
    }

    fn outcome(self, end: Result<(), ScrubEnd>) -> Outcome {
        let found = self.summary();
        // A structure of numbers and texts becomes JSON.
        let result = serde_json::to_value(&self).unwrap_or_default();
        match (end, found) {
            (Err(ScrubEnd::Stopped), _) => Outcome::Cancelled { result },
            (Err(end), None) => Outcome::Failed { message: end.to_string(), result },
            (Err(end), Some(found)) => Outcome::Failed { message: format!("{end}; until then: {found}"), result },
            (Ok(()), Some(message)) => Outcome::Failed { message, result },
            (Ok(()), None) => Outcome::Succeeded { message: "no damage found".into(), result },
        }
    }

    /// The damage in a few words.
    fn summary(&self) -> Option<String> {
        let Self { damaged_blocks, unreadable_blocks, .. } = self;
        let counts = [(*damaged_blocks, "damaged blocks"), (*unreadable_blocks, "unreadable blocks")];
        let found = counts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = found.map(|(count, what)| format!("{what}: {count}")).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl ScrubOwner for ScrubJob {
    fn scrubbed(&mut self, blocks: ScrubbedBlocks) -> ControlFlow<()> {
        self.found.scrubbed_bytes = (blocks.first_lba + blocks.blocks) * self.block_size;
        self.unit_bytes = blocks.unit_blocks * self.block_size;
        self.found.add(blocks);
        self.run.report(self.found.scrubbed_bytes, self.unit_bytes)
    }

    fn ended(self, end: Result<(), ScrubEnd>) {
        self.run.end(self.found.outcome(end));
    }
}

#[cfg(test)]
mod tests {
    use lunette_store::StoreError;
    use serde_json::json;

    use super::*;

    fn blocks(first_lba: u64, damaged: Result<Vec<u64>, &str>) -> ScrubbedBlocks {
        let damaged = damaged.map_err(|error| StoreError::Io(std::io::Error::other(error.to_owned())));
        ScrubbedBlocks { first_lba, blocks: 8, unit_blocks: 1000, damaged }
    }

    #[test]
    fn findings_are_counted_and_the_first_are_listed() {
        let mut found = Findings::default();
        found.add(blocks(0, Ok(vec![3])));
        found.add(blocks(8, Err("bad")));
        found.add(blocks(16, Err("bad")));
        found.add(blocks(24, Err("worse")));
        let Outcome::Failed { message, result } = found.outcome(Ok(())) else { panic!("it has found damage") };
        assert_eq!(message, "damaged blocks: 1, unreadable blocks: 24");
        assert_eq!((&result["damaged"], &result["unreadable_blocks"]), (&json!([3]), &json!(24)));
        let runs: Vec<_> = result["unreadable"].as_array().unwrap().iter().map(|run| &run["blocks"]).collect();
        assert_eq!(runs, [16, 8]);
    }

    #[test]
    fn lists_of_findings_and_their_texts_are_bounded() {
        let mut found = Findings::default();
        for number in 0..200 {
            found.add(blocks(number * 16, Ok(vec![number * 16])));
            found.add(blocks(number * 16 + 8, Err(&"ü".repeat(1000))));
        }
        assert_eq!((found.damaged.len(), found.unreadable.len()), (MAX_FINDINGS, MAX_FINDINGS));
        assert_eq!((found.damaged_blocks, found.unreadable_blocks), (200, 1600));
        assert!(found.unreadable[0].error.len() <= MAX_ERROR_BYTES);
    }

    #[test]
    fn an_end_before_the_last_block_is_no_success() {
        let outcome = |end| Findings::default().outcome(end);
        assert!(matches!(outcome(Err(ScrubEnd::Stopped)), Outcome::Cancelled { .. }));
        assert!(matches!(outcome(Err(ScrubEnd::Removed)), Outcome::Failed { .. }));
        assert!(matches!(outcome(Ok(())), Outcome::Succeeded { .. }));
    }
}
