use proptest::prelude::*;

use super::*;

fn payload(close: &Close) -> Vec<u8> {
    let mut bytes = [0xff; MAX_CLOSE_LEN];
    let len = close.emit(&mut bytes);
    bytes[..len].to_vec()
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(code in any::<u16>(), text in "\\PC{0,80}") {
        let close = Close::new(CloseCode(code), &text);
        prop_assert_eq!(Close::parse(&payload(&close)), Ok(close.clone()));
        prop_assert_eq!(close.text(), text);
    }

    #[test]
    fn any_text_becomes_a_line_within_the_bound(code in any::<u16>(), text in ".{0,400}") {
        let close = Close::new(CloseCode(code), &text);
        prop_assert!(close.text().len() <= MAX_CLOSE_TEXT_LEN);
        prop_assert!(!close.text().contains(char::is_control));
    }

    /// A peer's payload can be shown and written again.
    #[test]
    fn any_payload_is_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300), fits in any::<bool>()) {
        if fits && let Some(text) = bytes.len().checked_sub(FIXED_LEN) {
            bytes[2..4].copy_from_slice(&(text as u16).to_be_bytes());
        }
        if let Ok(close) = Close::parse(&bytes) {
            prop_assert!(!close.text().contains(char::is_control));
            prop_assert_eq!(Close::parse(&payload(&close)), Ok(close));
        } else {
            prop_assert!(!fits || bytes.len() < FIXED_LEN || bytes.len() > MAX_CLOSE_LEN);
        }
    }
}

#[test]
fn each_rule_of_the_payload_is_checked() {
    let text = |len: u16, bytes: usize| [&[0, 4][..], &len.to_be_bytes(), &vec![b'a'; bytes]].concat();
    let rows = [
        (vec![], Err(CloseError::Short(0))),
        (vec![0, 4, 0], Err(CloseError::Short(3))),
        (text(0, 0), Ok(0)),
        (text(256, 256), Ok(256)),
        (text(257, 257), Err(CloseError::TextLen(257))),
        (text(5, 4), Err(CloseError::Len { payload: 8, text: 5 })),
        (text(4, 5), Err(CloseError::Len { payload: 9, text: 4 })),
    ];
    for (payload, expected) in rows {
        let parsed = Close::parse(&payload);
        assert_eq!(parsed.map(|close| close.text().len()), expected, "{payload:?}");
    }
}

#[test]
fn text_that_is_too_long_is_cut_between_characters() {
    let close = Close::new(CloseCode::PROTOCOL, &"ü".repeat(200));
    assert_eq!(close.text(), "ü".repeat(128));
    // Each byte that is no text grows to three.
    let payload = [&[0, 4, 1, 0][..], &[0xff; 256]].concat();
    assert_eq!(Close::parse(&payload).unwrap().text(), "\u{fffd}".repeat(85));
}

/// A peer's text does not move the cursor of the terminal that it is printed on.
#[test]
fn control_characters_are_not_printed() {
    let payload = [&[0, 4, 0, 6][..], b"\x1b[2J\r\n"].concat();
    assert_eq!(Close::parse(&payload).unwrap().text(), " [2J  ");
}

#[test]
fn codes_are_found_by_their_numbers() {
    for (number, (code, meaning)) in (0..).zip(CODES) {
        assert_eq!((code, code.meaning()), (CloseCode(number), Some(meaning)));
    }
    assert_eq!(CloseCode(CODES.len() as u16).meaning(), None);
    assert_eq!(Close::new(CloseCode(900), "").to_string(), "code 900");
    assert_eq!(Close::new(CloseCode::SHUTDOWN, "").to_string(), "the server stops");
    assert_eq!(Close::new(CloseCode::NARROW_PATH, "4096").to_string(), format!("{}: 4096", CloseCode::NARROW_PATH));
}
