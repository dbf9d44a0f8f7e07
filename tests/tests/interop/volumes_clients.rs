//! Reads of a volume, of its snapshot and of a clone by QEMU and libiscsi, and their writes that the snapshot refuses.

use std::fs;
use std::ops::Range;

use lunette_tests::{Ran, random_bytes, run};

use super::volumes::Running;

const MIB: usize = 1 << 20;

/// Bytes of the volume.
const LEN: usize = 24 * MIB;

/// The number of the snapshot among the units.
const SNAPSHOT: u16 = 2;

/// A writing tool of QEMU with this command, at one of the units.
fn qemu_io(url: &str, command: &str) -> Ran {
    run("qemu-io", ["-f", "raw", "-t", "none", "-c", command, url])
}

#[test]
fn foreign_clients_read_volumes_snapshots_and_clones() {
    let running = Running::start("");
    let url = |lun: u16| format!("iscsi://{}/iqn.2026-11.org.example:a/{lun}", running.server.address());
    let file = |name: &str| running.place.file(name).to_str().unwrap().to_owned();
    // Data, a hole, and data again.
    let original = [random_bytes(1, 8 * MIB), vec![0; 12 * MIB], random_bytes(2, 4 * MIB)].concat();
    assert_eq!(original.len(), LEN);
    fs::write(file("original"), &original).unwrap();

    running.volume(&["create", "tank/db", "--size", &LEN.to_string()]);
    running.serve(0, "volume:tank/db");
    run("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", &file("original"), &url(0)]).succeeded();
    running.volume(&["snapshot", "monday", "tank/db"]);
    running.volume(&["clone", "tank/db@monday", "tank/copy"]);
    running.serve(1, "volume:tank/copy");
    running.serve(SNAPSHOT, "volume:tank/db@monday");

    let changed = |byte: u8, range: Range<usize>| {
        let mut bytes = original.clone();
        bytes[range].fill(byte);
        bytes
    };
    qemu_io(&url(0), "write -P 0xab 3M 192k").succeeded();
    qemu_io(&url(1), "write -z -u 21M 1M").succeeded();
    let volume = changed(0xab, 3 * MIB..3 * MIB + 192 * 1024);
    let copy = changed(0, 21 * MIB..22 * MIB);
    let refused = qemu_io(&url(SNAPSHOT), "write -P 0xcd 0 4k").failed();
    assert!(refused.contains("write protected"), "{refused}");
    // libiscsi's own tests of a medium that is write protected: each command that would write.
    let tests = run("iscsi-test-cu", ["--dataloss", "--test", "SCSI.ReadOnly", &url(SNAPSHOT)]);
    assert!(tests.succeeded().contains("passed") && !tests.stdout.contains("FAILED"), "{tests}");

    for (lun, expected) in [(0, &volume), (1, &copy), (SNAPSHOT, &original)] {
        let (read, wanted) = (file(&format!("read-{lun}")), file(&format!("wanted-{lun}")));
        fs::write(&wanted, expected).unwrap();
        run("qemu-img", ["convert", "-f", "raw", "-O", "raw", &url(lun), &read]).succeeded();
        assert!(fs::read(&read).unwrap() == *expected, "LUN {lun} as a file");
        run("qemu-img", ["compare", "-f", "raw", "-F", "raw", &url(lun), &wanted]).succeeded();
        let other = if lun == 0 { &copy } else { &volume };
        fs::write(&wanted, other).unwrap();
        let differs = run("qemu-img", ["compare", "-f", "raw", "-F", "raw", &url(lun), &wanted]);
        assert_eq!(differs.code, Some(1), "{differs}");
    }
}
