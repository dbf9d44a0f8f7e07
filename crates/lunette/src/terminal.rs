//! Questions to the person at the terminal.

use std::io::{self, BufRead, IsTerminal};

use lunette_keys::Passphrase;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::output;

/// Says what will be lost, and asks when there is a person to ask.
pub(crate) fn ask(yes: bool, what: &str) -> Result<(), Failure> {
    output::note(what);
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

/// The longest passphrase that is typed. The line never grows beyond it, so no copy of it stays where a shorter one
/// was.
const MAX_TYPED_BYTES: usize = 1024;

/// Asks for the passphrase of a key file, without showing it. `None` when no person can be asked, or the answer is no
/// passphrase.
///
/// Ctrl-C is no signal meanwhile, because a process that it ended would leave a terminal that shows nothing; it is an
/// answer without passphrase.
pub(crate) fn passphrase(key_file: &str) -> Option<Passphrase> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return None;
    }
    eprint!("Passphrase of {key_file}: ");
    let shown = tcgetattr(&stdin).ok()?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
    hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).ok()?;
    let line = read_line(|into| rustix::io::retry_on_intr(|| rustix::io::read(&stdin, &mut *into)).ok());
    // What was shown before is shown again, whatever was read.
    let _ = tcsetattr(&stdin, OptionalActions::Now, &shown);
    output::note("");
    Passphrase::new(std::mem::take(&mut *line?))
}

/// Reads a line byte by byte, past the buffer of standard input, which would keep it. `None` when it is given up or too
/// long.
fn read_line(mut read: impl FnMut(&mut [u8; 1]) -> Option<usize>) -> Option<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_TYPED_BYTES));
    let mut byte = Zeroizing::new([0]);
    while read(&mut byte)? == 1 {
        match byte[0] {
            b'\n' | b'\r' => return Some(line),
            CTRL_C | CTRL_D | CTRL_BACKSLASH => return None,
            BACKSPACE | DELETE => drop(line.pop()),
            CTRL_U => line.clear(),
            _ if line.len() == MAX_TYPED_BYTES => return None,
            byte => line.push(byte),
        }
    }
    None
}

const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const CTRL_U: u8 = 0x15;
const CTRL_BACKSLASH: u8 = 0x1c;
const DELETE: u8 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;

    /// The passphrase that is read when these bytes are typed.
    fn typed(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.iter();
        let line = read_line(|into| {
            Some(bytes.next().map_or(0, |byte| {
                into[0] = *byte;
                1
            }))
        });
        line.map(|line| line.to_vec())
    }

    #[test]
    fn a_line_is_edited_and_given_up() {
        assert_eq!(typed(b"secret\nmore").unwrap(), b"secret");
        assert_eq!(typed(b"\x7fsecres\x7ft\r").unwrap(), b"secret");
        assert_eq!(typed(b"wrong\x15secret\n").unwrap(), b"secret");
        for given_up in [&b"secret\x03\n"[..], b"secret\x04", b"\x1c", b"secret"] {
            assert_eq!(typed(given_up), None);
        }
    }

    #[test]
    fn a_line_never_outgrows_its_buffer() {
        let longest = [&[b'x'; MAX_TYPED_BYTES][..], b"\n"].concat();
        assert_eq!(typed(&longest).unwrap().len(), MAX_TYPED_BYTES);
        assert_eq!(typed(&[b'x'; MAX_TYPED_BYTES + 1]), None);
    }
}
