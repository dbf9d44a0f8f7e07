//! Freezes of the simulated target: some of its logical units stand still for a while.

use std::collections::BTreeSet;
use std::sync::Arc;

use lunette_scsi::Lun;
use lunette_target::stepped::SteppedServer;
use lunette_target::{Frozen, LogicalUnit, PendingFreeze, TargetDevice};

use crate::env::{Env, Happening};
use crate::store::Stores;

/// The freeze of a target, one at a time.
#[derive(Default)]
pub(crate) struct Freeze(State);

#[derive(Default)]
enum State {
    #[default]
    None,
    /// Stores may still be at work.
    Pending { freeze: PendingFreeze, units: BTreeSet<usize> },
    /// Stores stand still.
    Quiet { _frozen: Frozen },
}

impl Freeze {
    /// Freezes units that are drawn, and enters the time of their thaw.
    pub(crate) fn begin(&mut self, stepped: &SteppedServer, device: &TargetDevice, stores: &mut Stores, env: &mut Env) {
        let numbered = |(lun, unit): (Lun, Arc<LogicalUnit>)| Some((usize::from(lun.number()?), unit));
        let all = device.units().into_iter().filter_map(numbered);
        // The first one is what most commands go to.
        let drawn = all.filter(|(number, _)| *number == 0 || env.dice.coin());
        let (numbers, units): (BTreeSet<usize>, Vec<_>) = drawn.unzip();
        let at = env.now + env.dice.micros(0, env.scenario.load.freeze_us);
        env.enter(at, Happening::Thaw);
        env.note(|| format!("units {numbers:?} are frozen"));
        match stepped.control().begin_freeze(&units) {
            Ok(freeze) => {
                stores.freeze(&numbers);
                self.0 = State::Pending { freeze, units: numbers };
            }
            Err(error) => env.fail(format!("a freeze is refused: {error}")),
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self.0, State::None)
    }

    /// Looks whether all stores have ended what they had begun. Tells whether that is news.
    pub(crate) fn look(&mut self, stores: &Stores, env: &mut Env) -> bool {
        let (freeze, units) = match std::mem::take(&mut self.0) {
            State::Pending { freeze, units } => (freeze, units),
            other => {
                self.0 = other;
                return false;
            }
        };
        match freeze.poll() {
            Ok(frozen) => {
                env.note(|| "the frozen units are quiet".into());
                env.tally.happening("freezes");
                if let Some(unit) = units.into_iter().find(|unit| stores.is_at_work(*unit)) {
                    env.fail(format!("unit {unit} is frozen, and its store still works"));
                }
                self.0 = State::Quiet { _frozen: frozen };
                true
            }
            Err(Some(freeze)) => {
                self.0 = State::Pending { freeze, units };
                false
            }
            // The target has ended.
            Err(None) => false,
        }
    }

    /// Lets the units go on, whether their stores were quiet by now or not.
    pub(crate) fn end(&mut self, stores: &mut Stores, env: &mut Env) {
        stores.thaw();
        match std::mem::take(&mut self.0) {
            State::None => {}
            State::Pending { .. } => env.tally.happening("freezes given up"),
            State::Quiet { .. } => env.note(|| "the frozen units go on".into()),
        }
    }
}
