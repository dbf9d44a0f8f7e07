//! Identity: the name of the driver, its services, and whether it is ready.

use std::collections::HashMap;
use std::sync::Arc;

use tonic::Status;

use crate::lunette::Lunette;
use crate::proto::v1::identity_server::Identity as Service;
use crate::proto::v1::plugin_capability::service::Type as Has;
use crate::proto::v1::plugin_capability::volume_expansion::Type as Expansion;
use crate::proto::v1::plugin_capability::{Service as ServiceMessage, Type, VolumeExpansion};
use crate::proto::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};
use crate::rpcs::rpcs;

/// The identity of a driver.
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

struct Inner {
    driver_name: String,
    /// The server of the controller; a node knows none.
    lunette: Option<Arc<Lunette>>,
    topology: bool,
}

impl Identity {
    pub(crate) fn new(driver_name: String, lunette: Option<Arc<Lunette>>, topology: bool) -> Self {
        Self(Arc::new(Inner { driver_name, lunette, topology }))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all calls may fail")]
impl Inner {
    fn get_plugin_info(&self, _: &GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Status> {
        Ok(GetPluginInfoResponse {
            name: self.driver_name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").into(),
            manifest: HashMap::new(),
        })
    }

    /// The services of the driver as a whole: a node says that there is a controller, too.
    fn get_plugin_capabilities(
        &self,
        _: &GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Status> {
        let mut services = vec![Has::ControllerService, Has::GroupControllerService];
        services.extend(self.topology.then_some(Has::VolumeAccessibilityConstraints));
        let services = services.into_iter().map(|service| Type::Service(ServiceMessage { r#type: service.into() }));
        let expansion = Type::VolumeExpansion(VolumeExpansion { r#type: Expansion::Online.into() });
        let capability = |kind| PluginCapability { r#type: Some(kind) };
        Ok(GetPluginCapabilitiesResponse { capabilities: services.chain([expansion]).map(capability).collect() })
    }

    fn probe(&self, _: &ProbeRequest) -> Result<ProbeResponse, Status> {
        match self.lunette.as_ref().map(|lunette| lunette.answers()) {
            None | Some(Ok(())) => Ok(ProbeResponse { ready: Some(true) }),
            // A restart of the driver would not help, so it is alive, and not ready.
            Some(Err(status)) => {
                tracing::warn!("the server is not ready: {}", status.message());
                Ok(ProbeResponse { ready: Some(false) })
            }
        }
    }
}

rpcs! {
    impl Service for Identity {
        get_plugin_info: GetPluginInfoRequest => GetPluginInfoResponse;
        get_plugin_capabilities: GetPluginCapabilitiesRequest => GetPluginCapabilitiesResponse;
        probe: ProbeRequest => ProbeResponse;
    }
}
