//! How a command is told in a CDB. The device is our own, so its CDBs are too.

use lunette_buffer::{Buffer, SharedBuffer};
use lunette_pdu::{LunField, TaskAttribute};
use lunette_session::{iscsi_initiator, iscsi_target};

use crate::oracle::{Extent, Kind, User};

const READ: u8 = 0x28;
const WRITE: u8 = 0x2a;
/// XDWRITEREAD(10) by its number; what it does is simpler.
const EXCHANGE: u8 = 0x53;

/// A command, as its CDB has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) user: User,
    pub(crate) kind: Kind,
    pub(crate) extent: Extent,
    /// Bytes beyond the first 16 of its CDB.
    pub(crate) extended: u8,
}

impl Request {
    pub(crate) fn command(self, data_out: Option<SharedBuffer>, data_in: Option<Buffer>) -> iscsi_initiator::Command {
        let mut cdb = [0; 16];
        cdb[0] = match self.kind {
            Kind::Read => READ,
            Kind::Write => WRITE,
            Kind::Exchange => EXCHANGE,
        };
        cdb[2..6].copy_from_slice(&(self.extent.first as u32).to_be_bytes());
        cdb[6..10].copy_from_slice(&(self.extent.blocks as u32).to_be_bytes());
        cdb[11] = self.extended;
        cdb[12..].copy_from_slice(&(self.user as u32).to_be_bytes());
        iscsi_initiator::Command {
            user: self.user,
            lun: lun(self.extent.unit),
            cdb,
            cdb_rest: self.rest().into(),
            attribute: TaskAttribute::SIMPLE,
            priority: 0,
            data_out,
            data_in,
        }
    }

    fn rest(self) -> Vec<u8> {
        (0..self.extended).map(|at| at ^ self.user as u8).collect()
    }

    /// Reads a command that came to the target. `None`: it is none that the initiator sends.
    pub(crate) fn parse(command: &iscsi_target::Command) -> Option<Self> {
        let number = |at: usize| Some(u32::from_be_bytes(*command.cdb.get(at..)?.first_chunk()?));
        let kind = match command.cdb[0] {
            READ => Kind::Read,
            WRITE => Kind::Write,
            EXCHANGE => Kind::Exchange,
            _ => return None,
        };
        let extent =
            Extent { unit: usize::from(command.lun.0[1]), first: number(2)? as usize, blocks: number(6)? as usize };
        let request = Self { user: number(12)?.into(), kind, extent, extended: command.cdb[11] };
        (*command.cdb_rest == *request.rest() && command.lun == lun(extent.unit)).then_some(request)
    }
}

pub(crate) fn lun(unit: usize) -> LunField {
    LunField([0, unit as u8, 0, 0, 0, 0, 0, 0])
}
