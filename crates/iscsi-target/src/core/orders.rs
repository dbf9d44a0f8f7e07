//! What cores ask of each other, and how they obey.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use lunette_device::{NexusId, PendingEvent, TargetDevice};
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::AdmitRequest;

use super::Core;
use super::aborts::Doomed;
use super::barrier::{BarrierKey, Behind};
use super::connection::Conn;
use super::homes::Home;
use super::leaving::Leaver;
use super::running::TaskKey;
use super::updates::News;

/// A letter.
pub(crate) enum Order {
    /// The session of this connection lives on your core.
    Take(Box<Arrival>),
    /// End these tasks, and say so when no store works for them any more.
    Abort { ticket: Ticket, doomed: Doomed },
    /// The same for a login, whose initiator may have closed connections before it: look at them first.
    AbortLost { ticket: Ticket, doomed: Doomed },
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
    conn: Conn,
    stream: TcpStream,
    request: Box<AdmitRequest>,
}

/// Where a connection is to go.
pub(super) struct Departure {
    pub(super) home: Home,
    pub(super) request: Box<AdmitRequest>,
}

impl Core {
    pub(super) fn obey_orders(&mut self, cx: &mut Context<'_>) {
        for order in self.post.take() {
            match order {
                Order::Take(arrival) => self.take(cx, *arrival),
                Order::Abort { ticket, doomed } => self.abort_for_another(ticket, &doomed),
                // This batch may have begun before; the next one brings all that was closed by now.
                Order::AbortLost { ticket, doomed } => {
                    self.post.send(self.post.me(), Order::Abort { ticket, doomed });
                }
                Order::Aborted { ticket, lost } => {
                    self.barriers.add_lost(ticket, lost);
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
        let Some(mut conn) = self.connections.remove(id) else { return };
        // Others were told to stop already; a connection would come too late.
        let Some(Departure { home, request }) = conn.departure.take().filter(|_| self.stopping.is_no()) else { return };
        let core = home.core();
        conn.home = Some(home);
        self.post.send(core, Order::Take(Box::new(Arrival { conn, stream, request })));
    }

    fn take(&mut self, cx: &mut Context<'_>, Arrival { mut conn, stream, request }: Arrival) {
        let id = match cx.adopt(stream) {
            Ok(id) => id,
            Err(error) => return tracing::warn!(peer = %conn.peer, %error, "cannot take on a connection"),
        };
        conn.arrive();
        self.connections.insert(id, conn);
        self.admit_here(cx, id, *request);
    }

    // Aborts on several cores.

    /// Has all other cores end tasks, too. `barrier` learns when no store works for them any more.
    pub(super) fn abort_on_others(&mut self, barrier: BarrierKey, doomed: &Doomed) {
        for core in self.post.others() {
            self.barriers.one_more(barrier);
            let ticket = Ticket { core: self.post.me(), barrier };
            self.post.send(core, Order::Abort { ticket, doomed: doomed.clone() });
        }
    }

    /// Has all cores end what a login waits for. This one, too, may have got the connection before it has heard of the end of others.
    pub(super) fn abort_lost(&mut self, barrier: BarrierKey, doomed: &Doomed) {
        for core in 0..self.post.cores() {
            self.barriers.one_more(barrier);
            let ticket = Ticket { core: self.post.me(), barrier };
            self.post.send(core, Order::AbortLost { ticket, doomed: doomed.clone() });
        }
    }

    fn abort_for_another(&mut self, ticket: Ticket, doomed: &Doomed) {
        let keys = self.tasks_where(|task| doomed.covers(task));
        let lost = self.nexuses_of(&keys);
        let affected = match doomed {
            Doomed::OfUnit { device, .. } | Doomed::OfTarget(device) => {
                self.raise_again(device, &keys);
                self.affected_by(&keys, None, None)
            }
            _ => Vec::new(),
        };
        let news = self.barriers.open(Behind::News { issuing: None, affected });
        let barrier = self.barriers.open(Behind::Order { ticket, lost });
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
            let Some(conn) = self.connections.get(task.connection) else { continue };
            if let Some(nexus) = &conn.nexus
                && device.query_asynchronous_event(task.lun.encode(), nexus) == PendingEvent::Nothing
            {
                device.commands_cleared(nexus, [task.lun]);
            }
        }
    }
}
