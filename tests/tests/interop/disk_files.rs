//! The fate of files below disks while they are served, as initiators, the log and the next start show it.
//! `docs/disks.md` has the table.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use lunette_testkit::{Outcome, ScriptedInitiator, Sense, cdb_10};
use lunette_tests::keys::{CHEAP, keys};
use lunette_tests::{Configured as Place, Server, attach, lunette, run};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 512;

const CAPACITY_CHANGED: Sense = (6, 0x2a, 0x09);
const INQUIRY_CHANGED: Sense = (6, 0x3f, 0x03);
const OUT_OF_RANGE: Sense = (5, 0x21, 0);
pub(crate) const NOT_READY: Sense = (2, 4, 3);
const MEDIUM_CHANGED: Sense = (6, 0x28, 0);
const UNRECOVERED_READ: Sense = (3, 0x11, 0);

const ONE_DISK: &str = r#"{ number = 0, disk = "@/disk", create = "8M" }"#;

pub(crate) fn config(luns: &str) -> String {
    format!("listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{luns}]\n")
}

/// The length of LUN 0 in bytes, by READ CAPACITY(10).
fn capacity(initiator: &mut ScriptedInitiator) -> u64 {
    let data = initiator.command(0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], Vec::new(), 8).good();
    let number = |at: usize| u64::from(u32::from_be_bytes(data[at..at + 4].try_into().unwrap()));
    (number(0) + 1) * number(4)
}

/// READ(10) of a block.
fn read(initiator: &mut ScriptedInitiator, offset: u64) -> Outcome {
    let lba = u32::try_from(offset / BLOCK).unwrap().to_be_bytes();
    initiator.command(0, &[0x28, 0, lba[0], lba[1], lba[2], lba[3], 0, 0, 1, 0], Vec::new(), 512)
}

fn write(initiator: &mut ScriptedInitiator, offset: u64, fill: u8) -> Outcome {
    initiator.write(0, u32::try_from(offset / BLOCK).unwrap(), vec![fill; 512])
}

fn set_len(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Takes the unit attentions of a LUN until a command has none. Returns them, and how that command has ended.
pub(crate) fn attentions(initiator: &mut ScriptedInitiator, number: u16) -> (Vec<Sense>, Option<Sense>) {
    let mut attentions = Vec::new();
    loop {
        let outcome = initiator.test_unit_ready(number);
        match (outcome.status == 2).then(|| outcome.sense()) {
            Some(sense) if sense.0 == 6 => attentions.push(sense),
            other => return (attentions, other),
        }
    }
}

/// Lets the server read the configuration again. Returns the log.
fn reload(server: &Server) -> String {
    server.hang_up(&["changes applied", "nothing has changed", "configuration refused"])
}

#[test]
fn a_file_that_is_cut_is_a_shorter_disk() {
    let (place, server) = Place::serve(&config(ONE_DISK), 1);
    let disk = place.file("disk");
    let mut initiator = attach(&server, &[]);
    write(&mut initiator, 6 * MIB, 7).good();
    write(&mut initiator, MIB, 7).good();

    set_len(&disk, 4 * MIB);
    // The read may come before the server has found out, or after.
    let first = read(&mut initiator, 6 * MIB).sense();
    let second = read(&mut initiator, 6 * MIB).sense();
    assert!(
        matches!((first, second), (CAPACITY_CHANGED | OUT_OF_RANGE, OUT_OF_RANGE | CAPACITY_CHANGED)),
        "{first:?} {second:?}"
    );
    server.await_log("LUN 0: the file has become shorter", 1);
    server.await_log("LUN 0: the file is shorter than the disk was", 1);
    assert_eq!(initiator.news().1, CAPACITY_CHANGED);
    initiator.test_unit_ready(0);
    assert_eq!(capacity(&mut initiator), 4 * MIB);
    assert_eq!(write(&mut initiator, 6 * MIB, 8).sense(), OUT_OF_RANGE);
    assert_eq!(len(&disk), 4 * MIB, "a write makes it no longer");
    assert_eq!(read(&mut initiator, MIB).good(), [7; 512]);

    set_len(&disk, 8 * MIB);
    let log = reload(&server);
    assert!(log.contains("LUN 0 has grown to 8388608 bytes"), "{log}");
    assert_eq!(initiator.test_unit_ready(0).sense(), CAPACITY_CHANGED);
    assert_eq!(read(&mut initiator, 6 * MIB).good(), [0; 512]);
    server.await_log("LUN 0 is served as configured again", 1);
    drop(initiator);
    server.stop();
}

#[test]
fn a_length_of_no_whole_blocks_is_served_alike_when_running_and_at_the_start() {
    let text = config(ONE_DISK);
    let (place, server) = Place::serve(&text, 1);
    let disk = place.file("disk");
    let mut initiator = attach(&server, &[]);
    set_len(&disk, 9_000_001);
    reload(&server);
    server.await_log("the last block of the file is not whole", 1);
    assert_eq!(initiator.test_unit_ready(0).sense(), CAPACITY_CHANGED);
    let running = capacity(&mut initiator);
    assert_eq!(running, 9_000_001 / BLOCK * BLOCK);
    drop(initiator);
    server.stop();

    let server = place.start(&text, 1);
    server.await_log("the last block of the file is not whole", 1);
    assert_eq!(capacity(&mut attach(&server, &[])), running);
    let refused = place.change(&server, &text.replace("8M", "9000001"));
    assert!(refused.contains("use 8999936 or 9000448"), "{refused}");
    set_len(&disk, 5_000_001);
    server.await_log("LUN 0: the file has become shorter", 1);
    assert_eq!(len(&disk), 5_000_001);
    server.stop();
}

#[test]
fn a_replaced_file_is_another_disk_after_a_reload() {
    let text = config(ONE_DISK);
    let (place, server) = Place::serve(&text, 1);
    let (disk, new) = (place.file("disk"), place.file("new"));
    let mut initiator = attach(&server, &[]);
    write(&mut initiator, 0, 1).good();
    fs::write(&new, vec![2; 4 << 20]).unwrap();
    fs::rename(&new, &disk).unwrap();
    server.await_log("LUN 0: another file has its path", 1);
    assert_eq!(read(&mut initiator, 0).good(), [1; 512], "until it is told");

    let log = place.change(&server, &text);
    assert!(log.contains("LUN 0 replaced"), "{log}");
    assert_eq!(initiator.news().1, INQUIRY_CHANGED);
    assert_eq!(initiator.test_unit_ready(0).sense(), Outcome::POWER_ON);
    assert_eq!(initiator.test_unit_ready(0).sense(), INQUIRY_CHANGED);
    assert_eq!(capacity(&mut initiator), 4 * MIB);
    assert_eq!(read(&mut initiator, 0).good(), [2; 512]);
    let second = run(lunette().get_program(), ["serve", "--listen", "127.0.0.1:0", disk.to_str().unwrap()]).failed();
    assert!(second.contains(&format!("in use by process {} (lunette)", server.process().id())), "{second}");

    fs::remove_file(&disk).unwrap();
    server.await_log("LUN 0: the file was deleted", 1);
    let log = reload(&server);
    assert!(log.contains("nothing has changed"), "{log}");
    assert_eq!(read(&mut initiator, 0).good(), [2; 512]);
    drop(initiator);
    server.stop();
    assert!(!disk.exists());
}

#[test]
fn a_file_that_is_cut_below_a_block_is_not_ready_until_it_has_blocks_again() {
    let (place, server) = Place::serve(&config(ONE_DISK), 1);
    let disk = place.file("disk");
    let mut initiator = attach(&server, &[]);
    for (round, left) in [0, 100].into_iter().enumerate() {
        set_len(&disk, left);
        server.await_log("LUN 0: the file has become shorter", round + 1);
        server.await_log("LUN 0: the file is shorter than the disk was", round + 1);
        assert_eq!(initiator.news().1, CAPACITY_CHANGED);
        assert_eq!(attentions(&mut initiator, 0).1, Some(NOT_READY));
        assert_eq!(read(&mut initiator, 0).sense(), NOT_READY);
        assert_eq!(write(&mut initiator, 0, 1).sense(), NOT_READY);
        assert_eq!(len(&disk), left, "a write makes it no longer");
        // As long as it was it comes by itself, and with another length after SIGHUP.
        if round == 0 {
            set_len(&disk, 8 * MIB);
            server.await_log("LUN 0: the file has become longer again", 1);
        } else {
            set_len(&disk, 4 * MIB);
            let log = reload(&server);
            assert!(log.contains("LUN 0 has grown to 4194304 bytes"), "{log}");
        }
        assert_eq!(initiator.news().1, CAPACITY_CHANGED);
        let (attentions, ended) = attentions(&mut initiator, 0);
        assert!(attentions.contains(&MEDIUM_CHANGED) && ended.is_none(), "{attentions:?} {ended:?}");
        assert_eq!(capacity(&mut initiator), len(&disk));
        write(&mut initiator, 0, 1).good();
    }
    drop(initiator);
    server.stop();
}

#[test]
fn what_cannot_be_opened_at_the_start_is_not_ready_until_it_can() {
    let place = Place::new();
    let file = |name: &str| place.file(name);
    fs::create_dir(file("folder")).unwrap();
    run("mkfifo", [file("pipe")]).succeeded();
    drop(std::os::unix::net::UnixListener::bind(file("socket")).unwrap());
    fs::write(file("empty"), "").unwrap();
    fs::write(file("closed"), vec![1; 4096]).unwrap();
    run("chmod", ["0", file("closed").to_str().unwrap()]).succeeded();
    let disks = ["missing", "folder", "pipe", "socket", "empty", "closed", "none/disk"];
    let lun = |(number, name): (usize, &&str)| format!("{{ number = {number}, disk = \"@/{name}\" }}, ");
    let luns: String = disks.iter().enumerate().map(lun).collect();
    let text = config(&format!("{luns}{{ number = 7, disk = \"@/good\", create = \"1M\" }}"));
    place.write(&text);
    // A file that its mode closes is closed to this server.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-dac_override,-dac_read_search"]).arg(lunette().get_program());
    let server = Server::spawn(command.args(["serve", "--config"]).arg(file("config")), disks.len() + 1);
    let mut initiator = attach(&server, &[]);
    for (number, name) in (0_u16..).zip(disks) {
        assert_eq!(attentions(&mut initiator, number).1, Some(NOT_READY), "{name}");
        server.await_log(&format!("LUN {number}: {}: ", file(name).display()), 1);
    }
    assert_eq!(attentions(&mut initiator, 7).1, None);

    fs::remove_dir(file("folder")).unwrap();
    fs::remove_file(file("pipe")).unwrap();
    fs::remove_file(file("socket")).unwrap();
    fs::create_dir(file("none")).unwrap();
    run("chmod", ["600", file("closed").to_str().unwrap()]).succeeded();
    for name in disks {
        fs::write(file(name), vec![2; 4096]).unwrap();
    }
    reload(&server);
    for (number, name) in (0_u16..).zip(disks) {
        server.await_log(&format!("LUN {number} is served as configured again"), 1);
        assert_eq!(attentions(&mut initiator, number).1, None, "{name}");
        assert_eq!(initiator.read(number, 0, 1).good(), [2; 512], "{name}");
    }
    drop(initiator);
    server.stop();
}

/// A block of 4096 bytes, as encrypted disks have them.
fn read_long(initiator: &mut ScriptedInitiator, lba: u32) -> Outcome {
    initiator.command(0, &cdb_10(0x28, lba, 1), Vec::new(), 4096)
}

fn write_long(initiator: &mut ScriptedInitiator, lba: u32, fill: u8) -> Outcome {
    initiator.command(0, &cdb_10(0x2a, lba, 1), vec![fill; 4096], 0)
}

/// The plain text of a volume has the length of its header, whatever becomes of the file with the ciphertext.
#[test]
fn the_file_of_an_encrypted_disk_is_watched() {
    let place = Place::new();
    let (disk, other) = (place.file("disk"), place.file("other"));
    fs::write(place.file("passphrase"), "correct horse\n").unwrap();
    let (key_file, passphrase) = (place.file("keys"), place.file("passphrase"));
    let (key_file, passphrase) = (key_file.to_str().unwrap(), passphrase.to_str().unwrap());
    keys(&[&["create", key_file, "--passphrase-file", passphrase], &CHEAP[..]].concat()).succeeded();
    let keyed = format!("{}?keys=file:{key_file}&passphrase_file={passphrase}", other.display());
    run(lunette().get_program(), ["quanta", "format", &keyed, "--create", "16M"]).succeeded();
    let whole = len(&other);

    let text = config(r#"{ number = 0, disk = "@/disk?keys=file:@/keys&passphrase_file=@/passphrase" }"#);
    let server = place.start(&text, 1);
    let mut initiator = attach(&server, &[]);
    assert_eq!(initiator.test_unit_ready(0).sense(), NOT_READY, "its file is missing");
    fs::rename(&other, &disk).unwrap();
    reload(&server);
    server.await_log("LUN 0 is served as configured again", 1);
    assert_eq!(attentions(&mut initiator, 0).1, None);
    let bytes = capacity(&mut initiator);
    let last = u32::try_from(bytes / 4096 - 1).unwrap();
    write_long(&mut initiator, 0, 3).good();
    initiator.synchronize_cache(0).good();

    set_len(&disk, whole / 2);
    server.await_log("LUN 0: the file has become shorter", 1);
    server.await_log("LUN 0: the file is shorter than the disk was", 1);
    assert_eq!(read_long(&mut initiator, last).sense(), UNRECOVERED_READ, "what is lost is no matter of the range");
    assert_eq!((capacity(&mut initiator), len(&disk)), (bytes, whole / 2));
    assert!(read_long(&mut initiator, 0).good() == [3; 4096]);
    set_len(&disk, whole);
    server.await_log("LUN 0: the file has become longer again", 1);
    server.await_log("LUN 0 is served as configured again", 2);
    assert!(read_long(&mut initiator, last).good() == [0; 4096]);

    fs::copy(&disk, &other).unwrap();
    fs::rename(&other, &disk).unwrap();
    server.await_log("LUN 0: another file has its path", 1);
    let log = place.change(&server, &text);
    assert!(log.contains("LUN 0 replaced"), "{log}");
    attentions(&mut initiator, 0);
    assert!(read_long(&mut initiator, 0).good() == [3; 4096]);
    fs::remove_file(&disk).unwrap();
    server.await_log("LUN 0: the file was deleted", 1);
    drop(initiator);
    server.stop();
}

/// A small file system in memory.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        run("mount", ["-t", "tmpfs", "-o", "size=16M", "tmpfs", folder.path().to_str().unwrap()]).succeeded();
        Self(folder)
    }

    /// The bytes that are taken.
    fn used(&self) -> u64 {
        let system = rustix::fs::statvfs(self.0.path()).unwrap();
        (system.f_blocks - system.f_bfree) * system.f_frsize
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_change_that_fails_leaves_files_as_they_were() {
    let small = Small::new();
    let path = |name: &str| small.0.path().join(name).display().to_string();
    let full = |number: u16, name: &str, create: &str| {
        format!("{{ number = {number}, disk = {:?}, create = \"{create}\", provisioning = \"full\" }}", path(name))
    };
    let thin = format!("{{ number = 0, disk = {:?}, create = \"64M\" }}, ", path("thin"));
    let strict = |luns: String| format!("strict = true\n{}", config(&luns));
    let (place, server) = Place::serve(&strict(thin.clone() + &full(1, "full", "2M")), 2);
    let mut initiator = attach(&server, &[]);
    let (used, mut refused) = (small.used(), String::new());
    let changes = [
        // A new disk has no room.
        full(1, "full", "2M") + ", " + &full(2, "new", "200M"),
        // A disk that is served has no room to grow.
        full(1, "full", "200M"),
        // One has room, and the next has none.
        full(1, "full", "3M") + ", " + &full(2, "new", "1M") + ", " + &full(3, "other", "200M"),
    ];
    for change in changes {
        place.write(&strict(thin.clone() + &change));
        refused += &reload(&server);
    }
    assert!(refused.matches("No space left").count() >= 3, "{refused}");
    assert_eq!((len(Path::new(&path("full"))), small.used()), (2 * MIB, used), "{refused}");
    assert!(!Path::new(&path("new")).exists() && !Path::new(&path("other")).exists(), "{refused}");
    write(&mut initiator, 0, 1).good();
    drop(initiator);
    server.stop();
}
