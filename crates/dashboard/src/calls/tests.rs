//! Calls in the orders in which the dashboard makes them.

use super::*;
use crate::document::{Document, Target};
use crate::form::Form;

const TARGET: &str = "iqn.2026-11.org.example:a";
const ONE: &str = "iqn.2026-11.org.example:one";
const TWO: &str = "iqn.2026-11.org.example:two";

fn form(text: &str) -> Form {
    Form::parse(text.as_bytes()).unwrap()
}

/// A target with a gateway, the disks `rbd/a` and `rbd/b`, and two clients.
fn whole() -> Document {
    let mut document = Document::default();
    put_target(&mut document, TARGET, &form("controls=%7B%7D")).unwrap();
    let known = ["192.0.2.1".to_owned()];
    new_gateway(&mut document, TARGET, "gw-a", &form("ip_address=192.0.2.1&skipchecks=true"), &known).unwrap();
    for image in ["a", "b"] {
        new_disk(&mut document, "rbd", image, &form("mode=create&backstore=user%3Arbd"), &format!("wwn-{image}"))
            .unwrap();
        add_lun(&mut document, TARGET, &form(&format!("disk=rbd/{image}"))).unwrap();
    }
    for client in [ONE, TWO] {
        new_client(&mut document, TARGET, client).unwrap();
    }
    document
}

fn target(document: &Document) -> &Target {
    &document.targets[TARGET]
}

#[test]
fn disks_get_the_first_free_number_or_the_one_that_is_asked_for() {
    let mut document = whole();
    let numbers = |document: &Document| target(document).disks.values().map(|place| place.lun_id).collect::<Vec<_>>();
    assert_eq!(numbers(&document), [0, 1]);
    remove_lun(&mut document, TARGET, &form("disk=rbd/a")).unwrap();
    for wrong in ["1", "256", "x"] {
        let refused = add_lun(&mut document, TARGET, &form(&format!("disk=rbd/a&lun_id={wrong}")));
        assert_eq!(refused.unwrap_err().status, 400, "{wrong}");
    }
    add_lun(&mut document, TARGET, &form("disk=rbd/a&lun_id=7")).unwrap();
    assert_eq!(numbers(&document), [7, 1]);
}

#[test]
fn what_is_used_stays() {
    let mut document = whole();
    map_client(&mut document, TARGET, ONE, &form("disk=rbd/a"), true).unwrap();
    let before = document.clone();
    for refused in [
        remove_lun(&mut document, TARGET, &form("disk=rbd/a")),
        delete_disk(&mut document, "rbd/a", &form("preserve_image=true")),
        add_lun(&mut document, TARGET, &form("disk=rbd/a")),
        auth_target(&mut document, TARGET, &form("action=disable_acl")),
        new_client(&mut document, TARGET, ONE),
    ] {
        assert_eq!(refused.unwrap_err().status, 400);
    }
    map_client(&mut document, TARGET, ONE, &form("disk=rbd/a"), false).unwrap();
    assert!(document != before && map_client(&mut document, TARGET, ONE, &form("disk=rbd/a"), false).is_err());
    remove_lun(&mut document, TARGET, &form("disk=rbd/a")).unwrap();
    assert!(delete_disk(&mut document, "rbd/a", &form("preserve_image=false")).is_err(), "images stay");
    delete_disk(&mut document, "rbd/a", &form("preserve_image=true")).unwrap();
}

#[test]
fn members_of_a_group_have_its_disks_and_keep_them_when_it_goes() {
    let mut document = whole();
    let create = form(&format!("members={ONE},{TWO}&disks=rbd/a,rbd/b"));
    change_group(&mut document, TARGET, "hosts", &create).unwrap();
    let luns = |document: &Document, client: &str| -> Vec<String> {
        target(document).clients[client].luns.keys().cloned().collect()
    };
    assert_eq!(luns(&document, TWO), ["rbd/a", "rbd/b"]);
    assert!(delete_client(&mut document, TARGET, ONE).is_err());
    assert!(map_client(&mut document, TARGET, ONE, &form("disk=rbd/a"), false).is_err());
    assert!(remove_lun(&mut document, TARGET, &form("disk=rbd/a")).is_err());

    let remove = form(&format!("action=remove&members={ONE}&disks=rbd/a"));
    change_group(&mut document, TARGET, "hosts", &remove).unwrap();
    assert_eq!(
        (luns(&document, ONE), luns(&document, TWO)),
        (vec!["rbd/a".into(), "rbd/b".into()], vec!["rbd/b".into()])
    );
    assert_eq!(target(&document).clients[ONE].group_name, "");
    let again = form(&format!("members={ONE}"));
    assert!(change_group(&mut document, TARGET, "hosts", &again).unwrap_err().message.contains("already has luns"));

    delete_group(&mut document, TARGET, "hosts").unwrap();
    assert_eq!((luns(&document, TWO), &*target(&document).clients[TWO].group_name), (vec!["rbd/b".into()], ""));
    delete_client(&mut document, TARGET, TWO).unwrap();
    assert_eq!(delete_group(&mut document, TARGET, "hosts").unwrap_err().status, 404);
}

#[test]
fn gateways_keep_their_numbers_while_they_have_a_portal() {
    let mut document = whole();
    let add = |document: &mut Document, name: &str| {
        new_gateway(document, TARGET, name, &form("ip_address=192.0.2.9"), &["192.0.2.9".into()]).unwrap();
    };
    add(&mut document, "gw-0");
    let numbers = |document: &Document| document.gateways.values().map(|gateway| gateway.group).collect::<Vec<_>>();
    assert_eq!(numbers(&document), [2, 1], "gw-0 sorts first, and gw-a was there");
    delete_gateway(&mut document, TARGET, "gw-a").unwrap();
    add(&mut document, "gw-b");
    assert_eq!(numbers(&document), [2, 1]);
    assert_eq!(delete_gateway(&mut document, TARGET, "gw-a").unwrap_err().status, 404);
    let elsewhere = new_gateway(&mut document, TARGET, "gw-c", &form("ip_address=192.0.2.8"), &["192.0.2.9".into()]);
    assert!(elsewhere.unwrap_err().message.contains("Valid IPs are :192.0.2.9"));
}

#[test]
fn what_is_not_there_is_named() {
    let mut document = whole();
    for (refused, status) in [
        (delete_target(&mut document, "iqn.b"), 404),
        (put_target(&mut document, "iqn.b", &form("mode=reconfigure")), 400),
        (put_target(&mut document, TARGET, &form("mode=other")), 500),
        (put_target(&mut document, "b", &form("")), 500),
        (new_client(&mut document, "iqn.b", ONE), 404),
        (delete_client(&mut document, TARGET, "iqn.c"), 400),
        (auth_client(&mut document, TARGET, "iqn.c", &form("")), 400),
        (auth_target(&mut document, TARGET, &form("action=other")), 400),
        (change_group(&mut document, TARGET, "g", &form("action=other")), 405),
        (change_group(&mut document, TARGET, "g", &form("members=iqn.c")), 400),
        (change_group(&mut document, TARGET, "g", &form("disks=rbd/c")), 400),
        (add_lun(&mut document, TARGET, &form("disk=rbd/c")), 400),
        (new_disk(&mut document, "rbd", "c", &form("backstore=rbd"), "w"), 400),
        (new_disk(&mut document, "rbd", "c", &form("wwn=wwn-a"), "w"), 400),
        (reconfigure_disk(&mut document, "rbd/c", &form("")), 404),
        (reconfigure_disk(&mut document, "rbd/a", &form("controls=%7B%22x%22%3A1%7D")), 500),
    ] {
        assert_eq!(refused.as_ref().unwrap_err().status, status, "{refused:?}");
    }
    assert_eq!(document, whole(), "nothing has changed");
}

#[test]
fn serial_numbers_are_bounded() {
    let mut document = whole();
    let mut create = |image: &str, wwn: &str| {
        new_disk(&mut document, "rbd", image, &form(&format!("wwn={wwn}")), "w").map_err(|refusal| refusal.status)
    };
    let longest = "w".repeat(crate::limits::MAX_SERIAL_BYTES);
    assert_eq!(create("c", &format!("{longest}w")), Err(400));
    assert_eq!(create("c", "two%20words"), Err(400));
    assert!(create("c", &longest).is_ok());
}

#[test]
fn the_configuration_has_the_keys_that_the_dashboard_reads() {
    let shown = whole().shown(9);
    assert_eq!((&shown["version"], &shown["epoch"]), (&11.into(), &9.into()));
    assert_eq!(shown["discovery_auth"]["username"], "");
    assert_eq!(shown["gateways"]["gw-a"]["active_luns"], 2);
    let target = &shown["targets"][TARGET];
    assert_eq!(target["portals"]["gw-a"]["portal_ip_addresses"], serde_json::json!(["192.0.2.1"]));
    assert_eq!((&target["acl_enabled"], &target["disks"]["rbd/b"]["lun_id"]), (&true.into(), &1.into()));
    assert_eq!(target["clients"][ONE]["auth"]["mutual_username"], "");
    assert_eq!(shown["disks"]["rbd/a"]["backstore"], "user:rbd");
}

#[test]
fn names_and_addresses_have_many_spellings() {
    let mut document = whole();
    let known = ["2001:db8::1".to_owned()];
    new_gateway(&mut document, TARGET, "gw-b", &form("ip_address=2001:DB8:0::1"), &known).unwrap();
    assert_eq!(target(&document).portals["gw-b"].portal_ip_addresses, known, "as the gateway writes it");
    let wrong = new_gateway(&mut document, TARGET, "gw-c", &form("ip_address=gateway"), &["gateway".into()]);
    assert_eq!(wrong.unwrap_err().status, 400);
    let upper = ONE.to_ascii_uppercase();
    change_group(&mut document, TARGET, "hosts", &form(&format!("members={upper}"))).unwrap();
    assert_eq!(target(&document).groups["hosts"].members, [ONE]);
    change_group(&mut document, TARGET, "hosts", &form(&format!("action=remove&members={upper}"))).unwrap();
    assert!(target(&document).groups["hosts"].members.is_empty());
}
