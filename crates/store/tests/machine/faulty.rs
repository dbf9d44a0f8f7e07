//! A file system of one file, whose requests fail as a test says. The kernel asks for them by FUSE (protocol 7.31,
//! `linux/fuse.h`).

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use tempfile::TempDir;

use super::{command, run, text};

/// The bytes before each request, and before each answer.
const REQUEST_HEADER: usize = 40;
const ANSWER_HEADER: usize = 16;

/// The longest write, and room for it with all that is before it.
const MAX_WRITE: u32 = 64 << 10;
const BUFFER: usize = MAX_WRITE as usize + 4096;

const ROOT: u64 = 1;
const FILE: u64 = 2;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// A file of sevens that takes all writes, until it is to fail.
pub(crate) struct FaultyFile {
    folder: TempDir,
    /// The error of reads, writes and flushes; 0 for none.
    errno: Arc<AtomicI32>,
    thread: Option<JoinHandle<()>>,
}

impl FaultyFile {
    pub(crate) fn new(len: u64) -> Self {
        let (folder, errno) = (tempfile::tempdir().unwrap(), Arc::<AtomicI32>::default());
        let fuse = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let mut mount = command("mount");
        mount.args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "faulty"]);
        let output = mount.arg(folder.path()).stdin(fuse.try_clone().unwrap()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let shared = Arc::clone(&errno);
        let thread = thread::spawn(move || serve(fuse, len, &shared));
        Self { folder, errno, thread: Some(thread) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    /// Reads, writes and flushes fail from now on.
    pub(crate) fn fail_with(&self, errno: Errno) {
        self.errno.store(errno.raw_os_error(), Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.errno.store(0, Ordering::SeqCst);
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        run("umount", &["-l", text(self.folder.path())]);
        // What is open keeps the file system, and a test that has failed may have it open.
        if let Some(thread) = self.thread.take().filter(|_| !thread::panicking()) {
            thread.join().unwrap();
        }
    }
}

fn serve(mut fuse: File, len: u64, errno: &AtomicI32) {
    let mut buffer = vec![0; BUFFER];
    // It ends with the mount.
    while let Ok(REQUEST_HEADER..) = fuse.read(&mut buffer) {
        let number = |at: usize| u32::from_ne_bytes(buffer[at..at + 4].try_into().unwrap());
        let (opcode, node) = (number(4), u64::from_ne_bytes(buffer[16..24].try_into().unwrap()));
        let size = number(REQUEST_HEADER + 16);
        let fails = errno.load(Ordering::SeqCst);
        let answer = match opcode {
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            READ | WRITE | FSYNC if fails != 0 => Err(fails),
            READ => Ok(vec![7; size as usize]),
            WRITE => Ok(words(&[size, 0])),
            INIT => Ok(words(&[7, 31, 0, 0, 0, MAX_WRITE, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            // Node, generation, times for which the answer holds, attributes.
            LOOKUP => Ok([words(&[FILE as u32, 0, 0, 0, 0, 0, 0, 0, 0, 0]), attributes(FILE, len)].concat()),
            GETATTR => Ok([words(&[0; 4]), attributes(node, len)].concat()),
            // FOPEN_DIRECT_IO: each request comes here.
            OPEN => Ok(words(&[0, 0, 1, 0])),
            FLUSH | RELEASE | FSYNC => Ok(Vec::new()),
            _ => Err(Errno::NOSYS.raw_os_error()),
        };
        let (error, body) = answer.map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let mut bytes = words(&[(ANSWER_HEADER + body.len()) as u32, error.cast_unsigned()]);
        bytes.extend(&buffer[8..16]);
        bytes.extend(body);
        // The process that asked may have been killed.
        let _ = fuse.write(&bytes);
    }
}

/// The attributes of a node (`struct fuse_attr`).
fn attributes(node: u64, len: u64) -> Vec<u8> {
    const FOLDER_MODE: u32 = 0o040_755;
    const FILE_MODE: u32 = 0o100_600;
    let (mode, len) = if node == ROOT { (FOLDER_MODE, 0) } else { (FILE_MODE, len) };
    let numbers = [node, len, len / 512, 0, 0, 0].map(u64::to_ne_bytes).concat();
    [numbers, words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
