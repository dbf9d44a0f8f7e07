//! Initiators that know no TLS, through `lunette tunnel` to a server that speaks nothing else.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_testkit::ScriptedInitiator;
use lunette_tests::keys::{Place, refusal};
use lunette_tests::{DEFAULT_TARGET, Ran, Server, login_request, lunette, random_file, run, run_at_most};

const LIMIT: Duration = Duration::from_mins(2);

/// Connections of a tunnel (`MAX_CONNECTIONS`).
const MAX_CONNECTIONS: usize = 512;

fn tls(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().arg("tls").args(arguments))
}

/// An authority, with the folders of a server and of a client.
struct Site {
    place: Place,
    server: String,
    client: String,
}

impl Site {
    fn new() -> Self {
        let place = Place::new();
        let ca = &*place.text("ca");
        tls(&["ca", ca]).succeeded();
        let issue = |arguments: &[&str]| tls(&[&["issue", ca], arguments].concat()).succeeded().trim().to_owned();
        let server = issue(&["gw1", "--host", "localhost,127.0.0.1,127.0.0.2"]);
        let client = issue(&["db1", "--dns", "db1.example.org"]);
        Self { place, server, client }
    }

    /// Serves a disk within TLS.
    fn serve(&self, disk: &str) -> Server {
        Server::start(&[disk, "--tls", &self.server])
    }

    /// Serves by a configuration, whose portals have the folder `@/tls`.
    fn configured(&self, text: &str) -> Server {
        let file = self.place.file("config", &text.replace("@/tls", &self.server));
        Server::spawn(lunette().args(["serve", "--config", &file]), 1)
    }

    /// A tunnel to a portal, for the client of the site.
    fn tunnel(&self, portal: SocketAddr) -> Server {
        tunnel(portal, &self.client)
    }
}

fn tunnel(portal: SocketAddr, folder: &str) -> Server {
    let to = format!("iscsis://{portal}?tls={folder}");
    Server::spawn(lunette().args(["tunnel", "--listen", "127.0.0.1:0", "--to", &to]), 1)
}

/// The address in the URL of a disk within TLS.
fn portal(server: &Server) -> SocketAddr {
    let rest = server.url(0).strip_prefix("iscsis://").unwrap_or_else(|| panic!("{:?}", server.urls()));
    rest.split('/').next().unwrap().parse().unwrap()
}

/// The addresses of a target as libiscsi's tool lists them, in the order of their portal groups.
fn portals(tunnel: &Server, target: &str) -> Vec<(SocketAddr, u16)> {
    let list = run("iscsi-ls", [tunnel.portal_url()]);
    let start = format!("Target:{target} Portal:");
    let lines = list.succeeded().lines().filter_map(|line| line.trim().strip_prefix(&start)?.split_once(','));
    let mut found: Vec<_> = lines.map(|(address, group)| (address.parse().unwrap(), group.parse().unwrap())).collect();
    found.sort_unstable_by_key(|(_, group)| *group);
    found
}

fn inquiry(portal: SocketAddr, target: &str) -> Ran {
    run("iscsi-inq", [format!("iscsi://{portal}/{target}/0")])
}

#[test]
fn libiscsi_and_qemu_use_a_server_that_speaks_tls_alone() {
    let site = Site::new();
    let server = site.serve("mem:64M");
    for io in ["epoll", "auto"] {
        let to = format!("iscsis://{}?tls={}", portal(&server), site.client);
        let tunnel = Server::spawn(lunette().args(["tunnel", "--io", io, "--listen", "127.0.0.1:0", "--to", &to]), 1);
        let list = run("iscsi-ls", ["-s", &tunnel.portal_url()]);
        let through = format!("Target:{DEFAULT_TARGET} Portal:{},1", tunnel.address());
        assert!(list.succeeded().contains(&through) && list.stdout.contains("Lun:0"), "{list}");
        assert!(inquiry(tunnel.address(), DEFAULT_TARGET).succeeded().contains("Vendor:LUNETTE"));
        let (original, copy) = (site.place.text("original"), site.place.text("copy"));
        random_file(&site.place.path("original"), 64, 64);
        let image = format!("driver=iscsi,transport=tcp,portal={},target={DEFAULT_TARGET},lun=0", tunnel.address());
        let qemu_img = |arguments: &[&str]| run_at_most(LIMIT, Command::new("qemu-img").args(arguments));
        qemu_img(&["convert", "-n", "--target-image-opts", "-W", "-m", "16", &original, &image]).succeeded();
        qemu_img(&["convert", "--image-opts", "-O", "raw", "-W", "-m", "16", &image, &copy]).succeeded();
        run("cmp", [&original, &copy]).succeeded();
        tunnel.stop();
    }
    server.stop();
}

#[test]
fn digests_of_discovery_follow_the_addresses() {
    let site = Site::new();
    let server = site.serve("mem:1M");
    let tunnel = site.tunnel(portal(&server));
    let url = tunnel.portal_url() + "?header_digest=crc32c&data_digest=crc32c";
    let list = run_at_most(LIMIT, lunette().args(["ls", &url]));
    assert!(list.succeeded().contains(&tunnel.address().to_string()), "{list}");
    tunnel.stop();
    server.stop();
}

#[test]
fn each_portal_of_a_server_has_an_address_of_the_tunnel_that_stays() {
    let site = Site::new();
    let target = "iqn.2026-11.org.example:paths";
    let server = site.configured(&format!(
        r#"
        portal = [
            {{ address = "127.0.0.1:0", group = 1, tls = "@/tls" }},
            {{ address = "127.0.0.2:0", group = 2, tls = "@/tls" }},
        ]
        [[target]]
        name = "{target}"
        lun = [{{ number = 0, disk = "mem:16M" }}]
        "#
    ));
    let tunnel = site.tunnel(portal(&server));
    let found = portals(&tunnel, target);
    let groups: Vec<_> = found.iter().map(|(_, group)| *group).collect();
    assert_eq!(groups, [1, 2], "{found:?}");
    assert_eq!(found[0].0, tunnel.address());
    assert!(found[1].0 != found[0].0 && found[1].0.ip() == found[0].0.ip(), "{found:?}");
    for (address, _) in &found {
        assert!(inquiry(*address, target).succeeded().contains("Vendor:LUNETTE"));
    }
    assert_eq!(portals(&tunnel, target), found, "addresses stay");
    let log = tunnel.stop();
    let further = log.lines().filter(|line| line.contains("a further portal")).collect::<Vec<_>>();
    assert_eq!(further.len(), 1, "{log}");
    // With its name the portal has a port from the start.
    let (_, name) = further[0].rsplit_once("portal=").unwrap();
    let to = format!("iscsis://{}?tls={}", portal(&server), site.client);
    let mut command = lunette();
    command.args(["tunnel", "--listen", "127.0.0.1:0", "--to", &to, "--also", name]);
    let tunnel = Server::spawn(&mut command, 2);
    inquiry(tunnel.url(1).strip_prefix("iscsi://").unwrap().parse().unwrap(), target).succeeded();
    let found: Vec<_> = portals(&tunnel, target).iter().map(|(address, _)| format!("iscsi://{address}")).collect();
    assert_eq!(found, tunnel.urls());
    tunnel.stop();
    server.stop();
}

#[test]
fn a_redirection_leads_through_the_tunnel() {
    let site = Site::new();
    let new = site.serve("mem:16M");
    let old = site.configured(&format!(
        r#"
        portal = [{{ address = "127.0.0.1:0", group = 1, tls = "@/tls" }}]
        [[target]]
        name = "{DEFAULT_TARGET}"
        lun = [{{ number = 0, disk = "mem:1M" }}]
        redirect = {{ to = ["{}"] }}
        "#,
        portal(&new)
    ));
    let tunnel = site.tunnel(portal(&old));
    let capacity = run("iscsi-readcapacity16", [format!("{}/{DEFAULT_TARGET}/0", tunnel.portal_url())]);
    assert!(capacity.succeeded().contains("Total size:16777216\n"), "the disk of the other server: {capacity}");
    let log = tunnel.stop();
    assert!(log.contains("a further portal") && log.contains(&portal(&new).to_string()), "{log}");
    old.stop();
    new.stop();
}

/// Connects to the tunnel and waits until it closes the connection.
fn is_closed(tunnel: &Server) {
    let mut stream = TcpStream::connect(tunnel.address()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    // Closed or reset.
    assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)));
}

#[test]
fn a_portal_without_tls_is_told_in_the_log_and_the_initiator_is_let_go() {
    let site = Site::new();
    let server = Server::start(&["mem:1M"]);
    let tunnel = site.tunnel(server.address());
    is_closed(&tunnel);
    tunnel.await_log("see that the portal speaks TLS", 1);
    run("iscsi-ls", [tunnel.portal_url()]).failed();
    let gone = server.address();
    server.stop();
    is_closed(&tunnel);
    let log = tunnel.stop();
    assert!(log.contains(&gone.to_string()) && log.contains("refused"), "{log}");
}

#[test]
fn certificates_of_another_authority_are_refused_on_both_sides() {
    let (site, other) = (Site::new(), Site::new());
    let server = site.serve("mem:1M");
    let stranger = tunnel(portal(&server), &other.client);
    is_closed(&stranger);
    stranger.await_log("the files of tls= trust each other", 1);
    stranger.stop();
    // It trusts the server, and the server does not trust it.
    fs::copy(format!("{}/ca-cert.pem", site.client), format!("{}/ca-cert.pem", other.client)).unwrap();
    let unknown = tunnel(portal(&server), &other.client);
    run("iscsi-ls", [unknown.portal_url()]).failed();
    unknown.await_log("the files of tls= trust each other", 1);
    unknown.stop();
    server.stop();
}

#[test]
fn what_cannot_be_is_refused_with_the_remedy() {
    let site = Site::new();
    let to = format!("iscsis://127.0.0.1:1?tls={}", site.client);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (arguments, exit_code, expected) in [
        (&["--to", &to, "--listen", "0.0.0.0:0"][..], 2, "add --allow-remote"),
        (&["--to", "iscsi://127.0.0.1:1"], 2, "write iscsis://127.0.0.1:1?tls=DIR"),
        (&["--to", "iscsis://127.0.0.1:1?tls=/nowhere"], 3, "/nowhere/ca-cert.pem"),
        (&["--to", &to, "--listen", &address], 4, "in use"),
    ] {
        let (code, said) = refusal(&run_at_most(LIMIT, lunette().arg("tunnel").args(arguments)));
        assert!(code == exit_code && said.contains(expected), "{arguments:?}: {code}: {said}");
    }
    let remote = ["tunnel", "--to", &to, "--listen", "0.0.0.0:0", "--allow-remote"];
    let tunnel = Server::spawn(lunette().args(remote), 1);
    assert!(tunnel.stop().contains("not encrypted"));
}

#[test]
fn a_socket_that_the_service_manager_passes_is_used() {
    let site = Site::new();
    let server = site.serve("mem:1M");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 </dev/null", "sh"]);
    command.arg(lunette().get_program()).args(["tunnel", "--listen", &address.to_string()]);
    command.args(["--to", &format!("iscsis://{}?tls={}", portal(&server), site.client)]);
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(socket)));
    let tunnel = Server::spawn(&mut command, 1);
    assert_eq!(tunnel.address(), address);
    inquiry(address, DEFAULT_TARGET).succeeded();
    tunnel.stop();
    server.stop();
}

/// The most memory that the process has had, in KiB.
fn peak_kib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process().id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn an_initiator_that_does_not_read_holds_a_bounded_buffer() {
    const READS: usize = 32;
    let site = Site::new();
    let server = site.serve("mem:64M");
    let tunnel = site.tunnel(portal(&server));
    let mut slow = ScriptedInitiator::connect(tunnel.address());
    login_request(&mut slow, &[("SessionType", "Normal"), ("TargetName", DEFAULT_TARGET)]).unwrap();
    slow.test_unit_ready(0);
    let reads: Vec<_> = (0..READS).map(|_| slow.start_read(0, 0, 16_384)).collect();
    // Another one is served meanwhile.
    inquiry(tunnel.address(), DEFAULT_TARGET).succeeded();
    for read in reads {
        assert_eq!(slow.finish(read).good().len(), 16_384 * 512);
    }
    let peak = peak_kib(&tunnel);
    assert!(peak < 48 << 10, "{peak} KiB for {} MiB of answers", READS * 8);
    tunnel.stop();
    server.stop();
}

#[test]
fn connections_and_the_time_to_make_them_are_bounded() {
    let site = Site::new();
    // It accepts connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let tunnel = site.tunnel(silent.local_addr().unwrap());
    let held: Vec<_> = (0..MAX_CONNECTIONS).map(|_| TcpStream::connect(tunnel.address()).unwrap()).collect();
    is_closed(&tunnel);
    tunnel.await_log("refused a connection", 1);
    tunnel.await_log("cannot carry a connection", MAX_CONNECTIONS);
    drop(held);
    tunnel.stop();
}
