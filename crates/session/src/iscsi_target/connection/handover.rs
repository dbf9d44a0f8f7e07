//! A connection at a standstill, as a value.

use std::collections::VecDeque;
use std::sync::Arc;

use lunette_handover as handover;
use lunette_handover::ByteBuf;

use super::progress::Progress;
use super::{Connection, Phase};
use crate::held::Held;
use crate::iscsi_target::directory::Directory;
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::full_feature::FullFeature;
use crate::iscsi_target::handover::InheritError;
use crate::iscsi_target::session_info::SessionInfo;
use crate::iscsi_target::transport::sender::Sender;
use crate::keys::Digest;
use crate::markers::MarkedReceiver;
use crate::receiver::Receiver;
use crate::{Time, Timers};

impl Connection {
    /// The connection as it is. Its driver knows the socket, the peer and the time of its beginning.
    pub(in crate::iscsi_target) fn hand_over(&self) -> handover::Connection {
        let mut value = handover::Connection { received: ByteBuf::from(self.undealt()), ..Default::default() };
        if let Phase::FullFeature(full) = &self.phase {
            full.hand_over(&mut value);
        }
        self.sender.hand_over(&mut value);
        value
    }

    pub(in crate::iscsi_target) fn inherit(
        from: &handover::Connection,
        session: &Arc<SessionInfo>,
        directory: &Arc<Directory>,
        timers: Timers,
        now: Time,
    ) -> Result<Self, InheritError> {
        let full = FullFeature::inherit(from, session, directory)?;
        let parameters = full.parameters();
        let digests = (parameters.header_digest == Digest::Crc32c, parameters.data_digest == Digest::Crc32c);
        let mut receiver = MarkedReceiver::from(Receiver::new(full.receive_limit()));
        receiver.configure(digests.0, digests.1, full.receive_limit());
        receiver.start_markers(None, false);
        let mut sender = Sender::inherit(from, parameters.error_recovery_level > 0)?;
        sender.outbox.configure(digests.0, digests.1);
        let mut held = Held::default();
        held.push(&from.received);
        Ok(Self {
            receiver,
            sender,
            phase: Phase::FullFeature(Box::new(full)),
            expect: Expect::Nothing,
            segment: Vec::new(),
            events: VecDeque::new(),
            held,
            resting: None,
            timers,
            deadline: None,
            last_received: now,
            gap_ends: None,
            room_due: None,
            loses_pdus: false,
            data_due: None,
            progress: Progress::default(),
        })
    }
}
