//! `lunette import`: a configuration of another target, served.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use lunette_tests::{Configured, Server, lunette, run};

const TARGET: &str = "iqn.2008-09.org.example:imported";
const SECRET: &str = "secret-of-alice";

/// What `tgt-admin` reads, for a disk of 8 MiB in this folder.
fn targets_conf(place: &Configured) -> String {
    File::create(place.file("disk")).unwrap().set_len(8 << 20).unwrap();
    format!(
        "default-driver iscsi\n<target {TARGET}>\n    backing-store {}\n    incominguser alice {SECRET}\n    \
         initiator-address 127.0.0.0/8\n    vendor_id ACME\n</target>\n",
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
