use lunette_device::QuantaOptions;

use super::lun::Provisioning;
use super::*;
use crate::size::Size;

#[test]
fn asked_lengths_of_disks_are_whole_blocks() {
    let said =
        |keys: &str| parse(&format!("[[target]]\nname = \"iqn.a\"\nlun = [{{ number = 0, {keys} }}]")).map(drop).err();
    for (keys, nearest) in [
        (r#"disk = "/d", create = "2097153""#, "use 2097152 or 2097664"),
        (r#"disk = "/d", create = "2097664", block_size = 4096"#, "use 2097152 or 2101248"),
        (r#"disk = "/d", create = "0""#, "use 512"),
        (r#"disk = "mem:1000""#, "use 512 or 1024"),
    ] {
        let said = said(keys).unwrap_or_default();
        assert!(said.contains("LUN 0") && said.contains(nearest), "{keys}: {said}");
    }
    for keys in [r#"disk = "/d", create = "2097664""#, r#"disk = "mem:1M", quantum = 4096"#] {
        assert_eq!(said(keys), None, "{keys}");
    }
}

const WHOLE: &str = r#"
    listen = ["0.0.0.0:3260", "[::1]:860", "192.0.2.7"]
    state = "/var/lib/lunette/state"

    [discovery]
    chap = [{ user = "scan", secret_file = "/etc/lunette/scan" }]
    chap_algorithms = ["md5", "sha256"]

    [[target]]
    name = "iqn.2026-11.org.example:disk1"
    alias = "first"
    allow = ["iqn.2026-11.org.example:host"]
    chap = [{ user = "alice", secret_file = "/etc/lunette/alice" }]
    mutual_chap = { user = "disk", secret_file = "/etc/lunette/disk" }
    lun = [
        { number = 0, disk = "/srv/a.img", create = "10G", block_size = 4096, provisioning = "full" },
        { number = 300, disk = "mem:64M", read_only = true, removable = true, long_cdbs = true, serial = "S1" },
    ]
"#;

#[test]
fn a_whole_file_is_read() {
    let config = parse(WHOLE).unwrap();
    assert_eq!(config.listen.as_ref().unwrap()[2].addresses, ["192.0.2.7:3260".parse().unwrap()]);
    assert_eq!(config.state, Some("/var/lib/lunette/state".into()));
    let target = &config.targets[0];
    assert_eq!(target.luns[0].create, Some(Size(10 << 30)));
    assert_eq!(target.luns.iter().map(LunEntry::block_size).collect::<Vec<_>>(), [4096, 512]);
    assert_eq!(target.luns[1].number, 300);
    assert!(target.luns[1].removable && !target.luns[0].removable);
    assert_eq!(target.luns[0].provisioning, Provisioning::Full);
    assert_eq!(target.luns[1].provisioning, Provisioning::Thin);
    assert!(target.luns[1].long_cdbs && !target.luns[0].long_cdbs);
    assert_eq!(target.luns[1].disk, "mem:64M".parse().unwrap());
    assert_eq!((config.discovery.chap[0].user.as_str(), config.cores), ("scan", 1));
    assert_eq!(config.discovery.chap_algorithms.map(|set| set.to_string()), Some("sha256, md5".into()));
    assert_eq!(target.chap_algorithms, None);
}

#[test]
fn what_is_done_with_quanta_is_read_key_by_key() {
    let options = |keys: &str| {
        let lun = format!("{{ number = 0, disk = \"mem:1M\", quantum = 4096, {keys} }}");
        let config = parse(&format!("[[target]]\nname = \"iqn.a\"\nlun = [{lun}]")).unwrap();
        config.targets[0].luns[0].quanta_options()
    };
    let none = QuantaOptions::default();
    assert_eq!(options("check_quanta = true"), QuantaOptions { check_writes: true, ..none });
    assert_eq!(options("scrub_rate = \"1M\""), QuantaOptions { scrub_rate: Some(1 << 20), ..none });
    assert_eq!(options("stored_digests = true"), QuantaOptions { stored_digests: true, ..none });
    assert_eq!(options("check_quanta = false"), none);
}

#[test]
fn portals_have_the_group_of_their_table_or_group_1() {
    let portals = |head: &str| {
        let config = parse(&format!("{head}\n[[target]]\nname = \"iqn.a\"")).unwrap();
        config.portals().iter().map(|portal| (portal.address.to_string(), portal.group)).collect::<Vec<_>>()
    };
    assert_eq!(portals(""), [("127.0.0.1:3260".into(), 1)]);
    assert_eq!(portals("[[portal]]\naddress = \"[::1]\"\ngroup = 7"), [("[::1]:3260".into(), 7)]);
    let both =
        "listen = [\"192.0.2.1\"]\nportal = [{ address = \"192.0.2.2:1\" }, { address = \"192.0.2.3\", group = 2 }]";
    let expected = [("192.0.2.1:3260".into(), 1), ("192.0.2.2:1".into(), 1), ("192.0.2.3:3260".into(), 2)];
    assert_eq!(portals(both), expected);
    let every = "listen = [\"*:860\"]\nportal = [{ address = \"[fe80::1%lo]\", group = 2 }]";
    let expected = [("0.0.0.0:860".into(), 1), ("[::]:860".into(), 1), ("[fe80::1%1]:3260".into(), 2)];
    assert_eq!(portals(every), expected);
}

#[test]
fn a_zone_that_is_not_known_waits_until_it_is() {
    const TEXT: &str = "listen = [\"127.0.0.1:1\", \"[fe80::1%nowhere]:2\"]\necl = [\"[fe80::1%nowhere]:2\"]\n[[target]]\nname = \"iqn.a\"";
    assert!(parse(&format!("strict = true\n{TEXT}")).unwrap_err().contains("fe80::1%nowhere has no address here"));
    let mut config = parse(TEXT).unwrap();
    assert_eq!((config.portals().len(), config.datagram_portals().len()), (1, 0));
    assert_eq!(config.unknown_portals().count(), 2);
    let address = "[fe80::1%1]:2".parse().unwrap();
    config.take_found(&[Listen { text: "[fe80::1%nowhere]:2".into(), addresses: vec![address], unknown: None }]);
    assert_eq!(config.unknown_portals().count(), 0);
    assert_eq!((config.portals()[1].address, config.datagram_portals().len()), (address, 1));
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (wrong, right, expected) in [
        ("colour = 1\n[discovery]", "[discovery]", "line 5"),
        ("cores = 0\n[discovery]", "[discovery]", "cores = 0: a server has 1 to 64 cores"),
        ("block_sise", "block_size", "unknown field `block_sise`"),
        ("10X", "10G", "not a size"),
        ("[\"md4\"]", "[\"md5\", \"sha256\"]", "expected one of `sha3-256`, `sha256`, `sha1`, `md5`"),
        ("[]", "[\"md5\", \"sha256\"]", "no algorithm is allowed"),
        ("0.0.0:3260", "0.0.0.0:3260", "not an address"),
        ("alias = \"a\\nb\"", "alias = \"first\"", "without control characters"),
        ("user = \"a\\u0007\"", "user = \"disk\"", "without control characters"),
        ("number = 300", "number = 0", ""),
    ] {
        let error = parse(&WHOLE.replacen(right, wrong, 1)).err();
        if expected.is_empty() {
            assert!(error.unwrap().contains("LUN 300 is there twice"));
        } else {
            let error = error.unwrap();
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[test]
fn contradictions_are_refused() {
    for (text, expected) in [
        ("listen = []\n[[target]]\nname = \"iqn.a\"", "listen is empty"),
        ("portal = [{ address = \"::1\", group = 0 }]\n[[target]]\nname = \"iqn.a\"", "group 0 is reserved"),
        ("target = []", "no [[target]]"),
        ("[[target]]\nname = \"iqn.a\"\n[[target]]\nname = \"iqn.a\"", "target iqn.a is there twice"),
        ("[[target]]\nname = \"Disk\"", "not an iSCSI name"),
        ("[[target]]\nname = \"iqn.a:Disk\"", "has capitals; write \"iqn.a:disk\""),
        ("[[target]]\nname = \"iqn.a\"\nallow = [\"iqn.B\"]", "has capitals; write \"iqn.b\""),
        ("[[target]]\nname = \"iqn.a\"\nallow = [\"iqn.B C\"]", "not an iSCSI name"),
        ("[[target]]\nname = \"iqn.a\"\nmax_connections = 0", "1 to 64 connections"),
        ("[[target]]\nname = \"iqn.a\"\nmax_connections = 65", "1 to 64 connections"),
        ("[[target]]\nname = \"iqn.a\"\nmarker_interval = 63", "64 to 65535"),
        ("[[target]]\nname = \"iqn.a\"\nredirect = { to = [] }", "1 to 16 addresses"),
        ("[[target]]\nname = \"iqn.a\"\nredirect = { to = [\"host:port\"] }", "\"host:port\" is no address"),
        ("[[target]]\nname = \"iqn.a\"\nredirect = { to = [\"[fe80::1%eth0]\"] }", "leave out the zone"),
        ("[[target]]\nname = \"iqn.a\"\nsession = { max_burst_length = \"1\" }", "session: max_burst_length = 1"),
        (
            "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", quantum = 4160 }]",
            "LUN 3: quantum = 4160: write one of",
        ),
        (
            "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", block_size = 4160 }]",
            "write one of [512, 4096]",
        ),
        (
            "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", quantum = 512, block_size = 512 }]",
            "leave out block_size",
        ),
        (
            "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", check_quanta = true }]",
            "LUN 3: check_quanta is for disks of quanta",
        ),
        (
            "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a\", scrub_rate = \"1M\" }]",
            "LUN 3: scrub_rate is for disks of quanta",
        ),
        ("[[target]]\nname = \"iqn.a\"\nlun = [{ number = 16384, disk = \"/a\" }]", "LUN 16384: LUNs end at 16383"),
        (
            "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"mem:1M\", provisioning = \"full\" }]",
            "LUN 3: memory is always thin",
        ),
        (
            "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"rbd:a/b\", create = \"1G\" }]",
            "LUN 3: an image is made by rbd create",
        ),
        (
            "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 3, disk = \"/a?keys=file:/k\", create = \"1G\" }]",
            "LUN 3: an encrypted disk is made by lunette quanta format",
        ),
        ("[[target]]\nname = \"iqn.a\"\nmutual_chap = { user = \"a\", secret_file = \"b\" }", "needs a chap user"),
    ] {
        let error = parse(text).err().unwrap_or_default();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}
