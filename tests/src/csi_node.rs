//! The driver for Kubernetes on a machine with open-iscsi and dm-multipath: volumes from their creation to their end.
//!
//! Each case is a line `== passed CASE` or `== failed CASE`, as `cargo xtask linux` reads them.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use lunette_csi::options::{Api, Options};
use lunette_csi::proto::v1::controller_server::Controller as _;
use lunette_csi::proto::v1::node_server::Node as _;
use lunette_csi::proto::v1::volume_capability::access_mode::Mode;
use lunette_csi::proto::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use lunette_csi::proto::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, NodeExpandVolumeRequest, NodeGetInfoRequest, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, Volume, VolumeCapability,
};
use lunette_csi::{Controller, Node, Programs};
use tokio::runtime::Runtime;
use tonic::{Code, Request};

use crate::process::wait_until;
use crate::random::random_bytes;
use crate::tool::run;

const MIB: i64 = 1 << 20;

/// The longest time until a path is found lost or there again.
const PATH_LIMIT: Duration = Duration::from_mins(3);

/// Where the records of open-iscsi are.
const RECORDS: &str = "/etc/iscsi/nodes";

/// A server, and the secrets of its volumes.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// The API of the server.
    #[arg(long)]
    api: Api,
    /// The file with a token of the server.
    #[arg(long)]
    token_file: PathBuf,
    /// The certificate of the server.
    #[arg(long)]
    ca: PathBuf,
    /// Two portals.
    #[arg(long)]
    portals: String,
    /// The secret of nodes, and its file on the machine of the server.
    #[arg(long, num_args = 2)]
    secret: Vec<String>,
    /// The secret of targets, and its file on the machine of the server.
    #[arg(long, num_args = 2)]
    mutual_secret: Vec<String>,
}

/// Tries all cases. Returns whether all have passed.
pub fn check(arguments: &Arguments) -> bool {
    let place = Place::new(arguments);
    let ext4 = || place.a_file_system("ext4", 64);
    let xfs = || place.a_file_system("xfs", 320);
    let block = || place.a_block_volume();
    let wrong = || place.a_wrong_secret();
    let lost = || place.a_lost_path();
    let cases: [(&str, &dyn Fn()); 5] = [
        ("ext4_over_two_portals", &ext4),
        ("xfs_over_two_portals", &xfs),
        ("a_block_volume", &block),
        ("a_wrong_secret_of_a_node", &wrong),
        ("a_lost_path_of_a_volume", &lost),
    ];
    let mut all = true;
    for (name, case) in cases {
        let has_passed = catch_unwind(AssertUnwindSafe(case)).is_ok();
        println!("== {} {name}", if has_passed { "passed" } else { "failed" });
        all &= has_passed;
    }
    all
}

/// The driver, in this process.
struct Place {
    runtime: Runtime,
    controller: Controller,
    node: Node,
    name: String,
    folder: PathBuf,
    parameters: HashMap<String, String>,
    secrets: HashMap<String, String>,
}

macro_rules! call {
    ($place:expr, $service:ident, $call:ident, $request:expr) => {
        $place
            .runtime
            .block_on($place.$service.$call(Request::new($request)))
            .map(tonic::Response::into_inner)
            .map_err(|status| (status.code(), status.message().to_owned()))
    };
}

/// A volume that is published to the node, and how it is used.
struct Used {
    volume: Volume,
    capability: VolumeCapability,
    publish_context: HashMap<String, String>,
}

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> HashMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

impl Place {
    fn new(arguments: &Arguments) -> Self {
        let folder = PathBuf::from("/var/lib/csi");
        fs::create_dir_all(&folder).expect("a folder");
        let Arguments { api, token_file, ca, portals, secret, mutual_secret } = arguments;
        let mut options =
            Options::parse_from(["lunette-csi", "--portals", portals, "--endpoint=/var/lib/csi/csi.sock"]);
        (options.api, options.token_file, options.ca) = (api.clone(), Some(token_file.clone()), Some(ca.clone()));
        let server = options.server().expect("the options of a server");
        let node = Node::new(options.node(), Programs::new(None));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let name = runtime.block_on(node.node_get_info(Request::new(NodeGetInfoRequest {}))).expect("an initiator");
        Self {
            controller: Controller::at(server, options.controller()).expect("a controller"),
            node,
            name: name.into_inner().node_id,
            runtime,
            folder,
            parameters: texts([
                ("chapUser", "nodes"),
                ("chapSecretFile", &secret[1]),
                ("mutualChapUser", "lunette"),
                ("mutualChapSecretFile", &mutual_secret[1]),
            ]),
            secrets: texts([
                ("node.session.auth.username", "nodes"),
                ("node.session.auth.password", &secret[0]),
                ("node.session.auth.username_in", "lunette"),
                ("node.session.auth.password_in", &mutual_secret[0]),
            ]),
        }
    }

    fn a_file_system(&self, fs_type: &str, mebibytes: i64) {
        let used = self.create(&format!("pvc-{fs_type}"), Some(fs_type), mebibytes);
        for _ in 0..2 {
            self.stage(&used).expect("it is staged");
            self.publish(&used).expect("it is published");
        }
        self.check_two_paths(&used);
        let (pod, bytes) = (self.pod(&used), random_bytes(1, 8 << 20));
        fs::write(pod.join("file"), &bytes).expect("room for a file");
        let before = self.stats(&used);
        assert!(!before.volume_condition.clone().expect("a condition").abnormal, "{before:?}");

        let longer = self.expand(&used, mebibytes * 2);
        assert_eq!(longer, mebibytes * 2 * MIB);
        let (before, after) = (before.usage[0].total, self.stats(&used).usage[0].total);
        assert!(after > before + mebibytes * MIB / 2, "{before} to {after} bytes");
        assert_eq!(self.unstage(&used), Err(Code::FailedPrecondition), "it is published");
        for _ in 0..2 {
            self.unpublish(&used);
            self.unstage(&used).expect("it is unstaged");
        }
        self.check_nothing_left(&used);

        // The file system is found again, and not made again.
        self.stage(&used).expect("it is staged again");
        self.publish(&used).expect("it is published again");
        assert!(fs::read(pod.join("file")).expect("the file") == bytes, "the file has changed");
        self.unpublish(&used);
        self.unstage(&used).expect("it is unstaged");
        self.delete(&used);
    }

    fn a_block_volume(&self) {
        let used = self.create("pvc-block", None, 32);
        self.stage(&used).expect("it is staged");
        self.publish(&used).expect("it is published");
        self.check_two_paths(&used);
        let (device, bytes) = (self.pod(&used), random_bytes(2, 4 << 20));
        let write = |skip: &str| {
            fs::write(self.folder.join("bytes"), &bytes).expect("room for a file");
            let to = [format!("if={}", self.folder.join("bytes").display()), format!("of={}", device.display())];
            run("dd", [&to[0], &to[1], "bs=1M", "oflag=direct", "conv=notrunc", skip]).succeeded();
        };
        write("seek=28");
        assert_eq!(self.stats(&used).usage[0].total, 32 * MIB);
        assert_eq!(self.expand(&used, 64), 64 * MIB);
        assert_eq!(self.stats(&used).usage[0].total, 64 * MIB);
        write("seek=60");
        self.unpublish(&used);
        self.unstage(&used).expect("it is unstaged");
        self.check_nothing_left(&used);
        // What is there is no file system that is known, and none is made over it.
        let mounted = Used { capability: capability(Some("ext4")), ..used };
        assert_eq!(self.stage(&mounted), Err(Code::FailedPrecondition));
        self.unstage(&mounted).expect("it is unstaged");
        self.delete(&mounted);
    }

    fn a_wrong_secret(&self) {
        let used = self.create("pvc-wrong", Some("ext4"), 16);
        let wrong = [
            ("node.session.auth.password", Code::Unauthenticated),
            // iscsid ends a login of a target that does not prove who it is as one that cannot succeed.
            ("node.session.auth.password_in", Code::FailedPrecondition),
        ];
        for (key, code) in wrong {
            let mut secrets = self.secrets.clone();
            secrets.insert(key.into(), "wrong-secret-12".into());
            assert_eq!(self.stage_with(&used, secrets), Err(code), "{key}");
            self.unstage(&used).expect("it is unstaged");
        }
        self.check_nothing_left(&used);
        self.delete(&used);
    }

    fn a_lost_path(&self) {
        let used = self.create("pvc-path", Some("ext4"), 16);
        self.stage(&used).expect("it is staged");
        self.publish(&used).expect("it is published");
        let link = |way: &str| drop(run("ip", ["link", "set", "eth1", way]).succeeded().to_owned());
        let condition = || self.stats(&used).volume_condition.expect("a condition");
        link("down");
        let lost = wait_until(PATH_LIMIT, || Some(condition()).filter(|condition| condition.abnormal));
        let written = lost.as_ref().map(|_| {
            fs::write(self.pod(&used).join("file"), "written over the other path").expect("room for a file");
            run("sync", ["-f", &self.path(&used, "pod")]).code
        });
        link("up");
        run("ip", ["address", "replace", "10.0.3.15/24", "dev", "eth1"]).succeeded();
        assert!(lost.expect("a lost path").message.contains("1 of 2 paths"));
        assert_eq!(written, Some(Some(0)));
        wait_until(PATH_LIMIT, || (!condition().abnormal).then_some(())).expect("the path is back");
        self.unpublish(&used);
        self.unstage(&used).expect("it is unstaged");
        self.check_nothing_left(&used);
        self.delete(&used);
    }

    fn create(&self, name: &str, fs_type: Option<&str>, mebibytes: i64) -> Used {
        let request = CreateVolumeRequest {
            name: name.into(),
            capacity_range: Some(CapacityRange { required_bytes: mebibytes * MIB, limit_bytes: 0 }),
            volume_capabilities: vec![capability(fs_type)],
            parameters: self.parameters.clone(),
            ..CreateVolumeRequest::default()
        };
        let volume = call!(self, controller, create_volume, request).expect("a volume").volume.expect("a volume");
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: self.name.clone(),
            volume_capability: Some(capability(fs_type)),
            ..ControllerPublishVolumeRequest::default()
        };
        let published = call!(self, controller, controller_publish_volume, request).expect("access");
        Used { volume, capability: capability(fs_type), publish_context: published.publish_context }
    }

    fn delete(&self, used: &Used) {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: used.id(),
            node_id: self.name.clone(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        call!(self, controller, controller_unpublish_volume, request).expect("no access");
        let request = DeleteVolumeRequest { volume_id: used.id(), ..DeleteVolumeRequest::default() };
        call!(self, controller, delete_volume, request).expect("no volume");
    }

    fn stage(&self, used: &Used) -> Result<(), Code> {
        self.stage_with(used, self.secrets.clone())
    }

    fn stage_with(&self, used: &Used, secrets: HashMap<String, String>) -> Result<(), Code> {
        let request = NodeStageVolumeRequest {
            volume_id: used.id(),
            staging_target_path: self.path(used, "stage"),
            volume_capability: Some(used.capability.clone()),
            volume_context: used.volume.volume_context.clone(),
            publish_context: used.publish_context.clone(),
            secrets,
        };
        told(call!(self, node, node_stage_volume, request).map(drop))
    }

    fn publish(&self, used: &Used) -> Result<(), Code> {
        let request = NodePublishVolumeRequest {
            volume_id: used.id(),
            staging_target_path: self.path(used, "stage"),
            target_path: self.path(used, "pod"),
            volume_capability: Some(used.capability.clone()),
            ..NodePublishVolumeRequest::default()
        };
        told(call!(self, node, node_publish_volume, request).map(drop))
    }

    fn unpublish(&self, used: &Used) {
        let request = NodeUnpublishVolumeRequest { volume_id: used.id(), target_path: self.path(used, "pod") };
        call!(self, node, node_unpublish_volume, request).expect("it is unpublished");
    }

    fn unstage(&self, used: &Used) -> Result<(), Code> {
        let request = NodeUnstageVolumeRequest { volume_id: used.id(), staging_target_path: self.path(used, "stage") };
        told(call!(self, node, node_unstage_volume, request).map(drop))
    }

    fn stats(&self, used: &Used) -> NodeGetVolumeStatsResponse {
        let request = NodeGetVolumeStatsRequest {
            volume_id: used.id(),
            volume_path: self.path(used, "pod"),
            ..NodeGetVolumeStatsRequest::default()
        };
        call!(self, node, node_get_volume_stats, request).expect("a report")
    }

    fn expand(&self, used: &Used, mebibytes: i64) -> i64 {
        let capacity_range = Some(CapacityRange { required_bytes: mebibytes * MIB, limit_bytes: 0 });
        let request = ControllerExpandVolumeRequest {
            volume_id: used.id(),
            capacity_range,
            ..ControllerExpandVolumeRequest::default()
        };
        call!(self, controller, controller_expand_volume, request).expect("a longer volume");
        let request = NodeExpandVolumeRequest {
            volume_id: used.id(),
            volume_path: self.path(used, "pod"),
            capacity_range,
            ..NodeExpandVolumeRequest::default()
        };
        call!(self, node, node_expand_volume, request).expect("a longer file system").capacity_bytes
    }

    /// The volume as the container sees it.
    fn pod(&self, used: &Used) -> PathBuf {
        self.path(used, "pod").into()
    }

    /// A path of a volume alone, so that a case that fails leaves the others as they are.
    fn path(&self, used: &Used, name: &str) -> String {
        self.folder.join(format!("{name}-{}", used.volume.volume_id.replace('/', "-"))).display().to_string()
    }

    fn check_two_paths(&self, used: &Used) {
        assert_eq!(sessions(used.iqn()), 2);
        let maps = run("multipath", ["-ll"]).stdout;
        assert_eq!(maps.matches("active ready running").count(), 2, "{maps}");
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let pod = self.path(used, "pod");
        let of_pod = mounts.lines().find(|line| line.contains(&format!(" {pod} "))).expect("it is mounted");
        assert!(of_pod.contains("/dm-") || of_pod.contains("/dev/mapper/"), "{of_pod}");
        for record in fs::read_dir(Path::new(RECORDS).join(used.iqn())).expect("the records of the target") {
            let record = record.expect("a record").path();
            let text = fs::read_to_string(&record).expect("a record");
            let secret = &self.secrets["node.session.auth.password"];
            assert!(text.contains(&format!("node.session.auth.password = {secret}\n")), "{text}");
            assert_eq!(fs::metadata(&record).expect("a record").permissions().mode() & 0o777, 0o600);
        }
    }

    fn check_nothing_left(&self, used: &Used) {
        assert_eq!(sessions(used.iqn()), 0);
        assert!(!Path::new(RECORDS).join(used.iqn()).exists());
        assert_eq!(run("multipath", ["-ll"]).stdout.trim(), "");
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        for name in ["stage", "pod"] {
            assert!(!mounts.contains(&self.path(used, name)), "{mounts}");
        }
        assert_eq!(fs::read_dir(self.folder.join("staged")).map_or(0, Iterator::count), 0);
    }
}

impl Used {
    fn id(&self) -> String {
        self.volume.volume_id.clone()
    }

    fn iqn(&self) -> &str {
        &self.volume.volume_context["iqn"]
    }
}

fn capability(fs_type: Option<&str>) -> VolumeCapability {
    let mount = |fs_type: &str| AccessType::Mount(MountVolume { fs_type: fs_type.into(), ..MountVolume::default() });
    let access_type = Some(fs_type.map_or(AccessType::Block(BlockVolume {}), mount));
    let access_mode = Some(AccessMode { mode: Mode::SingleNodeWriter.into() });
    VolumeCapability { access_mode, access_type }
}

/// Prints what a call says beside its code.
fn told(done: Result<(), (Code, String)>) -> Result<(), Code> {
    done.map_err(|(code, why)| {
        println!("{code:?}: {why}");
        code
    })
}

/// The sessions of the kernel with a target.
fn sessions(iqn: &str) -> usize {
    let names = fs::read_dir("/sys/class/iscsi_session").into_iter().flatten().flatten();
    let of = names
        .filter(|name| fs::read_to_string(name.path().join("targetname")).is_ok_and(|target| target.trim() == iqn));
    of.count()
}
