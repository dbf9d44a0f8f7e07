//! The share of two CPUs that each layer has, from samples of `perf`.
//!
//! The first CPU is that of the near end, the second one that of the far end: their processes stay there (`--pin`), and
//! so does the work on packets that come to them (`--rps`). So a CPU is sampled as a whole, as OProfile did for the
//! paper. A sample counts when one of the laboratory's processes runs, or when the system works on packets, whatever it
//! has interrupted for that. All other samples are idle time and other work.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Deserialize;

use crate::experiment::Figures;

/// Samples a second; a prime, so that they do not fall into step with periodic work.
const FREQUENCY: &str = "3989";
/// The program that samples.
pub(super) const PROGRAM: &str = "perf";

/// The layers of the paper, and what is between them, as figures name them.
pub(super) const LAYERS: [&str; 10] =
    ["iscsi", "scsi", "digest", "copy", "checksum", "driver", "tcp_ip", "memory", "event_loop", "system"];
/// The two ends, in the order of their CPUs.
pub(super) const ENDS: [&str; 2] = ["client", "server"];
/// The part of an end's CPU that was not idle, in a figure's name.
pub(super) const BUSY: &str = "busy";

/// The name of the figure that is the share of a layer, in percent of the end's CPU.
pub(super) fn figure(end: &str, layer: &str) -> String {
    format!("{end}_{layer}_percent")
}

/// Work on packets, in the place of whatever a CPU did before.
const ON_PACKETS: [&str; 2] = ["net_rx_action", "net_tx_action"];
/// The function in the place of a network card that writes to memory: the copy that a pair of interfaces makes of bytes
/// that were sent without one.
const CARD: &str = "skb_copy_ubufs";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kernel: Vec<Entry>,
    user: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    layer: String,
    names: Vec<String>,
}

impl Table {
    fn get() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| toml::from_str(include_str!("../layers.toml")).expect("the table of layers is right"))
    }

    /// The layer of a function.
    fn layer(&self, symbol: &str, in_kernel: bool) -> &str {
        let bare = symbol.trim_start_matches('_');
        let fits =
            |name: &&String| bare.starts_with(&***name) || (name.starts_with("lunette_") && symbol.contains(&***name));
        let (entries, otherwise) = if in_kernel { (&self.kernel, "system") } else { (&self.user, "event_loop") };
        let found = entries.iter().find(|entry| entry.names.iter().any(|name| fits(&name)));
        found.map_or(otherwise, |entry| &entry.layer)
    }
}

/// The command that `perf` runs while it samples: it says when that begins and ends, so that requests are counted for
/// the same time.
fn marked(seconds: f64) -> String {
    format!("echo >&2; sleep {seconds}; echo >&2")
}

/// How far the sampling is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub(super) enum Phase {
    Before,
    Within,
    After,
}

/// `perf` at work on both CPUs, for some seconds. `tell` is called when these begin, and when they end.
pub(super) fn sample(seconds: f64, tell: impl Fn(Phase)) -> Result<File> {
    // A file without a name, so that nothing is left behind.
    let samples = File::from(memfd_create("samples", MemfdFlags::CLOEXEC)?);
    let mut perf = Command::new(PROGRAM);
    perf.args(["record", "--quiet", "--cpu", "0,1", "--event", "cpu-clock", "--freq", FREQUENCY]);
    perf.args(["-g", "--output", "-", "--", "sh", "-c", &marked(seconds)]);
    perf.stdin(Stdio::null()).stdout(samples.try_clone()?).stderr(Stdio::piped());
    let mut perf = perf.spawn().with_context(|| format!("cannot run {PROGRAM}"))?;
    let marks = perf.stderr.take().context("a pipe was asked for")?;
    let mut phases = [Phase::Within, Phase::After].into_iter();
    // Perf's own messages are not empty.
    for line in BufReader::new(marks).lines() {
        if line?.is_empty()
            && let Some(phase) = phases.next()
        {
            tell(phase);
        }
    }
    ensure!(perf.wait()?.success(), "{PROGRAM} record has failed; see kernel.perf_event_paranoid");
    Ok(samples)
}

/// The shares of all layers at both ends, and that of the time that was not idle.
pub(super) fn shares(mut samples: File) -> Result<Figures> {
    samples.rewind()?;
    let mut perf = Command::new(PROGRAM);
    perf.args(["script", "--no-inline", "--input", "-", "--fields", "comm,pid,cpu,ip,sym,dso"]);
    let mut perf = perf.stdin(samples).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut script = String::new();
    // Names of processes may be anything.
    let mut bytes = Vec::new();
    perf.stdout.take().context("a pipe was asked for")?.read_to_end(&mut bytes)?;
    script.push_str(&String::from_utf8_lossy(&bytes));
    ensure!(perf.wait()?.success(), "{PROGRAM} script has failed");
    counted(&script)
}

/// The figures from the output of `perf script`: a line for each sample, the functions that were active, and an empty
/// line.
fn counted(script: &str) -> Result<Figures> {
    let mut all = [0_u32; ENDS.len()];
    let mut layers: [BTreeMap<&str, u32>; ENDS.len()] = Default::default();
    for sample in script.split("\n\n").filter_map(Sample::parse) {
        let Some(count) = all.get_mut(sample.cpu) else { continue };
        *count += 1;
        if let Some(layer) = sample.layer() {
            *layers[sample.cpu].entry(layer).or_default() += 1;
        }
    }
    let mut figures = Figures::new();
    for ((end, all), layers) in ENDS.into_iter().zip(all).zip(&layers) {
        if all == 0 {
            bail!("{PROGRAM} has no samples of the {end}'s CPU");
        }
        let percent = |count: u32| 100.0 * f64::from(count) / f64::from(all);
        figures.insert(figure(end, BUSY), percent(layers.values().sum()));
        for layer in LAYERS {
            figures.insert(figure(end, layer), percent(layers.get(layer).copied().unwrap_or(0)));
        }
    }
    Ok(figures)
}

/// One sample.
struct Sample<'a> {
    command: &'a str,
    pid: u32,
    cpu: usize,
    /// The functions that were active, innermost first, with whether they are the kernel's.
    functions: Vec<(&'a str, bool)>,
}

impl<'a> Sample<'a> {
    /// Reads `COMMAND PID [CPU]`, and lines of `ADDRESS NAME (FILE)`.
    fn parse(text: &'a str) -> Option<Self> {
        let mut lines = text.trim_start_matches('\n').lines();
        let (head, rest) = lines.next()?.rsplit_once('[')?;
        let cpu = rest.split(']').next()?.parse().ok()?;
        let (command, pid) = head.trim().rsplit_once(' ')?;
        let function = |line: &'a str| {
            let (_, named) = line.trim_start().split_once(' ')?;
            let (symbol, file) = named.trim().rsplit_once(" (")?;
            Some((symbol, file.starts_with("[kernel") || file.starts_with("[guest")))
        };
        Some(Self {
            command: command.trim(),
            pid: pid.parse().ok()?,
            cpu,
            functions: lines.filter_map(function).collect(),
        })
    }

    /// Where the time went. `None`: it was idle, or did something else, or measured.
    fn layer(&self) -> Option<&'static str> {
        let (symbol, in_kernel) = self.functions.first()?;
        let is_active = |name: &str| self.functions.iter().any(|(symbol, _)| *symbol == name);
        // Processes of other namespaces have the number 0, as idle CPUs do.
        let is_ours = self.pid != 0 && !self.command.starts_with(PROGRAM);
        let counts = (is_ours || ON_PACKETS.iter().any(|name| is_active(name))) && !is_active(CARD);
        counts.then(|| Table::get().layer(symbol, *in_kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "lunette-lab   17 [000] \n\
        \tffffffff81b6c6b4 _copy_from_iter ([kernel.kallsyms])\n\tffffffff81b6c6b4 tcp_sendmsg_locked ([kernel.kallsyms])\n\n\
        swapper     0 [000] \n\tffffffff822f2c2b pv_native_safe_halt ([kernel.kallsyms])\n\n\
        cargo build     0 [000] \n\tffffffff822f2c2b tcp_ack ([kernel.kallsyms])\n\tffffffff822f2c2b net_rx_action ([kernel.kallsyms])\n\n\
        perf    18 [000] \n\tffffffff822f2c2b memcpy ([kernel.kallsyms])\n\n\
        lunette    19 [001] \n\t    55d0c0de1234 <lunette_buffer::memory::Handle as core::ops::drop::Drop>::drop (/bin/lunette)\n\n\
        swapper     0 [001] \n\tffffffff822f2c2b memcpy ([kernel.kallsyms])\n\tffffffff822f2c2b skb_copy_ubufs ([kernel.kallsyms])\n\
        \tffffffff822f2c2b net_rx_action ([kernel.kallsyms])\n";

    #[test]
    fn samples_count_for_the_end_whose_cpu_they_are_of() {
        let figures = counted(SCRIPT).expect("samples of both");
        let close = |name: &str, value: f64| assert!((figures[name] - value).abs() < 1e-9, "{name}: {}", figures[name]);
        close("client_busy_percent", 50.0);
        close("client_copy_percent", 25.0);
        close("client_tcp_ip_percent", 25.0);
        close("server_memory_percent", 50.0);
        close("server_busy_percent", 50.0);
        assert_eq!(figures.len(), 2 * (1 + LAYERS.len()));
    }

    #[test]
    fn an_end_without_samples_is_an_error() {
        let (first, _) = SCRIPT.split_once("lunette    19").expect("the second CPU");
        assert!(counted(first).is_err());
    }

    #[test]
    fn functions_find_their_layer() {
        for (symbol, in_kernel, layer) in [
            ("_copy_from_iter", true, "copy"),
            ("__pi_memcpy", true, "copy"),
            ("csum_partial", true, "checksum"),
            ("skb_checksum", true, "checksum"),
            ("tcp_sendmsg_locked", true, "tcp_ip"),
            ("tcp_zerocopy_vm_insert_batch", true, "memory"),
            ("zap_page_range_single", true, "memory"),
            ("skb_page_frag_refill", true, "memory"),
            ("__netif_receive_skb_core.constprop.0", true, "driver"),
            ("_raw_spin_unlock_irqrestore", true, "system"),
            ("__memset_avx512_unaligned_erms", false, "copy"),
            ("lunette_session::outbox::Outbox::push", false, "iscsi"),
            ("[unknown]", false, "event_loop"),
        ] {
            assert_eq!(Table::get().layer(symbol, in_kernel), layer, "{symbol}");
        }
        for entry in Table::get().kernel.iter().chain(&Table::get().user) {
            assert!(LAYERS.contains(&&*entry.layer), "{}", entry.layer);
        }
    }
}
