//! The digest by which people name a certificate.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};

/// The algorithm in front of the digits.
const PREFIX: &str = "sha256:";

/// SHA-256 of a certificate in DER: `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// The text is no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is {PREFIX} and 64 hexadecimal digits")]
pub struct NoFingerprint;

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    /// Reads the digits in either case, also with colons between them, as openssl prints them.
    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let digits = text.strip_prefix(PREFIX).ok_or(NoFingerprint)?.chars().filter(|c| *c != ':');
        let digits: Option<Vec<u8>> = digits.take(65).map(|c| u8::try_from(c.to_digit(16)?).ok()).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or(NoFingerprint)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_they_are_printed() {
        let fingerprint = Fingerprint::of(b"");
        let text = fingerprint.to_string();
        assert_eq!(text, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let upper = format!("{PREFIX}{}", text[PREFIX.len()..].to_ascii_uppercase());
        for text in [&text, &upper, &text.replace("b0c4", "b0:c4")] {
            assert_eq!(text.parse(), Ok(fingerprint), "{text}");
        }
        for wrong in ["", &text[PREFIX.len()..], &text[..text.len() - 1], &format!("{text}0"), &text.replace('e', "g")]
        {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(NoFingerprint), "{wrong}");
        }
    }
}
