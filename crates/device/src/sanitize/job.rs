//! The parameters and the progress of a sanitize operation, in memory and in the state store.

use crate::persist::{ValueReader, put_bytes};

/// The way in which data is made unreadable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SanitizeMethod {
    /// Every block is overwritten.
    Overwrite {
        /// Number of passes, 1 to 31.
        passes: u8,
        /// INVERT: every other pass writes the inverted pattern; the last pass does not.
        invert: bool,
        /// The pattern, from one byte to a whole block. It starts again at each block.
        pattern: Vec<u8>,
    },
    /// The store frees all space, which then reads as zero.
    Erase,
}

/// A sanitize operation and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SanitizeJob {
    pub(crate) method: SanitizeMethod,
    /// AUSE: EXIT FAILURE MODE may end a failure of this operation.
    pub(crate) unrestricted: bool,
    /// The current pass, from 0. The passes before it are on stable storage.
    pub(crate) pass: u8,
    /// The first byte that the current pass has not processed. The bytes before it are on stable storage.
    pub(crate) offset: u64,
}

/// The saved sanitize state. A unit that is ready saves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SavedSanitize {
    Running(SanitizeJob),
    Failed { unrestricted: bool },
}

impl SanitizeJob {
    /// An operation that has not processed anything yet.
    pub(crate) fn new(method: SanitizeMethod, unrestricted: bool) -> Self {
        Self { method, unrestricted, pass: 0, offset: 0 }
    }

    pub(crate) fn passes(&self) -> u8 {
        match self.method {
            SanitizeMethod::Overwrite { passes, .. } => passes,
            SanitizeMethod::Erase => 1,
        }
    }

    /// PROGRESS INDICATION on a medium of `len` bytes.
    pub(crate) fn progress(&self, len: u64) -> u16 {
        let all = u128::from(len) * u128::from(self.passes());
        let done = u128::from(len) * u128::from(self.pass) + u128::from(self.offset);
        let parts = (done * 0x1_0000).checked_div(all).unwrap_or(0);
        u16::try_from(parts).unwrap_or(u16::MAX)
    }

    /// The content that this pass writes to each block of `block_len` bytes; `None` when the pass frees space instead.
    pub(crate) fn block(&self, block_len: usize) -> Option<Vec<u8>> {
        let SanitizeMethod::Overwrite { passes, invert, pattern } = &self.method else { return None };
        // The last pass writes the pattern itself (SBC-4 table 94).
        let inverts = *invert && passes.wrapping_sub(self.pass).is_multiple_of(2);
        let mask = if inverts { 0xff } else { 0 };
        Some(pattern.iter().cycle().take(block_len).map(|byte| byte ^ mask).collect())
    }
}

const RUNNING: u8 = 1;
const FAILED: u8 = 2;
const OVERWRITE: u8 = 1;
const ERASE: u8 = 2;

impl SavedSanitize {
    /// | bytes | what |
    /// |---|---|
    /// | 1 | version, 1 |
    /// | 1 | 1 while it runs, 2 when it has failed |
    /// | 1 | AUSE |
    /// | then while it runs: 1 | 1 overwrite, 2 erase |
    /// | 1 | passes |
    /// | 1 | INVERT |
    /// | 1 | the pass |
    /// | 8 | first byte of it that is still to do |
    /// | 2, n | pattern, behind its length |
    const VERSION: u8 = 1;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let job = match self {
            Self::Failed { unrestricted } => return vec![Self::VERSION, FAILED, u8::from(*unrestricted)],
            Self::Running(job) => job,
        };
        let (method, invert, pattern) = match &job.method {
            SanitizeMethod::Overwrite { invert, pattern, .. } => (OVERWRITE, *invert, pattern.as_slice()),
            SanitizeMethod::Erase => (ERASE, false, &[][..]),
        };
        let head =
            [Self::VERSION, RUNNING, u8::from(job.unrestricted), method, job.passes(), u8::from(invert), job.pass];
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(&job.offset.to_be_bytes());
        put_bytes(&mut bytes, pattern);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ValueReader(bytes);
        let [version, condition, unrestricted] = reader.take()?;
        let unrestricted = unrestricted != 0;
        let record = match (version, condition) {
            (Self::VERSION, FAILED) => Self::Failed { unrestricted },
            (Self::VERSION, RUNNING) => {
                let [method, passes, invert, pass] = reader.take()?;
                let offset = u64::from_be_bytes(reader.take()?);
                let pattern = reader.bytes()?.to_vec();
                let method = match method {
                    OVERWRITE if passes > 0 && !pattern.is_empty() => {
                        SanitizeMethod::Overwrite { passes, invert: invert != 0, pattern }
                    }
                    ERASE => SanitizeMethod::Erase,
                    _ => return None,
                };
                Self::Running(SanitizeJob { method, unrestricted, pass, offset })
            }
            _ => return None,
        };
        reader.is_empty().then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overwrite(passes: u8, invert: bool, pattern: &[u8]) -> SanitizeJob {
        SanitizeJob::new(SanitizeMethod::Overwrite { passes, invert, pattern: pattern.to_vec() }, true)
    }

    #[test]
    fn the_last_pass_writes_the_pattern_itself() {
        for (passes, expected) in [(1, &[1][..]), (2, &[0xfe, 1]), (3, &[1, 0xfe, 1])] {
            let first_bytes: Vec<u8> = (0..passes)
                .map(|pass| SanitizeJob { pass, ..overwrite(passes, true, &[1]) }.block(4).unwrap()[0])
                .collect();
            assert_eq!(first_bytes, expected);
        }
        assert_eq!(overwrite(2, false, &[1, 2, 3]).block(4), Some(vec![1, 2, 3, 1]));
        assert_eq!(SanitizeJob::new(SanitizeMethod::Erase, false).block(4), None);
    }

    #[test]
    fn progress_counts_all_passes_and_never_reaches_the_end() {
        let at = |pass, offset| SanitizeJob { pass, offset, ..overwrite(2, false, &[0]) }.progress(1 << 40);
        assert_eq!([at(0, 0), at(0, 1 << 39), at(1, 0), at(1, 1 << 40)], [0, 0x4000, 0x8000, 0xffff]);
        assert_eq!(SanitizeJob::new(SanitizeMethod::Erase, false).progress(0), 0);
    }

    #[test]
    fn saved_values_round_trip_and_others_are_refused() {
        let job = SanitizeJob { pass: 1, offset: 1 << 33, ..overwrite(3, true, &[7; 512]) };
        for record in [
            SavedSanitize::Running(job),
            SavedSanitize::Running(SanitizeJob::new(SanitizeMethod::Erase, false)),
            SavedSanitize::Failed { unrestricted: true },
            SavedSanitize::Failed { unrestricted: false },
        ] {
            let bytes = record.encode();
            assert_eq!(SavedSanitize::decode(&bytes), Some(record));
            for len in 0..bytes.len() {
                assert_eq!(SavedSanitize::decode(&bytes[..len]), None);
            }
            assert_eq!(SavedSanitize::decode(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(SavedSanitize::decode(&[2, 2, 0]), None);
        assert_eq!(SavedSanitize::decode(&[1, 3, 0]), None);
    }
}
