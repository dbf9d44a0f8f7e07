//! Runs are the same each time, and pass. `cargo xtask sim` does many more.

use lunette_sim::{Campaign, Setup, run};

const SETUPS: [Setup; 3] =
    [Setup { level: 0, connections: 1 }, Setup { level: 0, connections: 2 }, Setup { level: 0, connections: 8 }];

#[test]
fn one_seed_is_one_run() {
    for setup in SETUPS {
        let (first, second) = (run(setup, 7, true), run(setup, 7, true));
        assert_eq!(first.trace, second.trace);
        assert_eq!(first.tally, second.tally);
        assert_ne!(first.trace, run(setup, 8, true).trace);
    }
}

#[test]
fn a_few_seeds_of_every_setup_pass() {
    let report = Campaign { setups: SETUPS.into(), first: 0, seeds: 6 }.run();
    assert_eq!(report.first_failure(), None);
    assert!(report.total().faults.values().flatten().sum::<u64>() > 0, "faults strike");
}
