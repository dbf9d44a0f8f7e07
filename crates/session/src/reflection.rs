//! The reflection attack on CHAP, over all rules of a server (RFC 7143 section 9.2.1).
//!
//! A target that answers challenges with the secret of an initiator lets any peer that may challenge it log in as that
//! initiator: the peer passes on the challenge that it got for the other login. The two logins may follow different
//! rules, so all of them are compared.

use std::collections::HashMap;

use crate::chap::Authentication;

/// A secret by which the server proves itself and an initiator does, too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{prover} proves itself with the secret of the initiator {user:?} of {asker}, so another initiator could log in as that one; give \
     the target a secret of its own (RFC 7143 section 9.2.1)"
)]
pub struct SharedSecret {
    /// The rule under which the server answers challenges with it.
    pub prover: String,
    /// The rule under which an initiator logs in with it.
    pub asker: String,
    /// The name (CHAP_N) of that initiator.
    pub user: String,
}

/// Finds a secret that two rules of one server use in different directions. Each rule has a name for people.
///
/// # Errors
///
/// The first such secret, in the order of the rules.
pub fn check_secrets<'a>(rules: &[(String, &'a Authentication)]) -> Result<(), SharedSecret> {
    let mut of_initiators: HashMap<&'a [u8], (&str, &str)> = HashMap::new();
    for (rule, authentication) in rules {
        if let Authentication::Chap { initiators, .. } = authentication {
            for known in initiators {
                of_initiators.entry(known.secret.expose()).or_insert((rule, &known.user));
            }
        }
    }
    for (rule, authentication) in rules {
        let Authentication::Chap { target: Some(target), .. } = authentication else { continue };
        if let Some((asker, user)) = of_initiators.get(target.secret.expose()) {
            return Err(SharedSecret { prover: rule.clone(), asker: (*asker).into(), user: (*user).into() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chap::algorithms::ChapAlgorithms;
    use crate::chap::{Credentials, Secret};

    fn chap(initiators: &[&str], target: Option<&str>) -> Authentication {
        let credentials =
            |secret: &&str| Credentials { user: format!("user of {secret}"), secret: Secret::new((*secret).into()) };
        Authentication::Chap {
            initiators: initiators.iter().map(credentials).collect(),
            target: target.as_ref().map(credentials),
            algorithms: ChapAlgorithms::ALL,
        }
    }

    #[test]
    fn a_secret_has_one_direction_over_all_rules() {
        let check = |rules: &[Authentication]| {
            let named: Vec<_> = rules.iter().enumerate().map(|(index, rule)| (index.to_string(), rule)).collect();
            check_secrets(&named).map_err(|shared| (shared.prover, shared.asker, shared.user))
        };
        let shared =
            |prover: &str, asker: &str, user: &str| Err((prover.into(), asker.into(), format!("user of {user}")));
        assert_eq!(check(&[chap(&["a"], Some("a"))]), shared("0", "0", "a"));
        assert_eq!(check(&[chap(&["a"], Some("m")), chap(&["b", "m"], None)]), shared("0", "1", "m"));
        assert_eq!(check(&[chap(&["a", "m"], None), chap(&["b"], Some("m"))]), shared("1", "0", "m"));
        // One direction may use a secret under several rules.
        assert_eq!(check(&[chap(&["a"], Some("m")), chap(&["a", "b"], Some("m")), Authentication::None]), Ok(()));
    }
}
