//! The instructions that place the data of a command when it comes in random order.

use std::process::ExitCode;

use anyhow::Result;

/// With both digests, data in random order may cost this many percent more instructions of the protocol than data in
/// order. Without digests a PDU of 8 KiB costs so few that the search for its place is noticeable; there the counts are
/// only printed.
const MOST_PERCENT: u64 = 5;

/// Counts the instructions that place 1 MiB in PDUs of 8 KiB, on both sides, and compares the orders.
pub(super) fn run() -> Result<ExitCode> {
    let mut worse = 0;
    for digests in ["plain", "digests"] {
        for direction in ["read", "write"] {
            let count = |order| super::count("count-orders", &[direction, digests, order]);
            let (ordered, shuffled) = (count("ordered")?, count("shuffled")?);
            let too_many = digests == "digests" && shuffled > ordered + ordered * MOST_PERCENT / 100;
            worse += usize::from(too_many);
            let what = format!("{direction} {digests} shuffled");
            println!("{what:28} {shuffled:>8} {ordered:>8}{}", if too_many { "  more than in order" } else { "" });
        }
    }
    Ok(if worse == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
