//! The files of `conf.d` when they are changed by hand and through the API.

use super::*;

/// A change of the alias of a target.
fn alias(name: &'static str, alias: &'static str) -> Edit {
    Box::new(move |catalog| {
        let key = Key::new(Kind::Target, name).unwrap();
        let mut document = catalog.objects.get(&key).cloned().unwrap_or_default();
        document.insert("alias".into(), alias.into());
        edits::put(catalog, &key, document, &Precondition::default())
    })
}

fn remove(name: &'static str) -> Edit {
    Box::new(move |catalog| edits::delete(catalog, &Key::new(Kind::Target, name).unwrap(), &Precondition::default()))
}

#[test]
fn a_change_undoes_nothing_that_was_done_by_hand() {
    let running = Running::start();
    let plane = &running.plane;
    for name in ["iqn.edited", "iqn.removed", "iqn.other"] {
        plane.change(order(add(name))).unwrap();
    }
    let file = |name: &str| running.place.path().join(format!("conf.d/target-{name}.toml"));
    let refused = |edit: Edit, name: &str, what: &str| {
        let refused = plane.change(order(edit)).unwrap_err();
        let expected = format!("conf.d/target-{name}.toml {what} by hand");
        assert!(refused.status == 409 && refused.detail.contains(&expected), "{refused}");
        assert!(refused.detail.contains("SIGHUP"), "{refused}");
    };
    let by_hand = |name: &str| fs::write(file(name), format!("# by hand\n[[target]]\nname = \"{name}\"\n")).unwrap();
    by_hand("iqn.edited");
    by_hand("iqn.new");
    fs::remove_file(file("iqn.removed")).unwrap();
    refused(alias("iqn.edited", "x"), "iqn.edited", "was changed");
    refused(remove("iqn.edited"), "iqn.edited", "was changed");
    refused(add("iqn.new"), "iqn.new", "was added");
    refused(alias("iqn.removed", "x"), "iqn.removed", "was removed");
    assert!(fs::read_to_string(file("iqn.edited")).unwrap().starts_with("# by hand"));
    assert!(fs::read_to_string(file("iqn.new")).unwrap().starts_with("# by hand"));
    assert!(!file("iqn.removed").exists());
    // Other objects change, and again.
    plane.change(order(alias("iqn.other", "x"))).unwrap();
    plane.change(order(alias("iqn.other", "y"))).unwrap();
    plane.reload();
    for name in ["iqn.edited", "iqn.new", "iqn.removed"] {
        plane.change(order(alias(name, "x"))).unwrap();
    }
    plane.change(order(remove("iqn.edited"))).unwrap();
    plane.change(order(add("iqn.edited"))).unwrap();
}

#[test]
fn files_that_are_refused_at_a_reload_are_not_written_over() {
    let running = Running::of(tempfile::tempdir().unwrap(), &format!("strict = true\n{MAIN}"));
    let plane = &running.plane;
    plane.change(order(add("iqn.b"))).unwrap();
    let file = running.place.path().join("conf.d/target-iqn.b.toml");
    let by_hand = "[[target]]\nname = \"iqn.b\"\ncolour = 1\n";
    fs::write(&file, by_hand).unwrap();
    plane.reload();
    let refused = plane.change(order(alias("iqn.b", "x"))).unwrap_err();
    assert!(refused.detail.contains("was changed by hand"), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), by_hand);
}

#[test]
fn a_folder_that_is_gone_is_not_made_again_by_a_change() {
    let running = Running::start();
    let plane = &running.plane;
    plane.change(order(add("iqn.b"))).unwrap();
    let (folder, away) = (running.place.path().join("conf.d"), running.place.path().join("away"));
    fs::rename(&folder, &away).unwrap();
    let refused = plane.change(order(add("iqn.c"))).unwrap_err();
    assert!(refused.status == 409 && refused.detail.contains("the folder is gone"), "{refused}");
    assert!(!folder.exists());
    fs::rename(&away, &folder).unwrap();
    plane.change(order(add("iqn.c"))).unwrap();
    plane.reload();
    assert_eq!(plane.catalog().objects.len(), 2);
}

#[test]
fn a_damaged_redo_log_refuses_changes_and_stays() {
    let running = Running::start();
    let plane = &running.plane;
    plane.change(order(add("iqn.b"))).unwrap();
    let log = running.place.path().join("conf.d/.redo");
    fs::write(&log, "{").unwrap();
    let refused = plane.change(order(add("iqn.c"))).unwrap_err();
    assert!(refused.status == 409 && refused.detail.contains("conf.d/.redo: this log"), "{refused}");
    assert!(log.exists());
    fs::remove_file(&log).unwrap();
    plane.change(order(add("iqn.c"))).unwrap();
}

#[test]
fn a_change_leaves_no_mistake_in_what_it_writes() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("conf.d")).unwrap();
    let text = "[[target]]\nname = \"iqn.b\"\nfoo = 1\nlun = [{ number = 0, disk = \"mem:1M\" }]";
    fs::write(place.path().join("conf.d/target-iqn.b.toml"), text).unwrap();
    let running = Running::of(place, MAIN);
    let plane = &running.plane;
    let put = |document: Value| -> Edit {
        let Value::Object(document) = document else { unreachable!() };
        Box::new(move |catalog| {
            edits::put(catalog, &Key::new(Kind::Target, "iqn.b").unwrap(), document, &Precondition::default())
        })
    };
    let with = |number: u16| json!({ "foo": 1, "max_connections": 99, "allow": [], "lun": [{ "number": number, "disk": "mem:1M" }] });
    for edit in [put(with(0)), put(with(1)), alias("iqn.b", "x")] {
        let refused = plane.change(order(edit)).unwrap_err();
        assert!(refused.status == 422 && refused.detail.contains("foo"), "{refused}");
    }
    // Others are changed, and what has the mistake gets less of them.
    plane.change(order(alias("iqn.c", "x"))).unwrap();
    plane.change(order(put(json!({ "foo": 1 })))).unwrap();
    plane.change(order(put(json!({ "alias": "x" })))).unwrap();
    assert_eq!(plane.troubles(), []);
    assert!(plane.shown().targets.contains_key("iqn.b"));
}

#[test]
fn a_folder_that_cannot_be_written_is_named_and_nothing_is_changed() {
    let running = Running::start();
    let folder = running.place.path().join("conf.d");
    fs::create_dir_all(folder.join(".redo.new")).unwrap();
    let refused = running.plane.change(order(add("iqn.b"))).unwrap_err();
    let expected = format!("{}: cannot be written, nothing is changed: ", folder.display());
    assert!(refused.detail.contains(&expected), "{refused}");
    assert!(running.plane.catalog().objects.is_empty());
}
