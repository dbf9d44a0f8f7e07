//! Mode parameters: headers, block descriptors and pages (SPC-5 7.5, SBC-4 6.5).

/// The code of a mode page. Values without a name are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageCode(pub u8);

impl PageCode {
    /// Read-Write Error Recovery.
    pub const READ_WRITE_ERROR_RECOVERY: Self = Self(0x01);
    /// Caching.
    pub const CACHING: Self = Self(0x08);
    /// Control.
    pub const CONTROL: Self = Self(0x0a);
    /// Informational Exceptions Control.
    pub const INFORMATIONAL_EXCEPTIONS: Self = Self(0x1c);
    /// All pages.
    pub const ALL: Self = Self(0x3f);
}

/// All subpages of a page.
pub const ALL_SUBPAGES: u8 = 0xff;

/// Which values of a page are asked for (PC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageControl {
    /// Values in force.
    Current,
    /// A mask of the bits that MODE SELECT may change.
    Changeable,
    /// Values in force after a start without saved ones.
    Default,
    /// Saved values.
    Saved,
}

impl PageControl {
    /// The two bits of PC, in their place at the top of the byte.
    pub fn decode(byte: u8) -> Self {
        match byte >> 6 {
            0 => Self::Current,
            1 => Self::Changeable,
            2 => Self::Default,
            _ => Self::Saved,
        }
    }
}

/// A page in `page_0` format: code, length, parameters.
///
/// Parameters longer than 255 bytes are cut; no page in this format has as many.
pub fn page(code: PageCode, parameters: &[u8]) -> Vec<u8> {
    let parameters = &parameters[..parameters.len().min(usize::from(u8::MAX))];
    [&[code.0, parameters.len() as u8], parameters].concat()
}

/// Parameters of the Caching page (SBC-4 6.5.6).
pub fn caching(write_cache: bool) -> [u8; 18] {
    const WCE: u8 = 0x04;
    let mut parameters = [0; 18];
    parameters[0] = if write_cache { WCE } else { 0 };
    parameters
}

/// Parameters of the Control page (SPC-5 7.5.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Control {
    /// `D_SENSE`: sense data in descriptor format.
    pub descriptor_sense: bool,
    /// SWP: software write protection.
    pub write_protect: bool,
}

impl Control {
    const D_SENSE: u8 = 0x04;
    const SWP: u8 = 0x08;
    /// QUEUE ALGORITHM MODIFIER 1: simple tasks run in any order.
    const UNRESTRICTED_REORDERING: u8 = 0x10;
    /// BUSY TIMEOUT PERIOD: how long the unit may be busy is not limited.
    const UNLIMITED: u16 = 0xffff;

    /// The parameters.
    pub fn emit(&self) -> [u8; 10] {
        let mut parameters = [0; 10];
        parameters[0] = if self.descriptor_sense { Self::D_SENSE } else { 0 };
        parameters[1] = Self::UNRESTRICTED_REORDERING;
        parameters[2] = if self.write_protect { Self::SWP } else { 0 };
        parameters[6..8].copy_from_slice(&Self::UNLIMITED.to_be_bytes());
        parameters
    }
}

/// Parameters of the Informational Exceptions Control page: the unit reports none (DEXCPT).
pub const NO_INFORMATIONAL_EXCEPTIONS: [u8; 10] = [0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Parameters of the Read-Write Error Recovery page: the store recovers as it can, nothing is adjustable.
pub const NO_ERROR_RECOVERY: [u8; 10] = [0; 10];

/// What stands in front of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeData<'a> {
    /// WP: the medium is write protected.
    pub write_protected: bool,
    /// DPOFUA: the DPO and FUA bits are supported.
    pub dpo_fua: bool,
    /// The block descriptor: number of blocks and length of a block.
    pub descriptor: Option<(u64, u32)>,
    /// LONGLBA: the block descriptor has 16 bytes. Only MODE SENSE(10) can have it.
    pub long_lba: bool,
    /// The pages, one after the other.
    pub pages: &'a [u8],
}

impl ModeData<'_> {
    const WP: u8 = 0x80;
    const DPOFUA: u8 = 0x10;
    const LONGLBA: u8 = 0x01;

    /// With the header of the 6-byte commands. MODE DATA LENGTH stays at its largest value when the data is longer.
    pub fn emit_6(&self) -> Vec<u8> {
        let descriptor = self.short_descriptor();
        let len = 3 + descriptor.len() + self.pages.len();
        let header = [u8::try_from(len).unwrap_or(u8::MAX), 0, self.device_specific(), descriptor.len() as u8];
        [&header, descriptor.as_slice(), self.pages].concat()
    }

    /// With the header of the 10-byte commands.
    pub fn emit_10(&self) -> Vec<u8> {
        let descriptor = if self.long_lba { self.long_descriptor() } else { self.short_descriptor() };
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

    /// The short LBA mode parameter block descriptor; a count beyond 32 bits shows as all ones (SBC-4 6.5.2.2).
    fn short_descriptor(&self) -> Vec<u8> {
        let Some((blocks, block_len)) = self.descriptor else { return Vec::new() };
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        // One reserved byte, then the length in three: it is below 2^24.
        [blocks.to_be_bytes(), (block_len & 0x00ff_ffff).to_be_bytes()].concat()
    }

    fn long_descriptor(&self) -> Vec<u8> {
        let Some((blocks, block_len)) = self.descriptor else { return Vec::new() };
        [&blocks.to_be_bytes()[..], &[0; 4], &block_len.to_be_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: ModeData<'static> = ModeData {
        write_protected: true,
        dpo_fua: true,
        descriptor: Some((0x1_0000_0002, 512)),
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
    fn pages_carry_their_length() {
        let caching = page(PageCode::CACHING, &caching(true));
        assert_eq!((caching.len(), &caching[..3]), (20, &[0x08, 0x12, 0x04][..]));
        let control = Control { descriptor_sense: true, write_protect: true };
        let control = page(PageCode::CONTROL, &control.emit());
        assert_eq!(control, [0x0a, 0x0a, 0x04, 0x10, 0x08, 0, 0, 0, 0xff, 0xff, 0, 0]);
    }
}
