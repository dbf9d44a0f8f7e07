//! Sessions and their connections at a standstill.
//!
//! At a standstill a session has no task that has begun. What the initiator has sent since is kept as it came, in
//! [`Connection::received`], and the successor reads it as if it had just arrived.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// A session in its full feature phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The initiator's iSCSI name.
    pub initiator_name: String,
    /// The CHAP user that it proved to be.
    pub chap_user: Option<String>,
    /// The name of the hash function of that proof, for people.
    pub chap_algorithm: Option<String>,
    /// The initiator's part of the session's name.
    pub isid: [u8; 6],
    /// Our part of the session's name.
    pub tsih: u16,
    /// The name of the target; `None` of a discovery session.
    pub target: Option<String>,
    /// The name of the initiator's host.
    pub host: Option<String>,
    /// The portal group that the session uses.
    pub portal_group: u16,
    /// The session-wide parameters, as the leading connection negotiated them.
    pub parameters: Parameters,
    /// The command numbers.
    pub window: Window,
    /// The connections, one at least.
    pub connections: Vec<Connection>,
    /// The units that its nexus sees.
    pub nexus: Nexus,
}

/// The command numbers of a session (RFC 7143 section 4.2.2.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// `ExpCmdSN`.
    pub exp_cmd_sn: u32,
    /// `MaxCmdSN`, as the initiator was told. It must not go back.
    pub max_cmd_sn: u32,
    /// Places for tasks.
    pub width: u32,
    /// Whether the initiator has yet to be told how far the window is open.
    pub untold: bool,
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connection {
    /// The place of its socket among the descriptors.
    pub socket: u32,
    /// The CID, its number in the session.
    pub cid: u16,
    /// The address of the initiator.
    pub peer: SocketAddr,
    /// The address at which it came in.
    pub local: SocketAddr,
    /// When it came, in microseconds since 1970.
    pub came_us: u64,
    /// The parameters of this connection.
    pub parameters: Parameters,
    /// The next `StatSN`.
    pub stat_sn: u32,
    /// `ExpStatSN`, as the initiator reported it last.
    pub acknowledged: u32,
    /// The tag of the last ping of the target.
    pub last_ping: u32,
    /// The longest data segment that is taken now, in bytes.
    pub receive_limit: u32,
    /// Bytes that came and were not dealt with, from the beginning of a PDU on.
    pub received: ByteBuf,
    /// Bytes that are ready to be sent, from any place of a PDU on.
    pub unsent: ByteBuf,
    /// The PDUs that the initiator may ask for again (recovery levels 1 and 2), from the first `StatSN` that it has not
    /// acknowledged on.
    pub retained: Vec<Sent>,
}

impl Default for Connection {
    fn default() -> Self {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Self {
            socket: 0,
            cid: 0,
            peer: nowhere,
            local: nowhere,
            came_us: 0,
            parameters: Parameters::default(),
            stat_sn: 0,
            acknowledged: 0,
            last_ping: 0,
            receive_limit: 0,
            received: ByteBuf::new(),
            unsent: ByteBuf::new(),
            retained: Vec::new(),
        }
    }
}

/// The negotiated parameters, by the names of RFC 7143 section 13. Lengths are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are those of the keys")]
pub struct Parameters {
    pub header_digest: bool,
    pub data_digest: bool,
    pub recv_data_segment_len: u32,
    pub send_data_segment_len: u32,
    pub max_connections: u32,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub max_burst_len: u32,
    pub first_burst_len: u32,
    pub time2wait_s: u32,
    pub time2retain_s: u32,
    pub max_outstanding_r2t: u32,
    pub data_pdu_in_order: bool,
    pub data_sequence_in_order: bool,
    pub error_recovery_level: u32,
    /// 0, 1 or 2: RFC3720, ResponseFence, FastAbort.
    pub task_reporting: u8,
    pub protocol_level: u32,
}

/// A PDU that carried a `StatSN` and was not acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Sent {
    /// A PDU that answers no command.
    Pdu {
        /// The header.
        bhs: ByteBuf,
        /// The data segment.
        segment: ByteBuf,
    },
    /// The answer to a command.
    Answer(Box<Answer>),
    /// A PDU that cannot be sent again.
    Forgotten,
}

/// The answer to a command, with all that is needed to cut it again (RFC 7143 section 11.16).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The initiator task tag.
    pub itt: u32,
    /// The LUN field.
    pub lun: [u8; 8],
    /// The number of the command.
    pub cmd_sn: u32,
    /// Whether the command was immediate.
    pub immediate: bool,
    /// The `StatSN`.
    pub stat_sn: u32,
    /// The SCSI status.
    pub status: u8,
    /// The status qualifier.
    pub status_qualifier: u16,
    /// The sense data.
    pub sense: ByteBuf,
    /// The residual.
    pub residual: Residual,
    /// The residual of the read part of a bidirectional command.
    pub read_residual: Residual,
    /// Whether the status rides on the last Data-In PDU.
    pub collapsed: bool,
    /// The data; empty when it is not kept any more.
    pub data: ByteBuf,
    /// The length of the data, in bytes.
    pub data_len: u64,
    /// The length of a block that is worth nothing in parts, in bytes; else 0.
    pub block_len: u16,
    /// The length of a data segment, in bytes.
    pub segment_len: u64,
    /// The length of a sequence, in bytes.
    pub burst_len: u64,
    /// Whether data is cut between blocks.
    pub at_blocks: bool,
    /// `DataSN` of the first PDU that was not acknowledged.
    pub unacknowledged_data_sn: u32,
    /// Where its data begins, in bytes.
    pub unacknowledged_offset: u64,
    /// `DataSN` after the last.
    pub end_data_sn: u32,
    /// Whether sequences end with the A bit.
    pub asks: bool,
    /// The tag of the last R-Data SNACK.
    pub snack_tag: u32,
}

/// How many bytes more or less than expected there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum Residual {
    /// The number that is expected.
    #[default]
    None,
    /// Fewer, by this number.
    Underflow(u32),
    /// More, by this number.
    Overflow(u32),
}

/// An `I_T` nexus: what its initiator has yet to hear of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nexus {
    /// The units that it sees.
    pub units: Vec<SeenUnit>,
}

/// A logical unit, as a nexus sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenUnit {
    /// The LUN field.
    pub lun: [u8; 8],
    /// The serial number of the unit: another unit at that LUN is none of this.
    pub serial: String,
    /// The pending unit attentions as ASC and ASCQ, in the order in which they are reported.
    pub unit_attentions: Vec<(u8, u8)>,
    /// PREVENT of PREVENT ALLOW MEDIUM REMOVAL.
    pub prevents_removal: bool,
    /// Whether the store is not there.
    pub not_ready: bool,
    /// The number of blocks.
    pub blocks: u64,
    /// The INQUIRY data of the unit, to be compared and not read.
    pub inquiry: String,
    /// Whether writes of the nexus are refused by anything but a mode page.
    pub read_only: bool,
    /// The access state of each target port group, by its number.
    pub access_states: Vec<(u16, u8)>,
    /// The results of third-party copies, from the oldest on.
    pub copies: Vec<CopyResult>,
}

/// The result of a third-party copy that has a list identifier, as RECEIVE COPY STATUS tells it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyResult {
    /// The list identifier.
    pub list_id: u32,
    /// The service action of the command.
    pub action: u16,
    /// How the copy has ended.
    pub end: CopyEnd,
    /// The segments or ranges that were completed.
    pub segments: u16,
    /// The bytes that were copied.
    pub bytes: u64,
    /// The length of a block of the unit, in bytes.
    pub block_len: u32,
    /// The SCSI status.
    pub status: u8,
    /// The sense data.
    pub sense: ByteBuf,
    /// The ROD token that was created; empty without one.
    pub token: ByteBuf,
}

/// How a third-party copy has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum CopyEnd {
    /// All is copied.
    Completed,
    /// With an error.
    Failed,
    /// The copy was aborted.
    #[default]
    Aborted,
}
