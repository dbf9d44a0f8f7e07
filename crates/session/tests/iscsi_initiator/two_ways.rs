//! Whole PDUs and the same bytes in pieces come to the same. At recovery level 0 most whole PDUs go the straight way,
//! and headers in pieces go the general way (`connection::straight`, `connection::receiving`). So do commands whose
//! ends are told where they are, and those whose ends are events.

use lunette_pdu::{BHS_LEN, DataIn, InitiatorTaskTag, Opcode, Residual, ScsiResponse};
use lunette_session::iscsi_initiator::{Command, Event, SessionConfig};
use lunette_session::keys::Offer;
use proptest::prelude::*;

use crate::harness::{ScriptedTarget, Sent, config, pattern};

/// The agreement of both sides.
#[derive(Debug, Clone)]
struct Terms {
    digests: [bool; 2],
    orders: [bool; 2],
    level: u32,
}

/// A command, and what the target has sent for it.
#[derive(Debug, Clone)]
struct Task {
    itt: InitiatorTaskTag,
    writes: bool,
    len: u32,
    sn: u32,
    sent: u32,
    ended: bool,
}

/// The target's next answer to a command.
#[derive(Debug, Clone)]
enum Say {
    /// Sends this much of the data, or asks for it.
    Data { len: u32, final_: bool },
    /// Sends the rest of the data, and the status with it or behind it.
    End { with_data: bool, status: u8, missing: u32 },
    /// Sends a ping.
    Ping { answer: bool },
}

/// One byte of one PDU is another, and the digests of that PDU were made before or after.
#[derive(Debug, Clone)]
struct Fault {
    pdu: usize,
    at: usize,
    mask: u8,
    is_sealed: bool,
}

/// The bytes of a PDU before its digests.
type Pdu = ([u8; BHS_LEN], Vec<u8>);

fn terms() -> impl Strategy<Value = Terms> {
    let level = prop_oneof![5 => Just(0), 1 => Just(1_u32)];
    (any::<[bool; 2]>(), any::<[bool; 2]>(), level).prop_map(|(digests, orders, level)| Terms {
        digests,
        orders,
        level,
    })
}

fn say() -> impl Strategy<Value = Say> {
    let missing = prop_oneof![4 => Just(0), 1 => 0..3000_u32];
    let status = prop_oneof![6 => Just(0_u8), 1 => Just(8), 1 => Just(2)];
    prop_oneof![
        3 => (0..3000_u32, any::<bool>()).prop_map(|(len, final_)| Say::Data { len, final_ }),
        4 => (any::<bool>(), status, missing)
            .prop_map(|(with_data, status, missing)| Say::End { with_data, status, missing }),
        1 => any::<bool>().prop_map(|answer| Say::Ping { answer }),
    ]
}

fn fault() -> impl Strategy<Value = Option<Fault>> {
    let at = prop_oneof![3 => 0..BHS_LEN, 1 => 0..4000_usize];
    let fault = (0..20_usize, at, (0..8_u8).prop_map(|bit| 1 << bit), any::<bool>());
    let fault = fault.prop_map(|(pdu, at, mask, is_sealed)| Fault { pdu, at, mask, is_sealed });
    // No response turns into an R2T, which would have to end its run.
    prop::option::of(fault.prop_filter("a response stays none", |fault| fault.at > 0 || fault.mask != 0x10))
}

fn target(terms: &Terms) -> ScriptedTarget {
    let offer = Offer {
        data_pdu_in_order: terms.orders[0],
        data_sequence_in_order: terms.orders[1],
        error_recovery_level: terms.level,
        max_outstanding_r2t: 4,
        ..Offer::default()
    };
    let digest = |on: bool| if on { "CRC32C" } else { "None" };
    let answers = [
        ("HeaderDigest", digest(terms.digests[0])),
        ("DataDigest", digest(terms.digests[1])),
        ("InitialR2T", "Yes"),
        ("ImmediateData", "No"),
    ];
    ScriptedTarget::logged_in(SessionConfig { offer, ..config() }, &answers)
}

fn submit(target: &mut ScriptedTarget, commands: &[(bool, u32)]) -> Vec<Task> {
    let mut submit = |(writes, len): &(bool, u32)| {
        let (_, itt) = if *writes { target.write(*len) } else { target.read(*len) };
        Task { itt, writes: *writes, len: *len, sn: 0, sent: 0, ended: false }
    };
    commands.iter().map(&mut submit).collect()
}

impl Task {
    /// A PDU with the next `len` bytes.
    fn data(&mut self, target: &ScriptedTarget, len: u32) -> DataIn {
        let pdu = target.data_in(self.itt, self.sn, self.sent, len as usize);
        self.sn += 1;
        self.sent += len;
        pdu
    }

    fn bytes(&self, pdu: &DataIn) -> Vec<u8> {
        pattern(self.len as usize)[pdu.buffer_offset as usize..][..pdu.data_segment_len].to_vec()
    }

    fn pdus(&mut self, say: &Say, target: &mut ScriptedTarget) -> Vec<Pdu> {
        let left = self.len - self.sent;
        match *say {
            Say::Ping { answer } => {
                let pdu = target.nop_in();
                let silent = target.unused().ping(lunette_pdu::TargetTransferTag::RESERVED);
                vec![(if answer { pdu } else { silent }.emit(), Vec::new())]
            }
            Say::Data { len, .. } if self.writes => {
                let len = len.clamp(1, left.max(1));
                let r2t = target.r2t(self.itt, self.sn, self.sent, len);
                self.sn += 1;
                self.sent += len.min(left);
                vec![(r2t.emit(), Vec::new())]
            }
            Say::Data { len, final_ } => {
                let pdu = DataIn { final_, ..self.data(target, len.min(left)) };
                vec![(pdu.emit(), self.bytes(&pdu))]
            }
            Say::End { with_data, status, missing } => {
                self.ended = true;
                let missing = missing.min(left);
                let residual = if missing > 0 { Residual::Underflow(missing) } else { Residual::None };
                self.end(with_data && !self.writes, status, residual, left - missing, target)
            }
        }
    }

    fn end(
        &mut self,
        with_data: bool,
        status: u8,
        residual: Residual,
        len: u32,
        target: &mut ScriptedTarget,
    ) -> Vec<Pdu> {
        let mut pdus = Vec::new();
        if with_data {
            let pdu = self.data(target, len);
            let pdu = DataIn { status: Some(lunette_pdu::DataInStatus { status, ..target.status(residual) }), ..pdu };
            return vec![(pdu.emit(), self.bytes(&pdu))];
        }
        if !self.writes && len > 0 {
            let pdu = self.data(target, len);
            pdus.push((pdu.emit(), self.bytes(&pdu)));
        }
        let sense = if status == 2 {
            vec![0, 18, 0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0, 0, 0, 0, 0]
        } else {
            Vec::new()
        };
        let response = ScsiResponse { status, residual, data_segment_len: sense.len(), ..target.response(self.itt) };
        pdus.push((response.emit(), sense));
        pdus
    }
}

/// The bytes that the target sends, in runs that end with an R2T: it waits for what it has asked for.
fn runs(target: &mut ScriptedTarget, tasks: &mut [Task], says: &[(usize, Say)], fault: Option<&Fault>) -> Vec<Vec<u8>> {
    let mut pdus = Vec::new();
    for (task, say) in says {
        let task = *task % tasks.len();
        if !tasks[task].ended {
            pdus.extend(tasks[task].pdus(say, target));
        }
    }
    let mut runs = vec![Vec::new()];
    for (number, (mut header, mut data)) in pdus.into_iter().enumerate() {
        let ends_run = header[0] == Opcode::R2T.0;
        let fault = fault.filter(|fault| fault.pdu == number);
        if let Some(fault) = fault.filter(|fault| fault.is_sealed) {
            let len = BHS_LEN + data.len();
            let at = fault.at % len;
            *header.iter_mut().chain(&mut data).nth(at).expect("it is below the length") ^= fault.mask;
        }
        let mut pdu = target.wire(&header, &data);
        if let Some(fault) = fault.filter(|fault| !fault.is_sealed) {
            let at = fault.at % pdu.len();
            pdu[at] ^= fault.mask;
        }
        runs.last_mut().expect("there is one from the beginning").extend(pdu);
        if ends_run {
            runs.push(Vec::new());
        }
    }
    runs
}

fn buffers(command: &Command) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    (command.data_in.as_deref().map(<[u8]>::to_vec), command.data_out.as_deref().map(<[u8]>::to_vec))
}

/// All that can be seen of what has come of it.
fn seen(mut target: ScriptedTarget) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for event in &target.events {
        let data = match event {
            Event::Completed { command, .. } | Event::Aborted(command) => Some(buffers(command)),
            _ => None,
        };
        seen.push(format!("{event:?} {data:?}"));
    }
    let traffic = target.session.take_traffic(target.cid);
    seen.push(format!("{} PDUs", traffic.received_pdus));
    seen.push(format!("{} bytes", traffic.copied_bytes + traffic.digested_copied_bytes));
    seen.push(format!("{:?} {} {}", target.session.recoveries(), target.session.room(), target.session.commands()));
    let is_closed = target.events.iter().any(|event| matches!(event, Event::Closed { .. }));
    // A PDU acknowledges what has come before it is made, and an answer to a ping may overtake data.
    let (data, others): (Vec<Sent>, Vec<Sent>) =
        target.sent.into_iter().partition(|sent| matches!(sent.pdu, lunette_pdu::InitiatorPdu::DataOut(_)));
    // Data is sent when all that has come is dealt with, so an error may come before it.
    for sent in data.into_iter().filter(|_| !is_closed).chain(others) {
        let mut text = format!("{:?} {:?}", sent.pdu, sent.data);
        if let Some(at) = text.find("exp_stat_sn") {
            let len = text[at..].find(',').unwrap_or(0);
            text.replace_range(at..at + len, "");
        }
        seen.push(text);
    }
    seen.extend(target.session.into_unfinished().iter().map(|command| format!("{command:?} {:?}", buffers(command))));
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whole_pdus_and_pieces_of_them_come_to_the_same(
        terms in terms(),
        commands in prop::collection::vec((any::<bool>(), prop_oneof![4 => 1..6000_u32, 1 => Just(512)]), 1..6),
        says in prop::collection::vec((any::<usize>(), say()), 1..24),
        fault in fault(),
        pieces in prop::collection::vec(prop_oneof![3 => 1..60_usize, 1 => 60..4000_usize], 1..20),
    ) {
        let [mut whole, mut cut, mut told] = [(); 3].map(|()| target(&terms));
        told.tells_ends = true;
        let mut tasks = submit(&mut whole, &commands);
        submit(&mut cut, &commands);
        submit(&mut told, &commands);
        let mut pieces = pieces.iter().cycle();
        for run in runs(&mut whole, &mut tasks, &says, fault.as_ref()) {
            whole.raw(&run);
            told.raw(&run);
            let mut rest = &run[..];
            while !rest.is_empty() {
                let len = pieces.next().expect("there is one at least");
                let (piece, behind) = rest.split_at(rest.len().min(*len));
                cut.raw(piece);
                rest = behind;
            }
        }
        let whole = seen(whole);
        prop_assert_eq!(&whole, &seen(cut));
        prop_assert_eq!(&whole, &seen(told));
    }
}
