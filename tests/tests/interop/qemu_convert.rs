//! QEMU's own iSCSI driver, through which virtual machines use a disk: whole images there and back, and deep queues.

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lunette_tests::{DEFAULT_TARGET, Ran, Server, random_file, run, run_at_most};

/// The variable that makes the test convert an image of a gibibyte, as an installation would, instead of a quarter of
/// it.
const WHOLE: &str = "LUNETTE_TEST_1G";

/// A time limit that allows for a gibibyte on a slow disk.
const LIMIT: Duration = Duration::from_mins(5);

fn mebibytes() -> u64 {
    if env::var_os(WHOLE).is_some() { 1024 } else { 256 }
}

fn qemu_img(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, Command::new("qemu-img").args(arguments))
}

/// Asserts that an image converted to the disk and back has the same bytes.
fn there_and_back(disk: &str, options: &[&str], image_options: &str, folder: &Path) {
    let size = mebibytes();
    let (original, copy) = (folder.join("original"), folder.join("copy"));
    random_file(&original, size, size);
    let (original, copy) = (original.to_str().unwrap(), copy.to_str().unwrap());

    let server = Server::start(&[&[disk][..], options].concat());
    let image =
        format!("driver=iscsi,transport=tcp,portal={},target={DEFAULT_TARGET},lun=0{image_options}", server.address());
    qemu_img(&["convert", "-n", "--target-image-opts", "-W", "-m", "16", original, &image]).succeeded();
    qemu_img(&["convert", "--image-opts", "-O", "raw", "-W", "-m", "16", &image, copy]).succeeded();
    run("cmp", [original, copy]).succeeded();
    qemu_img(&["compare", "--image-opts", &format!("driver=raw,file.filename={original}"), &image]).succeeded();
    server.stop();
}

#[test]
fn memory_gives_an_image_back() {
    let folder = tempfile::tempdir().unwrap();
    there_and_back(&format!("mem:{}M", mebibytes()), &[], "", folder.path());
}

#[test]
fn memory_gives_an_image_back_with_header_digests() {
    let folder = tempfile::tempdir().unwrap();
    there_and_back(&format!("mem:{}M", mebibytes()), &[], ",header-digest=crc32c", folder.path());
}

#[test]
fn a_file_gives_an_image_back() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let size = format!("{}M", mebibytes());
    there_and_back(disk.to_str().unwrap(), &["--create", &size], "", folder.path());
    run("cmp", [disk.to_str().unwrap(), folder.path().join("original").to_str().unwrap()]).succeeded();
}

#[test]
fn a_file_with_large_blocks_gives_an_image_back_with_header_digests() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let size = format!("{}M", mebibytes());
    let options = ["--create", &size, "--block-size", "4096"];
    there_and_back(disk.to_str().unwrap(), &options, ",header-digest=crc32c", folder.path());
}

#[test]
fn deep_queues_run_clean() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    for disk in ["mem:256M", file.to_str().unwrap()] {
        let create: &[&str] = if disk.starts_with("mem:") { &[] } else { &["--create", "256M"] };
        let server = Server::start(&[&[disk], create].concat());
        for (kind, block) in
            [(&[][..], "4096"), (&["-w"], "4096"), (&["-w", "--flush-interval=64"], "65536"), (&[], "65536")]
        {
            let common = ["-f", "raw", "-t", "none", "-c", "4000", "-d", "64", "-s", block, server.url(0)];
            let bench = qemu_img(&[&["bench"], kind, &common[..]].concat());
            assert!(bench.succeeded().contains("Run completed"), "{bench}");
        }
        server.stop();
    }
}
