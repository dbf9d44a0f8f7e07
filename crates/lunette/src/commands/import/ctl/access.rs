//! Which initiators may log in to a target of ctld.

use std::collections::BTreeSet;

use lunette_session::folded_name;

use super::super::draft::{Host, Target, User, Users};
use super::super::report::{Imported, may_ask_for_proof, network, unknown_proof};
use super::super::tree::{self, Statement};
use super::{Context, DEFAULT};

/// Settings that say which initiators may log in.
pub(super) const RULES: [&str; 5] = ["auth-type", "chap", "chap-mutual", "initiator-name", "initiator-portal"];

/// Which initiators may log in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules<'a> {
    Open,
    /// The rules of a group, or of a target itself, which is an unnamed group.
    Of(&'a Statement),
}

/// The rules of a target, if they are known and one for all of its portal groups, which may have others.
pub(super) fn rules_of<'a>(target: &'a Statement, context: &Context<'a>, imported: &mut Imported) -> Option<Rules<'a>> {
    let place = tree::place(&[target.value().unwrap_or_default()], target);
    let has_own = target.body.iter().any(|rule| RULES.contains(&rule.key()) || is_unknown_rule(rule));
    let named: BTreeSet<&str> = target.all("auth-group").filter_map(Statement::value).collect();
    if named.len() + usize::from(has_own) > 1 {
        imported.note(
            &place,
            "an auth-group beside another one or rules of its own: ctld refuses it; no initiator is let in",
        );
        return None;
    }
    let mut group = |name: &str| match (name, context.auth_groups.get(name).copied()) {
        ("no-authentication", _) => Some(Rules::Open),
        (_, Some(group)) => Some(Rules::Of(group)),
        ("no-access" | DEFAULT, None) => None,
        (name, None) => {
            imported.note(&place, format!("auth-group {name} is not in the file; no initiator is let in"));
            None
        }
    };
    let own = match named.first() {
        Some(name) => group(name),
        None if has_own => Some(Rules::Of(target)),
        None => group(DEFAULT),
    };
    let of_portals = target.all("portal-group").map(|portals| portals.words.get(2));
    let mut all: Vec<_> = of_portals.map(|name| name.map_or(own, |name| group(name))).collect();
    all.dedup();
    match *all.as_slice() {
        [] => own,
        [one] => one,
        _ => {
            let what = "its portal groups have different auth-groups, and ours has the same rules at all portals; no initiator is let in";
            imported.note(&place, what);
            None
        }
    }
}

/// Why rules let in no initiator.
pub(super) fn refusal(rules: &Statement, users: &Users) -> Option<String> {
    let kinds: BTreeSet<&str> = rules.all("auth-type").filter_map(Statement::value).collect();
    let without_secret = |rule: &&Statement| rule.key().starts_with("chap") && secret_of(rule).is_none();
    if let Some(rule) = rules.body.iter().find(|rule| is_unknown_rule(rule)) {
        return Some(unknown_proof(rule.key()));
    }
    if users.chap.is_empty() && rules.body.iter().any(|rule| without_secret(&rule)) {
        return Some("chap: a user without a secret; no initiator is let in for it".into());
    }
    let is_closed = kinds.contains("deny") || users.chap.is_empty() && (kinds.len() != 1 || !kinds.contains("none"));
    is_closed.then(|| "rules without a kind of proof (chap, auth-type none) let in no initiator".into())
}

fn is_unknown_rule(rule: &Statement) -> bool {
    let is_known = rule.key() == "auth-group" || RULES.contains(&rule.key());
    !is_known && may_ask_for_proof(rule.key())
}

/// Lets in the initiators that rules let in. Without a kind of proof, or with none that is known, they let in none.
pub(super) fn admit(target: &mut Target, name: &str, rules: Rules<'_>, imported: &mut Imported) {
    let Rules::Of(rules) = rules else { return };
    let values = |key: &str| rules.all(key).filter_map(Statement::value).collect::<Vec<_>>();
    let list = |list: Vec<String>| (!list.is_empty()).then_some(list);
    let initiators = list(values("initiator-name").into_iter().map(folded_name).collect());
    target.users = users(name, rules, imported);
    if let Some(what) = refusal(rules, &target.users) {
        imported.note(tree::place(&[name], rules), what);
        return target.close();
    }
    let portals = values("initiator-portal");
    let networks: Vec<String> = portals.iter().filter_map(|portal| network(&portal.replace(['[', ']'], ""))).collect();
    if networks.len() < portals.len() {
        imported
            .note(tree::place(&[name], rules), "initiator-portal: only addresses and networks, such as 192.0.2.0/24");
    }
    if portals.is_empty() {
        target.allow = initiators;
    } else {
        target.host.push(Host { name: "initiators".into(), initiators, networks: Some(networks), ..Host::default() });
    }
}

pub(super) fn users(owner: &str, rules: &Statement, imported: &mut Imported) -> Users {
    let mut found = Users::default();
    for rule in rules.all("chap").chain(rules.all(CHAP_MUTUAL)) {
        let Some((user, secret, rest)) = secret_of(rule) else {
            imported.note(tree::place(&[owner], rule), format!("{}: a user without a secret", rule.key()));
            continue;
        };
        found.chap.push(imported.user(owner, user, secret));
        if rule.key() == CHAP_MUTUAL {
            let [user, secret] = rest else {
                let what = format!("{CHAP_MUTUAL}: the target has no secret, and does not prove itself");
                imported.note(tree::place(&[owner], rule), what);
                continue;
            };
            let identity = imported.user(owner, user, secret);
            one_identity(owner, rule, identity, &mut found, imported);
        }
    }
    found
}

/// The user of a rule, its secret, and the words behind it.
fn secret_of(rule: &Statement) -> Option<(&str, &str, &[String])> {
    match &*rule.words {
        [_, user, secret, rest @ ..] if !secret.is_empty() => Some((user, secret, rest)),
        _ => None,
    }
}

/// The rule that has a user, and a user of the target.
const CHAP_MUTUAL: &str = "chap-mutual";

/// ctld gives each user another identity of the target; ours has one.
fn one_identity(owner: &str, rule: &Statement, identity: User, found: &mut Users, imported: &mut Imported) {
    match &found.mutual_chap {
        Some(known) if *known != identity => {
            imported.note(tree::place(&[owner], rule), "chap-mutual: another identity of the target for another user");
        }
        _ => found.mutual_chap = Some(identity),
    }
}
