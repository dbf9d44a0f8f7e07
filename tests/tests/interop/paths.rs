//! The client's disks over several paths: portals that close or fall silent, access states, a wrong disk, and tgt.

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lunette_testkit::Relay;
use lunette_tests::{Configured, Foreign, Ran, Server, lunette, run_at_most};
use serde_json::Value;

const TARGET: &str = "iqn.2026-11.org.example:paths";

/// A disk behind two portals in target port groups of their own, in these states.
fn configuration(states: [&str; 2]) -> String {
    format!(
        r#"
        state = "@/state"
        portal = [{{ address = "127.0.0.1:0", group = 1 }}, {{ address = "127.0.0.2:0", group = 2 }}]

        [[target]]
        name = "{TARGET}"
        lun = [{{ number = 0, disk = "mem:16M" }}]
        access = {{ management = "both" }}
        port_group = [{{ id = 1, state = "{}" }}, {{ id = 2, state = "{}" }}]
        "#,
        states[0], states[1]
    )
}

fn client(arguments: &[&str]) -> Ran {
    run_at_most(Duration::from_mins(1), lunette().args(arguments))
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(ran.succeeded()).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

/// The portals of the target, in the order of their portal groups.
fn portals(portal_url: &str) -> Vec<SocketAddr> {
    let list = json(&client(&["ls", "--json", "--no-luns", portal_url]));
    let portals = list[0]["portals"].as_array().unwrap().iter().map(|portal| portal.as_str().unwrap());
    let mut portals: Vec<(&str, SocketAddr)> = portals
        .map(|portal| portal.split_once(',').unwrap())
        .map(|(address, group)| (group, address.parse().unwrap()))
        .collect();
    portals.sort();
    portals.into_iter().map(|(_, address)| address).collect()
}

/// A relay to each portal, and the URL of the disk over them.
fn relayed(portals: &[SocketAddr], disk: &str) -> (Vec<Relay>, String) {
    let relays: Vec<Relay> = portals.iter().map(|portal| Relay::to(*portal)).collect();
    let url = format!("iscsi://{}/{disk}?portals={}", relays[0].address, relays[1].address);
    (relays, url)
}

/// Writes, reads and compares for some seconds.
fn verify(url: &str) -> JoinHandle<Ran> {
    let url = url.to_owned();
    let arguments = ["bench", "--json", "--rw", "verify", "--depth", "16", "--size", "4M", "--time", "6"];
    thread::spawn(move || client(&[&arguments[..], &[&url]].concat()))
}

/// The report of a run that has found no wrong byte. Prints its longest stall.
fn verified(load: JoinHandle<Ran>, what: &str) -> Value {
    let report = json(&load.join().unwrap());
    assert!(report["verified"].as_u64() > Some(0), "{report}");
    println!("{what}: the longest request took {} us", report["latency_us"]["max"]);
    report
}

fn states(report: &Value) -> Vec<&str> {
    report["paths"].as_array().unwrap().iter().map(|path| path["state"].as_str().unwrap()).collect()
}

/// Waits until a condition holds, or the load has ended.
fn until(load: &JoinHandle<Ran>, condition: impl Fn() -> bool) {
    while !condition() && !load.is_finished() {
        thread::yield_now();
    }
}

/// Cuts the paths in turns for as long as the load runs. Gives the number of cuts.
fn cut_in_turns(relays: &[Relay], load: &JoinHandle<Ran>) -> u64 {
    until(load, || relays.iter().all(|relay| relay.accepted() > 0));
    let mut cuts = 0;
    for relay in relays.iter().cycle() {
        let before = relay.accepted();
        // A load that goes on over the other path moves these bytes.
        let moved = relays.iter().map(Relay::bytes_of_clients).sum::<usize>() + (1 << 20);
        relay.cut();
        until(load, || relay.accepted() > before && relays.iter().map(Relay::bytes_of_clients).sum::<usize>() > moved);
        if load.is_finished() {
            return cuts;
        }
        cuts += 1;
    }
    cuts
}

#[test]
fn no_byte_is_wrong_while_portals_close_in_turns() {
    let (_place, server) = Configured::serve(&configuration(["active/optimized"; 2]), 1);
    let (relays, url) = relayed(&portals(&server.portal_url()), &format!("{TARGET}/0"));
    let load = verify(&url);
    let cuts = cut_in_turns(&relays, &load);
    verified(load, &format!("{cuts} closed paths"));
    // On a busy machine, few fit into the time of the load.
    assert!(cuts >= 2, "{cuts}");
    server.stop();
}

#[test]
fn no_byte_is_wrong_when_a_path_falls_silent_and_comes_back() {
    let (_place, server) = Configured::serve(&configuration(["active/optimized"; 2]), 1);
    let (relays, url) = relayed(&portals(&server.portal_url()), &format!("{TARGET}/0"));
    let load = verify(&url);
    until(&load, || relays.iter().all(|relay| relay.bytes_of_clients() > 1 << 20));
    relays[0].stall();
    until(&load, || relays[0].accepted() > 1);
    assert!(!load.is_finished(), "the path is made again before the load ends");
    // What was held back reaches the target late.
    relays[0].go_on();
    verified(load, "a silent path");
    server.stop();
}

/// Loses one path for good under load.
fn stays_away(portals: &[SocketAddr], disk: &str) -> Ran {
    let (relays, url) = relayed(portals, disk);
    let load = verify(&url);
    until(&load, || relays.iter().all(|relay| relay.bytes_of_clients() > 1 << 20));
    relays[0].lead(None);
    relays[0].cut();
    let ran = load.join().unwrap();
    let report = json(&ran);
    assert_eq!(states(&report), ["down", "active/optimized"]);
    assert!(report["verified"].as_u64() > Some(0), "{report}");
    println!("a path that stays away: the longest request took {} us", report["latency_us"]["max"]);
    ran
}

#[test]
fn the_commands_of_a_path_that_stays_away_are_ended_by_a_reset() {
    let (_place, server) = Configured::serve(&configuration(["active/optimized"; 2]), 1);
    let ran = stays_away(&portals(&server.portal_url()), &format!("{TARGET}/0"));
    // Writes of its blocks have waited for it.
    assert!(ran.stderr.contains("resetting the logical unit"), "{ran}");
    server.stop();
}

#[test]
fn the_commands_of_a_path_that_stays_away_are_ended_through_another_portal_of_its_group() {
    let tgt = Foreign::tgt(16, false);
    let ran = stays_away(&tgt.portals(), &format!("{}/1", tgt.target()));
    assert!(ran.stderr.contains("reinstating the nexus") && !ran.stderr.contains("resetting"), "{ran}");
}

#[test]
fn no_byte_is_wrong_while_access_moves_from_path_to_path() {
    let to_and_fro = [["active/optimized", "standby"], ["standby", "active/optimized"]];
    let (place, server) = Configured::serve(&configuration(to_and_fro[0]), 1);
    let url = format!("{}/{TARGET}/0?paths=all", server.portal_url());
    let info = json(&client(&["info", "--json", &url]));
    assert_eq!(states(&info), to_and_fro[0]);
    let (relays, url) = relayed(&portals(&server.portal_url()), &format!("{TARGET}/0"));
    let load = verify(&url);
    // A client that begins between two changes may find no path that is active.
    let moved = || relays.iter().map(Relay::bytes_of_clients).sum::<usize>();
    for states in to_and_fro.iter().cycle().skip(1).take(8) {
        let before = moved();
        until(&load, || moved() > before + (1 << 20));
        place.change(&server, &configuration(*states));
    }
    assert!(!load.is_finished());
    let report = verified(load, "access that moves");
    assert_eq!(states(&report), to_and_fro[0]);
    server.stop();
}

#[test]
fn a_path_is_made_active_on_request() {
    let (_place, server) = Configured::serve(&configuration(["standby"; 2]), 1);
    let portals = portals(&server.portal_url());
    let url = format!("iscsi://{}/{TARGET}/0", portals[0]);
    let refused = client(&["info", &format!("{url}?paths=2")]).failed();
    assert!(refused.contains("STANDBY"), "{refused}");
    let paths = json(&client(&["activate", "--json", &url, &portals[1].to_string()]));
    assert_eq!(paths[0]["state"], "standby");
    assert_eq!(paths[1]["state"], "active/optimized");
    assert_eq!(paths[1]["port_group"], 2);
    client(&["bench", "--rw", "verify", "--time", "1", &format!("{url}?paths=2")]).succeeded();
    server.stop();
}

#[test]
fn a_target_that_manages_access_alone_is_not_asked_to_change_it() {
    let text = configuration(["active/optimized"; 2]).replace("both", "implicit");
    let (_place, server) = Configured::serve(&text, 1);
    let portals = portals(&server.portal_url());
    let url = format!("iscsi://{}/{TARGET}/0", portals[0]);
    let refused = client(&["activate", &url, &portals[1].to_string()]).failed();
    assert!(refused.contains("the target alone"), "{refused}");
    server.stop();
}

#[test]
fn another_disk_behind_a_path_is_refused_with_both_names() {
    let with_serial = |serial: &str| {
        let disk = format!(r#"disk = "mem:16M", serial = "{serial}""#);
        configuration(["active/optimized"; 2]).replace(r#"disk = "mem:16M""#, &disk)
    };
    let (_one, one) = Configured::serve(&with_serial("one"), 1);
    let (_other, other) = Configured::serve(&with_serial("other"), 1);
    let name = |server: &Server| {
        let info = json(&client(&["info", "--json", &format!("{}/{TARGET}/0", server.portal_url())]));
        info["name"].as_str().unwrap().to_owned()
    };
    let names = [name(&one), name(&other)];
    let url = format!("{}/{TARGET}/0?portals={}", one.portal_url(), other.address());
    let refused = client(&["bench", "--rw", "randwrite", &url]);
    let said = refused.failed();
    assert_eq!(refused.code, Some(5));
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    one.stop();
    other.stop();
}

#[test]
fn discovery_that_names_fewer_portals_than_wanted_is_an_error() {
    let (_place, server) = Configured::serve(&configuration(["active/optimized"; 2]), 1);
    let url = format!("{}/{TARGET}/0?paths=3", server.portal_url());
    let said = client(&["info", &url]).failed();
    assert!(said.contains("names 2 portals") && said.contains("paths=all"), "{said}");
    server.stop();
}

#[test]
fn no_byte_is_wrong_while_the_paths_to_tgt_close_in_turns() {
    let tgt = Foreign::tgt(16, false);
    // Its discovery names the portal that was asked, and no other.
    let portals = tgt.portals();
    let info = json(&client(&["info", "--json", &format!("{}?portals={}", tgt.url(), portals[1])]));
    assert_eq!(states(&info), ["active/optimized"; 2]);
    let (relays, url) = relayed(&portals, &format!("{}/1", tgt.target()));
    let load = verify(&url);
    let cuts = cut_in_turns(&relays, &load);
    verified(load, &format!("{cuts} closed paths to tgt"));
    // On a busy machine, few fit into the time of the load.
    assert!(cuts >= 2, "{cuts}");
}
