//! Lists and texts of librbd, as values of our own.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;

use super::super::check;
use crate::limits::MAX_LIST;

/// Entries that there is room for at first.
const FIRST_ROOM: usize = 64;

/// A name for librbd.
pub(super) fn name(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{text:?} holds a NUL byte")))
}

/// A text of librbd; an empty one when there is none.
///
/// # Safety
///
/// `text` is null, or a text that lives beyond the call.
pub(super) unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The entries that `ask` fills in. It gets room and its length, and gives how many there are; a negative number is an
/// error. With `-ERANGE` it is asked once more, with as much room as it wants, up to [`MAX_LIST`] entries.
pub(super) fn grow<T: Copy>(empty: T, mut ask: impl FnMut(&mut [T], &mut usize) -> c_int) -> io::Result<Vec<T>> {
    let mut room = FIRST_ROOM;
    loop {
        let mut entries = vec![empty; room];
        let mut count = room;
        let code = ask(&mut entries, &mut count);
        if code == -libc::ERANGE && count > room && count <= MAX_LIST {
            room = count;
            continue;
        }
        check(code)?;
        entries.truncate(count);
        return Ok(entries);
    }
}

/// Texts that librbd has put behind each other, each with a zero at its end.
pub(super) fn texts(bytes: &[u8]) -> Vec<String> {
    let whole = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    whole.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Librbd with this many entries.
    fn ask(have: usize) -> impl FnMut(&mut [u64], &mut usize) -> c_int {
        move |entries, count| {
            assert_eq!(entries.len(), *count);
            let fits = have <= *count;
            *count = have;
            if !fits {
                return -libc::ERANGE;
            }
            entries[..have].copy_from_slice(&(0..have as u64).collect::<Vec<_>>());
            0
        }
    }

    #[test]
    fn a_list_gets_the_room_that_it_needs() {
        for len in [0, 1, FIRST_ROOM, FIRST_ROOM + 1, 5000] {
            assert_eq!(grow(0, ask(len)).unwrap(), (0..len as u64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_an_error() {
        assert_eq!(grow(0, ask(MAX_LIST + 1)).unwrap_err().raw_os_error(), Some(libc::ERANGE));
        let never_enough = |_: &mut [u64], count: &mut usize| {
            *count = FIRST_ROOM;
            -libc::ERANGE
        };
        assert_eq!(grow(0, never_enough).unwrap_err().raw_os_error(), Some(libc::ERANGE));
    }

    #[test]
    fn texts_end_with_zeroes() {
        assert_eq!(texts(b""), Vec::<String>::new());
        assert_eq!(texts(b"a\0\0bc\0"), ["a", "", "bc"]);
        assert_eq!(texts(b"\0"), [""]);
    }
}
