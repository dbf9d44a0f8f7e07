//! Why keys could not be had.

use crate::client::ClientError;
use crate::files::FileError;
use crate::keyfile::KeyFileError;
use crate::secret::SecretFileError;

/// Why the keys of a volume could not be had. Messages name the place and the remedy, and no secret.
#[derive(Debug, thiserror::Error)]
pub enum KeySourceError {
    /// The key file cannot be read.
    #[error("the key file {0}")]
    File(#[from] FileError),
    /// The key file is none, or the secret does not open it.
    #[error("{place}: {error}")]
    KeyFile {
        /// Where the key file is.
        place: String,
        /// The mistake.
        #[source]
        error: KeyFileError,
    },
    /// The file of a passphrase cannot be used.
    #[error("the passphrase file {0}")]
    Passphrase(#[from] SecretFileError),
    /// systemd gives no such credential.
    #[error("there is no credential {0}: systemd gives the credentials of LoadCredentialEncrypted= in the unit")]
    Credential(String),
    /// Nothing was given that opens the key file.
    #[error("{place}: {remedy}")]
    NoSecret {
        /// Where the key file is.
        place: String,
        /// The means that would open it.
        remedy: &'static str,
    },
    /// A key server demands a certificate, and none is given.
    #[error(
        "the key server {0} needs a client certificate: give tls=DIR, the folder with ca-cert.pem, client-cert.pem and client-key.pem"
    )]
    NoCertificate(String),
    /// The key server cannot be reached, or refuses.
    #[error(transparent)]
    Server(#[from] ClientError),
    /// The keys do not fit together.
    #[error("{place}: {reason}")]
    Ring {
        /// Where the key file is.
        place: String,
        /// The mistake.
        reason: String,
    },
}
