//! A process that places the data of one command, to have its instructions counted:
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*counted*' target/release/examples/orders write digests shuffled
//! ```
//!
//! Arguments: `read` or `write` (the initiator or the target places the data), `plain` or `digests`, then `ordered`, `reversed`
//! or `shuffled`. Ends with status 2 on anything else.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Buffer, Pool};
use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::{BHS_LEN, Cid, DIGEST_LEN, Isid, LunField, TaskAttribute};
use lunette_session::initiator::{self, Session, SessionConfig};
use lunette_session::keys::{Choices, Willing};
use lunette_session::target::{self, Connection, ConnectionConfig, Directory, Portal, Response, Sessions, TargetNode};
use lunette_session::{Authentication, Entropy, Time, Timers};

const TARGET: &str = "iqn.2026-11.example:disk";
const PDU_LEN: usize = 8192;
const LEN: usize = 128 * PDU_LEN;
const BUFFER_OFFSET: std::ops::Range<usize> = 40..44;

/// Both sides, and what the target's device has been asked for.
struct Pair {
    session: Session,
    cid: Cid,
    target: Connection,
    sessions: Sessions<()>,
    commands: Vec<target::Command>,
    now: Time,
}

impl Pair {
    /// In full feature phase, with sequences and PDUs in any order.
    fn logged_in(digests: bool) -> Self {
        let now = Time::new(Duration::ZERO);
        let choice = Choices(if digests { 0b10 } else { 0b01 });
        let willing = || Willing {
            header_digest: choice,
            data_digest: choice,
            recv_data_segment_len: PDU_LEN as u32,
            initial_r2t: true,
            immediate_data: false,
            data_pdu_in_order: false,
            data_sequence_in_order: false,
            ..Willing::default()
        };
        let mut session = Session::new(SessionConfig {
            initiator_name: "iqn.2026-11.example:host".into(),
            initiator_alias: None,
            target_name: Some(TARGET.into()),
            isid: Isid::random(1, 1),
            chap: None,
            offers: willing(),
            timers: Timers::default(),
        });
        let local = "192.0.2.1:3260".parse().expect("an address");
        let node = TargetNode {
            name: TARGET.into(),
            alias: None,
            authentication: Authentication::None,
            initiators: None,
            portals: vec![Portal { address: local, group: 1 }],
            willing: willing(),
            moved: None,
        };
        let directory = Directory { targets: vec![Arc::new(node)], discovery: Authentication::None };
        let config = ConnectionConfig {
            directory: Arc::new(directory),
            local,
            portal_group: 1,
            timers: Timers::default(),
            entropy: Entropy(std::array::from_fn(|n| n as u8)),
        };
        let cid = session.connect(Entropy(std::array::from_fn(|n| n as u8)), now);
        let target = Connection::new(config, now);
        let mut pair = Self { session, cid, target, sessions: Sessions::default(), commands: Vec::new(), now };
        while pair.feed_target() | pair.feed_initiator() {}
        pair
    }

    fn initiator_output(&mut self) -> Vec<u8> {
        let bytes = self.session.slices(self.cid).collect::<Vec<_>>().concat();
        self.session.sent(self.cid, bytes.len());
        bytes
    }

    fn target_output(&mut self) -> Vec<u8> {
        let bytes = self.target.slices().collect::<Vec<_>>().concat();
        self.target.sent(bytes.len());
        bytes
    }

    fn feed_target(&mut self) -> bool {
        let bytes = self.initiator_output();
        let mut input = &bytes[..];
        while let Some(event) = self.target.next_event(&mut input, self.now) {
            match event {
                target::Event::Admit(request) => {
                    let admitted = self.sessions.admit(&request, ()).expect("there is room");
                    self.target.admit(admitted.session, self.now);
                }
                target::Event::Command(command) => self.commands.push(command),
                other => panic!("{other:?}"),
            }
        }
        !bytes.is_empty()
    }

    fn feed_initiator(&mut self) -> bool {
        let bytes = self.target_output();
        let mut input = &bytes[..];
        while let Some(event) = self.session.next_event(self.cid, &mut input, self.now) {
            assert!(matches!(event, initiator::Event::LoggedIn(_)), "{event:?}");
        }
        !bytes.is_empty()
    }

    /// The target learns of a command.
    fn submit(&mut self, command: initiator::Command) -> target::Command {
        self.session.submit(command, self.now).expect("there is room");
        self.feed_target();
        self.commands.pop().expect("the command has arrived")
    }
}

fn command(data_in: Option<Buffer>, data_out: Option<Buffer>) -> initiator::Command {
    initiator::Command {
        user: 0,
        lun: LunField::default(),
        cdb: [0; 16],
        cdb_rest: Box::default(),
        attribute: TaskAttribute::SIMPLE,
        priority: 0,
        data_out: data_out.map(Buffer::share),
        data_in,
    }
}

/// The part to count. Not inlined, so that it has a name to be toggled by.
#[inline(never)]
fn counted_write(target: &mut Connection, mut input: &[u8], now: Time) -> Option<target::Event> {
    target.next_event(&mut input, now)
}

#[inline(never)]
fn counted_read(session: &mut Session, cid: Cid, mut input: &[u8], now: Time) -> Option<initiator::Event> {
    session.next_event(cid, &mut input, now)
}

/// Moves offsets and data of the PDUs, which are all of one length, to other places. The headers stay otherwise: numbers count
/// on, and the last one ends the sequence.
fn reorder(bytes: &[u8], digests: bool, order: &[usize]) -> Vec<u8> {
    let digest_len = if digests { DIGEST_LEN } else { 0 };
    let data_at = BHS_LEN + digest_len;
    let pdu_len = data_at + PDU_LEN + digest_len;
    assert_eq!(bytes.len(), order.len() * pdu_len, "one PDU for each place");
    let pdus: Vec<&[u8]> = bytes.chunks(pdu_len).collect();
    let moved = pdus.iter().zip(order).flat_map(|(pdu, from)| {
        let mut pdu = pdu.to_vec();
        pdu[BUFFER_OFFSET].copy_from_slice(&pdus[*from][BUFFER_OFFSET]);
        pdu[data_at..].copy_from_slice(&pdus[*from][data_at..]);
        if digests {
            let digest = to_wire(crc32c(&pdu[..BHS_LEN]));
            pdu[BHS_LEN..data_at].copy_from_slice(&digest);
        }
        pdu
    });
    moved.collect()
}

fn order(name: &str) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..LEN / PDU_LEN).collect();
    match name {
        "ordered" => {}
        "reversed" => order.reverse(),
        "shuffled" => {
            let mut seed = 0x9e37_79b9_u64;
            for last in (1..order.len()).rev() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(last, (seed >> 33) as usize % (last + 1));
            }
        }
        _ => return None,
    }
    Some(order)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [direction, digests, order_name] = &args[..] else { return ExitCode::from(2) };
    let Some(order) = order(order_name) else { return ExitCode::from(2) };
    let digests = match digests.as_str() {
        "plain" => false,
        "digests" => true,
        _ => return ExitCode::from(2),
    };
    let pool = Pool::new(4 * LEN);
    let buffer = || pool.take(LEN).expect("the pool is large enough");
    let mut pair = Pair::logged_in(digests);
    let now = pair.now;
    match direction.as_str() {
        "write" => {
            let task = pair.submit(command(None, Some(buffer()))).task;
            pair.target.want_data(task, buffer());
            pair.feed_initiator();
            let bytes = reorder(&pair.initiator_output(), digests, &order);
            let event = counted_write(&mut pair.target, &bytes, now);
            assert!(matches!(black_box(&event), Some(target::Event::DataOut { .. })), "{event:?}");
        }
        "read" => {
            let task = pair.submit(command(Some(buffer()), None)).task;
            pair.target.complete(task, Response { data_in: Some(buffer().share()), ..Response::default() });
            let bytes = reorder(&pair.target_output(), digests, &order);
            let event = counted_read(&mut pair.session, pair.cid, &bytes, now);
            assert!(matches!(black_box(&event), Some(initiator::Event::Completed { .. })), "{event:?}");
        }
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}
