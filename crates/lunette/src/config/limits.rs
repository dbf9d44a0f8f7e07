//! The table `limits`: how much initiators may hold, and for how long.

use std::ops::RangeInclusive;
use std::time::Duration;

use lunette_session::Timers;
use lunette_target::{DEFAULT_BUFFER_BYTES, DEFAULT_SLOW_COMMAND, MIN_BUFFER_BYTES};
use serde::Deserialize;

use crate::size::Size;

/// The values of the table. A missing key has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Bytes of buffers, for all cores together.
    buffers: Option<Size>,
    /// The progress timeout in seconds.
    data_timeout: Option<u64>,
    /// The login timeout in seconds.
    login_timeout: Option<u64>,
    /// Milliseconds that a command may take before it is logged.
    slow_command_ms: Option<u64>,
}

/// The range of the timeouts, in seconds.
const TIMEOUT: RangeInclusive<u64> = 1..=3600;

/// The range of the time that a command may take unlogged, in milliseconds.
const SLOW_COMMAND_MS: RangeInclusive<u64> = 1..=3_600_000;

/// The most bytes of buffers.
const MAX_BUFFER_BYTES: u64 = 1 << 40;

impl Limits {
    /// Reports the first value that is outside the range of its key, with that range.
    pub(crate) fn check(&self, cores: usize) -> Result<(), String> {
        for (key, value, range, unit) in [
            ("data_timeout", self.data_timeout, TIMEOUT, "seconds"),
            ("login_timeout", self.login_timeout, TIMEOUT, "seconds"),
            ("slow_command_ms", self.slow_command_ms, SLOW_COMMAND_MS, "milliseconds"),
        ] {
            if let Some(value) = value.filter(|value| !range.contains(value)) {
                return Err(format!("{key} = {value}: write {} to {} ({unit})", range.start(), range.end()));
            }
        }
        let least = (cores * MIN_BUFFER_BYTES) as u64;
        match &self.buffers {
            Some(Size(bytes)) if !(least..=MAX_BUFFER_BYTES).contains(bytes) => {
                Err(format!("buffers of {bytes} bytes: write \"{}M\" (16M for each core) to \"1T\"", least >> 20))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffers.as_ref().and_then(|size| usize::try_from(size.0).ok()).unwrap_or(DEFAULT_BUFFER_BYTES)
    }

    pub(crate) fn slow_command(&self) -> Duration {
        self.slow_command_ms.map_or(DEFAULT_SLOW_COMMAND, Duration::from_millis)
    }

    pub(crate) fn timers(&self) -> Timers {
        let defaults = Timers::default();
        Timers {
            progress: self.data_timeout.map_or(defaults.progress, Duration::from_secs),
            login: self.login_timeout.map_or(defaults.login, Duration::from_secs),
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Limits {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn every_key_takes_effect() {
        let all = limits("buffers = \"1G\"\ndata_timeout = 5\nlogin_timeout = 7\nslow_command_ms = 250");
        assert_eq!(all.check(1), Ok(()));
        assert_eq!(all.buffer_bytes(), 1 << 30);
        let timers = all.timers();
        assert_eq!((timers.progress.as_secs(), timers.login.as_secs()), (5, 7));
        assert_eq!(all.slow_command(), Duration::from_millis(250));
        assert_eq!(limits("").slow_command(), DEFAULT_SLOW_COMMAND);
        assert_eq!(limits("").buffer_bytes(), DEFAULT_BUFFER_BYTES);
        assert_eq!(limits("").timers().progress, Timers::default().progress);
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        for (wrong, cores, error) in [
            ("data_timeout = 0", 1, "data_timeout = 0: write 1 to 3600 (seconds)"),
            ("login_timeout = 3601", 1, "login_timeout = 3601: write 1 to 3600 (seconds)"),
            ("slow_command_ms = 0", 1, "slow_command_ms = 0: write 1 to 3600000 (milliseconds)"),
            ("buffers = \"15M\"", 1, "buffers of 15728640 bytes: write \"16M\" (16M for each core) to \"1T\""),
            ("buffers = \"16M\"", 2, "buffers of 16777216 bytes: write \"32M\" (16M for each core) to \"1T\""),
        ] {
            assert_eq!(limits(wrong).check(cores), Err(error.to_owned()));
        }
    }
}
