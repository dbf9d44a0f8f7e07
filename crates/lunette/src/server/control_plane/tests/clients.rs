//! Changes that clients ask for, and cannot have.

use std::net::TcpListener;

use super::*;

/// Adds or replaces an object.
fn put(kind: Kind, name: &str, document: Value) -> Edit {
    let (name, Value::Object(document)) = (name.to_owned(), document) else { panic!("no document") };
    Box::new(move |catalog| {
        edits::put(catalog, &Key::new(kind, &name).unwrap(), document.clone(), &Precondition::default())
    })
}

fn target(document: Value) -> Edit {
    put(Kind::Target, "iqn.b", document)
}

/// The changes of a plan, with the obstacles to them.
fn planned(plan: &Plan) -> Vec<(&str, Option<&str>)> {
    plan.changes.iter().map(|change| (change.change.as_str(), change.obstacle.as_deref())).collect()
}

#[test]
fn a_portal_that_cannot_be_opened_is_not_added() {
    let running = Running::start();
    let change = |edit| running.plane.change(order(edit));
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let portal = busy.local_addr().unwrap().to_string();
    for (name, why) in [(&*portal, "in use"), ("[fe80::1%nosuch]:3260", "has no address here")] {
        let refused = change(put(Kind::Portal, name, json!({}))).unwrap_err();
        assert!(refused.status == 409 && refused.detail.contains(why), "{name}: {refused}");
        assert!(running.plane.catalog().objects.is_empty() && running.plane.troubles().is_empty(), "{name}");
    }
    drop(busy);
    change(put(Kind::Portal, &portal, json!({}))).unwrap();
    std::net::TcpStream::connect(&portal).unwrap();
    // A portal that was closed before is no reason to refuse another change.
    change(add("iqn.c")).unwrap();
}

#[test]
fn a_disk_is_not_made_shorter() {
    let running = Running::start();
    let disk = running.place.path().join("disk");
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let lun = |keys: Value| {
        let mut lun = json!({ "number": 0, "disk": disk });
        lun.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        running.plane.change(order(target(json!({ "lun": [lun] }))))
    };
    lun(json!({})).unwrap();
    let refused = lun(json!({ "create": "512K" })).unwrap_err();
    assert!(refused.detail.contains("it has 1048576 bytes"), "{refused}");
    lun(json!({ "create": "1M" })).unwrap();
    assert!(lun(json!({ "create": "+1M" })).unwrap_err().detail.contains("not a size"));
    lun(json!({ "create": "2M" })).unwrap();
    assert_eq!(fs::metadata(&disk).unwrap().len(), 2 << 20);
}

#[test]
fn users_that_come_and_go_are_told() {
    let running = Running::start();
    let secret = running.place.path().join("secret");
    fs::write(&secret, "a secret of some length").unwrap();
    let chap = |user: &str| json!({ "allow": ["*"], "chap": [{ "user": user, "secret_file": secret }] });
    let change = |document: Value| running.plane.change(order(target(document))).unwrap().plan;
    change(chap("u"));
    assert_eq!(planned(&change(chap("v"))), [("target iqn.b: secrets changed", None)]);
    assert_eq!(planned(&change(chap("v"))), []);
    let missing = json!({ "allow": ["*"], "chap": [{ "user": "u", "secret_file": "/nonexistent/secret" }] });
    let plan = running.plane.plan(order(target(missing.clone()))).unwrap();
    assert!(
        matches!(planned(&plan)[..], [("target iqn.b: secrets changed", Some(why))] if why.contains("/nonexistent"))
    );
    assert!(running.plane.change(order(target(missing))).is_err());
    let removed = change(json!({ "allow": ["*"] }));
    assert_eq!(planned(&removed), [("target iqn.b: chap removed; initiators log in without a proof", None)]);
}
