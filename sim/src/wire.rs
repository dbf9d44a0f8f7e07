//! Connections: two byte streams each, slow, cut to pieces, and broken by the faults.
//!
//! Each side has one end of a socket pair of the system, so its event loop works as it always does. The network holds
//! the other ends: what it reads from one travels under the virtual clock, and is written to the other one when it
//! arrives.

mod strike;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lunette_session::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;

use self::strike::{Strike, Walk, strikes};
use crate::env::{Env, Happening};
use crate::fault::{Fault, FaultKind};

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Target = 0,
    Initiator = 1,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Target => Self::Initiator,
            Self::Initiator => Self::Target,
        }
    }
}

pub(crate) type WireId = u64;

enum Piece {
    Bytes(Vec<u8>),
    /// Nothing follows.
    End,
}

/// One direction of a connection.
struct Pipe {
    /// Under way, with the time of its arrival.
    flight: VecDeque<(Time, Piece)>,
    /// At the receiver's socket.
    arrived: VecDeque<Vec<u8>>,
    /// The end of the stream has arrived.
    ended: bool,
    /// The receiver knows of the end, or is gone.
    finished: bool,
    /// Bytes in both.
    held: usize,
    /// When the last piece arrives: a stream keeps its order.
    last: Time,
    /// Whether everything sent is lost.
    dead: bool,
    /// Whether nothing sent arrives, and neither side is told.
    silent: bool,
    walk: Walk,
}

impl Pipe {
    fn new(walk: Walk) -> Self {
        Self {
            flight: VecDeque::new(),
            arrived: VecDeque::new(),
            ended: false,
            finished: false,
            held: 0,
            last: Time::default(),
            dead: false,
            silent: false,
            walk,
        }
    }

    fn ripen(&mut self, now: Time) {
        while self.flight.front().is_some_and(|(at, _)| *at <= now) {
            match self.flight.pop_front() {
                Some((_, Piece::Bytes(bytes))) => self.arrived.push_back(bytes),
                Some((_, Piece::End)) => self.ended = true,
                None => {}
            }
        }
    }

    /// The receiving side is gone.
    fn drain(&mut self) {
        self.flight.clear();
        self.arrived.clear();
        self.held = 0;
        (self.dead, self.finished) = (true, true);
    }

    /// The last pieces under way are lost; the end of the stream, which may be behind them, is not.
    fn lose(&mut self, pieces: usize) {
        let ends = matches!(self.flight.back(), Some((_, Piece::End)));
        let end = if ends { self.flight.pop_back() } else { None };
        for _ in 0..pieces {
            if let Some((_, Piece::Bytes(bytes))) = self.flight.pop_back() {
                self.held -= bytes.len();
            }
        }
        self.flight.extend(end);
    }
}

struct Wire {
    /// By the side that receives.
    pipes: [Pipe; 2],
    /// The ends opposite to those of the sides.
    sockets: [UnixStream; 2],
    /// By side: it sends nothing more.
    closed: [bool; 2],
}

impl Wire {
    /// Nothing moves on it any more.
    fn is_over(&self) -> bool {
        self.closed == [true; 2] && self.pipes.iter().all(|pipe| pipe.finished || pipe.silent)
    }

    /// How many bytes to take from a side now.
    fn room(&self, from: Side, capacity: usize) -> usize {
        let pipe = &self.pipes[from.other() as usize];
        if pipe.dead || self.closed[from.other() as usize] {
            // They are lost, and their end is still to be seen.
            MAX_TAKEN_BYTES
        } else {
            capacity.saturating_sub(pipe.held).min(MAX_TAKEN_BYTES)
        }
    }

    fn give(&mut self, id: WireId, to: Side, env: &mut Env) -> bool {
        let (pipe, mut socket) = (&mut self.pipes[to as usize], &self.sockets[to as usize]);
        let mut moved = false;
        while let Some(mut bytes) = pipe.arrived.pop_front() {
            match socket.write(&bytes) {
                Ok(len) => {
                    moved = true;
                    pipe.held -= len;
                    if len < bytes.len() {
                        pipe.arrived.push_front(bytes.split_off(len));
                        return true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    pipe.arrived.push_front(bytes);
                    return moved;
                }
                // The receiver is gone.
                Err(_) => {
                    pipe.drain();
                    return true;
                }
            }
        }
        if pipe.ended && !pipe.finished {
            env.note(|| format!("wire {id}: the {to:?} sees the end"));
            pipe.finished = true;
            // A receiver that is gone needs no end.
            let _ = socket.shutdown(Shutdown::Write);
            moved = true;
        }
        moved
    }
}

/// Bytes taken from a socket at once.
const MAX_TAKEN_BYTES: usize = 64 << 10;

/// All connections over streams, and the faults that wait for their moment.
#[derive(Default)]
pub(crate) struct Wires {
    all: BTreeMap<WireId, Wire>,
    last: WireId,
    armed: Vec<Fault>,
    /// By the side that receives: a byte was changed.
    damaged: [bool; 2],
}

impl Wires {
    /// Whether nothing moves on any connection any more.
    pub(crate) fn is_still(&self) -> bool {
        self.all.values().all(Wire::is_over)
    }

    /// A fault waits from now on.
    pub(crate) fn arm(&mut self, fault: Fault) {
        self.armed.push(fault);
    }

    /// An attempt to connect: the streams of a new connection by side, or nothing when it is refused.
    pub(crate) fn connect(&mut self, env: &mut Env) -> Option<[TcpStream; 2]> {
        if let Some(at) = self.armed.iter().position(|fault| fault.kind == FaultKind::RefusedDial) {
            let fault = self.armed.swap_remove(at);
            env.tally.fault(fault.kind, fault.to);
            env.note(|| "a dial is refused".into());
            return None;
        }
        match self.pair(env) {
            Ok(streams) => Some(streams),
            Err(error) => {
                env.fail(format!("the system has no socket pair: {error}"));
                None
            }
        }
    }

    /// The streams of a new connection, by side.
    fn pair(&mut self, env: &mut Env) -> io::Result<[TcpStream; 2]> {
        let (target, to_target) = UnixStream::pair()?;
        let (initiator, to_initiator) = UnixStream::pair()?;
        for socket in [&to_target, &to_initiator] {
            socket.set_nonblocking(true)?;
        }
        for socket in [&target, &initiator] {
            set_socket_send_buffer_size(socket, env.scenario.weather.capacity.min(MAX_TAKEN_BYTES))?;
        }
        self.last += 1;
        let transport = env.scenario.transport;
        let pipes = [Side::Target, Side::Initiator].map(|to| Pipe::new(Walk::new(transport, to)));
        let wire = Wire { pipes, sockets: [to_target, to_initiator], closed: [false; 2] };
        self.all.insert(self.last, wire);
        let id = self.last;
        env.note(|| format!("wire {id} is there"));
        Ok([target, initiator].map(|stream| TcpStream::from(OwnedFd::from(stream))))
    }

    /// Gives the sides what has arrived. `false` when there was nothing.
    pub(crate) fn give(&mut self, env: &mut Env) -> bool {
        let mut moved = false;
        for (id, wire) in &mut self.all {
            for side in [Side::Target, Side::Initiator] {
                moved |= wire.give(*id, side, env);
            }
        }
        moved
    }

    /// Takes what the sides have sent, which is under way from now on.
    pub(crate) fn take(&mut self, env: &mut Env) {
        let capacity = env.scenario.weather.capacity;
        let open = self.all.iter().flat_map(|(id, wire)| {
            let open = [Side::Target, Side::Initiator].into_iter().filter(|side| !wire.closed[*side as usize]);
            open.map(|side| (*id, side, wire.room(side, capacity), &wire.sockets[side as usize]))
        });
        let ends: Vec<_> = open.collect();
        // A side that has closed its socket is told of in any case.
        let interest = |room| if room > 0 { PollFlags::IN } else { PollFlags::empty() };
        let mut polled: Vec<_> =
            ends.iter().map(|(_, _, room, socket)| PollFd::new(*socket, interest(*room))).collect();
        if let Err(error) = poll(&mut polled, Some(&Timespec::default())) {
            return env.fail(format!("the system does not look at sockets: {error}"));
        }
        let ready = ends.iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
        let ready: Vec<_> = ready
            .map(|((id, side, room, _), _)| (*id, *side, if *room > 0 { *room } else { MAX_TAKEN_BYTES }))
            .collect();
        for (id, side, room) in ready {
            self.take_from(id, side, room, env);
        }
        self.all.retain(|_, wire| !wire.is_over());
    }

    fn take_from(&mut self, id: WireId, from: Side, room: usize, env: &mut Env) {
        let Some(wire) = self.all.get_mut(&id) else { return };
        let mut bytes = vec![0; room];
        match (&wire.sockets[from as usize]).read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => {
                env.note(|| format!("wire {id}: the {from:?} closes"));
                wire.closed[from as usize] = true;
                end(&mut wire.pipes[from.other() as usize], id, from.other(), env);
            }
            Ok(len) => {
                bytes.truncate(len);
                self.send(id, from, bytes, env);
            }
        }
    }

    // Receiving.

    pub(crate) fn arrive(&mut self, id: WireId, to: Side, now: Time) {
        if let Some(wire) = self.all.get_mut(&id) {
            wire.pipes[to as usize].ripen(now);
        }
    }

    /// Whether a byte of a stream to this side was ever changed.
    pub(crate) fn has_damaged(&self, to: Side) -> bool {
        self.damaged[to as usize]
    }

    // Sending.

    fn send(&mut self, id: WireId, from: Side, mut bytes: Vec<u8>, env: &mut Env) {
        let to = from.other();
        let Some(wire) = self.all.get_mut(&id) else { return };
        env.tally.bytes += bytes.len() as u64;
        let pipe = &mut wire.pipes[to as usize];
        let (flips, login_ended) = pipe.walk.places_to_strike(&mut self.armed, id, to, &bytes, env);
        // Only now: a damaged header must not lead the walk astray.
        for (place, mask) in flips {
            bytes[place] ^= mask;
            self.damaged[to as usize] = true;
        }
        if login_ended {
            // The initiator waits for this answer, so nothing is under way in the other direction.
            wire.pipes[from as usize].walk.enter_full_feature(env.scenario.format);
        }
        if wire.pipes[to as usize].dead {
            return;
        }
        let mut ends = None;
        for (fault, strike) in strikes(&mut self.armed, to, bytes.len(), env) {
            let pipe = &mut wire.pipes[to as usize];
            env.tally.fault(fault, to);
            env.note(|| format!("wire {id} to the {to:?}: {}", fault.name()));
            match strike {
                Strike::Hold { span } => pipe.last = pipe.last.max(env.now) + span,
                Strike::Silence => pipe.silent = true,
                Strike::End { at, kind } => {
                    bytes.truncate(at);
                    ends = Some(kind);
                    break;
                }
            }
        }
        push(&mut wire.pipes[to as usize], id, to, &bytes, env);
        if let Some(kind) = ends {
            end(&mut wire.pipes[to as usize], id, to, env);
            if kind == FaultKind::Cut {
                let back = &mut wire.pipes[from as usize];
                back.lose(env.dice.place(back.flight.len() + 1));
                end(back, id, from, env);
            }
        }
    }
}

/// Cuts bytes to pieces that arrive one after the other.
fn push(pipe: &mut Pipe, id: WireId, to: Side, bytes: &[u8], env: &mut Env) {
    let weather = env.scenario.weather;
    let mut rest = bytes;
    while !rest.is_empty() {
        // Now and then a stream is cut very finely.
        let most = if env.dice.one_in(8) { 60 } else { weather.piece };
        let len = (env.dice.between(1, most) as usize).min(rest.len());
        let (piece, left) = rest.split_at(len);
        rest = left;
        pipe.held += piece.len();
        enter(pipe, id, to, Piece::Bytes(piece.to_vec()), env);
    }
}

fn enter(pipe: &mut Pipe, id: WireId, to: Side, piece: Piece, env: &mut Env) {
    let weather = env.scenario.weather;
    let span = Duration::from_micros(weather.latency_us) + env.dice.micros(0, weather.jitter_us);
    let at = (env.now + span).max(pipe.last);
    pipe.last = at;
    if !pipe.silent {
        pipe.flight.push_back((at, piece));
        env.enter(at, Happening::Arrive(id, to));
    }
}

/// Nothing follows in this direction.
fn end(pipe: &mut Pipe, id: WireId, to: Side, env: &mut Env) {
    if !std::mem::replace(&mut pipe.dead, true) {
        enter(pipe, id, to, Piece::End, env);
    }
}
