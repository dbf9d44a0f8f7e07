//! Why a command was refused.

/// Why a command was refused, in the words of targetcli and rtslib where they have some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    text: String,
    is_done_already: bool,
}

impl Failure {
    /// A refusal.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_done_already: false }
    }

    /// A refusal to make what is there, or to remove what is not. Callers repeat their scripts, so it does not fail
    /// a script.
    pub(crate) fn done_already(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_done_already: true }
    }

    /// Whether things are as the command wants them.
    pub(crate) fn is_done_already(&self) -> bool {
        self.is_done_already
    }
}
