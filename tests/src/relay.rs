//! A wire that counts.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Passes TCP connections on to another address, and counts their bytes in both directions.
pub struct Relay {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
}

impl Relay {
    /// Listens until the process ends.
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on the loopback interface");
        let address = listener.local_addr().expect("a bound socket has an address");
        let bytes = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&bytes);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A target that is gone is told by closing the client.
                let _ = pass(client, target, &counter);
            }
        });
        Self { address, bytes }
    }

    /// `url` with this relay as its portal.
    pub fn url(&self, url: &str) -> String {
        let rest = url.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        format!("iscsi://{}/{}", self.address, rest.expect("iscsi://HOST:PORT/TARGET/LUN").1)
    }

    /// Bytes since the last time that this was asked.
    pub fn take_bytes(&self) -> u64 {
        self.bytes.swap(0, Ordering::Relaxed)
    }
}

fn pass(client: TcpStream, target: SocketAddr, counter: &Arc<AtomicU64>) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let counter = Arc::clone(counter);
        thread::spawn(move || one_way(from, to, &counter));
    }
    Ok(())
}

fn one_way(mut from: TcpStream, mut to: TcpStream, counter: &AtomicU64) {
    let mut bytes = vec![0; 256 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        counter.fetch_add(len as u64, Ordering::Relaxed);
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    // The other direction ends with this one; it may have ended already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
