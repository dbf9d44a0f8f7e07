//! One measurement, by name: `data-in/shipping/8192/cold`.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use lunette_crc32c::Kernel;

use super::pair::SEGMENT_LEN;

/// The longest transfer of a command.
const MAX_LEN: usize = 256 << 10;

/// A measurement: what is done, with which digest, on how many bytes of a command, and where they are before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    pub(super) work: Work,
    pub(super) digest: Digest,
    pub(super) len: usize,
    pub(super) caches: Caches,
}

/// The work of a cell: the whole of a path, or a part of it by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// The initiator receives Data-In, the last with the status.
    DataIn,
    /// Data-In with markers in the stream.
    DataInMarked,
    /// Data-In with the last bytes first.
    DataInReversed,
    /// Data-In in a random order.
    DataInShuffled,
    /// The initiator receives an R2T and sends what it asks for.
    Solicited,
    /// The initiator sends a command with its data unasked.
    Unsolicited,
    /// The target receives the Data-Out of an R2T.
    TargetDataOut,
    /// The target sends Data-In.
    TargetDataIn,
    /// The data of Data-In goes from its segments to its buffer.
    Copy,
    /// A copy, and then the digest of each PDU's data.
    CopyThenDigest,
    /// A copy that digests on the way.
    CopyWithDigest,
    /// The digests of data in its buffer.
    Digest,
    /// The digests of the headers.
    Headers,
}

/// How digests are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Digest {
    /// The kernel that the crate chooses, by the CPU and the length.
    Shipping,
    Sarwate,
    Slicing8,
    Slicing16,
    Crc32q,
}

/// Where the bytes are that a measurement works with, before each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Caches {
    /// State and data are in memory, but for the headers of packets.
    Cold,
    /// The state is in memory, the data in the cache.
    ColdState,
    /// The data is in the cache, and the state where the command before has left it.
    Warm,
}

impl Work {
    pub(super) const ALL: [(Self, &'static str); 13] = [
        (Self::DataIn, "data-in"),
        (Self::DataInMarked, "data-in-marked"),
        (Self::DataInReversed, "data-in-reversed"),
        (Self::DataInShuffled, "data-in-shuffled"),
        (Self::Solicited, "solicited"),
        (Self::Unsolicited, "unsolicited"),
        (Self::TargetDataOut, "target-data-out"),
        (Self::TargetDataIn, "target-data-in"),
        (Self::Copy, "copy"),
        (Self::CopyThenDigest, "copy-then-digest"),
        (Self::CopyWithDigest, "copy-with-digest"),
        (Self::Digest, "digest"),
        (Self::Headers, "headers"),
    ];
}

impl Digest {
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::Sarwate, "sarwate"),
        (Self::Slicing8, "slicing8"),
        (Self::Slicing16, "slicing16"),
        (Self::Crc32q, "crc32q"),
        (Self::Shipping, "shipping"),
    ];

    /// Makes all digests of this process so.
    pub(super) fn put_in_force(self) -> Result<()> {
        match self {
            Self::Shipping => lunette_crc32c::unforce(),
            other => lunette_crc32c::force(Kernel::named(name_of(&Self::ALL, other))?),
        }
        Ok(())
    }
}

impl Caches {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Cold, "cold"), (Self::ColdState, "cold-state"), (Self::Warm, "warm")];
}

impl Cell {
    pub(super) fn pdus(&self) -> usize {
        self.len.div_ceil(SEGMENT_LEN)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (work, digest) = (name_of(&Work::ALL, self.work), name_of(&Digest::ALL, self.digest));
        write!(f, "{work}/{digest}/{}/{}", self.len, name_of(&Caches::ALL, self.caches))
    }
}

impl FromStr for Cell {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let [work, digest, len, caches] = text.split('/').collect::<Vec<_>>()[..] else {
            bail!("write WORK/DIGEST/BYTES/CACHES, like data-in/shipping/8192/cold");
        };
        let len = len.parse().with_context(|| format!("{len} is no number of bytes"))?;
        ensure!((4..=MAX_LEN).contains(&len) && len % 4 == 0, "a command has 4 to {MAX_LEN} bytes, a multiple of 4");
        Ok(Self {
            work: named(&Work::ALL, work)?,
            digest: named(&Digest::ALL, digest)?,
            len,
            caches: named(&Caches::ALL, caches)?,
        })
    }
}

/// The name of a value in a table of all.
pub(super) fn name_of<T: Copy + PartialEq>(all: &[(T, &'static str)], value: T) -> &'static str {
    all.iter().find(|(known, _)| *known == value).map_or("", |(_, name)| name)
}

fn named<T: Copy>(all: &[(T, &'static str)], text: &str) -> Result<T> {
    let found = all.iter().find(|(_, name)| *name == text).map(|(value, _)| *value);
    let names = || all.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    found.with_context(|| format!("{text} is none of {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for (work, _) in Work::ALL {
            for (digest, _) in Digest::ALL {
                for (caches, _) in Caches::ALL {
                    let cell = Cell { work, digest, len: 8192, caches };
                    assert_eq!(cell.to_string().parse::<Cell>().expect("a cell"), cell);
                }
            }
        }
        assert_eq!("copy/shipping/65536/warm".parse::<Cell>().expect("a cell").pdus(), 8);
    }

    #[test]
    fn what_is_no_cell_is_refused() {
        for text in
            ["", "data-in", "data-in/shipping/8193/cold", "data-in/shipping/1048576/cold", "x/shipping/8192/cold"]
        {
            assert!(text.parse::<Cell>().is_err(), "{text}");
        }
    }
}
