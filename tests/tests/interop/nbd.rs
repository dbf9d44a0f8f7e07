//! `lunette nbd` with common clients: libnbd's tools, QEMU's and fio.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_tests::{Owned, Ran, Server, lunette, random_bytes, run, run_at_most, signal, stop, wait_until};
use rustix::process::Signal;

const MEBIBYTES: u64 = 64;

fn serve(arguments: &[&str]) -> Server {
    Server::spawn(lunette().arg("nbd").args(arguments), 1)
}

fn on_socket(disk: &str, folder: &Path, more: &[&str]) -> Server {
    let socket = folder.join("socket");
    serve(&[&[disk, "--socket", socket.to_str().unwrap()], more].concat())
}

/// Creates a sparse file with a piece of data in the middle.
fn sparse_file(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(MEBIBYTES << 20).unwrap();
    file.write_all_at(&random_bytes(1, 8 << 20), 20 << 20).unwrap();
}

fn file_size_on_disk(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn qemu_io(uri: &str, commands: &[&str]) -> Ran {
    let each = commands.iter().flat_map(|command| ["-c", command]);
    run("qemu-io", ["-f", "raw"].into_iter().chain(each).chain([uri]))
}

#[test]
fn nbdinfo_sees_what_the_disk_can_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_socket("mem:64M", folder.path(), &["--name", "disk"]);
    let info = run("nbdinfo", [server.url(0)]);
    for fact in [
        "structured packets",
        "export-size: 67108864",
        "base:allocation",
        "is_read_only: false",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 512",
    ] {
        assert!(info.succeeded().contains(fact), "no {fact:?} in {info}");
    }
    assert!(run("nbdinfo", ["--list", server.url(0)]).succeeded().contains("export=\"disk\""));
    run("nbdinfo", [&server.url(0).replace("///disk", "///other")]).failed();
    server.stop();
}

#[test]
fn nbdcopy_gives_an_image_back_and_keeps_its_holes() {
    let folder = tempfile::tempdir().unwrap();
    let (original, disk, copy) =
        (folder.path().join("original"), folder.path().join("disk"), folder.path().join("copy"));
    sparse_file(&original);
    let (original, copy) = (original.to_str().unwrap(), copy.to_str().unwrap());
    let server = on_socket(disk.to_str().unwrap(), folder.path(), &["--create", "64M"]);
    run("nbdcopy", [original, server.url(0)]).succeeded();
    run("nbdcopy", [server.url(0), copy]).succeeded();
    run("cmp", [original, copy]).succeeded();
    server.stop();
    run("cmp", [original, disk.to_str().unwrap()]).succeeded();
    assert!(file_size_on_disk(&disk) <= 9 << 20, "the holes became zeroes");
}

#[test]
fn qemu_writes_zeroes_discards_and_flushes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    for disk in ["mem:64M", file.to_str().unwrap()] {
        let server = on_socket(disk, folder.path(), &["--create", "64M"]);
        let done = qemu_io(
            server.url(0),
            &[
                "write -P 0x5a 1M 256k",
                "write -f -P 0xa5 2M 64k",
                "read -P 0x5a 1M 256k",
                "read -P 0xa5 2M 64k",
                "discard 1M 64k",
                "write -z 1088k 64k",
                "write -z -u 1152k 64k",
                "flush",
                "read -P 0 1M 192k",
                "read -P 0x5a 1216k 64k",
            ],
        );
        assert!(!done.succeeded().contains("verification failed"), "{done}");
        server.stop();
    }
}

#[test]
fn a_read_only_disk_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_socket("mem:64M", folder.path(), &["--read-only"]);
    assert!(run("nbdinfo", [server.url(0)]).succeeded().contains("is_read_only: true"));
    qemu_io(server.url(0), &["write 0 64k"]).failed();
    assert!(run("qemu-io", ["-r", "-f", "raw", "-c", "read -P 0 0 64k", server.url(0)]).succeeded().contains("64 KiB"));
    server.stop();
}

#[test]
fn fio_verifies_deep_queues_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&["mem:64M", "--listen", "127.0.0.1:0"]);
    let mut fio = Command::new("fio");
    fio.current_dir(folder.path()).args(["--name=x", "--ioengine=nbd", "--rw=randwrite", "--bsrange=512-128k"]);
    fio.args([
        "--bs_unaligned=0",
        "--blockalign=512",
        "--iodepth=64",
        "--size=64M",
        "--verify=crc32c",
        "--verify_fatal=1",
    ]);
    fio.arg(format!("--uri={}", server.url(0)));
    run_at_most(Duration::from_secs(100), &mut fio).succeeded();
    server.stop();
}

#[test]
fn a_socket_in_use_is_reported_and_one_left_behind_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_socket("mem:16M", folder.path(), &[]);
    let socket = folder.path().join("socket").to_str().unwrap().to_owned();
    let second = run_at_most(Duration::from_secs(20), lunette().args(["nbd", "mem:16M", "--socket", &socket]));
    assert_eq!(second.code, Some(4), "{second}");
    assert!(second.stderr.contains(&socket), "{second}");
    server.kill();
    on_socket("mem:16M", folder.path(), &[]).stop();
    assert!(!Path::new(&socket).exists(), "the socket goes with its server");
}

#[test]
fn signals_limits_and_a_full_standard_output_end_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, socket) = (folder.path().join("disk"), folder.path().join("socket"));
    File::create(&disk).unwrap().set_len(8 << 20).unwrap();
    let mut command = Command::new("prlimit");
    command.arg("--fsize=4194304").arg(lunette().get_program()).arg("nbd").arg(&disk).arg("--socket").arg(&socket);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = Owned::start(command.stdin(Stdio::null()).stdout(full));
    assert!(wait_until(Duration::from_secs(30), || socket.exists().then_some(())).is_some());
    for sent in [Signal::USR2, Signal::ALARM, Signal::VTALARM, Signal::PROF, Signal::IO, Signal::XCPU, Signal::XFSZ] {
        signal(&child, sent);
    }
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let refused = qemu_io(&uri, &["write 0 6M"]).to_string();
    assert!(refused.contains("No space left"), "{refused}");
    qemu_io(&uri, &["write 0 2M", "flush"]).succeeded();
    stop(&mut child);
    assert!(child.wait().unwrap().success());
    assert!(!socket.exists(), "the socket goes with its server");
}
