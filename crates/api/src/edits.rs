//! The changes that requests ask for, as functions of what is served. Nothing here does I/O.

use std::fmt;

use serde_json::Value;

use crate::callers::{Caller, Role};
use crate::objects::{Document, Key, Kind, Objects, etag};
use crate::problem::Problem;
use crate::server::Catalog;

/// A condition on an object that must hold before it is changed (RFC 9110 section 13.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Precondition {
    /// If-Match: one of these ETags, or `*` for any.
    pub matches: Option<String>,
    /// If-None-Match is `*`: there is no such object.
    pub is_new: bool,
}

/// A kind of thing that stands in a list of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A logical unit, named by its number.
    Lun,
    /// A host, named by its name.
    Host,
}

impl Part {
    /// The key of the list.
    fn list(self) -> &'static str {
        match self {
            Self::Lun => "lun",
            Self::Host => "host",
        }
    }

    /// The key that names it.
    fn name_key(self) -> &'static str {
        match self {
            Self::Lun => "number",
            Self::Host => "name",
        }
    }

    /// The value of that key, for the name in a request.
    fn name(self, name: &str) -> Result<Value, Problem> {
        match self {
            Self::Lun => {
                name.parse::<u16>().map(Value::from).map_err(|_| Problem::bad_request(format!("{name:?} is not a LUN")))
            }
            Self::Host => Ok(name.into()),
        }
    }

    /// All of a target, in its order.
    pub fn all(self, target: &Document) -> &[Value] {
        target.get(self.list()).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Finds a part of a target.
    ///
    /// # Errors
    ///
    /// When the name is none.
    pub fn find(self, target: &Document, name: &str) -> Result<Option<Value>, Problem> {
        let name = self.name(name)?;
        Ok(self.all(target).iter().find(|part| part.get(self.name_key()) == Some(&name)).cloned())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lun => "LUN",
            Self::Host => "host",
        })
    }
}

impl Precondition {
    /// Whether it holds for an object.
    fn check(&self, what: &str, now: Option<&Value>) -> Result<(), Problem> {
        let etag = now.map(etag);
        match (&self.matches, &etag) {
            (Some(wanted), Some(etag)) if wanted == "*" || wanted.split(',').any(|one| one.trim() == etag) => {}
            (Some(_), Some(etag)) => {
                return Err(Problem::changed(format!(
                    "the ETag of {what} is {etag}; read it again and repeat the change"
                )));
            }
            (Some(_), None) => return Err(Problem::changed(format!("there is no {what}"))),
            (None, _) => {}
        }
        match etag {
            Some(etag) if self.is_new => Err(Problem::changed(format!("{what} is there, with the ETag {etag}"))),
            _ => Ok(()),
        }
    }
}

/// The document of an object that may be changed; `None` when there is no such object.
fn changeable<'a>(catalog: &'a Catalog, key: &Key) -> Result<Option<&'a Document>, Problem> {
    if catalog.main.get(key).is_some() {
        let (file, of_object) = (&catalog.main_file, key.file_name());
        let why = match catalog.objects.get(key) {
            None => format!("change it there and send SIGHUP, or move its table to conf.d/{of_object}"),
            Some(_) => format!("its namesake in conf.d/{of_object} is not served: remove one of them and send SIGHUP"),
        };
        return Err(Problem::conflict(format!("{key} stands in {file}; {why}")));
    }
    Ok(catalog.objects.get(key))
}

/// Adds or replaces an object.
///
/// # Errors
///
/// Why it cannot be.
pub fn put(catalog: &Catalog, key: &Key, document: Document, when: &Precondition) -> Result<Objects, Problem> {
    when.check(&key.to_string(), changeable(catalog, key)?.cloned().map(Value::Object).as_ref())?;
    let mut objects = catalog.objects.clone();
    objects.put(key.clone(), document)?;
    Ok(kept_closed(catalog, objects))
}

/// Removes an object, which need not be there.
///
/// # Errors
///
/// Why it cannot be.
pub fn delete(catalog: &Catalog, key: &Key, when: &Precondition) -> Result<Objects, Problem> {
    when.check(&key.to_string(), changeable(catalog, key)?.cloned().map(Value::Object).as_ref())?;
    let mut objects = catalog.objects.clone();
    objects.remove(key);
    Ok(objects)
}

/// Adds a part to a target, replaces it, or removes it (`None`).
///
/// # Errors
///
/// Why it cannot be.
pub fn change_part(
    catalog: &Catalog,
    target: &Key,
    (part, name): (Part, &str),
    wanted: Option<Document>,
    when: &Precondition,
) -> Result<Objects, Problem> {
    let what = format!("{part} {name} of {target}");
    let Some(document) = changeable(catalog, target)? else { return Err(Problem::not_found(&target.to_string())) };
    let (name_key, name) = (part.name_key(), part.name(name)?);
    let mut list = part.all(document).to_vec();
    let place = list.iter().position(|one| one.get(name_key) == Some(&name));
    when.check(&what, place.map(|place| &list[place]))?;
    match (place, wanted) {
        (place, Some(mut wanted)) => {
            let said = wanted.entry(name_key).or_insert_with(|| name.clone());
            if *said != name {
                return Err(Problem::invalid(format!(
                    "{name_key} is {said} in {what}; leave it out, or make both equal"
                )));
            }
            match place {
                Some(place) => list[place] = Value::Object(wanted),
                None => list.push(Value::Object(wanted)),
            }
        }
        (Some(place), None) => drop(list.remove(place)),
        (None, None) => return Ok(catalog.objects.clone()),
    }
    let mut document = document.clone();
    document.insert(part.list().into(), Value::Array(list));
    let mut objects = catalog.objects.clone();
    objects.put(target.clone(), document)?;
    Ok(kept_closed(catalog, objects))
}

/// Replaces all objects of `conf.d`.
///
/// # Errors
///
/// Why it cannot be.
pub fn replace(catalog: &Catalog, objects: Objects, when: &Precondition) -> Result<Objects, Problem> {
    let etag = catalog.objects.etag();
    if when.is_new {
        return Err(Problem::changed(format!("there is a configuration always; this one has the ETag {etag}")));
    }
    if when.matches.as_ref().is_some_and(|wanted| wanted != "*" && !wanted.split(',').any(|one| one.trim() == etag)) {
        return Err(Problem::changed(format!(
            "the ETag of the configuration is {etag}; read it again and repeat the change"
        )));
    }
    for key in catalog.objects.changed(&objects).filter(|key| objects.get(key).is_some()) {
        changeable(catalog, key)?;
    }
    Ok(kept_closed(catalog, objects))
}

/// Whether the configuration lets all initiators in, because the target says nothing of them.
fn is_open(target: &Document) -> bool {
    !target.contains_key("allow") && Part::Host.all(target).is_empty()
}

/// Whether a host is for all initiators, because it says nothing of them.
fn is_open_host(host: &Value) -> bool {
    ["initiators", "networks", "chap"].iter().all(|key| host.get(key).is_none())
}

/// Lets in no initiator where all would be let in by omission: in a new target or host that names none, and in a target
/// that has lost its last host. What lets all in already, because its file says nothing of them, stays as it is.
fn kept_closed(catalog: &Catalog, mut objects: Objects) -> Objects {
    for target in objects.of_mut(Kind::Target) {
        let name = target.get("name").and_then(Value::as_str).unwrap_or_default();
        let before = Key::new(Kind::Target, name).ok().and_then(|key| catalog.find(&key));
        if is_open(target) && !before.is_some_and(is_open) {
            target.insert("allow".into(), Value::Array(Vec::new()));
        }
        let hosts_before = before.map_or(&[][..], |before| Part::Host.all(before));
        let hosts = target.get_mut(Part::Host.list()).and_then(Value::as_array_mut);
        for host in hosts.into_iter().flatten().filter(|host| is_open_host(host)) {
            let is_it = |known: &&Value| known.get("name") == host.get("name");
            if !hosts_before.iter().find(is_it).is_some_and(is_open_host)
                && let Value::Object(host) = host
            {
                host.insert("initiators".into(), Value::Array(Vec::new()));
            }
        }
    }
    objects
}

/// Refuses a change that its client may not make: of other targets than its own, or, for an operator, of anything but
/// the length of a disk.
///
/// # Errors
///
/// The part of the change that the client may not make.
pub fn check_caller(caller: &Caller, catalog: &Catalog, wanted: &Objects) -> Result<(), Problem> {
    for key in catalog.objects.changed(wanted) {
        caller.check_target((key.kind == Kind::Target).then_some(&key.name))?;
        let documents = (catalog.objects.get(key), wanted.get(key));
        if !matches!(documents, (Some(old), Some(new)) if only_resizes(old, new)) {
            caller.check_role(Role::Admin)?;
        }
    }
    Ok(())
}

/// Whether two documents of a target differ in the lengths of its disks alone.
fn only_resizes(old: &Document, new: &Document) -> bool {
    let without_lengths = |target: &Document| {
        let mut target = target.clone();
        for lun in target.get_mut(Part::Lun.list()).and_then(Value::as_array_mut).into_iter().flatten() {
            lun.as_object_mut().map(|lun| lun.remove("create"));
        }
        target
    };
    without_lengths(old) == without_lengths(new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::Tables;

    fn document(value: Value) -> Document {
        let Value::Object(document) = value else { panic!("{value}") };
        document
    }

    fn key(name: &str) -> Key {
        Key::new(Kind::Target, name).unwrap()
    }

    fn catalog() -> Catalog {
        let mut catalog = Catalog { main_file: "/etc/lunette.toml".into(), ..Catalog::default() };
        catalog.main.put(key("iqn.main"), Document::new()).unwrap();
        let luns = json!({ "lun": [{ "number": 3, "disk": "mem:1M" }, { "number": 1, "disk": "mem:1M" }] });
        catalog.objects.put(key("iqn.a"), document(luns)).unwrap();
        catalog
    }

    fn if_match(etag: &str) -> Precondition {
        Precondition { matches: Some(etag.into()), is_new: false }
    }

    const ALWAYS: Precondition = Precondition { matches: None, is_new: false };
    const NEW: Precondition = Precondition { matches: None, is_new: true };

    #[test]
    fn a_change_holds_only_for_the_object_that_was_read() {
        let catalog = catalog();
        let etag = etag(&Value::Object(catalog.find(&key("iqn.a")).unwrap().clone()));
        let put =
            |name: &str, when: &Precondition| put(&catalog, &key(name), Document::new(), when).map_err(|p| p.status);
        assert!(put("iqn.a", &if_match(&etag)).is_ok());
        assert!(put("iqn.a", &if_match(&format!("\"0\", {etag}"))).is_ok());
        assert!(put("iqn.a", &if_match("*")).is_ok());
        assert!(put("iqn.new", &NEW).is_ok());
        assert_eq!(put("iqn.a", &if_match("\"0\"")).err(), Some(412));
        assert_eq!(put("iqn.new", &if_match("*")).err(), Some(412));
        assert_eq!(put("iqn.a", &NEW).err(), Some(412));
        assert_eq!(delete(&catalog, &key("iqn.a"), &if_match("\"0\"")).err().map(|p| p.status), Some(412));
        assert_eq!(replace(&catalog, Objects::default(), &if_match("\"0\"")).err().map(|p| p.status), Some(412));
        assert!(replace(&catalog, Objects::default(), &if_match(&catalog.objects.etag())).is_ok());
        assert_eq!(replace(&catalog, Objects::default(), &NEW).err().map(|p| p.status), Some(412));
    }

    #[test]
    fn what_the_main_file_has_is_not_changed_even_with_a_namesake() {
        let mut catalog = catalog();
        let of_main = key("iqn.main");
        let refused = |catalog: &Catalog| put(catalog, &of_main, Document::new(), &ALWAYS).unwrap_err().detail;
        assert!(refused(&catalog).contains("move its table"), "{}", refused(&catalog));
        catalog.objects.put(of_main.clone(), document(json!({ "alias": "second" }))).unwrap();
        assert!(refused(&catalog).contains("is not served: remove one of them"), "{}", refused(&catalog));
        assert_eq!(delete(&catalog, &of_main, &ALWAYS).unwrap_err().status, 409);
        let mut objects = catalog.objects.clone();
        assert!(replace(&catalog, objects.clone(), &ALWAYS).is_ok(), "nothing changes");
        objects.put(of_main.clone(), document(json!({ "alias": "third" }))).unwrap();
        assert_eq!(replace(&catalog, objects.clone(), &ALWAYS).unwrap_err().status, 409);
        objects.remove(&of_main);
        assert!(replace(&catalog, objects, &ALWAYS).is_ok(), "the one that is not served goes");
    }

    /// The `allow` of a target after a change.
    fn allow(objects: &Result<Objects, Problem>, name: &str) -> Option<Value> {
        objects.as_ref().unwrap().get(&key(name)).unwrap().get("allow").cloned()
    }

    #[test]
    fn a_target_lets_in_no_initiator_by_omission() {
        let catalog = catalog();
        let put = |name: &str, value: Value| put(&catalog, &key(name), document(value), &ALWAYS);
        assert_eq!(allow(&put("iqn.new", json!({})), "iqn.new"), Some(json!([])));
        assert_eq!(allow(&put("iqn.new", json!({ "allow": ["*"] })), "iqn.new"), Some(json!(["*"])));
        assert_eq!(allow(&put("iqn.new", json!({ "host": [{ "name": "h" }] })), "iqn.new"), None);
        assert_eq!(allow(&put("iqn.a", json!({ "alias": "x" })), "iqn.a"), None, "its file lets all in");
        let tables = Tables { targets: vec![document(json!({ "name": "iqn.n" }))], portals: Vec::new() };
        let replaced = replace(&catalog, Objects::from_tables(tables).unwrap(), &ALWAYS);
        assert_eq!(allow(&replaced, "iqn.n"), Some(json!([])));
    }

    #[test]
    fn a_host_lets_in_no_initiator_by_omission() {
        let mut catalog = catalog();
        catalog.objects.put(key("iqn.a"), document(json!({ "host": [{ "name": "open" }] }))).unwrap();
        let initiators = |objects: Result<Objects, Problem>, name: &str| {
            let objects = objects.unwrap();
            let host = Part::Host.find(objects.get(&key("iqn.a")).unwrap(), name).unwrap();
            host.unwrap().get("initiators").cloned()
        };
        let put_host = |name: &str, host: Value| {
            change_part(&catalog, &key("iqn.a"), (Part::Host, name), Some(document(host)), &ALWAYS)
        };
        assert_eq!(initiators(put_host("new", json!({})), "new"), Some(json!([])));
        assert_eq!(initiators(put_host("new", json!({ "read_only": true })), "new"), Some(json!([])));
        for told in [json!({ "networks": ["192.0.2.0/24"] }), json!({ "chap": [{ "user": "u" }] })] {
            assert_eq!(initiators(put_host("new", told.clone()), "new"), None, "{told}");
        }
        let all = json!({ "initiators": ["*"] });
        assert_eq!(initiators(put_host("new", all), "new"), Some(json!(["*"])));
        assert_eq!(initiators(put_host("open", json!({ "read_only": true })), "open"), None, "its file lets all in");
        let whole = document(json!({ "host": [{ "name": "open" }, { "name": "new" }] }));
        let whole = put(&catalog, &key("iqn.a"), whole, &ALWAYS);
        assert_eq!(initiators(whole, "new"), Some(json!([])));
    }

    #[test]
    fn a_target_that_loses_its_last_host_is_not_open_to_all() {
        let mut catalog = catalog();
        let hosts = json!({ "host": [{ "name": "h" }, { "name": "i" }] });
        catalog.objects.put(key("iqn.a"), document(hosts)).unwrap();
        let remove = |catalog: &Catalog, name| change_part(catalog, &key("iqn.a"), (Part::Host, name), None, &ALWAYS);
        let one_left = remove(&catalog, "h");
        assert_eq!(allow(&one_left, "iqn.a"), None);
        let none_left = remove(&Catalog { objects: one_left.unwrap(), ..catalog.clone() }, "i");
        assert_eq!(allow(&none_left, "iqn.a"), Some(json!([])));
        let again = put(&catalog, &key("iqn.a"), Document::new(), &ALWAYS);
        assert_eq!(allow(&again, "iqn.a"), Some(json!([])), "nor by a replacement");
    }

    #[test]
    fn clients_change_what_their_role_and_targets_allow() {
        let catalog = catalog();
        let caller = |role, targets: Option<&str>| Caller {
            role,
            targets: targets.map(|name| vec![name.into()]),
            ..Caller::admin("t", "here")
        };
        let change = |name: &str, lun: Value| {
            change_part(&catalog, &key("iqn.a"), (Part::Lun, name), Some(document(lun)), &ALWAYS).unwrap()
        };
        let longer = change("3", json!({ "disk": "mem:1M", "create": "2G" }));
        let other = change("3", json!({ "disk": "mem:2M", "create": "2G" }));
        let added = change("4", json!({ "disk": "mem:1M" }));
        for (role, targets, wanted, may) in [
            (Role::Operate, None, &longer, true),
            (Role::Operate, Some("iqn.a"), &longer, true),
            (Role::Operate, Some("iqn.b"), &longer, false),
            (Role::Operate, None, &other, false),
            (Role::Operate, None, &added, false),
            (Role::Operate, None, &Objects::default(), false),
            (Role::Operate, None, &catalog.objects, true),
            (Role::Admin, Some("iqn.a"), &other, true),
            (Role::Admin, Some("iqn.b"), &other, false),
            (Role::Admin, None, &Objects::default(), true),
        ] {
            let refused = check_caller(&caller(role, targets), &catalog, wanted);
            assert_eq!(refused.is_ok(), may, "{role} {targets:?} {refused:?}");
        }
    }

    #[test]
    fn objects_of_the_main_file_are_changed_there() {
        let catalog = catalog();
        let problem = delete(&catalog, &key("iqn.main"), &ALWAYS).unwrap_err();
        assert_eq!(problem.status, 409);
        assert!(problem.detail.contains("/etc/lunette.toml") && problem.detail.contains("conf.d/target-iqn.main.toml"));
        assert_eq!(put(&catalog, &key("iqn.main"), Document::new(), &ALWAYS).unwrap_err().status, 409);
        let mut all = catalog.objects.clone();
        all.put(key("iqn.main"), Document::new()).unwrap();
        assert_eq!(replace(&catalog, all, &ALWAYS).unwrap_err(), {
            let problem = put(&catalog, &key("iqn.main"), Document::new(), &ALWAYS);
            problem.unwrap_err()
        });
    }

    #[test]
    fn what_is_not_there_is_removed_already() {
        let catalog = catalog();
        assert_eq!(delete(&catalog, &key("iqn.b"), &ALWAYS), Ok(catalog.objects.clone()));
        assert_eq!(change_part(&catalog, &key("iqn.a"), (Part::Lun, "9"), None, &ALWAYS), Ok(catalog.objects.clone()));
        let of_none = change_part(&catalog, &key("iqn.b"), (Part::Lun, "9"), None, &ALWAYS);
        assert_eq!(of_none.unwrap_err().status, 404);
    }

    #[test]
    fn parts_keep_their_order() {
        let catalog = catalog();
        let change = |name: &str, wanted: Option<Value>| {
            let objects = change_part(&catalog, &key("iqn.a"), (Part::Lun, name), wanted.map(document), &ALWAYS)?;
            let luns = Part::Lun.all(objects.get(&key("iqn.a")).unwrap()).to_vec();
            Ok::<_, Problem>(
                luns.iter().map(|lun| (lun["number"].as_u64().unwrap(), lun.get("x").is_some())).collect::<Vec<_>>(),
            )
        };
        assert_eq!(change("3", Some(json!({ "x": 1 }))), Ok(vec![(3, true), (1, false)]));
        assert_eq!(change("0", Some(json!({ "number": 0, "x": 1 }))), Ok(vec![(3, false), (1, false), (0, true)]));
        assert_eq!(change("3", None), Ok(vec![(1, false)]));
        assert_eq!(change("3", Some(json!({ "number": 4 }))).unwrap_err().status, 422);
        assert_eq!(change("x", None).unwrap_err().status, 400);
    }
}
