//! A link in operation, with the server at its far end: what one command is run with.

use anyhow::{Context, Result};

use crate::net::{Pair, Relay};
use crate::options::Options;

use super::children::{self, Group};
use super::report::Traffic;

/// Both ends of a link, the relay between them, and the server that `--serve` asks for.
///
/// Dropping it ends them in the order of the fields: the server can say goodbye over the link.
pub(crate) struct Exchange {
    server: Option<Group>,
    relay: Relay,
    pub(crate) pair: Pair,
}

/// Makes both ends of a link, with their network settings. Nothing passes between them yet.
pub(crate) fn ends(options: &Options) -> Result<Pair> {
    let pair = Pair::new(options.mtu)?;
    for (key, value) in &options.sysctl {
        pair.set_sysctl(key, value)?;
    }
    Ok(pair)
}

impl Exchange {
    /// Starts the relay, then the server, and waits until that listens if the options say so.
    pub(crate) fn start(options: &Options, pair: Pair) -> Result<Self> {
        let relay = Relay::start(&pair, options.link()?, options.mtu)?;
        let server = start_server(options, &pair)?;
        Ok(Self { server, relay, pair })
    }

    /// Stops the server and the relay, and tells what passed over the link.
    pub(crate) fn finish(self) -> Result<Traffic> {
        drop(self.server);
        let unread = self.pair.near.dropped_by_device()? + self.pair.far.dropped_by_device()?;
        Ok(Traffic::new(&self.relay.stop()?, unread))
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
