//! Runs are the same each time, and pass. `cargo xtask sim` does many more.

use lunette_sim::{Campaign, Setup, run};

fn setups() -> Vec<Setup> {
    let pairs = (0..=2).flat_map(|level| [1, 2, 8].map(|connections| (level, connections)));
    pairs.map(|(level, connections)| Setup { level, connections }).collect()
}

#[test]
fn one_seed_is_one_run() {
    for setup in setups() {
        let (first, second) = (run(setup, 7, true), run(setup, 7, true));
        assert_eq!(first.trace, second.trace);
        assert_eq!(first.tally, second.tally);
        assert_ne!(first.trace, run(setup, 8, true).trace);
    }
}

#[test]
fn a_few_seeds_of_every_setup_pass() {
    let report = Campaign { setups: setups(), first: 0, seeds: 4 }.run();
    assert_eq!(report.first_failure(), None);
    assert!(report.total().faults.values().flatten().sum::<u64>() > 0, "faults strike");
}
