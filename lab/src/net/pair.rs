//! The two ends of the link.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::namespace::Namespace;
use super::tun::Tun;

/// Addresses of RFC 2544, which no network but that of a measurement has.
pub(super) const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
/// The name of both devices.
pub(super) const DEVICE: &str = "lab0";
/// Packets that a device keeps until the relay reads them: more than a TCP connection sends at once.
const DEVICE_QUEUE: u32 = 50_000;

/// Two network namespaces with a device each.
pub(crate) struct Pair {
    /// Where the command runs.
    pub(crate) near: End,
    /// The end that the command reaches.
    pub(crate) far: End,
}

/// One end of the link.
pub(crate) struct End {
    pub(crate) namespace: Namespace,
    /// `None` where an Ethernet joins the ends.
    pub(crate) device: Option<Arc<Tun>>,
    pub(crate) address: Ipv4Addr,
    pub(crate) peer: Ipv4Addr,
}

impl Pair {
    /// Makes both ends, with devices for packets of up to `mtu` bytes.
    pub(crate) fn new(mtu: u16) -> Result<Self> {
        let [near, far] = ADDRESSES;
        Ok(Self { near: End::new(near, far, mtu)?, far: End::new(far, near, mtu)? })
    }

    /// Sets a sysctl of the network at both ends.
    pub(crate) fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.near.set_sysctl(key, value)?;
        self.far.set_sysctl(key, value)
    }
}

/// The sysctl whose values a network namespace may choose from a list of the system alone.
const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// The list.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Adds a congestion control to those that the system allows to all its namespaces and users. It stays there: others
/// may have begun to use it.
fn allow_congestion_control(name: &str) -> Result<()> {
    let allowed = fs::read_to_string(ALLOWED).with_context(|| format!("cannot read {ALLOWED}"))?;
    if allowed.split_whitespace().any(|known| known == name) {
        return Ok(());
    }
    fs::write(ALLOWED, format!("{} {name}", allowed.trim())).with_context(|| format!("cannot add {name} to {ALLOWED}"))
}

impl End {
    fn new(address: Ipv4Addr, peer: Ipv4Addr, mtu: u16) -> Result<Self> {
        let namespace = namespace()?;
        let device = namespace.run(move || {
            be_silent();
            let device = Tun::new(DEVICE)?;
            configure(address, mtu)?;
            anyhow::Ok(device)
        })?;
        Ok(Self { namespace, device: Some(Arc::new(device)), address, peer })
    }

    /// Sets a sysctl of this end's network, like `net.ipv4.tcp_rmem`.
    pub(crate) fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = sysctl_path(key)?;
        if key == CONGESTION_CONTROL {
            allow_congestion_control(value)?;
        }
        let (text, value) = (format!("cannot set {key} to {value:?}"), value.to_owned());
        self.namespace.run(move || fs::write(path, value)).context(text)
    }

    pub(crate) fn sysctl(&self, key: &str) -> Result<String> {
        let path = sysctl_path(key)?;
        let text = format!("cannot read {key}");
        self.namespace.run(move || fs::read_to_string(path)).map(|value| value.trim().into()).context(text)
    }

    /// Packets that the device dropped because the relay did not read them in time.
    pub(crate) fn dropped_by_device(&self) -> Result<u64> {
        let devices = self.namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        let line = devices.lines().find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'));
        // Eight columns of receiving, then bytes, packets, errors and drops of sending.
        let dropped = line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok());
        dropped.with_context(|| format!("/proc/net/dev has no counts of {DEVICE}"))
    }
}

/// With IPv6 the system sends packets of its own: router solicitations, multicast reports.
pub(super) fn be_silent() {
    for interfaces in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6"), "1");
    }
}

fn sysctl_path(key: &str) -> Result<String> {
    if !key.starts_with("net.") || key.contains('/') || key.contains("..") {
        bail!("{key:?} is no sysctl of the network: write one like net.ipv4.tcp_rmem");
    }
    Ok(format!("/proc/sys/{}", key.replace('.', "/")))
}

pub(super) fn namespace() -> Result<Namespace> {
    Namespace::new().context(
        "cannot make a network namespace: run this as root (a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN)",
    )
}

/// Gives the interfaces of this thread's network namespace their addresses.
fn configure(address: Ipv4Addr, mtu: u16) -> Result<()> {
    ip(&format!(
        "link set lo up\n\
         addr add {address}/24 dev {DEVICE}\n\
         link set {DEVICE} mtu {mtu} txqueuelen {DEVICE_QUEUE} up\n"
    ))
    .with_context(|| format!("cannot set the addresses of {DEVICE}"))
}

/// Runs these commands of `ip` in this thread's network namespace.
pub(super) fn ip(lines: &str) -> Result<()> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run ip: install iproute2")?;
    let mut input = ip.stdin.take().expect("it was asked for");
    input.write_all(lines.as_bytes()).context("ip reads no commands")?;
    drop(input);
    if !ip.wait()?.success() {
        bail!("ip has failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sysctls_of_the_network_are_set() {
        assert_eq!(sysctl_path("net.ipv4.tcp_rmem").expect("a key"), "/proc/sys/net/ipv4/tcp_rmem");
        for key in ["kernel.hostname", "net/ipv4/tcp_rmem", "net...etc", "net./etc/passwd", ""] {
            assert!(sysctl_path(key).is_err(), "{key}");
        }
    }
}
