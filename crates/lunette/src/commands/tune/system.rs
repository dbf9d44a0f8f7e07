//! The system's own account of its TCP settings.

use std::fs;

use lunette_tuning::CongestionControl;

/// The value of a setting of sysctl(8), such as `net.ipv4.tcp_rmem`.
fn sysctl(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()
}

/// The name of the congestion control that connections get by themselves.
pub(super) fn congestion_control() -> Option<String> {
    sysctl("net.ipv4.tcp_congestion_control").map(|name| name.trim().to_owned())
}

/// The congestion controls of the model that this process may choose for its connections.
pub(super) fn allowed_congestion_controls() -> Vec<CongestionControl> {
    let of_root = rustix::process::geteuid().is_root();
    let list =
        if of_root { "net.ipv4.tcp_available_congestion_control" } else { "net.ipv4.tcp_allowed_congestion_control" };
    let names = sysctl(list).unwrap_or_default();
    let has = |control: &CongestionControl| names.split_whitespace().any(|name| name == control.name());
    CongestionControl::ALL.into_iter().filter(has).collect()
}

/// The most bytes to which the system lets a buffer grow: `tcp_rmem` or `tcp_wmem` of tcp(7).
fn grows_to(name: &str) -> Option<u64> {
    sysctl(name)?.split_whitespace().nth(2)?.parse().ok()
}

/// Bytes that one connection can have on the way when its buffers have grown as far as they may: about half of a
/// buffer, for the system's own accounts are in it, too (`tcp_adv_win_scale` of tcp(7)).
pub(super) fn tcp_window() -> Option<u64> {
    Some(grows_to("net.ipv4.tcp_rmem")?.min(grows_to("net.ipv4.tcp_wmem")?) / 2)
}

/// The buffer that a socket may ask for, when that is more than it gets by itself; for `tcp_wmem` and `wmem_max`, or
/// for `tcp_rmem` and `rmem_max`. A buffer that was asked for does not grow any more, and has twice its size
/// (socket(7)).
pub(super) fn greater_buffer(grows: &str, may_ask: &str) -> Option<u32> {
    let (grown, asked) = (grows_to(grows)?, sysctl(may_ask)?.trim().parse::<u32>().ok()?);
    (2 * u64::from(asked) > grown).then_some(asked)
}
