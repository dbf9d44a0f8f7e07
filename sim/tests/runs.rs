//! Runs are the same each time, and pass. `cargo xtask sim` does many more.

use lunette_sim::{Campaign, Setup, Transport, gateway_campaign, run, run_gateways};

fn setups() -> Vec<Setup> {
    let pairs = (0..=2).flat_map(|level| [1, 2, 8].map(|connections| (level, connections)));
    let tcp = pairs.map(|(level, connections)| Setup { transport: Transport::Tcp, level, connections });
    let tls = [(0, 1), (1, 1), (2, 1), (2, 8)];
    let tls = tls.map(|(level, connections)| Setup { transport: Transport::Tls, level, connections });
    tcp.chain(tls).chain([Setup { transport: Transport::Ecl, level: 0, connections: 1 }]).collect()
}

#[test]
fn one_seed_is_one_run() {
    for (setup, seed) in setups().into_iter().flat_map(|setup| [7, 11, 30].map(|seed| (setup, seed))) {
        let (first, second) = (run(setup, seed, true), run(setup, seed, true));
        assert_eq!(first.trace, second.trace);
        assert_eq!(first.tally, second.tally);
        assert_ne!(first.trace, run(setup, seed + 1, true).trace);
    }
}

#[test]
fn a_few_seeds_of_every_setup_pass() {
    let report = Campaign { setups: setups().into_iter().map(|setup| (setup, 4)).collect(), first: 0 }.run();
    assert_eq!(report.first_failure(), None);
    assert!(report.total().faults.values().flatten().sum::<u64>() > 0, "faults strike");
}

#[test]
fn one_seed_is_one_run_of_gateways() {
    let (first, second) = (run_gateways(7, true), run_gateways(7, true));
    assert_eq!((first.trace.as_str(), first.tally), (second.trace.as_str(), second.tally));
    assert_ne!(first.trace, run_gateways(8, true).trace);
}

#[test]
fn a_few_seeds_of_gateways_pass() {
    let (tally, failures) = gateway_campaign(0, 20);
    assert_eq!(failures, []);
    assert!(tally.faults > 0 && tally.fenced > 0 && tally.moves > tally.runs, "{tally:?}");
}
