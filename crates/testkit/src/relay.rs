//! A relay of TCP connections, which a test can hold up, damage and cut.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use crate::Dice;

/// Bytes at the beginning of each stream that [`Relay::damaging`] leaves alone: no digest protects a login.
const LOGIN_BYTES: u64 = 4096;

/// A listener that passes bytes on to a target, until the process ends.
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Where bytes are passed on to. Without one, connections are accepted and closed.
    target: Mutex<Option<SocketAddr>>,
    /// The two ends of the open connections, by their number.
    open: Mutex<BTreeMap<u64, [TcpStream; 2]>>,
    accepted: AtomicU64,
    /// Bytes from clients, and to them.
    bytes: [AtomicUsize; 2],
    flipped_bits: AtomicU64,
    /// Damages the next piece of data from the target that is longer than this many bytes; 0: none.
    damage_above: AtomicUsize,
    /// Connections beyond this number are accepted and closed; 0: all are let through.
    only: AtomicU64,
    /// The first connection is cut after this many bytes from its client; 0: never.
    first_ends_after: AtomicUsize,
    held: Mutex<Held>,
    goes_on: Condvar,
}

/// The bytes that are not passed on.
#[derive(Default)]
struct Held {
    /// Nothing is taken from the clients of connections before this one.
    stalled: u64,
    /// Nothing goes in either direction.
    is_silent: bool,
}

impl Relay {
    /// A relay to `target`.
    pub fn to(target: SocketAddr) -> Self {
        Self::start(any_port(), target, None)
    }

    /// A relay of the connections of `listener` to `target`.
    pub fn of(listener: TcpListener, target: SocketAddr) -> Self {
        Self::start(listener, target, None)
    }

    /// A relay that flips a bit in one of `every` bytes on average, in both directions, after the login.
    pub fn damaging(target: SocketAddr, every: u64) -> Self {
        Self::start(any_port(), target, Some(every))
    }

    fn start(listener: TcpListener, target: SocketAddr, every: Option<u64>) -> Self {
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared { target: Mutex::new(Some(target)), ..Shared::default() });
        let behind = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let number = behind.accepted.load(Ordering::SeqCst);
                let only = behind.only.load(Ordering::SeqCst);
                let target = lock(&behind.target).filter(|_| only == 0 || number < only);
                // The relay reports a missing target by closing the client's connection.
                if let Some(server) = target.and_then(|target| TcpStream::connect(target).ok()) {
                    let _ = behind.join(number, client, server, every);
                }
                behind.accepted.store(number + 1, Ordering::SeqCst);
            }
        });
        Self { address, shared }
    }

    /// `url` with this relay as its portal.
    pub fn url(&self, url: &str) -> String {
        let rest = url.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        format!("iscsi://{}/{}", self.address, rest.expect("iscsi://HOST:PORT/TARGET/LUN").1)
    }

    // What has passed

    /// The number of connections so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// The number of connections that are open.
    pub fn open(&self) -> usize {
        let mut open = lock(&self.shared.open);
        open.retain(|_, ends| ends[0].peek(&mut [0]).is_ok_and(|len| len > 0));
        open.len()
    }

    /// The number of bytes that clients have sent.
    pub fn bytes_of_clients(&self) -> usize {
        self.shared.bytes[0].load(Ordering::SeqCst)
    }

    /// The number of bytes in both directions since the last call.
    pub fn take_bytes(&self) -> u64 {
        self.shared.bytes.iter().map(|bytes| bytes.swap(0, Ordering::SeqCst) as u64).sum()
    }

    /// The number of bits that were flipped by [`damaging`](Self::damaging).
    pub fn flipped_bits(&self) -> u64 {
        self.shared.flipped_bits.load(Ordering::SeqCst)
    }

    // Faults

    /// Leads later connections to another target, or to none.
    pub fn lead(&self, target: Option<SocketAddr>) {
        *lock(&self.shared.target) = target;
    }

    /// Lets this number of connections through, and closes all later ones.
    pub fn lead_only(&self, connections: u64) {
        self.shared.only.store(connections, Ordering::SeqCst);
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        std::mem::take(&mut *lock(&self.shared.open)).values().for_each(shut_down);
    }

    /// Cuts one connection, by the order in which they came.
    pub fn cut_one(&self, number: u64) {
        shut_down(&lock(&self.shared.open).remove(&number).expect("it is open"));
    }

    /// Cuts the first connection as soon as its client has sent more than this many bytes.
    pub fn cut_first_after(&self, bytes: usize) {
        self.shared.first_ends_after.store(bytes, Ordering::SeqCst);
    }

    /// Cuts one of the open connections, chosen by a number. False when there is none.
    pub fn cut_any(&self, chosen: usize) -> bool {
        let mut open = lock(&self.shared.open);
        // A connection that has ended has no peer address.
        open.retain(|_, ends| ends[0].peer_addr().is_ok());
        let number = open.keys().nth(chosen.checked_rem(open.len()).unwrap_or(0)).copied();
        let ends = number.and_then(|number| open.remove(&number));
        ends.as_ref().map(shut_down).is_some()
    }

    /// From now on nothing is read from the clients that are connected.
    pub fn stall(&self) {
        lock(&self.shared.held).stalled = self.accepted();
    }

    /// From now on nothing goes in either direction, over connections that are there or are made later.
    pub fn fall_silent(&self) {
        lock(&self.shared.held).is_silent = true;
    }

    /// Ends [`stall`](Self::stall) and [`fall_silent`](Self::fall_silent). What was held back is passed on, however
    /// late.
    pub fn go_on(&self) {
        *lock(&self.shared.held) = Held::default();
        self.shared.goes_on.notify_all();
    }

    /// Damages one byte of the next long piece that the target sends.
    pub fn damage(&self) {
        self.shared.damage_above.store(1000, Ordering::SeqCst);
    }

    /// Whether the byte of [`damage`](Self::damage) was damaged.
    pub fn has_damaged(&self) -> bool {
        self.shared.damage_above.load(Ordering::SeqCst) == 0
    }
}

impl Shared {
    fn join(self: &Arc<Self>, number: u64, client: TcpStream, server: TcpStream, every: Option<u64>) -> io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        // Before it carries a byte and is counted: whoever learns of it by these can cut it.
        lock(&self.open).insert(number, [client.try_clone()?, server.try_clone()?]);
        self.accepted.store(number + 1, Ordering::SeqCst);
        let damage = |direction: u64| every.map(|every| Damage::new(2 * number + direction + 1, every));
        let (shared, mut damaging) = (Arc::clone(self), damage(0));
        pass(client.try_clone()?, server.try_clone()?, move |bytes| {
            shared.see(0, bytes, damaging.as_mut());
            let end = shared.first_ends_after.load(Ordering::SeqCst);
            if number == 0 && end > 0 && shared.bytes[0].load(Ordering::SeqCst) > end {
                lock(&shared.open).remove(&0).iter().for_each(shut_down);
            }
            shared.wait(|held| held.is_silent || number < held.stalled);
        });
        let (shared, mut damaging) = (Arc::clone(self), damage(1));
        pass(server, client, move |bytes| {
            shared.see(1, bytes, damaging.as_mut());
            let above = shared.damage_above.load(Ordering::SeqCst);
            if above > 0 && bytes.len() > above {
                bytes[above / 2] ^= 1;
                shared.damage_above.store(0, Ordering::SeqCst);
            }
            shared.wait(|held| held.is_silent);
        });
        Ok(())
    }

    fn wait(&self, is_held: impl Fn(&Held) -> bool) {
        drop(self.goes_on.wait_while(lock(&self.held), |held| is_held(held)));
    }

    fn see(&self, direction: usize, bytes: &mut [u8], damage: Option<&mut Damage>) {
        self.bytes[direction].fetch_add(bytes.len(), Ordering::SeqCst);
        if let Some(damage) = damage {
            self.flipped_bits.fetch_add(damage.hit(bytes), Ordering::SeqCst);
        }
    }
}

/// The flipped bits in one direction of one connection.
struct Damage {
    /// The position in the stream, and that of the next damaged byte.
    at: u64,
    next: u64,
    /// The mean number of bytes between two damaged ones.
    every: u64,
    dice: Dice,
}

impl Damage {
    fn new(seed: u64, every: u64) -> Self {
        let dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut damage = Self { at: 0, next: LOGIN_BYTES, every, dice };
        damage.move_on();
        damage
    }

    /// Flips the bits that are due in the next bytes of the stream, and returns how many.
    fn hit(&mut self, bytes: &mut [u8]) -> u64 {
        let end = self.at + bytes.len() as u64;
        let mut flipped = 0;
        while self.next < end {
            bytes[(self.next - self.at) as usize] ^= 1 << self.dice.below(8);
            flipped += 1;
            self.move_on();
        }
        self.at = end;
        flipped
    }

    fn move_on(&mut self) {
        self.next += 1 + self.dice.below(2 * self.every as usize) as u64;
    }
}

fn any_port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port on the loopback interface")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics with it")
}

fn shut_down(ends: &[TcpStream; 2]) {
    for end in ends {
        // It may have ended already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, look: impl FnMut(&mut [u8]) + Send + 'static) {
    let mut look = look;
    thread::spawn(move || {
        let mut bytes = vec![0; 256 << 10];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            look(&mut bytes[..len]);
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        // The other direction ends with this one.
        shut_down(&[from, to]);
    });
}
