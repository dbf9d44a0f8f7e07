//! Settings in the words of the programs that take them.

use lunette_tuning::{Candidate, CongestionControl, Path, Settings};
use serde::Serialize;

use crate::failure::Failure;
use crate::output;

/// The longest FirstBurstLength and MaxBurstLength of RFC 7143 sections 13.13 and 13.14: a number of 24 bits.
const MAX_DATA_LENGTH: u64 = (1 << 24) - 1;

/// The limit of open-iscsi (`cmds_max`): a power of two up to this.
const MAX_CMDS: u32 = 2048;

/// Lines for one program.
#[derive(Serialize)]
pub(super) struct Lines {
    /// The heading that says where to put the lines.
    title: &'static str,
    lines: Vec<String>,
}

pub(super) fn print(all: &[Lines]) -> Result<(), Failure> {
    for Lines { title, lines } in all {
        output::line(format_args!("\n# {title}"))?;
        for text in lines {
            output::line(text)?;
        }
    }
    Ok(())
}

/// The settings for each program. `plain` are the defaults of our initiator, which its URL need not repeat. `is_lossy`
/// says that the path is known to lose packets.
pub(super) fn all(path: &Path, candidate: &Candidate, plain: &Settings, is_lossy: bool) -> Vec<Lines> {
    let settings = &candidate.settings;
    vec![url(candidate, plain), session_table(settings), iscsid(settings), sysctl(path, candidate, is_lossy)]
}

/// The parameters of our URL that differ from the defaults, as `NAME=VALUE&...`.
pub(super) fn url_parameters(candidate: &Candidate, plain: &Settings) -> String {
    let now = &candidate.settings;
    let yes_no = |yes: bool| (if yes { "yes" } else { "no" }).to_owned();
    let numbers = [
        ("max_connections", now.connections.into(), plain.connections.into()),
        ("first_burst_length", data_length(now.first_burst_len), plain.first_burst_len),
        ("max_burst_length", data_length(now.max_burst_len), plain.max_burst_len),
        ("max_outstanding_r2t", now.max_outstanding_r2t.into(), plain.max_outstanding_r2t.into()),
        ("max_recv_data_segment_length", data_length(now.max_data_segment_len), plain.max_data_segment_len),
    ];
    let switches = [
        ("initial_r2t", now.initial_r2t, plain.initial_r2t),
        ("immediate_data", now.immediate_data, plain.immediate_data),
    ];
    let of_tcp = [
        ("congestion_control", candidate.congestion.map(|control| control.name().to_owned())),
        ("send_buffer", candidate.send_buffer_bytes.map(|bytes| bytes.to_string())),
        ("receive_buffer", candidate.receive_buffer_bytes.map(|bytes| bytes.to_string())),
    ];
    let numbers =
        numbers.into_iter().filter(|(_, now, plain)| now != plain).map(|(key, now, _)| (key, now.to_string()));
    let switches = switches.into_iter().filter(|(_, now, plain)| now != plain).map(|(key, now, _)| (key, yes_no(now)));
    let of_tcp = of_tcp.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let all: Vec<String> = numbers.chain(switches).chain(of_tcp).map(|(key, value)| format!("{key}={value}")).collect();
    all.join("&")
}

fn url(candidate: &Candidate, plain: &Settings) -> Lines {
    let Settings { request_len, depth, .. } = candidate.settings;
    let parameters = url_parameters(candidate, plain);
    let parameters = if parameters.is_empty() { "# nothing: the defaults".into() } else { format!("?{parameters}") };
    let load = if candidate.finds_depth { String::new() } else { format!(" --depth {depth}") };
    let lines =
        vec![parameters, format!("# lunette cp --bs {request_len}{load} (cp finds the depth itself without --depth)")];
    Lines { title: "our URL, after the LUN", lines }
}

fn session_table(settings: &Settings) -> Lines {
    let lines = vec![
        format!("initial_r2t = {}", settings.initial_r2t),
        format!("immediate_data = {}", settings.immediate_data),
        format!("first_burst_length = \"{}\"", data_length(settings.first_burst_len)),
        format!("max_burst_length = \"{}\"", data_length(settings.max_burst_len)),
        format!("max_outstanding_r2t = {}", settings.max_outstanding_r2t),
        format!("max_recv_data_segment_length = \"{}\"", data_length(settings.max_data_segment_len)),
    ];
    Lines { title: "a target's table `session` in our configuration", lines }
}

/// open-iscsi has one connection in a session; more paths are more sessions under dm-multipath.
fn iscsid(settings: &Settings) -> Lines {
    let yes_no = |yes: bool| if yes { "Yes" } else { "No" };
    let depth = settings.depth.div_ceil(settings.connections.max(1));
    let lines = vec![
        format!("node.session.iscsi.InitialR2T = {}", yes_no(settings.initial_r2t)),
        format!("node.session.iscsi.ImmediateData = {}", yes_no(settings.immediate_data)),
        format!("node.session.iscsi.FirstBurstLength = {}", data_length(settings.first_burst_len)),
        format!("node.session.iscsi.MaxBurstLength = {}", data_length(settings.max_burst_len)),
        format!("node.conn[0].iscsi.MaxRecvDataSegmentLength = {}", data_length(settings.max_data_segment_len)),
        format!("node.session.cmds_max = {}", depth.next_power_of_two().clamp(2, MAX_CMDS)),
        format!("node.session.queue_depth = {}", depth.clamp(1, 1024)),
        format!("node.session.nr_sessions = {}", settings.connections),
        "# open-iscsi has MaxOutstandingR2T = 1 and one connection in a session: more sessions need dm-multipath"
            .into(),
    ];
    Lines { title: "/etc/iscsi/iscsid.conf (or iscsiadm -m node -o update -n NAME -v VALUE)", lines }
}

#[expect(clippy::cast_sign_loss, reason = "a number of bytes is not negative")]
fn sysctl(path: &Path, candidate: &Candidate, is_lossy: bool) -> Lines {
    let settings = &candidate.settings;
    // What one connection has on the way, twice: the system counts its own overhead to the buffer (tcp(7),
    // tcp_adv_win_scale).
    let in_flight = path.delay_bandwidth_bytes() / f64::from(settings.connections.max(1));
    let max = (2.0 * in_flight) as u64;
    let max = max.next_power_of_two().clamp(6 << 20, 1 << 30);
    let mut lines = vec![
        format!("net.ipv4.tcp_rmem = 4096 131072 {max}"),
        format!("net.ipv4.tcp_wmem = 4096 65536 {max}"),
        "net.ipv4.tcp_slow_start_after_idle = 0".into(),
    ];
    if is_lossy || candidate.congestion == Some(CongestionControl::Bbr) {
        lines.push("net.ipv4.tcp_congestion_control = bbr   # if the kernel has it: loss does not slow it down".into());
    }
    Lines { title: "sysctl, at both ends", lines }
}

fn data_length(len: u64) -> u64 {
    len.clamp(512, MAX_DATA_LENGTH)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn values_stay_within_what_the_programs_take() {
        let settings = Settings {
            max_burst_len: 1 << 30,
            first_burst_len: 1,
            depth: 100_000,
            connections: 4,
            ..Settings::default()
        };
        let path = Path { round_trip: Duration::from_secs(10), rate: 1e10, ..Path::default() };
        let candidate = Candidate {
            settings,
            finds_depth: false,
            congestion: Some(CongestionControl::Bbr),
            send_buffer_bytes: None,
            receive_buffer_bytes: Some(4096),
        };
        let text: Vec<String> =
            all(&path, &candidate, &Settings::default(), false).into_iter().flat_map(|paste| paste.lines).collect();
        for line in [
            "?max_connections=4&first_burst_length=512&max_burst_length=16777215&congestion_control=bbr&receive_buffer=4096",
            "max_burst_length = \"16777215\"",
            "first_burst_length = \"512\"",
            "node.session.cmds_max = 2048",
            "node.session.nr_sessions = 4",
            "net.ipv4.tcp_rmem = 4096 131072 1073741824",
        ] {
            assert!(text.iter().any(|found| found == line), "{line} in {text:#?}");
        }
    }

    #[test]
    fn bbr_is_advised_where_it_was_faster_or_packets_were_lost() {
        // A loss that only explains the rates is not enough.
        let path = Path { loss: 1e-3, ..Path::default() };
        for (congestion, is_lossy, expected) in [
            (None, false, false),
            (Some(CongestionControl::Cubic), false, false),
            (None, true, true),
            (Some(CongestionControl::Bbr), false, true),
        ] {
            let candidate = Candidate { congestion, ..crate::commands::tune::candidates::unset() };
            let Lines { lines, .. } = sysctl(&path, &candidate, is_lossy);
            assert_eq!(lines.iter().any(|line| line.contains("bbr")), expected, "{congestion:?} {is_lossy}");
        }
    }
}
