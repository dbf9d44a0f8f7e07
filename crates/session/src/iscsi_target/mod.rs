//! The target's side: connections, sessions, and what they know of the targets behind them.

mod connection;
mod directory;
mod event;
mod full_feature;
mod hosts;
mod login;
mod session;
mod sessions;
mod tasks;
mod text;
mod transport;

pub use crate::{Entropy, Timers};
pub use connection::{
    CommandAtOnce, CommandsAtOnce, Connection, ConnectionConfig, ConnectionMut, LoginConnection, LoginEvent, Placement,
    Transfer,
};
pub use directory::{Admission, Directory, Moved, Portal, TargetNode, Transport};
pub use event::{
    CloseReason, Command, CommandOrder, Event, KnownDigests, LogoutTicket, Response, TaskManagement,
    TaskManagementTicket, TaskTag,
};
pub use hosts::{Host, host_of};
pub use login::LoginClaims;
pub use session::{Session, SessionInfo};
pub use sessions::{AdmitRequest, Admitted, LoginTicket, SessionKey, Sessions};
pub use tasks::window::BufferShare;
