//! A well-behaved initiator beside the hostile ones, whose requests must be answered.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use lunette_pdu::{
    Cid, InitiatorTaskTag, Isid, LogoutReason, LogoutRequest, NopOut, ScsiCommand, SerialNumber, TargetPdu, Tsih,
};
use lunette_testkit::{keys as text, requests};

use super::login::{self, Port};
use super::server::STARVED_AFTER;
use super::wire::{Received, Sent, Wire};

/// The name of all witnesses, which the private target admits.
pub(super) const NAME: &str = "iqn.2026-11.org.example:witness";

/// The longest time for a login and TEST UNIT READY on a new connection. A server that takes longer hangs.
pub(super) const HUNG_AFTER: Duration = Duration::from_secs(10);

/// A command on the shared target without an answer for this long may have been aborted by another initiator; then TEST
/// UNIT READY checks whether the logical unit still answers.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Rounds of one session; each writes a block and reads it back. Then a new session logs in.
const ROUNDS: u32 = 100;

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(4);

const BLOCK_LEN: usize = 4096;
const BLOCKS: u32 = 256;

const TEST_UNIT_READY: [u8; 10] = [0; 10];

/// The complaint of a witness, and the time since which it waits.
#[derive(Debug)]
pub(super) struct Complaint {
    pub(super) what: Trouble,
    pub(super) since: Instant,
}

#[derive(Debug)]
pub(super) enum Trouble {
    /// No login, or no answer to TEST UNIT READY after it.
    Hang(String),
    /// A small request has no answer, while logins are answered.
    Starved(String),
    /// An impossible answer, or the loss of an undisturbed connection.
    Wrong(String),
}

/// The end of a command.
enum Answer {
    Status { status: u8, data: Vec<u8> },
    Nothing,
    End,
}

/// A session with one connection.
pub(super) struct Witness {
    wire: Wire,
    cmd_sn: SerialNumber,
    stat_sn: SerialNumber,
    next_itt: u32,
}

impl Witness {
    /// Logs in and takes the unit attention of a new session.
    pub(super) fn attach(address: SocketAddr, target: &str) -> Result<Self, Complaint> {
        let since = Instant::now();
        let hang = |why: String| Complaint { what: Trouble::Hang(why), since };
        let mut witness =
            Self::log_in(address, target).map_err(|error| hang(format!("no login to {target}: {error}")))?;
        match witness.command(0, TEST_UNIT_READY, &[], 0, HUNG_AFTER) {
            Answer::Status { .. } => Ok(witness),
            Answer::Nothing | Answer::End => {
                Err(hang(format!("no answer to TEST UNIT READY of a new session at {target}")))
            }
        }
    }

    fn log_in(address: SocketAddr, target: &str) -> io::Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let mut wire = Wire::connect(address)?;
        let isid = Isid::random(0x77_6974, NEXT.fetch_add(1, Ordering::Relaxed));
        let port = Port { isid, tsih: Tsih::NEW, cid: Cid(0), cmd_sn: SerialNumber(1) };
        let names = [("InitiatorName", NAME), ("SessionType", "Normal"), ("TargetName", target)];
        let keys = text(&names) + &text(&[("ImmediateData", "Yes"), ("DataDigest", "CRC32C")]);
        let (response, _) = login::log_in(&mut wire, port, &keys, HUNG_AFTER)?;
        if !response.status.is_success() {
            return Err(io::Error::other(response.status.to_string()));
        }
        Ok(Self { wire, cmd_sn: SerialNumber(1), stat_sn: response.stat_sn.next(), next_itt: 0 })
    }

    /// Runs a command whose data is sent with it.
    fn command(&mut self, lun: u16, cdb: [u8; 10], data_out: &[u8], data_in_len: usize, limit: Duration) -> Answer {
        self.next_itt += 1;
        let itt = InitiatorTaskTag(self.next_itt);
        let command = ScsiCommand {
            read: data_in_len > 0,
            write: !data_out.is_empty(),
            lun: requests::lun(lun),
            expected_data_transfer_length: data_in_len.max(data_out.len()) as u32,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.stat_sn,
            cdb: requests::cdb(&cdb),
            data_segment_len: data_out.len(),
            ..requests::command(itt.0)
        };
        self.cmd_sn = self.cmd_sn.next();
        if self.wire.send(&self.wire.encode(&command.emit(), data_out), limit) != Sent::All {
            return Answer::End;
        }
        self.wait_for(itt, limit)
    }

    /// Serves the target's requests until a command ends.
    fn wait_for(&mut self, itt: InitiatorTaskTag, limit: Duration) -> Answer {
        let until = Instant::now() + limit;
        let mut read = Vec::new();
        loop {
            let (pdu, data) = match self.wire.receive(until.saturating_duration_since(Instant::now())) {
                Received::Pdu(pdu) => pdu,
                Received::Nothing => return Answer::Nothing,
                Received::End => return Answer::End,
            };
            match pdu {
                TargetPdu::DataIn(pdu) => {
                    if pdu.itt == itt {
                        read.extend(data);
                    }
                    if let Some(status) = pdu.status {
                        self.stat_sn = status.stat_sn.next();
                        if pdu.itt == itt {
                            return Answer::Status { status: status.status, data: read };
                        }
                    }
                }
                TargetPdu::ScsiResponse(pdu) => {
                    self.stat_sn = pdu.stat_sn.next();
                    if pdu.itt == itt {
                        return Answer::Status { status: pdu.status, data: read };
                    }
                }
                TargetPdu::AsyncMessage(pdu) => self.stat_sn = pdu.stat_sn.next(),
                TargetPdu::NopIn(ping) if !ping.ttt.is_reserved() => {
                    let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.stat_sn);
                    let pong = NopOut { lun: ping.lun, cmd_sn, exp_stat_sn, ..requests::pong(ping.ttt) };
                    self.wire.send(&self.wire.encode(&pong.emit(), &[]), limit);
                }
                _ => {}
            }
        }
    }

    /// Logs out, and waits only briefly for the answer.
    fn log_out(mut self) {
        let logout = requests::logout(0x6f75_7400, LogoutReason::CLOSE_SESSION);
        let request = LogoutRequest { cmd_sn: self.cmd_sn, exp_stat_sn: self.stat_sn, ..logout };
        self.wire.send(&self.wire.encode(&request.emit(), &[]), ASK_AGAIN_AFTER);
        while let Received::Pdu(_) = self.wire.receive(ASK_AGAIN_AFTER) {}
    }
}

fn cdb_10(opcode: u8, block: u32) -> [u8; 10] {
    let blocks = (BLOCK_LEN / 512) as u16;
    lunette_testkit::cdb_10(opcode, block * u32::from(blocks), blocks)
}

/// A session on the witness's own target: everything must be answered, and reads return what was written.
pub(super) fn private_session(address: SocketAddr, target: &str, stop: &dyn Fn() -> bool) -> Result<(), Complaint> {
    let mut witness = Witness::attach(address, target)?;
    for round in 0..ROUNDS {
        if stop() {
            break;
        }
        let (block, since) = (round % BLOCKS, Instant::now());
        let stamp = format!("{block:8} {since:?} ").into_bytes();
        let written: Vec<u8> = stamp.into_iter().cycle().take(BLOCK_LEN).collect();
        let complain = |what| Err(Complaint { what, since });
        for (cdb, data_out, data_in_len) in
            [(cdb_10(0x2a, block), &written[..], 0), (cdb_10(0x28, block), &[], BLOCK_LEN)]
        {
            match witness.command(0, cdb, data_out, data_in_len, STARVED_AFTER) {
                Answer::Status { status: 0, data } if data_in_len == 0 || data == written => {}
                Answer::Status { status: 0, .. } => {
                    return complain(Trouble::Wrong(format!("block {block} is not what was written")));
                }
                Answer::Status { status, .. } => {
                    return complain(Trouble::Wrong(format!("status {status:#04x} at a private target")));
                }
                Answer::Nothing => return Err(starved_or_hung(address, target, "a private target", since)),
                Answer::End => return complain(Trouble::Wrong("a connection to a private target was lost".into())),
            }
        }
        std::thread::sleep(PAUSE);
    }
    witness.log_out();
    Ok(())
}

/// A session on a target that hostile initiators use too. They may reset, reserve and abort, so any answer will do, but
/// there must be one. `private` is the target that shows whether the server as a whole still answers.
pub(super) fn shared_session(
    address: SocketAddr,
    shared: &str,
    private: &str,
    stop: &dyn Fn() -> bool,
) -> Result<(), Complaint> {
    let since = Instant::now();
    let Ok(mut witness) = Witness::attach(address, shared) else {
        // The logical unit may be blocked, or a reset may have ended the session; the server still has to answer.
        return answers(address, shared, private, since);
    };
    for round in 0..ROUNDS {
        if stop() {
            break;
        }
        let since = Instant::now();
        let lun = (round % 2) as u16;
        let (cdb, data_out, data_in_len) = match round % 3 {
            0 => (TEST_UNIT_READY, &[][..], 0),
            1 => (cdb_10(0x28, round % BLOCKS), &[][..], BLOCK_LEN),
            _ => (cdb_10(0x2a, round % BLOCKS), &[7; BLOCK_LEN][..], 0),
        };
        let mut answer = witness.command(lun, cdb, data_out, data_in_len, ASK_AGAIN_AFTER);
        while matches!(answer, Answer::Nothing) {
            if since.elapsed() > STARVED_AFTER {
                return Err(starved_or_hung(address, private, &format!("LUN {lun} of a shared target"), since));
            }
            answer = witness.command(lun, TEST_UNIT_READY, &[], 0, ASK_AGAIN_AFTER);
        }
        if matches!(answer, Answer::End) {
            // TARGET COLD RESET does that.
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    witness.log_out();
    Ok(())
}

/// Tries until a new session on the shared target is answered.
fn answers(address: SocketAddr, shared: &str, private: &str, since: Instant) -> Result<(), Complaint> {
    while since.elapsed() < STARVED_AFTER {
        if let Ok(witness) = Witness::attach(address, shared) {
            witness.log_out();
            return Ok(());
        }
    }
    Err(starved_or_hung(address, private, "new sessions at a shared target", since))
}

fn starved_or_hung(address: SocketAddr, private: &str, whom: &str, since: Instant) -> Complaint {
    match Witness::attach(address, private) {
        Ok(witness) => {
            witness.log_out();
            Complaint { what: Trouble::Starved(format!("{whom}: no answer for {:?}", since.elapsed())), since }
        }
        Err(complaint) => Complaint { since, ..complaint },
    }
}
