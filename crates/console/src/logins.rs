//! Logins: cookies that stand for tokens, so that a script on a page never has a token in its hands.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::hex;
use crate::limits::{LOGIN_LIFETIME, MAX_LOGINS};

/// All logins of a place of the API. They end with the process.
#[derive(Default)]
pub(crate) struct Logins(Mutex<HashMap<Cookie, Login>>);

/// The digest of a cookie, so that the time of a look-up tells nothing of cookies that are there.
type Cookie = [u8; 32];

struct Login {
    token: Zeroizing<String>,
    began: Instant,
}

impl Logins {
    /// Keeps a token, and returns the value of the cookie that stands for it.
    pub(crate) fn begin(&self, token: Zeroizing<String>, now: Instant) -> Result<String, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let cookie = hex(&random);
        let mut logins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logins.retain(|_, login| holds(login, now));
        if logins.len() >= MAX_LOGINS {
            let oldest = logins.iter().min_by_key(|(_, login)| login.began).map(|(cookie, _)| *cookie);
            oldest.and_then(|oldest| logins.remove(&oldest));
        }
        logins.insert(digest(&cookie), Login { token, began: now });
        Ok(cookie)
    }

    /// The token that a cookie stands for.
    pub(crate) fn token(&self, cookie: &str, now: Instant) -> Option<Zeroizing<String>> {
        let logins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logins.get(&digest(cookie)).filter(|login| holds(login, now)).map(|login| login.token.clone())
    }

    /// Forgets a login.
    pub(crate) fn end(&self, cookie: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&digest(cookie));
    }
}

fn holds(login: &Login, now: Instant) -> bool {
    now.saturating_duration_since(login.began) < LOGIN_LIFETIME
}

fn digest(cookie: &str) -> Cookie {
    Sha256::digest(cookie).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn begin(logins: &Logins, token: &str, now: Instant) -> String {
        logins.begin(Zeroizing::new(token.into()), now).unwrap()
    }

    #[test]
    fn a_login_ends_after_its_time_or_when_it_is_told_to() {
        let (logins, now) = (Logins::default(), Instant::now());
        let cookie = begin(&logins, "a", now);
        let other = begin(&logins, "b", now);
        assert_eq!(logins.token(&cookie, now).unwrap().as_str(), "a");
        assert_eq!(logins.token("a", now), None);
        logins.end(&cookie);
        assert_eq!(logins.token(&cookie, now), None);
        let end = now + LOGIN_LIFETIME;
        let just_before = end.checked_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(logins.token(&other, just_before).unwrap().as_str(), "b");
        assert_eq!(logins.token(&other, end), None);
    }

    #[test]
    fn logins_are_bounded_and_the_oldest_goes_first() {
        let (logins, start) = (Logins::default(), Instant::now());
        let at = |index: usize| start + Duration::from_secs(index as u64);
        let cookies: Vec<String> = (0..=MAX_LOGINS).map(|index| begin(&logins, "t", at(index))).collect();
        let now = at(MAX_LOGINS);
        let held: Vec<bool> = cookies.iter().map(|cookie| logins.token(cookie, now).is_some()).collect();
        assert_eq!(held.iter().filter(|held| **held).count(), MAX_LOGINS);
        assert!(!held[0]);
    }
}
