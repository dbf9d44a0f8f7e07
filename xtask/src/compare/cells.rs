//! The measured cells: each is one pair under one kind of load.

use std::fmt;

/// The length of a basic header segment (RFC 7143, 11.2.1), which is the smallest message of the protocol.
const BHS_LEN: usize = 48;

/// Requests in flight where depth is being measured.
const DEEP: u32 = 32;

const KIB: u32 = 1024;

/// The block length of the disks, which makes every offset of every party a multiple of 4 KiB.
pub(crate) const BLOCK_LEN: u32 = 4 * KIB;

/// The block length of the disk of quanta: 4 KiB and a slot.
pub(crate) const QUANTUM_BLOCK_LEN: u32 = BLOCK_LEN + 64;

/// The side that sends requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Initiator {
    Libiscsi,
    Lunette,
}

/// The side that answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// tgt as it is after `tgtadm --op new`.
    Tgt,
    /// tgt with its fastest settings.
    TunedTgt,
    Lunette(Disk),
}

/// The kind of disk that our target serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disk {
    Memory,
    /// A file in the page cache.
    File,
    /// A file in the page cache, sent without a copy.
    ZeroCopy,
    /// Quanta in memory, with stored digests.
    Quanta,
}

/// The two sides of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pair {
    Iscsi(Initiator, Target),
    /// The ceiling: plain TCP.
    Tcp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// One pair under one kind of load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    pub(crate) pair: Pair,
    pub(crate) direction: Direction,
    /// Bytes in a request.
    pub(crate) len: u32,
    pub(crate) depth: u32,
    /// Whether headers and data have CRC32C digests.
    pub(crate) digests: bool,
}

pub(crate) const OURS: Pair = Pair::Iscsi(Initiator::Lunette, Target::Lunette(Disk::Memory));
pub(crate) const OURS_FILE: Pair = Pair::Iscsi(Initiator::Lunette, Target::Lunette(Disk::File));
pub(crate) const OURS_ZERO_COPY: Pair = Pair::Iscsi(Initiator::Lunette, Target::Lunette(Disk::ZeroCopy));
pub(crate) const OURS_QUANTA: Pair = Pair::Iscsi(Initiator::Lunette, Target::Lunette(Disk::Quanta));
pub(crate) const LIBISCSI_TGT: Pair = Pair::Iscsi(Initiator::Libiscsi, Target::Tgt);
pub(crate) const LIBISCSI_TUNED: Pair = Pair::Iscsi(Initiator::Libiscsi, Target::TunedTgt);
pub(crate) const LIBISCSI_OURS: Pair = Pair::Iscsi(Initiator::Libiscsi, Target::Lunette(Disk::Memory));
pub(crate) const OURS_TGT: Pair = Pair::Iscsi(Initiator::Lunette, Target::Tgt);
pub(crate) const OURS_TUNED: Pair = Pair::Iscsi(Initiator::Lunette, Target::TunedTgt);

/// Reads of `kib` KiB at depth 32.
pub(crate) const fn read(pair: Pair, kib: u32) -> Cell {
    Cell { pair, direction: Direction::Read, len: kib * KIB, depth: DEEP, digests: false }
}

/// Reads of as many quanta of 4 KiB, with their slots, as 256 KiB hold, at depth 32.
pub(crate) const QUANTA_READ: Cell = Cell { len: 63 * QUANTUM_BLOCK_LEN, ..read(OURS_QUANTA, 256) };

/// Writes of `kib` KiB at depth 32.
pub(crate) const fn write(pair: Pair, kib: u32) -> Cell {
    Cell { direction: Direction::Write, ..read(pair, kib) }
}

/// The cell with both digests.
pub(crate) const fn digested(cell: Cell) -> Cell {
    Cell { digests: true, ..cell }
}

/// The cell with one request at a time.
pub(crate) const fn alone(cell: Cell) -> Cell {
    Cell { depth: 1, ..cell }
}

/// The cells that ratios are formed from, in the order of a round. Cells that are compared are neighbours, so that a
/// disturbance affects both.
pub(crate) const CELLS: [Cell; 26] = [
    read(LIBISCSI_TGT, 4),
    read(LIBISCSI_TUNED, 4),
    read(LIBISCSI_OURS, 4),
    read(OURS_TGT, 4),
    read(OURS_TUNED, 4),
    read(OURS, 4),
    digested(read(OURS, 4)),
    read(Pair::Tcp, 4),
    read(OURS, 64),
    read(Pair::Tcp, 64),
    read(LIBISCSI_OURS, 256),
    read(OURS, 256),
    digested(read(OURS, 256)),
    read(Pair::Tcp, 256),
    QUANTA_READ,
    digested(QUANTA_READ),
    read(OURS_FILE, 256),
    read(OURS_ZERO_COPY, 256),
    write(OURS, 4),
    write(Pair::Tcp, 4),
    write(OURS, 64),
    write(Pair::Tcp, 64),
    write(OURS, 256),
    write(Pair::Tcp, 256),
    alone(read(OURS, 4)),
    alone(read(Pair::Tcp, 4)),
];

/// Further cells that no ratio needs. `--quick` leaves them out.
pub(crate) const MORE_CELLS: [Cell; 8] = [
    read(LIBISCSI_TGT, 64),
    read(LIBISCSI_TUNED, 64),
    read(LIBISCSI_OURS, 64),
    read(LIBISCSI_TGT, 256),
    read(LIBISCSI_TUNED, 256),
    write(OURS_TUNED, 4),
    write(OURS_TUNED, 64),
    write(OURS_TUNED, 256),
];

impl Cell {
    /// Whether offsets are random. Blocks of 4 KiB come from anywhere, larger requests are sequential.
    pub(crate) fn is_random(&self) -> bool {
        self.len <= BLOCK_LEN
    }

    /// Bytes of a request and of its answer in the ceiling's stream: a header each, and the data in one of them.
    pub(crate) fn message_lens(&self) -> (usize, usize) {
        let with_data = BHS_LEN + self.len as usize;
        match self.direction {
            Direction::Read => (BHS_LEN, with_data),
            Direction::Write => (with_data, BHS_LEN),
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (initiator, target) = match self {
            Self::Tcp => return f.pad("plain TCP"),
            Self::Iscsi(initiator, target) => (initiator, target),
        };
        let initiator = match initiator {
            Initiator::Libiscsi => "libiscsi",
            Initiator::Lunette => "lunette",
        };
        let target = match target {
            Target::Tgt => "tgt",
            Target::TunedTgt => "tgt, tuned",
            Target::Lunette(Disk::Memory) => "lunette",
            Target::Lunette(Disk::File) => "lunette, file",
            Target::Lunette(Disk::ZeroCopy) => "lunette, zero-copy",
            Target::Lunette(Disk::Quanta) => "lunette, quanta",
        };
        f.pad(&format!("{initiator} - {target}"))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        let digests = if self.digests { ", digests" } else { "" };
        write!(f, "{}: {} KiB {direction}, depth {}{digests}", self.pair, self.len / KIB, self.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_travels_in_the_direction_of_the_work() {
        assert_eq!(read(Pair::Tcp, 4).message_lens(), (48, 4144));
        assert_eq!(write(Pair::Tcp, 4).message_lens(), (4144, 48));
    }

    #[test]
    fn libiscsi_is_asked_for_nothing_that_its_tool_cannot_do() {
        for cell in CELLS.iter().chain(&MORE_CELLS) {
            if let Pair::Iscsi(Initiator::Libiscsi, _) = cell.pair {
                assert!(cell.direction == Direction::Read && !cell.digests, "{cell}");
            }
        }
    }

    #[test]
    fn no_cell_is_measured_twice() {
        let all: Vec<_> = CELLS.iter().chain(&MORE_CELLS).collect();
        for (index, cell) in all.iter().enumerate() {
            assert!(!all[..index].contains(cell), "{cell}");
        }
    }
}
