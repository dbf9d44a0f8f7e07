//! `lunette-lab remap`: received data by page, in the place of a copy.
//!
//! A sender makes a stream of Data-In PDUs, and a receiver takes it as an initiator would: each header by itself, then
//! the payload into its place. The system can show received pages at addresses of the receiver
//! (`TCP_ZEROCOPY_RECEIVE`), but whole ones alone. So the sender does what a network card that splits headers from
//! payloads would: a header shares no segment with a payload, and payloads come in pages of their own, which nothing
//! else uses.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lunette_buffer::Pool;
use lunette_pdu::{BHS_LEN, Bhs, DataIn, InitiatorTaskTag, LunField, SerialNumber, TargetPdu, TargetTransferTag};
use rustix::event::{PollFd, PollFlags, poll};

use super::layers;
use super::load::{Clock, IOPS, own_cpu};
use super::socket::{self, Window};
use crate::experiment::Figures;
use crate::experiment::commands::MB_PER_S;

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;
/// The longest payload.
const MAX_BYTES: u32 = 256 << 10;
/// The share of the payload that came without a copy, in percent.
pub(super) const MAPPED: &str = "mapped_percent";

/// One TCP connection with Data-In PDUs, whose receiver takes payloads by page or by copy.
///
/// The receiver prints what it has measured as one line of JSON.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    /// Where the sender listens; it ends when it is killed
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "sender")]
    listen: Option<SocketAddr>,
    /// The sender to connect to
    #[arg(required_unless_present = "listen")]
    sender: Option<SocketAddr>,
    /// Bytes of each payload
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(i64::from(PAGE as u32)..=i64::from(MAX_BYTES)))]
    pdu: u32,
    /// Copy the payloads
    #[arg(long)]
    copy: bool,
    /// Seconds before the measurement
    #[arg(long, default_value_t = 0.2)]
    warm_up: f64,
    /// Seconds that are measured
    #[arg(long, default_value_t = 1.0)]
    time: f64,
    /// Sample the first two CPUs with perf, and print the share of each layer
    #[arg(long)]
    layers: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match (options.listen, options.sender) {
        (Some(address), _) => serve(address, options.pdu as usize),
        (None, Some(sender)) => {
            println!("{}", serde_json::to_string(&measure(sender, options)?)?);
            Ok(ExitCode::SUCCESS)
        }
        (None, None) => bail!("name a sender, or an address to listen on"),
    }
}

/// Sends PDUs to one receiver after the other.
fn serve(address: SocketAddr, len: usize) -> Result<ExitCode> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let mut data = Pool::new(2 * MAX_BYTES as usize).take(len).context("memory for a payload")?;
    data.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
    let header = DataIn {
        final_: true,
        acknowledge: false,
        status: None,
        lun: LunField::default(),
        itt: InitiatorTaskTag(1),
        ttt: TargetTransferTag::RESERVED,
        exp_cmd_sn: SerialNumber(1),
        max_cmd_sn: SerialNumber(2),
        data_sn: 0,
        buffer_offset: 0,
        data_segment_len: len,
    };
    let header = header.emit();
    loop {
        let (stream, _) = listener.accept().context("cannot accept connections")?;
        stream.set_nodelay(true)?;
        socket::allow_zero_copy(&stream)?;
        // It ends when the receiver has enough.
        while send_pdu(&stream, &header, &data).is_ok() {}
    }
}

fn send_pdu(stream: &TcpStream, header: &[u8; BHS_LEN], data: &[u8]) -> Result<()> {
    ensure!(socket::send_apart(stream, header)? == BHS_LEN, "a header is sent whole");
    let mut sent = 0;
    while sent < data.len() {
        sent += socket::send_zero_copy(stream, &data[sent..], true)?;
    }
    Ok(())
}

/// The byte of all payloads at an offset.
fn pattern(at: usize) -> u8 {
    (at / PAGE + 1) as u8
}

/// The receiver of the stream.
struct Receiver {
    stream: TcpStream,
    /// Where payloads are shown, unless they are copied.
    window: Option<Window>,
    /// Where they are copied to.
    place: lunette_buffer::Buffer,
    payload: u64,
    mapped: u64,
}

fn measure(sender: SocketAddr, options: &Options) -> Result<Figures> {
    let len = options.pdu as usize;
    let stream = TcpStream::connect(sender).with_context(|| format!("cannot reach {sender}"))?;
    // A payload wakes the receiver when all of it is there.
    socket::set_low_water(&stream, len)?;
    let window = (!options.copy).then(|| Window::new(&stream, len)).transpose()?;
    let place = Pool::new(2 * MAX_BYTES as usize).take(len).context("memory for a payload")?;
    let mut receiver = Receiver { stream, window, place, payload: 0, mapped: 0 };
    let end = Instant::now() + Duration::from_secs_f64(options.warm_up);
    while Instant::now() < end {
        let mapped = receiver.pdu(len)?;
        receiver.check(len, &mapped)?;
    }
    let clock = Clock::start(options.time, options.layers);
    while !clock.has_begun() {
        receiver.pdu(len)?;
    }
    (receiver.payload, receiver.mapped) = (0, 0);
    let (began, cpu) = (Instant::now(), own_cpu());
    while !clock.is_over() {
        receiver.pdu(len)?;
    }
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), own_cpu().saturating_sub(cpu).as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "below 2^52")]
    let [payload, mapped, len] = [receiver.payload as f64, receiver.mapped as f64, len as f64];
    let mut figures = Figures::from([
        (IOPS.into(), payload / len / seconds),
        (MB_PER_S.into(), payload / seconds / 1e6),
        (MAPPED.into(), 100.0 * mapped / payload),
        (layers::figure(layers::ENDS[0], layers::BUSY), 100.0 * cpu / seconds),
    ]);
    figures.extend(clock.layers());
    Ok(figures)
}

impl Receiver {
    /// Takes one PDU. Gives the runs of its payload that are shown as pages: where they begin, and their lengths.
    fn pdu(&mut self, len: usize) -> Result<Vec<(usize, usize)>> {
        let mut header = [0; BHS_LEN];
        self.stream.read_exact(&mut header)?;
        let header = Bhs::from(header);
        let TargetPdu::DataIn(pdu) = TargetPdu::parse(&header)? else { bail!("the sender sends Data-In alone") };
        ensure!(pdu.data_segment_len == len, "the sender was started with --pdu {}", pdu.data_segment_len);
        self.payload += len as u64;
        let mut runs = Vec::new();
        let mut at = 0;
        while at < len {
            at += match &mut self.window {
                Some(window) if at % PAGE == 0 && len - at >= PAGE => {
                    let shown = window.show(&self.stream, at, (len - at) / PAGE * PAGE)?;
                    if shown.mapped > 0 {
                        runs.push((at, shown.mapped));
                        self.mapped += shown.mapped as u64;
                        shown.mapped
                    } else if shown.to_copy > 0 {
                        let end = len.min(at + shown.to_copy);
                        self.stream.read(&mut self.place[at..end])?
                    } else {
                        poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], None)?;
                        continue;
                    }
                }
                _ => {
                    let copied = self.stream.read(&mut self.place[at..len])?;
                    ensure!(copied > 0, "the sender has closed the connection");
                    copied
                }
            };
        }
        Ok(runs)
    }

    /// Whether a payload is what was sent.
    fn check(&self, len: usize, mapped: &[(usize, usize)]) -> Result<()> {
        for at in (0..len).step_by(PAGE / 2) {
            let run = mapped.iter().find(|(start, len)| (*start..start + len).contains(&at));
            let byte = match (&self.window, run) {
                (Some(window), Some(_)) => window.byte(at),
                _ => self.place[at],
            };
            ensure!(byte == pattern(at), "byte {at} of a payload is {byte}, and not {}", pattern(at));
        }
        Ok(())
    }
}
