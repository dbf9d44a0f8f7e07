//! The commands of one path that may still run at the target although nothing waits for them, and how they are ended.

use lunette_session::Time;

use super::action::Clearing;
use crate::limits::CLEAR_PAUSE;

#[derive(Debug, Default)]
pub(super) struct Strays {
    /// The first generation of the path whose commands may still run.
    cleared_before: u64,
    /// When an action may end them.
    clear_at: Time,
    clearing: Option<Attempt>,
    nexus: Nexus,
}

/// An action that ends strays.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) way: Clearing,
    /// Whether something was lost or given up since the action was asked for, which may have come before that.
    pub(super) is_overtaken: bool,
}

/// The nexus that may run strays, as seen from the other paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Nexus {
    /// A login reinstates it.
    #[default]
    Known,
    /// A login through another portal could not reinstate it since the path was lost.
    NotReinstated,
    /// The nexus is in a portal group that the path has left: the target was redirected.
    Left,
}

impl Strays {
    /// The path is logged in. A login in the portal group of the first one ends what was sent before `generation`.
    /// Returns whether it did.
    pub(super) fn logged_in(&mut self, generation: u64, is_same_group: bool) -> bool {
        if self.cleared_before > 0 && !is_same_group {
            self.nexus = Nexus::Left;
        }
        let is_cleared = self.nexus != Nexus::Left;
        if is_cleared {
            self.cleared_before = generation;
        }
        is_cleared
    }

    /// The path was lost, and may be cleared over another one when the network has delivered what it carries.
    pub(super) fn lost(&mut self, now: Time) {
        if self.nexus == Nexus::NotReinstated {
            self.nexus = Nexus::Known;
        }
        self.stray(now + CLEAR_PAUSE);
    }

    /// A request was given up over the path, which is up and may be cleared at once.
    pub(super) fn given_up(&mut self, now: Time) {
        self.stray(now);
    }

    fn stray(&mut self, clear_at: Time) {
        self.clear_at = clear_at;
        if let Some(clearing) = &mut self.clearing {
            clearing.is_overtaken = true;
        }
    }

    /// Whether a command of this generation may still run.
    pub(super) fn may_run(&self, generation: u64) -> bool {
        generation >= self.cleared_before
    }

    /// Whether tasks of the path are tasks of its present nexus.
    pub(super) fn is_nexus_present(&self) -> bool {
        self.nexus != Nexus::Left
    }

    /// Whether a login through another portal of the portal group may reinstate the nexus.
    pub(super) fn is_nexus_reinstatable(&self) -> bool {
        self.nexus == Nexus::Known
    }

    /// When they may be cleared; `None` while an action does that.
    pub(super) fn clear_at(&self) -> Option<Time> {
        self.clearing.is_none().then_some(self.clear_at)
    }

    pub(super) fn begin(&mut self, way: Clearing) {
        self.clearing = Some(Attempt { way, is_overtaken: false });
    }

    /// The action has ended. When it is done, and nothing came after it, all commands before `generation` have ended.
    pub(super) fn end(&mut self, is_done: bool, generation: u64, now: Time) -> Option<Attempt> {
        let attempt = self.clearing.take()?;
        self.clear_at = now + CLEAR_PAUSE;
        if is_done && !attempt.is_overtaken {
            (self.nexus, self.cleared_before) = (Nexus::Known, generation);
        } else if let Clearing::Reinstate { .. } = attempt.way
            && self.nexus != Nexus::Left
        {
            self.nexus = if is_done { Nexus::Known } else { Nexus::NotReinstated };
        }
        Some(attempt)
    }
}
