//! Lunette as a service of systemd.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::Command;
use std::time::Duration;

use lunette_tests::{Configured, Server, lunette, passing_socket, run_at_most};

/// The longest wait for a message, and for a command.
const LIMIT: Duration = Duration::from_secs(20);

const TARGET: &str = "iqn.2026-11.org.example:db";

/// The receiver of a service's messages.
struct Manager {
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
    path: std::path::PathBuf,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { socket, _folder: folder, path }
    }

    /// The next message.
    fn told(&self) -> String {
        let mut bytes = [0; 256];
        let len = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    /// Waits for a message.
    fn hears(&self, expected: &str) {
        while self.told() != expected {}
    }
}

#[test]
fn the_service_manager_learns_of_the_start_the_changes_and_the_stop() {
    let manager = Manager::new();
    let place = Configured::new();
    let config = |luns: &str| format!("listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{TARGET}\"\nlun = [{luns}]");
    place.write(&config("{ number = 0, disk = \"mem:1M\" }"));
    let mut command = lunette();
    command.args(["serve", "--config"]).arg(place.file("config")).env("NOTIFY_SOCKET", &manager.path);
    let server = Server::spawn(&mut command, 1);
    assert_eq!(manager.told(), "READY=1\nSTATUS=Serving 1 logical units of 1 targets to 0 sessions");
    place.change(&server, &config("{ number = 0, disk = \"mem:1M\" }, { number = 1, disk = \"mem:1M\" }"));
    assert_eq!(manager.told(), "STATUS=Serving 2 logical units of 1 targets to 0 sessions");
    server.stop();
    manager.hears("STOPPING=1");
}

#[test]
fn the_watchdog_hears_of_a_server_that_runs() {
    let manager = Manager::new();
    let mut command = lunette();
    command.args(["serve", "--cores", "2", "--listen", "127.0.0.1:0", "mem:1M"]);
    let server = Server::spawn(command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "200000"), 1);
    for _ in 0..3 {
        manager.hears("WATCHDOG=1");
    }
    server.stop();
}

/// Serves what is in `place`, with a socket as the only one that the service manager passes.
fn with_socket(place: &Configured, socket: impl Into<OwnedFd>, io: &str, luns: usize) -> Server {
    let mut command = passing_socket(Command::new("env"), place, socket);
    Server::spawn(command.args(["--io", io]), luns)
}

#[test]
fn a_portal_uses_the_socket_that_is_passed_and_leaves_it_open() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let place = Configured::new();
    let config = |listen: &str| {
        format!("listen = [{listen}]\n[[target]]\nname = \"{TARGET}\"\nlun = [{{ number = 0, disk = \"mem:1M\" }}]")
    };
    let used = config(&format!("\"{address}\""));
    place.write(&used);
    for io in ["epoll", "auto"] {
        let server = with_socket(&place, socket.try_clone().unwrap(), io, 1);
        let serves = || run_at_most(LIMIT, lunette().args(["info", server.url(0)])).succeeded().to_owned();
        serves();
        // A portal that has gone comes back, though the service manager has its address.
        place.change(&server, &config("\"127.0.0.1:0\""));
        place.change(&server, &used);
        serves();
        server.stop();
    }
    place.write(&config("\"127.0.0.1:0\""));
    let server = with_socket(&place, socket, "epoll", 1);
    let log = server.stop();
    assert!(log.contains("a socket of LISTEN_FDS is not used") && log.contains(&address.to_string()), "{log}");
}

#[test]
fn the_api_uses_the_socket_that_is_passed() {
    let place = Configured::new();
    let socket = UnixListener::bind(place.file("api")).unwrap();
    place.write("listen = []\n[api]\nlisten = [\"unix:@/api\"]");
    let server = with_socket(&place, socket, "epoll", 0);
    let api = format!("unix:{}", place.file("api").display());
    // Until the server runs, the request waits in the socket.
    let listed = run_at_most(LIMIT, lunette().args(["ctl", "--api", &api, "ls", "portals", "--json"]));
    listed.succeeded();
    server.stop();
}

#[test]
fn a_secret_can_be_a_credential() {
    let place = Configured::new();
    fs::create_dir(place.file("credentials")).unwrap();
    fs::write(place.file("credentials/db"), "a secret of the db").unwrap();
    place.write(&format!(
        "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{TARGET}\"\nlun = [{{ number = 0, disk = \"mem:1M\" }}]\n\
         chap = [{{ user = \"db\", secret_file = \"credential:db\" }}]"
    ));
    let mut command = lunette();
    command.args(["serve", "--config"]).arg(place.file("config"));
    let log = Server::spawn(command.env_remove("CREDENTIALS_DIRECTORY"), 1).stop();
    assert!(log.contains("there is no credential db"), "{log}");
    let server = Server::spawn(command.env("CREDENTIALS_DIRECTORY", place.file("credentials")), 1);
    let secret = place.file("credentials/db");
    let url = server.url_with("db@", &format!("?chap_secret_file={}", secret.display()));
    run_at_most(LIMIT, lunette().args(["info", &url])).succeeded();
    run_at_most(LIMIT, lunette().args(["info", server.url(0)])).failed();
    server.stop();
}

/// Needs Debian's package `systemd`.
#[test]
fn the_unit_is_hardened() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/lunette.service");
    let output = Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=20", unit]).output();
    let output = output.expect("install Debian's package systemd: it has systemd-analyze");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "an exposure of more than 2.0:\n{told}");
}
