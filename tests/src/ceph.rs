//! The Ceph cluster that the tests of disks in Ceph share.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::server::DEFAULT_TARGET;
use crate::tool::{Ran, run};

/// Tests use the cluster together, those that break it have it for themselves.
static SHARED: RwLock<()> = RwLock::new(());

/// The cluster of `LUNETTE_CEPH_CONF`.
pub struct Ceph {
    conf: PathBuf,
    _use: Use,
}

enum Use {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl Ceph {
    /// The cluster, together with other tests.
    pub fn shared() -> Self {
        let guard = SHARED.read().unwrap_or_else(PoisonError::into_inner);
        Self { conf: conf(), _use: Use::Shared { _guard: guard } }
    }

    /// The cluster, while no other test uses it.
    pub fn alone() -> Self {
        let guard = SHARED.write().unwrap_or_else(PoisonError::into_inner);
        Self { conf: conf(), _use: Use::Alone { _guard: guard } }
    }

    /// A new image of this many MiB, under a name that no other one has.
    pub fn image(&self, mebibytes: u64) -> Image<'_> {
        let image = Image { ceph: self, name: new_name() };
        self.rbd(&["create", &image.name, "--size", &format!("{mebibytes}M")]).succeeded();
        image
    }

    /// A name for an image that is not there.
    pub fn no_image(&self) -> Image<'_> {
        Image { ceph: self, name: new_name() }
    }

    /// A new namespace of the pool `rbd`.
    pub fn namespace(&self) -> Namespace<'_> {
        let namespace = Namespace { ceph: self, name: new_name() };
        self.rbd(&["namespace", "create", &format!("rbd/{}", namespace.name)]).succeeded();
        namespace
    }

    /// The URL of the pool `rbd`.
    pub fn pool_url(&self) -> String {
        format!("rbd:rbd?conf={}", self.conf.display())
    }

    /// A program of Ceph, told where the cluster is.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.arg("--conf").arg(&self.conf);
        command
    }

    /// Runs `rbd`, in the pool `rbd`.
    pub fn rbd(&self, arguments: &[&str]) -> Ran {
        self.run("rbd", arguments)
    }

    /// Runs `ceph`.
    pub fn ceph(&self, arguments: &[&str]) -> Ran {
        self.run("ceph", arguments)
    }

    /// The address of the client that has the lock of an image.
    pub fn locker(&self, image: &Image<'_>) -> String {
        let lockers = self.rbd(&["lock", "ls", &image.name, "--format", "json"]);
        let lockers: Value = serde_json::from_str(lockers.succeeded()).expect("JSON");
        lockers[0]["address"].as_str().unwrap_or_else(|| panic!("a client has the lock: {lockers}")).to_owned()
    }

    /// The year until which a client is on the blocklist.
    pub fn blocklisted_until(&self, client: &str) -> Option<u32> {
        let dump = self.ceph(&["osd", "dump", "--format", "json"]);
        let dump: Value = serde_json::from_str(dump.succeeded()).expect("JSON");
        let (year, _) = dump["blocklist"][client].as_str()?.split_once('-')?;
        year.parse().ok()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Ran {
        let conf = self.conf.to_str().expect("a plain path");
        run(program, [&["--conf", conf], arguments].concat())
    }

    /// Where clients reach the monitor and the OSD.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let json = |arguments: &[&str]| -> Value {
            serde_json::from_str(self.ceph(&[arguments, &["--format", "json"]].concat()).succeeded()).expect("JSON")
        };
        let (monitors, osds) = (json(&["mon", "dump"]), json(&["osd", "dump"]));
        let addresses = [&monitors["mons"][0]["public_addrs"], &osds["osds"][0]["public_addrs"]];
        let parse = |address: &Value| address["addrvec"][0]["addr"].as_str()?.parse().ok();
        addresses.into_iter().map(|address| parse(address).unwrap_or_else(|| panic!("an address: {address}"))).collect()
    }

    /// Sends a signal to the OSD.
    pub fn signal_osd(&self, signal: Signal) {
        let folder = self.conf.parent().expect("the folder of the cluster");
        let text = fs::read_to_string(folder.join("osd.pid")).expect("cargo xtask ceph has started it");
        let pid = text.split(' ').next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        kill_process(pid.expect("a process number"), signal).expect("the OSD runs");
    }
}

fn conf() -> PathBuf {
    let named = env::var_os("LUNETTE_CEPH_CONF").map(PathBuf::from).filter(|conf| conf.is_file());
    named.expect("a cluster: export LUNETTE_CEPH_CONF=$(cargo xtask ceph up); cargo xtask test --only ceph does that")
}

fn new_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("image-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An image in the pool `rbd`. Images stay until the cluster ends.
pub struct Image<'a> {
    ceph: &'a Ceph,
    /// The name of the image.
    pub name: String,
}

impl Image<'_> {
    /// The URL of the image for Lunette.
    pub fn url(&self) -> String {
        self.url_of("")
    }

    /// The URL with something behind its name, such as `@SNAPSHOT`.
    pub fn url_of(&self, suffix: &str) -> String {
        format!("rbd:rbd/{}{suffix}?conf={}", self.name, self.ceph.conf.display())
    }

    /// The configuration of a gateway to it, of two, with this portal and target port group.
    pub fn gateway(&self, portal: &str, group: u16) -> String {
        format!(
            "portal = [{{ address = \"{portal}\", group = {group} }}]\n\
             [[target]]\n\
             name = \"{DEFAULT_TARGET}\"\n\
             gateways = {{ group = {group}, groups = [1, 2] }}\n\
             lun = [{{ number = 0, disk = {:?} }}]\n",
            self.url()
        )
    }

    /// The extents that have space, as `rbd diff` sees them.
    pub fn extents(&self) -> Vec<(u64, u64)> {
        let found = self.ceph.rbd(&["diff", &self.name, "--format", "json"]);
        let extents: Value = serde_json::from_str(found.succeeded()).expect("a list");
        let number = |extent: &Value, key: &str| extent[key].as_u64().expect("a number");
        let list = extents.as_array().expect("a list").iter();
        list.map(|extent| (number(extent, "offset"), number(extent, "length"))).collect()
    }
}

/// A namespace of the pool `rbd`. It stays until the cluster ends.
pub struct Namespace<'a> {
    ceph: &'a Ceph,
    name: String,
}

impl Namespace<'_> {
    /// The URL of the namespace, as a pool of volumes.
    pub fn url(&self) -> String {
        format!("rbd:rbd/{}?conf={}", self.name, self.ceph.conf.display())
    }

    /// The name of the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL of an image in the namespace.
    pub fn image_url(&self, image: &str) -> String {
        format!("rbd:rbd/{}/{image}?conf={}", self.name, self.ceph.conf.display())
    }

    /// Runs `rbd` in the namespace.
    pub fn rbd(&self, arguments: &[&str]) -> Ran {
        self.ceph.rbd(&[&["--namespace", &self.name], arguments].concat())
    }

    /// Runs `rados` in the namespace.
    pub fn rados(&self, arguments: &[&str]) -> Ran {
        self.ceph.run("rados", &[&["--pool", "rbd", "--namespace", &self.name], arguments].concat())
    }
}
