//! The end of connections, and which others of the session end with them (RFC 7143 sections 7.1.4.4, 7.14 and 11.14).

use std::time::Duration;

use super::{Session, State};
use crate::Time;
use crate::iscsi_target::connection::{Connection, ConnectionMut};
use crate::iscsi_target::event::{CloseReason, Event};

impl<H: Copy + PartialEq> Session<H> {
    /// The socket of a connection is gone. True when its tasks wait to be taken over: keep them. False when the
    /// connection is over: end its tasks and [remove](super::super::Sessions::remove) it. At recovery level 0 and 1 its
    /// session ends with it.
    pub fn stream_lost(&mut self, connection: H, now: Time) -> bool {
        let may_wait = !self.is_ending;
        let waits = self.connection_mut(connection).is_some_and(|mut protocol| may_wait && protocol.stream_lost(now));
        if waits {
            self.suspend(connection);
        } else if !self.info.recovers_connections() && self.is_in_full_feature_phase(connection) {
            self.end_others(Some(connection), true);
        }
        waits
    }

    /// A connection has closed by itself.
    pub(super) fn closed(&mut self, connection: H, reason: CloseReason) -> Event<H> {
        if !self.is_ending && self.connection(connection).is_some_and(Connection::is_suspended) {
            if reason == CloseReason::RecoveryLogout {
                // The initiator knows.
                self.free_cid(connection);
                self.touch(connection);
            } else {
                self.suspend(connection);
            }
            return Event::Suspended(reason);
        }
        let takes_others = match reason {
            CloseReason::ConnectionLogout => false,
            CloseReason::Logout | CloseReason::LogoutTimeout | CloseReason::SessionLost | CloseReason::Reset => true,
            _ => !self.info.recovers_connections(),
        };
        if takes_others {
            // After a logout of the session there is nothing to tell.
            self.end_others(Some(connection), reason != CloseReason::Logout);
        }
        Event::Close(reason)
    }

    /// Asks the initiator to log out of all connections within `grace`, after which they end. Tasks that wait to be
    /// taken over end now, and none begin to wait. To ask again changes nothing.
    pub fn request_logout(&mut self, grace: Duration, now: Time) {
        self.is_ending = true;
        let lost: Vec<H> = self.suspended().collect();
        for connection in lost {
            self.give_up(connection);
        }
        self.for_each_served(|protocol| protocol.request_logout(grace, now));
    }

    /// The session ends, because its target or its nexus is reset (RFC 7143 section 11.5.1, RFC 7144 section 6.3): the
    /// connection that has asked for it when its answer is sent, the others at once.
    pub fn reset(&mut self, asked: Option<H>) {
        let asked = asked.filter(|connection| self.is_in_full_feature_phase(*connection));
        self.end_others(asked, true);
        if let Some(connection) = asked {
            if let Some(mut protocol) = self.connection_mut(connection) {
                protocol.close(CloseReason::Reset);
            }
            self.touch(connection);
        }
    }

    /// Ends all connections but this one, with the session. `is_told`: by an Asynchronous Message.
    fn end_others(&mut self, but: Option<H>, is_told: bool) {
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            let state = std::mem::replace(&mut member.state, State::Over);
            let other = member.handle;
            if Some(other) == but || state == State::Over {
                continue;
            }
            match self.connection_mut(other) {
                Some(mut protocol) if is_told && matches!(state, State::Served(_)) => protocol.drop_session(),
                Some(_) => self.events.push_back((other, Event::Gone)),
                // Its login finds that its place is gone.
                None => {}
            }
            self.touch(other);
        }
    }

    /// A connection has ended.
    pub(in crate::iscsi_target) fn leave(&mut self, connection: H) {
        let Some(member) = self.members.iter_mut().find(|member| member.handle == connection) else { return };
        member.state = State::Over;
        if let Some(protocol) = &mut member.connection {
            protocol.end(&mut self.window);
        }
        let announce = |protocol: &mut ConnectionMut<'_>| protocol.announce_window();
        if self.window.is_untold() && self.on_any_served(announce) {
            self.window.told();
        }
        self.touch_fenced();
    }

    /// A lost connection is not waited for any more.
    pub(super) fn give_up(&mut self, connection: H) {
        self.leave(connection);
        self.events.push_back((connection, Event::Gone));
        self.touch(connection);
    }

    /// All connections end: gives those that had not.
    pub(in crate::iscsi_target) fn end(&mut self) -> Vec<H> {
        let members = self.members().collect();
        self.members.iter_mut().for_each(|member| member.state = State::Over);
        members
    }

    fn is_in_full_feature_phase(&self, connection: H) -> bool {
        self.member(connection).is_some_and(|member| member.is_served() && member.connection.is_some())
    }
}
