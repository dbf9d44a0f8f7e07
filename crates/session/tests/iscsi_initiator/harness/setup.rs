//! The makers of sessions and targets.

use std::sync::Arc;
use std::time::Duration;

use lunette_pdu::Isid;
use lunette_session::iscsi_initiator::SessionConfig;
use lunette_session::iscsi_target::{Host, Portal, TargetNode, Transport};
use lunette_session::keys::{Choices, Offer};
use lunette_session::{Authentication, Credentials, Entropy, Secret, Timers};

pub(crate) const TARGET: &str = "iqn.2026-11.example:disk";
pub(crate) const INITIATOR: &str = "iqn.2026-11.example:host";

pub(crate) fn timers() -> Timers {
    Timers {
        login: Duration::from_secs(15),
        ping_after: Duration::from_secs(30),
        ping_answer: Duration::from_secs(20),
        resend: Duration::from_secs(5),
        progress: Duration::from_secs(30),
    }
}

pub(crate) fn config() -> SessionConfig {
    SessionConfig {
        initiator_name: INITIATOR.into(),
        initiator_alias: None,
        target_name: Some(TARGET.into()),
        isid: Isid::random(0x0012_3456, 1),
        chap: None,
        offer: Offer { task_reporting: Choices(0b001), ..Offer::default() },
        timers: timers(),
    }
}

pub(crate) fn node(authentication: Authentication, offer: Offer) -> TargetNode {
    TargetNode {
        name: TARGET.into(),
        alias: Some("the disk".into()),
        authentication,
        hosts: vec![Arc::new(Host::everyone())],
        portals: vec![Portal { address: "192.0.2.7:3260".parse().unwrap(), group: 1, transport: Transport::Stream }],
        offer,
        moved: None,
    }
}

pub(crate) fn credentials(user: &str, secret: &str) -> Credentials {
    Credentials { user: user.into(), secret: Secret::new(secret.into()) }
}

/// Random bytes that are the same in every run; the first command number is near its wrap.
pub(crate) fn entropy(seed: u8) -> Entropy {
    let mut bytes = std::array::from_fn(|n| seed.wrapping_add(n as u8));
    bytes[33..37].copy_from_slice(&0xffff_fffe_u32.to_be_bytes());
    Entropy(bytes)
}
