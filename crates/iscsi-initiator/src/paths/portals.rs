//! The portals that the paths of a disk lead through.

use lunette_session::is_same_name;

use crate::limits::MAX_PATHS;
use crate::url::Paths;
use crate::{Error, Initiator, Options, Portal, discover};

/// The portals of the target for its paths: those that the user names, or those that discovery gives.
pub(super) async fn portals(
    initiator: &Initiator,
    first: &Portal,
    target: &str,
    paths: &Paths,
    options: &Options,
) -> Result<Vec<Portal>, Error> {
    match paths {
        Paths::Portals(others) => Ok(std::iter::once(first).chain(others).cloned().collect()),
        Paths::Discovered(wanted) => {
            let records = discover(initiator, first, options.clone()).await?;
            // A target that compares bytes may have a neighbour whose name differs in case alone.
            let exact = records.iter().find(|record| record.name == target);
            let record = exact.or_else(|| records.iter().find(|record| is_same_name(&record.name, target)));
            choose(first, record.map_or(&[], |record| &record.addresses), *wanted)
                .map_err(|found| Error::TooFewPortals { portal: first.to_string(), target: target.into(), found })
        }
    }
}

/// Chooses from the addresses that discovery gave, `first` first. Gives their number when they are fewer than wanted.
fn choose(first: &Portal, addresses: &[String], wanted: Option<usize>) -> Result<Vec<Portal>, usize> {
    let mut portals: Vec<Portal> = Vec::new();
    for portal in addresses.iter().filter_map(|address| Portal::told(address, first).ok()) {
        if !portals.contains(&portal) {
            portals.push(portal);
        }
    }
    if portals.is_empty() {
        // Without an address a target is reached through the portal that was asked.
        portals.push(first.clone());
    }
    if let Some(at) = portals.iter().position(|portal| portal == first) {
        portals[..=at].rotate_right(1);
    }
    if wanted.is_some_and(|wanted| portals.len() < wanted) {
        return Err(portals.len());
    }
    portals.truncate(wanted.unwrap_or(MAX_PATHS));
    Ok(portals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portals_are_those_of_discovery_and_the_one_that_was_named_comes_first() {
        let portal = |text: &str| Portal::parse(text).unwrap();
        let list = ["192.0.2.1:3260,1", "0.0.0.0:3260,1", "192.0.2.2:3260,2", "192.0.2.1:3260,1", "192.0.2.3,3"];
        let list = list.map(String::from);
        let (one, two, three) = (portal("192.0.2.1"), portal("192.0.2.2"), portal("192.0.2.3"));
        assert_eq!(choose(&two, &list, None).unwrap(), [two.clone(), one.clone(), three.clone()]);
        assert_eq!(choose(&two, &list, Some(2)).unwrap(), [two.clone(), one.clone()]);
        let by_name = portal("disks.example");
        assert_eq!(choose(&by_name, &list, Some(3)).unwrap(), [one, two, three], "the same portals under other names");
        assert_eq!(choose(&by_name, &list, Some(4)), Err(3));
        assert_eq!(choose(&by_name, &[], None).as_deref(), Ok(std::slice::from_ref(&by_name)));
        assert_eq!(choose(&by_name, &[], Some(2)), Err(1));
    }
}
