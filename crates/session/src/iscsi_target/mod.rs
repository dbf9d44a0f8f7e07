//! The target's side: connections, sessions, and what they know of the targets behind them.

mod answer;
mod connection;
mod data_out;
mod directory;
mod event;
mod full_feature;
mod login;
mod retained;
mod sender;
mod session;
mod sessions;
mod task;
mod text;
mod window;

pub use crate::{Entropy, Timers};
pub use connection::{Connection, ConnectionConfig, ConnectionMut, KnownTask, LoginConnection, LoginEvent};
pub use directory::{Directory, Moved, Portal, TargetNode};
pub use event::{
    CloseReason, Command, CommandOrder, Event, LogoutTicket, Response, TaskManagement, TaskManagementTicket, TaskTag,
};
pub use full_feature::MovedTask;
pub use session::{Session, SessionInfo};
pub use sessions::{AdmitRequest, Admitted, Place, SessionKey, Sessions};
