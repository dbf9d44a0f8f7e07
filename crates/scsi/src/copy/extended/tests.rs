use proptest::prelude::*;

use super::*;

const LIMITS: CopyLimits = CopyLimits {
    max_cscds: 2,
    max_segments: 2,
    max_descriptors_len: 256,
    max_segment_len: 1 << 20,
    max_copies: 1,
    max_ranges: 1,
    max_token_blocks: 1,
    max_inactivity_timeout_s: 1,
    default_inactivity_timeout_s: 1,
};

fn target(kind: u8) -> Vec<u8> {
    let mut bytes = vec![0; CSCD_LEN];
    bytes[..16].copy_from_slice(&[kind, 0xe0, 0, 0, 1, 3, 0, 8, 0x31, 2, 3, 4, 5, 6, 7, 8]);
    bytes[28..].copy_from_slice(&[4, 0, 2, 0]);
    bytes
}

fn copy_segment() -> Vec<u8> {
    let mut bytes = vec![0x02, 0x02, 0, 24, 0, 0, 0xff, 0xff, 0, 0, 1, 2];
    bytes.extend(3u64.to_be_bytes());
    bytes.extend(4u64.to_be_bytes());
    bytes
}

fn list(form: CopyListForm, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (targets, segments) = (targets.concat(), segments.concat());
    let mut header = vec![0; form.header_len()];
    let (targets_len, segments_len) = ((targets.len() as u16).to_be_bytes(), (segments.len() as u16).to_be_bytes());
    if form == CopyListForm::Lid1 {
        header[0] = 9;
        header[2..4].copy_from_slice(&targets_len);
        header[10..12].copy_from_slice(&segments_len);
    } else {
        header[0] = 1;
        header[3] = 32;
        header[16] = 0xff;
        header[20..24].copy_from_slice(&[1, 0, 0, 9]);
        header[42..44].copy_from_slice(&targets_len);
        header[44..46].copy_from_slice(&segments_len);
    }
    [header, targets, segments].concat()
}

fn refused(list: &[u8], form: CopyListForm) -> (AdditionalSense, Option<(u16, Option<u8>)>) {
    let sense = parse(list, form, &LIMITS).unwrap_err();
    (sense.code, sense.field.map(|field| (field.byte, field.bit)))
}

#[test]
fn both_forms_carry_the_same() {
    for (form, id) in [(CopyListForm::Lid1, 9), (CopyListForm::Lid4, 0x0100_0009)] {
        let verify = vec![0x07, 0, 0, 8, 0, 1, 0, 0, 1, 0, 0, 0];
        let parsed = parse(&list(form, &[target(0xe4)], &[copy_segment(), verify]), form, &LIMITS).unwrap();
        assert_eq!(parsed.list_id, Some(id));
        let [cscd] = &parsed.cscds[..] else { panic!("one target") };
        assert_eq!(cscd.designator, Designator::naa_local(0x0102_0304_0506_0708));
        assert_eq!((cscd.block_len, cscd.device_type), (512, 0));
        let copy = SegmentOperation::Copy {
            source: 0,
            destination: THIS_UNIT,
            destination_counts: true,
            blocks: 0x102,
            source_lba: 3,
            destination_lba: 4,
        };
        let operations: Vec<_> = parsed.segments.iter().map(|segment| segment.operation).collect();
        assert_eq!(operations, [copy, SegmentOperation::Verify { cscd: 1, ready: true }]);
        let at = form.header_len() as u16 + 32;
        assert_eq!(parsed.segments[0].destination_lba_field(), FieldPointer::data(at + 20));
    }
}

#[test]
fn list_identifiers_are_used_as_the_list_says() {
    let form = CopyListForm::Lid1;
    let with = |id: u8, usage: u8| {
        let mut list = list(form, &[target(0xe4)], &[copy_segment()]);
        (list[0], list[1]) = (id, usage << 3);
        parse(&list, form, &LIMITS).map(|list| list.list_id).map_err(|sense| sense.field)
    };
    assert_eq!((with(7, 0), with(7, 2), with(0, 3)), (Ok(Some(7)), Ok(Some(7)), Ok(None)));
    assert_eq!(with(7, 3), Err(Some(FieldPointer::data(0))));
    assert_eq!(with(7, 1), Err(Some(FieldPointer::data(1).bit(4))));
}

#[test]
fn parameter_lists_are_complete_and_bounded() {
    let form = CopyListForm::Lid1;
    let good = list(form, &[target(0xe4)], &[copy_segment()]);
    for cut in [0, 15, 16, 47, 48, good.len() - 1] {
        assert_eq!(refused(&good[..cut], form), (AdditionalSense::PARAMETER_LIST_LENGTH_ERROR, None), "{cut}");
    }
    let many = list(form, &[target(0xe4), target(0xe4), target(0xe4)], &[copy_segment()]);
    assert_eq!(refused(&many, form), (AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS, Some((2, None))));
    let many = list(form, &[target(0xe4)], &[copy_segment(), copy_segment(), copy_segment()]);
    assert_eq!(refused(&many, form), (AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS, Some((48 + 56, None))));
    let long = list(form, &vec![target(0xe4); 8], &[copy_segment()]);
    assert_eq!(refused(&long, form).0, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let mut inline = good.clone();
    inline[15] = 1;
    assert_eq!(refused(&inline, form), (AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED, Some((12, None))));
}

#[test]
fn unknown_descriptors_are_distinguished() {
    for form in [CopyListForm::Lid1, CopyListForm::Lid4] {
        let at = form.header_len() as u16;
        let kind = list(form, &[target(0xe0)], &[copy_segment()]);
        assert_eq!(refused(&kind, form), (AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE, Some((at, None))));
        let kind = list(form, &[target(0xe4)], &[vec![0x03, 0, 0, 1]]);
        let expected = (AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE, Some((at + 32, None)));
        assert_eq!(refused(&kind, form), expected);
    }
}

#[test]
fn the_field_in_error_is_pointed_at() {
    let good = list(CopyListForm::Lid4, &[target(0xe4)], &[copy_segment()]);
    let changes = [
        (0, 2, (0, None)),
        (1, 0x40, (1, Some(6))),
        (3, 31, (2, None)),
        (16, 0, (16, None)),
        (24, 1, (24, Some(0))),
        (43, 33, (42, None)),
        (48 + 4, 0x11, (48 + 4, Some(4))),
        (48 + 5, 0x13, (48 + 5, Some(5))),
        (48 + 7, 21, (48 + 7, None)),
        (48 + 7, 0, (48 + 7, None)),
        (48 + 28, 1, (48 + 28, Some(0))),
        (80 + 1, 4, (80 + 1, Some(2))),
        (80 + 3, 25, (80 + 2, None)),
        (80 + 9, 1, (80 + 9, Some(0))),
    ];
    for (at, value, expected) in changes {
        let mut list = good.clone();
        list[at] = value;
        let found = refused(&list, CopyListForm::Lid4);
        assert_eq!(found, (AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST, Some(expected)), "byte {at}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), lid4: bool) {
        let form = if lid4 { CopyListForm::Lid4 } else { CopyListForm::Lid1 };
        if let Ok(list) = parse(&bytes, form, &LIMITS) {
            prop_assert!(list.cscds.len() <= 2 && list.segments.len() <= 2);
        }
    }
}
