//! The trial of a package: a clean Debian system in a container with systemd, and a client outside of it.
//!
//! The system is made by debootstrap once, and each trial changes a copy of it in memory. It is `docs/operations.md`
//! that installs the package, word for word; then it is upgraded below a client's load, removed and purged.

mod network;
mod system;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::Build;
use crate::packages;
use crate::process::{self, root, target_dir};
use network::Network;
use system::System;

/// The section of the page whose commands are tried.
const PAGE: &str = "docs/operations.md";
const SECTION: &str = "## From the package to a monitored target";

/// The target that the page promises.
const TARGET: &str = "iqn.2026-11.org.example:db";
const HOST: &str = "iqn.2026-11.org.example:db-host";

/// An initiator that no host of the target names.
const OTHER: &str = "iqn.2026-11.org.example:other";

/// The exposure that the unit may have at most, in tenths: what docs/installing.md promises.
const EXPOSURE: u32 = 20;

/// Everything on the disk but what the system and its package manager keep for themselves.
const FILES: &str = "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /packages \
    -o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/lib/systemd/timers \\) -prune \
    -o -printf '%p %y %m %u %g\\n' | grep -v -e '^/etc/[a-z.]*- ' -e '^/etc/.pwd.lock ' | sort";

pub(super) fn run(build: &Build) -> Result<()> {
    packages::provide_for_trial()?;
    let folder =
        build.package("1")?.parent().and_then(Path::parent).context("a package lies in a folder")?.to_path_buf();
    build.package("2")?;
    let network = Network::new()?;
    let system = System::boot(&base()?, &folder, &network)?;
    let client = Client { command: build.command(), network: &network, secrets: tempfile::tempdir()? };

    let clean = system.run(FILES)?;
    step("install it as the page says");
    system.run(&format!("cd /packages/1 && {}", commands()?))?;
    client.learn_secret(&system)?;
    client.is_masked()?;

    step("find its logins in the journal");
    for (initiator, message) in [(HOST, "logged in"), (OTHER, "login failed")] {
        system.wait_for(&logins(initiator, message))?;
    }
    system.run(&format!("systemd-analyze security --no-pager --threshold={EXPOSURE} lunette"))?;

    step("upgrade it below a load");
    let mut load = client.load()?;
    system.wait_for("lunette ctl sessions --json | grep -q db-host")?;
    let before = system.run("systemctl show --property=MainPID lunette")?;
    system.run("apt install /packages/2/lunette_*.deb")?;
    ensure!(
        system.run("systemctl show --property=MainPID lunette")? != before,
        "the upgrade has not restarted the service"
    );
    system.wait_for("lunette ctl sessions --json | grep -q db-host")?;
    ensure!(load.wait()?.success(), "the load did not survive the upgrade");

    step("remove it");
    system.run("apt remove --yes lunette && ! pidof lunette && test -f /etc/lunette/lunette.toml -a -f /var/lib/lunette/db.img")?;
    system.run("rm /var/lib/lunette/*.img")?;

    step("purge it");
    system.run("apt purge --yes lunette && ! getent passwd lunette")?;
    let left = system.run(FILES)?;
    let more: Vec<&str> = left.lines().filter(|line| !clean.lines().any(|before| before == *line)).collect();
    ensure!(more.is_empty(), "purging has left over or changed:\n{}", more.join("\n"));
    eprintln!("== the package was installed, upgraded, removed and purged");
    Ok(())
}

fn step(what: &str) {
    eprintln!("\n== {what}");
}

/// The clean system, which is made when it is not there yet.
fn base() -> Result<PathBuf> {
    let base = target_dir().join("debian-root");
    if base.join("done").exists() {
        return Ok(base);
    }
    if base.exists() {
        fs::remove_dir_all(&base)?;
    }
    let include = "--include=ca-certificates,curl,dbus,openssl,procps,systemd,systemd-sysv";
    process::run(Command::new("debootstrap").args(["--variant=minbase", include, "bookworm"]).arg(&base))?;
    fs::write(base.join("done"), [])?;
    Ok(base)
}

/// The blocks of the section, one behind the other.
fn commands() -> Result<String> {
    let page = fs::read_to_string(root().join(PAGE))?;
    let found = blocks(&page);
    ensure!(!found.is_empty(), "{PAGE} has no commands below {SECTION:?}");
    Ok(found)
}

fn blocks(page: &str) -> String {
    let section = page.lines().skip_while(|line| *line != SECTION).skip(1).take_while(|line| !line.starts_with("## "));
    let mut inside = false;
    let mut commands = String::new();
    for line in section {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            commands.push_str(line);
            commands.push('\n');
        }
    }
    commands
}

/// Succeeds when the journal has a login of `initiator` by its fields, as docs/monitoring.md looks for it. Only the
/// journal's own socket takes fields, which the service has to reach out of its sandbox.
fn logins(initiator: &str, message: &str) -> String {
    format!(
        "journalctl --sync && journalctl -u lunette LUNETTE_INITIATOR={initiator} LUNETTE_TARGET={TARGET} MESSAGE='{message}' -o verbose \
         | grep LUNETTE_PEER=192.0.2.2:"
    )
}

/// Initiators in another network namespace.
struct Client<'a> {
    command: PathBuf,
    network: &'a Network,
    secrets: tempfile::TempDir,
}

impl Client<'_> {
    /// The administrator hands the secret to the host.
    fn learn_secret(&self, system: &System) -> Result<()> {
        Ok(fs::write(self.secret(), system.run("cat /etc/lunette/secrets/db-host")?)?)
    }

    fn secret(&self) -> PathBuf {
        self.secrets.path().join("db-host")
    }

    fn url(&self, lun: u16, initiator: &str) -> String {
        let secret = self.secret();
        format!("iscsi://db-host@192.0.2.1/{TARGET}/{lun}?initiator={initiator}&chap_secret_file={}", secret.display())
    }

    /// The host reaches its disk and no other, and other hosts reach none.
    fn is_masked(&self) -> Result<()> {
        process::run(self.lunette().arg("info").arg(self.url(0, HOST)))?;
        for url in [self.url(1, HOST), self.url(0, OTHER)] {
            let output = self.lunette().arg("info").arg(&url).output()?;
            if output.status.success() {
                bail!("{url}: this disk should be masked");
            }
        }
        Ok(())
    }

    /// Writes, reads and compares for longer than an upgrade takes.
    fn load(&self) -> Result<std::process::Child> {
        let url = self.url(0, HOST);
        Ok(self.lunette().args(["bench", "--rw", "verify", "--size", "64M", "--time", "20", &url]).spawn()?)
    }

    fn lunette(&self) -> Command {
        let mut command = self.network.outside();
        command.arg(&self.command);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_section() {
        let page = format!(
            "```sh\nno\n```\n{SECTION}\ntext\n```sh\na\nb\n```\nmore\n```toml\nno\n```\n```sh\nc\n```\n## Next\n```sh\nno\n```\n"
        );
        assert_eq!(blocks(&page), "a\nb\nc\n");
        assert_eq!(blocks("## Other\n```sh\nno\n```\n"), "");
    }
}
