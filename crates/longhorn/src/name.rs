//! The name of a volume.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::limits::MAX_LEN_BYTES;

/// The text before the path.
const SCHEME: &str = "longhorn:";

/// The parameter with the length.
const SIZE: &str = "size=";

/// The parameter of an engine that frees space.
const UNMAP: &str = "&unmap=true";

/// Bytes of a block, in which all lengths are whole.
const BLOCK_BYTES: u64 = 512;

/// A volume of an engine: `longhorn:SOCKET?size=BYTES`, with `&unmap=true` behind it for an engine that takes unmaps.
///
/// ```
/// use lunette_longhorn::LonghornName;
///
/// let name: LonghornName = "longhorn:/var/run/longhorn-vol.sock?size=1073741824".parse()?;
/// assert_eq!(name.len_bytes, 1 << 30);
/// # Ok::<(), lunette_longhorn::NameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LonghornName {
    /// The socket of the engine.
    pub socket: PathBuf,
    /// The length of the volume.
    pub len_bytes: u64,
    /// Whether the engine takes unmaps, as those of Longhorn 1.4 and later do. It does not tell.
    pub unmap: bool,
}

/// Why a text is no name of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a volume of a Longhorn engine is written longhorn:SOCKET?size=BYTES[&unmap=true], with a whole path and whole blocks of 512 bytes"
)]
pub struct NameError;

impl LonghornName {
    /// Whether a text is meant as such a name.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

impl FromStr for LonghornName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (socket, query) = text.strip_prefix(SCHEME).and_then(|rest| rest.split_once('?')).ok_or(NameError)?;
        let (query, unmap) = query.strip_suffix(UNMAP).map_or((query, false), |query| (query, true));
        let size = query.strip_prefix(SIZE).filter(|size| size.bytes().all(|byte| byte.is_ascii_digit()));
        let len_bytes: u64 = size.and_then(|size| size.parse().ok()).ok_or(NameError)?;
        let fits = len_bytes > 0 && len_bytes <= MAX_LEN_BYTES && len_bytes.is_multiple_of(BLOCK_BYTES);
        if !fits || !socket.starts_with('/') {
            return Err(NameError);
        }
        Ok(Self { socket: socket.into(), len_bytes, unmap })
    }
}

impl fmt::Display for LonghornName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unmap = if self.unmap { UNMAP } else { "" };
        write!(f, "{SCHEME}{}?{SIZE}{}{unmap}", self.socket.display(), self.len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["longhorn:/run/a.sock?size=1048576", "longhorn:/run/a.sock?size=1048576&unmap=true"] {
            assert_eq!(text.parse::<LonghornName>().unwrap().to_string(), text);
        }
        for wrong in [
            "longhorn:a.sock?size=512",
            "longhorn:/a.sock",
            "longhorn:/a.sock?size=0",
            "longhorn:/a.sock?size=513",
            "longhorn:/a.sock?size=+512",
            "longhorn:/a.sock?size=4611686018427388416",
            "longhorn:/a.sock?size=512&x=1",
            "longhorn:/a.sock?size=512&unmap=no",
            "/a.sock?size=512",
        ] {
            assert_eq!(wrong.parse::<LonghornName>(), Err(NameError), "{wrong}");
        }
    }
}
