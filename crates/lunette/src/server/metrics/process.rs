//! The system's figures of this process (proc(5)).

use std::fs;
use std::time::Duration;

/// The numbers that all programs with Prometheus metrics have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Process {
    pub(super) cpu_time: Duration,
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) open_descriptors: u64,
    pub(super) max_descriptors: Option<u64>,
    /// The start of the process, since 1970.
    pub(super) start_time: Duration,
}

impl Process {
    /// The figures of now; values that the system does not tell are zero.
    pub(super) fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let mut process = Self::of(&text("/proc/self/stat"), &text("/proc/stat"));
        process.open_descriptors = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        process.max_descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        process
    }

    fn of(stat: &str, system: &str) -> Self {
        // Behind the name, which is in parentheses and may contain anything, comes field number 3.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
        let field =
            |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let boot = system.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<u64>().ok());
        let time =
            |ticks: u64| Duration::from_millis(ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second());
        Self {
            cpu_time: time(field(14) + field(15)),
            virtual_bytes: field(23),
            resident_bytes: field(24) * rustix::param::page_size() as u64,
            start_time: Duration::from_secs(boot.unwrap_or_default()) + time(field(22)),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_counted_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 1000 4096 3 1844";
        let process = Process::of(stat, "cpu 1\nbtime 1700000000\n");
        let ticks = |ticks: u64| Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second());
        assert_eq!(process.cpu_time, ticks(300));
        assert_eq!(process.start_time, Duration::from_secs(1_700_000_000) + ticks(1000));
        assert_eq!((process.virtual_bytes, process.resident_bytes), (4096, 3 * rustix::param::page_size() as u64));
        assert_eq!(Process::of("", ""), Process::default());
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let process = Process::read();
        assert!(
            process.resident_bytes > 0
                && process.open_descriptors > 2
                && process.start_time > Duration::from_secs(1_000_000_000)
        );
    }
}
