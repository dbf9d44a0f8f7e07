//! The client with the targets of other projects: tgt and istgt.

use std::fs::File;
use std::time::Duration;

use lunette_tests::{Foreign, Ran, TARGET_USER, USER, lunette, random_file, run, run_at_most};
use serde_json::Value;

const MEBIBYTES: u64 = 32;

const DIGESTS: [(&str, &str); 2] = [("", "None"), ("header_digest=crc32c&data_digest=crc32c", "CRC32C")];

/// Runs the client with the secrets in its environment.
fn client_with(arguments: &[&str], secret: &str, target_secret: &str) -> Ran {
    let mut command = lunette();
    command.env("LUNETTE_CHAP_PASSWORD", secret).env("LUNETTE_CHAP_TARGET_PASSWORD", target_secret);
    run_at_most(Duration::from_mins(1), command.args(arguments))
}

fn client(arguments: &[&str]) -> Ran {
    client_with(arguments, USER.1, TARGET_USER.1)
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(ran.succeeded()).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

/// Asserts that the disk's properties, a copy there and back, and a verified load are right.
fn all_works(url: &str, digest: &str) {
    let info = json(&client(&["info", "--json", url]));
    assert_eq!(info["bytes"], MEBIBYTES << 20);
    assert_eq!(info["session"]["HeaderDigest"], digest);
    assert_eq!(info["session"]["DataDigest"], digest);

    let folder = tempfile::tempdir().unwrap();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    random_file(&there, 11, MEBIBYTES / 4);
    // Zeroes follow it, so that old content of the disk must be overwritten.
    File::options().write(true).open(&there).unwrap().set_len(MEBIBYTES << 20).unwrap();
    let copied = json(&client(&["cp", "--json", "--verify", there.to_str().unwrap(), url]));
    assert_eq!(copied["data_bytes"], (MEBIBYTES << 20) / 4);
    client(&["cp", url, back.to_str().unwrap()]).succeeded();
    run("cmp", [&there, &back]).succeeded();

    let bench = json(&client(&["bench", "--json", "--rw", "verify", "--time", "1", "--size", "8M", url]));
    assert!(bench["verified"].as_u64() > Some(0), "{bench}");
    assert_eq!(json(&client(&["ping", "--json", "-c", "3", "--interval", "0", url]))["count"], 3);
}

fn works_for_all(foreign: &Foreign) {
    let list = json(&client(&["ls", "--json", &foreign.portal_url()]));
    let target = list.as_array().unwrap().iter().find(|target| target["name"] == foreign.target()).unwrap();
    let disk = target["luns"].as_array().unwrap().iter().find(|lun| lun["kind"] == "disk").unwrap();
    assert_eq!(disk["bytes"], MEBIBYTES << 20);
    for (parameters, digest) in DIGESTS {
        all_works(&format!("{}?{parameters}", foreign.url()), digest);
    }
}

fn works_for_one_user(foreign: &Foreign) {
    let url = foreign.url().replacen("://", &format!("://{}@", USER.0), 1);
    let url = format!("{url}?target_user={}", TARGET_USER.0);
    for (parameters, digest) in DIGESTS {
        all_works(&format!("{url}&{parameters}"), digest);
    }
    let refused = client_with(&["info", &url], "a wrong secret", TARGET_USER.1);
    assert!(refused.code == Some(5) && refused.stderr.contains("authentication"), "{refused}");
    let impostor = client_with(&["info", &url], USER.1, "another secret");
    assert!(impostor.code == Some(5) && impostor.stderr.contains("authenticate itself"), "{impostor}");
    let nobody = client(&["info", &foreign.url()]);
    assert_eq!(nobody.code, Some(5), "{nobody}");
    for ran in [refused, impostor, nobody] {
        let said = ran.failed();
        assert!(![USER.1, TARGET_USER.1, "a wrong", "another"].iter().any(|secret| said.contains(secret)), "{said}");
    }
}

#[test]
fn tgt_serves_all() {
    works_for_all(&Foreign::tgt(MEBIBYTES, false));
}

#[test]
fn tgt_and_the_client_authenticate_each_other() {
    works_for_one_user(&Foreign::tgt(MEBIBYTES, true));
}

#[test]
fn istgt_serves_all() {
    works_for_all(&Foreign::istgt(MEBIBYTES, false));
}

#[test]
fn istgt_and_the_client_authenticate_each_other() {
    works_for_one_user(&Foreign::istgt(MEBIBYTES, true));
}
