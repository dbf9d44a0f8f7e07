use lunette_session::keys::{KEYS, Rule};
use proptest::prelude::*;

use super::parameters::KEY_PARAMETERS;
use super::*;

fn parse(text: &str) -> Url {
    Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    match Url::parse(text) {
        Ok(url) => panic!("{text} is read as {url:?}"),
        Err(error) => error.to_string(),
    }
}

/// A name as a well-known maker of storage gives it.
const SYNOLOGY: &str = "iqn.2000-01.com.synology:DiskStation.Target-1.ABCDEF";

const NO_ENVIRONMENT: fn(&str) -> Option<String> = |_| None;

#[test]
fn places_are_read() {
    let target = "iqn.2026-11.org.example:disk";
    for (text, host, port, name, lun) in [
        ("iscsi://h", "h", 3260, None, None),
        ("iscsi://h/", "h", 3260, None, None),
        ("ISCSI://192.0.2.1:860", "192.0.2.1", 860, None, None),
        ("iscsi://[2001:db8::1]", "2001:db8::1", 3260, None, None),
        ("iscsi://[::1]:1/iqn.2026-11.org.example:disk", "::1", 1, Some(target), None),
        ("iscsi://u@h/iqn.2026-11.org.example:disk/0", "h", 3260, Some(target), Some(0)),
        ("iscsi://h/iqn.2026-11.org.example%3Adisk/16383?header_digest=none", "h", 3260, Some(target), Some(16383)),
        ("iscsi://h/iqn.2000-01.com.synology:DiskStation.Target-1.ABCDEF/1", "h", 3260, Some(SYNOLOGY), Some(1)),
        ("iscsi://h/eui.02004567A425678D", "h", 3260, Some("eui.02004567A425678D"), None),
        ("iscsi://h/My%20Disk%2Fa_b/0", "h", 3260, Some("My Disk/a_b"), Some(0)),
        ("iscsi://[fe80::1%25eth0]:860", "fe80::1%eth0", 860, None, None),
        ("iscsi://[fe80::1%eth0]", "fe80::1%eth0", 3260, None, None),
        ("iscsi://[fe80::1%252]", "fe80::1%2", 3260, None, None),
        ("iscsi://[fe80::1%25]", "fe80::1%25", 3260, None, None),
        ("iscsi://u@[fe80::1%25a%2Db]:860", "fe80::1%a-b", 860, None, None),
    ] {
        let url = parse(text);
        assert_eq!((url.host.as_str(), url.port, url.target.as_deref()), (host, port, name), "{text}");
        assert_eq!(url.lun.and_then(Lun::number), lun, "{text}");
    }
}

#[test]
fn urls_are_told_from_paths() {
    assert!(is_url("iscsi://h") && is_url("ISER://h"));
    assert!(!is_url("iscsi") && !is_url("./iscsi:/h") && !is_url("nbd://h") && !is_url("-"));
}

#[test]
fn what_is_shown_leads_to_the_same_place() {
    for text in [
        "iscsi://u%secret@[::1]/iqn.2026-11.org.example:disk/7?data_digest=crc32c",
        "iscsi://h:9",
        "iscsi://u%secret@[fe80::1%25eth0]:1/iqn.Capital_Letters/7",
        "iscsi://h/My%20Disk%2Fa%25b%3F%40%22/7",
    ] {
        let shown = parse(text).to_string();
        assert!(!shown.contains("secret"));
        assert_eq!(parse(&shown).to_string(), shown);
    }
}

#[test]
fn errors_say_what_to_write() {
    for (text, words) in [
        ("http://h", "iscsi://"),
        ("iser://h/iqn.a:b/0", "iSER"),
        ("iscsi://h?iser", "iSER"),
        ("iscsi://", "no host"),
        ("iscsi://h:port", "no port"),
        ("iscsi://h:0", "no port"),
        ("iscsi://h:+1", "no port"),
        ("iscsi://::1", "brackets"),
        ("iscsi://[::1", "brackets"),
        ("iscsi://[::1]3260", "brackets"),
        ("iscsi://[host]", "no IPv6"),
        ("iscsi://a b", "no host"),
        ("iscsi://h/a%0Ab/0", "not an iSCSI name"),
        ("iscsi://[fe80::1%25]:x", "no port"),
        ("iscsi://[fe80::1%25e%2Ft]", "brackets"),
        ("iscsi://h/iqn.a:b/x", "no LUN"),
        ("iscsi://h/iqn.a:b/16384", "no LUN"),
        ("iscsi://h/iqn.a:b/0/1", "no LUN"),
        ("iscsi://h//0", "missing"),
        ("iscsi://h/iqn.a%3", "%25"),
        ("iscsi://@h", "no name"),
        ("iscsi://u%@h", "empty"),
        ("iscsi://u%pa%ss@h", "%25"),
        ("iscsi://h?colour=red", "those that there are: header_digest"),
        ("iscsi://h?header_digest", "no value"),
        ("iscsi://h?header_digest=md5", "none, crc32c"),
        ("iscsi://h?initial_r2t=maybe", "yes or no"),
        ("iscsi://h?coalesce=often", "yes or no"),
        ("iscsi://h?congestion_control=a%20b", "cubic or bbr"),
        ("iscsi://h?congestion_control=a-name-much-too-long", "cubic or bbr"),
        ("iscsi://h?send_buffer=1K", "from 2048"),
        ("iscsi://h?marker_interval=63", "from 64 to 65535"),
        ("iscsi://h?error_recovery_level=3", "from 0 to 2"),
        ("iscsi://h?max_burst_length=1", "from 512"),
        ("iscsi://h?connections=2&max_connections=2", "twice"),
        ("iscsi://h?chap_secret_file=f", "USER@HOST"),
        ("iscsi://h?chap_algorithms=sha256", "USER@HOST"),
        ("iscsi://u@h?chap_algorithms=md4", "write one or several of sha3-256, sha256, sha1, md5"),
        ("iscsi://u@h?chap_algorithms=sha256,", "no CHAP algorithm \"\""),
        ("iscsi://h?target_user=t", "USER@HOST"),
        ("iscsi://u%p@h?chap_secret_file=f", "leave out one"),
        ("iscsi://u@h?target_password=x&chap_target_secret_file=f", "leave out one"),
        ("iscsi://h?initiator=%00", "not an iSCSI name"),
        ("iscsi://a%zz%40b@h?chap_secret_file=f", "leave out one"),
    ] {
        assert!(error(text).contains(words), "{text}: {}", error(text));
    }
    assert!(error(&format!("iscsi://{}", "h".repeat(9000))).contains("too long"));
    for text in ["iscsi://u%hush%@h", "iscsi://u%hush@", "iscsi://u%hush@h?x", "iscsi://u@h?target_password=hush%"] {
        assert!(!error(text).contains("hush"), "{}", error(text));
    }
}

#[test]
fn answers_may_come_in_groups_unless_the_url_says_no() {
    assert!(parse("iscsi://h").options().unwrap().coalesce);
    assert!(!parse("iscsi://h?coalesce=no").options().unwrap().coalesce);
}

#[test]
fn what_the_url_does_not_say_of_tcp_is_the_systems() {
    let tcp = |text: &str| parse(text).options().unwrap().tcp;
    assert_eq!(tcp("iscsi://h"), TcpOptions::default());
    let all = TcpOptions {
        congestion_control: Some("bbr".into()),
        send_buffer_bytes: Some(4 << 20),
        receive_buffer_bytes: Some(8 << 20),
    };
    assert_eq!(tcp("iscsi://h?congestion_control=bbr&send_buffer=4M&receive_buffer=8388608"), all);
}

#[test]
fn connections_are_recovered_only_while_tasks_are_kept() {
    let offer = |query| parse(&format!("iscsi://h?{query}")).offer;
    assert_eq!(offer("error_recovery_level=1").time2retain_s, 0);
    assert_eq!(offer("error_recovery_level=2").time2retain_s, 20);
    assert_eq!(offer("default_time2retain=0&error_recovery_level=2").time2retain_s, 0);
}

#[test]
fn offers_are_set() {
    let offer = parse(
        "iscsi://h?header_digest=crc32c&data_digest=none,CRC32C&initial_r2t=yes&immediate_data=no&connections=4&\
         max_recv_data_segment_length=64K&max_burst_length=16777215&first_burst_length=512&max_outstanding_r2t=1&\
         error_recovery_level=2&default_time2wait=0&default_time2retain=60&data_pdu_in_order=no&\
         data_sequence_in_order=no&task_reporting=fastabort,rfc3720&iscsi_protocol_level=2&marker_interval=1K",
    )
    .offer;
    let choices = (offer.header_digest.0, offer.data_digest.0, offer.task_reporting.0);
    assert_eq!(choices, (0b10, 0b11, 0b101));
    assert!(offer.initial_r2t && !offer.immediate_data && !offer.data_pdu_in_order && !offer.data_sequence_in_order);
    let lengths = (offer.recv_data_segment_len, offer.max_burst_len, offer.first_burst_len);
    assert_eq!(lengths, (65_536, 16_777_215, 512));
    let counts = (offer.max_connections, offer.max_outstanding_r2t, offer.error_recovery_level, offer.protocol_level);
    assert_eq!(counts, (4, 1, 2, 2));
    assert_eq!((offer.time2wait_s, offer.time2retain_s), (0, 60));
    assert_eq!(offer.marker_interval, Some(1024));
    assert_eq!(parse("iscsi://h").offer, Offer::initiator());
}

#[test]
fn every_key_that_is_negotiated_has_a_parameter() {
    // One parameter sets all keys of markers.
    for row in KEYS.iter().filter(|row| !matches!(row.rule, Rule::Marker | Rule::MarkerInterval)) {
        assert!(KEY_PARAMETERS.iter().any(|parameter| parameter.key == row.key), "{}", row.key);
    }
    for parameter in &KEY_PARAMETERS {
        assert!(KEYS.iter().any(|row| row.key == parameter.key), "{}", parameter.key);
    }
}

#[test]
fn secrets_come_from_the_url_a_file_or_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "in the file, long enough\n").unwrap();
    let environment = |name: &str| Some(format!("{name}, long enough"));
    let is = |credentials: &Credentials, user: &str, secret: &str| {
        assert_eq!(credentials.user, user);
        assert!(credentials.secret.same_as(&Secret::new(secret.into())), "{secret}");
    };

    assert!(parse("iscsi://h").chap(environment).unwrap().is_none());
    let url = parse("iscsi://alice%p%40ss@h?target_user=disk&target_password=a%26b");
    assert!(url.shows_secrets());
    let chap = url.chap(NO_ENVIRONMENT).unwrap().unwrap();
    is(&chap.initiator, "alice", "p@ss");
    is(&chap.target.unwrap(), "disk", "a&b");

    let url = parse(&format!("iscsi://alice@h?chap_secret_file={}", file.display()));
    assert!(!url.shows_secrets());
    let chap = url.chap(NO_ENVIRONMENT).unwrap().unwrap();
    is(&chap.initiator, "alice", "in the file, long enough");
    assert!(chap.target.is_none());

    let chap = parse("iscsi://alice@h").chap(environment).unwrap().unwrap();
    is(&chap.initiator, "alice", "LUNETTE_CHAP_PASSWORD, long enough");
    is(&chap.target.unwrap(), "", "LUNETTE_CHAP_TARGET_PASSWORD, long enough");
}

#[test]
fn the_offered_algorithms_are_those_of_the_url_or_all() {
    for (parameters, expected) in [
        ("", "sha3-256, sha256, sha1, md5"),
        ("?chap_algorithms=sha256,sha3-256", "sha3-256, sha256"),
        ("?chap_algorithms=md5%2Csha1", "sha1, md5"),
    ] {
        let chap = parse(&format!("iscsi://alice%secret@h{parameters}")).chap(NO_ENVIRONMENT).unwrap().unwrap();
        assert_eq!(chap.algorithms.to_string(), expected);
    }
}

#[test]
fn users_may_have_any_character() {
    for (text, user, password) in [
        ("iqn.1993-08.org.debian:01:abc%password", "iqn.1993-08.org.debian:01:abc", "password"),
        ("a%40b%password", "a@b", "password"),
        ("a@b%password", "a@b", "password"),
        ("dom%5Ca%2Fb%25c%s%40cret", "dom\\a/b%c", "s@cret"),
        ("%C3%A9%secret", "\u{e9}", "secret"),
        // As libiscsi has it: without a percent sign that can be nothing else, the first ends the name.
        ("alice%abcdef123456", "alice", "abcdef123456"),
    ] {
        let login = parse(&format!("iscsi://{text}@h")).login;
        assert_eq!(login.user.as_deref(), Some(user), "{text}");
        assert!(login.password.unwrap().same_as(&Secret::new(password.into())), "{text}");
    }
    for (text, user) in [("a%40b", "a@b"), ("iqn.a%3A01%3Ab", "iqn.a:01:b"), ("a%25", "a%"), ("plain", "plain")] {
        let login = parse(&format!("iscsi://{text}@h?chap_secret_file=f")).login;
        assert_eq!((login.user.as_deref(), login.password.is_none()), (Some(user), true), "{text}");
    }
}

#[test]
fn a_secret_that_is_nowhere_is_told() {
    let told =
        |text: &str, environment: fn(&str) -> Option<String>| parse(text).chap(environment).unwrap_err().to_string();
    assert!(told("iscsi://alice@h", NO_ENVIRONMENT).contains("LUNETTE_CHAP_PASSWORD"));
    assert!(told("iscsi://alice@h", |_| Some(String::new())).contains("LUNETTE_CHAP_PASSWORD"));
    assert!(told("iscsi://a%b@h?target_user=t", NO_ENVIRONMENT).contains("LUNETTE_CHAP_TARGET_PASSWORD"));
    assert!(told("iscsi://a@h?chap_secret_file=/nonexistent/x", NO_ENVIRONMENT).contains("/nonexistent/x"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,80}") {
        let _ = Url::parse(&text);
        let _ = Url::parse(&format!("iscsi://{text}"));
    }

    #[test]
    fn no_url_makes_it_panic(text in "iscsi://[a%@:\\[\\]0-9/?&=.]{0,40}") {
        if let Ok(url) = Url::parse(&text) {
            let shown = url.to_string();
            prop_assert_eq!(Url::parse(&shown).map(|url| url.to_string()), Ok(shown));
        }
    }
}

#[test]
fn keys_are_read_and_never_shown() {
    let url = parse("iscsi://h/iqn.a:b/0?keys=file%3A/k%26&passphrase_file=p&tls=d&anchor=a&header_digest=crc32c");
    let keys = url.keys.as_ref().unwrap();
    assert_eq!((&*keys.keys, keys.passphrase_file.as_deref()), ("file:/k&", Some(Path::new("p"))));
    assert_eq!(keys.anchor.as_deref(), Some(Path::new("a")));
    assert_eq!((keys.passphrase_credential.as_deref(), keys.tls.as_deref()), (None, Some(Path::new("d"))));
    assert_eq!(url.to_string(), "iscsi://h:3260/iqn.a:b/0");
    assert_eq!(parse("iscsi://h/iqn.a:b/0").keys, None);
    for (query, words) in [
        ("passphrase_file=p", "keys is missing"),
        ("anchor=a", "keys is missing"),
        ("keys=", "has no value"),
        ("keys=file:a&keys=file:b", "twice"),
        ("keys=%zz", "hexadecimal"),
        ("keys=file:a&passphrase_file=p&passphrase_credential=c", "leave out one"),
    ] {
        let said = error(&format!("iscsi://h/iqn.a:b/0?{query}"));
        assert!(said.contains(words), "{query}: {said}");
        let said = KeyParameters::parse(query).unwrap_err().to_string();
        assert!(said.contains(words), "{query}: {said}");
    }
    let said = KeyParameters::parse("keys=file:a&coalesce=no").unwrap_err().to_string();
    assert!(said.contains("no parameter \"coalesce\""), "{said}");
}

#[test]
fn keys_follow_the_last_question_mark_of_a_path() {
    assert_eq!(KeyParameters::split("a?b.img?keys=file:k&tls=d"), Some(("a?b.img", "keys=file:k&tls=d")));
    assert_eq!(KeyParameters::split("a.img?passphrase_file=p"), Some(("a.img", "passphrase_file=p")));
    for path in ["a.img", "a?b.img", "a.img?", "a.img?keysx=1"] {
        assert_eq!(KeyParameters::split(path), None, "{path}");
    }
    assert_eq!(KeyParameters::split("a.img?keys=file:k?1"), Some(("a.img", "keys=file:k?1")));
}

#[test]
fn misspelt_keys_behind_a_path_are_refused_and_not_its_name() {
    for (query, words) in [
        ("passphrase-file=p&keys=file:k", "write passphrase_file"),
        ("passphrase-file=p", "write passphrase_file"),
        ("Keys=file:k", "write keys"),
        ("TLS=d&KEYS=file:k", "write tls"),
        ("header_digest=crc32c&keys=file:k", "no parameter \"header_digest\""),
        ("x&keys=file:k", "no parameter \"x\""),
    ] {
        assert_eq!(KeyParameters::split(&format!("a?b.img?{query}")), Some(("a?b.img", query)));
        let said = KeyParameters::parse(query).unwrap_err().to_string();
        assert!(said.contains(words), "{query}: {said}");
    }
}

#[test]
fn a_disk_with_keys_is_not_opened_as_it_is() {
    let url = parse("iscsi://192.0.2.1/iqn.a:b/0?keys=file:k");
    let initiator = Initiator::start().unwrap();
    let error = crate::wait(url.connect(&initiator, Options::new("iqn.a:i"))).err().unwrap();
    assert!(matches!(error, Error::Url(_)) && error.to_string().contains("without decrypting"), "{error}");
}

#[test]
fn stations_on_an_ethernet_are_read_and_written() {
    let station = Mac([2, 0, 0, 0, 0xab, 1]);
    for (text, target, lun) in [
        ("ecl+eth://lab0/02:00:00:00:AB:01", None, None),
        ("ECL+ETH://u@lab0/02:00:00:00:ab:01/", None, None),
        ("ecl+eth://lab0/02:00:00:00:ab:01/iqn.a:b", Some("iqn.a:b"), None),
        ("ecl+eth://lab0/02%3a00:00:00:ab:01/iqn.a:b/7?offloads=off", Some("iqn.a:b"), Some(7)),
    ] {
        let url = parse(text);
        assert!(is_url(text) && url.transport == Transport::Ecl);
        assert_eq!(url.portal(), Portal::on_ethernet("lab0", station), "{text}");
        assert_eq!(url.portal().station(), Some(("lab0", station)));
        assert_eq!((url.target.as_deref(), url.lun.and_then(Lun::number)), (target, lun), "{text}");
    }
    let written = "ecl+eth://lab0/02:00:00:00:ab:01/iqn.a:b/7";
    assert_eq!(parse(written).to_string(), written);
    assert_eq!(parse("ecl://h/iqn.a:b").to_string(), "ecl://h:3260/iqn.a:b");
    assert_eq!(parse("iscsi://h").portal().station(), None);
}

#[test]
fn what_is_no_station_is_named() {
    for (text, expected) in [
        ("ecl+eth://", "\"\" is no interface"),
        ("ecl+eth://0123456789abcdef/02:00:00:00:00:01", "no interface"),
        ("ecl+eth://lab0", "\"\" is no MAC address; write that of the target behind the interface"),
        ("ecl+eth://lab0/iqn.a:b/0", "\"iqn.a:b\" is no MAC address"),
        ("ecl+eth://lab0/02:00:00:00:00/iqn.a:b", "no MAC address"),
        ("ecl+eth://lab0/ff:ff:ff:ff:ff:ff/iqn.a:b", "no single station"),
        ("ecl+eth://lab0/00:00:00:00:00:00/iqn.a:b", "no single station"),
    ] {
        let said = error(text);
        assert!(said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn paths_and_portals_are_read() {
    let of = |query: &str| parse(&format!("iscsi://h/iqn.a:b/0?{query}")).paths;
    assert_eq!(of(""), None);
    assert_eq!(of("paths=all"), Some(Paths::Discovered(None)));
    assert_eq!(of("paths=16"), Some(Paths::Discovered(Some(16))));
    let portal = |text: &str| Portal::parse(text).unwrap();
    let expected = vec![portal("192.0.2.2"), portal("[2001:db8::1]:860"), portal("h:3261")];
    assert_eq!(of("portals=192.0.2.2,[2001:db8::1]:860,h:3261"), Some(Paths::Portals(expected)));
    let many = vec!["h"; 16].join(",");
    for (query, words) in [
        ("paths=1", "from 2 to 16"),
        ("paths=17", "from 2 to 16"),
        ("paths=many", "write all"),
        ("portals=h,", "\"\" cannot be connected to: it has no host"),
        (&format!("portals={many}"), "at most 16 paths"),
        ("paths=all&portals=h", "exclude each other"),
    ] {
        let said = error(&format!("iscsi://h/iqn.a:b/0?{query}"));
        assert!(said.contains(words), "{query}: {said}");
    }
    assert!(error("ecl://h/iqn.a:b/0?paths=all").contains("iscsi://"));
}

#[test]
fn how_datagrams_are_carried_is_read() {
    let of = |query: &str| parse(&format!("ecl://h/iqn.a:b/0{query}")).datagrams;
    assert_eq!(of(""), DatagramOptions::default());
    assert_eq!(of("?offloads=off").offloads, lunette_reactor::Offloads::Off);
    assert_eq!(of("?offloads=on"), DatagramOptions::default());
    assert_eq!(of("?protect=headers").seal, Some(lunette_ecl::association::Seal::Headers));
    assert_eq!(of("?protect=all").seal, Some(lunette_ecl::association::Seal::Everything));
    assert!(error("ecl://h/iqn.a:b/0?protect=some").contains("write headers or all"));
    assert_eq!(of("?congestion_control=bbr").congestion_control, Some(lunette_ecl::recovery::CongestionControl::Bbr));
    assert!(error("ecl://h/iqn.a:b/0?congestion_control=reno").contains("has cubic and bbr"));
}
