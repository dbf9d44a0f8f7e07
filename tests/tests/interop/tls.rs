//! `lunette tls`: certificates, as openssl reads and verifies them.

use std::time::Duration;

use lunette_tests::keys::{Place, refusal};
use lunette_tests::{Ran, lunette, run, run_at_most};

const LIMIT: Duration = Duration::from_mins(1);

const IQN: &str = "iqn.2026-11.org.example:db1";

fn tls(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().arg("tls").args(arguments))
}

/// The text of a certificate.
fn text(file: &str) -> String {
    run("openssl", ["x509", "-noout", "-text", "-in", file]).succeeded().to_owned()
}

/// Verifies a certificate for a purpose, by the authority's files.
fn verified(ca: &str, purpose: &str, file: &str) -> Ran {
    let (trusted, list) = (format!("{ca}/ca-cert.pem"), format!("{ca}/ca-crl.pem"));
    run("openssl", ["verify", "-crl_check", "-purpose", purpose, "-CAfile", &trusted, "-CRLfile", &list, file])
}

/// The states of all certificates, in the order in which they were issued.
fn states(ca: &str) -> Vec<String> {
    let listed = tls(&["list", ca, "--json"]);
    let states = listed.succeeded().lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    states.map(|listed| listed["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn openssl_verifies_what_was_issued_until_it_is_revoked() {
    let place = Place::new();
    let ca = &*place.text("ca");
    assert!(tls(&["ca", ca]).succeeded().contains("ca-cert.pem"));
    let gw1 = tls(&["issue", ca, "gw1", "--host", "gw1.example.org,192.0.2.1"]).succeeded().trim().to_owned();
    let db1 = tls(&["issue", ca, "db1", "--name", IQN, "--dns", "db1.example.org"]).succeeded().trim().to_owned();
    let (of_server, of_client) = (format!("{gw1}/server-cert.pem"), format!("{db1}/client-cert.pem"));
    let said = text(&of_server);
    assert!(said.contains("DNS:gw1.example.org, IP Address:192.0.2.1") && said.contains("CN = gw1"), "{said}");
    let said = text(&of_client);
    assert!(said.contains(&format!("URI:{IQN}, DNS:db1.example.org")) && said.contains("CN = db1"), "{said}");
    verified(ca, "sslserver", &of_server).succeeded();
    verified(ca, "sslclient", &of_client).succeeded();
    assert!(verified(ca, "sslserver", &of_client).failed().contains("purpose"));
    tls(&["revoke", ca, "db1"]).succeeded();
    assert!(verified(ca, "sslclient", &of_client).failed().contains("revoked"));
    verified(&gw1, "sslserver", &of_server).succeeded();
    assert!(verified(&gw1, "sslclient", &of_client).failed().contains("revoked"), "the server has the list");
    assert_eq!(states(ca), ["valid", "revoked"]);
}

#[test]
fn a_renewed_certificate_stands_beside_the_old_one_unless_that_is_revoked() {
    let place = Place::new();
    let ca = &*place.text("ca");
    tls(&["ca", ca]).succeeded();
    let db1 = tls(&["issue", ca, "db1", "--name", IQN, "--days", "20"]).succeeded().trim().to_owned();
    let file = &*format!("{db1}/client-cert.pem");
    let old = &*place.file("old.pem", &std::fs::read_to_string(file).unwrap());
    assert_eq!(states(ca), ["ends soon"]);
    tls(&["renew", ca, "db1"]).succeeded();
    assert!(text(file).contains(&format!("URI:{IQN}")));
    verified(ca, "sslclient", old).succeeded();
    verified(ca, "sslclient", file).succeeded();
    assert_eq!(states(ca), ["valid", "valid"]);
    tls(&["renew", ca, "db1", "--revoke"]).succeeded();
    assert!(verified(ca, "sslclient", old).failed().contains("revoked"));
    verified(ca, "sslclient", file).succeeded();
    assert_eq!(states(ca), ["revoked", "revoked", "valid"]);
}

#[test]
fn the_fingerprint_is_the_digest_that_openssl_prints() {
    let place = Place::new();
    let ca = &*place.text("ca");
    tls(&["ca", ca]).succeeded();
    let file = &*format!("{ca}/ca-cert.pem");
    let theirs = run("openssl", ["x509", "-noout", "-fingerprint", "-sha256", "-in", file]).succeeded().to_owned();
    let (_, digits) = theirs.trim().split_once('=').unwrap();
    let expected = format!("sha256:{}", digits.replace(':', "").to_lowercase());
    assert_eq!(tls(&["fingerprint", file]).succeeded().trim(), expected);
    let (code, said) = refusal(&tls(&["fingerprint", &format!("{ca}/ca-key.pem")]));
    assert!(code == 3 && said.contains("ca-key.pem: there is no certificate in it"), "{said}");
}

#[test]
fn what_is_not_possible_is_refused_with_the_file_and_the_remedy() {
    let place = Place::new();
    let (ca, other) = (&*place.text("ca"), &*place.text("other"));
    tls(&["ca", ca]).succeeded();
    tls(&["issue", ca, "db1"]).succeeded();
    for (arguments, exit_code, expected) in [
        (&["ca", ca][..], 3, "there is an authority in this folder"),
        (&["list", other], 3, "make one: lunette tls ca"),
        (&["issue", ca, "db1"], 3, "db1 has a valid certificate; revoke it first"),
        (&["issue", ca, "db2", "--name", "db2"], 3, "is no iSCSI name"),
        (&["issue", ca, "gw1", "--host", "a", "--name", IQN], 2, "cannot be used with"),
        (&["issue", ca, "gw1", "--days", "0"], 2, "1..=7300"),
        (&["renew", ca, "db2"], 3, "db2 has no certificate; issue one"),
        (&["revoke", ca, "db2"], 3, "db2 has no certificate that could be revoked"),
        (&["fingerprint", other], 3, "No such file"),
    ] {
        let (code, said) = refusal(&tls(arguments));
        assert!(code == exit_code && said.contains(expected), "{arguments:?}: {code}: {said}");
    }
}
