//! The objects that the control plane manages: what they are called, what their files are called, and what is in them.
//!
//! An object is a document: a table with the keys that the same table has in the configuration file. This module knows
//! the keys that name things, and no others; the server checks the rest. Nothing here does I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::limits::MAX_OBJECTS;
use crate::problem::Problem;

/// The keys of an object and their values.
pub type Document = Map<String, Value>;

/// The longest iSCSI name in bytes (RFC 7143 section 4.2.7.1).
const MAX_NAME_BYTES: usize = 223;

/// The port of iSCSI (RFC 7143 section 15).
const DEFAULT_PORT: u16 = 3260;

/// The end of the name of an object's file.
const EXTENSION: &str = ".toml";

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A portal of TCP, named by its address and port.
    Portal,
    /// A target, named by its iSCSI name, with its LUNs, hosts and target port groups.
    Target,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Portal, Self::Target];

    /// The table of the configuration file that holds such objects, which is also what their files' names begin with.
    pub fn table(self) -> &'static str {
        match self {
            Self::Portal => "portal",
            Self::Target => "target",
        }
    }

    /// The key that names the object.
    pub fn name_key(self) -> &'static str {
        match self {
            Self::Portal => "address",
            Self::Target => "name",
        }
    }

    /// Checks what a file is called after.
    fn check_name(self, name: &str) -> Result<(), String> {
        match self {
            Self::Portal => check_address(name),
            // The server checks that it is an iSCSI name.
            Self::Target if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(['/', '\0']) => {
                Err(format!("{name:?} is not an iSCSI name"))
            }
            Self::Target => Ok(()),
        }
    }
}

/// Checks that an address is written in its one form: two objects of one address would be two files. A zone is the name
/// or the number of an interface. Names of hosts are none: what they mean changes.
fn check_address(name: &str) -> Result<(), String> {
    let (plain, zone) = match name.split_once('%').and_then(|(host, rest)| Some((host, rest.split_once(']')?))) {
        Some((host, (zone, port))) => (format!("{host}]{port}"), Some(zone)),
        None => (name.to_owned(), None),
    };
    let is_zone =
        |zone: &str| !zone.is_empty() && zone.chars().all(|c| c.is_ascii_alphanumeric() || "-._@".contains(c));
    let canonical = |address: SocketAddr| match zone {
        Some(zone) => address.to_string().replacen(']', &format!("%{zone}]"), 1),
        None => address.to_string(),
    };
    match (plain.parse::<SocketAddr>(), plain.trim_matches(['[', ']']).parse::<IpAddr>()) {
        (Ok(address), _) if zone.is_some_and(|zone| address.is_ipv4() || !is_zone(zone)) => Err(format!(
            "{name:?}: a zone is the name or number of an interface behind an IPv6 address, as in [fe80::1%eth0]:3260"
        )),
        (Ok(address), _) if canonical(address) == name => Ok(()),
        (Ok(address), _) => Err(format!("write the address as {}", canonical(address))),
        (_, Ok(ip)) => {
            Err(format!("write the address with its port, as {}", canonical(SocketAddr::new(ip, DEFAULT_PORT))))
        }
        _ if name.starts_with(['*', ':']) => {
            Err(format!("{name:?}: every address is two portals, such as 0.0.0.0:3260 and [::]:3260"))
        }
        _ => Err(format!(
            "{name:?} is not ADDR:PORT, such as 192.0.2.1:3260 or [::1]:3260; names of hosts may stand in the configuration file alone"
        )),
    }
}

/// The name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The kind of the object.
    pub kind: Kind,
    /// The name of the object within its kind.
    pub name: String,
}

impl Key {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with it.
    pub fn new(kind: Kind, name: &str) -> Result<Self, String> {
        kind.check_name(name)?;
        Ok(Self { kind, name: name.into() })
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}-{}{EXTENSION}", self.kind.table(), self.name)
    }

    /// The object whose file has this name.
    pub fn of_file(file: &str) -> Option<Self> {
        let (kind, name) = file.strip_suffix(EXTENSION)?.split_once('-')?;
        let kind = Kind::ALL.into_iter().find(|known| known.table() == kind)?;
        Self::new(kind, name).ok()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.table(), self.name)
    }
}

/// Whether a file of this name holds an object. Names that begin with a dot are the server's own, and a path leads out
/// of the folder.
pub fn is_object_file(name: &str) -> bool {
    !name.starts_with('.') && !name.contains('/') && name.ends_with(EXTENSION)
}

/// A set of objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objects(BTreeMap<Key, Document>);

/// A set of objects as JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// The portals.
    #[serde(default, rename = "portal")]
    pub portals: Vec<Document>,
    /// The targets.
    #[serde(default, rename = "target")]
    pub targets: Vec<Document>,
}

/// A change of one file: its content, or `None` to remove it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The name of the file.
    pub file: String,
    /// The content from now on.
    pub content: Option<String>,
}

impl Objects {
    /// The document of an object.
    pub fn get(&self, key: &Key) -> Option<&Document> {
        self.0.get(key)
    }

    /// The objects of a kind, in the order of their names.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = (&str, &Document)> {
        self.0.iter().filter(move |(key, _)| key.kind == kind).map(|(key, document)| (key.name.as_str(), document))
    }

    /// The documents of a kind, to change them in their places. The key that names an object has to stay.
    pub fn of_mut(&mut self, kind: Kind) -> impl Iterator<Item = &mut Document> {
        self.0.iter_mut().filter(move |(key, _)| key.kind == kind).map(|(_, document)| document)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an object or replaces it. Its document may leave out the key that names it.
    ///
    /// # Errors
    ///
    /// When the document says another name, or there are too many objects.
    pub fn put(&mut self, key: Key, mut document: Document) -> Result<(), Problem> {
        let name_key = key.kind.name_key();
        let name = document.entry(name_key).or_insert_with(|| key.name.clone().into());
        if *name != key.name {
            return Err(Problem::invalid(format!(
                "{name_key} is {name} in the object of {key}; leave it out, or make both equal"
            )));
        }
        if self.0.len() >= MAX_OBJECTS && !self.0.contains_key(&key) {
            return Err(Problem::conflict(format!("there are {MAX_OBJECTS} objects; remove one first")));
        }
        self.0.insert(key, document);
        Ok(())
    }

    /// Adds all of `others`, in the place of those that have the same names.
    ///
    /// # Errors
    ///
    /// When there are too many objects.
    pub fn extend(&mut self, others: &Self) -> Result<(), Problem> {
        others.0.iter().try_for_each(|(key, document)| self.put(key.clone(), document.clone()))
    }

    /// Removes an object. Whether it was there.
    pub fn remove(&mut self, key: &Key) -> bool {
        self.0.remove(key).is_some()
    }

    /// The objects of these tables.
    ///
    /// # Errors
    ///
    /// When one has no name, a wrong one, or that of another.
    pub fn from_tables(tables: Tables) -> Result<Self, Problem> {
        let mut objects = Self::default();
        let portals = tables.portals.into_iter().map(|document| (Kind::Portal, document));
        let targets = tables.targets.into_iter().map(|document| (Kind::Target, document));
        for (kind, document) in portals.chain(targets) {
            let key = key_of(kind, &document).map_err(Problem::invalid)?;
            if objects.get(&key).is_some() {
                return Err(Problem::invalid(format!("{key} is there twice")));
            }
            objects.put(key, document)?;
        }
        Ok(objects)
    }

    /// The objects as tables.
    pub fn to_tables(&self) -> Tables {
        let all = |kind| self.of(kind).map(|(_, document)| document.clone()).collect();
        Tables { portals: all(Kind::Portal), targets: all(Kind::Target) }
    }

    /// Adds the object of a file.
    ///
    /// # Errors
    ///
    /// A sentence that names the mistake, without the file's name.
    pub fn add_file(&mut self, file: &str, content: &str) -> Result<(), String> {
        let (key, document) = parse(content)?;
        let expected = key.file_name();
        if file != expected {
            return Err(format!("a file that holds {key} has the name {expected}; rename it"));
        }
        self.put(key, document).map_err(|problem| problem.detail)
    }

    /// The files that have to change for `new` to be in them.
    ///
    /// # Errors
    ///
    /// When a document has a value that TOML does not know: null, or a number beyond 64 bits.
    pub fn file_changes(&self, new: &Self) -> Result<Vec<FileChange>, Problem> {
        let gone = self.0.keys().filter(|key| !new.0.contains_key(*key));
        let gone = gone.map(|key| Ok(FileChange { file: key.file_name(), content: None }));
        let changed = new.0.iter().filter(|(key, document)| self.0.get(*key) != Some(*document));
        let changed = changed
            .map(|(key, document)| Ok(FileChange { file: key.file_name(), content: Some(print(key, document)?) }));
        gone.chain(changed).collect()
    }

    /// The objects that `new` has not, has beside these, or has with another document.
    pub fn changed<'a>(&'a self, new: &'a Self) -> impl Iterator<Item = &'a Key> {
        let gone = self.0.keys().filter(|key| !new.0.contains_key(*key));
        gone.chain(new.0.iter().filter(|(key, document)| self.0.get(*key) != Some(*document)).map(|(key, _)| key))
    }

    /// Changes with each change of an object.
    pub fn etag(&self) -> String {
        etag(&self.to_tables())
    }
}

/// A strong ETag of a value, in its quotes.
pub fn etag(value: &impl Serialize) -> String {
    // Maps with text as keys become JSON.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let digest = Sha256::digest(&text);
    let first = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("\"{first:016x}\"")
}

/// The name that a document says.
fn key_of(kind: Kind, document: &Document) -> Result<Key, String> {
    match document.get(kind.name_key()) {
        Some(Value::String(name)) => Key::new(kind, name),
        Some(_) => Err(format!("{} of a {} is a text", kind.name_key(), kind.table())),
        None => Err(format!("a {} has no {}", kind.table(), kind.name_key())),
    }
}

/// The objects of a text in TOML.
///
/// # Errors
///
/// A sentence that names the line.
pub fn read_tables(content: &str) -> Result<Tables, String> {
    // Without the text around the mistake: it could be a secret that stands in the wrong place.
    toml::from_str(content).map_err(|error| match error.span() {
        Some(span) => format!("line {}: {}", content[..span.start].matches('\n').count() + 1, error.message()),
        None => error.message().to_owned(),
    })
}

/// The one object of a file.
pub(crate) fn parse(content: &str) -> Result<(Key, Document), String> {
    let all = Objects::from_tables(read_tables(content)?).map_err(|problem| problem.detail)?;
    let count = all.len();
    match all.0.into_iter().next() {
        Some(one) if count == 1 => Ok(one),
        _ => Err(format!("a file of conf.d holds one [[target]] or one [[portal]], and this one holds {count}")),
    }
}

/// An object as the text of its file.
fn print(key: &Key, document: &Document) -> Result<String, Problem> {
    if let Some(null) = document.iter().find_map(|(name, value)| null_in(name, value)) {
        return Err(Problem::invalid(format!("{key}: {null} is null; leave out keys without a value")));
    }
    let tables = BTreeMap::from([(key.kind.table(), [document])]);
    toml::to_string(&tables).map_err(|error| Problem::invalid(format!("{key}: {error}")))
}

/// The path of the first null in the value of a key.
fn null_in(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(name.to_owned()),
        Value::Array(all) => all.iter().enumerate().find_map(|(index, one)| null_in(&format!("{name}[{index}]"), one)),
        Value::Object(keys) => keys.iter().find_map(|(key, one)| null_in(&format!("{name}.{key}"), one)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn document(value: Value) -> Document {
        let Value::Object(document) = value else { panic!("{value}") };
        document
    }

    fn target(name: &str) -> Key {
        Key::new(Kind::Target, name).unwrap()
    }

    #[test]
    fn a_portal_is_named_in_the_one_form_of_its_address() {
        for name in ["192.0.2.1:3260", "[2001:db8::1]:860", "[::]:3260", "[fe80::1%eth0.7]:3260", "[fe80::1%2]:3260"] {
            assert_eq!(Key::new(Kind::Portal, name).map(|key| key.name), Ok(name.into()));
        }
        for (name, expected) in [
            ("192.0.2.1", "as 192.0.2.1:3260"),
            ("::1", "as [::1]:3260"),
            ("[::1]", "as [::1]:3260"),
            ("[fe80::1%eth0]", "as [fe80::1%eth0]:3260"),
            ("[FE80::0:1%eth0]:3260", "as [fe80::1%eth0]:3260"),
            ("[fe80::1%]:3260", "a zone is the name or number"),
            ("[fe80::1%a/b]:3260", "a zone is the name or number"),
            ("localhost:3260", "in the configuration file alone"),
            ("*:3260", "two portals"),
            (":3260", "two portals"),
            ("", "not ADDR:PORT"),
        ] {
            let error = Key::new(Kind::Portal, name).unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }

    #[test]
    fn an_object_is_one_file_that_is_read_as_it_was_written() {
        let (mut old, mut new) = (Objects::default(), Objects::default());
        old.put(target("iqn.old"), Document::new()).unwrap();
        old.put(target("iqn.same"), Document::new()).unwrap();
        new.put(target("iqn.same"), Document::new()).unwrap();
        let lun = json!({ "lun": [{ "number": 0, "disk": "/srv/ü \"a\".img", "create": "10G" }], "alias": "x" });
        new.put(target("iqn.2026-11.org.example:db"), document(lun)).unwrap();
        new.put(Key::new(Kind::Portal, "[::1]:3260").unwrap(), document(json!({ "group": 2 }))).unwrap();
        let changes = old.file_changes(&new).unwrap();
        let files: Vec<_> = changes.iter().map(|change| (change.file.as_str(), change.content.is_some())).collect();
        assert_eq!(
            files,
            [
                ("target-iqn.old.toml", false),
                ("portal-[::1]:3260.toml", true),
                ("target-iqn.2026-11.org.example:db.toml", true)
            ]
        );
        for change in changes {
            match change.content {
                Some(content) => old.add_file(&change.file, &content).unwrap(),
                None => assert!(old.remove(&target("iqn.old"))),
            }
        }
        assert_eq!(old, new);
    }

    #[test]
    fn a_null_is_named_by_its_key() {
        for (value, path) in [
            (json!({ "alias": null }), "alias is null"),
            (json!({ "lun": [{}, { "create": null }] }), "lun[1].create is null"),
        ] {
            let mut objects = Objects::default();
            objects.put(target("iqn.a"), document(value)).unwrap();
            let problem = Objects::default().file_changes(&objects).unwrap_err();
            assert!(problem.detail.contains(&format!("target iqn.a: {path}; leave out")), "{problem}");
        }
    }

    #[test]
    fn mistakes_of_files_are_named_and_not_shown() {
        for (file, content, expected) in [
            ("target-iqn.b.toml", "[[target]]\nname = \"iqn.a\"", "has the name target-iqn.a.toml"),
            ("x.toml", "", "holds 0"),
            ("x.toml", "[[target]]\nname = \"iqn.a\"\n[[portal]]\naddress = \"[::1]:1\"", "holds 2"),
            ("x.toml", "listen = []\n", "unknown field `listen`"),
            ("x.toml", "[[target]]\nalias = \"a\"", "has no name"),
            ("x.toml", "[[target]]\nname = \"iqn.a/b\"", "not an iSCSI name"),
            ("x.toml", "[[portal]]\naddress = \"192.0.2.1\"", "as 192.0.2.1:3260"),
            ("x.toml", "[[portal]]\naddress = \"[::0001]:1\"", "write the address as [::1]:1"),
            ("x.toml", "[[target]]\nname = 1", "name of a target is a text"),
            ("x.toml", "[[target]]\nname = \"iqn.a\"\nsecret = marker", "line 3: "),
        ] {
            let error = Objects::default().add_file(file, content).unwrap_err();
            assert!(error.contains(expected) && !error.contains("marker"), "{content}: {error}");
        }
    }

    #[test]
    fn a_document_does_not_rename_its_object() {
        let problem = Objects::default().put(target("iqn.a"), document(json!({ "name": "iqn.b" }))).unwrap_err();
        assert_eq!(problem.status, 422);
        assert!(problem.detail.contains("make both equal"), "{problem}");
        let twice = Tables { targets: vec![document(json!({ "name": "iqn.a" })); 2], portals: Vec::new() };
        assert!(Objects::from_tables(twice).unwrap_err().detail.contains("twice"));
    }

    #[test]
    fn there_are_no_more_objects_than_the_limit() {
        let mut objects = Objects::default();
        for number in 0..MAX_OBJECTS {
            objects.put(target(&format!("iqn.{number}")), Document::new()).unwrap();
        }
        assert_eq!(objects.put(target("iqn.more"), Document::new()).unwrap_err().status, 409);
        objects.put(target("iqn.0"), Document::new()).unwrap();
    }

    #[test]
    fn what_toml_does_not_know_is_refused() {
        let mut new = Objects::default();
        new.put(target("iqn.a"), document(json!({ "alias": null }))).unwrap();
        assert_eq!(Objects::default().file_changes(&new).unwrap_err().status, 422);
    }

    #[test]
    fn the_etag_changes_with_the_content() {
        let mut objects = Objects::default();
        let empty = objects.etag();
        objects.put(target("iqn.a"), Document::new()).unwrap();
        let one = objects.etag();
        assert_ne!(empty, one);
        assert_eq!(one, objects.clone().etag());
        objects.put(target("iqn.a"), document(json!({ "alias": "a" }))).unwrap();
        assert_ne!(one, objects.etag());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".*", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_a_document_holds_its_file_holds_the_same(keys in prop::collection::btree_map("[a-z_]{1,8}", value(), 0..6)) {
            let mut document: Document = keys.into_iter().collect();
            document.insert("name".into(), "iqn.a".into());
            let key = target("iqn.a");
            let text = print(&key, &document).unwrap();
            prop_assert_eq!(parse(&text).unwrap(), (key, document), "{}", text);
        }
    }
}
