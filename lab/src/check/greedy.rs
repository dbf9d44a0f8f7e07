//! One TCP connection that always has something to send.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::net::{End, Pair, sys};

/// Until TCP has found the rate: a time, and round trips.
const WARM_UP: Duration = Duration::from_millis(600);
const WARM_UP_ROUND_TRIPS: u32 = 25;
/// How long is measured.
const MEASURED: Duration = Duration::from_millis(500);
const MEASURED_ROUND_TRIPS: u32 = 4;
/// The measurement lasts at least as long as these packets take, so that one more or less is no matter.
pub(crate) const MEASURED_PACKETS: u64 = 50;
/// How often the sender sees whether it is over.
const LOOK: Duration = Duration::from_millis(100);
const CHUNK: usize = 256 << 10;
/// Fills the rate without pacing, and every system has it.
const CONGESTION_CONTROL: &str = "cubic";
/// The setting that keeps other connections from learning from this one.
const NO_METRICS: &str = "net.ipv4.tcp_no_metrics_save";

/// Payload per second that arrives at the far end, with windows of up to that many bytes. It is measured for `least` at
/// least.
pub(crate) fn bits_per_second(pair: &Pair, round_trip: Duration, least: Duration, window: u64) -> Result<f64> {
    let _windows = [
        Changed::set(&pair.near, "net.ipv4.tcp_wmem", &format!("4096 65536 {window}"))?,
        Changed::set(&pair.far, "net.ipv4.tcp_rmem", &format!("4096 131072 {window}"))?,
        Changed::set(&pair.near, NO_METRICS, "1")?,
        Changed::set(&pair.far, NO_METRICS, "1")?,
    ];
    let received = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let (address, sink) = receive(&pair.far, &received)?;
    let source = send(&pair.near, address, &over)?;
    thread::sleep(WARM_UP + WARM_UP_ROUND_TRIPS * round_trip);
    let (began, before) = (Instant::now(), received.load(Ordering::Relaxed));
    thread::sleep(least.max(MEASURED + MEASURED_ROUND_TRIPS * round_trip));
    let bytes = received.load(Ordering::Relaxed) - before;
    let seconds = began.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    source.join().expect("the sender does not panic").context("the sender failed")?;
    sink.join().expect("the receiver does not panic");
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok(bytes as f64 * 8.0 / seconds)
}

/// A sysctl that gets its old value back.
struct Changed<'a> {
    end: &'a End,
    key: &'static str,
    before: String,
}

impl<'a> Changed<'a> {
    fn set(end: &'a End, key: &'static str, value: &str) -> Result<Self> {
        let before = end.sysctl(key)?;
        end.set_sysctl(key, value)?;
        Ok(Self { end, key, before })
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        // The namespace is this process's own: what could be set can be set back.
        let _ = self.end.set_sysctl(self.key, &self.before);
    }
}

/// Starts a thread that takes one connection and counts its bytes, until it ends.
fn receive(end: &End, received: &Arc<AtomicU64>) -> Result<(SocketAddr, JoinHandle<()>)> {
    let address = SocketAddr::new(end.address.into(), 0);
    let listener = end.namespace.run(move || TcpListener::bind(address))?;
    let address = listener.local_addr()?;
    let received = Arc::clone(received);
    let thread = thread::spawn(move || {
        // What waits in the socket because this thread does would count later, as more than the line carries.
        let _ = sys::run_first(sys::Urgency::Instrument);
        let Ok((mut stream, _)) = listener.accept() else { return };
        let mut chunk = vec![0; CHUNK];
        // The sender ends it with a reset.
        while let Ok(len @ 1..) = stream.read(&mut chunk) {
            received.fetch_add(len as u64, Ordering::Relaxed);
        }
    });
    Ok((address, thread))
}

/// Starts a thread that sends until it is over, and then drops what TCP still has.
fn send(end: &End, address: SocketAddr, over: &Arc<AtomicBool>) -> Result<JoinHandle<Result<()>>> {
    let stream = end.namespace.run(move || TcpStream::connect(address)).context("cannot connect over the link")?;
    rustix::net::sockopt::set_tcp_congestion(&stream, CONGESTION_CONTROL)
        .with_context(|| format!("cannot use {CONGESTION_CONTROL}: load the module tcp_{CONGESTION_CONTROL}"))?;
    stream.set_write_timeout(Some(LOOK))?;
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    let over = Arc::clone(over);
    Ok(thread::spawn(move || {
        let chunk = vec![0; CHUNK];
        while !over.load(Ordering::Relaxed) {
            match (&stream).write(&chunk) {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }))
}
