//! Encrypted disks: made by `lunette quanta`, used by each command through `?keys=`, over native units, foreign targets
//! and files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use lunette_tests::keys::{CHEAP, Place, PyKmip, json, keys, refusal};
use lunette_tests::{Foreign, Ran, Server, attach, lunette, random_bytes, run, run_at_most};
use lunette_tls::authority::{Authority, Identities};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_mins(2);

/// Bytes of the images: whole quanta of every size.
const IMAGE_BYTES: usize = 6 << 20;

/// The plain text that no server may ever see.
const SECRET: &[u8] = b"the plain text that only owners of the keys can read";

fn on(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().args(arguments))
}

/// A key file with a passphrase, and an image of secrets.
struct Owner {
    place: Place,
    image: String,
}

impl Owner {
    fn new() -> Self {
        let place = Place::new();
        let passphrase = place.file("passphrase", "correct horse\n");
        let file = place.text("keys");
        keys(&[&["create", &file, "--passphrase-file", &passphrase], &CHEAP[..]].concat()).succeeded();
        let mut bytes = random_bytes(7, IMAGE_BYTES);
        for at in (0..IMAGE_BYTES - SECRET.len()).step_by(10_000) {
            bytes[at..at + SECRET.len()].copy_from_slice(SECRET);
        }
        let image = place.text("image");
        fs::write(&image, bytes).unwrap();
        Self { place, image }
    }

    /// The disk with where its keys are.
    fn keyed(&self, disk: &str) -> String {
        format!("{disk}?keys=file:{}&passphrase_file={}", self.place.text("keys"), self.place.text("passphrase"))
    }

    fn quanta(&self, command: &str, disk: &str, more: &[&str]) -> Ran {
        on(&[&["quanta", command, &self.keyed(disk)], more].concat())
    }

    fn quanta_anchored(&self, command: &str, disk: &str, anchor: &str) -> Ran {
        on(&["quanta", command, &format!("{}&anchor={anchor}", self.keyed(disk))])
    }

    /// Copies the image to the disk and back, and returns where its ciphertext must not show the secret.
    fn there_and_back(&self, disk: &str) {
        let (disk, copy) = (self.keyed(disk), self.place.text("copy"));
        on(&["cp", "--verify", &self.image, &disk]).succeeded();
        on(&["cp", &disk, &copy]).succeeded();
        self.is_image(&copy);
    }

    /// Asserts that a file begins with the image, and has nothing but zeroes behind it.
    fn is_image(&self, copy: &str) {
        let (image, copy) = (fs::read(&self.image).unwrap(), fs::read(copy).unwrap());
        assert!(copy[..image.len()] == image, "other bytes came back");
        assert!(copy[image.len()..].iter().all(|byte| *byte == 0));
    }
}

/// Asserts that a file has the image in it, and no plain text.
fn is_ciphertext(file: &Path) {
    let bytes = fs::read(file).unwrap();
    assert!(bytes.iter().filter(|byte| **byte != 0).count() > IMAGE_BYTES / 2, "the image is not there");
    assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET), "the server has plain text");
}

/// A server of a native unit in a file, with quanta of 4096 bytes.
fn native(owner: &Owner) -> (Server, PathBuf) {
    let file = owner.place.path("native");
    let server = Server::start(&[file.to_str().unwrap(), "--create", "16640K", "--quantum", "4096"]);
    (server, file)
}

#[test]
fn a_native_unit_keeps_an_image_that_its_server_cannot_read() {
    let owner = Owner::new();
    let (server, file) = native(&owner);
    let made = json(&owner.quanta("format", server.url(0), &["--json"]));
    assert_eq!((&made["placement"], &made["quantum"]), (&"native".into(), &4096.into()));
    owner.there_and_back(server.url(0));
    is_ciphertext(&file);
    let verified = json(&owner.quanta("verify", server.url(0), &["--json"]));
    assert_eq!((&verified["whole"], &verified["authenticated"]), (&true.into(), &true.into()));
    assert_eq!(verified["intact"], IMAGE_BYTES / 4096);
    on(&["quanta", "verify", server.url(0), "--no-keys"]).succeeded();
    let info = json(&on(&["quanta", "info", server.url(0), "--json"]));
    assert_eq!((&info["volume"], &info["authenticated"]), (&made["volume"], &false.into()));
    let log = server.stop();
    assert!(!log.contains("correct horse") && !log.contains("keys="), "{log}");
}

#[test]
fn a_foreign_target_keeps_a_packed_volume() {
    let owner = Owner::new();
    let tgt = Foreign::tgt(16, false);
    let made = json(&owner.quanta("format", &tgt.url(), &["--json"]));
    assert_eq!((&made["placement"], &made["quantum"]), (&"packed".into(), &4096.into()));
    owner.there_and_back(&tgt.url());
    is_ciphertext(&tgt.disk_file());
    owner.quanta("verify", &tgt.url(), &[]).succeeded();
    // The volume is the same one in the file behind the target.
    let file = tgt.disk_file();
    owner.quanta("verify", file.to_str().unwrap(), &[]).succeeded();
}

#[test]
fn a_file_keeps_a_packed_volume_of_each_quantum() {
    let owner = Owner::new();
    for quantum in ["512", "1024", "2048", "4096"] {
        let disk = owner.place.text(&format!("disk{quantum}"));
        owner.quanta("format", &disk, &["--create", "16M", "--quantum", quantum]).succeeded();
        owner.there_and_back(&disk);
        is_ciphertext(Path::new(&disk));
        owner.quanta("verify", &disk, &[]).succeeded();
    }
}

#[test]
fn a_disk_that_was_rolled_back_is_refused_by_whoever_has_its_anchor() {
    let owner = Owner::new();
    let (disk, anchor, copy) = (owner.place.text("disk"), owner.place.text("anchor"), owner.place.text("copy"));
    let anchored = format!("{}&anchor={anchor}", owner.keyed(&disk));
    let quanta = |command: &str, more: &[&str]| on(&[&["quanta", command, &anchored], more].concat());
    quanta("format", &["--create", "16M"]).succeeded();
    on(&["cp", &owner.image, &anchored]).succeeded();
    let older = fs::read(&disk).unwrap();
    fs::write(&owner.image, random_bytes(8, IMAGE_BYTES)).unwrap();
    on(&["cp", "--verify", &owner.image, &anchored]).succeeded();
    quanta("verify", &[]).succeeded();
    assert_eq!(json(&quanta("info", &["--json"]))["anchored"], IMAGE_BYTES / 4096);
    quanta("recover", &[]).succeeded();

    fs::write(&disk, older).unwrap();
    let (code, said) = refusal(&on(&["cp", &anchored, &copy]));
    assert!(code == 6 && said.contains("were refused: quantum") && said.contains("rolled back"), "{code}: {said}");
    let verified = quanta("verify", &["--json"]);
    assert_eq!(verified.code, Some(7));
    let report: serde_json::Value = serde_json::from_str(&verified.stdout).unwrap();
    assert_eq!(report["bad"]["rolled back"], IMAGE_BYTES / 4096);
    // Without the anchor it is a whole disk, and so it is for a new one.
    owner.quanta("verify", &disk, &[]).succeeded();
    assert_eq!(refusal(&quanta("anchor", &[])).0, 3, "it is there already");
    fs::remove_file(&anchor).unwrap();
    let (code, said) = refusal(&on(&["cp", &anchored, &copy]));
    assert!(code == 3 && said.contains(&anchor), "{code}: {said}");
    quanta("anchor", &[]).succeeded();
    on(&["cp", &anchored, &copy]).succeeded();

    // It is that of one volume.
    let stranger = Owner::new();
    let other = stranger.place.text("other");
    stranger.quanta("format", &other, &["--create", "16M"]).succeeded();
    for command in ["info", "recover"] {
        let (code, said) = refusal(&stranger.quanta_anchored(command, &other, &anchor));
        assert!(code == 3 && said.contains(&anchor), "{code}: {said}");
    }
}

#[test]
fn nbd_clients_use_an_encrypted_disk() {
    let owner = Owner::new();
    let disk = owner.place.text("disk");
    owner.quanta("format", &disk, &["--create", "16M"]).succeeded();
    let socket = owner.place.text("socket");
    let nbd = Server::spawn(lunette().args(["nbd", &owner.keyed(&disk), "--socket", &socket]), 1);
    let (copy, converted) = (owner.place.text("copied"), owner.place.text("converted"));
    run("nbdcopy", [&*owner.image, nbd.url(0)]).succeeded();
    run("nbdcopy", [nbd.url(0), &copy]).succeeded();
    owner.is_image(&copy);
    run("qemu-img", ["convert", "-f", "raw", "-O", "raw", nbd.url(0), &converted]).succeeded();
    owner.is_image(&converted);
    run("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", &converted, nbd.url(0)]).succeeded();
    nbd.stop();
    is_ciphertext(Path::new(&disk));
    owner.quanta("verify", &disk, &[]).succeeded();
    let last = owner.place.text("last");
    on(&["cp", &owner.keyed(&disk), &last]).succeeded();
    owner.is_image(&last);
}

#[test]
fn an_encrypted_disk_of_another_target_is_served_as_a_plain_one() {
    let owner = Owner::new();
    let (far, file) = native(&owner);
    owner.quanta("format", far.url(0), &[]).succeeded();
    let near = Server::start(&[&owner.keyed(far.url(0))]);
    on(&["cp", &owner.image, near.url(0)]).succeeded();
    let copy = owner.place.text("copy");
    on(&["cp", near.url(0), &copy]).succeeded();
    owner.is_image(&copy);
    let info = json(&on(&["info", near.url(0), "--json"]));
    assert_eq!(info["block_bytes"], 4096);
    let log = near.stop();
    assert!(!log.contains("correct horse"), "{log}");
    is_ciphertext(&file);
    owner.there_and_back(far.url(0));
    far.stop();
}

/// Byte 100 of the quantum `position` on a native unit.
fn damage(file: &Path, position: u64) {
    let disk = File::options().read(true).write(true).open(file).unwrap();
    let (at, mut byte) = ((2 + position) * 4160 + 100, [0]);
    disk.read_exact_at(&mut byte, at).unwrap();
    disk.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_damaged_quantum_is_named_and_never_read() {
    let owner = Owner::new();
    let (server, file) = native(&owner);
    owner.quanta("format", server.url(0), &[]).succeeded();
    on(&["cp", &owner.image, &owner.keyed(server.url(0))]).succeeded();
    server.stop();
    damage(&file, 700);
    let server = Server::start(&[file.to_str().unwrap(), "--quantum", "4096"]);

    let (code, said) = refusal(&on(&["cp", &owner.keyed(server.url(0)), &owner.place.text("copy")]));
    assert!(code == 6 && said.contains("quantum 700") && said.contains("CRC"), "{said}");

    for keys in [&[][..], &["--no-keys"]] {
        let verified = owner.quanta("verify", server.url(0), &[&["--json"], keys].concat());
        let report: serde_json::Value = serde_json::from_str(&verified.stdout).unwrap();
        assert_eq!((verified.code, &report["bad"]["damaged"]), (Some(7), &1.into()), "{verified}");
        assert_eq!(report["first_bad"], serde_json::json!([{ "quantum": 700, "what": "damaged" }]));
    }

    let socket = owner.place.text("socket");
    let nbd = Server::spawn(lunette().args(["nbd", &owner.keyed(server.url(0)), "--socket", &socket]), 1);
    let qemu_io = |at: &str| run("qemu-io", ["-f", "raw", "-c", &format!("read {at} 4096"), nbd.url(0)]);
    let said = qemu_io(&(700 * 4096).to_string()).failed();
    assert!(said.contains("Input/output error"), "{said}");
    qemu_io(&(701 * 4096).to_string()).succeeded();
    nbd.stop();

    let near = Server::start(&[&owner.keyed(server.url(0))]);
    let (code, said) = refusal(&on(&["cp", near.url(0), &owner.place.text("copy")]));
    assert!(code == 6 && said.contains("MEDIUM ERROR"), "{said}");
    let mut initiator = attach(&near, &[]);
    let refused = initiator.read(0, 690, 20);
    assert_eq!(refused.sense(), (3, 0x11, 0));
    // The information field of fixed sense data, which is valid, names the block.
    assert_eq!((refused.sense[0] & 0x80, &refused.sense[3..7]), (0x80, &700u32.to_be_bytes()[..]));
    drop(initiator);
    near.stop();
}

#[test]
fn mistakes_with_keys_are_told_apart() {
    let owner = Owner::new();
    let disk = owner.place.text("disk");
    let copy = owner.place.text("copy");
    let cp = |from: &str| refusal(&on(&["cp", from, &copy]));
    File::create(&disk).unwrap().set_len(4 << 20).unwrap();
    let (code, said) = cp(&owner.keyed(&disk));
    assert!(code == 5 && said.contains("no encrypted volume"), "{said}");
    owner.quanta("format", &disk, &[]).succeeded();

    let wrong = owner.place.file("wrong", "battery staple");
    let of = |keys: &str, passphrase: &str| format!("{disk}?keys=file:{keys}&passphrase_file={passphrase}");
    let (file, passphrase) = (owner.place.text("keys"), owner.place.text("passphrase"));
    let (code, said) = cp(&of(&file, &wrong));
    assert!(
        code == 3 && said.contains("no holder of the key file has this passphrase") && said.contains(&file),
        "{said}"
    );
    assert!(!said.contains("battery"), "{said}");

    let (code, said) = cp(&format!("{disk}?keys=file:{file}"));
    assert!(code == 2 && said.contains("passphrase_file"), "{said}");
    let (code, said) = cp(&of(&owner.place.text("missing"), &passphrase));
    assert!(code == 3 && said.contains("missing") && said.contains("No such file"), "{said}");
    let whole = fs::read(&file).unwrap();
    fs::write(owner.place.path("cut"), &whole[..whole.len() / 2]).unwrap();
    let (code, said) = cp(&of(&owner.place.text("cut"), &passphrase));
    assert!(code == 3 && said.contains("cut off"), "{said}");
    let (code, said) = cp(&format!("{disk}?passphrase_file={passphrase}"));
    assert!(code == 2 && said.contains("keys is missing"), "{said}");

    let other = owner.place.text("other");
    keys(&[&["create", &other, "--passphrase-file", &passphrase], &CHEAP[..]].concat()).succeeded();
    let (code, said) = cp(&of(&other, &passphrase));
    assert!(code == 3 && said.contains("those of volume"), "{said}");

    // systemd gives a credential as a file in a folder.
    let credential = format!("{disk}?keys=file:{file}&passphrase_credential=passphrase");
    let mut with_credential = lunette();
    with_credential.args(["cp", &credential, &copy]).env("CREDENTIALS_DIRECTORY", owner.place.folder());
    run_at_most(LIMIT, &mut with_credential).succeeded();
    let (code, said) = refusal(&run_at_most(LIMIT, with_credential.env_remove("CREDENTIALS_DIRECTORY")));
    assert!(code == 3 && said.contains("LoadCredentialEncrypted"), "{said}");
}

#[test]
fn a_disk_with_something_on_it_is_formatted_only_when_it_is_said_twice() {
    let owner = Owner::new();
    let disk = owner.place.text("disk");
    fs::copy(&owner.image, &disk).unwrap();
    let (code, said) = refusal(&owner.quanta("format", &disk, &[]));
    assert!(code == 2 && said.contains("not empty") && said.contains("--yes"), "{said}");
    assert!(fs::read(&disk).unwrap() == fs::read(&owner.image).unwrap());
    owner.quanta("format", &disk, &["--yes"]).succeeded();
    let (code, said) = refusal(&owner.quanta("format", &disk, &[]));
    assert!(code == 2 && said.contains("has the encrypted volume") && said.contains("--yes"), "{said}");
    owner.quanta("format", &disk, &["--yes"]).succeeded();
}

#[test]
fn a_served_disk_learns_new_keys_while_it_is_open() {
    let owner = Owner::new();
    let (server, _) = native(&owner);
    let (disk, file, passphrase) = (server.url(0), owner.place.text("keys"), owner.place.text("passphrase"));
    owner.quanta("format", disk, &[]).succeeded();
    let (socket, copy) = (owner.place.text("socket"), owner.place.text("copy"));
    let nbd = Server::spawn(lunette().args(["nbd", &owner.keyed(disk), "--socket", &socket]), 1);
    let rotate = || {
        keys(&["rotate", &file, "--passphrase-file", &passphrase]).succeeded();
    };
    rotate();
    on(&["cp", &owner.image, &owner.keyed(disk)]).succeeded();
    let log = nbd.hang_up(&["new keys were fetched", "the keys stay as they were"]);
    assert!(log.contains("epoch=2"), "{log}");
    run("nbdcopy", [nbd.url(0), &copy]).succeeded();
    owner.is_image(&copy);

    // A client that meets an epoch which is not known waits until its key has come.
    rotate();
    on(&["cp", &owner.image, &owner.keyed(disk)]).succeeded();
    run("nbdcopy", [nbd.url(0), &copy]).succeeded();
    owner.is_image(&copy);

    // Keys that cannot be had change nothing.
    fs::rename(&file, owner.place.path("away")).unwrap();
    nbd.hang_up(&["the keys stay as they were"]);
    run("nbdcopy", [nbd.url(0), &copy]).succeeded();
    nbd.stop();
}

#[test]
fn servers_close_a_disk_at_their_end_and_tell_what_it_has_done() {
    let owner = Owner::new();
    let (disk, socket) = (owner.place.text("disk"), owner.place.text("socket"));
    owner.quanta("format", &disk, &["--create", "16M"]).succeeded();
    let journal = || json(&owner.quanta("verify", &disk, &["--json"]))["journal"].clone();

    let nbd = Server::spawn(lunette().args(["nbd", &owner.keyed(&disk), "--socket", &socket]), 1);
    run("nbdcopy", [&*owner.image, nbd.url(0)]).succeeded();
    let counts = nbd.ask(Signal::USR1, &["checkpoints"]);
    assert!(counts.contains(&format!("encrypted disk {disk}")) && counts.contains("quanta sealed"), "{counts}");
    nbd.terminate();
    let (status, log) = nbd.wait(LIMIT);
    assert!(status.success() && log.matches("quanta sealed").count() == 2, "once more at the end: {log}");
    assert_eq!(journal(), "empty");

    let server = Server::start(&[&owner.keyed(&disk), "--json"]);
    on(&["cp", "--verify", &owner.image, server.url(0)]).succeeded();
    let counts = server.ask(Signal::USR1, &["encrypted_disks"]);
    let line = counts.lines().find(|line| line.contains("encrypted_disks")).unwrap();
    let counts: serde_json::Value = serde_json::from_str(line).unwrap();
    let of_disk = &counts["encrypted_disks"][0];
    assert_eq!(of_disk["disk"], *disk);
    assert!(of_disk["sealed"].as_u64() >= Some(IMAGE_BYTES as u64 / 4096), "{of_disk}");
    assert_eq!(of_disk["refused_damaged"], 0);
    server.stop();
    assert_eq!(journal(), "empty");
}

#[test]
fn a_rotated_key_takes_over_and_the_old_one_can_go() {
    let owner = Owner::new();
    let (disk, file, passphrase) = (owner.place.text("disk"), owner.place.text("keys"), owner.place.text("passphrase"));
    owner.quanta("format", &disk, &["--create", "16M"]).succeeded();
    owner.there_and_back(&disk);
    keys(&["rotate", &file, "--passphrase-file", &passphrase]).succeeded();
    let rekeyed = json(&owner.quanta("rekey", &disk, &["--json"]));
    assert_eq!((&rekeyed["rewritten"], &rekeyed["first_epoch"]), (&(IMAGE_BYTES / 4096).into(), &2.into()));
    let verified = json(&owner.quanta("verify", &disk, &["--json"]));
    assert_eq!((&verified["older_epochs"], &verified["intact"]), (&0.into(), &(IMAGE_BYTES / 4096).into()));
    assert_eq!(json(&owner.quanta("rekey", &disk, &["--json"]))["rewritten"], 0);
    keys(&["destroy", &file, "--epoch", "1", "--yes", "--passphrase-file", &passphrase]).succeeded();
    let copy = owner.place.text("copy");
    on(&["cp", &owner.keyed(&disk), &copy]).succeeded();
    owner.is_image(&copy);
    owner.quanta("recover", &disk, &[]).succeeded();
}

/// A volume whose keys are in a key server: the key file as an object, and the key of its holder.
fn volume_of_a_key_server(owner: &Owner, url: &str, tls: &str) -> (String, String) {
    let (file, object) = (owner.place.text("server.keys"), format!("{url}/vm1"));
    keys(&["create", &file, "--kmip", &format!("{url}/vm1-holder"), "--name", "server", "--tls", tls]).succeeded();
    keys(&["publish", &file, &object, "--tls", tls]).succeeded();
    let disk = owner.place.text("disk");
    let keyed = format!("{disk}?keys={object}&tls={tls}");
    on(&["quanta", "format", &keyed, "--create", "16M"]).succeeded();
    on(&["cp", &owner.image, &keyed]).succeeded();
    let copy = owner.place.text("copy");
    on(&["cp", &format!("{disk}?keys=file:{file}&tls={tls}"), &copy]).succeeded();
    owner.is_image(&copy);
    // Another epoch: the published file is replaced, and the newest one counts.
    keys(&["rotate", &file, "--tls", tls]).succeeded();
    keys(&["publish", &file, &object, "--tls", tls]).succeeded();
    assert_eq!(json(&on(&["quanta", "info", &keyed, "--json"]))["newest_epoch"], 1);
    let rekeyed = json(&on(&["quanta", "rekey", &keyed, "--json"]));
    assert_eq!(rekeyed["newest_epoch"], 2);
    on(&["cp", &keyed, &copy]).succeeded();
    owner.is_image(&copy);
    (disk, keyed)
}

#[test]
fn pykmips_server_keeps_the_keys_of_a_volume() {
    let owner = Owner::new();
    // The authority is that of our server's store.
    owner.place.server().stop();
    let tls = owner.place.certificate("alice", &[]);
    let server = PyKmip::start(&owner.place);
    volume_of_a_key_server(&owner, &server.url, &tls);
}

#[test]
fn our_key_server_keeps_the_keys_of_a_volume_and_may_go_away_while_it_is_used() {
    let owner = Owner::new();
    let server = owner.place.server();
    let (alice, bob) = (owner.place.certificate("alice", &[]), owner.place.certificate("bob", &[]));
    let (disk, keyed) = volume_of_a_key_server(&owner, server.url(0), &alice);

    let copy = owner.place.text("copy");
    let of_bob = keyed.replace(&alice, &bob);
    let (code, said) = refusal(&on(&["cp", &of_bob, &copy]));
    assert!(code == 3 && said.contains("no key file vm1 for this client"), "{said}");
    for object in ["vm1", "vm1-holder"] {
        let object = format!("{}/{object}", server.url(0));
        keys(&["grant", &object, "--name", "bob", "--tls", &alice]).succeeded();
    }
    on(&["cp", &of_bob, &copy]).succeeded();
    owner.is_image(&copy);
    let (code, said) = refusal(&on(&["cp", &format!("{disk}?keys={}/vm1", server.url(0)), &copy]));
    assert!(code == 2 && said.contains("tls=DIR"), "{said}");

    keys(&["ca", "revoke", &owner.place.text("store/ca"), "bob"]).succeeded();
    let (code, said) = refusal(&on(&["cp", &of_bob, &copy]));
    assert!(code == 3 && said.contains("certificate was revoked"), "{said}");

    // Whoever has the keys goes on without the server.
    let socket = owner.place.text("socket");
    let nbd = Server::spawn(lunette().args(["nbd", &keyed, "--socket", &socket]), 1);
    let address = server.url(0).strip_prefix("kmip://").unwrap().to_owned();
    server.kill();
    nbd.hang_up(&["known epochs go on"]);
    run("nbdcopy", [&*owner.image, nbd.url(0)]).succeeded();
    run("nbdcopy", [nbd.url(0), &copy]).succeeded();
    owner.is_image(&copy);
    nbd.stop();
    let (code, said) = refusal(&on(&["cp", &keyed, &copy]));
    assert!(code == 3 && said.contains("cannot be reached") && said.contains(&address), "{said}");
}

#[test]
fn a_certificate_that_has_expired_is_named() {
    const DAY: i64 = 24 * 60 * 60;
    let owner = Owner::new();
    let server = owner.place.server();
    let alice = owner.place.certificate("alice", &[]);
    let (_, keyed) = volume_of_a_key_server(&owner, server.url(0), &alice);
    let now = UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
    let mut authority = Authority::open(&owner.place.path("store/ca")).unwrap();
    let carol = authority.issue("carol", &Identities::default(), now - 3 * DAY, now - DAY).unwrap();
    let of_carol = keyed.replace(&alice, carol.to_str().unwrap());
    let copy = owner.place.text("copy");
    let (code, said) = refusal(&on(&["cp", &of_carol, &copy]));
    assert!(code == 3 && said.contains("this client's certificate has expired"), "{code}: {said}");
    let (code, said) = refusal(&on(&["nbd", &of_carol, "--socket", &owner.place.text("socket")]));
    assert!(code == 3 && said.contains("this client's certificate has expired"), "{code}: {said}");
    on(&["cp", &keyed, &copy]).succeeded();
}

#[test]
fn a_key_file_that_is_missing_is_made_with_the_volume() {
    let owner = Owner::new();
    let (disk, file) = (owner.place.text("disk"), owner.place.text("new.keys"));
    let passphrase = owner.place.text("passphrase");
    let format = ["quanta", "format", &disk, "--create", "4M", "--keys", &format!("file:{file}")];
    let (code, said) = refusal(&on(&format));
    assert!(code == 3 && said.contains("no such key file"), "{said}");
    let cipher = ["--passphrase-file", &passphrase, "--cipher", "aes-256-gcm-siv", "--json"];
    let made = json(&on(&[&format[..], &cipher].concat()));
    assert_eq!(made["cipher"], "aes-256-gcm-siv");
    let listed = json(&keys(&["list", &file, "--json", "--passphrase-file", &passphrase]));
    assert_eq!(listed["volume"], made["volume"]);
    let other = ["--passphrase-file", &passphrase, "--cipher", "aegis-256", "--yes"];
    let (code, said) = refusal(&on(&[&format[..], &other].concat()));
    assert!(code == 2 && said.contains("aes-256-gcm-siv"), "{said}");
}

#[test]
fn load_and_facts_are_those_of_the_plain_disk() {
    let owner = Owner::new();
    let (server, file) = native(&owner);
    let made = json(&owner.quanta("format", server.url(0), &["--json"]));
    let keyed = owner.keyed(server.url(0));
    let verified =
        json(&on(&["bench", &keyed, "--rw", "verify", "--bs", "16k", "--depth", "8", "--time", "1", "--json"]));
    assert!(verified["verified"].as_u64().unwrap() > 0, "{verified}");
    let info = json(&on(&["info", &keyed, "--json"]));
    assert_eq!((&info["block_bytes"], &info["volume"]["bytes"]), (&4160.into(), &made["bytes"]));
    let (code, said) = refusal(&on(&["bench", &keyed, "--rw", "randwrite", "--jobs", "2"]));
    assert!(code == 2 && said.contains("one writer"), "{said}");
    server.stop();
    damage(&file, 3);
    let server = Server::start(&[file.to_str().unwrap(), "--quantum", "4096"]);
    let read = ["bench", &owner.keyed(server.url(0)), "--rw", "read", "--bs", "64k", "--depth", "1", "--time", "1"];
    let (code, said) = refusal(&on(&read));
    assert!(code == 6 && said.contains("quantum 3"), "{said}");
    server.stop();
}

#[test]
fn commands_that_read_leave_a_packed_volume_to_its_writer() {
    let owner = Owner::new();
    let far = Server::start(&[&owner.place.text("packed"), "--create", "16640K"]);
    owner.quanta("format", far.url(0), &[]).succeeded();
    let keyed = owner.keyed(far.url(0));
    let near = Server::start(&[&keyed]);
    on(&["cp", &owner.image, near.url(0)]).succeeded();
    on(&["info", &keyed]).succeeded();
    on(&["bench", &keyed, "--rw", "read", "--bs", "16k", "--time", "1"]).succeeded();
    // More than the journal holds, so the writer looks whether the volume is still its own.
    on(&["cp", &owner.image, near.url(0)]).succeeded();
    near.stop();
    let copy = owner.place.text("copy");
    on(&["cp", &keyed, &copy]).succeeded();
    owner.is_image(&copy);
    far.stop();
}

#[test]
fn no_command_shows_ciphertext_as_a_disk() {
    let owner = Owner::new();
    let (server, _) = native(&owner);
    owner.quanta("format", server.url(0), &[]).succeeded();
    for command in [&["ping"][..], &["tune"]] {
        let ran =
            run_at_most(LIMIT, Command::new(lunette().get_program()).args(command).arg(owner.keyed(server.url(0))));
        assert!(ran.failed().contains("without decrypting"), "{ran}");
    }
    server.stop();
}
