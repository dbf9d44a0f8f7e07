//! Task attributes (SAM-5 8.9).

/// The task attribute of a command, which orders the task among the others of its task set (SAM-5 8.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskAttribute {
    /// The task may run in any order.
    #[default]
    Simple,
    /// The task runs after all older and before all younger tasks.
    Ordered,
    /// The task runs before all others.
    HeadOfQueue,
    /// The task belongs to the handling of an auto contingent allegiance.
    Aca,
}
