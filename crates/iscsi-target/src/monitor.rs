//! The numbers of a server, for other threads that watch it.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use lunette_buffer::Pool;
use lunette_device::TargetDevice;
use lunette_pdu::TaskManagementFunction;
use lunette_reactor::CountsView;
use lunette_session::iscsi_target::SessionInfo;
use lunette_session::{SharedTraffic, Traffic};

/// Reads the [`Statistics`] of a [`Server`](crate::Server), from any thread.
#[derive(Clone)]
pub struct Monitor {
    cores: Arc<[Watched]>,
    devices: SharedDevices,
    logins: Arc<Logins>,
    sessions: Arc<SharedSessions>,
    start: Instant,
}

/// The target devices that are served, as the first core knows them.
#[derive(Clone, Default)]
pub(crate) struct SharedDevices(Arc<Mutex<Vec<Arc<TargetDevice>>>>);

impl SharedDevices {
    pub(crate) fn set(&self, devices: &[Arc<TargetDevice>]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = devices.to_vec();
    }

    fn get(&self) -> Vec<Arc<TargetDevice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How logins have ended, by target. A login whose target is not served counts for the empty name, so peers do not
/// choose names.
#[derive(Default)]
pub(crate) struct Logins(Mutex<BTreeMap<Arc<str>, LoginCounts>>);

/// How the logins of one target have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoginCounts {
    /// The initiator has entered its session.
    pub accepted: u64,
    /// The login was refused.
    pub refused: u64,
    /// The login broke a rule, or was not finished in time.
    pub failed: u64,
}

impl Logins {
    pub(crate) fn count(&self, target: &str, count: impl FnOnce(&mut LoginCounts)) {
        let mut logins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match logins.get_mut(target) {
            Some(counts) => count(counts),
            None => count(logins.entry(target.into()).or_default()),
        }
    }

    fn read(&self) -> BTreeMap<Arc<str>, LoginCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The sessions that have begun, for readers on other threads. Those that have ended are forgotten.
#[derive(Default)]
pub(crate) struct SharedSessions(Mutex<Vec<(Weak<SessionInfo>, IpAddr)>>);

impl SharedSessions {
    /// A login has entered this session, from there.
    pub(crate) fn add(&self, session: &Arc<SessionInfo>, peer: IpAddr) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.iter().any(|(known, _)| known.as_ptr() == Arc::as_ptr(session)) {
            return;
        }
        if sessions.len() == sessions.capacity() {
            sessions.retain(|(known, _)| known.strong_count() > 0);
        }
        sessions.push((Arc::downgrade(session), peer));
    }

    fn read(&self) -> Vec<(Arc<SessionInfo>, IpAddr)> {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.iter().filter_map(|(session, peer)| Some((session.upgrade()?, *peer))).collect()
    }
}

/// The numbers of task management functions, from 1.
const FUNCTIONS: usize = 13;

/// One core.
pub(crate) struct Watched {
    pub(crate) counts: Arc<Counts>,
    pub(crate) event_loop: CountsView,
    pub(crate) pool: Pool,
}

/// The state and the counts of a server after the last batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections, in whatever state.
    pub connections: usize,
    /// Connections that are lost and whose tasks wait for another one of their session.
    pub suspended: usize,
    /// Sessions, with those whose login is about to be answered.
    pub sessions: usize,
    /// Running commands, with those that were aborted and that a store still works on.
    pub tasks: usize,
    /// Entries in the table of times.
    pub timers: usize,
    /// Bytes of buffers that are out.
    pub buffer_bytes: usize,
    /// The most bytes of buffers that may be out.
    pub buffer_limit_bytes: usize,
    /// The counts of the event loop since the start: batches, system calls, bytes.
    pub event_loop: lunette_reactor::Counts,
    /// PDUs and copies of all connections since the start.
    pub traffic: Traffic,
    /// How often a command had to wait for a buffer, since the start.
    pub buffer_waits: u64,
    /// Requests for task management functions since the start, by the number of the function.
    pub task_management: [u64; FUNCTIONS],
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicUsize,
    pub(crate) suspended: AtomicUsize,
    pub(crate) sessions: AtomicUsize,
    pub(crate) tasks: AtomicUsize,
    pub(crate) timers: AtomicUsize,
    pub(crate) traffic: SharedTraffic,
    pub(crate) buffer_waits: AtomicU64,
    task_management: [AtomicU64; FUNCTIONS],
    /// The system's number of the core's thread; 0 before it runs.
    thread: AtomicI32,
}

impl Counts {
    /// The core runs on this thread.
    pub(crate) fn runs_here(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// Counts a request. Only the core's own thread calls this.
    pub(crate) fn task_management(&self, function: TaskManagementFunction) {
        if let Some(count) = self.task_management.get(usize::from(function.0)) {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

impl Monitor {
    pub(crate) fn new(
        cores: Vec<Watched>,
        devices: SharedDevices,
        logins: Arc<Logins>,
        sessions: Arc<SharedSessions>,
    ) -> Self {
        Self { cores: cores.into(), devices, logins, sessions, start: Instant::now() }
    }

    /// The target devices that are served. Each knows the [numbers](lunette_device::LogicalUnit::counts) of its logical
    /// units.
    pub fn devices(&self) -> Vec<Arc<TargetDevice>> {
        self.devices.get()
    }

    /// How logins have ended, by target. The empty name has those whose target is not known.
    pub fn logins(&self) -> BTreeMap<Arc<str>, LoginCounts> {
        self.logins.read()
    }

    /// The sessions, each with the address that its first connection came from. No core is asked.
    pub fn sessions(&self) -> Vec<(Arc<SessionInfo>, IpAddr)> {
        self.sessions.read()
    }

    /// How long the server is open.
    pub fn uptime(&self) -> Duration {
        self.start.elapsed()
    }

    /// The CPU time that the thread of each core has used, as far as the system tells it: to 10 ms.
    pub fn cpu_times(&self) -> Vec<Duration> {
        self.cores.iter().map(|core| cpu_time(core.counts.thread.load(Ordering::Relaxed)).unwrap_or_default()).collect()
    }

    /// The numbers of all cores together, each as it is now; they need not belong to one moment.
    pub fn read(&self) -> Statistics {
        self.read_cores().fold(Statistics::default(), Statistics::and)
    }

    /// The statistics of each core.
    pub fn read_cores(&self) -> impl Iterator<Item = Statistics> {
        self.cores.iter().map(Watched::read)
    }
}

impl Statistics {
    fn and(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            suspended: self.suspended + other.suspended,
            sessions: self.sessions + other.sessions,
            tasks: self.tasks + other.tasks,
            timers: self.timers + other.timers,
            buffer_bytes: self.buffer_bytes + other.buffer_bytes,
            buffer_limit_bytes: self.buffer_limit_bytes + other.buffer_limit_bytes,
            event_loop: self.event_loop.and(&other.event_loop),
            traffic: self.traffic.and(&other.traffic),
            buffer_waits: self.buffer_waits + other.buffer_waits,
            task_management: std::array::from_fn(|at| self.task_management[at] + other.task_management[at]),
        }
    }
}

impl Watched {
    fn read(&self) -> Statistics {
        let load = |count: &AtomicUsize| count.load(Ordering::Acquire);
        Statistics {
            connections: load(&self.counts.connections),
            suspended: load(&self.counts.suspended),
            sessions: load(&self.counts.sessions),
            tasks: load(&self.counts.tasks),
            timers: load(&self.counts.timers),
            buffer_bytes: self.pool.used_bytes(),
            buffer_limit_bytes: self.pool.budget_bytes(),
            event_loop: self.event_loop.counts(),
            traffic: self.counts.traffic.read(),
            buffer_waits: self.counts.buffer_waits.load(Ordering::Relaxed),
            task_management: self.counts.task_management.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }
}

/// The CPU time of a thread of this process (proc(5), /proc/PID/task/TID/stat).
fn cpu_time(thread: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    Some(Duration::from_millis(ticks(&stat)?.saturating_mul(1000) / rustix::param::clock_ticks_per_second()))
}

/// utime and stime, the fourteenth and fifteenth field. The second one is a name in parentheses, which may contain
/// anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_thread_is_read_behind_its_name() {
        assert_eq!(ticks("77 (lunette) 9) S 1 2 3 4 5 6 7 8 9 10 400 23 0 0 20 0"), Some(423));
        assert_eq!(ticks("77 (lunette) S 1 2"), None);
        let counts = Counts::default();
        counts.runs_here();
        assert!(cpu_time(counts.thread.load(Ordering::Relaxed)).is_some());
    }

    #[test]
    fn a_function_without_a_name_is_not_counted() {
        let counts = Counts::default();
        counts.task_management(TaskManagementFunction(127));
        counts.task_management(TaskManagementFunction::ABORT_TASK);
        counts.task_management(TaskManagementFunction::ABORT_TASK);
        assert_eq!(counts.task_management[1].load(Ordering::Relaxed), 2);
    }
}
