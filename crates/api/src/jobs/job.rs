//! A job, from its order to its end.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The actions that are jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Reads all blocks of a logical unit once.
    Scrub,
    /// Gives a volume the content of a snapshot.
    Rollback,
    /// Gives a clone blocks of its own.
    Flatten,
}

impl JobKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Scrub, Self::Rollback, Self::Flatten];
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scrub => "scrub",
            Self::Rollback => "rollback",
            Self::Flatten => "flatten",
        })
    }
}

/// The states of a job. The last three are ends, which no job leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// The job waits until fewer others run.
    Queued,
    /// The server works on it.
    Running,
    /// The work has done what was asked for.
    Succeeded,
    /// The work could not be done, or has found damage. `message` says why, and `result` has the findings.
    Failed,
    /// A client has ended it before.
    Cancelled,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// Whether the state is an end.
    pub fn is_end(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// An action that a client has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// The number of the job. A restart of the server begins again with 1.
    pub id: u64,
    /// The action.
    pub kind: JobKind,
    /// The path of the object that it is about, below `/v1/`.
    #[schema(example = "targets/iqn.2026-11.org.example:db/luns/0")]
    pub object: String,
    /// The target that the object belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The client that has started it: the name of its token, or its user.
    #[schema(example = "ops")]
    pub started_by: String,
    /// Where it stands.
    pub state: JobState,
    /// Whether a client wants it to end. The work stops at its next step.
    pub cancelling: bool,
    /// When it was ordered, in seconds since 1970.
    pub created: u64,
    /// When its work began, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// When it ended, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// How far the work has come.
    pub progress: Progress,
    /// The outcome as a text for people; empty before the end.
    pub message: String,
    /// The findings, which depend on the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
}

/// How far work has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Bytes that are done.
    pub done_bytes: u64,
    /// All bytes. A disk that grows meanwhile makes them more.
    pub total_bytes: u64,
}

/// An action that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOrder {
    /// The action.
    pub kind: JobKind,
    /// The path of the object that it is about, below `/v1/`.
    pub object: String,
    /// The target that the object belongs to; `None` when it belongs to none.
    pub target: Option<String>,
    /// The client that starts it.
    pub started_by: String,
    /// All bytes that there are to do.
    pub total_bytes: u64,
}

/// How the work of a job has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The work has done what was asked for.
    Succeeded {
        /// The outcome as a text for people.
        message: String,
        /// The findings.
        result: Value,
    },
    /// The work could not be done, or has found damage.
    Failed {
        /// The reason, and the remedy.
        message: String,
        /// The findings until then.
        result: Value,
    },
    /// The work has stopped because a client wanted so.
    Cancelled {
        /// The findings until then.
        result: Value,
    },
}

impl Job {
    /// A job that waits. `now`: seconds since 1970, here and below.
    pub(super) fn new(id: u64, order: JobOrder, now: u64) -> Self {
        let JobOrder { kind, object, target, started_by, total_bytes } = order;
        Self {
            id,
            kind,
            object,
            target,
            started_by,
            state: JobState::Queued,
            cancelling: false,
            created: now,
            started: None,
            ended: None,
            progress: Progress { done_bytes: 0, total_bytes },
            message: String::new(),
            result: None,
        }
    }

    /// Begins the work of a job that waits.
    pub(super) fn start(&mut self, now: u64) {
        if self.state == JobState::Queued {
            (self.state, self.started) = (JobState::Running, Some(now));
        }
    }

    /// Notes how far the work has come.
    pub(super) fn report(&mut self, progress: Progress) {
        if self.state == JobState::Running {
            self.progress = progress;
        }
    }

    /// Asks for the end: a job that waits has ended, and work that runs is to stop.
    pub(super) fn cancel(&mut self, now: u64) {
        match self.state {
            JobState::Queued => self.enter(JobState::Cancelled, "cancelled before it began", None, now),
            JobState::Running => self.cancelling = true,
            JobState::Succeeded | JobState::Failed | JobState::Cancelled => {}
        }
    }

    /// Ends the work that runs. Work that was done when a client wanted its end has succeeded nevertheless.
    pub(super) fn end(&mut self, outcome: Outcome, now: u64) {
        if self.state != JobState::Running {
            return;
        }
        match outcome {
            Outcome::Succeeded { message, result } => self.enter(JobState::Succeeded, &message, Some(result), now),
            Outcome::Failed { message, result } => self.enter(JobState::Failed, &message, Some(result), now),
            Outcome::Cancelled { result } => self.enter(JobState::Cancelled, "cancelled", Some(result), now),
        }
    }

    fn enter(&mut self, end: JobState, message: &str, result: Option<Value>, now: u64) {
        (self.state, self.ended, self.cancelling) = (end, Some(now), false);
        (self.message, self.result) = (message.into(), result.filter(|result| !result.is_null()));
    }
}

/// The job in one line.
impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, kind, object, state, message, .. } = self;
        write!(f, "job {id}, {kind} of {object}: {state}")?;
        if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
    }
}
