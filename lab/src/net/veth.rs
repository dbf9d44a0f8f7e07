//! Two ends that a pair of Ethernet interfaces joins, without an emulated link between.

use std::fs;

use anyhow::{Context, Result};

use super::pair::{ADDRESSES, DEVICE, End, Pair, be_silent, ip, namespace};
use super::sys;

/// The MAC addresses of both ends, near and far: locally administered ones.
pub(crate) const STATIONS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];

impl Pair {
    /// Makes both ends, with interfaces for packets of up to `mtu` bytes. With `offloads` these segment and join what they carry.
    pub(crate) fn on_ethernet(mtu: u16, offloads: bool) -> Result<Self> {
        let (near, far) = (namespace()?, namespace()?);
        // The name of the thread that is in the other namespace, as `ip` takes it.
        let other = far.run(|| fs::read_link("/proc/thread-self")).context("cannot read /proc/thread-self")?;
        let other = other.file_name().map(|id| id.to_string_lossy().into_owned()).unwrap_or_default();
        let [one, two] = STATIONS;
        let link = format!(
            "link add {DEVICE} address {one} mtu {mtu} type veth peer name {DEVICE} address {two} mtu {mtu} netns {other}\n"
        );
        near.run(move || ip(&link)).context("cannot make a pair of Ethernet interfaces")?;
        let [address, peer] = ADDRESSES;
        let near = End { namespace: near, device: None, address, peer };
        let far = End { namespace: far, device: None, address: peer, peer: address };
        for end in [&near, &far] {
            let address = end.address;
            end.namespace.run(move || {
                be_silent();
                sys::set_offloads(DEVICE, offloads).context("cannot switch the offloads of an interface")?;
                ip(&format!("link set lo up\naddr add {address}/24 dev {DEVICE}\nlink set {DEVICE} up\n"))
            })?;
        }
        Ok(Self { near, far })
    }
}
