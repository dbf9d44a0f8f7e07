use serde_json::json;

use super::*;

fn entry(action: &str) -> AuditEntry {
    AuditEntry::new(&Caller::admin("user 0", "unix socket"), action, Ok(()), Vec::new())
}

fn actions(log: &AuditLog) -> Vec<String> {
    log.last(usize::MAX).into_iter().map(|entry| entry.action).collect()
}

#[test]
fn entries_outlast_a_restart_also_behind_a_line_that_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    AuditLog::open(&path).unwrap().record(entry("first"));
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"time\":17").unwrap();
    AuditLog::open(&path).unwrap().record(entry("second"));
    assert_eq!(actions(&AuditLog::open(&path).unwrap()), ["second", "first"]);
}

#[test]
fn the_files_are_bounded_and_the_oldest_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let log = AuditLog::open(&path).unwrap();
    // More than all files that are kept.
    for number in 0..(KEPT_AUDIT_FILES + 2) * MAX_AUDIT_FILE_BYTES / MAX_AUDIT_ENTRY_BYTES {
        log.record(with_object(&number.to_string(), MAX_AUDIT_ENTRY_BYTES - 1000));
    }
    let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    let rotated: Vec<String> = (1..=KEPT_AUDIT_FILES).map(|number| format!("audit.{number}")).collect();
    assert_eq!(
        names,
        [vec!["audit".into()], rotated].concat().iter().map(std::ffi::OsString::from).collect::<Vec<_>>()
    );
    for name in names {
        assert!(fs::metadata(folder.path().join(name)).unwrap().len() <= MAX_AUDIT_FILE_BYTES as u64);
    }
}

/// An entry with an object of this length.
fn with_object(action: &str, len: usize) -> AuditEntry {
    let change = AuditChange { object: "target iqn.a".into(), old: None, new: Some(json!("x".repeat(len))) };
    AuditEntry { changes: vec![change], ..entry(action) }
}

#[test]
fn the_entries_that_are_read_are_bounded() {
    let log = AuditLog::default();
    (0..=MAX_AUDIT_READ).for_each(|number| log.record(entry(&number.to_string())));
    let read = actions(&log);
    assert_eq!((read.len(), read[0].as_str()), (MAX_AUDIT_READ, MAX_AUDIT_READ.to_string().as_str()));
    assert_eq!(log.last(2).len(), 2);
    log.record(with_object("long", MAX_AUDIT_ENTRY_BYTES));
    let [long] = &log.last(1)[..] else { unreachable!() };
    assert_eq!(
        (long.changes[0].object.as_str(), &long.changes[0].new),
        ("target iqn.a", &Some(json!("left out: the entry is too long")))
    );
    assert_eq!(entry(&"ä".repeat(MAX_AUDIT_TEXT_BYTES)).action.len(), MAX_AUDIT_TEXT_BYTES);
}

#[test]
fn a_log_that_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(AuditLog::open(folder.path()).unwrap_err().to_string().contains("this is a directory"));
}

#[test]
fn changes_show_what_was_and_what_is() {
    let target = |name: &str| Key::new(Kind::Target, name).unwrap();
    let catalog = |targets: &[(&str, &str)]| {
        let mut catalog = Catalog::default();
        for (name, alias) in targets {
            let Value::Object(document) = json!({ "alias": alias }) else { unreachable!() };
            catalog.objects.put(target(name), document).unwrap();
        }
        catalog
    };
    let told = changes(
        &catalog(&[("iqn.a", "a"), ("iqn.b", "b"), ("iqn.c", "c")]),
        &catalog(&[("iqn.b", "x"), ("iqn.c", "c"), ("iqn.d", "d")]),
    );
    let told: Vec<_> = told
        .iter()
        .map(|change| {
            (
                change.object.as_str(),
                change.old.as_ref().map(|old| &old["alias"]),
                change.new.as_ref().map(|new| &new["alias"]),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("target iqn.a", Some(&json!("a")), None),
            ("target iqn.b", Some(&json!("b")), Some(&json!("x"))),
            ("target iqn.d", None, Some(&json!("d")))
        ]
    );
}
