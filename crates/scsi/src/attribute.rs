//! Task attributes.

/// How a task is ordered among the others of its task set (SAM-5 8.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskAttribute {
    /// Any order.
    #[default]
    Simple,
    /// After all older tasks, before all younger ones.
    Ordered,
    /// Before all others.
    HeadOfQueue,
    /// Part of the handling of an auto contingent allegiance.
    Aca,
}
