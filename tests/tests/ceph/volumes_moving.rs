//! Volumes that move between a folder and Ceph.

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};
use std::thread;

use lunette_tests::{Ceph, Configured, Mount, attach, lunette, random_bytes};

const LUN: &str = "targets/iqn.2026-11.org.example:a/luns/0";

/// Runs the command against the server of a folder, with this on standard input.
fn run(place: &Configured, arguments: &[&str], input: &[u8]) -> Output {
    let socket = format!("unix:{}", place.file("api.sock").display());
    let mut command = lunette();
    command.args(arguments).args(["--api", &socket]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        // A command that refuses reads no further.
        scope.spawn(move || _ = stdin.write_all(input));
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn a_volume_moves_from_a_folder_into_ceph_and_back() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    let (place, mount) = (Configured::new(), Mount::new("mkfs.xfs", &["-q"], 512 << 20));
    fs::create_dir(place.file("conf.d")).unwrap();
    let target = "[[target]]\nname = \"iqn.2026-11.org.example:a\"\nallow = [\"*\"]\n\
                  lun = [{ number = 9, disk = \"mem:1M\" }]";
    fs::write(place.file("conf.d/target-iqn.2026-11.org.example:a.toml"), target).unwrap();
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\napi = {{ listen = [\"unix:@/api.sock\"] }}\n\
         [[pool]]\nname = \"disk\"\nplace = \"{}\"\n[[pool]]\nname = \"ceph\"\nplace = \"{}\"\n",
        mount.path().display(),
        namespace.url()
    );
    let server = place.start(&text, 1);
    let volume = |arguments: &[&str], input: &[u8]| run(&place, &[&["volume"], arguments].concat(), input).stdout;

    let bytes = [random_bytes(1, 5 << 20), vec![0; 5 << 20], random_bytes(2, 6 << 20)].concat();
    volume(&["create", "disk/db", "--from", "-", "--size", "16M"], &bytes);
    volume(&["snapshot", "monday", "disk/db"], &[]);
    run(&place, &["ctl", "add", LUN, "disk=volume:disk/db"], &[]);
    let mut initiator = attach(&server, &[]);
    while initiator.test_unit_ready(0).status != 0 {}
    initiator.write(0, 0, vec![0; 4096]).good();
    initiator.write(0, 12_000, vec![7; 4096]).good();
    volume(&["snapshot", "tuesday", "disk/db"], &[]);

    let monday = volume(&["send", "disk/db@monday"], &[]);
    let changes = volume(&["send", "disk/db@tuesday", "--since", "monday"], &[]);
    assert!(changes.len() < monday.len() / 2);
    // A stream that is cut leaves no volume, or its content of before.
    let socket = format!("unix:{}", place.file("api.sock").display());
    let cut = |stream: &[u8]| {
        let file = place.file("cut");
        fs::write(&file, &stream[..stream.len() - 1]).unwrap();
        let mut command = lunette();
        command.args(["volume", "receive", "ceph/db", "--api", &socket]).stdin(fs::File::open(&file).unwrap());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(6));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let why = cut(&monday);
    assert!(why.contains("the unfinished ceph/db was removed"), "{why}");
    volume(&["receive", "ceph/db"], &monday);
    let why = cut(&changes);
    assert!(why.contains("ceph/db has its content of before"), "{why}");
    volume(&["receive", "ceph/db"], &changes);

    let back = volume(&["send", "ceph/db@monday"], &[]);
    volume(&["receive", "disk/back"], &back);
    let back = volume(&["send", "ceph/db@tuesday", "--since", "monday"], &[]);
    volume(&["receive", "disk/back"], &back);
    let image = |path: &str| fs::read(mount.path().join(path)).unwrap();
    assert!(image("back/snapshots/monday.img") == image("db/snapshots/monday.img"));
    assert!(image("back/disk.img") == image("db/snapshots/tuesday.img"));

    // A disk is taken over into Ceph, too, and its map goes.
    fs::write(place.file("old"), &bytes).unwrap();
    let old = place.file("old").display().to_string();
    let taken = volume(&["create", "ceph/taken", "--take-over", &old, "--wait"], &[]);
    assert!(!String::from_utf8_lossy(&taken).contains("taking_over"));
    volume(&["snapshot", "first", "ceph/taken"], &[]);
    let sent = volume(&["send", "ceph/taken@first"], &[]);
    volume(&["receive", "disk/taken"], &sent);
    assert!(image("taken/disk.img") == bytes);
    let images = namespace.rbd(&["ls"]);
    assert!(!images.succeeded().contains("map-"));
    server.stop();
}
