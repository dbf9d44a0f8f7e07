//! The parameters of `iscsis://`: whom the client trusts, and its certificate.

use lunette_tls::Fingerprint;

use super::error::{UrlError, wrong};
use crate::tls::ClientTls;

/// The parameters of TLS, beside `tls` with the folder of certificates.
pub(super) const NAMES: [&str; 2] = ["tls_pin", "tls_name"];

/// The values that were read so far.
#[derive(Default)]
pub(super) struct Values {
    pub(super) pin: Option<Fingerprint>,
    pub(super) name: Option<String>,
}

impl Values {
    /// The TLS of a URL whose parameter `tls` is `folder`.
    pub(super) fn finish(self, folder: Option<&str>) -> Result<ClientTls, UrlError> {
        let tls = match (folder, self.pin) {
            (Some(folder), None) => ClientTls::of_folder(folder),
            (Some(folder), Some(pin)) => ClientTls::of_folder(folder).with_pin(pin),
            (None, Some(pin)) => ClientTls::pinned(pin),
            (None, None) => {
                return wrong(
                    "iscsis:// needs to know whom to trust; write tls=DIR with ca-cert.pem in it, or \
                     tls_pin=sha256:DIGITS of the server's certificate",
                );
            }
        };
        Ok(self.name.into_iter().fold(tls, ClientTls::with_name))
    }
}

/// Reads a fingerprint.
pub(super) fn pin(value: &str) -> Result<Fingerprint, UrlError> {
    value.parse().map_err(|error| UrlError(format!("tls_pin={value}: {error}")))
}
