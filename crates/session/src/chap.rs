//! CHAP (RFC 7143 section 9.2.1 and 12.1.3): secrets, and the target's exchange.
//!
//! The exchange is a chain of states that consume themselves. [`Authenticated`] can be made only at its end, and a
//! login needs one to leave the security stage, so a forgotten check does not compile.

pub(crate) mod algorithms;

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use algorithms::{ChapAlgorithm, ChapAlgorithms};

/// Bytes of a challenge that we send. RFC 7143 wants it as hard to guess as the response; 16 is the least that any
/// algorithm here asks for.
pub(crate) const CHALLENGE_BYTES: usize = 32;

/// The longest challenge and response that a peer may send (RFC 7143 section 12.1.3).
pub(crate) const MAX_BINARY_BYTES: usize = 1024;

/// A password. It does not print itself and is wiped when it goes.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// RFC 7143 section 9.2.1: secrets shorter than 96 bits need IPsec around them.
    pub const RECOMMENDED_BYTES: usize = 12;

    /// Takes the bytes of a password.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Whether it is shorter than [`Secret::RECOMMENDED_BYTES`].
    pub fn is_short(&self) -> bool {
        self.0.len() < Self::RECOMMENDED_BYTES
    }

    /// The bytes of the secret, for keys that are derived from it.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether both are the same. CHAP in both directions with one secret invites reflection (RFC 7143 section 9.2.1).
    pub fn same_as(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// The CHAP secrets that a login has proven to both sides: what only they know. A transport binds its keys to them.
#[derive(Debug, Clone, Default)]
pub struct ProvenSecrets {
    /// The secret of the initiator; `None` when no proof was asked for.
    pub initiator: Option<Secret>,
    /// The secret of the target, when the initiator asked for a proof, too.
    pub target: Option<Secret>,
    /// The algorithm of the proofs; `None` without any.
    pub algorithm: Option<ChapAlgorithm>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A name and its secret.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The name in CHAP_N.
    pub user: String,
    /// The secret behind the response.
    pub secret: Secret,
}

/// How a target, or a portal's discovery, wants its initiators to prove themselves.
#[derive(Debug, Clone, Default)]
pub enum Authentication {
    /// Anyone may log in.
    #[default]
    None,
    /// The initiator has to prove its identity by CHAP.
    Chap {
        /// The users that may log in.
        initiators: Vec<Credentials>,
        /// Our own identity, for initiators that ask (mutual CHAP).
        target: Option<Credentials>,
        /// The algorithms that may be used, in both directions.
        algorithms: ChapAlgorithms,
    },
}

impl Credentials {
    fn same_as(&self, other: &Self) -> bool {
        self.user == other.user && self.secret.same_as(&other.secret)
    }
}

impl Authentication {
    /// Whether both ask for the same proofs and give the same one, by the same algorithms.
    pub fn same_as(&self, other: &Self) -> bool {
        self.algorithms() == other.algorithms() && self.has_secrets_of(other)
    }

    /// Whether both ask for the same secrets and have the same one, whatever the algorithms.
    pub fn has_secrets_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (
                Self::Chap { initiators, target, algorithms: _ },
                Self::Chap { initiators: other_initiators, target: other_target, algorithms: _ },
            ) => {
                let same_target = match (target, other_target) {
                    (Some(ours), Some(theirs)) => ours.same_as(theirs),
                    (ours, theirs) => ours.is_none() && theirs.is_none(),
                };
                same_target
                    && initiators.len() == other_initiators.len()
                    && initiators.iter().zip(other_initiators).all(|(ours, theirs)| ours.same_as(theirs))
            }
            _ => false,
        }
    }

    /// The algorithms that a proof may use; `None` when no proof is asked for.
    fn algorithms(&self) -> Option<ChapAlgorithms> {
        match self {
            Self::None => None,
            Self::Chap { algorithms, .. } => Some(*algorithms),
        }
    }

    /// Whether an initiator proves itself with this secret.
    pub(crate) fn is_proven_with(&self, secret: &Secret) -> bool {
        match self {
            Self::None => false,
            Self::Chap { initiators, .. } => initiators.iter().any(|known| known.secret.same_as(secret)),
        }
    }

    /// Whether an initiator that proved to be `user`, or was asked for no proof, could log in.
    pub(crate) fn lets_in(&self, user: Option<&str>) -> bool {
        match self {
            Self::None => user.is_none(),
            Self::Chap { initiators, .. } => initiators.iter().any(|known| Some(known.user.as_str()) == user),
        }
    }
}

/// Proof that the initiator may go on.
#[derive(Debug)]
pub(crate) struct Authenticated {
    user: Option<String>,
    secrets: ProvenSecrets,
}

impl Authenticated {
    /// No proof is asked for. `None` when the policy asks for one.
    pub(crate) fn without_proof(policy: &Authentication) -> Option<Self> {
        matches!(policy, Authentication::None).then(|| Self { user: None, secrets: ProvenSecrets::default() })
    }

    /// The CHAP user that the initiator proved to be; `None` when no proof was asked for.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The secrets that both sides have proven.
    pub(crate) fn secrets(&self) -> &ProvenSecrets {
        &self.secrets
    }
}

/// Why the initiator is not let in. For the log; the peer only learns "authentication failure".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChapError {
    #[error(
        "CHAP_A={list:?} offers {offered} of the known algorithms, and chap_algorithms allows {allowed}; let the \
         initiator offer one of these, or allow one of its own"
    )]
    NoAlgorithm { list: String, offered: ChapAlgorithms, allowed: ChapAlgorithms },
    #[error("unknown CHAP user or wrong secret")]
    Denied,
    #[error("an initiator proves itself with the target's secret; give the target one of its own")]
    SharedSecret,
    #[error("our own challenge came back")]
    Reflected,
    #[error("mutual CHAP was asked for and no target credentials are configured")]
    NoTargetCredentials,
}

/// A challenge that has been sent.
#[derive(Debug)]
pub(crate) struct Challenge {
    pub(crate) algorithm: ChapAlgorithm,
    pub(crate) identifier: u8,
    pub(crate) bytes: [u8; CHALLENGE_BYTES],
}

/// The initiator's challenge to us.
pub(crate) struct Counter {
    pub(crate) identifier: u8,
    pub(crate) challenge: Vec<u8>,
}

/// Our answer to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) user: String,
    pub(crate) response: Vec<u8>,
}

impl Challenge {
    /// Picks the strongest algorithm of the initiator's list that `policy` allows, whatever its order. RFC 7143
    /// section 12.1.3 leaves the choice among those to the target.
    pub(crate) fn select(
        policy: &Authentication,
        list: &str,
        identifier: u8,
        bytes: [u8; CHALLENGE_BYTES],
    ) -> Result<Self, ChapError> {
        let allowed = policy.algorithms().ok_or(ChapError::Denied)?;
        let offered = ChapAlgorithms::offered(list);
        let no_algorithm = || ChapError::NoAlgorithm { list: list.into(), offered, allowed };
        let algorithm = allowed.strongest_in(offered).ok_or_else(no_algorithm)?;
        Ok(Self { algorithm, identifier, bytes })
    }

    /// Checks name and response, and answers a counter-challenge.
    pub(crate) fn verify(
        self,
        policy: &Authentication,
        user: &str,
        response: &[u8],
        counter: Option<&Counter>,
    ) -> Result<(Authenticated, Option<Proof>), ChapError> {
        let Authentication::Chap { initiators, target, .. } = policy else { return Err(ChapError::Denied) };
        // An unknown user costs the same work as a known one, so that names cannot be found by their timing.
        let nobody = Secret::new(self.bytes.to_vec());
        let known = initiators.iter().find(|c| c.user == user);
        let expected = self.algorithm.response(self.identifier, known.map_or(&nobody, |c| &c.secret), &self.bytes);
        let right: bool = expected.ct_eq(response).into();
        if !right || known.is_none() {
            return Err(ChapError::Denied);
        }
        let proof = match counter {
            None => None,
            Some(counter) if counter.challenge == self.bytes => return Err(ChapError::Reflected),
            Some(counter) => {
                let ours = target.as_ref().ok_or(ChapError::NoTargetCredentials)?;
                let response = self.algorithm.response(counter.identifier, &ours.secret, &counter.challenge);
                Some(Proof { user: ours.user.clone(), response })
            }
        };
        let target = target.as_ref().filter(|_| proof.is_some()).map(|ours| ours.secret.clone());
        let initiator = known.map(|known| known.secret.clone());
        let secrets = ProvenSecrets { initiator, target, algorithm: Some(self.algorithm) };
        Ok((Authenticated { user: Some(user.into()), secrets }, proof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: [u8; CHALLENGE_BYTES] = [7; CHALLENGE_BYTES];

    fn credentials(user: &str, secret: &str) -> Credentials {
        Credentials { user: user.into(), secret: Secret::new(secret.into()) }
    }

    fn policy() -> Authentication {
        Authentication::Chap {
            initiators: vec![credentials("alice", "alice's password"), credentials("bob", "bob's password!")],
            target: Some(credentials("disk", "the disk's own one")),
            algorithms: ChapAlgorithms::ALL,
        }
    }

    fn challenge(list: &str) -> Challenge {
        Challenge::select(&policy(), list, 42, CHALLENGE).unwrap()
    }

    #[test]
    fn the_strongest_allowed_algorithm_of_the_list_is_taken_whatever_its_order() {
        let taken = |allowed: &str, list: &str| {
            let policy =
                Authentication::Chap { initiators: Vec::new(), target: None, algorithms: allowed.parse().unwrap() };
            Challenge::select(&policy, list, 42, CHALLENGE).map(|challenge| challenge.algorithm)
        };
        let all = "md5,sha1,sha256,sha3-256";
        for (allowed, list, expected) in [
            (all, "5,6,7,8", ChapAlgorithm::Sha3_256),
            (all, "5,7", ChapAlgorithm::Sha256),
            (all, "9,6,5", ChapAlgorithm::Sha1),
            (all, "0x8", ChapAlgorithm::Sha3_256),
            ("md5,sha256", "8,7,6,5", ChapAlgorithm::Sha256),
            ("md5", "8,7,6,5", ChapAlgorithm::Md5),
        ] {
            assert_eq!(taken(allowed, list), Ok(expected), "{allowed} {list}");
        }
        for list in ["", "4", "9,10", "md5", "5 ,x"] {
            assert!(matches!(taken(all, list), Err(ChapError::NoAlgorithm { .. })), "{list}");
        }
        let error = taken("sha256,sha3-256", "6,5,4").unwrap_err().to_string();
        for part in ["CHAP_A=\"6,5,4\" offers sha1, md5", "chap_algorithms allows sha3-256, sha256"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(taken("sha256", "7x").unwrap_err().to_string().matches("offers none").count(), 1);
    }

    #[test]
    fn every_algorithm_lets_the_right_secret_in_and_no_other() {
        for list in ["5", "6", "7", "8"] {
            let algorithm = challenge(list).algorithm;
            let right = algorithm.response(42, &credentials("", "bob's password!").secret, &CHALLENGE);
            assert!(challenge(list).verify(&policy(), "bob", &right, None).is_ok());
            for (user, response) in [("alice", &right[..]), ("carol", &right), ("bob", &right[1..]), ("bob", &[])] {
                let denied = challenge(list).verify(&policy(), user, response, None);
                assert_eq!(denied.map(drop).unwrap_err(), ChapError::Denied, "{list} {user}");
            }
        }
    }

    #[test]
    fn an_unknown_user_cannot_answer_with_the_stand_in_secret() {
        let stand_in = ChapAlgorithm::Md5.response(42, &Secret::new(CHALLENGE.to_vec()), &CHALLENGE);
        assert!(challenge("5").verify(&policy(), "nobody", &stand_in, None).is_err());
    }

    #[test]
    fn mutual_proof_uses_the_targets_secret() {
        let right = ChapAlgorithm::Sha256.response(42, &credentials("", "alice's password").secret, &CHALLENGE);
        let counter = Counter { identifier: 9, challenge: b"who are you, disk?".to_vec() };
        let (_, proof) = challenge("7").verify(&policy(), "alice", &right, Some(&counter)).unwrap();
        let expected =
            ChapAlgorithm::Sha256.response(9, &credentials("", "the disk's own one").secret, &counter.challenge);
        assert_eq!(proof, Some(Proof { user: "disk".into(), response: expected }));
    }

    #[test]
    fn a_reflected_challenge_is_refused() {
        let right = ChapAlgorithm::Md5.response(42, &credentials("", "alice's password").secret, &CHALLENGE);
        let counter = Counter { identifier: 1, challenge: CHALLENGE.to_vec() };
        let refused = challenge("5").verify(&policy(), "alice", &right, Some(&counter));
        assert_eq!(refused.map(drop).unwrap_err(), ChapError::Reflected);
    }

    #[test]
    fn mutual_without_target_credentials_is_refused() {
        let one_way = Authentication::Chap {
            initiators: vec![credentials("a", "b")],
            target: None,
            algorithms: ChapAlgorithms::ALL,
        };
        let right = ChapAlgorithm::Md5.response(42, &credentials("", "b").secret, &CHALLENGE);
        let counter = Counter { identifier: 1, challenge: vec![1; 16] };
        let refused = challenge("5").verify(&one_way, "a", &right, Some(&counter));
        assert_eq!(refused.map(drop).unwrap_err(), ChapError::NoTargetCredentials);
    }

    #[test]
    fn secrets_do_not_print() {
        assert_eq!(format!("{:?}", credentials("u", "hush")), "Credentials { user: \"u\", secret: Secret(…) }");
    }
}
