use std::cell::Cell;

use super::super::tests::{Server, TRUSTED, accept, at, client, established, home, initial, retry, seeded};
use super::super::{Client, HANDSHAKE_TIMEOUT, INITIAL_LEN, TOKEN_LIFETIME};
use super::*;
use crate::header::{Flags, PacketType};

/// The Initial of `client` with the token that the server gave it at `now`, ms, for the address `source`.
fn with_token(server: &mut Server, client: &Initial, source: &Address, now: u64) -> Initial {
    let asked = Retry::parse(&retry(server.answer(at(now), source, &Initial { token: [0; 16], ..*client }.emit())));
    Initial { token: asked.unwrap().token, ..*client }
}

fn plain_initial() -> Initial {
    Initial::parse(&initial(&mut client(), at(0))).unwrap()
}

/// A row: the case, when the token was given and used (ms), where it was used, the change to it, and whether it is
/// taken.
type Row = (&'static str, u64, u64, Address, fn(Initial) -> Initial, bool);

/// A server that takes no token keeps nothing.
#[test]
fn each_rule_of_the_token_is_checked() {
    let port = Address::Udp(([192, 0, 2, 1], 4001).into());
    let host = Address::Udp(([192, 0, 2, 2], 4000).into());
    let frame = Address::Ethernet([2, 0, 0, 0, 0, 1]);
    let half = TOKEN_LIFETIME.as_millis() as u64 / 2;
    let other_key = |initial: Initial| Initial { key: [8; 32], ..initial };
    let same = |initial: Initial| initial;
    let rows: [Row; 11] = [
        ("at once", 0, 0, home(), same, true),
        ("another port", 0, 1, port, same, false),
        ("another host", 0, 1, host, same, false),
        ("another network", 0, 1, frame, same, false),
        ("another key", 0, 1, home(), other_key, false),
        ("no token", 0, 1, home(), |initial| Initial { token: [0; 16], ..initial }, false),
        ("the last moment of half the lifetime", 0, half, home(), same, true),
        ("given late, and used half a lifetime later", half - 1, 2 * half - 1, home(), same, true),
        ("a whole lifetime", 0, 2 * half, home(), same, false),
        ("given late, and used a whole lifetime later", half - 1, 3 * half - 1, home(), same, false),
        ("an hour later", 0, 3_600_000, home(), same, false),
    ];
    for (what, given, used, source, change, taken) in rows {
        let mut server = Server::new();
        let initial = change(with_token(&mut server, &plain_initial(), &home(), given));
        // Others come in the meantime, so that secrets rotate.
        for ms in (given..used).step_by(1000) {
            server.answer(at(ms), &host, &plain_initial().emit());
        }
        let answer = server.answer(at(used), &source, &initial.emit());
        assert_eq!(matches!(answer, Answer::Accept(_)), taken, "{what}");
        assert!(taken || matches!(answer, Answer::Retry(_)), "{what}: it may ask again");
        assert_eq!(server.listener.unfinished(), usize::from(taken), "{what}");
    }
}

/// A server to which no other client comes replaces its secrets late. Tokens are not good for longer.
#[test]
fn a_token_ends_on_a_quiet_server_too() {
    let end = TOKEN_LIFETIME.as_millis() as u64;
    for (looks, taken) in [(&[end - 1][..], [true].as_slice()), (&[end], &[false]), (&[end - 1, end], &[true, false])] {
        let mut server = Server::new();
        let initial = with_token(&mut server, &plain_initial(), &home(), 0);
        for (&ms, &taken) in looks.iter().zip(taken) {
            let answer = server.answer(at(ms), &home(), &initial.emit());
            assert_eq!(matches!(answer, Answer::Accept(_)), taken, "at {ms} ms, with looks at {looks:?}");
        }
    }
}

#[test]
fn the_token_of_another_server_is_not_taken() {
    let mut server = Server::new();
    let mut entropy = seeded(77);
    let mut other = Listener::new(at(0), ResetSecret::new([3; 32]), &mut entropy);
    let asked = retry(other.answer(at(0), &home(), Terms::default(), &plain_initial().emit(), |_| false, &mut entropy));
    let initial = Initial { token: Retry::parse(&asked).unwrap().token, ..plain_initial() };
    assert!(matches!(server.answer(at(0), &home(), &initial.emit()), Answer::Retry(_)));
}

/// The address that a dual-stack socket tells of an IPv4 client is that client's.
#[test]
fn a_mapped_address_is_the_address() {
    let mapped = Address::Udp((std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(), 4000).into());
    let mut server = Server::new();
    let initial = with_token(&mut server, &plain_initial(), &home(), 0);
    assert!(matches!(server.answer(at(0), &mapped, &initial.emit()), Answer::Accept(_)));
}

#[test]
fn a_repeated_initial_has_the_same_answer_until_it_is_completed() {
    let mut server = Server::new();
    let initial = with_token(&mut server, &plain_initial(), &home(), 0);
    let first = accept(server.answer(at(1), &home(), &initial.emit()));
    assert_eq!(accept(server.answer(at(2), &home(), &initial.emit())), first);
    assert_eq!(server.listener.unfinished(), 1);
    // A copy from elsewhere, by a machine that has its own token for that key, is another client and leaves this one
    // alone.
    let elsewhere = Address::Udp(([198, 51, 100, 7], 9).into());
    let copied = with_token(&mut server, &plain_initial(), &elsewhere, 3);
    assert_ne!(accept(server.answer(at(3), &elsewhere, &copied.emit())), first);
    assert_eq!(accept(server.answer(at(4), &home(), &initial.emit())), first);
    assert_eq!(server.listener.unfinished(), 2);
    // The same client with another number is another association, and takes the place of the first.
    let renumbered = Initial { number: initial.number + 1, ..initial };
    assert_ne!(accept(server.answer(at(5), &home(), &renumbered.emit())), first);
    assert_eq!(server.listener.unfinished(), 2);
}

#[test]
fn a_handshake_is_forgotten_when_its_time_is_over() {
    let mut server = Server::new();
    let mut client = client();
    let answer = accept(server.trust(at(0), &initial(&mut client, at(0))));
    let client = established(client.receive(at(1), &answer));
    let packet = stream_packet(&client, 0);
    let mut late = Server::new();
    late.trust(at(0), &initial(&mut self::client(), at(0)));
    let end = HANDSHAKE_TIMEOUT.as_millis() as u64;
    assert!(server.listener.claim(at(end - 1), &packet).is_some());
    assert!(late.listener.claim(at(end), &packet).is_none());
    assert_eq!(late.listener.unfinished(), 0);
}

fn stream_packet(client: &Established, flags: u8) -> Vec<u8> {
    let mut header = Header::new(PacketType::Stream, client.peer_number, 0);
    header.flags = Flags(flags);
    let mut packet = [&header.emit()[..], b"payload"].concat();
    client.secret.login_keys(Role::Client).send.seal(&mut packet);
    packet
}

#[test]
fn only_the_client_completes_its_handshake() {
    let mut server = Server::new();
    let mut client = client();
    let answer = accept(server.trust(at(0), &initial(&mut client, at(0))));
    let client = established(client.receive(at(1), &answer));
    for flags in [Flags(0), Flags::SEALED] {
        let good = stream_packet(&client, flags.0);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(server.listener.claim(at(2), &bad).is_none(), "bit {bit}");
        }
    }
    // The server's own packet, reflected.
    let good = stream_packet(&client, 0);
    let mut reflected = good.clone();
    client.secret.login_keys(Role::Server).send.seal(&mut reflected);
    assert!(server.listener.claim(at(2), &reflected).is_none());
    assert!(server.listener.claim(at(2), &good).is_some());
}

#[test]
fn numbers_are_not_given_twice() {
    let mut entropy = seeded(2);
    let mut listener = Listener::new(at(0), ResetSecret::new([3; 32]), &mut entropy);
    // The driver's table has every number but those whose lowest bits are 5.
    let asked = Cell::new(0);
    let is_taken = |number: u32| {
        asked.set(asked.get() + 1);
        number % 8 != 5
    };
    let mut accepted = 0;
    for seed in 0..20 {
        let mut client = Client::new(at(0), 9, &mut seeded(100 + seed));
        let initial: [u8; INITIAL_LEN] = initial(&mut client, at(0));
        if let Answer::Accept(answer) = listener.answer(at(0), &home(), TRUSTED, &initial, is_taken, &mut entropy) {
            accepted += 1;
            assert_eq!(established(client.receive(at(1), &answer)).peer_number % 8, 5);
        }
    }
    assert!(asked.get() > accepted);
    assert!(accepted > 0);
    // Nor is the number of an unfinished handshake, nor 0, however often the random source says so.
    for (byte, accepted) in [(5, 1), (0, 0)] {
        let mut same = |bytes: &mut [u8]| bytes.fill(byte);
        let mut listener = Listener::new(at(0), ResetSecret::new([3; 32]), &mut same);
        for seed in 0..3 {
            let initial = initial(&mut Client::new(at(0), 9, &mut seeded(100 + seed)), at(0));
            listener.answer(at(0), &home(), TRUSTED, &initial, |_| false, &mut same);
        }
        assert_eq!(listener.unfinished(), accepted, "a source of bytes {byte}");
    }
    let nameless = Initial { number: 0, ..plain_initial() }.emit();
    assert_eq!(listener.answer(at(0), &home(), TRUSTED, &nameless, |_| false, &mut entropy), Answer::Drop);
    // A full table accepts nothing, and comes to an end.
    let initial = initial(&mut Client::new(at(0), 9, &mut seeded(99)), at(0));
    assert_eq!(listener.answer(at(0), &home(), TRUSTED, &initial, |_| true, &mut entropy), Answer::Drop);
}
