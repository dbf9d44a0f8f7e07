//! The driver for Kubernetes in the machine: what the server and the script need for it.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

const CASES: &str = include_str!("csi.sh");

/// The token of the driver, for a server that ends with the machine.
const TOKEN: &str = "4d3c2b1a4d3c2b1a4d3c2b1a4d3c2b1a";

/// The programs in the machine that are built here.
const PROGRAMS: [&str; 2] = ["lunette-csi", "lunette-node"];

/// The API over TLS, and a pool.
pub(super) struct Api {
    folder: PathBuf,
    address: SocketAddr,
    configuration: String,
}

impl Api {
    /// Makes a certificate, a token and an empty pool.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let folder = folder.join("csi");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(folder.join("pool"))?;
        // Free again when this returns.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut make = Command::new("openssl");
        make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
        // The machine sees this system at that address.
        make.args(["-subj", "/CN=10.0.2.2", "-addext", "subjectAltName=IP:10.0.2.2"]);
        make.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "certificate.pem"]);
        process::run(make.current_dir(&folder))?;
        for (name, text) in [("token", TOKEN.to_owned()), ("tokens", format!("{TOKEN} name=kubernetes\n"))] {
            let path = folder.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        }
        let at = |name: &str| folder.join(name).display().to_string();
        let configuration = format!(
            "[api]\nlisten = [\"{address}\"]\ntokens = {:?}\ntls = {{ certificates = {:?}, key = {:?} }}\n\
             [[pool]]\nname = \"tank\"\nplace = {:?}\n",
            at("tokens"),
            at("certificate.pem"),
            at("key.pem"),
            at("pool")
        );
        Ok(Self { folder, address, configuration })
    }

    /// The folder of the server, which had nothing in it.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The end of the server's configuration.
    pub(super) fn configuration(&self) -> &str {
        &self.configuration
    }

    pub(super) fn script(&self) -> String {
        let at = |name: &str| self.folder.join(name).display().to_string();
        format!(
            "API=10.0.2.2:{} SECRET_FILE={} OTHER_SECRET_FILE={}\n{CASES}",
            self.address.port(),
            at("secret"),
            at("other-secret")
        )
    }

    /// The disk with the programs and files of the driver.
    pub(super) fn disk(&self) -> Result<PathBuf> {
        let disk = self.folder.join("disk.tar");
        let mut paths: Vec<PathBuf> = PROGRAMS.map(process::built).into();
        paths.push(csi_sanity()?);
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&disk);
        for path in paths.iter().chain(&["token", "certificate.pem"].map(|name| self.folder.join(name))) {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                bail!("{} is no file", path.display())
            };
            tar.arg("-C").arg(folder).arg(name);
        }
        process::run(&mut tar)?;
        Ok(disk)
    }
}

fn csi_sanity() -> Result<PathBuf> {
    let output = Command::new(process::built("lunette-node")).arg("sanity").output().context("lunette-node")?;
    if !output.status.success() {
        bail!("csi-sanity cannot be built: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}
