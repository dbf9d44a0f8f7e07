use super::super::tests::at;
use super::*;
use crate::protection::Seal;

fn pending(client: u32, ms: u64) -> Pending {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&client.to_be_bytes());
    Pending {
        source: Address::Udp((std::net::Ipv4Addr::from(0x0a00_0000 + client / 50), 4000).into()),
        initial: Initial { key, number: client, token: [0; 16], seal: Seal::Headers },
        secret: ExchangeSecret::new(&[1; 64], b"hash"),
        accept: [0; ACCEPT_LEN],
        is_repeated: false,
        since: at(ms),
    }
}

/// Asserts that all three orders hold the same handshakes.
fn assert_is_whole(unfinished: &Unfinished) {
    assert_eq!(unfinished.by_number.len(), unfinished.pending.len());
    assert_eq!(unfinished.by_client.len(), unfinished.pending.len());
    assert_eq!(unfinished.by_host.len(), unfinished.pending.len());
}

#[test]
fn a_hundred_thousand_handshakes_that_never_finish_are_bounded() {
    let mut unfinished = Unfinished::default();
    let count = 100_000;
    for client in 0..count {
        unfinished.insert(client + 1, pending(client, u64::from(client / 100)));
        assert!(unfinished.len() <= MAX_UNFINISHED_HANDSHAKES);
    }
    assert_eq!(unfinished.len(), MAX_UNFINISHED_HANDSHAKES);
    assert_is_whole(&unfinished);
    let oldest = count - MAX_UNFINISHED_HANDSHAKES as u32;
    assert!(unfinished.get(oldest).is_none() && unfinished.get(oldest + 1).is_some(), "the oldest went first");
    assert!(size_of::<Pending>() <= 400, "{} bytes, as limits.rs says", size_of::<Pending>());
}

#[test]
fn what_is_removed_makes_room_and_what_is_old_goes() {
    let mut unfinished = Unfinished::default();
    for client in 0..10 {
        unfinished.insert(client + 1, pending(client, u64::from(client) * 1000));
    }
    assert_eq!(unfinished.remove(5).map(|pending| pending.initial.number), Some(4));
    assert!(unfinished.remove(5).is_none());
    let source = pending(4, 0).source;
    assert!(unfinished.accept_again(&source, &pending(4, 0).initial).is_none());
    assert!(unfinished.accept_again(&source, &pending(6, 0).initial).is_some());
    unfinished.expire(at(HANDSHAKE_TIMEOUT.as_millis() as u64 + 2000));
    assert!(unfinished.get(3).is_none() && unfinished.get(4).is_some());
    assert_eq!(unfinished.len(), 6);
    assert_is_whole(&unfinished);
}

#[test]
fn a_client_has_one_place() {
    let mut unfinished = Unfinished::default();
    unfinished.insert(1, pending(7, 0));
    unfinished.insert(2, pending(7, 1));
    assert!(unfinished.get(1).is_none() && unfinished.get(2).is_some());
    assert_is_whole(&unfinished);
}

#[test]
fn one_host_does_not_push_out_others() {
    use std::net::Ipv6Addr;
    let site = |low: u32| Address::Udp((Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(low)), low as u16).into());
    let port = |low: u32| Address::Udp(([192, 0, 2, 1], low as u16).into());
    let machine = |_| Address::Ethernet([2, 0, 0, 0, 0, 1]);
    let hosts: [&dyn Fn(u32) -> Address; 3] = [&site, &port, &machine];
    let mut unfinished = Unfinished::default();
    unfinished.insert(1, pending(0, 0));
    for (host, address) in (1..).zip(hosts) {
        for client in 0..2000 {
            let number = host * 10_000 + client;
            unfinished.insert(number, Pending { source: address(client), ..pending(number, 0) });
        }
        assert_eq!(unfinished.len(), 1 + host as usize * MAX_UNFINISHED_HANDSHAKES_OF_HOST);
        assert_is_whole(&unfinished);
        assert!(unfinished.get(1).is_some(), "the handshake of another host");
        assert!(unfinished.get(host * 10_000 + 1999).is_some(), "the host's newest");
    }
}
