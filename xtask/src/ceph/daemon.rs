//! A process that outlives the one that has started it, and is found again by the file with its number.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The longest time from SIGKILL to the end.
const END_LIMIT: Duration = Duration::from_secs(10);

/// The interval at which an end is looked for.
const POLL: Duration = Duration::from_millis(20);

/// Starts `command` in a process group of its own: Ctrl-C at the terminal does not reach it. Its output goes to
/// `NAME.out` in `folder`.
pub(super) fn start(mut command: Command, name: &str, folder: &Path) -> Result<()> {
    let output = File::create(folder.join(format!("{name}.out")))?;
    command.process_group(0).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let begun = started_at(child.id()).with_context(|| format!("{name} has ended at once"))?;
    fs::write(folder.join(format!("{name}.pid")), format!("{} {begun}", child.id()))?;
    Ok(())
}

/// Ends the process that was started under this name, if it is still there. Its memory is lost.
pub(super) fn end(name: &str, folder: &Path) -> Result<()> {
    let Ok(text) = fs::read_to_string(folder.join(format!("{name}.pid"))) else { return Ok(()) };
    let Some((number, begun)) = text.split_once(' ').and_then(|(pid, begun)| Some((pid.parse::<u32>().ok()?, begun)))
    else {
        bail!("{name}.pid in {} holds no process number", folder.display());
    };
    // The number may belong to another process by now, and the moment of its start does not.
    let runs = || started_at(number).is_some_and(|at| at == begun);
    if !runs() {
        return Ok(());
    }
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw).context("not a process number")?;
    kill_process(pid, Signal::KILL).with_context(|| format!("cannot end {name}, process {number}"))?;
    let deadline = Instant::now() + END_LIMIT;
    while runs() {
        if Instant::now() >= deadline {
            bail!("{name}, process {number}, does not end");
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// The moment at which a process started, in ticks since the boot (proc(5), `stat`). `None` when it has ended.
fn started_at(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, starttime) = (fields.first()?, fields.get(19)?);
    (!matches!(*state, "Z" | "X")).then(|| (*starttime).to_owned())
}
