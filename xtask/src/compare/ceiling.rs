//! The ceiling: a client and a server that send messages of iSCSI's sizes over one TCP connection and do nothing else.
//!
//! Both answer everything that one receive has brought with one vectored send, as a good implementation of the protocol
//! would. They are separate processes, so that their CPU time is accounted like that of all others.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// The most bytes that one receive takes.
const RECEIVE_LEN: usize = 256 << 10;

/// The longest silence between two bytes before a side gives up.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// One end of the ceiling. `cargo xtask compare` starts both.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Bytes in a request.
    #[arg(long)]
    ask: usize,
    /// Bytes in its answer.
    #[arg(long)]
    answer: usize,
    #[command(subcommand)]
    side: Side,
}

#[derive(clap::Subcommand)]
enum Side {
    /// Prints its address, serves one connection and ends.
    Server,
    /// Prints a [`Report`] as JSON.
    Client {
        to: SocketAddr,
        #[arg(long)]
        depth: usize,
        #[arg(long)]
        seconds: u32,
    },
}

/// The client's measurements.
#[derive(Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) ios: u64,
    pub(super) seconds: f64,
    /// The median time from a request to its answer at depth 1, in microseconds.
    pub(super) latency_us: Option<f64>,
}

/// Runs one end until the other one ends.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { ask, answer, ref side } = *arguments;
    if ask == 0 || answer == 0 {
        bail!("messages have bytes");
    }
    match *side {
        Side::Server => serve(ask, answer)?,
        Side::Client { to, depth, seconds } => {
            let report = load(to, ask, answer, depth, Duration::from_secs(seconds.into()))?;
            println!("{}", serde_json::to_string(&report)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(ask: usize, answer: usize) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    let mut peer = Peer::new(&mut stream, ask, answer)?;
    loop {
        match peer.receive()? {
            None => return Ok(()),
            Some(requests) => peer.send(requests)?,
        }
    }
}

fn load(to: SocketAddr, ask: usize, answer: usize, depth: usize, time: Duration) -> Result<Report> {
    let mut stream = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
    let mut peer = Peer::new(&mut stream, answer, ask)?;
    let mut latencies = Vec::new();
    let (start, mut ios, mut in_flight) = (Instant::now(), 0, depth);
    let mut sent = start;
    peer.send(depth)?;
    while in_flight > 0 {
        let Some(answers) = peer.receive()? else { bail!("the server ends before its answers") };
        let now = Instant::now();
        if depth == 1 && answers == 1 {
            latencies.push(now.duration_since(sent));
        }
        ios += answers as u64;
        sent = now;
        if now.duration_since(start) < time {
            peer.send(answers)?;
        } else {
            in_flight -= answers;
        }
    }
    latencies.sort_unstable();
    let latency_us = latencies.get(latencies.len() / 2).map(|median| median.as_secs_f64() * 1e6);
    Ok(Report { ios, seconds: start.elapsed().as_secs_f64(), latency_us })
}

/// A connection on which all messages of one direction have one length.
struct Peer<'a> {
    stream: &'a mut TcpStream,
    received: Box<[u8]>,
    counter: Counter,
    message: Box<[u8]>,
}

impl<'a> Peer<'a> {
    fn new(stream: &'a mut TcpStream, receive_len: usize, send_len: usize) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_LIMIT))?;
        stream.set_write_timeout(Some(SILENCE_LIMIT))?;
        Ok(Self {
            stream,
            received: vec![0; RECEIVE_LEN].into(),
            counter: Counter { message_len: receive_len, rest: 0 },
            message: vec![0xa5; send_len].into(),
        })
    }

    /// Waits for bytes and returns how many messages they complete. `None` at the end of the stream.
    fn receive(&mut self) -> Result<Option<usize>> {
        loop {
            match self.stream.read(&mut self.received) {
                Ok(0) => return Ok(None),
                Ok(len) => return Ok(Some(self.counter.add(len))),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
    }

    /// Sends this many messages with as few calls as the kernel allows.
    fn send(&mut self, messages: usize) -> Result<()> {
        let mut slices = vec![IoSlice::new(&self.message); messages];
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match self.stream.write_vectored(left) {
                Ok(0) => bail!("the peer takes no more bytes"),
                Ok(len) => IoSlice::advance_slices(&mut left, len),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        Ok(())
    }
}

/// Counts messages of one length in a stream.
struct Counter {
    message_len: usize,
    /// Bytes still missing from the current message.
    rest: usize,
}

impl Counter {
    fn add(&mut self, len: usize) -> usize {
        self.rest += len;
        let whole = self.rest / self.message_len;
        self.rest %= self.message_len;
        whole
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn messages_count_when_they_are_whole() {
        let mut counter = Counter { message_len: 48, rest: 0 };
        assert_eq!([47, 1, 96, 100, 44].map(|len| counter.add(len)), [0, 1, 2, 2, 1]);
    }

    #[test]
    fn every_request_of_the_load_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut peer = Peer::new(&mut stream, 48, 5000).unwrap();
            let mut answered = 0;
            while let Some(requests) = peer.receive().unwrap() {
                answered += requests as u64;
                peer.send(requests).unwrap();
            }
            answered
        });
        let report = load(to, 48, 5000, 8, Duration::ZERO).unwrap();
        assert_eq!((report.ios, server.join().unwrap()), (8, 8));
    }
}
