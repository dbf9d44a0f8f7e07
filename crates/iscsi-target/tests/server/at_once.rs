//! Commands that are answered while they are read, beside the same commands as tasks: one stream of bytes, two targets,
//! the same answers.
//!
//! The targets differ in their store alone: one answers within the call. ExpCmdSN, MaxCmdSN and StatSN depend on what a
//! target has seen and said before, which the two do in different orders; all other bytes of all answers have to be the
//! same, and so have the disks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lunette_device::{CommandKind, TargetDevice};
use lunette_pdu::{
    DataIn, DataInStatus, InitiatorTaskTag, ScsiCommand, ScsiResponse, SerialNumber, TargetPdu, TaskAttribute,
};
use lunette_scsi::SenseKey;
use lunette_store::filters::Trace;
use lunette_store::{Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, OpKind, Store};
use lunette_testkit::{Format, requests};
use proptest::prelude::*;

use crate::common::{BLOCK_LEN, Initiator, Port, TARGET, Target, blocks, device, memory};

/// Blocks of the part of the disk that one command of a batch may change: those of a batch have no order.
const PART: u32 = 40;
const PARTS: u32 = 8;
const DISK_BLOCKS: u32 = PART * PARTS;

/// Counts what its store answers at once.
struct Counted {
    store: MemoryStore,
    reads: AtomicUsize,
    writes: AtomicUsize,
}

impl Store for Counted {
    fn geometry(&self) -> Geometry {
        self.store.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn answers_at_once(&self, kind: OpKind) -> bool {
        self.store.answers_at_once(kind)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.store.read_at_once(offset, into)
    }

    fn write_at_once(&self, offset: u64, from: &[u8], fua: bool) -> bool {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.store.write_at_once(offset, from, fua)
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        self.store.submit(op, io, done);
    }
}

/// A command of a batch, in its own part of the disk.
#[derive(Debug, Clone)]
struct Request {
    opcode: u8,
    lun: u16,
    /// Within the part.
    lba: u32,
    blocks: u16,
    /// The third byte of the CDB and more: FUA, or a bit that is reserved.
    flags: u8,
    /// Bytes that the header announces beyond those that the CDB names, or short of them.
    excess: i32,
    /// The part of a write's data that comes with the command, in eighths.
    immediate: u8,
    beyond_the_disk: bool,
    ordered: bool,
    is_immediate: bool,
}

const TEST_UNIT_READY: u8 = 0x00;
const READ_6: u8 = 0x08;
const WRITE_6: u8 = 0x0a;
const INQUIRY: u8 = 0x12;
const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;
const WRITE_AND_VERIFY_10: u8 = 0x2e;
const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8a;

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.05)
}

fn request() -> impl Strategy<Value = Request> {
    let opcode = prop_oneof![
        4 => Just(READ_10),
        4 => Just(WRITE_10),
        1 => prop::sample::select(vec![
            TEST_UNIT_READY, READ_6, WRITE_6, INQUIRY, WRITE_AND_VERIFY_10, READ_16, WRITE_16, 0xc5,
        ]),
    ];
    let flags = prop_oneof![8 => Just(0), 1 => Just(0x08), 1 => Just(0x01)];
    let excess = prop_oneof![12 => Just(0), 1 => -600..600_i32];
    let immediate = prop_oneof![5 => Just(8_u8), 1 => 0..8_u8];
    let lun = prop_oneof![20 => Just(0_u16), 1 => Just(1_u16)];
    ((opcode, lun, 0..PART), (0..PART as u16, flags, excess, immediate), (rarely(), rarely(), rarely())).prop_map(
        |((opcode, lun, lba), (blocks, flags, excess, immediate), (beyond_the_disk, ordered, is_immediate))| Request {
            blocks: blocks.min((PART - lba) as u16).max(u16::from(opcode == READ_6 || opcode == WRITE_6)),
            opcode,
            lun,
            lba,
            flags,
            excess,
            immediate,
            beyond_the_disk,
            ordered,
            is_immediate,
        },
    )
}

impl Request {
    fn writes(&self) -> bool {
        matches!(self.opcode, WRITE_6 | WRITE_10 | WRITE_AND_VERIFY_10 | WRITE_16)
    }

    fn len(&self) -> u32 {
        let named = match self.opcode {
            INQUIRY => 36,
            READ_6 | READ_10 | READ_16 | WRITE_6 | WRITE_10 | WRITE_AND_VERIFY_10 | WRITE_16 => {
                u32::from(self.blocks) * BLOCK_LEN as u32
            }
            _ => return 0,
        };
        named.saturating_add_signed(self.excess)
    }

    fn cdb(&self, part: u32) -> [u8; 16] {
        let lba = part * PART + self.lba + if self.beyond_the_disk { DISK_BLOCKS } else { 0 };
        let mut cdb = [0; 16];
        cdb[0] = self.opcode;
        match self.opcode {
            READ_6 | WRITE_6 => {
                cdb[1..4].copy_from_slice(&lba.to_be_bytes()[1..]);
                cdb[4] = self.blocks as u8;
            }
            READ_16 | WRITE_16 => {
                cdb[1] = self.flags;
                cdb[6..10].copy_from_slice(&lba.to_be_bytes());
                cdb[12..14].copy_from_slice(&self.blocks.to_be_bytes());
            }
            READ_10 | WRITE_10 | WRITE_AND_VERIFY_10 => {
                cdb[1] = self.flags;
                cdb[2..6].copy_from_slice(&lba.to_be_bytes());
                cdb[7..9].copy_from_slice(&self.blocks.to_be_bytes());
            }
            INQUIRY => cdb[4] = 36,
            _ => cdb[1] = self.flags,
        }
        cdb
    }
}

/// The state of an initiator beside its connection.
struct Side {
    initiator: Initiator,
    format: Format,
    immediate_data: bool,
}

/// The answers to a batch, by task.
type Answers = BTreeMap<InitiatorTaskTag, Vec<(TargetPdu, Vec<u8>)>>;

impl Side {
    fn log_in(target: &Target, keys: &[(&str, &str)]) -> Self {
        let initiator = Initiator::log_in(target, Port::A, keys);
        let wants = |key: &str| keys.iter().any(|(name, value)| (*name, *value) == (key, "CRC32C"));
        let format = Format { header_digest: wants("HeaderDigest"), data_digest: wants("DataDigest") };
        let immediate_data = !keys.contains(&("ImmediateData", "No"));
        Self { initiator, format, immediate_data }
    }

    /// Sends a batch in pieces of these lengths, the last one as often as it takes, and waits for the end of all its
    /// commands.
    fn exchange(&mut self, batch: &[Request], pieces: &[usize], seed: u8) -> Answers {
        let (mut bytes, mut data) = (Vec::new(), BTreeMap::new());
        for (part, request) in batch.iter().enumerate() {
            let itt = self.initiator.next_itt();
            let (len, writes) = (request.len(), request.writes());
            let data_out = if writes {
                blocks(len as usize / BLOCK_LEN + 1, seed ^ part as u8)[..len as usize].to_vec()
            } else {
                Vec::new()
            };
            let immediate =
                if self.immediate_data { data_out.len().min(8192) * usize::from(request.immediate) / 8 } else { 0 };
            let command = ScsiCommand {
                read: !writes && len > 0,
                write: writes,
                immediate: request.is_immediate,
                attr: if request.ordered { TaskAttribute::ORDERED } else { TaskAttribute::SIMPLE },
                lun: requests::lun(request.lun),
                expected_data_transfer_length: len,
                cmd_sn: if request.is_immediate { self.initiator.cmd_sn } else { self.initiator.next_cmd_sn() },
                cdb: request.cdb(part as u32),
                data_segment_len: immediate,
                ..requests::command(itt.0)
            };
            bytes.extend(self.format.encode(&command.emit(), &[], &data_out[..immediate]));
            data.insert(itt, data_out);
        }
        let (mut rest, mut pieces) = (&bytes[..], pieces.iter().copied());
        let mut len = rest.len();
        while !rest.is_empty() {
            len = pieces.next().unwrap_or(len).min(rest.len());
            let (piece, later) = rest.split_at(len);
            self.initiator.send_bytes(piece);
            rest = later;
        }
        self.answers(&data)
    }

    fn answers(&mut self, data: &BTreeMap<InitiatorTaskTag, Vec<u8>>) -> Answers {
        let (mut answers, mut open) = (Answers::new(), data.len());
        while open > 0 {
            let (pdu, segment) = self.initiator.receive().expect("the connection is open");
            let (itt, ends) = match &pdu {
                TargetPdu::R2t(r2t) => {
                    for pdu in requests::solicited(r2t, 8192) {
                        let at = pdu.buffer_offset as usize;
                        self.initiator.send(pdu.emit(), &data[&r2t.itt][at..at + pdu.data_segment_len]);
                    }
                    continue;
                }
                TargetPdu::DataIn(data_in) => (data_in.itt, data_in.status.is_some()),
                TargetPdu::ScsiResponse(response) => (response.itt, true),
                other => panic!("{other:?}"),
            };
            open -= usize::from(ends);
            answers.entry(itt).or_default().push((without_numbers(pdu), segment));
        }
        answers
    }
}

/// The PDU without the numbers that depend on what came before it.
fn without_numbers(pdu: TargetPdu) -> TargetPdu {
    const NONE: SerialNumber = SerialNumber(0);
    match pdu {
        TargetPdu::DataIn(pdu) => TargetPdu::DataIn(DataIn {
            exp_cmd_sn: NONE,
            max_cmd_sn: NONE,
            status: pdu.status.map(|status| DataInStatus { stat_sn: NONE, ..status }),
            ..pdu
        }),
        TargetPdu::ScsiResponse(pdu) => {
            TargetPdu::ScsiResponse(ScsiResponse { stat_sn: NONE, exp_cmd_sn: NONE, max_cmd_sn: NONE, ..pdu })
        }
        other => other,
    }
}

fn disk() -> MemoryStore {
    MemoryStore::new(u64::from(DISK_BLOCKS) * BLOCK_LEN as u64).unwrap()
}

/// The content of the disk, by a command that is too long to be answered at once.
fn content(side: &mut Side) -> Vec<u8> {
    // The unit attention of the nexus may still be pending.
    side.initiator.test_unit_ready(0);
    side.initiator.read(0, 0, DISK_BLOCKS as u16).good()
}

/// The counts of each kind of command without the times: commands, successes, timed ones; and bytes and errors.
fn counted(device: &TargetDevice) -> (Vec<[u64; 3]>, [u64; 2], Vec<u64>, u64) {
    let counts = device.units()[0].1.counts();
    let of_kind = |kind| [counts.commands(kind), counts.succeeded(kind), counts.latencies(kind).iter().sum()];
    let errors = (0..16).map(|key| counts.errors(SenseKey(key))).collect();
    let kinds = CommandKind::ALL.map(of_kind).to_vec();
    assert!(kinds.iter().all(|[commands, _, timed]| commands == timed), "every command is timed once: {kinds:?}");
    (kinds, [counts.read_bytes(), counts.written_bytes()], errors, counts.in_flight())
}

#[test]
fn the_answers_and_the_counts_are_those_of_tasks() {
    let fast = Arc::new(Counted { store: disk(), reads: AtomicUsize::new(0), writes: AtomicUsize::new(0) });
    let stores: [Arc<dyn Store>; 2] = [fast.clone(), Arc::new(Trace::new(Arc::new(disk())))];
    let devices = stores.map(|store| device(TARGET, vec![store]));
    let targets = devices.each_ref().map(|device| Target::of(vec![Arc::clone(device)], |_| ()));
    let choices: [&[(&str, &str)]; 4] = [
        &[],
        &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")],
        &[("MaxRecvDataSegmentLength", "4096"), ("ImmediateData", "No")],
        &[("DataDigest", "CRC32C"), ("ErrorRecoveryLevel", "1")],
    ];
    let batches = prop::collection::vec(
        (prop::collection::vec(request(), 1..=PARTS as usize), prop::collection::vec(1..5000_usize, 0..4), any::<u8>()),
        1..12,
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    });
    let result = runner.run(&(prop::sample::select(choices.to_vec()), batches), |(keys, batches)| {
        let mut sides = targets.each_ref().map(|target| Side::log_in(target, keys));
        for (batch, pieces, seed) in batches {
            let [at_once, as_tasks] = sides.each_mut().map(|side| side.exchange(&batch, &pieces, seed));
            prop_assert_eq!(at_once, as_tasks);
        }
        let [at_once, as_tasks] = sides.each_mut().map(content);
        prop_assert!(at_once == as_tasks, "the disks differ");
        let [at_once, as_tasks] = devices.each_ref().map(|device| counted(device));
        prop_assert_eq!(at_once, as_tasks);
        Ok(())
    });
    result.unwrap();
    let [reads, writes] = [&fast.reads, &fast.writes].map(|count| count.load(Ordering::Relaxed));
    assert!(reads > 100 && writes > 100, "{reads} reads and {writes} writes were answered at once");
}

#[test]
fn answers_that_are_not_read_leave_others_their_buffers() {
    const READS: u8 = 120;
    const BLOCKS: u16 = 32;
    let target = Target::of(vec![device(TARGET, vec![memory()])], |config| {
        (config.cores, config.buffer_bytes) = (1, 4 << 20);
    });
    let at = |read: u8| u32::from(read) * u32::from(BLOCKS);
    let mut other = Initiator::attach(&target, Port::A);
    for read in 0..READS {
        other.write(0, at(read), blocks(BLOCKS.into(), read)).good();
    }
    let mut greedy: Vec<_> = (b'b'..b'r')
        .map(|initiator| {
            let mut initiator = Initiator::attach(&target, Port { initiator, ..Port::A });
            let reads: Vec<_> = (0..READS).map(|read| initiator.start_read(0, at(read), BLOCKS)).collect();
            (initiator, reads)
        })
        .collect();
    assert!(other.read(0, at(1), BLOCKS).good() == blocks(BLOCKS.into(), 1));
    for (initiator, reads) in &mut greedy {
        for (read, itt) in (0..READS).zip(reads) {
            assert!(initiator.finish(*itt).good() == blocks(BLOCKS.into(), read), "read {read}");
        }
    }
}
