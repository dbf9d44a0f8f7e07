//! Connections of initiators and targets, as a tunnel sees them.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::text::TextWriter;
use lunette_pdu::{
    BHS_LEN, Bhs, Cid, InitiatorTaskTag, Isid, LoginRequest, LoginResponse, LoginStatus, LunField, SerialNumber, Stage,
    TargetTransferTag, TextResponse, Tsih, pad_len,
};
use lunette_tunnel::{Broken, Follower};
use proptest::prelude::*;

const DISCOVERY: &[(&str, &str)] = &[("InitiatorName", "iqn.2026-11.example:i"), ("SessionType", "Discovery")];
const NORMAL: &[(&str, &str)] = &[("SessionType", "Normal"), ("TargetName", "iqn.2026-11.example:t")];

fn text(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut text = TextWriter::new();
    for (key, value) in pairs {
        text.push(key, value).unwrap();
    }
    text.into_bytes()
}

/// A PDU as it stands on the wire.
fn pdu(header: [u8; BHS_LEN], data: &[u8], digests: bool) -> Vec<u8> {
    let mut bytes = header.to_vec();
    bytes[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    if digests {
        let digest = to_wire(crc32c(&bytes));
        bytes.extend(digest);
    }
    let mut padded = data.to_vec();
    padded.resize(data.len() + pad_len(data.len()), 0);
    bytes.extend(&padded);
    if digests && !data.is_empty() {
        bytes.extend(to_wire(crc32c(&padded)));
    }
    bytes
}

fn request(pairs: &[(&str, &str)]) -> Vec<u8> {
    let header = LoginRequest {
        transit: true,
        continue_: false,
        csg: Stage::LoginOperationalNegotiation,
        nsg: Stage::FullFeaturePhase,
        version_max: 0,
        version_min: 0,
        isid: Isid([0; 6]),
        tsih: Tsih(0),
        itt: InitiatorTaskTag(1),
        cid: Cid(0),
        cmd_sn: SerialNumber(1),
        exp_stat_sn: SerialNumber(1),
        data_segment_len: 0,
    };
    pdu(header.emit(), &text(pairs), false)
}

fn response(status: LoginStatus, pairs: &[(&str, &str)]) -> Vec<u8> {
    let header = LoginResponse {
        transit: status.is_success(),
        continue_: false,
        csg: Stage::LoginOperationalNegotiation,
        nsg: Stage::FullFeaturePhase,
        version_max: 0,
        version_active: 0,
        isid: Isid([0; 6]),
        tsih: Tsih(1),
        itt: InitiatorTaskTag(1),
        stat_sn: SerialNumber(1),
        exp_cmd_sn: SerialNumber(1),
        max_cmd_sn: SerialNumber(1),
        status,
        data_segment_len: 0,
    };
    pdu(header.emit(), &text(pairs), false)
}

fn answer(data: &[u8], continues: bool, digests: bool) -> Vec<u8> {
    let header = TextResponse {
        final_: !continues,
        continue_: continues,
        lun: LunField::default(),
        itt: InitiatorTaskTag(2),
        ttt: TargetTransferTag::RESERVED,
        stat_sn: SerialNumber(2),
        exp_cmd_sn: SerialNumber(2),
        max_cmd_sn: SerialNumber(2),
        data_segment_len: 0,
    };
    pdu(header.emit(), data, digests)
}

/// A NOP-In with data, which no tunnel looks into.
fn ping(data: &[u8], digests: bool) -> Vec<u8> {
    let mut header = [0; BHS_LEN];
    (header[0], header[1]) = (0x20, 0x80);
    pdu(header, data, digests)
}

fn local(address: &str) -> Option<String> {
    match address {
        "192.0.2.1:3260" => Some("127.0.0.1:3260".into()),
        "[2001:db8::1]:3261" => Some("127.0.0.1:3261".into()),
        _ => None,
    }
}

/// A session whose login has passed.
fn session(offer: &[(&str, &str)], choice: &[(&str, &str)]) -> Follower {
    let mut follower = Follower::new();
    follower.request(&request(offer)).unwrap();
    let passed = response(LoginStatus::SUCCESS, choice);
    assert_eq!(follow(&mut follower, &passed).unwrap(), passed, "a login passes unchanged");
    follower
}

fn follow(follower: &mut Follower, bytes: &[u8]) -> Result<Vec<u8>, Broken> {
    let mut out = Vec::new();
    follower.response(bytes, &mut out, &mut local).map(|()| out)
}

fn with_digests(session: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    [session, &[("HeaderDigest", "CRC32C,None"), ("DataDigest", "CRC32C,None")]].concat()
}

const CHOSEN: &[(&str, &str)] = &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];

const FOUND: &[(&str, &str)] = &[
    ("TargetName", "iqn.2026-11.example:t"),
    ("TargetAddress", "192.0.2.1:3260,1"),
    ("TargetAddress", "[2001:db8::1]:3261,2"),
    ("TargetAddress", "203.0.113.9:3260,3"),
];

const REWRITTEN: &[(&str, &str)] = &[
    ("TargetName", "iqn.2026-11.example:t"),
    ("TargetAddress", "127.0.0.1:3260,1"),
    ("TargetAddress", "127.0.0.1:3261,2"),
];

#[test]
fn the_answer_to_discovery_names_addresses_of_the_tunnel() {
    for digests in [false, true] {
        let (offer, choice) = if digests { (with_digests(DISCOVERY), CHOSEN) } else { (DISCOVERY.to_vec(), &[][..]) };
        let mut follower = session(&offer, choice);
        let out = follow(&mut follower, &answer(&text(FOUND), false, digests)).unwrap();
        assert_eq!(out, answer(&text(REWRITTEN), false, digests));
        assert_eq!(follower.take_left_out(), 1);
        assert!(!follower.is_done(), "the initiator may ask again");
    }
}

#[test]
fn digests_are_those_that_one_side_chose_of_what_the_other_offered() {
    // The target offers, and the initiator chooses in its next request.
    let mut follower = Follower::new();
    follower.request(&request(DISCOVERY)).unwrap();
    let mut offer = response(LoginStatus::SUCCESS, &[("HeaderDigest", "None,CRC32C"), ("DataDigest", "CRC32C,None")]);
    offer[1] &= 0x7f;
    follow(&mut follower, &offer).unwrap();
    follower.request(&request(&[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")])).unwrap();
    follow(&mut follower, &response(LoginStatus::SUCCESS, &[])).unwrap();
    let out = follow(&mut follower, &answer(&text(FOUND), false, true)).unwrap();
    assert_eq!(out, answer(&text(REWRITTEN), false, true));
}

#[test]
fn a_normal_session_is_not_looked_into() {
    let mut follower = session(NORMAL, &[]);
    assert!(follower.is_done());
    let bytes = answer(&text(FOUND), false, false);
    assert_eq!(follow(&mut follower, &bytes).unwrap(), bytes);
    // Neither is what comes together with the end of the login.
    let mut follower = Follower::new();
    follower.request(&request(NORMAL)).unwrap();
    let bytes = [response(LoginStatus::SUCCESS, &[]), vec![0xff; 100]].concat();
    assert_eq!(follow(&mut follower, &bytes).unwrap(), bytes);
}

#[test]
fn a_redirection_leads_through_the_tunnel() {
    let redirect = |address| response(LoginStatus::TARGET_MOVED_TEMPORARILY, &[("TargetAddress", address)]);
    let mut follower = Follower::new();
    follower.request(&request(NORMAL)).unwrap();
    let out = follow(&mut follower, &redirect("[2001:db8::1]:3261")).unwrap();
    assert_eq!(out, redirect("127.0.0.1:3261"));
    assert_eq!(follow(&mut Follower::new(), &redirect("203.0.113.9:3260")), Err(Broken::NoWay));
}

#[test]
fn a_login_that_fails_passes_unchanged() {
    let failed = response(LoginStatus::NOT_FOUND, &[("TargetAddress", "192.0.2.1:3260")]);
    assert_eq!(follow(&mut Follower::new(), &failed).unwrap(), failed);
}

#[test]
fn a_text_over_several_pdus_is_rewritten_across_their_borders() {
    let whole = text(FOUND);
    for cut in 0..whole.len() {
        let mut follower = session(DISCOVERY, &[]);
        let mut found: Vec<u8> = Vec::new();
        for (part, continues) in [(&whole[..cut], true), (&whole[cut..], false)] {
            let out = follow(&mut follower, &answer(part, continues, false)).unwrap();
            let bhs = *Bhs::ref_from(&out[..BHS_LEN]).unwrap();
            assert_eq!(TextResponse::parse(&bhs).unwrap().continue_, continues);
            found.extend(&out[BHS_LEN..][..bhs.data_segment_len()]);
        }
        assert_eq!(found, text(REWRITTEN), "cut at {cut}");
    }
}

#[test]
fn an_answer_is_no_longer_than_the_initiator_takes() {
    let offer = [DISCOVERY, &[("MaxRecvDataSegmentLength", "512")]].concat();
    let mut follower = session(&offer, &[]);
    let pairs = vec![("TargetAddress", "a,1"); 28];
    let mut out = Vec::new();
    let longer = |_: &str| Some("127.0.0.1:3260".to_owned());
    follower.response(&answer(&text(&pairs), false, false), &mut out, &mut { longer }).unwrap();
    let len = Bhs::ref_from(&out[..BHS_LEN]).unwrap().data_segment_len();
    assert!((480..=512).contains(&len), "{len}");
    assert!(follower.take_left_out() > 0);
}

#[test]
fn what_breaks_the_protocol_ends_the_stream() {
    let mut damaged_header = ping(b"abcd", true);
    damaged_header[20] ^= 1;
    let mut damaged_text = answer(&text(FOUND), false, true);
    damaged_text[60] ^= 1;
    for (bytes, expected) in [(damaged_header, Broken::HeaderDigest), (damaged_text, Broken::DataDigest)] {
        let mut follower = session(&with_digests(DISCOVERY), CHOSEN);
        assert_eq!(follow(&mut follower, &bytes), Err(expected));
    }
    let mut long = answer(&[], false, false);
    long[5] = 0xff;
    let mut follower = session(DISCOVERY, &[]);
    assert_eq!(follow(&mut follower, &long), Err(Broken::SegmentTooLong(0xff_0000)));
    let mut long = request(DISCOVERY);
    long[5] = 0xff;
    assert!(matches!(Follower::new().request(&long), Err(Broken::RequestTooLong(_))));
    let mut follower = Follower::new();
    follower.request(&request(&[DISCOVERY, &[("IFMarker", "Yes")]].concat())).unwrap();
    let marked = response(LoginStatus::SUCCESS, &[("IFMarker", "Yes")]);
    assert_eq!(follow(&mut follower, &marked), Err(Broken::Markers));
}

#[test]
fn the_text_of_a_login_is_bounded() {
    let mut follower = Follower::new();
    let mut endless = request(&[("X-a", &"x".repeat(8000))]);
    // C instead of T.
    endless[1] = endless[1] & 0x3f | 0x40;
    let broken = (0..100).find_map(|_| follower.request(&endless).err());
    assert!(matches!(broken, Some(Broken::Text(_))), "{broken:?}");
}

/// A PDU of a discovery session, and what becomes of it.
#[derive(Debug, Clone)]
enum Said {
    Ping(Vec<u8>),
    Answer(Vec<(bool, String)>),
}

fn said() -> impl Strategy<Value = Said> {
    let pair = (any::<bool>(), "[a-z]{0,12}");
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Said::Ping),
        prop::collection::vec(pair, 0..6).prop_map(Said::Answer),
    ]
}

impl Said {
    fn bytes(&self, digests: bool, ways: impl Fn(&str) -> Option<String>) -> Vec<u8> {
        match self {
            Self::Ping(data) => ping(data, digests),
            Self::Answer(pairs) => {
                let mut text = TextWriter::new();
                for (is_address, value) in pairs {
                    match (is_address, ways(value)) {
                        (false, _) => text.push("TargetAlias", value).unwrap(),
                        (true, Some(way)) => text.push("TargetAddress", &format!("{way},7")).unwrap(),
                        (true, None) => {}
                    }
                }
                answer(text.as_bytes(), false, digests)
            }
        }
    }
}

fn way(address: &str) -> Option<String> {
    (!address.len().is_multiple_of(3)).then(|| address.repeat(2))
}

proptest! {
    #[test]
    fn cut_anywhere_the_output_is_the_input_but_for_addresses(
        said in prop::collection::vec(said(), 0..8),
        digests in any::<bool>(),
        cuts in prop::collection::vec(1usize..60, 1..20),
    ) {
        let choice = if digests { CHOSEN } else { &[] };
        let offer = if digests { with_digests(DISCOVERY) } else { DISCOVERY.to_vec() };
        let passed = response(LoginStatus::SUCCESS, choice);
        let all = |ways: fn(&str) -> Option<String>| {
            let said = said.iter().flat_map(|said| said.bytes(digests, ways));
            passed.iter().copied().chain(said).collect::<Vec<u8>>()
        };
        let mut follower = Follower::new();
        for part in request(&offer).chunks(cuts[0]) {
            follower.request(part).unwrap();
        }
        let (input, mut out) = (all(|address| Some(address.into())), Vec::new());
        let mut rest = &input[..];
        for cut in cuts.iter().cycle() {
            let (part, behind) = rest.split_at((*cut).min(rest.len()));
            follower.response(part, &mut out, &mut way).unwrap();
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(out, all(way));
    }
}
