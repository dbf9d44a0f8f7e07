//! The targets and their logical units as libiscsi's tools see them.

use std::fs;

use lunette_tests::{Configured, DEFAULT_TARGET, Server, lunette, run};

#[test]
fn a_portal_lists_its_target_and_logical_unit() {
    let server = Server::start(&["mem:64M"]);
    let list = run("iscsi-ls", ["-s", &server.portal_url()]);
    let portal = server.address();
    assert!(list.succeeded().contains(&format!("Target:{DEFAULT_TARGET} Portal:{portal},1")), "{list}");
    // The tool rounds down, and subtracts a block.
    assert!(list.stdout.contains("Lun:0    Type:DIRECT_ACCESS (Size:63M)"), "{list}");
    server.stop();
}

#[test]
fn standard_inquiry_data_describe_a_disk() {
    let server = Server::start(&["mem:64M"]);
    let inquiry = run("iscsi-inq", [server.url(0)]);
    for line in [
        "Peripheral Qualifier:CONNECTED",
        "Peripheral Device Type:DIRECT_ACCESS",
        "Removable:0",
        "CmdQue:1",
        "Vendor:LUNETTE",
        "Product:DISK",
    ] {
        assert!(inquiry.succeeded().contains(line), "no {line:?} in {inquiry}");
    }
    server.stop();
}

#[test]
fn the_names_in_inquiry_data_are_configurable() {
    let keys = r#"vendor = "ACME", product = "Virtual Disk 7", revision = "2.1""#;
    let lun = format!(
        r#"
        [[portal]]
        address = "127.0.0.1:0"

        [[target]]
        name = "{DEFAULT_TARGET}"
        lun = [{{ number = 0, disk = "mem:1M", {keys} }}]
        "#
    );
    let (place, server) = Configured::serve(&lun, 1);
    let inquiry = run("iscsi-inq", [server.url(0)]);
    for line in ["Vendor:ACME", "Product:Virtual Disk 7", "Revision:2.1"] {
        assert!(inquiry.succeeded().contains(line), "no {line:?} in {inquiry}");
    }
    let told = place.change(&server, &lun.replace("2.1", "2.1.0"));
    assert!(told.contains("revision") && told.contains("1 to 4 bytes"), "{told}");
    assert!(run("iscsi-inq", [server.url(0)]).succeeded().contains("Revision:2.1"), "it stays in service");
    server.stop();
}

#[test]
fn every_vpd_page_can_be_read() {
    let server = Server::start(&["mem:64M"]);
    for (page, lines) in [
        (
            0x00,
            &["SUPPORTED_VPD_PAGES", "UNIT_SERIAL_NUMBER", "DEVICE_IDENTIFICATION", "LOGICAL_BLOCK_PROVISIONING"][..],
        ),
        (0x80, &["Unit Serial Number:["]),
        (0x83, &["(1) T10_VENDOR", "(8) SCSI_NAME_STRING", "(3) NAA", "Designator:[LUNETTE "]),
        (0xb0, &["maximum transfer length:16384", "maximum unmap block descriptor count:256"]),
        (0xb1, &["Medium Rotation Rate:1RPM"]),
        (0xb2, &["lbpu:1", "lbprz:1"]),
    ] {
        let inquiry = run("iscsi-inq", ["-e", "1", "-c", &page.to_string(), server.url(0)]);
        for line in lines {
            let text = inquiry.succeeded().to_lowercase();
            assert!(text.contains(&line.to_lowercase()), "page {page:02x}: no {line:?} in {inquiry}");
        }
    }
    server.stop();
}

#[test]
fn capacity_is_reported_in_both_block_sizes() {
    for (block_size, last_block) in [(512, 131_071), (4096, 16_383)] {
        let server = Server::start(&["mem:64M", "--block-size", &block_size.to_string()]);
        let capacity = run("iscsi-readcapacity16", [server.url(0)]);
        for line in [
            format!("RETURNED LOGICAL BLOCK ADDRESS:{last_block}\n"),
            format!("LOGICAL BLOCK LENGTH IN BYTES:{block_size}\n"),
            "Total size:67108864\n".into(),
        ] {
            assert!(capacity.succeeded().contains(&line), "no {line:?} in {capacity}");
        }
        server.stop();
    }
}

#[test]
fn a_unit_of_quanta_has_blocks_of_a_quantum_with_its_slot() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("quanta").display().to_string();
    for (disk, quantum) in [("mem:64M", 512), ("mem:64M", 4096), (&file, 1024), (&file, 2048)] {
        let create: &[&str] = if disk == file { &["--create", "64M"] } else { &[] };
        let server = Server::start(&[&[disk, "--quantum", &quantum.to_string()], create].concat());
        let capacity = run("iscsi-readcapacity16", [server.url(0)]);
        let blocks = (64 << 20) / (quantum + 64);
        for line in [
            format!("RETURNED LOGICAL BLOCK ADDRESS:{}\n", blocks - 1),
            format!("LOGICAL BLOCK LENGTH IN BYTES:{}\n", quantum + 64),
        ] {
            assert!(capacity.succeeded().contains(&line), "no {line:?} in {capacity}");
        }
        server.stop();
    }
}

#[test]
fn two_targets_and_luns_above_255_come_from_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunette.toml");
    fs::write(
        &file,
        r#"
        listen = ["127.0.0.1:0"]

        [[target]]
        name = "iqn.2026-11.org.example:one"
        lun = [
            { number = 0, disk = "mem:16M" },
            { number = 300, disk = "mem:32M" },
            { number = 16383, disk = "mem:48M", read_only = true },
        ]

        [[target]]
        name = "iqn.2026-11.org.example:two"
        lun = [{ number = 7, disk = "mem:128M" }]
        "#,
    )
    .unwrap();
    let server = Server::spawn(lunette().arg("serve").arg("--config").arg(&file), 4);
    let ends = server.urls().iter().map(|url| url.split('/').skip(3).collect::<Vec<_>>().join("/"));
    let (one, two) = ("iqn.2026-11.org.example:one", "iqn.2026-11.org.example:two");
    let expected = [format!("{one}/0"), format!("{one}/300"), format!("{one}/16383"), format!("{two}/7")];
    assert!(ends.eq(expected), "{:?}", server.urls());

    for (url, size) in server.urls().iter().zip([16_u64, 32, 48, 128]) {
        let capacity = run("iscsi-readcapacity16", [url]);
        assert!(capacity.succeeded().contains(&format!("Total size:{}\n", size << 20)), "{capacity}");
    }
    let list = run("iscsi-ls", [server.portal_url()]);
    assert!(list.succeeded().contains(one) && list.stdout.contains(two), "{list}");
    server.stop();
}

#[test]
fn ipv6_portals_are_served() {
    let server = Server::start_at("[::1]:0", &["mem:16M"], 1);
    assert!(server.url(0).starts_with("iscsi://[::1]:"), "{}", server.url(0));
    let list = run("iscsi-ls", ["-s", &server.portal_url()]);
    assert!(list.succeeded().contains(&format!("Portal:{}", server.address())), "{list}");
    let capacity = run("iscsi-readcapacity16", [server.url(0)]);
    assert!(capacity.succeeded().contains("Total size:16777216\n"), "{capacity}");
    server.stop();
}

#[test]
fn header_digests_can_be_asked_for_in_the_url() {
    let server = Server::start(&["mem:16M"]);
    let capacity = run("iscsi-readcapacity16", [server.url_with("", "?header_digest=crc32c")]);
    assert!(capacity.succeeded().contains("Total size:16777216\n"), "{capacity}");
    server.stop();
}
