use std::collections::BTreeMap;

use super::*;
use crate::model::{ObjectName, Plugin};

/// A machine with a few files.
struct Fake;

impl World for Fake {
    fn look_at(&self, path: &str) -> Found {
        match path {
            "/dev/pool/vm-1" | "/dev/sdb" => Found::BlockDevice(false),
            "/dev/cdrom" => Found::BlockDevice(true),
            "/srv/old.img" => Found::File(1 << 20),
            "/dev/null" => Found::Other,
            _ => Found::Nothing,
        }
    }

    fn new_serial(&self) -> String {
        "0d9f2b5e-8d0c-4b8e-9a53-4a0f0ac9f3d1".into()
    }

    fn sessions(&self) -> Result<Vec<serde_json::Value>, Failure> {
        Ok(vec![
            serde_json::json!({ "id": 3, "target": "iqn.2003-01.org.example:a", "initiator": "iqn.1994-05.com.example:h",
            "user": null, "peers": ["192.0.2.7:51234"] }),
        ])
    }

    fn read_saved(&self, _: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    fn save(&self, file: Option<&str>, _: &Model) -> Result<String, Failure> {
        Ok(file.unwrap_or("/saved").into())
    }

    fn saved_file(&self) -> String {
        "/saved".into()
    }
}

/// A shell over a tree of its own.
struct Shell {
    model: Model,
    current: Node,
}

impl Shell {
    fn new() -> Self {
        Self { model: Model::default(), current: Node::Root }
    }

    /// The lines that a line prints, or the reason why it is refused.
    fn run(&mut self, text: &str) -> Result<String, String> {
        let Some(line) = Line::parse(text).map_err(|error| error.to_string())? else { return Ok(String::new()) };
        let mut after = self.model.clone();
        let reply = run(&line, &self.current, &mut after, &Fake, 80).map_err(|error| error.to_string())?;
        self.model = after;
        self.current = reply.go.unwrap_or_else(|| self.current.clone());
        Ok(reply.lines.join("\n"))
    }

    /// Runs the lines of a script, which all have to succeed.
    fn script(&mut self, text: &str) -> String {
        let lines = text.lines().map(|line| self.run(line).unwrap_or_else(|error| panic!("{line}: {error}")));
        lines.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

const TARGET: &str = "iqn.2003-01.org.example:a";

#[test]
fn proxmox_reads_the_number_of_the_new_logical_unit() {
    let mut shell = Shell::new();
    shell.script(&format!("/iscsi create {TARGET}"));
    let printed = shell.script(&format!(
        "/backstores/block create name=pool-vm-1 dev=/dev/pool/vm-1\n\
         /backstores/block/pool-vm-1 set attribute emulate_tpu=1\n\
         /iscsi/{TARGET}/tpg1/luns/ create /backstores/block/pool-vm-1"
    ));
    let expected = "Created block storage object pool-vm-1 using /dev/pool/vm-1.\n\
                    Parameter emulate_tpu is now '1'.\nCreated LUN 0.";
    assert_eq!(printed, expected);
    let printed = shell
        .script(&format!("/iscsi/{TARGET}/tpg1/luns/ delete lun0\n/backstores/block delete pool-vm-1\nsaveconfig"));
    assert_eq!(printed, "Deleted LUN 0.\nDeleted storage object pool-vm-1.\nConfiguration saved to /saved");
}

#[test]
fn a_script_goes_from_node_to_node() {
    let mut shell = Shell::new();
    let printed = shell.script(&format!(
        "# create target\ncd /iscsi\ncreate {TARGET}\n\n# setup tpg\ncd /iscsi/{TARGET}/tpg1\n\
         set attribute authentication=1\nset auth userid=foo\nset auth password=bar\npwd\n..\npwd"
    ));
    let expected = format!(
        "Created target {TARGET}.\nCreated TPG 1.\nGlobal pref auto_add_default_portal=true\n\
         Created default portal listening on all IPs (0.0.0.0), port 3260.\n\
         Parameter authentication is now '1'.\nParameter userid is now 'foo'.\nParameter password is now 'bar'.\n\
         /iscsi/{TARGET}/tpg1\n/iscsi/{TARGET}"
    );
    assert_eq!(printed, expected);
}

#[test]
fn a_tree_is_drawn_as_targetcli_draws_it() {
    let mut shell = Shell::new();
    shell.script(&format!(
        "/backstores/block create d /dev/sdb\n/iscsi create {TARGET}\n/iscsi/{TARGET}/tpg1/luns create /backstores/block/d\n\
         /iscsi/{TARGET}/tpg1/acls create iqn.1994-05.com.example:h"
    ));
    let expected = "\
o- / ..................................................................... [...]
  o- backstores .......................................................... [...]
  | o- block .............................................. [Storage Objects: 1]
  | | o- d ..................................... [/dev/sdb (?) write-back activated]
  | o- fileio ............................................. [Storage Objects: 0]
  | o- ramdisk ............................................ [Storage Objects: 0]
  o- iscsi ........................................................ [Targets: 1]
    o- iqn.2003-01.org.example:a ..................................... [TPGs: 1]
      o- tpg1 ........................................... [no-gen-acls, no-auth]
        o- acls ...................................................... [ACLs: 1]
        | o- iqn.1994-05.com.example:h ........................ [Mapped LUNs: 1]
        |   o- mapped_lun0 ............................... [lun0 block/d (rw)]
        o- luns ...................................................... [LUNs: 1]
        | o- lun0 .................... [block/d (/dev/sdb) (default_tg_pt_gp)]
        o- portals ................................................ [Portals: 1]
          o- 0.0.0.0:3260 ................................................. [OK]";
    // The dots fill each line to the width of the terminal.
    let shape = |text: &str| {
        text.lines()
            .map(|line| line.split(' ').filter(|word| !word.starts_with("..")).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let drawn = shell.script("ls");
    assert_eq!(shape(&drawn), shape(expected), "{drawn}");
    assert!(drawn.lines().all(|line| line.len() == 80), "{drawn}");
    assert_eq!(shell.script("ls /iscsi 0").lines().count(), 10);
    assert_eq!(shell.script("ls /iscsi 1").lines().count(), 2);
    assert_eq!(shell.script("/iscsi status"), "Status for /iscsi: Targets: 1");
}

#[test]
fn new_logical_units_are_shown_to_initiators_with_an_acl() {
    let mut shell = Shell::new();
    shell.script(&format!("/iscsi create {TARGET}\n/backstores/ramdisk create r 1M\n/backstores/ramdisk create s 1M"));
    shell.script(&format!("/iscsi/{TARGET}/tpg1/acls create iqn.1994-05.com.example:h"));
    let tpg = format!("/iscsi/{TARGET}/tpg1");
    let printed = shell.script(&format!("{tpg}/luns create /backstores/ramdisk/r 5"));
    assert_eq!(printed, "Created LUN 5.\nCreated LUN 5->5 mapping in node ACL iqn.1994-05.com.example:h");
    let printed = shell.script(&format!("{tpg}/luns create ../../../../backstores/ramdisk/s add_mapped_luns=false"));
    assert_eq!(printed, "Created LUN 0.");
    let acl = format!("{tpg}/acls/iqn.1994-05.com.example:h");
    assert_eq!(shell.script(&format!("{acl} create 0 lun0 1")), "Created Mapped LUN 0.");
    assert_eq!(shell.script(&format!("{acl}/mapped_lun0 info")), "index: 0\ntpg_lun: 0\nwrite_protect: True");
    assert_eq!(shell.script(&format!("{acl} delete 5")), "Deleted Mapped LUN 5.");
    assert_eq!(
        shell.script(&format!("{tpg}/acls delete iqn.1994-05.com.example:h")),
        "Deleted Node ACL iqn.1994-05.com.example:h."
    );
}

#[test]
fn refusals_have_the_words_of_targetcli() {
    let mut shell = Shell::new();
    shell.script(&format!("/iscsi create {TARGET}\n/backstores/block create d /dev/sdb"));
    for (line, expected) in [
        ("create d /dev/sdb", "Command not found create"),
        ("/tape ls", "No such path /tape"),
        ("/backstores/block create d", "Missing required parameter dev"),
        ("/backstores/block create d /dev/pool/vm-1", "Storage object block/d exists"),
        (
            "/backstores/block create e /dev/sdb",
            "Cannot configure StorageObject because device /dev/sdb is already in use",
        ),
        ("/backstores/block create e /dev/sdz", "Could not open /dev/sdz"),
        ("/backstores/block create e /dev/null", "Device /dev/null is not a TYPE_DISK block device"),
        ("/backstores/block delete e", "No storage object named e."),
        ("/backstores/fileio create f /srv/new.img", "Attempting to create file for new fileio backstore, need a size"),
        ("/backstores/fileio create f /srv/new.img 1X", "Cannot interpret size, wrong format: 1X"),
        ("/iscsi create iqn.2003-01.org.example:a", "This Target already exists in configFS"),
        ("/iscsi create disk", "WWN not valid as: iqn, naa, eui"),
        (
            "/iscsi delete iqn.2003-01.org.example:b",
            "No such Target in configfs: /sys/kernel/config/target/iscsi/iqn.2003-01.org.example:b",
        ),
        ("/iscsi/iqn.2003-01.org.example:a/tpg1/luns create /backstores/block/e", "storage object or path not valid"),
        ("/iscsi/iqn.2003-01.org.example:a/tpg1/luns delete 4", "Invalid LUN"),
        (
            "/iscsi/iqn.2003-01.org.example:a/tpg1 set attribute colour=1",
            "Unknown parameter colour in group 'attribute'.",
        ),
        (
            "/iscsi/iqn.2003-01.org.example:a/tpg1 set attribute authentication=x",
            "Not setting authentication! Syntax error, 'x' is not a NUMBER.",
        ),
        ("/iscsi/iqn.2003-01.org.example:a/tpg1 set shape a=1", "Unknown configuration group: shape"),
        ("/backstores/block/d set attribute hw_block_size=512", "Parameter hw_block_size is read-only."),
        (
            "/iscsi/iqn.2003-01.org.example:a create 2",
            "iqn.2003-01.org.example:a has the TPG 1, and a target of Lunette has no other",
        ),
        ("ls / x", "The tree depth must be a number."),
        ("clearconfig", "As a precaution, confirm=True needs to be set"),
        ("sessions walk", "action must be one of: list, detail"),
        ("sessions list 9", "no session found with sid 9"),
    ] {
        assert_eq!(shell.run(line), Err(expected.to_owned()), "{line}");
    }
    let before = shell.model.clone();
    assert!(shell.run("/backstores/fileio create f /srv/new.img 1M write_back=false").is_err());
    assert!(shell.run("/backstores/block/d set attribute emulate_write_cache=0").is_err());
    assert!(shell.run(&format!("/iscsi/{TARGET}/tpg1 disable")).is_err());
    assert!(shell.run(&format!("/iscsi/{TARGET}/tpg1 set parameter HeaderDigest=None")).is_err());
    assert_eq!(shell.model, before, "a refused command changes nothing");
}

#[test]
fn files_are_made_or_taken_as_they_are() {
    let mut shell = Shell::new();
    let printed = shell.script(
        "/backstores/fileio create new /srv/new.img 10M sparse=false\n/backstores/fileio create old /srv/old.img 10M",
    );
    let expected = "Created fileio new with size 10485760\n\
                    /srv/old.img exists, using its size (1048576 bytes) instead\nCreated fileio old with size 1048576";
    assert_eq!(printed, expected);
    let object = |name: &str| &shell.model.objects[&ObjectName { plugin: Plugin::Fileio, name: name.into() }];
    assert!(object("new").is_new_file && object("new").is_full);
    assert!(!object("old").is_new_file && !object("old").is_full);
    shell.script("/backstores/block create cd /dev/cdrom");
    assert!(shell.model.objects[&ObjectName { plugin: Plugin::Block, name: "cd".into() }].read_only);
}

#[test]
fn groups_are_shown_as_configshell_shows_them() {
    let mut shell = Shell::new();
    shell.script(&format!("/iscsi create {TARGET}"));
    let tpg = format!("/iscsi/{TARGET}/tpg1");
    assert_eq!(
        shell.script(&format!("{tpg} get attribute authentication generate_node_acls")),
        "authentication=0 \ngenerate_node_acls=0 "
    );
    assert!(shell.script(&format!("{tpg} get attribute")).starts_with(
        "ATTRIBUTE CONFIG GROUP\n======================\nauthentication=0\n----------------\nIf set to 1, enforce authentication for this TPG.\n"
    ));
    assert!(shell.script(&format!("{tpg} get")).ends_with("attribute auth global parameter"));
    assert_eq!(
        shell.script(&format!("{tpg} set parameter MaxConnections=4 InitialR2T=Yes")),
        "Parameter MaxConnections is now '4'.\nParameter InitialR2T is now 'Yes'."
    );
    assert_eq!(shell.model.targets[TARGET].document["session"], serde_json::json!({ "initial_r2t": true }));
    assert_eq!(shell.script("set global auto_add_mapped_luns=false"), "Parameter auto_add_mapped_luns is now 'false'.");
    assert!(shell.run("set global auto_save_on_exit=false").is_err());
    let preferences = BTreeMap::from([("auto_add_mapped_luns".to_owned(), "false".to_owned())]);
    assert_eq!(shell.model.preferences, preferences);
}

#[test]
fn a_portal_leads_to_all_targets_and_stays_while_another_has_it() {
    let mut shell = Shell::new();
    shell.script(&format!("/iscsi create {TARGET}\n/iscsi create iqn.2003-01.org.example:b"));
    let portals = format!("/iscsi/{TARGET}/tpg1/portals");
    let error = shell.run(&format!("{portals} delete 0.0.0.0 3260")).unwrap_err();
    assert!(error.contains("leads to all targets"), "{error}");
    assert_eq!(
        shell.script(&format!("{portals} create ip_address=::1 ip_port=860")),
        "Created network portal ::1:860."
    );
    assert!(shell.script("ls").contains("o- [::1]:860 "));
    shell.script("/iscsi delete iqn.2003-01.org.example:b");
    assert_eq!(shell.script(&format!("{portals} delete 0.0.0.0 3260")), "Deleted network portal 0.0.0.0:3260");
    assert!(!shell.model.portals.contains_key("0.0.0.0:3260"));
}

#[test]
fn sessions_are_listed() {
    let mut shell = Shell::new();
    assert_eq!(
        shell.script("sessions"),
        "alias: iqn.1994-05.com.example:h\tsid: 3 type: Normal session-state: LOGGED_IN"
    );
    let detail = shell.script("sessions detail 3");
    assert!(
        detail.contains("    name: iqn.1994-05.com.example:h (NOT AUTHENTICATED)\n    address: 192.0.2.7:51234 (TCP)"),
        "{detail}"
    );
}

mod random {
    use proptest::prelude::*;

    use super::*;

    /// Words that lead somewhere, and some that do not.
    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            prop::sample::select(vec![
                "create",
                "delete",
                "ls",
                "cd",
                "set",
                "get",
                "info",
                "attribute",
                "auth",
                "/iscsi",
                "/backstores/block",
                "/iscsi/iqn.2003-01.org.example:a/tpg1/luns",
                "/iscsi/iqn.2003-01.org.example:a/tpg1/acls",
                "/iscsi/iqn.2003-01.org.example:a/tpg1",
                "iqn.2003-01.org.example:a",
                "iqn.1994-05.com.example:h",
                "d",
                "/dev/sdb",
                "/backstores/block/d",
                "lun0",
                "0",
                "authentication=1",
                "generate_node_acls=1",
                "userid=u",
                "password=p",
                "..",
                "name=d",
                "dev=/dev/sdb",
                "65536",
            ])
            .prop_map(str::to_owned),
            "[!-~]{1,6}",
        ]
    }

    proptest! {
        #[test]
        fn no_words_make_it_panic_and_the_current_node_is_always_there(lines in
            prop::collection::vec(prop::collection::vec(word(), 1..5), 1..12)) {
            let mut shell = Shell::new();
            for line in lines {
                let _ = shell.run(&line.join(" "));
                let current = shell.current.clone().still_there(&shell.model);
                prop_assert_eq!(Node::Root.find(&current.to_string(), &shell.model), Ok(current));
            }
        }
    }
}
