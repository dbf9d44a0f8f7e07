//! The examples, against a target.

use std::fs;
use std::net::SocketAddr;

use lunette_initiator::wait;

use crate::fixture::{BLOCK_LEN, LIMIT, Relay, STORE_LEN, TARGET, Target, blocks, disk, event_loop, options};

#[path = "../../examples/backup.rs"]
#[expect(dead_code, reason = "its main function is for people")]
mod backup;

#[path = "../../examples/inquiry.rs"]
#[expect(dead_code, reason = "its main function is for people")]
mod inquiry;

#[path = "../../examples/many_disks.rs"]
#[expect(dead_code, reason = "its main function is for people")]
mod many_disks;

#[path = "../../examples/reconnect.rs"]
#[expect(dead_code, reason = "its main function is for people")]
mod reconnect;

#[path = "../../examples/tokio.rs"]
#[expect(dead_code, reason = "its main function is for people")]
mod with_tokio;

fn url(address: SocketAddr) -> String {
    format!("iscsi://{address}/{TARGET}/0")
}

#[test]
fn an_inquiry_as_raw_bytes_is_answered() {
    let target = Target::new();
    let (inquiry, len) = inquiry::inquiry(&url(target.address)).unwrap();
    assert_eq!((inquiry.device_type, inquiry.vendor.as_str(), inquiry.product.as_str()), (0, "LUNETTE", "DISK"));
    assert!((36..=96).contains(&len), "{len} bytes");
}

#[test]
fn tasks_of_another_executor_write_and_read() {
    let target = Target::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let bytes = runtime.block_on(with_tokio::write_and_read(&url(target.address))).unwrap();
    assert_eq!(bytes, 4 << 20);
}

#[test]
fn reads_go_on_when_the_connection_comes_back() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let disk = reconnect::open(&url(relay.address), LIMIT).unwrap();
    for _ in 0..3 {
        assert!(reconnect::read(&disk).unwrap().starts_with("512 bytes"));
        relay.cut();
    }
}

#[test]
fn one_event_loop_reads_many_disks() {
    let target = Target::new();
    let initiator = event_loop();
    let disks = many_disks::open(&initiator, &vec![url(target.address); 5]).unwrap();
    assert_eq!(many_disks::read_all(&disks).unwrap(), 5 * (16 << 20));
}

#[test]
fn a_backup_has_the_data_and_the_holes() {
    let target = Target::new();
    let data = blocks(5000, 3);
    let disk = disk(target.address, options());
    wait(disk.write(4096, &data, true)).unwrap();
    let path = std::env::temp_dir().join(format!("lunette-backup-{}", std::process::id()));
    let file = fs::File::create(&path).unwrap();
    let copied = backup::backup(&url(target.address), &file).unwrap();
    let copy = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!((data.len() as u64..STORE_LEN / 4).contains(&copied), "{copied} bytes were read");
    assert_eq!(copy.len() as u64, STORE_LEN);
    let start = 4096 * BLOCK_LEN;
    assert!(copy[start..start + data.len()] == data);
    assert!(copy[..start].iter().chain(&copy[start + data.len()..]).all(|byte| *byte == 0));
}
