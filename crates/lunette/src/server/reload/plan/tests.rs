//! Plans over disks whose files are not what they were, and over gateways.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::*;
use crate::config;
use crate::config::diff;
use crate::server::gateways::RunningGateway;
use crate::server::reload::Spares;
use crate::server::unit;

const DISK: &str = "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]\n";

/// A server whose disk with a gateway is being opened. The channel tells when the gateway has left.
fn opening() -> (Served, Config, Receiver<()>) {
    let config = config::parse(DISK).unwrap();
    let mut served = Served::open_within(&config, None, &mut Spares::default()).unwrap();
    let (told, left) = channel();
    let disk = served.targets.get_mut("iqn.a").unwrap().disks.get_mut(&0).unwrap();
    let mut open = disk.clone();
    let open = move || {
        let leave = move |_| told.send(()).is_ok();
        open.gateway = Some(Arc::new(RunningGateway::new("an image".into(), leave)));
        Ok(open)
    };
    let attempt = served.openings.begin(None, open).unwrap();
    assert!(attempt.wait(None));
    let absence = Absence { why: "late".into(), attempt: Some(attempt) };
    *disk = unit::stand_in(disk.entry.clone(), "iqn.a", absence).unwrap();
    (served, config, left)
}

const A_MINUTE: Duration = Duration::from_mins(1);

#[test]
fn the_gateway_of_a_disk_ends_with_a_plan_that_is_not_carried_out() {
    let (served, config, left) = opening();
    let mut plan = Plan::recover(&served, &Spares::default(), &config).unwrap();
    assert!(!plan.is_empty());
    plan.settle(false);
    drop(plan);
    left.recv_timeout(A_MINUTE).unwrap();
}

#[test]
fn the_gateway_of_a_disk_that_is_served_ends_with_its_target() {
    let (served, config, left) = opening();
    let mut plan = Plan::recover(&served, &Spares::default(), &config).unwrap();
    plan.settle(true);
    let (served, spares) = (plan.served, plan.spares);
    assert!(served.targets["iqn.a"].disks[&0].gateway.is_some() && left.try_recv().is_err());
    let without = config::parse(&DISK.replace("iqn.a", "iqn.b")).unwrap();
    let changes = diff::between(&config, &without).unwrap();
    let mut plan = Plan::new(&served, &spares, &without, changes, Refusal::All, &Scope::All).unwrap();
    plan.settle(true);
    assert!(left.try_recv().is_err(), "the plan is not carried out yet");
    drop(served);
    left.recv_timeout(A_MINUTE).unwrap();
}

/// A server with two disks in files, whose folder and configuration these are.
fn with_files() -> (tempfile::TempDir, Config, Served) {
    let folder = tempfile::tempdir().unwrap();
    let disk = |number: u16, name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, [b'0' + number as u8; 8192]).unwrap();
        format!("{{ number = {number}, disk = {path:?} }}")
    };
    let luns = [disk(0, "a"), disk(1, "b")].join(", ");
    let config = config::parse(&format!("[[target]]\nname = \"iqn.a\"\nlun = [{luns}]\n")).unwrap();
    let mut served = Served::open_within(&config, None, &mut Spares::default()).unwrap();
    for disk in served.targets.get_mut("iqn.a").unwrap().disks.values_mut() {
        disk.await_opening("iqn.a", 0, None, true).unwrap();
    }
    (folder, config, served)
}

fn plan(served: &Served, config: &Config, scope: &Scope) -> Plan {
    Plan::new(served, &Spares::default(), config, Vec::new(), Refusal::None, scope).unwrap()
}

/// The first byte of each disk.
fn first_bytes(plan: &Plan) -> Vec<u8> {
    let first = |disk: &Disk| {
        let into = lunette_buffer::Pool::new(1 << 20).take(512).unwrap();
        let store = &disk.store.opened().unwrap().store;
        let outcome = lunette_store::execute(&**store, lunette_store::Op::Read { offset: 0, into });
        outcome.result.unwrap();
        outcome.buffer.unwrap()[0]
    };
    plan.served.targets["iqn.a"].disks.values().map(first).collect()
}

#[test]
fn a_change_by_a_client_looks_at_no_file_that_it_does_not_concern() {
    let (folder, config, served) = with_files();
    std::fs::write(folder.path().join("new"), [b'n'; 8192]).unwrap();
    std::fs::rename(folder.path().join("new"), folder.path().join("a")).unwrap();
    std::fs::write(folder.path().join("b"), [b'l'; 16_384]).unwrap();
    let plan_of_client = plan(&served, &config, &Scope::Targets(vec!["iqn.a".into()]));
    assert!(plan_of_client.is_empty() && first_bytes(&plan_of_client) == *b"0l");
    let plan_of_all = plan(&served, &config, &Scope::All);
    assert!(plan_of_all.changes.len() == 1 && plan_of_all.growing.len() == 1);
    assert_eq!(first_bytes(&plan_of_all), *b"nl");
}

#[test]
fn a_file_is_served_on_when_what_has_its_path_now_cannot_be() {
    let (folder, config, served) = with_files();
    std::fs::remove_file(folder.path().join("a")).unwrap();
    std::fs::create_dir(folder.path().join("a")).unwrap();
    let kept = plan(&served, &config, &Scope::All);
    assert!(kept.is_empty() && first_bytes(&kept) == *b"01");
    let [(subject, Cause::NotChanged, why)] = &*kept.unchanged else { panic!("{:?}", kept.unchanged) };
    assert!(*subject == Subject::lun("iqn.a", 0) && why.contains("is a directory"), "{why}");
}

#[test]
fn files_that_change_places_are_not_in_the_way_of_each_other() {
    let (folder, config, served) = with_files();
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
    for (from, to) in [(&a, &c), (&b, &a), (&c, &b)] {
        std::fs::rename(from, to).unwrap();
    }
    let swapped = plan(&served, &config, &Scope::All);
    assert_eq!(first_bytes(&swapped), *b"10");
    assert!(swapped.changes.len() == 2 && swapped.unchanged.is_empty());
}
