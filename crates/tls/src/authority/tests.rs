use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::*;
use crate::certificates;
use crate::folder::TlsFiles;
use crate::peer::Peer;

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 24 * 3600;
const IQN: &str = "iqn.2026-11.org.example:db1";

/// An authority in a folder of its own.
fn authority() -> (TempDir, Authority) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::create(&folder.path().join("ca"), "Test authority", NOW).unwrap();
    (folder, authority)
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn server() -> Identities {
    Identities::server(&owned(&["gw1.example.org", "192.0.2.1", "::1"]))
}

fn client() -> Identities {
    Identities { iscsi_names: owned(&[IQN]), dns_names: owned(&["db1.example.org"]), ..Identities::default() }
}

fn certificate(path: &Path) -> CertificateDer<'static> {
    certificates(path).unwrap().remove(0)
}

fn peer(path: &Path) -> Peer {
    Peer::of(&certificate(path)).unwrap()
}

fn standings(authority: &Authority, now: i64) -> Vec<Standing> {
    authority.issued().iter().map(|issued| authority.standing(issued, now)).collect()
}

fn said<T>(outcome: Result<T, AuthorityError>) -> String {
    outcome.err().expect("it is refused").to_string()
}

#[test]
fn a_certificate_carries_the_identities_of_its_owner() {
    let (_folder, mut authority) = authority();
    let of_client = authority.issue("db1", &client(), NOW, NOW + DAY).unwrap();
    let db1 = peer(&of_client.join("client-cert.pem"));
    assert_eq!((db1.common_name.as_deref(), db1.not_after), (Some("db1"), NOW + DAY));
    assert_eq!((db1.uris, db1.dns_names), (owned(&[IQN]), owned(&["db1.example.org"])));
    let of_server = authority.issue("gw1", &server(), NOW, NOW + DAY).unwrap();
    assert_eq!(peer(&of_server.join("server-cert.pem")).dns_names, ["gw1.example.org"]);
    TlsFiles::in_folder(&of_client).client().unwrap();
    TlsFiles::in_folder(&of_server).server().unwrap();
    assert!(!of_client.join("ca-crl.pem").exists() && of_server.join("ca-crl.pem").exists());
    for secret in [of_client.join("client-key.pem"), of_server.join("server-key.pem")] {
        assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
    }
}

#[test]
fn names_that_no_owner_can_have_are_refused() {
    let (_folder, mut authority) = authority();
    let long = format!("iqn.2026-11.org.example:{}", "x".repeat(200));
    for name in ["db1", "iqn.", "iqn.a b", "iqn.\u{fc}", "iqn.a\n", &long] {
        let identities = Identities { iscsi_names: owned(&[name]), ..Identities::default() };
        assert!(said(authority.issue("a", &identities, NOW, NOW + DAY)).contains("no iSCSI name"), "{name:?}");
    }
    for name in ["192.0.2.1", "a b", ""] {
        let identities = Identities { dns_names: owned(&[name]), ..Identities::default() };
        assert!(said(authority.issue("a", &identities, NOW, NOW + DAY)).contains("not the name of a host"), "{name:?}");
    }
    let many: Vec<String> = (0..17).map(|at| format!("h{at}")).collect();
    assert!(said(authority.issue("a", &Identities::server(&many), NOW, NOW + DAY)).contains("at most 16 names"));
    for name in ["", "a/b", "..", "a\nb", "ca-cert.pem"] {
        assert!(said(authority.issue(name, &client(), NOW, NOW + DAY)).contains("cannot be the name"), "{name:?}");
    }
    assert!(authority.issued().is_empty(), "nothing was recorded");
}

#[test]
fn a_renewed_certificate_takes_the_place_of_one_that_stays_valid() {
    let (_folder, mut authority) = authority();
    let folder = authority.issue("gw1", &server(), NOW, NOW + 10 * DAY).unwrap();
    let (file, key_file) = (folder.join("server-cert.pem"), folder.join("server-key.pem"));
    let (old, key) = (peer(&file), fs::read(&key_file).unwrap());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(standings(&authority, NOW), [Standing::EndsSoon]);
    assert_eq!(authority.renew("gw1", Renewal::SameKey, NOW + DAY, NOW + 100 * DAY).unwrap(), folder);
    let new = peer(&file);
    assert_eq!((&new.common_name, &new.dns_names), (&old.common_name, &old.dns_names));
    assert_eq!(new.not_after, NOW + 100 * DAY);
    assert_ne!(new.fingerprint, old.fingerprint);
    assert_eq!(fs::read(&key_file).unwrap(), key);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640, "its reader can still read it");
    TlsFiles::in_folder(&folder).server().unwrap();
    assert_eq!(standings(&authority, NOW + DAY), [Standing::Valid, Standing::Valid]);
    assert_eq!(standings(&authority, NOW + 11 * DAY), [Standing::Ended, Standing::Valid]);
    assert_eq!(standings(&authority, NOW + 80 * DAY), [Standing::Ended, Standing::EndsSoon]);
    assert_eq!(authority.issued()[1].identities(), server());
}

#[test]
fn a_renewal_with_a_new_key_revokes_what_was_before() {
    let (_folder, mut authority) = authority();
    let of_server = authority.issue("gw1", &server(), NOW, NOW + DAY).unwrap();
    let folder = authority.issue("db1", &client(), NOW, NOW + DAY).unwrap();
    let key = fs::read(folder.join("client-key.pem")).unwrap();
    let list = fs::read(of_server.join("ca-crl.pem")).unwrap();
    authority.renew("db1", Renewal::NewKey, NOW, NOW + 90 * DAY).unwrap();
    assert_ne!(fs::read(folder.join("client-key.pem")).unwrap(), key);
    assert_ne!(fs::read(of_server.join("ca-crl.pem")).unwrap(), list, "servers get the list");
    TlsFiles::in_folder(&folder).client().unwrap();
    assert_eq!(standings(&authority, NOW), [Standing::EndsSoon, Standing::Revoked, Standing::Valid]);
}

#[test]
fn what_cannot_be_renewed_is_told_with_the_remedy() {
    let (_folder, mut authority) = authority();
    let renew = |authority: &mut Authority, name: &str| said(authority.renew(name, Renewal::SameKey, NOW, NOW + DAY));
    assert_eq!(renew(&mut authority, "db1"), "db1 has no certificate; issue one");
    let folder = authority.issue("db1", &client(), NOW, NOW + DAY).unwrap();
    fs::remove_file(folder.join("client-key.pem")).unwrap();
    assert!(renew(&mut authority, "db1").contains("client-key.pem: No such file"));
    authority.revoke("db1", NOW).unwrap();
    assert!(renew(&mut authority, "db1").contains("was revoked; issue another one"));
    assert!(said(authority.revoke("db1", NOW)).contains("no certificate that could be revoked"));
}

#[test]
fn one_authority_sees_what_another_process_has_changed() {
    let (folder, mut first) = authority();
    let mut second = Authority::open(&folder.path().join("ca")).unwrap();
    first.issue("a", &client(), NOW, NOW + DAY).unwrap();
    second.issue("b", &client(), NOW, NOW + DAY).unwrap();
    first.revoke("b", NOW).unwrap();
    let third = Authority::open(&folder.path().join("ca")).unwrap();
    assert_eq!(standings(&third, NOW), [Standing::EndsSoon, Standing::Revoked]);
}

#[test]
fn an_authority_is_made_once_and_opened_where_it_is() {
    let (folder, _) = authority();
    let place = folder.path().join("ca");
    assert!(said(Authority::create(&place, "Other", NOW)).contains("there is an authority in this folder"));
    Authority::open_or_create(&place, "Other", NOW).unwrap();
    assert!(said(Authority::open(folder.path())).contains("there is no authority in this folder"));
    for (file, content) in [("ca.json", "{"), ("ca-key.pem", "no key"), ("ca-cert.pem", "no certificate")] {
        let whole = fs::read(place.join(file)).unwrap();
        fs::write(place.join(file), content).unwrap();
        let said = said(Authority::open(&place));
        assert!(said.contains(file) && said.contains("put back the file"), "{said}");
        fs::write(place.join(file), whole).unwrap();
    }
    Authority::open(&place).unwrap();
}

/// Records of before this crate had them: no other names than hosts.
#[test]
fn a_record_without_further_names_is_read() {
    let (folder, _) = authority();
    let place = folder.path().join("ca");
    let serial = "4000000000000000000000000000000f";
    let record = |serial: &str| {
        format!(r#"{{"issued":[{{"name":"a","serial":"{serial}","hosts":[],"until":1,"revoked":null}}],"lists":1}}"#)
    };
    fs::write(place.join("ca.json"), record(serial)).unwrap();
    assert_eq!(standings(&Authority::open(&place).unwrap(), NOW), [Standing::Ended]);
    for serial in ["40", "4000000000000000000000000000000F"] {
        fs::write(place.join("ca.json"), record(serial)).unwrap();
        assert!(said(Authority::open(&place)).contains("32 lower-case"), "{serial}");
    }
}
