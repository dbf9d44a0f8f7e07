//! The objects that a configuration names and this machine lacks.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use lunette_session::{Authentication, Credentials, Secret, check_secrets};
use lunette_store::{FileStore, OpenError, OpenOptions};

use super::Severity;
use crate::answers::Rounds;
use crate::config::api::{Api, Place as ApiPlace};
use crate::config::diff::{Change, LunChange};
use crate::config::mistakes::{Mistake, Step};
use crate::config::{Chap, Config, Listen, LunEntry, Target, ecl};
use crate::control_plane;
use crate::disks::DiskName;
use crate::secret::SecretFiles;
use crate::system;

/// Why something that is named cannot be used.
pub(crate) type Lack = (Severity, String);

/// The objects that a configuration may name. A test has a machine of its own.
pub(crate) trait Machine {
    /// Whether a portal can be opened at this address.
    fn listen(&self, address: SocketAddr) -> Result<(), Lack>;
    /// Whether there is a network interface of this name.
    fn interface(&self, name: &str) -> Result<(), Lack>;
    /// Reads the secrets in files.
    fn secrets(&self, files: &[&Path]) -> SecretFiles;
    /// Whether each of these disks can be opened.
    fn disks(&self, entries: &[LunEntry]) -> Vec<Result<(), Lack>>;
    /// Whether a file can be made where this one is to be.
    fn folder_of(&self, file: &Path) -> Result<(), Lack>;
    /// Whether what a place of the API needs is there.
    fn api(&self, api: &Api, place: &ApiPlace) -> Result<(), Lack>;
}

/// The machine on which this process runs.
pub(crate) struct ThisMachine;

#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
fn degraded(why: impl ToString) -> Lack {
    (Severity::Degraded, why.to_string())
}

impl Machine for ThisMachine {
    fn listen(&self, address: SocketAddr) -> Result<(), Lack> {
        TcpListener::bind(address).map(drop).map_err(|error| {
            let why = system::listen_failure(address, &error).to_string();
            // The program may be the server that the file is for.
            if error.kind() == ErrorKind::AddrInUse { (Severity::Note, why) } else { degraded(why) }
        })
    }

    fn interface(&self, name: &str) -> Result<(), Lack> {
        let is_there = !name.contains('/') && Path::new("/sys/class/net").join(name).exists();
        if is_there {
            Ok(())
        } else {
            Err(degraded(format!("this machine has no interface {name}; `ip link` lists them")))
        }
    }

    fn secrets(&self, files: &[&Path]) -> SecretFiles {
        SecretFiles::read(files.iter().copied())
    }

    /// A disk that does not answer keeps no answer from the others: the check may stand before a start.
    fn disks(&self, entries: &[LunEntry]) -> Vec<Result<(), Lack>> {
        static ROUNDS: Rounds = Rounds::new();
        let names = entries.iter().map(|entry| format!("disk {}", entry.disk.place)).collect();
        let asked = entries.to_vec();
        let late = |entry: &LunEntry| {
            Err(degraded(format!("{}: it does not answer; check what it lies on", entry.disk.place)))
        };
        let answers = ROUNDS.ask(names, move |index| file(&asked[index]));
        answers.into_iter().zip(entries).map(|(answer, entry)| answer.unwrap_or_else(|| late(entry))).collect()
    }

    fn folder_of(&self, file: &Path) -> Result<(), Lack> {
        let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        match folder.metadata() {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(degraded(format!("{} is no folder", folder.display()))),
            Err(error) => Err(degraded(format!("{}: {error}; make the folder first", folder.display()))),
        }
    }

    fn api(&self, api: &Api, place: &ApiPlace) -> Result<(), Lack> {
        match place {
            ApiPlace::Unix(path) => self.folder_of(path),
            ApiPlace::Tcp(address) => {
                control_plane::credentials(api).map_err(degraded)?;
                self.listen(*address)
            }
        }
    }
}

/// Whether the file or block device of a disk can be opened. All other disks can, as far as it is known.
fn file(entry: &LunEntry) -> Result<(), Lack> {
    let Some(path) = entry.disk.place.path() else { return Ok(()) };
    if entry.create.is_some() && !path.exists() {
        return ThisMachine.folder_of(path);
    }
    let options = OpenOptions { create: None, preallocate: false, ..entry.store_options() };
    FileStore::open(path, &options).map(drop).map_err(|error| {
        let severity = if is_in_use(&error) { Severity::Note } else { Severity::Degraded };
        (severity, error.to_string())
    })
}

/// Whether another process, which may be the server that the file is for, has the disk.
fn is_in_use(error: &OpenError) -> bool {
    matches!(error, OpenError::InUse { .. })
}

/// All objects that a configuration names and the machine lacks.
pub(crate) fn lacks(config: &Config, machine: &dyn Machine) -> Vec<(Severity, Mistake)> {
    let mut found = Lacks(Vec::new());
    let key = |name| vec![Step::Key(name)];
    for (index, listen) in config.listen.iter().flatten().enumerate() {
        found.listen(&[Step::Key("listen"), Step::Index(index)], listen, machine);
    }
    for (index, portal) in config.portals.iter().enumerate() {
        found.listen(&[Step::Key("portal"), Step::Index(index), Step::Key("address")], &portal.address, machine);
    }
    for (index, place) in config.ecl.iter().enumerate() {
        if let ecl::Place::Ethernet(interface) = place {
            found.check(&[Step::Key("ecl"), Step::Index(index)], machine.interface(interface));
        }
    }
    for (index, address) in config.metrics.iter().flat_map(|metrics| metrics.listen.iter().enumerate()) {
        found.check(&[Step::Key("metrics"), Step::Key("listen"), Step::Index(index)], machine.listen(*address));
    }
    if let Some(state) = &config.state {
        let refused = |(_, why)| (Severity::Error, why);
        found.check(&key("state"), machine.folder_of(state).map_err(refused));
    }
    for (index, place) in config.api.iter().flat_map(|api| api.listen.iter().enumerate()) {
        let at = [Step::Key("api"), Step::Key("listen"), Step::Index(index)];
        found.check(&at, config.api.as_ref().map_or(Ok(()), |api| machine.api(api, place)));
    }
    let secrets = machine.secrets(&config.secret_files().collect::<Vec<_>>());
    let mut rules = vec![found.rule(
        "discovery".into(),
        &key("discovery"),
        (&config.discovery.chap, config.discovery.mutual_chap.as_ref()),
        &secrets,
    )];
    let disks: Vec<_> = config.targets.iter().flat_map(|target| &target.luns).cloned().collect();
    let mut of_disks = machine.disks(&disks).into_iter();
    for (index, target) in config.targets.iter().enumerate() {
        let at = [Step::Key("target"), Step::Index(index)];
        for (number, result) in (0..target.luns.len()).zip(&mut of_disks) {
            let at = [at.as_slice(), &[Step::Key("lun"), Step::Index(number), Step::Key("disk")]].concat();
            found.check(&at, result);
        }
        rules.extend(found.rules_of(target, &at, &secrets));
    }
    let named: Vec<_> = rules.iter().map(|(name, _, rule)| (name.clone(), rule)).collect();
    if let Err(error) = check_secrets(&named) {
        let at = rules.iter().find(|(name, ..)| *name == error.prover).map(|(_, at, _)| at.clone());
        found.0.push((Severity::Degraded, Mistake { at: at.unwrap_or_default(), text: error.to_string() }));
    }
    found.0
}

/// The obstacle to a change now. `changes`: all that are made together. `is_open`: whether the server has a disk open
/// already.
pub(crate) fn obstacle(
    change: &Change,
    changes: &[Change],
    config: &Config,
    is_open: &dyn Fn(&DiskName) -> bool,
    machine: &dyn Machine,
) -> Option<String> {
    let find = |name: &str| config.targets.iter().find(|target| target.name == name);
    let of_disks = |entries: &[LunEntry]| {
        let closed: Vec<_> = entries.iter().filter(|entry| !is_open(&entry.disk)).cloned().collect();
        machine.disks(&closed).into_iter().find_map(Result::err)
    };
    let lack = match change {
        Change::PortalAdded(portal) => {
            let port = portal.address.port();
            let makes_room =
                |change: &Change| matches!(change, Change::PortalRemoved(gone) if gone.address.port() == port);
            if changes.iter().any(makes_room) { None } else { machine.listen(portal.address).err() }
        }
        Change::TargetAdded(name) => {
            let target = find(name)?;
            of_disks(&target.luns).or_else(|| secret_lack(target, machine))
        }
        Change::Lun { target, number, change: LunChange::Added | LunChange::Replaced } => {
            of_disks(std::slice::from_ref(find(target)?.lun(*number)?))
        }
        Change::Host { target, .. } => secret_lack(find(target)?, machine),
        _ => None,
    };
    lack.map(|(_, why)| why)
}

/// The first secret of a target that cannot be used.
fn secret_lack(target: &Target, machine: &dyn Machine) -> Option<Lack> {
    let mut found = Lacks(Vec::new());
    found.rules_of(target, &[], &machine.secrets(&target.secret_files().collect::<Vec<_>>()));
    let (severity, mistake) = found.0.into_iter().find(|(severity, _)| *severity != Severity::Note)?;
    Some((severity, mistake.text))
}

struct Lacks(Vec<(Severity, Mistake)>);

/// A rule of CHAP: its name for people, its place, and what it asks for.
type Rule = (String, Vec<Step>, Authentication);

impl Lacks {
    fn check(&mut self, at: &[Step], result: Result<(), Lack>) {
        if let Err((severity, text)) = result {
            self.0.push((severity, Mistake { at: at.to_vec(), text }));
        }
    }

    fn listen(&mut self, at: &[Step], listen: &Listen, machine: &dyn Machine) {
        self.check(at, listen.unknown().map_or(Ok(()), |why| Err((Severity::Degraded, why.into()))));
        for address in &listen.addresses {
            self.check(at, machine.listen(*address));
        }
    }

    fn rules_of(&mut self, target: &Target, at: &[Step], secrets: &SecretFiles) -> Vec<Rule> {
        let own = (target.chap.as_slice(), target.mutual_chap.as_ref());
        let mut rules = vec![self.rule(format!("target {}", target.name), at, own, secrets)];
        for (index, host) in target.hosts.iter().enumerate() {
            let at = [at, &[Step::Key("host"), Step::Index(index)]].concat();
            let name = format!("target {}, host {}", target.name, host.name);
            rules.push(self.rule(name, &at, (&host.chap, host.mutual_chap.as_ref()), secrets));
        }
        rules
    }

    fn rule(
        &mut self,
        name: String,
        at: &[Step],
        (chap, mutual): (&[Chap], Option<&Chap>),
        secrets: &SecretFiles,
    ) -> Rule {
        let mut read = |key: &[Step], chap: &Chap| {
            let at = [at, key, &[Step::Key("secret_file")]].concat();
            let secret = secrets.secret(&chap.secret_file).map_err(degraded);
            if secret.as_ref().is_ok_and(Secret::is_short) {
                let least = Secret::RECOMMENDED_BYTES;
                let text =
                    format!("the secret of {} is shorter than {least} bytes (RFC 7143 section 9.2.1)", chap.user);
                self.0.push((Severity::Note, Mistake { at: at.clone(), text }));
            }
            match secret {
                Ok(secret) => Some(Credentials { user: chap.user.clone(), secret }),
                Err(lack) => {
                    self.check(&at, Err(lack));
                    None
                }
            }
        };
        let all = chap.iter().enumerate();
        let initiators = all.filter_map(|(index, chap)| read(&[Step::Key("chap"), Step::Index(index)], chap)).collect();
        let target = mutual.and_then(|chap| read(&[Step::Key("mutual_chap")], chap));
        (name, at.to_vec(), Authentication::Chap { initiators, target })
    }
}
