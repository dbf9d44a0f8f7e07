//! Designators: the names of logical units, target ports and target devices (SPC-5 7.8.6).

use crate::inquiry::put_text;

/// Length in bytes of a CSCD descriptor.
pub(crate) const CSCD_LEN: usize = 32;

/// DESCRIPTOR TYPE CODE of an identification descriptor CSCD descriptor.
pub(crate) const IDENTIFICATION: u8 = 0xe4;

/// The longest designator that an identification descriptor CSCD descriptor holds, in bytes.
pub(crate) const MAX_CSCD_DESIGNATOR_LEN: usize = 20;

/// The object that a designator identifies (ASSOCIATION).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Association {
    /// The designator identifies the logical unit.
    LogicalUnit = 0,
    /// The designator identifies the target port that received the command.
    TargetPort = 1,
    /// The designator identifies the target device.
    TargetDevice = 2,
}

/// The longest designator in bytes: its length has one byte, and names are padded to a multiple of four.
pub(crate) const MAX_DESIGNATOR_LEN: usize = 252;

/// One designation descriptor of the Device Identification page (SPC-5 7.8.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Designator {
    /// The object that the designator identifies.
    pub association: Association,
    kind: u8,
    code_set: u8,
    /// PROTOCOL IDENTIFIER, where the descriptor has one.
    protocol: Option<u8>,
    bytes: Vec<u8>,
}

impl Designator {
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    const UTF_8: u8 = 3;
    const PIV: u8 = 0x80;
    /// PROTOCOL IDENTIFIER of iSCSI.
    const ISCSI: u8 = 5;
    /// NAA 3h: locally assigned, for a vendor without an IEEE company identifier.
    const NAA_LOCAL: u64 = 0x3 << 60;

    /// A T10 vendor ID based designator: the vendor in 8 bytes, then a text that is unique for the vendor.
    pub fn t10_vendor(vendor: &str, specific: &str) -> Self {
        let mut bytes = vec![0; 8];
        put_text(&mut bytes, vendor);
        bytes.extend_from_slice(specific.as_bytes());
        Self::unit(1, Self::ASCII, bytes)
    }

    /// A locally assigned NAA designator with the low 60 bits of `value`.
    pub fn naa_local(value: u64) -> Self {
        Self::unit(3, Self::BINARY, naa_local(value).to_be_bytes().to_vec())
    }

    /// A SCSI name string of a logical unit, target port or target device, padded with zeroes to a multiple of four.
    pub fn name(association: Association, name: &str) -> Self {
        let mut bytes = name.as_bytes().to_vec();
        bytes.truncate(MAX_DESIGNATOR_LEN - 1);
        bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
        Self { association, kind: 8, code_set: Self::UTF_8, protocol: Some(Self::ISCSI), bytes }
    }

    /// A relative target port identifier.
    pub fn relative_port(port: u16) -> Self {
        Self::port(4, port)
    }

    /// A target port group.
    pub fn port_group(group: u16) -> Self {
        Self::port(5, group)
    }

    /// A designator of a logical unit with this DESIGNATOR TYPE and CODE SET, as an initiator reads it from the page.
    /// It is cut at 252 bytes.
    pub fn logical_unit(kind: u8, code_set: u8, bytes: &[u8]) -> Self {
        Self::unit(kind, code_set, bytes.to_vec())
    }

    /// Encodes an identification descriptor CSCD descriptor (E4h) of a disk with this DISK BLOCK LENGTH (SPC-5
    /// 6.5.5.5). A longer designator is cut at 20 bytes.
    pub(crate) fn emit_cscd(&self, block_len: u32) -> [u8; CSCD_LEN] {
        let name = &self.bytes[..self.bytes.len().min(MAX_CSCD_DESIGNATOR_LEN)];
        let mut cscd = [0; CSCD_LEN];
        cscd[0] = IDENTIFICATION;
        cscd[4] = self.code_set;
        cscd[5] = self.kind;
        cscd[7] = name.len() as u8;
        cscd[8..8 + name.len()].copy_from_slice(name);
        cscd[29..].copy_from_slice(&block_len.to_be_bytes()[1..]);
        cscd
    }

    fn unit(kind: u8, code_set: u8, mut bytes: Vec<u8>) -> Self {
        bytes.truncate(MAX_DESIGNATOR_LEN);
        Self { association: Association::LogicalUnit, kind, code_set, protocol: None, bytes }
    }

    fn port(kind: u8, value: u16) -> Self {
        let [high, low] = value.to_be_bytes();
        let bytes = vec![0, 0, high, low];
        let association = Association::TargetPort;
        Self { association, kind, code_set: Self::BINARY, protocol: Some(Self::ISCSI), bytes }
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let (protocol, valid) = self.protocol.map_or((0, 0), |protocol| (protocol << 4, Self::PIV));
        let kind = valid | (self.association as u8) << 4 | self.kind;
        [&[protocol | self.code_set, kind, 0, self.bytes.len() as u8], self.bytes.as_slice()].concat()
    }
}

/// A locally assigned NAA identifier with the low 60 bits of `value`.
pub const fn naa_local(value: u64) -> u64 {
    Designator::NAA_LOCAL | value & !(0xf << 60)
}
