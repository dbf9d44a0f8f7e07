//! Key files and key servers for a single test.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::process::wait_until;
use crate::server::{Server, lunette};
use crate::tool::{Ran, run_at_most};

/// A time limit that is long enough for everything here.
const LIMIT: Duration = Duration::from_mins(2);

/// Debian's Python, which has Debian's packages.
pub const PYTHON: &str = "/usr/bin/python3";

/// Argon2id at its least, so that tests do not wait for it.
pub const CHEAP: [&str; 4] = ["--argon2-memory", "8", "--argon2-passes", "1"];

/// A folder for one test.
pub struct Place(TempDir);

impl Place {
    /// Makes the folder.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and returns its path as an argument.
    pub fn file(&self, name: &str, content: &str) -> String {
        fs::write(self.path(name), content).expect("room for a file");
        self.text(name)
    }

    /// The path of a file in the folder, as an argument.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("temporary folders have plain names").to_owned()
    }

    /// Starts our key server.
    pub fn server(&self) -> Server {
        let mut command = lunette();
        command.args(["keys", "serve", "--listen", "127.0.0.1:0", "--store", &self.text("store")]);
        Server::spawn(&mut command, 1)
    }

    /// Issues a certificate of our server's authority, and returns its folder.
    pub fn certificate(&self, name: &str, more: &[&str]) -> String {
        let authority = self.text("store/ca");
        let issued = keys(&[&["ca", "issue", &authority, name], more].concat());
        issued.succeeded().trim().to_owned()
    }
}

/// Runs `lunette keys`.
pub fn keys(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().arg("keys").args(arguments))
}

/// The JSON that a command prints.
pub fn json(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(ran.succeeded()).expect("the command prints JSON")
}

/// The exit code and the output of a command that fails.
pub fn refusal(ran: &Ran) -> (i32, String) {
    (ran.code.expect("it ended by itself"), ran.failed())
}

/// PyKMIP's server and the processes that it starts, a group of their own. They are killed when this is dropped.
pub struct PyKmip {
    child: Child,
    /// The URL of the server.
    pub url: String,
}

impl PyKmip {
    /// Starts it with a certificate of our authority.
    pub fn start(place: &Place) -> Self {
        let files = place.certificate("pykmip-server", &["--server", "localhost,127.0.0.1"]);
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        fs::create_dir(place.path("policies")).expect("a folder of our own");
        let configuration = format!(
            "[server]\nhostname=127.0.0.1\nport={port}\ncertificate_path={files}/server-cert.pem\n\
             key_path={files}/server-key.pem\nca_path={files}/ca-cert.pem\nauth_suite=TLS1.2\n\
             policy_path={}\nenable_tls_client_auth=True\ndatabase_path={}\n",
            place.text("policies"),
            place.text("pykmip.db")
        );
        let configuration = place.file("pykmip.conf", &configuration);
        let output = File::create(place.path("pykmip.out")).expect("room for a file");
        let errors = output.try_clone().expect("a file can be opened twice");
        let mut command = Command::new("pykmip-server");
        command.args(["-f", &configuration, "-l", &place.text("pykmip.log")]).process_group(0);
        let child =
            command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().expect("pykmip-server is installed");
        let listens = wait_until(Duration::from_secs(30), || TcpStream::connect(("127.0.0.1", port)).ok());
        assert!(listens.is_some(), "{}", fs::read_to_string(place.path("pykmip.out")).unwrap_or_default());
        Self { child, url: format!("kmip://127.0.0.1:{port}") }
    }
}

impl Drop for PyKmip {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
