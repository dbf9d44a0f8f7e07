//! Mode parameters: headers, block descriptors and pages (SPC-5 7.5, SBC-4 6.5).

pub mod select;

/// The code of a mode page. Unknown codes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageCode(pub u8);

impl PageCode {
    /// Read-Write Error Recovery.
    pub const READ_WRITE_ERROR_RECOVERY: Self = Self(0x01);
    /// The Disconnect-Reconnect page.
    pub const DISCONNECT_RECONNECT: Self = Self(0x02);
    /// The Caching page.
    pub const CACHING: Self = Self(0x08);
    /// The Control page.
    pub const CONTROL: Self = Self(0x0a);
    /// The Power Condition page.
    pub const POWER_CONDITION: Self = Self(0x1a);
    /// Informational Exceptions Control.
    pub const INFORMATIONAL_EXCEPTIONS: Self = Self(0x1c);
    /// The code for all pages.
    pub const ALL: Self = Self(0x3f);
}

/// The subpage code of the Control Extension page.
pub const CONTROL_EXTENSION_SUBPAGE: u8 = 0x01;

/// The subpage code of the Logical Block Provisioning page.
pub const LOGICAL_BLOCK_PROVISIONING_SUBPAGE: u8 = 0x02;

/// All subpages of a page.
pub const ALL_SUBPAGES: u8 = 0xff;

/// PC: the kind of values that are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageControl {
    /// The current values.
    Current,
    /// The mask of the bits that MODE SELECT may change.
    Changeable,
    /// The default values, which apply after a start without saved values.
    Default,
    /// The saved values.
    Saved,
}

impl PageControl {
    /// Decodes PC from the top two bits of `byte`.
    pub fn decode(byte: u8) -> Self {
        match byte >> 6 {
            0 => Self::Current,
            1 => Self::Changeable,
            2 => Self::Default,
            _ => Self::Saved,
        }
    }
}

/// Encodes a page: code, length and parameters, in the format with a subpage code unless that is zero. `savable` is PS:
/// MODE SELECT can save the page.
///
/// Parameters that exceed the length field are cut; no page of this crate does.
pub fn page(code: PageCode, subpage: u8, savable: bool, parameters: &[u8]) -> Vec<u8> {
    const PS: u8 = 0x80;
    const SPF: u8 = 0x40;
    let saved = if savable { PS } else { 0 };
    if subpage == 0 {
        let parameters = &parameters[..parameters.len().min(usize::from(u8::MAX))];
        return [&[saved | code.0, parameters.len() as u8], parameters].concat();
    }
    let parameters = &parameters[..parameters.len().min(usize::from(u16::MAX))];
    let [high, low] = (parameters.len() as u16).to_be_bytes();
    [&[saved | SPF | code.0, subpage, high, low], parameters].concat()
}

/// The Read-Write Error Recovery page (SBC-4 6.5.8): the store recovers as it can.
pub mod error_recovery {
    /// Bytes of the parameters.
    pub const LEN: usize = 10;
    /// The byte that holds [`LBPERE`].
    pub const LBPERE_AT: usize = 5;
    /// LBPERE: reaching a provisioning threshold raises a unit attention.
    pub const LBPERE: u8 = 0x80;
}

/// The Logical Block Provisioning page (SBC-4 6.5.9).
pub mod provisioning {
    /// Parameters with one enabled threshold descriptor: `count` threshold sets of free space. All nexuses get the unit
    /// attention (SITUA is zero).
    pub fn parameters(count: u32) -> Vec<u8> {
        const FRONT_LEN: usize = 12;
        const ENABLED: u8 = 0x80;
        /// THRESHOLD RESOURCE: available LBA mapping resources. THRESHOLD TYPE and THRESHOLD ARMING: a soft, decreasing
        /// threshold.
        const AVAILABLE: u8 = 0x01;
        [&[0; FRONT_LEN][..], &[ENABLED, AVAILABLE, 0, 0], &count.to_be_bytes()].concat()
    }
}

/// Parameters of the Disconnect-Reconnect page (SPC-5 7.5.10): no limit on bursts, as iSCSI negotiates its own.
pub const DISCONNECT_RECONNECT: [u8; 14] = [0; 14];

/// The Caching page (SBC-4 6.5.6).
pub mod caching {
    /// Bytes of the parameters.
    pub const LEN: usize = 18;
    /// The byte that holds [`WCE`].
    pub const WCE_AT: usize = 0;
    /// WCE: writes are acknowledged before they are on stable storage.
    pub const WCE: u8 = 0x04;
}

/// The Control page (SPC-5 7.5.8).
pub mod control {
    /// Bytes of the parameters.
    pub const LEN: usize = 10;
    /// The byte that holds [`D_SENSE`].
    pub const D_SENSE_AT: usize = 0;
    /// `D_SENSE`: sense data in descriptor format.
    pub const D_SENSE: u8 = 0x04;
    /// TST 001b: a task set for each nexus.
    pub const TST_PER_NEXUS: u8 = 0x20;
    /// The byte that holds [`SWP`].
    pub const SWP_AT: usize = 2;
    /// SWP: software write protection.
    pub const SWP: u8 = 0x08;
    /// A task set for each nexus. QUEUE ALGORITHM MODIFIER 1: simple tasks run in any order. BUSY TIMEOUT PERIOD: not
    /// limited.
    pub const DEFAULT: [u8; LEN] = [TST_PER_NEXUS, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
}

/// Parameters of the Control Extension page (SPC-5 7.5.9): the timestamp is initialised from the system's clock
/// (TCMOS), and SET TIMESTAMP replaces it (SCSIP). Access states may change implicitly (IALUAE). The maximum sense data
/// length is that of this crate.
pub const CONTROL_EXTENSION: [u8; 28] = {
    let mut parameters = [0; 28];
    parameters[0] = 0x07;
    parameters[2] = crate::MAX_SENSE_LEN as u8;
    parameters
};

/// Parameters of the Power Condition page (SPC-5 7.5.17): no idle and standby conditions are supported.
pub const POWER_CONDITION: [u8; 38] = [0; 38];

/// Parameters of the Informational Exceptions Control page (SBC-4 6.5.7): no exceptions are reported (DEXCPT).
pub const INFORMATIONAL_EXCEPTIONS: [u8; 10] = [0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A block descriptor (SBC-4 6.5.2): number and length of the logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockDescriptor {
    /// NUMBER OF LOGICAL BLOCKS.
    pub blocks: u64,
    /// LOGICAL BLOCK LENGTH in bytes.
    pub block_len: u32,
}

impl BlockDescriptor {
    /// Encodes the short descriptor. A count beyond 32 bits is reported as all ones.
    fn emit_short(&self) -> Vec<u8> {
        let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
        // One reserved byte, then the length in three: it is below 2^24.
        [blocks.to_be_bytes(), (self.block_len & 0x00ff_ffff).to_be_bytes()].concat()
    }

    fn emit_long(&self) -> Vec<u8> {
        [&self.blocks.to_be_bytes()[..], &[0; 4], &self.block_len.to_be_bytes()].concat()
    }

    /// Decodes a single descriptor, in the long format when LONGLBA is set; `None` for any other length.
    fn decode(bytes: &[u8], long: bool) -> Option<Self> {
        if long {
            // Number of blocks, four reserved bytes, length of a block.
            let descriptor = u128::from_be_bytes(bytes.try_into().ok()?);
            return Some(Self { blocks: (descriptor >> 64) as u64, block_len: descriptor as u32 });
        }
        // Number of blocks, one reserved byte, length of a block in three.
        let descriptor = u64::from_be_bytes(bytes.try_into().ok()?);
        Some(Self { blocks: descriptor >> 32, block_len: descriptor as u32 & 0x00ff_ffff })
    }
}

/// Mode parameters: the header fields, the block descriptor and the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeData<'a> {
    /// WP: the medium is write protected.
    pub write_protected: bool,
    /// DPOFUA: the DPO and FUA bits are supported.
    pub dpo_fua: bool,
    /// The block descriptor, unless DBD suppresses it.
    pub descriptor: Option<BlockDescriptor>,
    /// LONGLBA: the block descriptor has 16 bytes. Only MODE SENSE(10) can have it.
    pub long_lba: bool,
    /// The encoded pages, concatenated.
    pub pages: &'a [u8],
}

impl ModeData<'_> {
    const WP: u8 = 0x80;
    const DPOFUA: u8 = 0x10;
    const LONGLBA: u8 = 0x01;

    /// Encodes the data of MODE SENSE(6). MODE DATA LENGTH saturates when the data is longer.
    pub fn emit_6(&self) -> Vec<u8> {
        let descriptor = self.descriptor.map_or_else(Vec::new, |descriptor| descriptor.emit_short());
        let len = 3 + descriptor.len() + self.pages.len();
        let header = [u8::try_from(len).unwrap_or(u8::MAX), 0, self.device_specific(), descriptor.len() as u8];
        [&header, descriptor.as_slice(), self.pages].concat()
    }

    /// Encodes the data of MODE SENSE(10).
    pub fn emit_10(&self) -> Vec<u8> {
        let emit = if self.long_lba { BlockDescriptor::emit_long } else { BlockDescriptor::emit_short };
        let descriptor = self.descriptor.as_ref().map_or_else(Vec::new, emit);
        let long = self.long_lba && !descriptor.is_empty();
        let len = 6 + descriptor.len() + self.pages.len();
        let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
        let flags = if long { Self::LONGLBA } else { 0 };
        let header = [high, low, 0, self.device_specific(), flags, 0, 0, descriptor.len() as u8];
        [&header, descriptor.as_slice(), self.pages].concat()
    }

    fn device_specific(&self) -> u8 {
        let wp = if self.write_protected { Self::WP } else { 0 };
        let dpo_fua = if self.dpo_fua { Self::DPOFUA } else { 0 };
        wp | dpo_fua
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: ModeData<'static> = ModeData {
        write_protected: true,
        dpo_fua: true,
        descriptor: Some(BlockDescriptor { blocks: 0x1_0000_0002, block_len: 512 }),
        long_lba: false,
        pages: &[0x0a, 1, 0xee],
    };

    #[test]
    fn the_six_byte_header_counts_what_follows_its_first_byte() {
        let expected = [14, 0, 0x90, 8, 0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0, 0x0a, 1, 0xee];
        assert_eq!(DATA.emit_6(), expected);
        let bare = ModeData { descriptor: None, write_protected: false, ..DATA };
        assert_eq!(bare.emit_6(), [6, 0, 0x10, 0, 0x0a, 1, 0xee]);
    }

    #[test]
    fn long_descriptors_hold_64_bits() {
        let long = ModeData { long_lba: true, ..DATA };
        let expected = [0, 25, 0, 0x90, 1, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 2, 0, 0x0a, 1, 0xee];
        assert_eq!(long.emit_10(), expected);
    }

    #[test]
    fn pages_carry_their_length_and_subpage() {
        assert_eq!(page(PageCode::CACHING, 0, false, &[1, 2]), [0x08, 2, 1, 2]);
        assert_eq!(page(PageCode::CONTROL, 1, true, &[1, 2]), [0xca, 1, 0, 2, 1, 2]);
    }
}
