//! Data of the device decoded by sg3-utils, which know every field.
//!
//! Without the tools the tests pass unchecked. `cargo xtask test` installs them and sets LUNETTE_REQUIRE_TOOLS, which
//! makes a missing tool a failure. sg_opcodes decodes bytes since version 1.48; an older version is skipped, with a
//! line on standard error. sg_persist and sg_rtpg decode only the answers of a device.

use std::process::Command;

use crate::fixture::{Fixture, Medium, THIN};

/// The output of `tool` for `bytes`, which it reads with the option `input`; `None` when the tool is not installed, or
/// its version lacks that option.
fn decode(tool: &str, input: &str, arguments: &[&str], bytes: &[u8]) -> Option<String> {
    let Ok(help) = Command::new(tool).arg("--help").output() else {
        assert!(std::env::var_os("LUNETTE_REQUIRE_TOOLS").is_none(), "{tool} is missing; install sg3-utils");
        return None;
    };
    let help = String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).into_owned();
    if !help.contains(input) {
        eprintln!("{tool} has no option {input}: nothing is compared");
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("{bytes:02x?}").replace(['[', ']', ','], " ")).unwrap();
    let output = Command::new(tool).arg(format!("{input}={}", file.path().display())).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).to_lowercase()).concat();
    assert!(output.status.success(), "{tool} {arguments:?}: {text}");
    Some(text)
}

fn assert_clean(what: &str, text: &str) {
    for word in ["unknown", "truncated", "too short", "unable", "malformed", "reserved ["] {
        assert!(!text.contains(word), "{what}: {word:?} in\n{text}");
    }
}

#[test]
fn vpd_pages_are_decoded_without_a_rest() {
    let fixture = Fixture::new(THIN);
    for page in &fixture.read(&[0x12, 1, 0, 1, 0])[4..] {
        let data = fixture.read(&[0x12, 1, *page, 4, 0]);
        let Some(text) = decode("sg_vpd", "--inhex", &[&format!("--page=0x{page:02x}")], &data) else { return };
        assert_clean(&format!("VPD page {page:#x}"), &text);
    }
}

#[test]
fn standard_inquiry_data_are_decoded() {
    let fixture = Fixture::new(THIN);
    let Some(text) = decode("sg_inq", "--inhex", &["--descriptors"], &fixture.read(&[0x12, 0, 0, 0, 96])) else {
        return;
    };
    assert_clean("standard INQUIRY data", &text);
    for field in ["pqual=0", "tpgs=1", "cmdque=1", "version descriptors"] {
        assert!(text.contains(field), "no {field} in\n{text}");
    }
}

#[test]
fn log_pages_are_decoded_without_a_rest() {
    let fixture = Fixture::new(THIN);
    for page in &fixture.read(&[0x4d, 0, 0x40, 0, 0, 0, 0, 0x10, 0])[4..] {
        let data = fixture.read(&[0x4d, 0, 0x40 | page, 0, 0, 0, 0, 0x10, 0]);
        let Some(text) = decode("sg_logs", "--in", &["--pdt=0"], &data) else { return };
        assert_clean(&format!("log page {page:#x}"), &text);
        assert!(text.lines().count() > 1, "only a title:\n{text}");
    }
}

#[test]
fn supported_commands_are_decoded_by_name() {
    let fixture = Fixture::new(Medium { long_cdbs: true, removable: true, ..THIN });
    let commands = fixture.read(&[0xa3, 0x0c, 0x80, 0, 0, 0, 0, 0, 0x40, 0]);
    let Some(text) = decode("sg_opcodes", "--inhex", &["--pdt=0"], &commands) else { return };
    assert_clean("all commands", &text);
    assert!(text.lines().filter(|line| line.contains("read")).count() > 10, "{text}");
    let functions = fixture.read(&[0xa3, 0x0d, 0x80, 0, 0, 0, 0, 0, 0x40, 0]);
    let text = decode("sg_opcodes", "--inhex", &["--pdt=0", "--tmf"], &functions).unwrap();
    assert_clean("task management functions", &text);
    assert!(text.contains("logical unit reset"), "{text}");
}

#[test]
fn lba_status_is_decoded() {
    let fixture = Fixture::new(THIN);
    fixture.store.bytes.lock().unwrap()[8 * 512..10 * 512].fill(1);
    let data = fixture.read(&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let Some(text) = decode("sg_get_lba_status", "--inhex", &["--maxlen=256"], &data) else { return };
    assert_clean("LBA status", &text.replace("mapped (or unknown)", "mapped"));
    assert!(text.contains(" mapped") && text.contains("deallocated"), "{text}");
}
