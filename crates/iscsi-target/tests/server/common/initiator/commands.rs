//! Commands, their data and their ends.

use lunette_pdu::{
    Ahs, DataOut, InitiatorTaskTag, LunField, MAX_AHS_LEN, R2t, ScsiCommand, SerialNumber, TargetTransferTag,
    TaskAttribute,
};
use lunette_scsi::Lun;
use lunette_store::filters::Delay;

use super::Initiator;
use crate::common::{BLOCK_LEN, blocks};

/// A command under way.
#[derive(Default)]
pub(super) struct Task {
    pub(super) data_out: Vec<u8>,
    pub(super) data_in: Vec<u8>,
    pub(super) outcome: Option<Outcome>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: u8,
    pub(crate) sense: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl Outcome {
    pub(crate) fn good(self) -> Vec<u8> {
        assert_eq!(self.status, 0, "{self:02x?}");
        self.data
    }

    /// Sense key and additional sense of a CHECK CONDITION with fixed format sense data.
    pub(crate) fn sense(&self) -> (u8, u8, u8) {
        assert_eq!(self.status, 2, "{self:02x?}");
        (self.sense[2] & 0x0f, self.sense[12], self.sense[13])
    }
}

/// Sense data of a nexus that is new, and of one that comes back.
pub(crate) const POWER_ON: (u8, u8, u8) = (6, 0x29, 0);
pub(crate) const NEXUS_LOSS: (u8, u8, u8) = (6, 0x29, 7);

/// Sense data of a nexus that has lost commands with a connection.
pub(crate) const COMMANDS_CLEARED: (u8, u8, u8) = (6, 0x47, 0x7f);

impl Initiator {
    /// Sends a command, with the first `immediate` bytes of its data.
    pub(crate) fn start(
        &mut self,
        lun: u16,
        cdb: &[u8],
        data_out: Vec<u8>,
        data_in_len: u32,
        immediate: usize,
    ) -> InitiatorTaskTag {
        let itt = self.next_itt();
        let mut whole_cdb = [0; 16];
        whole_cdb[..cdb.len()].copy_from_slice(cdb);
        let write = !data_out.is_empty();
        let command = ScsiCommand {
            immediate: false,
            final_: !self.announces_data,
            read: data_in_len > 0,
            write,
            attr: self.attribute,
            priority: 0,
            lun: LunField(Lun::new(lun).unwrap().encode()),
            itt,
            expected_data_transfer_length: if write { data_out.len() as u32 } else { data_in_len },
            cmd_sn: self.next_cmd_sn(),
            exp_stat_sn: SerialNumber(0),
            cdb: whole_cdb,
            ahs_len: 0,
            data_segment_len: immediate,
        };
        self.send(command.emit(), &data_out[..immediate]);
        self.tasks.insert(itt, Task { data_out, ..Task::default() });
        itt
    }

    /// Sends a command without data, whose CDB has so many bytes beyond its first 16.
    pub(crate) fn start_with_extended_cdb(&mut self, additional: usize) -> InitiatorTaskTag {
        let rest = vec![0; additional];
        let mut ahs = [0; MAX_AHS_LEN];
        let ahs_len = Ahs::ExtendedCdb(&rest).emit(&mut ahs).unwrap().next_multiple_of(4);
        let itt = self.next_itt();
        let command = ScsiCommand {
            immediate: false,
            final_: true,
            read: false,
            write: false,
            attr: TaskAttribute::SIMPLE,
            priority: 0,
            lun: LunField([0; 8]),
            itt,
            expected_data_transfer_length: 0,
            cmd_sn: self.next_cmd_sn(),
            exp_stat_sn: SerialNumber(0),
            cdb: [0x7f; 16],
            ahs_len,
            data_segment_len: 0,
        };
        self.send_bytes(&command.emit());
        self.send_bytes(&ahs[..ahs_len]);
        self.tasks.insert(itt, Task::default());
        itt
    }

    /// Waits for the end of a command.
    pub(crate) fn finish(&mut self, itt: InitiatorTaskTag) -> Outcome {
        loop {
            if let Some(outcome) = self.tasks.get_mut(&itt).expect("a task under way").outcome.take() {
                self.tasks.remove(&itt);
                return outcome;
            }
            self.take_one();
        }
    }

    /// Whether the answer to `itt` has come.
    pub(crate) fn has_answer(&self, itt: InitiatorTaskTag) -> bool {
        self.managed.contains_key(&itt) || self.tasks.get(&itt).is_some_and(|task| task.outcome.is_some())
    }

    /// Sends all data of a command that has announced it.
    pub(crate) fn send_unsolicited(&mut self, lun: u16, itt: InitiatorTaskTag) {
        let zero = SerialNumber(0);
        self.answer_r2t(&R2t {
            lun: LunField(Lun::new(lun).unwrap().encode()),
            itt,
            ttt: TargetTransferTag::RESERVED,
            stat_sn: zero,
            exp_cmd_sn: zero,
            max_cmd_sn: zero,
            r2t_sn: 0,
            buffer_offset: 0,
            desired_data_transfer_length: self.tasks[&itt].data_out.len() as u32,
        });
    }

    pub(crate) fn answer_r2t(&mut self, r2t: &R2t) {
        self.send_part_of(r2t, usize::MAX);
    }

    /// Answers an R2T with its first PDUs.
    pub(crate) fn send_part_of(&mut self, r2t: &R2t, pdus: usize) {
        let start = r2t.buffer_offset as usize;
        let data = self.tasks[&r2t.itt].data_out[start..start + r2t.desired_data_transfer_length as usize].to_vec();
        let count = data.len().div_ceil(self.data_out_len);
        for (index, piece) in data.chunks(self.data_out_len).enumerate().take(pdus) {
            let pdu = DataOut {
                final_: index + 1 == count,
                lun: r2t.lun,
                itt: r2t.itt,
                ttt: r2t.ttt,
                exp_stat_sn: SerialNumber(0),
                data_sn: index as u32,
                buffer_offset: (start + index * self.data_out_len) as u32,
                data_segment_len: piece.len(),
            };
            self.send(pdu.emit(), piece);
        }
    }

    pub(crate) fn command(&mut self, lun: u16, cdb: &[u8], data_out: Vec<u8>, data_in_len: u32) -> Outcome {
        let itt = self.start(lun, cdb, data_out, data_in_len, 0);
        self.finish(itt)
    }

    pub(crate) fn test_unit_ready(&mut self, lun: u16) -> Outcome {
        self.command(lun, &[0; 6], Vec::new(), 0)
    }

    pub(crate) fn start_read(&mut self, lun: u16, lba: u32, blocks: u16) -> InitiatorTaskTag {
        self.start(lun, &cdb_10(0x28, lba, blocks), Vec::new(), u32::from(blocks) * BLOCK_LEN as u32, 0)
    }

    pub(crate) fn read(&mut self, lun: u16, lba: u32, blocks: u16) -> Outcome {
        let itt = self.start_read(lun, lba, blocks);
        self.finish(itt)
    }

    pub(crate) fn start_write(&mut self, lun: u16, lba: u32, data: Vec<u8>, immediate: usize) -> InitiatorTaskTag {
        let blocks = u16::try_from(data.len() / BLOCK_LEN).unwrap();
        self.start(lun, &cdb_10(0x2a, lba, blocks), data, 0, immediate)
    }

    /// Sends a write of eight blocks to LUN 0, whose store has it then and keeps the answer back.
    pub(crate) fn start_held_write(&mut self, store: &Delay) -> InitiatorTaskTag {
        store.hold();
        let write = self.start_write(0, 0, blocks(8, 1), 4096);
        store.wait_until_held(1);
        write
    }

    pub(crate) fn write(&mut self, lun: u16, lba: u32, data: Vec<u8>) -> Outcome {
        let itt = self.start_write(lun, lba, data, 0);
        self.finish(itt)
    }

    pub(crate) fn synchronize_cache(&mut self, lun: u16) -> Outcome {
        self.command(lun, &cdb_10(0x35, 0, 0), Vec::new(), 0)
    }
}

pub(crate) fn cdb_10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = blocks.to_be_bytes();
    [opcode, 0, a, b, c, d, 0, high, low, 0]
}
