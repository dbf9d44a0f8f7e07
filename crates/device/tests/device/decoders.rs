//! What the device tells, decoded by the tools of the trade: sg3-utils know every field.
//!
//! Where the tools are not installed, there is nothing to compare with, and the tests pass.

use std::process::Command;

use crate::rig::{Rig, THIN};

/// The output of `tool` for `bytes`; `None` when the tool is not installed.
fn decode(tool: &str, input: &str, argument: &str, bytes: &[u8]) -> Option<String> {
    let file = std::env::temp_dir().join(format!("lunette-{}-{tool}-{:02x?}", std::process::id(), &bytes[..4]));
    let hex = format!("{bytes:02x?}").replace(['[', ']', ','], " ");
    std::fs::write(&file, hex).unwrap();
    let output = Command::new(tool).arg(format!("{input}={}", file.display())).arg(argument).output();
    std::fs::remove_file(&file).unwrap();
    let output = output.ok()?;
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).to_lowercase()).concat();
    assert!(output.status.success(), "{tool} {argument}: {text}");
    Some(text)
}

fn assert_clean(what: &str, text: &str) {
    for word in ["unknown", "truncated", "too short", "unable", "malformed", "reserved ["] {
        assert!(!text.contains(word), "{what}: {word:?} in\n{text}");
    }
}

#[test]
fn vpd_pages_are_decoded_without_a_rest() {
    let rig = Rig::new(THIN);
    for page in &rig.read(&[0x12, 1, 0, 1, 0])[4..] {
        let data = rig.read(&[0x12, 1, *page, 4, 0]);
        let Some(text) = decode("sg_vpd", "--inhex", &format!("--page=0x{page:02x}"), &data) else { return };
        assert_clean(&format!("VPD page {page:#x}"), &text);
    }
}

#[test]
fn standard_inquiry_data_are_decoded() {
    let rig = Rig::new(THIN);
    let Some(text) = decode("sg_inq", "--inhex", "--descriptors", &rig.read(&[0x12, 0, 0, 0, 96])) else { return };
    assert_clean("standard INQUIRY data", &text);
    for field in ["pqual=0", "tpgs=1", "cmdque=1", "version descriptors"] {
        assert!(text.contains(field), "no {field} in\n{text}");
    }
}

#[test]
fn log_pages_are_decoded_without_a_rest() {
    let rig = Rig::new(THIN);
    for page in &rig.read(&[0x4d, 0, 0x40, 0, 0, 0, 0, 0x10, 0])[4..] {
        let data = rig.read(&[0x4d, 0, 0x40 | page, 0, 0, 0, 0, 0x10, 0]);
        let Some(text) = decode("sg_logs", "--in", "--pdt=0", &data) else { return };
        assert_clean(&format!("log page {page:#x}"), &text);
        assert!(text.lines().count() > 1, "only a title:\n{text}");
    }
}
