use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};
use tempfile::TempDir;

use super::*;

const NOTE: Content = Content { name: "a note", max_bytes: 5000 };

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn with(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.at(name), bytes).unwrap();
        self.at(name)
    }
}

/// The message of each function of this crate, which are one.
fn refused(path: &Path) -> String {
    let message = read(path, NOTE).unwrap_err().to_string();
    assert_eq!(read_text(path, NOTE).unwrap_err().to_string(), message);
    assert_eq!(read_secret(path, NOTE).unwrap_err().to_string(), message);
    message
}

#[test]
fn only_regular_files_are_opened_and_nothing_is_waited_for() {
    let folder = Folder::new();
    mknodat(CWD, folder.at("fifo"), Kind::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = UnixListener::bind(folder.at("socket")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.at("link")).unwrap();
    for (path, kind) in [
        (folder.at("fifo"), "a FIFO"),
        (folder.at("socket"), "a socket"),
        (folder.at("link"), "a character device"),
        ("/dev/zero".into(), "a character device"),
        ("/dev/full".into(), "a character device"),
        (folder.at("."), "a directory"),
    ] {
        let expected = format!("{}: this is {kind}; name a regular file that holds a note", path.display());
        assert_eq!(refused(&path), expected);
    }
}

#[test]
fn a_pipe_of_this_process_is_read_to_its_end_when_an_argument_names_it() {
    for (text, is_short_enough) in [("a note", true), (&"x".repeat(NOTE.max_bytes + 1), false)] {
        let (reader, mut writer) = io::pipe().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        writer.write_all(text.as_bytes()).unwrap();
        drop(writer);
        assert!(is_given_pipe(&path) && refused(&path).contains("a FIFO"));
        assert_eq!(read_argument(&path, NOTE).ok().as_deref(), is_short_enough.then_some(text));
        let again = is_short_enough.then(|| read_argument(&path, NOTE).unwrap_err().to_string());
        assert!(
            again.is_none_or(|message| message.ends_with("this pipe has ended; name a regular file that holds a note"))
        );
    }
    let folder = Folder::new();
    mknodat(CWD, folder.at("fifo"), Kind::Fifo, Mode::RUSR, 0).unwrap();
    assert!(read_argument(&folder.at("fifo"), NOTE).unwrap_err().to_string().contains("a FIFO"));
    assert_eq!(read_argument(&folder.with("note", b"a note"), NOTE).unwrap(), "a note");
}

#[test]
fn a_file_is_read_up_to_its_limit() {
    let folder = Folder::new();
    for len in [0, 1, PIECE_BYTES, NOTE.max_bytes] {
        let path = folder.with("note", &vec![b'x'; len]);
        assert_eq!(read(&path, NOTE).unwrap().len(), len);
        assert_eq!(read_secret(&path, NOTE).unwrap().len(), len);
    }
    assert!(refused(&folder.with("note", &[b'x'; 5001])).ends_with("which has 5000 bytes at most; name another file"));
    // Its length is no reason to take that much memory.
    File::create(folder.at("huge")).unwrap().set_len(1 << 40).unwrap();
    assert!(refused(&folder.at("huge")).contains("too long for a note"));
}

#[test]
fn a_file_that_grows_while_it_is_read_is_refused_at_the_limit() {
    let folder = Folder::new();
    let path = folder.with("note", b"");
    let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
    let file = open(&path, NOTE).unwrap();
    writer.write_all(&[b'x'; 5001]).unwrap();
    let problem = fill(&mut Vec::new(), &file, &path, NOTE).unwrap_err();
    assert!(matches!(problem.reason, Reason::TooLong));
}

#[test]
fn what_the_system_refuses_comes_with_the_remedy() {
    let folder = Folder::new();
    let missing = read(&folder.at("missing"), NOTE).unwrap_err();
    assert!(missing.is_missing() && missing.to_string().contains("create it with a note in it"), "{missing}");
    assert!(refused(&folder.with("file", b"").join("below")).contains("a note cannot be read: Not a directory"));
    let denied = Reason::System(io::ErrorKind::PermissionDenied.into());
    assert!(FileProblem::new(Path::new("/x"), NOTE, denied).to_string().contains("read the file and pass its folders"));
    for (kind, expected) in [
        (io::ErrorKind::NotFound, "create what is missing"),
        (io::ErrorKind::PermissionDenied, "as another user"),
        (io::ErrorKind::StorageFull, "free space on its file system"),
        (io::ErrorKind::QuotaExceeded, "quota"),
        (io::ErrorKind::FileTooLarge, "ulimit -f"),
        (io::ErrorKind::ReadOnlyFilesystem, "mounted read only"),
        (io::ErrorKind::NotADirectory, "a part of its path is no folder"),
        (io::ErrorKind::BrokenPipe, "the program that reads it has ended"),
        (io::ErrorKind::Other, ""),
    ] {
        assert!(remedy(&kind.into()).contains(expected), "{kind}");
    }
    let path = folder.with("note", b"ab\xff");
    assert!(read_text(&path, NOTE).unwrap_err().to_string().contains("not UTF-8 from byte 2 on"));
}

#[test]
fn a_secret_that_other_users_may_read_is_noticed() {
    for (mode, is_public) in
        [(0o600, false), (0o640, false), (0o660, false), (0o644, true), (0o604, true), (0o602, true)]
    {
        assert_eq!(public::is_public(mode), is_public, "{mode:o}");
    }
}
