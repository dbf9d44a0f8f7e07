//! Another initiator at the same target.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use lunette_pdu::{Isid, SerialNumber, TaskManagementFunction, TaskManagementRequest};
use lunette_scsi::OpCode;
use lunette_testkit::requests;

use super::{TARGET, block_cdb, command, login_request};

/// The most bytes that it reads at once: a few of its reads leave no buffers to others.
const READ_BLOCKS: u32 = 8192;

/// A rival with its connection. It looks at no answer.
pub(crate) struct Rival {
    wire: UnixStream,
    next_cmd_sn: SerialNumber,
}

impl Rival {
    pub(super) fn login(wire: UnixStream) -> Self {
        let mut rival = Self { wire, next_cmd_sn: SerialNumber(1) };
        let keys = format!("InitiatorName=iqn.2026-11.example:rival\0SessionType=Normal\0TargetName={TARGET}\0");
        rival.send(&login_request(Isid([0x40, 0, 1, 0x37, 0, 2]), rival.next_cmd_sn, &keys));
        // The unit attention of a new nexus ends the first command.
        rival.command([0; 16], 0);
        rival
    }

    /// Resets the logical unit.
    pub(crate) fn reset(&mut self) {
        let reset = requests::task_management(0, TaskManagementFunction::LOGICAL_UNIT_RESET);
        self.send(&TaskManagementRequest { cmd_sn: self.next_cmd_sn, ..reset }.emit());
    }

    /// Has a large buffer taken until the store lets it go.
    pub(crate) fn take_buffer(&mut self) {
        self.command(block_cdb(OpCode::READ_16, true, READ_BLOCKS), READ_BLOCKS * 512);
    }

    fn command(&mut self, cdb: [u8; 16], read_len: u32) {
        let command = command(self.next_cmd_sn.0, self.next_cmd_sn, cdb, read_len);
        self.next_cmd_sn = self.next_cmd_sn.next();
        self.send(&command);
    }

    fn send(&mut self, pdu: &[u8]) {
        // The connection may be over.
        let _ = self.wire.write(pdu);
    }

    /// Takes what has arrived. `false` when that is nothing.
    pub(super) fn read(&mut self) -> bool {
        self.wire.read(&mut [0; 4096]).is_ok_and(|len| len > 0)
    }
}
