//! Lists that a device server reports: its logical units and its commands (SPC-5 6.32, 6.33).

use crate::{Lun, OpCode, ServiceAction};

/// REPORT LUNS parameter data.
pub fn luns(luns: &[Lun]) -> Vec<u8> {
    let len = u32::try_from(luns.len() * 8).unwrap_or(u32::MAX);
    let mut data = [len.to_be_bytes(), [0; 4]].concat();
    for lun in luns {
        data.extend_from_slice(&lun.encode());
    }
    data
}

/// A command in REPORT SUPPORTED OPERATION CODES data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupportedCommand {
    /// The operation code.
    pub opcode: OpCode,
    /// The service action, for an operation code with service actions (SERVACTV).
    pub service_action: Option<ServiceAction>,
    /// CDB USAGE DATA, as long as the CDB.
    pub usage: &'static [u8],
}

/// A command timeouts descriptor with unspecified timeouts: all zero after its length.
const TIMEOUTS: [u8; 12] = [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

const SERVACTV: u8 = 0x01;
/// CTDP in a command descriptor of the list.
const LISTED_CTDP: u8 = 0x02;
/// CTDP in the data for one command.
const SINGLE_CTDP: u8 = 0x80;
/// SUPPORT: the command is not supported.
const UNSUPPORTED: u8 = 1;
/// SUPPORT: the command is supported as a standard defines it.
const SUPPORTED: u8 = 3;

/// Encodes the data for all commands, with command timeouts descriptors when `timeouts` (RCTD) is set.
pub fn all_commands(commands: impl IntoIterator<Item = SupportedCommand>, timeouts: bool) -> Vec<u8> {
    let mut list = Vec::new();
    for command in commands {
        let [sa_high, sa_low] = command.service_action.map_or(0, |action| action.0).to_be_bytes();
        let [len_high, len_low] = (command.usage.len() as u16).to_be_bytes();
        let servactv = if command.service_action.is_some() { SERVACTV } else { 0 };
        let ctdp = if timeouts { LISTED_CTDP } else { 0 };
        list.extend([command.opcode.0, 0, sa_high, sa_low, 0, servactv | ctdp, len_high, len_low]);
        if timeouts {
            list.extend(TIMEOUTS);
        }
    }
    [&(list.len() as u32).to_be_bytes()[..], &list].concat()
}

/// Encodes the data for one command; `None` when the command is not supported.
pub fn one_command(command: Option<SupportedCommand>, timeouts: bool) -> Vec<u8> {
    let Some(command) = command else { return vec![0, UNSUPPORTED, 0, 0] };
    let ctdp = if timeouts { SINGLE_CTDP } else { 0 };
    let [len_high, len_low] = (command.usage.len() as u16).to_be_bytes();
    let timeouts: &[u8] = if timeouts { &TIMEOUTS } else { &[] };
    [&[0, ctdp | SUPPORTED, len_high, len_low], command.usage, timeouts].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: SupportedCommand =
        SupportedCommand { opcode: OpCode::TEST_UNIT_READY, service_action: None, usage: &[0, 0, 0, 0, 0, 0] };
    const ACTION: SupportedCommand = SupportedCommand {
        opcode: OpCode(0xa3),
        service_action: Some(ServiceAction(0x0c)),
        usage: &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    };

    #[test]
    fn the_list_marks_service_actions_and_timeouts() {
        let data = all_commands([PLAIN, ACTION], false);
        assert_eq!(data, [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 6, 0xa3, 0, 0, 0x0c, 0, 1, 0, 12]);
        let data = all_commands([PLAIN], true);
        assert_eq!((data.len(), data[3], data[9]), (24, 20, 2));
        assert_eq!(&data[12..14], [0, 10]);
    }

    #[test]
    fn one_command_shows_its_usage_bitmap() {
        assert_eq!(one_command(None, true), [0, 1, 0, 0]);
        assert_eq!(one_command(Some(PLAIN), false), [0, 3, 0, 6, 0, 0, 0, 0, 0, 0]);
        let timed = one_command(Some(ACTION), true);
        assert_eq!((timed.len(), timed[1]), (4 + 12 + 12, 0x83));
    }

    #[test]
    fn the_lun_list_counts_its_bytes() {
        let data = luns(&[Lun::ZERO, Lun::new(300).unwrap()]);
        assert_eq!(data, [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0x2c, 0, 0, 0, 0, 0, 0]);
    }
}
