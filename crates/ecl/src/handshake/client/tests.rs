use super::super::tests::{Server, accept, at, client, established, home, initial, retry, seeded};
use super::super::{ACCEPT_LEN, Answer};
use super::*;
use crate::header::HEADER_LEN;

/// When an Initial is sent, in ms, if nothing comes back.
fn schedule(client: &mut Client) -> Vec<u128> {
    let mut sent = Vec::new();
    loop {
        let now = client.next_timeout();
        match client.transmit(now) {
            Ok(Some(_)) => sent.push(now.since_epoch().as_millis()),
            Ok(None) => panic!("nothing is due at {now:?}, which was the next timeout"),
            Err(NoAnswer) => {
                sent.push(now.since_epoch().as_millis());
                return sent;
            }
        }
    }
}

#[test]
fn an_initial_comes_again_at_growing_intervals_until_the_time_is_over() {
    let sent = schedule(&mut client());
    assert_eq!(sent, [0, 250, 750, 1750, 3750, 5750, 7750, 9750, 10_000]);
}

#[test]
fn nothing_is_sent_before_it_is_due() {
    let mut client = client();
    let first = initial(&mut client, at(0));
    assert_eq!(client.transmit(at(249)), Ok(None));
    assert_eq!(initial(&mut client, at(250)), first, "the same Initial again");
}

#[test]
fn a_retry_is_followed_at_once_and_only_once() {
    let (mut client, mut server) = (client(), Server::new());
    let first = initial(&mut client, at(0));
    let asked = retry(server.answer(at(1), &home(), &first));
    assert!(matches!(client.receive(at(2), &asked), Received::Retry));
    assert_eq!(client.next_timeout(), at(2));
    let second = initial(&mut client, at(2));
    assert_eq!(second[HEADER_LEN..HEADER_LEN + 36], first[HEADER_LEN..HEADER_LEN + 36], "key and number stay");
    assert_ne!(second, first);

    // The same Retry comes twice, or a forger sends another one.
    assert!(matches!(client.receive(at(3), &asked), Received::Foreign));
    let mut forged = Retry::parse(&asked).unwrap();
    forged.token = [1; TOKEN_LEN];
    assert!(matches!(client.receive(at(3), &forged.emit()), Received::Foreign));
    assert_eq!(initial(&mut client, at(252)), second);
}

#[test]
fn a_retry_of_another_handshake_is_foreign() {
    let (mut client, mut server) = (client(), Server::new());
    let asked = Retry::parse(&retry(server.answer(at(1), &home(), &initial(&mut client, at(0))))).unwrap();
    for foreign in [Retry { number: asked.number + 1, ..asked }, Retry { key: [0; 32], ..asked }] {
        assert!(matches!(client.receive(at(2), &foreign.emit()), Received::Foreign));
    }
    assert!(matches!(client.receive(at(2), &asked.emit()), Received::Retry));
}

/// A server takes no token that is too old, so the client does not insist on it.
#[test]
fn an_old_token_gives_way_to_another() {
    let (mut client, mut server) = (client(), Server::new());
    let first = initial(&mut client, at(0));
    let asked = retry(server.answer(at(1), &home(), &first));
    assert!(matches!(client.receive(at(2), &asked), Received::Retry));
    // All with the token are lost.
    let mut sent = Vec::new();
    while client.next_timeout() < at(6000) {
        let now = client.next_timeout();
        sent.push(initial(&mut client, now));
    }
    assert_ne!(sent[0], first);
    assert_eq!(sent.pop().unwrap(), first, "without a token");
    assert!(matches!(client.receive(at(6000), &asked), Received::Retry));
}

/// A forged Accept costs a key exchange and nothing else: the handshake goes on.
#[test]
fn a_forged_accept_changes_nothing() {
    let (mut client, mut server) = (client(), Server::new());
    let good = accept(server.trust(at(0), &initial(&mut client, at(0))));
    let forged = Accept { message: [0x55; ACCEPT_LEN - HEADER_LEN], ..Accept::parse(&good).unwrap() };
    assert!(matches!(client.receive(at(1), &forged.emit()), Received::Foreign));
    let other_number = Accept { number: forged.number + 1, ..Accept::parse(&good).unwrap() };
    assert!(matches!(client.receive(at(1), &other_number.emit()), Received::Foreign));
    // The answer to the Initial of another client.
    let mut other = Client::new(at(0), forged.number, &mut seeded(9));
    let to_other = accept(server.trust(at(0), &initial(&mut other, at(0))));
    assert!(matches!(client.receive(at(1), &to_other), Received::Foreign));
    established(client.receive(at(2), &good));
}

/// The prologue has the client's number: whoever changes it on the way is found out.
#[test]
fn a_changed_number_is_found_out() {
    let (mut client, mut server) = (client(), Server::new());
    let mut changed = Initial::parse(&initial(&mut client, at(0))).unwrap();
    let number = changed.number;
    changed.number += 1;
    let mut answer = Accept::parse(&accept(server.trust(at(0), &changed.emit()))).unwrap();
    answer.number = number;
    assert!(matches!(client.receive(at(1), &answer.emit()), Received::Foreign));
}

#[test]
fn what_the_client_sends_is_nothing_to_a_client() {
    let mut client = client();
    let own = initial(&mut client, at(0));
    assert!(matches!(client.receive(at(1), &own), Received::Foreign));
    assert_ne!(Server::new().answer(at(1), &home(), &own), Answer::Drop);
}
