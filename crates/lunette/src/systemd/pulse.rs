//! What the service manager is told while the server runs: a line of status, and that all event loops turn (`WatchdogSec`).

use std::env;
use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

use lunette_target::{Monitor, Pulse, Server};

use super::notify;

/// How often the status may change.
const INTERVAL: Duration = Duration::from_secs(1);

/// What is served, as `systemctl status` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    units: usize,
    targets: usize,
    sessions: usize,
}

impl Status {
    pub(crate) fn of(monitor: &Monitor) -> Self {
        let devices = monitor.devices();
        let units = devices.iter().map(|device| device.units().len()).sum();
        Self { units, targets: devices.len(), sessions: monitor.read().sessions }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { units, targets, sessions } = self;
        write!(f, "STATUS=Serving {units} logical units of {targets} targets to {sessions} sessions")
    }
}

/// Tells a service manager that the server is ready, and from then on how it is. Without one it does nothing.
pub(crate) fn accompany(server: &Server) -> io::Result<()> {
    if env::var_os("NOTIFY_SOCKET").is_none() {
        return Ok(());
    }
    let monitor = server.monitor();
    let watchdog =
        watchdog(env::var("WATCHDOG_USEC").ok(), env::var("WATCHDOG_PID").ok()).map(|limit| (limit, server.pulse()));
    let told = Status::of(&monitor);
    notify(&format!("READY=1\n{told}"));
    thread::Builder::new().name("lunette-status".into()).spawn(move || follow(&monitor, watchdog, told))?;
    Ok(())
}

fn follow(monitor: &Monitor, mut watchdog: Option<(Duration, Pulse)>, mut told: Status) {
    // systemd advises to answer in half of its time.
    let interval = watchdog.as_ref().map_or(INTERVAL, |(limit, _)| INTERVAL.min(*limit / 2));
    loop {
        thread::sleep(interval);
        if let Some((_, pulse)) = &mut watchdog
            && pulse.beats()
        {
            notify("WATCHDOG=1");
        }
        let status = Status::of(monitor);
        if status != told {
            notify(&status.to_string());
            told = status;
        }
    }
}

/// The time within which the service manager wants to hear of this process, if it does (sd_watchdog_enabled(3)).
fn watchdog(microseconds: Option<String>, process: Option<String>) -> Option<Duration> {
    if process.is_some_and(|process| process != std::process::id().to_string()) {
        return None;
    }
    microseconds?.parse().ok().filter(|time| *time > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let text = |text: &str| Some(text.to_owned());
        let limit = Some(Duration::from_secs(30));
        assert_eq!(watchdog(text("30000000"), None), limit);
        assert_eq!(watchdog(text("30000000"), Some(std::process::id().to_string())), limit);
        for (time, process) in [(text("30000000"), text("1")), (text("0"), None), (text("x"), None), (None, None)] {
            assert_eq!(watchdog(time, process), None);
        }
    }
}
