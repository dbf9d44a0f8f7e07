//! The digests under CHAP by their numbers in `CHAP_A`, and the sets of them that a side allows.

use std::fmt;
use std::str::FromStr;

use lunette_pdu::text;
use md5::Md5;
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;

use super::Secret;

/// The digest under CHAP, by its number in `CHAP_A` (IANA's registry of PPP authentication algorithms).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChapAlgorithm {
    /// MD5, the weakest. RFC 7143 section 12.1.3 asks every implementation for it.
    Md5 = 5,
    /// SHA-1.
    Sha1 = 6,
    /// SHA-256.
    Sha256 = 7,
    /// SHA3-256, the strongest.
    Sha3_256 = 8,
}

impl ChapAlgorithm {
    /// All algorithms, strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| *algorithm as u64 == number)
    }

    /// The name in configurations and URLs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha3_256 => "sha3-256",
        }
    }

    /// RFC 1994 section 4.1: digest over identifier, secret, challenge.
    pub(crate) fn response(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        fn digest<D: md5::Digest>(identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
            D::new()
                .chain_update([identifier])
                .chain_update(secret.expose())
                .chain_update(challenge)
                .finalize()
                .to_vec()
        }
        match self {
            Self::Md5 => digest::<Md5>(identifier, secret, challenge),
            Self::Sha1 => digest::<Sha1>(identifier, secret, challenge),
            Self::Sha256 => digest::<Sha256>(identifier, secret, challenge),
            Self::Sha3_256 => digest::<Sha3_256>(identifier, secret, challenge),
        }
    }
}

impl fmt::Display for ChapAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ChapAlgorithm {
    type Err = UnknownChapAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownChapAlgorithm> {
        let known = Self::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        known.ok_or_else(|| UnknownChapAlgorithm(text.into()))
    }
}

/// A text that names no algorithm of CHAP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no CHAP algorithm {0:?}; write one or several of {all}", all = ChapAlgorithms::ALL)]
pub struct UnknownChapAlgorithm(String);

/// A set of algorithms that a side allows. Without any in it, no login by CHAP passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChapAlgorithms(
    /// Bit `n` for the algorithm with the number `n`.
    u16,
);

impl ChapAlgorithms {
    /// All algorithms, so that initiators and targets that know MD5 alone are served.
    pub const ALL: Self = Self(0b1_1110_0000);

    /// Whether it has this algorithm.
    pub fn contains(self, algorithm: ChapAlgorithm) -> bool {
        self.0 & bit(algorithm) != 0
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The algorithms in it, strongest first.
    pub fn iter(self) -> impl Iterator<Item = ChapAlgorithm> {
        ChapAlgorithm::ALL.into_iter().filter(move |algorithm| self.contains(*algorithm))
    }

    /// The algorithms of a `CHAP_A` that we know.
    pub(super) fn offered(list: &str) -> Self {
        let number = |item: &str| text::parse_number(item).ok();
        list.split(',').filter_map(|item| ChapAlgorithm::from_number(number(item)?)).collect()
    }

    /// The strongest algorithm in both sets.
    pub(super) fn strongest_in(self, other: Self) -> Option<ChapAlgorithm> {
        self.iter().find(|algorithm| other.contains(*algorithm))
    }

    /// The value of `CHAP_A` that offers them: the strongest first, and SHA-256 last.
    ///
    /// tgt gives the number of SHA-256 to SHA-1, and takes the first number of a list that it knows. Other targets take
    /// one that stands before.
    pub(crate) fn offer(self) -> String {
        let order = [ChapAlgorithm::Sha3_256, ChapAlgorithm::Sha1, ChapAlgorithm::Md5, ChapAlgorithm::Sha256];
        order
            .into_iter()
            .filter(|algorithm| self.contains(*algorithm))
            .map(|algorithm| (algorithm as u8).to_string())
            .collect::<Vec<_>>()
            .join(",")
    }
}

impl Default for ChapAlgorithms {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<ChapAlgorithm> for ChapAlgorithms {
    fn from_iter<I: IntoIterator<Item = ChapAlgorithm>>(algorithms: I) -> Self {
        Self(algorithms.into_iter().fold(0, |bits, algorithm| bits | bit(algorithm)))
    }
}

impl fmt::Display for ChapAlgorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&self.iter().map(ChapAlgorithm::name).collect::<Vec<_>>().join(", "))
    }
}

/// Names with commas between them.
impl FromStr for ChapAlgorithms {
    type Err = UnknownChapAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownChapAlgorithm> {
        text.split(',').map(str::parse::<ChapAlgorithm>).collect()
    }
}

fn bit(algorithm: ChapAlgorithm) -> u16 {
    1 << algorithm as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        use std::fmt::Write as _;
        bytes.iter().fold(String::new(), |mut text, b| {
            let _ = write!(text, "{b:02x}");
            text
        })
    }

    #[test]
    fn responses_match_values_computed_elsewhere() {
        // printf '\x01secretchallenge' | md5sum, sha1sum, sha256sum, openssl dgst -sha3-256
        for (algorithm, expected) in [
            (ChapAlgorithm::Md5, "46e47770030e2b4e26a0db72a7efec00"),
            (ChapAlgorithm::Sha1, "011f25d29fe1baaced569c0d7e4878e40ddb7d7e"),
            (ChapAlgorithm::Sha256, "2dfa0526f4764864b7c3c5bc6596bcead3d8dbd984f4fc1d9f330299f0beced4"),
            (ChapAlgorithm::Sha3_256, "9444877c4dff778ed2add0f102dcd561e11944e7e948ee1b89508451a9e680ad"),
        ] {
            let response = algorithm.response(1, &Secret::new(b"secret".to_vec()), b"challenge");
            assert_eq!(hex(&response), expected, "{algorithm}");
        }
    }

    #[test]
    fn sets_are_read_in_any_order() {
        for (text, offer, shown) in [
            ("md5,sha1,sha256,sha3-256", "8,6,5,7", "sha3-256, sha256, sha1, md5"),
            ("sha256,sha3-256,sha256", "8,7", "sha3-256, sha256"),
            ("md5", "5", "md5"),
        ] {
            let set: ChapAlgorithms = text.parse().unwrap();
            assert_eq!((set.offer().as_str(), set.to_string().as_str()), (offer, shown));
        }
        assert_eq!(ChapAlgorithms::ALL, ChapAlgorithm::ALL.into_iter().collect());
        for text in ["", "md4", "SHA256", "md5,", "md5, sha1", "5"] {
            let error = text.parse::<ChapAlgorithms>().unwrap_err().to_string();
            assert!(error.contains("sha3-256, sha256, sha1, md5"), "{text}: {error}");
        }
    }
}
