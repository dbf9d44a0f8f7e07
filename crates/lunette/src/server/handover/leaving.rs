//! The predecessor's side of a handover.

use std::env;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lunette_api::Duplicate;
use lunette_handover::{Channel, ChannelError, Handover, Memory, MemoryDisk, Message, Unit};
use lunette_store::{FileStore, LeavingMemory, MemoryStore, Store as _};
use lunette_target::{Control, Standstill};

use super::VARIABLE;
use super::door::Outcome;
use crate::config::left_out::LeftOut;
use crate::config::{Config, LunEntry};
use crate::server::control_plane::ControlPlane;
use crate::server::served::Served;
use crate::server::unit::{Disk, DiskStore};
use crate::systemd;

/// The time that the successor has to read its configuration.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The time that tasks have to end. Initiators wait meanwhile.
const STANDSTILL_LIMIT: Duration = Duration::from_secs(1);

/// The time that the successor has to open everything. Initiators wait meanwhile; the pings of some have 5 s.
const TAKE_LIMIT: Duration = Duration::from_secs(3);

/// The time that a successor has to end which is not wanted any more.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The interval at which it is looked whether it has.
const END_LOOK: Duration = Duration::from_millis(2);

/// The served objects, wherever they are kept.
pub(crate) enum What {
    /// Objects that can be changed.
    Changing(Box<ControlPlane>),
    /// Objects that stay as they were at the start.
    Fixed(Box<(Config, Served)>),
}

/// A server that can leave its sessions to a successor.
pub(crate) struct Leaving {
    control: Control,
    what: What,
    /// The sockets of the API.
    doors: Vec<Duplicate>,
    /// Why the event loop lets no other process go on.
    event_loop: Option<&'static str>,
    one_at_a_time: Mutex<()>,
}

/// Disks that are left to a successor, until it is known who owns them.
#[derive(Default)]
struct LeftDisks {
    files: Vec<Arc<FileStore>>,
    memory: Option<LeavingMemory>,
}

impl Drop for LeftDisks {
    /// The disks stay: no other process has taken them.
    fn drop(&mut self) {
        self.files.iter().for_each(|file| file.stay());
        if let Some(memory) = self.memory.take() {
            memory.take_back();
        }
    }
}

/// The descriptors of a value, which are found by their places.
#[derive(Default)]
struct Descriptors<'a>(Vec<BorrowedFd<'a>>);

impl<'a> Descriptors<'a> {
    fn add(&mut self, descriptor: BorrowedFd<'a>) -> u32 {
        self.0.push(descriptor);
        (self.0.len() - 1) as u32
    }
}

impl Leaving {
    pub(crate) fn new(control: Control, what: What, doors: Vec<Duplicate>, event_loop: Option<&'static str>) -> Self {
        Self { control, what, doors, event_loop, one_at_a_time: Mutex::default() }
    }

    /// Starts a successor and leaves everything to it, and tells `finish` what came of it before anything else can
    /// change. After [`Outcome::Taken`] that is to end this process: nothing that it holds is its own any more.
    pub(crate) fn hand_over(&self, finish: impl Fn(&Outcome)) {
        let _only = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match &self.what {
            What::Changing(control_plane) => control_plane.while_nothing_changes(|reloader| {
                self.hand_over_all(reloader.config(), reloader.served(), reloader.left_out()).inspect(&finish)
            }),
            What::Fixed(fixed) => self.hand_over_all(&fixed.0, &fixed.1, &[]).inspect(&finish),
        };
        if let Err(reason) = result {
            tracing::error!("the handover has failed, and everything goes on: {reason}");
            finish(&Outcome::Refused { reason });
        }
    }

    fn hand_over_all(&self, config: &Config, served: &Served, left_out: &[LeftOut]) -> Result<Outcome, String> {
        self.check(config, served)?;
        let (ours, theirs) = Channel::pair().map_err(|error| error.to_string())?;
        let mut child =
            start_successor(&theirs).map_err(|error| format!("the successor cannot be started: {error}"))?;
        drop(theirs);
        let outcome = self.hand_over_to(&ours, served, left_out, &mut child);
        match &outcome {
            // The successor waits for the end of this process, and takes that of the way for it.
            Ok(_) => std::mem::forget(ours),
            Err(_) => end(&mut child),
        }
        outcome
    }

    /// Refuses what a successor could not go on with, before anything stands still.
    fn check(&self, config: &Config, served: &Served) -> Result<(), String> {
        if let Some(why) = self.event_loop {
            return Err(why.into());
        }
        if process::id() == 1 {
            return Err("this process is the first of its container, which ends with it; restart that instead".into());
        }
        if !config.datagram_portals().is_empty() {
            return Err("the sockets of ecl do not go to another process; restart the server instead".into());
        }
        if config.targets.iter().any(|target| target.luns.iter().any(|entry| entry.is_given)) {
            return Err("initiators of templates have disks that end with this process; restart it instead".into());
        }
        for (name, target) in &served.targets {
            for (number, disk) in &target.disks {
                check_disk(disk).map_err(|why| format!("LUN {number} of {name}: {why}"))?;
            }
        }
        Ok(())
    }

    fn hand_over_to(
        &self,
        successor: &Channel,
        served: &Served,
        left_out: &[LeftOut],
        child: &mut Child,
    ) -> Result<Outcome, String> {
        let pid = child.id();
        successor.set_timeout(Some(START_LIMIT)).map_err(|error| error.to_string())?;
        expect(successor, |message| matches!(message, Message::Ready))?;
        let memory: Vec<_> = served.memory_disks().collect();
        for (_, _, store) in &memory {
            // Initiators go on meanwhile.
            store.make_shareable().map_err(|error| error.to_string())?;
        }
        let mut standstill = self.control.stand_still(STANDSTILL_LIMIT).map_err(|error| error.to_string())?;
        for unit in served.units() {
            if let Some(why) = unit.unit.holds_up_handover() {
                return Err(format!("LUN {}: {why}", unit.entry.number));
            }
        }
        let lent = served.state_file.as_ref().map(|file| file.lend()).transpose().map_err(|error| error.to_string())?;
        let sessions = standstill.take_sessions();
        let left = LeftDisks::of(served, !memory.is_empty())?;
        let (mut value, descriptors) = self.value(served, &standstill, &sessions, &left, &memory)?;
        value.left_out = left_out.iter().map(|one| one.subject.to_string()).collect();
        let bytes = value.encode().map_err(|error| error.to_string())?;
        successor.set_timeout(Some(TAKE_LIMIT)).map_err(|error| error.to_string())?;
        let sent = successor.send_state(&bytes, &descriptors.0).map_err(|error| refusal(&error));
        if let Err(why) = sent.and_then(|()| taken(successor)) {
            // First of all: it may have the state file open, and hold its lock.
            end(child);
            return Err(why);
        }
        // From here on nothing is this process's own: what would take it back is forgotten.
        let outcome = Outcome::Taken {
            pid,
            sessions: sessions.len(),
            lost: standstill.lost(),
            pause_us: u64::try_from(standstill.began().elapsed().as_micros()).unwrap_or(u64::MAX),
        };
        std::mem::forget((lent, left, standstill));
        systemd::notify(&format!("MAINPID={pid}"));
        tracing::info!("left to process {pid}: {outcome}");
        Ok(outcome)
    }

    /// All that is left, and its descriptors.
    fn value<'a>(
        &'a self,
        served: &Served,
        standstill: &'a Standstill,
        sessions: &'a [lunette_target::LeftSession],
        left: &'a LeftDisks,
        memory: &[(String, u16, Arc<MemoryStore>)],
    ) -> Result<(Handover, Descriptors<'a>), String> {
        let mut descriptors = Descriptors::default();
        let mut value = Handover { version: env!("CARGO_PKG_VERSION").into(), ..Handover::default() };
        for session in sessions {
            let mut own = session.value.clone();
            for (connection, socket) in own.connections.iter_mut().zip(&session.sockets) {
                connection.socket = descriptors.add(socket.as_fd());
            }
            value.sessions.push(own);
        }
        for listener in standstill.listeners() {
            value.listeners.push(descriptors.add(listener.as_fd()));
        }
        for door in &self.doors {
            match door {
                Duplicate::Tcp(listener) => value.listeners.push(descriptors.add(listener.as_fd())),
                Duplicate::Unix(listener) => value.unix_listeners.push(descriptors.add(listener.as_fd())),
            }
        }
        for file in &left.files {
            value.files.push(descriptors.add(file.leave()));
        }
        if let Some(leaving) = &left.memory {
            let disk = |(target, lun, store): &(String, u16, Arc<MemoryStore>)| {
                let places = store.places(leaving).map_err(|error| error.to_string())?;
                Ok::<_, String>(MemoryDisk {
                    target: target.clone(),
                    lun: *lun,
                    len_bytes: store.geometry().len_bytes,
                    places,
                })
            };
            let disks = memory.iter().map(disk).collect::<Result<_, _>>()?;
            value.memory = Some(Memory { descriptor: descriptors.add(leaving.as_fd()), disks });
        }
        for (name, target) in &served.targets {
            value.targets.push(target.device.handover());
            let unit = |disk: &Disk| Unit { medium: medium(disk), ..disk.unit.handover(name) };
            value.units.extend(target.disks.values().map(unit));
        }
        Ok((value, descriptors))
    }
}

impl LeftDisks {
    fn of(served: &Served, has_memory: bool) -> Result<Self, String> {
        let mut left = Self::default();
        if has_memory {
            left.memory = Some(LeavingMemory::leave().map_err(|error| error.to_string())?);
        }
        left.files = served.units().filter_map(|disk| disk.store.plain_file().cloned()).collect();
        Ok(left)
    }
}

impl Served {
    fn units(&self) -> impl Iterator<Item = &Disk> {
        self.targets.values().flat_map(|target| target.disks.values())
    }

    /// The disks in memory, with their targets and LUNs.
    fn memory_disks(&self) -> impl Iterator<Item = (String, u16, Arc<MemoryStore>)> {
        let memory = |disk: &Disk| disk.store.opened()?.memory().cloned();
        self.targets.iter().flat_map(move |(name, target)| {
            target.disks.iter().filter_map(move |(lun, disk)| Some((name.clone(), *lun, memory(disk)?)))
        })
    }
}

/// Whether a successor can go on with a disk.
fn check_disk(disk: &Disk) -> Result<(), String> {
    let LunEntry { disk: name, .. } = &disk.entry;
    let can_go_on = match &disk.store {
        DiskStore::Open(opened) => opened.memory().is_some() || opened.plain_file().is_some(),
        DiskStore::Shared(_) => false,
        // The successor tries to open it, as this process does.
        DiskStore::Absent(_) => true,
    };
    if can_go_on {
        return Ok(());
    }
    Err(format!("{name}: only files, block devices and memory go to another process; restart the server instead"))
}

/// The variables by which the service manager tells this process alone about itself.
const OWN_VARIABLES: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"];

/// The blocks of a disk by their medium, for a comparison: another medium at the same place is another disk.
pub(super) fn medium(disk: &Disk) -> String {
    let Some(opened) = disk.store.opened() else { return String::new() };
    let place = match (opened.plain_file(), opened.memory()) {
        (Some(file), _) => format!("{:?}", file.identity()),
        (None, Some(memory)) => format!("memory of {} bytes", memory.geometry().len_bytes),
        (None, None) => disk.entry.disk.to_string(),
    };
    format!("{place}, blocks of {} bytes, {:?}", disk.unit.block_size(), disk.entry.provisioning)
}

/// Starts the program that has the place of this one now, with the same arguments.
fn start_successor(way: &Channel) -> io::Result<Child> {
    let way = way.as_fd().try_clone_to_owned()?;
    let mut command = Command::new(program()?.0);
    for variable in OWN_VARIABLES {
        command.env_remove(variable);
    }
    command.args(env::args_os().skip(1)).env(VARIABLE, "1").stdin(Stdio::from(way)).spawn()
}

/// Whether another program has the path of this one.
pub(super) fn program_was_replaced() -> bool {
    program().is_ok_and(|(_, was_replaced)| was_replaced)
}

/// The path of this program, and whether a package has put another one there.
fn program() -> io::Result<(PathBuf, bool)> {
    let path = env::current_exe()?;
    // The system's mark of a file that was replaced.
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok((replaced.map_or_else(|| path.clone(), PathBuf::from), replaced.is_some()))
}

/// Waits for the word of the successor. When it is late, the way in is closed first: so it is there, or never comes.
fn taken(successor: &Channel) -> Result<(), String> {
    match successor.receive() {
        Ok(Message::Taken) => return Ok(()),
        Ok(Message::Refused(why)) => return Err(format!("the new process cannot go on with the sessions: {why}")),
        Ok(_) => {}
        Err(error) => tracing::warn!("the successor does not answer: {error}"),
    }
    successor.refuse_more().map_err(|error| error.to_string())?;
    match successor.receive() {
        Ok(Message::Taken) => Ok(()),
        _ => Err("the new process was not ready in time, or has ended".into()),
    }
}

fn expect(successor: &Channel, is_it: impl Fn(&Message) -> bool) -> Result<(), String> {
    match successor.receive() {
        Ok(message) if is_it(&message) => Ok(()),
        Ok(Message::Refused(why)) => Err(format!("the new process cannot go on with the sessions: {why}")),
        Ok(_) => Err("the successor says what is not expected".into()),
        Err(error) => Err(refusal(&error)),
    }
}

/// Ends a successor that has not taken over. One that hangs in the system is not waited for.
fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let limit = Instant::now() + END_LIMIT;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < limit {
        thread::sleep(END_LOOK);
    }
}

fn refusal(error: &ChannelError) -> String {
    format!("the new process cannot go on with the sessions: {error}")
}
