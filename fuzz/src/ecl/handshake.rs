//! Datagrams to a server that knows no association, and to clients that begin one: Initial, Retry, Accept, tokens,
//! Reset, and the first packet of an association, as they were made or changed on their way.

use std::time::Duration;

use lunette_ecl::Role;
use lunette_ecl::handshake::{Answer, Client, Established, Listener, Received, ResetSecret, Terms};
use lunette_ecl::header::{Flags, HEADER_LEN, Header, PacketType};
use lunette_ecl::limits::MAX_UNFINISHED_HANDSHAKES;
use lunette_ecl::path::Address;
use lunette_ecl::protection::Seal;
use lunette_session::Time;

use crate::input::{Input, Random};

/// Steps, modulo their number.
const STEPS: u8 = 8;
const RAW: u8 = 0;
const WAIT: u8 = 1;
const NEW_CLIENT: u8 = 2;
const RESET: u8 = 3;

/// Clients of one input, and steps: key exchanges take time.
const MAX_CLIENTS: usize = 3;
const MAX_STEPS: usize = 24;

struct World {
    now: Time,
    random: Random,
    terms: Terms,
    listener: Listener,
    clients: Vec<Client>,
}

/// The target.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let now = Time::new(Duration::from_secs(1));
    let mut random = Random::new(1);
    let terms = input.byte();
    let terms = Terms { trusted: terms % 2 == 1, seal: seal(terms.into()) };
    let listener = Listener::new(now, ResetSecret::new([5; 32]), &mut |bytes| fill(&mut random, bytes));
    let mut world = World { now, random, terms, listener, clients: Vec::new() };
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            return;
        }
        world.step(&mut input);
        assert!(world.listener.unfinished() <= MAX_UNFINISHED_HANDSHAKES);
    }
}

fn fill(random: &mut Random, bytes: &mut [u8]) {
    bytes.fill_with(|| random.byte());
}

/// The encryption that is wanted.
fn seal(number: u32) -> Seal {
    if number & 2 == 0 { Seal::Headers } else { Seal::Everything }
}

fn address(port: u8) -> Address {
    Address::Udp(([192, 0, 2, 1], 1000 + u16::from(port % 3)).into())
}

/// Changes as many bytes as the next one says, mostly none. Says whether it did.
fn change(bytes: &mut [u8], input: &mut Input<'_>) -> bool {
    let before = bytes.to_vec();
    for _ in 0..input.byte().saturating_sub(250) {
        let at = usize::from(input.u16()) % bytes.len();
        bytes[at] ^= input.byte();
    }
    before != bytes
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % STEPS {
            RAW => {
                let len = usize::from(input.u16()) % 1400;
                let bytes = input.bytes(len).to_vec();
                self.foreign(&bytes);
            }
            WAIT => self.now = self.now + Duration::from_millis(u64::from(input.u16())),
            NEW_CLIENT if self.clients.len() < MAX_CLIENTS => {
                let (random, number) = (&mut self.random, 1 + self.clients.len() as u32);
                let client = Client::new(self.now, number, &mut |bytes| fill(random, bytes));
                self.clients.push(client.with_seal(seal(number)));
            }
            RESET => {
                let mut packet = Header::new(PacketType::Stream, input.u32(), 0).emit();
                packet[0] ^= input.byte() % 16;
                let answer = self.listener.reset(&address(0), &packet);
                let is_protected = Header::parse(&packet).is_ok_and(|header| header.packet_type.is_protected());
                assert_eq!(answer.is_some(), is_protected, "only packets of associations are answered");
            }
            _ => self.shake(input),
        }
    }

    /// Bytes that no client has made.
    fn foreign(&mut self, bytes: &[u8]) {
        let before = self.listener.unfinished();
        assert!(self.listener.claim(self.now, bytes).is_none(), "an association without a handshake");
        self.answer(bytes, &address(0));
        assert!(self.terms.trusted || self.listener.unfinished() <= before, "a handshake without a token");
        for client in &mut self.clients {
            assert!(matches!(client.receive(self.now, bytes), Received::Foreign));
        }
    }

    /// The answer of the server, which is never longer than what it got.
    fn answer(&mut self, bytes: &[u8], from: &Address) -> Option<Vec<u8>> {
        let random = &mut self.random;
        let entropy = &mut |bytes: &mut [u8]| fill(random, bytes);
        let answer = match self.listener.answer(self.now, from, self.terms, bytes, |_| false, entropy) {
            Answer::Drop => None,
            Answer::Retry(retry) => Some(retry.to_vec()),
            Answer::Accept(accept) => Some(accept.to_vec()),
        };
        assert!(answer.as_ref().is_none_or(|answer| answer.len() <= bytes.len()), "it amplifies");
        answer
    }

    /// A client sends an Initial, if one is due, and hears what comes of it.
    fn shake(&mut self, input: &mut Input<'_>) {
        let which = usize::from(input.byte()) % self.clients.len().max(1);
        let Some(client) = self.clients.get_mut(which) else { return };
        let Ok(Some(initial)) = client.transmit(self.now) else { return };
        let mut initial = initial.to_vec();
        let is_changed = change(&mut initial, input);
        let from = address(input.byte());
        let before = self.listener.unfinished();
        let Some(mut answer) = self.answer(&initial, &from) else { return };
        // A client's number may be another one: the exchange fails then.
        assert!(!is_changed || self.terms.trusted || self.listener.unfinished() <= before + 1);
        let is_other_answer = change(&mut answer, input);
        match self.clients[which].receive(self.now, &answer) {
            Received::Foreign | Received::Retry => {}
            Received::Established(established) => {
                assert!(!is_changed && !is_other_answer, "both have seen the same");
                self.clients.remove(which);
                self.claim(&established, input);
            }
        }
    }

    /// The first packet of an association, and the association.
    fn claim(&mut self, established: &Established, input: &mut Input<'_>) {
        let keys = established.secret.login_keys(Role::Client);
        let mut header = Header::new(PacketType::Probe, established.peer_number, u64::from(input.u16()));
        header.flags = Flags(input.byte() & 5);
        let mut packet = header.emit().to_vec();
        packet.extend_from_slice(input.bytes(64));
        keys.send.seal(&mut packet);
        let is_changed = change(&mut packet, input);
        let Some(accepted) = self.listener.claim(self.now, &packet) else {
            return assert!(is_changed, "a client is refused");
        };
        assert!(!is_changed, "a damaged packet begins an association");
        let server = accepted.established;
        assert_eq!((server.own_number, server.peer_number), (established.peer_number, established.own_number));
        assert!(server.reset_token == established.reset_token);
        assert_eq!((server.peer_seal, established.peer_seal), (seal(established.own_number), self.terms.seal));
        let opened = server.secret.login_keys(Role::Server).receive.open(&mut packet);
        assert!(opened.is_ok_and(|opened| opened.packet_number == header.packet_number));
        assert!(self.listener.claim(self.now, &packet[..HEADER_LEN]).is_none(), "it is begun once");
    }
}

/// Handshakes, of which something may be changed.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![u8::from(random.below(4) == 0) + 2 * random.below(2) as u8];
    for _ in 0..1 + random.below(8) {
        let step = random.byte() % STEPS;
        bytes.push(step);
        match step {
            RAW => {
                let noise = random.some_bytes(200);
                bytes.extend((noise.len() as u16).to_be_bytes());
                bytes.extend(noise);
            }
            WAIT => bytes.extend((random.number() as u16 >> random.below(16)).to_be_bytes()),
            NEW_CLIENT => {}
            RESET => bytes.extend(random.bytes(5)),
            _ => bytes.extend(random.bytes(16)),
        }
    }
    bytes
}

/// A whole handshake with a token and one without, and one for each packet that is changed on its way.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let shake = |initial: &[u8], answer: &[u8]| [&[4, 0], initial, &[0], answer].concat();
    let claim = [&[0, 9, 1][..], &[0; 64], &[0]].concat();
    let clean = shake(&[0], &[0]);
    let other = [251, 0, 140, 1];
    let parts: [(&str, Vec<Vec<u8>>); 6] = [
        ("whole", vec![vec![0, NEW_CLIENT], clean.clone(), clean.clone(), claim.clone()]),
        ("trusted", vec![vec![1, NEW_CLIENT], clean.clone(), claim]),
        ("initial_changed", vec![vec![0, NEW_CLIENT], shake(&other, &[0]), clean.clone()]),
        ("retry_changed", vec![vec![0, NEW_CLIENT], shake(&[0], &other), vec![WAIT, 4, 0], clean.clone()]),
        ("accept_changed", vec![vec![1, NEW_CLIENT], shake(&[0], &other), vec![WAIT, 4, 0], clean]),
        ("noise", vec![vec![0, NEW_CLIENT, RAW, 0, 128], vec![0x11; 128], vec![RESET, 1, 2, 3, 4, 5]]),
    ];
    parts.into_iter().map(|(name, parts)| (name.into(), parts.concat())).collect()
}
