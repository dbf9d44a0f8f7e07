//! Prints the benchmark's rows as JSON lines, then the ratios: `cargo run --release --features bench --example table`.

use lunette_crc32c::bench::{Options, ratios, run};

fn main() {
    let rows = run(&Options::default());
    for row in &rows {
        println!("{}", row.to_json());
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
