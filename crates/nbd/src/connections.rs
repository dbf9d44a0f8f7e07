//! The connections that a server has at the moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::Shutdown;

use crate::limits::{MAX_CONNECTIONS, MAX_GIVEN_UP};
use crate::socket::Socket;

/// The connections that exist now.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stopping: bool,
    next: u64,
    /// By age.
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    socket: Arc<Socket>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No export is named yet.
    Negotiating,
    /// An export is named, and the connection may stay.
    Agreed,
    /// Another connection gets its place. Its thread may still wait for something.
    GivenUp,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection; `None` when there is no room or the server stops. Where others fill the room that
    /// have not named their export yet, the oldest of these gives way.
    pub(crate) fn enter(self: &Arc<Self>, socket: Socket) -> Option<Connection> {
        let mut state = self.lock();
        if state.is_stopping || !state.make_room() {
            return None;
        }
        let socket = Arc::new(socket);
        let number = state.next;
        state.next += 1;
        state.open.insert(number, Open { socket: Arc::clone(&socket), phase: Phase::Negotiating });
        Some(Connection { number, socket, all: Arc::clone(self) })
    }

    /// Lets no more in, and ends what they send.
    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.shut_down(Shutdown::Read);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Waits until all have left, or the time is over. True when they have left.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let waited = self.left.wait_timeout_while(self.lock(), limit, |state| !state.open.is_empty());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.open.is_empty()
    }

    pub(crate) fn shut_down(&self, how: Shutdown) {
        self.lock().open.values().for_each(|open| open.socket.shut_down(how));
    }
}

impl State {
    /// Whether there is room for one more.
    fn make_room(&mut self) -> bool {
        let given_up = self.open.values().filter(|open| open.phase == Phase::GivenUp).count();
        if self.open.len() - given_up < MAX_CONNECTIONS {
            return true;
        }
        let mut open = self.open.values_mut();
        let oldest = open.find(|open| open.phase == Phase::Negotiating).filter(|_| given_up < MAX_GIVEN_UP);
        let Some(oldest) = oldest else { return false };
        tracing::warn!("more than {MAX_CONNECTIONS} connections: the oldest that negotiates is closed");
        oldest.phase = Phase::GivenUp;
        oldest.socket.shut_down(Shutdown::Both);
        true
    }
}

/// A connection. It counts until it is dropped.
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) socket: Arc<Socket>,
    all: Arc<Connections>,
}

impl Connection {
    /// Notes that the client has named an export that it may use.
    pub(crate) fn has_agreed(&self) {
        let mut state = self.all.lock();
        if let Some(open) = state.open.get_mut(&self.number).filter(|open| open.phase == Phase::Negotiating) {
            open.phase = Phase::Agreed;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.socket.shut_down(Shutdown::Both);
        self.all.lock().open.remove(&self.number);
        self.all.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn enter(all: &Arc<Connections>) -> (Option<Connection>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        (all.enter(ours.into()), theirs)
    }

    #[test]
    fn a_client_that_leaves_makes_room_for_another() {
        let all: Arc<Connections> = Arc::default();
        let enter = || enter(&all).0.inspect(Connection::has_agreed);
        let mut inside: Vec<_> = (0..MAX_CONNECTIONS).map(|_| enter().expect("room")).collect();
        assert!(enter().is_none());
        inside.pop();
        assert!(enter().is_some());
    }

    #[test]
    fn clients_that_say_nothing_do_not_keep_others_out() {
        let all: Arc<Connections> = Arc::default();
        let served = enter(&all);
        served.0.as_ref().expect("room").has_agreed();
        let mut silent: Vec<_> = (1..MAX_CONNECTIONS).map(|_| enter(&all)).collect();
        let late = enter(&all);
        assert!(late.0.is_some());
        assert_eq!(silent[0].1.read(&mut [0]).expect("an end"), 0, "the oldest gives way");
        let more: Vec<_> = (0..MAX_CONNECTIONS).map(|_| enter(&all)).take_while(|(ours, _)| ours.is_some()).collect();
        assert_eq!(more.len(), MAX_GIVEN_UP - 1, "those that have not ended yet are bounded, too");
        drop((silent, more));
        assert!(!all.wait(Duration::ZERO), "two are left");
        drop((served, late));
        assert!(all.wait(Duration::ZERO));
    }
}
