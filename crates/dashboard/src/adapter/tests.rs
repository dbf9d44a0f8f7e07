//! Several gateways over a model of the API and of the cluster.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lunette_api::{Catalog, Kind, Objects, Server, Session};
use serde_json::json;

use super::*;
use crate::calls;
use crate::document::Document;
use crate::form::Form;
use crate::limits::MAX_ATTEMPTS;
use crate::model::{Memory, Model};
use crate::stored::Stored;

const TARGET: &str = "iqn.2026-11.org.example:a";

/// A gateway that is connected.
struct Gateway {
    server: Arc<Model>,
    adapter: Adapter,
    _folder: tempfile::TempDir,
}

impl Gateway {
    fn start(cluster: &Arc<Memory>, name: &str, address: &str) -> Self {
        let (server, folder) = (Arc::new(Model::default()), tempfile::tempdir().unwrap());
        let options = Options { name: name.into(), addresses: vec![address.into()], folder: folder.path().to_owned() };
        let adapter = Adapter::new(Arc::clone(&server) as _, options).unwrap();
        cluster.hearing.lock().unwrap().insert(name.into(), adapter.answered());
        adapter.connect(Arc::clone(cluster) as _);
        Self { server, adapter, _folder: folder }
    }

    fn change(&self, call: impl Fn(&mut Document) -> calls::Done) -> Answer {
        self.adapter.change(call)
    }

    fn add_gateway(&self, name: &str, address: &str) -> Answer {
        let form = form(&format!("ip_address={address}"));
        let known = self.adapter.state_of(name)?.addresses;
        self.change(|document| calls::new_gateway(document, TARGET, name, &form, &known))
    }

    fn add_disk(&self, image: &str) -> Answer {
        self.change(|document| calls::new_disk(document, "rbd", image, &form(""), &format!("wwn-{image}")))?;
        self.change(|document| calls::add_lun(document, TARGET, &form(&format!("disk=rbd/{image}"))))
    }

    fn names(&self) -> Vec<String> {
        let catalog = self.server.catalog();
        [Kind::Target, Kind::Portal].into_iter().flat_map(|kind| names_of(&catalog.objects, kind)).collect()
    }

    fn changes(&self) -> usize {
        mem::take(&mut self.server.changes.lock().unwrap())
    }
}

fn names_of(objects: &Objects, kind: Kind) -> Vec<String> {
    objects.of(kind).map(|(name, _)| name.to_owned()).collect()
}

fn form(text: &str) -> Form {
    Form::parse(text.as_bytes()).unwrap()
}

fn document(value: &[u8]) -> Document {
    Stored::decode(value).unwrap().document
}

/// Two gateways of one target.
fn two() -> (Arc<Memory>, [Gateway; 2]) {
    let cluster = Arc::new(Memory::default());
    let gateways = [Gateway::start(&cluster, "a", "192.0.2.1"), Gateway::start(&cluster, "b", "192.0.2.2")];
    gateways[0].change(|document| calls::put_target(document, TARGET, &form(""))).unwrap();
    gateways[0].add_gateway("a", "192.0.2.1").unwrap();
    gateways[0].add_gateway("b", "192.0.2.2").unwrap();
    (cluster, gateways)
}

#[test]
fn all_gateways_follow_a_call_to_any_of_them() {
    let (_, [a, b]) = two();
    assert_eq!(
        (a.names(), b.names()),
        (vec![TARGET.into(), "192.0.2.1:3260".into()], vec![TARGET.into(), "192.0.2.2:3260".into()])
    );
    b.add_disk("i").unwrap();
    for gateway in [&a, &b] {
        let catalog = gateway.server.catalog();
        let (_, target) = catalog.objects.of(Kind::Target).next().unwrap();
        assert_eq!(target["lun"][0]["disk"], "rbd:rbd/i?user=lunette");
        assert_eq!(target["gateways"]["groups"], json!([1, 2]));
        assert_eq!(gateway.adapter.config().unwrap(), a.adapter.config().unwrap());
    }
    a.change(|document| calls::delete_target(document, TARGET)).unwrap();
    assert!(a.names().is_empty() && b.names().is_empty());
}

#[test]
fn a_second_gateway_makes_the_target_of_the_first_one_again() {
    let (_, [a, b]) = two();
    b.changes();
    a.changes();
    a.change(|document| calls::delete_gateway(document, TARGET, "b")).unwrap();
    assert_eq!((a.changes(), b.changes(), b.names().len()), (2, 1, 0), "without the target, then with it");
    a.add_disk("i").unwrap();
    assert_eq!((a.changes(), b.changes()), (1, 0), "a disk comes at once, and b has no part in it");
    a.change(|document| calls::put_target(document, TARGET, &form(""))).unwrap();
    assert_eq!(a.changes(), 0);
}

#[test]
fn a_gateway_that_refuses_takes_the_change_back_from_all() {
    let (cluster, [a, b]) = two();
    let before = (a.server.catalog(), b.server.catalog());
    let (version, value) = cluster.read().unwrap();
    a.change(|document| calls::new_disk(document, "rbd", "i", &form(""), "wwn")).unwrap();
    b.server.refuses.store(true, Ordering::Relaxed);
    let refusal = a.change(|document| calls::add_lun(document, TARGET, &form("disk=rbd/i"))).unwrap_err();
    assert_eq!((refusal.status, &*refusal.message), (400, "failed on b. the disk cannot be opened"));
    assert_eq!((a.server.catalog(), b.server.catalog()), before);
    let (now, later) = cluster.read().unwrap();
    assert_eq!((now, document(&later).targets), (version + 4, document(&value).targets));
}

#[test]
fn without_one_of_the_gateways_nothing_changes() {
    let (cluster, [a, b]) = two();
    let version = cluster.read().unwrap().0;
    let gone = cluster.hearing.lock().unwrap().remove("b").unwrap();
    let refusal = a.add_disk("i").unwrap_err();
    assert_eq!(refusal.status, 503);
    assert_eq!(refusal.message, "failed, gateway(s) unavailable:b(iscsi Unknown, API down)");
    assert_eq!(a.add_gateway("c", "192.0.2.3").unwrap_err().status, 503);
    assert_eq!(a.adapter.target_info(TARGET).unwrap_err().status, 503);
    assert_eq!(cluster.read().unwrap().0, version);
    // What it has missed it does when it hears again.
    let mut document = self::document(&cluster.read().unwrap().1);
    calls::delete_target(&mut document, TARGET).unwrap();
    document.number_gateways();
    assert!(cluster.replace(version, &Stored::settled(document).encode().unwrap()).unwrap());
    gone(None);
    assert!(b.names().is_empty() && !a.names().is_empty());
}

#[test]
fn a_change_is_made_again_when_another_gateway_was_first() {
    let (cluster, [a, _]) = two();
    let mut rival = document(&cluster.read().unwrap().1);
    calls::new_disk(&mut rival, "rbd", "other", &form(""), "wwn-other").unwrap();
    *cluster.rival.lock().unwrap() = Some(rival);
    a.add_disk("i").unwrap();
    let config = a.adapter.config().unwrap();
    assert!(config["disks"]["rbd/other"].is_object() && config["disks"]["rbd/i"].is_object());
}

#[test]
fn a_change_waits_for_that_of_another_gateway() {
    let (cluster, [a, _]) = two();
    let (version, value) = cluster.read().unwrap();
    let now = document(&value);
    assert!(cluster.replace(version, &Stored::pending(now.clone(), 7, now).encode().unwrap()).unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let (asks, done) = (Arc::clone(&asked), Arc::clone(&cluster));
    let other = move |_: Option<&[u8]>| {
        let is_changing = asks.fetch_add(1, Ordering::Relaxed) == 0;
        if !is_changing {
            // It has ended its change before this question.
            let (version, value) = done.read().unwrap();
            let stored = Stored::decode(&value).unwrap();
            if stored.pending.as_ref().is_some_and(|pending| pending.by == 7) {
                done.replace(version, &Stored::settled(stored.document).encode().unwrap()).unwrap();
            }
        }
        json!({ "name": "c", "instance": 7, "is_changing": is_changing }).to_string().into_bytes()
    };
    cluster.hearing.lock().unwrap().insert("c".into(), Box::new(other));
    a.add_disk("i").unwrap();
    let (now, value) = cluster.read().unwrap();
    assert_eq!((now, document(&value).disks.len()), (version + 6, 1), "nothing was taken back");
}

#[test]
fn a_change_is_given_up_when_others_are_always_faster() {
    let (cluster, [a, _]) = two();
    for (rivals, outcome) in [(MAX_ATTEMPTS - 1, Ok(())), (MAX_ATTEMPTS, Err(503))] {
        cluster.rivals.store(rivals, Ordering::Relaxed);
        let name = format!("iqn.{rivals}");
        let made = a.change(|document| calls::put_target(document, &name, &form("")));
        assert_eq!(made.map(drop).map_err(|refusal| refusal.status), outcome);
    }
}

#[test]
fn a_value_of_another_version_is_not_followed() {
    let (cluster, [a, _]) = two();
    for value in [r"{}", r#"{"targets":{}}"#, r#"{"format":2,"document":{},"pending":null}"#] {
        *cluster.value.lock().unwrap() = (90, value.into());
        a.adapter.keep();
        assert_eq!(a.names().len(), 2, "{value}");
        assert!(a.adapter.config().unwrap_err().message.contains("one version of Lunette"), "{value}");
    }
}

/// The event after which a change that was left half made is settled.
enum Settles {
    Start,
    Change,
    Time,
}

#[test]
fn a_change_whose_gateway_has_ended_is_taken_back() {
    for settles in [Settles::Start, Settles::Change, Settles::Time] {
        let (cluster, [a, b]) = two();
        let before = cluster.read().unwrap();
        // As another gateway leaves it that ends before it has asked anyone.
        let mut half = document(&before.1);
        calls::delete_target(&mut half, TARGET).unwrap();
        half.number_gateways();
        let value = Stored::pending(half, 7, document(&before.1)).encode().unwrap();
        assert!(cluster.replace(before.0, &value).unwrap());
        a.adapter.answered()(None);
        assert_eq!(a.names().len(), 2, "it is not followed unless its gateway asks");
        assert_eq!(a.adapter.config().unwrap()["targets"], json!(document(&before.1).targets), "it does not count");
        match settles {
            Settles::Start => drop(Gateway::start(&cluster, "c", "192.0.2.3")),
            Settles::Change => drop(a.add_disk("i").unwrap()),
            Settles::Time => a.adapter.keep(),
        }
        let (_, now) = cluster.read().unwrap();
        assert_eq!((Stored::decode(&now).unwrap().pending, document(&now).targets.len()), (None, 1));
        assert_eq!((a.names().len(), b.names().len()), (2, 2));
    }
}

#[test]
fn a_change_whose_answer_was_lost_is_a_change() {
    let (cluster, [a, b]) = two();
    cluster.loses_an_answer.store(true, Ordering::Relaxed);
    a.add_disk("i").unwrap();
    let (_, now) = cluster.read().unwrap();
    assert_eq!(Stored::decode(&now).unwrap().pending, None);
    assert_eq!(a.adapter.config().unwrap(), b.adapter.config().unwrap());
    assert!(document(&now).targets[TARGET].disks.contains_key("rbd/i"));
}

#[test]
fn a_gateway_that_could_not_go_back_does_so_later() {
    let (cluster, [a, b]) = two();
    let before = a.server.catalog();
    a.change(|document| calls::new_disk(document, "rbd", "i", &form(""), "wwn")).unwrap();
    // As a session would keep it from.
    let (version, value) = cluster.read().unwrap();
    let mut other = document(&value);
    calls::add_lun(&mut other, TARGET, &form("disk=rbd/i")).unwrap();
    assert!(cluster.replace(version, &Stored::settled(other).encode().unwrap()).unwrap());
    a.server.refuses.store(true, Ordering::Relaxed);
    b.change(|document| calls::put_target(document, "iqn.2026-11.org.example:b", &form(""))).unwrap_err();
    assert_eq!(a.server.catalog(), before);
    a.adapter.keep();
    assert_eq!(a.server.catalog(), before, "it is still refused");
    a.server.refuses.store(false, Ordering::Relaxed);
    a.adapter.keep();
    let catalog = a.server.catalog();
    assert_eq!(catalog.objects.of(Kind::Target).next().unwrap().1["lun"][0]["disk"], "rbd:rbd/i?user=lunette");
}

#[test]
fn a_value_that_was_lost_takes_nothing_away() {
    let (cluster, [a, _]) = two();
    *cluster.value.lock().unwrap() = (0, Vec::new());
    a.adapter.answered()(None);
    assert_eq!(a.names().len(), 2);
}

#[test]
fn the_configuration_is_bounded() {
    let (cluster, [a, _]) = two();
    let before = cluster.read().unwrap();
    let long = |document: &mut Document| {
        document
            .targets
            .insert("iqn.x".repeat(crate::limits::MAX_DOCUMENT_BYTES / 4), crate::document::Target::default());
        Ok("done")
    };
    assert_eq!(a.change(long).unwrap_err().status, 400);
    assert_eq!(cluster.read().unwrap(), before);
}

#[test]
fn targets_of_others_are_left_alone() {
    let (_, [a, b]) = two();
    a.change(|document| calls::delete_target(document, TARGET)).unwrap();
    let mut objects = Objects::default();
    let key = lunette_api::Key::new(Kind::Target, TARGET).unwrap();
    objects.put(key, json!({ "lun": [] }).as_object().unwrap().clone()).unwrap();
    *b.server.catalog.lock().unwrap() = Arc::new(Catalog { objects, ..Catalog::default() });
    a.change(|document| calls::put_target(document, TARGET, &form(""))).unwrap();
    a.add_gateway("a", "192.0.2.1").unwrap();
    let refusal = a.add_gateway("b", "192.0.2.2").unwrap_err();
    assert!(refusal.status == 400 && refusal.message.contains("was not made by the dashboard"), "{refusal:?}");
    assert_eq!((b.names(), a.names().len()), (vec![TARGET.to_owned()], 2));
}

#[test]
fn two_gateways_of_one_name_are_told_apart() {
    let (cluster, [a, _]) = two();
    let twin = Gateway::start(&Arc::new(Memory::default()), "b", "192.0.2.2");
    cluster.hearing.lock().unwrap().insert("twin".into(), twin.adapter.answered());
    assert!(a.add_disk("i").unwrap_err().message.contains("two gateways are called b"));
}

fn session(initiator: &str, target: &str, peer: &str) -> Session {
    Session {
        id: 1,
        target: Some(target.into()),
        initiator: initiator.into(),
        isid: "80".into(),
        host: None,
        user: None,
        certificate: None,
        chap_algorithm: None,
        portal_group: 1,
        peers: vec![peer.into()],
        portals: Vec::new(),
        age_seconds: 0,
        read_bytes: 0,
        written_bytes: 0,
        commands: 0,
        header_digest: "None".into(),
        data_digest: "None".into(),
        error_recovery_level: 0,
        max_connections: 1,
        max_recv_data_segment_length: 0,
        max_burst_length: 0,
        first_burst_length: 0,
        initial_r2t: false,
        immediate_data: true,
    }
}

#[test]
fn sessions_of_all_gateways_are_counted() {
    let (_, [a, b]) = two();
    let client = "iqn.2026-11.org.example:host";
    a.change(|document| calls::new_client(document, TARGET, client)).unwrap();
    *a.server.sessions.lock().unwrap() = vec![session(client, TARGET, "[2001:db8::7]:51234")];
    *b.server.sessions.lock().unwrap() = vec![
        session(client, TARGET, "192.0.2.7:51234"),
        session("iqn.x", TARGET, "192.0.2.8:1"),
        session(client, "iqn.b", "192.0.2.9:1"),
    ];
    assert_eq!(a.adapter.target_info(TARGET).unwrap(), json!({ "num_sessions": 3 }));
    assert_eq!(b.adapter.gateway_info().unwrap(), json!({ "num_sessions": 2 }));
    let info = json!({ "alias": "", "state": { "LOGGED_IN": ["a", "b"] }, "ip_address": ["192.0.2.7", "2001:db8::7"] });
    assert_eq!(a.adapter.client_info(TARGET, client).unwrap(), info);
    assert_eq!(a.adapter.client_info(TARGET, "iqn.x").unwrap_err().status, 404);
    assert_eq!(a.adapter.target_info("iqn.b").unwrap_err().status, 404);
}

#[test]
fn a_gateway_without_a_cluster_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { name: "a".into(), addresses: Vec::new(), folder: folder.path().to_owned() };
    let adapter = Adapter::new(Arc::new(Model::default()), options).unwrap();
    assert!(adapter.answered()(None).is_empty());
    for answer in [adapter.ping(), adapter.config(), adapter.change(|_| Ok("done"))] {
        assert_eq!(answer.unwrap_err().status, 503);
    }
}
