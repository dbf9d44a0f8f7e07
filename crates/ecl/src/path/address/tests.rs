use proptest::prelude::*;

use super::*;
use crate::header::HEADER_LEN;

const HOME: Address = udp([192, 0, 2, 1], 4000);
const ROAD: Address = udp([198, 51, 100, 7], 5000);

const fn udp(ip: [u8; 4], port: u16) -> Address {
    Address::Udp(SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]), port)))
}

fn at(ms: u64) -> Time {
    Time::new(Duration::from_millis(ms))
}

/// The server's view, with challenges that count up.
struct Peer {
    address: PeerAddress,
    challenges: u8,
}

const CHALLENGE_PACKET_LEN: usize = HEADER_LEN + CHALLENGE_LEN;

impl Peer {
    fn at_home() -> Self {
        Self { address: PeerAddress::new(Role::Server, HOME), challenges: 0 }
    }

    fn moved(to: Address, len: usize) -> Self {
        let mut peer = Self::at_home();
        assert!(matches!(peer.packet(0, to, len, true), Source::Moved { .. }));
        peer
    }

    fn packet(&mut self, ms: u64, from: Address, len: usize, is_newest: bool) -> Source {
        let challenges = &mut self.challenges;
        self.address.on_packet(at(ms), &from, len, is_newest, &mut |bytes: &mut [u8]| {
            *challenges += 1;
            bytes.fill(*challenges);
        })
    }

    fn challenge(&mut self, ms: u64) -> Option<[u8; CHALLENGE_LEN]> {
        let challenge = self.address.challenge_due(at(ms), CHALLENGE_PACKET_LEN)?;
        self.address.on_sent(CHALLENGE_PACKET_LEN);
        Some(challenge)
    }
}

#[test]
fn a_client_that_changes_its_address_keeps_its_association() {
    let mut peer = Peer::at_home();
    assert_eq!(peer.packet(0, HOME, 500, true), Source::Known);
    assert_eq!(peer.challenge(0), None);
    assert_eq!(peer.address.next_timeout(), None);

    assert_eq!(peer.packet(1, ROAD, 500, true), Source::Moved { same_host: false });
    assert_eq!((*peer.address.current(), peer.address.is_validated()), (ROAD, false));
    let challenge = peer.challenge(1).expect("the new address is asked at once");
    assert!(peer.address.on_response(&challenge));
    assert_eq!((*peer.address.current(), peer.address.is_validated()), (ROAD, true));
    assert_eq!((peer.address.allowance(), peer.address.next_timeout()), (u64::MAX, None));
    // The old address is any address now.
    assert_eq!(peer.packet(9, HOME, 500, true), Source::Moved { same_host: false });
}

#[test]
fn each_source_is_judged() {
    let port = udp([192, 0, 2, 1], 4001);
    let mapped = Address::Udp((std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(), 4001).into());
    let frame = Address::Ethernet([2, 0, 0, 0, 0, 1]);
    // Where a server that knows its client at HOME, or has moved with it to ROAD, sees a packet.
    let rows = [
        (false, HOME, true, Source::Known, HOME),
        (false, HOME, false, Source::Known, HOME),
        (false, ROAD, true, Source::Moved { same_host: false }, ROAD),
        (false, ROAD, false, Source::Known, HOME),
        (false, port, true, Source::Moved { same_host: true }, port),
        (false, mapped, true, Source::Moved { same_host: true }, mapped),
        (false, frame, true, Source::Moved { same_host: false }, frame),
        (true, ROAD, true, Source::Known, ROAD),
        (true, ROAD, false, Source::Known, ROAD),
        (true, HOME, true, Source::Returned, HOME),
        (true, HOME, false, Source::Known, ROAD),
        (true, port, true, Source::Moved { same_host: false }, port),
        (true, port, false, Source::Known, ROAD),
    ];
    for (has_moved, from, is_newest, source, current) in rows {
        let mut peer = if has_moved { Peer::moved(ROAD, 500) } else { Peer::at_home() };
        assert_eq!(peer.packet(5, from, 500, is_newest), source, "{from}, moved {has_moved}, newest {is_newest}");
        assert_eq!(*peer.address.current(), current, "{from}, moved {has_moved}, newest {is_newest}");
    }
}

#[test]
fn a_client_stays_with_its_server() {
    let mut address = PeerAddress::new(Role::Client, HOME);
    let mut entropy = |_: &mut [u8]| panic!("a client challenges nothing");
    assert_eq!(address.on_packet(at(0), &ROAD, 500, true, &mut entropy), Source::Foreign);
    assert_eq!(address.on_packet(at(0), &HOME, 500, true, &mut entropy), Source::Known);
    assert_eq!((*address.current(), address.is_validated()), (HOME, true));
}

#[test]
fn a_challenge_comes_again_until_its_time_is_over_and_then_the_old_address_holds() {
    let mut peer = Peer::moved(ROAD, 10_000);
    let mut sent = Vec::new();
    let returned = loop {
        let now = peer.address.next_timeout().expect("there is something to do");
        if peer.address.on_timeout(now) {
            break now;
        }
        assert_eq!(peer.challenge(now.since_epoch().as_millis() as u64), Some([1; CHALLENGE_LEN]));
        sent.push(now.since_epoch().as_millis());
    };
    assert_eq!((sent, returned), (vec![0, 250, 750, 1750], at(3000)));
    assert_eq!((*peer.address.current(), peer.address.is_validated()), (HOME, true));
    assert!(!peer.address.on_response(&[1; CHALLENGE_LEN]), "the answer is too late");
}

#[test]
fn only_the_answer_to_the_challenge_validates() {
    let mut peer = Peer::moved(ROAD, 500);
    for wrong in [&[2; CHALLENGE_LEN][..], &[1; CHALLENGE_LEN - 1], &[1; CHALLENGE_LEN + 1], &[]] {
        assert!(!peer.address.on_response(wrong), "{wrong:?}");
    }
    // A client that moves on has to answer for where it is now.
    peer.packet(1, udp([203, 0, 113, 5], 1), 500, true);
    assert!(!peer.address.on_response(&[1; CHALLENGE_LEN]));
    assert!(peer.address.on_response(&[2; CHALLENGE_LEN]));
    assert_eq!(*peer.address.current(), udp([203, 0, 113, 5], 1));
    assert!(!Peer::at_home().address.on_response(&[0; CHALLENGE_LEN]), "nothing was asked");
}

#[test]
fn a_challenge_waits_until_it_may_be_sent() {
    let mut peer = Peer::moved(ROAD, 40);
    assert_eq!(peer.address.allowance(), 120);
    assert_eq!(peer.challenge(0), None, "it is longer than three times 40 bytes");
    peer.packet(1, ROAD, 6, false);
    assert!(peer.challenge(1).is_some());
    assert_eq!(peer.address.allowance(), 138 - 136);
}

#[test]
fn addresses_are_printed_as_they_are_written() {
    assert_eq!(HOME.to_string(), "192.0.2.1:4000");
    assert_eq!(Address::Ethernet([2, 0, 0, 0xab, 0, 1]).to_string(), "02:00:00:ab:00:01");
}

proptest! {
    /// Whatever comes and goes: an address that has not answered gets no more than three times what came from it.
    #[test]
    fn no_address_is_flooded(steps in prop::collection::vec((0..4_u8, 0..3_u8, 1..2000_usize, any::<bool>()), 1..80)) {
        let places = [HOME, ROAD, udp([203, 0, 113, 5], 1)];
        let (mut peer, mut now) = (Peer::at_home(), 0);
        let (mut received, mut sent, mut validated) = ([0_u64; 3], [0_u64; 3], [true, false, false]);
        let index = |address: &Address| places.iter().position(|place| place == address).unwrap();
        for (step, place, len, is_newest) in steps {
            now += 100;
            match step {
                0 => {
                    received[place as usize] += len as u64;
                    peer.packet(now, places[place as usize], len, is_newest);
                }
                1 => {
                    // As much as the association may send.
                    let len = peer.address.allowance().min(len as u64);
                    peer.address.on_sent(len as usize);
                    sent[index(peer.address.current())] += len;
                }
                2 => {
                    let to = index(peer.address.current());
                    if peer.challenge(now).is_some() {
                        sent[to] += CHALLENGE_PACKET_LEN as u64;
                    }
                }
                _ => {
                    let challenge = [peer.challenges; CHALLENGE_LEN];
                    if is_newest && peer.address.on_response(&challenge) {
                        validated[index(peer.address.current())] = true;
                    }
                    peer.address.on_timeout(at(now));
                }
            }
            for place in 0..3 {
                prop_assert!(validated[place] || sent[place] <= 3 * received[place]);
            }
        }
    }
}
