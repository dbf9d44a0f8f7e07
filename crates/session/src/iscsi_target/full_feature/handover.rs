//! The full feature phase of a connection at a standstill, as a value.

use std::sync::Arc;

use lunette_handover as handover;
use lunette_pdu::Cid;

use super::functions::Functions;
use super::logout::Logout;
use super::numbering::Numbering;
use super::receive_limit::ReceiveLimit;
use super::{FullFeature, TaskTable, TextExchanges};
use crate::iscsi_target::directory::Directory;
use crate::iscsi_target::handover::{InheritError, SEGMENT_LENS, parameters_from, parameters_of};
use crate::iscsi_target::origin::Origin;
use crate::iscsi_target::session_info::SessionInfo;

impl FullFeature {
    /// Fills in what this phase knows.
    pub(crate) fn hand_over(&self, into: &mut handover::Connection) {
        into.cid = self.cid.0;
        into.local = self.local;
        into.parameters = parameters_of(&self.parameters);
        into.last_ping = self.last_ping;
        into.receive_limit = self.receive_limit.current;
    }

    pub(crate) fn inherit(
        from: &handover::Connection,
        session: &Arc<SessionInfo>,
        directory: &Arc<Directory>,
    ) -> Result<Self, InheritError> {
        let cid = Cid(from.cid);
        Ok(Self {
            session: Arc::clone(session),
            parameters: parameters_from(&from.parameters)?,
            directory: Arc::clone(directory),
            local: from.local,
            origin: Origin::from(from.peer.ip()),
            cid,
            tasks: TaskTable::default(),
            immediate_tasks: 0,
            may_keep_answers: false,
            text: TextExchanges::default(),
            receive_limit: ReceiveLimit::new(from.receive_limit.min(*SEGMENT_LENS.end())),
            last_ping: from.last_ping,
            numbering: Numbering::new(cid, session.may_have_gaps()),
            functions: Functions::default(),
            logout: Logout::default(),
            brought_data: None,
        })
    }
}
