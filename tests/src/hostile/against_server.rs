//! Hostile initiators against the server that ships.
//!
//! One server runs at a time, with many walks against it at once, so that hostile initiators meet each other there.
//! Beside them, witnesses (`witness`) do small I/O. After some hundred walks all peers leave; then the server must
//! release everything, and end on SIGTERM. Each batch has a new server, so a fault of one does not hide those of the
//! next.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::fault::{Fault, Kind, Tally};
use super::initiator::Walk;
use super::server::{self, Besieged};
use super::witness::{Complaint, Trouble};

/// The number of walks at the same time.
const AT_A_TIME: usize = 48;

/// Walks against one server.
const WALKS_PER_SERVER: u64 = 400;

/// The number of suspects that are tried alone at the same time. A server that hangs uses a whole CPU.
const TRIED_AT_A_TIME: usize = 6;

/// When there are more suspects than this, none is tried.
const MAX_SUSPECTS: usize = 4 * AT_A_TIME;

/// A walk that ended this long before a wait began may still have caused it.
const BEFORE: Duration = Duration::from_millis(200);

/// The interval at which the server is checked.
const LOOK: Duration = Duration::from_millis(200);

/// A session of a witness, which ends when the given function returns true.
type SessionOf<'a> = &'a dyn Fn(&dyn Fn() -> bool) -> Result<(), Complaint>;

/// The state that the threads of one server share.
#[derive(Default)]
struct Siege {
    is_over: AtomicBool,
    faults: Mutex<Vec<Fault>>,
    /// Seeds of walks, with their start and end.
    walks: Mutex<Vec<(u64, Instant, Option<Instant>)>>,
}

impl Siege {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends the siege with a fault, whose suspects are the walks under way at `since`.
    fn fail(&self, mut fault: Fault, since: Instant) {
        let was_under_way = |(_, begin, end): &&(u64, Instant, Option<Instant>)| {
            *begin <= since && end.is_none_or(|end| end + BEFORE >= since)
        };
        fault.suspects = self.lock_walks().iter().filter(was_under_way).map(|(seed, ..)| *seed).collect();
        let mut faults = self.faults.lock().expect("no thread panics with it");
        // Only the first fault counts: later ones are usually its consequence.
        if faults.is_empty() {
            faults.push(fault);
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn complain(&self, complaint: Complaint) {
        let since = complaint.since;
        self.fail(to_fault(complaint), since);
    }

    fn lock_walks(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Instant, Option<Instant>)>> {
        self.walks.lock().expect("no thread panics with it")
    }

    fn walk(&self, seed: u64, server: &Besieged) {
        self.lock_walks().push((seed, Instant::now(), None));
        Walk::new(seed, server.address, server::TARGETS, false).run();
        let mut walks = self.lock_walks();
        let ended = walks.iter_mut().find(|(other, ..)| *other == seed);
        ended.expect("it was added above").2 = Some(Instant::now());
    }
}

/// Runs all walks of `seeds`.
pub(super) fn run(seeds: Range<u64>) -> Tally {
    let mut tally = Tally::default();
    let mut first = seeds.start;
    let mut number = 0;
    while first < seeds.end {
        let last = seeds.end.min(first + WALKS_PER_SERVER);
        let (walks, mut faults) = besiege(number, first..last);
        eprintln!("server {number}: seeds {first} to {}, {walks} walks, {} faults", last - 1, faults.len());
        for fault in &mut faults {
            eprintln!("{:?}: {}", fault.kind, fault.what);
            find_culprits(fault);
            show_way_back(fault, first..last);
        }
        tally.add(walks, faults);
        (first, number) = (last, number + 1);
    }
    tally
}

/// Runs walks against one server.
fn besiege(number: u64, seeds: Range<u64>) -> (u64, Vec<Fault>) {
    let server = Besieged::start(number);
    let siege = Siege::default();
    let next = AtomicU64::new(seeds.start);
    let walking = AtomicU64::new(AT_A_TIME as u64);
    let all_gone = || walking.load(Ordering::Relaxed) == 0 || siege.is_over();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end) {
                    if siege.is_over() {
                        break;
                    }
                    siege.walk(seed, &server);
                }
                walking.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| attend(&siege, &all_gone, &|stop| server.private_session(stop)));
        scope.spawn(|| attend(&siege, &all_gone, &|stop| server.shared_session(stop)));
        while !all_gone() {
            if let Some(fault) = server.look() {
                siege.fail(fault, Instant::now());
            }
            thread::sleep(LOOK);
        }
    });
    let mut faults = siege.faults.into_inner().expect("no thread panics with it");
    let walks = siege.walks.into_inner().expect("no thread panics with it");
    if faults.is_empty() {
        faults.extend(server.settle());
        faults.extend(server.look());
    }
    // A server that hangs does not end, which is not a separate fault.
    let was_good = faults.is_empty();
    faults.extend(server.stop().filter(|_| was_good));
    (walks.len() as u64, faults)
}

/// Runs sessions of a witness, one after the other.
fn attend(siege: &Siege, is_over: &(dyn Fn() -> bool + Sync), session: SessionOf<'_>) {
    while !is_over() {
        if let Err(complaint) = session(&|| is_over()) {
            return siege.complain(complaint);
        }
    }
}

/// Runs one walk and prints its steps.
pub(super) fn trace(seed: u64) -> Tally {
    let fault = alone(seed, true);
    if let Some(fault) = &fault {
        eprintln!("{:?}: {}", fault.kind, fault.what);
    }
    let mut tally = Tally::default();
    tally.add(1, fault.into_iter().collect());
    tally
}

/// The fault that a walk causes when it is alone, if any.
fn alone(seed: u64, trace: bool) -> Option<Fault> {
    let server = Besieged::start(0);
    Walk::new(seed, server.address, server::TARGETS, trace).run();
    let fault = server.look().or_else(|| server.answers().err().map(to_fault));
    if !trace {
        return fault;
    }
    let fault = fault.or_else(|| server.settle());
    let stopped = server.stop();
    fault.or(stopped)
}

fn to_fault(complaint: Complaint) -> Fault {
    match complaint.what {
        Trouble::Hang(what) => Fault::new(Kind::Hang, what),
        Trouble::Starved(what) => Fault::new(Kind::Starved, what),
        Trouble::Wrong(what) => Fault::new(Kind::Other, what),
    }
}

/// Tries the suspects alone, when they are few; those that repeat the fault are the culprits. Some faults need several
/// walks at once.
fn find_culprits(fault: &mut Fault) {
    if fault.suspects.len() > MAX_SUSPECTS {
        return fault.suspects.clear();
    }
    if !matches!(fault.kind, Kind::Hang | Kind::Panic) {
        return;
    }
    let next = AtomicU64::new(0);
    let culprits = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..TRIED_AT_A_TIME {
            scope.spawn(|| {
                while let Some(seed) = fault.suspects.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    if alone(*seed, false).is_some_and(|found| found.kind == fault.kind) {
                        culprits.lock().expect("no thread panics with it").push(*seed);
                    }
                }
            });
        }
    });
    let culprits = culprits.into_inner().expect("no thread panics with it");
    if !culprits.is_empty() {
        fault.suspects = culprits;
    }
}

/// Prints the commands that repeat the fault.
fn show_way_back(fault: &Fault, seeds: Range<u64>) {
    eprintln!(
        "  all of it: cargo xtask hostile --side target --first {} --seeds {}",
        seeds.start,
        seeds.end - seeds.start
    );
    if !fault.suspects.is_empty() {
        eprintln!("  one alone: cargo xtask hostile --side target --trace SEED, with {:?}", fault.suspects);
    }
}
