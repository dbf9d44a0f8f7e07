//! The initiator of Debian's kernel in the machine, on its own and behind `lunette tunnel`.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cases::{Cases, disk};
use crate::process;

const SCRIPTS: [&str; 2] = [include_str!("guest.sh"), include_str!("tunnel.sh")];

/// The address of the portal that speaks TLS. QEMU's network leads there from the machine, and both name it alike.
const TLS_ADDRESS: &str = "127.0.0.2";

/// Makes the certificates of both sides.
pub(super) fn cases(lunette: &Path, folder: &Path) -> Result<Cases> {
    // Free again when this returns.
    let portal = TcpListener::bind((TLS_ADDRESS, 0))?.local_addr()?;
    let ca = folder.join("ca");
    if ca.exists() {
        fs::remove_dir_all(&ca).with_context(|| format!("cannot remove {}", ca.display()))?;
    }
    let tls = |verb: &str, arguments: &[&str]| {
        process::run(Command::new(lunette).args(["tls", verb]).arg(&ca).args(arguments))
    };
    tls("ca", &[])?;
    tls("issue", &["server", "--host", TLS_ADDRESS])?;
    tls("issue", &["client", "--name", "iqn.2026-11.lunette:guest"])?;
    let configuration =
        format!("[[portal]]\naddress = \"{portal}\"\ngroup = 2\ntls = {:?}\n", ca.join("server").display().to_string());
    let script = format!("TLS_ADDRESS={TLS_ADDRESS} TLS_PORT={}\n{}", portal.port(), SCRIPTS.concat());
    let paths: [PathBuf; 2] = [lunette.into(), ca.join("client")];
    Ok(Cases { disk: disk(folder, &paths)?, folder: folder.into(), configuration, script })
}
