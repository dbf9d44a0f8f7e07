//! Two ends that a pair of Ethernet interfaces joins, without an emulated link between.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::units::EachWay;

use super::pair::{ADDRESSES, DEVICE, End, Pair, be_silent, ip, namespace};
use super::sys::{self, Offload};

/// The MAC addresses of both ends, near and far: locally administered ones.
pub(crate) const STATIONS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
/// The burst of an interface with a rate, in bytes: longer than the longest packet before it is segmented.
const BURST: u32 = 256 << 10;
/// The longest time that a packet waits for its turn.
const QUEUE: &str = "100ms";

/// A pair of Ethernet interfaces.
pub(crate) struct Ethernet {
    /// Bytes of the longest IP packet.
    pub(crate) mtu: u16,
    /// Whether the interfaces segment and join what they carry.
    pub(crate) segments: bool,
    /// Whether the interfaces stand for its checksums, which nothing computes then, because nothing damages a packet.
    pub(crate) checksums: bool,
    /// The rates of the interfaces, in bits of Ethernet frames; without one they are as fast as the machine.
    pub(crate) bits_per_second: Option<EachWay<u64>>,
}

impl Pair {
    /// Makes both ends, and the interfaces between them.
    pub(crate) fn on_ethernet(ethernet: &Ethernet) -> Result<Self> {
        let (near, far) = (namespace()?, namespace()?);
        // The name of the thread that is in the other namespace, as `ip` takes it.
        let other = far.run(|| fs::read_link("/proc/thread-self")).context("cannot read /proc/thread-self")?;
        let other = other.file_name().map(|id| id.to_string_lossy().into_owned()).unwrap_or_default();
        let ([one, two], mtu) = (STATIONS, ethernet.mtu);
        let link = format!(
            "link add {DEVICE} address {one} mtu {mtu} type veth peer name {DEVICE} address {two} mtu {mtu} netns {other}\n"
        );
        near.run(move || ip(&link)).context("cannot make a pair of Ethernet interfaces")?;
        let [address, peer] = ADDRESSES;
        let near = End { namespace: near, device: None, address, peer };
        let far = End { namespace: far, device: None, address: peer, peer: address };
        let rates = ethernet.bits_per_second;
        for (end, rate) in [(&near, rates.map(|rates| rates.there)), (&far, rates.map(|rates| rates.back))] {
            let (address, segments, checksums) = (end.address, ethernet.segments, ethernet.checksums);
            end.namespace.run(move || {
                be_silent();
                for (offload, on) in [(Offload::Checksums, checksums), (Offload::Segments, segments)] {
                    sys::set_offload(DEVICE, offload, on).context("cannot switch the offloads of an interface")?;
                }
                ip(&format!("link set lo up\naddr add {address}/24 dev {DEVICE}\nlink set {DEVICE} up\n"))?;
                rate.map_or(Ok(()), limit)
            })?;
        }
        Ok(Self { near, far })
    }

    /// Makes the first CPU receive what comes to the near end, and the second one what comes to the far end. Without
    /// that, a packet is received by the CPU that sends it.
    pub(crate) fn receive_apart(&self) -> Result<()> {
        for (cpu, end) in [&self.near, &self.far].into_iter().enumerate() {
            end.namespace.run(move || {
                // The setting is in the sysfs of the network namespace, which only a mount in it shows.
                let line = format!(
                    "mount -t sysfs lab /sys && echo {:x} >/sys/class/net/{DEVICE}/queues/rx-0/rps_cpus",
                    1 << cpu
                );
                run(Command::new("unshare").args(["--mount", "sh", "-c", &line]))
            })?;
        }
        Ok(())
    }
}

/// Gives the interface of this thread's network namespace a rate.
fn limit(bits_per_second: u64) -> Result<()> {
    let rate = format!("{bits_per_second}bit");
    let mut tc = Command::new("tc");
    tc.args(["qdisc", "replace", "dev", DEVICE, "root", "tbf", "rate", &rate]);
    run(tc.args(["burst", &BURST.to_string(), "latency", QUEUE]))
        .context("cannot set the rate of an interface (sch_tbf)")
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {name}: install iproute2 and util-linux"))?;
    ensure!(status.success(), "{name} has failed");
    Ok(())
}
