//! One measurement: a run of `lunette-lab link` with a server and a client, and the figures that the client prints.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Parser;

use super::machine;
use crate::net::{Pair, sys};
use crate::options::Options;
use crate::run::children;
use crate::run::exchange::{self, Exchange};

/// Seconds after which a client is ended: more than any measurement takes.
const MAX_SECONDS: &str = "120";
/// Packets that the relay could not read: the machine was too slow for the link.
pub(crate) const UNREAD: &str = "unread_packets";
/// Packets that the link's queues had no room for.
const DROPPED: &str = "dropped_packets";
/// By how many microseconds 99% of the packets were late at most, in the direction where that is worse.
pub(crate) const LATE: &str = "late_us";

/// Seconds of CPU time of the server's processes, while the client ran.
pub(crate) const SERVER_CPU: &str = "server_cpu_s";
/// Seconds of CPU time of the client's processes.
pub(crate) const CLIENT_CPU: &str = "client_cpu_s";
/// Runnable processes on average over the minute before: what else the machine did.
pub(crate) const LOAD: &str = "load";

/// The findings of a run, by name; the unit is part of the name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// One measurement. Its text is the command that does it by hand.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Options of `lunette-lab link` for the link and its network.
    pub(crate) link: Vec<String>,
    /// A line for the shell that runs at the far end.
    pub(crate) serve: String,
    /// The TCP port that the server listens on.
    pub(crate) port: u16,
    /// A line for the shell that runs at the near end before the client, and is not measured.
    pub(crate) prepare: Option<String>,
    /// A line for the shell that measures, at the near end.
    pub(crate) client: String,
    /// Reads the client's standard output.
    pub(crate) read: fn(&str) -> Result<Figures>,
}

/// The programs that cells run.
pub(crate) struct Programs {
    lunette: PathBuf,
    /// The folders of the programs, to be searched first, and those of the system.
    path: OsString,
}

impl Programs {
    /// The programs beside `lunette`, which is beside this program unless its path is given.
    pub(crate) fn find(lunette: Option<&Path>) -> Result<Self> {
        let own = env::current_exe().context("this program has no path")?;
        let beside = own.parent().context("this program is in no folder")?;
        let lunette = lunette.map_or_else(|| beside.join("lunette"), Path::to_owned);
        if !lunette.is_file() {
            bail!("{} is missing: build it with cargo build --release, or name it with --lunette", lunette.display());
        }
        let lunette = std::path::absolute(lunette)?;
        let folders = [lunette.parent().map(Path::to_owned), Some(beside.to_owned())].into_iter().flatten();
        // Debian keeps servers out of other users' PATH.
        let rest = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(folders.chain(env::split_paths(&path)).chain(rest))?;
        Ok(Self { lunette, path })
    }

    /// Whether there is a program of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        env::split_paths(&self.path).any(|folder| folder.join(name).is_file())
    }

    /// The mark of a build of `lunette`.
    pub(crate) fn build(&self) -> Result<String> {
        build_of("lunette", &self.lunette)
    }
}

/// The mark of a build of a program: its length and its CRC32C.
pub(super) fn build_of(name: &str, path: &Path) -> Result<String> {
    let program = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{name} of {} bytes, CRC32C {:08x}", program.len(), lunette_crc32c::crc32c(&program)))
}

/// The options of `lunette-lab link` without its name.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct LinkOptions {
    #[command(flatten)]
    options: Options,
}

impl Cell {
    /// The arguments of `lunette-lab link` for a line of the shell.
    fn arguments(&self, client: &str) -> Vec<String> {
        let port = self.port.to_string();
        let server = ["--serve", &self.serve, "--wait-port", &port, "--no-check"];
        let client = ["--", "sh", "-c", client];
        self.link.iter().map(String::as_str).chain(server).chain(client).map(String::from).collect()
    }

    pub(crate) fn options(&self) -> Result<Options> {
        LinkOptions::try_parse_from(self.arguments(&self.client))
            .map(|line| line.options)
            .context("the cell's link is impossible")
    }

    /// Does the measurement, on a link of its own.
    pub(crate) fn run(&self, programs: &Programs) -> Result<Figures> {
        let load = machine::load();
        let (output, others) = self.exchange(programs)?;
        let mut figures = (self.read)(&output)?;
        figures.extend(others);
        figures.extend(load.map(|load| (LOAD.into(), load)));
        Ok(figures)
    }

    /// The output of the client at the near end of a new link, and figures of that.
    fn exchange(&self, programs: &Programs) -> Result<(String, Figures)> {
        let mut options = self.options()?;
        options.serve = Some(format!("PATH='{}'; {}", programs.path.display(), self.serve));
        let pair = exchange::ends(&options)?;
        hurry(&pair);
        let exchange = Exchange::start(&options, pair)?;
        if let Some(line) = &self.prepare {
            Self::near(&exchange, line, programs)?;
        }
        let before = [exchange.server_cpu(), children::waited_cpu()];
        let output = Self::near(&exchange, &self.client, programs)?;
        let server = exchange.server_cpu().saturating_sub(before[0]).as_secs_f64();
        let client = children::waited_cpu().saturating_sub(before[1]).as_secs_f64();
        let mut figures = Figures::from([(SERVER_CPU.into(), server), (CLIENT_CPU.into(), client)]);
        if let Some(traffic) = exchange.finish()? {
            figures.insert(UNREAD.into(), traffic.unread());
            figures.insert(LATE.into(), traffic.late_us());
            figures.insert(DROPPED.into(), traffic.dropped());
        }
        Ok((output, figures))
    }

    /// The output of a line of the shell at the near end.
    fn near(exchange: &Exchange, line: &str, programs: &Programs) -> Result<String> {
        let mut command = Command::new("timeout");
        command.args([MAX_SECONDS, "sh", "-c", line]).env("PATH", &programs.path);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = children::spawn(&exchange.pair.near, command).context("cannot run timeout: install coreutils")?;
        let output = client.wait_with_output()?;
        if !output.status.success() {
            bail!("the client ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The command of a line of the shell, as a user would type it.
    fn command(&self, client: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=%,:+".contains(c);
        let mut text = "lunette-lab link".to_owned();
        for argument in self.arguments(client) {
            text.push(' ');
            if argument.chars().all(plain) {
                text.push_str(&argument);
            } else {
                write!(text, "'{}'", argument.replace('\'', r"'\''")).expect("memory");
            }
        }
        text
    }
}

/// Lets the processes that will start at both ends run before builds and tests on the same machine.
fn hurry(pair: &Pair) {
    for end in [&pair.near, &pair.far] {
        // Containers may forbid it; then other load disturbs more.
        let _ = end.namespace.run(|| sys::run_first(sys::Urgency::Measured));
    }
}

/// The command line as a user would type it.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.prepare {
            Some(prepare) => f.write_str(&self.command(&format!("{prepare} && {}", self.client))),
            None => f.write_str(&self.command(&self.client)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        Cell {
            link: ["--rate", "155M", "--sysctl", "net.ipv4.tcp_rmem=4096 131072 65536"].map(String::from).into(),
            serve: "printf 'x' | cat".into(),
            port: 3260,
            prepare: None,
            client: "true $LAB_PEER".into(),
            read: |_| Ok(Figures::new()),
        }
    }

    #[test]
    fn the_text_is_a_command_for_the_shell() {
        assert_eq!(
            cell().to_string(),
            "lunette-lab link --rate 155M --sysctl 'net.ipv4.tcp_rmem=4096 131072 65536' --serve 'printf '\\''x'\\'' | cat' \
             --wait-port 3260 --no-check -- sh -c 'true $LAB_PEER'"
        );
    }

    #[test]
    fn its_options_are_those_of_link() {
        let options = cell().options().expect("a possible link");
        assert_eq!(options.link().expect("a possible link").there.bits_per_second, Some(155_000_000));
        assert_eq!(options.command.len(), 3);
        let impossible = Cell { link: vec!["--rate".into(), "fast".into()], ..cell() };
        assert!(impossible.options().is_err());
    }
}
