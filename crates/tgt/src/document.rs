//! The document of a target as tgtd sees it: rules for initiators, accounts and logical units.
//!
//! tgtd lets an initiator in when one rule fits, by address or by name. A host of the API wants both to fit, so the
//! rules are two hosts. A target whose hosts others have made is shown, and its rules are not changed.

use lunette_api::Document;
use serde_json::{Value, json};

use crate::wire::Fault;

/// The host that has the rules for addresses.
const ADDRESSES: &str = "tgt-addresses";

/// The host that has the rules for names.
const NAMES: &str = "tgt-initiators";

/// Every address, as tgtd calls it.
const ALL: &str = "ALL";

/// Every name, as the API writes it. tgtd takes it for a name.
const ANY_NAME: &str = "*";

/// Every address, as networks.
const ALL_NETWORKS: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// A rule that lets initiators in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    /// All of them, wherever they come from.
    All,
    /// The initiators that come from an address or a network.
    Address(String),
    /// An initiator, by its name.
    Name(String),
}

impl Rule {
    /// The rule of an address as tgtadm takes it.
    pub(crate) fn of_address(text: &str) -> Self {
        if text == ALL { Self::All } else { Self::Address(text.to_owned()) }
    }

    /// The rule of a name.
    pub(crate) fn of_name(text: &str) -> Result<Self, Fault> {
        if text == ANY_NAME { Err(Fault::Invalid) } else { Ok(Self::Name(text.to_owned())) }
    }

    /// The rule as tgtd prints it.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::All => ALL,
            Self::Address(text) | Self::Name(text) => text,
        }
    }

    /// The host that has it, the key there, and its values.
    fn place(&self) -> (&'static str, &'static str, Vec<&str>) {
        match self {
            Self::All => (ADDRESSES, "networks", ALL_NETWORKS.to_vec()),
            Self::Address(text) => (ADDRESSES, "networks", vec![text]),
            Self::Name(text) => (NAMES, "initiators", vec![text]),
        }
    }
}

/// The texts of a list.
fn texts<'a>(document: &'a Value, key: &str) -> Vec<&'a str> {
    document.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn list<'a>(document: &'a Document, key: &str) -> &'a [Value] {
    document.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The list of a document, to change it. A list that is empty afterwards may go.
fn list_mut<'a>(document: &'a mut Document, key: &str) -> Result<&'a mut Vec<Value>, Fault> {
    document.entry(key).or_insert_with(|| json!([])).as_array_mut().ok_or(Fault::Invalid)
}

/// The rules of a target in the order in which they were bound, addresses before names.
pub(crate) fn rules(target: &Document) -> Vec<Rule> {
    let hosts = list(target, "host");
    let allowed = target.get("allow").and_then(Value::as_array);
    let mut rules = Vec::new();
    if hosts.is_empty() && allowed.is_none_or(|names| names.iter().any(|name| name == ANY_NAME)) {
        rules.push(Rule::All);
    }
    for host in hosts {
        let networks = texts(host, "networks");
        let names = texts(host, "initiators");
        let is_any = |key: &str, texts: &[&str]| host.get(key).is_none() || texts.contains(&ANY_NAME);
        if is_any("networks", &[]) && is_any("initiators", &names) {
            rules.push(Rule::All);
        }
        let has_all = ALL_NETWORKS.iter().all(|all| networks.contains(all));
        rules.extend(networks.into_iter().filter_map(|network| match ALL_NETWORKS {
            [first, _] if has_all && network == first => Some(Rule::All),
            [_, second] if has_all && network == second => None,
            _ => Some(Rule::Address(network.to_owned())),
        }));
    }
    let names = hosts.iter().flat_map(|host| texts(host, "initiators"));
    let names = names.chain(allowed.into_iter().flatten().filter_map(Value::as_str));
    rules.extend(names.filter(|name| *name != ANY_NAME).map(|name| Rule::Name(name.to_owned())));
    rules
}

/// Adds a rule.
pub(crate) fn bind(target: &mut Document, rule: &Rule) -> Result<(), Fault> {
    if rules(target).contains(rule) {
        return Err(Fault::RuleExists);
    }
    check_own(target)?;
    let (name, key, values) = rule.place();
    let hosts = list_mut(target, "host")?;
    let place = hosts.iter().position(|host| host.get("name").is_some_and(|one| one == name));
    let place = place.unwrap_or_else(|| {
        hosts.push(json!({ "name": name, key: [] }));
        hosts.len() - 1
    });
    let host = hosts.get_mut(place).and_then(Value::as_object_mut).ok_or(Fault::Invalid)?;
    list_mut(host, key)?.extend(values.into_iter().map(Value::from));
    Ok(())
}

/// Removes a rule.
pub(crate) fn unbind(target: &mut Document, rule: &Rule) -> Result<(), Fault> {
    if !rules(target).contains(rule) {
        return Err(Fault::NoRule);
    }
    check_own(target)?;
    let (_, key, values) = rule.place();
    let hosts = list_mut(target, "host")?;
    for host in hosts.iter_mut().filter_map(Value::as_object_mut) {
        if host.contains_key(key) {
            list_mut(host, key)?.retain(|one| !values.iter().any(|value| one == value));
        }
    }
    hosts.retain(|host| !(texts(host, "networks").is_empty() && texts(host, "initiators").is_empty()));
    Ok(())
}

/// Refuses to change rules that this adapter has not made: they say more than it can show.
fn check_own(target: &Document) -> Result<(), Fault> {
    let is_own = |host: &Value| host.get("name").is_some_and(|name| name == ADDRESSES || name == NAMES);
    let is_closed = target.get("allow").and_then(Value::as_array).is_some_and(Vec::is_empty);
    let hosts = list(target, "host");
    if hosts.iter().all(is_own) && (is_closed || !hosts.is_empty() && !target.contains_key("allow")) {
        return Ok(());
    }
    Err(Fault::Invalid)
}

/// A user that a target lets in, or as which it proves its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Incoming,
    Outgoing,
}

/// The users of a target.
pub(crate) fn users(target: &Document) -> Vec<(&str, Direction)> {
    let incoming = list(target, "chap").iter().filter_map(|chap| chap.get("user")?.as_str());
    let outgoing = target.get("mutual_chap").and_then(|chap| chap.get("user")?.as_str());
    let incoming = incoming.map(|user| (user, Direction::Incoming));
    incoming.chain(outgoing.map(|user| (user, Direction::Outgoing))).collect()
}

/// Adds a user, whose password is in a file.
pub(crate) fn add_user(target: &mut Document, user: &str, direction: Direction, file: &str) -> Result<(), Fault> {
    let chap = json!({ "user": user, "secret_file": file });
    match direction {
        Direction::Incoming if users(target).contains(&(user, direction)) => return Err(Fault::AccountExists),
        Direction::Incoming => list_mut(target, "chap")?.push(chap),
        Direction::Outgoing if target.contains_key("mutual_chap") => return Err(Fault::OutgoingExists),
        Direction::Outgoing => drop(target.insert("mutual_chap".into(), chap)),
    }
    Ok(())
}

/// Removes a user.
pub(crate) fn remove_user(target: &mut Document, user: &str, direction: Direction) -> Result<(), Fault> {
    if !users(target).contains(&(user, direction)) {
        return Err(Fault::NoAccount);
    }
    match direction {
        Direction::Incoming => {
            let users = list_mut(target, "chap")?;
            users.retain(|chap| chap.get("user").is_none_or(|one| one != user));
            if users.is_empty() {
                target.remove("chap");
            }
        }
        Direction::Outgoing => drop(target.remove("mutual_chap")),
    }
    Ok(())
}

/// Removes the users whose password is in a file, in both directions.
pub(crate) fn remove_users_of(target: &mut Document, file: &str) {
    let has_it = |chap: &Value| chap.get("secret_file").is_some_and(|one| one == file);
    if target.get("mutual_chap").is_some_and(has_it) {
        target.remove("mutual_chap");
    }
    if let Some(Value::Array(users)) = target.get_mut("chap") {
        users.retain(|chap| !has_it(chap));
        if users.is_empty() {
            target.remove("chap");
        }
    }
}

/// Whether a value names a file, wherever it does.
pub(crate) fn names(value: &Value, file: &str) -> bool {
    match value {
        Value::String(text) => text == file,
        Value::Array(all) => all.iter().any(|one| names(one, file)),
        Value::Object(keys) => keys.values().any(|one| names(one, file)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The logical units of a target, in the order of their numbers.
pub(crate) fn units(target: &Document) -> Vec<(u16, &Document)> {
    let unit = |unit: &'_ Value| unit.get("number")?.as_u64().and_then(|number| u16::try_from(number).ok());
    let mut all: Vec<_> = list(target, "lun").iter().filter_map(|one| Some((unit(one)?, one.as_object()?))).collect();
    all.sort_unstable_by_key(|(number, _)| *number);
    all
}

/// The text of a key of a logical unit.
pub(crate) fn text<'a>(unit: &'a Document, key: &str) -> Option<&'a str> {
    unit.get(key).and_then(Value::as_str)
}

/// Whether a logical unit says that it frees space.
pub(crate) fn is_thin(unit: &Document) -> bool {
    let disk = text(unit, "disk").unwrap_or_default();
    if disk.starts_with("longhorn:") {
        disk.ends_with("&unmap=true")
    } else {
        text(unit, "provisioning") != Some("full")
    }
}

/// Whether a key of a logical unit is set.
pub(crate) fn is_set(unit: &Document, key: &str) -> bool {
    unit.get(key) == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(value: Value) -> Document {
        let Value::Object(document) = value else { panic!("{value}") };
        document
    }

    fn texts_of(target: &Document) -> Vec<String> {
        rules(target).iter().map(|rule| rule.text().to_owned()).collect()
    }

    #[test]
    fn rules_are_what_was_bound() {
        let mut document = target(json!({ "allow": [] }));
        let all =
            [Rule::Name("iqn.a".into()), Rule::Address("192.0.2.0/24".into()), Rule::All, Rule::Name("iqn.b".into())];
        for rule in &all {
            bind(&mut document, rule).unwrap();
            assert_eq!(bind(&mut document, rule), Err(Fault::RuleExists));
        }
        assert_eq!(texts_of(&document), ["192.0.2.0/24", "ALL", "iqn.a", "iqn.b"]);
        for rule in &all {
            unbind(&mut document, rule).unwrap();
            assert_eq!(unbind(&mut document, rule), Err(Fault::NoRule));
        }
        assert_eq!(document, target(json!({ "allow": [], "host": [] })));
    }

    #[test]
    fn rules_of_others_are_shown_and_kept() {
        for (document, expected) in [
            (json!({}), vec!["ALL"]),
            (json!({ "allow": ["*"] }), vec!["ALL"]),
            (json!({ "allow": ["iqn.a"] }), vec!["iqn.a"]),
            (json!({ "host": [{ "name": "x" }] }), vec!["ALL"]),
            (json!({ "host": [{ "name": "x", "initiators": ["*"] }] }), vec!["ALL"]),
            (json!({ "host": [{ "name": "x", "networks": ["::1"], "initiators": ["iqn.a"] }] }), vec!["::1", "iqn.a"]),
        ] {
            let mut document = target(document);
            assert_eq!(texts_of(&document), expected);
            let before = document.clone();
            assert_eq!(bind(&mut document, &Rule::Address("192.0.2.1".into())), Err(Fault::Invalid));
            assert_eq!(unbind(&mut document, &rules(&before)[0]), Err(Fault::Invalid));
            assert_eq!(document, before);
        }
    }

    #[test]
    fn users_go_with_their_file_and_their_namesakes_stay() {
        let mut document = target(json!({
            "chap": [{ "user": "a", "secret_file": "/other" }, { "user": "a", "secret_file": "/own" }],
            "mutual_chap": { "user": "a", "secret_file": "/own" },
            "host": [{ "chap": [{ "user": "a", "secret_file": "/own" }] }]
        }));
        remove_users_of(&mut document, "/own");
        assert_eq!(users(&document), [("a", Direction::Incoming)]);
        assert!(names(&Value::Object(document.clone()), "/own"), "a host has it");
        document.remove("host");
        assert!(!names(&Value::Object(document), "/own"));
    }

    #[test]
    fn a_target_has_one_identity_and_any_number_of_users() {
        let mut document = target(json!({}));
        add_user(&mut document, "a", Direction::Incoming, "/a").unwrap();
        add_user(&mut document, "b", Direction::Incoming, "/b").unwrap();
        add_user(&mut document, "a", Direction::Outgoing, "/a").unwrap();
        assert_eq!(add_user(&mut document, "a", Direction::Incoming, "/a"), Err(Fault::AccountExists));
        assert_eq!(add_user(&mut document, "b", Direction::Outgoing, "/b"), Err(Fault::OutgoingExists));
        assert_eq!(
            users(&document),
            [("a", Direction::Incoming), ("b", Direction::Incoming), ("a", Direction::Outgoing)]
        );
        for (user, direction) in [("a", Direction::Incoming), ("b", Direction::Incoming), ("a", Direction::Outgoing)] {
            remove_user(&mut document, user, direction).unwrap();
            assert_eq!(remove_user(&mut document, user, direction), Err(Fault::NoAccount));
        }
        assert_eq!(document, target(json!({})));
    }
}
