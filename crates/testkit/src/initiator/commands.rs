//! Commands, their data and their ends.

use std::io;

use lunette_pdu::{Ahs, DataOut, InitiatorTaskTag, MAX_AHS_LEN, R2t, ScsiCommand, TargetPdu, TargetTransferTag};

use super::ScriptedInitiator;
use crate::requests::{self, lun};
use crate::{BLOCK_LEN, Numbers};

/// Sense key, additional sense code and qualifier.
pub type Sense = (u8, u8, u8);

/// A command under way.
#[derive(Default)]
pub(super) struct Task {
    data_out: Vec<u8>,
    pub(super) data_in: Vec<u8>,
    outcome: Option<Outcome>,
}

impl Task {
    pub(super) fn end(&mut self, status: u8, sense: &[u8]) {
        let data = std::mem::take(&mut self.data_in);
        self.outcome = Some(Outcome { status, sense: sense.to_vec(), data });
    }
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The SCSI status.
    pub status: u8,
    /// The sense data; empty when there is none.
    pub sense: Vec<u8>,
    /// The data that was read.
    pub data: Vec<u8>,
}

impl Outcome {
    /// Sense data of the first command of a nexus that is new.
    pub const POWER_ON: Sense = (6, 0x29, 0);
    /// Sense data of the first command of a nexus that comes back.
    pub const NEXUS_LOSS: Sense = (6, 0x29, 7);
    /// Sense data of a nexus that has lost commands with a connection.
    pub const COMMANDS_CLEARED: Sense = (6, 0x47, 0x7f);

    /// The data of a command, which has ended with GOOD.
    pub fn good(self) -> Vec<u8> {
        assert_eq!(self.status, 0, "{self:02x?}");
        self.data
    }

    /// The sense data of a command that has ended with CHECK CONDITION, in fixed format.
    pub fn sense(&self) -> Sense {
        assert_eq!(self.status, 2, "{self:02x?}");
        fixed_sense(&self.sense)
    }
}

pub(super) fn fixed_sense(sense: &[u8]) -> Sense {
    (sense[2] & 0x0f, sense[12], sense[13])
}

impl ScriptedInitiator {
    pub(super) fn task(&mut self, itt: InitiatorTaskTag) -> &mut Task {
        self.tasks.get_mut(&itt).unwrap_or_else(|| panic!("{itt:?} is not under way"))
    }

    /// Sends a command, with the first `immediate` bytes of its data.
    pub fn start(
        &mut self,
        number: u16,
        cdb: &[u8],
        data_out: Vec<u8>,
        data_in_len: u32,
        immediate: usize,
    ) -> InitiatorTaskTag {
        self.try_start(number, cdb, data_out, data_in_len, immediate).expect("the target takes it")
    }

    /// Like [`start`](Self::start), for targets that may have closed the connection.
    pub fn try_start(
        &mut self,
        number: u16,
        cdb: &[u8],
        data_out: Vec<u8>,
        data_in_len: u32,
        immediate: usize,
    ) -> io::Result<InitiatorTaskTag> {
        let itt = self.next_itt();
        let write = !data_out.is_empty();
        let command = ScsiCommand {
            final_: !self.announces_data,
            read: data_in_len > 0,
            write,
            attr: self.attribute,
            lun: lun(number),
            expected_data_transfer_length: if write { data_out.len() as u32 } else { data_in_len },
            cmd_sn: self.next_cmd_sn(),
            cdb: requests::cdb(cdb),
            data_segment_len: immediate,
            ..requests::command(itt.0)
        };
        self.try_send(command.emit(), &data_out[..immediate])?;
        self.tasks.insert(itt, Task { data_out, ..Task::default() });
        Ok(itt)
    }

    /// Sends a command without data, whose CDB has `additional` bytes beyond its first 16.
    pub fn start_with_extended_cdb(&mut self, additional: usize) -> InitiatorTaskTag {
        let rest = vec![0; additional];
        let mut ahs = [0; MAX_AHS_LEN];
        let ahs_len = Ahs::ExtendedCdb(&rest).emit(&mut ahs).expect("it has room").next_multiple_of(4);
        let itt = self.next_itt();
        let command = ScsiCommand { cmd_sn: self.next_cmd_sn(), cdb: [0x7f; 16], ahs_len, ..requests::command(itt.0) };
        let bytes = self.format.encode(&command.emit(), &ahs[..ahs_len], &[]);
        self.send_bytes(&bytes);
        self.tasks.insert(itt, Task::default());
        itt
    }

    /// Waits for the end of a command, and serves other tasks meanwhile.
    pub fn finish(&mut self, itt: InitiatorTaskTag) -> Outcome {
        self.try_finish(itt).expect("the connection is open")
    }

    /// Like [`finish`](Self::finish), for targets that may close the connection.
    pub fn try_finish(&mut self, itt: InitiatorTaskTag) -> io::Result<Outcome> {
        loop {
            if let Some(outcome) = self.task(itt).outcome.take() {
                self.tasks.remove(&itt);
                return Ok(outcome);
            }
            self.try_take_one()?;
        }
    }

    /// Whether the answer to a command or a task management request has come.
    pub fn has_answer(&self, itt: InitiatorTaskTag) -> bool {
        let answers = |pdu: &TargetPdu| matches!(pdu, TargetPdu::TaskManagementResponse(pdu) if pdu.itt == itt);
        self.others.iter().any(|(pdu, _)| answers(pdu))
            || self.tasks.get(&itt).is_some_and(|task| task.outcome.is_some())
    }

    /// Expects the end of a task of another connection here.
    pub fn take_over(&mut self, from: &mut Self, itt: InitiatorTaskTag) {
        if let Some(task) = from.tasks.remove(&itt) {
            self.tasks.insert(itt, task);
        }
    }

    /// Sends all data of a command that has announced it.
    pub fn send_unsolicited(&mut self, number: u16, itt: InitiatorTaskTag) {
        let len = self.task(itt).data_out.len() as u32;
        let all = Numbers::new(self.cmd_sn, self.cmd_sn).r2t(itt, 0, 0, len);
        self.answer_r2t(&R2t { lun: lun(number), ttt: TargetTransferTag::RESERVED, ..all });
    }

    /// Sends the data that the target has asked for.
    pub fn answer_r2t(&mut self, r2t: &R2t) {
        self.send_part_of(r2t, usize::MAX).expect("the target takes it");
    }

    /// Answers an R2T with its first PDUs.
    pub fn send_part_of(&mut self, r2t: &R2t, pdus: usize) -> io::Result<()> {
        let data = std::mem::take(&mut self.task(r2t.itt).data_out);
        for pdu in requests::solicited(r2t, self.data_out_len).into_iter().take(pdus) {
            let DataOut { buffer_offset, data_segment_len, .. } = pdu;
            self.try_send(pdu.emit(), &data[buffer_offset as usize..][..data_segment_len])?;
        }
        self.task(r2t.itt).data_out = data;
        Ok(())
    }

    /// Runs a command; data is sent as the target asks for it.
    pub fn command(&mut self, number: u16, cdb: &[u8], data_out: Vec<u8>, data_in_len: u32) -> Outcome {
        let itt = self.start(number, cdb, data_out, data_in_len, 0);
        self.finish(itt)
    }

    /// TEST UNIT READY.
    pub fn test_unit_ready(&mut self, number: u16) -> Outcome {
        self.command(number, &[0; 6], Vec::new(), 0)
    }

    /// Sends a READ (10) without waiting for it.
    pub fn start_read(&mut self, number: u16, lba: u32, blocks: u16) -> InitiatorTaskTag {
        self.start(number, &cdb_10(0x28, lba, blocks), Vec::new(), u32::from(blocks) * BLOCK_LEN as u32, 0)
    }

    /// Sends READ (10).
    pub fn read(&mut self, number: u16, lba: u32, blocks: u16) -> Outcome {
        let itt = self.start_read(number, lba, blocks);
        self.finish(itt)
    }

    /// Sends a WRITE (10) with the first `immediate` bytes of its data, without waiting for it.
    pub fn start_write(&mut self, number: u16, lba: u32, data: Vec<u8>, immediate: usize) -> InitiatorTaskTag {
        self.try_start_write(number, lba, data, immediate).expect("the target takes it")
    }

    /// Like [`start_write`](Self::start_write), for targets that may have closed the connection.
    pub fn try_start_write(
        &mut self,
        number: u16,
        lba: u32,
        data: Vec<u8>,
        immediate: usize,
    ) -> io::Result<InitiatorTaskTag> {
        let blocks = u16::try_from(data.len() / BLOCK_LEN).expect("a length that WRITE (10) can have");
        self.try_start(number, &cdb_10(0x2a, lba, blocks), data, 0, immediate)
    }

    /// Sends WRITE (10).
    pub fn write(&mut self, number: u16, lba: u32, data: Vec<u8>) -> Outcome {
        let itt = self.start_write(number, lba, data, 0);
        self.finish(itt)
    }

    /// SYNCHRONIZE CACHE (10) of all blocks.
    pub fn synchronize_cache(&mut self, number: u16) -> Outcome {
        self.command(number, &cdb_10(0x35, 0, 0), Vec::new(), 0)
    }
}

/// A CDB of ten bytes with an LBA and a number of blocks.
pub fn cdb_10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = blocks.to_be_bytes();
    [opcode, 0, a, b, c, d, 0, high, low, 0]
}
