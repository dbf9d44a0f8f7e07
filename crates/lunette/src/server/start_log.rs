//! The log at the start: the version, the addresses of the server, and the served objects.

use std::net::SocketAddr;

use crate::server::served::{Served, ServedTarget};

/// Targets that are named one by one.
const MAX_TARGETS: usize = 20;

/// The lines of the log.
pub(crate) fn lines(portals: &[SocketAddr], served: &Served) -> Vec<String> {
    let portals: Vec<_> = portals.iter().map(ToString::to_string).collect();
    let listening =
        if portals.is_empty() { "no portal is open".into() } else { format!("listening on {}", portals.join(", ")) };
    let mut lines = vec![format!("Lunette {}: {listening}", env!("CARGO_PKG_VERSION"))];
    lines.extend(served.targets.iter().take(MAX_TARGETS).map(|(name, target)| of_target(name, target)));
    if let more @ 1.. = served.targets.len().saturating_sub(MAX_TARGETS) {
        lines.push(format!("{more} more targets"));
    }
    lines
}

fn of_target(name: &str, target: &ServedTarget) -> String {
    let all = target.disks.len();
    let absent = target.disks.values().filter(|disk| !disk.is_open()).count();
    let luns = match all {
        1 => "1 LUN".into(),
        all => format!("{all} LUNs"),
    };
    let absent = if absent == 0 { String::new() } else { format!(", {absent} not ready") };
    let closed = if target.unusable.is_empty() { "" } else { ", rules without usable secrets admit no initiator" };
    format!("target {name}: {luns}{absent}{closed}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn the_start_names_portals_and_targets_with_their_state() {
        let many: Vec<_> = (0..MAX_TARGETS).map(|at| format!("[[target]]\nname = \"iqn.z{at}\"")).collect();
        let text = format!(
            "[[target]]\nname = \"iqn.a\"\nchap = [{{ user = \"u\", secret_file = \"/nowhere/secret\" }}]\n\
             lun = [{{ number = 0, disk = \"mem:1M\" }}, {{ number = 1, disk = \"/nowhere/disk\" }}]\n{}",
            many.join("\n")
        );
        let served = Served::open(&config::parse(&text).unwrap()).unwrap();
        let lines = lines(&["192.0.2.1:3260".parse().unwrap(), "[::1]:3260".parse().unwrap()], &served);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(lines[0], format!("Lunette {version}: listening on 192.0.2.1:3260, [::1]:3260"));
        let expected = "target iqn.a: 2 LUNs, 1 not ready, rules without usable secrets admit no initiator";
        assert_eq!((lines[1].as_str(), lines[2].as_str()), (expected, "target iqn.z0: 0 LUNs"));
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (MAX_TARGETS + 2, "1 more targets"));
    }
}
