//! One run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use lunette_gateway::{Action, Answer, Event, Failed, Member, Request, Stored, Value, limits};

use super::cluster::{BLOCKS, Cluster};
use super::gateway::{Gateway, Image, RESERVATION, Reservation};
use super::history::{History, Written};
use super::{GatewayRun, GatewayTally};
use crate::dice::Dice;

/// Faults strike until then; what comes later has to heal all.
const STORM: Duration = Duration::from_mins(2);

/// The end of a run.
const END: Duration = Duration::from_secs(200);

/// More than the longest delays of one command take together.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest time from a gateway to an OSD.
const LATEST: Duration = Duration::from_secs(25);

/// The time that a gateway gives its image to close, as the binding does.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

const INITIATORS: u64 = 3;

pub(super) type CommandId = u64;

/// Something that is on its way.
enum Happening {
    /// An event for the machine of a gateway.
    Event(usize, u64, Event),
    /// The time of a gateway's timer.
    Timer(usize, u64),
    /// A request of a gateway has reached the cluster.
    Cluster(usize, u64, Action),
    /// A request for the lock has reached the cluster, from this client.
    Lock(usize, u64, Arc<str>),
    /// A notify is over.
    NotifyEnds(u64),
    /// A watch has had no sign of its gateway for too long.
    WatchEnds(usize, u64),
    /// A publication is what commands find.
    Published(usize, u64, Action),
    /// A command of an initiator has reached a gateway.
    Command(usize, CommandId),
    /// The data of a command is there: it goes to the image.
    Submit(usize, u64, CommandId),
    /// The command has reached the OSD.
    Image(usize, u64, CommandId, Image),
    /// The command is over, as far as the gateway is concerned.
    Ended(usize, u64, CommandId, Option<Written>),
    /// The image of this client is given up by its own gateway if it is not closed by now.
    CloseLimit(usize, u64, Arc<str>),
    /// An initiator begins its next command.
    Next(u64),
    /// An initiator has no answer to a write for some seconds.
    Unanswered(CommandId),
    /// A fault strikes, or is over.
    Fault,
    Heal(usize),
}

/// A command of an initiator, or one more copy of it.
#[derive(Clone)]
struct Command {
    initiator: u64,
    began: Duration,
    /// `None` for the reservation.
    block: Option<usize>,
    /// The value that it writes; 0 for a read.
    write: Written,
    /// Whom a reservation lets write.
    lets: u64,
    is_over: bool,
    /// A write that a reservation excludes for certain, as long as none has begun since: the number of reservations
    /// then.
    is_excluded: Option<u64>,
    /// A reservation that began while none was open: the number of reservations then.
    is_alone: Option<u64>,
    gateway: usize,
    /// The client of the image that it may reach.
    client: Option<Arc<str>>,
    /// Another copy of the write was sent before. What became of that is not known.
    is_again: bool,
    /// Whether a copy that was sent before its answer may still be carried out.
    has_copies: bool,
}

impl Command {
    fn is_open_write(&self) -> bool {
        self.write != 0 && (!self.is_over || self.has_copies)
    }
}

struct Notify {
    from: (usize, u64),
    waits: BTreeSet<(usize, u64)>,
    by: Vec<Member>,
}

pub(super) struct World {
    dice: Dice,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next: u64,
    gateways: Vec<Gateway>,
    cluster: Cluster,
    watchers: BTreeSet<(usize, u64)>,
    notifies: BTreeMap<u64, Notify>,
    commands: BTreeMap<CommandId, Command>,
    blocks: Vec<History>,
    reservations: History,
    /// Reservations that have begun, those whose end is known, and what the last of them says when no other one may be
    /// later.
    reservations_begun: u64,
    reservations_open: BTreeSet<CommandId>,
    certain: u64,
    /// When a command to a block was last answered GOOD.
    last_good: Duration,
    failure: Option<String>,
    trace: Option<String>,
    tally: GatewayTally,
    without_owner_since: Option<Duration>,
}

impl World {
    pub(super) fn new(seed: u64, traced: bool) -> Self {
        let mut dice = Dice::new(seed);
        let gateways = dice.between(2, 3) as u16;
        let gateways: Vec<_> = (1..=gateways).map(|group| Gateway::new(group, group.into(), 0)).collect();
        let mut world = Self {
            dice,
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next: 0,
            gateways,
            cluster: Cluster::default(),
            watchers: BTreeSet::new(),
            notifies: BTreeMap::new(),
            commands: BTreeMap::new(),
            blocks: std::iter::repeat_with(History::default).take(BLOCKS).collect(),
            reservations: History::default(),
            reservations_begun: 0,
            reservations_open: BTreeSet::new(),
            certain: 0,
            last_good: Duration::ZERO,
            failure: None,
            trace: traced.then(String::new),
            tally: GatewayTally { runs: 1, ..GatewayTally::default() },
            without_owner_since: None,
        };
        for gateway in 0..world.gateways.len() {
            world.happen(0, 50_000, Happening::Event(gateway, 0, Event::Time));
        }
        for initiator in 1..=INITIATORS {
            world.happen(0, 1_000_000, Happening::Next(initiator));
        }
        world.happen(1_000_000, 5_000_000, Happening::Fault);
        world
    }

    pub(super) fn run(mut self) -> GatewayRun {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            if at > END || self.failure.is_some() {
                break;
            }
            self.now = at;
            let Some(happening) = self.happenings.remove(&number) else { continue };
            self.step(happening);
            self.look_for_owner();
        }
        let failure = self.failure.take().or_else(|| self.check().err());
        if let Some(why) = &failure {
            self.say(|| format!("FAILED {why}"));
        }
        GatewayRun { tally: self.tally, failure, trace: self.trace.unwrap_or_default() }
    }

    fn check(&self) -> Result<(), String> {
        for (block, history) in self.blocks.iter().enumerate() {
            history.check().map_err(|why| format!("block {block}: {why}"))?;
        }
        self.reservations.check().map_err(|why| format!("reservation: {why}"))?;
        let active = self.gateways.iter().filter(|gateway| gateway.device.is_active()).count();
        if active != 1 {
            return Err(format!("{active} gateways are active in the end"));
        }
        if self.last_good < STORM + PATIENCE {
            return Err(format!("no command was answered GOOD after {} s", self.last_good.as_secs()));
        }
        let versions: BTreeSet<_> = self.gateways.iter().map(|gateway| gateway.device.version()).collect();
        let members = self.cluster.read().map_or(0, |value| value.members.len());
        if versions.len() != 1 || members != self.gateways.len() {
            return Err(format!("the gateways know the versions {versions:?} in the end, with {members} members"));
        }
        let open = self.commands.values().filter(|command| !command.is_over && command.began > STORM + PATIENCE);
        match open.count() {
            0 => Ok(()),
            open => Err(format!("{open} commands have no answer, and no fault explains it")),
        }
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            // Writing to a string cannot fail.
            let _ = writeln!(trace, "{:>12.6} {}", now.as_secs_f64(), what());
        }
    }

    /// Lets something happen after some time, in microseconds.
    fn happen(&mut self, least: u64, most: u64, happening: Happening) {
        let at = self.now + self.dice.micros(least, most);
        self.next += 1;
        self.queue.push(Reverse((at, self.next)));
        self.happenings.insert(self.next, happening);
    }

    /// On the way between a gateway and the cluster.
    fn soon(&mut self, happening: Happening) {
        let most = if self.dice.one_in(20) { 300_000 } else { 2_000 };
        self.happen(100, most, happening);
    }

    /// How long no gateway has the disk, while one could.
    fn look_for_owner(&mut self) {
        let could = self.gateways.iter().any(Gateway::is_well);
        let has = self.gateways.iter().any(|gateway| gateway.is_well() && gateway.device.is_active());
        if has || !could {
            self.without_owner_since = None;
            return;
        }
        let since = *self.without_owner_since.get_or_insert(self.now);
        self.tally.longest_gap = self.tally.longest_gap.max(self.now.saturating_sub(since));
    }

    /// Whether a gateway can take what has come to it; else it is put off or dropped.
    fn reaches(&mut self, gateway: usize, life: u64, by_cluster: bool, happening: Happening) -> Option<Happening> {
        let it = &self.gateways[gateway];
        if it.life != life || it.is_dead {
            return None;
        }
        if it.is_stopped || by_cluster && it.is_cut_off {
            self.happen(1_000, 200_000, happening);
            return None;
        }
        Some(happening)
    }

    fn step(&mut self, happening: Happening) {
        match happening {
            Happening::Event(gateway, life, event) => {
                let by_cluster = !matches!(event, Event::Time | Event::Asked(..));
                let whole = Happening::Event(gateway, life, event);
                if let Some(Happening::Event(_, _, event)) = self.reaches(gateway, life, by_cluster, whole) {
                    self.tell(gateway, event);
                }
            }
            Happening::Timer(gateway, life) => {
                if self.reaches(gateway, life, false, Happening::Timer(gateway, life)).is_some() {
                    self.tell(gateway, Event::Time);
                }
            }
            Happening::Cluster(gateway, life, action) => self.at_cluster(gateway, life, action),
            Happening::Lock(gateway, life, client) => self.lock(gateway, life, client),
            Happening::NotifyEnds(id) => self.notify_ends(id),
            Happening::WatchEnds(gateway, life) => self.watch_ends(gateway, life),
            Happening::Published(gateway, life, action) => self.published(gateway, life, action),
            Happening::Command(gateway, command) => {
                let life = self.gateways[gateway].life;
                if self.reaches(gateway, life, false, Happening::Command(gateway, command)).is_some() {
                    self.admit(gateway, command);
                }
            }
            Happening::Submit(gateway, life, command) => {
                if self.reaches(gateway, life, false, Happening::Submit(gateway, life, command)).is_some() {
                    self.submit(gateway, command);
                }
            }
            Happening::Image(gateway, life, command, image) => self.at_image(gateway, life, command, image),
            Happening::Ended(gateway, life, command, content) => {
                let whole = Happening::Ended(gateway, life, command, content);
                if self.reaches(gateway, life, true, whole).is_some() {
                    self.ended(gateway, command, content);
                }
            }
            Happening::CloseLimit(gateway, life, client) => self.fence_itself(gateway, life, client),
            Happening::Next(initiator) => self.next_command(initiator),
            Happening::Unanswered(command) => self.send_again(command),
            Happening::Fault => self.fault(),
            Happening::Heal(gateway) => self.heal(gateway),
        }
    }

    // Machines.

    fn tell(&mut self, at: usize, event: Event) {
        self.say(|| format!("gateway {}: {event:?}", at + 1));
        let now = self.now;
        let was_active = self.gateways[at].device.is_active();
        self.gateways[at].machine.handle(now, event);
        while let Some(action) = self.gateways[at].machine.next_action() {
            self.act(at, action);
        }
        let (life, timer) = (self.gateways[at].life, self.gateways[at].machine.next_timer());
        if let Some(timer) = timer {
            let wait = timer.saturating_sub(now).as_micros() as u64;
            self.happen(wait, wait + 1_000, Happening::Timer(at, life));
        }
        self.tally.moves += u64::from(!was_active && self.gateways[at].device.is_active());
    }

    fn act(&mut self, at: usize, action: Action) {
        self.say(|| format!("gateway {} asks: {action:?}", at + 1));
        let life = self.gateways[at].life;
        match action {
            Action::Answer(id, answer) => self.answered(at, id, answer),
            Action::Publish(_) => {
                // A removal because of this would have no time to heal at the end.
                let is_slow = self.now < STORM && self.dice.one_in(30);
                let most = if is_slow { 1_500_000 } else { 3_000 };
                self.happen(1, most, Happening::Published(at, life, action));
            }
            Action::Open => {
                let gateway = &mut self.gateways[at];
                gateway.clients += 1;
                let client = gateway.client(at);
                let is_well = !self.dice.one_in(30);
                self.soon(Happening::Event(at, life, Event::Opened(is_well.then_some(client))));
            }
            Action::Lock => {
                let client = self.gateways[at].client(at);
                self.soon(Happening::Lock(at, life, client));
            }
            Action::Close => {
                let device = &mut self.gateways[at].device;
                let client: Arc<str> = device.image.take().map_or_else(|| "".into(), |image| image.client);
                device.closing = Some(Arc::clone(&client));
                self.close(at);
                let limit = CLOSE_LIMIT.as_micros() as u64;
                self.happen(limit, limit, Happening::CloseLimit(at, life, client));
            }
            other => self.soon(Happening::Cluster(at, life, other)),
        }
    }

    /// Closes the image of a gateway when nothing of it is under way.
    fn close(&mut self, at: usize) {
        let (life, device) = (self.gateways[at].life, &mut self.gateways[at].device);
        if device.under_way == 0
            && let Some(client) = device.closing.take()
        {
            self.cluster.unlock(&client);
            self.soon(Happening::Event(at, life, Event::Closed));
        }
    }

    /// An image that does not close: its requests may land until its own client is on the blocklist.
    fn fence_itself(&mut self, at: usize, life: u64, client: Arc<str>) {
        let whole = Happening::CloseLimit(at, life, Arc::clone(&client));
        let is_open = self.gateways[at].device.closing.as_ref() == Some(&client);
        if !is_open || self.reaches(at, life, true, whole).is_none() {
            return;
        }
        self.gateways[at].device.closing = None;
        self.tally.fenced += 1;
        self.cluster.blocklist(client);
        self.soon(Happening::Event(at, life, Event::Closed));
    }

    fn published(&mut self, at: usize, life: u64, action: Action) {
        let whole = Happening::Published(at, life, action);
        let Some(Happening::Published(_, _, Action::Publish(publication))) = self.reaches(at, life, false, whole)
        else {
            return;
        };
        let was_active = self.gateways[at].device.is_active();
        self.gateways[at].device.published = Some(publication);
        self.tally.moves += u64::from(!was_active && self.gateways[at].device.is_active());
        self.tell(at, Event::Published);
    }

    // The cluster.

    fn at_cluster(&mut self, at: usize, life: u64, action: Action) {
        let gateway = &self.gateways[at];
        let is_same = gateway.life == life && !gateway.is_dead;
        if is_same && gateway.is_cut_off {
            return self.happen(1_000, 200_000, Happening::Cluster(at, life, action));
        }
        let reply = match action {
            Action::Watch if is_same => {
                self.watchers.insert((at, life));
                Event::Watched
            }
            Action::Read if self.dice.one_in(60) => Event::Read(Err(Failed)),
            Action::Read => Event::Read(Ok(self.cluster.read())),
            Action::Store { expected, value } => Event::Stored(self.store(expected, &value)),
            Action::Notify { version } => return self.begin_notify(at, life, version),
            Action::Acknowledge { id, member } => return self.acknowledged(at, life, id, member),
            Action::Blocklist { client } => {
                // It may be done, or not, when nothing is known of it.
                let is_known = !self.dice.one_in(20);
                if is_known || self.dice.coin() {
                    self.tally.fenced += 1;
                    self.cluster.blocklist(client);
                }
                // The monitors agree now and then.
                return self.happen(1_000, 1_000_000, Happening::Event(at, life, Event::Blocklisted(is_known)));
            }
            _ => return,
        };
        self.soon(Happening::Event(at, life, reply));
    }

    /// Now and then nothing is known of a store, whether it was done or not.
    fn store(&mut self, expected: u64, value: &Value) -> Stored {
        let is_known = !self.dice.one_in(40);
        let before = self.cluster.read().map_or_else(Reservation::default, |value| Reservation::of(&value));
        let stored = if is_known || self.dice.coin() { self.cluster.store(expected, value) } else { Stored::Failed };
        let after = Reservation::of(value);
        if stored == Stored::Done && after != before && after.follows != before.number {
            let (number, follows) = (after.number, after.follows);
            self.failure =
                Some(format!("reservation {number} was decided after {follows}, and replaces {}", before.number));
        }
        if is_known { stored } else { Stored::Failed }
    }

    /// The lock goes to the client that has asked for it, also when its gateway is dead by now.
    fn lock(&mut self, at: usize, life: u64, client: Arc<str>) {
        let gateway = &self.gateways[at];
        let is_same = gateway.life == life && !gateway.is_dead;
        if is_same && gateway.is_cut_off {
            return self.happen(1_000, 200_000, Happening::Lock(at, life, client));
        }
        let is_well = self.cluster.lock(&client);
        if is_well && is_same {
            self.gateways[at].device.image = Some(Image { client, map: self.cluster.map });
        }
        self.soon(Happening::Event(at, life, Event::Locked(is_well)));
    }

    fn begin_notify(&mut self, at: usize, life: u64, version: u64) {
        self.next += 1;
        let id = self.next;
        let waits = self.watchers.clone();
        for (to, of) in waits.clone() {
            // A notify to a gateway that is cut off is lost.
            if self.gateways[to].is_cut_off {
                continue;
            }
            // The driver acknowledges the gateway's own notifies.
            let member = self.gateways[to].machine.me();
            self.soon(if (to, of) == (at, life) {
                Happening::Cluster(at, life, Action::Acknowledge { id, member })
            } else {
                Happening::Event(to, of, Event::Notified { id, version })
            });
        }
        let is_empty = waits.is_empty();
        self.notifies.insert(id, Notify { from: (at, life), waits, by: Vec::new() });
        let timeout = if is_empty { 0 } else { limits::NOTIFY_TIMEOUT.as_micros() as u64 };
        self.happen(timeout, timeout, Happening::NotifyEnds(id));
    }

    fn acknowledged(&mut self, at: usize, life: u64, id: u64, member: Member) {
        let Some(notify) = self.notifies.get_mut(&id) else { return };
        if notify.waits.remove(&(at, life)) {
            notify.by.push(member);
        }
        if notify.waits.is_empty() {
            self.notify_ends(id);
        }
    }

    fn notify_ends(&mut self, id: u64) {
        if let Some(Notify { from: (at, life), by, .. }) = self.notifies.remove(&id) {
            let by = Some(by).filter(|_| !self.dice.one_in(60));
            self.soon(Happening::Event(at, life, Event::Acknowledged(by)));
        }
    }

    fn watch_ends(&mut self, at: usize, life: u64) {
        let gateway = &self.gateways[at];
        if gateway.life == life && gateway.is_well() {
            return;
        }
        self.watchers.remove(&(at, life));
        self.soon(Happening::Event(at, life, Event::WatchLost));
    }

    /// An OSD has stood still for so long that it has missed all signs of life.
    fn end_all_watches(&mut self) {
        self.tally.faults += 1;
        self.say(|| "all watches end".into());
        for (at, life) in std::mem::take(&mut self.watchers) {
            self.soon(Happening::Event(at, life, Event::WatchLost));
        }
        // A notify ends as soon as no watch is left that has to acknowledge it.
        let under_way: Vec<u64> = self.notifies.keys().copied().collect();
        for id in under_way {
            self.soon(Happening::NotifyEnds(id));
        }
    }

    // Commands.

    fn next_command(&mut self, initiator: u64) {
        if self.now + PATIENCE > END {
            return;
        }
        self.happen(10_000, 2_000_000, Happening::Next(initiator));
        self.next += 1;
        let id = self.next;
        let block = (!self.dice.one_in(4)).then(|| self.dice.place(BLOCKS));
        // Two initiators that write one block at a time would not know what a write that is sent twice leaves there.
        let is_open = |block: usize| self.commands.values().any(|it| it.block == Some(block) && it.is_open_write());
        let may_write = block.is_none_or(|block| !is_open(block));
        let write = if self.dice.coin() && may_write { id } else { 0 };
        let lets = if self.dice.coin() { 0 } else { self.dice.between(1, INITIATORS) };
        let is_certain = self.reservations_open.is_empty();
        // As a client of many paths, it takes the active one, but it may be wrong.
        let active = self.gateways.iter().position(|gateway| gateway.device.is_active());
        let any = self.dice.place(self.gateways.len());
        let gateway = active.filter(|_| block.is_some() && !self.dice.one_in(8)).unwrap_or(any);
        let is_excluded = (is_certain && self.certain != 0 && self.certain != initiator)
            .then_some(self.reservations_begun)
            .filter(|_| block.is_some() && write != 0);
        match block {
            Some(block) if write != 0 => self.blocks[block].begin_write(write, self.now),
            None if write != 0 => {
                self.reservations.begin_write(write, self.now);
                self.reservations_begun += 1;
                self.reservations_open.insert(id);
            }
            _ => (),
        }
        let began = self.now;
        let is_alone = is_certain.then_some(self.reservations_begun);
        let command = Command {
            initiator,
            began,
            block,
            write,
            lets,
            is_over: false,
            is_excluded,
            is_alone,
            gateway,
            client: None,
            is_again: false,
            has_copies: false,
        };
        if self.dice.one_in(60) {
            let to = self.dice.between(1, self.gateways.len() as u64) as u16;
            let life = self.gateways[gateway].life;
            self.next += 1;
            let number = self.next;
            self.soon(Happening::Event(gateway, life, Event::Asked(number, Request::Move { to })));
        }
        self.send(id, command);
    }

    fn send(&mut self, id: CommandId, mut command: Command) {
        let gateway = command.gateway;
        command.client = self.gateways[gateway].device.image.as_ref().map(|image| Arc::clone(&image.client));
        if command.block.is_some() && command.write != 0 {
            self.happen(2_000_000, 6_000_000, Happening::Unanswered(id));
        }
        self.commands.insert(id, command);
        self.happen(50, 1_000, Happening::Command(gateway, id));
    }

    /// Sends a write without an answer again, through the gateway that has the disk now. As long as that is the client
    /// that has the write, it waits.
    fn send_again(&mut self, id: CommandId) {
        let Some(command) = self.commands.get(&id).filter(|command| !command.is_over) else { return };
        let (initiator, block, write) = (command.initiator, command.block, command.write);
        let owner = self.cluster.read().and_then(|value| value.owner.clone());
        let owner = owner.filter(|owner| owner.is_active && command.client.as_ref() != Some(&owner.client));
        let gateway = owner.map(|owner| usize::from(owner.member.group) - 1);
        let Some(gateway) = gateway.filter(|at| self.gateways[*at].device.is_active()) else {
            return self.happen(200_000, 2_000_000, Happening::Unanswered(id));
        };
        let again = Command { gateway, is_again: true, ..command.clone() };
        // No initiator gets later answers of the first gateway.
        self.commands.get_mut(&id).expect("it is there").is_over = true;
        self.tally.sent_again += 1;
        self.next += 1;
        let next = self.next;
        self.say(|| {
            format!("initiator {initiator} sends write {write} to {block:?} again: command {id} becomes {next}")
        });
        self.send(next, again);
    }

    fn admit(&mut self, at: usize, id: CommandId) {
        let Some(command) = self.commands.get(&id) else { return };
        let (initiator, is_write, life) = (command.initiator, command.write != 0, self.gateways[at].life);
        let device = &mut self.gateways[at].device;
        if command.block.is_none() {
            device.waiting.insert(id, false);
            return self.tell(at, Event::Asked(id, Request::Confirm));
        }
        let Reservation { lets, .. } = device.reservation();
        if !device.is_active() {
            return self.refuse(id);
        }
        if is_write && lets != 0 && lets != initiator {
            return self.conflict(id);
        }
        // Its data may take a while.
        let most = if self.dice.one_in(10) { 3_000_000 } else { 2_000 };
        self.happen(10, most, Happening::Submit(at, life, id));
    }

    fn submit(&mut self, at: usize, id: CommandId) {
        let life = self.gateways[at].life;
        let device = &mut self.gateways[at].device;
        let Some(image) = device.image.clone() else { return self.refuse(id) };
        let command = self.commands.get_mut(&id).expect("commands stay");
        if command.is_over && command.client.as_ref() != Some(&image.client) {
            // The connection was lost before this gateway got the disk, and the command with it.
            return;
        }
        command.client = Some(Arc::clone(&image.client));
        device.under_way += 1;
        let is_late = self.now < STORM && self.dice.one_in(15);
        let most = if is_late { LATEST.as_micros() as u64 } else { 3_000 };
        self.happen(100, most, Happening::Image(at, life, id, image));
    }

    fn at_image(&mut self, at: usize, life: u64, id: CommandId, image: Image) {
        let gateway = &self.gateways[at];
        // What is in the network arrives, also when the gateway is dead; what is not there yet waits in a gateway that
        // is cut off.
        if gateway.life == life && !gateway.is_dead && gateway.is_cut_off && self.dice.coin() {
            return self.happen(1_000, 500_000, Happening::Image(at, life, id, image));
        }
        let command = &self.commands[&id];
        let (block, write) = (command.block.unwrap_or(0), Some(command.write).filter(|write| *write != 0));
        let content = self.cluster.access(&image.client, image.map, block, write);
        // An OSD may learn of the blocklist with the first request of the next owner. Until then a late write looks
        // like an early one.
        let is_late = self.cluster.has_listed(&image.client);
        if content.is_some() && !is_late && command.is_excluded == Some(self.reservations_begun) {
            self.failure = Some(format!("write {id} has landed, which a reservation excludes"));
        }
        self.say(|| format!("image of {}: command {id}, block {block}, {write:?} gives {content:?}", image.client));
        self.soon(Happening::Ended(at, life, id, content));
    }

    fn ended(&mut self, at: usize, id: CommandId, content: Option<Written>) {
        self.gateways[at].device.under_way -= 1;
        self.close(at);
        if let Some(content) = content {
            return self.good(id, content);
        }
        self.refuse(id);
        self.tell(at, Event::ImageLost);
    }

    /// The end of a request to a machine.
    fn answered(&mut self, at: usize, id: CommandId, answer: Answer) {
        let device = &mut self.gateways[at].device;
        let Some(is_update) = device.waiting.remove(&id) else { return };
        let Some(command) = self.commands.get(&id) else { return };
        let (write, lets) = (command.write, command.lets);
        let Reservation { number, .. } = device.reservation();
        let life = self.gateways[at].life;
        let ask = |world: &mut Self, request| {
            let is_update = matches!(request, Request::Update { .. });
            world.gateways[at].device.waiting.insert(id, is_update);
            world.happen(1, 100, Happening::Event(at, life, Event::Asked(id, request)));
        };
        match answer {
            Answer::Done if write == 0 || is_update => self.good(id, number),
            Answer::Done => {
                let entry = Some(Reservation { lets, number: write, follows: number }.entry());
                let base = self.gateways[at].device.version();
                ask(self, Request::Update { base, name: RESERVATION.into(), entry });
            }
            Answer::Changed => ask(self, Request::Confirm),
            Answer::TooLong | Answer::Refused => self.refuse(id),
        }
    }

    fn good(&mut self, id: CommandId, content: Written) {
        let Some(command) = self.commands.get_mut(&id) else { return };
        if command.is_over {
            return;
        }
        command.is_over = true;
        self.tally.good += 1;
        let (began, write, lets, block, is_alone) =
            (command.began, command.write, command.lets, command.block, command.is_alone);
        self.say(|| format!("command {id} is good: {content}"));
        let history = block.map_or(&mut self.reservations, |block| &mut self.blocks[block]);
        match write {
            0 => history.read(began, self.now, content),
            written => history.end_write(written, self.now),
        }
        if block.is_some() {
            self.last_good = self.now;
        }
        if block.is_none() && write != 0 {
            self.reservations_open.remove(&id);
            // With others beside it, the final value is not known: no initiator counts as excluded.
            self.certain = if is_alone == Some(self.reservations_begun) { lets } else { 0 };
        }
    }

    /// Refuses a command: it is answered with an error, or given up. A refused write to the image was never there. Of a
    /// reservation, and of a write with an earlier copy, which is sent again, that is unknown.
    fn refuse(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id).filter(|command| !command.is_over) else { return };
        if command.is_again {
            command.client = None;
        } else {
            self.end(id);
        }
    }

    /// A write that is answered with RESERVATION CONFLICT is not sent again. Another copy of it may have been under way
    /// since before.
    fn conflict(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id).filter(|command| !command.is_over) else { return };
        command.has_copies = command.is_again;
        self.end(id);
    }

    fn end(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id) else { return };
        command.is_over = true;
        self.tally.other += 1;
        let (block, write) = (command.block, command.write);
        if let Some(block) = block.filter(|_| !command.is_again) {
            self.blocks[block].refuse_write(write);
        }
        self.say(|| format!("command {id} is refused"));
    }

    // Faults.

    fn fault(&mut self) {
        if self.now >= STORM {
            for gateway in 0..self.gateways.len() {
                self.heal(gateway);
            }
            return;
        }
        self.happen(500_000, 12_000_000, Happening::Fault);
        if self.dice.one_in(8) {
            return self.end_all_watches();
        }
        let at = self.dice.place(self.gateways.len());
        if !self.gateways[at].is_well() {
            return;
        }
        self.tally.faults += 1;
        let life = self.gateways[at].life;
        let watch = limits::WATCH_TIMEOUT.as_micros() as u64;
        let gateway = &mut self.gateways[at];
        let what = self.dice.below(4);
        match what {
            0 => {
                gateway.is_dead = true;
                gateway.device = super::gateway::Device::default();
            }
            1 | 2 => gateway.is_stopped = true,
            _ => gateway.is_cut_off = true,
        }
        self.say(|| format!("gateway {} {}", at + 1, ["is killed", "stops", "stops", "is cut off"][what as usize]));
        self.happen(watch, watch, Happening::WatchEnds(at, life));
        let most = if self.dice.one_in(4) { 40_000_000 } else { 6_000_000 };
        self.happen(400_000, most, Happening::Heal(at));
    }

    fn heal(&mut self, at: usize) {
        let gateway = &mut self.gateways[at];
        gateway.is_stopped = false;
        gateway.is_cut_off = false;
        if gateway.is_dead {
            // Nothing of what it had under way is still on its way to the object. Whether it has arrived is unknown.
            let open = self.reservations_open.len();
            self.reservations_open.retain(|id| self.commands[id].gateway != at);
            self.certain = if self.reservations_open.len() == open { self.certain } else { 0 };
            let life = gateway.life + 1;
            let incarnation = self.dice.below(u64::MAX);
            self.gateways[at] = Gateway::new(at as u16 + 1, incarnation, life);
            self.happen(0, 1_000, Happening::Event(at, life, Event::Time));
        }
        self.say(|| format!("gateway {} is well", at + 1));
    }
}
