//! Child processes, pinned to a CPU, whose CPU time is read from their own accounting, and which never outlive this
//! process.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::system::Interrupt;

/// The interval at which a process is polled.
const POLL: Duration = Duration::from_millis(5);

/// Clock ticks a second in `/proc/PID/stat`. The kernel converts its own ticks to these.
const USER_HZ: f64 = 100.0;

/// A process that is killed when this is dropped.
pub(crate) struct Child {
    process: process::Child,
    name: String,
    stdout: PathBuf,
    stderr: PathBuf,
    interrupt: Interrupt,
}

/// The end of a process.
pub(crate) struct Ended {
    /// The standard output of the child.
    pub(crate) stdout: String,
    /// User and system time of all its threads, from start to end.
    pub(crate) cpu: Duration,
}

impl Child {
    /// Starts a program on these CPUs, one or a list. Its output goes to files called `name` in `folder`.
    ///
    /// `setpriv` has the kernel kill the program when this process is killed and cannot do it any more. The two
    /// programs in front replace themselves by the program, so its process number is the one known here.
    pub(crate) fn start<A: AsRef<OsStr>>(
        folder: &Path,
        name: &str,
        cpus: impl fmt::Display,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (stdout, stderr) = (folder.join(format!("{name}.out")), folder.join(format!("{name}.err")));
        let create = |path: &Path| File::create(path).with_context(|| format!("cannot create {}", path.display()));
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "taskset", "--cpu-list", &cpus.to_string()])
            .arg(program.as_ref())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(create(&stdout)?)
            .stderr(create(&stderr)?)
            .spawn()
            .with_context(|| format!("cannot start {name} with setpriv"))?;
        Ok(Self { process, name: name.into(), stdout, stderr, interrupt: interrupt.clone() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// User and system time of all its threads so far. Readable until the process is waited for.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.id());
        let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        cpu_of(&stat).with_context(|| format!("{path} has no times: {stat}"))
    }

    /// The resident memory of the child in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// The peak of its resident memory in bytes.
    pub(crate) fn peak_resident_bytes(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.id());
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        memory_of(&status, field).with_context(|| format!("{path} has no {field}"))
    }

    /// Polls `ready` until it gives something. Fails when the process ends first.
    pub(crate) fn wait_until<T>(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut(&Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            self.interrupt.check()?;
            if self.has_ended()? {
                bail!("{} ends at once; see {}", self.name, self.stderr.display());
            }
            if let Some(found) = ready(self)? {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                bail!("{} is not ready after {limit:?}; see {}", self.name, self.stderr.display());
            }
            thread::sleep(POLL);
        }
    }

    /// The first line of its output, once it is complete.
    pub(crate) fn first_line(&self) -> Result<Option<String>> {
        let text = self.printed()?;
        Ok(text.split_once('\n').map(|(line, _)| line.trim().to_owned()))
    }

    /// Waits for a successful end within `limit`.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<Ended> {
        let deadline = Instant::now() + limit;
        while !self.has_ended()? {
            self.interrupt.check()?;
            if Instant::now() >= deadline {
                bail!("{} does not end within {limit:?}; see {}", self.name, self.stderr.display());
            }
            thread::sleep(POLL);
        }
        let cpu = self.cpu()?;
        let status = self.process.wait()?;
        if !status.success() {
            bail!("{}: {status}; see {}", self.name, self.stderr.display());
        }
        Ok(Ended { stdout: self.printed()?, cpu })
    }

    fn printed(&self) -> Result<String> {
        let bytes = fs::read(&self.stdout).with_context(|| format!("cannot read {}", self.stdout.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether the process has ended. Its accounting stays readable.
    fn has_ended(&self) -> Result<bool> {
        let pid = Pid::from_child(&self.process);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(pid), options).with_context(|| format!("cannot wait for {}", self.name))?.is_some())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The CPU time in a line of `/proc/PID/stat`: its 14th and 15th fields. The name before them may have blanks and
/// brackets.
#[expect(clippy::cast_precision_loss, reason = "ticks of days at most")]
fn cpu_of(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_secs_f64(user.checked_add(system)? as f64 / USER_HZ))
}

fn memory_of(status: &str, field: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_a_name_that_may_look_like_fields() {
        let stat = "7 (a) 1 (b) S 5042 5042 25896 0 -1 4194304 2311 0 2 0 150 25 9 9 20 0 17 0 1633659";
        assert_eq!(cpu_of(stat), Some(Duration::from_millis(1750)));
        assert_eq!(cpu_of("7 (a) S 1 2"), None);
        assert_eq!(cpu_of(""), None);
    }

    #[test]
    fn memory_is_in_kib() {
        let status = "Name:\tx\nVmHWM:\t  2000 kB\nVmRSS:\t    1220 kB\nRssAnon:\t 4 kB\n";
        assert_eq!(memory_of(status, "VmRSS:"), Some(1_249_280));
        assert_eq!(memory_of(status, "VmHWM:"), Some(2_048_000));
        assert_eq!(memory_of("Name:\tx\n", "VmRSS:"), None);
    }
}
