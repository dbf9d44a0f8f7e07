//! `lunette-lab stream`: one TCP connection that always has something to send, to measure what TCP alone carries.
//!
//! The client says in nine bytes which side sends and for how long; the receiver measures. When the client sends, the
//! server answers with what it has measured.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::net::sys;

const CHUNK: usize = 256 << 10;
const REQUEST_LEN: usize = 9;
/// The longest warm-up or time that a server agrees to: an hour.
const MAX_MS: u32 = 3_600_000;

/// Measure what one TCP connection carries.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    /// Where the server listens; it ends when it is killed
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "server")]
    listen: Option<SocketAddr>,
    /// The server to connect to
    #[arg(required_unless_present = "listen")]
    server: Option<SocketAddr>,
    /// Receive, instead of sending
    #[arg(long)]
    receive: bool,
    /// Seconds before the measurement
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Seconds that are measured
    #[arg(long, default_value_t = 2.0)]
    time: f64,
}

/// The output, as one line of JSON.
#[derive(Serialize)]
struct Report {
    bytes: u64,
    seconds: f64,
    mb_per_s: f64,
    /// The bytes that the receiver allowed to be on the way at the end.
    window_bytes: u32,
}

/// The request of the client.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    client_receives: bool,
    warm_up: Duration,
    time: Duration,
}

/// The measurements of a receiver.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Received {
    bytes: u64,
    seconds: f64,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match (options.listen, options.server) {
        (Some(address), _) => serve(address),
        (None, Some(server)) => measure(options, server).map(|()| ExitCode::SUCCESS),
        (None, None) => bail!("name a server, or an address to listen on"),
    }
}

fn serve(address: SocketAddr) -> Result<ExitCode> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    loop {
        let (stream, peer) = listener.accept().context("cannot accept connections")?;
        if let Err(error) = answer(stream) {
            eprintln!("warning: {peer}: {error:#}");
        }
    }
}

fn answer(mut stream: TcpStream) -> Result<()> {
    let mut request = [0; REQUEST_LEN];
    stream.read_exact(&mut request)?;
    let request = Request::parse(request)?;
    if request.client_receives {
        let chunk = vec![0; CHUNK];
        // The client has what it wants when it ends the connection.
        while stream.write_all(&chunk).is_ok() {}
        return Ok(());
    }
    let received = receive(&mut stream, request)?;
    stream.write_all(&serde_json::to_vec(&received)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut rest = vec![0; CHUNK];
    while stream.read(&mut rest)? > 0 {}
    Ok(())
}

fn measure(options: &Options, server: SocketAddr) -> Result<()> {
    let seconds = |seconds| Duration::try_from_secs_f64(seconds).context("a time is a positive number of seconds");
    let request =
        Request { client_receives: options.receive, warm_up: seconds(options.warm_up)?, time: seconds(options.time)? };
    let mut stream = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
    stream.write_all(&request.encode()?)?;
    let (Received { bytes, seconds }, window_bytes) = if options.receive {
        let received = receive(&mut stream, request)?;
        (received, sys::tcp_windows(stream.as_fd())?.received)
    } else {
        send(&stream)?
    };
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let report = Report { bytes, seconds, mb_per_s: bytes as f64 / seconds / 1e6, window_bytes };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// Sends until the server has measured.
fn send(stream: &TcpStream) -> Result<(Received, u32)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let chunk = vec![0; CHUNK];
            while !over.load(Ordering::Relaxed) {
                if (&*stream).write_all(&chunk).is_err() {
                    break;
                }
            }
            // The server ends when nothing follows.
            let _ = stream.shutdown(Shutdown::Write);
        });
        let mut answer = Vec::new();
        let outcome = (&*stream).read_to_end(&mut answer);
        let window = sys::tcp_windows(stream.as_fd());
        over.store(true, Ordering::Relaxed);
        outcome.context("no answer")?;
        Ok((serde_json::from_slice(&answer).context("the answer is no measurement")?, window?.sent))
    })
}

/// Receives for as long as the request says and counts what comes after the warm-up.
fn receive(stream: &mut TcpStream, request: Request) -> Result<Received> {
    let mut chunk = vec![0; CHUNK];
    let start = Instant::now();
    let (mut bytes, mut from) = (0, None);
    loop {
        let len = stream.read(&mut chunk)?;
        let now = Instant::now();
        ensure!(len > 0, "the sender has ended too early");
        match from {
            None if now - start >= request.warm_up => from = Some(now),
            None => {}
            Some(from) => {
                bytes += len as u64;
                if now - from >= request.time {
                    return Ok(Received { bytes, seconds: (now - from).as_secs_f64() });
                }
            }
        }
    }
}

impl Request {
    fn encode(self) -> Result<[u8; REQUEST_LEN]> {
        let mut bytes = [0; REQUEST_LEN];
        bytes[0] = self.client_receives.into();
        for (place, time) in [(1, self.warm_up), (5, self.time)] {
            let milliseconds = u32::try_from(time.as_millis()).ok().filter(|time| *time <= MAX_MS);
            let milliseconds = milliseconds.context("an hour is the longest time")?;
            bytes[place..place + 4].copy_from_slice(&milliseconds.to_be_bytes());
        }
        Ok(bytes)
    }

    fn parse(bytes: [u8; REQUEST_LEN]) -> Result<Self> {
        let direction = bytes[0];
        let times = [1, 5].map(|at| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        ensure!(direction <= 1 && times.iter().all(|time| *time <= MAX_MS), "this is no request of the client");
        let [warm_up, time] = times.map(|time| Duration::from_millis(time.into()));
        Ok(Self { client_receives: direction == 1, warm_up, time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let request =
            Request { client_receives: true, warm_up: Duration::from_millis(1500), time: Duration::from_secs(2) };
        assert_eq!(Request::parse(request.encode().expect("short times")).expect("a request"), request);
        assert!(Request { time: Duration::from_hours(2), ..request }.encode().is_err());
        assert!(Request::parse(*b"GET / HTT").is_err());
    }

    #[test]
    fn both_directions_are_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = thread::spawn(move || {
            for _ in 0..2 {
                answer(listener.accept().expect("a client").0).expect("a client that stays");
            }
        });
        for receive in [false, true] {
            let options = Options { listen: None, server: Some(address), receive, warm_up: 0.01, time: 0.02 };
            measure(&options, address).expect("a measurement");
        }
        server.join().expect("the server ends");
    }
}
