//! The digest by which a certificate is pinned.

use std::path::PathBuf;

use clap::Args;
use lunette_tls::Fingerprint;

use crate::failure::Failure;
use crate::output;

/// Print the fingerprint of a certificate, sha256:…, by which it can be pinned
///
/// Of several certificates in a file, the first counts, as for TLS. A renewed certificate has another fingerprint.
#[derive(Args)]
pub(super) struct Arguments {
    /// The certificate in PEM
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let certificates = lunette_tls::certificates(&self.file).map_err(Failure::configuration)?;
        certificates.iter().take(1).try_for_each(|certificate| output::line(Fingerprint::of(certificate)))
    }
}
