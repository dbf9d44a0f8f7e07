use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::attributes::{self, OF_OBJECTS, OF_TPGS};
use crate::model::{Acl, Auth, Mapped, ObjectName, Plugin, Secret, StorageObject};
use crate::saved::{self, Only};

const TARGET: &str = "iqn.2003-01.org.example:a";
const INITIATOR: &str = "iqn.1994-05.com.example:h";

/// Files that hold their own names.
struct Fake;

impl Surroundings for Fake {
    fn secret(&self, file: &str) -> Option<String> {
        file.strip_prefix("/secrets/").map(str::to_owned)
    }

    fn is_block_device(&self, path: &str) -> bool {
        path == "/srv/device"
    }

    fn size(&self, _: &str, _: u16) -> Option<u64> {
        None
    }
}

struct Files;

impl Secrets for Files {
    fn file_for(&mut self, secret: &str) -> String {
        format!("/secrets/{secret}")
    }
}

fn document(value: Value) -> Document {
    let Value::Object(document) = value else { panic!("{value}") };
    document
}

fn objects(target: Value) -> Objects {
    let mut target = document(target);
    target.insert("name".into(), TARGET.into());
    Objects { targets: BTreeMap::from([(TARGET.to_owned(), target)]), portals: BTreeMap::new() }
}

/// The target that results from a change of this one, without its name, and the state beside it.
fn changed(target: Value, state: &State, change: impl FnOnce(&mut Target)) -> (Option<Value>, State) {
    let before = read(&objects(target), state, &Fake);
    let mut after = before.clone();
    change(after.targets.get_mut(TARGET).unwrap());
    let (changes, state) = write(&before, &after, &mut Files);
    let mut documents = changes.into_iter().map(|change| {
        assert_eq!((change.kind, change.name.as_str()), (Kind::Target, TARGET));
        let mut document = change.document.unwrap();
        document.remove("name");
        Value::Object(document)
    });
    (documents.next(), state)
}

fn set(target: &mut Target, name: &str, value: i64) {
    attributes::set(OF_TPGS, &mut target.access.attributes, name, value).unwrap();
}

fn set_users(target: &mut Target) {
    target.access.auth = Auth {
        userid: "u".into(),
        password: Secret::new("p"),
        mutual_userid: "m".into(),
        mutual_password: Secret::new("q"),
    };
}

#[test]
fn attributes_say_which_initiators_may_log_in() {
    type Change = fn(&mut Target);

    let user = json!([{ "user": "u", "secret_file": "/secrets/p" }]);
    let mutual = json!({ "user": "m", "secret_file": "/secrets/q" });
    let cases: [(Change, Option<Value>); 7] = [
        (|target| set(target, "authentication", 1), None),
        (
            |target| set(target, "generate_node_acls", 1),
            Some(json!({ "host": [{ "name": "others", "initiators": ["*"], "read_only": true }] })),
        ),
        (
            |target| {
                set(target, "generate_node_acls", 1);
                set(target, "demo_mode_write_protect", 0);
            },
            Some(json!({ "allow": ["*"] })),
        ),
        (
            |target| {
                set(target, "generate_node_acls", 1);
                set(target, "demo_mode_write_protect", 0);
                set(target, "authentication", 1);
            },
            Some(json!({ "host": [{ "name": "others", "initiators": ["*"], "networks": [] }] })),
        ),
        (
            |target| {
                set(target, "generate_node_acls", 1);
                set(target, "demo_mode_write_protect", 0);
                set(target, "authentication", 1);
                set_users(target);
            },
            Some(json!({ "allow": ["*"], "chap": user, "mutual_chap": mutual })),
        ),
        (
            |target| {
                set(target, "authentication", 1);
                target.add_acl(INITIATOR).unwrap();
            },
            Some(
                json!({ "host": [{ "name": "iqn.1994-05.com.example_h", "initiators": [INITIATOR], "networks": [], "lun": [] }] }),
            ),
        ),
        (
            |target| {
                set(target, "prod_mode_write_protect", 1);
                target.add_acl(INITIATOR).unwrap();
            },
            Some(
                json!({ "host": [{ "name": "iqn.1994-05.com.example_h", "initiators": [INITIATOR], "read_only": true, "lun": [] }] }),
            ),
        ),
    ];
    for (change, expected) in cases {
        let (document, _) = changed(json!({ "allow": [] }), &State::default(), change);
        assert_eq!(document, expected);
    }
}

#[test]
fn a_host_that_may_only_read_stays_so_beside_others_that_may_write() {
    let name = "iqn.1994-05.com.example:reader";
    let hosts = json!({ "host": [
        { "name": "reader", "initiators": [name], "read_only": true },
        { "name": "writer", "initiators": ["iqn.1994-05.com.example:writer"] },
    ] });
    let is_protected = |document: Option<Value>| {
        let document = document.expect("a change");
        let hosts = document["host"].as_array().unwrap().clone();
        let reader = hosts.iter().find(|host| host["name"] == "reader").unwrap().clone();
        reader["read_only"] == json!(true)
    };
    let (document, _) = changed(hosts.clone(), &State::default(), |target| target.add_acl(INITIATOR).unwrap());
    assert!(is_protected(document), "another ACL says nothing of it");
}

#[test]
fn a_saved_target_that_asks_for_a_proof_is_not_open() {
    let restored = |tpg: Value| {
        let mut saved = json!({ "tag": 1, "enable": true, "node_acls": [] });
        for (key, value) in tpg.as_object().unwrap() {
            saved[key] = value.clone();
        }
        let text = json!({ "storage_objects": [], "targets": [{ "fabric": "iscsi", "wwn": TARGET, "tpgs": [saved] }] });
        let mut model = Model::default();
        saved::restore(&mut model, &text.to_string(), Only::default(), &|| "serial".into()).unwrap();
        model.targets[TARGET].access.is_set("authentication")
    };
    let acl = |value: i64| json!([{ "node_wwn": INITIATOR, "attributes": { "authentication": value } }]);
    let off = json!({ "authentication": 0 });
    assert!(restored(json!({})), "the kernel asks for one unless it is told otherwise");
    assert!(restored(json!({ "attributes": { "authentication": 1 } })));
    assert!(!restored(json!({ "attributes": off, "node_acls": acl(-1) })));
    assert!(restored(json!({ "attributes": off, "node_acls": acl(1) })));
    assert!(restored(json!({ "attributes": off, "parameters": { "AuthMethod": "CHAP" } })));
    assert!(!restored(json!({ "attributes": off, "parameters": { "AuthMethod": "CHAP,None" } })));
}

#[test]
fn portals_that_part_targets_are_told_when_they_are_restored() {
    let restored = |portals: [&[&str]; 2]| {
        let target = |(number, addresses): (usize, &&[&str])| {
            let portals: Vec<Value> =
                addresses.iter().map(|address| json!({ "ip_address": address, "port": 3260 })).collect();
            let tpg = json!({ "tag": 1, "portals": portals });
            json!({ "fabric": "iscsi", "wwn": format!("{TARGET}{number}"), "tpgs": [tpg] })
        };
        let targets: Vec<Value> = portals.iter().enumerate().map(target).collect();
        let text = json!({ "storage_objects": [], "targets": targets }).to_string();
        saved::restore(&mut Model::default(), &text, Only::default(), &|| "serial".into()).unwrap()
    };
    assert_eq!(restored([&["192.0.2.1"], &["192.0.2.1"]]), Vec::<String>::new());
    assert!(restored([&["192.0.2.1"], &["198.51.100.1"]]).concat().contains("each portal leads to all targets"));
    assert!(restored([&["192.0.2.1"], &[]]).concat().contains("each portal leads to all targets"));
}

#[test]
fn what_may_only_be_read_is_so_when_it_is_restored() {
    for (plugin, name) in [(Plugin::Fileio, "f"), (Plugin::User, "u"), (Plugin::Block, "b")] {
        let mut model = Model::default();
        let object =
            StorageObject { disk: "/srv/x".into(), read_only: true, wwn: "w".into(), ..StorageObject::default() };
        model.add_object(ObjectName { plugin, name: name.into() }, object).unwrap();
        let text = saved::write(&model).to_string();
        let mut again = Model::default();
        saved::restore(&mut again, &text, Only::default(), &|| "serial".into()).unwrap();
        assert!(again.objects.values().all(|object| object.read_only) && again.objects.len() == 1, "{text}");
    }
}

#[test]
fn what_no_file_can_say_is_not_cleared() {
    let only = |target| Only { target: Some(target), object: None };
    let mut model = Model::default();
    let lun = json!({ "number": 0, "disk": "/srv/q", "quantum": 4096 });
    let mut objects = Objects::default();
    objects.targets.insert(TARGET.into(), document(json!({ "name": TARGET, "lun": [lun] })));
    let served = read(&objects, &State::default(), &Fake);
    let object = served.objects.keys().next().unwrap().name.clone();
    for only in [Only::default(), only(TARGET), Only { target: None, object: Some(&object) }] {
        let refused = saved::clear(&mut served.clone(), only).unwrap_err();
        assert!(refused.to_string().contains("has quantum"), "{refused}");
    }
    saved::clear(&mut served.clone(), only("iqn.other")).unwrap();
    let text = json!({ "storage_objects": [], "targets": [] }).to_string();
    let missing = saved::restore(&mut model, &text, only("iqn.none"), &|| "serial".into()).unwrap_err();
    assert!(missing.to_string().contains("the file has no iqn.none"), "{missing}");
}

#[test]
fn users_wait_in_the_state_until_they_count() {
    let (document, state) = changed(json!({ "allow": [] }), &State::default(), set_users);
    assert_eq!(document, None);
    assert_eq!(state.targets[TARGET].auth.password, "p");
    let (document, state) = changed(json!({ "allow": [] }), &state, |target| {
        set(target, "authentication", 1);
        set(target, "demo_mode_write_protect", 0);
        set(target, "generate_node_acls", 1);
    });
    assert_eq!(document.unwrap()["chap"][0]["secret_file"], "/secrets/p");
    assert!(!state.targets.contains_key(TARGET), "the secret is in its file alone");
}

#[test]
fn what_the_api_says_counts_before_the_state() {
    let state = State {
        targets: BTreeMap::from([(
            TARGET.to_owned(),
            SavedTarget {
                attributes: BTreeMap::from([("generate_node_acls".into(), 1), ("authentication".into(), 1)]),
                ..SavedTarget::default()
            },
        )]),
        ..State::default()
    };
    for (target, demo, proof) in [
        (json!({ "allow": [] }), false, true),
        (json!({}), true, false),
        (json!({ "allow": ["*"], "chap": [{ "user": "u", "secret_file": "/secrets/p" }] }), true, true),
        (json!({ "allow": ["iqn.x"] }), false, false),
        (json!({ "host": [{ "name": "a", "initiators": ["iqn.x"] }] }), false, false),
    ] {
        let model = read(&objects(target.clone()), &state, &Fake);
        let access = &model.targets[TARGET].access;
        assert_eq!((access.is_set("generate_node_acls"), access.is_set("authentication")), (demo, proof), "{target}");
    }
}

#[test]
fn hosts_that_lio_cannot_say_keep_their_rules() {
    let network = json!({ "name": "backup", "networks": ["192.0.2.0/24"], "read_only": true });
    let clones = json!({ "name": "boot", "initiators": ["*"], "clone": "p/golden" });
    let target = json!({ "host": [network, clones], "chap": [{ "user": "u", "secret_file": "/etc/u" }] });
    let (document, _) = changed(target, &State::default(), |target| {
        assert!(target.access.acls.is_empty());
        target.add_acl(INITIATOR).unwrap();
    });
    let document = document.unwrap();
    let hosts = document["host"].as_array().unwrap();
    assert_eq!(hosts.len(), 3);
    assert_eq!(hosts[0]["networks"], json!(["192.0.2.0/24"]));
    // Their users were the target's, which an ACL has not.
    assert!(
        hosts[..2].iter().all(|host| host["chap"] == json!([{ "user": "u", "secret_file": "/etc/u" }])),
        "{document}"
    );
    assert_eq!(document.get("chap"), None);
}

#[test]
fn keys_without_a_place_in_lio_stay() {
    let target = json!({ "alias": "Disks", "redirect": { "to": ["h"] }, "lun": [
        { "number": 3, "disk": "/srv/a", "sanitize_rate": "1M", "vendor": "ACME" }, { "number": 1, "disk": "mem:1M" }] });
    let (document, _) = changed(target.clone(), &State::default(), |target| set(target, "cache_dynamic_acls", 1));
    assert_eq!(document, None, "nothing of it is in the API");
    let (document, state) = changed(target, &State::default(), |target| {
        target.luns.remove(&1);
    });
    let document = document.unwrap();
    assert_eq!(document["lun"], json!([{ "number": 3, "disk": "/srv/a", "sanitize_rate": "1M", "vendor": "ACME" }]));
    assert_eq!(document["redirect"], json!({ "to": ["h"] }));
    assert_eq!(document.get("allow"), None, "it lets all in, as before");
    assert!(state.objects.is_empty(), "the API has its disk");
}

#[test]
fn a_new_logical_unit_has_what_its_storage_object_says() {
    let name = ObjectName { plugin: Plugin::Fileio, name: "a-name-of-more-than-16-bytes".into() };
    let object = StorageObject {
        disk: "/srv/new".into(),
        size: Some(1 << 20),
        is_new_file: true,
        is_full: true,
        read_only: true,
        wwn: "serial-1".into(),
        attributes: BTreeMap::from([("block_size".into(), 4096)]),
        is_kept: true,
    };
    let before = read(&objects(json!({ "allow": [] })), &State::default(), &Fake);
    let mut after = before.clone();
    after.add_object(name.clone(), object).unwrap();
    after.add_lun(TARGET, &name, Some(2)).unwrap();
    let (changes, state) = write(&before, &after, &mut Files);
    let expected = json!([{ "number": 2, "disk": "/srv/new", "serial": "serial-1", "read_only": true, "provisioning": "full",
        "create": "1048576", "block_size": 4096, "product": "a-name-of-more-t" }]);
    assert_eq!(changes[0].document.as_ref().unwrap()["lun"], expected);
    // After a round through the server it is the same storage object.
    let mut served = objects(json!({ "allow": [], "lun": expected }));
    let again = read(&served, &state, &Fake);
    assert_eq!(again.targets[TARGET].luns[&2].object, name);
    assert_eq!(attributes::value(OF_OBJECTS, &again.objects[&name].attributes, "block_size"), 4096);
    // Another client has removed the logical unit: the storage object is left, as in LIO.
    served.targets.get_mut(TARGET).unwrap().remove("lun");
    assert_eq!(read(&served, &state, &Fake).objects.len(), 1);
}

#[test]
fn disks_that_no_command_has_made_are_named_after_their_paths() {
    let target = json!({ "lun": [{ "number": 0, "disk": "/dev/vg/a" }, { "number": 1, "disk": "/srv/a.img" }, { "number": 2, "disk": "mem:1M" },
        { "number": 3, "disk": "mem:1M" }, { "number": 4, "disk": "volume:p/v" }, { "number": 5, "disk": "/srv/device" }] });
    let model = read(&objects(target), &State::default(), &Fake);
    let names: Vec<String> = model.targets[TARGET].luns.values().map(|lun| lun.object.to_string()).collect();
    let expected = [
        "block/dev-vg-a",
        "fileio/srv-a.img",
        "ramdisk/mem:1M",
        "ramdisk/mem:1M-2",
        "user/volume:p-v",
        "block/srv-device",
    ];
    assert_eq!(names, expected);
}

/// A tree of which every part is as a caller may have made it.
fn any_model() -> impl Strategy<Value = Model> {
    let flags = proptest::collection::vec(any::<bool>(), 5);
    let users = (any::<bool>(), any::<bool>(), any::<bool>());
    let acls = proptest::collection::vec(
        (users, proptest::collection::btree_map(0_u16..8, (0_u16..4, any::<bool>()), 0..4)),
        0..3,
    );
    (flags, users, acls, 0_u16..4).prop_map(|(flags, users, acls, luns)| {
        let auth = |(user, secret, mutual): (bool, bool, bool)| Auth {
            userid: if user { "u".into() } else { String::new() },
            password: Secret::new(if secret { "p" } else { "" }),
            mutual_userid: if mutual { "m".into() } else { String::new() },
            mutual_password: Secret::new(if mutual { "q" } else { "" }),
        };
        let mut model = Model::default();
        model.add_target(TARGET).unwrap();
        for number in 0..luns {
            let name = ObjectName { plugin: Plugin::Block, name: format!("d{number}") };
            let (disk, wwn) = (format!("/dev/d{number}"), format!("w{number}"));
            model
                .add_object(name.clone(), StorageObject { disk, wwn, is_kept: true, ..StorageObject::default() })
                .unwrap();
            model.add_lun(TARGET, &name, None).unwrap();
        }
        let target = model.targets.get_mut(TARGET).unwrap();
        let names = [
            "authentication",
            "cache_dynamic_acls",
            "demo_mode_write_protect",
            "generate_node_acls",
            "prod_mode_write_protect",
        ];
        for (name, value) in names.into_iter().zip(flags) {
            set(target, name, i64::from(value));
        }
        target.access.auth = auth(users);
        for (index, (users, mapped)) in acls.into_iter().enumerate() {
            let mapped = mapped.into_iter().filter(|(_, (lun, _))| *lun < luns);
            let mapped = mapped.map(|(number, (lun, write_protect))| (number, Mapped { lun, write_protect })).collect();
            let acl = Acl { auth: auth(users), mapped: Some(mapped), ..Acl::default() };
            target.access.acls.insert(format!("{INITIATOR}{index}"), acl);
        }
        model
    })
}

/// The attributes and users of a portal group, and the users and logical units of its ACLs.
type Seen = (BTreeMap<&'static str, i64>, Auth, BTreeMap<String, (Auth, BTreeMap<u16, Mapped>)>);

/// All that a person sees of the access to a target.
fn seen(model: &Model) -> Seen {
    let target = &model.targets[TARGET];
    let plain = |auth: &Auth| Auth {
        password: Secret { file: None, ..auth.password.clone() },
        mutual_password: Secret { file: None, ..auth.mutual_password.clone() },
        ..auth.clone()
    };
    let attribute = |attribute: &attributes::Attribute| {
        (attribute.name, attributes::value(OF_TPGS, &target.access.attributes, attribute.name))
    };
    let acl = |(name, acl): (&String, &Acl)| (name.clone(), (plain(&acl.auth), target.mapped(acl)));
    (OF_TPGS.iter().map(attribute).collect(), plain(&target.access.auth), target.access.acls.iter().map(acl).collect())
}

proptest! {
    /// A tree is the same after it was written and read, and an unchanged one is not written.
    #[test]
    fn a_tree_survives_the_way_through_the_api(model in any_model()) {
        let (changes, state) = write(&Model::default(), &model, &mut Files);
        let target = changes[0].document.clone().unwrap();
        let served = objects(Value::Object(target));
        let again = read(&served, &state, &Fake);
        prop_assert_eq!(seen(&again), seen(&model));
        let (changes, same) = write(&again, &again, &mut Files);
        prop_assert_eq!(changes, vec![]);
        prop_assert_eq!(same, state);
    }

    /// No initiator gets in without the proof that is asked for.
    #[test]
    fn a_target_that_asks_for_a_proof_lets_in_nobody_without(model in any_model()) {
        let (changes, _) = write(&Model::default(), &model, &mut Files);
        let target = changes[0].document.clone().unwrap();
        let access = &model.targets[TARGET].access;
        let is_guarded = |table: &Document| table.contains_key("chap") || table.get("networks") == Some(&json!([]));
        let hosts: Vec<&Document> = tables(&target, "host").collect();
        if access.is_set("authentication") {
            prop_assert!(hosts.iter().all(|host| is_guarded(host)));
            prop_assert!(!hosts.is_empty() || is_guarded(&target) || target["allow"] == json!([]));
        }
        if !access.is_set("generate_node_acls") {
            prop_assert!(hosts.iter().all(|host| host["initiators"] != json!(["*"])));
            prop_assert!(!hosts.is_empty() || target["allow"] == json!([]));
        }
    }

    /// A tree is restored as it was saved.
    #[test]
    fn a_saved_tree_is_restored(model in any_model()) {
        let text = saved::write(&model).to_string();
        let mut restored = Model::default();
        let errors = saved::restore(&mut restored, &text, Only::default(), &|| unreachable!("all have serial numbers"));
        prop_assert_eq!(errors, Ok(vec![]));
        prop_assert_eq!(seen(&restored), seen(&model));
        let disks = |model: &Model| model.objects.iter().map(|(name, object)| (name.clone(), object.disk.clone(), object.wwn.clone())).collect::<Vec<_>>();
        prop_assert_eq!(disks(&restored), disks(&model));
    }

    /// No file makes it panic.
    #[test]
    fn any_text_is_a_saved_tree_or_refused(text in ".{0,200}") {
        let _ = saved::restore(&mut Model::default(), &text, Only::default(), &String::new);
    }
}
