//! The storage plugin for Proxmox VE: its own tests, over a server with a pool.

use std::time::Duration;

use lunette_tests::run_at_most;

use crate::contrib::{EMPTY, Running, program_in};

#[test]
fn the_plugin_has_disks_snapshots_and_clones() {
    let running = Running::start();
    // With taint checks, as in the daemons of Proxmox VE.
    let mut prove = program_in("proxmox", "prove");
    prove.args(["-T", "--comments", "t"]).envs([
        ("LUNETTE_TEST_URL", running.url.clone()),
        ("LUNETTE_TEST_TOKEN_FILE", running.file("token")),
        ("LUNETTE_TEST_OPERATE_TOKEN_FILE", running.file("operate-token")),
        ("LUNETTE_TEST_CA", running.file("certificate.pem")),
        ("LUNETTE_TEST_PORTAL", running.server.address().to_string()),
        ("LUNETTE_TEST_TARGET", EMPTY.into()),
        ("LUNETTE_TEST_POOL", "tank".into()),
    ]);
    let ran = run_at_most(Duration::from_mins(2), &mut prove);
    assert!(ran.succeeded().contains("Files=4, "), "a test program is missing: {ran}");
    running.server.stop();
}
