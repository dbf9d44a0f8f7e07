//! The examples, against a target.

use std::fs;

use lunette_initiator::wait;

use crate::rig::{BLOCK_LEN, STORE_LEN, TARGET, Target, blocks, disk, options};

#[path = "../../examples/backup.rs"]
#[expect(dead_code, reason = "its main function is for people")]
mod backup;

#[test]
fn a_backup_has_the_data_and_the_holes() {
    let target = Target::new();
    let data = blocks(5000, 3);
    let disk = disk(target.address, options());
    wait(disk.write(4096, &data, true)).unwrap();
    let path = std::env::temp_dir().join(format!("lunette-backup-{}", std::process::id()));
    let file = fs::File::create(&path).unwrap();
    let url = format!("iscsi://{}/{TARGET}/0", target.address);
    let copied = backup::backup(&url, &file).unwrap();
    let copy = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!((data.len() as u64..STORE_LEN / 4).contains(&copied), "{copied} bytes were read");
    assert_eq!(copy.len() as u64, STORE_LEN);
    let start = 4096 * BLOCK_LEN;
    assert!(copy[start..start + data.len()] == data);
    assert!(copy[..start].iter().chain(&copy[start + data.len()..]).all(|byte| *byte == 0));
}
