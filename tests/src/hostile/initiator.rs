//! A hostile initiator: one walk for each seed.
//!
//! A walk draws which kinds of moves it prefers, so that some walks go deep where others mix everything, and then makes
//! moves on the one to eight connections of its one to three sessions. The PDUs it sends follow from its seed and from
//! the target's answers; two runs differ only in which answers have arrived by the time of a move.

use std::net::{Shutdown, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use lunette_pdu::{Cid, Isid, Tsih};

use super::dice::Dice;
use super::session::{ACKNOWLEDGES, Session};
use super::{breaks, commands, requests};

/// The longest time from a walk's first move to its last.
const WALK_LIMIT: Duration = Duration::from_secs(4);

/// The longest wait for answers.
const LISTEN_LIMIT: Duration = Duration::from_millis(15);

/// The time for which some walks hold their resources: longer than others may starve.
const LONG_HOLD: Duration = Duration::from_secs(12);

/// The last seeds of every this many are a crowd: all of them fill the buffers at the same time and do nothing else.
const CROWD_EVERY: u64 = 1024;
const CROWD: u64 = 64;

/// The time for which a crowd holds its buffers: longer than the target lets a data phase stand still.
const CROWD_HOLD: Duration = Duration::from_secs(20);

const MAX_SESSIONS: usize = 3;
const MAX_CONNECTIONS: usize = 8;

/// Names of hostile initiators, few enough that they meet each other's reservations.
const NAMES: [&str; 4] = [
    "iqn.2026-11.org.example:hostile-0",
    "iqn.2026-11.org.example:hostile-1",
    "iqn.2026-11.org.example:hostile-2",
    "iqn.2026-11.org.example:hostile-3",
];

/// A move, which returns a description for the trace.
type Move = fn(&mut Walk) -> String;

/// The preferences of walks for a move: each walk draws one of these numbers. Without commands and answers a walk
/// reaches few states, and after the end of a session few remain.
type Liking = &'static [usize];
const ALWAYS: Liking = &[1, 1, 1, 3];
const OFTEN: Liking = &[0, 1, 1, 4];
const SELDOM: Liking = &[0, 0, 0, 1, 2];
/// Like `SELDOM`, and never in a polite walk.
const RUDELY: Liking = &[0, 0, 1, 1];

/// All moves, with how often the average walk makes them.
const MOVES: &[(&str, usize, Liking, Move)] = &[
    ("listen", 8, ALWAYS, Walk::listen),
    ("command", 14, ALWAYS, commands::command),
    ("data", 6, OFTEN, commands::answer_r2t),
    ("stray data", 1, RUDELY, commands::stray_data),
    ("task management", 4, OFTEN, requests::task_management),
    ("reservation", 2, SELDOM, commands::reservation),
    ("SNACK", 1, SELDOM, requests::snack),
    ("NOP-Out", 1, OFTEN, requests::nop_out),
    ("text", 1, SELDOM, requests::text),
    ("logout", 1, SELDOM, requests::logout),
    ("connection", 1, OFTEN, Walk::connect),
    ("session", 1, SELDOM, Walk::add_session),
    ("reinstatement", 1, SELDOM, Walk::reinstate),
    ("half a login", 1, RUDELY, breaks::half_a_login),
    ("cut", 1, SELDOM, breaks::cut),
    ("garbage", 1, RUDELY, breaks::garbage),
    ("habits", 1, OFTEN, Walk::change_habits),
    ("pause", 1, SELDOM, Walk::pause),
];

/// A walk under way.
pub(super) struct Walk {
    pub(super) dice: Dice,
    pub(super) sessions: Vec<Session>,
    pub(super) at: usize,
    address: SocketAddr,
    targets: &'static [&'static str],
    target: &'static str,
    name: &'static str,
    seed: u64,
    born: u16,
    trace: bool,
}

impl Walk {
    /// The walk of `seed`, against one of the `targets` at `address`.
    pub(super) fn new(seed: u64, address: SocketAddr, targets: &'static [&'static str], trace: bool) -> Self {
        let mut dice = Dice::new(seed);
        let (name, target) = (dice.pick(&NAMES), dice.pick(targets));
        dice.is_polite = dice.one_in(2);
        Self { dice, sessions: Vec::new(), at: 0, address, targets, target, name, seed, born: 0, trace }
    }

    /// Makes all moves, and then closes all connections.
    pub(super) fn run(mut self) {
        if self.is_of_crowd() {
            return self.besiege();
        }
        let until = Instant::now() + WALK_LIMIT;
        let is_polite = self.dice.is_polite;
        let mut like = |(_, weight, liking, _): &(&str, usize, Liking, Move)| {
            let drawn = self.dice.pick(liking);
            if is_polite && *liking == RUDELY { 0 } else { weight * drawn }
        };
        let weights: Vec<usize> = MOVES.iter().map(&mut like).collect();
        let moves = 4 + self.dice.below(60);
        self.say("session", &|walk| walk.add_session());
        if !self.dice.one_in(4) {
            self.say("attentions", &commands::take_attentions);
        }
        for _ in 0..self.dice.below(4) {
            self.say("connection", &|walk| walk.connect());
        }
        for _ in 0..moves {
            if Instant::now() >= until {
                break;
            }
            let drawn = self.dice.weighted(&weights);
            self.at = self.dice.below(self.sessions.len());
            if self.sessions[self.at].connections.is_empty() && self.dice.one_in(2) {
                self.say("connection", &|walk| walk.connect());
            }
            let (name, _, _, make) = MOVES[drawn];
            self.say(name, &make);
        }
        self.end();
    }

    fn is_of_crowd(&self) -> bool {
        self.seed % CROWD_EVERY >= CROWD_EVERY - CROWD
    }

    /// Takes as many buffers as it can get and holds them, without a move that could end what others of the crowd hold.
    fn besiege(mut self) {
        self.dice.is_polite = true;
        for _ in 0..MAX_SESSIONS {
            self.hold_more();
        }
        self.keep(CROWD_HOLD);
    }

    /// Opens another session, with commands that hold their buffers.
    fn hold_more(&mut self) {
        self.say("session", &|walk| walk.add_session());
        self.say("attentions", &commands::take_attentions);
        self.say("hold", &commands::hold);
    }

    /// Makes a move and prints its description, if there is one.
    fn say(&mut self, name: &str, make: &dyn Fn(&mut Self) -> String) {
        let told = make(self);
        if self.trace && !told.is_empty() {
            eprintln!("[{}] session {}, {name}: {told}", self.seed, self.at);
        }
    }

    pub(super) fn session(&mut self) -> (&mut Session, &mut Dice) {
        (&mut self.sessions[self.at], &mut self.dice)
    }

    /// The session of this move, and one of its connections. `None` when it has none.
    pub(super) fn connection(&mut self) -> Option<(&mut Session, usize, &mut Dice)> {
        let (session, dice) = (&mut self.sessions[self.at], &mut self.dice);
        let count = session.connections.len();
        (count > 0).then(|| (session, dice.below(count), dice))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn names(&self) -> [(&'static str, &'static str); 3] {
        [("InitiatorName", self.name), ("SessionType", "Normal"), ("TargetName", self.target)]
    }

    fn listen(&mut self) -> String {
        let mut heard = Vec::new();
        let trace = self.trace;
        for session in &mut self.sessions {
            session.listen(LISTEN_LIMIT, |what| {
                if trace {
                    heard.push(format!("\n    {what}"));
                }
            });
        }
        heard.concat()
    }

    fn add_session(&mut self) -> String {
        if self.sessions.len() < MAX_SESSIONS {
            self.born += 1;
            self.sessions.push(Session::new(Isid::random(self.seed as u32, self.born)));
        }
        self.at = self.sessions.len() - 1;
        if self.dice.one_in(8) {
            self.target = self.dice.pick(self.targets);
        }
        self.connect()
    }

    fn connect(&mut self) -> String {
        let count: usize = self.sessions.iter().map(|session| session.connections.len()).sum();
        if count >= MAX_CONNECTIONS {
            return "there are enough".into();
        }
        let (address, names) = (self.address, self.names());
        let (session, dice) = self.session();
        if session.connections.is_empty() && dice.one_in(3) {
            // The session is gone, unless its connections can be recovered.
            session.tsih = Tsih::NEW;
        }
        session.connect(address, dice, &names, None)
    }

    /// Reinstates a connection by its CID, or a session by its ISID.
    fn reinstate(&mut self) -> String {
        let (address, names) = (self.address, self.names());
        let (session, dice) = self.session();
        let cid = session.connections.first().map_or(Cid(1), |connection| connection.cid);
        if dice.one_in(2) {
            session.tsih = Tsih::NEW;
        }
        session.connect(address, dice, &names, Some(cid))
    }

    /// Makes connections stop or resume reading, and acknowledge differently.
    fn change_habits(&mut self) -> String {
        let Some((session, at, dice)) = self.connection() else { return "no connection".into() };
        let connection = &mut session.connections[at];
        connection.acknowledge = dice.pick(&ACKNOWLEDGES);
        connection.is_deaf = dice.one_in(3);
        format!("{} acknowledges {:?}, deaf: {}", connection.cid, connection.acknowledge, connection.is_deaf)
    }

    fn pause(&mut self) -> String {
        thread::sleep(Duration::from_millis(self.dice.below(40) as u64));
        String::new()
    }

    /// Drops the connections, at once or after holding them for a while.
    fn end(mut self) {
        let held = match self.dice.below(24) {
            0..=2 => LONG_HOLD,
            3 => Duration::from_secs(4),
            4..=6 => Duration::from_millis(500),
            _ => Duration::ZERO,
        };
        if held >= LONG_HOLD {
            // Earlier moves may have left no session that works.
            self.sessions.truncate(MAX_SESSIONS - 1);
            self.hold_more();
        }
        self.keep(held);
    }

    fn keep(mut self, held: Duration) {
        let until = Instant::now() + held;
        while Instant::now() < until && self.sessions.iter().any(|session| !session.connections.is_empty()) {
            self.say("listen", &Self::listen);
            self.sessions.iter_mut().for_each(Session::answer_pings);
            thread::sleep(Duration::from_millis(50));
        }
        for connection in self.sessions.iter().flat_map(|session| &session.connections) {
            match self.dice.below(3) {
                0 => connection.wire.reset_on_close(),
                1 => connection.wire.shut_down(Shutdown::Write),
                _ => {}
            }
        }
        if self.trace {
            eprintln!("[{}] the end, after {held:?}", self.seed);
        }
    }
}
