//! The driver for Kubernetes over a pool in Ceph. What does not depend on the engine is tested with a pool on XFS.

use lunette_tests::sanity::{Sanity, check_sanity};
use lunette_tests::{Ceph, Configured};

#[test]
fn csi_sanity_passes_over_a_pool_in_ceph() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    let place = Configured::new();
    // The target is there for its address alone.
    let server = place.start(
        &format!(
            "listen = [\"127.0.0.1:0\"]\nstate = \"@/state\"\napi = {{ listen = [\"unix:@/api.sock\"] }}\n\
             [[pool]]\nname = \"tank\"\nplace = {:?}\n\
             [[target]]\nname = \"iqn.2026-11.org.example:other\"\nlun = [{{ number = 0, disk = \"mem:1M\" }}]",
            namespace.url()
        ),
        1,
    );
    check_sanity(&place, server.address(), &[Sanity::ALL]);
}
