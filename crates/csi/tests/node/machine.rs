//! A model of a node: open-iscsi, disks, file systems and mounts in memory. Files outside `/sys` and `/proc` are real.
//!
//! The model knows the programs and options that the driver uses, and fails with any other.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lunette_csi::{Kind, Programs, Ran, Space, System};

/// The name of the initiator of the model.
pub(crate) const INITIATOR: &str = "iqn.1993-08.org.debian:01:model";

/// The folder of the records of nodes.
const RECORDS: &str = "/etc/iscsi/nodes";

/// Bytes of each disk until it grows.
const DISK_BYTES: u64 = 10 << 30;

/// A node. Clones are the same node.
#[derive(Clone, Default)]
pub(crate) struct Machine(Arc<Mutex<State>>);

#[derive(Default)]
pub(crate) struct State {
    /// The programs that were run, with their arguments.
    pub(crate) ran: Vec<String>,
    /// Portals that do not answer.
    pub(crate) dead_portals: BTreeSet<String>,
    /// Whether multipathd runs.
    pub(crate) has_multipath: bool,
    /// How often the node has to wait until multipathd has taken more than the first path.
    pub(crate) waits_for_paths: u32,
    /// How often the node has to wait until udev does not use maps any more.
    pub(crate) waits_for_maps: u32,
    /// The user and the secret that targets ask for.
    pub(crate) chap: Option<(String, String)>,
    /// The settings of the records of nodes, by target and portal.
    records: BTreeMap<(String, String), BTreeMap<String, String>>,
    /// The disks of the sessions, by target and portal.
    sessions: BTreeMap<(String, String), Session>,
    /// The file systems on the disks of targets, which outlive their sessions.
    pub(crate) file_systems: BTreeMap<String, String>,
    /// The targets whose disks have data without a file system.
    pub(crate) raw: BTreeSet<String>,
    /// Whether no disk can be read.
    pub(crate) unreadable: bool,
    /// Whether `mkfs` is ended before it is done.
    pub(crate) interrupts_makers: bool,
    /// The targets on whose disks a file system was begun, which blkid takes for a whole one.
    pub(crate) halves: BTreeSet<String>,
    /// The lengths of the disks of targets, where they have grown.
    pub(crate) lengths: BTreeMap<String, u64>,
    /// The lengths that the kernel knows.
    seen_lengths: BTreeMap<String, u64>,
    mounts: Vec<Mount>,
    next: u32,
}

struct Session {
    number: u32,
    disk: String,
}

struct Mount {
    device: String,
    root: String,
    at: PathBuf,
    read_only: bool,
    fs_type: String,
}

impl Machine {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The programs that ran since the last call.
    pub(crate) fn take_ran(&self) -> Vec<String> {
        std::mem::take(&mut self.state().ran)
    }

    /// The places that are mounted.
    pub(crate) fn mounted(&self) -> Vec<PathBuf> {
        self.state().mounts.iter().map(|mount| mount.at.clone()).collect()
    }

    /// Whether anything of a target is left.
    pub(crate) fn knows(&self, iqn: &str) -> bool {
        let state = self.state();
        state.records.keys().chain(state.sessions.keys()).any(|(of, _)| of == iqn)
    }
}

fn ended(code: i32, stdout: impl Into<String>, stderr: &str) -> Ran {
    Ran { code: Some(code), stdout: stdout.into(), stderr: stderr.into() }
}

fn is_virtual(path: &Path) -> bool {
    path.starts_with("/sys") || path.starts_with("/proc")
}

/// The file of a record below its folder, as iscsiadm 2.1.8 names it.
fn record_of((iqn, portal): &(String, String)) -> PathBuf {
    let (host, port) = portal.rsplit_once(':').expect("a portal");
    Path::new(iqn).join(format!("{},{port}", host.trim_matches(['[', ']'])))
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl System for Machine {
    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<Ran> {
        let mut state = self.state();
        state.ran.push(format!("{program} {}", arguments.join(" ")));
        Ok(match (program, arguments) {
            ("iscsiadm", ["-m", "node", "-T", iqn, rest @ ..]) => state.iscsiadm(iqn, rest),
            ("blkid", [.., device]) => match state.target_of(device).and_then(|iqn| state.file_systems.get(&iqn)) {
                Some(kind) => ended(0, format!("DEVNAME={device}\nTYPE={kind}\n"), ""),
                None => ended(2, "", ""),
            },
            ("mkfs.ext4" | "mkfs.xfs", [.., device]) => {
                let iqn = state.target_of(device).expect("a disk");
                if state.interrupts_makers {
                    state.raw.insert(iqn);
                    return Ok(Ran::default());
                }
                // What mkfs.xfs knows has to be told with -f to be of no use.
                let is_known = state.file_systems.contains_key(&iqn);
                assert!(!is_known || state.halves.contains(&iqn), "{device} had a file system");
                let is_refused = program == "mkfs.xfs" && !arguments.contains(&"-f") && is_known;
                assert!(!is_refused, "{device} was not blank");
                state.raw.remove(&iqn);
                state.halves.remove(&iqn);
                state.file_systems.insert(iqn, program.trim_start_matches("mkfs.").into());
                ended(0, "", "")
            }
            ("mount", ["-t", kind, "-o", options, device, at]) => {
                let read_only = options.split(',').any(|option| option == "ro");
                if state.target_of(device).is_some_and(|iqn| state.halves.contains(&iqn)) {
                    return Ok(ended(32, "", "mount: wrong fs type, bad option, bad superblock"));
                }
                let name = device.trim_start_matches("/dev/").to_owned();
                let mount = Mount { device: name, root: "/".into(), at: at.into(), read_only, fs_type: (*kind).into() };
                state.mounts.push(mount);
                ended(0, "", "")
            }
            ("mount", ["--bind", from, at]) => state.bind(Path::new(from), Path::new(at)),
            ("mount", ["-o", "remount,bind,ro", at]) => {
                let mount = state.mounts.iter_mut().rev().find(|mount| mount.at == Path::new(at));
                mount.expect("a mount").read_only = true;
                ended(0, "", "")
            }
            ("umount", [at]) => {
                let place = state.mounts.iter().rposition(|mount| mount.at == Path::new(at)).expect("a mount");
                state.mounts.remove(place);
                ended(0, "", "")
            }
            ("multipath", ["-f", map]) if state.waits_for_maps > 0 => ended(1, "", &format!("{map}: map in use")),
            ("resize2fs", [_])
            | ("xfs_growfs", ["-d", _])
            | ("multipathd", ["resize", "map", _])
            | ("multipath", ["-f", _]) => ended(0, "", ""),
            _ => panic!("the model does not know {program} {arguments:?}"),
        })
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        if is_virtual(path) { self.state().read(path) } else { Programs::default().read(path) }
    }

    fn read_of_host(&self, path: &Path) -> io::Result<String> {
        if let Ok(record) = path.strip_prefix(RECORDS) {
            let state = self.state();
            let (_, settings) = state.records.iter().find(|(key, _)| record_of(key) == record).ok_or_else(missing)?;
            let lines = settings.iter().map(|(name, value)| format!("{name} = {value}\n"));
            return Ok(format!("# BEGIN RECORD 2.1.8\n{}# END RECORD\n", lines.collect::<String>()));
        }
        assert_eq!(path, Path::new("/etc/iscsi/initiatorname.iscsi"));
        Ok(format!("## the model\nInitiatorName={INITIATOR}\n"))
    }

    fn rewrite_of_host(&self, path: &Path, text: &str) -> io::Result<()> {
        let record = path.strip_prefix(RECORDS).expect("a record");
        let mut state = self.state();
        let (_, settings) = state.records.iter_mut().find(|(key, _)| record_of(key) == record).ok_or_else(missing)?;
        let pairs = text.lines().filter_map(|line| line.split_once(" = "));
        *settings = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(())
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        Programs::default().write(path, text)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        if is_virtual(folder) { Ok(self.state().list(folder)) } else { Programs::default().list(folder) }
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        // The model keeps mounts by the paths that they were given.
        Ok(path.to_owned())
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        let is_device = self.state().mounts.iter().any(|mount| mount.at == path && mount.fs_type == "devtmpfs");
        if is_device { Ok(Some(Kind::Device)) } else { Programs::default().kind(path) }
    }

    fn is_blank(&self, device: &Path) -> io::Result<bool> {
        let state = self.state();
        let target = state.target_of(&device.display().to_string()).ok_or(io::ErrorKind::NotFound)?;
        if state.unreadable {
            return Err(io::Error::other("Input/output error"));
        }
        Ok(!state.raw.contains(&target))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        Programs::default().make_folder(path)
    }

    fn make_file(&self, path: &Path) -> io::Result<()> {
        Programs::default().make_file(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Programs::default().remove(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        Programs::default().space(path)
    }

    fn wait(&self, _: Duration) {
        let mut state = self.state();
        state.waits_for_paths = state.waits_for_paths.saturating_sub(1);
        state.waits_for_maps = state.waits_for_maps.saturating_sub(1);
    }
}

impl State {
    fn iscsiadm(&mut self, iqn: &str, rest: &[&str]) -> Ran {
        match rest {
            ["-p", portal, "-I", "default", action @ ..] => self.of_portal((iqn.into(), (*portal).into()), action),
            ["-R"] => {
                let len = self.lengths.get(iqn).copied().unwrap_or(DISK_BYTES);
                self.seen_lengths.insert(iqn.into(), len);
                ended(0, "", "")
            }
            ["-u"] => {
                let before = self.sessions.len();
                self.sessions.retain(|(of, _), _| of != iqn);
                if self.sessions.len() < before {
                    ended(0, "", "")
                } else {
                    ended(21, "", "No matching sessions found")
                }
            }
            ["-o", "delete"] => {
                let before = self.records.len();
                self.records.retain(|(of, _), _| of != iqn);
                if self.records.len() < before { ended(0, "", "") } else { ended(21, "", "No records found") }
            }
            _ => panic!("the model does not know iscsiadm {rest:?}"),
        }
    }

    fn of_portal(&mut self, key: (String, String), action: &[&str]) -> Ran {
        match action {
            ["-o", "new"] => {
                self.records.insert(key, BTreeMap::new());
            }
            ["-o", "update", "-n", name, "-v", value] => {
                let record = self.records.get_mut(&key).expect("a record");
                record.insert((*name).into(), (*value).into());
            }
            ["-l"] => {
                if self.sessions.contains_key(&key) {
                    return ended(15, "", "iscsiadm: default: 1 session requested, but 1 already present.");
                }
                let record = self.records.get(&key).expect("a record");
                if self.dead_portals.contains(&key.1) {
                    return ended(8, "", "iscsiadm: Could not login");
                }
                let value = |name: &str| record.get(&format!("node.session.auth.{name}")).cloned();
                let pair = value("username").zip(value("password"));
                if self.chap.is_some() && pair != self.chap {
                    return ended(
                        24,
                        "",
                        "iscsiadm: initiator reported error (24 - iSCSI login failed due to authorization failure)",
                    );
                }
                self.next += 1;
                let (number, disk) = (self.next, format!("sd{}", char::from(b'a' + (self.next % 26) as u8)));
                let len = self.lengths.get(&key.0).copied().unwrap_or(DISK_BYTES);
                self.seen_lengths.insert(key.0.clone(), len);
                self.sessions.insert(key, Session { number, disk });
            }
            _ => panic!("the model does not know iscsiadm {action:?}"),
        }
        ended(0, "", "")
    }

    fn bind(&mut self, from: &Path, at: &Path) -> Ran {
        let of = self.mounts.iter().rev().find(|mount| mount.at == from);
        let (device, root, fs_type) = if let Some(mount) = of {
            (mount.device.clone(), mount.root.clone(), mount.fs_type.clone())
        } else {
            let name = from.strip_prefix("/dev").expect("a mount or a device");
            ("udev".into(), format!("/{}", name.display()), "devtmpfs".into())
        };
        self.mounts.push(Mount { device, root, at: at.into(), read_only: false, fs_type });
        ended(0, "", "")
    }

    /// The target behind a device.
    fn target_of(&self, device: &str) -> Option<String> {
        let name = device.trim_start_matches("/dev/");
        self.target_of_disk(name)
    }

    fn target_of_disk(&self, name: &str) -> Option<String> {
        let is_it = |session: &Session| session.disk == name || self.map_of(session) == name;
        self.sessions.iter().find(|(_, session)| is_it(session)).map(|((iqn, _), _)| iqn.clone())
    }

    /// The map of dm-multipath over a disk: one for all disks of a target.
    fn map_of(&self, session: &Session) -> String {
        let iqn = self.sessions.iter().find(|(_, one)| one.number == session.number).map(|((iqn, _), _)| iqn);
        let first = self.sessions.iter().find(|((of, _), _)| Some(of) == iqn).map_or(0, |(_, first)| first.number);
        format!("dm-{first}")
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).skip(1).collect();
        match parts[..] {
            ["proc", "self", "mountinfo"] => Ok(self.mounts.iter().map(Mount::line).collect()),
            ["sys", "class", "iscsi_session", session, file] => {
                let number = session.trim_start_matches("session");
                let found = self.sessions.iter().find(|(_, session)| session.number.to_string() == number);
                let ((iqn, portal), _) = found.ok_or_else(missing)?;
                let is_dead = self.dead_portals.contains(portal);
                Ok(match file {
                    "targetname" => format!("{iqn}\n"),
                    "state" if is_dead => "FAILED\n".into(),
                    "state" => "LOGGED_IN\n".into(),
                    _ => return Err(missing()),
                })
            }
            ["sys", "block", name, "size"] => {
                let iqn = self.target_of_disk(name).ok_or_else(missing)?;
                Ok(format!("{}\n", self.seen_lengths[&iqn] / 512))
            }
            ["sys", "block", _, "dm", "uuid"] => Ok("mpath-36001405\n".into()),
            ["sys", "block", _, "dm", "name"] => Ok("mpatha\n".into()),
            _ => Err(missing()),
        }
    }

    fn list(&self, folder: &Path) -> Vec<String> {
        let parts: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).skip(1).collect();
        let session = |name: &str| {
            let number = name.trim_start_matches("session");
            self.sessions.values().find(|session| session.number.to_string() == number)
        };
        match parts[..] {
            ["sys", "class", "iscsi_session"] => {
                self.sessions.values().map(|session| format!("session{}", session.number)).collect()
            }
            ["sys", "class", "iscsi_session", name, "device"] => {
                session(name).map(|session| format!("target{}:0:0", session.number)).into_iter().collect()
            }
            ["sys", "class", "iscsi_session", name, "device", _] => {
                session(name).map(|session| format!("{}:0:0:0", session.number)).into_iter().collect()
            }
            ["sys", "class", "iscsi_session", name, "device", _, _, "block"] => {
                session(name).map(|session| session.disk.clone()).into_iter().collect()
            }
            ["sys", "block", disk, "holders"] if self.has_multipath => {
                let is_taken = |session: &&Session| {
                    self.waits_for_paths == 0 || self.map_of(session) == format!("dm-{}", session.number)
                };
                let of = self.sessions.values().find(|session| session.disk == disk).filter(is_taken);
                of.map(|session| self.map_of(session)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Mount {
    fn line(&self) -> String {
        let Self { device, root, at, read_only, fs_type } = self;
        let options = if *read_only { "ro" } else { "rw" };
        // Devices of the model have names for numbers.
        format!("1 1 {device} {root} {} {options},relatime - {fs_type} /dev/{device} rw\n", at.display())
    }
}
