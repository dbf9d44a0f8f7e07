//! `targetcli` and `cinder-rtstool` over a running server: the commands of Proxmox, the scripts of democratic-csi, and
//! Cinder's own class. libiscsi is the initiator that sees the disks.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_tests::{Configured, Owned, Ran, Server, keys, lunette, run, run_at_most, wait_at_most};
use serde_json::{Value, json};

use crate::cinder::Driver;

/// A server with an API, and a target in the main file that tells its port.
const MAIN: &str = "listen = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"unix:@/api.sock\"]\n\
                    [[target]]\nname = \"iqn.2026-11.org.example:main\"\nlun = [{ number = 0, disk = \"mem:1M\" }]";

const INITIATOR: &str = "iqn.1994-05.com.example:compute";

/// The script that prints facts of what rtslib makes of a saved configuration.
const RTSLIB_FACTS: &str = "tests/interop/import/rtslib_facts.py";

/// The time of any command.
const LIMIT: Duration = Duration::from_mins(1);

/// A server, and programs under the names of those that they stand for.
struct Lio {
    place: Configured,
    server: Server,
}

impl Lio {
    fn new() -> Self {
        Self::serve(MAIN)
    }

    fn serve(configuration: &str) -> Self {
        let (place, server) = Configured::serve(configuration, 1);
        for folder in ["bin", "etc", "secrets", "dev"] {
            fs::create_dir(place.file(folder)).unwrap();
        }
        for program in ["targetcli", "cinder-rtstool"] {
            symlink(lunette().get_program(), place.file("bin").join(program)).unwrap();
        }
        Self { place, server }
    }

    /// A program in the surroundings of this server.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let bin = self.place.file("bin");
        let mut command = Command::new(program.as_ref());
        command
            .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default()))
            .env("LUNETTE_API", format!("unix:{}", self.place.file("api.sock").display()))
            .env("LUNETTE_TARGETCLI_STATE", self.place.file("state.json"))
            .env("LUNETTE_TARGETCLI_SECRETS", self.place.file("secrets"))
            .env("LUNETTE_TARGETCLI_SAVECONFIG", self.saved_file());
        command
    }

    fn saved_file(&self) -> PathBuf {
        self.place.file("etc/saveconfig.json")
    }

    /// Runs targetcli as ssh does: the words of the command become one line.
    fn targetcli(&self, line: &str) -> Ran {
        run_at_most(LIMIT, self.command(self.place.file("bin/targetcli")).args(line.split(' ')))
    }

    /// The output of targetcli for a line that must succeed.
    fn done(&self, line: &str) -> String {
        self.targetcli(line).succeeded().to_owned()
    }

    /// Pipes a script as democratic-csi does.
    fn script(&self, text: &str) -> Ran {
        run_at_most(LIMIT, self.command("sh").arg("-c").arg(format!("echo \"{}\" | targetcli", text.trim())))
    }

    /// A device of 8 MiB with this name.
    fn device(&self, name: &str) -> String {
        let path = self.place.file("dev").join(name);
        File::create(&path).and_then(|file| file.set_len(8 << 20)).unwrap();
        path.display().to_string()
    }

    /// The targets and disks that an initiator finds.
    fn seen(&self, credentials: &str) -> Ran {
        let url = self.server.portal_url().replacen("iscsi://", &format!("iscsi://{credentials}"), 1);
        run("iscsi-ls", ["-i", INITIATOR, "-s", &url])
    }

    fn inquiry(&self, credentials: &str, target: &str, lun: u16) -> Ran {
        let url = self.server.portal_url().replacen("iscsi://", &format!("iscsi://{credentials}"), 1);
        run("iscsi-inq", ["-i", INITIATOR, &format!("{url}/{target}/{lun}")])
    }

    fn saved(&self) -> Value {
        serde_json::from_slice(&fs::read(self.saved_file()).unwrap()).unwrap()
    }
}

/// Proxmox's plugin `LunCmd/LIO.pm`, as far as it parses what targetcli leaves behind.
mod proxmox {
    use serde_json::Value;

    /// The numbers and storage objects of the target's portal group, as the plugin reads `saveconfig.json`.
    pub(super) fn luns(saved: &Value, iqn: &str, tag: u64) -> Vec<(u64, String)> {
        let targets = saved["targets"].as_array().unwrap();
        let target = targets.iter().find(|target| target["fabric"] == "iscsi" && target["wwn"] == iqn).unwrap();
        let tpg = target["tpgs"].as_array().unwrap().iter().find(|tpg| tpg["tag"] == tag).unwrap();
        let lun = |lun: &Value| {
            let object = lun["storage_object"].as_str().unwrap();
            assert!(object.starts_with("/backstores/block/"), "another object is fatal: {object}");
            (lun["index"].as_u64().unwrap(), object.to_owned())
        };
        tpg["luns"].as_array().unwrap().iter().map(lun).collect()
    }

    /// The number in `LUN (\d+)`.
    pub(super) fn number(printed: &str) -> u64 {
        let (_, rest) = printed.split_once("LUN ").unwrap_or_else(|| panic!("no number in {printed:?}"));
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    }
}

#[test]
fn the_commands_of_proxmox_make_and_remove_disks() {
    const IQN: &str = "iqn.2018-04.at.example:pve";
    let lio = Lio::new();
    // The administrator makes the target once.
    lio.done(&format!("/iscsi create {IQN}"));
    lio.done(&format!("/iscsi/{IQN}/tpg1 set attribute generate_node_acls=1 demo_mode_write_protect=0"));
    assert_eq!(proxmox::luns(&lio.saved(), IQN, 1), []);

    for (number, volume) in (0..).zip(["vm-100-disk-0", "vm-101-disk-0"]) {
        let (device, name) = (lio.device(volume), format!("tank-{volume}"));
        lio.done(&format!("/backstores/block create name={name} dev={device}"));
        lio.done(&format!("/backstores/block/{name} set attribute emulate_tpu=1"));
        let printed = lio.done(&format!("/iscsi/{IQN}/tpg1/luns/ create /backstores/block/{name}"));
        assert_eq!(proxmox::number(&printed), number);
        lio.done("saveconfig");
        let listed = proxmox::luns(&lio.saved(), IQN, 1);
        assert!(listed.contains(&(number, format!("/backstores/block/{name}"))), "{listed:?}");
    }
    let seen = lio.seen("").succeeded().to_owned();
    assert!(
        seen.contains(&format!("Target:{IQN}")) && seen.contains("Lun:1    Type:DIRECT_ACCESS (Size:7M)"),
        "{seen}"
    );
    let inquiry = lio.inquiry("", IQN, 1).succeeded().to_owned();
    assert!(inquiry.contains("Product:tank-vm-101-disk"), "the product is as LIO has it: {inquiry}");

    // The first disk goes: the number is free again, and the other disk keeps its own.
    lio.done(&format!("/iscsi/{IQN}/tpg1/luns/ delete lun0"));
    lio.done("/backstores/block delete tank-vm-100-disk-0");
    lio.done("saveconfig");
    assert_eq!(proxmox::luns(&lio.saved(), IQN, 1), [(1, "/backstores/block/tank-vm-101-disk-0".to_owned())]);
    assert!(!lio.seen("").succeeded().contains("Lun:0    Type:DIRECT_ACCESS (Size:7M)"));
    lio.done(&format!("/backstores/block create name=again dev={}", lio.device("again")));
    let printed = lio.done(&format!("/iscsi/{IQN}/tpg1/luns/ create /backstores/block/again"));
    assert_eq!(proxmox::number(&printed), 0);

    // Proxmox tells its user what is on standard error when the exit code is not 0.
    let failed = lio.targetcli("/backstores/block create name=x dev=/dev/no-such-device");
    assert_eq!(
        (failed.code, failed.stderr.as_str(), failed.stdout.as_str()),
        (Some(1), "Could not open /dev/no-such-device\n", "")
    );
    let failed = lio.targetcli("/backstores/block delete tank-vm-100-disk-0");
    assert_eq!((failed.code, failed.stderr.as_str()), (Some(1), "No storage object named tank-vm-100-disk-0.\n"));
    let failed = lio.targetcli("/iscsi delete iqn.2026-11.org.example:main");
    assert!(failed.failed().contains("stands in"), "the main file is not written");
}

#[test]
fn the_scripts_of_democratic_csi_make_and_remove_volumes_also_when_they_are_repeated() {
    const IQN: &str = "iqn.2003-01.org.linux-iscsi.ubuntu-19.x8664:csi-pvc-1";
    let lio = Lio::new();
    let device = lio.device("pvc-1");
    let create = format!(
        "
# create target
cd /iscsi
create {IQN}

# setup tpg
cd /iscsi/{IQN}/tpg1

set attribute authentication=1
set attribute generate_node_acls=1
set attribute cache_dynamic_acls=1
set attribute demo_mode_write_protect=0
set auth userid=foo
set auth password=secret-of-foo
set auth mutual_userid=baz
set auth mutual_password=secret-of-baz


# create extent
cd /backstores/block
create csi-pvc-1 {device}
cd /backstores/block/csi-pvc-1

set attribute emulate_tpu=1

# add extent to target/tpg
cd /iscsi/{IQN}/tpg1/luns
create /backstores/block/csi-pvc-1
"
    );
    let first = lio.script(&create);
    assert!(first.succeeded().contains("Created LUN 0.\n"), "{first}");
    assert_eq!(first.stderr, "");
    let again = lio.script(&create);
    assert!(again.code == Some(0) && again.stderr.contains("This Target already exists in configFS"), "{again}");

    let inquiry = lio.inquiry("foo%secret-of-foo@", IQN, 0);
    assert!(inquiry.succeeded().contains("Product:csi-pvc-1"), "{inquiry}");
    lio.inquiry("foo%secret-of-bar@", IQN, 0).failed();
    lio.inquiry("", IQN, 0).failed();
    // A new secret takes the place of the old one, and leaves no file behind.
    lio.done(&format!("/iscsi/{IQN}/tpg1 set auth password=secret-of-bar"));
    lio.inquiry("foo%secret-of-bar@", IQN, 0).succeeded();
    lio.inquiry("foo%secret-of-foo@", IQN, 0).failed();
    assert_eq!(fs::read_dir(lio.place.file("secrets")).unwrap().count(), 2);

    let delete = format!(
        "\n# delete target\ncd /iscsi\ndelete {IQN}\n\n# delete extent\ncd /backstores/block\ndelete csi-pvc-1\n"
    );
    assert!(lio.script(&delete).succeeded().contains("Deleted storage object csi-pvc-1."));
    let again = lio.script(&delete);
    assert!(again.code == Some(0) && again.stderr.contains("No storage object named csi-pvc-1."), "{again}");
    assert!(!lio.seen("").succeeded().contains(IQN));
    assert_eq!(fs::read_dir(lio.place.file("secrets")).unwrap().count(), 0);
    assert!(Path::new(&device).exists(), "the disk outlives its target");

    let missing = lio.script(&create.replace(&device, "/dev/no-such-device"));
    assert!(missing.code == Some(1) && missing.stderr.contains("Could not open /dev/no-such-device"), "{missing}");
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port()
}

#[test]
fn the_class_of_cinder_exports_a_volume_and_lets_in_the_initiators_that_it_adds() {
    const IQN: &str = "iqn.2010-10.org.openstack:volume-7f3a";
    let lio = Lio::new();
    let (device, port) = (lio.device("volume-7f3a"), free_port());
    let (python, log) = (lio.command("python3"), lio.place.file("cinder.log"));
    let mut cinder = Driver::start(python, "lioadm.py", &[&device, &port.to_string()], log);
    let inquiry = |credentials: &str| {
        run("iscsi-inq", ["-i", INITIATOR, &format!("iscsi://{credentials}127.0.0.1:{port}/{IQN}/0")])
    };

    let exported = cinder.told();
    assert_eq!(exported["exported"]["location"], format!("127.0.0.1:{port},{IQN} {IQN} 0"));
    assert_eq!(exported["again"], exported["exported"], "what is there is no failure");
    inquiry("cinder-user%cinder-password@").failed();
    cinder.go_on();

    let connected = cinder.told();
    assert_eq!(connected["connected"]["data"]["target_lun"], 0);
    inquiry("cinder-user%cinder-password@").succeeded();
    inquiry("cinder-user%other-password@").failed();
    inquiry("").failed();
    assert_eq!(lio.saved()["targets"][0]["tpgs"][0]["node_acls"][0]["node_wwn"], INITIATOR);
    cinder.go_on();

    cinder.told();
    inquiry("cinder-user%cinder-password@").failed();
    cinder.go_on();

    assert_eq!(cinder.told()["failed"], "ISCSITargetCreateFailed");
    cinder.end();
    let targets = run_at_most(LIMIT, lio.command(lio.place.file("bin/cinder-rtstool")).arg("get-targets"));
    assert_eq!(targets.succeeded(), "iqn.2026-11.org.example:main\n");
}

#[test]
fn a_saved_configuration_is_restored_and_imported() {
    const IQN: &str = "iqn.2003-01.org.example:saved";
    // rtslib knows no portal with the port 0.
    let lio = Lio::serve(&MAIN.replace("127.0.0.1:0", &format!("127.0.0.1:{}", free_port())));
    let (device, file) = (lio.device("saved"), lio.place.file("copy.json").display().to_string());
    lio.script(&format!(
        "/backstores/block create saved {device} wwn=11111111-2222-4333-8444-555555555555\n/iscsi create {IQN}\n\
         /iscsi/{IQN}/tpg1/luns create /backstores/block/saved 3\n/iscsi/{IQN}/tpg1/acls create {INITIATOR}\n\
         /iscsi/{IQN}/tpg1 set attribute authentication=1\n/iscsi/{IQN}/tpg1/acls/{INITIATOR} set auth userid=u password=secret-of-u\n\
         /iscsi/{IQN}/tpg1 set parameter MaxConnections=4\n/ saveconfig {file}"
    ))
    .succeeded();
    lio.inquiry("u%secret-of-u@", IQN, 3).succeeded();
    let before = lio.done(&format!("ls /iscsi/{IQN}"));
    lio.done(&format!("/iscsi delete {IQN}"));
    lio.done("/backstores/block delete saved");
    lio.inquiry("u%secret-of-u@", IQN, 3).failed();

    let refused = lio.targetcli(&format!("restoreconfig {file}"));
    assert!(
        refused.failed().contains("exist, not restoring") || refused.stderr.contains("exist not restoring"),
        "{refused}"
    );
    lio.done(&format!("restoreconfig {file} storage_object=saved"));
    // Its storage object is there, so the target finds it.
    lio.done(&format!("restoreconfig {file} target={IQN}"));
    assert_eq!(lio.done(&format!("ls /iscsi/{IQN}")), before);
    let inquiry = lio.inquiry("u%secret-of-u@", IQN, 3);
    assert!(inquiry.succeeded().contains("Product:saved"), "{inquiry}");

    // rtslib restores the file without an error, into a folder that stands for configfs.
    let facts = run(keys::PYTHON, [Path::new(env!("CARGO_MANIFEST_DIR")).join(RTSLIB_FACTS), file.clone().into()]);
    assert_eq!(facts.stderr, "", "{facts}");
    for fact in [
        format!("{IQN} lun 3 {device}"),
        format!("{IQN} lun 3 serial 11111111-2222-4333-8444-555555555555"),
        format!("{IQN} {INITIATOR} chap u secret-of-u"),
        format!("{IQN} {INITIATOR} 3 is 3"),
        format!("{IQN} others is kept out"),
        "iqn.2026-11.org.example:main others is let in".into(),
    ] {
        assert!(facts.succeeded().lines().any(|line| line.trim_end() == fact), "{fact} in {facts}");
    }

    // `lunette import` reads the file of LIO, so it reads ours.
    let secrets = lio.place.file("imported");
    let imported =
        run(lunette().get_program(), ["import".as_ref(), file.as_ref(), "--secrets".as_ref(), secrets.as_os_str()]);
    let imported: String = imported.succeeded().to_owned();
    for part in [
        &format!("name = \"{IQN}\""),
        "max_connections = 4",
        &format!("disk = \"{device}\""),
        "serial = \"11111111-2222-4333-8444-555555555555\"",
        &format!("initiators = [\"{INITIATOR}\"]"),
        "user = \"u\"",
    ] {
        assert!(imported.contains(part), "{part} in {imported}");
    }
}

#[test]
fn a_configuration_of_lio_is_kept_when_ours_takes_its_place() {
    let lio = Lio::new();
    fs::write(lio.saved_file(), "{\"storage_objects\": [], \"targets\": []}").unwrap();
    lio.done("ls");
    assert_eq!(lio.saved(), json!({ "storage_objects": [], "targets": [] }), "nothing was changed");
    lio.done("/iscsi create iqn.2003-01.org.example:a");
    assert_eq!(lio.saved()["targets"].as_array().unwrap().len(), 2);
    let kept = fs::read_to_string(lio.place.file("etc/saveconfig.json.of-lio")).unwrap();
    assert_eq!(kept, "{\"storage_objects\": [], \"targets\": []}");
}

#[test]
fn names_are_those_that_rtslib_takes() {
    const NAMES: [&str; 10] = [
        "iqn.2003-01.org.example:a",
        "iqn.2003-01.org.EXAMPLE:B",
        "iqn.2003-01.org.example",
        "iqn.2003-01.org:a",
        "iqn.2003-1.org.example:c",
        "iqn.2003-01.org.example:a_b",
        "eui.02004567A425678D",
        "naa.5001405012345678",
        "5001-4050-1234-5679",
        "disk",
    ];
    let script = "import sys\nfrom rtslib_fb.utils import normalize_wwn, RTSLibError\nfor name in sys.argv[1:]:\n    \
                  try: print(normalize_wwn(('iqn', 'naa', 'eui'), name)[0].lower())\n    except RTSLibError as error: print(error)";
    let expected = run(keys::PYTHON, [&["-c", script][..], &NAMES].concat()).succeeded().to_owned();
    let lio = Lio::new();
    for (name, expected) in NAMES.iter().zip(expected.lines()) {
        let created = lio.targetcli(&format!("/iscsi create {name}"));
        let said = match created.code {
            Some(0) => created
                .stdout
                .lines()
                .next()
                .unwrap()
                .trim_start_matches("Created target ")
                .trim_end_matches('.')
                .to_owned(),
            _ => created.stderr.trim_end().to_owned(),
        };
        assert_eq!(said, expected, "{name}");
    }
}

#[test]
fn programs_that_run_at_once_do_not_lose_each_others_changes() {
    let lio = Lio::new();
    let children: Vec<Owned> = (0..8)
        .map(|number| {
            let mut command = lio.command(lio.place.file("bin/targetcli"));
            command.args(["/iscsi", "create", &format!("iqn.2003-01.org.example:t{number}")]);
            Owned::start(command.stdout(Stdio::null()))
        })
        .collect();
    for mut child in children {
        assert!(wait_at_most(&mut child, LIMIT).unwrap().success());
    }
    assert!(lio.done("/iscsi status").contains("Targets: 9"));
    assert_eq!(lio.saved()["targets"].as_array().unwrap().len(), 9);
}

/// Calls of targetcli-fb 2.1.53 with Linux 6.1.0-50, and its answers.
///
/// `$` is before a line, two blanks are before standard output, `!` before standard error, `=` before the exit code.
/// `@d0` and `@d1` were loop devices, and `@f` began the names of files.
const RECORDED: &str = "tests/habits/targetcli-2.1.53.txt";

/// Lines with the exit codes of LIO whose answers differ, with ours.
const DIFFERENT: &[(&str, i32, &str)] = &[
    // The server has a portal already.
    (
        "/iscsi create iqn.2003-01.org.example:a",
        0,
        "  Created target iqn.2003-01.org.example:a.\n  Created TPG 1.\n  \
         Default portal not created, the target has the portals of the server: 127.0.0.1:0.",
    ),
    // Disks have a write cache.
    (
        "/backstores/block/d1 info",
        0,
        "  dev: @d1\n  name: d1\n  plugin: block\n  readonly: False\n  write_back: True\n  wwn: 11111111-2222-4333-8444-555555555555",
    ),
    (
        "/iscsi/iqn.2003-01.org.example:a/tpg1/acls/iqn.1994-05.com.example:h create 7 5 1",
        1,
        "! This MappedLUN already exists in configFS",
    ),
    (
        "/iscsi/iqn.2003-01.org.example:a/tpg1 get",
        0,
        "  AVAILABLE CONFIGURATION GROUPS\n  ==============================\n  attribute auth global parameter",
    ),
    // The main file has another target, which no command removes.
    ("/iscsi status", 0, "  Status for /iscsi: Targets: 2"),
    (
        "clearconfig confirm=True",
        0,
        "! target iqn.2026-11.org.example:main stands in config; change it there and send SIGHUP, or move its table to \
         conf.d/target-iqn.2026-11.org.example:main.toml",
    ),
];

/// Nodes that only the tree of LIO has, or that have other descriptions there.
const OTHER_NODES: [&str; 10] = [
    "alua",
    "default_tg_pt_gp [ALUA",
    "pscsi",
    "loopback",
    "vhost",
    "xen-pvscsi",
    "0.0.0.0:3260",
    "iscsi [Targets",
    "write-thru",
    "ramdisk [Storage Objects",
];

/// The call of a line: what was printed, without regard to the order of lines, and the exit code.
type Answer = (Vec<String>, Option<i32>);

/// The calls of the recording.
fn recorded() -> Vec<(String, Answer)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED)).unwrap();
    let mut calls: Vec<(String, Answer)> = Vec::new();
    for line in text.lines() {
        let (mark, text) = line.split_at(line.len().min(2));
        match mark.trim_end() {
            "$" => calls.push((text.into(), (Vec::new(), None))),
            "=" => calls.last_mut().unwrap().1.1 = Some(text.parse().unwrap()),
            _ => calls.last_mut().unwrap().1.0.push(line.into()),
        }
    }
    calls
}

/// Lines without what is another one each time, and with a tree that is as wide as any other.
fn comparable(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let plain = |line: String| {
        line.split(' ').filter(|word| !word.starts_with("..")).collect::<Vec<_>>().join(" ").trim_end().to_owned()
    };
    let mut lines: Vec<String> =
        lines.into_iter().map(plain).filter(|line| !line.starts_with("  alias: ") && !line.is_empty()).collect();
    lines.sort_unstable();
    lines
}

/// The nodes of a tree, without their places in it.
fn nodes(lines: &[String]) -> Vec<String> {
    lines.iter().filter_map(|line| Some(line.split_once("o- ")?.1.to_owned())).collect()
}

/// The answer of ours, if it is not the recorded one.
fn difference(line: &str, expected: Vec<String>, code: Option<i32>, ours: &Answer) -> Option<String> {
    let known = DIFFERENT.iter().find(|(known, lio, _)| *known == line && Some(*lio) == code);
    let (expected, code) = match known {
        Some((_, _, ours)) => (ours.lines().map(str::to_owned).collect(), Some(i32::from(ours.starts_with('!')))),
        None => (expected, code),
    };
    let expected = comparable(expected);
    let is_same = if line.split(' ').next() == Some("ls") && code == Some(0) {
        let ours = nodes(&ours.0);
        let is_common = |node: &&String| !OTHER_NODES.iter().any(|other| node.contains(other));
        nodes(&expected).iter().filter(is_common).all(|node| ours.contains(node))
    } else {
        ours.0 == expected
    };
    (!is_same || ours.1 != code).then(|| format!("$ {line}\n{ours:#?}\ninstead of {expected:#?}"))
}

#[test]
fn answers_are_those_that_targetcli_gave() {
    let lio = Lio::new();
    let (d0, d1, files) = (lio.device("d0"), lio.device("d1"), lio.place.file("f").display().to_string());
    let folder = format!("{}/", lio.place.path().display());
    let (mut found, mut count) = (Vec::new(), 0);
    for (line, (expected, code)) in recorded() {
        // Portals of fixed ports could be those of another test.
        if line.contains("/portals") && !line.ends_with("3269") {
            continue;
        }
        let ran = lio.targetcli(&line.replace("@d0", &d0).replace("@d1", &d1).replace("@f", &files));
        let stdout = ran.stdout.lines().map(|line| format!("  {line}"));
        let stderr = ran.stderr.lines().map(|line| format!("! {line}"));
        let named =
            |line: String| line.replace(&d0, "@d0").replace(&d1, "@d1").replace(&files, "@f").replace(&folder, "");
        let ours = (comparable(stdout.chain(stderr).map(named)), ran.code);
        found.extend(difference(&line, expected, code, &ours));
        count += 1;
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
    assert!(count > 70, "{count} calls");
}
