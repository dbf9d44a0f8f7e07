//! A device of bytes: READ, WRITE and XDWRITEREAD name an offset and a length in bytes.

use lunette_buffer::{Buffer, Pool};
use lunette_pdu::{LunField, TaskAttribute};
use lunette_session::iscsi_initiator::Command;
use lunette_session::iscsi_target::{self, Response};

const READ: u8 = 0x28;
const WRITE: u8 = 0x2a;
const XDWRITEREAD: u8 = 0x53;

pub(crate) const LUN: LunField = LunField([0, 3, 0, 0, 0, 0, 0, 0]);

fn cdb(opcode: u8, offset: u32, len: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&offset.to_be_bytes());
    cdb[6..10].copy_from_slice(&len.to_be_bytes());
    cdb
}

/// The driver's name for a command travels in its CDB.
fn named(user: u64, mut cdb: [u8; 16]) -> [u8; 16] {
    cdb[12..].copy_from_slice(&(user as u32).to_be_bytes());
    cdb
}

fn fields(cdb: &[u8; 16]) -> (u8, usize, usize) {
    let number = |at: usize| u32::from_be_bytes(cdb[at..at + 4].try_into().unwrap()) as usize;
    (cdb[0], number(2), number(6))
}

fn command(user: u64, cdb: [u8; 16]) -> Command {
    Command {
        user,
        lun: LUN,
        cdb: named(user, cdb),
        cdb_rest: Box::default(),
        attribute: TaskAttribute::SIMPLE,
        priority: 0,
        data_out: None,
        data_in: None,
        block_len: 0,
    }
}

pub(crate) fn read(pool: &Pool, user: u64, offset: u32, len: u32) -> Command {
    let buffer = (len > 0).then(|| pool.take(len as usize).unwrap());
    Command { data_in: buffer, ..command(user, cdb(READ, offset, len)) }
}

pub(crate) fn write(pool: &Pool, user: u64, offset: u32, data: &[u8]) -> Command {
    let buffer = (!data.is_empty()).then(|| {
        let mut buffer = pool.take(data.len()).unwrap();
        buffer.copy_from_slice(data);
        buffer.share()
    });
    Command { data_out: buffer, ..command(user, cdb(WRITE, offset, data.len() as u32)) }
}

/// A command with data in both directions, whose CDB names `len` bytes: there is room for `room` bytes of what comes
/// back.
pub(crate) fn exchange(pool: &Pool, user: u64, offset: u32, len: u32, data: &[u8], room: u32) -> Command {
    let data_in = Some(pool.take(room as usize).unwrap());
    Command { data_in, cdb: named(user, cdb(XDWRITEREAD, offset, len)), ..write(pool, user, offset, data) }
}

/// The bytes behind LUN 3.
pub(crate) struct Disk {
    pub(crate) bytes: Vec<u8>,
}

impl Disk {
    /// The buffer's length that a command wants to be written, if it writes.
    pub(crate) fn wants(command: &iscsi_target::Command) -> Option<usize> {
        let (opcode, _, len) = fields(&command.cdb);
        (matches!(opcode, WRITE | XDWRITEREAD) && len > 0).then_some(len)
    }

    /// The name that the initiator's driver gave to a command.
    pub(crate) fn name(command: &iscsi_target::Command) -> u64 {
        u32::from_be_bytes(*command.cdb.last_chunk().unwrap()).into()
    }

    pub(crate) fn run(&mut self, command: &iscsi_target::Command, data: Option<Buffer>, pool: &Pool) -> Response {
        let (opcode, offset, len) = fields(&command.cdb);
        match (opcode, data) {
            (WRITE, Some(data)) => {
                let len = data.len().min(command.data_out_len as usize);
                self.bytes[offset..offset + len].copy_from_slice(&data[..len]);
                Response { data_out_transfer_len: data.len() as u64, ..Response::default() }
            }
            (XDWRITEREAD, Some(data)) => {
                let len = data.len().min(command.data_out_len as usize);
                let mut difference = pool.take(len).unwrap();
                for (at, byte) in difference.iter_mut().enumerate() {
                    *byte = self.bytes[offset + at] ^ data[at];
                }
                self.bytes[offset..offset + len].copy_from_slice(&data[..len]);
                let data_in = difference.into();
                Response { data_in, data_out_transfer_len: data.len() as u64, ..Response::default() }
            }
            (READ, _) => {
                let mut buffer = pool.take(len).unwrap();
                buffer.copy_from_slice(&self.bytes[offset..offset + len]);
                Response { data_in: buffer.into(), ..Response::default() }
            }
            _ => Response::default(),
        }
    }
}
