//! Which cells each figure has, and which of them a campaign measures how often.

use super::Size;
use super::spec::{Carrier, Data, Spec, Wire};

/// A line of a figure: what carries which data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct System {
    pub(super) name: &'static str,
    pub(super) carrier: Carrier,
    pub(super) data: Data,
}

const fn system(name: &'static str, carrier: Carrier, data: Data) -> System {
    System { name, carrier, data }
}

/// Bytes of the quanta that the paper has measured.
pub(super) const QUANTUM: Data = Data::Pdus(4096);
const TCP: Carrier = Carrier::Iscsi { connections: 1 };

pub(super) const ISCSI: System = system("iSCSI", TCP, Data::Plain);
pub(super) const ECL: System = system("ECL", Carrier::Ecl, QUANTUM);
pub(super) const ECL_LONG: System = system("ECL, long packets", Carrier::Ecl, Data::Plain);
pub(super) const FRAMES: System = system("ECL over Ethernet", Carrier::Frames, QUANTUM);
pub(super) const LOCAL: System = system("local", Carrier::Local, Data::Plain);

/// Figure 5.
pub(super) const SNAPSHOT: [System; 6] =
    [LOCAL, ECL, ECL_LONG, FRAMES, ISCSI, system("tgt and libiscsi", Carrier::Tgt, Data::Plain)];
pub(super) const SNAPSHOT_MTU: u16 = 16_000;

/// Figures 6 to 9.
pub(super) const SWEEP: [System; 4] = [ECL, ECL_LONG, FRAMES, ISCSI];
/// Every system takes packets of 576 bytes; the paper's figures begin at 500.
const MTUS_OFF: [u16; 10] = [576, 1000, 1500, 3000, 4000, 4300, 5000, 6000, 9000, 16_000];
/// With offloads the MTU matters less, so there are fewer.
const MTUS_ON: [u16; 4] = [1500, 4300, 9000, 16_000];
/// ECL's first packet has 1,232 bytes, beside IP and UDP.
pub(super) const LEAST_ECL_MTU: u16 = 1280;
/// The MTU of today's networks for storage.
pub(super) const JUMBO: u16 = 9000;

/// Figure 10.
pub(super) const QUANTA: [u16; 4] = [512, 1024, 2048, 4096];
pub(super) const QUANTA_MTU: u16 = 5000;
pub(super) const QUANTA_CARRIERS: [(&str, Carrier); 2] =
    [("ECL", Carrier::Ecl), ("ECL over Ethernet", Carrier::Frames)];

pub(super) const ISCSI_QUANTA: System = system("iSCSI with encrypted quanta", TCP, Data::Encrypted);
pub(super) const TUNNEL: System = system("iSCSI inside WireGuard", Carrier::WireGuard, Data::Plain);
pub(super) const ECL_QUANTA: System = system("ECL with encrypted quanta", Carrier::Ecl, Data::Encrypted);
/// The systems that show the cost of encryption, at [`JUMBO`].
pub(super) const ENCRYPTION: [System; 7] = [
    ISCSI,
    ISCSI_QUANTA,
    TUNNEL,
    ECL_LONG,
    ECL_QUANTA,
    system("ECL over Ethernet with encrypted quanta", Carrier::Frames, Data::Encrypted),
    system("ECL with sealed packets", Carrier::Ecl, Data::Sealed),
];

pub(super) const ECL_BBR: System = system("ECL with BBR", Carrier::EclBbr, Data::Plain);
/// The systems that show the effect of loss.
pub(super) const DISTANT: [System; 4] =
    [ISCSI, system("iSCSI, 8 connections", Carrier::Iscsi { connections: 8 }, Data::Plain), ECL_LONG, ECL_BBR];
pub(super) const LOSSES: [(u32, f64); 4] = [(10, 0.1), (10, 1.0), (50, 0.1), (50, 1.0)];

/// The systems that share a bottleneck with one TCP connection.
pub(super) const SHARING: [System; 3] = [ISCSI, ECL_LONG, ECL_BBR];
pub(super) const SHARED_MS: [u32; 2] = [10, 50];

/// The MTUs of the sweep.
pub(super) fn mtus(offloads: bool) -> &'static [u16] {
    if offloads { &MTUS_ON } else { &MTUS_OFF }
}

impl System {
    pub(super) fn on(self, wire: Wire, write: bool) -> Spec {
        Spec { wire, carrier: self.carrier, data: self.data, write }
    }

    /// On an Ethernet. `None` where it does not work.
    pub(super) fn at(self, mtu: u16, offloads: bool, write: bool) -> Option<Spec> {
        // What the local end does has no network.
        let (mtu, offloads) = if self.carrier == Carrier::Local { (SNAPSHOT_MTU, false) } else { (mtu, offloads) };
        let works = !(self.carrier.is_ecl() && mtu < LEAST_ECL_MTU || write && self.carrier == Carrier::Tgt);
        works.then(|| self.on(Wire::Ethernet { mtu, offloads }, write))
    }
}

const BOTH: [bool; 2] = [false, true];

pub(super) fn snapshot() -> Vec<Spec> {
    let of = |on| SNAPSHOT.iter().filter_map(move |system| system.at(SNAPSHOT_MTU, on, false));
    BOTH.into_iter().flat_map(of).collect()
}

pub(super) fn sweep() -> Vec<Spec> {
    let points = BOTH.into_iter().flat_map(|on| mtus(on).iter().map(move |mtu| (on, *mtu)));
    let kinds = points.flat_map(|(on, mtu)| BOTH.map(|write| (on, mtu, write)));
    kinds.flat_map(|(on, mtu, write)| SWEEP.iter().filter_map(move |system| system.at(mtu, on, write))).collect()
}

pub(super) fn quanta() -> Vec<Spec> {
    let kinds = BOTH.into_iter().flat_map(|on| BOTH.map(|write| (on, write)));
    let lines = kinds.flat_map(|(on, write)| QUANTA_CARRIERS.map(|(name, carrier)| (on, write, name, carrier)));
    let of = |(on, write, name, carrier)| {
        QUANTA.into_iter().filter_map(move |len| system(name, carrier, Data::Pdus(len)).at(QUANTA_MTU, on, write))
    };
    lines.flat_map(of).collect()
}

pub(super) fn encryption() -> Vec<Spec> {
    let kinds = BOTH.into_iter().flat_map(|on| BOTH.map(|write| (on, write)));
    kinds.flat_map(|(on, write)| ENCRYPTION.iter().filter_map(move |system| system.at(JUMBO, on, write))).collect()
}

pub(super) fn distant() -> Vec<Spec> {
    let kinds = LOSSES.into_iter().flat_map(|loss| BOTH.map(|write| (loss, write)));
    let wire = |(round_trip_ms, loss_percent)| Wire::Distance { round_trip_ms, loss_percent };
    kinds.flat_map(|(loss, write)| DISTANT.map(|system| system.on(wire(loss), write))).collect()
}

pub(super) fn shared() -> Vec<Spec> {
    let wire = |round_trip_ms| Wire::Shared { round_trip_ms };
    SHARED_MS.into_iter().flat_map(|ms| SHARING.map(|system| system.on(wire(ms), false))).collect()
}

/// All figures.
pub(super) fn all() -> [Vec<Spec>; 6] {
    [snapshot(), sweep(), quanta(), encryption(), distant(), shared()]
}

/// Whether a campaign of that size measures a cell.
fn is_chosen(spec: &Spec, size: Size) -> bool {
    match (size, spec.wire) {
        (Size::Full, _) => true,
        (Size::Quick, Wire::Ethernet { mtu, offloads }) => {
            let is_quantum = mtu == QUANTA_MTU && matches!(spec.data, Data::Pdus(_));
            !offloads && (!spec.write && mtu != QUANTA_MTU && mtus(true).contains(&mtu) || spec.write && is_quantum)
        }
        (Size::Quick, Wire::Distance { round_trip_ms, loss_percent }) => {
            !spec.write && round_trip_ms == 50 && loss_percent < 1.0
        }
        (Size::Quick, Wire::Shared { round_trip_ms }) => round_trip_ms == 10,
        (Size::Smallest, Wire::Ethernet { mtu, offloads }) => {
            let is_quantum = mtu == QUANTA_MTU && spec.data == Data::Pdus(QUANTA[0]);
            !offloads && !spec.write && spec.carrier != Carrier::Tgt && (mtu == SNAPSHOT_MTU || is_quantum)
        }
        (Size::Smallest, Wire::Distance { round_trip_ms, loss_percent }) => {
            !spec.write && round_trip_ms == 10 && loss_percent < 1.0 && spec.carrier == Carrier::Ecl
        }
        (Size::Smallest, Wire::Shared { .. }) => false,
    }
}

/// The cells of a campaign of that size, each once.
pub(super) fn chosen(size: Size) -> Vec<Spec> {
    let mut specs: Vec<Spec> = Vec::new();
    for spec in all().into_iter().flatten().filter(|spec| is_chosen(spec, size)) {
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    specs
}

/// Whether a figure that is quoted comes from the cell: these are measured more often.
pub(super) fn is_key(spec: &Spec) -> bool {
    let is_plain = matches!(spec.data, Data::Plain | Data::Pdus(_)) && spec.carrier != Carrier::WireGuard;
    is_plain && matches!(spec.wire, Wire::Ethernet { mtu: JUMBO | SNAPSHOT_MTU, .. })
}
