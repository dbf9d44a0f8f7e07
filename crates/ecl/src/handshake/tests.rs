//! Client and server against each other, and against what comes between them.

use std::time::Duration;

use lunette_session::Time;
use proptest::prelude::*;

use super::packets::{Accept, Initial, Retry};
use super::*;
use crate::header::{CHECK_AT, Flags, HEADER_LEN, Header, PacketType};
use crate::limits::{MAX_UNFINISHED_HANDSHAKES, MAX_UNFINISHED_HANDSHAKES_OF_HOST};
use crate::path::Address;

/// A server that believes addresses.
pub(super) const TRUSTED: Terms = Terms { trusted: true, seal: Seal::Headers };

/// Random bytes that are the same in each run.
pub(super) fn seeded(seed: u8) -> impl FnMut(&mut [u8]) {
    let mut state = [seed; 32];
    move |bytes: &mut [u8]| {
        for chunk in bytes.chunks_mut(16) {
            state[0] = state[0].wrapping_add(1);
            let next = mac::mac(&state, &[]);
            state[16..].copy_from_slice(&next);
            chunk.copy_from_slice(&next[..chunk.len()]);
        }
    }
}

pub(super) fn at(ms: u64) -> Time {
    Time::new(Duration::from_millis(ms))
}

pub(super) fn home() -> Address {
    Address::Udp(([192, 0, 2, 1], 4000).into())
}

const NUMBER: u32 = 0x0a0b_0c0d;

pub(super) fn client() -> Client {
    Client::new(at(0), NUMBER, &mut seeded(1))
}

/// A server with its random bytes.
pub(super) struct Server {
    pub(super) listener: Listener,
    entropy: Box<crate::Entropy<'static>>,
}

impl Server {
    pub(super) fn new() -> Self {
        let mut entropy = seeded(2);
        let listener = Listener::new(at(0), ResetSecret::new([3; 32]), &mut entropy);
        Self { listener, entropy: Box::new(entropy) }
    }

    pub(super) fn answer(&mut self, now: Time, source: &Address, datagram: &[u8]) -> Answer {
        self.listener.answer(now, source, Terms::default(), datagram, |_| false, &mut self.entropy)
    }

    pub(super) fn trust(&mut self, now: Time, datagram: &[u8]) -> Answer {
        self.listener.answer(now, &home(), TRUSTED, datagram, |_| false, &mut self.entropy)
    }
}

pub(super) fn initial(client: &mut Client, now: Time) -> [u8; INITIAL_LEN] {
    client.transmit(now).expect("the time is not over").expect("an Initial is due")
}

pub(super) fn retry(answer: Answer) -> [u8; RETRY_LEN] {
    if let Answer::Retry(bytes) = answer { bytes } else { panic!("{answer:?} is no Retry") }
}

pub(super) fn accept(answer: Answer) -> [u8; ACCEPT_LEN] {
    if let Answer::Accept(bytes) = answer { bytes } else { panic!("{answer:?} is no Accept") }
}

pub(super) fn established(received: Received) -> Established {
    if let Received::Established(established) = received { established } else { panic!("{received:?}") }
}

/// A client and a server that know each other's token, and the Initial that has it.
fn proven(server: &mut Server) -> (Client, [u8; INITIAL_LEN]) {
    let mut client = client();
    let first = initial(&mut client, at(0));
    let asked = retry(server.answer(at(1), &home(), &first));
    assert!(matches!(client.receive(at(2), &asked), Received::Retry));
    let second = initial(&mut client, at(2));
    (client, second)
}

/// The first packet that a client sends.
fn first_packet(established: &Established, flags: Flags) -> Vec<u8> {
    let mut header = Header::new(PacketType::Stream, established.peer_number, 0);
    header.flags = flags;
    let mut packet = [&header.emit()[..], b"login request"].concat();
    established.secret.login_keys(Role::Client).send.seal(&mut packet);
    packet
}

#[test]
fn two_sides_agree_on_keys_and_numbers() {
    let mut server = Server::new();
    let (mut client, initial) = proven(&mut server);
    let accept = accept(server.answer(at(3), &home(), &initial));
    let client = established(client.receive(at(4), &accept));
    assert_eq!(server.listener.unfinished(), 1);

    let packet = first_packet(&client, Flags::SEALED);
    let Accepted { established: server_side, address } = server.listener.claim(at(5), &packet).expect("it completes");
    assert_eq!(address, home());
    assert_eq!((server_side.own_number, server_side.peer_number), (client.peer_number, client.own_number));
    assert_eq!(client.own_number, NUMBER);
    assert_ne!(client.peer_number, 0);
    assert_eq!((client.role, server_side.role), (Role::Client, Role::Server));
    assert!(server_side.secret.login_keys(Role::Server).receive.open(&mut packet.clone()).is_ok());

    // And the other direction.
    let mut answer = Header::new(PacketType::Ack, NUMBER, 0).emit();
    server_side.secret.login_keys(Role::Server).send.seal(&mut answer);
    assert!(client.secret.login_keys(Role::Client).receive.open(&mut answer).is_ok());
    // It is an association now, and the listener knows it no more.
    assert_eq!(server.listener.unfinished(), 0);
    assert!(server.listener.claim(at(6), &packet).is_none());
}

#[test]
fn a_trusted_network_needs_no_token() {
    let mut server = Server::new();
    let mut client = client();
    let initial = initial(&mut client, at(0));
    let accept = accept(server.trust(at(0), &initial));
    established(client.receive(at(1), &accept));
}

#[test]
fn each_side_makes_other_keys_each_time() {
    let mut server = Server::new();
    let mut client = client();
    let initial = initial(&mut client, at(0));
    let accepts = [0, 20_000].map(|ms| accept(server.trust(at(ms), &initial)));
    let [one, other] = accepts.map(|accept| established(client.receive(at(1), &accept)));
    assert_ne!(one.peer_number, other.peer_number);
    let packet = first_packet(&one, Flags(0));
    assert!(other.secret.login_keys(Role::Server).receive.open(&mut packet.clone()).is_err());
}

/// The exchange is that of the Noise protocol framework: snow's own state machines understand each side.
#[test]
fn snow_itself_is_the_other_side() {
    let number = NUMBER.to_be_bytes();
    let prologue = [b"Effective Cross Layer".as_slice(), &[1], &number, &[0]].concat();
    let builder = |private| {
        snow::Builder::with_resolver(
            "Noise_NN_25519_ChaChaPoly_SHA256".parse().unwrap(),
            Box::new(noise::Resolver(zeroize::Zeroizing::new(private))),
        )
        .prologue(&prologue)
        .unwrap()
    };
    // snow as the server.
    let mut client = client();
    let initial = Initial::parse(&initial(&mut client, at(0))).unwrap();
    let mut responder = builder([5; 32]).build_responder().unwrap();
    assert_eq!(responder.read_message(&initial.key, &mut []).unwrap(), 0);
    let parameters = [&77_u32.to_be_bytes()[..], &[9; 16], &[1]].concat();
    let mut message = [0; packets::ACCEPT_MESSAGE_LEN];
    assert_eq!(responder.write_message(&parameters, &mut message).unwrap(), message.len());
    let client = established(client.receive(at(1), &Accept { number: NUMBER, message }.emit()));
    assert_eq!(client.peer_number, 77);
    assert!(client.reset_token == ResetToken::new([9; 16]));
    assert_eq!(client.peer_seal, Seal::Everything);

    // snow as the client.
    let mut initiator = builder([6; 32]).build_initiator().unwrap();
    let mut first = [0; 48];
    assert_eq!(initiator.write_message(&[], &mut first).unwrap(), 32);
    let key = std::array::from_fn(|i| first[i]);
    let initial = Initial { key, number: NUMBER, token: [0; 16], seal: Seal::Headers }.emit();
    let accept = Accept::parse(&accept(Server::new().trust(at(0), &initial))).unwrap();
    let mut parameters = [0; 21];
    assert_eq!(initiator.read_message(&accept.message, &mut parameters).unwrap(), 21);
    assert_ne!(parameters[..4], [0; 4]);
}

/// Neither side takes a packet of the handshake that differs from what was sent in one bit, or in length.
#[test]
fn one_wrong_bit_anywhere_is_foreign() {
    let mut server = Server::new();
    let (mut client, good) = proven(&mut server);
    let broken = |good: &[u8]| -> Vec<Vec<u8>> {
        let flipped = |bit: usize| {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            bad
        };
        let longer = [good, &[0]].concat();
        (0..good.len() * 8)
            .map(flipped)
            .chain((0..good.len()).map(|len| good[..len].to_vec()))
            .chain([longer])
            .collect()
    };
    for bad in broken(&good) {
        assert_eq!(server.answer(at(3), &home(), &bad), Answer::Drop);
    }
    assert_eq!(server.listener.unfinished(), 0);
    let accept = accept(server.answer(at(3), &home(), &good));
    for bad in broken(&accept) {
        assert!(matches!(client.receive(at(4), &bad), Received::Foreign));
    }
    let mut waiting = self::client();
    let asked = retry(Server::new().answer(at(1), &home(), &initial(&mut waiting, at(0))));
    for bad in broken(&asked) {
        assert!(matches!(waiting.receive(at(4), &bad), Received::Foreign));
    }
    assert!(matches!(waiting.receive(at(4), &asked), Received::Retry), "the true one is still taken");
    established(client.receive(at(5), &accept));
}

proptest! {
    #[test]
    fn answers_are_never_longer_than_what_they_answer(
        mut bytes in prop::collection::vec(any::<u8>(), 0..1400),
        front in prop::sample::select(vec![0x11_u8, 0x12, 0x13, 0x14, 0x1a]),
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = front;
        }
        let mut server = Server::new();
        let len = match server.answer(at(0), &home(), &bytes) {
            Answer::Drop => 0,
            Answer::Retry(answer) => answer.len(),
            Answer::Accept(answer) => answer.len(),
        };
        prop_assert!(len <= bytes.len());
        prop_assert!(server.listener.claim(at(0), &bytes).is_none());
        prop_assert!(server.listener.reset(&home(), &bytes).is_none_or(|reset| reset.len() <= bytes.len()));
        prop_assert!(matches!(client().receive(at(0), &bytes), Received::Foreign));
    }
}

#[test]
fn packets_are_as_long_as_their_tables_say() {
    assert_eq!((INITIAL_LEN, RETRY_LEN, ACCEPT_LEN), (1232, 176, 197));
    let key = std::array::from_fn(|i| i as u8);
    let initial = Initial { key, number: NUMBER, token: [0xee; 16], seal: Seal::Everything }.emit();
    assert_eq!(initial[HEADER_LEN..HEADER_LEN + 32], key);
    assert_eq!(initial[HEADER_LEN + 32..HEADER_LEN + 36], NUMBER.to_be_bytes());
    assert_eq!(initial[HEADER_LEN + 36..HEADER_LEN + 52], [0xee; 16]);
    assert_eq!(initial[HEADER_LEN + 52], 1);
    assert!(initial[HEADER_LEN + 53..].iter().all(|&byte| byte == 0));
    let retry = Retry { number: NUMBER, token: [0xee; 16], key }.emit();
    assert_eq!(retry[4..8], NUMBER.to_be_bytes());
    assert_eq!(retry[HEADER_LEN..HEADER_LEN + 16], [0xee; 16]);
    assert_eq!(retry[HEADER_LEN + 16..], key);
}

#[test]
fn a_server_that_has_lost_an_association_proves_it() {
    let mut server = Server::new();
    let (mut client, initial) = proven(&mut server);
    let client = established(client.receive(at(4), &accept(server.answer(at(3), &home(), &initial))));
    let packet = first_packet(&client, Flags(0));
    // The server starts again, with the secret that it has kept.
    let server = Server::new();
    let reset = server.listener.reset(&home(), &packet).expect("a packet of an association");
    assert!(client.reset_token.matches(client.peer_number, &reset));

    let forged = ResetSecret::new([4; 32]).answer(&home(), &packet).unwrap();
    assert!(!client.reset_token.matches(client.peer_number, &forged), "another secret");
    assert!(!client.reset_token.matches(client.peer_number + 1, &reset), "another association");
    assert!(!client.reset_token.matches(client.peer_number, &[&reset[..], &[0]].concat()));
    for bit in 0..reset.len() * 8 {
        let mut bad = reset;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!client.reset_token.matches(client.peer_number, &bad), "bit {bit}");
    }
}

/// A host may send packets of any number from its own address, before and after associations of others are there.
#[test]
fn a_reset_that_another_host_has_collected_ends_no_association() {
    let mut server = Server::new();
    let (mut client, initial) = proven(&mut server);
    let accepted = accept(server.answer(at(3), &home(), &initial));
    let client = established(client.receive(at(4), &accepted));
    let packet = header_of(PacketType::Stream, 0).emit();
    let number = client.peer_number.to_be_bytes();
    let collected = |source: &Address| {
        let mut packet = packet;
        packet[4..8].copy_from_slice(&number);
        Server::new().listener.reset(source, &packet).expect("a packet of an association")
    };
    assert!(client.reset_token.matches(client.peer_number, &collected(&home())));
    let elsewhere = [
        Address::Udp(([192, 0, 2, 1], 4001).into()),
        Address::Udp(([192, 0, 2, 2], 4000).into()),
        Address::Ethernet([0, 0, 0, 0, 0, 1]),
    ];
    for source in &elsewhere {
        assert!(!client.reset_token.matches(client.peer_number, &collected(source)), "{source}");
    }
}

#[test]
fn a_forged_packet_of_an_unfinished_handshake_learns_no_reset_token() {
    let mut server = Server::new();
    let (mut client, initial) = proven(&mut server);
    let client = established(client.receive(at(4), &accept(server.answer(at(3), &home(), &initial))));
    let mut forged = first_packet(&client, Flags(0));
    forged[CHECK_AT] ^= 1;
    assert!(server.listener.claim(at(5), &forged).is_none());
    assert_eq!(server.listener.reset(&home(), &forged), None);
    // The client itself completes the handshake as before.
    assert!(server.listener.claim(at(6), &first_packet(&client, Flags(0))).is_some());
    assert!(server.listener.reset(&home(), &forged).is_some(), "an association that the driver's table has lost");
}

fn header_of(packet_type: PacketType, number: u64) -> Header {
    Header::new(packet_type, 7, number)
}

/// The time that the handshake took is that of the path, unless a packet of it was sent again: then it is not known
/// which one was answered.
#[test]
fn the_round_trip_is_that_of_packets_that_were_sent_once() {
    for is_repeated in [false, true] {
        let at = |ms: u64| Time::new(Duration::from_millis(ms));
        let mut entropy = |bytes: &mut [u8]| bytes.fill(9);
        let mut client = Client::new(at(0), 1, &mut entropy);
        let mut listener = Listener::new(at(0), ResetSecret::new([3; 32]), &mut entropy);
        let mut answer = |now, initial: &[u8]| {
            let source = Address::Udp(([127, 0, 0, 1], 1).into());
            listener.answer(now, &source, Terms::default(), initial, |_| false, &mut |bytes: &mut [u8]| bytes.fill(9))
        };
        let initial = client.transmit(at(0)).expect("in time").expect("it is due");
        let Answer::Retry(retry) = answer(at(20), &initial) else { panic!("no Retry") };
        assert!(matches!(client.receive(at(40), &retry), Received::Retry));
        let initial = client.transmit(at(40)).expect("in time").expect("it is due");
        let Answer::Accept(accept) = answer(at(60), &initial) else { panic!("no Accept") };
        if is_repeated {
            assert!(client.transmit(at(290)).expect("in time").is_some());
            assert!(matches!(answer(at(290), &initial), Answer::Accept(_)));
        }
        let now = if is_repeated { at(300) } else { at(80) };
        let Received::Established(established) = client.receive(now, &accept) else { panic!("no association") };
        let expected = (!is_repeated).then_some(Duration::from_millis(40));
        assert_eq!(established.round_trip, expected);
        let mut first = Header::new(PacketType::Ack, established.peer_number, 0).emit().to_vec();
        established.secret.login_keys(Role::Client).send.seal(&mut first);
        let accepted = listener.claim(now + Duration::from_millis(20), &first).expect("it is the client's");
        assert_eq!(accepted.established.round_trip, expected);
    }
}

/// Two machines that take each other for a client do not answer each other for ever.
#[test]
fn only_packets_of_associations_are_answered_with_a_reset() {
    let secret = ResetSecret::new([3; 32]);
    for packet_type in PacketType::ALL {
        let answer = secret.answer(&home(), &header_of(packet_type, 0).emit());
        assert_eq!(answer.is_some(), packet_type.is_protected(), "{packet_type:?}");
        if let Some(reset) = answer {
            assert_eq!(secret.answer(&home(), &reset), None);
            assert_eq!(reset[CHECK_AT..CHECK_AT + 16], *secret.token(7, &home()).bytes());
        }
    }
}

/// A host that begins one handshake after another has a bounded number of them; what they cost the table is tested
/// there.
#[test]
fn unfinished_handshakes_are_bounded_and_the_oldest_goes_first() {
    let mut server = Server::new();
    let answers: Vec<_> = (0..MAX_UNFINISHED_HANDSHAKES_OF_HOST as u8 + 50)
        .map(|seed| {
            let initial = Initial { key: [seed; 32], number: 1, token: [0; 16], seal: Seal::Headers }.emit();
            (initial, accept(server.trust(at(0), &initial)))
        })
        .collect();
    assert_eq!(server.listener.unfinished(), MAX_UNFINISHED_HANDSHAKES_OF_HOST);
    let (initial, answer) = answers.last().unwrap();
    assert_eq!(accept(server.trust(at(1), initial)), *answer, "a new one is known");
    let (initial, answer) = &answers[0];
    assert_ne!(accept(server.trust(at(1), initial)), *answer, "the oldest is forgotten");
    assert_eq!(server.listener.unfinished(), MAX_UNFINISHED_HANDSHAKES_OF_HOST);
}

/// The table is full of handshakes of hosts that prove their addresses and go no further; how many there were before
/// does not matter to it (`unfinished/tests.rs` has a hundred thousand).
#[test]
fn a_client_gets_in_beside_handshakes_that_never_finish() {
    let mut server = Server::new();
    for index in 0..MAX_UNFINISHED_HANDSHAKES as u16 + 50 {
        let [high, low] = index.to_be_bytes();
        let host = Address::Udp(([198, 51, high, low], 4000).into());
        let key = std::array::from_fn(|i| [9, high, low][i.min(2)]);
        let initial = Initial { key, number: 1, token: [0; 16], seal: Seal::Headers };
        let asked = Retry::parse(&retry(server.answer(at(0), &host, &initial.emit()))).expect("a Retry");
        accept(server.answer(at(0), &host, &Initial { token: asked.token, ..initial }.emit()));
    }
    assert_eq!(server.listener.unfinished(), MAX_UNFINISHED_HANDSHAKES);
    let (mut client, second) = proven(&mut server);
    let accepted = accept(server.answer(at(3), &home(), &second));
    let client = established(client.receive(at(4), &accepted));
    let first = first_packet(&client, Flags::SEALED);
    assert!(server.listener.claim(at(5), &first).is_some_and(|accepted| accepted.address == home()));
    assert_eq!(server.listener.unfinished(), MAX_UNFINISHED_HANDSHAKES - 1);
}

#[test]
fn each_side_hears_what_the_other_wants_encrypted() {
    use Seal::{Everything, Headers};
    for (wanted, of_server) in [(Headers, Headers), (Headers, Everything), (Everything, Headers)] {
        let mut server = Server::new();
        let mut client = client().with_seal(wanted);
        let initial = initial(&mut client, at(0));
        let terms = Terms { trusted: true, seal: of_server };
        let answer = server.listener.answer(at(1), &home(), terms, &initial, |_| false, &mut server.entropy);
        let client = established(client.receive(at(2), &accept(answer)));
        let packet = first_packet(&client, Flags::SEALED);
        let server = server.listener.claim(at(3), &packet).expect("it completes").established;
        assert_eq!((server.peer_seal, client.peer_seal), (wanted, of_server));
    }
}

#[test]
fn what_a_client_wants_encrypted_cannot_be_changed_on_the_way() {
    let mut client = client().with_seal(Seal::Everything);
    let wanted = Initial::parse(&initial(&mut client, at(0))).expect("an Initial");
    for (seal, is_taken) in [(Seal::Headers, false), (Seal::Everything, true)] {
        let forged = Initial { seal, ..wanted }.emit();
        let answer = accept(Server::new().trust(at(1), &forged));
        assert_eq!(matches!(client.receive(at(2), &answer), Received::Established(_)), is_taken, "{seal:?}");
    }
    // A byte that says neither.
    let mut bytes = wanted.emit();
    bytes[HEADER_LEN + 52] = 2;
    let check = lunette_crc32c::crc32c(&bytes[HEADER_LEN..]);
    bytes[44..48].copy_from_slice(&check.to_be_bytes());
    assert_eq!(Server::new().trust(at(1), &bytes), Answer::Drop);
}
