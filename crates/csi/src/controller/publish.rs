//! The access of nodes: a host of the volume's target for each of them.

use std::collections::HashMap;
use std::thread;
use std::time::{Instant, SystemTime};

use serde_json::{Value, json};
use tonic::Status;

use super::labels;
use super::parameters::{Chap, Parameters};
use super::volumes::portal_context;
use super::{Inner, with_patience};
use crate::checks::{self, Use};
use crate::limits::{LOOK_AGAIN, MAX_NODE_ID_BYTES, SESSIONS_END};
use crate::lunette::{Host, Session};
use crate::names;
use crate::proto::v1::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse,
};

/// The key of the context of a publication that names it. A later one to the same node has another name.
pub(crate) const PUBLICATION: &str = "publication";

impl Inner {
    pub(super) fn controller_publish_volume(
        &self,
        request: &ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        Self::check_id("volume_id", &request.volume_id)?;
        let node = checks::text("node_id", &request.node_id, MAX_NODE_ID_BYTES)?;
        let usage = Use::of_call(request.volume_capability.as_ref())?;
        let (id, volume) = self.known(&request.volume_id)?;
        names::check_initiator(node).map_err(|why| Status::not_found(format!("there is no node {node:?}: {why}")))?;
        let _hold = self.busy.hold(id.to_string())?;
        let named = labels::value(&volume.labels, labels::TARGET);
        // A volume that an administrator has made has no label, and a label may have been changed.
        let serving = self.lunette.targets()?.into_iter().find(|target| target.serves(&id));
        let target = match serving {
            Some(target) => target.name,
            None if named.is_empty() => id.target(&self.settings.target_prefix),
            None => named.to_owned(),
        };
        self.serve(&id, &target)?;
        let hosts = self.lunette.target(&target)?.unwrap_or_default().hosts;
        let read_only = request.readonly || usage.is_read_only();
        let publication = match plan(&hosts, node, read_only, usage.is_of_one_node())? {
            Plan::Done(name) => name,
            Plan::Add => {
                let (name, host) = (publication(node), host(node, read_only, labels::chap(&volume.labels)));
                with_patience(|| self.lunette.create_host(&target, &name, &host))?;
                name
            }
        };
        let mut current = if self.settings.portals.is_empty() {
            HashMap::new()
        } else {
            portal_context(&self.portals(&Parameters::default())?)
        };
        // The attributes of a static volume are those of an administrator, and may name another target.
        let own = [("iqn", target), ("lun", "0".to_owned()), (PUBLICATION, publication)];
        current.extend(own.map(|(key, value)| (key.to_owned(), value)));
        Ok(ControllerPublishVolumeResponse { publish_context: current })
    }

    pub(super) fn controller_unpublish_volume(
        &self,
        request: &ControllerUnpublishVolumeRequest,
    ) -> Result<ControllerUnpublishVolumeResponse, Status> {
        Self::check_id("volume_id", &request.volume_id)?;
        let done = Ok(ControllerUnpublishVolumeResponse {});
        let (id, _) = match self.known(&request.volume_id) {
            Err(status) if status.code() == tonic::Code::NotFound => return done,
            known => known?,
        };
        let _hold = self.busy.hold(id.to_string())?;
        let node = Some(request.node_id.as_str()).filter(|node| !node.is_empty());
        // Found by their disk: labels may have been changed, or copied with the volume.
        for target in self.lunette.targets()?.iter().filter(|target| target.serves(&id)) {
            let is_meant = |host: &&Host| node.is_none_or(|node| host.initiators.iter().any(|one| one == node));
            for host in target.hosts.iter().filter(is_meant) {
                with_patience(|| self.lunette.remove_host(&target.name, &host.name))?;
            }
            // Also when the host was removed by an earlier call: its session may be there still.
            self.end_sessions(&target.name, node)?;
        }
        done
    }

    /// Waits until a node that was shut out, or all of them, have no session left. Then no command of theirs is under
    /// way, so another node may use the volume.
    fn end_sessions(&self, target: &str, node: Option<&str>) -> Result<(), Status> {
        let is_one = |session: &Session| {
            session.target.as_deref() == Some(target)
                && node.is_none_or(|node| node.eq_ignore_ascii_case(&session.initiator))
        };
        let end = Instant::now() + SESSIONS_END;
        loop {
            let Some(left) = self.lunette.sessions()?.into_iter().find(is_one) else { return Ok(()) };
            if Instant::now() >= end {
                return Err(Status::deadline_exceeded(format!(
                    "session {} of {} with {target} has not ended; end it with lunette ctl, or call again",
                    left.id, left.initiator
                )));
            }
            self.lunette.end_session(left.id)?;
            thread::sleep(LOOK_AGAIN);
        }
    }
}

/// A new name for the host of a node.
fn publication(node: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    names::host_name(node, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// The change that gives a node its access.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// The node has this host.
    Done(String),
    Add,
}

fn plan(hosts: &[Host], node: &str, read_only: bool, is_of_one_node: bool) -> Result<Plan, Status> {
    let is_of_node = |host: &&Host| host.initiators.iter().any(|initiator| initiator == node);
    if let Some(host) = hosts.iter().find(is_of_node) {
        if host.read_only == read_only {
            return Ok(Plan::Done(host.name.clone()));
        }
        let word = |read_only| if read_only { "to read" } else { "to write" };
        return Err(Status::already_exists(format!(
            "the volume is published to {node} {}, and not {}; unpublish it first",
            word(host.read_only),
            word(read_only)
        )));
    }
    match hosts.first() {
        Some(other) if is_of_one_node => Err(Status::failed_precondition(format!(
            "the volume is for one node at a time, and published to {}; unpublish it there first",
            other.initiators.join(", ")
        ))),
        _ => Ok(Plan::Add),
    }
}

fn host(node: &str, read_only: bool, (chap, mutual): (Option<Chap>, Option<Chap>)) -> Value {
    let user = |Chap { user, secret_file }: Chap| json!({ "user": user, "secret_file": secret_file });
    let mut host = json!({ "initiators": [node], "read_only": read_only });
    if let Some(chap) = chap {
        host["chap"] = json!([user(chap)]);
    }
    if let Some(mutual) = mutual {
        host["mutual_chap"] = user(mutual);
    }
    host
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn published(node: &str, read_only: bool) -> Host {
        Host { name: format!("host-of-{node}"), initiators: vec![node.into()], read_only }
    }

    #[test]
    fn a_volume_of_one_node_is_published_to_one() {
        let plan =
            |hosts: &[Host], node, read_only, one| plan(hosts, node, read_only, one).map_err(|status| status.code());
        let (a, b) = ("iqn.2026-11.org.example:a", "iqn.2026-11.org.example:b");
        assert_eq!(plan(&[], a, false, true), Ok(Plan::Add));
        assert_eq!(plan(&[published(a, false)], a, false, true), Ok(Plan::Done(format!("host-of-{a}"))));
        assert_eq!(plan(&[published(a, false)], a, true, true), Err(Code::AlreadyExists));
        assert_eq!(plan(&[published(a, false)], b, false, true), Err(Code::FailedPrecondition));
        assert_eq!(plan(&[published(a, false)], b, false, false), Ok(Plan::Add));
    }

    #[test]
    fn a_host_has_the_users_of_its_volume() {
        let chap = |user: &str| Some(Chap { user: user.into(), secret_file: format!("/s/{user}") });
        assert_eq!(
            host("iqn.x", true, (chap("nodes"), chap("target"))),
            json!({
                "initiators": ["iqn.x"], "read_only": true,
                "chap": [{ "user": "nodes", "secret_file": "/s/nodes" }],
                "mutual_chap": { "user": "target", "secret_file": "/s/target" },
            })
        );
    }
}
