//! The rows of the opcode table: what is checked and reported about a command.

use lunette_scsi::report::SupportedCommand;
use lunette_scsi::{Cdb, OpCode, ServiceAction};

use super::context::Cx;
use crate::coroutine::workspace::HandlerSlot;
use crate::counts::CommandKind;
use crate::port_groups::access::AccessRule;
use crate::reservations::ReservationRule;
use crate::sanitize::SanitizeRule;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::medium::MediumUse;

/// Places the handler of a command in its slot.
pub(crate) type Handler = fn(Cx, HandlerSlot<'_>);

/// A row of the opcode table: one command.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) opcode: OpCode,
    pub(crate) action: Option<ServiceAction>,
    pub(crate) name: &'static str,
    /// CDB USAGE DATA, as long as the CDB: the bits that are evaluated.
    pub(crate) usage: &'static [u8],
    pub(crate) direction: Direction,
    pub(crate) attention: AttentionRule,
    pub(crate) absent: AbsentUnit,
    pub(crate) access: AccessRule,
    pub(crate) medium: MediumUse,
    pub(crate) effect: SharedEffect,
    pub(crate) reservation: ReservationRule,
    pub(crate) sanitizing: SanitizeRule,
    pub(crate) range: RangeRule,
    pub(crate) needs: Requirement,
    pub(crate) handler: Handler,
    /// READ or WRITE, which do without their handler where the store answers within the call.
    pub(crate) at_once: bool,
}

/// The direction of the data transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    None,
    In,
    Out,
    Both,
}

/// Whether a pending unit attention is reported in place of running the command (SAM-5 5.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttentionRule {
    Reported,
    Passes,
}

/// Whether a command changes what other nexuses see, beside the medium. A nexus that may only read changes nothing of
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedEffect {
    None,
    Changes,
    /// `None` for a START STOP UNIT that starts, or that names a power condition: a store does not spin.
    ChangesUnlessStart,
    /// `None` for a PREVENT ALLOW MEDIUM REMOVAL that allows, which only takes back what the nexus prevents.
    ChangesUnlessAllow,
}

impl SharedEffect {
    /// Whether the command with this CDB changes what other nexuses see.
    pub(crate) fn is_of(self, cdb: &Cdb) -> bool {
        const POWER_CONDITION: u8 = 0xf0;
        const LOEJ_AND_START: u8 = 0x03;
        const START: u8 = 0x01;
        const PREVENT: u8 = 0x03;
        match self {
            Self::None => false,
            Self::Changes => true,
            Self::ChangesUnlessStart => !cdb.bit(4, POWER_CONDITION) && cdb.byte(4) & LOEJ_AND_START != START,
            Self::ChangesUnlessAllow => cdb.bit(4, PREVENT),
        }
    }
}

/// Whether the command has a response where no logical unit exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbsentUnit {
    Refused,
    Answered,
}

/// The blocks that the CDB names, and their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeRule {
    None,
    /// Up to MAXIMUM TRANSFER LENGTH blocks.
    Transfer,
    /// Up to MAXIMUM ATOMIC TRANSFER LENGTH blocks.
    Atomic,
    /// Up to MAXIMUM WRITE SAME LENGTH blocks. Without such a limit, zero means all blocks to the end.
    WriteSame,
    /// Any number of blocks; zero means all blocks to the end.
    ToEnd,
}

/// A feature of the unit, its store or the target port that a command requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    Nothing,
    Unmap,
    RemovableMedium,
    /// A unit that accepts 32-byte CDBs.
    LongCdbs,
    /// A unit with a state store.
    State,
    /// A target port whose access states initiators may change.
    ExplicitAccess,
    /// A store in memory, which erases all data at once.
    Memory,
}

impl Requirement {
    /// Whether the unit and the port of `itl` meet the requirement.
    pub(crate) fn met_by(self, itl: &ItlNexus) -> bool {
        let unit = &itl.unit;
        match self {
            Self::Nothing => true,
            Self::Unmap => unit.capabilities().unmap,
            Self::RemovableMedium => unit.removable(),
            Self::LongCdbs => unit.config().long_cdbs,
            Self::State => unit.config().state.is_some(),
            Self::ExplicitAccess => itl.access.explicit(),
            Self::Memory => unit.capabilities().memory,
        }
    }
}

/// Commands that change or report what the servers of a shared unit do not tell each other.
const LOCAL: [OpCode; 5] =
    [OpCode::RELEASE_6, OpCode::RELEASE_10, OpCode::RESERVE_6, OpCode::RESERVE_10, OpCode::SANITIZE];

impl Row {
    /// The kind as which the command is counted.
    pub(crate) fn kind(&self) -> CommandKind {
        match (self.opcode, self.range) {
            (OpCode::UNMAP, _) => CommandKind::Unmap,
            (OpCode::SYNCHRONIZE_CACHE_10 | OpCode::SYNCHRONIZE_CACHE_16, _) => CommandKind::Flush,
            (_, RangeRule::Transfer | RangeRule::Atomic | RangeRule::WriteSame) if self.medium == MediumUse::Writes => {
                CommandKind::Write
            }
            (_, RangeRule::Transfer) if self.direction == Direction::In => CommandKind::Read,
            _ => CommandKind::Other,
        }
    }

    /// Whether the command is supported on the unit of `itl`.
    pub(crate) fn supported_by(&self, itl: &ItlNexus) -> bool {
        self.needs.met_by(itl) && !(itl.unit.config().shared && LOCAL.contains(&self.opcode))
    }

    /// The description of the row for REPORT SUPPORTED OPERATION CODES.
    pub(crate) fn report(&self) -> SupportedCommand {
        SupportedCommand { opcode: self.opcode, service_action: self.action, usage: self.usage }
    }
}
