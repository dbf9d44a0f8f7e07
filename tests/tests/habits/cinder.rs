//! Cinder's package, whose classes for targets drive the adapters.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use lunette_tests::{lunette, run, run_at_most};
use serde_json::Value;

const VERSION: &str = "cinder==21.3.2";

/// The longest time for its download.
const LIMIT: Duration = Duration::from_mins(3);

/// The folder with the package, without the packages that it needs: they take half a gigabyte and a minute. It is
/// fetched once, below the folder of all builds.
fn package() -> PathBuf {
    static FETCHING: Mutex<()> = Mutex::new(());
    let binary = PathBuf::from(lunette().get_program());
    let folder = binary.ancestors().nth(2).unwrap().join("habits").join(VERSION);
    let _alone = FETCHING.lock().unwrap();
    if !folder.exists() {
        let unfinished = tempfile::tempdir().unwrap();
        let environment = unfinished.path().join("venv");
        run("python3", ["-m".as_ref(), "venv".as_ref(), environment.as_os_str()]).succeeded();
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", VERSION, "--target"]);
        run_at_most(LIMIT, pip.arg(unfinished.path().join("package"))).succeeded();
        let new = folder.with_extension("new");
        fs::create_dir_all(folder.parent().unwrap()).unwrap();
        // What an interrupted installation has left.
        let _ = fs::remove_dir_all(&new);
        run("cp", ["-r".as_ref(), unfinished.path().join("package").as_os_str(), new.as_os_str()]).succeeded();
        // Last, so that an installation that was interrupted begins again.
        fs::rename(new, &folder).unwrap();
    }
    folder
}

/// A program that drives one of Cinder's classes. It tells what it has done, and waits for the word to go on.
pub(crate) struct Driver {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Driver {
    /// Starts a program of the folder `cinder`, in the surroundings of a command for Python. Its log is a new file.
    pub(crate) fn start(mut python: Command, program: &str, arguments: &[&str], log: PathBuf) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/habits/cinder").join(program);
        python.arg("-B").arg(program).arg(package()).args(arguments);
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = python.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, lines: BufReader::new(stdout).lines(), log }
    }

    /// The next thing that it has done.
    pub(crate) fn told(&mut self) -> Value {
        let line = self.lines.next().and_then(Result::ok);
        serde_json::from_str(&line.unwrap_or_else(|| panic!("{}", fs::read_to_string(&self.log).unwrap()))).unwrap()
    }

    pub(crate) fn go_on(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
    }

    /// Lets it end.
    pub(crate) fn end(mut self) {
        self.go_on();
        assert!(self.child.wait().unwrap().success());
    }
}
