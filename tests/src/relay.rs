//! A TCP relay that counts bytes, damages them on request, and can be cut.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Relays TCP connections to another address, and counts their bytes in both directions.
pub struct Relay {
    address: SocketAddr,
    counts: Arc<Counts>,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

#[derive(Default)]
struct Counts {
    bytes: AtomicU64,
    flipped: AtomicU64,
}

/// The beginning of a stream that is never damaged: no digest protects a login.
const LOGIN_BYTES: u64 = 4096;

/// The positions of flipped bits in one direction of one connection.
struct Damage {
    /// The position in the stream, and that of the next damaged byte.
    at: u64,
    next: u64,
    /// The mean number of bytes between two damaged ones.
    every: u64,
    random: u64,
}

impl Damage {
    fn new(seed: u64, every: u64) -> Self {
        let mut damage = Self { at: 0, next: LOGIN_BYTES, every, random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 };
        damage.move_on();
        damage
    }

    /// Flips the bits that are due in the next bytes of the stream, and returns how many.
    fn hit(&mut self, bytes: &mut [u8]) -> u64 {
        let end = self.at + bytes.len() as u64;
        let mut flipped = 0;
        while self.next < end {
            bytes[(self.next - self.at) as usize] ^= 1 << (self.random % 8);
            flipped += 1;
            self.move_on();
        }
        self.at = end;
        flipped
    }

    fn move_on(&mut self) {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.next += 1 + self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) % (2 * self.every);
    }
}

impl Relay {
    /// A relay to `target`, which listens until the process ends.
    pub fn to(target: SocketAddr) -> Self {
        Self::start(target, None)
    }

    /// A relay that flips a bit in one of `every` bytes, in both directions, after the login.
    pub fn damaging(target: SocketAddr, every: u64) -> Self {
        Self::start(target, Some(every))
    }

    fn start(target: SocketAddr, every: Option<u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on the loopback interface");
        let address = listener.local_addr().expect("a bound socket has an address");
        let counts = Arc::<Counts>::default();
        let counter = Arc::clone(&counts);
        let clients = Arc::<Mutex<Vec<TcpStream>>>::default();
        let open = Arc::clone(&clients);
        thread::spawn(move || {
            for (client, seed) in listener.incoming().map_while(Result::ok).zip(1..) {
                open.lock().expect("no thread panics with it").extend(client.try_clone());
                // The relay reports a missing target by closing the client's connection.
                let _ = pass(client, target, &counter, every.map(|every| (seed, every)));
            }
        });
        Self { address, counts, clients }
    }

    /// `url` with this relay as its portal.
    pub fn url(&self, url: &str) -> String {
        let rest = url.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        format!("iscsi://{}/{}", self.address, rest.expect("iscsi://HOST:PORT/TARGET/LUN").1)
    }

    /// Cuts one of the open connections, chosen by a number.
    pub fn cut_one(&self, chosen: usize) {
        let mut clients = self.clients.lock().expect("no thread panics with it");
        // A connection that has ended has no peer address.
        clients.retain(|client| client.peer_addr().is_ok());
        if !clients.is_empty() {
            let len = clients.len();
            let _ = clients.swap_remove(chosen % len).shutdown(Shutdown::Both);
        }
    }

    /// Bytes relayed since the last call.
    pub fn take_bytes(&self) -> u64 {
        self.counts.bytes.swap(0, Ordering::Relaxed)
    }

    /// The number of bits flipped so far.
    pub fn flipped_bits(&self) -> u64 {
        self.counts.flipped.load(Ordering::Relaxed)
    }
}

fn pass(client: TcpStream, target: SocketAddr, counts: &Arc<Counts>, damage: Option<(u64, u64)>) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    for (direction, (from, to)) in
        [(client.try_clone()?, server.try_clone()?), (server, client)].into_iter().enumerate()
    {
        let counts = Arc::clone(counts);
        let damage = damage.map(|(seed, every)| Damage::new(2 * seed + direction as u64, every));
        thread::spawn(move || one_way(from, to, &counts, damage));
    }
    Ok(())
}

fn one_way(mut from: TcpStream, mut to: TcpStream, counts: &Counts, mut damage: Option<Damage>) {
    let mut bytes = vec![0; 256 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        counts.bytes.fetch_add(len as u64, Ordering::Relaxed);
        if let Some(damage) = &mut damage {
            counts.flipped.fetch_add(damage.hit(&mut bytes[..len]), Ordering::Relaxed);
        }
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    // The other direction ends with this one; it may have ended already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
