//! Every bound on what a peer can make us keep or do.

use std::time::Duration;

/// Seconds from the TCP connection to the end of the login.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);

/// Login requests on one connection. The longest honest login (CHAP mutual, split text) takes a dozen.
pub const MAX_LOGIN_REQUESTS: u32 = 64;

/// Bytes of one key list, over all PDUs that carry it (RFC 7143 section 6.1 asks for at least 8192).
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Bytes of text during a login, where the peer may be anyone. The longest honest list holds two binary values of CHAP,
/// 2 KiB each.
pub const MAX_LOGIN_TEXT_BYTES: usize = 16 * 1024;

/// Bytes that one unfinished login may keep: a list in the making, a data segment, answers, and what the initiator has
/// sent ahead of them. A connection on which there are more is closed.
pub const MAX_LOGIN_BYTES: usize = 64 * 1024;
const _: () = assert!(MAX_LOGIN_BYTES > MAX_LOGIN_TEXT_BYTES + LOGIN_DATA_SEGMENT_BYTES as usize);

/// Bytes of the reason for which a login is refused: it may quote the initiator, and goes to the log.
pub const MAX_REASON_BYTES: usize = 512;

/// The longest data segment of a text response. More is sent when the initiator asks for it. libiscsi takes so much,
/// and does not ask for more.
pub const MAX_TEXT_SEGMENT_BYTES: usize = 256 * 1024;

/// Keys in one negotiation: over all requests of a login, or in one text request.
pub const MAX_KEYS: usize = 256;

/// The longest data segment of a PDU during login: the default MaxRecvDataSegmentLength (RFC 7143 section 13.12).
pub const LOGIN_DATA_SEGMENT_BYTES: u32 = 8192;

/// The longest iSCSI name (RFC 7143 section 4.2.7.1).
pub const MAX_NAME_BYTES: usize = 223;

/// The longest alias or CHAP user (RFC 7143 sections 6.1 and 13.6).
pub const MAX_LOCAL_NAME_BYTES: usize = 255;

/// Commands that an initiator may have in flight: MaxCmdSN − ExpCmdSN + 1 on an idle session that is new.
pub const COMMAND_WINDOW: u32 = 128;

/// The window of a session that uses all of it, while its commands hold less than half of its share of the buffers: 4
/// KiB requests fill 1 Gb/s over 67 ms.
pub const MAX_COMMAND_WINDOW: u32 = 2048;

/// The largest window at recovery level 1 and above, where the status of each command is kept until it is acknowledged.
pub const MAX_RECOVERY_COMMAND_WINDOW: u32 = 512;
const _: () = assert!(2 * MAX_RECOVERY_COMMAND_WINDOW as usize <= MAX_RETAINED_STATUSES);

/// A window of which less than a quarter has been used for this time becomes half as wide, down to [`COMMAND_WINDOW`].
/// It is looked at when a timer of a connection is due, so it may take as much longer as a silent connection waits for
/// its ping.
pub const UNUSED_WINDOW_TIME: Duration = Duration::from_secs(30);

/// Places beyond [`COMMAND_WINDOW`] that all sessions of a table have together. One session has no more of them than it
/// leaves free, so that the next one finds some.
pub const MAX_EXTRA_COMMANDS: u32 = 65_536;

/// Tasks of immediate commands beside the window. RFC 7143 section 4.2.2.1 lets a target refuse more.
pub const MAX_IMMEDIATE_TASKS: u32 = 16;

/// Tasks that have ended for us while data for them is still under way.
pub const MAX_DRAINING_TASKS: usize = 64;

/// R2Ts outstanding for one task: all that the key can say (RFC 7143 section 13.17). Each asks for some of the task's
/// buffer, so the pool bounds them.
pub const MAX_OUTSTANDING_R2T: u32 = 65_535;

/// Pieces with gaps between them that the data of one task may lie in while it comes out of order. Sixteen MiB by PDUs
/// of 512 bytes in random order come close to half of it.
pub const MAX_EXTENTS: usize = 16_384;

/// Task management requests of one connection that wait for their answer.
pub const MAX_PENDING_TASK_MANAGEMENT: usize = 16;

/// PDUs in the outbox from which on a connection reads nothing more: the answer to a peer that reads nothing.
pub const MAX_OUTBOX_PDUS: usize = 4096;

/// Bytes of echoed pings and text in the outbox from which on a connection reads nothing more.
pub const MAX_OUTBOX_OWNED_BYTES: usize = 256 << 10;

/// PDUs in the outbox of a discovery session, which may be anyone's. Honest initiators ask for one thing at a time.
pub const MAX_DISCOVERY_OUTBOX_PDUS: usize = 128;

/// Bytes in the outbox of a discovery session.
pub const MAX_DISCOVERY_OUTBOX_BYTES: usize = 32 << 10;

/// Bytes that a discovery session may send ahead of what is answered. A connection that sends more is closed.
pub const MAX_DISCOVERY_AHEAD_BYTES: usize = 64 << 10;

/// Bytes of requests that one connection keeps while it comes to rest for a handover. Beyond it nothing more is read,
/// so tasks that wait for data behind them keep the session from its rest.
pub const MAX_RESTING_BYTES: usize = 4 << 20;

/// Statuses that a target keeps until they are acknowledged, at recovery level 1 and above. There is one for each
/// command of a full window, and for what else is said meanwhile.
pub const MAX_RETAINED_STATUSES: usize = 1024;

/// Bytes of sent data that a target keeps for the same time, on one connection. Of more, the oldest cannot be sent
/// again.
pub const MAX_RETAINED_BYTES: usize = 64 << 20;

/// Retained bytes of echoes, text and the like.
pub const MAX_RETAINED_OWNED_BYTES: usize = 256 << 10;

/// How long nothing of a task's data may come before it is asked for again, where damage may cost whole PDUs: the R2T
/// or the data may have been among them.
pub const DATA_OUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that a data phase moves at least within [`Timers::progress`](crate::Timers::progress), or all that are left:
/// with the default, a line of 18 kbit/s is fast enough.
pub const MIN_PROGRESS_BYTES: usize = 64 * 1024;

/// How long an initiator has to acknowledge what is kept for it while others wait for the buffers. It is a hundred
/// round trips of a slow line: time to ask for what is missing.
pub const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of pings and text that wait for commands before them, at recovery level 1 and above. More is dropped as if it
/// had come damaged.
pub const MAX_EARLY_BYTES: usize = 256 * 1024;

/// Bytes of sent data from which on an initiator is asked to acknowledge data before the status of its command (the A
/// bit).
pub const ASK_RETAINED_BYTES: usize = 4 << 20;

/// Bytes of data of a command that is answered while it is read. A longer read is worth a buffer of its own, which a
/// store may lend; of a longer write the data is rarely here as a whole.
pub const MAX_AT_ONCE_BYTES: u32 = 16 * 1024;

/// The rest of a data segment that is long enough to be received straight into its place. Below, one large receive that
/// holds many PDUs is cheaper.
pub const DIRECT_RECEIVE_BYTES: usize = 16 * 1024;

/// The shortest marker interval that we agree to, in 4-byte words. RFC 3720 appendix A.3.2 knows intervals down to one
/// word, at which a peer would make us keep many times the size of the data that waits to be sent: each marker cuts the
/// list of what is ready, and a cut costs some 200 bytes.
pub const MIN_MARKER_INTERVAL_WORDS: u32 = 64;

/// Connections of one session.
pub const MAX_SESSION_CONNECTIONS: u32 = 64;

/// Lost connections whose tasks wait to be taken over, of one session. A connection ends with its last task, so more of
/// them than the session has connections tell of one that fails again and again: the first lost is given up.
pub const MAX_SESSION_SUSPENDED: usize = MAX_SESSION_CONNECTIONS as usize;

/// How long a command may wait for those before it, which other connections of the session bring (RFC 7143 section
/// 7.14: a gap that is not filled for a long time tells of a failed connection).
pub const COMMAND_GAP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the answer to a task management function waits for data of the tasks that it ended, in sessions without
/// FastAbort: initiators that keep to RFC 7143 send it at once, others never.
pub const DATA_OUT_GRACE: Duration = Duration::from_secs(1);

/// Addresses that a login is sent to. With the longest names they fit the data segment of one login response.
pub const MAX_MOVED_ADDRESSES: usize = 16;

/// Sessions of one target process.
pub const MAX_SESSIONS: usize = 8192;

/// Tables that may share the sessions of a daemon, each with a part of the numbers.
pub const MAX_SESSION_TABLES: usize = 64;
const _: () = assert!(MAX_SESSION_TABLES * max_table_sessions(MAX_SESSION_TABLES) >= MAX_SESSIONS);

/// Sessions of one of these tables.
pub const fn max_table_sessions(tables: usize) -> usize {
    // Zero is no number, and of the last few below 2^16 not every table has one.
    let numbers = u16::MAX as usize / tables - 1;
    if numbers < MAX_SESSIONS { numbers } else { MAX_SESSIONS }
}

// The initiator's own.

/// Login responses on one connection: a target that never comes to an end is given up.
pub const MAX_LOGIN_RESPONSES: u32 = 64;

/// Commands that a session of the initiator has in flight, whatever window the target opens.
pub const MAX_COMMANDS: usize = 2048;

/// Requests other than commands (task management, pings, text, logout) that wait for their answer.
pub const MAX_REQUESTS: usize = MAX_DRIVER_REQUESTS + 2 * MAX_SESSION_CONNECTIONS as usize + MAX_REASSIGNMENTS;

/// Requests that the driver may ask for. The rest is for our own pings and the logouts: one of each on every
/// connection.
pub const MAX_DRIVER_REQUESTS: usize = 62;

/// Tasks of lost connections that are being reassigned at once: fewer than the immediate requests that targets take.
pub const MAX_REASSIGNMENTS: usize = 8;

/// The level from which on a session outlives the loss of a connection (RFC 7143 section 7.1.5).
pub const CONNECTION_RECOVERY_LEVEL: u32 = 2;

/// How long a target that is too busy for a step of a recovery is left alone.
pub const RECOVERY_PAUSE: Duration = Duration::from_millis(200);

/// Bytes of Data-Out in the outbox from which on no more is cut to PDUs.
pub const MAX_QUEUED_DATA_OUT_BYTES: usize = 1 << 20;

/// PDUs in the initiator's outbox from which on a target that still pings is given up: it reads nothing.
pub const MAX_UNREAD_PDUS: usize = 4 * MAX_OUTBOX_PDUS;

/// Bytes of the answer to one text request. A target of SendTargets takes about 100.
pub const MAX_TEXT_ANSWER_BYTES: usize = 1 << 20;

/// Keys in the answer to one text request.
pub const MAX_TEXT_ANSWER_KEYS: usize = 32 * 1024;

/// PDUs that bring the answer to one text request.
pub const MAX_TEXT_ANSWER_PDUS: u32 = 4096;

// Recovery within a connection, the initiator's.

/// Statuses that a connection knows of beyond the one that is due: a larger distance tells of a broken connection (RFC
/// 7143 section 4.2.2.2).
pub const MAX_STATUSES_AHEAD: usize = MAX_COMMANDS + MAX_REQUESTS;

/// Bytes of responses that wait for one before them. What finds no room is asked for again.
pub const MAX_HELD_STATUS_BYTES: usize = 1 << 20;

/// How often the same thing is asked for without an answer, beyond the first time, before the next higher recovery
/// begins.
pub const MAX_UNANSWERED_REQUESTS: u32 = 4;

/// Acknowledgements of data that one command can owe.
pub const MAX_DATA_ACKS: usize = 1024;

/// R2Ts of one command for bytes that were sent already, beyond MaxOutstandingR2T, that wait for their data.
pub const MAX_OPEN_RECOVERY_R2TS: u32 = 64;

/// How often the same PDU may come damaged again.
pub const MAX_DAMAGED_RESENDS: u32 = 32;

/// Commands of an initiator that go over one connection in a row at most, when all connections of the session have
/// work.
pub const RUN_COMMANDS: u32 = 16;

/// Commands with more data than this go to the connection with the fewest, each by itself: they fill a system call
/// alone. In bytes.
pub const RUN_DATA_BYTES: usize = 16 << 10;
