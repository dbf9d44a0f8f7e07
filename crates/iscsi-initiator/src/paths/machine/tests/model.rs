//! All rules against a model of a target whose paths fail.

use proptest::prelude::*;

use super::*;

/// A command that is under way over a path, or was when the path was lost.
struct Copy {
    request: Key,
    path: usize,
    generation: u64,
    order: usize,
    blocks: Option<Range<u64>>,
    /// The incarnation of the target that its session belongs to.
    incarnation: u64,
    has_run: bool,
    /// Whether the machine was told of its end.
    has_ended: bool,
}

/// The caller's knowledge of a request.
struct Submitted {
    blocks: Option<Range<u64>>,
    repeat: Repeat,
    has_run: bool,
    is_answered: bool,
    ends: u32,
    is_flush: bool,
    /// The incarnation of the target that has answered it, and the power-ons that were counted then.
    answered_by: Option<(u64, u64)>,
    /// The writes that were answered before a flush.
    covers: Vec<usize>,
    is_durable: bool,
}

/// A target whose paths fail, and its oracle.
struct Model {
    machine: Machine<usize>,
    now: Time,
    copies: Vec<Copy>,
    submitted: Vec<Submitted>,
    /// The last request that has written each block.
    disk: Vec<Option<usize>>,
    connecting: Vec<(usize, u64)>,
    generations: Vec<u64>,
    asked: Vec<usize>,
    clearing: Vec<(usize, Clearing)>,
    power_on_checks: Vec<(usize, u64, usize, u64)>,
    portal_groups: Vec<u16>,
    /// How often the target was powered on.
    incarnation: u64,
    /// The incarnation of the target to which the session of each path belongs.
    sessions: Vec<u64>,
    /// The incarnation of which the nexus of each path has heard.
    heard: Vec<u64>,
    power_ons: u64,
}

const BLOCKS: u64 = 12;

impl Model {
    fn new(portal_groups: Vec<u16>) -> Self {
        let paths = portal_groups.len();
        let mut model = Self {
            machine: Machine::new(paths, 60 * SECOND),
            now: at(0),
            copies: Vec::new(),
            submitted: Vec::new(),
            disk: vec![None; BLOCKS as usize],
            connecting: Vec::new(),
            generations: vec![0; paths],
            asked: Vec::new(),
            clearing: Vec::new(),
            power_on_checks: Vec::new(),
            portal_groups,
            incarnation: 0,
            sessions: vec![0; paths],
            heard: vec![0; paths],
            power_ons: 0,
        };
        model.act();
        model
    }

    fn act(&mut self) {
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::Send { request, path, timeout } => {
                    assert!(timeout <= 30 * SECOND);
                    let order = *self.machine.payload(request).unwrap();
                    let submitted = &self.submitted[order];
                    assert_eq!(submitted.ends, 0, "a request that has ended is not sent");
                    assert!(submitted.repeat == Repeat::Always || !submitted.has_run, "it must not run twice");
                    let (generation, blocks, incarnation) =
                        (self.generations[path], submitted.blocks.clone(), self.sessions[path]);
                    let (has_run, has_ended) = (false, false);
                    self.copies.push(Copy {
                        request,
                        path,
                        generation,
                        order,
                        blocks,
                        incarnation,
                        has_run,
                        has_ended,
                    });
                }
                Action::End { request, .. } => {
                    let order = self.machine.take(request).unwrap();
                    self.submitted[order].ends += 1;
                }
                Action::OnPath(path, PathAction::Connect { generation }) => {
                    self.generations[path] = generation;
                    self.connecting.push((path, generation));
                }
                Action::OnPath(path, PathAction::Close) => self.lose(path),
                Action::PowerOn => self.power_ons += 1,
                Action::OnPath(path, PathAction::CheckPowerOn { generation, witness }) => {
                    self.power_on_checks.push((path, generation, witness, self.generations[witness]));
                }
                Action::OnPath(path, PathAction::AskStates) => self.asked.push(path),
                Action::OnPath(path, PathAction::Clear(way)) => self.clearing.push((path, way)),
            }
        }
    }

    fn submit(&mut self, blocks: Option<&Range<u64>>, repeat: Repeat, is_flush: bool) {
        let order = self.submitted.len();
        let is_write = |submitted: &&Submitted| {
            submitted.blocks.is_some() && submitted.answered_by.is_some() && !submitted.is_durable
        };
        let covers = (0..order).filter(|at| is_flush && is_write(&&self.submitted[*at])).collect();
        self.submitted.push(Submitted {
            blocks: blocks.cloned(),
            repeat,
            has_run: false,
            is_answered: false,
            ends: 0,
            is_flush,
            answered_by: None,
            covers,
            is_durable: false,
        });
        match self.machine.submit(order, blocks, repeat, 30 * SECOND, self.now) {
            Ok(_) => self.act(),
            Err(_) => self.submitted[order].ends += 1,
        }
    }

    /// The target carries out a copy, also one whose path we have lost.
    fn run(&mut self, at: usize) {
        let now = self.incarnation;
        let Some(copy) = self.copies.get_mut(at).filter(|copy| !copy.has_run && copy.incarnation == now) else {
            return;
        };
        copy.has_run = true;
        self.submitted[copy.order].has_run = true;
        for block in copy.blocks.clone().into_iter().flatten() {
            let before = self.disk[block as usize];
            if let Some(before) = before.filter(|before| *before > copy.order) {
                assert!(!self.submitted[before].is_answered, "{} overwrites the newer {before}", copy.order);
            }
            self.disk[block as usize] = Some(copy.order);
        }
    }

    fn is_alive(&self, copy: &Copy) -> bool {
        !copy.has_ended
            && copy.generation == self.generations[copy.path]
            && copy.incarnation == self.incarnation
            && self.machine.access(copy.path).is_some()
    }

    /// A request was answered. A flush that ends well must not hide that what it covers was lost.
    fn answered(&mut self, order: usize) {
        self.submitted[order].is_answered = true;
        self.submitted[order].answered_by = Some((self.incarnation, self.power_ons));
        if !self.submitted[order].is_flush {
            return;
        }
        for write in std::mem::take(&mut self.submitted[order].covers) {
            let Some((incarnation, power_ons)) = self.submitted[write].answered_by else { continue };
            if incarnation == self.incarnation {
                self.submitted[write].is_durable = true;
            } else if !self.submitted[write].is_durable {
                assert_ne!(power_ons, self.power_ons, "the flush {order} ends well, and {write} was lost");
            }
        }
    }

    /// A copy whose path is up is answered.
    fn answer(&mut self, at: usize, ended: AttemptResult) {
        let Some(copy) = self.copies.get(at).filter(|copy| self.is_alive(copy)) else { return };
        let request = copy.request;
        if ended == AttemptResult::Answered {
            self.run(at);
        }
        let mut copy = self.copies.remove(at);
        copy.has_ended = true;
        let outcome = self.machine.attempt_ended(request, ended, self.now);
        match outcome {
            Outcome::Ended(order) => {
                self.submitted[order].ends += 1;
                if ended == AttemptResult::Answered {
                    self.answered(order);
                }
            }
            Outcome::InDoubt(order) => self.submitted[order].ends += 1,
            Outcome::Continues => {}
        }
        if ended == AttemptResult::GivenUp && !copy.has_run {
            // It may run yet.
            self.copies.push(copy);
        }
        self.act();
    }

    /// The session of a path is lost. What it carried may run later.
    fn lose(&mut self, path: usize) {
        let generation = self.generations[path];
        let carried =
            self.copies.iter_mut().filter(|copy| (copy.path, copy.generation) == (path, generation) && !copy.has_ended);
        let end = |copy: &mut Copy| {
            copy.has_ended = true;
            copy.request
        };
        for request in carried.map(end).collect::<Vec<_>>() {
            match self.machine.attempt_ended(request, AttemptResult::Lost, self.now) {
                Outcome::Ended(order) | Outcome::InDoubt(order) => self.submitted[order].ends += 1,
                Outcome::Continues => {}
            }
        }
        self.machine.session_lost(path, generation, self.now);
        self.act();
    }

    /// The target ends the tasks of a nexus.
    fn end_tasks(&mut self, path: usize, before: u64) {
        self.copies.retain(|copy| copy.path != path || copy.generation >= before);
    }

    /// The nexus of a path logs in. It hears of a power-on that it has not heard of, or, of many targets, always.
    fn log_in(&mut self, path: usize, always_tells: bool) {
        if always_tells || self.heard[path] != self.incarnation {
            self.machine.power_on(path);
        }
        self.heard[path] = self.incarnation;
    }

    /// The target loses power. Sessions do not know it yet.
    fn power_on(&mut self) {
        self.incarnation += 1;
        let now = self.incarnation;
        // What was asked for on a path that is dead is never answered.
        self.copies.retain(|copy| !copy.has_ended || copy.incarnation == now);
    }

    fn check_power_on(&mut self) {
        if self.power_on_checks.is_empty() {
            return;
        }
        let (path, generation, witness, witness_generation) = self.power_on_checks.remove(0);
        let is_there = self.machine.access(witness).is_some() && self.generations[witness] == witness_generation;
        let has_answered = is_there && self.sessions[witness] == self.incarnation;
        if is_there && !has_answered {
            self.lose(witness);
        }
        self.machine.power_on_checked(path, generation, witness, has_answered, self.now);
        self.act();
    }

    fn connect(&mut self, is_done: bool, state: AccessState, always_tells: bool) {
        if self.connecting.is_empty() {
            return;
        }
        let (path, generation) = self.connecting.remove(0);
        if is_done {
            self.end_tasks(path, generation);
            self.sessions[path] = self.incarnation;
            self.log_in(path, always_tells);
            let facts = facts(self.portal_groups[path], state);
            self.machine.connected(path, generation, facts, self.now);
        } else {
            self.machine.not_connected(path, generation, self.now);
        }
        self.act();
    }

    fn clear(&mut self, is_done: bool) {
        let Some((path, way)) = self.clearing.pop() else { return };
        let by = match way {
            Clearing::Reinstate { .. } => None,
            Clearing::Reset { over } => Some(over),
            Clearing::Abort => Some(path),
        };
        let is_there = |path: usize| self.machine.access(path).is_some() && self.sessions[path] == self.incarnation;
        let is_done = is_done && by.is_none_or(is_there);
        if is_done {
            let before = self.generations[path] + u64::from(self.machine.access(path).is_none());
            // What is under way over a path that is there is sent again by its session, what was given up is not.
            self.copies.retain(|copy| copy.path != path || (copy.generation >= before && !copy.has_ended));
            if let Clearing::Reinstate { .. } = way {
                self.log_in(path, false);
            }
        }
        self.machine.cleared(path, is_done, self.now);
        self.act();
    }

    fn tell_states(&mut self, states: [AccessState; 2]) {
        let Some(path) = self.asked.pop() else { return };
        let groups: Vec<PortGroup> = self
            .portal_groups
            .iter()
            .enumerate()
            .map(|(at, group)| PortGroup { group: *group, preferred: false, state: states[at % 2] })
            .collect();
        self.machine.states(path, self.generations[path], Some(&groups), self.now);
        self.act();
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.machine.time_has_come(self.now);
        self.act();
    }

    /// All faults end, and all requests with them.
    fn finish(mut self) {
        for _ in 0..2000 {
            while !self.connecting.is_empty() {
                self.connect(true, ActiveOptimized, false);
            }
            for path in 0..self.sessions.len() {
                if self.sessions[path] != self.incarnation && self.machine.access(path).is_some() {
                    self.lose(path);
                }
            }
            while !self.power_on_checks.is_empty() {
                self.check_power_on();
            }
            while !self.clearing.is_empty() {
                self.clear(true);
            }
            while !self.asked.is_empty() {
                self.tell_states([ActiveOptimized; 2]);
            }
            while let Some(at) = self.copies.iter().position(|copy| self.is_alive(copy)) {
                self.answer(at, AttemptResult::Answered);
            }
            if self.submitted.iter().all(|submitted| submitted.ends > 0) {
                break;
            }
            self.wait(Duration::from_millis(100));
        }
        for (order, submitted) in self.submitted.iter().enumerate() {
            assert_eq!(submitted.ends, 1, "request {order} ends exactly once");
        }
        assert!(self.machine.requests.is_empty() && self.machine.ready.is_empty());
    }
}

#[derive(Debug, Clone)]
enum Event {
    Submit { first: u64, len: u64, writes: bool, repeat: Repeat },
    Run(usize),
    Answer(usize),
    Refuse(usize),
    GiveUp(usize),
    Lose(usize),
    Flush,
    PowerOn,
    CheckPowerOn,
    Connect { is_done: bool, is_active: bool, always_tells: bool },
    Clear(bool),
    States(bool, bool),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let repeat = prop_oneof![8 => Just(Repeat::Always), 1 => Just(Repeat::IfNotRun), 1 => Just(Repeat::Never)];
    prop_oneof![
        8 => (0..BLOCKS, 0..4_u64, prop::bool::weighted(0.8), repeat).prop_map(|(first, len, writes, repeat)| {
            Event::Submit { first, len: len.min(BLOCKS - first), writes, repeat }
        }),
        5 => (0..20_usize).prop_map(Event::Run),
        5 => (0..20_usize).prop_map(Event::Answer),
        1 => (0..20_usize).prop_map(Event::Refuse),
        1 => (0..20_usize).prop_map(Event::GiveUp),
        2 => (0..3_usize).prop_map(Event::Lose),
        2 => Just(Event::Flush),
        1 => Just(Event::PowerOn),
        2 => Just(Event::CheckPowerOn),
        3 => (prop::bool::weighted(0.7), prop::bool::weighted(0.8), prop::bool::weighted(0.2)).prop_map(
            |(is_done, is_active, always_tells)| Event::Connect { is_done, is_active, always_tells }
        ),
        2 => any::<bool>().prop_map(Event::Clear),
        2 => any::<(bool, bool)>().prop_map(|(one, two)| Event::States(one, two)),
        4 => (1..3000_u64).prop_map(Event::Wait),
    ]
}

fn state(is_active: bool) -> AccessState {
    if is_active { ActiveOptimized } else { Standby }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_request_ends_once_none_runs_twice_that_must_not_and_no_newer_write_is_overwritten_or_lost_unseen(
        same_group: bool,
        events in proptest::collection::vec(event(), 0..250),
    ) {
        let mut model = Model::new(if same_group { vec![1, 1, 2] } else { vec![1, 2, 3] });
        for event in events {
            match event {
                Event::Submit { first, len, writes, repeat } => {
                    model.submit(writes.then_some(first..first + len).as_ref(), repeat, false);
                }
                Event::Run(at) => model.run(at),
                Event::Answer(at) => model.answer(at, AttemptResult::Answered),
                // A port that is not active refuses what did not run.
                Event::Refuse(at) if model.copies.get(at).is_some_and(|copy| !copy.has_run) => {
                    model.answer(at, AttemptResult::NotActive(Standby));
                }
                Event::Refuse(_) => {}
                Event::GiveUp(at) => model.answer(at, AttemptResult::GivenUp),
                Event::Lose(path) => model.lose(path),
                Event::Flush => model.submit(None, Repeat::Always, true),
                Event::PowerOn => model.power_on(),
                Event::CheckPowerOn => model.check_power_on(),
                Event::Connect { is_done, is_active, always_tells } => {
                    model.connect(is_done, state(is_active), always_tells);
                }
                Event::Clear(done) => model.clear(done),
                Event::States(one, two) => model.tell_states([state(one), state(two)]),
                Event::Wait(milliseconds) => model.wait(Duration::from_millis(milliseconds)),
            }
        }
        model.finish();
    }
}
