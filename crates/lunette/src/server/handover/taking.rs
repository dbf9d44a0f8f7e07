//! The successor's side of a handover.

use std::env;
use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lunette_handover::{Channel, Handover, Message};
use lunette_store::{LeftMemory, MemoryStore, left_files, own_left_files};
use lunette_target::LeftSession;

use super::VARIABLE;
use super::leaving::medium;
use crate::config::left_out::LeftOut;
use crate::config::{Config, LunEntry};
use crate::disks::memory::{self, Memory};
use crate::disks::{Opened, Place};
use crate::failure::Failure;
use crate::server::reload::Spares;
use crate::server::served::Served;
use crate::server::unit::Disk;
use crate::size::Size;
use crate::systemd::Sockets;

/// The time that the predecessor has to move its memory and to come to a standstill, once this process is ready.
const STATE_LIMIT: Duration = Duration::from_mins(10);

/// The time that disks have which are not open. They are served when they answer.
const OPEN_LIMIT: Duration = Duration::from_millis(500);

/// The time that the predecessor has to end, once this process has taken the sessions.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The process whose place this one takes.
pub(crate) struct Predecessor {
    channel: Channel,
    has_taken: AtomicBool,
}

impl Predecessor {
    /// The predecessor, if this process was started for a handover.
    pub(crate) fn of_environment() -> Result<Option<Self>, Failure> {
        if env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let failed = |error: io::Error| Failure::other(format!("the way to the predecessor cannot be used: {error}"));
        let way = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
        // Nothing else is to read from it.
        let nothing = File::open("/dev/null").map_err(failed)?;
        rustix::stdio::dup2_stdin(&nothing).map_err(|error| failed(error.into()))?;
        let channel = Channel::from(UnixStream::from(way));
        channel.set_timeout(Some(STATE_LIMIT)).map_err(failed)?;
        Ok(Some(Self { channel, has_taken: AtomicBool::new(false) }))
    }

    /// Says that this process is ready, and waits for what it is left. From here on initiators wait, too.
    ///
    /// `left_out` has the mistakes in the configuration of this process.
    pub(crate) fn receive(&self, left_out: &[LeftOut]) -> Result<Left, Failure> {
        self.channel.send_ready().map_err(Failure::other)?;
        let left = match self.channel.receive().map_err(Failure::other)? {
            Message::State { bytes, descriptors } => Left::read(&bytes, descriptors)?,
            _ => return Err(Failure::other("the predecessor says what a successor does not expect")),
        };
        left.check(left_out)?;
        Ok(left)
    }

    /// Takes the sessions: from here on they are this process's alone.
    pub(crate) fn take(&self, left: &mut Left) -> Result<(), Failure> {
        self.channel.send_taken().map_err(Failure::other)?;
        self.has_taken.store(true, Ordering::Release);
        own_left_files();
        if let Some(memory) = left.memory.take() {
            memory.own();
        }
        Ok(())
    }

    /// Says why this process cannot go on with the sessions. Nothing is said after it has.
    pub(crate) fn refuse(&self, why: &Failure) {
        if !self.has_taken.load(Ordering::Acquire) {
            // One that has ended does not need to know.
            let _ = self.channel.send_refused(&why.to_string());
        }
    }

    /// Does the rest of a start on a thread of its own, when the predecessor has ended.
    ///
    /// The predecessor holds some addresses until then. Sessions do not wait for it.
    pub(crate) fn at_its_end(
        self: Arc<Self>,
        rest: impl FnOnce() -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let rest = move || {
            self.await_end();
            if let Err(failure) = rest() {
                tracing::error!("sessions are served, and not all that belongs to them: {failure}");
            }
        };
        thread::Builder::new().name("lunette-start".into()).spawn(rest).map(drop).map_err(Failure::no_thread)
    }

    fn await_end(&self) {
        // The end is the only news that can come.
        if self.channel.set_timeout(Some(END_LIMIT)).is_ok() && self.channel.receive().is_ok() {
            tracing::warn!("the predecessor goes on talking");
        }
    }
}

/// The state and the descriptors of the predecessor.
pub(crate) struct Left {
    value: Handover,
    /// `None` where one was taken.
    descriptors: Vec<Option<OwnedFd>>,
    memory: Option<LeftMemory>,
}

impl Left {
    fn read(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self, Failure> {
        let value = Handover::decode(bytes).map_err(Failure::other)?;
        let mut left = Self { value, descriptors: descriptors.into_iter().map(Some).collect(), memory: None };
        let files = std::mem::take(&mut left.value.files);
        left_files(left.take_all(&files)?);
        Ok(left)
    }

    fn take(&mut self, place: u32) -> Result<OwnedFd, Failure> {
        let descriptor = usize::try_from(place).ok().and_then(|place| self.descriptors.get_mut(place)?.take());
        descriptor.ok_or_else(|| Failure::other("the predecessor names a descriptor that it has not sent"))
    }

    fn take_all(&mut self, places: &[u32]) -> Result<Vec<OwnedFd>, Failure> {
        places.iter().map(|place| self.take(*place)).collect()
    }

    /// Refuses a configuration with mistakes in what the predecessor serves: it would go on without these objects, and
    /// end their sessions.
    fn check(&self, left_out: &[LeftOut]) -> Result<(), Failure> {
        let is_new = |one: &&LeftOut| !self.value.left_out.contains(&one.subject.to_string());
        let mistakes: Vec<_> = left_out.iter().filter(is_new).map(LeftOut::text).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(Failure::Configuration(mistakes.join("; "))) }
    }

    /// The sockets that listen.
    pub(crate) fn sockets(&mut self) -> Result<Sockets, Failure> {
        let (tcp, unix) = (self.value.listeners.clone(), self.value.unix_listeners.clone());
        let tcp = self.take_all(&tcp)?.into_iter().map(TcpListener::from).collect();
        Ok(Sockets::left(tcp, self.take_all(&unix)?.into_iter().map(UnixListener::from).collect()))
    }

    /// Opens what is served, with the disks that were left.
    pub(crate) fn open(&mut self, config: &Config) -> Result<Served, Failure> {
        let (mut spares, mut held) = (Spares::default(), Vec::<Opened>::new());
        if let Some(memory) = self.value.memory.take() {
            let descriptor = self.take(memory.descriptor)?;
            let left = LeftMemory::open(descriptor).map_err(Failure::disk)?;
            for disk in &memory.disks {
                let store = MemoryStore::inherit(disk.len_bytes, &left, &disk.places).map_err(Failure::disk)?;
                let target = config.targets.iter().find(|target| target.name == disk.target);
                let entry = target.and_then(|target| target.luns.iter().find(|entry| entry.number == disk.lun));
                let opened = memory::opened(store);
                if let Some(entry) = entry {
                    if !is_memory(entry, disk.len_bytes) {
                        let (lun, target) = (disk.lun, &disk.target);
                        return Err(Failure::disk(format!(
                            "LUN {lun} of {target} was memory, whose bytes would be lost with another disk in its place"
                        )));
                    }
                    spares.put_left(&disk.target, entry, &opened);
                }
                held.push(opened);
            }
            self.memory = Some(left);
        }
        let served = Served::open_within(config, Some(OPEN_LIMIT), &mut spares)?;
        self.inherit(&served)?;
        Ok(served)
    }

    /// Lets units and targets go on from what they were. A disk that was open and is not now is a reason to leave the
    /// sessions where they are.
    fn inherit(&self, served: &Served) -> Result<(), Failure> {
        for (name, target) in &served.targets {
            let of_target = self.value.units.iter().filter(|unit| unit.target == *name);
            for unit in of_target {
                let has_serial = |disk: &&Disk| disk.unit.config().serial == unit.serial;
                let Some(disk) = target.disks.values().find(has_serial) else { continue };
                if !disk.is_open() && !unit.not_ready {
                    let (number, place) = (disk.entry.number, &disk.entry.disk.place);
                    return Err(Failure::disk(format!(
                        "LUN {number} of {name}: {place} cannot be opened by this process"
                    )));
                }
                let (before, now) = (&unit.medium, medium(disk));
                if disk.is_open() && !before.is_empty() && *before != now {
                    let number = disk.entry.number;
                    return Err(Failure::disk(format!(
                        "LUN {number} of {name} is another disk than before ({before}; now {now}); restart the server instead"
                    )));
                }
                disk.unit.inherit(unit).map_err(Failure::other)?;
            }
            if let Some(of_device) = self.value.targets.iter().find(|target| target.name == *name) {
                target.device.inherit(of_device).map_err(Failure::other)?;
            }
        }
        Ok(())
    }

    /// The sessions with their sockets.
    pub(crate) fn sessions(&mut self) -> Result<Vec<LeftSession>, Failure> {
        let values = std::mem::take(&mut self.value.sessions);
        let with_sockets = |value: lunette_handover::Session| {
            let places: Vec<u32> = value.connections.iter().map(|connection| connection.socket).collect();
            let sockets = self.take_all(&places)?.into_iter().map(TcpStream::from).collect();
            Ok(LeftSession { value, sockets })
        };
        values.into_iter().map(with_sockets).collect()
    }

    /// The version of the predecessor.
    pub(crate) fn version(&self) -> &str {
        &self.value.version
    }
}

/// Whether an entry is for memory of that length, and nothing else.
fn is_memory(entry: &LunEntry, len_bytes: u64) -> bool {
    entry.disk.keys.is_none() && entry.disk.place == Place::Memory(Memory(Size(len_bytes)))
}
