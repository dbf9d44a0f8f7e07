//! Tests of the device's descriptions of itself.

use std::sync::Arc;

use lunette_device::{LogicalUnit, LogicalUnitConfig, LogicalUnitError};
use lunette_scsi::{AdditionalSense, FieldPointer};
use lunette_store::{Capabilities, Store};

use crate::fixture::{Fixture, Medium, THIN};

#[test]
fn standard_inquiry_data_name_the_disk() {
    let fixture = Fixture::new(THIN);
    let data = fixture.read(&[0x12, 0, 0, 1, 4, 0]);
    assert_eq!((data.len(), data[0], usize::from(data[4])), (96, 0, 96 - 5));
    assert_eq!(&data[8..36], b"LUNETTE DISK            0001");
    assert_eq!(fixture.read(&[0x12, 0, 0, 0, 5, 0]), data[..5], "cut to the allocation length");
    assert_eq!(fixture.read(&[0x12, 0, 0, 0, 0, 0]), []);
    let sense = fixture.refused(&[0x12, 0, 1, 0, 255, 0], &[]);
    assert_eq!((sense.code, sense.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(2))));
}

#[test]
fn every_listed_page_exists() {
    let fixture = Fixture::new(THIN);
    let list = fixture.read(&[0x12, 1, 0x00, 1, 0, 0]);
    assert_eq!(list[4..], [0x00, 0x80, 0x83, 0x85, 0x86, 0x87, 0x88, 0x8f, 0xb0, 0xb1, 0xb2, 0xb3]);
    for page in &list[4..] {
        let data = fixture.read(&[0x12, 1, *page, 4, 0, 0]);
        assert_eq!(data[1], *page);
        assert_eq!(usize::from(u16::from_be_bytes([data[2], data[3]])), data.len() - 4);
    }
    assert_eq!(fixture.refused(&[0x12, 1, 0xc0, 1, 0, 0], &[]).field, Some(FieldPointer::cdb(2)));
}

#[test]
fn the_identity_follows_the_serial_number_alone() {
    let page = |fixture: &Fixture| fixture.read(&[0x12, 1, 0x83, 2, 0, 0]);
    let (first, second) = (page(&Fixture::new(THIN)), page(&Fixture::new(Medium { block_size: 4096, ..THIN })));
    assert_eq!(first, second);
    // Initiators remember disks by this value: it must never change.
    assert_eq!(&first[4..16], [1, 3, 0, 8, 0x34, 0x9d, 0xdd, 0x1c, 0x17, 0x34, 0xe0, 0xd6]);
    let text = String::from_utf8_lossy(&first).into_owned();
    for name in ["LUNETTE serial-1", "iqn.2026-11.lunette:disk,t,0x0001\0", "iqn.2026-11.lunette:disk\0"] {
        assert!(text.contains(name), "{name} in {text:?}");
    }
}

#[test]
fn limits_and_provisioning_follow_the_store() {
    let thin = Fixture::new(THIN);
    let limits = thin.read(&[0x12, 1, 0xb0, 1, 0, 0]);
    assert_eq!(limits[4], 1, "WSNZ");
    assert_eq!(&limits[6..12], [0, 8, 0, 0, 0x40, 0], "granularity of 4096 bytes, 8 MiB at most");
    assert_eq!(&limits[20..32], [0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0, 0, 0, 0, 128]);
    assert_eq!(&limits[36..44], [0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    assert_eq!(thin.read(&[0x12, 1, 0xb2, 1, 0, 0])[5], 0xe6);
    let thick = Fixture::new(Medium { capabilities: Capabilities { unmap: false, ..THIN.capabilities }, ..THIN });
    assert_eq!(&thick.read(&[0x12, 1, 0xb0, 1, 0, 0])[20..36], [0; 16]);
    let limits = thick.read(&[0x12, 1, 0xb0, 1, 0, 0]);
    assert_eq!((limits[4], &limits[36..44]), (0, &[0; 8][..]), "WSNZ, no limit of WRITE SAME");
    assert_eq!(thick.read(&[0x12, 1, 0xb2, 1, 0, 0])[5], 0);
}

#[test]
fn capacities_count_whole_blocks() {
    let fixture = Fixture::new(Medium { len_bytes: 1024 * 512 + 511, ..THIN });
    assert_eq!(fixture.read(&[0x25]), [0, 0, 3, 0xff, 0, 0, 2, 0]);
    let long = fixture.read(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255]);
    assert_eq!((long.len(), &long[..16]), (32, &[0, 0, 0, 0, 0, 0, 3, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 0][..]));
    assert_eq!(fixture.read(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]).len(), 8);
    let large = Fixture::new(Medium { block_size: 4096, ..THIN });
    assert_eq!(large.read(&[0x25]), [0, 0, 0, 127, 0, 0, 16, 0]);
    let sense = fixture.refused(&[0x9e, 0x1f], &[]);
    assert_eq!((sense.code, sense.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(1).bit(4))));
    let sense = fixture.refused(&[0x25, 0, 0, 0, 0, 1], &[]);
    assert_eq!(sense.field, Some(FieldPointer::cdb(5).bit(0)), "an LBA is obsolete here");
}

#[test]
fn report_luns_knows_its_select_reports() {
    let fixture = Fixture::new(THIN);
    for (select, len) in [(0x00, 16), (0x02, 16), (0x11, 16), (0x01, 8), (0x10, 8), (0x12, 8)] {
        assert_eq!(fixture.read(&[0xa0, 0, select, 0, 0, 0, 0, 0, 1, 0]).len(), len, "{select:#x}");
    }
    assert_eq!(fixture.refused(&[0xa0, 0, 3, 0, 0, 0, 0, 0, 1, 0], &[]).field, Some(FieldPointer::cdb(2)));
}

#[test]
fn every_reported_command_can_be_asked_for_alone() {
    let fixture = Fixture::new(THIN);
    let all = fixture.read(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    assert_eq!(u32::from_be_bytes([all[0], all[1], all[2], all[3]]) as usize, all.len() - 4);
    let (descriptors, rest) = all[4..].as_chunks::<8>();
    assert!(rest.is_empty() && descriptors.len() > 20);
    for [opcode, _, high, low, _, flags, _, len] in descriptors {
        let ask = |option| [0xa3, 0x0c, option, *opcode, *high, *low, 0, 0, 0xff, 0xff];
        let has_actions = flags & 1 != 0;
        let (right, wrong) = if has_actions { (2, 1) } else { (1, 2) };
        let one = fixture.read(&ask(right));
        assert_eq!((one[1], one[3], one[4]), (3, *len, *opcode));
        assert_eq!(one.len(), 4 + usize::from(*len));
        assert_eq!(fixture.refused(&ask(wrong), &[]).field, Some(FieldPointer::cdb(2).bit(2)));
        assert_eq!(fixture.read(&ask(3)), one);
        let timed = fixture.read(&ask(0x80 | right));
        assert_eq!((timed[1], timed.len()), (0x83, one.len() + 12));
    }
    assert_eq!(fixture.read(&[0xa3, 0x0c, 1, 0xff, 0, 0, 0, 0, 1, 0]), [0, 1, 0, 0]);
    assert_eq!(fixture.read(&[0xa3, 0x0c, 2, 0x9e, 0, 0x1f, 0, 0, 1, 0]), [0, 1, 0, 0]);
    assert_eq!(fixture.refused(&[0xa3, 0x0c, 4, 0x28, 0, 0, 0, 0, 1, 0], &[]).field, Some(FieldPointer::cdb(2).bit(2)));
}

#[test]
fn timeouts_are_listed_on_request() {
    let fixture = Fixture::new(THIN);
    let list = |rctd| fixture.read(&[0xa3, 0x0c, rctd, 0, 0, 0, 0, 0, 0xff, 0xff]);
    assert_eq!((list(0x80).len() - 4) * 8, (list(0).len() - 4) * 20);
}

#[test]
fn a_configuration_error_names_its_cause() {
    let fixture = Fixture::new(THIN);
    let store: Arc<dyn Store> = fixture.store.clone();
    let config = |change: fn(&mut LogicalUnitConfig)| {
        let mut config = LogicalUnitConfig::new(Arc::clone(&store), "s");
        change(&mut config);
        LogicalUnit::new(config).err()
    };
    assert_eq!(config(|_| {}), None);
    assert_eq!(config(|config| config.block_size = 520), Some(LogicalUnitError::BlockSize(520)));
    let texts: [fn(&mut LogicalUnitConfig); 4] = [
        |config| config.serial.clear(),
        |config| config.serial = "s".repeat(201),
        |config| config.vendor = "LUNETTES!".into(),
        |config| config.product = "gr\u{fc}n".into(),
    ];
    for text in texts {
        assert!(matches!(config(text), Some(LogicalUnitError::Text { .. })));
    }
}
