//! The target as it ships, stepped under the virtual clock.

mod handovers;

use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lunette_device::{Entropy, LogicalUnit, LogicalUnitConfig, LunMap, TargetDevice};
use lunette_ecl::handshake::ResetSecret;
use lunette_ecl_endpoint::Config as DatagramConfig;
use lunette_reactor::{CarriedDatagram, DatagramFailure, DatagramPath, Ecn};
use lunette_scsi::Lun;
use lunette_session::Authentication;
use lunette_session::keys::Offer;
use lunette_store::MemoryStore;
use lunette_target::stepped::{CoreStep, SteppedServer};
use lunette_target::{
    DatagramPlace, DatagramPortalConfig, Growth, Host, HostConfig, PendingUpdate, PortalConfig, PortalTls,
    ServerConfig, TargetConfig, UnitChange, Update,
};

use crate::certificates::Certificates;
use crate::dice::Dice;
use crate::env::{Env, Happening};
use crate::freezes::Freeze;
use crate::scenario::{Scenario, TARGET, name};
use crate::store::Stores;
use handovers::{Handovers, Left};

/// Data in flight that the target has memory for, of each core.
const BUFFER_BYTES: usize = 16 << 20;

/// The number of a logical unit that comes and goes.
const GUEST: u16 = 7;
const GUEST_BYTES: u64 = 1 << 20;
const GUEST_SERIAL: &str = "GUEST";
const GUEST_BLOCK_LEN: u32 = 512;

/// A lost target is started again after at most so long.
const RESTART_US: u64 = 3_000_000;

pub(crate) struct Server {
    running: Option<Running>,
    /// Changes that are still to be made.
    changes: u32,
    /// Freezes that are still to come.
    freezes: u32,
    /// Whether it was told to stop.
    stopping: bool,
    /// How often it is still to be killed.
    kills: u32,
    handovers: Handovers,
    /// The secret of its Reset packets.
    secret: [u8; 32],
    dice: Arc<Mutex<Dice>>,
}

struct Running {
    stepped: SteppedServer,
    device: Arc<TargetDevice>,
    /// By core: it has ended.
    stopped: Vec<bool>,
    agrees: Offer,
    tls: Option<PortalTls>,
    guest: Option<Arc<LogicalUnit>>,
    updates: Vec<PendingUpdate>,
    freeze: Freeze,
}

impl Server {
    pub(crate) fn new(stores: &Stores, env: &mut Env) -> Self {
        let dice = Arc::new(Mutex::new(Dice::new(u64::from_le_bytes(env.dice.bytes()))));
        let mut server = Self {
            running: None,
            changes: env.scenario.load.changes,
            freezes: env.scenario.load.freezes,
            stopping: false,
            kills: env.scenario.air.kills,
            handovers: Handovers::new(env.scenario.handovers),
            secret: env.dice.bytes(),
            dice,
        };
        server.start(stores, env);
        server.plan(env);
        server.plan_freeze(env);
        server.plan_kill(env);
        server.plan_handover(env);
        if env.scenario.load.stops {
            let at = env.now + env.dice.micros(0, 2_000_000);
            env.enter(at, Happening::Stop);
        }
        server
    }

    /// Starts a target over the stores, as a process does.
    pub(crate) fn start(&mut self, stores: &Stores, env: &mut Env) {
        match self.open(None, stores, env) {
            Ok(running) => self.running = Some(running),
            Err(why) => env.fail(why),
        }
    }

    /// A target of its own over the stores, in the place of the one that has left something.
    fn open(&self, left: Option<Left>, stores: &Stores, env: &mut Env) -> Result<Running, String> {
        let (device, guest) = open_device(left.as_ref(), stores, &env.scenario)?;
        let (mut agrees, mut cores) = (env.scenario.agrees.clone(), env.scenario.cores);
        let mut inherited = Vec::new();
        if let Some(left) = left {
            (agrees, cores, inherited) = (left.agrees.clone(), env.dice.pick(&[1, 2, 3]), left.into_sessions());
        }
        let scenario = &env.scenario;
        let tls = env.certificates.as_ref().map(Certificates::portal);
        let config = ServerConfig {
            timers: scenario.timers,
            buffer_bytes: BUFFER_BYTES * cores,
            file_threads: cores,
            cores,
            datagram_portals: datagram_portals(scenario),
            datagrams: DatagramConfig { reset_secret: Some(ResetSecret::new(self.secret)), ..scenario.air.datagrams() },
            inherited,
            ..ServerConfig::new(vec![portal(tls.clone())], vec![target(scenario, &device, &agrees)])
        };
        let stepped = SteppedServer::bind(config, env.instant(), self.entropy());
        let stepped = stepped.map_err(|error| format!("the target does not start: {error}"))?;
        let stopped = vec![false; cores];
        Ok(Running { stepped, device, stopped, agrees, tls, guest, updates: Vec::new(), freeze: Freeze::default() })
    }

    fn entropy(&self) -> Entropy {
        let dice = Arc::clone(&self.dice);
        Arc::new(move |bytes| {
            dice.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
            Ok(())
        })
    }

    /// Whether its ports are open.
    pub(crate) fn is_there(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.running.is_some() && !self.stopping
    }

    /// Nothing is left of any session.
    pub(crate) fn is_idle(&self) -> bool {
        let Some(running) = &self.running else { return false };
        let statistics = running.stepped.monitor().read();
        !self.stopping
            && self.handovers.are_over()
            && (statistics.connections, statistics.sessions, statistics.tasks, statistics.suspended) == (0, 0, 0, 0)
            && running.stepped.associations() == 0
    }

    pub(crate) fn bytes_in_use(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.stepped.monitor().read().buffer_bytes)
    }

    /// The rest, in words.
    pub(crate) fn describe(&self) -> String {
        match &self.running {
            Some(running) => format!("target: {:?}", running.stepped.monitor().read()),
            None => "target: stopped".into(),
        }
    }

    pub(crate) fn accept(&mut self, stream: TcpStream) {
        let Some(stream) = self.handovers.hold(stream) else { return };
        if let Some(running) = &mut self.running {
            running.accept(stream);
        }
    }

    // Datagrams.

    pub(crate) fn arrive(&mut self, path: DatagramPath, ecn: Ecn, bytes: Vec<u8>) {
        if let Some(running) = &mut self.running {
            running.stepped.arrive(path, ecn, bytes);
        }
    }

    pub(crate) fn fail_datagram(&mut self, failure: DatagramFailure) {
        if let Some(running) = &mut self.running {
            running.stepped.fail_datagram(failure);
        }
    }

    pub(crate) fn take_datagrams(&mut self) -> Vec<CarriedDatagram> {
        self.running.as_mut().map(|running| running.stepped.take_datagrams()).unwrap_or_default()
    }

    /// Lets each core take a turn, in an order that is drawn. `false` when no other turn is needed at this moment.
    pub(crate) fn turn(&mut self, next: &mut Option<Instant>, busy: &mut bool, env: &mut Env) -> bool {
        let mut moved = self.turn_predecessors(busy, env);
        let Some(running) = &mut self.running else { return moved };
        moved |= running.turn(next, busy, env);
        for answer in running.updates.extract_if(.., |update| update.poll().is_some()) {
            moved = true;
            drop(answer);
            env.tally.happening("changes made");
        }
        moved
    }

    /// Begins an orderly stop.
    pub(crate) fn stop(&mut self, env: &mut Env) {
        if let Some(running) = &self.running
            && !std::mem::replace(&mut self.stopping, true)
        {
            env.note(|| "the target is told to stop".into());
            running.stepped.stopper().stop();
        }
    }

    /// Sees to the end of a target that was told to stop: every store has heard of everything.
    pub(crate) fn settle(&mut self, stores: &mut Stores, env: &mut Env) -> bool {
        if !self.running.as_ref().is_some_and(Running::has_ended) {
            return false;
        }
        if stores.running() > 0 {
            env.fail("the target has stopped, and a store still works for it");
        }
        env.tally.happening("stops");
        stores.thaw();
        self.handovers.end();
        (self.running, self.stopping) = (None, false);
        let at = env.now + env.dice.micros(0, RESTART_US);
        env.enter(at, Happening::Start);
        true
    }

    // Ends without a word.

    fn plan_kill(&mut self, env: &mut Env) {
        if self.kills > 0 {
            self.kills -= 1;
            let at = env.now + env.dice.micros(0, 3_000_000);
            env.enter(at, Happening::Kill);
        }
    }

    /// The process is gone, and its clients are not told.
    pub(crate) fn kill(&mut self, stores: &mut Stores, env: &mut Env) {
        self.plan_kill(env);
        self.handovers.end();
        if self.running.take().is_none() {
            return;
        }
        env.note(|| "the target is gone".into());
        env.tally.happening("ends without a word");
        self.stopping = false;
        stores.thaw();
        stores.lose_all(env);
        if !env.scenario.air.keeps_secret {
            self.secret = env.dice.bytes();
        }
        let at = env.now + env.dice.micros(0, RESTART_US);
        env.enter(at, Happening::Start);
    }

    // Changes of what is served.

    fn plan(&mut self, env: &mut Env) {
        if self.changes > 0 {
            self.changes -= 1;
            let at = env.now + env.dice.micros(0, env.scenario.load.change_pause_us);
            env.enter(at, Happening::Change);
        }
    }

    pub(crate) fn change(&mut self, env: &mut Env) {
        // Nothing is changed while there is a handover.
        self.changes += u32::from(!self.handovers.is_none());
        self.plan(env);
        if !self.handovers.is_none() {
            return;
        }
        let Some(running) = self.running.as_mut().filter(|_| !self.stopping) else { return };
        let mut update = Update {
            portals: vec![portal(running.tls.clone())],
            datagram_portals: datagram_portals(&env.scenario),
            leaves_closed: false,
            required_portals: Vec::new(),
            targets: Vec::new(),
            discovery: Authentication::None,
            port_groups: Vec::new(),
            units: Vec::new(),
            growth: Vec::new(),
        };
        match env.dice.below(3) {
            0 => update.units.push(running.change_guest()),
            1 => update.growth.extend(running.device.units().first().map(|(_, unit)| grown(unit))),
            _ => running.agrees.recv_data_segment_len = env.dice.pick(&[512, 8192, 65_536]),
        }
        update.targets.push(target(&env.scenario, &running.device, &running.agrees));
        match running.stepped.control().begin(update) {
            Ok(update) => running.updates.push(update),
            Err(error) => env.fail(format!("a change is refused: {error}")),
        }
    }
}

/// Freezes of logical units.
impl Server {
    fn plan_freeze(&mut self, env: &mut Env) {
        if self.freezes > 0 {
            self.freezes -= 1;
            let at = env.now + env.dice.micros(0, 2_000_000);
            env.enter(at, Happening::Freeze);
        }
    }

    /// Logical units stand still from now on. Until they go on there is no other freeze.
    pub(crate) fn freeze(&mut self, stores: &mut Stores, env: &mut Env) {
        let may_begin = !self.stopping && !self.handovers.stands_still();
        if let Some(Running { stepped, device, freeze, .. }) = self.running.as_mut().filter(|_| may_begin) {
            freeze.begin(stepped, device, stores, env);
        } else {
            self.freezes += u32::from(self.handovers.stands_still());
            self.plan_freeze(env);
        }
    }

    pub(crate) fn look_at_freeze(&mut self, stores: &Stores, env: &mut Env) -> bool {
        self.running.as_mut().is_some_and(|running| running.freeze.look(stores, env))
    }

    pub(crate) fn thaw(&mut self, stores: &mut Stores, env: &mut Env) {
        if let Some(running) = &mut self.running {
            running.freeze.end(stores, env);
        }
        self.plan_freeze(env);
    }
}

impl Running {
    fn accept(&mut self, stream: TcpStream) {
        self.stepped.accept(stream, [([192, 0, 2, 1], 50_000).into(), ([192, 0, 2, 7], 3260).into()]);
    }

    /// Lets each core take a turn.
    fn turn(&mut self, next: &mut Option<Instant>, busy: &mut bool, env: &mut Env) -> bool {
        let now = env.instant();
        let mut order: Vec<usize> = (0..self.stopped.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, env.dice.place(last + 1));
        }
        let mut moved = false;
        for core in order {
            if self.stopped[core] {
                continue;
            }
            match self.stepped.step(core, now) {
                CoreStep::Runs { active, again, next: at } => {
                    // A core that was active may have sent messages to others.
                    *busy |= active;
                    moved |= again || (active && self.stopped.len() > 1);
                    *next = [*next, at].into_iter().flatten().min();
                }
                CoreStep::Stopped(result) => {
                    self.stopped[core] = true;
                    moved = true;
                    env.note(|| format!("core {core} has stopped: {result:?}"));
                    if let Err(error) = result {
                        env.fail(format!("core {core} ends with {error}"));
                    }
                }
            }
        }
        moved
    }

    fn has_ended(&self) -> bool {
        self.stopped.iter().all(|stopped| *stopped)
    }

    /// A logical unit comes, or goes.
    fn change_guest(&mut self) -> UnitChange {
        let new = || {
            let store = MemoryStore::new(GUEST_BYTES).map(Arc::new)?;
            LogicalUnit::new(LogicalUnitConfig::new(store, GUEST_SERIAL)).ok().map(Arc::new)
        };
        self.guest = if self.guest.is_some() { None } else { new() };
        UnitChange { device: Arc::clone(&self.device), lun: lun(GUEST), unit: self.guest.clone() }
    }
}

/// The device over the stores, in the place of the one that has left something.
fn open_device(
    left: Option<&Left>,
    stores: &Stores,
    scenario: &Scenario,
) -> Result<(Arc<TargetDevice>, Option<Arc<LogicalUnit>>), String> {
    let device = Arc::new(TargetDevice::new(TARGET));
    let add = |number, store, serial, block_len| {
        let mut config = LogicalUnitConfig::new(store, serial);
        config.block_size = block_len;
        let unit = LogicalUnit::new(config).map(Arc::new).map_err(|error| format!("no logical unit: {error}"))?;
        device.add(lun(number), Arc::clone(&unit)).map_err(|_| "the number of a unit is in use".to_owned())?;
        Ok::<_, String>(unit)
    };
    for (number, store) in stores.open(&scenario.load).into_iter().enumerate() {
        add(number as u16, store, format!("SIM{number}"), scenario.load.block_len as u32)?;
    }
    let guest = left.and_then(|left| left.guest.clone());
    let guest = guest.map(|store| add(GUEST, store, GUEST_SERIAL.into(), GUEST_BLOCK_LEN)).transpose()?;
    left.map_or(Ok(()), |left| left.give_to(&device))?;
    Ok((device, guest))
}

/// News of a growth by nothing.
fn grown(unit: &Arc<LogicalUnit>) -> Growth {
    Growth { unit: Arc::clone(unit), grow: Box::new(|| {}) }
}

fn portal(tls: Option<PortalTls>) -> PortalConfig {
    // The system opens it, and nothing connects to it.
    PortalConfig { tls, ..PortalConfig::new(([127, 0, 0, 1], 0).into(), 1) }
}

fn datagram_portals(scenario: &Scenario) -> Vec<DatagramPortalConfig> {
    let portal = DatagramPortalConfig { place: DatagramPlace::Udp(portal(None).address), group: 2 };
    if scenario.transport.is_of_datagrams() { vec![portal] } else { vec![] }
}

fn target(scenario: &Scenario, device: &Arc<TargetDevice>, agrees: &Offer) -> TargetConfig {
    TargetConfig {
        alias: Some("simulated".into()),
        authentication: scenario.authentication(),
        offer: agrees.clone(),
        hosts: hosts(scenario),
        ..TargetConfig::open(Arc::clone(device))
    }
}

/// One host that may only read, and one of all others.
fn hosts(scenario: &Scenario) -> Vec<HostConfig> {
    let reader = scenario.reader().map(|client| HostConfig {
        // A name of its own: LUN maps are found by it.
        host: Host { name: "reader".into(), ..Host::of_initiators(Some(vec![name(client)])) },
        luns: LunMap::all(true),
    });
    reader.into_iter().chain([HostConfig::everyone()]).collect()
}

pub(crate) fn lun(number: u16) -> Lun {
    Lun::new(number).expect("a small number")
}
