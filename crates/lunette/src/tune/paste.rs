//! Settings in the words of the programs that take them.

use lunette_tuning::{Path, Settings};

/// The longest FirstBurstLength and MaxBurstLength of RFC 7143 sections 13.13 and 13.14: a number of 24 bits.
const MAX_DATA_LENGTH: u64 = (1 << 24) - 1;

/// What open-iscsi allows (`cmds_max`): a power of two up to this.
const MAX_CMDS: u32 = 2048;

/// Lines for one program.
pub(super) struct Paste {
    /// What to do with the lines.
    pub(super) title: &'static str,
    pub(super) lines: Vec<String>,
}

/// The settings for each program.
pub(super) fn all(path: &Path, settings: &Settings) -> Vec<Paste> {
    vec![url(settings), session_table(settings), iscsid(settings), sysctl(path, settings)]
}

fn url(settings: &Settings) -> Paste {
    let Settings { connections, request_len, depth, .. } = settings;
    let lines = vec![
        format!("?max_connections={connections}"),
        format!("# lunette cp --bs {request_len} --depth {depth} (cp finds the depth itself without --depth)"),
    ];
    Paste { title: "our URL, after the LUN", lines }
}

fn session_table(settings: &Settings) -> Paste {
    let lines = vec![
        format!("initial_r2t = {}", settings.initial_r2t),
        format!("immediate_data = {}", settings.immediate_data),
        format!("first_burst_length = \"{}\"", data_length(settings.first_burst_len)),
        format!("max_burst_length = \"{}\"", data_length(settings.max_burst_len)),
        format!("max_outstanding_r2t = {}", settings.max_outstanding_r2t),
        format!("max_recv_data_segment_length = \"{}\"", data_length(settings.max_data_segment_len)),
    ];
    Paste { title: "a target's table `session` in our configuration", lines }
}

/// open-iscsi has one connection in a session; more paths are more sessions under dm-multipath.
fn iscsid(settings: &Settings) -> Paste {
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
    ];
    Paste { title: "/etc/iscsi/iscsid.conf (or iscsiadm -m node -o update -n NAME -v VALUE)", lines }
}

#[expect(clippy::cast_sign_loss, reason = "a number of bytes is not negative")]
fn sysctl(path: &Path, settings: &Settings) -> Paste {
    // What one connection has on the way, twice: the system counts its own overhead to the buffer (tcp(7), tcp_adv_win_scale).
    let in_flight = path.delay_bandwidth_bytes() / f64::from(settings.connections.max(1));
    let max = (2.0 * in_flight) as u64;
    let max = max.next_power_of_two().clamp(6 << 20, 1 << 30);
    let mut lines = vec![
        format!("net.ipv4.tcp_rmem = 4096 131072 {max}"),
        format!("net.ipv4.tcp_wmem = 4096 65536 {max}"),
        "net.ipv4.tcp_slow_start_after_idle = 0".into(),
    ];
    if path.loss > 0.0 {
        lines.push("net.ipv4.tcp_congestion_control = bbr   # if the kernel has it: loss does not slow it down".into());
    }
    Paste { title: "sysctl, at both ends", lines }
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
        let text: Vec<String> = all(&path, &settings).into_iter().flat_map(|paste| paste.lines).collect();
        for line in [
            "max_burst_length = \"16777215\"",
            "first_burst_length = \"512\"",
            "node.session.cmds_max = 2048",
            "node.session.nr_sessions = 4",
            "net.ipv4.tcp_rmem = 4096 131072 1073741824",
        ] {
            assert!(text.iter().any(|found| found == line), "{line} in {text:#?}");
        }
    }
}
