//! The events of the protocol.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lunette_pdu::{AsyncEvent, AsyncMessage, Cid, LunField};
use lunette_scsi::SenseData;
use lunette_session::iscsi_initiator::{Event, SessionError};
use lunette_session::limits::CONNECTION_RECOVERY_LEVEL;

use super::replacer::ConnectionReplacer;
use super::{Phase, PowerOns, SessionDriver};
use crate::engine::dial::dial;
use crate::engine::env::Env;
use crate::engine::message::{Opened, Question, TmfResult};
use crate::engine::queue::Owner;
use crate::engine::retry::may_lose_cache;
use crate::error::Error;
use crate::options::Options;
use crate::session_event::SessionEvent;

impl SessionDriver {
    pub(super) fn handle(&mut self, event: Event, env: &mut Env<'_, '_>) {
        match event {
            Event::LoggedIn(cid) => self.logged_in(cid, env),
            Event::Redirected { cid, .. } if self.is_joining(cid) => {
                self.hang_up_one(cid, SessionError::Disconnected, env);
            }
            Event::Redirected { addresses, permanent, .. } => self.redirected(&addresses, permanent, env),
            // They are told where they are (`next_event`).
            Event::Completed { .. } => {}
            Event::Aborted(command) => self.requests.lost(command),
            Event::TaskManagementDone { user, response, information } => {
                if let Some((_, Question::TaskManagement { done, .. })) = self.questions.remove(&user) {
                    done(Ok(TmfResult { response, information }));
                }
            }
            Event::Pong { user, intact } => {
                if let Some((_, Question::Ping { done, .. })) = self.questions.remove(&user) {
                    done(Ok(intact));
                }
            }
            Event::Text { user, pairs } => {
                if let Some((_, Question::Text { done, .. })) = self.questions.remove(&user) {
                    done(Ok(pairs));
                }
            }
            Event::Async { message, data } => self.message(message, data),
            Event::Closed { cid, why } => match &self.phase {
                Phase::Active(active) if !active.session.is_over() => self.hang_up_one(cid, why, env),
                _ => self.lost(why, env),
            },
        }
    }

    fn message(&mut self, message: AsyncMessage, data: Vec<u8>) {
        // RFC 7143 section 11.9.1: the target asks for a logout; a new connection follows.
        if message.event == AsyncEvent::LOGOUT_REQUEST
            && let Phase::Active(active) = &mut self.phase
        {
            active.session.logout();
        }
        self.tell(&SessionEvent::Async { message, data });
    }

    pub(super) fn logged_in(&mut self, cid: Cid, env: &Env<'_, '_>) {
        let Phase::Active(active) = &mut self.phase else { return };
        if let Some(connection) = active.connection(cid) {
            connection.logged_in = true;
        }
        if active.logged_in {
            return self.joined(Ok(()), env);
        }
        active.logged_in = true;
        self.redirections.clear();
        self.reconnect.logged_in(env.now);
        let Some(parameters) = active.session.parameters(cid).cloned() else { return };
        self.time2wait = Duration::from_secs(parameters.time2wait_s.into());
        active.joining = parameters.max_connections.saturating_sub(1);
        active.replacer = (parameters.error_recovery_level >= CONNECTION_RECOVERY_LEVEL)
            .then(|| ConnectionReplacer::new(parameters.max_connections, env.now));
        for _ in 0..active.joining {
            dial(env, self.key, self.attempt, self.portal.clone(), &self.options);
        }
        self.tell(&SessionEvent::Connected { portal: self.portal.clone(), parameters: Box::new(parameters) });
        self.open_if_complete(env);
    }

    /// A connection has joined the session, or could not.
    pub(super) fn joined(&mut self, result: Result<(), Error>, env: &Env<'_, '_>) {
        let Phase::Active(active) = &mut self.phase else { return };
        active.joining = active.joining.saturating_sub(1);
        let connections = active.logged_in_connections();
        match (&mut active.replacer, &result) {
            (Some(replacer), Ok(())) => replacer.succeeded(env.now),
            (Some(replacer), Err(_)) => replacer.failed(env.now),
            (None, _) => {}
        }
        match result {
            Ok(()) => self.tell(&SessionEvent::ConnectionAdded { connections }),
            Err(why) => {
                tracing::warn!(portal = %self.portal, %why, connections, "a connection cannot join the session");
                self.tell(&SessionEvent::ConnectionMissing { connections, why });
            }
        }
        self.open_if_complete(env);
    }

    /// Gives the session to its caller once each of its connections was made or has failed.
    pub(super) fn open_if_complete(&mut self, env: &Env<'_, '_>) {
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(parameters) =
            active.connections.iter().find_map(|connection| active.session.parameters(connection.cid))
        else {
            return;
        };
        if active.joining == 0
            && let Some(done) = self.opening.take()
        {
            let target_alias = active.session.target_alias().map(Into::into);
            let portal_group = active.session.target_portal_group();
            let (owner, parameters) = (Owner::new(env.queue, self.key), parameters.clone());
            done(Ok(Opened { owner, parameters, target_alias, portal_group }));
        }
    }

    pub(super) fn is_joining(&self, cid: Cid) -> bool {
        let Phase::Active(active) = &self.phase else { return false };
        active.logged_in && active.connections.iter().any(|connection| connection.cid == cid && !connection.logged_in)
    }

    /// Closes one connection of a session that continues.
    pub(super) fn hang_up_one(&mut self, cid: Cid, why: SessionError, env: &mut Env<'_, '_>) {
        let was_joining = self.is_joining(cid);
        let Phase::Active(active) = &mut self.phase else { return };
        for connection in active.connections.extract_if(.., |connection| connection.cid == cid) {
            env.cx.close(connection.id);
        }
        let connections = active.logged_in_connections();
        // The protocol tells what this means for the other connections through any of them.
        let another = active.connections.first().map(|connection| connection.id);
        if was_joining {
            let portal = self.portal.to_string();
            self.joined(Err(Error::Session { portal, why }), env);
        } else if !active.session.is_logging_out() {
            if let Some(replacer) = &mut active.replacer {
                replacer.lost(env.now);
            }
            tracing::info!(portal = %self.portal, %why, connections, "connection lost");
            self.tell(&SessionEvent::ConnectionLost { connections, why });
        }
        if let Some(id) = another {
            self.drain(id, &[], env);
        }
    }

    pub(super) fn redirected(&mut self, addresses: &[String], permanent: bool, env: &mut Env<'_, '_>) {
        self.hang_up(env);
        match self.redirections.follow(&self.portal, addresses) {
            Ok(portal) => {
                tracing::info!(from = %self.portal, to = %portal, permanent, "redirected");
                // The portal of a temporary redirection may change; the base portal tells where the target is.
                if permanent && self.portal == self.base_portal {
                    self.base_portal = portal.clone();
                }
                self.portal = portal;
                self.dial(env);
            }
            Err(error) => self.over(error, Vec::new()),
        }
    }

    pub(super) fn tell(&self, event: &SessionEvent) {
        tell(&self.options, event);
    }
}

fn tell(options: &Options, event: &SessionEvent) {
    if let Some(listener) = &options.listener {
        listener(event);
    }
}

/// A command has ended with a unit attention. What it says of the unit's cache is counted before the next command ends.
#[cold]
pub(super) fn unit_attention(lun: LunField, sense: SenseData, power_ons: &[PowerOns], options: &Options) {
    if may_lose_cache(&sense) {
        for (_, count) in power_ons.iter().filter(|(of, _)| *of == lun) {
            if let Some(count) = count.upgrade() {
                count.fetch_add(1, Ordering::Release);
            }
        }
    }
    tell(options, &SessionEvent::UnitAttention { lun: lunette_scsi::Lun::decode(lun.0), sense });
}
