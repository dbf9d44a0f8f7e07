//! A hostile target against the clients that ship: the commands, and the library.
//!
//! Each walk has its own target. Most walks use the library within this process, with short time limits; some start a
//! command. A client must end, with success or an error, within its own limits.

use std::ops::Range;
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::clients;
use super::fault::{Fault, Kind, Tally};
use super::target::HostileTarget;

/// The number of walks at the same time. They wait most of their time.
const AT_A_TIME: usize = 48;

/// The time limit of a walk with the library, whose own limits are a few seconds.
const LIBRARY_LIMIT: Duration = Duration::from_secs(40);

/// The messages of all panics in this process.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Runs all walks of `seeds`.
pub(super) fn run(seeds: Range<u64>) -> Tally {
    panic::set_hook(Box::new(|info| PANICS.lock().expect("a hook does not panic").push(info.to_string())));
    let next = AtomicU64::new(seeds.start);
    let faults = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end) {
                    if let Some(mut fault) = walk(seed, false) {
                        fault.suspects.push(seed);
                        show(&fault);
                        faults.lock().expect("no thread panics with it").push(fault);
                    }
                }
            });
        }
    });
    let mut tally = Tally::default();
    tally.add(seeds.end - seeds.start, faults.into_inner().expect("no thread panics with it"));
    tally
}

/// Runs one walk and prints its steps.
pub(super) fn trace(seed: u64) -> Tally {
    let fault = walk(seed, true);
    if let Some(fault) = &fault {
        eprintln!("{:?}: {}", fault.kind, fault.what);
    }
    let mut tally = Tally::default();
    tally.add(1, fault.into_iter().collect());
    tally
}

fn walk(seed: u64, trace: bool) -> Option<Fault> {
    let target = HostileTarget::start(seed, trace);
    if clients::is_command(seed) {
        return clients::run_command(seed, target.address, trace);
    }
    let (done, is_done) = mpsc::channel();
    let address = target.address;
    thread::spawn(move || {
        // The hook has the message of a panic.
        let _ = panic::catch_unwind(|| clients::use_library(seed, address, trace));
        // The walk may have been given up, and the receiver with it.
        let _ = done.send(());
    });
    let ended = is_done.recv_timeout(LIBRARY_LIMIT);
    let panics = std::mem::take(&mut *PANICS.lock().expect("a hook does not panic"));
    if !panics.is_empty() {
        return Some(Fault::new(Kind::Panic, panics.join("\n")));
    }
    ended.is_err().then(|| Fault::new(Kind::Hang, format!("the library does not end within {LIBRARY_LIMIT:?}")))
}

fn show(fault: &Fault) {
    eprintln!("{:?}: {}", fault.kind, fault.what);
    for seed in &fault.suspects {
        eprintln!("  alone: cargo xtask hostile --side initiator --trace {seed}");
    }
}
