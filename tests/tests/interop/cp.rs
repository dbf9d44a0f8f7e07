//! `lunette cp` with real files, streams and signals.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lunette_tests::{
    Owned, Ran, Server, lunette, random_bytes, random_file, run, run_at_most, wait_at_most, wait_until,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_mins(1);

fn cp(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().arg("cp").args(arguments))
}

/// A folder and the paths of a source and a destination in it.
fn place() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (source, destination) = (folder.path().join("source"), folder.path().join("destination"));
    (folder, source, destination)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn same(one: &Path, other: &Path) {
    run("cmp", [one, other]).succeeded();
}

fn size_on_disk(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// The value of a number in the JSON line.
fn field(ran: &Ran, name: &str) -> u64 {
    let line = ran.succeeded();
    let value = line.split(&format!("\"{name}\":")).nth(1).unwrap_or_else(|| panic!("no {name} in {ran}"));
    value.split([',', '}']).next().unwrap().parse().unwrap_or_else(|_| panic!("{name} is no number in {ran}"))
}

#[test]
fn only_the_data_of_ten_sparse_gibibytes_is_moved() {
    let (_folder, source, destination) = place();
    let file = File::create(&source).unwrap();
    file.set_len(10 << 30).unwrap();
    for part in 0..10 {
        file.write_all_at(&random_bytes(part, 10 << 20), part << 30).unwrap();
    }
    let copied = cp(&["--json", "--verify", text(&source), text(&destination)]);
    assert_eq!((field(&copied, "bytes"), field(&copied, "data_bytes")), (10 << 30, 100 << 20));
    assert_eq!(fs::metadata(&destination).unwrap().len(), 10 << 30);
    assert!(size_on_disk(&destination) < 101 << 20);
    for part in 0..10 {
        let mut bytes = vec![0; 10 << 20];
        File::open(&destination).unwrap().read_exact_at(&mut bytes, part << 30).unwrap();
        assert!(bytes == random_bytes(part, 10 << 20), "part {part} differs");
    }
}

#[test]
fn a_file_becomes_exactly_the_source_whatever_it_was() {
    let (_folder, source, destination) = place();
    for len in [0, 1, 511, 512, 4097, 300_001] {
        fs::write(&source, random_bytes(len, len as usize)).unwrap();
        random_file(&destination, 99, 1);
        cp(&[text(&source), text(&destination)]).succeeded();
        same(&source, &destination);
    }
}

#[test]
fn zeroes_become_holes() {
    let (_folder, source, destination) = place();
    let mut bytes = vec![0; 8 << 20];
    bytes[4 << 20..5 << 20].copy_from_slice(&random_bytes(1, 1 << 20));
    fs::write(&source, &bytes).unwrap();
    cp(&[text(&source), text(&destination)]).succeeded();
    same(&source, &destination);
    assert!(size_on_disk(&destination) <= 1 << 20);
}

#[test]
fn streams_carry_a_disk_in_and_out() {
    let (_folder, source, destination) = place();
    let bytes = random_bytes(5, 3_000_001);
    fs::write(&source, &bytes).unwrap();
    let out = lunette().args(["cp", text(&source), "-"]).output().unwrap();
    assert!(out.status.success() && out.stdout == bytes, "{:?}", out.status);

    let mut command = lunette();
    command.args(["cp", "--verify", "--json", "-", text(&destination)]);
    let mut child = Owned::start(command.stdin(Stdio::piped()).stdout(Stdio::null()));
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(wait_at_most(&mut child, LIMIT).unwrap().success());
    same(&source, &destination);
}

#[test]
fn a_killed_copy_resumes_where_it_was() {
    let (_folder, source, destination) = place();
    random_file(&source, 7, 256);
    let journal = PathBuf::from(format!("{}.lunette-cp", destination.display()));
    let arguments = ["cp", "--resume", "--json", text(&source), text(&destination)];
    // Small requests, one at a time, take long.
    let mut slow = lunette();
    let slow = Owned::start(slow.args(arguments).args(["--depth", "1", "--bs", "4K"]).stdout(Stdio::null()));
    let moved =
        wait_until(LIMIT, || fs::read_to_string(&journal).ok().filter(|text| !text.contains("done=0")).map(|_| ()));
    drop(slow);
    assert!(moved.is_some(), "no journal");

    let second = run_at_most(LIMIT, lunette().args(arguments));
    let resumed_at = field(&second, "resumed_at");
    assert!((64 << 20..256 << 20).contains(&resumed_at), "{second}");
    assert_eq!(field(&second, "data_bytes"), (256 << 20) - resumed_at);
    same(&source, &destination);
    assert!(!journal.exists());
}

#[test]
fn a_journal_is_not_used_after_another_copy() {
    let (_folder, source, destination) = place();
    random_file(&source, 7, 1);
    let journal = PathBuf::from(format!("{}.lunette-cp", destination.display()));
    fs::write(&journal, "lunette cp journal 1\nsource=x\ndestination=y\nverified=false\ndone=4096\n").unwrap();
    fs::write(&destination, "old").unwrap();
    let resumed = cp(&["--resume", text(&source), text(&destination)]);
    assert_ne!(resumed.code, Some(0), "{resumed}");
    assert_eq!(fs::read(&destination).unwrap(), b"old", "nothing was written");
    cp(&[text(&source), text(&destination)]).succeeded();
    assert!(!journal.exists());
    same(&source, &destination);
}

#[test]
fn a_copy_that_cannot_be_made_is_reported() {
    let (folder, source, destination) = place();
    let fails = |code: i32, words: &[&str], arguments: &[&str]| {
        let ran = cp(arguments);
        assert_eq!(ran.code, Some(code), "{ran}");
        assert!(words.iter().all(|word| ran.stderr.contains(word)), "{ran}");
    };
    fails(5, &[text(&source), "no such file"], &[text(&source), text(&destination)]);
    assert!(!destination.exists());
    random_file(&source, 1, 1);
    fails(2, &["same disk"], &[text(&source), text(&source)]);
    fails(2, &["4K"], &["--bs", "1000", text(&source), text(&destination)]);
    fails(2, &["disk"], &["-", "-"]);
    fails(2, &["resumed"], &["--resume", "-", text(&destination)]);
    fails(2, &["read back"], &["--verify", text(&source), "-"]);
    fails(5, &["directory"], &[text(&source), text(folder.path())]);
}

/// A loop device, which is detached when this is dropped.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let ran = run("losetup", ["--show", "-f", text(file)]);
        (ran.code == Some(0)).then(|| Self(ran.stdout.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", ["-d", &self.0]);
    }
}

#[test]
fn a_device_keeps_what_lies_behind_the_copy() {
    let (folder, source, back) = place();
    let image = folder.path().join("image");
    random_file(&image, 1, 8);
    let before = fs::read(&image).unwrap();
    let Some(device) = Loop::over(&image) else {
        eprintln!("skipped: no loop device can be set up here");
        return;
    };
    // Data, zeroes, and an end within a block.
    let mut bytes = random_bytes(2, 5_000_001);
    bytes[1 << 20..3 << 20].fill(0);
    fs::write(&source, &bytes).unwrap();
    cp(&["--verify", text(&source), &device.0]).succeeded();
    cp(&[&device.0, text(&back)]).succeeded();
    let copied = fs::read(&back).unwrap();
    let end = bytes.len().next_multiple_of(512);
    assert!(copied[..bytes.len()] == bytes && copied[bytes.len()..end].iter().all(|byte| *byte == 0));
    assert!(copied[end..] == before[end..]);

    random_file(&source, 3, 9);
    let small = cp(&[text(&source), &device.0]);
    assert!(small.code == Some(5) && small.stderr.contains("too few"), "{small}");
    let unsaid = cp(&["--resume", text(&back), &device.0]);
    assert!(unsaid.code == Some(2) && unsaid.stderr.contains("--journal"), "{unsaid}");
}

#[test]
fn a_remote_disk_is_copied_to_and_from() {
    let (folder, source, back) = place();
    random_file(&source, 3, 16);
    File::options().write(true).open(&source).unwrap().set_len(100 << 20).unwrap();
    let disk = folder.path().join("disk");
    let server = Server::start(&[text(&disk), "--create", "100M"]);
    let url = format!("{}?header_digest=crc32c&data_digest=crc32c", server.url(0));
    let there = cp(&["--json", "--verify", text(&source), &url]);
    assert_eq!(field(&there, "data_bytes"), 16 << 20);
    assert!(size_on_disk(&disk) < 18 << 20);
    cp(&["--verify", &url, text(&back)]).succeeded();
    same(&source, &back);
    let unnamed = cp(&[&server.portal_url(), text(&back)]);
    assert!(unnamed.code == Some(2) && unnamed.stderr.contains("names no disk"), "{unnamed}");

    let socket = folder.path().join("socket");
    let gateway = Server::spawn(lunette().args(["nbd", &url, "--socket", text(&socket)]), 1);
    let other = folder.path().join("other");
    run("nbdcopy", [gateway.url(0), text(&other)]).succeeded();
    same(&source, &other);
    random_file(&source, 9, 100);
    run("nbdcopy", [text(&source), gateway.url(0)]).succeeded();
    gateway.stop();
    server.stop();
    same(&source, &disk);
}

#[test]
fn both_sides_authenticate() {
    let (folder, source, back) = place();
    random_file(&source, 3, 1);
    let file = |name: &str, secret: &str| {
        let path = folder.path().join(name);
        fs::write(&path, secret).unwrap();
        text(&path).to_owned()
    };
    let (alice, disk) = (file("alice", "the secret of alice"), file("disk", "the secret of the disk"));
    let chap = [format!("alice:{alice}"), format!("disk:{disk}")];
    let server = Server::start(&["mem:1M", "--chap", &chap[0], "--mutual-chap", &chap[1]]);

    let url = server.url_with("alice@", &format!("?chap_secret_file={alice}&chap_target_secret_file={disk}"));
    cp(&["--verify", text(&source), &url]).succeeded();
    let mut from_environment = lunette();
    from_environment.env("LUNETTE_CHAP_PASSWORD", "the secret of alice");
    run_at_most(LIMIT, from_environment.args(["cp", &server.url_with("alice@", ""), text(&back)])).succeeded();
    same(&source, &back);

    let in_url = cp(&[&server.url_with("alice%the%20secret%20of%20alice@", ""), text(&back)]);
    assert!(in_url.code == Some(0) && in_url.stderr.contains("warning"), "{in_url}");
    let impostor = server.url_with("alice@", &format!("?chap_secret_file={alice}&chap_target_secret_file={alice}"));
    for url in [server.url(0), &server.url_with("alice%wrong-wrong-wrong@", ""), &impostor] {
        let refused = cp(&[url, text(&back)]);
        assert!(refused.code == Some(5) && !refused.stderr.contains("wrong-wrong"), "{refused}");
    }
    server.stop();
}

#[test]
fn nbdcopy_through_a_server_equals_a_copy() {
    let (folder, source, destination) = place();
    random_file(&source, 3, 16);
    File::options().write(true).open(&source).unwrap().set_len(64 << 20).unwrap();
    cp(&[text(&source), text(&destination)]).succeeded();
    let socket = folder.path().join("socket");
    let server = Server::spawn(lunette().args(["nbd", text(&source), "--read-only", "--socket", text(&socket)]), 1);
    let other = folder.path().join("other");
    run("nbdcopy", [server.url(0), text(&other)]).succeeded();
    server.stop();
    same(&destination, &other);
}
