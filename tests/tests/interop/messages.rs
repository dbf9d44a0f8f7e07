//! The messages of commands that end badly: a table of mistakes, each with the exit code and the words that name the
//! object, the reason and the remedy.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lunette_tests::{DEFAULT_TARGET, Ran, Server, lunette, run_at_most};

const USAGE: i32 = 2;
const CONFIGURATION: i32 = 3;
const ADDRESS: i32 = 4;
const DISK: i32 = 5;
const TRANSFER: i32 = 6;
const OTHER: i32 = 1;

/// The secret that no message may show.
const SECRET: &str = "hush-hush-hush";

/// A mistake: the arguments, the exit code, and the words of the message. `{dir}` is the folder of the files below,
/// `{closed}` an address where nothing listens, `{taken}` one where something else does, `{portal}` the URL of a server
/// with one disk, `{address}` its address, and `{target}` the name of its target.
type Mistake = (&'static str, i32, &'static [&'static str]);

#[rustfmt::skip]
const MISTAKES: &[Mistake] = &[
    // Disks.
    ("serve --listen 127.0.0.1:0 {dir}/none", DISK, &["{dir}/none: no such file", "give a size to create"]),
    ("serve --listen 127.0.0.1:0 --read-only {dir}/none", DISK, &["{dir}/none: no such file", "check the path"]),
    ("serve --listen 127.0.0.1:0 --create 1M {dir}/no/disk", DISK, &["there is no folder {dir}/no", "create it"]),
    ("serve --listen 127.0.0.1:0 {dir}", DISK, &["{dir}: is a directory", "regular file or block device"]),
    ("serve --listen 127.0.0.1:0 {dir}/empty", DISK, &["{dir}/empty", "0 bytes"]),
    ("serve --listen 127.0.0.1:0 {dir}/plain/disk", DISK, &["{dir}/plain/disk", "a part of its path is no folder"]),
    ("serve --listen 127.0.0.1:0 mem:12Q", USAGE, &["\"12Q\" is not a size", "such as 64M"]),
    ("serve --listen 127.0.0.1:0 mem:1GB", USAGE, &["\"1GB\" is not a size", "binary units"]),
    ("serve --listen 127.0.0.1:0 iscis://u%hush-hush-hush@h/x", USAGE, &["u%***@h", "the URL of a disk begins with iscsi://"]),
    // Addresses.
    ("serve --listen {taken} mem:1M", ADDRESS, &["{taken}", "in use", "choose another port"]),
    ("serve --listen 192.0.2.1:0 mem:1M", ADDRESS, &["192.0.2.1:0", "does not belong to this machine"]),
    ("serve --listen 3260 mem:1M", USAGE, &["\"3260\" is not an address", "write :3260"]),
    ("serve --listen ::1:3260:x mem:1M", USAGE, &["stands in brackets"]),
    ("serve --listen [fe80::1%nowhere]:3260 mem:1M", ADDRESS, &["fe80::1%nowhere has no address here"]),
    ("nbd mem:1M --socket {dir}/plain", ADDRESS, &["{dir}/plain", "a file is there that is no socket", "choose another path"]),
    ("nbd mem:1M --socket {dir}/no/socket", ADDRESS, &["{dir}/no/socket", "its folder does not exist", "create it"]),
    ("nbd mem:1M --listen 127.0.0.1", USAGE, &["\"127.0.0.1\" has no port", "ADDR:PORT"]),
    ("serve --strict --config {dir}/socket.toml", ADDRESS, &["{dir}/plain", "a file is there that is no socket"]),
    // Names and secrets.
    ("serve --target iqn.2026-11.example:Disk mem:1M", USAGE, &["has capitals", "write \"iqn.2026-11.example:disk\""]),
    ("serve --target disk mem:1M", USAGE, &["\"disk\" is not an iSCSI name", "such as iqn."]),
    ("serve --chap alice mem:1M", USAGE, &["write USER:FILE"]),
    ("serve --listen 127.0.0.1:0 --chap alice:{dir}/none mem:1M", CONFIGURATION, &["{dir}/none", "No such file"]),
    ("serve --listen 127.0.0.1:0 --chap iqn.a:b:{dir} mem:1M", CONFIGURATION, &["{dir}: this is a directory"]),
    // Configuration files.
    ("serve --config {dir}/none.toml", CONFIGURATION, &["{dir}/none.toml", "No such file", "correct the path"]),
    ("serve --config {dir}", CONFIGURATION, &["{dir}", "this is a directory"]),
    ("serve --config {dir}/wrong.toml", CONFIGURATION, &["{dir}/wrong.toml", "line 3", "colour"]),
    ("serve --config {dir}/capitals.toml", CONFIGURATION, &["has capitals", "write \"iqn.a:disk\""]),
    ("serve mem:1M --config {dir}/wrong.toml", USAGE, &["--config"]),
    // Remote disks.
    ("info iscsi://{closed}/{target}/0", DISK, &["{closed}", "refused", "does the target listen there"]),
    ("ls iscsi://no-such-host.invalid.", DISK, &["no-such-host.invalid."]),
    ("info {portal}/{target}/7", DISK, &["LUN 7", "lunette ls"]),
    ("info {portal}/iqn.2026-11.example:no/0", DISK, &["iqn.2026-11.example:no at {address}: ", "target not found", "check its name", "lunette ls iscsi://{address}"]),
    ("info {portal}", USAGE, &["names no target", "/TARGET/LUN"]),
    ("ping iscsi://u@{closed}", CONFIGURATION, &["no secret for \"u\"", "LUNETTE_CHAP_PASSWORD", "chap_secret_file"]),
    ("info iscsi://u%hush-hush-hush@h/{target}/x", USAGE, &["u%***@h", "\"x\" is no LUN"]),
    ("info iscsi:u%hush-hush-hush@h/{target}/0", USAGE, &["u%***@h", "starts with iscsi://"]),
    ("info iscsi://u:hush-hush-hush@{closed}/{target}/0", CONFIGURATION, &["no secret for \"u:***\"", "u%PASSWORD", "chap_secret_file"]),
    ("ls http://u:hush-hush-hush@h/", USAGE, &["http://u:***@h/", "starts with iscsi://"]),
    ("info u%hush-hush-hush@h/{target}/0", USAGE, &["u%***@h", "starts with iscsi://"]),
    ("info u:hush-hush-hush@h/{target}/0", USAGE, &["u:***@h", "starts with iscsi://"]),
    ("serve --listen 127.0.0.1:0 u%hush-hush-hush@h/x", DISK, &["there is no folder u%***@h", "check the path"]),
    ("ls iscsi://u@h?target_pasword=hush-hush-hush", USAGE, &["target_pasword=***", "there is no parameter \"target_pasword\""]),
    ("ls iscsi://u@h?chap_secret=hush-hush-hush", USAGE, &["chap_secret=***", "there is no parameter \"chap_secret\""]),
    ("info iscsi://u@h?target_password=hush-hush-hush&color=1", USAGE, &["target_password=***", "\"color\""]),
    ("bench iscsi://u%hush-hush-hush@h:0/{target}/0", USAGE, &["u%***@h", "\"0\" is no port"]),
    ("info iscsi://::1/{target}", USAGE, &["stands in brackets"]),
    // Copies.
    ("cp {dir}/plain mem:1M", USAGE, &["a disk in memory ends with the command", "name a file"]),
    ("cp {dir}/plain iscis://u%hush-hush-hush@h/x", USAGE, &["u%***@h", "the URL of a disk begins with iscsi://"]),
    ("cp {dir}/none {dir}/new", DISK, &["{dir}/none: no such file or device; check the path"]),
    ("cp {dir}/disk {dir}/no/new", DISK, &["there is no folder {dir}/no", "create it"]),
    ("cp {dir}/disk {dir}/disk", USAGE, &["are the same disk"]),
    ("cp {dir}/disk {dir}", DISK, &["{dir}: is a directory"]),
    ("cp {dir}/disk {portal}/{target}/0", DISK, &["too few for the 2097152 of the source"]),
    ("cp {dir}/disk {dir}/new --bs 1000", USAGE, &["write a multiple of 4K"]),
    ("cp {dir}/disk {portal}/{target}/0 --resume", USAGE, &["--journal"]),
    // The control plane.
    ("ctl --api unix:{dir}/none ls", OTHER, &["{dir}/none", "is the server running"]),
    ("ctl --api unix:{dir}/plain ls", OTHER, &["{dir}/plain", "it is no socket"]),
    ("ctl --api {dir}/none ls", USAGE, &["{dir}/none", "a Unix socket is written unix:PATH"]),
    ("ctl --server https://user:hush-hush-hush@h ls", USAGE, &["https://user:***@h", "write https://HOST"]),
    ("ctl --server user:hush-hush-hush@h ls", USAGE, &["user:***@h", "write https://HOST"]),
    ("ctl ls foo", USAGE, &["targets/IQN", "luns, portals, sessions or jobs"]),
    ("ctl --api unix:{dir}/none rm targets", USAGE, &["targets is a list", "name one object"]),
    ("ctl --api unix:{dir}/none rm targets/iqn.a/luns", USAGE, &["targets/iqn.a/luns is a list", "targets/IQN/luns/NUMBER"]),
    ("ctl --api unix:{dir}/none rm sessions/1", USAGE, &["sessions/1 is a session", "lunette ctl kick"]),
    ("ctl --api unix:{dir}/none plan -f {dir}/latin1", CONFIGURATION, &["{dir}/latin1", "UTF-8"]),
    ("ctl --api unix:{dir}/none audit --count x", USAGE, &["'x'", "write a whole number"]),
    ("serve mem:1M --api unix:{dir}/api", USAGE, &["cannot be used with '--api", "for a configuration file", "--config FILE"]),
    ("serve --listen 127.0.0.1:0 --state {dir}/plain mem:1M", CONFIGURATION, &["{dir}/plain", "that is no state file", "name another file"]),
    ("serve mem:1M --create 1M", USAGE, &["--create", "a disk in memory has the length of its name"]),
    ("serve mem:1M --zero-copy", USAGE, &["--zero-copy", "none of the disks is a file"]),
    ("serve --listen tcp://127.0.0.1:1 mem:1M", USAGE, &["tcp://127.0.0.1:1", "leave out what ends with ://"]),
    ("nbd mem:1M --listen 10809", USAGE, &["\"10809\" is not an address", "write :10809"]),
    // Files that are written.
    ("serve --listen 127.0.0.1:0 --state {dir}/no/state mem:1M", CONFIGURATION, &["{dir}/no/state", "create what is missing"]),
    ("man {dir}/no", OTHER, &["{dir}/no", "create what is missing"]),
    ("import --from tgt {dir}/targets.conf --secrets {dir}/plain/x", OTHER, &["{dir}/plain/x", "a part of its path is no folder"]),
    // Other arguments.
    ("serve --quantum 513 mem:1M", USAGE, &["quantum = 513", "write one of"]),
    ("serve --cores 0 mem:1M", USAGE, &["cores = 0", "1 to 64 cores"]),
    ("serve --mutual-chap a:b mem:1M", USAGE, &["--chap <USER:FILE>"]),
    ("serve rbd:a", USAGE, &["\"rbd:a\" names no image", "write rbd:POOL"]),
    ("nbd {dir}/none --listen 127.0.0.1:0", DISK, &["{dir}/none: no such file", "give a size to create"]),
    ("activate {portal}/{target}/0 ::1", USAGE, &["stands in brackets"]),
    ("tune --rtt x", USAGE, &["\"x\" is not a time", "write 80ms"]),
    ("quanta info {dir}/none", DISK, &["{dir}/none: no such file or device; check the path"]),
    // Files of others.
    ("import {dir}/none.json", CONFIGURATION, &["{dir}/none.json", "No such file"]),
    ("import {dir}/disk", CONFIGURATION, &["{dir}/disk", "--from"]),
    ("import --from lio {dir}/plain", CONFIGURATION, &["{dir}/plain", "line 1"]),
];

fn text(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
}

/// The files that the mistakes name.
fn files(dir: &Path) {
    let sized = |name: &str, len: u64| File::create(dir.join(name)).unwrap().set_len(len).unwrap();
    sized("disk", 2 << 20);
    sized("empty", 0);
    text(&dir.join("plain"), "plain\n");
    fs::write(dir.join("latin1"), b"[[target]]\nname = \"iqn.\xfc\"\n").unwrap();
    text(&dir.join("targets.conf"), "<target iqn.a>\nincominguser u secret-of-u\n</target>\n");
    text(&dir.join("wrong.toml"), "[[target]]\nname = \"iqn.a\"\ncolour = 1\n");
    text(&dir.join("capitals.toml"), "[[target]]\nname = \"iqn.a:Disk\"\n");
    let socket = format!("listen = []\napi = {{ listen = [\"unix:{}/plain\"] }}\n", dir.display());
    text(&dir.join("socket.toml"), &socket);
}

fn check(ran: &Ran, code: i32, words: impl IntoIterator<Item = String>) {
    assert_eq!(ran.code, Some(code), "{ran}");
    for word in words {
        assert!(ran.stderr.contains(&word), "no {word:?} in {ran}");
    }
    let begins = ["lunette: ", "error: "].iter().any(|begin| ran.stderr.lines().any(|line| line.starts_with(begin)));
    assert!(begins && !ran.stderr.contains("panicked") && !ran.stderr.contains("Os {"), "{ran}");
    assert!(!ran.stderr.contains(SECRET) && ran.stdout.is_empty(), "{ran}");
}

#[test]
fn each_mistake_is_answered_with_its_object_reason_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let server = Server::start(&["mem:1M"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    // It listened, and does no more.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let filled = |text: &str| {
        text.replace("{dir}", folder.path().to_str().unwrap())
            .replace("{closed}", &closed.to_string())
            .replace("{taken}", &taken.local_addr().unwrap().to_string())
            .replace("{portal}", &server.portal_url())
            .replace("{address}", &server.address().to_string())
            .replace("{target}", DEFAULT_TARGET)
    };
    for (arguments, code, words) in MISTAKES {
        let mut command = lunette();
        command.env_remove("LUNETTE_CHAP_PASSWORD").args(filled(arguments).split(' '));
        check(&run_at_most(Duration::from_secs(20), &mut command), *code, words.iter().map(|word| filled(word)));
        assert!(!folder.path().join("new").exists(), "{arguments} leaves a file behind");
    }
    server.stop();
}

/// Runs a command below a file system of its own: `{fs}` is a tmpfs with these options.
fn on_a_file_system(options: &str, folder: &Path, arguments: &str) -> Ran {
    let place = folder.join("fs");
    fs::create_dir_all(&place).unwrap();
    let script = format!(
        "mount -t tmpfs -o {options} none {0} && exec {1} {2}",
        place.display(),
        lunette().get_program().to_str().unwrap(),
        arguments.replace("{fs}", place.to_str().unwrap()).replace("{dir}", folder.to_str().unwrap())
    );
    run_at_most(Duration::from_secs(20), Command::new("unshare").args(["-m", "sh", "-c", &script]))
}

#[test]
fn a_file_system_that_is_full_or_read_only_is_named_with_its_remedy() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    fs::write(folder.path().join("data"), vec![7; 2 << 20]).unwrap();
    for (options, arguments, code, words) in [
        (
            "ro",
            "serve --listen 127.0.0.1:0 --create 1M {fs}/disk",
            DISK,
            &["{fs}/disk", "mounted read only", "remount it"],
        ),
        ("ro", "cp {dir}/data {fs}/new", DISK, &["{fs}/new", "mounted read only", "choose another place"]),
        (
            "size=1m",
            "cp {dir}/data {fs}/new",
            TRANSFER,
            &["{fs}/new: cannot write", "free space", "the unfinished copy was removed"],
        ),
    ] {
        let ran = on_a_file_system(options, folder.path(), arguments);
        let place = folder.path().join("fs");
        check(&ran, code, words.iter().map(|word| word.replace("{fs}", place.to_str().unwrap())));
    }
}

#[test]
fn a_standard_error_that_nothing_reads_changes_no_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    for (arguments, code) in [("check wrong.toml", CONFIGURATION), ("serve --no-such-option", USAGE)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = lunette();
        command.current_dir(folder.path()).args(arguments.split(' ')).stderr(writer);
        assert_eq!(command.status().unwrap().code(), Some(code), "{arguments}");
    }
}

#[test]
fn a_full_standard_output_is_named() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child =
        lunette().args(["completions", "bash"]).stdout(full).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(OTHER), "{said}");
    assert!(said.contains("standard output: ") && said.contains("free space"), "{said}");
}

/// By default a process that goes beyond the limit is ended, and what it has made stays.
#[test]
fn a_copy_beyond_the_limit_of_file_sizes_is_named_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
    std::fs::write(&source, vec![7; 2 << 20]).unwrap();
    let mut command = std::process::Command::new("prlimit");
    command.arg("--fsize=1048576").arg(lunette().get_program()).arg("cp").arg(&source).arg(&copy);
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(DISK), "{said}");
    assert!(said.contains("ulimit -f") && !copy.exists(), "{said}");
}
