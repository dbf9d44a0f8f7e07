//! The system of a node as it is: programs that run, and files.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::unix::fs::{FileTypeExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use super::system::{Kind, Ran, Space, System};
use crate::limits::{
    BLANK_BYTES, LOOK_AGAIN, MAX_OUTPUT_BYTES, MAX_SYSTEM_FILE_BYTES, OUTPUT_TIMEOUT, PROGRAM_TIMEOUT,
};

/// Programs that talk to daemons of the host, and so have to be those of the host.
const OF_HOST: [&str; 3] = ["iscsiadm", "multipath", "multipathd"];

/// The programs and files of this machine.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    host_root: Option<PathBuf>,
}

impl Programs {
    /// The system of this machine. A driver in a container sees the root of its host at `host_root`.
    pub fn new(host_root: Option<PathBuf>) -> Self {
        Self { host_root }
    }

    fn of_host(&self, path: &Path) -> PathBuf {
        self.host_root.as_ref().map_or_else(|| path.into(), |root| root.join(path.strip_prefix("/").unwrap_or(path)))
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = match &self.host_root {
            Some(root) if OF_HOST.contains(&program) => {
                let mut command = Command::new("chroot");
                command.arg(root).args(["/usr/bin/env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", program]);
                command
            }
            _ => Command::new(program),
        };
        command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl System for Programs {
    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<Ran> {
        let mut child = self.command(program, arguments).spawn()?;
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        let code = wait_at_most(&mut child, PROGRAM_TIMEOUT)?;
        // A daemon that the program has started may hold the pipes.
        let text = |output: Option<Receiver<String>>| {
            output.and_then(|output| output.recv_timeout(OUTPUT_TIMEOUT).ok()).unwrap_or_default()
        };
        Ok(Ran { code, stdout: text(stdout), stderr: text(stderr) })
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(MAX_SYSTEM_FILE_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    fn read_of_host(&self, path: &Path) -> io::Result<String> {
        self.read(&self.of_host(path))
    }

    fn rewrite_of_host(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = File::options().write(true).open(self.of_host(path))?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        // Not cut before: a reader, or an interruption, would find an empty file.
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.sync_all()
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        lunette_files::replace(path, text.as_bytes())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => {
                let kind = found?.file_type();
                let kind = match (kind.is_dir(), kind.is_block_device()) {
                    (true, _) => Kind::Folder,
                    (_, true) => Kind::Device,
                    _ => Kind::Other,
                };
                Ok(Some(kind))
            }
        }
    }

    fn is_blank(&self, device: &Path) -> io::Result<bool> {
        let mut file = File::open(device)?;
        let len_bytes = file.seek(SeekFrom::End(0))?;
        if len_bytes == 0 {
            return Err(io::Error::other("the device has no length"));
        }
        let is_zero = |from: u64, file: &mut File| -> io::Result<bool> {
            file.seek(SeekFrom::Start(from))?;
            let mut left = BLANK_BYTES.min(len_bytes - from);
            let mut piece = [0; 4096];
            while left > 0 {
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                let next = piece.get_mut(..len).unwrap_or_default();
                file.read_exact(next)?;
                if next.iter().any(|byte| *byte != 0) {
                    return Ok(false);
                }
                left -= len as u64;
            }
            Ok(true)
        };
        Ok(is_zero(0, &mut file)? && is_zero(len_bytes.saturating_sub(BLANK_BYTES), &mut file)?)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn make_file(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        File::options().append(true).create(true).open(path).map(drop)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = match self.kind(path)? {
            Some(Kind::Folder) => fs::remove_dir(path),
            Some(Kind::Device | Kind::Other) => fs::remove_file(path),
            None => Ok(()),
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        match File::open(path.parent().unwrap_or(Path::new("/"))) {
            // Nothing was ever there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            folder => folder?.sync_all(),
        }
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let found = statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space {
            total_bytes: bytes(found.f_blocks),
            available_bytes: bytes(found.f_bavail),
            used_bytes: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
            total_inodes: found.f_files,
            free_inodes: found.f_ffree,
        })
    }

    fn wait(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// Waits for the end of a program, and ends it when its time is over.
fn wait_at_most(child: &mut Child, limit: Duration) -> io::Result<Option<i32>> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if Instant::now() >= end {
            // The program may have ended meanwhile. One in an uninterruptible wait is left to the system.
            let _ = child.kill();
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LOOK_AGAIN);
    }
}

fn collect(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe;
        // After an error, the output is what was read before. What is too long is read and dropped.
        let _ = pipe.by_ref().take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
        let _ = io::copy(&mut pipe, &mut io::sink());
        // The receiver may have given up.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_has_an_exit_code_and_two_outputs() {
        let ran = Programs::default().run("sh", &["-c", "echo out; echo err >&2; exit 3"]).unwrap();
        assert_eq!(ran, Ran { code: Some(3), stdout: "out\n".into(), stderr: "err\n".into() });
        assert_eq!(Programs::default().run("/nowhere/program", &[]).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_a_program_says_beyond_the_limit_is_dropped() {
        let ran = Programs::default().run("head", &["-c", "2000000", "/dev/zero"]).unwrap();
        assert_eq!((ran.code, ran.stdout.len() as u64), (Some(0), MAX_OUTPUT_BYTES));
    }

    #[test]
    fn the_host_has_its_own_iscsiadm() {
        let programs = Programs::new(Some("/host".into()));
        let shown = |program| format!("{:?}", programs.command(program, &["-V"]));
        assert!(shown("iscsiadm").contains("\"chroot\" \"/host\" \"/usr/bin/env\""), "{}", shown("iscsiadm"));
        assert!(!shown("mkfs.ext4").contains("chroot"));
    }

    #[test]
    fn a_file_of_the_host_is_rewritten_in_place() {
        let host = tempfile::tempdir().unwrap();
        let programs = Programs::new(Some(host.path().into()));
        let (inside, outside) = (host.path().join("record"), Path::new("/record"));
        assert_eq!(programs.rewrite_of_host(outside, "x").unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&inside, "a longer text").unwrap();
        fs::set_permissions(&inside, fs::Permissions::from_mode(0o640)).unwrap();
        programs.rewrite_of_host(outside, "short").unwrap();
        assert_eq!(programs.read_of_host(outside).unwrap(), "short");
        assert_eq!(fs::metadata(&inside).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn files_are_made_replaced_and_removed_again() {
        let folder = tempfile::tempdir().unwrap();
        let system = Programs::default();
        let (file, sub) = (folder.path().join("a/b/record.json"), folder.path().join("x/y"));
        system.write(&file, "one").unwrap();
        system.write(&file, "two").unwrap();
        assert_eq!(system.read(&file).unwrap(), "two");
        assert_eq!(system.list(&folder.path().join("a/b")).unwrap(), ["record.json"]);
        system.make_folder(&sub).unwrap();
        system.make_file(&sub.join("disk")).unwrap();
        assert_eq!(system.kind(&sub).unwrap(), Some(Kind::Folder));
        assert!(system.remove(&sub).is_err(), "it is not empty");
        for path in [&sub.join("disk"), &sub, &sub] {
            system.remove(path).unwrap();
        }
        assert_eq!((system.kind(&sub).unwrap(), system.list(&sub).unwrap()), (None, Vec::new()));
        assert!(system.space(folder.path()).unwrap().total_bytes > 0);
    }
}
