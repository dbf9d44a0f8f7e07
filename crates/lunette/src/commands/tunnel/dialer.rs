//! Connections to portals: names and connects wait on a few threads.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use lunette_initiator::{ClientTls, Portal, TcpOptions};
use lunette_reactor::{Flow, Job, Stream, ThreadPool, Waker};

use super::limits::{CONNECT_THREADS, MAX_CONNECTIONS};

/// Makes connections, and wakes the event loop with each.
pub(super) struct Dialer {
    threads: ThreadPool,
    how: Arc<How>,
    dialed: (Sender<Dialed>, Receiver<Dialed>),
    waker: Waker,
}

/// How portals are reached.
struct How {
    tls: ClientTls,
    tcp: TcpOptions,
}

/// A connection that was asked for, or why there is none.
pub(super) struct Dialed {
    /// The number under which it was asked for.
    pub(super) number: u64,
    pub(super) result: io::Result<Stream>,
}

impl Dialer {
    pub(super) fn start(tls: &ClientTls, tcp: &TcpOptions, waker: Waker) -> io::Result<Self> {
        let how = Arc::new(How { tls: tls.clone(), tcp: tcp.clone() });
        let threads = ThreadPool::new("lunette-connect", CONNECT_THREADS, MAX_CONNECTIONS)?;
        Ok(Self { threads, how, dialed: mpsc::channel(), waker })
    }

    /// The waker of the event loop.
    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Begins a connection to a portal. One that cannot begin before `deadline` is given up.
    pub(super) fn dial(&self, number: u64, portal: Portal, deadline: Instant) {
        let (how, sender, waker) = (Arc::clone(&self.how), self.dialed.0.clone(), self.waker.clone());
        let work: Job = Box::new(move || {
            let left = deadline.saturating_duration_since(Instant::now());
            let result = if left.is_zero() {
                Err(io::ErrorKind::TimedOut.into())
            } else {
                how.tls.connect(&portal, left, &how.tcp)
            };
            // The event loop may have ended.
            let _ = sender.send(Dialed { number, result });
            waker.wake();
        });
        if self.threads.spawn(Flow::default(), work).is_err() {
            let result = Err(io::Error::other("too many connections are being made"));
            let _ = self.dialed.0.send(Dialed { number, result });
            self.waker.wake();
        }
    }

    /// The next connection that has been made.
    pub(super) fn next(&self) -> Option<Dialed> {
        self.dialed.1.try_recv().ok()
    }
}
