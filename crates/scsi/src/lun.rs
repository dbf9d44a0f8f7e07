//! Logical unit numbers (LUNs), in eight bytes.

use std::fmt;

/// The largest number that the flat space addressing method can carry.
pub const MAX_FLAT_LUN: u16 = 0x3fff;

/// The largest number that is encoded by the peripheral device addressing method.
const MAX_PERIPHERAL_LUN: u16 = 0xff;

/// A single-level logical unit number (SAM-5 4.7).
///
/// Two LUNs are equal when they address the same logical unit, however they were encoded: initiators may use the flat
/// space method for small numbers too. Encodings that this crate does not support are kept byte for byte and address no
/// logical unit.
///
/// ```
/// use lunette_scsi::Lun;
///
/// let peripheral = Lun::decode([0, 5, 0, 0, 0, 0, 0, 0]);
/// let flat = Lun::decode([0x40, 5, 0, 0, 0, 0, 0, 0]);
/// assert_eq!(peripheral, flat);
/// assert_eq!(peripheral.number(), Some(5));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lun(Encoding);

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Encoding {
    Number(u16),
    Other([u8; 8]),
}

impl Lun {
    /// LUN 0, to which every target device responds.
    pub const ZERO: Self = Self(Encoding::Number(0));

    /// The LUN with this number, or `None` above [`MAX_FLAT_LUN`].
    pub fn new(number: u16) -> Option<Self> {
        (number <= MAX_FLAT_LUN).then_some(Self(Encoding::Number(number)))
    }

    /// Decodes the eight bytes of a LUN field.
    pub fn decode(bytes: [u8; 8]) -> Self {
        let [first, second, rest @ ..] = bytes;
        let form = match (first >> 6, rest) {
            // Flat space addressing, and peripheral device addressing. The latter has a bus identifier where the former
            // has the high bits. Initiators that ignore the methods (libiscsi, QEMU) put numbers above 255 there
            // unencoded.
            (0b00 | 0b01, [0, 0, 0, 0, 0, 0]) => Encoding::Number(u16::from(first & 0x3f) << 8 | u16::from(second)),
            _ => Encoding::Other(bytes),
        };
        Self(form)
    }

    /// Encodes the eight bytes: the peripheral method up to 255, the flat space method above.
    pub fn encode(self) -> [u8; 8] {
        match self.0 {
            Encoding::Number(number) => {
                let [high, low] = number.to_be_bytes();
                let method = if number > MAX_PERIPHERAL_LUN { 0x40 } else { 0 };
                [method | high, low, 0, 0, 0, 0, 0, 0]
            }
            Encoding::Other(bytes) => bytes,
        }
    }

    /// The logical unit number; `None` for an encoding that is not supported.
    pub fn number(self) -> Option<u16> {
        match self.0 {
            Encoding::Number(number) => Some(number),
            Encoding::Other(_) => None,
        }
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Encoding::Number(number) => write!(f, "{number}"),
            Encoding::Other(bytes) => write!(f, "{:#018x}", u64::from_be_bytes(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_numbers_use_the_peripheral_method_and_large_ones_the_flat_one() {
        assert_eq!(Lun::new(255).unwrap().encode(), [0x00, 0xff, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun::new(256).unwrap().encode(), [0x41, 0x00, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun::new(16383).unwrap().encode(), [0x7f, 0xff, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun::new(16384), None);
    }

    #[test]
    fn numbers_that_stand_bare_where_a_bus_belongs_are_read() {
        assert_eq!(Lun::decode([0x01, 0x2c, 0, 0, 0, 0, 0, 0]), Lun::new(300).unwrap());
    }

    #[test]
    fn other_methods_and_levels_name_no_logical_unit() {
        let well_known = [0xc1, 0x01, 0, 0, 0, 0, 0, 0];
        for bytes in [well_known, [0, 1, 0, 2, 0, 0, 0, 0], [0x80; 8]] {
            assert_eq!(Lun::decode(bytes).number(), None, "{bytes:x?}");
        }
        assert_eq!(Lun::decode(well_known).to_string(), "0xc101000000000000");
    }

    proptest! {
        #[test]
        fn decoding_an_encoded_lun_gives_it_back(bytes: [u8; 8]) {
            let lun = Lun::decode(bytes);
            prop_assert_eq!(Lun::decode(lun.encode()), lun);
        }
    }
}
