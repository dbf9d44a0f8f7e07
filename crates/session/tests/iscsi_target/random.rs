//! Honest initiators and devices of every temper: each command is answered once, each byte arrives, nothing is left
//! behind. The harness checks all numbers on the way.

use std::collections::{HashMap, HashSet};

use lunette_pdu::{DataOut, ScsiCommand, TargetPdu};
use lunette_session::iscsi_target::Response;
use proptest::prelude::*;

use crate::harness::{Cut, Peer, Setup, TARGET, data_out, node, nop_out, pattern, read, solicited, write};

const FIRST_BURST: usize = 1024;
const CHECK_CONDITION: u8 = 2;

#[derive(Debug, Clone)]
enum Step {
    Read(u32),
    /// A write with that much immediate and unsolicited data, if that many bytes may be sent so.
    Write {
        len: u32,
        immediate: usize,
        unasked: usize,
    },
    Ping(usize),
    /// The initiator sends the next PDU of one of its sequences.
    Send(usize),
    /// The device decides on one of its tasks.
    Want(usize, u32),
    Finish(usize, bool),
    Abort(usize),
    Reads(bool),
    /// The target begins no request any more.
    ComeToRest,
    /// The target goes on.
    GoOn,
    /// Another process goes on, if the session is at a standstill.
    HandOver,
}

impl Step {
    /// Whether its effect depends on how far the stream has been read.
    fn depends_on_pieces(&self) -> bool {
        matches!(self, Self::Reads(_) | Self::ComeToRest | Self::GoOn | Self::HandOver)
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..9000_u32).prop_map(Step::Read),
        4 => (1..9000_u32, 0..FIRST_BURST, 0..FIRST_BURST)
            .prop_map(|(len, immediate, unasked)| Step::Write { len, immediate, unasked }),
        1 => (0..1024_usize).prop_map(Step::Ping),
        8 => any::<usize>().prop_map(Step::Send),
        6 => (any::<usize>(), 0..12_000_u32).prop_map(|(at, len)| Step::Want(at, len)),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(at, good)| Step::Finish(at, good)),
        1 => any::<usize>().prop_map(Step::Abort),
        1 => any::<bool>().prop_map(Step::Reads),
        1 => Just(Step::ComeToRest),
        1 => Just(Step::GoOn),
        2 => Just(Step::HandOver),
    ]
}

/// The initiator's view of its tasks, and the device's.
struct Play {
    peer: Peer,
    next_itt: u32,
    /// The data that is still to be sent, by sequence.
    sequences: Vec<Vec<DataOut>>,
    writes: HashMap<u32, Vec<u8>>,
    answered: HashSet<u32>,
    aborted: HashSet<u32>,
    pings: HashMap<u32, usize>,
    /// Tasks of the device that wait for it: those that are not finished, by their place in `commands`.
    open: Vec<usize>,
    seen_commands: usize,
    seen_data: usize,
}

impl Play {
    fn new(keys: &[(&'static str, &'static str)], cut: Cut, out_piece: usize) -> Self {
        let mut peer = Peer::logged_in(Setup::keys(keys)).manual().cut(cut);
        peer.out_piece = out_piece;
        Self {
            peer,
            next_itt: 0,
            sequences: Vec::new(),
            writes: HashMap::new(),
            answered: HashSet::new(),
            aborted: HashSet::new(),
            pings: HashMap::new(),
            open: Vec::new(),
            seen_commands: 0,
            seen_data: 0,
        }
    }

    fn itt(&mut self) -> u32 {
        self.next_itt += 1;
        self.next_itt
    }

    /// Which command of the initiator the device sees at that place. Its tag went into the CDB.
    fn itt_of(&self, at: usize) -> u32 {
        u32::from_be_bytes(*self.peer.driver.commands[at].cdb.first_chunk().unwrap())
    }

    fn command(&mut self, mut request: ScsiCommand, data: &[u8]) {
        // An initiator that keeps to the window.
        let max = self.peer.checker.max_cmd_sn.unwrap();
        if self.peer.cmd_sn.is_after(max) {
            return;
        }
        request.cdb[..4].copy_from_slice(&request.itt.0.to_be_bytes());
        self.peer.command(request, data);
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Read(len) => {
                let itt = self.itt();
                self.command(read(itt, len), &[]);
            }
            Step::Write { len, immediate, unasked } => {
                let itt = self.itt();
                let data = pattern(len as usize);
                let immediate = immediate.min(data.len());
                let unasked = unasked.min(FIRST_BURST - immediate).min(data.len() - immediate);
                let before = self.peer.cmd_sn;
                let request = ScsiCommand { final_: unasked == 0, ..write(itt, len) };
                self.command(request, &data[..immediate]);
                if self.peer.cmd_sn != before {
                    self.writes.insert(itt, data);
                    if unasked > 0 {
                        let half = unasked / 2;
                        let first =
                            DataOut { final_: false, data_segment_len: half, ..data_out(itt, immediate as u32) };
                        let rest = unasked - half;
                        let offset = (immediate + half) as u32;
                        self.sequences
                            .push(vec![first, DataOut { data_sn: 1, data_segment_len: rest, ..data_out(itt, offset) }]);
                    }
                }
            }
            Step::Ping(len) => {
                let itt = self.itt();
                self.pings.insert(itt, len);
                self.peer.nop_out(nop_out(itt), &pattern(len));
            }
            Step::Send(at) if !self.sequences.is_empty() => self.send(at % self.sequences.len()),
            Step::Want(at, len) if !self.open.is_empty() => self.want(at % self.open.len(), len),
            Step::Finish(at, good) if !self.open.is_empty() => self.finish(at % self.open.len(), good),
            Step::Abort(at) if !self.open.is_empty() => {
                let at = self.open.remove(at % self.open.len());
                self.aborted.insert(self.itt_of(at));
                let task = self.peer.driver.commands[at].task;
                self.peer.driver.act(|c| c.abort(task));
            }
            Step::Reads(reads) => self.peer.reads = reads,
            Step::ComeToRest => self.peer.driver.come_to_rest(),
            Step::GoOn => self.peer.driver.go_on(),
            Step::HandOver if self.peer.driver.restless().is_none() => {
                self.peer.driver.hand_over(vec![node(TARGET, Vec::new())]).unwrap();
            }
            _ => {}
        }
        self.look();
    }

    fn send(&mut self, at: usize) {
        let pdu = self.sequences[at].remove(0);
        if self.sequences[at].is_empty() {
            self.sequences.remove(at);
        }
        let from = pdu.buffer_offset as usize;
        let data = self.writes[&pdu.itt.0][from..from + pdu.data_segment_len].to_vec();
        self.peer.data_out(pdu, &data);
    }

    fn want(&mut self, at: usize, len: u32) {
        let command = &self.peer.driver.commands[self.open[at]];
        if command.data_out_len > 0 {
            let task = command.task;
            self.peer.driver.want_data(task, len as usize);
        }
    }

    fn finish(&mut self, at: usize, good: bool) {
        let command = self.peer.driver.commands[self.open.remove(at)].clone();
        let response = if good {
            self.peer.driver.read_response(command.data_in_len as usize)
        } else {
            Response { status: CHECK_CONDITION, sense: vec![0x70; 18], ..Response::default() }
        };
        self.peer.driver.complete(command.task, response);
    }

    /// Takes note of what both sides have got.
    fn look(&mut self) {
        for got in self.peer.rest() {
            match got.pdu {
                TargetPdu::R2t(r2t) => self.sequences.push(solicited(&r2t, 700)),
                TargetPdu::ScsiResponse(pdu) => assert!(self.answered.insert(pdu.itt.0), "answered twice"),
                TargetPdu::DataIn(pdu) if pdu.status.is_some() => assert!(self.answered.insert(pdu.itt.0)),
                TargetPdu::DataIn(_) => {}
                TargetPdu::NopIn(pdu) if pdu.itt.is_reserved() => {}
                TargetPdu::NopIn(pdu) => {
                    assert_eq!(self.pings.remove(&pdu.itt.0), Some(got.data.len()));
                    assert_eq!(got.data, pattern(got.data.len()));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(self.peer.driver.closed, None);
        self.open.extend(self.seen_commands..self.peer.driver.commands.len());
        self.seen_commands = self.peer.driver.commands.len();
        for index in self.seen_data..self.peer.driver.data_out.len() {
            let (task, bytes) = &self.peer.driver.data_out[index];
            let at = self.peer.driver.commands.iter().rposition(|command| command.task == *task).unwrap();
            let sent = &self.writes[&self.itt_of(at)];
            let len = sent.len().min(bytes.len());
            assert_eq!(bytes[..len], sent[..len]);
        }
        self.seen_data = self.peer.driver.data_out.len();
    }

    /// Lets both sides finish their work.
    fn end(mut self) {
        self.peer.reads = true;
        self.peer.driver.go_on();
        for _ in 0..10_000 {
            self.look();
            if !self.sequences.is_empty() {
                self.send(0);
            } else if !self.open.is_empty() {
                self.finish(0, true);
            } else if self.peer.driver.unread() == 0 {
                break;
            }
        }
        self.look();
        assert!(self.sequences.is_empty() && self.open.is_empty());
        assert_eq!(self.pings, HashMap::new());
        for at in 0..self.peer.driver.commands.len() {
            let itt = self.itt_of(at);
            assert!(self.answered.contains(&itt) != self.aborted.contains(&itt), "task {itt}");
        }
        self.peer.driver.data_out.clear();
        assert_eq!(self.peer.driver.pool.used_bytes(), 0);
        // The window is as wide as ever.
        self.peer.nop_out(nop_out(u32::MAX - 1), &[]);
        let (nop, _) = self.peer.nop_in();
        assert_eq!(nop.exp_cmd_sn, self.peer.cmd_sn);
        assert_eq!(nop.max_cmd_sn.distance_from(nop.exp_cmd_sn), 127);
    }
}

const KEYS: [(&str, &str); 5] = [
    ("InitialR2T", "No"),
    ("MaxOutstandingR2T", "2"),
    ("MaxBurstLength", "2048"),
    ("FirstBurstLength", "1024"),
    ("MaxRecvDataSegmentLength", "1024"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_ends_well(
        steps in prop::collection::vec(step(), 1..200),
        piece in prop_oneof![Just(1_usize), 2..3000_usize, Just(usize::MAX)],
        out_piece in prop_oneof![1..100_usize, Just(usize::MAX)],
        digests in any::<bool>(),
    ) {
        let mut keys = KEYS.to_vec();
        if digests {
            keys.extend([("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]);
        }
        let mut play = Play::new(&keys, Cut { piece, direct: false }, out_piece);
        for step in &steps {
            play.take(step);
        }
        play.end();
    }

    #[test]
    fn the_same_input_gives_the_same_output(
        steps in prop::collection::vec(step(), 1..100),
        pieces in [prop_oneof![1..100_usize, Just(usize::MAX)], prop_oneof![1..100_usize, Just(usize::MAX)]],
    ) {
        let run = |piece: usize| {
            let mut play = Play::new(&KEYS, Cut { piece, direct: piece == usize::MAX }, usize::MAX);
            for step in steps.iter().filter(|step| !step.depends_on_pieces()) {
                play.take(step);
            }
            play.peer.transcript
        };
        prop_assert_eq!(run(pieces[0]), run(pieces[0]));
        prop_assert_eq!(run(pieces[0]), run(pieces[1]), "however the stream is cut");
    }
}
