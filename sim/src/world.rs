//! One run: the initiator, the target and the network between them, from the first login to the last logout.

use std::time::Duration;

use lunette_session::Time;

use crate::Setup;
use crate::client::Client;
use crate::dice::Dice;
use crate::env::{Env, Happening};
use crate::scenario::Scenario;
use crate::server::Server;
use crate::tally::Tally;
use crate::wire::Network;

/// Longer than all faults of a run together can hold it up.
const VIRTUAL_LIMIT: Duration = Duration::from_hours(2);

/// Events of one run. The longest has a few hundred thousand.
const MAX_STEPS: u32 = 5_000_000;

/// Turns of all connections at one moment: more tell of a machine that spins.
const MAX_TURNS: u32 = 100_000;

/// How a run ended.
pub struct Run {
    /// What happened.
    pub tally: Tally,
    /// The rule that was broken.
    pub failure: Option<String>,
    /// All that happened, when it was asked for.
    pub trace: Option<String>,
}

struct World {
    env: Env,
    net: Network,
    client: Client,
    server: Server,
}

/// Runs the simulation that `seed` stands for, the same at each call. `traced`: keep a journal of it.
pub fn run(setup: Setup, seed: u64, traced: bool) -> Run {
    let mut dice = Dice::new(seed ^ u64::from(setup.level) << 56 ^ u64::from(setup.connections) << 48);
    let scenario = Scenario::draw(setup, &mut dice);
    let (client, server) = (Client::new(&scenario), Server::new(&scenario));
    let mut env = Env::new(scenario, dice, traced);
    let drawn = env.scenario.describe();
    env.note(|| drawn);
    let mut world = World { env, net: Network::default(), client, server };
    world.live();
    let (tally, failure, trace) = world.env.into_record();
    Run { tally, failure, trace }
}

impl World {
    fn live(&mut self) {
        let end = self.env.now + VIRTUAL_LIMIT;
        self.client.begin(&mut self.net, &mut self.env);
        self.server.plan_news(&mut self.env);
        for _ in 0..MAX_STEPS {
            if self.env.has_failed() {
                return;
            }
            if self.client.is_done() && self.net.is_empty() && self.server.is_idle() {
                return self.check_end();
            }
            match self.next() {
                Some(at) if at <= end => self.step(at),
                Some(_) => return self.hangs("does not come to an end"),
                None => return self.hangs("stands still"),
            }
        }
        self.hangs("spins");
    }

    fn next(&self) -> Option<Time> {
        let timeouts = [self.env.next(), self.client.next_timeout(), self.server.next_timeout()];
        timeouts.into_iter().flatten().min()
    }

    fn step(&mut self, at: Time) {
        let Self { env, net, client, server } = self;
        env.now = env.now.max(at);
        match env.take_due() {
            Some(Happening::Arrive(id, side)) => net.arrive(id, side, env.now),
            Some(Happening::Dialed) => {
                if let Some(id) = client.dialed(net, env) {
                    server.accept(id, env);
                }
            }
            Some(Happening::Act) => client.act(net, env),
            Some(Happening::Reopen) => client.reopen(env),
            Some(Happening::Done(job)) => server.done(job, env),
            Some(Happening::News) if client.is_done() => {}
            Some(Happening::News) => server.tell_news(net, env),
            None => {
                client.time_has_come(env.now);
                server.time_has_come(env.now);
            }
        }
        self.settle();
    }

    /// Both sides do what they can, until nothing moves.
    fn settle(&mut self) {
        let Self { env, net, client, server } = self;
        for _ in 0..MAX_TURNS {
            let mut moved = server.pass_fences(net, env) | server.feed(env) | client.settle(net, env);
            for id in server.ids() {
                moved |= server.turn(id, net, env);
            }
            for id in client.ids() {
                moved |= client.turn(id, net, env);
            }
            if !moved || env.has_failed() {
                return;
            }
        }
        self.hangs("turns round and round");
    }

    fn hangs(&mut self, how: &str) {
        let why = format!("the run {how}; {}; {}", self.client.describe(), self.server.describe());
        self.env.fail(why);
    }

    /// Nothing is left behind.
    fn check_end(&mut self) {
        let open = self.env.oracle.open();
        if !open.is_empty() {
            self.env.fail(format!("commands without an end: {open:?}"));
        }
        let (ours, theirs) = (self.client.bytes_in_use(), self.server.bytes_in_use());
        if (ours, theirs) != (0, 0) {
            self.env.fail(format!("buffers are left: {ours} bytes of the initiator, {theirs} of the target"));
        }
    }
}
