//! CDBs and parameter lists into the device server, over a small disk in memory.
//!
//! The input is a sequence of commands: flags, CDB, lengths, then bytes that serve as Data-Out.

use std::sync::Arc;
use std::sync::mpsc::channel;

use lunette_buffer::Pool;
use lunette_device::{
    BackgroundTask, Command, Input as DeviceInput, LogicalUnit, LogicalUnitConfig, MAX_TRANSFER_BYTES, Nexus,
    NexusName, PortGroupsConfig, Response, Step, TargetDevice, Waitable,
};
use lunette_scsi::port_groups::Management;
use lunette_scsi::{Cdb, Lun, OpCode, SenseData, Status, TaskAttribute};
use lunette_store::{Completion, MemoryStore, Op, Outcome, Store, execute};

use crate::input::{Input, Random};

/// Bytes of the disk.
const DISK_LEN: u64 = 1 << 20;

/// Commands of one input.
const MAX_COMMANDS: usize = 64;

/// Steps of one command: a WRITE SAME or COMPARE over the whole disk in the smallest pieces takes fewer.
const MAX_STEPS: usize = 3 * (DISK_LEN / 512) as usize;

/// The target.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let disk = Disk::new(input.byte());
    for _ in 0..MAX_COMMANDS {
        if input.is_empty() {
            break;
        }
        let (command, data_out) = command(&mut input);
        disk.execute(command, &data_out);
    }
    assert_eq!(disk.pool.used_bytes(), 0, "a command kept a buffer");
}

struct Disk {
    device: Arc<TargetDevice>,
    nexus: Nexus,
    store: Arc<dyn Store>,
    pool: Pool,
}

impl Disk {
    fn new(choice: u8) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(DISK_LEN).expect("a small disk"));
        let config = LogicalUnitConfig {
            block_size: if choice & 1 == 0 { 512 } else { 4096 },
            read_only: choice & 6 == 6,
            long_cdbs: true,
            ..LogicalUnitConfig::new(Arc::clone(&store), "fuzz")
        };
        let port_groups = PortGroupsConfig { management: Management::Both, ..PortGroupsConfig::default() };
        let device = TargetDevice::with_port_groups("iqn.2026-11.lunette:disk", port_groups);
        let device = Arc::new(device.expect("the default groups"));
        let unit = Arc::new(LogicalUnit::new(config).expect("a unit that can be served"));
        device.add(Lun::ZERO, Arc::clone(&unit)).expect("the first unit");
        device.add(Lun::new(300).expect("a flat LUN"), unit).expect("the second number");
        let nexus = device.attach(NexusName {
            initiator: "iqn.2026-11.example:i,i,0x400001370000".into(),
            target_port: "iqn.2026-11.lunette:disk,t,0x0001".into(),
            relative_port: 1,
        });
        let disk = Self { device, nexus, store, pool: Pool::new(4 * MAX_TRANSFER_BYTES) };
        // The unit attention of a new nexus, so that the first command of the input gets further.
        disk.execute(test_unit_ready(), &[]);
        disk
    }

    /// Drives a command to its end as a transport would.
    fn execute(&self, command: Command, data_out: &[u8]) {
        let (data_out_len, opcode) = (command.data_out_len, command.cdb.opcode());
        let mut task = self.device.start(&self.nexus, command);
        let mut answer = DeviceInput::Start;
        for _ in 0..MAX_STEPS {
            answer = match task.step(answer) {
                Step::Buffer { len } => {
                    assert!(len > 0 && len <= MAX_TRANSFER_BYTES, "{opcode:?} wants a buffer of {len} bytes");
                    DeviceInput::Buffer(self.pool.take(len).expect("one command at a time fits the budget"))
                }
                Step::DataOut { len } => {
                    assert!(len > 0 && len <= data_out_len as usize, "{opcode:?} wants {len} of {data_out_len} bytes");
                    let mut buffer = self.pool.take(len).expect("one command at a time fits the budget");
                    buffer.fill(0);
                    let given = data_out.len().min(len);
                    buffer[..given].copy_from_slice(&data_out[..given]);
                    DeviceInput::DataOut(buffer)
                }
                Step::Store { store, op } => self.submit(&store, op),
                Step::File { .. } => DeviceInput::File(false),
                Step::Work(work) => DeviceInput::Store(Outcome::new(work(), None)),
                Step::Abort { .. } => DeviceInput::Aborted { lost: Vec::new() },
                Step::Background(work) => {
                    self.run_background(work);
                    DeviceInput::Begun
                }
                Step::Wait { on } => wait(&*on),
                Step::Pause { .. } => panic!("{opcode:?} lets time pass"),
                Step::Done(response) => return check(&response),
            };
        }
        panic!("{opcode:?} does not end");
    }

    fn submit(&self, store: &Arc<dyn Store>, op: Op) -> DeviceInput {
        let (offset, len) = op.range();
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= DISK_LEN), "{op:?} lies outside the store");
        assert!(Arc::ptr_eq(store, &self.store));
        DeviceInput::Store(execute(&**store, op))
    }

    /// Drives what a command leaves behind to its end.
    fn run_background(&self, mut work: BackgroundTask) {
        let mut next = work.step(DeviceInput::Start);
        while let Some(step) = next {
            next = work.step(match step {
                Step::Buffer { len } => DeviceInput::Buffer(self.pool.take(len).expect("there is room for one more")),
                Step::Store { store, op } => self.submit(&store, op),
                Step::Work(work) => DeviceInput::Store(Outcome::new(work(), None)),
                Step::Wait { on } => wait(&*on),
                Step::Pause { .. } => DeviceInput::Waited,
                Step::Abort { .. } => DeviceInput::Aborted { lost: Vec::new() },
                other => panic!("background work asks for {other:?}"),
            });
        }
    }
}

/// The end of a wait: no others exist to wait for, so the condition holds.
fn wait(on: &dyn Waitable) -> DeviceInput {
    let (told, answer) = channel();
    on.wait(Completion::call(move |_| told.send(()).expect("this function listens")));
    answer.try_recv().expect("nobody else is at work");
    DeviceInput::Waited
}

fn check(response: &Response) {
    let sense = response.sense.as_ref().map(|sense| SenseData::decode(sense).expect("the sense data can be read"));
    assert_eq!(response.status == Status::CHECK_CONDITION, sense.is_some(), "{response:?}");
    assert!(response.data_in.len() <= MAX_TRANSFER_BYTES);
}

fn test_unit_ready() -> Command {
    Command { lun: [0; 8], cdb: [0; 16].into(), attribute: TaskAttribute::Simple, data_out_len: 0, data_in_len: 0 }
}

fn command(input: &mut Input<'_>) -> (Command, Vec<u8>) {
    let flags = input.byte();
    let base = input.array();
    let cdb = if flags & 0x80 == 0 {
        Cdb::from(base)
    } else {
        Cdb::extended(base, &[input.byte(); 16]).expect("32 bytes are a CDB")
    };
    let lun = match flags & 7 {
        0 => Lun::new(300).expect("a flat LUN").encode(),
        1 => input.array(),
        _ => [0; 8],
    };
    let data_len = u32::from(input.u16()) << (flags >> 3 & 7);
    let list = input.byte();
    let data_out = input.bytes(list.into()).to_vec();
    let (data_out_len, data_in_len) = if list == 0 { (0, data_len) } else { (data_len, 0) };
    let command = Command { lun, cdb, attribute: TaskAttribute::Simple, data_out_len, data_in_len };
    (command, data_out)
}

/// Operation codes that disks know, and a few that they do not.
const OPCODES: [u8; 41] = [
    0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x1a, 0x1b, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x37, 0x41, 0x42, 0x48,
    0x4d, 0x55, 0x5a, 0x5e, 0x5f, 0x7f, 0x83, 0x84, 0x88, 0x89, 0x8a, 0x8e, 0x8f, 0x91, 0x93, 0x9c, 0x9e, 0xa0, 0xa3,
    0xa8, 0xaa, 0xaf,
];

/// Commands whose addresses mostly lie on the disk.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.byte()];
    for _ in 0..1 + random.below(8) {
        let opcode = *random.choose(&OPCODES);
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        for byte in &mut cdb[1..] {
            if random.below(4) == 0 {
                *byte = random.byte();
            }
        }
        if random.below(2) == 0 {
            // A usual address and length: all their high bytes zero.
            let (address, length) = match opcode >> 5 {
                0 => (1..2, 4..4),
                1 | 2 => (1..4, 7..8),
                4 => (1..8, 10..13),
                _ => (1..4, 6..9),
            };
            cdb[address].fill(0);
            cdb[length].fill(0);
        }
        if opcode == 0x9e || opcode == 0xa3 {
            cdb[1] = *random.choose(&[0x10, 0x12, 0x0c, 0x0d, 0x0a]);
        }
        if opcode == 0x83 || opcode == 0x84 {
            cdb[1] = *random.choose(&[0x00, 0x01, 0x03, 0x04, 0x05, 0x07, 0x08, 0x10, 0x11, 0x1c]);
        }
        if opcode == 0x48 {
            cdb[1] = random.byte() & 0xa0 | *random.choose(&[1, 2, 3, 0x1f]);
        }
        bytes.push(if random.below(4) == 0 { random.byte() } else { 0x02 | random.byte() & 0x38 });
        bytes.extend(cdb);
        bytes.extend((random.number() as u16).to_be_bytes());
        let list = if random.below(2) == 0 { Vec::new() } else { parameter_list(random) };
        bytes.push(list.len() as u8);
        bytes.extend(list);
    }
    bytes
}

/// Something like the parameter list of UNMAP, or zeroes and ones.
fn parameter_list(random: &mut Random) -> Vec<u8> {
    let mut list = random.some_bytes(200);
    if random.below(2) == 0 && list.len() > 8 {
        let len = list.len() as u16;
        list[..2].copy_from_slice(&(len - 2).to_be_bytes());
        list[2..4].copy_from_slice(&(len - 8).to_be_bytes());
        for descriptor in list[8..].chunks_mut(16) {
            let high = descriptor.len().min(6);
            descriptor[..high].fill(0);
        }
    }
    list
}

/// One command per operation code.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let seed = |opcode: u8| {
        let mut bytes = vec![0, 2];
        bytes.extend([opcode, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]);
        bytes.extend([2, 0, 0]);
        (
            format!("{:02x}_{}", opcode, OpCode(opcode).name().unwrap_or("unknown").to_lowercase().replace(' ', "_")),
            bytes,
        )
    };
    OPCODES.into_iter().map(seed).map(|(name, bytes)| (name.replace(['(', ')', '/'], "_"), bytes)).collect()
}
