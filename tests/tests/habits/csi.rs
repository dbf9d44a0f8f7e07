//! The driver for Kubernetes: csi-sanity, a volume from its creation to its end, and file systems on a real device.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use lunette_api::client::Endpoint;
use lunette_csi::options::{Mode as Services, Options};
use lunette_csi::proto::v1::controller_server::Controller as _;
use lunette_csi::proto::v1::group_controller_server::GroupController as _;
use lunette_csi::proto::v1::node_server::Node as _;
use lunette_csi::proto::v1::volume_capability::access_mode::Mode;
use lunette_csi::proto::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use lunette_csi::proto::v1::volume_content_source::{SnapshotSource, Type};
use lunette_csi::proto::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerGetVolumeRequest, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
    DeleteVolumeGroupSnapshotRequest, DeleteVolumeRequest, ListVolumesRequest, NodeExpandVolumeRequest,
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, Volume, VolumeCapability, VolumeContentSource,
};
use lunette_csi::{Controller, Kind, Node, NodeSettings, Programs, Ran, Settings, Space, System};
use lunette_testkit::ScriptedInitiator;
use lunette_tests::sanity::{Sanity, check_sanity};
use lunette_tests::{Configured, Mount, NAME, Server, login_request, run};
use tokio::runtime::Runtime;
use tonic::{Code, Request};

const MIB: i64 = 1 << 20;

/// A server with a pool on a file system with reflinks.
struct Running {
    place: Configured,
    server: Server,
    // The server ends before its file system.
    _pool: Mount,
}

impl Running {
    fn start() -> Self {
        let (place, pool) = (Configured::new(), Mount::new("mkfs.xfs", &["-q"], 512 << 20));
        let folder = pool.path().display().to_string();
        // The target is there for its address alone.
        let server = place.start(
            &format!(
                "listen = [\"127.0.0.1:0\"]\nstate = \"@/state\"\napi = {{ listen = [\"unix:@/api.sock\"] }}\n\
                 [[pool]]\nname = \"tank\"\nplace = {folder:?}\n\
                 [[target]]\nname = \"iqn.2026-11.org.example:other\"\nlun = [{{ number = 0, disk = \"mem:1M\" }}]"
            ),
            1,
        );
        Self { place, server, _pool: pool }
    }
}

#[test]
fn csi_sanity_passes() {
    let running = Running::start();
    check_sanity(&running.place, running.server.address(), &[Sanity::ALL, Sanity::OF_BLOCK_NODES]);
}

#[test]
fn the_driver_takes_the_arguments_of_its_manifest() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/kubernetes/lunette-csi.yaml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let containers = manifest.split("- name: driver\n").skip(1);
    let modes = containers.map(|container| {
        let arguments = container.lines().skip_while(|line| line.trim() != "args:").skip(1);
        let arguments = arguments.map_while(|line| line.trim().strip_prefix("- "));
        Options::try_parse_from(["lunette-csi"].into_iter().chain(arguments)).unwrap().mode
    });
    assert_eq!(modes.collect::<Vec<_>>(), [Services::Node, Services::Controller]);
}

/// A service, with the calls as functions that wait.
struct Calls<S> {
    runtime: Runtime,
    service: S,
}

macro_rules! call {
    ($calls:expr, $call:ident, $request:expr) => {
        $calls
            .runtime
            .block_on($calls.service.$call(Request::new($request)))
            .map(tonic::Response::into_inner)
            .map_err(|status| (status.code(), status.message().to_owned()))
    };
}

fn capability(fs_type: Option<&str>, mode: Mode) -> VolumeCapability {
    let mount = |fs_type: &str| AccessType::Mount(MountVolume { fs_type: fs_type.into(), ..MountVolume::default() });
    let access_type = Some(fs_type.map_or(AccessType::Block(BlockVolume {}), mount));
    VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type }
}

impl Calls<Controller> {
    fn new(running: &Running) -> Self {
        let settings = Settings {
            driver_name: "csi.example.org".into(),
            target_prefix: "iqn.2026-11.org.example.csi".into(),
            portals: vec![running.server.address().to_string()],
            pool: None,
            topology: false,
        };
        let service = Controller::at(Endpoint::Unix(running.place.file("api.sock")), settings).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, service }
    }

    fn create(&self, name: &str, mib: i64, more: &[(&str, &str)], from: Option<&str>) -> Result<Volume, Code> {
        let source =
            |id: &str| VolumeContentSource { r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id: id.into() })) };
        let request = CreateVolumeRequest {
            name: name.into(),
            capacity_range: Some(CapacityRange { required_bytes: mib * MIB, limit_bytes: 0 }),
            volume_capabilities: vec![capability(None, Mode::SingleNodeWriter)],
            parameters: more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            volume_content_source: from.map(source),
            ..CreateVolumeRequest::default()
        };
        call!(self, create_volume, request).map(|created| created.volume.unwrap()).map_err(|(code, _)| code)
    }

    fn publish(&self, id: &str, node: &str) -> Result<(), Code> {
        let request = ControllerPublishVolumeRequest {
            volume_id: id.into(),
            node_id: node.into(),
            volume_capability: Some(capability(None, Mode::SingleNodeWriter)),
            ..ControllerPublishVolumeRequest::default()
        };
        call!(self, controller_publish_volume, request).map(drop).map_err(|(code, _)| code)
    }

    fn unpublish(&self, id: &str, node: &str) {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: id.into(),
            node_id: node.into(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        call!(self, controller_unpublish_volume, request).unwrap();
    }
}

/// Logs in to the target of a volume.
fn log_in(running: &Running, volume: &Volume) -> io::Result<ScriptedInitiator> {
    let mut initiator = ScriptedInitiator::connect(&running.server);
    let names = [("SessionType", "Normal"), ("TargetName", volume.volume_context["iqn"].as_str())];
    let (response, _) = login_request(&mut initiator, &names)?;
    if !response.status.is_success() {
        return Err(io::Error::other(response.status.to_string()));
    }
    while initiator.test_unit_ready(0).status != 0 {}
    Ok(initiator)
}

#[test]
fn volumes_are_served_to_their_node_alone_and_their_snapshots_are_of_one_instant() {
    let running = Running::start();
    let calls = Calls::new(&running);
    let [a, b] = ["pvc-a", "PVC b"].map(|name| calls.create(name, 16, &[], None).unwrap());
    assert_eq!((a.volume_id.as_str(), a.volume_context["lun"].as_str()), ("tank/pvc-a", "0"));
    assert_eq!(a.volume_context["targetPortal"], running.server.address().to_string());

    // A node has access between its publication and the end of that.
    assert!(log_in(&running, &a).is_err());
    for volume in [&a, &b] {
        calls.publish(&volume.volume_id, NAME).unwrap();
    }
    assert_eq!(calls.publish(&a.volume_id, "iqn.2026-11.org.example:second"), Err(Code::FailedPrecondition));
    let mut sessions = [&a, &b].map(|volume| log_in(&running, volume).unwrap());
    for session in &mut sessions {
        session.write(0, 0, vec![1; 4096]).good();
    }
    let order = CreateVolumeGroupSnapshotRequest {
        name: "groupsnapshot-1".into(),
        source_volume_ids: vec![a.volume_id.clone(), b.volume_id.clone()],
        ..CreateVolumeGroupSnapshotRequest::default()
    };
    let group = call!(calls, create_volume_group_snapshot, order.clone()).unwrap().group_snapshot.unwrap();
    let again = call!(calls, create_volume_group_snapshot, order.clone()).unwrap().group_snapshot.unwrap();
    assert_eq!((group.snapshots.len(), &group.group_snapshot_id), (2, &again.group_snapshot_id));
    let other = CreateVolumeGroupSnapshotRequest { source_volume_ids: vec![a.volume_id.clone()], ..order };
    assert_eq!(call!(calls, create_volume_group_snapshot, other).unwrap_err().0, Code::AlreadyExists);
    sessions[0].write(0, 0, vec![2; 4096]).good();

    // A volume from a snapshot has its bytes, and may be longer.
    let of_a = group.snapshots.iter().find(|snapshot| snapshot.source_volume_id == a.volume_id).unwrap();
    let copy = calls.create("pvc-copy", 32, &[], Some(&of_a.snapshot_id)).unwrap();
    assert_eq!(copy.capacity_bytes, 32 * MIB);
    assert_eq!(calls.create("pvc-copy", 32, &[], None).unwrap_err(), Code::AlreadyExists, "another source");
    calls.publish(&copy.volume_id, NAME).unwrap();
    let mut reader = log_in(&running, &copy).unwrap();
    assert_eq!(reader.read(0, 0, 8).good(), vec![1; 4096]);
    drop(reader);

    // A disk grows while it is used.
    let grow = ControllerExpandVolumeRequest {
        volume_id: a.volume_id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: 20 * MIB, limit_bytes: 0 }),
        ..ControllerExpandVolumeRequest::default()
    };
    assert_eq!(call!(calls, controller_expand_volume, grow).unwrap().capacity_bytes, 20 * MIB);
    let look = ControllerGetVolumeRequest { volume_id: a.volume_id.clone() };
    let status = call!(calls, controller_get_volume, look).unwrap().status.unwrap();
    assert_eq!((status.published_node_ids, status.volume_condition.unwrap().abnormal), (vec![NAME.into()], false));

    // What is in use stays.
    let delete = |id: &str| {
        let request = DeleteVolumeRequest { volume_id: id.into(), ..DeleteVolumeRequest::default() };
        call!(calls, delete_volume, request).map(drop).map_err(|(code, _)| code)
    };
    assert_eq!(delete(&copy.volume_id), Err(Code::FailedPrecondition), "it is published");
    assert_eq!(delete(&a.volume_id), Err(Code::FailedPrecondition), "it has snapshots");
    let one = DeleteSnapshotRequest { snapshot_id: of_a.snapshot_id.clone(), ..DeleteSnapshotRequest::default() };
    assert_eq!(call!(calls, delete_snapshot, one).unwrap_err().0, Code::InvalidArgument, "it is of a group");

    // After the end of a publication no session is left, so no write of the node comes late.
    for volume in [&a, &b, &copy] {
        calls.unpublish(&volume.volume_id, NAME);
        assert!(log_in(&running, volume).is_err());
    }
    drop(sessions);
    let group = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id,
        snapshot_ids: group.snapshots.into_iter().map(|snapshot| snapshot.snapshot_id).collect(),
        ..DeleteVolumeGroupSnapshotRequest::default()
    };
    call!(calls, delete_volume_group_snapshot, group).unwrap();
    for volume in [&a, &b, &copy] {
        delete(&volume.volume_id).unwrap();
    }

    assert_eq!(calls.create("pvc-full", 4096, &[("full", "true")], None).unwrap_err(), Code::ResourceExhausted);
    assert_eq!(calls.create("pvc-none", 1, &[("pool", "none")], None).unwrap_err(), Code::NotFound);
    let list = call!(calls, list_volumes, ListVolumesRequest::default()).unwrap();
    assert_eq!(list.entries.len(), 0, "nothing is left of what failed");
}

/// The system of this machine, where a loop device stands for the disk of a session.
#[derive(Clone)]
struct Looped {
    own: Programs,
    device: String,
    /// Whether the next `mkfs` is interrupted.
    is_interrupted: Arc<AtomicBool>,
}

impl System for Looped {
    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<Ran> {
        match (program, arguments) {
            ("iscsiadm", [.., "-R"]) => self.own.run("losetup", &["-c", &format!("/dev/{}", self.device)]),
            ("iscsiadm", _) => Ok(Ran { code: Some(0), ..Ran::default() }),
            ("mkfs.ext4" | "mkfs.xfs", [.., device]) if self.is_interrupted.swap(false, Ordering::Relaxed) => {
                self.own.run(program, arguments)?;
                // The superblock of ext4 comes last. XFS has one early, which says until the end that it is half.
                let half = match program {
                    "mkfs.xfs" => format!("printf '\\1' | dd of={device} bs=1 seek=126 conv=notrunc"),
                    _ => format!("dd if=/dev/zero of={device} bs=4k count=1 conv=notrunc"),
                };
                assert_eq!(self.own.run("sh", &["-c", &half])?.code, Some(0));
                Ok(Ran::default())
            }
            _ => self.own.run(program, arguments),
        }
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        match path.strip_prefix("/sys/class/iscsi_session/session1") {
            Ok(file) if file == Path::new("targetname") => Ok("iqn.2026-11.org.example:a".into()),
            Ok(file) if file == Path::new("state") => Ok("LOGGED_IN".into()),
            _ => self.own.read(path),
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let one = |name: &str| Ok(vec![name.to_owned()]);
        let Ok(below) = folder.strip_prefix("/sys/class/iscsi_session") else { return self.own.list(folder) };
        match below.to_str().unwrap() {
            "" => one("session1"),
            "session1/device" => one("target1:0:0"),
            "session1/device/target1:0:0" => one("1:0:0:0"),
            _ => one(&self.device),
        }
    }

    fn read_of_host(&self, path: &Path) -> io::Result<String> {
        self.own.read_of_host(path)
    }
    fn rewrite_of_host(&self, path: &Path, text: &str) -> io::Result<()> {
        self.own.rewrite_of_host(path, text)
    }
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.own.write(path, text)
    }
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.own.real_path(path)
    }
    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        self.own.kind(path)
    }
    fn is_blank(&self, device: &Path) -> io::Result<bool> {
        self.own.is_blank(device)
    }
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.own.make_folder(path)
    }
    fn make_file(&self, path: &Path) -> io::Result<()> {
        self.own.make_file(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.own.remove(path)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        self.own.space(path)
    }
    fn wait(&self, time: Duration) {
        self.own.wait(time);
    }
}

#[test]
fn file_systems_are_made_mounted_bound_and_grown_on_a_real_device() {
    for (fs_type, mode) in [("ext4", Mode::SingleNodeWriter), ("xfs", Mode::SingleNodeSingleWriter)] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let lengthen =
            |len: i64| fs::File::options().append(true).create(true).open(&image).unwrap().set_len(len.cast_unsigned());
        lengthen(512 * MIB).unwrap();
        let device = run("losetup", ["--show", "-f", image.to_str().unwrap()]).succeeded().trim().to_owned();
        let system = Looped {
            own: Programs::new(None),
            device: device.trim_start_matches("/dev/").into(),
            is_interrupted: Arc::new(true.into()),
        };
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let settings = NodeSettings {
            driver_name: "csi.example.org".into(),
            node_id: Some(NAME.into()),
            state: folder.path().join("staged"),
            reachable_pools: Vec::new(),
            max_volumes: 0,
        };
        let calls = Calls {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            service: Node::new(settings, system),
        };
        let context = [("iqn", "iqn.2026-11.org.example:a"), ("targetPortal", "127.0.0.1:3260")];
        let stage = NodeStageVolumeRequest {
            volume_id: "tank/a".into(),
            staging_target_path: path("stage"),
            volume_capability: Some(capability(Some(fs_type), mode)),
            volume_context: context.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            publish_context: [("publication".to_owned(), "first".to_owned())].into(),
            ..NodeStageVolumeRequest::default()
        };
        let publish = NodePublishVolumeRequest {
            volume_id: "tank/a".into(),
            staging_target_path: path("stage"),
            target_path: path("pod"),
            volume_capability: stage.volume_capability.clone(),
            ..NodePublishVolumeRequest::default()
        };
        let unpublish = NodeUnpublishVolumeRequest { volume_id: "tank/a".into(), target_path: path("pod") };
        let unstage = NodeUnstageVolumeRequest { volume_id: "tank/a".into(), staging_target_path: path("stage") };
        assert_eq!(
            call!(calls, node_stage_volume, stage.clone()).unwrap_err().0,
            Code::Internal,
            "mkfs is interrupted"
        );
        for _ in 0..2 {
            call!(calls, node_stage_volume, stage.clone()).unwrap();
            call!(calls, node_publish_volume, publish.clone()).unwrap();
        }
        fs::write(path("pod/file"), "written").unwrap();
        assert_eq!(call!(calls, node_unstage_volume, unstage.clone()).unwrap_err().0, Code::FailedPrecondition);

        let total = || {
            let request = NodeGetVolumeStatsRequest {
                volume_id: "tank/a".into(),
                volume_path: path("pod"),
                ..NodeGetVolumeStatsRequest::default()
            };
            let stats = call!(calls, node_get_volume_stats, request).unwrap();
            assert!(!stats.volume_condition.unwrap().abnormal);
            stats.usage[0].total
        };
        let before = total();
        lengthen(768 * MIB).unwrap();
        let expand = NodeExpandVolumeRequest {
            volume_id: "tank/a".into(),
            volume_path: path("pod"),
            capacity_range: Some(CapacityRange { required_bytes: 768 * MIB, limit_bytes: 0 }),
            ..NodeExpandVolumeRequest::default()
        };
        // ext4 in use grows for a process with CAP_SYS_RESOURCE alone, which root of a container has not.
        if fs_type == "xfs" {
            assert_eq!(call!(calls, node_expand_volume, expand).unwrap().capacity_bytes, 768 * MIB);
            assert!(total() > before + 200 * MIB, "{fs_type}: {before} to {}", total());
        }

        call!(calls, node_unpublish_volume, unpublish.clone()).unwrap();
        let read_only = NodePublishVolumeRequest { readonly: true, ..publish };
        call!(calls, node_publish_volume, read_only).unwrap();
        assert_eq!(fs::read_to_string(path("pod/file")).unwrap(), "written");
        assert!(fs::write(path("pod/file"), "again").is_err());
        for _ in 0..2 {
            call!(calls, node_unpublish_volume, unpublish.clone()).unwrap();
            assert!(!Path::new(&path("pod")).exists());
        }
        call!(calls, node_unstage_volume, unstage).unwrap();
        // The other file system is not made over this one.
        let other = if fs_type == "xfs" { "ext4" } else { "xfs" };
        let other = NodeStageVolumeRequest { volume_capability: Some(capability(Some(other), mode)), ..stage };
        let (code, why) = call!(calls, node_stage_volume, other).unwrap_err();
        assert!(code == Code::FailedPrecondition && why.contains(fs_type), "{why}");
        run("losetup", ["-d", &device]).succeeded();
    }
}
