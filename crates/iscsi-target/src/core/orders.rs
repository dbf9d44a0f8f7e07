//! What cores ask of each other, and how they obey.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use lunette_device::{NexusId, PendingEvent, TargetDevice};
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{AdmitRequest, LoginConnection};

use super::Core;
use super::connections::{Conn, Departure, Permit};
use super::homes::Home;
use super::leaving::Leaver;
use super::quiesced::OnQuiesced;
use super::tasks::{AbortScope, BarrierKey, TaskKey};
use super::updates::News;

/// A letter.
pub(crate) enum Order {
    /// The session of this connection lives on your core.
    Take(Box<Arrival>),
    /// End these tasks, and say so when no store works for them any more.
    Abort { ticket: Ticket, scope: AbortScope },
    /// The same for a login, whose initiator may have closed connections before it: look at them first.
    AbortLost { ticket: Ticket, scope: AbortScope },
    /// That is done; these nexuses lost tasks by it.
    Aborted { ticket: BarrierKey, lost: Vec<NexusId> },
    /// TARGET COLD RESET: end all sessions of the target.
    Reset(Arc<TargetDevice>),
    /// Something else is served from now on. Say so when your sessions know.
    News { ticket: Ticket, news: News },
    /// They know.
    Known { ticket: BarrierKey },
    /// Nobody here works with that any more.
    LetGo(Leaver),
    /// End all sessions.
    Stop { deadline: Instant },
    /// They have ended.
    Quiet,
    /// Leave the event loop.
    Leave,
}

/// What an answer goes to: a barrier of another core.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    pub(super) core: usize,
    pub(super) barrier: BarrierKey,
}

/// A connection on its way to its home.
pub(crate) struct Arrival {
    login: Box<LoginConnection>,
    peer: SocketAddr,
    permit: Permit,
    home: Home,
    stream: TcpStream,
    request: Box<AdmitRequest>,
}

impl Core {
    pub(super) fn obey_orders(&mut self, cx: &mut Context<'_>) {
        for order in self.post.take() {
            match order {
                Order::Take(arrival) => self.take(cx, *arrival),
                Order::Abort { ticket, scope } => self.abort_for_another(ticket, &scope),
                // This batch may have begun before; the next one brings all that was closed by now.
                Order::AbortLost { ticket, scope } => {
                    self.post.send(self.post.me(), Order::Abort { ticket, scope });
                }
                Order::Aborted { ticket, lost } => {
                    if let Some(OnQuiesced::Resume { lost: all, .. }) = self.barriers.get_mut(ticket) {
                        all.extend(lost);
                    }
                    self.barriers.one_less(ticket);
                }
                Order::Reset(device) => self.drop_sessions(cx, None, &device),
                Order::News { ticket, news } => {
                    self.take_news(cx, news);
                    self.post.send(ticket.core, Order::Known { ticket: ticket.barrier });
                }
                Order::Known { ticket } => self.barriers.one_less(ticket),
                Order::LetGo(leaver) => self.let_go_elsewhere(&leaver),
                // A stop that has ended already, by its deadline, is not begun again.
                Order::Stop { deadline } if self.stopping.is_no() => self.begin_stop(cx, deadline),
                Order::Stop { .. } => {}
                Order::Quiet => self.quiet += 1,
                Order::Leave => self.leave(cx),
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
    pub(super) fn departed(&mut self, id: ConnectionId, stream: TcpStream) {
        let Some(Conn { departure, login, peer, permit, .. }) = self.connections.remove(id) else { return };
        // Others were told to stop already; a connection would come too late.
        let Some(Departure { home, request }) = departure.filter(|_| self.stopping.is_no()) else { return };
        if let (Some(login), Some(permit)) = (login, permit) {
            let core = home.core();
            let arrival = Arrival { login, peer, permit, home, stream, request };
            self.post.send(core, Order::Take(Box::new(arrival)));
        }
    }

    fn take(&mut self, cx: &mut Context<'_>, Arrival { login, peer, permit, home, stream, request }: Arrival) {
        let id = match cx.adopt(stream) {
            Ok(id) => id,
            Err(error) => return tracing::warn!(%peer, %error, "cannot take on a connection"),
        };
        let mut conn = Conn::new(login, peer, permit);
        conn.home = Some(home);
        self.connections.insert(id, conn);
        self.admit_here(cx, id, *request);
    }

    // Aborts on several cores.

    /// Has all other cores end tasks, too. `barrier` learns when no store works for them any more.
    pub(super) fn abort_on_others(&mut self, barrier: BarrierKey, scope: &AbortScope) {
        for core in self.post.others() {
            self.barriers.one_more(barrier);
            let ticket = Ticket { core: self.post.me(), barrier };
            self.post.send(core, Order::Abort { ticket, scope: scope.clone() });
        }
    }

    /// Has all cores end what a login waits for. This one, too, may have got the connection before it has heard of the end of others.
    pub(super) fn abort_lost(&mut self, barrier: BarrierKey, scope: &AbortScope) {
        for core in 0..self.post.cores() {
            self.barriers.one_more(barrier);
            let ticket = Ticket { core: self.post.me(), barrier };
            self.post.send(core, Order::AbortLost { ticket, scope: scope.clone() });
        }
    }

    fn abort_for_another(&mut self, ticket: Ticket, scope: &AbortScope) {
        let keys = self.tasks.tasks_where(|task| scope.covers(task));
        let lost = self.tasks.nexuses_of(&keys);
        let affected = match scope {
            AbortScope::Unit { device, .. } | AbortScope::Target(device) => {
                self.raise_again(device, &keys);
                self.affected_by(&keys, None, None)
            }
            _ => Vec::new(),
        };
        let news = self.barriers.open(OnQuiesced::TellAffected { issuing: None, affected });
        let barrier = self.barriers.open(OnQuiesced::TellCore { ticket, lost });
        for key in keys {
            for barrier in [news, barrier] {
                self.abort_task(key, Some(barrier));
            }
        }
        self.barriers.close(news);
        self.barriers.close(barrier);
    }

    /// A reset on another core ends tasks here. It raised its unit attention when it began; who has seen that one already would
    /// wait in vain for tasks that came after it, and finds another one.
    fn raise_again(&mut self, device: &TargetDevice, keys: &[TaskKey]) {
        let tasks = keys.iter().filter_map(|key| self.tasks.get(*key)).filter(|task| !task.is_orphan());
        for task in tasks {
            let Some(conn) = self.connections.get(task.address().0) else { continue };
            if let Some(nexus) = &conn.nexus
                && device.query_asynchronous_event(task.lun().encode(), nexus) == PendingEvent::Nothing
            {
                device.commands_cleared(nexus, [task.lun()]);
            }
        }
    }
}
