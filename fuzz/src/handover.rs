//! Any bytes in the place of the value that a server leaves to its successor.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_handover::{
    ByteBuf, Connection, Handover, Nexus, Parameters, SeenUnit, Sent, Session, Target, Unit, Window,
};
use lunette_pdu::{InitiatorTaskTag, LunField, NopOut, SerialNumber, TargetTransferTag};
use lunette_scsi::Lun;
use lunette_session::iscsi_target::{Directory, Host, Sessions, TargetNode};
use lunette_session::keys::Offer;
use lunette_session::{Authentication, Time, Timers};
use lunette_store::MemoryStore;

use crate::input::Random;

const TARGET: &str = "iqn.2026-11.example:disk";
const SERIAL: &str = "serial";

/// The most connections of a session that are driven.
const MAX_CONNECTIONS: usize = 8;

/// The most events that are asked of a connection: its bytes may be many pings.
const MAX_EVENTS: usize = 200;

/// A value that is read goes on or is refused. Then it is left again.
pub fn run(data: &[u8]) {
    let Ok(handover) = Handover::decode(data) else { return };
    let again = handover.encode().expect("what was read can be written");
    assert_eq!(Handover::decode(&again).expect("what was written can be read"), handover);
    handover.units.iter().for_each(|unit| drop(unit_of(unit)));
    for target in &handover.targets {
        let _ = TargetDevice::new(TARGET).inherit(target);
    }
    let mut sessions = Sessions::default();
    for (session, first) in handover.sessions.iter().zip((0_u32..).step_by(1000)) {
        go_on(&mut sessions, session, first);
        attach(&session.nexus);
    }
}

/// The session goes on with its bytes, and comes to rest.
fn go_on(sessions: &mut Sessions<u32>, session: &Session, first: u32) {
    let now = Time::new(Duration::from_secs(1));
    let handles: Vec<u32> = (first..).take(session.connections.len().min(MAX_CONNECTIONS)).collect();
    if handles.len() < session.connections.len() {
        return;
    }
    let Ok(key) = sessions.inherit(session, &handles, &directory(), Timers::default(), now) else { return };
    let session = sessions.get_mut(key).expect("it has just come");
    let (value, order) = session.hand_over();
    assert_eq!(order, handles);
    assert_eq!(value.connections.len(), handles.len());
    for handle in handles {
        for _ in 0..MAX_EVENTS {
            if session.next_event(handle, &mut &[][..], now).is_none() {
                break;
            }
        }
    }
    session.come_to_rest();
    let _ = (session.restless(), session.hand_over());
}

/// The nexus sees a unit again.
fn attach(nexus: &Nexus) {
    let device = TargetDevice::new(TARGET);
    device.add(Lun::ZERO, unit_of(&Unit { serial: SERIAL.into(), ..Unit::default() })).expect("the number is free");
    let device = Arc::new(device);
    let name = lunette_device::NexusName {
        initiator: "iqn.2026-11.example:host,i,0x000000000000".into(),
        target_port: format!("{TARGET},t,0x0001"),
        relative_port: 1,
    };
    let attached = device.attach_host(name, None);
    attached.inherit(nexus);
    let _ = attached.handover();
}

fn unit_of(unit: &Unit) -> Arc<LogicalUnit> {
    let store = Arc::new(MemoryStore::new(1 << 20).expect("short enough"));
    let own = LogicalUnit::new(LogicalUnitConfig::new(store, SERIAL)).expect("it can be served");
    // A refusal ends the handover.
    let _ = own.inherit(unit);
    let _ = own.handover(TARGET);
    Arc::new(own)
}

fn directory() -> Arc<Directory> {
    let target = TargetNode {
        name: TARGET.into(),
        alias: None,
        authentication: Authentication::None,
        hosts: vec![Arc::new(Host::everyone())],
        portals: Vec::new(),
        offer: Offer::default(),
        moved: None,
    };
    Arc::new(Directory { targets: vec![Arc::new(target)], discovery: Authentication::None })
}

/// A value, perhaps disturbed.
pub fn random(random: &mut Random) -> Vec<u8> {
    let sessions = (0..random.below(3)).map(|tsih| session(1 + tsih as u16, random)).collect();
    let handover = Handover { sessions, ..whole() };
    let mut bytes = handover.encode().expect("it can be written");
    if random.below(3) > 0 {
        random.disturb(&mut bytes);
    }
    bytes
}

/// Values with all their parts.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let level_2 =
        Handover { sessions: vec![session(1, &mut Random::new(2)), session(2, &mut Random::new(5))], ..whole() };
    let encode = |handover: &Handover| handover.encode().expect("it can be written");
    vec![("whole".into(), encode(&level_2)), ("empty".into(), encode(&Handover::default()))]
}

fn whole() -> Handover {
    let unit = unit_of(&Unit::default()).handover(TARGET);
    let target = Target { name: TARGET.into(), ..TargetDevice::new(TARGET).handover() };
    Handover { units: vec![unit], targets: vec![target], listeners: vec![0], files: vec![1], ..Handover::default() }
}

fn session(tsih: u16, random: &mut Random) -> Session {
    let level = random.below(3) as u32;
    let parameters = Parameters {
        header_digest: random.below(2) > 0,
        data_digest: random.below(2) > 0,
        recv_data_segment_len: 8192,
        send_data_segment_len: 8192,
        max_connections: 2,
        initial_r2t: true,
        immediate_data: true,
        max_burst_len: 65536,
        first_burst_len: 8192,
        max_outstanding_r2t: 1,
        data_pdu_in_order: true,
        data_sequence_in_order: true,
        error_recovery_level: level,
        ..Parameters::default()
    };
    let seen = SeenUnit { serial: SERIAL.into(), unit_attentions: vec![(0x29, 0)], ..SeenUnit::default() };
    Session {
        initiator_name: "iqn.2026-11.example:host".into(),
        tsih,
        target: Some(TARGET.into()),
        host: Some(Host::everyone().name.to_string()),
        portal_group: 1,
        parameters,
        window: Window { exp_cmd_sn: 7, max_cmd_sn: 7 + random.below(128) as u32, width: 128, untold: false },
        connections: (0..1 + random.below(2)).map(|cid| connection(cid as u16, parameters, random)).collect(),
        nexus: Nexus { units: vec![seen] },
        ..Session::default()
    }
}

fn connection(cid: u16, parameters: Parameters, random: &mut Random) -> Connection {
    let retained = vec![Sent::Forgotten, Sent::Pdu { bhs: ByteBuf::from(vec![0; 48]), segment: ByteBuf::new() }];
    Connection {
        cid,
        peer: (IpAddr::from([192, 0, 2, 1]), 3260).into(),
        parameters,
        stat_sn: 2,
        receive_limit: 8192,
        received: ByteBuf::from(ping()[..random.below(49)].to_vec()),
        unsent: ByteBuf::from(vec![0; random.below(100)]),
        retained: if parameters.error_recovery_level > 0 { retained } else { Vec::new() },
        ..Connection::default()
    }
}

/// A ping without digests.
fn ping() -> [u8; 48] {
    let nop = NopOut {
        immediate: true,
        lun: LunField([0; 8]),
        itt: InitiatorTaskTag(1),
        ttt: TargetTransferTag::RESERVED,
        cmd_sn: SerialNumber(7),
        exp_stat_sn: SerialNumber(2),
        data_segment_len: 0,
    };
    nop.emit()
}
