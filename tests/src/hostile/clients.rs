//! The clients that meet a hostile target.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lunette_initiator::{Disk, Error, Initiator, Url, wait};
use lunette_scsi::Lun;

use super::dice::Dice;
use super::fault::{Fault, Kind};
use super::target::url;
use crate::lunette;

/// One walk in this many starts a command; the others use the library.
const ONE_COMMAND_IN: u64 = 6;

/// The longest time that a command may take: 15 s for a login, 30 s for a request and 10 s to abort it, a minute for a
/// lost connection, and some of these one after the other.
const COMMAND_LIMIT: Duration = Duration::from_secs(150);

/// The most memory of a command: its buffers (256 MiB at most) and little else.
const MEMORY_CAP_KIB: u64 = 400 << 10;

/// The interval at which a command is polled.
const LOOK: Duration = Duration::from_millis(10);

/// Parameters for URLs.
const PARAMETERS: [&str; 8] = [
    "",
    "",
    "?error_recovery_level=1&header_digest=crc32c,none&data_digest=crc32c,none",
    "?error_recovery_level=2&default_time2retain=1",
    "?error_recovery_level=2&max_connections=4&default_time2retain=1",
    "?max_connections=3",
    "?header_digest=crc32c&data_digest=crc32c",
    "?immediate_data=no&initial_r2t=yes&max_burst_length=4096",
];

/// Whether the walk of `seed` starts a command.
pub(super) fn is_command(seed: u64) -> bool {
    seed.is_multiple_of(ONE_COMMAND_IN)
}

/// Starts one of the commands and waits for its end.
pub(super) fn run_command(seed: u64, address: SocketAddr, trace: bool) -> Option<Fault> {
    let mut dice = Dice::new(!seed);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("temporary folders have plain names").to_owned();
    let disk = url(address, dice.pick(&PARAMETERS));
    let small = file("small");
    File::create(&small).and_then(|file| file.set_len(1 << 20)).expect("room for a file");
    let arguments: Vec<String> = match dice.below(9) {
        0 => vec!["ls".into(), format!("iscsi://{address}")],
        1 => vec!["ls".into(), disk],
        2 | 3 => vec!["info".into(), disk],
        4 => vec!["ping".into(), disk, "--count=5".into(), "--interval=10".into()],
        5 => vec!["cp".into(), disk, "-".into()],
        6 => vec!["cp".into(), disk, file("copy"), "--verify".into()],
        7 => vec!["cp".into(), small, disk],
        _ => vec!["bench".into(), disk, "--time=1".into(), "--rw=randrw".into()],
    };
    if trace {
        eprintln!("[{seed}] lunette {}", arguments.join(" "));
    }
    let [stdout, stderr] =
        ["stdout", "stderr"].map(|name| File::create(folder.path().join(name)).expect("room for a file"));
    let stdout = if arguments.iter().any(|word| word == "-") { Stdio::null() } else { stdout.into() };
    let fault = watch(lunette().args(&arguments).stdin(Stdio::null()).stdout(stdout).stderr(stderr));
    let said = ["stdout", "stderr"].map(|name| std::fs::read(folder.path().join(name)).unwrap_or_default()).concat();
    if trace {
        eprintln!("[{seed}] {}", String::from_utf8_lossy(&said).escape_debug());
    }
    let shown = || format!("lunette {}: {}", arguments.join(" "), String::from_utf8_lossy(&said).escape_debug());
    let panicked = String::from_utf8_lossy(&said).contains("panicked");
    let fault = if panicked { Some(Fault::new(Kind::Panic, String::new())) } else { fault };
    let is_rough = |byte: &u8| *byte == 0x7f || (*byte < 0x20 && !b"\n\r\t".contains(byte));
    let fault = fault.or_else(|| {
        said.iter().any(is_rough).then(|| Fault::new(Kind::Other, "control characters reach the terminal".into()))
    });
    fault.map(|fault| Fault { what: format!("{} {}", fault.what, shown()), ..fault })
}

/// Runs a command within its limits.
fn watch(command: &mut Command) -> Option<Fault> {
    let mut child = command.spawn().expect("the command is there");
    let start = Instant::now();
    let fault = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) if status.code().is_some_and(|code| code != 101) => return None,
            Some(status) => return Some(Fault::new(Kind::Panic, format!("{status}"))),
            None if start.elapsed() > COMMAND_LIMIT => {
                break Fault::new(Kind::Hang, format!("no end within {COMMAND_LIMIT:?}"));
            }
            None => {}
        }
        let memory_kib = memory_of(&child);
        if memory_kib > MEMORY_CAP_KIB {
            break Fault::new(Kind::Other, format!("{memory_kib} KiB of memory"));
        }
        std::thread::sleep(LOOK);
    };
    // The command may have ended meanwhile.
    let _ = child.kill();
    let _ = child.wait();
    Some(fault)
}

/// The memory of a process in KiB, zero when it has just ended.
fn memory_of(child: &std::process::Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    kib.trim().trim_end_matches("kB").trim().parse().unwrap_or(0)
}

/// Opens a disk and tries most operations. Errors are expected.
pub(super) fn use_library(seed: u64, address: SocketAddr, trace: bool) {
    let mut dice = Dice::new(!seed);
    let url = Url::parse(&url(address, dice.pick(&PARAMETERS))).expect("a URL of our own");
    let mut options = url.options().expect("parameters that there are");
    options.timers.login = Duration::from_secs(1);
    options.timers.ping_after = Duration::from_millis(200);
    options.timers.ping_answer = Duration::from_millis(300);
    options.timers.resend = Duration::from_millis(100);
    options.connect_timeout = Duration::from_secs(1);
    options.request_timeout = Duration::from_millis(500);
    options.abort_timeout = Duration::from_millis(200);
    options.reconnect_for = Duration::from_secs(2);
    let used = Initiator::start().and_then(|initiator| {
        let session = wait(url.connect(&initiator, options))?;
        let disk = wait(Disk::open(session, Lun::ZERO))?;
        for _ in 0..=dice.below(12) {
            let done = operate(&disk, &mut dice);
            if trace {
                eprintln!("[{seed}] {done:?}");
            }
        }
        Ok(())
    });
    if trace {
        eprintln!("[{seed}] the end: {used:?}");
    }
}

fn operate(disk: &Disk, dice: &mut Dice) -> Result<(), Error> {
    let (lba, blocks) = (dice.below(64) as u64, 1 + dice.below(200) as u32);
    let bytes = vec![5; blocks as usize * disk.facts().block_len().min(4096) as usize];
    match dice.below(9) {
        0 | 1 => wait(disk.read(lba, blocks)).map(drop),
        2 | 3 => wait(disk.write(lba, &bytes, dice.one_in(2))),
        4 => wait(disk.flush()),
        5 => wait(disk.write_zeroes(lba, blocks.into(), true)),
        6 => wait(disk.session().ping(vec![1; 100])).map(drop),
        7 => wait(disk.session().text(vec![("SendTargets".into(), String::new())])).map(drop),
        _ => wait(disk.session().reset_logical_unit(Lun::ZERO)),
    }
}
