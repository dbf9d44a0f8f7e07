//! Follows redirections: a pure decision.

use crate::Error;
use crate::limits::{MAX_QUOTED_CHARS, MAX_REDIRECTS};
use crate::portal::{BadAddress, Portal};

/// The number of redirections that an error names: enough to see a circle of two.
const NAMED: usize = 3;

/// The portals that have redirected since the last login, in order.
#[derive(Debug, Default)]
pub(super) struct Redirections(Vec<Portal>);

impl Redirections {
    /// Forgets all redirections: a login has succeeded.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The portal that redirected last.
    pub(super) fn last(&self) -> Option<&Portal> {
        self.0.last()
    }

    /// Follows a redirection of the portal `from` to `addresses`, TargetAddress values: gives the first that can be
    /// connected to.
    pub(super) fn follow(&mut self, from: &Portal, addresses: &[String]) -> Result<Portal, Error> {
        let to = usable(from, addresses)?;
        self.0.push(from.clone());
        if self.0.len() > MAX_REDIRECTS {
            let last = self.0.iter().skip(1).chain([&to]);
            let skipped = self.0.len().saturating_sub(NAMED);
            let last: Vec<String> = last.skip(skipped).map(Portal::to_string).collect();
            let (portal, last) = (self.0[0].to_string(), last.join(", then "));
            return Err(Error::TooManyRedirects { portal, limit: MAX_REDIRECTS, last });
        }
        Ok(to)
    }
}

/// The first address that can be connected to, or what is wrong with the first address.
fn usable(from: &Portal, addresses: &[String]) -> Result<Portal, Error> {
    let mut first_bad = None;
    for address in addresses {
        let portal =
            Portal::told(address, from).and_then(|to| if to == *from { Err(BadAddress::Itself) } else { Ok(to) });
        match portal {
            Ok(portal) => return Ok(portal),
            Err(why) => first_bad = first_bad.or(Some((address.as_str(), why))),
        }
    }
    let (address, why) = first_bad.unwrap_or(("", BadAddress::NoHost));
    let address = address.chars().take(MAX_QUOTED_CHARS).collect();
    Err(Error::BadRedirect { portal: from.to_string(), address, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portal(text: &str) -> Portal {
        Portal::parse(text).unwrap()
    }

    fn follow(from: &str, to: &[&str]) -> Result<String, String> {
        let to: Vec<String> = to.iter().map(|to| (*to).to_owned()).collect();
        let next = Redirections::default().follow(&portal(from), &to);
        next.map(|to| to.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_address_that_can_be_connected_to_is_taken() {
        assert_eq!(follow("a:1", &["b:2,1"]).unwrap(), "b:2");
        assert_eq!(follow("a:1", &["b:0", "", "a:1,9", "c", "d:4"]).unwrap(), "c:3260");
        assert_eq!(follow("[fe80::9%eth0]:1", &["[fe80::1]:2,1"]).unwrap(), "[fe80::1%eth0]:2");
    }

    #[test]
    fn a_redirection_to_nowhere_names_the_address_and_what_is_wrong_with_it() {
        let long = "y".repeat(8000);
        for (to, expected) in [
            (&["b:0"][..], "a:1: redirected to \"b:0\", where no target can be: its port"),
            (&[""], "redirected to \"\", where no target can be: it has no host"),
            (&["b:x", "c:0"], "redirected to \"b:x\""),
            (&["a:1,2"], "redirected to \"a:1,2\", where no target can be: it is the portal that redirects"),
            (&["\u{1b}[2J\u{202e}"], "redirected to \"\\u{1b}[2J\\u{202e}\""),
            (&[&long], "\", where no target can be: its host"),
            (&[], "it has no host"),
        ] {
            let error = follow("a:1", to).unwrap_err();
            assert!(error.contains(expected) && error.len() < 300, "{to:?}: {error}");
        }
    }

    #[test]
    fn a_circle_ends_and_is_named() {
        let mut redirections = Redirections::default();
        let portals = ["a:1", "b:2"].map(portal);
        let mut at = 0;
        let error = loop {
            let to = [portals[1 - at].to_string()];
            match redirections.follow(&portals[at], &to) {
                Ok(next) => at = usize::from(next == portals[1]),
                Err(error) => break error,
            }
        };
        let expected = "a:1: redirected more than 8 times, at last to b:2, then a:1, then b:2";
        assert_eq!(error.to_string(), expected);
        redirections.clear();
        assert!(redirections.follow(&portals[0], &["b:2".into()]).is_ok());
    }
}
