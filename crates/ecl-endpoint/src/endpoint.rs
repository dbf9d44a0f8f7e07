//! The state of an endpoint, and the care for its associations.

use std::io;
use std::time::Instant;

use lunette_ecl::association::{Association, Config as AssociationConfig, Seal};
use lunette_ecl::close::CloseCode;
use lunette_ecl::handshake::{Established, ResetSecret};
use lunette_ecl::{Entropy, Role};
use lunette_reactor::{
    Address, Closed, ConnectionId, Context, DatagramConfig, DatagramPath, DatagramSocketId, VirtualRequest,
    interface_mtu,
};
use lunette_session::{Time, Timetable};

use crate::Upper;
use crate::above::Above;
use crate::addresses::{path_to, peer_of, socket_address};
use crate::dialing::Dialing;
use crate::listening::Listening;
use crate::peers::{Peer, Peers};
use crate::sending::Outbox;

/// IP and UDP headers: of IPv6, which are the longer ones.
const IP_AND_UDP_LEN: u32 = 48;

/// The MTU of a path that the system says nothing about.
const DEFAULT_MTU: u32 = 1500;

/// Entries of the timetable beyond two for each association that are not worth looking at.
const MIN_TIDY: usize = 64;

/// Bytes of datagrams that may wait in a socket while the event loop is busy. A socket's default holds three datagrams
/// of 64 KiB, and what comes beyond is lost.
const SOCKET_RECEIVE_BYTES: u32 = 8 << 20;

/// How an endpoint runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// The configuration of associations; the length of datagrams is that of their interface.
    pub association: AssociationConfig,
    /// Which payloads are encrypted, unless the peer wants more; `None`: those of peers that are not on a loopback
    /// address.
    pub seal: Option<Seal>,
    /// How datagram sockets are opened.
    pub sockets: DatagramConfig,
    /// Addresses are believed without a token: for networks in which packets cannot lie about them.
    pub trusts_addresses: bool,
    /// The MTU of interfaces, in bytes of an IP packet; `None`: that of the interface which leads to each peer.
    pub interface_mtu: Option<u32>,
    /// The secret behind Reset packets; `None`: random bytes. A server that has the secret of the one before it tells
    /// clients of that one at once that their associations are gone.
    pub reset_secret: Option<ResetSecret>,
}

impl Default for Config {
    fn default() -> Self {
        let sockets = DatagramConfig { receive_buffer_bytes: Some(SOCKET_RECEIVE_BYTES), ..DatagramConfig::default() };
        Self {
            association: AssociationConfig::default(),
            seal: None,
            sockets,
            trusts_addresses: false,
            interface_mtu: None,
            reset_secret: None,
        }
    }
}

/// Fills a slice with random bytes: those of the system, or of a simulator.
pub type RandomBytes = Box<dyn FnMut(&mut [u8]) + Send>;

/// A handler around another one, which carries connections of it in datagrams. See the crate's documentation.
pub struct Endpoint<H: Upper> {
    pub(crate) upper: H,
    pub(crate) config: Config,
    epoch: Instant,
    pub(crate) entropy: RandomBytes,
    pub(crate) peers: Peers<H::Place>,
    pub(crate) listening: Listening,
    pub(crate) dialing: Vec<Dialing>,
    pub(crate) outbox: Outbox,
    timetable: Timetable<u32>,
    /// Spare memory for lists.
    numbers: Vec<u32>,
    requests: Vec<(ConnectionId, VirtualRequest)>,
    /// Associations were left with something to do: at once.
    pub(crate) unsettled: bool,
}

impl<H: Upper> Endpoint<H> {
    /// Stands between the reactor and `upper`. Time counts from `epoch`; `entropy` fills slices with random bytes.
    pub fn new(upper: H, config: Config, epoch: Instant, entropy: RandomBytes) -> Self {
        Self {
            upper,
            config,
            epoch,
            entropy,
            peers: Peers::default(),
            listening: Listening::default(),
            dialing: Vec::new(),
            outbox: Outbox::default(),
            timetable: Timetable::default(),
            numbers: Vec::new(),
            requests: Vec::new(),
            unsettled: false,
        }
    }

    /// The handler above.
    pub fn upper(&self) -> &H {
        &self.upper
    }

    /// How many associations there are, and handshakes of this side.
    pub fn associations(&self) -> usize {
        self.peers.len() + self.dialing.len()
    }

    /// The handler above.
    pub fn upper_mut(&mut self) -> &mut H {
        &mut self.upper
    }

    /// The handler above, when the reactor has stopped.
    pub fn into_upper(self) -> H {
        self.upper
    }

    pub(crate) fn time(&self, cx: &Context<'_>) -> Time {
        Time::new(cx.now().saturating_duration_since(self.epoch))
    }

    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.epoch + time.since_epoch()
    }

    /// The next moment at which an association or a handshake has something to do.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        if self.unsettled || self.peers.are_touched() {
            return Some(self.epoch);
        }
        let dialing = self.dialing.iter().map(Dialing::next_timeout);
        dialing.chain(self.timetable.next()).min().map(|time| self.instant(time))
    }

    /// Looks at associations whose time has come.
    pub(crate) fn time_has_come(&mut self, cx: &mut Context<'_>) {
        let now = self.time(cx);
        while let Some((at, number)) = self.timetable.pop_due(now) {
            if let Some(peer) = self.peers.get_mut(number).filter(|peer| peer.watched_for == Some(at)) {
                peer.watched_for = None;
                self.peers.touch(number);
            }
        }
        self.dial(cx, now);
    }

    // Associations begin.

    /// Makes an association the connection `id` of the upper handler.
    pub(crate) fn begin(
        &mut self,
        established: Established,
        id: ConnectionId,
        socket: DatagramSocketId,
        path: DatagramPath,
        now: Time,
    ) -> u32 {
        let (number, role) = (established.own_number, established.role);
        let mtu = self.config.interface_mtu.or_else(|| interface_mtu(path.peer).ok()).unwrap_or(DEFAULT_MTU);
        let below_len = if matches!(path.peer, Address::Ethernet(_)) { 0 } else { IP_AND_UDP_LEN };
        let (options, usually) = (self.upper.datagram_options(id), self.config.association);
        let config = AssociationConfig {
            interface_len: mtu.saturating_sub(below_len) as usize,
            seal: self.seal_for(Some(id), &path.peer),
            congestion_control: options.congestion_control.unwrap_or(usually.congestion_control),
            ..usually
        };
        let entropy: &mut Entropy<'_> = &mut *self.entropy;
        let association = Association::new(established, peer_of(&path), config, now, entropy);
        self.peers.insert(
            number,
            Peer {
                association,
                role,
                id,
                socket,
                path,
                rest: Vec::new(),
                leaves: false,
                is_bound: false,
                is_finishing: false,
                is_closed: false,
                touched: false,
                watched_for: None,
            },
        );
        number
    }

    /// The encryption that this side wants on the way to `peer`.
    pub(crate) fn seal_for(&self, id: Option<ConnectionId>, peer: &Address) -> Seal {
        let of_connection = id.and_then(|id| self.upper.datagram_options(id).seal);
        let usual = if socket_address(peer).ip().is_loopback() { Seal::Headers } else { Seal::Everything };
        of_connection.or(self.config.seal).unwrap_or(usual)
    }

    // Associations go on.

    /// Brings upwards what waits, before the upper handler ends its batch.
    pub(crate) fn deliver_touched(&mut self, cx: &mut Context<'_>) {
        let mut numbers = std::mem::take(&mut self.numbers);
        self.peers.take_touched(&mut numbers);
        for number in &numbers {
            let Self { upper, peers, .. } = self;
            if let Some(Peer { association, id, rest, leaves, is_bound, .. }) = peers.get_mut(*number) {
                let mut above = Above { upper, cx, id: *id, rest, leaves, is_bound: *is_bound };
                above.offer_rest();
                association.resume(&mut above);
                upper.set_unacknowledged(*id, association.unacknowledged());
            }
            // It is looked at once more after the upper handler's batch.
            self.peers.touch(*number);
        }
        numbers.clear();
        self.numbers = numbers;
    }

    /// Takes what the upper handler has to send, and ends what is over.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>) {
        self.unsettled = false;
        self.follow_sockets(cx);
        self.take_requests(cx);
        let mut numbers = std::mem::take(&mut self.numbers);
        self.peers.take_touched(&mut numbers);
        for number in numbers.drain(..) {
            self.settle_one(cx, number);
        }
        self.numbers = numbers;
        // Entries of associations that are gone may lie minutes ahead.
        if self.timetable.len() > MIN_TIDY + 2 * self.peers.len() {
            self.timetable.retain(|number| self.peers.contains(*number));
        }
    }

    fn settle_one(&mut self, cx: &mut Context<'_>, number: u32) {
        let now = self.time(cx);
        let Self { upper, peers, timetable, outbox, .. } = self;
        let Some(peer) = peers.get_mut(number) else { return };
        take_pdus(upper, peer);
        let (association, id) = (&mut peer.association, peer.id);
        if upper.is_stopping() {
            association.leave_soon();
        }
        association.fill(now);
        if peer_of(&peer.path) != *association.peer() {
            peer.path = path_to(&peer.path, association.peer());
        }
        if association.ready_len() > 0 {
            outbox.add(peer.socket, number);
            cx.send_datagrams(peer.socket);
        }
        // Answers have left first, or the upper handler takes bytes again: it gets the rest in the next batch.
        let goes_on = (!peer.rest.is_empty() || association.has_due()) && upper.takes(id);
        if let Some(at) = association.next_timeout() {
            timetable.watch(number, at, &mut peer.watched_for);
        }
        if goes_on {
            self.peers.touch(number);
        }
        self.end_if_over(cx, number);
    }

    // Associations end.

    fn end_if_over(&mut self, cx: &mut Context<'_>, number: u32) {
        let Some(peer) = self.peers.get_mut(number) else { return };
        let Some(why) = peer.association.why_over() else { return };
        let closed = match why.code {
            CloseCode::FINISHED if peer.is_finishing => Closed::AllSent,
            CloseCode::FINISHED => Closed::PeerClosed,
            CloseCode::TIMEOUT => Closed::Error(io::Error::new(io::ErrorKind::TimedOut, why.to_string())),
            _ => Closed::Error(io::Error::new(io::ErrorKind::ConnectionAborted, why.to_string())),
        };
        let (id, is_done, role, socket) = (peer.id, peer.association.is_done(), peer.role, peer.socket);
        if !std::mem::replace(&mut peer.is_closed, true) {
            self.upper.closed(cx, id, closed);
            self.unsettled = true;
        }
        if is_done {
            self.peers.remove(number);
            cx.remove_virtual(id);
            // Each association that this side has begun has a socket of its own.
            if role == Role::Client {
                self.outbox.forget(socket);
                cx.close_datagrams(socket);
            } else {
                self.close_unused(cx, socket);
            }
        }
    }

    // What the upper handler asks for.

    fn take_requests(&mut self, cx: &mut Context<'_>) {
        let mut requests = std::mem::take(&mut self.requests);
        cx.take_virtual_requests(&mut requests);
        for (id, request) in requests.drain(..) {
            if let VirtualRequest::Connect(address) = request {
                self.connect(cx, id, address);
            } else if let Some(number) = self.peers.number_of(id) {
                self.peers.touch(number);
                self.take_request(number, request);
            } else if matches!(request, VirtualRequest::Close | VirtualRequest::CloseAfterSend) {
                self.hang_up(cx, id);
                cx.remove_virtual(id);
            }
        }
        self.requests = requests;
    }

    fn take_request(&mut self, number: u32, request: VirtualRequest) {
        let Self { upper, peers, .. } = self;
        let Some(peer) = peers.get_mut(number) else { return };
        match request {
            VirtualRequest::Close => {
                peer.is_closed = true;
                peer.association.close(CloseCode::SESSION, "");
            }
            VirtualRequest::CloseAfterSend => {
                // All of it, however much it is: nothing is asked for later.
                while let Some(pdu) = upper.take_pdu(peer.id) {
                    peer.association.push(pdu);
                }
                peer.is_finishing = true;
                peer.association.finish();
            }
            VirtualRequest::Connect(_) | VirtualRequest::Send | VirtualRequest::Pause | VirtualRequest::Resume => {}
        }
    }
}

/// Takes what the upper handler has to send, and binds both sides when the login has passed.
pub(crate) fn take_pdus<H: Upper>(upper: &mut H, peer: &mut Peer<H::Place>) {
    let Peer { association, role, id, is_bound, is_closed, .. } = peer;
    // The client speaks under the bound keys at once; the server's last login response goes before.
    if *role == Role::Client {
        bind(upper, association, is_bound, *id);
    }
    while association.wants_pdus()
        && !*is_closed
        && let Some(pdu) = upper.take_pdu(*id)
    {
        association.push(pdu);
    }
    if *role == Role::Server {
        bind(upper, association, is_bound, *id);
    }
}

fn bind<H: Upper>(upper: &mut H, association: &mut Association<H::Place>, is_bound: &mut bool, id: ConnectionId) {
    if !*is_bound && let Some(binding) = upper.binding(id) {
        association.bind(&binding);
        *is_bound = true;
    }
}

#[cfg(test)]
mod tests {
    use lunette_reactor::Reactor;

    use super::*;

    /// Without privileges the system gives no more than this.
    fn limit() -> u64 {
        std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_window_of_long_datagrams_waits_in_a_socket_while_the_loop_is_busy() {
        let mut reactor = Reactor::new().unwrap();
        let mut cx = reactor.context();
        let (socket, _) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &Config::default().sockets).unwrap();
        let room = cx.datagram_buffers(socket).unwrap().receive_bytes as u64;
        assert!(room >= u64::from(SOCKET_RECEIVE_BYTES).min(limit()), "{room}");
    }
}
