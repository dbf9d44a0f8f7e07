//! The request of one cell, and the command lines that measure it.

use anyhow::Result;
use serde_json::Value;

use super::load::Way;
use crate::experiment::commands::{MB_PER_S, NAME, PORT, json, number};
use crate::experiment::{Cell, Figures};

/// CPU time of a request in µs, of clients that say it themselves.
pub(super) const CPU_US: &str = "cpu_us_per_io";
/// The line of requests: with the paper's 1 Gb/s, a CPU of today is idle for 90% and more of the time.
const RATE: &str = "2.5G";
/// The line of the paper, which the sender of payloads for other pages fills.
const PAPER_RATE: &str = "1G";
/// Requests in flight.
pub(super) const DEPTH: u32 = 8;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spec {
    /// Requests of one length.
    Load { write: bool, len: u32, mtu: u16, with: With },
    /// Writes of a file's bytes, as fast as the machine.
    File { way: Way, len: u32 },
    /// The product, in the place of the laboratory's client.
    Shipping { write: bool, len: u32 },
    /// Payloads that are received.
    Remap { mtu: u16, len: u32, copy: bool },
    /// Pages that are rewritten while they are sent.
    Rewrite { pages: bool, blocks: Blocks, seconds: u32 },
}

/// The help for the CPU, as the paper adds it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    Nothing,
    /// The interfaces stand for checksums.
    Checksums,
    /// Data is also sent from the pages of a file: by the initiator for writes, by the target for reads.
    ZeroCopy,
    /// The interfaces also segment and join packets.
    Segments,
}

impl With {
    pub(super) const ALL: [Self; 4] = [Self::Nothing, Self::Checksums, Self::ZeroCopy, Self::Segments];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Checksums => "checksum offload",
            Self::ZeroCopy => "and zero-copy",
            Self::Segments => "and TSO",
        }
    }
}

/// The content of the blocks that are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    /// Plain data, without digests.
    Plain,
    /// Plain data, with digests.
    Digested,
    /// EDUs, with digests.
    Quanta,
}

impl Spec {
    /// The command lines.
    pub(super) fn cell(&self) -> Cell {
        let (client, read): (String, fn(&str) -> Result<Figures>) = match self {
            Self::Shipping { write, len } => {
                let (rw, url) = (if *write { "write" } else { "read" }, format!("iscsi://'$LAB_PEER'/{NAME}/0"));
                let bench = format!("lunette bench '{url}' --rw {rw} --bs {len} --depth {DEPTH}");
                (format!("{bench} --warm-up 0.2 --time 1 --json"), read_bench)
            }
            Self::Load { write, len, with, .. } => {
                let zero_copy = matches!(with, With::ZeroCopy | With::Segments);
                let way = match (write, zero_copy) {
                    (false, _) => "",
                    (true, false) => " --write memory",
                    (true, true) => " --write pages",
                };
                (format!("lunette-lab load $LAB_PEER:{PORT}{way} --bs {len} --depth {DEPTH} --layers"), read_figures)
            }
            Self::File { way, len } => {
                let way = way.name();
                (
                    format!("lunette-lab load $LAB_PEER:{PORT} --write {way} --bs {len} --depth {DEPTH} --layers"),
                    read_figures,
                )
            }
            Self::Remap { len, copy, .. } => {
                let copy = if *copy { " --copy" } else { "" };
                (format!("lunette-lab remap $LAB_PEER:{PORT} --pdu {len}{copy} --layers"), read_figures)
            }
            Self::Rewrite { pages, blocks, seconds } => {
                let pages = if *pages { " --pages" } else { "" };
                let blocks = match blocks {
                    Blocks::Plain => "",
                    Blocks::Digested => " --digests",
                    Blocks::Quanta => " --digests --quanta",
                };
                (format!("lunette-lab rewrite $LAB_PEER:{PORT}{pages}{blocks} --time {seconds}"), read_figures)
            }
        };
        Cell { link: self.link(), serve: self.serve(), port: PORT, prepare: None, client, read }
    }

    fn link(&self) -> Vec<String> {
        let line = |rate: &str, mtu: u16, with: With| {
            let on = |on: bool| if on { "on" } else { "off" };
            let (checksums, segments) = (on(with != With::Nothing), on(with == With::Segments));
            format!("--veth --pin --rps --rate {rate} --mtu {mtu} --checksums {checksums} --offloads {segments}")
        };
        let text = match self {
            Self::Load { mtu, with, .. } => line(RATE, *mtu, *with),
            Self::Remap { mtu, .. } => line(PAPER_RATE, *mtu, With::ZeroCopy),
            Self::Rewrite { .. } => line(PAPER_RATE, 9000, With::ZeroCopy),
            // Today's settings.
            Self::File { .. } => "--veth --pin --mtu 1500".into(),
            Self::Shipping { .. } => line(RATE, 1500, With::Checksums),
        };
        text.split(' ').map(String::from).collect()
    }

    /// The server: a disk in memory, or a file in memory for reads without copies.
    fn serve(&self) -> String {
        let (make, disk) = match self {
            Self::Remap { len, .. } => return format!("lunette-lab remap --listen 0.0.0.0:{PORT} --pdu {len}"),
            Self::Load { write: false, with, .. } => {
                let zero_copy = matches!(with, With::ZeroCopy | With::Segments);
                let make = "mount -t tmpfs lab /mnt && head -c 1M /dev/urandom >/mnt/disk && ";
                (make, format!("\"/mnt/disk\",zero_copy={zero_copy}"))
            }
            Self::Rewrite { blocks: Blocks::Quanta, .. } => ("", "\"mem:32M\",quantum=4096,stored_digests=true".into()),
            _ => ("", "\"mem:32M\"".into()),
        };
        format!(
            "{make}printf 'listen=[\"0.0.0.0:{PORT}\"]\\n[[target]]\\nname=\"{NAME}\"\\nlun=[{{number=0,disk={disk}}}]\\n\
             session={{error_recovery_level=1}}\\n' | RUST_LOG=error lunette serve --config /dev/stdin >/dev/null"
        )
    }
}

/// An object of numbers.
fn read_figures(output: &str) -> Result<Figures> {
    let Value::Object(figures) = json(output)? else { anyhow::bail!("no figures in {output:?}") };
    Ok(figures.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect())
}

fn read_bench(output: &str) -> Result<Figures> {
    let output = json(output)?;
    Ok(Figures::from([
        (MB_PER_S.into(), number(&output, "/gb_per_s")? * 1e3),
        (CPU_US.into(), number(&output, "/cpu_us_per_io")?),
    ]))
}
