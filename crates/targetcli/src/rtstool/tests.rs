use super::*;

#[test]
fn arguments_are_those_of_cinder() {
    const CREATE: [&str; 6] = ["create", "/dev/v", "iqn.2010-10.org.openstack:v", "u", "p", "False"];
    let created = |addresses: Vec<&'static str>, port, initiators: Vec<&'static str>| {
        let (device, name, user, password) = ("/dev/v", "iqn.2010-10.org.openstack:v", "u", "p");
        Some(Command::Create(Create { device, name, user, password, is_iser: false, initiators, addresses, port }))
    };
    for (more, expected) in [
        (&[][..], created(vec![], None, vec![])),
        (&["-p3261", "-a192.0.2.1,192.0.2.2"], created(vec!["192.0.2.1", "192.0.2.2"], Some(3261), vec![])),
        (&["iqn.a,iqn.b"], created(vec![], None, vec!["iqn.a", "iqn.b"])),
        (&["-a,"], None),
        (&["-pX"], None),
        (&["a", "b", "c", "d"], None),
    ] {
        assert_eq!(parse(&[&CREATE[..], more].concat()), expected, "{more:?}");
    }
    assert_eq!(parse(&["create", "/dev/v"]), None);
    assert_eq!(parse(&[]), None);
    assert_eq!(parse(&["save", "a", "b"]), None);
    assert_eq!(parse(&["get-targets"]), Some(Command::GetTargets));
    let (target, initiator) = ("t", "i");
    assert_eq!(parse(&["delete-initiator", "t", "i"]), Some(Command::DeleteInitiator { target, initiator }));
}

/// A machine on which each path is a device.
struct Fake;

impl World for Fake {
    fn look_at(&self, path: &str) -> Found {
        if path == "/dev/missing" { Found::Nothing } else { Found::BlockDevice(false) }
    }

    fn new_serial(&self) -> String {
        "serial".into()
    }

    fn sessions(&self) -> Result<Vec<serde_json::Value>, Failure> {
        Ok(Vec::new())
    }

    fn read_saved(&self, _: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    fn save(&self, _: Option<&str>, _: &Model) -> Result<String, Failure> {
        Ok(String::new())
    }

    fn saved_file(&self) -> String {
        String::new()
    }
}

#[test]
fn a_target_lets_in_the_initiators_that_were_added_with_their_secrets() {
    const NAME: &str = "iqn.2010-10.org.openstack:volume-1";
    let wanted = Create { device: "/dev/v", name: NAME, user: "u", password: "p", ..Create::default() };
    let mut model = Model::default();
    create(&mut model, &Fake, &wanted).unwrap();
    create(&mut model, &Fake, &wanted).unwrap();
    assert!(model.targets[NAME].access.is_set("authentication"));
    assert_eq!(model.portals.keys().collect::<Vec<_>>(), ["0.0.0.0:3260"]);
    for _ in 0..2 {
        add_initiator(&mut model, NAME, ("u", "p"), "iqn.1994-05.com.example:H").unwrap();
    }
    let acl = &model.targets[NAME].access.acls["iqn.1994-05.com.example:h"];
    assert!(acl.auth.is_complete());
    assert_eq!(model.targets[NAME].mapped(acl)[&0], Mapped { lun: 0, write_protect: false });
    assert_eq!(delete_initiator(&mut model, NAME, "iqn.1994-05.com.example:h"), Ok(true));
    assert_eq!(delete_initiator(&mut model, NAME, "iqn.1994-05.com.example:h"), Ok(false));
    let missing = add_initiator(&mut model, "iqn.x", ("u", "p"), "iqn.1994-05.com.example:h").unwrap_err();
    assert_eq!(missing.to_string(), "Could not find target iqn.x");
    delete(&mut model, NAME);
    delete(&mut model, NAME);
    assert!(model.targets.is_empty() && model.objects.is_empty());
    for (wanted, error) in [
        (Create { device: "/dev/missing", ..wanted }, "Device /dev/missing is not a TYPE_DISK block device"),
        (
            Create { is_iser: true, name: NAME, device: "/dev/v", ..Create::default() },
            "Error enabling iSER for NetworkPortal: Lunette has no RDMA",
        ),
    ] {
        assert_eq!(create(&mut model, &Fake, &wanted).unwrap_err().to_string(), error);
    }
}
