//! The length of a volume that a caller leaves some freedom.

use tonic::Status;

use crate::limits::{BLOCK_BYTES, DEFAULT_VOLUME_BYTES, GRANULE_BYTES};
use crate::proto::v1::CapacityRange;

/// The lengths that a caller takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The shortest length; 0 for any.
    required_bytes: u64,
    /// The longest length; `None` without a limit.
    limit_bytes: Option<u64>,
}

impl Wanted {
    /// Reads the range of a call.
    pub(crate) fn new(range: Option<&CapacityRange>) -> Result<Self, Status> {
        let (required, limit) = range.map_or((0, 0), |range| (range.required_bytes, range.limit_bytes));
        let unsigned = |name: &str, value: i64| {
            u64::try_from(value).map_err(|_| Status::invalid_argument(format!("{name} is {value}, which is negative")))
        };
        let required_bytes = unsigned("required_bytes", required)?;
        let limit_bytes = Some(unsigned("limit_bytes", limit)?).filter(|limit| *limit > 0);
        if limit_bytes.is_some_and(|limit| limit < required_bytes) {
            return Err(Status::invalid_argument(format!(
                "required_bytes is {required} and limit_bytes {limit}; no length is in this range"
            )));
        }
        Ok(Self { required_bytes, limit_bytes })
    }

    /// Whether a volume of this length is what the caller wants.
    pub(crate) fn takes(self, len_bytes: u64) -> bool {
        self.required_bytes <= len_bytes && self.limit_bytes.is_none_or(|limit| len_bytes <= limit)
    }

    /// Whether a disk of this length is long enough.
    pub(crate) fn reached_by(self, len_bytes: u64) -> bool {
        self.required_bytes <= len_bytes
    }

    /// The length of a new volume that is no shorter than its origin.
    pub(crate) fn length(self, origin_bytes: Option<u64>) -> Result<u64, Status> {
        let least = match (self.required_bytes, origin_bytes) {
            (0, None) => self.limit_bytes.map_or(DEFAULT_VOLUME_BYTES, |limit| limit.min(DEFAULT_VOLUME_BYTES)),
            (required, origin) => required.max(origin.unwrap_or(0)),
        };
        // What has the right length already, as a clone, stays so.
        if origin_bytes == Some(least) && self.takes(least) {
            return Ok(least);
        }
        let down = |bytes: u64, to: u64| bytes - bytes % to;
        let up = |to: u64| least.checked_add(to - 1).map(|sum| down(sum, to));
        let fits = |bytes: &u64| self.takes(*bytes) && i64::try_from(*bytes).is_ok();
        let whole = [GRANULE_BYTES, BLOCK_BYTES].into_iter().filter_map(up).find(fits);
        // Without a wish for a length, any below the limit is fine.
        let below = self.limit_bytes.map(|limit| down(limit, BLOCK_BYTES));
        let below =
            below.filter(|bytes| *bytes > 0 && fits(bytes) && origin_bytes.is_none_or(|origin| *bytes >= origin));
        whole.or(below).ok_or_else(|| {
            let origin = origin_bytes.map(|origin| format!(", and the origin has {origin}")).unwrap_or_default();
            Status::out_of_range(format!(
                "no volume has {self}{origin}; a length is a multiple of {BLOCK_BYTES} bytes and no shorter than its origin"
            ))
        })
    }

    /// The length of a volume of `len_bytes` that is made longer; `None` when it is long enough.
    pub(crate) fn grown(self, len_bytes: u64) -> Result<Option<u64>, Status> {
        if self.takes(len_bytes) {
            return Ok(None);
        }
        if self.limit_bytes.is_some_and(|limit| limit < len_bytes) {
            return Err(Status::out_of_range(format!(
                "the volume has {len_bytes} bytes, which is more than limit_bytes; a volume does not become shorter"
            )));
        }
        self.length(None).map(Some)
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.limit_bytes {
            Some(limit) => write!(f, "{} to {limit} bytes", self.required_bytes),
            None => write!(f, "{} bytes or more", self.required_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const MIB: i64 = 1 << 20;

    fn wanted(required_bytes: i64, limit_bytes: i64) -> Result<Wanted, Code> {
        Wanted::new(Some(&CapacityRange { required_bytes, limit_bytes })).map_err(|status| status.code())
    }

    fn length(required: i64, limit: i64, origin: Option<i64>) -> Result<i64, Code> {
        let origin = origin.map(|origin| u64::try_from(origin).unwrap());
        let length = wanted(required, limit)?.length(origin).map_err(|status| status.code())?;
        Ok(i64::try_from(length).unwrap())
    }

    #[test]
    fn a_length_is_rounded_up_as_far_as_the_limit_allows() {
        let default = i64::try_from(DEFAULT_VOLUME_BYTES).unwrap();
        for (required, limit, origin, expected) in [
            (0, 0, None, Ok(default)),
            (1, 0, None, Ok(MIB)),
            (MIB, MIB, None, Ok(MIB)),
            (MIB + 1, 0, None, Ok(2 * MIB)),
            (MIB + 1, MIB + 4096, None, Ok(MIB + 4096)),
            (MIB + 1, MIB + 4095, None, Err(Code::OutOfRange)),
            (0, 5000, None, Ok(4096)),
            (0, 4095, None, Err(Code::OutOfRange)),
            (0, 0, Some(512), Ok(512)),
            (MIB, 0, Some(3 * MIB), Ok(3 * MIB)),
            (4 * MIB, 0, Some(3 * MIB), Ok(4 * MIB)),
            (0, MIB, Some(3 * MIB), Err(Code::OutOfRange)),
            (i64::MAX, 0, None, Err(Code::OutOfRange)),
        ] {
            assert_eq!(length(required, limit, origin), expected, "{required} {limit} {origin:?}");
        }
    }

    #[test]
    fn ranges_without_a_length_are_refused() {
        for (required, limit) in [(-1, 0), (0, -1), (2 * MIB, MIB)] {
            assert_eq!(wanted(required, limit).err(), Some(Code::InvalidArgument), "{required} {limit}");
        }
    }

    #[test]
    fn a_volume_grows_only_when_it_has_to_and_never_shrinks() {
        let grown = |required, limit, len| wanted(required, limit).unwrap().grown(len).map_err(|status| status.code());
        assert_eq!(grown(MIB, 0, 2 << 20), Ok(None));
        assert_eq!(grown(3 * MIB, 0, 2 << 20), Ok(Some(3 << 20)));
        assert_eq!(grown(0, MIB, 2 << 20), Err(Code::OutOfRange));
    }
}
