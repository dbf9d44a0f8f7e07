//! A virtual clock, a target of some kind, and a caller that keeps it busy.

#![expect(clippy::cast_precision_loss, reason = "small numbers")]

use std::collections::VecDeque;

use super::*;

const ANSWER_BYTES: usize = 4144;

/// Microseconds of CPU time: one look, and one answer dealt with.
const LOOK_US: f64 = 5.0;
const ANSWER_US: f64 = 2.0;

/// When a target answers.
#[derive(Clone, Copy)]
enum Target {
    /// One command after the other, behind a network.
    OneByOne { service_us: f64, round_trip_us: f64 },
    /// All at the same time, each after as long as chance has it.
    Parallel { least_us: f64, most_us: f64 },
    /// The target begins when nothing is left of the last batch, and sends its answers together.
    Batches { command_us: f64 },
}

/// How much a caller asks for.
#[derive(Clone, Copy, PartialEq)]
enum Caller {
    /// The next command when one is answered.
    Steady,
    /// The target takes as many commands when all are answered.
    Bursts,
}

struct World {
    coalescing: Coalescing,
    target: Target,
    caller: Caller,
    depth: usize,
    now: f64,
    free_at: f64,
    /// When answers come, in order.
    arrivals: VecDeque<f64>,
    waiting: usize,
    answered: u64,
    looks: u64,
    most_held: usize,
    /// Answers that are waited for, until then.
    hold: Option<(usize, f64)>,
    chance: u64,
    is_on: bool,
}

impl World {
    fn new(target: Target, caller: Caller, depth: usize, is_on: bool) -> Self {
        let mut world = Self {
            coalescing: Coalescing::default(),
            target,
            caller,
            depth,
            now: 0.0,
            free_at: 0.0,
            arrivals: VecDeque::new(),
            waiting: 0,
            answered: 0,
            looks: 0,
            most_held: 0,
            hold: None,
            chance: 1,
            is_on,
        };
        world.send(depth);
        world
    }

    /// From 0 to 1.
    fn chance(&mut self) -> f64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 40) as f64 / (1_u64 << 24) as f64
    }

    fn send(&mut self, commands: usize) {
        self.waiting += commands;
        if let Target::Batches { command_us } = self.target {
            self.free_at = self.free_at.max(self.now) + commands as f64 * command_us;
        }
        for _ in 0..commands {
            let at = match self.target {
                Target::OneByOne { service_us, round_trip_us } => {
                    // Up to a tenth more or less.
                    let service_us = service_us * (0.9 + 0.2 * self.chance());
                    self.free_at = self.free_at.max(self.now + round_trip_us / 2.0) + service_us;
                    self.free_at + round_trip_us / 2.0
                }
                Target::Parallel { least_us, most_us } => self.now + least_us + (most_us - least_us) * self.chance(),
                Target::Batches { .. } => self.free_at,
            };
            let place = self.arrivals.partition_point(|other| *other <= at);
            self.arrivals.insert(place, at);
        }
    }

    /// When as many answers are there.
    fn when(&self, count: usize) -> f64 {
        self.arrivals.get(count - 1).copied().unwrap_or(f64::INFINITY)
    }

    /// One batch.
    fn turn(&mut self) {
        let mut at = self.when(1);
        if let Some((count, until)) = self.hold {
            at = self.when(count);
            if at > until {
                self.coalescing.hold_ended();
                at = self.when(1).max(until);
            }
        }
        self.now = self.now.max(at);
        let answers = self.arrivals.partition_point(|at| *at <= self.now);
        self.arrivals.drain(..answers);
        (self.looks, self.answered) = (self.looks + 1, self.answered + answers as u64);
        self.waiting -= answers;
        let began = self.now;
        self.now += LOOK_US + ANSWER_US * answers as f64;
        match self.caller {
            Caller::Steady => self.send(self.depth - self.waiting),
            Caller::Bursts if self.waiting == 0 => self.send(self.depth),
            Caller::Bursts => {}
        }
        self.hold = self.end_of_batch(answers, began);
    }

    fn end_of_batch(&mut self, answers: usize, began: f64) -> Option<(usize, f64)> {
        self.coalescing.received_bytes(answers * ANSWER_BYTES);
        self.coalescing.received_pdus(answers as u64);
        self.coalescing.completed(answers as u32);
        let low_water = self.coalescing.batch_end(self.waiting, time(began)).filter(|_| self.is_on)?;
        let count = (low_water as usize).div_ceil(ANSWER_BYTES);
        self.most_held = self.most_held.max(count);
        Some((count, began + MAX_HOLD.as_secs_f64() * 1e6))
    }

    /// Answers in a second, and for each look.
    fn run(&mut self, us: f64) -> (f64, f64) {
        let (began, answered, looks) = (self.now, self.answered, self.looks);
        while self.now < began + us {
            self.turn();
        }
        let answered = (self.answered - answered) as f64;
        (answered / (self.now - began) * 1e6, answered / (self.looks - looks) as f64)
    }
}

fn time(us: f64) -> Time {
    Time::new(Duration::from_secs_f64(us / 1e6))
}

const SECOND_US: f64 = 1e6;

/// The rate with, as part of the rate without, and answers for each look.
fn compare(target: Target, caller: Caller, depth: usize) -> (f64, f64) {
    let (with, group) = World::new(target, caller, depth, true).run(3.0 * SECOND_US);
    let (without, _) = World::new(target, caller, depth, false).run(3.0 * SECOND_US);
    (with / without, group)
}

const SLOW: Target = Target::OneByOne { service_us: 24.0, round_trip_us: 40.0 };

#[test]
fn answers_of_a_target_that_is_the_limit_come_in_groups() {
    let (rate, group) = compare(SLOW, Caller::Steady, 32);
    assert!(rate > 0.99 && group > 10.0, "{rate} {group}");
}

#[test]
fn few_commands_are_left_alone() {
    for depth in [1, 2, 8, MIN_COMMANDS - 1] {
        let mut world = World::new(SLOW, Caller::Steady, depth, true);
        world.run(SECOND_US);
        assert_eq!(world.most_held, 0, "{depth}");
    }
}

#[test]
fn a_target_that_answers_in_groups_is_left_alone() {
    for depth in [32, 128] {
        let mut world = World::new(Target::Batches { command_us: 4.0 }, Caller::Steady, depth, true);
        world.run(SECOND_US);
        assert_eq!(world.most_held, 0, "{depth}");
    }
}

#[test]
fn a_slow_target_is_left_alone() {
    let mut world = World::new(Target::OneByOne { service_us: 300.0, round_trip_us: 0.0 }, Caller::Steady, 32, true);
    world.run(SECOND_US);
    assert_eq!(world.most_held, 0);
}

#[test]
fn answers_come_no_more_slowly_from_far_away_or_from_many_at_work() {
    for target in [
        Target::OneByOne { service_us: 24.0, round_trip_us: 1000.0 },
        Target::OneByOne { service_us: 24.0, round_trip_us: 10_000.0 },
        Target::Parallel { least_us: 200.0, most_us: 600.0 },
        Target::Parallel { least_us: 300.0, most_us: 320.0 },
        Target::Parallel { least_us: 500.0, most_us: 3000.0 },
        Target::Parallel { least_us: 9000.0, most_us: 11_000.0 },
    ] {
        for depth in [16, 32, 64] {
            let (rate, group) = compare(target, Caller::Steady, depth);
            // Of the first three seconds, which have most of the trials.
            assert!(rate > 0.97, "{rate} {group} {depth}");
        }
    }
}

#[test]
fn a_caller_who_waits_for_all_before_the_next_loses_nothing() {
    for target in [SLOW, Target::Parallel { least_us: 200.0, most_us: 600.0 }] {
        let (rate, _) = compare(target, Caller::Bursts, 32);
        assert!(rate > 0.999, "{rate}");
    }
}

#[test]
fn what_has_changed_is_noticed() {
    let parallel = Target::Parallel { least_us: 200.0, most_us: 600.0 };
    let (without, _) = World::new(parallel, Caller::Steady, 32, false).run(3.0 * SECOND_US);
    let mut world = World::new(SLOW, Caller::Steady, 32, true);
    let (_, group) = world.run(SECOND_US);
    assert!(group > 8.0, "{group}");
    world.target = parallel;
    world.run(5.0 * SECOND_US);
    let (rate, _) = world.run(3.0 * SECOND_US);
    assert!(rate > 0.98 * without, "{rate} of {without}");
    world.target = SLOW;
    world.run(20.0 * SECOND_US);
    let (_, group) = world.run(SECOND_US);
    assert!(group > 8.0, "{group}");
}

/// In the first stretch that is held.
fn holding() -> World {
    let mut world = World::new(SLOW, Caller::Steady, 32, true);
    while world.hold.is_none() {
        world.turn();
    }
    world
}

#[test]
fn what_is_no_answer_ends_the_hold() {
    let mut world = holding();
    world.coalescing.received_pdus(1);
    assert!(world.coalescing.batch_end(32, time(world.now)).is_some(), "it may be an answer that has come in part");
    world.coalescing.received_pdus(1);
    assert_eq!(world.coalescing.batch_end(32, time(world.now)), None);
}

#[test]
fn answers_in_part_are_answers() {
    let mut coalescing = Coalescing::default();
    let mut holds = 0;
    for turn in 0..4 * u64::from(STRETCH_ANSWERS) {
        // The header of the next one comes with the end of this one.
        coalescing.received_bytes(ANSWER_BYTES);
        coalescing.received_pdus(1);
        coalescing.completed(u32::from(turn > 0));
        holds += u64::from(coalescing.batch_end(32, Time::new(Duration::from_micros(24 * turn))).is_some());
    }
    assert!(holds > u64::from(STRETCH_ANSWERS), "{holds}");
}

#[test]
fn the_target_keeps_half_of_the_commands() {
    let mut world = holding();
    assert_eq!(world.most_held as u64, MAX_HELD_BYTES / ANSWER_BYTES as u64);
    for (commands, answers) in [(24, 12), (17, 8), (1000, 15)] {
        let low_water = world.coalescing.batch_end(commands, time(world.now)).unwrap();
        assert_eq!(low_water as usize / ANSWER_BYTES, answers, "{commands}");
    }
    assert_eq!(world.coalescing.batch_end(MIN_COMMANDS - 1, time(world.now)), None);
}

#[test]
fn holds_without_answers_end_those_of_the_stretch() {
    let mut world = holding();
    for _ in 0..MAX_LATE_HOLDS {
        world.coalescing.hold_ended();
        assert!(world.coalescing.batch_end(32, time(world.now)).is_some());
    }
    world.coalescing.hold_ended();
    assert_eq!(world.coalescing.batch_end(32, time(world.now)), None);
}
