//! Prints the benchmark's rows as JSON lines, then the choices and the ratios: `cargo run --release --features bench
//! --example table`.

use lunette_crc32c::bench::{Options, TOLERATED_LEAD, contests, ratios, run};

fn main() {
    let rows = run(&Options::default());
    for row in &rows {
        println!("{}", row.to_json());
    }
    for contest in contests(&rows) {
        let verdict = if contest.lead > TOLERATED_LEAD { "BEATEN" } else { "best" };
        println!(
            "{:6} {:>9} B {:4}  {:16} {:16} {:5.2}  {verdict}",
            contest.op, contest.bytes, contest.cache, contest.chosen, contest.fastest, contest.lead
        );
    }
    for ratio in ratios(&rows) {
        let verdict = match ratio.value {
            value if value >= ratio.aim => "aim",
            value if value >= ratio.solid => "solid",
            _ => "BELOW",
        };
        println!(
            "{:28} {:>9} B {:4}  {:5.2}  (solid {:.2}, aim {:.2})  {verdict}",
            ratio.name, ratio.bytes, ratio.cache, ratio.value, ratio.solid, ratio.aim
        );
    }
}
