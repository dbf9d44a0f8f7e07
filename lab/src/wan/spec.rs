//! The request of one cell, as the model takes it, and the command lines that measure it.

use anyhow::{Result, anyhow};
use lunette_tuning::{CongestionControl, Path, Settings, Transfer};
use std::time::Duration;

use super::paper::{LinkKind, Load, PaperCell};
use super::published;
use crate::experiment::commands::{BLOCK_LEN, MB_PER_S, NAME, PORT, json, number, read_iscsi_perf, tgt_serve};
use crate::experiment::{Cell, Figures};
use crate::units::Rate;

/// The name of the bytes that the receiver allows to be on the way, of streams.
pub(super) const WINDOW: &str = "window_bytes";
/// PDUs that a client receives for each request.
pub(super) const PDUS: &str = "received_pdus_per_request";
/// The median round trip of a ping.
pub(super) const ROUND_TRIP_US: &str = "round_trip_us";

/// The paper's rate, of IP packets.
pub(super) const OC3: &str = "155M";
/// A Gigabit Ethernet carries that much of IP packets of 1,500 bytes: 38 of 1,538 bytes are Ethernet's.
pub(super) const LAN: &str = "975.29M";
/// "Maximum send and receive window sizes" of the paper.
const LARGE_WINDOW: u64 = 10 << 20;
/// Round trips from which on TCP needs seconds to find the rate.
const LONG_MS: u32 = 20;
/// Rounds of as many commands as are in flight that a measurement has at least. `lunette bench` counts whole ones, but
/// some of the data of the first one may have passed before: with two rounds of 8 MB writes seemed to carry 14% more
/// than the line does.
const ROUNDS: u32 = 8;
/// The paper has all reads served from a cache, and all writes received by one.
const DISK: &str = "mem:64M";

/// A measurement.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) rate: String,
    pub(super) round_trip_ms: u32,
    pub(super) loss_percent: f64,
    pub(super) congestion: CongestionControl,
    /// The most that the buffers of a socket may hold.
    pub(super) tcp_buffer: u64,
    pub(super) work: Work,
    /// Whether this project's client may let answers arrive in groups.
    pub(super) coalesce: bool,
    /// Seconds that are measured. `None` for as many as such a cell needs.
    pub(super) seconds: Option<u32>,
}

/// The traffic over the link.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// One TCP connection.
    Stream { there: bool },
    /// Commands of a session, between these two.
    Commands { settings: Settings, transfer: Transfer, target: Target, client: Client },
    /// Round trips of the protocol alone.
    Pings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Target {
    Lunette,
    Tgt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Client {
    Lunette,
    /// `iscsi-perf`, which only reads.
    Libiscsi,
}

impl Spec {
    /// The request of a cell of the paper.
    pub(super) fn of_paper(burst_bytes: u64, cell: &PaperCell) -> Self {
        let work = match cell.load {
            Load::StreamThere => Work::Stream { there: true },
            Load::StreamBack => Work::Stream { there: false },
            _ => {
                let (settings, transfer) = published::session(burst_bytes, cell);
                Work::Commands { settings, transfer, target: Target::Lunette, client: Client::Lunette }
            }
        };
        let tcp_buffer = if cell.load.is_stream() { cell.window.into() } else { LARGE_WINDOW };
        Self { tcp_buffer, ..Self::on(cell.link, cell.round_trip_ms, work) }
    }

    /// Work on one of the paper's links.
    pub(super) fn on(link: LinkKind, round_trip_ms: u32, work: Work) -> Self {
        let rate = match link {
            LinkKind::Oc3 => OC3,
            LinkKind::Lan => LAN,
        };
        Self {
            rate: rate.into(),
            round_trip_ms,
            loss_percent: 0.0,
            congestion: CongestionControl::Cubic,
            tcp_buffer: LARGE_WINDOW,
            work,
            coalesce: true,
            seconds: None,
        }
    }

    /// The network as the model has it; the round trip is the link's.
    pub(super) fn path(&self) -> Result<Path> {
        let rate: Rate = self.rate.parse().map_err(|error| anyhow!("{:?} is no rate: {error}", self.rate))?;
        #[expect(clippy::cast_precision_loss, reason = "rates below 2^52")]
        let bytes_per_second = rate.0 as f64 / 8.0;
        Ok(Path {
            rate: bytes_per_second,
            round_trip: Duration::from_millis(self.round_trip_ms.into()),
            loss: self.loss_percent / 100.0,
            tcp_window: self.tcp_buffer,
            congestion: self.congestion,
            ..Path::default()
        })
    }

    /// The command lines.
    pub(super) fn cell(&self) -> Cell {
        let (serve, client, read) = match &self.work {
            Work::Stream { there } => self.stream(*there),
            Work::Commands { settings, transfer, target, client } => {
                self.commands(settings, *transfer, *target, *client)
            }
            Work::Pings => (
                lunette_serve(),
                format!("lunette ping --json -c 20 --interval 0 'iscsi://'$LAB_PEER'/{NAME}'"),
                read_ping as _,
            ),
        };
        Cell { link: self.link(), serve, port: PORT, prepare: None, client, read }
    }

    fn link(&self) -> Vec<String> {
        let congestion = match self.congestion {
            CongestionControl::Cubic => "cubic",
            CongestionControl::Reno => "reno",
            CongestionControl::Bbr => "bbr",
        };
        let buffer = self.tcp_buffer;
        let (receive, send) = (buffer.min(131_072), buffer.min(65_536));
        let settings = [
            format!("net.ipv4.tcp_congestion_control={congestion}"),
            format!("net.ipv4.tcp_rmem=4096 {receive} {buffer}"),
            format!("net.ipv4.tcp_wmem=4096 {send} {buffer}"),
        ];
        let mut options = vec!["--rate".into(), self.rate.clone(), "--rtt".into(), format!("{}ms", self.round_trip_ms)];
        if self.loss_percent > 0.0 {
            options.extend(["--loss".into(), format!("{}%", self.loss_percent)]);
        }
        options.extend(settings.into_iter().flat_map(|setting| ["--sysctl".into(), setting]));
        options
    }

    /// Seconds of warm-up, and seconds that are measured.
    fn times(&self) -> (f64, u32) {
        let (warm_up, time) = if self.round_trip_ms >= LONG_MS { (2.0, 2) } else { (0.5, 1) };
        (warm_up, self.seconds.unwrap_or(time.max(self.rounds_seconds())))
    }

    /// Seconds that the line takes at least for as many rounds as are measured.
    fn rounds_seconds(&self) -> u32 {
        let Work::Commands { settings, .. } = &self.work else { return 0 };
        #[expect(clippy::cast_precision_loss, reason = "lengths below 2^52")]
        let round_bytes = (settings.request_len * u64::from(settings.depth)) as f64;
        let seconds = self.path().map_or(0.0, |path| f64::from(ROUNDS) * round_bytes / path.payload_rate());
        #[expect(clippy::cast_sign_loss, reason = "no length is negative")]
        let whole = seconds.ceil() as u32;
        whole
    }

    fn stream(&self, there: bool) -> (String, String, Reader) {
        let (warm_up, time) = self.times();
        let direction = if there { "" } else { " --receive" };
        (
            format!("exec lunette-lab stream --listen $LAB_ADDRESS:{PORT}"),
            format!("lunette-lab stream $LAB_PEER:{PORT}{direction} --warm-up {warm_up} --time {time}"),
            read_stream,
        )
    }

    fn commands(
        &self,
        settings: &Settings,
        transfer: Transfer,
        target: Target,
        client: Client,
    ) -> (String, String, Reader) {
        let (warm_up, time) = self.times();
        let (serve, lun) = match target {
            Target::Lunette => (lunette_serve(), 0),
            Target::Tgt => (tgt_serve(64), 1),
        };
        let Settings { request_len, depth, .. } = settings;
        let url = format!("iscsi://'$LAB_PEER'/{NAME}/{lun}");
        // tgt listens before it has a disk.
        let ready = format!("until lunette info '{url}' >/dev/null 2>&1; do sleep 0.1; done; ");
        let ready = if target == Target::Tgt { ready } else { String::new() };
        let line = match client {
            Client::Lunette => {
                let rw = if transfer == Transfer::Read { "read" } else { "write" };
                format!(
                    "lunette bench '{url}?{}' --rw {rw} --bs {request_len} --depth {depth} --warm-up {warm_up} --time {time} --json",
                    self.query(settings)
                )
            }
            Client::Libiscsi => {
                let seconds = warm_up.ceil() + f64::from(time);
                format!("echo {request_len}; iscsi-perf -m {depth} -b {} -t {seconds} '{url}'", request_len / BLOCK_LEN)
            }
        };
        let read: Reader = if client == Client::Lunette { read_bench } else { read_iscsi_perf };
        (serve, ready + &line, read)
    }

    /// The session as parameters of a URL.
    fn query(&self, settings: &Settings) -> String {
        let yes_no = |yes: bool| if yes { "yes" } else { "no" };
        format!(
            "initial_r2t={}&immediate_data={}&first_burst_length={}&max_burst_length={}&max_outstanding_r2t={}&max_connections={}{}",
            yes_no(settings.initial_r2t),
            yes_no(settings.immediate_data),
            settings.first_burst_len,
            settings.max_burst_len,
            settings.max_outstanding_r2t,
            settings.connections,
            if self.coalesce { "" } else { "&coalesce=no" }
        )
    }
}

type Reader = fn(&str) -> Result<Figures>;

/// A server that agrees to whatever the client offers.
fn lunette_serve() -> String {
    let session = "max_burst_length=\"16777215\", first_burst_length=\"16777215\", max_outstanding_r2t=64";
    format!(
        "printf 'listen=[\"%s:{PORT}\"]\\n[[target]]\\nname=\"{NAME}\"\\nlun=[{{number=0,disk=\"{DISK}\"}}]\\nsession={{{session}}}\\n' \
         $LAB_ADDRESS | RUST_LOG=error lunette serve --config /dev/stdin >/dev/null"
    )
}

fn read_stream(output: &str) -> Result<Figures> {
    let output = json(output)?;
    Ok(Figures::from([
        (MB_PER_S.into(), number(&output, "/mb_per_s")?),
        (WINDOW.into(), number(&output, "/window_bytes")?),
    ]))
}

fn read_bench(output: &str) -> Result<Figures> {
    let output = json(output)?;
    let requests = ["/reads", "/writes", "/uncounted"].map(|key| number(&output, key));
    let requests: f64 = requests.into_iter().sum::<Result<f64>>()?;
    Ok(Figures::from([
        (MB_PER_S.into(), number(&output, "/gb_per_s")? * 1e3),
        (PDUS.into(), number(&output, "/event_loop/received_pdus")? / requests),
    ]))
}

fn read_ping(output: &str) -> Result<Figures> {
    Ok(Figures::from([(ROUND_TRIP_US.into(), number(&json(output)?, "/p50_us")?)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_has_many_rounds() {
        let settings = Settings { request_len: 256 << 10, depth: 32, ..Settings::default() };
        let of = |link, round_trip_ms, settings| {
            let work = Work::Commands {
                settings,
                transfer: Transfer::Write,
                target: Target::Lunette,
                client: Client::Lunette,
            };
            Spec::on(link, round_trip_ms, work)
        };
        // 8 MiB take 155 Mb/s 0.45 s.
        assert_eq!(of(LinkKind::Oc3, 0, settings).times(), (0.5, 4));
        assert_eq!(of(LinkKind::Oc3, 50, settings).times(), (2.0, 4));
        assert_eq!(of(LinkKind::Lan, 0, settings).times(), (0.5, 1));
        let short = Settings { request_len: 64 << 10, ..settings };
        assert_eq!([0, 50].map(|ms| of(LinkKind::Oc3, ms, short).times()), [(0.5, 1), (2.0, 2)]);
        assert_eq!(Spec { seconds: Some(9), ..of(LinkKind::Oc3, 0, settings) }.times(), (0.5, 9));
    }

    #[test]
    fn output_without_its_numbers_is_refused() {
        assert!(read_bench("{\"reads\": 1}").is_err());
        assert!(read_stream("").is_err());
    }
}
