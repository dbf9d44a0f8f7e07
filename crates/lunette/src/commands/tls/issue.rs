//! Certificates that come, are renewed and go.

use std::path::PathBuf;

use clap::Args;
use lunette_tls::authority::{Identities, Renewal};

use super::{Validity, open};
use crate::failure::Failure;
use crate::output;

/// Issue a certificate, and make a folder with the files for its owner: FOLDER/NAME
///
/// With --host it is a server's, otherwise a client's. The folder has ca-cert.pem, the certificate and its key: of a
/// server server-cert.pem and server-key.pem, with ca-crl.pem; of a client client-cert.pem and client-key.pem.
#[derive(Args)]
pub(super) struct Issue {
    #[command(flatten)]
    owner: Owner,
    /// A name or an address by which clients reach the server
    #[arg(long = "host", value_name = "HOST,...", value_delimiter = ',', conflicts_with_all = ["names", "dns"])]
    hosts: Vec<String>,
    /// An iSCSI name of the client, such as iqn.2026-11.org.example:db1
    #[arg(long = "name", value_name = "IQN,...", value_delimiter = ',')]
    names: Vec<String>,
    /// A name of the client in the DNS
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    dns: Vec<String>,
    #[command(flatten)]
    validity: Validity,
}

/// Renew a certificate: another one with the same names takes its place
///
/// A server that runs reads it from its folder. The key stays, and the certificate before is valid until its end.
#[derive(Args)]
pub(super) struct Renew {
    #[command(flatten)]
    owner: Owner,
    #[command(flatten)]
    validity: Validity,
    /// Make a new key, too, and revoke the certificates before
    #[arg(long)]
    revoke: bool,
}

/// Revoke all certificates of a name
///
/// Servers whose folder is below FOLDER get the new list at once. Copy FOLDER/ca-crl.pem to others.
#[derive(Args)]
pub(super) struct Revoke {
    #[command(flatten)]
    owner: Owner,
}

/// The owner of a certificate, and the authority that issues it.
#[derive(Args)]
struct Owner {
    /// The folder of the authority
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The common name in the certificate, and the folder of its files
    #[arg(value_name = "NAME")]
    common_name: String,
}

impl Issue {
    pub(super) fn run(&self, now: i64) -> Result<(), Failure> {
        let Self { owner: Owner { folder, common_name }, hosts, names, dns, validity } = self;
        let identities = Identities { hosts: hosts.clone(), iscsi_names: names.clone(), dns_names: dns.clone() };
        let issued = open(folder)?.issue(common_name, &identities, now, validity.until(now));
        output::line(issued.map_err(Failure::configuration)?.display())
    }
}

impl Renew {
    pub(super) fn run(&self, now: i64) -> Result<(), Failure> {
        let Self { owner: Owner { folder, common_name }, validity, revoke } = self;
        let renewal = if *revoke { Renewal::NewKey } else { Renewal::SameKey };
        let renewed = open(folder)?.renew(common_name, renewal, now, validity.until(now));
        output::line(renewed.map_err(Failure::configuration)?.display())
    }
}

impl Revoke {
    pub(super) fn run(&self, now: i64) -> Result<(), Failure> {
        let Owner { folder, common_name } = &self.owner;
        open(folder)?.revoke(common_name, now).map_err(Failure::configuration)?;
        output::line(format_args!("the certificates of {common_name} are revoked"))
    }
}
