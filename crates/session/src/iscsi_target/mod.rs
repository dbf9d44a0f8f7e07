//! The target's side: connections, sessions, and what they know of the targets behind them.

mod admit_request;
mod connection;
mod connection_config;
mod directory;
mod event;
mod expect;
mod full_feature;
mod handover;
mod hosts;
mod login;
mod origin;
mod session;
mod session_info;
mod sessions;
mod tasks;
mod text;
mod transport;
mod turn_context;
mod violation;

pub use crate::{Entropy, Timers};
pub use admit_request::AdmitRequest;
pub use connection::{
    CommandAtOnce, CommandsAtOnce, Connection, ConnectionMut, LoginConnection, LoginEvent, Placement, Transfer,
};
pub use connection_config::ConnectionConfig;
pub use directory::{Admission, Directory, Moved, Portal, TargetNode, Transport};
pub use event::{
    CloseReason, Command, CommandOrder, Event, KnownDigests, LogoutTicket, Response, TaskManagement,
    TaskManagementTicket, TaskTag,
};
pub use handover::InheritError;
pub use hosts::{Host, host_of};
pub use login::LoginClaims;
pub use origin::{Origin, is_node_name};
pub use session::Session;
pub use session_info::SessionInfo;
pub use sessions::{Admitted, LoginTicket, SessionKey, Sessions};
pub use tasks::window::BufferShare;
