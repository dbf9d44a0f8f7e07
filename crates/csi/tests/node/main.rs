//! The node over a model of its system: which programs it runs, and what is left when it has ended.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod machine;

use std::collections::HashMap;
use std::path::PathBuf;

use lunette_csi::proto::v1::node_server::Node as _;
use lunette_csi::proto::v1::volume_capability::access_mode::Mode;
use lunette_csi::proto::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use lunette_csi::proto::v1::{
    CapacityRange, NodeExpandVolumeRequest, NodeGetInfoRequest, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
    VolumeCapability,
};
use lunette_csi::{Node, NodeSettings};
use machine::{INITIATOR, Machine};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::{Code, Request};

const IQN: &str = "iqn.2026-11.org.example:tank:a";
const VOLUME: &str = "tank/a";

struct Trial {
    runtime: Runtime,
    machine: Machine,
    folder: TempDir,
    fs_type: Option<&'static str>,
    mode: Mode,
    portals: &'static str,
    secrets: HashMap<String, String>,
    has_chap: bool,
    publication: Option<&'static str>,
}

impl Trial {
    fn new(fs_type: Option<&'static str>) -> Self {
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            machine: Machine::default(),
            folder: tempfile::tempdir().unwrap(),
            fs_type,
            mode: Mode::SingleNodeWriter,
            portals: "[]",
            secrets: HashMap::new(),
            has_chap: false,
            publication: None,
        }
    }

    /// A driver on the node, as after a restart.
    fn node(&self) -> Node {
        let settings = NodeSettings {
            driver_name: "csi.example.org".into(),
            node_id: None,
            state: self.folder.path().join("staged"),
            reachable_pools: vec!["tank".into()],
            max_volumes: 7,
        };
        Node::new(settings, self.machine.clone())
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn capability(&self) -> VolumeCapability {
        let mount =
            |fs_type: &str| AccessType::Mount(MountVolume { fs_type: fs_type.into(), ..MountVolume::default() });
        let access_type = Some(self.fs_type.map_or(AccessType::Block(BlockVolume {}), mount));
        VolumeCapability { access_mode: Some(AccessMode { mode: self.mode.into() }), access_type }
    }

    fn stage(&self) -> Result<(), Code> {
        let context = [("iqn", IQN), ("targetPortal", "192.0.2.1:3260"), ("portals", self.portals), ("lun", "0")];
        let chap = [("sessionCHAPAuth", if self.has_chap { "true" } else { "false" })];
        let context = context.into_iter().chain(chap).map(|(key, value)| (key.to_owned(), value.to_owned()));
        let request = NodeStageVolumeRequest {
            volume_id: VOLUME.into(),
            staging_target_path: self.path("staging"),
            volume_capability: Some(self.capability()),
            volume_context: context.collect(),
            publish_context: self.publication.map(|name| ("publication".into(), name.into())).into_iter().collect(),
            secrets: self.secrets.clone(),
        };
        let done = self.runtime.block_on(self.node().node_stage_volume(Request::new(request)));
        done.map(drop).map_err(|status| status.code())
    }

    fn publish(&self, name: &str, readonly: bool) -> Result<(), Code> {
        let request = NodePublishVolumeRequest {
            volume_id: VOLUME.into(),
            staging_target_path: self.path("staging"),
            target_path: self.path(name),
            volume_capability: Some(self.capability()),
            readonly,
            ..NodePublishVolumeRequest::default()
        };
        let done = self.runtime.block_on(self.node().node_publish_volume(Request::new(request)));
        done.map(drop).map_err(|status| status.code())
    }

    fn unpublish(&self, name: &str) {
        let request = NodeUnpublishVolumeRequest { volume_id: VOLUME.into(), target_path: self.path(name) };
        self.runtime.block_on(self.node().node_unpublish_volume(Request::new(request))).unwrap();
    }

    fn unstage(&self) -> Result<(), Code> {
        let request = NodeUnstageVolumeRequest { volume_id: VOLUME.into(), staging_target_path: self.path("staging") };
        let done = self.runtime.block_on(self.node().node_unstage_volume(Request::new(request)));
        done.map(drop).map_err(|status| status.code())
    }

    fn stats(&self, name: &str) -> Result<NodeGetVolumeStatsResponse, Code> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: VOLUME.into(),
            volume_path: self.path(name),
            ..NodeGetVolumeStatsRequest::default()
        };
        let done = self.runtime.block_on(self.node().node_get_volume_stats(Request::new(request)));
        done.map(tonic::Response::into_inner).map_err(|status| status.code())
    }

    fn expand(&self, name: &str, required_bytes: i64) -> Result<i64, Code> {
        let request = NodeExpandVolumeRequest {
            volume_id: VOLUME.into(),
            volume_path: self.path(name),
            capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
            ..NodeExpandVolumeRequest::default()
        };
        let done = self.runtime.block_on(self.node().node_expand_volume(Request::new(request)));
        done.map(|done| done.into_inner().capacity_bytes).map_err(|status| status.code())
    }

    fn mounted(&self) -> Vec<PathBuf> {
        self.machine.mounted()
    }
}

#[test]
fn a_volume_goes_from_a_login_to_a_logout_and_leaves_nothing() {
    let trial = Trial::new(Some("xfs"));
    trial.stage().unwrap();
    let staging = trial.path("staging");
    let node = "iscsiadm -m node -T iqn.2026-11.org.example:tank:a -p 192.0.2.1:3260 -I default";
    assert_eq!(
        trial.machine.take_ran(),
        [
            format!("{node} -o new"),
            format!("{node} -o update -n node.startup -v manual"),
            format!("{node} -o update -n node.session.initial_login_retry_max -v 2"),
            format!("{node} -o update -n node.session.auth.authmethod -v None"),
            format!("{node} -l"),
            "blkid -p -s TYPE -s PTTYPE -o export /dev/sdb".into(),
            "mkfs.xfs -q /dev/sdb".into(),
            format!("mount -t xfs -o nouuid /dev/sdb {staging}"),
            format!("xfs_growfs -d {staging}"),
        ]
    );
    trial.stage().unwrap();
    assert!(!trial.machine.take_ran().iter().any(|ran| ran.starts_with("mkfs") || ran.starts_with("mount")));
    for name in ["pod", "pod", "pod-2"] {
        trial.publish(name, false).unwrap();
    }
    assert_eq!(trial.mounted(), ["staging", "pod", "pod-2"].map(|name| PathBuf::from(trial.path(name))));
    assert_eq!(trial.unstage(), Err(Code::FailedPrecondition), "it is published");
    assert_eq!(trial.publish("pod", true), Err(Code::AlreadyExists));
    for name in ["pod", "pod", "pod-2"] {
        trial.unpublish(name);
        assert!(!PathBuf::from(trial.path(name)).exists());
    }
    for _ in 0..2 {
        trial.unstage().unwrap();
        assert_eq!((trial.mounted(), trial.machine.knows(IQN)), (Vec::new(), false));
    }
    assert_eq!(std::fs::read_dir(trial.path("staged")).unwrap().count(), 0);
    // What was written is there again.
    trial.stage().unwrap();
    assert!(!trial.machine.take_ran().iter().any(|ran| ran.starts_with("mkfs")));
}

#[test]
fn a_disk_with_something_else_is_never_made_blank() {
    for (found, code) in [("ext4", Code::FailedPrecondition), ("LVM2_member", Code::FailedPrecondition)] {
        let trial = Trial::new(Some("xfs"));
        trial.machine.state().file_systems.insert(IQN.into(), found.into());
        assert_eq!(trial.stage(), Err(code), "{found}");
        assert_eq!(trial.machine.state().file_systems[IQN], found);
        // The caller gives up, and nothing stays.
        trial.unstage().unwrap();
        assert!(!trial.machine.knows(IQN));
    }
    let trial = Trial { mode: Mode::SingleNodeReaderOnly, ..Trial::new(Some("ext4")) };
    assert_eq!(trial.stage(), Err(Code::FailedPrecondition), "a blank disk that may only be read");
    let trial = Trial::new(Some("ext4"));
    trial.machine.state().unreadable = true;
    assert_eq!(trial.stage(), Err(Code::Unavailable), "blkid ends as for a blank disk");
    trial.machine.state().unreadable = false;
    trial.machine.state().raw.insert(IQN.into());
    assert_eq!(trial.stage(), Err(Code::FailedPrecondition), "data that blkid does not know");
    assert!(!trial.machine.take_ran().iter().any(|ran| ran.starts_with("mkfs")));
}

#[test]
fn an_interrupted_file_system_is_made_again_in_the_same_publication_alone() {
    for fs_type in ["ext4", "xfs"] {
        let interrupted = || {
            let trial = Trial { publication: Some("first"), ..Trial::new(Some(fs_type)) };
            trial.machine.state().interrupts_makers = true;
            assert_eq!(trial.stage(), Err(Code::Internal));
            trial.machine.state().interrupts_makers = false;
            trial
        };
        // Whether the volume is taken from the node or not, no other one has had it.
        for is_unstaged in [false, true] {
            let trial = interrupted();
            if is_unstaged {
                trial.unstage().unwrap();
            }
            trial.stage().unwrap();
            trial.unstage().unwrap();
            // Once it is made, it stays: data that are no file system are those of others.
            trial.machine.state().file_systems.clear();
            trial.machine.state().raw.insert(IQN.into());
            assert_eq!(trial.stage(), Err(Code::FailedPrecondition));
        }
        for publication in [Some("second"), None] {
            let trial = Trial { publication, ..interrupted() };
            assert_eq!(trial.stage(), Err(Code::FailedPrecondition), "another node may have written meanwhile");
            let trial = Trial { publication: Some("first"), ..trial };
            assert_eq!(trial.stage(), Err(Code::FailedPrecondition), "a late call for the publication before");
        }
        // What blkid takes for a file system may be half of one, in the same publication alone.
        for (publication, outcome) in [("first", Ok(())), ("second", Err(Code::Internal))] {
            let trial = Trial { publication: Some(publication), ..interrupted() };
            {
                let mut state = trial.machine.state();
                state.raw.clear();
                state.halves.insert(IQN.into());
                state.file_systems.insert(IQN.into(), fs_type.into());
            }
            assert_eq!(trial.stage(), outcome, "{publication}");
        }
        // What blkid knows was made by others, or is whole.
        for (found, outcome) in [(fs_type, Ok(())), ("LVM2_member", Err(Code::FailedPrecondition))] {
            let trial = interrupted();
            trial.machine.state().raw.clear();
            trial.machine.state().file_systems.insert(IQN.into(), found.into());
            trial.machine.take_ran();
            assert_eq!(trial.stage(), outcome, "{found}");
            assert!(!trial.machine.take_ran().iter().any(|ran| ran.starts_with("mkfs")));
        }
        let trial = interrupted();
        trial.unstage().unwrap();
        let trial = Trial { fs_type: None, ..trial };
        trial.stage().unwrap();
        trial.unstage().unwrap();
        let trial = Trial { fs_type: Some(fs_type), ..trial };
        assert_eq!(trial.stage(), Err(Code::FailedPrecondition), "the node may have written to the device");
    }
}

#[test]
fn one_of_several_portals_is_enough_and_a_lost_path_is_told() {
    let trial = Trial { portals: "[\"192.0.2.2:3260\"]", ..Trial::new(Some("ext4")) };
    {
        let mut state = trial.machine.state();
        (state.has_multipath, state.waits_for_paths) = (true, 3);
    }
    trial.stage().unwrap();
    assert_eq!(trial.machine.state().waits_for_paths, 0, "all paths of the map are waited for");
    trial.publish("pod", false).unwrap();
    assert!(trial.machine.take_ran().iter().any(|ran| ran.starts_with("mkfs.ext4") && ran.ends_with("/dev/dm-1")));
    assert!(!trial.stats("pod").unwrap().volume_condition.unwrap().abnormal);
    trial.machine.state().dead_portals.insert("192.0.2.2:3260".into());
    let condition = trial.stats("pod").unwrap().volume_condition.unwrap();
    assert!(condition.abnormal && condition.message.contains("1 of 2 paths"), "{condition:?}");
    trial.unpublish("pod");
    trial.machine.state().waits_for_maps = 2;
    trial.unstage().unwrap();
    let ran = trial.machine.take_ran();
    let place = |start: &str| ran.iter().position(|ran| ran.starts_with(start)).unwrap();
    assert!(place("umount") < place("multipath -f mpatha") && ran[place("multipath -f")..].len() > 2, "{ran:?}");

    trial.stage().unwrap();
    trial.unstage().unwrap();
    trial.machine.state().dead_portals.insert("192.0.2.1:3260".into());
    assert_eq!(trial.stage(), Err(Code::Unavailable), "no portal answers");

    let trial = Trial { portals: "[\"192.0.2.2:3260\"]", ..Trial::new(Some("ext4")) };
    assert_eq!(trial.stage(), Err(Code::FailedPrecondition), "several paths, and no map of them");
    trial.unstage().unwrap();
}

#[test]
fn a_user_is_needed_where_the_target_asks_for_one() {
    let secrets = |password: &str| {
        let pairs = [("node.session.auth.username", "nodes"), ("node.session.auth.password", password)];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    let mut trial = Trial { has_chap: true, portals: "[\"[2001:db8::1]:3260\"]", ..Trial::new(Some("ext4")) };
    trial.machine.state().has_multipath = true;
    trial.machine.state().chap = Some(("nodes".into(), "right-secret".into()));
    assert_eq!(trial.stage(), Err(Code::InvalidArgument));
    trial.secrets = secrets("wrong-secret");
    assert_eq!(trial.stage(), Err(Code::Unauthenticated));
    trial.secrets = secrets("right-secret");
    trial.stage().unwrap();
    let record = std::fs::read_dir(trial.path("staged")).unwrap().next().unwrap().unwrap().path();
    assert!(!std::fs::read_to_string(record).unwrap().contains("right-secret"));
    // All users of a machine see the arguments of its programs.
    let ran = trial.machine.take_ran();
    assert!(ran.iter().any(|ran| ran.ends_with("authmethod -v CHAP")) && !ran.iter().any(|ran| ran.contains("secret")));
}

#[test]
fn a_block_volume_is_a_device_in_the_container() {
    let trial = Trial { mode: Mode::SingleNodeSingleWriter, ..Trial::new(None) };
    assert_eq!(trial.publish("disk", false), Err(Code::FailedPrecondition), "it is not staged");
    trial.stage().unwrap();
    trial.publish("disk", false).unwrap();
    assert_eq!(trial.publish("disk-2", false), Err(Code::FailedPrecondition), "one container at a time");
    let usage = trial.stats("disk").unwrap().usage;
    assert_eq!((usage.len(), usage[0].total), (1, 10 << 30));
    trial.machine.state().lengths.insert(IQN.into(), 20 << 30);
    assert_eq!(trial.expand("disk", 20 << 30), Ok(20 << 30));
    assert_eq!(trial.unstage(), Err(Code::FailedPrecondition), "it is published");
    trial.unpublish("disk");
    trial.unstage().unwrap();
    assert!(!trial.machine.take_ran().iter().any(|ran| ran.contains("mkfs") || ran.contains("resize2fs")));
}

#[test]
fn a_file_system_grows_with_its_disk() {
    let trial = Trial::new(Some("ext4"));
    assert_eq!(trial.expand("pod", 1), Err(Code::NotFound));
    trial.stage().unwrap();
    trial.publish("pod", false).unwrap();
    assert_eq!(trial.expand("elsewhere", 1), Err(Code::NotFound));
    trial.machine.take_ran();
    assert_eq!(trial.expand("pod", 20 << 30), Err(Code::DeadlineExceeded), "the server has not made it longer");
    trial.machine.state().lengths.insert(IQN.into(), 20 << 30);
    trial.machine.take_ran();
    assert_eq!(trial.expand("pod", 20 << 30), Ok(20 << 30));
    assert_eq!(
        trial.machine.take_ran(),
        ["iscsiadm -m node -T iqn.2026-11.org.example:tank:a -R", "resize2fs /dev/sdb"]
    );
}

#[test]
fn a_node_tells_its_initiator_and_the_pools_that_it_reaches() {
    let trial = Trial::new(None);
    let info = trial.runtime.block_on(trial.node().node_get_info(Request::new(NodeGetInfoRequest {}))).unwrap();
    let info = info.into_inner();
    assert_eq!((info.node_id.as_str(), info.max_volumes_per_node), (INITIATOR, 7));
    assert_eq!(info.accessible_topology.unwrap().segments["csi.example.org/tank"], "true");
}
