//! `lunette keys`: key files, and the key server with PyKMIP's client and our client with PyKMIP's server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lunette_tests::keys::{CHEAP, PYTHON, Place, PyKmip, json, keys, refusal};
use lunette_tests::{Server, lunette, run_at_most};

const LIMIT: Duration = Duration::from_mins(2);

/// The data keys of a key file, as `lunette keys export` writes them.
fn exported(place: &Place, file: &str, passphrase: &str) -> serde_json::Value {
    let to = place.text("exported");
    keys(&["export", file, "--passphrase-file", passphrase, "--to", &to]).succeeded();
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    let exported = serde_json::from_slice(&fs::read(&to).unwrap()).unwrap();
    fs::remove_file(to).unwrap();
    exported
}

#[test]
fn holders_and_epochs_of_a_key_file_come_and_go() {
    let place = Place::new();
    let (alice, bob) = (place.file("alice", "of alice\n"), place.file("bob", "of bob\n"));
    let file = place.text("volume.keys");
    keys(&[&["create", &file, "--passphrase-file", &alice, "--name", "alice"], &CHEAP[..]].concat()).succeeded();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let opened = ["--passphrase-file", &alice];
    let grant = [&["grant", &file, "--name", "bob", "--new-passphrase-file", &bob], &opened[..], &CHEAP].concat();
    keys(&grant).succeeded();
    let rotate = ["rotate", &file, "--passphrase-file", &bob, "--cipher", "aes-256-gcm-siv"];
    keys(&rotate).succeeded();

    let listed = json(&keys(&["list", &file, "--json", "--passphrase-file", &bob]));
    assert_eq!((&listed["generation"], &listed["authenticated"]), (&3.into(), &true.into()));
    let names: Vec<_> = listed["holders"].as_array().unwrap().iter().map(|holder| &holder["name"]).collect();
    assert_eq!(names, ["alice", "bob"]);
    let before = exported(&place, &file, &alice);
    assert_eq!(before["epochs"].as_array().unwrap().len(), 2);
    assert_eq!(before, exported(&place, &file, &bob));

    keys(&[&["revoke", &file, "--name", "bob", "--new-volume-key"], &opened[..], &CHEAP].concat()).succeeded();
    let (code, said) = refusal(&keys(&["list", &file, "--passphrase-file", &bob]));
    assert!(code == 3 && said.contains("no holder of the key file has this passphrase"), "{said}");
    keys(&[&["destroy", &file, "--epoch", "1", "--yes"], &opened[..]].concat()).succeeded();
    let after = exported(&place, &file, &alice);
    assert_eq!(after["epochs"], serde_json::json!([before["epochs"][1]]));
}

#[test]
fn a_key_file_that_is_cut_altered_or_missing_is_told_apart() {
    let place = Place::new();
    let passphrase = place.file("passphrase", "correct horse");
    let file = place.text("volume.keys");
    keys(&[&["create", &file, "--passphrase-file", &passphrase], &CHEAP[..]].concat()).succeeded();
    let whole = fs::read_to_string(&file).unwrap();
    let cases = [
        (whole[..whole.len() / 2].to_owned(), "cut off"),
        (String::new(), "cut off"),
        (whole.replace("\"generation\": 1", "\"generation\": 2"), "altered"),
        (whole.replace("\"version\": 1", "\"version\": 9"), "later program"),
        ("[1, 2, 3]".into(), "no key file"),
        ("-----BEGIN CERTIFICATE-----".into(), "no key file"),
    ];
    for (content, expected) in cases {
        fs::write(&file, content).unwrap();
        let (code, said) = refusal(&keys(&["list", &file, "--passphrase-file", &passphrase]));
        assert!(code == 3 && said.contains(expected), "{expected}: {said}");
        assert!(!said.contains("correct horse"), "{said}");
    }
    let (code, said) = refusal(&keys(&["rotate", &place.text("missing"), "--passphrase-file", &passphrase]));
    assert!(code == 3 && said.contains("missing") && said.contains("No such file"), "{said}");
    let (code, said) = refusal(&keys(&["create", &file, "--passphrase-file", &passphrase]));
    assert!(code == 3 && said.contains("exists already"), "{said}");
    let (code, said) = refusal(&keys(&["create", &place.text("new"), "--passphrase-file", &place.file("empty", "\n")]));
    assert!(code == 3 && said.contains("1 to 1024 bytes"), "{said}");
    let (code, said) = refusal(&keys(&["create", &place.text("new")]));
    assert!(code == 2 && said.contains("--kmip"), "{said}");
}

/// `docs/keys.md` describes key files well enough: a reader that was written after it, in another language, finds the
/// keys.
#[test]
fn another_program_reads_a_key_file_by_its_description() {
    let place = Place::new();
    let server = place.server();
    let tls = ["--tls", &place.certificate("alice", &[])];
    let (file, object) = (place.text("volume.keys"), format!("{}/holder", server.url(0)));
    keys(&[&["create", &file, "--kmip", &object, "--name", "server"], &tls[..]].concat()).succeeded();
    keys(&[&["rotate", &file, "--cipher", "aes-256-gcm-siv"], &tls[..]].concat()).succeeded();
    let export = |what: &str, name: &str| -> serde_json::Value {
        let to = place.text(name);
        keys(&[&["export", what, "--to", &to], &tls[..]].concat()).succeeded();
        serde_json::from_slice(&fs::read(to).unwrap()).unwrap()
    };
    let (holder, volume) = (export(&object, "holder.json"), export(&file, "volume.json"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/keys/read_key_file.py");
    let key = holder["key"].as_str().unwrap();
    let ran = run_at_most(LIMIT, Command::new(PYTHON).args([script, &file, "server", key]));
    let field = |epoch: &serde_json::Value, name: &str| epoch[name].to_string().trim_matches('"').to_owned();
    let line = |epoch: &serde_json::Value| ["epoch", "cipher", "key"].map(|name| field(epoch, name)).join(" ");
    let expected: Vec<String> = volume["epochs"].as_array().unwrap().iter().map(line).collect();
    assert_eq!(ran.succeeded().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_last_key_is_destroyed_only_when_it_is_said_twice() {
    let place = Place::new();
    let passphrase = place.file("passphrase", "correct horse");
    let file = place.text("volume.keys");
    keys(&[&["create", &file, "--passphrase-file", &passphrase], &CHEAP[..]].concat()).succeeded();
    fs::hard_link(&file, place.path("link")).unwrap();
    let len = fs::metadata(&file).unwrap().len() as usize;
    let (code, said) = refusal(&keys(&["destroy", &file]));
    assert!(code == 2 && said.contains("can never be read again") && said.contains("--yes"), "{said}");
    assert!(keys(&["list", &file, "--passphrase-file", &passphrase]).code == Some(0));
    let (code, said) = refusal(&keys(&["destroy", &file, "--epoch", "1", "--yes", "--passphrase-file", &passphrase]));
    assert!(code == 3 && said.contains("current"), "{said}");
    let destroyed = keys(&["destroy", &file, "--yes"]);
    assert!(destroyed.stderr.contains("can never be read again"), "{destroyed}");
    destroyed.succeeded();
    assert!(!Path::new(&file).exists());
    assert_eq!(fs::read(place.path("link")).unwrap(), vec![0; len], "the bytes are overwritten");
}

#[test]
fn pykmips_client_is_served() {
    let place = Place::new();
    let server = place.server();
    let files = place.certificate("pykmip", &[]);
    let (host, port) = server.url(0).strip_prefix("kmip://").unwrap().rsplit_once(':').unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/keys/pykmip_client.py");
    let ran = run_at_most(LIMIT, Command::new(PYTHON).args([script, host, port, &files]));
    let destroyed: Vec<String> = ran.succeeded().lines().map(Into::into).collect();
    assert_eq!(destroyed.len(), 5, "one key for each version: {ran}");
    server.stop();
    let audit = fs::read_to_string(place.path("store/audit.log")).unwrap();
    for id in destroyed {
        let lines: Vec<serde_json::Value> = audit
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &serde_json::Value| line["object"] == *id)
            .collect();
        assert!(lines.iter().all(|line| line["client"] == "pykmip"));
        let destroyed = lines.iter().rfind(|line| line["operation"] == "Destroy").unwrap();
        assert_eq!(destroyed["result"], "Success");
    }
}

/// The operations of our client with any key server.
fn our_client_works(place: &Place, url: &str, files: &str) {
    let tls = ["--tls", files];
    let on = |arguments: &[&str]| keys(&[arguments, &tls].concat());
    let object = format!("{url}/volume-1");
    on(&["create", &object]).succeeded();
    let (code, said) = refusal(&on(&["create", &object]));
    assert!(code == 3 && said.contains("already"), "{said}");
    let listed = json(&on(&["list", &object, "--json"]));
    assert_eq!((&listed["names"], &listed["state"]), (&serde_json::json!(["volume-1"]), &"Active".into()));
    let to = place.text("exported.json");
    on(&["export", &object, "--to", &to]).succeeded();
    let exported: serde_json::Value = serde_json::from_slice(&fs::read(to).unwrap()).unwrap();
    assert_eq!(exported["key"].as_str().unwrap().len(), 64);

    let file = place.text("volume.keys");
    on(&["create", &file, "--kmip", &format!("{url}/holder"), "--name", "server"]).succeeded();
    on(&["rotate", &file]).succeeded();
    let passphrase = place.file("passphrase", "correct horse");
    let grant = ["grant", &file, "--name", "alice", "--new-passphrase-file", &passphrase];
    on(&[&grant, &CHEAP[..]].concat()).succeeded();
    let listed = json(&keys(&["list", &file, "--json", "--passphrase-file", &passphrase]));
    assert_eq!(listed["epochs"].as_array().unwrap().len(), 2);

    on(&["revoke", &object]).succeeded();
    assert_eq!(json(&on(&["list", &object, "--json"]))["state"], "Deactivated");
    on(&["destroy", &object, "--yes"]).succeeded();
    on(&["destroy", &format!("{url}/holder"), "--yes"]).succeeded();
    assert_eq!(on(&["list", url, "--json"]).succeeded(), "");
    // The holder's key is gone, and the passphrase still opens the file.
    assert!(on(&["list", &file]).code == Some(1));
    keys(&["list", &file, "--passphrase-file", &passphrase]).succeeded();
}

#[test]
fn pykmips_server_serves_our_client() {
    let place = Place::new();
    let files = place.certificate("alice", &[]);
    let server = PyKmip::start(&place);
    our_client_works(&place, &server.url, &files);
}

#[test]
fn our_server_serves_our_client_and_keeps_keys_when_it_is_killed() {
    let place = Place::new();
    let server = place.server();
    let (alice, bob) = (place.certificate("alice", &[]), place.certificate("bob", &[]));
    our_client_works(&place, server.url(0), &alice);

    let shared = format!("{}/shared", server.url(0));
    keys(&["create", &shared, "--tls", &alice]).succeeded();
    let read = |files: &str| keys(&["list", &shared, "--tls", files]).succeeded().contains("shared");
    assert!(!read(&bob));
    keys(&["grant", &shared, "--name", "bob", "--tls", &alice]).succeeded();
    assert!(read(&bob));
    let (code, said) = refusal(&keys(&["destroy", &shared, "--yes", "--tls", &bob]));
    assert!(code == 1 && said.contains("only alice may"), "{said}");
    keys(&["revoke", &shared, "--name", "bob", "--tls", &alice]).succeeded();
    assert!(!read(&bob));

    let address = server.url(0).strip_prefix("kmip://").unwrap().to_owned();
    server.kill();
    let (code, said) = refusal(&keys(&["list", &shared, "--tls", &alice]));
    assert!(code == 3 && said.contains("cannot be reached") && said.contains(&address), "{said}");
    let mut command = lunette();
    command.args(["keys", "serve", "--listen", &address, "--store", &place.text("store")]);
    let server = Server::spawn(&mut command, 1);
    assert!(read(&alice));
    keys(&["ca", "revoke", &place.text("store/ca"), "alice"]).succeeded();
    let (code, said) = refusal(&keys(&["list", &shared, "--tls", &alice]));
    assert!(code == 3 && said.contains("certificate was revoked"), "{said}");
    server.stop();
}

#[test]
fn the_store_opens_with_its_master_key_alone() {
    let place = Place::new();
    let serve = |more: &[&str]| {
        let mut command = lunette();
        command.args(["keys", "serve", "--listen", "127.0.0.1:0", "--store", &place.text("store")]).args(more);
        command
    };
    place.server().stop();
    let wrong = place.file("wrong.key", &"x".repeat(32));
    let (code, said) = refusal(&run_at_most(LIMIT, &mut serve(&["--master-key-file", &wrong])));
    assert!(code == 3 && said.contains("master key does not open"), "{said}");
    let short = place.file("short.key", "x");
    let (code, said) = refusal(&run_at_most(LIMIT, &mut serve(&["--master-key-file", &short])));
    assert!(code == 3 && said.contains("exactly 32 bytes"), "{said}");
    // A systemd credential is a file in a folder that systemd names.
    fs::rename(place.path("store/master.key"), place.path("keys-master")).unwrap();
    let (code, said) = refusal(&run_at_most(LIMIT, &mut serve(&[])));
    assert!(code == 3 && said.contains("master.key"), "{said}");
    let mut command = serve(&["--master-credential", "keys-master"]);
    Server::spawn(command.env("CREDENTIALS_DIRECTORY", place.folder()), 1).stop();
    let (code, said) = refusal(&run_at_most(
        LIMIT,
        serve(&["--master-credential", "keys-master"]).env_remove("CREDENTIALS_DIRECTORY"),
    ));
    assert!(code == 3 && said.contains("LoadCredentialEncrypted"), "{said}");
}
