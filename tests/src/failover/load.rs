//! The load: it writes stamped blocks over both gateways, reads them back, and compares every byte.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::LIMIT;
use super::site::Site;
use crate::process::wait_until;
use crate::server::{DEFAULT_TARGET, lunette};
use crate::tool::{Ran, run_at_most};

/// The bytes that the load sends in a fraction of a second: they show that requests are answered, for 16 of 4 KiB are
/// under way.
const FLOW_BYTES: usize = 512 << 10;

pub(super) struct Load(JoinHandle<Ran>);

/// The report of a load that has found nothing wrong.
pub(super) struct Verified {
    pub(super) requests: u64,
    pub(super) longest: Duration,
}

impl Load {
    pub(super) fn start(sites: &[&Site; 2], seconds: u32) -> Self {
        let [first, second] = sites.map(Site::address);
        let url = format!("iscsi://{first}/{DEFAULT_TARGET}/0?portals={second}");
        let (seconds, options) =
            (seconds.to_string(), ["--rw", "verify", "--bs", "4k", "--depth", "16", "--size", "8M"]);
        let run = move || {
            let mut bench = lunette();
            bench.args(["bench", "--json", "--time", &seconds]).args(options).arg(url);
            run_at_most(2 * LIMIT, &mut bench)
        };
        Self(thread::spawn(run))
    }

    /// Waits until requests go through this gateway.
    pub(super) fn await_requests(&self, site: &Site) {
        assert!(self.reaches_within(site, LIMIT), "no requests go through the gateway of group {}", site.group);
    }

    /// Whether requests go through this gateway within `limit`.
    pub(super) fn reaches_within(&self, site: &Site, limit: Duration) -> bool {
        let before = site.bytes_of_clients();
        let flows = || (self.0.is_finished() || site.bytes_of_clients() - before > FLOW_BYTES).then_some(());
        wait_until(limit, flows).is_some() && !self.0.is_finished()
    }

    /// Waits for the end. Panics when a byte was wrong, or a request failed.
    pub(super) fn end(self) -> Verified {
        let ran = self.0.join().expect("it does not panic");
        let report: Value = serde_json::from_str(ran.succeeded()).unwrap_or_else(|error| panic!("{error}: {ran}"));
        let requests = report["verified"].as_u64().unwrap_or_default();
        assert!(requests > 0, "{report}");
        let longest_us = report["latency_us"]["max"].as_f64().unwrap_or_else(|| panic!("{report}"));
        Verified { requests, longest: Duration::from_secs_f64(longest_us / 1e6) }
    }
}
