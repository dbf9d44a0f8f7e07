//! Two network namespaces with a link between them: one for the system that is tried, one for its clients.

use std::process::Command;

use anyhow::Result;

use crate::process;

/// The two namespaces, which end with it. Addresses are those of documentation (RFC 5737).
pub(super) struct Network {
    inside: &'static str,
    outside: &'static str,
}

impl Network {
    pub(super) fn new() -> Result<Self> {
        let network = Self { inside: "lunette-trial-server", outside: "lunette-trial-client" };
        // A trial that was killed may have left some.
        network.delete();
        let Self { inside, outside } = &network;
        for namespace in [inside, outside] {
            ip(&["netns", "add", namespace])?;
        }
        ip(&["-n", inside, "link", "add", "host0", "type", "veth", "peer", "name", "host1", "netns", outside])?;
        for (namespace, link, address) in [(inside, "host0", "192.0.2.1/24"), (outside, "host1", "192.0.2.2/24")] {
            ip(&["-n", namespace, "address", "add", address, "dev", link])?;
            for up in [link, "lo"] {
                ip(&["-n", namespace, "link", "set", up, "up"])?;
            }
        }
        Ok(network)
    }

    fn delete(&self) {
        for namespace in [self.inside, self.outside] {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).output();
        }
    }

    /// The namespace of the system.
    pub(super) fn inside(&self) -> String {
        format!("/run/netns/{}", self.inside)
    }

    /// The beginning of a command that runs on the other side of the link.
    pub(super) fn outside(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.outside]);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.delete();
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    process::run(Command::new("ip").args(arguments))
}
