//! One run: initiators, the target and the network between them, from the first login to the last logout.

use std::time::Duration;

use lunette_session::Time;
use tracing::Level;

use crate::certificates::Certificates;
use crate::clients::Clients;
use crate::dice::Dice;
use crate::env::{Env, Happening};
use crate::network::Network;
use crate::scenario::Scenario;
use crate::server::Server;
use crate::store::Stores;
use crate::tally::{RESETS_FOR_TASKS, Tally};
use crate::watch::Watch;
use crate::wire::Side;
use crate::{Setup, Transport};

/// Longer than all faults of a run together can hold it up.
const VIRTUAL_LIMIT: Duration = Duration::from_hours(2);

/// Moments of one run. The longest has a few hundred thousand.
const MAX_MOMENTS: u32 = 5_000_000;

/// Turns of all sides at one moment: more tell of a machine that spins.
const MAX_TURNS: u32 = 10_000;

/// How a run ended.
pub struct Run {
    /// The counts of the run.
    pub tally: Tally,
    /// The rule that was broken.
    pub failure: Option<String>,
    /// All that happened, when it was asked for.
    pub trace: Option<String>,
}

struct World {
    env: Env,
    net: Network,
    clients: Clients,
    server: Server,
    stores: Stores,
    watch: Watch,
    /// The next moment at which an event loop has something to do.
    next: Option<Time>,
}

/// Runs the simulation that `seed` stands for, the same at each call. `traced`: keep a journal of it.
pub fn run(setup: Setup, seed: u64, traced: bool) -> Run {
    let watch = Watch::new(traced);
    tracing::subscriber::with_default(watch.clone(), || run_watched(setup, seed, traced, watch))
}

fn run_watched(setup: Setup, seed: u64, traced: bool, watch: Watch) -> Run {
    let mut dice = Dice::new(
        seed ^ u64::from(setup.level) << 56 ^ u64::from(setup.connections) << 48 ^ (setup.transport as u64) << 40,
    );
    let scenario = Scenario::draw(setup, &mut dice);
    let mut env = Env::new(scenario, dice, traced);
    let drawn = env.scenario.describe();
    env.note(|| drawn);
    if setup.transport == Transport::Tls {
        let certificates = Certificates::new(env.dice.bytes(), env.dice.coin());
        env.certificates = env.check(certificates.map_err(|error| format!("no certificates: {error}")));
    }
    let stores = Stores::new(&mut env);
    let server = Server::new(&stores, &mut env);
    match Clients::new(&mut env) {
        Ok(clients) => {
            let mut world =
                World { env, net: Network::new(setup.transport), clients, server, stores, watch, next: None };
            world.live();
            env = world.env;
        }
        Err(error) => env.fail(format!("no event loop: {error}")),
    }
    let (tally, failure, trace) = env.into_record();
    Run { tally, failure, trace }
}

impl World {
    fn live(&mut self) {
        let end = self.env.now + VIRTUAL_LIMIT;
        self.clients.begin(&mut self.net, &mut self.env);
        for _ in 0..MAX_MOMENTS {
            self.settle();
            if self.env.has_failed() {
                return;
            }
            if self.clients.is_done()
                && self.clients.associations() == 0
                && self.net.is_still()
                && self.server.is_idle()
            {
                return self.check_end();
            }
            match [self.env.next(), self.next].into_iter().flatten().min() {
                Some(at) if at <= end => self.move_on(at),
                Some(_) => return self.hangs("does not come to an end"),
                None => return self.hangs("stands still"),
            }
        }
        self.hangs("spins");
    }

    /// The clock moves on, and what is due happens.
    fn move_on(&mut self, at: Time) {
        let Self { env, net, clients, server, stores, .. } = self;
        env.now = env.now.max(at);
        match env.take_due() {
            Some(Happening::Arrive(id, side)) => net.arrive(id, side, env.now),
            Some(Happening::Land(datagram)) => net.datagrams.land(datagram, server, clients, env),
            Some(Happening::Dialed(dial)) => clients.dialed(dial, net, server, env),
            Some(Happening::Act(client)) => clients.act(client, net, stores, env),
            Some(Happening::Reopen(client)) => clients.open(client, env),
            Some(Happening::Done(request)) => stores.done(request, env),
            Some(Happening::Change) => server.change(env),
            Some(Happening::Freeze) => server.freeze(stores, env),
            Some(Happening::Thaw) => server.thaw(stores, env),
            Some(Happening::Stop) => {
                clients.forget_reservations(env);
                server.stop(env);
            }
            Some(Happening::Kill) => {
                clients.forget_reservations(env);
                server.kill(stores, env);
            }
            Some(Happening::Start) => server.start(stores, env),
            Some(Happening::HandOver) => server.hand_over(env),
            Some(Happening::HandOverStep(number)) => server.step_handover(number, stores, env),
            None => {}
        }
    }

    /// All sides do what they can, until nothing moves.
    fn settle(&mut self) {
        for _ in 0..MAX_TURNS {
            let Self { env, net, clients, server, stores, .. } = self;
            let mut next = None;
            // Whether anything can have been sent.
            let mut busy = net.give(env);
            let mut moved = busy;
            moved |= server.turn(&mut next, &mut busy, env);
            stores.begin(env);
            moved |= server.look_at_freeze(stores, env);
            moved |= server.look_at_handover(stores, env);
            moved |= clients.turn(&mut next, &mut busy, net, stores, env);
            moved |= server.settle(stores, env);
            if busy {
                net.take(env);
            }
            net.datagrams.take(server, clients, env);
            self.next = next.map(|next| env.time_of(next));
            self.read_log();
            if !moved || self.env.has_failed() {
                return;
            }
        }
        self.hangs("turns round and round");
    }

    /// Reads the logs of both sides: neither finds fault with the other without a reason.
    fn read_log(&mut self) {
        for line in self.watch.take() {
            let blames = line.text.contains("protocol error") && !self.net.has_damaged(Side::Target);
            let is_lost = line.text.contains("a session of the process before is ended");
            if line.text.contains("resetting its logical unit") {
                self.env.tally.happening(RESETS_FOR_TASKS);
            }
            if line.level == Level::ERROR || blames || is_lost {
                self.env.fail(format!("logged: {}", line.text));
            }
            self.env.note(|| line.text);
        }
    }

    fn hangs(&mut self, how: &str) {
        let why = format!("the run {how}; {}; {}", self.clients.describe(), self.server.describe());
        self.env.fail(why);
    }

    /// Nothing is left behind.
    fn check_end(&mut self) {
        let open = self.env.oracle().open();
        if !open.is_empty() {
            self.env.fail(format!("commands without an end: {open:?}"));
        }
        let (ours, theirs) = (self.clients.bytes_in_use(), self.server.bytes_in_use());
        if (ours, theirs) != (0, 0) {
            self.env.fail(format!("buffers are left: {ours} bytes of the initiators, {theirs} of the target"));
        }
        if self.stores.running() > 0 {
            self.env.fail("a store still works, and no task is left");
        }
    }
}
