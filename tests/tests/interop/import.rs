//! `lunette import`: a configuration of another target, served.

mod lio;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use lunette_tests::{Configured, Server, lunette, run};

const TARGET: &str = "iqn.2008-09.org.example:imported";
const SECRET: &str = "secret-of-alice";

/// The input of `tgt-admin`, for a disk of 8 MiB in this folder.
fn targets_conf(place: &Configured) -> String {
    File::create(place.file("disk")).unwrap().set_len(8 << 20).unwrap();
    format!(
        "default-driver iscsi\n<target {TARGET}>\n    backing-store {}\n    incominguser alice {SECRET}\n    \
         initiator-address 127.0.0.0/8\n    MaxConnections 2\n</target>\n",
        place.file("disk").display()
    )
}

fn import(file: &Path, secrets: &Path) -> Output {
    lunette().arg("import").arg(file).arg("--secrets").arg(secrets).output().unwrap()
}

#[test]
fn what_tgt_serves_is_served_with_its_secret_and_its_rules() {
    let place = Configured::new();
    let (file, secrets) = (place.file("targets.conf"), place.file("secrets"));
    fs::write(&file, targets_conf(&place)).unwrap();
    let imported = import(&file, &secrets);
    let report = String::from_utf8(imported.stderr).unwrap();
    assert!(imported.status.success() && report.contains("line 6, iqn"), "{report}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let secret = fs::read_dir(&secrets).unwrap().next().unwrap().unwrap().path();
    assert_eq!((mode(&secrets), mode(&secret)), (0o700, 0o600));

    let text = String::from_utf8(imported.stdout).unwrap();
    assert!(!text.contains(SECRET) && !report.contains(SECRET));
    place.write(&format!("listen = [\"127.0.0.1:0\"]\n{text}"));
    let server = Server::spawn(lunette().args(["serve", "--config"]).arg(place.file("config")), 1);
    let capacity = |credentials: &str| run("iscsi-readcapacity16", [server.url_with(credentials, "")]);
    assert!(capacity(&format!("alice%{SECRET}@")).succeeded().contains("Total size:8388608"));
    capacity("alice%another-secret@").failed();
    server.stop();

    // A file with a secret is never written over.
    fs::write(&secret, "changed meanwhile").unwrap();
    let again = import(&file, &secrets);
    assert!(!again.status.success() && again.stdout.is_empty());
    assert_eq!(fs::read_to_string(&secret).unwrap(), "changed meanwhile");
}

#[test]
fn a_file_that_cannot_be_understood_has_its_exit_code_and_line() {
    let place = Configured::new();
    for (text, expected) in [
        ("what is this", "say so with --from"),
        ("<target iqn.a>\n<backing-store /a>\n</target>\n", "line 3: </target> ends <backing-store> of line 2"),
        ("{\"targets\": 1}", "line 1"),
    ] {
        fs::write(place.file("foreign"), text).unwrap();
        let output = lunette().arg("import").arg(place.file("foreign")).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{message}");
        assert!(message.contains(expected) && output.stdout.is_empty(), "{message}");
    }
}

/// Files as people have them, for disks in `{dir}`: in what one finds, and in the form of `tgt-admin`.
const FOREIGN: &[&str] = &[
    // Numbers: in the order of the paths, those of backing-store first, and around those that are asked for.
    "<target iqn.2008-09.org.example:b>\n\tdirect-store {dir}/b\n\tbacking-store {dir}/c\n\tdirect-store {dir}/d\n\tbacking-store {dir}/a\n</target>\n\
     <target iqn.2008-09.org.example:a>\n\t<backing-store {dir}/d>\n\t\tlun 2\n\t</backing-store>\n\t<backing-store {dir}/a>\n\t</backing-store>\n\t\
     <backing-store {dir}/c>\n\t</backing-store>\n</target>\n",
    // Settings of a target hold for its disks; blocks of one name are one.
    "default-driver iscsi\r\n\r\n<target iqn.2008-09.org.example:Server>\r\n  readonly 1   # all of them\r\n  removable = 1\r\n  vendor_id ACME\r\n  block-size 4096\r\n  \
     backing-store {dir}/a\r\n  write-cache off\r\n</target>\r\n<target iqn.2008-09.org.example:Server>\r\n  initiator-address 192.0.2.0/24\r\n  \
     initiator-name iqn.X:Host\r\n  incominguser alice secret-of-alice\r\n  outgoinguser disk secret-of-disk\r\n</target>\r\n",
    "<target iqn.2008-09.org.example:mixed>\n  readonly 1\n  <backing-store \"{dir}/with blank\">\n    readonly 0\n    scsi_sn S 1\n    block-size 4096\n    \
     product_id \"Disk X\"\n    device-type disk\n    bs-type aio\n  </backing-store>\n  <direct-store {dir}/b>\n    lun 9\n    vendor_id V\n  </direct-store>\n  \
     initiator-address 192.0.2.1\n  initiator-address 198.51.100.0/25\n</target>\n",
    // One secret for each account, no target without a disk is lost, no rule means everybody.
    "<target iqn.2008-09.org.example:z>\nincominguser u secret-of-z\n</target>\n<target iqn.2008-09.org.example:empty>\n</target>\n\
     <target iqn.2008-09.org.example:y>\nincominguser u secret-of-y\nincominguser v secret-of-v\ninitiator-name iqn.a:1\ninitiator-name iqn.a:2\n</target>\n",
    // A secret is one word, and the number of a target is that of its first disk.
    "<target iqn.2008-09.org.example:words>\nlun 5\nbacking-store {dir}/a\nincominguser alice secret-of-alice trailing\n</target>\n",
    "# Debian's own\n\tInclude {dir}/conf.d/*.conf\n",
];

/// The facts about a target, one in a line, in no order.
type Facts = std::collections::BTreeSet<String>;

/// The facts that `tgt-admin` would ask `tgtadm` for.
fn facts_of_tgt_admin(file: &Path) -> Facts {
    // Nothing answers at this control port: all is printed, and nothing asked for.
    let printed = run("tgt-admin", ["-p", "-e", "-C", "7919", "-c", file.to_str().unwrap()]);
    let mut facts = Facts::new();
    let (mut target, mut secrets) = (String::new(), std::collections::BTreeMap::new());
    for line in printed.succeeded().lines().filter(|line| line.starts_with("tgtadm")) {
        let value = |option: &str| {
            let (_, rest) = line.split_once(option)?;
            let rest = rest.trim_start_matches([' ', '=']);
            let quoted = rest.strip_prefix('"').and_then(|rest| rest.split('"').next());
            Some(quoted.unwrap_or_else(|| rest.split(' ').next().unwrap()).to_owned())
        };
        let lun = value("--lun").unwrap_or_default();
        if let Some(name) = value(" -T ") {
            target = name.to_lowercase();
            facts.insert(target.clone());
        } else if let Some(path) = value(" -b ") {
            facts.insert(format!("{target} lun {lun} {path}"));
            facts.extend(
                value("--blocksize")
                    .filter(|size| size != "512")
                    .map(|size| format!("{target} lun {lun} block_size {size}")),
            );
        } else if let Some((key, value)) = line.split_once("--params ").and_then(|(_, rest)| rest.split_once('=')) {
            let key = match key {
                "readonly" => "read_only",
                "scsi_sn" => "serial",
                "vendor_id" => "vendor",
                "product_id" => "product",
                other => other,
            };
            let value = value.trim_matches('"');
            let is_said = !matches!(key, "mode_page") && value != "0";
            facts.extend(is_said.then(|| format!("{target} lun {lun} {key} {value}")));
        } else if let (Some(user), Some(secret)) = (value("--user"), value("--password")) {
            secrets.insert(user, secret);
        } else if let Some(user) = value("--user") {
            let direction = if line.contains("--outgoing") { "mutual_chap" } else { "chap" };
            facts.insert(format!("{target} {direction} {user} {}", secrets[&user]));
        } else if let Some(address) = value(" -I ").filter(|address| address != "ALL") {
            facts.insert(format!("{target} network {address}"));
        } else if let Some(name) = value(" -Q ") {
            facts.insert(format!("{target} initiator {}", name.to_lowercase()));
        }
    }
    facts
}

/// The facts that are served with an imported configuration.
fn facts_of_ours(text: &str) -> Facts {
    let configuration: toml::Table = text.parse().unwrap();
    let mut facts = Facts::new();
    let list =
        |table: &toml::Table, key: &str| table.get(key).and_then(|value| value.as_array().cloned()).unwrap_or_default();
    let texts = |table: &toml::Table, key: &str| {
        list(table, key).iter().map(|value| value.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for target in list(&configuration, "target") {
        let target = target.as_table().unwrap();
        let name = target["name"].as_str().unwrap();
        facts.insert(name.into());
        for lun in list(target, "lun") {
            let (lun, number) = (lun.as_table().unwrap(), lun["number"].as_integer().unwrap());
            facts.insert(format!("{name} lun {number} {}", lun["disk"].as_str().unwrap()));
            for (key, value) in lun.iter().filter(|(key, _)| !matches!(key.as_str(), "disk" | "number")) {
                let value = value.as_str().map_or_else(|| value.to_string().replace("true", "1"), ToOwned::to_owned);
                facts.insert(format!("{name} lun {number} {key} {value}"));
            }
        }
        let users = list(target, "chap").into_iter().map(|user| ("chap", user));
        for (direction, user) in users.chain(target.get("mutual_chap").cloned().map(|user| ("mutual_chap", user))) {
            let secret = fs::read_to_string(user["secret_file"].as_str().unwrap()).unwrap();
            facts.insert(format!("{name} {direction} {} {secret}", user["user"].as_str().unwrap()));
        }
        let rules = list(target, "host").into_iter().map(|host| host.as_table().unwrap().clone());
        for rules in rules.chain([target.clone()]) {
            let initiators = texts(&rules, "initiators").into_iter().chain(texts(&rules, "allow"));
            facts.extend(initiators.map(|initiator| format!("{name} initiator {initiator}")));
            facts.extend(texts(&rules, "networks").iter().map(|network| format!("{name} network {network}")));
        }
    }
    facts
}

#[test]
fn targets_conf_means_what_tgt_admin_makes_of_it() {
    let place = Configured::new();
    let dir = place.file("disks");
    fs::create_dir_all(dir.join("conf.d")).unwrap();
    for name in ["a", "b", "c", "d", "with blank"] {
        File::create(dir.join(name)).unwrap().set_len(1 << 20).unwrap();
    }
    let filled = |text: &str| text.replace("{dir}", dir.to_str().unwrap());
    fs::write(dir.join("conf.d/2.conf"), filled(FOREIGN[0])).unwrap();
    fs::write(dir.join("conf.d/1.conf"), "<target iqn.2008-09.org.example:a>\nreadonly 1\n</target>\n").unwrap();
    for (number, text) in FOREIGN.iter().enumerate() {
        let file = place.file("targets.conf");
        fs::write(&file, filled(text)).unwrap();
        let expected = facts_of_tgt_admin(&file);
        let imported = import(&file, &place.file(&format!("secrets-{number}")));
        let report = String::from_utf8_lossy(&imported.stderr);
        assert!(imported.status.success() && !expected.is_empty(), "{text}: {report}");
        let ours = facts_of_ours(&String::from_utf8(imported.stdout).unwrap());
        assert_eq!(ours, expected, "{text}\n{report}");
    }
}

#[test]
fn imported_objects_are_those_that_the_control_plane_changes() {
    let place = Configured::new();
    let file = place.file("targets.conf");
    fs::write(&file, targets_conf(&place)).unwrap();
    let conf_d = place.file("conf.d");
    let into_objects = || {
        let mut command = lunette();
        command.arg("import").arg(&file).arg("--secrets").arg(place.file("secrets")).arg("--conf-d").arg(&conf_d);
        command.output().unwrap()
    };
    let imported = into_objects();
    let rest = String::from_utf8(imported.stdout).unwrap();
    assert!(imported.status.success() && rest.lines().all(|line| line.starts_with('#')), "{rest}");
    place.write(&format!(
        "listen = [\"127.0.0.1:0\"]\napi = {{ listen = [\"unix:{}\"] }}\n",
        place.file("api").display()
    ));
    let server = Server::spawn(lunette().args(["serve", "--config"]).arg(place.file("config")), 1);
    let removed = run(
        lunette().get_program(),
        ["ctl", "--api", &format!("unix:{}", place.file("api").display()), "rm", &format!("targets/{TARGET}")],
    );
    removed.succeeded();
    server.stop();
    assert_eq!(
        fs::read_dir(&conf_d)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "toml"))
            .count(),
        0
    );

    // A file that is there stays as it is, and nothing is written beside it.
    fs::remove_dir_all(place.file("secrets")).unwrap();
    fs::write(conf_d.join(format!("target-{TARGET}.toml")), "mine").unwrap();
    let refused = into_objects();
    assert!(!place.file("secrets").exists());
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("not written over"));
    assert_eq!(fs::read_to_string(conf_d.join(format!("target-{TARGET}.toml"))).unwrap(), "mine");
}
