//! Markers by their places alone (RFC 3720 appendix A): what the session's own are compared with.

/// Bytes of a marker.
const MARKER_LEN: usize = 8;

/// One direction of a connection with markers.
pub(crate) struct Stream {
    /// From marker to marker, one of them included.
    period: usize,
    /// Bytes that have gone by since the connection was made.
    at: usize,
    /// The bits of the next marker to flip.
    pub(crate) spoil: Option<[u8; MARKER_LEN]>,
}

impl Stream {
    /// After a login of `login_len` bytes in this direction.
    pub(crate) fn new(login_len: usize, interval_words: u32) -> Self {
        Self { period: interval_words as usize * 4 + MARKER_LEN, at: login_len, spoil: None }
    }

    /// Bytes up to the next place of a marker.
    fn distance(&self) -> usize {
        (2 * self.period - MARKER_LEN - self.at % self.period) % self.period
    }

    /// Puts markers into one PDU.
    pub(crate) fn weave(&mut self, pdu: &[u8]) -> Vec<u8> {
        let (mut wire, mut rest) = (Vec::with_capacity(pdu.len()), pdu);
        while !rest.is_empty() {
            if self.distance() == 0 {
                let pointer = if rest.len() == pdu.len() { 0 } else { rest.len() as u32 };
                let mut marker = u64::from(pointer) << 32 | u64::from(pointer);
                marker ^= u64::from_be_bytes(self.spoil.take().unwrap_or_default());
                wire.extend(marker.to_be_bytes());
                self.at += MARKER_LEN;
            }
            let (piece, later) = rest.split_at(rest.len().min(self.distance()));
            wire.extend_from_slice(piece);
            self.at += piece.len();
            rest = later;
        }
        wire
    }

    /// Takes the markers out of whole PDUs, and drops a part of one at the end. Gives the PDUs, and where each marker
    /// says that one begins.
    pub(crate) fn strip(&mut self, wire: &[u8]) -> (Vec<u8>, Vec<(usize, usize)>) {
        let (mut pdus, mut markers, mut rest) = (Vec::with_capacity(wire.len()), Vec::new(), wire);
        while !rest.is_empty() {
            if self.distance() == 0 {
                let Some((marker, later)) = rest.split_first_chunk::<MARKER_LEN>() else { break };
                let [first, second] = [&marker[..4], &marker[4..]];
                assert_eq!(first, second, "the two pointers of a marker");
                let ahead = first.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                markers.push((pdus.len(), pdus.len() + ahead));
                self.at += MARKER_LEN;
                rest = later;
            }
            let (piece, later) = rest.split_at(rest.len().min(self.distance()));
            pdus.extend_from_slice(piece);
            self.at += piece.len();
            rest = later;
        }
        (pdus, markers)
    }
}

/// Checks that each marker names the next of these places where a PDU begins or the last one ends.
pub(crate) fn check_markers(markers: &[(usize, usize)], starts: &[usize]) {
    for (stands, named) in markers {
        let next = starts.iter().find(|start| *start >= stands);
        assert_eq!(next, Some(named), "a marker before byte {stands}");
    }
}
