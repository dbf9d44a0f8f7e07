//! The reports to the service manager while the server runs: a line of status, and that all event loops turn
//! (`WatchdogSec`).

use std::env;
use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

use lunette_api::Health;
use lunette_target::{Monitor, Pulse};

use super::notify;

/// How often the status may change.
const INTERVAL: Duration = Duration::from_secs(1);

/// The served objects, as `systemctl status` shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    units: usize,
    targets: usize,
    sessions: usize,
    /// The objects that are not served as configured.
    troubles: Vec<String>,
}

impl Status {
    pub(crate) fn of(monitor: &Monitor, health: &Health) -> Self {
        let devices = monitor.devices();
        let units = devices.iter().map(|device| device.units().len()).sum();
        let troubles = health.troubles_now().iter().map(ToString::to_string).collect();
        Self { units, targets: devices.len(), sessions: monitor.read().sessions, troubles }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { units, targets, sessions, troubles } = self;
        write!(f, "STATUS=Serving {units} logical units of {targets} targets to {sessions} sessions")?;
        match troubles.as_slice() {
            [] => Ok(()),
            // A line break would end the status.
            [first, rest @ ..] => {
                write!(f, "; degraded: {}", first.replace('\n', " "))?;
                if rest.is_empty() { Ok(()) } else { write!(f, " (and {} more)", rest.len()) }
            }
        }
    }
}

/// Tells a service manager that the server is ready, and from then on how it is. Without one it does nothing.
pub(crate) fn accompany(monitor: Monitor, pulse: Pulse, health: Health) -> io::Result<()> {
    if env::var_os("NOTIFY_SOCKET").is_none() {
        return Ok(());
    }
    let watchdog = watchdog(env::var("WATCHDOG_USEC").ok(), env::var("WATCHDOG_PID").ok()).map(|limit| (limit, pulse));
    let told = Status::of(&monitor, &health);
    notify(&format!("READY=1\n{told}"));
    thread::Builder::new().name("lunette-status".into()).spawn(move || follow(&monitor, &health, watchdog, told))?;
    Ok(())
}

fn follow(monitor: &Monitor, health: &Health, mut watchdog: Option<(Duration, Pulse)>, mut told: Status) {
    // systemd advises to answer in half of its time.
    let interval = watchdog.as_ref().map_or(INTERVAL, |(limit, _)| INTERVAL.min(*limit / 2));
    loop {
        thread::sleep(interval);
        if let Some((_, pulse)) = &mut watchdog
            && pulse.beats()
        {
            notify("WATCHDOG=1");
        }
        let status = Status::of(monitor, health);
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
    fn the_status_names_what_is_degraded_in_one_line() {
        let mut status = Status { units: 1, targets: 2, sessions: 3, troubles: Vec::new() };
        assert_eq!(status.to_string(), "STATUS=Serving 1 logical units of 2 targets to 3 sessions");
        status.troubles = vec!["portal a: in\nuse".into(), "portal b: in use".into()];
        let expected =
            "STATUS=Serving 1 logical units of 2 targets to 3 sessions; degraded: portal a: in use (and 1 more)";
        assert_eq!(status.to_string(), expected);
    }

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
