//! Nothing outside ends the server: signals, limits of the system, and a log that is not read. docs/operations.md has
//! the table.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, PipeReader, Read as _, Write as _, pipe};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_tests::{Configured, Owned, lunette, run_at_most, signal, stop, wait_until};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(30);
const TARGET: &str = "iqn.2026-11.org.example:a";

/// A server whose standard streams are not what they should be.
struct Running {
    child: Owned,
    address: SocketAddr,
    _place: Configured,
    _unread: PipeReader,
}

impl Running {
    /// Serves a file of 4 MiB. Standard error is a full pipe that nothing reads, standard output a pipe without a
    /// reader, and standard input is closed. No file may grow beyond 1 MiB, and few descriptors may be open.
    fn start() -> Self {
        let place = Configured::new();
        // Free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::fs::File::create(place.file("disk")).unwrap().set_len(4 << 20).unwrap();
        place.write(&format!(
            "listen = [\"{address}\"]\n[[target]]\nname = \"{TARGET}\"\nlun = [{{ number = 0, disk = \"@/disk\" }}]\n"
        ));
        let manager = UnixDatagram::bind(place.file("notify")).unwrap();
        manager.set_read_timeout(Some(LIMIT)).unwrap();
        let (unread, full) = pipe().unwrap();
        fill(&full);
        let (no_reader, stdout) = pipe().unwrap();
        drop(no_reader);
        let shell = "exec \"$@\" <&-";
        let mut command = Command::new("prlimit");
        command
            .args(["--fsize=1048576", "--nofile=64", "--memlock=0", "sh", "-c", shell, "sh"])
            .arg(lunette().get_program());
        command.args(["serve", "--config"]).arg(place.file("config")).env("NOTIFY_SOCKET", place.file("notify"));
        let child = Owned::start(command.stdin(Stdio::null()).stdout(stdout).stderr(full));
        let mut told = [0; 512];
        let len = manager.recv(&mut told).unwrap();
        assert!(told[..len].starts_with(b"READY=1"), "{}", String::from_utf8_lossy(&told[..len]));
        Self { child, address, _place: place, _unread: unread }
    }

    fn url(&self) -> String {
        format!("iscsi://{}/{TARGET}/0", self.address)
    }

    /// A login, and what it leads to.
    fn serves(&self, after: &str) {
        let info = run_at_most(LIMIT, lunette().args(["info", &self.url()]));
        assert!(info.code == Some(0), "after {after}: {info}");
    }
}

/// Fills a pipe to its end.
fn fill(pipe: &std::io::PipeWriter) {
    let flags = fcntl_getfl(pipe).unwrap();
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).unwrap();
    for piece in [&[b'x'; 4096][..], b"x"] {
        while (&*pipe).write_all(piece).is_ok() {}
    }
    fcntl_setfl(pipe, flags).unwrap();
}

/// The signals that end a process which does nothing about them, but for those that ask it to end or say that it is
/// broken (signal(7)).
const SIGNALS: [Signal; 12] = [
    Signal::PIPE,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::POWER,
    Signal::STKFLT,
    Signal::HUP,
];

#[test]
fn signals_limits_and_streams_end_nothing() {
    let mut running = Running::start();
    running.serves("the start with a full log");
    for sent in SIGNALS {
        signal(&running.child, sent);
        running.serves(&format!("{sent:?}"));
    }
    for sent in [Signal::WINCH, Signal::CHILD, Signal::CONT] {
        signal(&running.child, sent);
    }
    for pause in [Signal::TSTP, Signal::TTOU, Signal::TTIN] {
        signal(&running.child, pause);
        signal(&running.child, Signal::CONT);
        running.serves(&format!("{pause:?}"));
    }

    // The first MiB can be written, and what lies behind the limit of files cannot.
    let copy = |source: &str| run_at_most(LIMIT, lunette().args(["cp", source, &running.url()]));
    let place = tempfile::tempdir().unwrap();
    let long = place.path().join("long");
    std::fs::write(&long, vec![7; 2 << 20]).unwrap();
    let refused = copy(long.to_str().unwrap());
    assert!(refused.code != Some(0), "{refused}");
    running.serves("a write beyond the limit of files");

    let held: Vec<_> = (0..100).map_while(|_| TcpStream::connect(running.address).ok()).collect();
    assert!(held.len() > 64, "the backlog takes them");
    drop(held);
    running.serves("more connections than descriptors");
    stop(&mut running.child);
    assert!(running.child.wait().unwrap().success(), "it stops in order");
}

/// A limit that is less than the disk in memory, and less than the buffers that requests ask for.
#[test]
fn a_server_without_address_space_refuses_and_goes_on() {
    let mut command = Command::new("prlimit");
    command.arg(format!("--as={}", 400 << 20)).arg(lunette().get_program());
    command.args(["serve", "--listen", "127.0.0.1:0", "mem:1G"]);
    let mut child = Owned::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
    let mut url = [0; 256];
    let len = child.stdout.as_mut().unwrap().read(&mut url).unwrap();
    let url = String::from_utf8_lossy(&url[..len]);
    let url = url.trim();
    let place = tempfile::tempdir().unwrap();
    let long = place.path().join("long");
    std::fs::write(&long, vec![7; 200 << 20]).unwrap();
    run_at_most(LIMIT, lunette().args(["cp", long.to_str().unwrap(), url])).succeeded();
    std::fs::write(&long, vec![7; 600 << 20]).unwrap();
    let refused = run_at_most(LIMIT, lunette().args(["cp", long.to_str().unwrap(), url]));
    assert!(refused.code != Some(0) && refused.stderr.contains("no space left"), "{refused}");
    for read in ["read", "randread"] {
        let bench = ["bench", "--rw", read, "--bs", "1M", "--depth", "64", "--time", "1", "--warm-up", "0", url];
        run_at_most(LIMIT, lunette().args(bench)).succeeded();
    }
    stop(&mut child);
    assert!(child.wait().unwrap().success(), "it stops in order");
}

/// A limit of tasks, which binds no user with privileges.
#[test]
fn a_server_without_threads_says_so_or_serves() {
    const USER: &str = "61234";
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("lunette");
    std::fs::copy(lunette().get_program(), &program).unwrap();
    let (mut refused, mut served) = (0, 0);
    for tasks in (2..40).step_by(3) {
        let limit = |tasks: u32| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "prlimit"]);
            command.arg(format!("--nproc={tasks}:"));
            command
        };
        let mut command = limit(tasks);
        command.arg(&program).args(["serve", "--listen", "127.0.0.1:0", "mem:1M"]).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Owned::start(&mut command);
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        if url.is_empty() {
            let mut told = String::new();
            child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(1), "{tasks} tasks: {told}");
            assert!(told.contains("cannot start"), "{tasks} tasks: {told}");
            refused += 1;
            continue;
        }
        // What had no thread at the start gets one.
        run_at_most(LIMIT, limit(1000).arg(format!("--pid={}", child.id()))).succeeded();
        let info = || run_at_most(LIMIT, lunette().args(["info", url.trim()])).code;
        assert!(wait_until(LIMIT, || (info() == Some(0)).then_some(())).is_some(), "{tasks} tasks");
        stop(&mut child);
        assert!(child.wait().unwrap().success(), "{tasks} tasks: it stops in order");
        served += 1;
    }
    assert!(refused > 0 && served > 0, "{refused} refused, {served} served");
}

/// A full disk, and a closed stream.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    for shell in ["exec \"$@\" 2>/dev/full", "exec \"$@\" 2>&-", "exec \"$@\" >/dev/full 2>/dev/full"] {
        let mut command = Command::new("sh");
        command.args(["-c", shell, "sh"]).arg(lunette().get_program()).args(["serve", "--listen", "127.0.0.1:0"]);
        let keeps_stdout = !shell.contains(">/dev/full 2");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(LIMIT)).unwrap();
        command.arg("mem:1M").env("NOTIFY_SOCKET", &path).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Owned::start(command);
        assert!(manager.recv(&mut [0; 512]).is_ok(), "{shell}: it is ready");
        if keeps_stdout {
            let mut url = [0; 256];
            let len = child.stdout.as_mut().unwrap().read(&mut url).unwrap();
            let url = String::from_utf8_lossy(&url[..len]);
            run_at_most(LIMIT, lunette().args(["info", url.trim()])).succeeded();
        }
        signal(&child, Signal::USR1);
        stop(&mut child);
        assert!(child.wait().unwrap().success(), "{shell}");
    }
}

#[test]
fn places_of_the_api_that_are_taken_at_the_start_are_opened_later() {
    let place = Configured::new();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = held.local_addr().unwrap();
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"unix:@/later/api\"]\n[metrics]\nlisten = [\"{metrics}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nlun = [{{ number = 0, disk = \"mem:1M\" }}]\n"
    );
    let server = place.start(&text, 1);
    run_at_most(LIMIT, lunette().args(["info", server.url(0)])).succeeded();
    drop(held);
    std::fs::create_dir(place.file("later")).unwrap();
    server.await_log("is served as configured again", 2);
    UnixStream::connect(place.file("later/api")).unwrap();
    TcpStream::connect(metrics).unwrap();
    server.stop();
}
