//! Target port groups: REPORT and SET TARGET PORT GROUPS (SPC-4 6.37, 6.45).

use crate::FieldPointer;

/// The secondary target port group of the offline ports (SPC-4 5.16.2.1). No primary group may have this number.
pub const OFFLINE_GROUP: u16 = 0xffff;

/// Bytes in front of the descriptors of a SET TARGET PORT GROUPS parameter list.
pub const SET_HEADER_LEN: usize = 4;

/// Bytes of a set target port group descriptor.
pub const SET_DESCRIPTOR_LEN: usize = 4;

const PREF: u8 = 0x80;
/// `T_SUP`, `O_SUP`, `U_SUP`, `S_SUP`, `AN_SUP`, `AO_SUP`: all states except the logical block dependent one.
const SUPPORTED_STATES: u8 = 0xcf;
/// FORMAT TYPE 001b of the extended header.
const EXTENDED_HEADER: u8 = 0x10;

/// ASYMMETRIC ACCESS STATE (SPC-4 5.16.2.4), without the logical block dependent state, which requires referrals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessState {
    /// Every command is processed, with the best performance.
    ActiveOptimized = 0x0,
    /// Every command is processed, perhaps with lower performance.
    ActiveNonOptimized = 0x1,
    /// Commands that manage the logical unit are processed; those that access its blocks are not.
    Standby = 0x2,
    /// Only commands that report on ports and change their states are processed.
    Unavailable = 0x3,
    /// The target port is unreachable. This is a secondary state, of single ports.
    Offline = 0xe,
    /// The group is in transition between two states.
    Transitioning = 0xf,
}

impl AccessState {
    /// All access states.
    pub const ALL: [Self; 6] = [
        Self::ActiveOptimized,
        Self::ActiveNonOptimized,
        Self::Standby,
        Self::Unavailable,
        Self::Offline,
        Self::Transitioning,
    ];

    /// Decodes an ASYMMETRIC ACCESS STATE field; `None` for the logical block dependent state and reserved codes.
    pub fn decode(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The code for the ASYMMETRIC ACCESS STATE field.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// TPGS: whether the device server, initiators or both change access states (SPC-4 6.6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Management {
    /// Only the device server changes access states.
    #[default]
    Implicit = 1,
    /// Only initiators change access states, by SET TARGET PORT GROUPS.
    Explicit = 2,
    /// The initiators and the target change access states.
    Both = 3,
}

impl Management {
    /// Whether SET TARGET PORT GROUPS is supported.
    pub fn is_explicit(self) -> bool {
        self != Self::Implicit
    }

    /// Whether the device server changes states by itself.
    pub fn is_implicit(self) -> bool {
        self != Self::Explicit
    }
}

/// STATUS CODE: the cause of the last change of an access state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatusCode {
    /// The state has never changed.
    #[default]
    None = 0,
    /// SET TARGET PORT GROUPS.
    Explicit = 1,
    /// The device server changed the state.
    Implicit = 2,
}

/// A target port group descriptor of REPORT TARGET PORT GROUPS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDescriptor {
    /// PREF: the group is preferred, whatever its state.
    pub preferred: bool,
    /// ASYMMETRIC ACCESS STATE.
    pub state: AccessState,
    /// TARGET PORT GROUP.
    pub group: u16,
    /// STATUS CODE.
    pub status: StatusCode,
    /// The RELATIVE TARGET PORT IDENTIFIERs, at most 255.
    pub ports: Vec<u16>,
}

/// Encodes REPORT TARGET PORT GROUPS data. With `transition_time_s`, IMPLICIT TRANSITION TIME in seconds, it has the
/// extended header. Ports of a group beyond 255 are left out.
pub fn report(groups: &[GroupDescriptor], transition_time_s: Option<u8>) -> Vec<u8> {
    const MAX_PORTS: usize = u8::MAX as usize;
    let mut data = vec![0; 4];
    if let Some(seconds) = transition_time_s {
        data.extend([EXTENDED_HEADER, seconds, 0, 0]);
    }
    for group in groups {
        let ports = &group.ports[..group.ports.len().min(MAX_PORTS)];
        let preferred = if group.preferred { PREF } else { 0 };
        let [high, low] = group.group.to_be_bytes();
        data.extend([preferred | group.state.code(), SUPPORTED_STATES, high, low]);
        data.extend([0, group.status as u8, 0, ports.len() as u8]);
        for port in ports {
            data.extend(u32::from(*port).to_be_bytes());
        }
    }
    let len = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&len.to_be_bytes());
    data
}

/// A set target port group descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetDescriptor {
    /// The requested state.
    pub state: AccessState,
    /// TARGET PORT GROUP, or RELATIVE TARGET PORT IDENTIFIER for the offline state.
    pub group_or_port: u16,
    /// The field of [`Self::state`].
    pub state_field: FieldPointer,
    /// The field of [`Self::group_or_port`].
    pub target_field: FieldPointer,
}

/// Parses a SET TARGET PORT GROUPS parameter list: whole descriptors after the header. The caller has checked the
/// length.
///
/// # Errors
///
/// A reserved bit that is set, or a state that cannot be requested.
pub fn parse_set(list: &[u8]) -> Result<Vec<SetDescriptor>, FieldPointer> {
    let at = |byte: usize| FieldPointer::data(u16::try_from(byte).unwrap_or(u16::MAX));
    let (header, descriptors) = list.split_at_checked(SET_HEADER_LEN).unwrap_or((list, &[]));
    if let Some(byte) = header.iter().position(|byte| *byte != 0) {
        return Err(at(byte));
    }
    let (descriptors, _) = descriptors.as_chunks::<SET_DESCRIPTOR_LEN>();
    let parse = |(index, [state, reserved, high, low]): (usize, &[u8; SET_DESCRIPTOR_LEN])| {
        let start = SET_HEADER_LEN + index * SET_DESCRIPTOR_LEN;
        let state_field = at(start).bit(3);
        if state & 0xf0 != 0 {
            return Err(at(start).bit(state.ilog2() as u8));
        }
        if *reserved != 0 {
            return Err(at(start + 1));
        }
        let state = AccessState::decode(*state).filter(|state| *state != AccessState::Transitioning);
        Ok(SetDescriptor {
            state: state.ok_or(state_field)?,
            group_or_port: u16::from_be_bytes([*high, *low]),
            state_field,
            target_field: at(start + 2),
        })
    };
    descriptors.iter().enumerate().map(parse).collect()
}

/// Encodes a SET TARGET PORT GROUPS parameter list: the requested state of each group.
pub fn emit_set(groups: &[(u16, AccessState)]) -> Vec<u8> {
    let mut list = vec![0; SET_HEADER_LEN];
    for (group, state) in groups {
        let [high, low] = group.to_be_bytes();
        list.extend([state.code(), 0, high, low]);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn groups() -> [GroupDescriptor; 2] {
        let first = GroupDescriptor {
            preferred: true,
            state: AccessState::ActiveNonOptimized,
            group: 0x0102,
            status: StatusCode::Implicit,
            ports: vec![1, 0x0203],
        };
        let second = GroupDescriptor { preferred: false, state: AccessState::Offline, ports: vec![9], ..first.clone() };
        [first, second]
    }

    #[test]
    fn a_report_has_a_descriptor_for_each_group_and_port() {
        let data = report(&groups(), None);
        assert_eq!(data[..4], [0, 0, 0, 28]);
        assert_eq!(data[4..20], [0x81, 0xcf, 1, 2, 0, 2, 0, 2, 0, 0, 0, 1, 0, 0, 2, 3]);
        assert_eq!(data[20..], [0x0e, 0xcf, 1, 2, 0, 2, 0, 1, 0, 0, 0, 9]);
    }

    #[test]
    fn the_extended_header_has_the_transition_time() {
        let data = report(&groups(), Some(60));
        assert_eq!(data[..8], [0, 0, 0, 32, 0x10, 60, 0, 0]);
        assert_eq!(data[8..], report(&groups(), None)[4..]);
    }

    #[test]
    fn a_list_is_read_with_its_fields() {
        let list = [0, 0, 0, 0, 0x02, 0, 0, 7, 0x0e, 0, 1, 0];
        let set = parse_set(&list).unwrap();
        assert_eq!((set[0].state, set[0].group_or_port), (AccessState::Standby, 7));
        assert_eq!((set[1].state, set[1].group_or_port), (AccessState::Offline, 256));
        assert_eq!((set[1].state_field, set[1].target_field), (FieldPointer::data(8).bit(3), FieldPointer::data(10)));
        assert_eq!(parse_set(&list[..4]), Ok(Vec::new()));
        assert_eq!(emit_set(&[(7, AccessState::Standby), (256, AccessState::Offline)]), list);
    }

    #[test]
    fn bad_fields_of_a_list_are_pointed_at() {
        for (at, value, field) in [
            (0, 1, FieldPointer::data(0)),
            (3, 1, FieldPointer::data(3)),
            (8, 0x40, FieldPointer::data(8).bit(6)),
            (9, 1, FieldPointer::data(9)),
            (8, 0x04, FieldPointer::data(8).bit(3)),
            (8, 0x0d, FieldPointer::data(8).bit(3)),
            (8, 0x0f, FieldPointer::data(8).bit(3)),
        ] {
            let mut list = [0; 12];
            list[at] = value;
            assert_eq!(parse_set(&list), Err(field));
        }
    }

    #[test]
    fn codes_and_states_belong_together() {
        let codes: Vec<u8> = AccessState::ALL.into_iter().map(AccessState::code).collect();
        assert_eq!(codes, [0, 1, 2, 3, 0xe, 0xf]);
        for code in 0..=255 {
            assert_eq!(AccessState::decode(code).map(AccessState::code), codes.contains(&code).then_some(code));
        }
    }

    proptest! {
        #[test]
        fn any_list_is_read_or_its_bad_byte_named(list in proptest::collection::vec(0u8..4, 0..64)) {
            match parse_set(&list) {
                Ok(set) => prop_assert_eq!(set.len(), list.len().saturating_sub(SET_HEADER_LEN) / SET_DESCRIPTOR_LEN),
                Err(field) => prop_assert!(usize::from(field.byte) < list.len()),
            }
        }
    }
}
