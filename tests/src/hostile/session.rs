//! A hostile initiator's knowledge of one of its sessions: enough for its lies to be near the truth.

use std::net::SocketAddr;
use std::time::Duration;

use lunette_pdu::{
    BHS_LEN, Cid, InitiatorTaskTag, Isid, LunField, NopOut, R2t, SerialNumber, TargetPdu, TargetTransferTag, Tsih,
};
use lunette_testkit::{Pdu, keys as text, requests, stat_sn_of};

use super::dice::Dice;
use super::login::{self, Port};
use super::wire::{Received, Sent, Wire};

/// The longest wait for the answer to a login. Logins that wait for lost tasks may take longer; then the walk continues
/// without the answer.
const LOGIN_LIMIT: Duration = Duration::from_millis(500);

/// The longest wait for the target to take bytes.
pub(super) const SEND_LIMIT: Duration = Duration::from_millis(50);

/// The number of R2Ts, pings and tasks that are remembered.
const REMEMBERED: usize = 32;

/// The ExpStatSN that a connection sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acknowledge {
    All,
    /// Always the number from the login.
    Nothing,
    /// Some number near the right one.
    Anything,
}

pub(super) const ACKNOWLEDGES: [Acknowledge; 5] =
    [Acknowledge::All, Acknowledge::All, Acknowledge::Nothing, Acknowledge::Nothing, Acknowledge::Anything];

/// A connection of a hostile session.
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) cid: Cid,
    pub(super) acknowledge: Acknowledge,
    /// Whether it reads nothing.
    pub(super) is_deaf: bool,
    first_stat_sn: SerialNumber,
    stat_sn: SerialNumber,
}

impl Connection {
    pub(super) fn exp_stat_sn(&self, dice: &mut Dice) -> SerialNumber {
        match self.acknowledge {
            Acknowledge::All => self.stat_sn,
            Acknowledge::Nothing => self.first_stat_sn,
            Acknowledge::Anything => SerialNumber(self.stat_sn.0.wrapping_add(dice.word() % 5).wrapping_sub(2)),
        }
    }
}

/// A task that has been started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) itt: InitiatorTaskTag,
    pub(super) cmd_sn: SerialNumber,
    pub(super) lun: LunField,
}

/// A session, as its hostile initiator sees it.
pub(super) struct Session {
    pub(super) isid: Isid,
    pub(super) tsih: Tsih,
    pub(super) cmd_sn: SerialNumber,
    pub(super) connections: Vec<Connection>,
    /// R2Ts and their connections, newest last.
    pub(super) r2ts: Vec<(Cid, R2t)>,
    pub(super) pings: Vec<(Cid, TargetTransferTag)>,
    pub(super) tasks: Vec<Task>,
    /// Command numbers that were left out.
    pub(super) gaps: Vec<SerialNumber>,
    next_itt: u32,
    next_cid: u16,
}

impl Session {
    pub(super) fn new(isid: Isid) -> Self {
        Self {
            isid,
            tsih: Tsih::NEW,
            cmd_sn: SerialNumber(1),
            connections: Vec::new(),
            r2ts: Vec::new(),
            pings: Vec::new(),
            tasks: Vec::new(),
            gaps: Vec::new(),
            next_itt: 1,
            next_cid: 0,
        }
    }

    /// Opens a connection, with a new CID unless one is given. Returns a description of the result.
    pub(super) fn connect(
        &mut self,
        address: SocketAddr,
        dice: &mut Dice,
        names: &[(&str, &str)],
        cid: Option<Cid>,
    ) -> String {
        let is_first = self.tsih == Tsih::NEW;
        let keys = text(names) + &login::draw_keys(dice, is_first);
        let acknowledge = dice.pick(&ACKNOWLEDGES);
        let is_deaf = dice.one_in(12);
        let cid = cid.unwrap_or_else(|| {
            self.next_cid += 1;
            Cid(self.next_cid)
        });
        let port = Port { isid: self.isid, tsih: self.tsih, cid, cmd_sn: self.cmd_sn };
        let shown = keys.replace('\0', " ");
        let mut wire = match Wire::connect(address) {
            Ok(wire) => wire,
            Err(error) => return format!("no connection: {error}"),
        };
        match login::log_in(&mut wire, port, &keys, LOGIN_LIMIT) {
            Ok((response, _)) if response.status.is_success() && response.transit => {
                self.tsih = response.tsih;
                let first_stat_sn = response.stat_sn.next();
                let stat_sn = first_stat_sn;
                self.connections.retain(|connection| connection.cid != cid);
                self.connections.push(Connection { wire, cid, acknowledge, is_deaf, first_stat_sn, stat_sn });
                format!("{port:?} {shown}acknowledges {acknowledge:?}, deaf: {is_deaf}")
            }
            Ok((response, _)) => format!("{port:?} {shown}refused: {}", response.status),
            Err(error) => format!("{port:?} {shown}failed: {error}"),
        }
    }

    /// The number for a request, sometimes not the next one.
    pub(super) fn number(&mut self, dice: &mut Dice, is_immediate: bool) -> SerialNumber {
        if !is_immediate && !self.gaps.is_empty() && dice.one_in(3) {
            return self.gaps.swap_remove(dice.below(self.gaps.len()));
        }
        if dice.mishap(60) {
            return SerialNumber(self.cmd_sn.0.wrapping_add(dice.word() % 40).wrapping_sub(20));
        }
        if dice.mishap(60) && self.gaps.len() < REMEMBERED {
            self.gaps.push(self.cmd_sn);
            self.cmd_sn = self.cmd_sn.next();
        }
        let number = self.cmd_sn;
        if !is_immediate {
            self.cmd_sn = number.next();
        }
        number
    }

    /// A new tag, or rarely a used one.
    pub(super) fn new_tag(&mut self, dice: &mut Dice) -> InitiatorTaskTag {
        if dice.mishap(50) {
            return self.some_tag(dice);
        }
        self.next_itt += 1;
        InitiatorTaskTag(self.next_itt)
    }

    /// The tag of a task that was started, or any tag.
    pub(super) fn some_tag(&self, dice: &mut Dice) -> InitiatorTaskTag {
        if self.tasks.is_empty() || dice.one_in(6) {
            let any = InitiatorTaskTag(dice.word());
            return dice.pick(&[any, InitiatorTaskTag::RESERVED, InitiatorTaskTag(0)]);
        }
        self.tasks[dice.below(self.tasks.len())].itt
    }

    pub(super) fn remember(&mut self, task: Task) {
        if self.tasks.len() == REMEMBERED {
            self.tasks.remove(0);
        }
        self.tasks.push(task);
    }

    /// Sends a PDU on a connection, which is forgotten when it is gone.
    pub(super) fn send(&mut self, at: usize, header: &[u8; BHS_LEN], data: &[u8]) -> Sent {
        let bytes = self.connections[at].wire.encode(header, data);
        self.send_bytes(at, &bytes)
    }

    pub(super) fn send_bytes(&mut self, at: usize, bytes: &[u8]) -> Sent {
        let sent = self.connections[at].wire.send(bytes, SEND_LIMIT);
        if sent == Sent::Lost {
            self.connections.remove(at);
        }
        sent
    }

    /// Takes the PDUs that have arrived on all connections that are not deaf, and waits briefly for more. `say` gets a
    /// description of each.
    pub(super) fn listen(&mut self, limit: Duration, mut say: impl FnMut(&str)) {
        let mut left = limit;
        for at in (0..self.connections.len()).rev() {
            // Few answers have more PDUs than this.
            for _ in 0..256 {
                if self.connections[at].is_deaf {
                    break;
                }
                match self.connections[at].wire.receive(left) {
                    Received::Pdu(pdu) => {
                        say(&format!("connection {}: {:?}, {} bytes", self.connections[at].cid, pdu.0, pdu.1.len()));
                        self.learn(at, &pdu);
                    }
                    Received::Nothing => break,
                    Received::End => {
                        say(&format!("connection {}: it has ended", self.connections[at].cid));
                        self.connections.remove(at);
                        break;
                    }
                }
                // Only the first answer is waited for; others have arrived by then, or arrive with the next call.
                left = Duration::ZERO;
            }
        }
    }

    fn learn(&mut self, at: usize, (pdu, _): &Pdu) {
        let connection = &mut self.connections[at];
        let cid = connection.cid;
        if let Some(stat_sn) = stat_sn_of(pdu) {
            connection.stat_sn = stat_sn.next();
        }
        match pdu {
            TargetPdu::R2t(r2t) if self.r2ts.len() < REMEMBERED => self.r2ts.push((cid, *r2t)),
            TargetPdu::NopIn(ping) if !ping.ttt.is_reserved() && self.pings.len() < REMEMBERED => {
                self.pings.push((cid, ping.ttt));
            }
            _ => {}
        }
    }

    /// The connection with this CID, or any.
    pub(super) fn find(&self, cid: Cid, dice: &mut Dice) -> usize {
        let found = self.connections.iter().position(|connection| connection.cid == cid);
        found.unwrap_or_else(|| dice.below(self.connections.len()))
    }

    /// Answers a ping as a correct initiator does.
    pub(super) fn answer_pings(&mut self) {
        for (cid, ttt) in std::mem::take(&mut self.pings) {
            let Some(at) = self.connections.iter().position(|connection| connection.cid == cid) else { continue };
            let exp_stat_sn = self.connections[at].first_stat_sn;
            let pong = NopOut { cmd_sn: self.cmd_sn, exp_stat_sn, ..requests::pong(ttt) };
            self.send(at, &pong.emit(), &[]);
        }
    }
}
