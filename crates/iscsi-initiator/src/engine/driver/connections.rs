//! The connections of a session: dialing, login, and the bytes in both directions.

use std::io;
use std::sync::Arc;

use lunette_ecl::protection::Binding;
use lunette_ecl_endpoint::DatagramOptions;
use lunette_pdu::{BHS_LEN, Isid};
use lunette_reactor::{Closed, ConnectionId, Context, Gather};
use lunette_session::iscsi_initiator::{Event, Placement, Session, SessionConfig};
use lunette_session::{Entropy, OutgoingPdu, ProvenSecrets, Secret, Time, folded_name};

use super::events::unit_attention;
use super::replacer::ConnectionReplacer;
use super::{ActiveSession, Connection, Phase, SessionDriver};
use crate::Error;
use crate::engine::coalescing::{Coalescing, MAX_HOLD};
use crate::engine::dial::dial;
use crate::engine::env::Env;
use crate::engine::host::Wire;

impl SessionDriver {
    pub(in crate::engine) fn dial(&mut self, env: &mut Env<'_, '_>) {
        self.phase = Phase::Dialing;
        self.attempt += 1;
        dial(env, self.key, self.attempt, self.portal.clone(), &self.options);
    }

    pub(in crate::engine) fn dialed(&mut self, attempt: u64, result: Result<Wire, Error>, env: &mut Env<'_, '_>) {
        if attempt != self.attempt {
            return;
        }
        let leads = match &self.phase {
            Phase::Dialing => true,
            Phase::Active(_) => false,
            Phase::Pausing { .. } | Phase::Over(_) => return,
        };
        let done = result.and_then(|wire| {
            let begun = if leads { self.log_in(wire, env) } else { self.join(wire, env) };
            begun.map_err(|source| self.no_connection(source))
        });
        match done {
            Ok(()) => {}
            Err(error) if leads => self.failed(error, env),
            Err(error) => self.joined(Err(error), env),
        }
    }

    pub(super) fn no_connection(&self, source: io::Error) -> Error {
        Error::Connect { portal: self.portal.to_string(), source: Arc::new(source) }
    }

    pub(super) fn log_in(&mut self, wire: Wire, env: &mut Env<'_, '_>) -> io::Result<()> {
        let isid = match self.isid {
            Some(isid) => isid,
            None => *self.isid.insert(random_isid(env)?),
        };
        let session = Session::new(SessionConfig {
            initiator_name: self.options.initiator_name.clone(),
            initiator_alias: self.options.initiator_alias.clone(),
            target_name: self.target.clone(),
            isid,
            chap: self.options.chap.clone(),
            offer: self.options.transport.narrow(&self.options.offer),
            timers: self.options.timers,
        });
        let mut active = ActiveSession {
            session,
            connections: Vec::new(),
            logged_in: false,
            joining: 0,
            replacer: None,
            coalescing: Coalescing::default(),
        };
        let id = add_connection(&mut active, wire, env)?;
        self.phase = Phase::Active(Box::new(active));
        // The login may have failed already; then its event ends the session.
        self.drain(id, &[], env);
        Ok(())
    }

    /// Logs in one more connection of the session.
    pub(super) fn join(&mut self, wire: Wire, env: &mut Env<'_, '_>) -> io::Result<()> {
        let Phase::Active(active) = &mut self.phase else { return Ok(()) };
        let id = add_connection(active, wire, env)?;
        // The login may have failed already; then its event tells.
        self.drain(id, &[], env);
        Ok(())
    }

    pub(in crate::engine) fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        let (active, cid) = self.active(id)?;
        active.session.direct(cid)
    }

    pub(in crate::engine) fn direct_received(&mut self, id: ConnectionId, len: usize, env: &mut Env<'_, '_>) {
        let Some((active, cid)) = self.active(id) else { return };
        active.session.direct_received(cid, len, env.now);
        self.drain(id, &[], env);
    }

    pub(in crate::engine) fn received(&mut self, id: ConnectionId, bytes: &[u8], env: &mut Env<'_, '_>) {
        if let Phase::Active(active) = &mut self.phase {
            active.coalescing.received_bytes(bytes.len());
        }
        self.drain(id, bytes, env);
    }

    /// Says how long the next answers may be let come, at the end of a batch that has brought some.
    pub(in crate::engine) fn coalesce(&mut self, cx: &mut Context<'_>, now: Time) -> Option<Time> {
        let Phase::Active(active) = &mut self.phase else { return None };
        // Several connections have one order of commands and statuses: what one holds may be what another one waits
        // for.
        let may_hold = self.options.coalesce && active.connections.len() == 1;
        let low_water = active.coalescing.batch_end(active.session.commands(), now).filter(|_| may_hold);
        for connection in &active.connections {
            cx.set_low_water(connection.id, low_water.unwrap_or(1));
        }
        low_water.map(|_| now + MAX_HOLD)
    }

    /// Has what has come looked at.
    pub(in crate::engine) fn end_hold(&mut self, cx: &mut Context<'_>) {
        let Phase::Active(active) = &mut self.phase else { return };
        active.coalescing.hold_ended();
        for connection in &active.connections {
            cx.set_low_water(connection.id, 1);
        }
    }

    /// Whether a connection is there: it takes whatever comes.
    pub(in crate::engine) fn takes(&self, id: ConnectionId) -> bool {
        let Phase::Active(active) = &self.phase else { return false };
        active.connections.iter().any(|connection| connection.id == id)
    }

    pub(in crate::engine) fn place_early(
        &mut self,
        id: ConnectionId,
        bhs: &[u8; BHS_LEN],
        pdu_offset: u32,
        len: usize,
    ) -> Option<(Placement, &mut [u8])> {
        let (active, cid) = self.active(id)?;
        active.session.place_early(cid, bhs, pdu_offset, len)
    }

    pub(in crate::engine) fn placed(
        &mut self,
        id: ConnectionId,
        place: Placement,
        [skipped, len]: [usize; 2],
        env: &mut Env<'_, '_>,
    ) -> bool {
        let Some((active, cid)) = self.active(id) else { return false };
        let placed = active.session.placed(cid, place, skipped, len, env.now);
        self.drain(id, &[], env);
        placed
    }

    pub(in crate::engine) fn take_pdu(&mut self, id: ConnectionId) -> Option<OutgoingPdu> {
        let (active, cid) = self.active(id)?;
        active.session.take_pdu(cid)
    }

    pub(in crate::engine) fn datagram_options(&self) -> DatagramOptions {
        self.options.datagrams
    }

    /// The names and secrets that the login has proven.
    pub(in crate::engine) fn binding(&self, id: ConnectionId) -> Option<Binding> {
        let Phase::Active(active) = &self.phase else { return None };
        active.connections.iter().find(|connection| connection.id == id && connection.logged_in)?;
        let ProvenSecrets { initiator, target, algorithm: _ } = active.session.proven_secrets();
        Some(Binding::new(
            &folded_name(&self.options.initiator_name),
            &folded_name(self.target.as_deref().unwrap_or_default()),
            initiator.as_ref().map(Secret::expose),
            target.as_ref().map(Secret::expose),
        ))
    }

    pub(super) fn drain(&mut self, id: ConnectionId, mut bytes: &[u8], env: &mut Env<'_, '_>) {
        while let Some(event) = self.next_event(id, &mut bytes, env) {
            self.handle(event, env);
        }
    }

    /// Consumes bytes up to the next event. Commands that end on the way end their requests.
    fn next_event(&mut self, id: ConnectionId, bytes: &mut &[u8], env: &Env<'_, '_>) -> Option<Event> {
        let Self { phase: Phase::Active(active), requests, reconnect, power_ons, options, .. } = self else {
            return None;
        };
        let ActiveSession { session, connections, coalescing, replacer, .. } = &mut **active;
        let cid = connections.iter().find(|connection| connection.id == id)?.cid;
        let mut ended = 0;
        let event = session.next_other_event(cid, bytes, env.now, |command, response| {
            ended += 1;
            if let Some(sense) = requests.completed(command, response, env.now) {
                unit_attention(command.lun, sense, power_ons, options);
            }
        });
        if ended > 0 {
            coalescing.completed(ended);
            reconnect.worked();
            replacer.iter_mut().for_each(ConnectionReplacer::worked);
        }
        if event.is_none() {
            let traffic = session.take_traffic(cid);
            coalescing.received_pdus(traffic.received_pdus);
            env.traffic.add(traffic);
        }
        event
    }

    pub(in crate::engine) fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        let Phase::Active(active) = &self.phase else { return };
        let Some(connection) = active.connections.iter().find(|connection| connection.id == id) else { return };
        list.fill(active.session.pieces(connection.cid));
    }

    pub(in crate::engine) fn sent(&mut self, id: ConnectionId, len: usize) {
        if let Some((active, cid)) = self.active(id) {
            active.session.sent(cid, len);
        }
    }

    pub(in crate::engine) fn connection_closed(&mut self, id: ConnectionId, why: &Closed, env: &mut Env<'_, '_>) {
        let portal = self.portal.to_string();
        if let Some((active, cid)) = self.active(id) {
            tracing::debug!(%portal, ?cid, ?why, "connection lost");
            let is_opening = !active.logged_in && active.connections.len() == 1;
            if is_opening && let Some(source) = failure_of_tls(why) {
                self.hang_up(env);
                let error = self.no_connection(source);
                return self.failed(error, env);
            }
            let Some((active, cid)) = self.active(id) else { return };
            active.session.disconnected(cid, env.now);
            self.drain(id, &[], env);
        }
    }
}

/// Why the two sides do not trust each other, or one of them has changed bytes. The system's errors are of other kinds.
fn failure_of_tls(why: &Closed) -> Option<io::Error> {
    match why {
        Closed::Error(error) if error.kind() == io::ErrorKind::InvalidData => {
            Some(io::Error::new(error.kind(), error.to_string()))
        }
        Closed::Error(_) | Closed::PeerClosed | Closed::AllSent => None,
    }
}

/// Adds a connection of the session.
fn add_connection(active: &mut ActiveSession, wire: Wire, env: &mut Env<'_, '_>) -> io::Result<ConnectionId> {
    let mut entropy = [0; Entropy::BYTES];
    (env.host.entropy)(&mut entropy)?;
    let id = match wire {
        Wire::Tcp(stream) => env.cx.adopt(stream)?,
        Wire::Ecl(address) => env.cx.connect_virtual(address),
    };
    env.adopted.push(id);
    let cid = active.session.connect(Entropy(entropy), env.now);
    active.connections.push(Connection { cid, id, logged_in: false });
    Ok(id)
}

/// RFC 7143 section 11.12.5: type 10b, a random number.
fn random_isid(env: &Env<'_, '_>) -> io::Result<Isid> {
    const RANDOM: u8 = 0x80;
    let mut bytes = [0; 6];
    (env.host.entropy)(&mut bytes[1..])?;
    bytes[0] = RANDOM;
    Ok(Isid(bytes))
}
