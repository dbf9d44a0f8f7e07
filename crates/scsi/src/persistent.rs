//! PERSISTENT RESERVE IN and OUT: parameter lists and data (SPC-5 6.16, 6.17), and the TransportID of iSCSI (7.6.4.6).

use crate::{FieldPointer, SenseData};

/// Bytes of a parameter list without TransportIDs.
pub const BASIC_LIST_LEN: usize = 24;

const SPEC_I_PT: u8 = 0x08;
const ALL_TG_PT: u8 = 0x04;
const APTPL: u8 = 0x01;
const UNREG: u8 = 0x02;

/// Offset of the first TransportID, after the length of the TransportIDs.
const TRANSPORT_IDS_AT: usize = 28;

/// TYPE of a persistent reservation, which limits the access of other nexuses (SPC-5 table 74).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReservationType {
    /// Write Exclusive: only the holder writes.
    WriteExclusive,
    /// Exclusive Access: only the holder reads and writes.
    ExclusiveAccess,
    /// Only registered nexuses write; one of them holds the reservation.
    WriteExclusiveRegistrantsOnly,
    /// Only registered nexuses read and write; one of them holds the reservation.
    ExclusiveAccessRegistrantsOnly,
    /// Only registered nexuses write; all of them hold the reservation.
    WriteExclusiveAllRegistrants,
    /// Only registered nexuses read and write; all of them hold the reservation.
    ExclusiveAccessAllRegistrants,
}

impl ReservationType {
    /// All types with their codes.
    pub const ALL: [(u8, Self); 6] = [
        (0x1, Self::WriteExclusive),
        (0x3, Self::ExclusiveAccess),
        (0x5, Self::WriteExclusiveRegistrantsOnly),
        (0x6, Self::ExclusiveAccessRegistrantsOnly),
        (0x7, Self::WriteExclusiveAllRegistrants),
        (0x8, Self::ExclusiveAccessAllRegistrants),
    ];

    /// Decodes a TYPE field; `None` for obsolete and reserved codes.
    pub fn decode(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == code).map(|(_, kind)| *kind)
    }

    /// The code for the TYPE field.
    pub fn code(self) -> u8 {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or(0, |(code, _)| *code)
    }

    /// Whether every registered nexus holds the reservation.
    pub fn all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// Whether registered nexuses have access, as holders or not.
    pub fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether nexuses without access may not even read.
    pub fn excludes_reading(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess | Self::ExclusiveAccessRegistrantsOnly | Self::ExclusiveAccessAllRegistrants
        )
    }
}

/// The parameter list of all PERSISTENT RESERVE OUT service actions except REGISTER AND MOVE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveOutList {
    /// RESERVATION KEY.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub action_key: u64,
    /// `SPEC_I_PT`: the registration includes the initiator ports of the list.
    pub specifies_initiators: bool,
    /// `ALL_TG_PT`: the registration includes all target ports.
    pub all_target_ports: bool,
    /// APTPL: registrations and reservation survive a power loss.
    pub persist: bool,
    /// The names of the initiator ports in the list, in lower case.
    pub initiators: Vec<String>,
}

impl ReserveOutList {
    /// Reads a list.
    ///
    /// # Errors
    ///
    /// PARAMETER LIST LENGTH ERROR for a list that does not have the announced length; INVALID FIELD IN PARAMETER LIST
    /// for a reserved bit, and for a TransportID that is not one of iSCSI.
    pub fn parse(list: &[u8]) -> Result<Self, SenseData> {
        let (basic, rest) = list.split_first_chunk::<BASIC_LIST_LEN>().ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
        let flags = basic[20];
        if flags & !(SPEC_I_PT | ALL_TG_PT | APTPL) != 0 {
            return Err(FieldPointer::data(20).into());
        }
        let specifies_initiators = flags & SPEC_I_PT != 0;
        let initiators = match (specifies_initiators, rest.split_first_chunk::<4>()) {
            (false, None) if rest.is_empty() => Vec::new(),
            (true, Some((len, ids))) if u32::from_be_bytes(*len) as usize == ids.len() => transport_ids(ids)?,
            _ => return Err(SenseData::PARAMETER_LIST_LENGTH_ERROR),
        };
        Ok(Self {
            key: u64_at(basic, 0),
            action_key: u64_at(basic, 8),
            specifies_initiators,
            all_target_ports: flags & ALL_TG_PT != 0,
            persist: flags & APTPL != 0,
            initiators,
        })
    }
}

/// The parameter list of REGISTER AND MOVE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterAndMoveList {
    /// RESERVATION KEY.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY: the key of the new holder.
    pub action_key: u64,
    /// UNREG: the requesting nexus is unregistered.
    pub unregister: bool,
    /// APTPL: registrations and reservation survive a power loss.
    pub persist: bool,
    /// RELATIVE TARGET PORT IDENTIFIER of the new holder.
    pub relative_port: u16,
    /// The initiator port of the new holder, in lower case.
    pub initiator: String,
}

impl RegisterAndMoveList {
    /// Reads a list.
    ///
    /// # Errors
    ///
    /// The errors of [`ReserveOutList::parse`].
    pub fn parse(list: &[u8]) -> Result<Self, SenseData> {
        let (basic, id) = list.split_first_chunk::<BASIC_LIST_LEN>().ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
        if basic[17] & !(UNREG | APTPL) != 0 {
            return Err(FieldPointer::data(17).into());
        }
        if u32::from_be_bytes([basic[20], basic[21], basic[22], basic[23]]) as usize != id.len() || id.is_empty() {
            return Err(SenseData::PARAMETER_LIST_LENGTH_ERROR);
        }
        let (initiator, rest) = transport_id(id, BASIC_LIST_LEN)?;
        if !rest.is_empty() {
            return Err(SenseData::PARAMETER_LIST_LENGTH_ERROR);
        }
        Ok(Self {
            key: u64_at(basic, 0),
            action_key: u64_at(basic, 8),
            unregister: basic[17] & UNREG != 0,
            persist: basic[17] & APTPL != 0,
            relative_port: u16::from_be_bytes([basic[18], basic[19]]),
            initiator,
        })
    }
}

fn u64_at(list: &[u8; BASIC_LIST_LEN], at: usize) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|index| list[at + index]))
}

// TransportIDs (SPC-5 7.6.4.6).

const TRANSPORT_ID_HEADER_LEN: usize = 4;
/// FORMAT CODE 01b and PROTOCOL IDENTIFIER 5: an iSCSI initiator port, by its name.
const ISCSI_PORT: u8 = 0x45;
/// ADDITIONAL LENGTH: at least 20, and a multiple of 4.
const MIN_TRANSPORT_NAME_LEN: usize = 20;
/// The separator between the iSCSI name and the session identifier.
const ISID_MARK: &str = ",i,0x";
/// Number of hexadecimal digits of an ISID.
const MAX_ISID_DIGITS: usize = 12;

/// The iSCSI name in the name of an initiator port, `iqn...,i,0x<ISID>`. The name may have commas of its own.
pub fn initiator_name(port: &str) -> &str {
    port.rsplit_once(ISID_MARK).map_or(port, |(name, _)| name)
}

/// Encodes the TransportID of an initiator port `iqn...,i,0x<ISID>`, with a terminating zero byte and padding.
pub fn emit_transport_id(initiator: &str) -> Vec<u8> {
    let padded = (initiator.len() + 1).next_multiple_of(4).max(MIN_TRANSPORT_NAME_LEN);
    let [high, low] = u16::try_from(padded).unwrap_or(u16::MAX).to_be_bytes();
    let mut id = [&[ISCSI_PORT, 0, high, low], initiator.as_bytes()].concat();
    id.resize(TRANSPORT_ID_HEADER_LEN + padded, 0);
    id
}

/// The names in a list of TransportIDs at offset [`TRANSPORT_IDS_AT`].
fn transport_ids(ids: &[u8]) -> Result<Vec<String>, SenseData> {
    let mut names = Vec::new();
    let mut rest = ids;
    while !rest.is_empty() {
        let (name, behind) = transport_id(rest, TRANSPORT_IDS_AT + ids.len() - rest.len())?;
        names.push(name);
        rest = behind;
    }
    Ok(names)
}

/// Splits the first TransportID from `bytes`, which begin at offset `at` of the parameter list: its name, and the
/// remaining bytes.
///
/// The format without a session identifier names all ports of an initiator. A registration is for one port, so it is
/// refused.
fn transport_id(bytes: &[u8], at: usize) -> Result<(String, &[u8]), SenseData> {
    let invalid = |offset: usize| SenseData::from(FieldPointer::data(u16::try_from(at + offset).unwrap_or(u16::MAX)));
    let (header, rest) =
        bytes.split_first_chunk::<TRANSPORT_ID_HEADER_LEN>().ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    if header[0] != ISCSI_PORT {
        return Err(invalid(0));
    }
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if len < MIN_TRANSPORT_NAME_LEN || !len.is_multiple_of(4) {
        return Err(invalid(2));
    }
    let (name, rest) = rest.split_at_checked(len).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let end = name.iter().position(|byte| *byte == 0).ok_or(invalid(4))?;
    let name = std::str::from_utf8(&name[..end]).map_err(|_| invalid(4))?.to_lowercase();
    let (device, isid) = name.rsplit_once(ISID_MARK).ok_or(invalid(4))?;
    let isid_is_hex = isid.bytes().all(|byte| byte.is_ascii_hexdigit());
    if device.is_empty() || isid.is_empty() || isid.len() > MAX_ISID_DIGITS || !isid_is_hex {
        return Err(invalid(4));
    }
    Ok((name, rest))
}

// PERSISTENT RESERVE IN.

/// PERSISTENT RESERVE IN: READ KEYS data.
pub fn read_keys(generation: u32, keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    with_header(generation, &keys.into_iter().flat_map(u64::to_be_bytes).collect::<Vec<_>>())
}

/// PERSISTENT RESERVE IN: READ RESERVATION data. The key of a reservation that all registrants hold is zero.
pub fn read_reservation(generation: u32, reservation: Option<(u64, ReservationType)>) -> Vec<u8> {
    let Some((key, kind)) = reservation else { return with_header(generation, &[]) };
    // Key, four obsolete bytes, a reserved one, SCOPE (the logical unit) and TYPE, two obsolete bytes.
    with_header(generation, &[&key.to_be_bytes()[..], &[0, 0, 0, 0, 0, kind.code(), 0, 0]].concat())
}

/// PERSISTENT RESERVE IN: REPORT CAPABILITIES data, of a device server that supports everything but REPLACE LOST
/// RESERVATION.
///
/// `compatible` is CRH: RESERVE and RELEASE are supported. `persistent` is `PTPL_C`: APTPL is supported. `active` is
/// `PTPL_A`: APTPL is set.
pub fn report_capabilities(compatible: bool, persistent: bool, active: bool) -> [u8; 8] {
    const CRH: u8 = 0x10;
    const SIP_ATP: u8 = 0x0c;
    const PTPL_C: u8 = 0x01;
    const TMV: u8 = 0x80;
    const PTPL_A: u8 = 0x01;
    /// The types: WR_EX_AR, EX_AC_RO, WR_EX_RO, EX_AC, WR_EX; EX_AC_AR.
    const TYPES: [u8; 2] = [0xea, 0x01];
    let capable = if persistent { PTPL_C } else { 0 };
    let compatible = if compatible { CRH } else { 0 };
    let active = if active { PTPL_A } else { 0 };
    [0, 8, compatible | SIP_ATP | capable, TMV | active, TYPES[0], TYPES[1], 0, 0]
}

/// A registration in READ FULL STATUS data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullStatus<'a> {
    /// The reservation key of the nexus.
    pub key: u64,
    /// The type of the reservation that the nexus holds, if any.
    pub holds: Option<ReservationType>,
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub relative_port: u16,
    /// The name of the initiator port.
    pub initiator: &'a str,
}

/// READ FULL STATUS.
pub fn read_full_status<'a>(generation: u32, registrations: impl IntoIterator<Item = FullStatus<'a>>) -> Vec<u8> {
    const R_HOLDER: u8 = 0x01;
    let mut list = Vec::new();
    for FullStatus { key, holds, relative_port, initiator } in registrations {
        let id = emit_transport_id(initiator);
        let (holder, kind) = holds.map_or((0, 0), |kind| (R_HOLDER, kind.code()));
        list.extend_from_slice(&key.to_be_bytes());
        list.extend_from_slice(&[0, 0, 0, 0, holder, kind, 0, 0, 0, 0]);
        list.extend_from_slice(&relative_port.to_be_bytes());
        list.extend_from_slice(&(id.len() as u32).to_be_bytes());
        list.extend_from_slice(&id);
    }
    with_header(generation, &list)
}

/// Prepends PRGENERATION and ADDITIONAL LENGTH to a list.
fn with_header(generation: u32, list: &[u8]) -> Vec<u8> {
    [&generation.to_be_bytes()[..], &(list.len() as u32).to_be_bytes(), list].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PORT: &str = "iqn.2026-11.host:a,i,0x400001370000";

    fn basic(flags: u8) -> Vec<u8> {
        let mut list = vec![0; BASIC_LIST_LEN];
        list[7] = 1;
        list[15] = 2;
        list[20] = flags;
        list
    }

    fn with_ids(ids: &[u8]) -> Vec<u8> {
        [&basic(SPEC_I_PT)[..], &(ids.len() as u32).to_be_bytes(), ids].concat()
    }

    #[test]
    fn the_basic_list_has_exactly_its_length() {
        let list = ReserveOutList::parse(&basic(ALL_TG_PT | APTPL)).unwrap();
        assert_eq!((list.key, list.action_key, list.all_target_ports, list.persist), (1, 2, true, true));
        assert!(!list.specifies_initiators);
        for len in [0, 23, 25, 28] {
            let mut list = basic(0);
            list.resize(len, 0);
            assert_eq!(ReserveOutList::parse(&list), Err(SenseData::PARAMETER_LIST_LENGTH_ERROR), "{len}");
        }
        assert_eq!(ReserveOutList::parse(&basic(0x02)), Err(FieldPointer::data(20).into()));
    }

    #[test]
    fn transport_ids_are_read_one_after_the_other() {
        let ids = [emit_transport_id(PORT), emit_transport_id("iqn.B,i,0xAB")].concat();
        let list = ReserveOutList::parse(&with_ids(&ids)).unwrap();
        assert_eq!(list.initiators, [PORT, "iqn.b,i,0xab"]);
        let cut = with_ids(&ids[..ids.len() - 4]);
        assert_eq!(ReserveOutList::parse(&cut), Err(SenseData::PARAMETER_LIST_LENGTH_ERROR));
        assert_eq!(ReserveOutList::parse(&basic(SPEC_I_PT)), Err(SenseData::PARAMETER_LIST_LENGTH_ERROR));
    }

    #[test]
    fn the_name_of_an_initiator_may_have_commas() {
        for (port, name) in [
            (PORT, "iqn.2026-11.host:a"),
            ("iqn.a,b,i,0xc,i,0x400001370000", "iqn.a,b,i,0xc"),
            ("iqn.a,,i,0x1", "iqn.a,"),
            ("iqn.a,b", "iqn.a,b"),
        ] {
            assert_eq!(initiator_name(port), name);
        }
        let list = ReserveOutList::parse(&with_ids(&emit_transport_id("iqn.a,i,0xz,i,0x1"))).unwrap();
        assert_eq!(list.initiators, ["iqn.a,i,0xz,i,0x1"]);
    }

    #[test]
    fn a_transport_id_is_padded_to_four_bytes_and_ends_with_zero() {
        let id = emit_transport_id(PORT);
        assert_eq!(&id[..4], [0x45, 0, 0, 36]);
        assert_eq!((id.len(), id.last()), (40, Some(&0)));
        assert_eq!(emit_transport_id("iqn.a,i,0x1").len(), 24);
    }

    #[test]
    fn a_transport_id_of_another_protocol_is_pointed_at() {
        for (change, at) in [(0usize, 28), (3, 30)] {
            let mut ids = emit_transport_id(PORT);
            ids[change] = 0x05;
            assert_eq!(ReserveOutList::parse(&with_ids(&ids)).unwrap_err().field, Some(FieldPointer::data(at)));
        }
        for name in
            ["iqn.2026-11.host:without-an-isid", "iqn.a,i,0x", "iqn.a,i,0x1234567890123", "iqn.a,i,0xg", ",i,0x1"]
        {
            let list = with_ids(&emit_transport_id(name));
            assert_eq!(ReserveOutList::parse(&list).unwrap_err().field, Some(FieldPointer::data(32)), "{name}");
        }
    }

    #[test]
    fn the_list_of_a_move_has_one_transport_id() {
        let id = emit_transport_id(PORT);
        let mut list = [basic(0), id.clone()].concat();
        list[17] = 3;
        list[19] = 7;
        list[23] = id.len() as u8;
        let parsed = RegisterAndMoveList::parse(&list).unwrap();
        assert_eq!((parsed.unregister, parsed.persist, parsed.relative_port), (true, true, 7));
        assert_eq!(parsed.initiator, PORT);
        assert_eq!(RegisterAndMoveList::parse(&list[..list.len() - 1]), Err(SenseData::PARAMETER_LIST_LENGTH_ERROR));
        list[17] = 4;
        assert_eq!(RegisterAndMoveList::parse(&list), Err(FieldPointer::data(17).into()));
    }

    #[test]
    fn types_have_their_codes() {
        for code in 0..16 {
            let kind = ReservationType::decode(code);
            assert_eq!(kind.is_some(), [1, 3, 5, 6, 7, 8].contains(&code));
            assert_eq!(kind.map_or(code, ReservationType::code), code);
        }
    }

    #[test]
    fn persistent_reserve_in_data_counts_its_bytes() {
        assert_eq!(read_keys(1, [2, 3])[..8], [0, 0, 0, 1, 0, 0, 0, 16]);
        assert_eq!(read_reservation(5, None), [0, 0, 0, 5, 0, 0, 0, 0]);
        let held = read_reservation(5, Some((9, ReservationType::ExclusiveAccess)));
        assert_eq!((held.len(), held[7], held[15], held[21]), (24, 16, 9, 3));
        let full = read_full_status(
            1,
            [FullStatus { key: 9, holds: Some(ReservationType::WriteExclusive), relative_port: 1, initiator: PORT }],
        );
        assert_eq!((full.len(), full[7], full[20], full[21], full[27], full[31]), (72, 64, 1, 1, 1, 40));
        assert_eq!(report_capabilities(true, true, false), [0, 8, 0x1d, 0x80, 0xea, 1, 0, 0]);
        assert_eq!(report_capabilities(false, false, true), [0, 8, 0x0c, 0x81, 0xea, 1, 0, 0]);
    }

    proptest! {
        #[test]
        fn no_list_panics(list in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = ReserveOutList::parse(&list);
            let _ = RegisterAndMoveList::parse(&list);
        }

        #[test]
        fn names_come_back_from_lists(isids in proptest::collection::vec(any::<u32>(), 0..8)) {
            let names: Vec<_> = isids.iter().map(|isid| format!("iqn.2026-11.host:{isid},i,0x{isid:x}")).collect();
            let ids: Vec<u8> = names.iter().flat_map(|name| emit_transport_id(name)).collect();
            prop_assert_eq!(ReserveOutList::parse(&with_ids(&ids)).unwrap().initiators, names);
        }
    }
}
