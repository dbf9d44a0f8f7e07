//! When a connection's sends go without a copy: the system then reads the bytes where they lie, until the peer has
//! acknowledged them. They are lent to it so long.

use std::net::IpAddr;

use crate::Gather;

/// Sends of fewer shared bytes are copied. A request that lends needs a second completion, the pinning of its pages, and copies of
/// what has no owner: 12 µs more than a send that copies, as measured, which is the copy of about as many bytes.
const MIN_LENT_BYTES: usize = 64 << 10;

/// Where the slices of a send are shorter on average, it is copied: a slice costs about as much as the copy of a page.
const MIN_SLICE_BYTES: usize = 4096;

/// Sends in a row that the system has copied all the same, after which the connection lends no more.
const MAX_COPIED_SENDS: u8 = 4;

/// What one connection lends.
#[derive(Debug)]
pub(crate) struct Lending {
    /// The most that it lends at one time; zero if nothing, any more.
    max_bytes: usize,
    bytes: usize,
    copied_sends: u8,
}

impl Lending {
    /// Nothing, ever.
    pub(crate) fn off() -> Self {
        Self { max_bytes: 0, bytes: 0, copied_sends: 0 }
    }

    /// Up to `max_bytes`, unless both ends are on this host: then the system would copy.
    pub(crate) fn between(local: IpAddr, peer: IpAddr, max_bytes: usize) -> Self {
        let (local, peer) = (local.to_canonical(), peer.to_canonical());
        if local.is_loopback() || peer.is_loopback() || local == peer {
            return Self::off();
        }
        Self { max_bytes, ..Self::off() }
    }

    /// Whether to lend what `list` has.
    pub(crate) fn wants(&self, list: &Gather<'_>) -> bool {
        list.shared_bytes() >= MIN_LENT_BYTES
            && list.shared_bytes() / list.slices().len() >= MIN_SLICE_BYTES
            && self.bytes + list.len_bytes() <= self.max_bytes
    }

    /// The system has taken so many bytes.
    pub(crate) fn lent(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// It has given those of one send back, and may have copied them all the same.
    pub(crate) fn returned(&mut self, bytes: usize, copied: bool) {
        self.bytes -= bytes;
        self.copied_sends = if copied { self.copied_sends.saturating_add(1) } else { 0 };
        if self.copied_sends >= MAX_COPIED_SENDS {
            self.give_up();
        }
    }

    /// Lends no more.
    pub(crate) fn give_up(&mut self) {
        self.max_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use lunette_buffer::{Pool, SharedBuffer};

    use super::*;

    const MAX_BYTES: usize = 300_000;

    fn lending() -> Lending {
        Lending::between([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), MAX_BYTES)
    }

    fn buffer(len: usize) -> SharedBuffer {
        Pool::new(1 << 20).take(len).unwrap().share()
    }

    /// A list of so many PDUs with so much data each.
    fn list(pdus: usize, data: &SharedBuffer) -> Gather<'_> {
        let mut list = Gather::new();
        for _ in 0..pdus {
            list.push(&[0; 48]);
            list.push_shared(data, 0);
        }
        list
    }

    #[test]
    fn long_sends_of_long_slices_are_lent() {
        let [long, short] = [buffer(MIN_LENT_BYTES), buffer(MIN_SLICE_BYTES)];
        let lending = lending();
        assert!(lending.wants(&list(1, &long)));
        assert!(!lending.wants(&list(1, &long.slice(1..MIN_LENT_BYTES))));
        assert!(!lending.wants(&list(30, &short)), "half of the slices are headers");
        let mut owned = Gather::new();
        owned.push(&long);
        assert!(!lending.wants(&owned), "nobody else could keep it");
        assert!(!lending.wants(&Gather::new()));
    }

    #[test]
    fn nothing_is_lent_within_a_host() {
        let long = buffer(MIN_LENT_BYTES);
        for (local, peer, lends) in [
            ("127.0.0.1", "127.0.0.1", false),
            ("::1", "::1", false),
            ("192.0.2.1", "192.0.2.1", false),
            ("::ffff:192.0.2.1", "192.0.2.1", false),
            ("2001:db8::1", "2001:db8::2", true),
            ("192.0.2.1", "192.0.2.2", true),
        ] {
            let lending = Lending::between(local.parse().unwrap(), peer.parse().unwrap(), MAX_BYTES);
            assert_eq!(lending.wants(&list(1, &long)), lends, "{local} {peer}");
        }
    }

    #[test]
    fn no_more_is_lent_than_may_be() {
        let long = buffer(100_000);
        let mut lending = lending();
        for _ in 0..2 {
            assert!(lending.wants(&list(1, &long)));
            lending.lent(100_048);
        }
        assert!(!lending.wants(&list(1, &long)));
        lending.returned(100_048, false);
        assert!(lending.wants(&list(1, &long)));
    }

    #[test]
    fn copies_in_a_row_end_it() {
        let long = buffer(MIN_LENT_BYTES);
        let mut lending = lending();
        let send = |lending: &mut Lending, copied| {
            lending.lent(70_000);
            lending.returned(70_000, copied);
            lending.wants(&list(1, &long))
        };
        for copied in [true, true, true, false, true, true, true] {
            assert!(send(&mut lending, copied));
        }
        assert!(!send(&mut lending, true));
        assert!(!send(&mut lending, false), "for good");
    }
}
