//! The cost of error recovery while there is nothing to recover from.

use std::process::ExitCode;

use anyhow::Result;

use super::TOLERANCE_PERCENT;

/// Commands that the program carries out.
const COMMANDS: u64 = 1024;

/// Direction, digests, and the instructions that one command took on both sides in the last version without recovery
/// levels.
const ROWS: [(&str, &str, u64); 4] =
    [("read", "plain", 5331), ("read", "digests", 6153), ("write", "plain", 5774), ("write", "digests", 6597)];

/// Counts the instructions of short commands at each recovery level. Level 0 is compared with the version before error
/// recovery; the others are only printed.
pub(super) fn run() -> Result<ExitCode> {
    let mut worse = 0;
    for (direction, digests, before) in ROWS {
        for level in ["0", "1", "2"] {
            let count = super::count("count-commands", &[direction, digests, level])? / COMMANDS;
            let too_many = level == "0" && count > before + before * TOLERANCE_PERCENT / 100;
            worse += usize::from(too_many);
            let what = format!("{direction} {digests} level {level}");
            println!("{what:28} {count:>8} {before:>8}{}", if too_many { "  more than before" } else { "" });
        }
    }
    Ok(if worse == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
