//! `targetcli`: a command of its arguments, or a script on standard input.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use crate::failure::Failure;
use crate::limits::{MAX_LINE_BYTES, MAX_SCRIPT_BYTES};
use crate::line::Line;
use crate::listing::MAX_COLUMNS;
use crate::machine::Machine;
use crate::node::Node;
use crate::shell::{self, Reply, World};

/// The version of targetcli-fb whose language this is.
pub(crate) const VERSION: &str = concat!("2.1.53 (lunette ", env!("CARGO_PKG_VERSION"), ")");

const USAGE: &str = "\
Usage: targetcli [--version|--help|CMD]
  --version\t\tPrint version
  --help\t\tPrint this information
  CMD\t\t\tRun targetcli shell command and exit
  <nothing>\t\tEnter configuration shell, or run the script on standard input
It drives a running Lunette through the socket that LUNETTE_API names as unix:PATH, or unix:/run/lunette/api.sock.";

/// The exit code of a wrong use.
const USED_WRONGLY: i32 = 255;

/// Runs the program. Returns its exit code.
pub(crate) fn main(arguments: &[String]) -> i32 {
    match arguments.first().map(String::as_str) {
        Some("--help" | "-h" | "help") => {
            complain(USAGE);
            return USED_WRONGLY;
        }
        Some("--version" | "-v" | "version") => {
            complain(&format!("targetcli version {VERSION}"));
            return 0;
        }
        // The daemon of targetcli is for speed, and there is none here.
        Some("--disable-daemon" | "disable-daemon") => return 0,
        _ => {}
    }
    let mut session = match Machine::new() {
        Ok(machine) => Session { machine, current: Node::Root, columns: columns(), is_over: false },
        Err(failure) => {
            complain(&failure.to_string());
            return 1;
        }
    };
    if arguments.is_empty() {
        return session.script(&mut io::stdin().lock(), io::stdin().is_terminal());
    }
    match session.run(&arguments.join(" ")) {
        Ok(()) => 0,
        Err(failure) => {
            complain(&failure.to_string());
            1
        }
    }
}

struct Session {
    machine: Machine,
    current: Node,
    columns: usize,
    is_over: bool,
}

impl Session {
    /// Runs the lines of a script, or those that a person types. A line that fails does not end it, as with targetcli.
    ///
    /// The exit code tells of failures, which that of targetcli does not. But callers run a script again when its first
    /// run was cut off. So what is made or removed already is told, and is no failure.
    fn script(&mut self, input: &mut dyn BufRead, is_terminal: bool) -> i32 {
        let (mut code, mut left) = (0, MAX_SCRIPT_BYTES);
        while !self.is_over {
            if is_terminal {
                print(&format!("{}> ", self.current));
            }
            let line = match next_line(input) {
                Ok(None) => break,
                Ok(Some(line)) if line.len() > MAX_LINE_BYTES || line.len() > left && !is_terminal => {
                    complain(&format!("a line has {MAX_LINE_BYTES} bytes at most, and a script {MAX_SCRIPT_BYTES}"));
                    return 1;
                }
                Ok(Some(line)) => line,
                Err(error) => {
                    complain(&format!("standard input: {error}"));
                    return 1;
                }
            };
            left = left.saturating_sub(line.len());
            if let Err(failure) = self.run(&line) {
                complain(&failure.to_string());
                code |= i32::from(!failure.is_done_already());
            }
        }
        if self.machine.is_saved() {
            print("Global pref auto_save_on_exit=true\n");
            print(&format!("Configuration saved to {}\n", self.machine.saved_file()));
        }
        code
    }

    fn run(&mut self, text: &str) -> Result<(), Failure> {
        let Some(line) = Line::parse(text)? else { return Ok(()) };
        let (current, columns) = (self.current.clone(), self.columns);
        let Reply { lines, go, is_exit, failure } = self.machine.change(|model, world| {
            let current = current.clone().still_there(model);
            let mut reply = shell::run(&line, &current, model, world, columns)?;
            reply.go = Some(reply.go.unwrap_or(current).still_there(model));
            Ok(reply)
        })?;
        for line in lines {
            print(&format!("{line}\n"));
        }
        self.current = go.unwrap_or(Node::Root);
        self.is_over |= is_exit;
        failure.map_or(Ok(()), Err)
    }
}

/// The next line, or a part of one that is too long.
fn next_line(input: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    input.take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut bytes)?;
    Ok((!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned()))
}

/// The width of the terminal, up to what targetcli uses.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    size.filter(|columns| *columns > 0).map_or(MAX_COLUMNS, |columns| columns.min(MAX_COLUMNS))
}

/// Prints on standard output. A reader that is gone does not matter: the change is made.
pub(crate) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Prints a line on standard error.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
