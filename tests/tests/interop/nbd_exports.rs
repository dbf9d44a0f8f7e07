//! The disks of `lunette serve` by NBD, too: the rules for hosts hold, as for any initiator.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_tests::{Configured, Ran, Server, attach, lunette, random_file, run, run_at_most};

const LIMIT: Duration = Duration::from_mins(1);
const TARGET: &str = "iqn.2026-11.org.example:a";

/// RESERVE(6), by which an initiator has a logical unit for itself.
const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
/// RELEASE(6).
const RELEASE: [u8; 6] = [0x17, 0, 0, 0, 0, 0];

/// A target with three disks. A client of NBD sees the last one under another number and may read it, and the first.
const MASKED: &str = r#"
listen = ["127.0.0.1:0"]
[nbd]
listen = ["127.0.0.1:0"]
initiator = "iqn.2026-11.org.example:nbd-clients"
[[target]]
name = "iqn.2026-11.org.example:a"
lun = [{ number = 0, disk = "mem:1M" }, { number = 1, disk = "mem:2M" }, { number = 2, disk = "mem:3M" }]
[[target.host]]
name = "nbd"
initiators = ["iqn.2026-11.org.example:nbd-clients"]
lun = [{ number = 0 }, { number = 2, as = 7, read_only = true }]
[[target.host]]
name = "others"
[[target]]
name = "iqn.2026-11.org.example:not-for-nbd"
allow = ["iqn.2026-11.org.example:x"]
lun = [{ number = 0, disk = "mem:1M" }]
[[target]]
name = "iqn.2026-11.org.example:chap"
chap = [{ user = "u", secret_file = "@/secret" }]
lun = [{ number = 0, disk = "mem:1M" }]
"#;

/// The URI of an export, at the place where a server says that it serves others.
fn export(server: &Server, name: &str) -> String {
    let first = server.urls().iter().find(|url| url.starts_with("nbd")).expect("a URI of NBD");
    let (scheme, rest) = first.split_once("://").expect("a URI");
    format!("{scheme}://{}/{name}", rest.split('/').next().expect("an address"))
}

fn qemu_io(url: &str, command: &str) -> Ran {
    run_at_most(LIMIT, Command::new("qemu-io").args(["-f", "raw", "-c", command, url]))
}

#[test]
fn clients_of_other_projects_use_the_disks_of_a_server() {
    let server =
        Server::spawn(lunette().args(["serve", "mem:16M", "--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0"]), 2);
    let url = export(&server, "");
    assert!(run("nbdinfo", ["--size", &url]).succeeded().contains("16777216"), "the only disk needs no name");
    let place = Configured::new();
    let (image, back) = (place.file("image"), place.file("back"));
    random_file(&image, 3, 16);
    run("nbdcopy", [&image.display().to_string(), server.urls().last().unwrap()]).succeeded();
    run("qemu-img", ["convert", "-O", "raw", server.url(0), back.to_str().unwrap()]).succeeded();
    assert!(fs::read(&image).unwrap() == fs::read(&back).unwrap(), "iSCSI reads what NBD has written");
    qemu_io(&url, "write -P 7 0 64k").succeeded();
    assert!(attach(&server, &[]).read(0, 127, 1).good().iter().all(|byte| *byte == 7));
    server.stop();
}

#[test]
fn a_client_sees_what_its_host_does() {
    let (_place, server) = Configured::serve(MASKED, 10);
    let list = run("nbdinfo", ["--list", "--json", &export(&server, "")]);
    let names: Vec<_> = list.succeeded().lines().filter(|line| line.contains("\"export-name\"")).collect();
    assert!(names.len() == 2 && names[0].contains(":a/0") && names[1].contains(":a/7"), "{names:?}");
    let size = |name: &str| run("nbdinfo", ["--size", &export(&server, name)]);
    assert!(size(&format!("{TARGET}/7")).succeeded().contains("3145728"));
    for name in
        ["", "iqn.2026-11.org.example:a/1", "iqn.2026-11.org.example:not-for-nbd/0", "iqn.2026-11.org.example:chap/0"]
    {
        assert!(size(name).failed().contains("No such file"), "{name}");
    }
    let info = run("nbdinfo", ["--is", "read-only", &export(&server, &format!("{TARGET}/7"))]);
    info.succeeded();
    server.stop();
}

#[test]
fn a_reservation_of_an_initiator_keeps_clients_out() {
    let (_place, server) = Configured::serve(MASKED, 10);
    let url = export(&server, &format!("{TARGET}/0"));
    let mut initiator = attach(&server, &[]);
    qemu_io(&url, "write -P 1 0 64k").succeeded();
    initiator.command(0, &RESERVE, Vec::new(), 0).good();
    let refused = qemu_io(&url, "write -P 2 0 64k");
    assert!(refused.to_string().contains("export not available"), "{refused}");
    assert!(initiator.read(0, 0, 1).good().iter().all(|byte| *byte == 1));
    initiator.command(0, &RELEASE, Vec::new(), 0).good();
    qemu_io(&url, "write -P 3 0 64k").succeeded();
    assert!(initiator.read(0, 0, 1).good().iter().all(|byte| *byte == 3));
    server.stop();
}

/// An authority, and folders of a server and two clients.
struct Files(Configured);

impl Files {
    fn new() -> Self {
        let place = Configured::new();
        let ca = place.file("ca").display().to_string();
        let tls = |arguments: &[&str]| run_at_most(LIMIT, lunette().arg("tls").args(arguments)).succeeded().len();
        tls(&["ca", &ca]);
        tls(&["issue", &ca, "gw1", "--host", "localhost,127.0.0.1"]);
        tls(&["issue", &ca, "db1", "--name", "iqn.2026-11.org.example:db1"]);
        tls(&["issue", &ca, "backup", "--dns", "backup.example.org"]);
        let none = place.file("ca/none");
        fs::create_dir(&none).unwrap();
        fs::copy(place.file("ca/ca-cert.pem"), none.join("ca-cert.pem")).unwrap();
        Self(place)
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.0.file("ca").join(name)
    }
}

#[test]
fn a_certificate_is_the_identity_of_a_client() {
    let files = Files::new();
    let text = r#"
listen = ["127.0.0.1:0"]
[nbd]
listen = ["127.0.0.1:0"]
tls = "@/ca/gw1"
[[target]]
name = "iqn.2026-11.org.example:a"
lun = [{ number = 0, disk = "mem:1M" }, { number = 1, disk = "mem:2M" }]
[[target.host]]
name = "db1"
certificates = ["iqn.2026-11.org.example:db1"]
lun = [{ number = 1 }]
[[target.host]]
name = "backup"
certificates = ["backup.example.org"]
read_only = true
lun = [{ number = 0 }]
"#;
    let server = files.0.start(text, 4);
    let url = |client: &str, name: &str| {
        format!("{}?tls-certificates={}", export(&server, name), files.folder(client).display())
    };
    for (client, found) in [("db1", Some("2097152")), ("backup", Some("1048576")), ("none", None)] {
        let size = run("nbdinfo", ["--size", &url(client, "")]);
        match found {
            Some(bytes) => assert!(size.succeeded().contains(bytes), "{client}: {size}"),
            None => assert!(size.failed().contains("No such file"), "{client}: {size}"),
        }
    }
    run("nbdinfo", ["--is", "read-only", &url("backup", "")]).succeeded();
    run("nbdinfo", [&export(&server, "").replace("nbds:", "nbd:")]).failed();
    // Our own client, and a session that an administrator sees under its name.
    let copy = files.0.file("copy");
    run_at_most(LIMIT, lunette().args(["cp", &url("db1", &format!("{TARGET}/1"))]).arg(&copy)).succeeded();
    assert_eq!(fs::metadata(&copy).unwrap().len(), 2 << 20);
    assert!(
        server
            .log()
            .contains("initiator=\"iqn.2026-11.org.example:db1\" target=\"iqn.2026-11.org.example:a\" host=\"db1\"")
    );
    server.stop();
}

/// Connects to an export by the oldest option, which needs no more than a few bytes.
fn connect(server: &Server, name: &str) -> TcpStream {
    let url = export(server, "");
    let address = url.trim_start_matches("nbd://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let option = [b"IHAVEOPT\0\0\0\x01", &(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
    stream.write_all(&[&[0, 0, 0, 3], &option[..]].concat()).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

#[test]
fn a_connection_ends_with_its_session() {
    let (place, server) = Configured::serve(MASKED, 10);
    let mut client = connect(&server, &format!("{TARGET}/0"));
    place.change(&server, &MASKED.replace(&format!("\"{TARGET}\""), "\"iqn.2026-11.org.example:b\""));
    // The target has gone: its initiators are asked to log out, and no one logs in again for the client.
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    connect(&server, "iqn.2026-11.org.example:b/7");
    server.stop();
}

#[test]
fn a_stop_answers_the_clients_first() {
    let server =
        Server::spawn(lunette().args(["serve", "mem:16M", "--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0"]), 2);
    let url = export(&server, "");
    let mut client =
        Command::new("qemu-io").args(["-f", "raw", &url]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    server.await_log("tsih", 1);
    let log = server.stop();
    assert!(!log.contains("requests are still with the store"), "{log}");
    drop(client.stdin.take());
    client.wait().unwrap();
}
