//! Questions to the person at the terminal.

use std::io::{self, BufRead, IsTerminal};

use lunette_keys::Passphrase;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::failure::Failure;

/// Says what will be lost, and asks when there is a person to ask.
pub(crate) fn ask(yes: bool, what: &str) -> Result<(), Failure> {
    eprintln!("{what}");
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage("nothing was destroyed: add --yes to do it".into()));
    }
    eprint!("Type yes to do it: ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::other)?;
    if answer.trim() == "yes" { Ok(()) } else { Err(Failure::Other("nothing was destroyed".into())) }
}

/// Asks for the passphrase of a key file, without showing it. `None` when no person can be asked, or the answer is no passphrase.
pub(crate) fn passphrase(key_file: &str) -> Option<Passphrase> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return None;
    }
    eprint!("Passphrase of {key_file}: ");
    let shown = tcgetattr(&stdin).ok()?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).ok()?;
    let mut line = Vec::new();
    let read = stdin.lock().read_until(b'\n', &mut line);
    // What was shown before is shown again, whatever was read.
    let _ = tcsetattr(&stdin, OptionalActions::Now, &shown);
    eprintln!();
    read.ok()?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Passphrase::new(line)
}
