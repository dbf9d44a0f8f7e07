//! `saveconfig.json`, as rtslib restores it into a folder that stands for configfs.

use std::fs;
use std::path::{Path, PathBuf};

use lunette_tests::{Configured, keys, run};
use toml::{Table, Value};

use super::{Facts, import};

/// Files as people have them, those of targetcli and those that were written by hand.
fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/import/saveconfig");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

/// Facts of what LIO would serve, and whether rtslib could not restore something.
fn facts_of_lio(file: &Path) -> (Facts, bool) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/import/rtslib_facts.py");
    let ran = run(keys::PYTHON, [script.as_path(), file]);
    (ran.succeeded().lines().map(|line| line.trim_end().to_owned()).collect(), !ran.stderr.is_empty())
}

fn list<'a>(table: &'a Table, key: &str) -> &'a [Value] {
    table.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap()
}

fn read_only(table: &Table) -> &'static str {
    if table.get("read_only").and_then(Value::as_bool) == Some(true) { " read only" } else { "" }
}

/// Facts of what is served with an imported configuration.
fn facts_of_ours(configuration: &Table) -> Facts {
    let mut facts = Facts::new();
    for portal in list(configuration, "portal") {
        let address = text(portal, "address");
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !address.ends_with(']') => (host, port),
            _ => (address, "3260"),
        };
        facts.insert(format!("portal {host} {port}"));
    }
    for target in list(configuration, "target").iter().map(|target| target.as_table().unwrap()) {
        let name = target["name"].as_str().unwrap();
        facts.insert(name.into());
        facts.extend(list(target, "lun").iter().flat_map(|lun| facts_of_lun(name, lun.as_table().unwrap())));
        let hosts: Vec<&Table> = list(target, "host").iter().map(|host| host.as_table().unwrap()).collect();
        facts.extend(hosts.iter().flat_map(|host| facts_of_host(name, host)));
        let is_open = hosts.is_empty() && !target.contains_key("allow");
        if is_open {
            facts.extend(facts_of_host(name, target));
        } else if hosts.iter().all(|host| host.contains_key("initiators")) {
            facts.insert(format!("{name} others is kept out"));
        }
    }
    facts
}

fn facts_of_lun(target: &str, lun: &Table) -> Vec<String> {
    let own = format!("{target} lun {}", lun["number"]);
    let keys = ["block_size", "serial"].into_iter().filter_map(|key| Some((key, lun.get(key)?)));
    let mut facts: Vec<_> =
        keys.map(|(key, value)| format!("{own} {key} {}", value.to_string().trim_matches('"'))).collect();
    facts.push(format!("{own} {}", lun["disk"].as_str().unwrap()));
    facts.extend((!read_only(lun).is_empty()).then(|| format!("{own} read_only 1")));
    facts
}

/// The facts of a host, or of a target whose rules hold for everybody.
fn facts_of_host(target: &str, host: &Table) -> Vec<String> {
    let who = list(host, "initiators").first().map_or("others", |initiator| initiator.as_str().unwrap());
    let own = format!("{target} {who}");
    if host.get("networks").is_some_and(|networks| networks.as_array().unwrap().is_empty()) {
        return vec![format!("{own} is kept out")];
    }
    let users = list(host, "chap").iter().map(|user| ("chap", user));
    let users = users.chain(host.get("mutual_chap").map(|user| ("mutual_chap", user)));
    let secret = |user: &Value| fs::read_to_string(text(user, "secret_file")).unwrap();
    let mut facts: Vec<_> =
        users.map(|(direction, user)| format!("{own} {direction} {} {}", text(user, "user"), secret(user))).collect();
    if who == "others" {
        facts.push(format!("{own} is let in{}", read_only(host)));
        return facts;
    }
    facts.push(format!("{own} is let in"));
    for mapped in list(host, "lun").iter().map(|mapped| mapped.as_table().unwrap()) {
        let number = &mapped["number"];
        let protected = if read_only(host).is_empty() { read_only(mapped) } else { read_only(host) };
        facts.push(format!("{own} {} is {number}{protected}", mapped.get("as").unwrap_or(number)));
    }
    facts
}

/// The facts but the serial numbers of disks in memory: ours has another disk for each LUN of a backstore, and two
/// disks have no serial number in common.
fn without_serials_of_memory(facts: &Facts) -> Facts {
    let is_in_memory = |lun: &str| facts.iter().any(|fact| fact.starts_with(&format!("{lun} mem:")));
    let is_kept = |fact: &&String| fact.split_once(" serial ").is_none_or(|(lun, _)| !is_in_memory(lun));
    facts.iter().filter(is_kept).cloned().collect()
}

#[test]
fn saveconfig_json_means_what_rtslib_makes_of_it() {
    for file in corpus() {
        let place = Configured::new();
        let (expected, has_errors) = facts_of_lio(&file);
        let imported = import(&file, &place.file("secrets"));
        let report = String::from_utf8_lossy(&imported.stderr);
        assert!(imported.status.success() && !expected.is_empty(), "{}: {report}", file.display());
        let ours = facts_of_ours(&String::from_utf8(imported.stdout).unwrap().parse().unwrap());
        let shown = without_serials_of_memory(&expected);
        assert_eq!(without_serials_of_memory(&ours), shown, "{}\n{report}", file.display());
        assert!(!has_errors || report.contains("left out: "), "{}: nothing is named", file.display());
    }
}
