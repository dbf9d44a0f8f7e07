//! SCSI Command (RFC 7143, 11.3; RFC 7144 adds the priority).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head, bit, has};
use crate::codes::codes;
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, LunField, Opcode, PduError, SerialNumber};

/// R bit: the command reads data from the target.
const READ: u8 = 0x40;
/// W bit: the command writes data to the target.
const WRITE: u8 = 0x20;
/// The ATTR field of the flags.
const ATTR_MASK: u8 = 0x07;

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    /// The command priority is the upper half of byte 2.
    head: Head,
    lun: [u8; 8],
    itt: U32,
    expected_data_transfer_length: U32,
    cmd_sn: U32,
    exp_stat_sn: U32,
    cdb: [u8; 16],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

codes! {
    /// The order of a command among others of its task set (RFC 7143, 11.3.1; SAM-5, 8.6).
    TaskAttribute {
        UNTAGGED = 0, "untagged";
        SIMPLE = 1, "simple";
        ORDERED = 2, "ordered";
        HEAD_OF_QUEUE = 3, "head of queue";
        ACA = 4, "ACA";
    }
}

/// A SCSI command. Immediate data is in the data segment; a CDB longer than 16 bytes, or the read
/// length of a bidirectional command, is in additional header segments ([`crate::Ahs`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScsiCommand {
    /// I: delivered ahead of `CmdSN` order.
    pub immediate: bool,
    /// F: no unsolicited Data-Out PDUs follow. Always set in commands that do not write.
    pub final_: bool,
    /// R: the command returns data.
    pub read: bool,
    /// W: the command takes data.
    pub write: bool,
    /// The task attribute, three bits.
    pub attr: TaskAttribute,
    /// The priority for scheduling, four bits; 0 means no priority (RFC 7144; SAM-5, 8.7).
    pub priority: u8,
    /// The logical unit that the command addresses.
    pub lun: LunField,
    /// The tag of the task.
    pub itt: InitiatorTaskTag,
    /// Bytes that the initiator expects to move; for a bidirectional command, bytes to write.
    pub expected_data_transfer_length: u32,
    /// The number of this command.
    pub cmd_sn: SerialNumber,
    /// Next status number the initiator expects on this connection.
    pub exp_stat_sn: SerialNumber,
    /// The command descriptor block, or its first 16 bytes; a shorter one ends in zeros.
    pub cdb: [u8; 16],
    /// Bytes of additional header segments, a multiple of four.
    pub ahs_len: usize,
    /// Bytes of immediate data.
    pub data_segment_len: usize,
}

impl ScsiCommand {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::SCSI_COMMAND;

    /// The highest command priority.
    pub const MAX_PRIORITY: u8 = 0x0f;

    /// Parses a SCSI Command.
    ///
    /// # Errors
    ///
    /// [`PduError`] when neither F nor W is set, or when the command expects data and neither R nor
    /// W says where it goes; both are errors by RFC 7143, 11.3.1.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        let flags = bhs.flags();
        let [byte2, _] = wire.head.specific;
        let command = Self {
            immediate: bhs.immediate(),
            final_: bhs.final_bit(),
            read: has(flags, READ),
            write: has(flags, WRITE),
            attr: TaskAttribute(flags & ATTR_MASK),
            priority: byte2 >> 4,
            lun: bhs.lun(),
            itt: bhs.itt(),
            expected_data_transfer_length: wire.expected_data_transfer_length.get(),
            cmd_sn: SerialNumber(wire.cmd_sn.get()),
            exp_stat_sn: SerialNumber(wire.exp_stat_sn.get()),
            cdb: wire.cdb,
            ahs_len: bhs.ahs_len(),
            data_segment_len: bhs.data_segment_len(),
        };
        if !command.final_ && !command.write {
            return Err(bhs.illegal_combination("F or W must be set"));
        }
        if command.expected_data_transfer_length > 0 && !command.read && !command.write {
            return Err(bhs.illegal_combination("R or W must be set when data is expected"));
        }
        Ok(command)
    }

    /// The header's bytes. Only three bits of `attr` are sent, and four of `priority`.
    #[inline]
    pub fn emit(&self) -> [u8; BHS_LEN] {
        let flags = bit(self.final_, FINAL) | bit(self.read, READ) | bit(self.write, WRITE) | self.attr.0 & ATTR_MASK;
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, flags)
                .immediate(self.immediate)
                .specific(self.priority << 4, 0)
                .ahs_len(self.ahs_len)
                .data_segment_len(self.data_segment_len),
            lun: self.lun.0,
            itt: self.itt.0.into(),
            expected_data_transfer_length: self.expected_data_transfer_length.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            cdb: self.cdb,
        })
    }
}
