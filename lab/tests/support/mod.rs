//! The common part of the tests of the tool.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Says why a test cannot run here, past the capture of the test harness. False if it cannot.
pub(crate) fn is_possible() -> bool {
    let missing = if fs::metadata("/proc/self").map_or(1, |of| of.uid()) != 0 {
        "root"
    } else if fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_err() {
        "/dev/net/tun"
    } else if !Command::new("unshare")
        .args(["-n", "-m", "-p", "-f", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        "the right to make namespaces"
    } else {
        return true;
    };
    writeln!(io::stderr(), "SKIPPED: the test of lunette-lab needs {missing}").expect("standard error is open");
    false
}
