//! The driver for Kubernetes in the machine: what the server and the script need for it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cases::{Cases, disk};
use crate::process;

const CASES: &str = include_str!("csi.sh");

/// The token of the driver, for a server that ends with the machine.
const TOKEN: &str = "4d3c2b1a4d3c2b1a4d3c2b1a4d3c2b1a";

/// The programs in the machine that are built here.
const PROGRAMS: [&str; 2] = ["lunette-csi", "lunette-node"];

/// Makes an empty pool, and what the API over TLS needs: a certificate and a token.
pub(super) fn cases(folder: &Path) -> Result<Cases> {
    let folder = folder.join("csi");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder.join("pool"))?;
    make_certificate(&folder)?;
    for (name, text) in [("token", TOKEN.to_owned()), ("tokens", format!("{TOKEN} name=kubernetes\n"))] {
        let path = folder.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    }
    // Free again when this returns.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let at = |name: &str| folder.join(name).display().to_string();
    let configuration = format!(
        "[api]\nlisten = [\"{address}\"]\ntokens = {:?}\ntls = {{ certificates = {:?}, key = {:?} }}\n\
         [[pool]]\nname = \"tank\"\nplace = {:?}\n",
        at("tokens"),
        at("certificate.pem"),
        at("key.pem"),
        at("pool")
    );
    let script = format!(
        "API=10.0.2.2:{} SECRET_FILE={} OTHER_SECRET_FILE={}\n{CASES}",
        address.port(),
        at("secret"),
        at("other-secret")
    );
    let mut paths: Vec<PathBuf> = PROGRAMS.map(process::built).into();
    paths.push(csi_sanity()?);
    paths.extend(["token", "certificate.pem"].map(|name| folder.join(name)));
    Ok(Cases { disk: disk(&folder, &paths)?, folder, configuration, script })
}

fn make_certificate(folder: &Path) -> Result<()> {
    let mut make = Command::new("openssl");
    make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    // The machine sees this system at that address.
    make.args(["-subj", "/CN=10.0.2.2", "-addext", "subjectAltName=IP:10.0.2.2"]);
    make.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "certificate.pem"]);
    process::run(make.current_dir(folder))
}

fn csi_sanity() -> Result<PathBuf> {
    let output = Command::new(process::built("lunette-node")).arg("sanity").output().context("lunette-node")?;
    if !output.status.success() {
        bail!("csi-sanity cannot be built: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}
