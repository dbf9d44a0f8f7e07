//! What is measured: each cell is one pair under one kind of work.

use std::fmt;

/// Basic header segment (RFC 7143, 11.2.1): what the smallest message of the protocol takes.
const BHS_LEN: usize = 48;

/// Requests in flight where depth is what is measured.
const DEEP: u32 = 32;

const KIB: u32 = 1024;

/// The blocks of the disks, so that every offset of every party is a multiple of 4 KiB.
pub(crate) const BLOCK_LEN: u32 = 4 * KIB;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Initiator {
    Libiscsi,
    Lunette,
}

/// Who answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// As it is after `tgtadm --op new`.
    Tgt,
    /// With the settings that make it fastest.
    TunedTgt,
    Lunette(Disk),
}

/// What our target serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disk {
    Memory,
    /// A file in the page cache.
    File,
    /// The same, sent from where it is.
    ZeroCopy,
}

/// The two that talk.
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

/// One pair under one kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    pub(crate) pair: Pair,
    pub(crate) direction: Direction,
    /// Bytes of a request.
    pub(crate) len: u32,
    pub(crate) depth: u32,
    /// CRC32C for headers and data.
    pub(crate) digests: bool,
}

pub(crate) const OURS: Pair = Pair::Iscsi(Initiator::Lunette, Target::Lunette(Disk::Memory));
pub(crate) const OURS_FILE: Pair = Pair::Iscsi(Initiator::Lunette, Target::Lunette(Disk::File));
pub(crate) const OURS_ZERO_COPY: Pair = Pair::Iscsi(Initiator::Lunette, Target::Lunette(Disk::ZeroCopy));
pub(crate) const LIBISCSI_TGT: Pair = Pair::Iscsi(Initiator::Libiscsi, Target::Tgt);
pub(crate) const LIBISCSI_TUNED: Pair = Pair::Iscsi(Initiator::Libiscsi, Target::TunedTgt);
pub(crate) const LIBISCSI_OURS: Pair = Pair::Iscsi(Initiator::Libiscsi, Target::Lunette(Disk::Memory));
pub(crate) const OURS_TGT: Pair = Pair::Iscsi(Initiator::Lunette, Target::Tgt);
pub(crate) const OURS_TUNED: Pair = Pair::Iscsi(Initiator::Lunette, Target::TunedTgt);

/// Reads of `kib` KiB at depth 32.
pub(crate) const fn read(pair: Pair, kib: u32) -> Cell {
    Cell { pair, direction: Direction::Read, len: kib * KIB, depth: DEEP, digests: false }
}

/// Writes of `kib` KiB at depth 32.
pub(crate) const fn write(pair: Pair, kib: u32) -> Cell {
    Cell { direction: Direction::Write, ..read(pair, kib) }
}

/// The same with both digests.
pub(crate) const fn digested(cell: Cell) -> Cell {
    Cell { digests: true, ..cell }
}

/// The same with one request at a time.
pub(crate) const fn alone(cell: Cell) -> Cell {
    Cell { depth: 1, ..cell }
}

/// What the ratios are made of, in the order of a round. What is compared stands together, so that a disturbance meets both.
pub(crate) const CELLS: [Cell; 24] = [
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

/// What else is worth knowing: no ratio needs it, and `--quick` leaves it out.
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
    /// Blocks of 4 KiB come from anywhere, larger requests one after the other.
    pub(crate) fn is_random(&self) -> bool {
        self.len <= BLOCK_LEN
    }

    /// Bytes of a request and of its answer on the wire of the ceiling: a header, and the data on one of them.
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
