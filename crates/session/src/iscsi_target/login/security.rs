//! The security stage, target side: AuthMethod and CHAP (RFC 7143 sections 9.2.1, 12.1 and 12.1.3).

use lunette_pdu::text;
use lunette_pdu::{LoginRequest, LoginStatus};

use super::{Answers, Login, Refusal, is_name_key, refuse};
use crate::chap::{Authenticated, Challenge, ChapError, Counter, MAX_BINARY_BYTES};
use crate::keys::row;

#[derive(Debug)]
pub(super) enum Security {
    /// No method has been agreed on.
    Open,
    /// CHAP it is.
    Chap,
    /// The challenge is out.
    Challenged(Challenge),
    /// Proved, or no proof is asked for.
    Done(Authenticated),
}

impl Login {
    pub(super) fn security_keys(
        &mut self,
        request: &LoginRequest,
        pairs: &[(&str, &str)],
        answer: &mut Answers,
    ) -> Result<(), Refusal> {
        let value = |key: &str| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        for (key, _) in pairs {
            if row(key).is_some() {
                return refuse(LoginStatus::INITIATOR_ERROR, format!("{key} does not belong to the security stage"));
            }
            if !is_name_key(key) && !is_security_key(key) {
                answer.push(key, "NotUnderstood")?;
            }
        }
        self.security = match (std::mem::replace(&mut self.security, Security::Open), value("AuthMethod")) {
            (Security::Open, Some(methods)) => self.choose_method(methods, answer)?,
            (Security::Chap, None) => match value("CHAP_A") {
                Some(algorithms) => self.challenge(algorithms, answer)?,
                None => return refuse(LoginStatus::AUTHENTICATION_FAILURE, "CHAP_A did not come"),
            },
            (Security::Challenged(challenge), None) => self.verify(challenge, &value, answer)?,
            (_, Some(_)) => return refuse(LoginStatus::INITIATOR_ERROR, "AuthMethod was offered twice"),
            (security, None) => security,
        };
        if let (Security::Open, true) = (&self.security, request.transit) {
            self.security = Security::Done(self.without_proof()?);
        }
        Ok(())
    }

    pub(super) fn without_proof(&self) -> Result<Authenticated, Refusal> {
        let Some(proof) = Authenticated::without_proof(self.policy()) else {
            return refuse(LoginStatus::AUTHENTICATION_FAILURE, "CHAP is required and was not offered");
        };
        Ok(proof)
    }

    fn choose_method(&self, methods: &str, answer: &mut Answers) -> Result<Security, Refusal> {
        let (wanted, next) = match Authenticated::without_proof(self.policy()) {
            Some(proof) => ("None", Security::Done(proof)),
            None => ("CHAP", Security::Chap),
        };
        if !methods.split(',').any(|method| method == wanted) {
            let why = format!("AuthMethod={methods} has no {wanted}");
            return refuse(LoginStatus::AUTHENTICATION_FAILURE, why);
        }
        answer.push("AuthMethod", wanted)?;
        Ok(next)
    }

    fn challenge(&self, algorithms: &str, answer: &mut Answers) -> Result<Security, Refusal> {
        match Challenge::select(
            self.policy(),
            algorithms,
            self.entropy.chap_identifier(),
            self.entropy.chap_challenge(),
        ) {
            Ok(challenge) => {
                answer.push("CHAP_A", &(challenge.algorithm as u8).to_string())?;
                answer.push("CHAP_I", &challenge.identifier.to_string())?;
                answer.push("CHAP_C", &text::format_binary(&challenge.bytes))?;
                Ok(Security::Challenged(challenge))
            }
            Err(error) => refuse(LoginStatus::AUTHENTICATION_FAILURE, error.to_string()),
        }
    }

    fn verify<'a>(
        &self,
        challenge: Challenge,
        value: &impl Fn(&str) -> Option<&'a str>,
        answer: &mut Answers,
    ) -> Result<Security, Refusal> {
        let denied = |why: &str| Refusal::new(LoginStatus::AUTHENTICATION_FAILURE, why);
        let binary = |text: &str| text::parse_binary(text, MAX_BINARY_BYTES).ok();
        let user = value("CHAP_N").ok_or_else(|| denied("CHAP_N did not come"))?;
        let response =
            value("CHAP_R").and_then(binary).ok_or_else(|| denied("CHAP_R did not come or is no binary value"))?;
        let counter = match (value("CHAP_I"), value("CHAP_C")) {
            (None, None) => None,
            (Some(identifier), Some(challenge)) => Some(Counter {
                identifier: text::parse_number(identifier)
                    .ok()
                    .and_then(|n| u8::try_from(n).ok())
                    .ok_or_else(|| denied("CHAP_I is no number below 256"))?,
                challenge: binary(challenge)
                    .filter(|bytes| !bytes.is_empty())
                    .ok_or_else(|| denied("CHAP_C is no binary value"))?,
            }),
            _ => return Err(denied("CHAP_I and CHAP_C come together or not at all")),
        };
        let verified = challenge.verify(self.policy(), user, &response, counter.as_ref());
        let (authenticated, proof) = verified.map_err(|error| denied(&error.to_string()))?;
        if let Some(proof) = proof {
            // Another login may wait for this very response (RFC 7143 section 9.2.1).
            if authenticated.secrets().target.as_ref().is_some_and(|ours| self.directory.is_proven_with(ours)) {
                return Err(denied(&ChapError::SharedSecret.to_string()));
            }
            answer.push("CHAP_N", &proof.user)?;
            answer.push("CHAP_R", &text::format_binary(&proof.response))?;
        }
        Ok(Security::Done(authenticated))
    }
}

fn is_security_key(key: &str) -> bool {
    matches!(key, "AuthMethod" | "CHAP_A" | "CHAP_I" | "CHAP_C" | "CHAP_N" | "CHAP_R")
}
