//! The work of a core on messages of others, and its own messages.

use lunette_device::PendingEvent;
use lunette_reactor::{ConnectionId, Context, Stream};

use super::Core;
use super::connections::{Conn, Departure};
use super::mesh::{Arrival, CoreMessage, RemoteBarrier};
use super::quiesced::OnQuiesced;
use super::tasks::{AbortScope, BarrierKey, TaskKey};

impl Core {
    pub(super) fn take_messages(&mut self, cx: &mut Context<'_>) {
        for message in self.mesh.take_messages() {
            match message {
                CoreMessage::Take(arrival) => self.take_connection(cx, *arrival),
                CoreMessage::Abort { answer_to, scope } => self.abort_for_another(answer_to, &scope),
                // This batch may have begun before; the next one brings all that was closed by now.
                CoreMessage::AbortLost { answer_to, scope } => {
                    self.mesh.defer(CoreMessage::Abort { answer_to, scope });
                }
                CoreMessage::Aborted { barrier, lost } => {
                    if let Some(OnQuiesced::Resume { lost: all, .. } | OnQuiesced::ResumeBackground { lost: all, .. }) =
                        self.barriers.get_mut(barrier)
                    {
                        all.extend(lost);
                    }
                    self.barriers.one_less(barrier);
                }
                CoreMessage::Reset(device) => self.drop_sessions(None, &device),
                CoreMessage::Change { answer_to: RemoteBarrier { core, barrier }, change } => {
                    self.take_change(cx, change);
                    self.mesh.send(core, CoreMessage::Answered { barrier });
                }
                CoreMessage::Freeze { answer_to, unit, asker } => self.tell_when_quiet(answer_to, &unit, &asker),
                CoreMessage::Answered { barrier } => self.barriers.one_less(barrier),
                CoreMessage::Unused(removed) => self.lifecycle.unused_elsewhere(&removed),
                CoreMessage::Sessions(query) => self.answer_session_query(cx, query),
                CoreMessage::RefuseHost(request) => self.refuse_host(&request),
                CoreMessage::ComeToRest(mark, told) => self.come_to_rest(cx, mark, told),
                CoreMessage::LoginsHaveEnded(mark) => self.note_end_of_logins(&mark),
                CoreMessage::HandOver(answer) => self.hand_over(cx, &answer),
                CoreMessage::GoOn(mark, reasons) => self.go_on(cx, &mark, reasons.as_ref()),
                CoreMessage::Inherit(sessions) => self.inherit(cx, sessions),
                // A stop that has ended already, by its deadline, is not begun again.
                CoreMessage::Stop { deadline } if !self.lifecycle.is_stopping() => self.begin_stop(cx, deadline),
                CoreMessage::Stop { .. } => {}
                CoreMessage::Quiet => self.lifecycle.count_quiet_core(),
                CoreMessage::Leave => {
                    self.lifecycle.leave(self.stands_still());
                    cx.stop();
                }
            }
        }
    }

    // Connections that change cores.

    /// Sends a connection whose login has passed to its home.
    pub(super) fn depart(&mut self, cx: &mut Context<'_>, id: ConnectionId, departure: Departure) {
        if let Some(conn) = self.connections.get_mut(id) {
            conn.departure = Some(departure);
            cx.release(id);
        }
    }

    /// Nothing of the connection is under way here any more.
    pub(super) fn departed(&mut self, id: ConnectionId, stream: Stream) {
        let Some(Conn { departure, login, peer, identities, came, permit, .. }) = self.connections.remove(id) else {
            return;
        };
        // Others were told to stop already; a connection would come too late.
        let Some(Departure { home, request }) = departure.filter(|_| !self.lifecycle.is_stopping()) else { return };
        if let (Some(login), Some(permit)) = (login, permit) {
            let core = home.core();
            let arrival = Arrival { login, peer, identities, came, permit, home, stream, request };
            self.mesh.send(core, CoreMessage::Take(Box::new(arrival)));
        }
    }

    fn take_connection(
        &mut self,
        cx: &mut Context<'_>,
        Arrival { login, peer, identities, came, permit, home, stream, request }: Arrival,
    ) {
        let id = match cx.adopt(stream) {
            Ok(id) => id,
            Err(error) => return tracing::warn!(%peer, %error, "cannot take on a connection"),
        };
        let mut conn = Conn::new(login, peer, came, permit);
        (conn.home, conn.identities) = (Some(home), identities);
        self.connections.insert(id, conn);
        self.admit_here(cx, id, *request);
    }

    // Aborts on several cores.

    /// Has all other cores end tasks, too. `barrier` learns when no store works for them any more.
    pub(super) fn abort_on_others(&mut self, barrier: BarrierKey, scope: &AbortScope) {
        for core in self.mesh.others() {
            self.barriers.one_more(barrier);
            let answer_to = self.mesh.remote(barrier);
            self.mesh.send(core, CoreMessage::Abort { answer_to, scope: scope.clone() });
        }
    }

    /// Has all cores end what a login waits for. This one, too, may have got the connection before it has heard of the
    /// end of others.
    pub(super) fn abort_lost(&mut self, barrier: BarrierKey, scope: &AbortScope) {
        for core in self.mesh.all() {
            self.barriers.one_more(barrier);
            let answer_to = self.mesh.remote(barrier);
            self.mesh.send(core, CoreMessage::AbortLost { answer_to, scope: scope.clone() });
        }
    }

    fn abort_for_another(&mut self, answer_to: RemoteBarrier, scope: &AbortScope) {
        let keys = self.tasks.tasks_where(|task| scope.covers(task));
        let lost = self.tasks.nexuses_of(&keys);
        let affected = match scope {
            AbortScope::Unit(_) | AbortScope::Target(_) => {
                self.raise_again(&keys);
                self.affected_by(&keys, None, None)
            }
            _ => Vec::new(),
        };
        let announcement = self.barriers.open(OnQuiesced::TellAffected { issuing: None, affected });
        let barrier = self.barriers.open(OnQuiesced::TellCore { answer_to, lost });
        for key in keys {
            for barrier in [announcement, barrier] {
                self.abort_task(key, Some(barrier));
            }
        }
        self.barriers.close(announcement);
        self.barriers.close(barrier);
    }

    /// A reset on another core ends tasks here. An initiator that already consumed the reset's unit attention gets a
    /// second one: tasks sent since then were aborted too.
    fn raise_again(&mut self, keys: &[TaskKey]) {
        let tasks = keys.iter().filter_map(|key| self.tasks.get(*key)).filter(|task| !task.is_orphan());
        for task in tasks {
            let Some(conn) = self.connections.get(task.address().0) else { continue };
            if let (Some(device), Some(nexus)) = (&conn.device, &conn.nexus)
                && device.query_asynchronous_event(task.lun().encode(), nexus) == PendingEvent::Nothing
            {
                device.commands_cleared(nexus, [task.lun()]);
            }
        }
    }
}
