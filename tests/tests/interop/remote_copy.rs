//! `lunette cp` and `lunette nbd` over iSCSI: the bytes on the wire, and the bytes that come back.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_testkit::Relay;
use lunette_tests::{Owned, Ran, Server, lunette, random_bytes, run, run_at_most, wait_until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(1);

/// The number of pieces of data, each at the start of a gibibyte.
const PARTS: u64 = 10;
const PART_BYTES: usize = 10 << 20;
const DATA_BYTES: u64 = PARTS * PART_BYTES as u64;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn cp(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().args(["cp", "--json"]).args(arguments))
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(ran.succeeded()).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

/// Creates ten gibibytes with ten pieces of data.
fn sparse_file(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(PARTS << 30).unwrap();
    for part in 0..PARTS {
        file.write_all_at(&random_bytes(part, PART_BYTES), part << 30).unwrap();
    }
}

/// Asserts that the file has the same pieces and nothing else: the size on disk leaves no room for more.
fn is_like_the_sparse_file(path: &Path) {
    let (file, metadata) = (File::open(path).unwrap(), fs::metadata(path).unwrap());
    assert_eq!(metadata.len(), PARTS << 30);
    assert!(metadata.blocks() * 512 < DATA_BYTES + (2 << 20), "{} blocks", metadata.blocks());
    let mut bytes = vec![0; PART_BYTES];
    for part in 0..PARTS {
        file.read_exact_at(&mut bytes, part << 30).unwrap();
        assert!(bytes == random_bytes(part, PART_BYTES), "part {part} differs");
    }
}

/// Starts a slow copy, and kills it when its journal says that some of it is done.
fn kill_half_way(arguments: &[&str], journal: &Path) {
    let mut command = lunette();
    command.arg("cp").args(arguments).args(["--depth", "1", "--bs", "4K"]).stdout(Stdio::null());
    let copy = Owned::start(command);
    let begun = || fs::read_to_string(journal).ok().filter(|text| !text.contains("done=0")).map(drop);
    let begun = wait_until(LIMIT, begun);
    drop(copy);
    assert!(begun.is_some(), "no journal");
}

/// Resumes a copy and asserts that it copies only the rest.
fn goes_on(arguments: &[&str]) {
    let done = json(&cp(arguments));
    let (resumed_at, data) = (done["resumed_at"].as_u64().unwrap(), done["data_bytes"].as_u64().unwrap());
    assert!(resumed_at > 1 << 30, "{done}");
    assert!(data < DATA_BYTES / 2, "{done}");
}

#[test]
fn a_sparse_image_moves_its_data_alone_there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let (source, disk, back) = (folder.path().join("source"), folder.path().join("disk"), folder.path().join("back"));
    sparse_file(&source);
    let server = Server::start(&[text(&disk), "--create", "10G"]);
    let relay = Relay::to(server.address());
    let url = relay.url(server.url(0));
    let about_the_data = DATA_BYTES..DATA_BYTES * 103 / 100;

    let there = json(&cp(&[text(&source), &url]));
    assert_eq!(there["data_bytes"], DATA_BYTES);
    let moved = relay.take_bytes();
    assert!(about_the_data.contains(&moved), "{moved} bytes there");

    let here = json(&cp(&[&url, text(&back)]));
    assert_eq!(here["data_bytes"], DATA_BYTES);
    let moved = relay.take_bytes();
    assert!(about_the_data.contains(&moved), "{moved} bytes back");
    is_like_the_sparse_file(&back);
    server.stop();
    is_like_the_sparse_file(&disk);
}

#[test]
fn a_killed_copy_to_a_target_and_back_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (source, disk, back, journal) = (path("source"), path("disk"), path("back"), path("journal"));
    sparse_file(&source);
    let server = Server::start(&[text(&disk), "--create", "10G"]);
    for (from, to) in [(text(&source), server.url(0)), (server.url(0), text(&back))] {
        let arguments = ["--resume", "--journal", text(&journal), from, to];
        kill_half_way(&arguments, &journal);
        goes_on(&arguments);
        assert!(!journal.exists());
    }
    is_like_the_sparse_file(&back);
    server.stop();
    is_like_the_sparse_file(&disk);
}

#[test]
fn a_remote_disk_over_nbd_is_the_same_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (source, copied, by_nbdcopy, by_qemu) = (path("source"), path("copied"), path("nbdcopy"), path("qemu"));
    let file = File::create(&source).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&random_bytes(5, 9 << 20), 21 << 20).unwrap();
    let server = Server::start(&[text(&path("disk")), "--create", "64M"]);
    cp(&["--verify", text(&source), server.url(0)]).succeeded();
    cp(&[server.url(0), text(&copied)]).succeeded();

    let socket = path("socket");
    let url = format!("{}?header_digest=crc32c&data_digest=crc32c", server.url(0));
    let gateway = Server::spawn(lunette().args(["nbd", &url, "--socket", text(&socket)]), 1);
    let info = run("nbdinfo", [gateway.url(0)]);
    for fact in ["export-size: 67108864", "can_fua: true", "can_flush: true", "can_trim: true", "can_zero: true"] {
        assert!(info.succeeded().contains(fact), "no {fact:?} in {info}");
    }
    let map = run("nbdinfo", ["--map", "--totals", gateway.url(0)]);
    assert!(map.succeeded().contains("hole"), "{map}");
    run("nbdcopy", [gateway.url(0), text(&by_nbdcopy)]).succeeded();
    run("qemu-img", ["convert", "-f", "raw", "-O", "raw", gateway.url(0), text(&by_qemu)]).succeeded();
    for other in [&copied, &by_nbdcopy, &by_qemu] {
        run("cmp", [&source, other]).succeeded();
        assert!(fs::metadata(other).unwrap().blocks() * 512 < 10 << 20, "{} has no holes", other.display());
    }

    let mut fio = Command::new("fio");
    fio.current_dir(folder.path()).args(["--name=x", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=32"]);
    fio.args(["--size=16M", "--verify=crc32c", "--verify_fatal=1"]).arg(format!("--uri={}", gateway.url(0)));
    run_at_most(LIMIT, &mut fio).succeeded();
    gateway.stop();
    server.stop();
}
