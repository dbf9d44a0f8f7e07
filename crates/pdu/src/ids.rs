//! Names and numbers that PDUs carry: tags, serial numbers, session and connection identifiers.

use core::fmt;
use core::ops::{Add, AddAssign};

/// Initiator Task Tag: the initiator's name for a task, unique in its session (RFC 7143, 11.2.1.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct InitiatorTaskTag(pub u32);

impl InitiatorTaskTag {
    /// The value that names no task.
    pub const RESERVED: Self = Self(0xffff_ffff);

    /// Whether this names no task.
    pub const fn is_reserved(self) -> bool {
        self.0 == Self::RESERVED.0
    }
}

impl fmt::Display for InitiatorTaskTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Target Transfer Tag: the target's name for a transfer it asked for (RFC 7143, 11.7.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TargetTransferTag(pub u32);

impl TargetTransferTag {
    /// The value that names no transfer.
    pub const RESERVED: Self = Self(0xffff_ffff);

    /// Whether this names no transfer.
    pub const fn is_reserved(self) -> bool {
        self.0 == Self::RESERVED.0
    }
}

impl fmt::Display for TargetTransferTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A number that wraps, such as `CmdSN` or `StatSN`. Arithmetic and order are those of RFC 1982 with 32 bits (RFC 7143,
/// 4.2.2).
///
/// There is no `Ord`: the order of serial numbers is not transitive. Two numbers exactly 2^31 apart
/// have no order; neither [`is_before`](Self::is_before) nor [`is_after`](Self::is_after) the other.
///
/// ```
/// use lunette_pdu::SerialNumber;
/// let last = SerialNumber(u32::MAX);
/// assert_eq!(last.next(), SerialNumber(0));
/// assert!(last.is_before(SerialNumber(3)));
/// assert_eq!(SerialNumber(3).distance_from(last), 4);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SerialNumber(pub u32);

impl SerialNumber {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The number advanced by `n`. RFC 1982 gives sums a meaning for `n` below 2^31 only; the result of a larger `n` is
    /// before `self`, or without order to it.
    #[must_use]
    pub const fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The distance by which this number is ahead of `other`; negative when it is behind.
    ///
    /// The distance of two numbers 2^31 apart is `i32::MIN`, seen from either.
    pub const fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Whether this number comes before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        other.is_after(self)
    }

    /// Whether this number comes after `other`.
    pub const fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }
}

impl Add<u32> for SerialNumber {
    type Output = Self;

    fn add(self, n: u32) -> Self {
        Self::add(self, n)
    }
}

impl AddAssign<u32> for SerialNumber {
    fn add_assign(&mut self, n: u32) {
        *self = Self::add(*self, n);
    }
}

impl fmt::Display for SerialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Initiator Session ID: with the initiator's name, it names the initiator port (RFC 7143, 11.12.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Isid(pub [u8; 6]);

/// The authority that makes an [`Isid`] unique: its two T bits (RFC 7143, 11.12.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IsidType {
    /// The holder of an IEEE organizationally unique identifier.
    Oui,
    /// The holder of an IANA enterprise number.
    EnterpriseNumber,
    /// A random number.
    Random,
    /// A value without an assigned meaning.
    Reserved,
}

impl Isid {
    /// An identifier of the random format: 24 random bits (more are ignored) and a qualifier that
    /// tells apart the ports of one initiator.
    pub const fn random(random: u32, qualifier: u16) -> Self {
        let [_, r1, r2, r3] = random.to_be_bytes();
        let [q1, q2] = qualifier.to_be_bytes();
        Self([0x80, r1, r2, r3, q1, q2])
    }

    /// The authority that makes this identifier unique.
    pub const fn isid_type(self) -> IsidType {
        match self.0[0] >> 6 {
            0 => IsidType::Oui,
            1 => IsidType::EnterpriseNumber,
            2 => IsidType::Random,
            _ => IsidType::Reserved,
        }
    }

    /// The part that the initiator chooses among its own: 24 bits after an OUI, 16 bits otherwise.
    pub const fn qualifier(self) -> u32 {
        let [_, _, _, c, d1, d2] = self.0;
        match self.isid_type() {
            IsidType::Oui => u32::from_be_bytes([0, c, d1, d2]),
            _ => u32::from_be_bytes([0, 0, d1, d2]),
        }
    }
}

impl fmt::Display for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Target Session Identifying Handle: the target's name for a session (RFC 7143, 11.12.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Tsih(pub u16);

impl Tsih {
    /// The value that asks for a new session.
    pub const NEW: Self = Self(0);
}

impl fmt::Display for Tsih {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// Connection ID: the initiator's name for a connection in its session (RFC 7143, 11.12.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Cid(pub u16);

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A logical unit number as it stands in a header (RFC 7143, 11.2.1.7). SAM-5 gives the eight bytes
/// their meaning; this crate does not look inside.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct LunField(pub [u8; 8]);

impl fmt::Display for LunField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", u64::from_be_bytes(self.0))
    }
}
