//! The request of one cell, and the command lines that measure it.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::experiment::commands::{BLOCK_LEN, MB_PER_S, NAME, PORT, json, number, read_iscsi_perf, tgt_serve};
use crate::experiment::{Cell, Figures, Programs};
use crate::net::STATIONS;

/// The rate of the other one of two clients, of cells with two.
pub(super) const BESIDE: &str = "beside_mb_per_s";
/// CPU time of the client for 1,000 bytes of payload.
pub(super) const CLIENT_NS_PER_KB: &str = "client_ns_per_kb";
/// Bytes of payload while CPU times were counted.
pub(super) const BYTES: &str = "payload_bytes";

/// The part of the disk that is read and written. It is written before it is read, so that no read is of a hole.
const DISK_MIB: u64 = 32;
/// Bytes of a request of plain disks, and of disks of quanta: sixteen blocks of 4 KiB each.
const REQUEST_LEN: u64 = 64 << 10;
/// Requests in flight.
const DEPTH: u32 = 16;
/// The rate of the emulated link, that of the paper on distances.
const RATE: &str = "155M";
/// The most that the buffers of a TCP socket may hold there.
const TCP_BUFFER: u64 = 10 << 20;

/// Reads what a client has printed.
type Reader = fn(&str) -> Result<Figures>;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spec {
    pub(super) wire: Wire,
    pub(super) carrier: Carrier,
    pub(super) data: Data,
    pub(super) write: bool,
}

/// The link between both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire {
    /// A pair of Ethernet interfaces, as fast as the machine.
    Ethernet { mtu: u16, offloads: bool },
    /// An emulated link.
    Distance { round_trip_ms: u32, loss_percent: f64 },
    /// A shared link, with a TCP connection that reads beside the measured one.
    Shared { round_trip_ms: u32 },
}

/// The carrier of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Nothing: a file in memory is read at the near end.
    Local,
    /// iSCSI over TCP, with that many connections.
    Iscsi { connections: u8 },
    /// Plain iSCSI between tgt and libiscsi, which only reads.
    Tgt,
    /// iSCSI over TCP inside `WireGuard`, as a program (wireguard-go) provides it.
    WireGuard,
    /// The Effective Cross Layer over UDP.
    Ecl,
    /// ECL with the congestion control BBR.
    EclBbr,
    /// The Effective Cross Layer over Ethernet.
    Frames,
}

impl Carrier {
    pub(super) fn is_ecl(self) -> bool {
        matches!(self, Self::Ecl | Self::EclBbr | Self::Frames)
    }
}

/// The data that is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// A plain disk, in PDUs as long as both sides like.
    Plain,
    /// A plain disk, in PDUs of that many bytes: quanta as the paper has measured them.
    Pdus(u16),
    /// A plain disk, and all payloads are encrypted on the way.
    Sealed,
    /// A disk of quanta of 4,096 bytes, which the client encrypts.
    Encrypted,
}

impl Spec {
    /// The command lines.
    pub(super) fn cell(&self) -> Cell {
        let (serve, client, read): (String, String, Reader) = match (self.carrier, self.wire) {
            (Carrier::Local, _) => {
                ("RUST_LOG=error lunette serve mem:1M --listen $LAB_ADDRESS >/dev/null".into(), dd(), read_dd)
            }
            (Carrier::Tgt, _) => (tgt_serve(DISK_MIB), iscsi_perf(), read_perf),
            (_, Wire::Shared { .. }) => (self.serve(), self.two_clients(), read_two),
            _ => (self.serve(), self.bench(), read_bench),
        };
        Cell { link: self.link(), serve, port: PORT, prepare: self.prepare(), client, read }
    }

    fn link(&self) -> Vec<String> {
        let words = |text: String| text.split(' ').map(String::from).collect::<Vec<_>>();
        let distance = |round_trip_ms: u32, loss_percent: f64| {
            let mut options = words(format!("--rate {RATE} --rtt {round_trip_ms}ms --loss {loss_percent}%"));
            for (key, first) in [("tcp_rmem", 131_072), ("tcp_wmem", 65_536)] {
                options.extend(["--sysctl".into(), format!("net.ipv4.{key}=4096 {first} {TCP_BUFFER}")]);
            }
            options.extend(words("--sysctl net.ipv4.tcp_congestion_control=cubic".into()));
            options
        };
        match self.wire {
            Wire::Ethernet { mtu, offloads } => {
                words(format!("--veth --mtu {mtu} --offloads {} --pin", if offloads { "on" } else { "off" }))
            }
            Wire::Distance { round_trip_ms, loss_percent } => distance(round_trip_ms, loss_percent),
            Wire::Shared { round_trip_ms } => distance(round_trip_ms, 0.0),
        }
    }

    /// The program of others that it needs.
    pub(super) fn program(&self) -> Option<[&'static str; 2]> {
        match self.carrier {
            Carrier::Tgt => Some(["tgtd", "iscsi-perf"]),
            Carrier::WireGuard => Some(["wireguard-go", "wg"]),
            _ => None,
        }
    }

    /// Whether all processes of the client count for its CPU time, because it is not a single one of ours.
    pub(super) fn counts_all(&self) -> bool {
        self.program().is_some()
    }

    /// Whether the programs for it are there.
    pub(super) fn is_possible(&self, programs: &Programs) -> bool {
        self.program().into_iter().flatten().all(|name| programs.has(name))
    }

    fn mtu(&self) -> u16 {
        if let Wire::Ethernet { mtu, .. } = self.wire { mtu } else { 1500 }
    }

    fn has_offloads(&self) -> bool {
        !matches!(self.wire, Wire::Ethernet { offloads: false, .. })
    }

    /// A server over all transports. It agrees to whatever the client offers, but for the length of PDUs.
    fn serve(&self) -> String {
        let mut session = String::from("max_burst_length=\"16777215\",first_burst_length=\"16777215\"");
        if let Data::Pdus(len) = self.data {
            let _ = write!(session, ",max_recv_data_segment_length=\"{len}\"");
        }
        let quantum = if self.data == Data::Encrypted { ",quantum=4096" } else { "" };
        let protect = if self.data == Data::Sealed { "all" } else { "headers" };
        let option = if self.carrier == Carrier::EclBbr { "ecl_congestion_control=\"bbr\"\\n" } else { "" };
        let frames = if self.carrier == Carrier::Frames { ",\"eth:lab0\"" } else { "" };
        let tunnel = if self.carrier == Carrier::WireGuard { wireguard(1, self.mtu()) } else { String::new() };
        format!(
            "{tunnel}printf 'listen=[\"0.0.0.0:{PORT}\"]\\necl=[\"%s:{PORT}\"{frames}]\\necl_offloads={}\\necl_protect=\"{protect}\"\\n{option}\
             [[target]]\\nname=\"{NAME}\"\\nlun=[{{number=0,disk=\"mem:{DISK_MIB}M\"{quantum}}}]\\nsession={{{session}}}\\n' \
             $LAB_ADDRESS | RUST_LOG=error lunette serve --config /dev/stdin >/dev/null",
            self.has_offloads(),
        )
    }

    /// Where the disk is, as the client reaches it by `carrier`, for the shell.
    fn url(&self, carrier: Carrier) -> String {
        let mut query = String::new();
        if let Data::Pdus(len) = self.data {
            let _ = write!(query, "&max_recv_data_segment_length={len}");
        }
        let portal = match carrier {
            Carrier::Ecl | Carrier::EclBbr => "ecl://'$LAB_PEER'".into(),
            Carrier::Frames => format!("ecl+eth://lab0/{}", STATIONS[1]),
            Carrier::WireGuard => format!("iscsi://{TUNNEL}.2"),
            _ => "iscsi://'$LAB_PEER'".into(),
        };
        if carrier.is_ecl() {
            let offloads = if self.has_offloads() { "on" } else { "off" };
            let protect = if self.data == Data::Sealed { "all" } else { "headers" };
            let _ = write!(query, "&offloads={offloads}&protect={protect}");
        }
        if carrier == Carrier::EclBbr {
            query += "&congestion_control=bbr";
        }
        if let Carrier::Iscsi { connections: connections @ 2.. } = carrier {
            let _ = write!(query, "&connections={connections}");
        }
        format!("'{portal}/{NAME}/0?{query}'")
    }

    fn keys(&self) -> &'static str {
        if self.data == Data::Encrypted { "'&keys=file:/mnt/keys&passphrase_file=/mnt/passphrase'" } else { "" }
    }

    /// Fills the disk, of quanta as a volume whose keys are made first.
    fn prepare(&self) -> Option<String> {
        if matches!(self.carrier, Carrier::Local | Carrier::Tgt) || !matches!(self.wire, Wire::Ethernet { .. }) {
            return None;
        }
        let fill = |url: String| format!("head -c {DISK_MIB}M /dev/urandom | lunette cp - {url} >/dev/null 2>&1");
        let iscsi = self.url(Carrier::Iscsi { connections: 1 });
        Some(match self.data {
            // Each quantum is sealed, so none is a hole.
            Data::Encrypted => format!(
                "mount -t tmpfs lab /mnt && echo secret >/mnt/passphrase && \
                 lunette quanta format {iscsi} --keys file:/mnt/keys --passphrase-file /mnt/passphrase --no-holes --yes >/dev/null 2>&1"
            ),
            _ => fill(iscsi),
        })
    }

    fn bench_of(&self, carrier: Carrier) -> String {
        let rw = if self.write { "write" } else { "read" };
        let (depth, warm_up, time) = self.effort();
        let times = format!("--bs {REQUEST_LEN} --depth {depth} --warm-up {warm_up} --time {time} --json");
        format!("lunette bench {}{} --rw {rw} {times}", self.url(carrier), self.keys())
    }

    fn bench(&self) -> String {
        let bench = self.bench_of(self.carrier);
        if self.carrier != Carrier::WireGuard {
            return bench;
        }
        format!("{{ {}{bench}; status=$?; kill $tunnel; wait $tunnel; exit $status; }}", wireguard(0, self.mtu()))
    }

    /// The measured client, and one over TCP beside it. Each says which it is.
    fn two_clients(&self) -> String {
        let (measured, beside) = (self.bench(), self.bench_of(Carrier::Iscsi { connections: 1 }));
        format!("{{ {measured} | sed 's/^/measured /' & {beside} | sed 's/^/beside /' & wait; }}")
    }

    /// Requests in flight, seconds of warm-up, and seconds that are measured.
    fn effort(&self) -> (u32, f64, u32) {
        match self.wire {
            Wire::Ethernet { .. } => (DEPTH, 0.2, 1),
            // Over one TCP connection a round of all requests takes 3 s there, and two of them count at least.
            Wire::Distance { round_trip_ms, loss_percent } if round_trip_ms >= 50 && loss_percent >= 1.0 => {
                (DEPTH, 1.0, 8)
            }
            Wire::Distance { .. } => (DEPTH, 1.0, 3),
            // Two connections need many round trips until each has its share.
            Wire::Shared { .. } => (2 * DEPTH, 4.0, 16),
        }
    }
}

/// The network inside the tunnel.
const TUNNEL: &str = "198.19.0";
/// The bytes that the tunnel adds to packets, with IPv6 below.
const TUNNEL_LEN: u16 = 80;

/// Makes that end of the tunnel, near (0) or far (1): lines of the shell up to what follows them. The far end comes
/// first, and makes the keys. The program stays a child of the shell, so its CPU time counts.
fn wireguard(end: usize, mtu: u16) -> String {
    let (device, other, last) = (format!("wg{end}"), 1 - end, end + 1);
    let keys = "mount -t tmpfs lab /run; umask 077; for n in 0 1; do wg genkey >/run/$n && wg pubkey </run/$n >/run/$n.pub; done; ";
    let keys = if end == 1 { keys } else { "" };
    let mtu = mtu - TUNNEL_LEN;
    format!(
        "{keys}wireguard-go -f {device} >/dev/null 2>&1 & tunnel=$!; until wg show {device} >/dev/null 2>&1; do sleep 0.05; done; \
         wg set {device} private-key /run/{end} listen-port 5182{end} \
         peer $(cat /run/{other}.pub) allowed-ips {TUNNEL}.0/24 endpoint $LAB_PEER:5182{other} && \
         ip addr add {TUNNEL}.{last}/24 dev {device} && ip link set {device} mtu {mtu} up && "
    )
}

/// Reads a file in memory, of the length of the disk, ten times.
fn dd() -> String {
    format!(
        "mount -t tmpfs lab /mnt && head -c {DISK_MIB}M /dev/urandom >/mnt/disk && cat /mnt/disk >/dev/null && \
         for n in 1 2 3 4 5 6 7 8 9 10; do dd if=/mnt/disk of=/dev/null bs={REQUEST_LEN} 2>&1 | tail -1; done"
    )
}

/// Seconds that `iscsi-perf` runs.
const PERF_SECONDS: u32 = 2;

/// tgt listens before it has a disk.
fn iscsi_perf() -> String {
    let url = format!("'iscsi://'$LAB_PEER'/{NAME}/1'");
    format!(
        "until lunette info {url} >/dev/null 2>&1; do sleep 0.1; done; \
         echo {REQUEST_LEN}; iscsi-perf -m {DEPTH} -b {} -t {PERF_SECONDS} {url}",
        REQUEST_LEN / BLOCK_LEN
    )
}

fn read_perf(output: &str) -> Result<Figures> {
    let mut figures = read_iscsi_perf(output)?;
    let bytes = figures[MB_PER_S] * 1e6 * f64::from(PERF_SECONDS);
    figures.insert(BYTES.into(), bytes);
    Ok(figures)
}

fn read_bench(output: &str) -> Result<Figures> {
    let output = json(output)?;
    let requests: f64 =
        ["/reads", "/writes", "/uncounted"].map(|key| number(&output, key)).into_iter().sum::<Result<f64>>()?;
    Ok(Figures::from([
        (MB_PER_S.into(), number(&output, "/gb_per_s")? * 1e3),
        (BYTES.into(), requests * number(&output, "/bs")?),
        (CLIENT_NS_PER_KB.into(), number(&output, "/cpu_us_per_io")? * 1e3 / (number(&output, "/bs")? / 1e3)),
    ]))
}

/// The lines of both clients, in any order.
fn read_two(output: &str) -> Result<Figures> {
    let of = |client: &str| -> Result<f64> {
        let line = output.lines().find_map(|line| line.strip_prefix(client));
        Ok(number(&json(line.with_context(|| format!("no line of {client:?} in {output:?}"))?)?, "/gb_per_s")? * 1e3)
    };
    Ok(Figures::from([(MB_PER_S.into(), of("measured ")?), (BESIDE.into(), of("beside ")?)]))
}

/// Lines such as "33554432 bytes (34 MB, 32 MiB) copied, 0.0042 s, 8.0 GB/s".
fn read_dd(output: &str) -> Result<Figures> {
    let mut total = (0.0, 0.0);
    for line in output.lines() {
        let bytes = line.split(' ').next().and_then(|word| word.parse::<f64>().ok());
        let seconds = line.split(", ").find_map(|part| part.strip_suffix(" s")?.parse::<f64>().ok());
        let (bytes, seconds) = bytes.zip(seconds).with_context(|| format!("no speed in {line:?}"))?;
        total = (total.0 + bytes, total.1 + seconds);
    }
    anyhow::ensure!(total.1 > 0.0, "dd has said nothing: {output:?}");
    Ok(Figures::from([(MB_PER_S.into(), total.0 / total.1 / 1e6)]))
}
