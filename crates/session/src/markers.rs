//! Fixed interval markers (RFC 3720 appendix A): where they stand in the stream, and what they say.
//!
//! A marker is 8 bytes: twice the number of bytes from its end to the next header, other markers not counted. So a
//! pointer cannot lead backward nor into a marker. Markers stand at fixed distances from the first byte of the
//! connection, as if there had been markers in the login too (appendix A.2). They are no part of any digest.
//!
//! [`MarkedOutbox`] and [`MarkedReceiver`] put them around an outbox and a receiver, which know nothing of markers.
//! While there are none, both cost one comparison for each PDU.

mod outbox;
mod receiver;

pub(crate) use self::outbox::MarkedOutbox;
pub(crate) use self::receiver::MarkedReceiver;

const MARKER_LEN: usize = 8;

/// How far it is to the next marker of a stream, in bytes that are no markers.
#[derive(Debug, Clone, Copy)]
struct Distance {
    interval: u32,
    left: u32,
}

impl Distance {
    /// `login_len` bytes have gone by without markers.
    fn after_login(login_len: u64, interval: u32) -> Self {
        let period = u64::from(interval) + MARKER_LEN as u64;
        let gone = login_len % period;
        // When the login has ended where a marker would be, that one is left out.
        let left = if gone <= u64::from(interval) { 0 } else { period } + u64::from(interval) - gone;
        Self { interval, left: left as u32 }
    }

    fn is_over(self) -> bool {
        self.left == 0
    }

    /// The part of `len` bytes before the next marker.
    fn before_marker(self, len: usize) -> usize {
        len.min(self.left as usize)
    }

    fn pass(&mut self, len: usize) {
        self.left -= len as u32;
    }

    fn pass_marker(&mut self) {
        self.left = self.interval;
    }
}

/// Whether one direction of a connection has markers, which `M` deals with.
enum Markers<M> {
    /// The login may agree on them: they will count its bytes.
    Login {
        len: u64,
    },
    Off,
    On(Box<M>),
}

impl<M> Default for Markers<M> {
    fn default() -> Self {
        Self::Login { len: 0 }
    }
}

impl<M> Markers<M> {
    /// The login has ended: from now on there are markers at this distance, in bytes, or none.
    fn start(&mut self, interval: Option<u32>, on: impl FnOnce(Distance) -> M) {
        let Self::Login { len } = *self else { return };
        let on = |interval| Self::On(Box::new(on(Distance::after_login(len, interval))));
        *self = interval.map_or(Self::Off, on);
    }
}

/// A marker, that many bytes before the next header.
fn marker(ahead: u32) -> [u8; MARKER_LEN] {
    (u64::from(ahead) << 32 | u64::from(ahead)).to_be_bytes()
}

/// Why a marker does not tell where the next header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PointerError {
    #[error("the pointers of a marker, {0} and {1}, differ")]
    Differ(u32, u32),
    #[error("a marker points {0} bytes ahead, beyond the end of the longest PDU")]
    Outside(u32),
}

/// The content of a marker, in a stream whose PDUs have at most `max_pdu_len` bytes.
fn pointer(marker: [u8; MARKER_LEN], max_pdu_len: usize) -> Result<u32, PointerError> {
    let both = u64::from_be_bytes(marker);
    // The two lowest bits are reserved and taken as 0.
    let (first, second) = ((both >> 32) as u32 & !3, both as u32 & !3);
    if first != second {
        return Err(PointerError::Differ(first, second));
    }
    if first as usize > max_pdu_len { Err(PointerError::Outside(first)) } else { Ok(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_stand_where_they_would_if_the_login_had_had_them() {
        // The example of appendix A.2: a login that ended with byte 1003, and a marker after byte 1031.
        for (login_len, interval, left) in [
            (1004, 512, 1032 - 1004),
            (0, 512, 512),
            (511, 512, 1),
            (512, 512, 0),
            (513, 512, 1032 - 513),
            (519, 512, 1032 - 519),
            (520, 512, 512),
            (1032, 512, 0),
        ] {
            assert_eq!(Distance::after_login(login_len, interval).left, left, "after {login_len} bytes");
        }
    }

    #[test]
    fn a_pointer_is_believed_when_both_copies_agree_and_it_stays_within_the_longest_pdu() {
        let differing = |first: u32, second: u32| (u64::from(first) << 32 | u64::from(second)).to_be_bytes();
        assert_eq!(pointer(marker(100), 100), Ok(100));
        assert_eq!(pointer(differing(103, 101), 100), Ok(100), "reserved bits");
        assert_eq!(pointer(marker(0), 100), Ok(0));
        assert_eq!(pointer(differing(100, 96), 100), Err(PointerError::Differ(100, 96)));
        assert_eq!(pointer(marker(104), 100), Err(PointerError::Outside(104)));
        assert_eq!(pointer(marker(u32::MAX), 100), Err(PointerError::Outside(0xffff_fffc)));
    }
}
