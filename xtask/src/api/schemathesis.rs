//! schemathesis, in a virtual environment of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::server::Server;
use crate::process::{self, root, target_dir};

/// All packages of the environment with their versions.
const REQUIREMENTS: &str = "xtask/src/api/requirements.txt";

/// The configuration of schemathesis: what it sends and expects.
const CONFIGURATION: &str = "xtask/src/api/schemathesis.toml";

/// Sends requests to the API of `server`, and fails when an answer is wrong.
pub(super) fn run(server: &Server, examples: u32, seed: Option<u128>) -> Result<()> {
    let environment = provide()?;
    let mut command = Command::new(environment.join("bin/schemathesis"));
    command.arg("--config-file").arg(root().join(CONFIGURATION)).arg("run").arg(server.url("/openapi.json"));
    command.args(["--tls-verify", &server.certificate().display().to_string()]);
    command.args(["--checks", "all", "--continue-on-failure", "--no-color", "--generation-database", "none"]);
    command.args(["--max-examples", &examples.to_string()]);
    if let Some(seed) = seed {
        command.args(["--seed", &seed.to_string()]);
    }
    // The arguments are shown, so the token is none of them.
    command.env("LUNETTE_API_TOKEN", server.token());
    process::run(command.current_dir(server.folder()))
}

/// Installs the packages unless they are there.
fn provide() -> Result<PathBuf> {
    let (environment, wanted) = (target_dir().join("schemathesis"), root().join(REQUIREMENTS));
    let installed = environment.join("requirements.txt");
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    if read(&installed).is_ok_and(|content| read(&wanted).is_ok_and(|wanted| wanted == content)) {
        return Ok(environment);
    }
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    let pip = environment.join("bin/pip");
    process::run(Command::new(pip).args(["install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&wanted))?;
    // Last, so that an installation that was interrupted begins again.
    fs::copy(&wanted, &installed).with_context(|| format!("cannot write {}", installed.display()))?;
    Ok(environment)
}
