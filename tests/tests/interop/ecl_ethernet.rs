//! The Effective Cross Layer below IP, between two network namespaces that a pair of Ethernet interfaces joins. Only
//! root can make these.

use std::fs;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use lunette_tests::{Owned, Ran, Server, lunette, random_file, run};

/// A network namespace, which is there as long as this.
struct Namespace(Owned);

impl Namespace {
    /// `None` where the system does not allow it: the test says so.
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo; exec sleep infinity"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = Owned::from(command.spawn().ok()?);
        let is_there = child.stdout.take().unwrap().read_exact(&mut [0]).is_ok();
        let namespace = Self(child);
        is_there.then_some(namespace)
    }

    /// A command that runs in it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.id().to_string(), program]);
        command
    }

    fn ran(&self, arguments: &[&str]) -> Ran {
        let command = self.command(arguments[0]);
        let words = command.get_args().map(|word| word.to_str().unwrap());
        let words: Vec<&str> = words.chain(arguments[1..].iter().copied()).collect();
        run(command.get_program(), &words)
    }

    /// Runs `lunette` to its end.
    fn lunette(&self, arguments: &[&str]) -> Ran {
        self.ran(&[&[lunette().get_program().to_str().unwrap()], arguments].concat())
    }
}

/// Two namespaces with an interface each, `near` and `far`. Says so when they cannot be.
fn pair(mtu: &str) -> Option<[Namespace; 2]> {
    let Some((near, far)) = Namespace::new().zip(Namespace::new()) else {
        // Past the capture of the test harness.
        let why = "SKIPPED: a test of Ethernet needs the right to make network namespaces, and util-linux\n";
        io::stderr().write_all(why.as_bytes()).unwrap();
        return None;
    };
    join(&near, &far, mtu);
    Some([near, far])
}

/// Makes the two interfaces.
fn join(near: &Namespace, far: &Namespace, mtu: &str) {
    let far_id = far.0.id().to_string();
    let mut link = vec!["ip", "link", "add", "near", "mtu", mtu, "type", "veth"];
    link.extend(["peer", "name", "far", "address", "02:00:00:00:0f:aa", "mtu", mtu, "netns", &far_id]);
    near.ran(&link).succeeded();
    near.ran(&["ip", "link", "set", "near", "up"]).succeeded();
    far.ran(&["ip", "link", "set", "far", "up"]).succeeded();
}

/// A server of a disk of 16 MiB on the interface `far`, and the URL by which the other end reaches that.
fn serve(far: &Namespace, arguments: &[&str]) -> (Server, String) {
    let mut command = far.command(lunette().get_program().to_str().unwrap());
    command.args(["serve", "--listen", "127.0.0.1:0", "--ecl", "eth:far", "mem:16M"]).args(arguments);
    let server = Server::spawn(&mut command, 2);
    let url = server.url(1).replacen("ecl+eth://far/", "ecl+eth://near/", 1);
    assert!(url.starts_with("ecl+eth://near/"), "{url}");
    (server, url)
}

#[test]
fn an_image_is_copied_in_and_out_and_the_tools_take_the_url() {
    let Some([near, far]) = pair("9000") else { return };
    let folder = tempfile::tempdir().unwrap();
    let [image, back] = ["image", "back"].map(|name| folder.path().join(name));
    random_file(&image, 3, 16);
    let (server, url) = serve(&far, &[]);
    near.lunette(&["cp", image.to_str().unwrap(), &url]).succeeded();
    near.lunette(&["cp", &url, back.to_str().unwrap()]).succeeded();
    assert!(fs::read(&image).unwrap() == fs::read(&back).unwrap());
    assert!(near.lunette(&["info", &url]).succeeded().contains("16777216 bytes"));
    near.lunette(&["ping", "-c", "2", &url]).succeeded();
    let portal = url.rsplitn(3, '/').last().unwrap();
    let listed = near.lunette(&["ls", portal]).succeeded().to_owned();
    assert!(listed.contains("LUN 0") && listed.contains(portal.strip_prefix("ecl+eth://").unwrap()), "{listed}");
    server.stop();
}

#[test]
fn every_byte_is_right_from_interface_to_interface() {
    for (mtu, options, parameters) in [
        ("1500", &[][..], ""),
        ("9000", &["--ecl-protect", "headers", "--ecl-offloads", "off"][..], "?protect=headers&offloads=off"),
    ] {
        let Some([near, far]) = pair(mtu) else { return };
        let (server, url) = serve(&far, options);
        for size in ["4K", "256K"] {
            let url = url.clone() + parameters;
            let said = near.lunette(&["bench", &url, "--rw", "verify", "--bs", size, "--depth", "8", "--time", "1"]);
            assert!(said.succeeded().contains("all right"), "{said}");
        }
        server.stop();
    }
}

#[test]
fn what_is_wrong_with_an_interface_is_said() {
    let Some([near, far]) = pair("1500") else { return };
    let serve = |at: &str| far.lunette(&["serve", "--listen", "127.0.0.1:0", "--ecl", at, "mem:1M"]);
    let refused = serve("eth:nowhere");
    assert!(refused.failed().contains("there is no interface nowhere"), "{refused}");
    let refused = serve("eth:lo");
    assert!(refused.failed().contains("cannot use interface lo: it has no MAC address"), "{refused}");
    let refused = near.lunette(&["info", "ecl+eth://nowhere/02:00:00:00:00:01/iqn.a:b/0"]);
    assert!(refused.failed().contains("there is no interface nowhere"), "{refused}");
    // Without the right to it, as other users are.
    let program = lunette().get_program().to_str().unwrap().to_owned();
    let unprivileged = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", &program];
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--ecl", "eth:far", "mem:1M"];
    let refused = far.ran(&[&unprivileged[..], &arguments].concat());
    assert!(refused.failed().contains("CAP_NET_RAW"), "{refused}");
}

#[test]
fn an_interface_that_goes_is_told_of_and_served_again_when_it_is_back() {
    for io in ["epoll", "auto"] {
        let Some([near, far]) = pair("1500") else { return };
        let (server, url) = serve(&far, &["--io", io]);
        let mut working = near.command(lunette().get_program().to_str().unwrap());
        working.args(["bench", &url, "--rw", "verify", "--depth", "4", "--time", "4"]).stdout(Stdio::null());
        let mut working = Owned::start(working);
        let goes_and_comes_back = |times, goes: &[&str], comes_back: &dyn Fn()| {
            far.ran(goes).succeeded();
            server.await_log("no client is heard on the interface", times);
            comes_back();
            server.await_log("the interface is back", times);
            near.lunette(&["info", &url]).succeeded();
        };
        goes_and_comes_back(1, &["ip", "link", "set", "far", "down"], &|| {
            far.ran(&["ip", "link", "set", "far", "up"]).succeeded();
        });
        assert!(working.wait().unwrap().success(), "what was under way goes on\n{}", server.log());
        goes_and_comes_back(2, &["ip", "link", "del", "far"], &|| join(&near, &far, "1500"));
        server.stop();
    }
}

#[test]
fn an_interface_has_one_server() {
    let Some([near, far]) = pair("1500") else { return };
    let (server, url) = serve(&far, &[]);
    let second = far.lunette(&["serve", "--listen", "127.0.0.1:0", "--ecl", "eth:far", "mem:1M"]);
    let holder = format!("cannot use interface far: process {} serves on it", server.process().id());
    assert!(second.failed().contains(&holder), "{second}");
    // A client needs no claim on the interface.
    far.lunette(&["info", "ecl+eth://far/02:00:00:00:0f:aa/iqn.a:b/0"]).failed();
    near.lunette(&["info", &url]).succeeded();
    let twice = ["serve", "--listen", "127.0.0.1:0", "--ecl", "eth:near", "--ecl", "eth:near", "mem:1M"];
    let twice = near.lunette(&twice);
    assert!(twice.failed().contains("this server serves on it already"), "{twice}");
    server.stop();
    serve(&far, &[]).0.stop();
}
