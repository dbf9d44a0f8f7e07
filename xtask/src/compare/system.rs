//! The requirements of a comparison on the system: two CPUs, one congestion control, and an orderly end.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

/// The congestion control of all parties. Of the other common choices, BBR paces, which makes loopback three times
/// slower.
pub(crate) const CONGESTION_CONTROL: &str = "cubic";

const SETTING: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The CPU of each side.
#[derive(Clone, Copy)]
pub(crate) struct Cpus {
    pub(crate) target: usize,
    pub(crate) initiator: usize,
}

impl Cpus {
    /// The first two CPUs that this process may use.
    pub(crate) fn choose() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
        match cpu_list(list)[..] {
            [target, initiator, ..] => Ok(Self { target, initiator }),
            _ => bail!("a comparison needs two CPUs, one for each side; this process may use {}", list.trim()),
        }
    }
}

/// The CPUs of a list such as `0-3,8`.
fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Sets the system's congestion control to [`CONGESTION_CONTROL`], and restores the old one when dropped.
pub(crate) struct CongestionControl {
    before: Option<String>,
}

impl CongestionControl {
    pub(crate) fn pin() -> Result<Self> {
        let before = fs::read_to_string(SETTING).with_context(|| format!("cannot read {SETTING}"))?.trim().to_owned();
        if before == CONGESTION_CONTROL {
            return Ok(Self { before: None });
        }
        fs::write(SETTING, CONGESTION_CONTROL)
            .with_context(|| format!("cannot set {SETTING} from {before} to {CONGESTION_CONTROL}"))?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for CongestionControl {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        if let Err(error) = fs::write(SETTING, before) {
            eprintln!("error: cannot put {SETTING} back to {before}: {error}");
        }
    }
}

/// Whether a signal has asked for an end. Everything that waits checks it, so that what was started and set is undone.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag for the signals that ask for an end, which no longer end this process by themselves.
    pub(crate) fn on_signals() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot handle signals")?;
        }
        Ok(Self(flag))
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// The load average of the last minute, to which other processes contribute.
pub(crate) fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The model of this machine's CPUs. Figures depend on it.
pub(crate) fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |name| {
        let line = info.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name);
        line.map_or("unknown", |(_, value)| value.trim())
    };
    format!("{}, family {}, model {}", value("model name"), value("cpu family"), value("model"))
}

/// The version of the running kernel.
pub(crate) fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(|_| "unknown".into(), |text| text.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_have_ranges_and_single_ones() {
        assert_eq!(cpu_list("\t0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(cpu_list("3"), [3]);
        assert_eq!(cpu_list(""), [0_usize; 0]);
    }

    #[test]
    fn a_signal_interrupts_all_waits() {
        let interrupt = Interrupt(Arc::default());
        assert!(interrupt.check().is_ok());
        interrupt.0.store(true, Ordering::Relaxed);
        assert!(interrupt.check().is_err());
    }
}
