//! Which initiators may log in: attributes and ACLs of a portal group, as `allow`, `chap` and hosts of a target.
//!
//! An initiator with an ACL is a host of its own. Demo mode is a host for all names, or a target without hosts. An
//! initiator that has to prove itself, and has nothing to do it with, is a host from nowhere.

use std::collections::BTreeMap;

use lunette_api::objects::Document;
use serde_json::{Map, Value, json};

use super::{Secrets, Surroundings, flag, tables, text, texts};
use crate::model::{Access, Acl, Auth, Mapped, Secret, Target};
use crate::state::{SavedAcl, SavedAuth, SavedTarget};

/// The name of the host for all initiators.
const OTHERS: &str = "others";

/// The attribute by which initiators with an ACL may only read.
const PROTECTED: &str = "prod_mode_write_protect";

/// The longest name of a host.
const MAX_HOST_NAME: usize = 64;

/// The keys of a host that can be said with attributes and ACLs of LIO.
const KNOWN_KEYS: [&str; 7] = ["name", "initiators", "networks", "chap", "mutual_chap", "read_only", "lun"];

/// The meaning of a host for LIO.
enum Role {
    /// Demo mode.
    Others,
    /// The ACL of this initiator.
    Acl(String),
    /// Nothing: it stays as it is.
    Unknown,
}

pub(super) fn read(document: &Document, saved: &SavedTarget, surroundings: &dyn Surroundings) -> Access {
    let mut access = Access { attributes: saved.attributes.clone(), auth: saved.auth.auth(), acls: BTreeMap::new() };
    let mut found = Found::default();
    let has_hosts = tables(document, "host").next().is_some();
    let allow = texts(document, "allow");
    let own = read_auth(document, &saved.auth, surroundings);
    if has_hosts {
        for host in tables(document, "host") {
            found.host(host, document, saved, &mut access, surroundings);
        }
    } else if allow.as_ref().is_none_or(|names| names.iter().any(|name| name == "*")) {
        found.others(&own, false, false);
        if own.has_proof {
            access.auth = own.auth;
        }
    } else {
        for name in allow.into_iter().flatten() {
            found.acl(&own, false, false);
            let acl = Acl { auth: own.auth.clone(), mapped: None, ..saved_acl(saved, &name) };
            access.acls.insert(name.to_lowercase(), acl);
        }
    }
    found.settle(&mut access);
    access
}

/// Whether the objects of the API say the value of an attribute, and the state need not.
pub(super) fn is_said_by_objects(access: &Access, name: &str) -> bool {
    let (is_demo, has_acls) = (access.is_set("generate_node_acls"), !access.acls.is_empty());
    match name {
        "generate_node_acls" => true,
        "demo_mode_write_protect" => is_demo,
        "prod_mode_write_protect" => has_acls,
        "authentication" => is_demo || has_acls,
        _ => false,
    }
}

/// Users of a document, or else those that were set before.
struct Proof {
    auth: Auth,
    has_proof: bool,
}

fn read_auth(document: &Document, saved: &SavedAuth, surroundings: &dyn Surroundings) -> Proof {
    let user = |table: &Document| {
        let file = text(table, "secret_file").map(str::to_owned);
        let secret = Secret { text: file.as_deref().and_then(|file| surroundings.secret(file)), file };
        (text(table, "user").unwrap_or_default().to_owned(), secret)
    };
    let Some((userid, password)) = tables(document, "chap").next().map(user) else {
        return Proof { auth: saved.auth(), has_proof: false };
    };
    let mutual = document.get("mutual_chap").and_then(Value::as_object).map(user);
    let (mutual_userid, mutual_password) =
        mutual.unwrap_or_else(|| (saved.mutual_userid.clone(), Secret::new(&saved.mutual_password)));
    Proof { auth: Auth { userid, password, mutual_userid, mutual_password }, has_proof: true }
}

fn saved_acl(saved: &SavedTarget, name: &str) -> Acl {
    let saved = saved.acls.get(&name.to_lowercase()).cloned().unwrap_or_default();
    Acl { attributes: saved.attributes.clone(), auth: saved.auth.auth(), mapped: None }
}

fn role(host: &Document) -> Role {
    let networks = texts(host, "networks");
    let is_plain = host.keys().all(|key| KNOWN_KEYS.contains(&key.as_str()))
        && networks.is_none_or(|all| all.is_empty())
        && tables(host, "chap").count() <= 1;
    match texts(host, "initiators") {
        _ if !is_plain => Role::Unknown,
        None if host.contains_key("lun") => Role::Unknown,
        None => Role::Others,
        Some(names) => match &names[..] {
            [name] if name == "*" && !host.contains_key("lun") => Role::Others,
            [name] if name != "*" => Role::Acl(name.to_lowercase()),
            _ => Role::Unknown,
        },
    }
}

/// Facts that the hosts of a target tell about the attributes of its portal group.
#[derive(Default)]
struct Found {
    /// Demo mode, and whether it is read-only.
    others: Option<bool>,
    /// Whether some initiator has to prove itself.
    is_proof_asked_for: bool,
    /// Whether some initiator is let in without.
    is_someone_let_in: bool,
    acls: usize,
    read_only_acls: usize,
}

impl Found {
    fn host(
        &mut self,
        host: &Document,
        target: &Document,
        saved: &SavedTarget,
        access: &mut Access,
        surroundings: &dyn Surroundings,
    ) {
        let is_closed = texts(host, "networks").is_some_and(|networks| networks.is_empty());
        // A host without users has those of the target.
        let source = if host.contains_key("chap") { host } else { target };
        match role(host) {
            Role::Unknown => {}
            Role::Others => {
                let proof = read_auth(source, &saved.auth, surroundings);
                self.others(&proof, flag(host, "read_only"), is_closed);
                if proof.has_proof {
                    access.auth = proof.auth;
                }
            }
            Role::Acl(name) => {
                let SavedAcl { attributes, auth } = saved.acls.get(&name).cloned().unwrap_or_default();
                let proof = read_auth(source, &auth, surroundings);
                self.acl(&proof, flag(host, "read_only"), is_closed);
                access.acls.insert(name, Acl { auth: proof.auth, mapped: read_map(host), attributes });
            }
        }
    }

    fn others(&mut self, proof: &Proof, is_read_only: bool, is_closed: bool) {
        self.others = Some(is_read_only);
        self.count(proof, is_closed);
    }

    fn acl(&mut self, proof: &Proof, is_read_only: bool, is_closed: bool) {
        self.acls += 1;
        self.read_only_acls += usize::from(is_read_only);
        self.count(proof, is_closed);
    }

    fn count(&mut self, proof: &Proof, is_closed: bool) {
        self.is_proof_asked_for |= proof.has_proof || is_closed;
        self.is_someone_let_in |= !proof.has_proof && !is_closed;
    }

    /// Has the attributes say what the hosts say.
    fn settle(&self, access: &mut Access) {
        let mut correct = |name: &str, is_set: bool| {
            if access.is_set(name) != is_set {
                access.attributes.insert(name.into(), i64::from(is_set));
            }
        };
        correct("generate_node_acls", self.others.is_some());
        if let Some(is_read_only) = self.others {
            correct("demo_mode_write_protect", is_read_only);
        }
        if self.is_proof_asked_for || self.is_someone_let_in {
            correct("authentication", self.is_proof_asked_for);
        }
        if self.acls > 0 {
            correct("prod_mode_write_protect", self.read_only_acls == self.acls);
        }
    }
}

fn read_map(host: &Document) -> Option<BTreeMap<u16, Mapped>> {
    host.get("lun")?;
    let number = |entry: &Document, key: &str| {
        entry.get(key).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok())
    };
    let entries = tables(host, "lun").filter_map(|entry| {
        let lun = number(entry, "number")?;
        Some((number(entry, "as").unwrap_or(lun), Mapped { lun, write_protect: flag(entry, "read_only") }))
    });
    Some(entries.collect())
}

pub(super) fn write(document: &mut Document, target: &Target, secrets: &mut dyn Secrets) {
    let access = &target.access;
    // The API names all targets that it has.
    let is_new = !document.contains_key("name");
    if *access == target.access_as_read && !is_new {
        return;
    }
    let was_open = !is_new && !document.contains_key("allow") && !document.contains_key("host");
    let before: Vec<Document> = tables(document, "host").map(|host| with_own_users(host, document)).collect();
    for key in ["allow", "chap", "mutual_chap", "host"] {
        document.remove(key);
    }
    let demo = access.is_set("generate_node_acls");
    let asks_for_proof = access.is_set("authentication");
    let is_read_only = access.is_set("demo_mode_write_protect");
    let is_closed = asks_for_proof && !access.auth.is_complete();
    let mut hosts: Vec<Document> = before.iter().filter(|host| matches!(role(host), Role::Unknown)).cloned().collect();
    let mut names: Vec<String> = hosts.iter().filter_map(|host| text(host, "name").map(Into::into)).collect();
    for (initiator, acl) in &access.acls {
        let old = before.iter().find(|host| matches!(role(host), Role::Acl(name) if name == *initiator));
        let name = old.and_then(|host| text(host, "name").map(Into::into));
        let name = name.unwrap_or_else(|| host_name(initiator, &names));
        names.push(name.clone());
        let mut host = acl_host(name, initiator, acl, access, secrets);
        // Of hosts of which some may only read, LIO knows no attribute. They stay as they are.
        let is_kept = access.is_set(PROTECTED) == target.access_as_read.is_set(PROTECTED);
        if is_kept && old.is_some_and(|old| flag(old, "read_only")) {
            host.insert("read_only".into(), true.into());
        }
        hosts.push(host);
    }
    if demo && hosts.is_empty() && !is_read_only && !is_closed {
        if !was_open {
            document.insert("allow".into(), json!(["*"]));
        }
        write_auth(document, access.auth_that_counts(&access.auth), secrets);
        return;
    }
    if demo {
        let mut others = Map::from_iter([("name".to_owned(), Value::from(host_name(OTHERS, &names)))]);
        others.insert("initiators".into(), json!(["*"]));
        if is_closed {
            others.insert("networks".into(), json!([]));
        }
        if is_read_only {
            others.insert("read_only".into(), true.into());
        }
        write_auth(&mut others, access.auth_that_counts(&access.auth), secrets);
        hosts.push(others);
    }
    if hosts.is_empty() {
        document.insert("allow".into(), json!([]));
    } else {
        document.insert("host".into(), hosts.into_iter().map(Value::Object).collect());
    }
}

/// A host with the users that it has from its target, which will have none.
fn with_own_users(host: &Document, target: &Document) -> Document {
    let mut host = host.clone();
    if !host.contains_key("chap") {
        for key in ["chap", "mutual_chap"] {
            target.get(key).map(|users| host.insert(key.into(), users.clone()));
        }
    }
    host
}

impl Access {
    /// The users by whom an initiator proves itself, if it has to and can.
    fn auth_that_counts<'a>(&self, auth: &'a Auth) -> Option<&'a Auth> {
        (self.is_set("authentication") && auth.is_complete()).then_some(auth)
    }
}

fn acl_host(name: String, initiator: &str, acl: &Acl, access: &Access, secrets: &mut dyn Secrets) -> Document {
    let mut host =
        Map::from_iter([("name".to_owned(), Value::from(name)), ("initiators".to_owned(), json!([initiator]))]);
    let auth = access.auth_that_counts(&acl.auth);
    if access.is_set("authentication") && auth.is_none() {
        host.insert("networks".into(), json!([]));
    }
    if access.is_set(PROTECTED) {
        host.insert("read_only".into(), true.into());
    }
    write_auth(&mut host, auth, secrets);
    if let Some(mapped) = &acl.mapped {
        let entries = mapped.iter().map(|(number, Mapped { lun, write_protect })| {
            let mut entry = Map::from_iter([("number".to_owned(), Value::from(*lun))]);
            if number != lun {
                entry.insert("as".into(), (*number).into());
            }
            if *write_protect {
                entry.insert("read_only".into(), true.into());
            }
            Value::Object(entry)
        });
        host.insert("lun".into(), entries.collect());
    }
    host
}

fn write_auth(document: &mut Document, auth: Option<&Auth>, secrets: &mut dyn Secrets) {
    let Some(auth) = auth else { return };
    let mut user = |name: &str, secret: &Secret| {
        let file = secret.file.clone().unwrap_or_else(|| secrets.file_for(secret.text.as_deref().unwrap_or_default()));
        json!({ "user": name, "secret_file": file })
    };
    document.insert("chap".into(), json!([user(&auth.userid, &auth.password)]));
    if auth.is_mutual() {
        document.insert("mutual_chap".into(), user(&auth.mutual_userid, &auth.mutual_password));
    }
}

/// A name for a host that no other of the target has.
fn host_name(wanted: &str, taken: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let plain: String = wanted.chars().map(|c| if is_plain(c) { c } else { '_' }).take(MAX_HOST_NAME - 4).collect();
    let mut names = (1..1000).map(|n| if n == 1 { plain.clone() } else { format!("{plain}-{n}") });
    names.find(|name| !taken.contains(name)).unwrap_or(plain)
}
