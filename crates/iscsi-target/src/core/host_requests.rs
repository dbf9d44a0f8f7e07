//! Logins that wait for a host of their own.

use lunette_pdu::LoginStatus;
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::AdmitRequest;

use super::Core;
use crate::sessions::{HostMaker, HostRequest};

/// The logins that wait, and what makes their hosts.
pub(super) struct HostRequests {
    maker: Option<HostMaker>,
    waiting: Vec<(ConnectionId, AdmitRequest)>,
}

impl HostRequests {
    pub(super) fn new(maker: Option<HostMaker>) -> Self {
        Self { maker, waiting: Vec::new() }
    }
}

impl Core {
    /// Lets a login of a template's initiator wait for a host.
    pub(super) fn await_host(&mut self, id: ConnectionId, request: AdmitRequest) {
        let (Some(maker), Some(wanted)) = (&self.host_requests.maker, wanted(&request)) else {
            return self.refuse(id, LoginStatus::AUTHORIZATION_FAILURE);
        };
        maker(wanted);
        let connections = &self.connections;
        // The time of some may be over.
        self.host_requests.waiting.retain(|(id, _)| connections.get(*id).is_some());
        self.host_requests.waiting.push((id, request));
    }

    /// Goes on with the logins that have a host, now that something else is served.
    pub(super) fn take_hosts(&mut self, cx: &mut Context<'_>) {
        for (id, mut request) in std::mem::take(&mut self.host_requests.waiting) {
            if self.connections.get(id).is_none() {
                continue;
            }
            match self.recheck(id, &mut request) {
                Ok(()) if request.template().is_some() => self.host_requests.waiting.push((id, request)),
                Ok(()) => self.admit_here(cx, id, request),
                Err(status) => self.refuse(id, status),
            }
        }
    }

    /// Refuses the logins that wait for a host which cannot be made now.
    pub(super) fn refuse_host(&mut self, refused: &HostRequest) {
        let is_it = |(_, request): &mut (ConnectionId, AdmitRequest)| wanted(request).as_ref() == Some(refused);
        let logins: Vec<_> = self.host_requests.waiting.extract_if(.., is_it).collect();
        for (id, _) in logins {
            self.refuse(id, LoginStatus::SERVICE_UNAVAILABLE);
        }
    }
}

/// The host that a login waits for.
fn wanted(request: &AdmitRequest) -> Option<HostRequest> {
    Some(HostRequest {
        target: request.target()?.name.clone(),
        template: request.template()?.name.to_string(),
        initiator: request.initiator_name.clone(),
    })
}
