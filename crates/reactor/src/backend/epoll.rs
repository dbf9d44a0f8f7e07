//! Readiness by epoll.

use std::io;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::{Event, Outgoing, send_by_calls};
use crate::counters::Counters;
use crate::datagram::{DatagramSocket, Ready};
use crate::slab::Key;
use crate::sockets::Connection;
use crate::sys::Moved;
use crate::waker::Waker;

/// Events taken from the system at once.
const MAX_EVENTS: usize = 256;

/// The owner of an event, as it is packed into the 64 bits that epoll keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Waker,
    Listener(Key),
    Connection(Key),
    Datagrams(Key),
}

impl Token {
    const LISTENER: u64 = 1 << 31;
    const DATAGRAMS: u64 = 1 << 30;

    fn pack(self) -> EventData {
        EventData::new_u64(match self {
            Self::Waker => u64::MAX,
            Self::Listener(key) => key.to_u64() | Self::LISTENER,
            Self::Connection(key) => key.to_u64(),
            Self::Datagrams(key) => key.to_u64() | Self::DATAGRAMS,
        })
    }

    fn unpack(data: EventData) -> Self {
        let bits = data.u64();
        let key = Key::from_u64(bits & !(Self::LISTENER | Self::DATAGRAMS));
        match bits {
            u64::MAX => Self::Waker,
            _ if bits & Self::LISTENER != 0 => Self::Listener(key),
            _ if bits & Self::DATAGRAMS != 0 => Self::Datagrams(key),
            _ => Self::Connection(key),
        }
    }
}

pub(crate) struct Epoll {
    descriptor: OwnedFd,
    waker: Waker,
    counters: Arc<Counters>,
}

impl Epoll {
    pub(super) fn new(waker: &Waker, counters: Arc<Counters>) -> io::Result<Self> {
        let descriptor = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&descriptor, waker, Token::Waker.pack(), EventFlags::IN)?;
        Ok(Self { descriptor, waker: waker.clone(), counters })
    }

    pub(super) fn wait(&self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let timeout = timeout.map(round_up);
        self.counters.system_calls.add(1);
        // Here and not kept: a reactor may change its thread before it runs, and these may not.
        let mut ready = [const { MaybeUninit::uninit() }; MAX_EVENTS];
        let ready: &[epoll::Event] = match epoll::wait(&self.descriptor, &mut ready, timeout.as_ref()) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in ready {
            // Copied, for the struct is packed.
            let flags = event.flags;
            match Token::unpack(event.data) {
                Token::Waker => {
                    self.counters.system_calls.add(1);
                    self.waker.clear_event();
                }
                Token::Listener(key) => events.push(Event::Acceptable(key)),
                Token::Connection(connection) => events.push(Event::Ready {
                    connection,
                    readable: flags.contains(EventFlags::IN),
                    writable: flags.contains(EventFlags::OUT),
                    failed: flags.intersects(EventFlags::ERR | EventFlags::HUP),
                    ended: None,
                }),
                Token::Datagrams(socket) => {
                    // A failure is received like datagrams.
                    let readable = flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP);
                    let ready = Ready { readable, writable: flags.contains(EventFlags::OUT), ended: None };
                    events.push(Event::Datagrams { socket, ready });
                }
            }
        }
        Ok(())
    }

    pub(super) fn add_listener(&self, key: Key, listener: &TcpListener, accepts: bool) -> io::Result<()> {
        Ok(epoll::add(&self.descriptor, listener, Token::Listener(key).pack(), listener_interest(accepts))?)
    }

    pub(crate) fn update_listener(&self, key: Key, listener: &TcpListener, accepts: bool) -> io::Result<()> {
        Ok(epoll::modify(&self.descriptor, listener, Token::Listener(key).pack(), listener_interest(accepts))?)
    }

    pub(super) fn remove_listener(&self, listener: &TcpListener) {
        self.counters.system_calls.add(1);
        // It was added and is still open, so it is there to be deleted.
        let _ = epoll::delete(&self.descriptor, listener);
    }

    pub(super) fn add_connection(&self, key: Key, connection: &mut Connection) -> io::Result<()> {
        connection.interest = wanted_interest(connection);
        self.counters.system_calls.add(1);
        Ok(epoll::add(&self.descriptor, &connection.stream, Token::Connection(key).pack(), connection.interest)?)
    }

    pub(super) fn update_connection(&self, key: Key, connection: &mut Connection) -> io::Result<()> {
        let wanted = wanted_interest(connection);
        if wanted != connection.interest {
            self.counters.system_calls.add(1);
            epoll::modify(&self.descriptor, &connection.stream, Token::Connection(key).pack(), wanted)?;
            connection.interest = wanted;
        }
        Ok(())
    }

    pub(super) fn add_datagrams(&self, key: Key, socket: &mut DatagramSocket) -> io::Result<()> {
        socket.interest = EventFlags::IN;
        self.counters.system_calls.add(1);
        Ok(epoll::add(&self.descriptor, &*socket, Token::Datagrams(key).pack(), socket.interest)?)
    }

    pub(super) fn update_datagrams(&self, key: Key, socket: &mut DatagramSocket) -> io::Result<()> {
        let mut wanted = EventFlags::IN;
        wanted.set(EventFlags::OUT, socket.blocked);
        if wanted != socket.interest {
            self.counters.system_calls.add(1);
            epoll::modify(&self.descriptor, &*socket, Token::Datagrams(key).pack(), wanted)?;
            socket.interest = wanted;
        }
        Ok(())
    }

    /// Sends with one system call.
    pub(super) fn send(&self, outgoing: &Outgoing<'_>) -> Moved {
        send_by_calls(outgoing, &self.counters)
    }

    pub(crate) fn remove_connection(&self, connection: &Connection) {
        self.counters.system_calls.add(1);
        // It was added and is still open, so it is there to be deleted.
        let _ = epoll::delete(&self.descriptor, &connection.stream);
    }
}

fn listener_interest(accepts: bool) -> EventFlags {
    if accepts { EventFlags::IN } else { EventFlags::empty() }
}

fn wanted_interest(connection: &Connection) -> EventFlags {
    let mut interest = EventFlags::empty();
    interest.set(EventFlags::IN, connection.receives());
    interest.set(EventFlags::OUT, connection.blocked);
    interest
}

/// Rounded up to what epoll counts in.
fn round_up(timeout: Duration) -> Timespec {
    let ms = timeout.as_nanos().div_ceil(1_000_000);
    let ms = i64::try_from(ms).unwrap_or(i64::MAX).min(i64::from(i32::MAX));
    Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        let key = Key { index: Token::DATAGRAMS as u32 - 2, generation: u32::MAX };
        for token in [Token::Waker, Token::Listener(key), Token::Connection(key), Token::Datagrams(key)] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }

    #[test]
    fn waits_are_rounded_up() {
        let wait = round_up(Duration::from_micros(10));
        assert_eq!((wait.tv_sec, wait.tv_nsec), (0, 1_000_000));
        let past = round_up(Duration::ZERO);
        assert_eq!((past.tv_sec, past.tv_nsec), (0, 0));
    }
}
