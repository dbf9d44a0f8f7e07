//! The handler of the event loop: pairs of connections from their first byte to their last.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lunette_reactor::{Closed, ConnectionId, Context, Gather, Handler, ListenerId, Waker};

use super::dialer::{Dialed, Dialer};
use super::limits::{CONNECT_LIMIT, MAX_CONNECTIONS};
use super::pair::{Pair, Side};
use super::portals::Portals;

/// All connections of a tunnel.
pub(super) struct Carrier {
    portals: Portals,
    dialer: Dialer,
    pairs: HashMap<u64, Pair>,
    sides: HashMap<ConnectionId, (u64, Side)>,
    /// When TLS must stand: in order, for all get the same time.
    deadlines: VecDeque<(Instant, u64)>,
    next_number: u64,
    is_stopped: Arc<AtomicBool>,
}

/// Ends the event loop from another thread.
pub(super) struct Stopper {
    is_stopped: Arc<AtomicBool>,
    waker: Waker,
}

impl Stopper {
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Carrier {
    pub(super) fn new(portals: Portals, dialer: Dialer) -> Self {
        Self {
            portals,
            dialer,
            pairs: HashMap::new(),
            sides: HashMap::new(),
            deadlines: VecDeque::new(),
            next_number: 0,
            is_stopped: Arc::default(),
        }
    }

    pub(super) fn stopper(&self) -> Stopper {
        Stopper { is_stopped: Arc::clone(&self.is_stopped), waker: self.dialer.waker().clone() }
    }

    /// A connection to a portal was made, or not.
    fn dialed(&mut self, cx: &mut Context<'_>, Dialed { number, result }: Dialed) {
        // The initiator may have gone meanwhile.
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        let reached = result.and_then(|stream| Ok((stream.peer_addr()?, cx.adopt(stream)?)));
        match reached {
            Ok((address, id)) => {
                self.portals.reached(pair.portal, address);
                pair.target.id = Some(id);
                self.sides.insert(id, (number, Side::Portal));
                cx.send(id);
            }
            Err(error) => self.fail(cx, number, &error),
        }
    }

    /// Gives a pair up whose portal cannot be used.
    fn fail(&mut self, cx: &mut Context<'_>, number: u64, error: &dyn Display) {
        let Some(pair) = self.pairs.get(&number) else { return };
        let portal = self.portals.portal(pair.portal);
        tracing::warn!(
            target: "lunette_tunnel", %portal, initiator = %pair.peer, %error,
            "cannot carry a connection; see that the portal is reached and speaks TLS, and that it and the files of tls= trust each other"
        );
        self.remove(cx, number);
    }

    /// Ends both connections of a pair now.
    fn remove(&mut self, cx: &mut Context<'_>, number: u64) {
        let Some(pair) = self.pairs.remove(&number) else { return };
        for id in [pair.initiator.id, pair.target.id].into_iter().flatten() {
            self.sides.remove(&id);
            cx.close(id);
        }
    }

    /// The portal has ended the connection, before or after TLS stood.
    fn lost(&self, pair: &Pair, why: &Closed) {
        let portal = self.portals.portal(pair.portal);
        let error: &dyn Display = match why {
            Closed::Error(error) => error,
            Closed::PeerClosed if !pair.was_heard => &"the portal has closed it without an answer",
            Closed::PeerClosed | Closed::AllSent => return,
        };
        if pair.was_heard {
            tracing::warn!(target: "lunette_tunnel", %portal, initiator = %pair.peer, %error, "a connection to the portal was lost");
        } else {
            tracing::warn!(
                target: "lunette_tunnel", %portal, initiator = %pair.peer, %error,
                "cannot carry a connection; see that the portal speaks TLS, and that it and the files of tls= trust each other"
            );
        }
    }
}

impl Handler for Carrier {
    fn accepted(
        &mut self,
        cx: &mut Context<'_>,
        listener: ListenerId,
        connection: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
    ) {
        let Some(portal) = self.portals.of(listener).filter(|_| self.pairs.len() < MAX_CONNECTIONS) else {
            tracing::warn!(
                target: "lunette_tunnel", initiator = %peer,
                "refused a connection: {MAX_CONNECTIONS} are carried; start another tunnel"
            );
            return cx.close(connection);
        };
        let number = self.next_number;
        self.next_number += 1;
        self.pairs.insert(number, Pair::new(connection, peer, local, portal));
        self.sides.insert(connection, (number, Side::Initiator));
        let deadline = cx.now() + CONNECT_LIMIT;
        if self.deadlines.len() >= 2 * MAX_CONNECTIONS {
            self.deadlines.retain(|(_, number)| self.pairs.contains_key(number));
        }
        self.deadlines.push_back((deadline, number));
        self.dialer.dial(number, self.portals.portal(portal).clone(), deadline);
    }

    fn received(&mut self, cx: &mut Context<'_>, connection: ConnectionId, bytes: &[u8]) -> usize {
        let Self { portals, pairs, sides, .. } = self;
        let Some(&(number, side)) = sides.get(&connection) else { return bytes.len() };
        let Some(pair) = pairs.get_mut(&number) else { return bytes.len() };
        let (portal, local) = (pair.portal, pair.local.ip());
        let carried = pair.carry(side, bytes, &mut |told| portals.way(cx, told, portal, local));
        let left_out = pair.take_left_out();
        if left_out > 0 {
            tracing::warn!(
                target: "lunette_tunnel", portal = %portals.portal(portal), initiator = %pair.peer,
                "left {left_out} addresses out of an answer to discovery"
            );
        }
        if let Err(error) = carried {
            tracing::warn!(
                target: "lunette_tunnel", portal = %portals.portal(portal), initiator = %pair.peer, %error,
                "ended a connection that cannot be followed"
            );
            self.remove(cx, number);
            return bytes.len();
        }
        let (from, to) = pair.ends(side);
        if to.outbox.is_full() && !from.is_paused {
            from.is_paused = true;
            cx.pause(connection);
        }
        if let Some(id) = to.id {
            cx.send(id);
        }
        bytes.len()
    }

    fn gather<'a>(&'a self, connection: ConnectionId, list: &mut Gather<'a>) {
        let pair = self.sides.get(&connection).and_then(|(number, side)| Some((self.pairs.get(number)?, *side)));
        if let Some((pair, side)) = pair {
            list.push(pair.end(side).outbox.unsent());
        }
    }

    fn sent(&mut self, cx: &mut Context<'_>, connection: ConnectionId, len: usize) {
        let Some((number, side)) = self.sides.get(&connection) else { return };
        let Some(pair) = self.pairs.get_mut(number) else { return };
        let (to, from) = pair.ends(*side);
        to.outbox.sent(len);
        if from.is_paused && to.outbox.has_room() {
            from.is_paused = false;
            if let Some(id) = from.id {
                cx.resume(id);
            }
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, connection: ConnectionId, why: Closed) {
        let Some((number, side)) = self.sides.remove(&connection) else { return };
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        let (ended, other) = pair.ends(side);
        ended.id = None;
        let Some(other) = other.id else {
            if side == Side::Portal {
                self.lost(&self.pairs[&number], &why);
            }
            self.remove(cx, number);
            return;
        };
        match (&why, side) {
            // The portal sees what the tunnel has seen: no order in which anything ends.
            (Closed::Error(_), Side::Initiator) => self.remove(cx, number),
            (Closed::PeerClosed | Closed::AllSent, Side::Initiator) if !stands(cx, Some(other)) => {
                self.remove(cx, number);
            }
            // What was sent before the end arrives before it.
            (Closed::PeerClosed | Closed::AllSent, Side::Initiator) => cx.close_after_send(other),
            (Closed::PeerClosed | Closed::AllSent | Closed::Error(_), Side::Portal) => {
                cx.close_after_send(other);
                self.lost(&self.pairs[&number], &why);
            }
        }
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        if self.is_stopped.load(Ordering::Acquire) {
            return cx.stop();
        }
        while let Some(dialed) = self.dialer.next() {
            self.dialed(cx, dialed);
        }
    }

    fn next_timeout(&mut self, _: Instant) -> Option<Instant> {
        while let Some((_, number)) = self.deadlines.front()
            && !self.pairs.contains_key(number)
        {
            self.deadlines.pop_front();
        }
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) {
        while let Some(&(deadline, number)) = self.deadlines.front()
            && deadline <= cx.now()
        {
            self.deadlines.pop_front();
            let pair = self.pairs.get(&number).filter(|pair| !pair.was_heard);
            if pair.is_some_and(|pair| !stands(cx, pair.target.id)) {
                let error = format!("TLS does not stand after {} s", CONNECT_LIMIT.as_secs());
                self.fail(cx, number, &error);
            }
        }
    }
}

/// Whether TLS with the portal stands: its certificate is there then.
fn stands(cx: &Context<'_>, portal: Option<ConnectionId>) -> bool {
    portal.is_some_and(|portal| cx.peer_certificate(portal).is_some())
}
