//! Connections to portals. Each attempt has a thread of its own, because a portal that does not answer must not delay
//! others.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

use lunette_initiator::{ClientTls, Portal, TcpOptions};
use lunette_reactor::{Stream, Waker};

use super::limits::MAX_DIALS;

/// Makes connections, and wakes the event loop with each.
pub(super) struct Dialer {
    /// Each thread holds one, so that they can be counted.
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
    pub(super) fn new(tls: &ClientTls, tcp: &TcpOptions, waker: Waker) -> Self {
        let how = Arc::new(How { tls: tls.clone(), tcp: tcp.clone() });
        Self { how, dialed: mpsc::channel(), waker }
    }

    /// The waker of the event loop.
    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Begins a connection to a portal, which is given up after `deadline`.
    pub(super) fn dial(&self, number: u64, portal: Portal, deadline: Instant) {
        if Arc::strong_count(&self.how) > MAX_DIALS {
            return self.refuse(
                number,
                io::Error::other("too many connections are being made; see which portal does not answer"),
            );
        }
        let (how, sender, waker) = (Arc::clone(&self.how), self.dialed.0.clone(), self.waker.clone());
        let work = move || {
            let left = deadline.saturating_duration_since(Instant::now());
            let result = how.tls.connect(&portal, left, &how.tcp);
            // The event loop may have ended.
            let _ = sender.send(Dialed { number, result });
            waker.wake();
        };
        if let Err(error) = thread::Builder::new().name("lunette-connect".into()).spawn(work) {
            self.refuse(number, error);
        }
    }

    /// Answers an attempt that was not made.
    fn refuse(&self, number: u64, error: io::Error) {
        let _ = self.dialed.0.send(Dialed { number, result: Err(error) });
        self.waker.wake();
    }

    /// The next connection that has been made.
    pub(super) fn next(&self) -> Option<Dialed> {
        self.dialed.1.try_recv().ok()
    }
}
