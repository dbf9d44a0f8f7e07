//! `cargo xtask linux`: Debian's kernel with open-iscsi and multipath-tools as a client, in a virtual machine.
//!
//! The machine reaches the server through QEMU's own network, so nothing on this system changes. What it does is a
//! script (`linux/guest.sh`, `linux/tunnel.sh`) that prints a line for each case, and asks for events at the server.
//! With `--csi` it is another script (`linux/csi.sh`), over the driver for Kubernetes.

mod cases;
mod csi;
mod guest;
mod image;
mod initiator;
mod server;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::process::target_dir;
use crate::programs;
use guest::{Guest, Line};
use server::Server;

/// Debian's kernel with its own initiator, over a disk of Lunette.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run on this CPU instead of an emulated one. Inside of another virtual machine that may not work.
    #[arg(long)]
    kvm: bool,
    /// Try the driver for Kubernetes, over volumes of a pool.
    #[arg(long)]
    csi: bool,
}

/// Boots the system and follows it to its end.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::provide_for_linux()?;
    let lunette = programs::checked("lunette")?;
    let folder = target_dir().join("linux");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let image = image::provide(&folder)?;
    let cases = if arguments.csi { csi::cases(&folder)? } else { initiator::cases(&lunette, &folder)? };
    let mut server = Server::new(&lunette, &cases.folder, &cases.configuration)?;
    server.start()?;
    let mut guest = Guest::boot(&image, &server.addresses(), &folder, &cases, arguments.kvm)?;
    let mut tally = Tally::default();
    while let Some(line) = guest.next_line()? {
        match line {
            Line::Passed(case) => tally.passed(&case),
            Line::Failed(case) => tally.failed(case),
            Line::Asks(event) => server.make_happen(&event)?,
            Line::End => tally.has_ended = true,
        }
    }
    server.stop()?;
    tally.outcome(guest.log())
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    has_ended: bool,
}

impl Tally {
    fn passed(&mut self, case: &str) {
        self.passed += 1;
        println!("passed  {case}");
    }

    fn failed(&mut self, case: String) {
        println!("FAILED  {case}");
        self.failed.push(case);
    }

    fn outcome(self, log: &std::path::Path) -> Result<ExitCode> {
        if !self.has_ended {
            bail!("the system ended before its script did; its console is {}", log.display());
        }
        println!("{} passed, {} failed; the console is {}", self.passed, self.failed.len(), log.display());
        Ok(if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
