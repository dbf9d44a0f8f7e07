//! The target as it ships on the other end of a stream: what it is sent is up to the input, and what it sends is
//! checked.

mod inbound;
mod outbound;
mod rival;
mod server;
mod store;

#[cfg(test)]
use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[cfg(test)]
use lunette_pdu::Opcode;
use lunette_pdu::{BHS_LEN, Isid, LoginRequest, R2t, ScsiCommand, SerialNumber};
use lunette_scsi::OpCode;
use lunette_session::Authentication;
use lunette_session::keys::{Offer, Parameters};
use lunette_target::Moved;
use lunette_testkit::{Format, requests};

use self::inbound::Inbound;
use self::outbound::Outbound;
pub(crate) use self::rival::Rival;
pub(crate) use self::server::{Server, forget_idle_server};
use self::store::HELD_FROM;
use crate::marked::Stream;

/// The name of the one target.
pub const TARGET: &str = "iqn.2026-11.lunette:disk";

/// Pieces that the bytes of one call are cut into.
const MAX_PIECES: usize = 64;

/// Turns without a pause in which bytes move or the target has something to do. More would mean that it never comes to
/// rest.
const MAX_TURNS: usize = 10_000;

/// An initiator that has not taken this number of bytes may have stopped the target's reading, at a place that markers
/// move.
const MAX_UNREAD_BYTES: usize = 128 << 10;

/// A connection to the target.
pub struct Toy {
    server: Server,
    wire: UnixStream,
    rival: Option<Rival>,
    /// Bytes on their way to the target.
    unsent: Vec<u8>,
    /// Bytes from the target that have not been checked.
    unchecked: Vec<u8>,
    closed: bool,
    /// Whether the initiator takes what is sent to it.
    reading: bool,
    /// Whether it did not until now.
    paused: bool,
    /// Bytes that the target gets at a time.
    pub chunk_len: usize,
    received: Inbound,
    sent: Outbound,
    /// Markers in what the initiator sends.
    pub(crate) markers: Option<Stream>,
    /// A PDU was changed on its way.
    pub(crate) spoilt: bool,
    /// See [`MAX_UNREAD_BYTES`].
    stalled: bool,
}

/// The result of an input.
pub(crate) struct Played {
    /// The bytes sent after the login, without markers.
    pub(crate) transcript: Vec<u8>,
    /// The kinds of PDUs that the target has sent.
    #[cfg(test)]
    pub(crate) answers: HashSet<Opcode>,
    /// Requests that the store was asked to answer within the call.
    #[cfg(test)]
    pub(crate) asked_at_once: usize,
    /// Markers must make no difference.
    pub(crate) is_comparable: bool,
}

/// A login in one request, on the wire.
pub(crate) fn login_request(isid: Isid, cmd_sn: SerialNumber, keys: &str) -> Vec<u8> {
    let request = LoginRequest { isid, cmd_sn, data_segment_len: keys.len(), ..requests::login() };
    Format::PLAIN.encode(&request.emit(), &[], keys.as_bytes())
}

/// READ (16) or WRITE (16), held by the store or not.
pub(crate) fn block_cdb(opcode: OpCode, held: bool, blocks: u32) -> [u8; 16] {
    let lba = if held { HELD_FROM / 512 } else { 0 };
    let mut cdb = [0; 16];
    cdb[0] = opcode.0;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// A command that carries no data.
pub(crate) fn command(itt: u32, cmd_sn: SerialNumber, cdb: [u8; 16], read_len: u32) -> [u8; BHS_LEN] {
    ScsiCommand { read: read_len > 0, cmd_sn, cdb, ..requests::read(itt, read_len) }.emit()
}

impl Toy {
    /// A target with a new connection. With `refuse` logins are sent elsewhere.
    pub fn new(authentication: Authentication, initiators: Option<Vec<String>>, refuse: bool, offer: Offer) -> Self {
        let moved = refuse.then(|| Moved { addresses: vec!["192.0.2.8".into()], permanent: false });
        let mut server = Server::new(authentication, initiators, moved, offer);
        Self {
            wire: server.connect(),
            server,
            rival: None,
            unsent: Vec::new(),
            unchecked: Vec::new(),
            closed: false,
            reading: true,
            paused: false,
            chunk_len: usize::MAX,
            received: Inbound::default(),
            sent: Outbound::default(),
            markers: None,
            spoilt: false,
            stalled: false,
        }
    }

    /// Whether the login went through, ever.
    pub fn is_admitted(&self) -> bool {
        self.sent.admitted.is_some()
    }

    /// Whether the connection is over.
    pub fn is_closed(&self) -> bool {
        self.closed || self.server.stopped
    }

    /// The negotiated parameters.
    pub fn parameters(&self) -> Parameters {
        self.sent.admitted.clone().unwrap_or_default()
    }

    /// R2Ts that arrived and have not been taken.
    pub fn r2ts(&mut self) -> &mut Vec<R2t> {
        &mut self.sent.r2ts
    }

    /// The next number that the target expects of a command, as it told.
    pub fn exp_cmd_sn(&self) -> SerialNumber {
        self.sent.exp_cmd_sn.unwrap_or(SerialNumber(1))
    }

    /// The next StatSN, as far as the initiator can tell.
    pub fn stat_sn(&self) -> SerialNumber {
        self.sent.stat_sn.unwrap_or_default()
    }

    /// Bytes from the initiator.
    pub fn feed(&mut self, bytes: &[u8]) {
        let recovers = self.sent.admitted.as_ref().is_some_and(|parameters| parameters.error_recovery_level > 0);
        self.received.blind |= self.spoilt && recovers;
        self.received.follow(bytes);
        match &mut self.markers {
            Some(markers) => self.unsent.extend(markers.weave(bytes)),
            None => self.unsent.extend_from_slice(bytes),
        }
        self.pump();
    }

    /// The initiator takes what is sent to it from now on, or takes nothing more.
    pub fn set_reading(&mut self, reading: bool) {
        self.reading = reading;
        self.pump();
    }

    /// Whether the initiator takes what is sent to it.
    pub fn is_reading(&self) -> bool {
        self.reading
    }

    /// Lets time pass.
    pub fn wait(&mut self, duration: Duration) {
        self.pump();
        let end = self.server.now + duration;
        while let Some(next) = self.server.next.filter(|next| *next < end) {
            self.server.now = next;
            self.pump();
            assert!(self.server.next.is_none_or(|later| later > next), "what is due has been done");
        }
        self.server.now = end;
        self.pump();
    }

    /// Something happens at the target's end.
    pub fn happens(&mut self, happening: impl FnOnce(&mut Server)) {
        happening(&mut self.server);
        self.pump();
    }

    /// The target's configuration takes another segment length.
    pub fn renegotiate(&mut self, recv_data_segment_len: u32) {
        self.received.longest_segment = self.received.longest_segment.max(recv_data_segment_len);
        self.server.declare(recv_data_segment_len);
        self.pump();
    }

    /// Another initiator at the same target does something.
    pub fn rival_does(&mut self, something: impl FnOnce(&mut Rival)) {
        something(self.rival.get_or_insert_with(|| Rival::login(self.server.connect())));
        self.pump();
    }

    /// An initiator that falls silent is let go, whatever has happened, and nothing is left of it.
    /// Every command becomes a task from now on. A task has a place in a table, from which target transfer tags follow.
    pub(crate) fn answer_later(&self) {
        self.server.store.answer_later();
    }

    pub(crate) fn finish(mut self) -> Played {
        self.reading = true;
        self.server.store.open();
        self.wait(Duration::from_secs(3600));
        assert!(self.is_closed(), "a silent connection stays");
        let is_recovering = self.parameters().error_recovery_level > 0;
        #[cfg(test)]
        let asked_at_once = self.server.store.asked_at_once();
        self.server.retire();
        Played {
            transcript: self.sent.transcript,
            #[cfg(test)]
            answers: self.sent.opcodes,
            #[cfg(test)]
            asked_at_once,
            is_comparable: !self.spoilt && !self.stalled && !is_recovering,
        }
    }

    /// Moves bytes until nothing moves any more.
    fn pump(&mut self) {
        let piece = self.chunk_len.max(self.unsent.len() / MAX_PIECES).max(1);
        let mut turns = 0;
        loop {
            let mut moved = self.write(piece) | self.server.step() | self.read();
            moved |= self.rival.as_mut().is_some_and(Rival::read);
            if !moved {
                break;
            }
            turns += 1;
            assert!(turns < MAX_TURNS, "the target does not come to rest");
        }
        let arrived = std::mem::take(&mut self.unchecked);
        self.stalled |= self.paused && arrived.len() > MAX_UNREAD_BYTES;
        self.paused = !self.reading;
        let ended = self.is_closed();
        self.sent.take(&arrived, &mut self.received, ended);
        if self.markers.is_none()
            && let Some(parameters) = self.sent.admitted.as_ref().filter(|parameters| parameters.of_marker)
        {
            self.markers = Some(Stream::new(self.received.login_len, parameters.of_mark_int));
        }
    }

    /// Gives the target the next piece. `false` when there is none, or the target has no room for it.
    fn write(&mut self, piece: usize) -> bool {
        let len = self.unsent.len().min(piece);
        if len == 0 {
            return false;
        }
        match self.wire.write(&self.unsent[..len]) {
            Ok(len) => drop(self.unsent.drain(..len)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
            // The target has closed the connection.
            Err(_) => self.unsent.clear(),
        }
        true
    }

    /// Takes what the target has sent. `false` when that is nothing.
    fn read(&mut self) -> bool {
        if !self.reading || self.closed {
            return false;
        }
        let before = self.unchecked.len();
        let mut bytes = [0; 16 << 10];
        while let Ok(len) = self.wire.read(&mut bytes) {
            self.unchecked.extend_from_slice(&bytes[..len]);
            self.closed |= len == 0;
            if len < bytes.len() {
                break;
            }
        }
        self.closed || self.unchecked.len() > before
    }
}
