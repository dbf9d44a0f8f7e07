//! The translation of an NBD request to a request of a store, or to the error that answers it. Pure.

use lunette_store::Capabilities;

use crate::Export;
use crate::limits::MAX_PAYLOAD_LEN;
use crate::wire::{Errno, Request, command, flag};

/// The part of a request that the store has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Fill a buffer, for the reply.
    Read,
    /// Write the payload that follows.
    Write {
        /// The bytes must be durable before the reply.
        fua: bool,
    },
    /// Write zeroes.
    WriteZeroes {
        /// The space may be freed.
        may_unmap: bool,
        /// The zeroes must be durable before the reply.
        fua: bool,
    },
    /// Free the space.
    Unmap,
    /// Make everything answered so far durable.
    Flush,
    /// Report which bytes have space.
    BlockStatus {
        /// Reply with a single descriptor, no longer than the range asked for (`REQ_ONE`).
        one: bool,
    },
}

/// The negotiated options of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Negotiated {
    /// Reads are answered with structured replies.
    pub(crate) structured: bool,
    /// The client selected `base:allocation`.
    pub(crate) allocation: bool,
}

/// The flags that a command may have. `FUA` may be set on all, and means nothing on some.
struct Row {
    command: u16,
    flags: u16,
    /// The command changes the medium.
    writes: bool,
    /// The command has an offset and a length.
    ranged: bool,
}

const ROWS: [Row; 6] = [
    Row { command: command::READ, flags: flag::FUA | flag::DF, writes: false, ranged: true },
    Row { command: command::WRITE, flags: flag::FUA, writes: true, ranged: true },
    Row { command: command::FLUSH, flags: flag::FUA, writes: false, ranged: false },
    Row { command: command::TRIM, flags: flag::FUA, writes: true, ranged: true },
    Row {
        command: command::WRITE_ZEROES,
        flags: flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
        writes: true,
        ranged: true,
    },
    Row { command: command::BLOCK_STATUS, flags: flag::FUA | flag::REQ_ONE, writes: false, ranged: true },
];

impl Export {
    /// Checks a request that is not `DISC`.
    ///
    /// # Errors
    ///
    /// The number to reply with.
    pub(crate) fn plan(&self, request: &Request, negotiated: Negotiated) -> Result<Plan, Errno> {
        let row = ROWS.iter().find(|row| row.command == request.command).ok_or(Errno::Inval)?;
        let df = request.flags & flag::DF != 0;
        if request.flags & !row.flags != 0 || (df && !negotiated.structured) {
            return Err(Errno::Inval);
        }
        if row.writes && self.read_only {
            return Err(Errno::Perm);
        }
        if row.ranged {
            self.check_range(request, row.writes)?;
        } else if request.offset != 0 || request.len != 0 {
            return Err(Errno::Inval);
        }
        let fua = request.flags & flag::FUA != 0;
        let capabilities = self.store.capabilities();
        match request.command {
            command::READ if request.len > MAX_PAYLOAD_LEN => Err(if df { Errno::Overflow } else { Errno::Inval }),
            command::READ => Ok(Plan::Read),
            command::WRITE if request.len > MAX_PAYLOAD_LEN => Err(Errno::Inval),
            command::WRITE => Ok(Plan::Write { fua }),
            command::TRIM => Ok(trim(capabilities, fua)),
            command::WRITE_ZEROES => write_zeroes(request.flags, capabilities, fua),
            command::BLOCK_STATUS if !negotiated.allocation => Err(Errno::Inval),
            command::BLOCK_STATUS => Ok(Plan::BlockStatus { one: request.flags & flag::REQ_ONE != 0 }),
            _ => Ok(Plan::Flush),
        }
    }

    fn check_range(&self, request: &Request, writes: bool) -> Result<(), Errno> {
        let [least, ..] = self.block_sizes();
        let aligned = request.offset.is_multiple_of(least.into()) && request.len.is_multiple_of(least);
        let end = request.offset.checked_add(request.len.into());
        if request.len == 0 || !aligned {
            return Err(Errno::Inval);
        }
        if end.is_none_or(|end| end > self.len_bytes()) {
            return Err(if writes { Errno::NoSpc } else { Errno::Inval });
        }
        Ok(())
    }
}

/// Plans TRIM. A store has no durable unmap. Zeroes that may free the space are one where unmapped bytes read as zero;
/// elsewhere nothing has to be freed, and what remains to be done is to make earlier writes durable.
fn trim(capabilities: Capabilities, fua: bool) -> Plan {
    match capabilities {
        _ if !fua => Plan::Unmap,
        Capabilities { unmap: true, unmap_zeroes: true, .. } => Plan::WriteZeroes { may_unmap: true, fua },
        _ => Plan::Flush,
    }
}

/// Plans WRITE ZEROES. `FAST_ZERO` prefers an error to zeroes that are written one by one. A store promises quick
/// zeroes only where they may free the space.
fn write_zeroes(flags: u16, capabilities: Capabilities, fua: bool) -> Result<Plan, Errno> {
    let may_unmap = flags & flag::NO_HOLE == 0;
    let fast = capabilities.write_zeroes && may_unmap;
    if flags & flag::FAST_ZERO != 0 && !fast {
        return Err(Errno::NotSup);
    }
    Ok(Plan::WriteZeroes { may_unmap, fua })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lunette_store::MemoryStore;

    use super::*;

    const LEN: u64 = 64 << 20;
    const ALL: Negotiated = Negotiated { structured: true, allocation: true };

    fn export(read_only: bool) -> Export {
        Export::new("disk", Arc::new(MemoryStore::new(LEN).unwrap()), read_only).unwrap()
    }

    fn request(command: u16, flags: u16, offset: u64, len: u32) -> Request {
        Request { flags, command, cookie: 7, offset, len }
    }

    #[test]
    fn commands_become_requests_of_the_store() {
        let table = [
            (command::READ, 0, Plan::Read),
            (command::READ, flag::DF | flag::FUA, Plan::Read),
            (command::WRITE, flag::FUA, Plan::Write { fua: true }),
            (command::TRIM, 0, Plan::Unmap),
            (command::TRIM, flag::FUA, Plan::WriteZeroes { may_unmap: true, fua: true }),
            (command::WRITE_ZEROES, 0, Plan::WriteZeroes { may_unmap: true, fua: false }),
            (command::WRITE_ZEROES, flag::FAST_ZERO, Plan::WriteZeroes { may_unmap: true, fua: false }),
            (command::WRITE_ZEROES, flag::NO_HOLE | flag::FUA, Plan::WriteZeroes { may_unmap: false, fua: true }),
            (command::BLOCK_STATUS, flag::REQ_ONE, Plan::BlockStatus { one: true }),
        ];
        for (command, flags, plan) in table {
            assert_eq!(export(false).plan(&request(command, flags, 512, 1024), ALL), Ok(plan), "{command} {flags:#x}");
        }
        assert_eq!(export(false).plan(&request(command::FLUSH, 0, 0, 0), ALL), Ok(Plan::Flush));
    }

    #[test]
    fn broken_requests_get_the_number_that_the_protocol_names() {
        let end = LEN - 512;
        let table = [
            ("unknown command", request(5, 0, 0, 512), Errno::Inval),
            ("unknown flag", request(command::READ, 1 << 9, 0, 512), Errno::Inval),
            ("flag of another command", request(command::WRITE, flag::DF, 0, 512), Errno::Inval),
            ("no bytes", request(command::READ, 0, 0, 0), Errno::Inval),
            ("part of a block", request(command::READ, 0, 0, 100), Errno::Inval),
            ("between blocks", request(command::WRITE, 0, 1, 512), Errno::Inval),
            ("read beyond the end", request(command::READ, 0, end, 1024), Errno::Inval),
            ("write beyond the end", request(command::WRITE, 0, end, 1024), Errno::NoSpc),
            ("zeroes beyond the end", request(command::WRITE_ZEROES, 0, end, 1024), Errno::NoSpc),
            ("sum beyond 64 bits", request(command::READ, 0, u64::MAX - 511, 1024), Errno::Inval),
            ("long read", request(command::READ, 0, 0, MAX_PAYLOAD_LEN + 512), Errno::Inval),
            ("long read in one piece", request(command::READ, flag::DF, 0, MAX_PAYLOAD_LEN + 512), Errno::Overflow),
            ("flush with a range", request(command::FLUSH, 0, 0, 512), Errno::Inval),
            (
                "slow zeroes, quickly",
                request(command::WRITE_ZEROES, flag::FAST_ZERO | flag::NO_HOLE, 0, 512),
                Errno::NotSup,
            ),
        ];
        for (name, request, errno) in table {
            assert_eq!(export(false).plan(&request, ALL), Err(errno), "{name}");
        }
    }

    #[test]
    fn what_was_not_negotiated_is_refused() {
        let none = Negotiated::default();
        assert_eq!(export(false).plan(&request(command::READ, flag::DF, 0, 512), none), Err(Errno::Inval));
        assert_eq!(export(false).plan(&request(command::BLOCK_STATUS, 0, 0, 512), none), Err(Errno::Inval));
    }

    #[test]
    fn a_read_only_export_changes_nothing() {
        for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(export(true).plan(&request(command, 0, 0, 512), ALL), Err(Errno::Perm));
        }
        for command in [command::READ, command::BLOCK_STATUS] {
            assert!(export(true).plan(&request(command, 0, 0, 512), ALL).is_ok());
        }
    }
}
