//! Disks of quanta that the server looks at without a key: damage shows as a digest error, then as MEDIUM ERROR.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use lunette_initiator::{Disk, Error, wait};
use lunette_quanta::{Cipher, Codec, DataKey, Holes, KeyRing, QuantumSize, Sealing, Seed, VolumeId};
use lunette_scsi::{AdditionalSense, SenseData};
use lunette_tests::{Server, lunette, wait_until};

const EDU: usize = 4160;

const LEN: u64 = 200 * EDU as u64;

/// The damaged block, and the byte of the file that is changed.
const ROTTEN: u64 = 42;
const BYTE: u64 = ROTTEN * EDU as u64 + 1000;

const MEDIUM_ERROR: SenseData =
    SenseData::medium_error(AdditionalSense::UNRECOVERED_READ_ERROR).with_information(ROTTEN);

/// EDUs as they belong at block `lba` and behind it.
fn edus(lba: u64, count: usize) -> Vec<u8> {
    let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32])).unwrap();
    let codec = Codec::new(VolumeId([1; 16]), QuantumSize::B4096, Holes::Allowed, ring);
    let mut edus = vec![0; count * EDU];
    let sealing = Sealing { position: lba - 2, version: 1, seed: Seed::new([9; 32]) };
    codec.seal(sealing, &vec![0x5a; count * 4096], &mut edus);
    edus
}

/// Turns a byte of the file over, as a disk that rots does.
fn rot(file: &File) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, BYTE).unwrap();
    file.write_all_at(&[byte[0] ^ 1], BYTE).unwrap();
}

fn sense_of<T: std::fmt::Debug>(result: Result<T, Error>) -> SenseData {
    match result {
        Err(Error::Sense { sense, .. }) => sense,
        other => panic!("{other:?}"),
    }
}

/// Serves a file of EDUs with `quanta` among the keys of its unit.
fn serve(folder: &tempfile::TempDir, quanta: &str) -> (Server, File) {
    let path = folder.path().join("disk");
    let file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    file.set_len(LEN).unwrap();
    file.write_all_at(&edus(20, 150), 20 * EDU as u64).unwrap();
    let text = format!(
        r#"
        listen = ["127.0.0.1:0"]
        [[target]]
        name = "iqn.2026-11.lunette:disk"
        session = {{ error_recovery_level = 2 }}
        lun = [{{ number = 0, disk = "{}", quantum = 4096, {quanta} }}]
        "#,
        path.display()
    );
    let config = folder.path().join("config");
    fs::write(&config, text).unwrap();
    (Server::spawn(lunette().args(["serve", "--config"]).arg(&config), 1), file)
}

#[test]
fn a_rotten_byte_is_a_digest_error_and_then_a_medium_error() {
    for level in [0, 1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let (server, file) = serve(&folder, "stored_digests = true");
        let disk =
            wait(Disk::connect(&format!("{}?data_digest=crc32c&error_recovery_level={level}", server.url(0)))).unwrap();
        let intact = wait(disk.read(15, 180)).unwrap();
        assert!(intact[5 * EDU..155 * EDU] == edus(20, 150), "level {level}");
        rot(&file);
        assert_eq!(sense_of(wait(disk.read(15, 180))), MEDIUM_ERROR, "level {level}");
        // The blocks around it are read, in the same session or the one that has taken its place.
        assert!(wait(disk.read(43, 100)).unwrap()[..] == intact[28 * EDU..128 * EDU], "level {level}");
        drop(disk);
        let log = server.stop();
        assert!(log.contains("a digest may have been refused"), "level {level}\n{log}");
        assert!(log.contains("a damaged block was read"), "level {level}\n{log}");
    }
}

#[test]
fn without_data_digests_the_reader_gets_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let (server, file) = serve(&folder, "stored_digests = true");
    rot(&file);
    let disk = wait(Disk::connect(server.url(0))).unwrap();
    let mut expected = edus(20, 150);
    expected[(BYTE - 20 * EDU as u64) as usize] ^= 1;
    assert!(wait(disk.read(20, 150)).unwrap()[..] == expected);
    drop(disk);
    server.stop();
}

#[test]
fn intact_writes_are_taken_and_the_scrub_tells_what_has_rotted() {
    let folder = tempfile::tempdir().unwrap();
    let (server, file) = serve(&folder, "check_quanta = true, scrub_rate = \"1G\"");
    let disk = wait(Disk::connect(server.url(0))).unwrap();
    wait(disk.write(100, &edus(100, 10), false)).unwrap();
    rot(&file);
    let found = || server.log().contains("the scrub has found a damaged block").then_some(());
    assert!(wait_until(Duration::from_mins(1), found).is_some(), "{}", server.log());
    drop(disk);
    let log = server.stop();
    assert!(log.contains(&format!("lba={ROTTEN}")), "{log}");
}
