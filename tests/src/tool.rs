//! External programs, with a time limit.

use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::process::wait_at_most;

/// A time limit that is long enough for everything except a measurement.
const LIMIT: Duration = Duration::from_mins(2);

/// A program that has ended.
pub struct Ran {
    command: String,
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The standard output of the program.
    pub stdout: String,
    /// The standard error of the program.
    pub stderr: String,
}

impl Ran {
    /// The standard output of the program. Panics when the program failed.
    pub fn succeeded(&self) -> &str {
        assert!(self.code == Some(0), "{self}");
        &self.stdout
    }

    /// The two outputs of the program. Panics when the program succeeded.
    pub fn failed(&self) -> String {
        assert!(self.code != Some(0), "this should have failed: {self}");
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, code, stdout, stderr } = self;
        write!(f, "$ {command}\nexit code {code:?}\n{stdout}\n{stderr}")
    }
}

/// Runs a program to its end.
pub fn run<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = S>) -> Ran {
    run_at_most(LIMIT, Command::new(program).args(arguments))
}

/// Runs a program that must end within `limit`. Panics when it does not, or cannot be started.
pub fn run_at_most(limit: Duration, command: &mut Command) -> Ran {
    let shown = format!("{command:?}");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let status = wait_at_most(&mut child, limit);
    if status.is_none() {
        end(&mut child);
    }
    let text = |reader: JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().expect("a reader does not panic")).into_owned()
    };
    let ran = Ran {
        command: shown,
        code: status.and_then(|status| status.code()),
        stdout: text(stdout),
        stderr: text(stderr),
    };
    assert!(status.is_some(), "it did not end within {limit:?}: {ran}");
    ran
}

fn end(child: &mut Child) {
    // The program may have ended meanwhile.
    let _ = child.kill();
    let _ = child.wait();
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    let mut pipe = pipe.expect("the pipe was asked for");
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error, the output is what was read before.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}
