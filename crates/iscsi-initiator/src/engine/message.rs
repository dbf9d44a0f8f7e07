//! The messages of other threads to the event loop.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lunette_pdu::{LunField, TaskManagementFunction, TaskManagementResponseCode};
use lunette_reactor::Key;
use lunette_scsi::Lun;
use lunette_session::iscsi_initiator::Recoveries;
use lunette_session::keys::Parameters;

use super::host::Wire;
use super::queue::Owner;
use crate::error::Error;
use crate::options::Options;
use crate::portal::Portal;
use crate::request::{RequestId, Submission};
use crate::session_event::Observation;

/// A session of this event loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionKey(pub(super) Key);

/// Takes the result of an operation that is not a SCSI command to its caller.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// The messages of other threads to the event loop.
pub(crate) enum Message {
    Open {
        portal: Portal,
        target: Option<String>,
        options: Arc<Options>,
        done: Done<Opened>,
    },
    Submit {
        session: SessionKey,
        submission: Submission,
    },
    Cancel {
        session: SessionKey,
        id: RequestId,
    },
    Ask {
        session: SessionKey,
        question: Question,
    },
    /// Adds one to `power_ons` for every POWER ON that the logical unit reports.
    Watch {
        session: SessionKey,
        lun: LunField,
        power_ons: Weak<AtomicU64>,
    },
    /// Asks for the counts of what was lost and recovered.
    Recoveries {
        session: SessionKey,
        done: Done<Recoveries>,
    },
    /// Asks how the session stands.
    Observe {
        session: SessionKey,
        done: Done<Observation>,
    },
    Close {
        session: SessionKey,
        done: Option<Done<()>>,
    },
    /// Rings a bell after a time.
    Alarm {
        after: Duration,
        bell: Bell,
    },
    Dialed {
        session: SessionKey,
        attempt: u64,
        result: Result<Wire, Error>,
    },
    Stop,
}

impl Message {
    /// The session of a request.
    #[inline]
    pub(super) fn submits_to(&self) -> Option<SessionKey> {
        if let Self::Submit { session, .. } = self { Some(*session) } else { None }
    }
}

/// The response to a task management request.
#[derive(Clone, Copy)]
pub(crate) struct TmfResult {
    pub(crate) response: TaskManagementResponseCode,
    /// The additional response information of QUERY ASYNCHRONOUS EVENT.
    pub(crate) information: [u8; 3],
}

/// Rings when it is dropped: when its time has come, or the event loop ends.
pub(crate) struct Bell(Option<Box<dyn FnOnce() + Send>>);

impl Bell {
    pub(crate) fn new(ring: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(ring)))
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if let Some(ring) = self.0.take() {
            ring();
        }
    }
}

/// Requests of callers other than SCSI commands.
pub(crate) enum Question {
    /// A function for a logical unit or the target, or for one task if a request is named.
    TaskManagement {
        function: TaskManagementFunction,
        lun: Lun,
        task: Option<RequestId>,
        done: Done<TmfResult>,
    },
    Ping {
        data: Vec<u8>,
        done: Done<bool>,
    },
    Text {
        pairs: Vec<(String, String)>,
        done: Done<Vec<(String, String)>>,
    },
}

impl Question {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::TaskManagement { .. } => "a task management function",
            Self::Ping { .. } => "a ping",
            Self::Text { .. } => "a text request",
        }
    }

    /// Answers a question about a task that is not at the target.
    pub(super) fn no_task(self) {
        if let Self::TaskManagement { done, .. } = self {
            done(Ok(TmfResult { response: TaskManagementResponseCode::FUNCTION_COMPLETE, information: [0; 3] }));
        }
    }

    pub(super) fn refuse(self, error: Error) {
        match self {
            Self::TaskManagement { done, .. } => done(Err(error)),
            Self::Ping { done, .. } => done(Err(error)),
            Self::Text { done, .. } => done(Err(error)),
        }
    }
}

/// A session that has just been opened.
pub(crate) struct Opened {
    /// Ends the session when it is dropped.
    pub(crate) owner: Owner,
    pub(crate) parameters: Parameters,
    pub(crate) target_alias: Option<String>,
    pub(crate) portal_group: Option<u16>,
}
