//! The state that a nexus leaves to the process that takes its place.
//!
//! | field of an `I_T_L` nexus | where the successor has it from |
//! |---|---|
//! | numbers, host, LUN, functions of SAM-5 | the session, and the configuration |
//! | pending unit attentions, PREVENT | handed over, where the same unit is at the LUN |
//! | access state, write protection | the device; compared |
//! | results of copies | handed over, where the same unit is at the LUN |
//! | counters | handed over with the unit |
//!
//! The nexus learns of changes of the configuration between both processes as if it had been attached meanwhile:
//!
//! | change | unit attention |
//! |---|---|
//! | a LUN has come or gone | REPORTED LUNS DATA HAS CHANGED, on the units that stay |
//! | another unit is at the LUN | POWER ON OCCURRED, INQUIRY DATA HAS CHANGED |
//! | what INQUIRY tells | INQUIRY DATA HAS CHANGED |
//! | the store is there again | MEDIUM MAY HAVE CHANGED |
//! | the number of blocks | CAPACITY DATA HAS CHANGED |
//! | whether writes are refused | MODE PARAMETERS CHANGED |
//! | the access state of a port group | ASYMMETRIC ACCESS STATE CHANGED |

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use lunette_handover as handover;
use lunette_handover::SeenUnit;
use lunette_scsi::{AdditionalSense, Lun};

use super::Nexus;
use crate::unit::itl_nexus::ItlNexus;

/// Whether the medium is removable.
const RMB: [&str; 2] = ["fixed", "removable"];

impl Nexus {
    /// The state for its successor: the news of each unit that its initiator has yet to hear.
    pub fn handover(&self) -> handover::Nexus {
        let units = self.state.itl_nexuses();
        handover::Nexus { units: units.iter().map(|itl| self.seen(itl)).collect() }
    }

    /// Goes on from what the predecessor of the nexus has left, at once after it was attached.
    pub fn inherit(&self, from: &handover::Nexus) {
        let units = self.state.itl_nexuses();
        let before: BTreeMap<Lun, &SeenUnit> = from.units.iter().map(|seen| (Lun::decode(seen.lun), seen)).collect();
        let luns_change = !units.iter().map(|itl| &itl.lun).eq(before.keys());
        for itl in &units {
            let Some(was) = before.get(&itl.lun) else { continue };
            let is = self.seen(itl);
            let raise = |is_due: bool, code| {
                if is_due {
                    itl.unit_attentions.raise(code);
                }
            };
            let is_same = was.serial == is.serial;
            if is_same {
                let code = |(asc, ascq): &(u8, u8)| AdditionalSense { asc: *asc, ascq: *ascq };
                itl.unit_attentions.inherit(was.unit_attentions.iter().map(code));
                itl.prevents_removal.store(was.prevents_removal, Ordering::Release);
                itl.copy_records.inherit(&was.copies);
                raise(luns_change, AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
                // A store without blocks is not there, or another gateway has it.
                let both_there = was.blocks != 0 && is.blocks != 0;
                raise(both_there && was.blocks != is.blocks, AdditionalSense::CAPACITY_DATA_CHANGED);
                raise(was.read_only != is.read_only, AdditionalSense::MODE_PARAMETERS_CHANGED);
                raise(was.access_states != is.access_states, AdditionalSense::ACCESS_STATE_CHANGED);
            }
            raise(!is_same || was.inquiry != is.inquiry, AdditionalSense::INQUIRY_DATA_CHANGED);
            raise(was.not_ready && !is.not_ready, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
        }
    }

    fn seen(&self, itl: &ItlNexus) -> SeenUnit {
        let (unit, config) = (&itl.unit, itl.unit.config());
        let configured = config.read_only || unit.capabilities().read_only;
        let states = self.device.access_states_by_group(itl.unit_lun);
        SeenUnit {
            lun: itl.lun.encode(),
            serial: config.serial.clone(),
            unit_attentions: itl.unit_attentions.pending().iter().map(|code| (code.asc, code.ascq)).collect(),
            prevents_removal: itl.prevents_removal.load(Ordering::Acquire),
            not_ready: !unit.is_ready(),
            blocks: unit.blocks(),
            inquiry: [&*config.vendor, &config.product, &config.revision, RMB[usize::from(config.removable)]].join("/"),
            read_only: configured || itl.read_only.load(Ordering::Relaxed),
            copies: itl.copy_records.handover(),
            access_states: states.into_iter().map(|(group, state)| (group, state.code())).collect(),
        }
    }
}
