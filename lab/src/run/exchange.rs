//! A link in operation, with the server at its far end: what one command is run with.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::net::{Pair, Relay, sys};
use crate::options::Options;

use super::children::{self, Group};
use super::report::Traffic;

/// The two ends of a link, the relay between them, and the server that `--serve` asks for.
///
/// Dropping it ends them in the order of the fields: the server can say goodbye over the link.
pub(crate) struct Exchange {
    server: Option<Group>,
    /// `None` where an Ethernet joins the ends.
    relay: Option<Relay>,
    pub(crate) pair: Pair,
}

/// Makes both ends of a link, with their network settings. Nothing passes between them yet.
pub(crate) fn ends(options: &Options) -> Result<Pair> {
    let pair = if options.veth { Pair::on_ethernet(&options.ethernet())? } else { Pair::new(options.mtu)? };
    for (key, value) in &options.sysctl {
        pair.set_sysctl(key, value)?;
    }
    if options.pin {
        pin(&pair)?;
    }
    if options.rps {
        pair.receive_apart()?;
    }
    Ok(pair)
}

/// Keeps what will start at the near end on the first CPU, and what will start at the far end on the second one, where
/// there are two.
fn pin(pair: &Pair) -> Result<()> {
    if thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        for (cpu, end) in [&pair.near, &pair.far].into_iter().enumerate() {
            end.namespace.run(move || sys::stay_on(cpu)).context("cannot keep processes on a CPU")?;
        }
    }
    Ok(())
}

impl Exchange {
    /// Starts the relay, then the server, and waits until that listens if the options say so.
    pub(crate) fn start(options: &Options, pair: Pair) -> Result<Self> {
        let relay = (!options.veth).then(|| Relay::start(&pair, options.link()?, options.mtu)).transpose()?;
        let server = start_server(options, &pair)?;
        Ok(Self { server, relay, pair })
    }

    /// The CPU time of the server so far.
    pub(crate) fn server_cpu(&self) -> Duration {
        self.server.as_ref().map_or(Duration::ZERO, Group::cpu)
    }

    /// Stops the server and the relay, and tells what passed over an emulated link.
    pub(crate) fn finish(self) -> Result<Option<Traffic>> {
        drop(self.server);
        let Some(relay) = self.relay else { return Ok(None) };
        let unread = self.pair.near.dropped_by_device()? + self.pair.far.dropped_by_device()?;
        Ok(Some(Traffic::new(&relay.stop()?, unread)))
    }
}

fn start_server(options: &Options, pair: &Pair) -> Result<Option<Group>> {
    let Some(line) = &options.serve else { return Ok(None) };
    let server = Group::start(&pair.far, children::server(line)?).context("cannot run sh")?;
    if let Some(port) = options.wait_port {
        children::await_listener(&pair.far, &server, port)?;
    }
    Ok(Some(server))
}
