//! Serial numbers, identifiers and the printed names of numbers.

use lunette_pdu::*;
use proptest::prelude::*;

#[test]
fn serial_numbers_wrap() {
    let last = SerialNumber(u32::MAX);
    assert_eq!(last.next(), SerialNumber(0));
    assert_eq!(last + 3, SerialNumber(2));
    assert!(last.is_before(SerialNumber(0)) && SerialNumber(0).is_after(last));
    assert_eq!(last.distance_from(SerialNumber(1)), -2);
}

#[test]
fn serial_numbers_2_to_the_31_apart_have_no_order() {
    let (a, b) = (SerialNumber(5), SerialNumber(5).add(1 << 31));
    for (a, b) in [(a, b), (b, a), (a, a)] {
        assert!(!a.is_before(b) && !a.is_after(b));
    }
    assert_eq!((a.distance_from(b), b.distance_from(a)), (i32::MIN, i32::MIN));
    assert!(a.is_before(a.add((1 << 31) - 1)));
    assert!(a.is_after(a.add((1 << 31) + 1)));
}

proptest! {
    #[test]
    fn a_sum_is_after_its_start(start: u32, n in 1..1u32 << 31) {
        let (start, end) = (SerialNumber(start), SerialNumber(start).add(n));
        prop_assert!(end.is_after(start) && start.is_before(end));
        prop_assert!(!end.is_before(start) && !start.is_after(end));
        prop_assert_eq!(end.distance_from(start), n.cast_signed());
        prop_assert_eq!(start.distance_from(end), -n.cast_signed());
    }

    #[test]
    fn segments_end_on_a_word(len in 0..=MAX_DATA_SEGMENT_LEN) {
        prop_assert!((len + pad_len(len)).is_multiple_of(4));
        prop_assert!(pad_len(len) < 4);
    }
}

#[test]
fn isids_know_their_format() {
    let random = Isid::random(0xff12_3456, 0x0708);
    assert_eq!(random, Isid([0x80, 0x12, 0x34, 0x56, 0x07, 0x08]));
    assert_eq!((random.isid_type(), random.qualifier()), (IsidType::Random, 0x0708));
    assert_eq!(random.to_string(), "801234560708");
    // OUI 02-3d-00 as open-iscsi and its descendants send it, with a qualifier of three bytes.
    let oui = Isid([0x00, 0x02, 0x3d, 0x01, 0x02, 0x03]);
    assert_eq!((oui.isid_type(), oui.qualifier()), (IsidType::Oui, 0x01_0203));
    assert_eq!(Isid([0x40, 0, 0, 1, 0, 2]).isid_type(), IsidType::EnterpriseNumber);
    assert_eq!(Isid([0xc0, 0, 0, 1, 0, 2]).isid_type(), IsidType::Reserved);
}

#[test]
fn known_numbers_print_a_name_and_unknown_ones_a_number() {
    assert_eq!(format!("{:?} {}", Opcode::R2T, Opcode::R2T), "R2T Ready To Transfer");
    assert_eq!(format!("{:?} {}", RejectReason(0x55), RejectReason(0x55)), "RejectReason(0x55) RejectReason(0x55)");
    assert_eq!(format!("{:?}", TaskManagementFunction(9)), "QUERY_TASK");
    assert_eq!(format!("{:?}", LoginStatus::SUCCESS), "LoginStatus(success (0x0000))");
    assert_eq!(LoginStatus { class: 9, detail: 1 }.to_string(), "unknown status (0x0901)");
    assert_eq!(InitiatorTaskTag(0x1f).to_string(), "0x0000001f");
    assert_eq!(LunField([0, 1, 0, 0, 0, 0, 0, 0]).to_string(), "0x0001000000000000");
}

#[test]
fn a_header_is_48_bytes() {
    let bytes = [0x5a; 64];
    assert!(Bhs::ref_from(&bytes[..47]).is_none());
    assert!(Bhs::ref_from(&bytes[..49]).is_none());
    let bhs = Bhs::ref_from(&bytes[1..49]).unwrap();
    assert_eq!(bhs.as_array(), &bytes[1..49]);
    assert_eq!((bhs.opcode(), bhs.immediate(), bhs.final_bit(), bhs.flags()), (Opcode(0x1a), true, false, 0x5a));
    assert_eq!((bhs.ahs_len(), bhs.data_segment_len()), (0x5a * 4, 0x5a_5a5a));
    assert_eq!((bhs.lun(), bhs.itt()), (LunField([0x5a; 8]), InitiatorTaskTag(0x5a5a_5a5a)));
}
