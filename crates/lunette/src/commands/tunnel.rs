//! `lunette tunnel`: the connections of initiators that know no TLS, in TLS to a portal.

mod carrier;
mod dialer;
mod limits;
mod pair;
mod portals;

use std::net::SocketAddr;

use clap::Args;
use lunette_initiator::{Offer, Portal, TcpOptions, Url};
use lunette_reactor::Reactor;

use crate::event_loop::EventLoop;
use crate::failure::Failure;
use crate::output;
use crate::system;
use crate::systemd::{self, Sockets};
use carrier::Carrier;
use dialer::Dialer;
use limits::MAX_PORTALS;
use portals::Portals;

const AFTER_HELP: &str = "\
Use it:
  lunette tunnel --to 'iscsis://san.example:3261?tls=/etc/lunette/tls'
  iscsiadm -m discovery -t sendtargets -p 127.0.0.1:3260
  iscsiadm -m node -T iqn.2026-11.lunette:disk -p 127.0.0.1:3260 --login
  qemu-img info iscsi://127.0.0.1:3260/iqn.2026-11.lunette:disk/0

The folder of tls= has ca-cert.pem, and client-cert.pem with client-key.pem where the server asks for certificates. Files that change are
read again for the next connection.
Answers to discovery and redirections name portals of the server. The tunnel puts its own addresses in their place, and listens for each
further portal at the next free port. It knows them until it ends. With --also they have their ports from the start, in this order.

Whoever reaches the address of --listen has what the certificate of the tunnel may use, and what passes there is not encrypted. Users of this
machine reach loopback addresses, so let the server ask for CHAP where they are not trusted.
Sockets that systemd passes are taken when one is at the address of --listen.
Signals: SIGTERM and Ctrl-C end all connections and the tunnel; a second one exits at once.
RUST_LOG chooses what is logged on standard error (default: info). Connections that cannot be made are logged there, 20 lines a second after a
burst of 1000.

Exit codes: 0 stopped in order, 1 other failure, 2 bad usage, 3 certificates that cannot be used, 4 address in use or not available.";

/// Carry initiators that know no TLS to a portal that speaks it.
///
/// Once it listens it prints its URLs: iscsi://HOST:PORT, and one for each --also.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Where initiators connect, in plain text; port 0 picks one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:3260", value_parser = crate::address::one)]
    listen: SocketAddr,
    /// The portal of the server, iscsis://HOST?tls=DIR (HOST:PORT)
    #[arg(long, value_name = "URL", value_parser = server)]
    to: Box<Server>,
    /// A further portal of the server, as it names it: reached at the next free port from the start (repeatable)
    #[arg(long, value_name = "HOST:PORT", value_parser = Portal::parse)]
    also: Vec<Portal>,
    /// Listen at an address that other machines reach: they connect in plain text
    #[arg(long)]
    allow_remote: bool,
    #[command(flatten)]
    event_loop: EventLoop,
}

/// The portal that the tunnel leads to, and how it is reached.
#[derive(Clone)]
struct Server {
    portal: Portal,
    tls: lunette_initiator::ClientTls,
    tcp: TcpOptions,
}

/// Reads the URL of a portal. What would have no effect is refused.
fn server(text: &str) -> Result<Box<Server>, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let portal = url.portal();
    let Some(tls) = &url.tls else {
        return Err(format!("a tunnel leads to a portal that speaks TLS; write iscsis://{portal}?tls=DIR"));
    };
    let of_session = url.target.is_some()
        || url.paths.is_some()
        || url.keys.is_some()
        || url.initiator_name.is_some()
        || url.offer != Offer::initiator()
        || !matches!(url.chap(|_| None), Ok(None));
    if of_session {
        return Err(format!(
            "user, target and session are for the initiator to name; write iscsis://{portal} with no more than tls, tls_pin, tls_name and \
             options of TCP"
        ));
    }
    Ok(Box::new(Server { portal, tls: tls.clone(), tcp: url.tcp.clone() }))
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { listen, to: server, also, allow_remote, event_loop } = arguments;
    let is_remote = !listen.ip().to_canonical().is_loopback();
    if is_remote && !allow_remote {
        return Err(Failure::Usage(format!(
            "--listen {listen}: other machines reach this address, and what they send to it is not encrypted; listen at 127.0.0.1 or [::1], \
             or add --allow-remote"
        )));
    }
    if also.len() >= MAX_PORTALS {
        return Err(Failure::Usage(format!("--also: a tunnel has at most {MAX_PORTALS} portals; start another one")));
    }
    system::outlive_signals().map_err(Failure::other)?;
    server.tls.check().map_err(Failure::configuration)?;
    system::raise_descriptor_limit();
    let mut sockets = Sockets::passed()?;
    let mut reactor = Reactor::with(event_loop.config()).map_err(Failure::other)?;
    let opened = match sockets.take_address(*listen) {
        Some(listener) => reactor.context().adopt_listener(listener),
        None => reactor.context().listen(*listen),
    };
    let (listener, address) = opened.map_err(|error| system::listen_failure(*listen, &error))?;
    sockets.close_unused();
    let mut portals = Portals::new(address, server.portal.clone(), listener);
    let mut urls = vec![format!("iscsi://{address}")];
    for portal in also {
        let opened = portals.add(&mut reactor.context(), portal);
        urls.push(format!("iscsi://{}", opened.map_err(|error| system::listen_failure(address, &error))?));
    }
    let mut carrier = Carrier::new(portals, Dialer::new(&server.tls, &server.tcp, reactor.waker()));
    let stopper = carrier.stopper();
    system::stop_on_signals(move || {
        systemd::notify("STOPPING=1");
        stopper.stop();
    })
    .map_err(Failure::no_thread)?;
    if is_remote {
        tracing::warn!(%address, "other machines reach this address, and what they send to it is not encrypted");
    }
    tracing::info!(%address, portal = %server.portal, "carrying connections");
    output::announce("the URLs of the tunnel", urls)?;
    systemd::notify("READY=1");
    reactor.run(&mut carrier).map_err(Failure::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_tunnel_names_a_portal_with_tls_and_no_session() {
        let read = server("iscsis://san.example:3261?tls=/etc/lunette/tls&tls_name=other.example").unwrap();
        assert_eq!((read.portal.host.as_str(), read.portal.port), ("san.example", 3261));
        for (text, expected) in [
            ("iscsi://san.example", "write iscsis://san.example:3260?tls=DIR"),
            ("iscsis://san.example", "whom to trust"),
            ("iscsis://san.example/iqn.2026-11.example:t?tls=/a", "for the initiator to name"),
            ("iscsis://user@san.example?tls=/a", "for the initiator to name"),
            ("iscsis://san.example?tls=/a&header_digest=crc32c", "for the initiator to name"),
        ] {
            let error = server(text).err().unwrap();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
