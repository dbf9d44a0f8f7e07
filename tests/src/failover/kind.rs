//! The kinds of faults.

use clap::ValueEnum;

/// The fault of the active gateway, or of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Kind {
    /// `lunette gateway move`.
    Move,
    /// SIGTERM.
    Stop,
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT when the other one has the disk.
    Hang,
    /// Nothing passes between the gateway and the cluster until the other one has the disk. Clients reach the gateway
    /// all the same.
    Partition,
    /// SIGSTOP of the OSD, and SIGCONT.
    Osd,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [Self::Move, Self::Stop, Self::Kill, Self::Hang, Self::Partition, Self::Osd];

    /// The fault in the words of the report.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Move => "the disk is moved",
            Self::Stop => "the active gateway is stopped in order",
            Self::Kill => "the active gateway is killed",
            Self::Hang => "the active gateway hangs and wakes up",
            Self::Partition => "the active gateway loses the cluster",
            Self::Osd => "the OSD does not answer for 5 s",
        }
    }

    pub(super) fn moves_the_disk(self) -> bool {
        self != Self::Osd
    }

    /// Seconds of load: it has to go on when the fault is over.
    pub(super) fn load_s(self) -> u32 {
        match self {
            Self::Move | Self::Stop => 4,
            Self::Kill | Self::Osd => 10,
            Self::Hang | Self::Partition => 15,
        }
    }
}
