//! A hostile target: it answers as a correct one does, except for the lies that its seed draws.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lunette_pdu::{Bhs, InitiatorPdu, LoginStatus};
use lunette_testkit::{Connection, Format, Frame, PduBytes, Script, ScriptedTarget, TARGET};

use super::dice::Dice;
use super::lies::{LIES, Lie, lie};
use super::wire::{Received, Sent, Wire};

/// The time from the first connection until every login is refused for good, so that the initiator ends.
const HOSTILE_FOR: Duration = Duration::from_millis(1200);

/// The interval at which threads check whether the walk is over.
const LOOK: Duration = Duration::from_millis(20);

/// The longest wait for the initiator to take bytes.
const SEND_LIMIT: Duration = Duration::from_millis(200);

/// The manner in which a target lies.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// One answer in this many has a lie.
    one_in: usize,
    /// One answer in this many has a lie during logins, which are few: most of them must pass, or nothing else is seen.
    one_login_in: usize,
    /// A lie that is nearly always chosen; any when not set.
    favourite: Option<Lie>,
    /// The treatment of logins without a lie.
    login: Login,
    trace: Option<u64>,
}

/// The treatment of a login without a lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Login {
    Passes,
    /// Each answer asks for another request.
    NeverEnds,
    /// The login is redirected to this same target.
    Redirected,
    RedirectedToNonsense,
    Refused,
}

/// A hostile target, which listens until it is dropped.
pub(super) struct HostileTarget {
    pub(super) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl HostileTarget {
    pub(super) fn start(seed: u64, trace: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on the loopback interface");
        listener.set_nonblocking(true).expect("a listener of our own");
        let address = listener.local_addr().expect("a bound socket has an address");
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        let listening = thread::spawn(move || listen(&listener, seed, trace.then_some(seed), &over));
        Self { address, is_over, listener: Some(listening) }
    }
}

impl Drop for HostileTarget {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.take() {
            listener.join().expect("a hostile target does not panic");
        }
    }
}

fn listen(listener: &TcpListener, seed: u64, trace: Option<u64>, is_over: &AtomicBool) {
    let address = listener.local_addr().expect("a bound socket has an address");
    let mut dice = Dice::new(seed);
    let manner = Manner {
        one_in: dice.pick(&[2, 6, 15, 15, 40, 40]),
        one_login_in: dice.pick(&[3, 20, 20, 100]),
        favourite: if dice.one_in(3) { Some(dice.pick(&LIES)) } else { None },
        login: match dice.below(20) {
            0 => Login::NeverEnds,
            1 => Login::Redirected,
            2 => Login::RedirectedToNonsense,
            3 => Login::Refused,
            _ => Login::Passes,
        },
        trace,
    };
    if trace.is_some() {
        eprintln!("[{seed}] {manner:?}");
    }
    let target = ScriptedTarget::new(address, Script::default());
    let mut hostile_until = None;
    thread::scope(|scope| {
        while !is_over.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let until = *hostile_until.get_or_insert_with(|| Instant::now() + HOSTILE_FOR);
                    let mut dice = Dice::new(dice.next());
                    let mut answers = Connection::new(Arc::clone(&target));
                    answers.takes_unsolicited = true;
                    answers.prefers = Format { header_digest: dice.one_in(2), data_digest: dice.one_in(2) };
                    let Ok(wire) = Wire::new(stream) else { continue };
                    let mut peer = Peer { wire, answers, dice, manner, until, is_silent: false };
                    scope.spawn(move || peer.talk(is_over));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
                Err(_) => return,
            }
        }
    });
}

/// One connection.
struct Peer {
    wire: Wire,
    answers: Connection,
    dice: Dice,
    manner: Manner,
    until: Instant,
    /// Whether it sends nothing more.
    is_silent: bool,
}

impl Peer {
    fn talk(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let is_past = Instant::now() >= self.until;
            if is_past && self.answers.is_logged_in() {
                return;
            }
            match self.wire.receive_frame(LOOK) {
                Received::Pdu(frame) => {
                    self.say("<", &frame.bhs, frame.data.len());
                    let goes_on = if is_past { self.refuse(&frame) } else { self.answer(&frame) };
                    if !goes_on {
                        return;
                    }
                }
                Received::Nothing if is_past && self.is_silent => return,
                Received::Nothing => {}
                Received::End => return,
            }
        }
    }

    fn say(&self, direction: &str, bhs: &Bhs, data_len: usize) {
        if let Some(seed) = self.manner.trace {
            eprintln!("[{seed}] {direction} {} {data_len} {:02x?}", bhs.opcode(), bhs.as_array());
        }
    }

    /// Refuses any request with "target not found".
    fn refuse(&mut self, frame: &Frame) -> bool {
        for (header, data) in self.answers.answer(frame) {
            self.send_status(header, &data, LoginStatus::TARGET_REMOVED);
        }
        false
    }

    fn send_status(&mut self, mut header: [u8; 48], data: &[u8], status: LoginStatus) {
        (header[1], header[36], header[37]) = (header[1] & 0x0c, status.class, status.detail);
        let bytes = self.wire.encode(&header, data);
        self.wire.send(&bytes, SEND_LIMIT);
    }

    /// Answers a request. False when the connection is to end.
    fn answer(&mut self, frame: &Frame) -> bool {
        let is_login = matches!(InitiatorPdu::parse(&frame.bhs), Ok(InitiatorPdu::LoginRequest(_)));
        let mut pdus = self.answers.answer(frame);
        if is_login && self.manner.login != Login::Passes {
            return self.mislead(pdus);
        }
        let one_in = if is_login { self.manner.one_login_in } else { self.manner.one_in };
        let told = self.dice.one_in(one_in).then(|| match self.manner.favourite {
            Some(favourite) if !self.dice.one_in(8) => favourite,
            _ => self.dice.pick(&LIES),
        });
        if let Some(told) = told {
            lie(told, &mut pdus, &mut self.answers, &mut self.dice);
            if let Some(seed) = self.manner.trace {
                eprintln!("[{seed}] {told:?}");
            }
        }
        let goes_on = self.is_silent || self.send(&pdus, told);
        self.answers.answered();
        self.wire.format = self.answers.format();
        goes_on
    }

    fn send(&mut self, pdus: &[PduBytes], told: Option<Lie>) -> bool {
        let mut bytes = Vec::new();
        for (header, data) in pdus {
            self.say(">", &Bhs::from(*header), data.len());
            bytes.extend(self.wire.encode(header, data));
        }
        match told {
            Some(Lie::Digest) => bytes.last_mut().into_iter().for_each(|last| *last ^= 1),
            Some(Lie::Slow) => {
                for piece in bytes.chunks(1).take(64) {
                    self.wire.send(piece, SEND_LIMIT);
                    thread::sleep(Duration::from_millis(1));
                }
                bytes.drain(..bytes.len().min(64));
            }
            Some(Lie::Stop | Lie::Close) => {
                bytes.truncate(self.dice.below(bytes.len() + 1));
                self.is_silent = told == Some(Lie::Stop);
            }
            _ => {}
        }
        // The initiator may refuse to take the answers; that is not a reason to end.
        self.wire.send(&bytes, SEND_LIMIT) == Sent::All && told != Some(Lie::Close)
    }

    /// Changes a login so that it never succeeds.
    fn mislead(&mut self, pdus: Vec<PduBytes>) -> bool {
        for (mut header, data) in pdus {
            match self.manner.login {
                Login::Passes | Login::NeverEnds => {
                    // Clears T and NSG; sometimes the text continues.
                    header[1] &= 0x0c;
                    header[1] |= if self.dice.one_in(2) { 0x40 } else { 0 };
                    self.answers.undo_login();
                    let bytes = self.wire.encode(&header, &data);
                    self.wire.send(&bytes, SEND_LIMIT);
                    continue;
                }
                Login::Redirected => {
                    let address = format!("TargetAddress={},1\0", self.wire.local_address());
                    self.redirect(header, &address);
                }
                Login::RedirectedToNonsense => {
                    let nonsense =
                        ["", "x", ":", "[::1", "256.1.1.1:1", "127.0.0.1:99999", "\u{1b}[31m:1", "127.0.0.1:1"];
                    let address = format!("TargetAddress={}\0", self.dice.pick(&nonsense));
                    self.redirect(header, &address);
                }
                Login::Refused => {
                    let status = LoginStatus { class: self.dice.below(5) as u8, detail: self.dice.below(13) as u8 };
                    self.send_status(header, &data, status);
                }
            }
            return false;
        }
        true
    }

    fn redirect(&mut self, mut header: [u8; 48], address: &str) {
        header[5..8].copy_from_slice(&(address.len() as u32).to_be_bytes()[1..]);
        self.send_status(header, address.as_bytes(), LoginStatus::TARGET_MOVED_TEMPORARILY);
    }
}

/// The URL of its disk.
pub(super) fn url(address: SocketAddr, parameters: &str) -> String {
    format!("iscsi://{address}/{TARGET}/0{parameters}")
}
