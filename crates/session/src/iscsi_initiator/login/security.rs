//! The security stage, initiator side: AuthMethod and CHAP (RFC 7143 sections 9.2.1, 12.1 and 12.1.3).

use lunette_pdu::text::{self, TextWriter};
use subtle::ConstantTimeEq;

use super::put;
use crate::chap::MAX_BINARY_BYTES;
use crate::chap::algorithms::ChapAlgorithm;
use crate::iscsi_initiator::config::ChapIdentity;
use crate::iscsi_initiator::error::{LoginError, SessionError, broken};
use crate::{Credentials, Entropy, ProvenSecrets};

/// Proof that the target has shown all that was asked of it. No login gets out of the security stage without. It has
/// the secrets that were proven.
#[derive(Debug)]
pub(crate) struct Trusted(ProvenSecrets);

impl Trusted {
    pub(crate) fn into_secrets(self) -> ProvenSecrets {
        self.0
    }
}

/// The expected answer of the target to our own challenge.
#[derive(Debug)]
struct Expected {
    response: Vec<u8>,
}

impl Expected {
    fn verify(&self, target: &Credentials, user: Option<&str>, response: Option<&str>) -> Result<(), SessionError> {
        let response = response.and_then(|text| text::parse_binary(text, MAX_BINARY_BYTES).ok());
        let right: bool = response.is_some_and(|response| self.response.ct_eq(&response).into());
        let name_is_right = user.is_some_and(|user| target.user.is_empty() || user == target.user);
        if right && name_is_right { Ok(()) } else { Err(LoginError::TargetAuthentication.into()) }
    }
}

#[derive(Debug)]
enum State {
    /// AuthMethod is out.
    Offered,
    /// CHAP_A is out.
    AlgorithmsOffered,
    /// CHAP_N and CHAP_R are out, with our own challenge when there is something to expect.
    Answered(ChapAlgorithm, Option<Expected>),
    Done(Trusted),
}

/// The exchange.
pub(super) struct Security {
    identity: Option<ChapIdentity>,
    entropy: Entropy,
    state: State,
}

impl Security {
    pub(super) fn new(identity: Option<ChapIdentity>, entropy: Entropy) -> Self {
        Self { identity, entropy, state: State::Offered }
    }

    /// The methods that the first request offers. With CHAP, a target that asks for no proof is welcome unless it must
    /// prove itself.
    pub(super) fn methods(&self) -> &'static str {
        match &self.identity {
            None => "None",
            Some(ChapIdentity { target: None, .. }) => "CHAP,None",
            Some(_) => "CHAP",
        }
    }

    /// Whether the stage may end with the target's next answer.
    pub(super) fn may_end(&self) -> bool {
        match self.state {
            State::Offered => self.identity.is_none(),
            State::AlgorithmsOffered => false,
            State::Answered(..) | State::Done(_) => true,
        }
    }

    /// Takes a complete list of the target's keys, and writes what answers it.
    pub(super) fn take(&mut self, keys: &Keys<'_>, transits: bool, reply: &mut TextWriter) -> Result<(), SessionError> {
        self.state = match std::mem::replace(&mut self.state, State::Offered) {
            State::Offered => self.method(keys.value("AuthMethod"), transits, reply)?,
            State::AlgorithmsOffered => self.challenged(keys, reply)?,
            State::Answered(algorithm, None) => State::Done(self.proven(algorithm, false)),
            State::Answered(algorithm, Some(expected)) => State::Done(self.proof(algorithm, &expected, keys)?),
            State::Done(trusted) => State::Done(trusted),
        };
        Ok(())
    }

    /// The way out.
    pub(super) fn trusted(self) -> Option<Trusted> {
        if let State::Done(trusted) = self.state { Some(trusted) } else { None }
    }

    fn method(&self, method: Option<&str>, transits: bool, reply: &mut TextWriter) -> Result<State, SessionError> {
        let takes_none = self.identity.as_ref().is_none_or(|identity| identity.target.is_none());
        match (method, &self.identity) {
            (Some("CHAP"), Some(identity)) => {
                put(reply, "CHAP_A", &identity.algorithms.offer())?;
                Ok(State::AlgorithmsOffered)
            }
            (Some("None"), _) if takes_none => Ok(State::Done(Trusted(ProvenSecrets::default()))),
            // Said by deed. We only offer to move on when there is nothing to prove.
            (None, None) if transits => Ok(State::Done(Trusted(ProvenSecrets::default()))),
            (Some("Reject"), _) => Err(LoginError::Incompatible("AuthMethod".into()).into()),
            (Some(other), _) => {
                Err(broken("12.1", format!("AuthMethod={other} answers AuthMethod={}", self.methods())))
            }
            (None, _) => Err(broken("12.1", "AuthMethod was not answered")),
        }
    }

    fn challenged(&self, keys: &Keys<'_>, reply: &mut TextWriter) -> Result<State, SessionError> {
        let Some(identity) = &self.identity else { return Err(broken("12.1.3", "a challenge without CHAP")) };
        let wrong = |key: &str| broken("12.1.3", format!("{key} is missing or no value of its kind"));
        let number = |key: &str| keys.value(key).and_then(|value| text::parse_number(value).ok());
        if keys.value("CHAP_A") == Some("Reject") {
            return Err(LoginError::Incompatible("CHAP_A".into()).into());
        }
        let chosen = number("CHAP_A").ok_or_else(|| wrong("CHAP_A"))?;
        let algorithm = ChapAlgorithm::from_number(chosen).filter(|chosen| identity.algorithms.contains(*chosen));
        let algorithm = algorithm.ok_or_else(|| {
            broken("12.1.3", format!("CHAP_A={chosen} answers CHAP_A={}", identity.algorithms.offer()))
        })?;
        let identifier = number("CHAP_I").and_then(|n| u8::try_from(n).ok()).ok_or_else(|| wrong("CHAP_I"))?;
        let challenge = keys
            .value("CHAP_C")
            .and_then(|value| text::parse_binary(value, MAX_BINARY_BYTES).ok())
            .ok_or_else(|| wrong("CHAP_C"))?;
        let ours = self.entropy.chap_challenge();
        if challenge == ours {
            return Err(broken("9.2.1", "the target's challenge is our own"));
        }
        let response = algorithm.response(identifier, &identity.initiator.secret, &challenge);
        put(reply, "CHAP_N", &identity.initiator.user)?;
        put(reply, "CHAP_R", &text::format_binary(&response))?;
        let Some(target) = &identity.target else { return Ok(State::Answered(algorithm, None)) };
        let identifier = self.entropy.chap_identifier();
        put(reply, "CHAP_I", &identifier.to_string())?;
        put(reply, "CHAP_C", &text::format_binary(&ours))?;
        let response = algorithm.response(identifier, &target.secret, &ours);
        Ok(State::Answered(algorithm, Some(Expected { response })))
    }

    fn proof(&self, algorithm: ChapAlgorithm, expected: &Expected, keys: &Keys<'_>) -> Result<Trusted, SessionError> {
        let target = self.identity.as_ref().and_then(|identity| identity.target.as_ref());
        let target = target.ok_or(LoginError::TargetAuthentication)?;
        expected.verify(target, keys.value("CHAP_N"), keys.value("CHAP_R"))?;
        Ok(self.proven(algorithm, true))
    }

    /// Our secret is proven, and that of the target where it was asked for.
    fn proven(&self, algorithm: ChapAlgorithm, target_too: bool) -> Trusted {
        let identity = self.identity.as_ref();
        let target = identity.and_then(|identity| identity.target.as_ref()).filter(|_| target_too);
        Trusted(ProvenSecrets {
            initiator: identity.map(|identity| identity.initiator.secret.clone()),
            target: target.map(|target| target.secret.clone()),
            algorithm: Some(algorithm),
        })
    }
}

/// The pairs of one list.
pub(super) struct Keys<'a>(pub(super) Vec<(&'a str, &'a str)>);

impl<'a> Keys<'a> {
    pub(super) fn value(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }
}
