//! A block device as a store, over a loop device, where the tests may create one.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Oracle, requests};
use lunette_store::{FileStore, OpenError, OpenOptions, Store};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const LEN: u64 = 2 << 20;

/// A loop device, which is removed on drop.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Result<Self, String> {
        let output = Command::new("losetup").args(["--show", "-f"]).arg(file).output().map_err(|e| e.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(Self(text(&output.stdout))) } else { Err(text(&output.stderr)) }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_block_device_does_what_a_vector_of_bytes_does() {
    let backing = tempfile::NamedTempFile::new().unwrap();
    backing.as_file().set_len(LEN).unwrap();
    let device = match Loop::over(backing.path()) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("skipped: no loop device can be set up here: {why}");
            return;
        }
    };
    let store = FileStore::open(&device.0, &OpenOptions::default()).unwrap();
    let geometry = store.geometry();
    assert_eq!(geometry.len_bytes, LEN);
    assert!(geometry.physical_bytes.is_multiple_of(geometry.granularity_bytes));
    assert!(geometry.unmap_bytes.is_multiple_of(geometry.granularity_bytes));
    let error = FileStore::open(&device.0, &OpenOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");

    let mut oracle = Oracle::new(LEN);
    let mut runner = TestRunner::deterministic();
    for _ in 0..10 {
        let requests = requests(LEN, geometry.granularity_bytes.into()).new_tree(&mut runner).unwrap().current();
        for request in &requests {
            oracle.step(&store, request);
        }
    }
    oracle.compare(&store);
}
