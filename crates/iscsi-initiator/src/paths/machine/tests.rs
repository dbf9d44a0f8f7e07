//! The rules one by one, and all of them against a model of a target whose paths fail.

use proptest::prelude::*;

use super::*;
use crate::paths::machine::{Action, Ended};

const SECOND: Duration = Duration::from_secs(1);

fn found(portal_group: u16, access: AccessState) -> Found {
    Found { portal_group: Some(portal_group), port_group: Some(portal_group), access }
}

fn at(milliseconds: u64) -> Time {
    Time::new(Duration::from_millis(milliseconds))
}

/// A machine whose paths are up in these states, each in a portal group of its own.
fn up(states: &[AccessState]) -> Machine<u32> {
    let mut machine = Machine::new(states.len(), 60 * SECOND);
    for (path, state) in states.iter().enumerate() {
        machine.connected(path, 1, found(path as u16, *state), at(0));
    }
    while machine.next_action().is_some() {}
    machine
}

use AccessState::{ActiveNonOptimized, ActiveOptimized, Standby};

impl Machine<u32> {
    fn write(&mut self, blocks: Range<u64>, now: Time) -> Key {
        self.submit(0, Some(&blocks), Repeat::Always, 30 * SECOND, now).unwrap()
    }

    fn read(&mut self, now: Time) -> Key {
        self.submit(0, None, Repeat::Always, 30 * SECOND, now).unwrap()
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.next_action()).collect()
    }

    /// The paths of the requests that are to be sent.
    fn sent(&mut self) -> Vec<(Key, usize)> {
        let sent = self.actions().into_iter();
        sent.filter_map(|action| match action {
            Action::Send { request, path, .. } => Some((request, path)),
            _ => None,
        })
        .collect()
    }
}

#[test]
fn equal_paths_take_turns_and_worse_ones_are_idle() {
    let mut machine = up(&[ActiveOptimized, ActiveNonOptimized, ActiveOptimized, Standby]);
    let keys: Vec<Key> = (0..4).map(|_| machine.read(at(1))).collect();
    let paths: Vec<usize> = machine.sent().into_iter().map(|(_, path)| path).collect();
    assert_eq!(paths, [0, 2, 0, 2]);
    machine.ended(keys[1], Ended::Answered, at(2));
    machine.ended(keys[3], Ended::Answered, at(2));
    machine.read(at(3));
    machine.read(at(3));
    let paths: Vec<usize> = machine.sent().into_iter().map(|(_, path)| path).collect();
    assert_eq!(paths, [2, 2], "the path with fewer requests under way");
}

#[test]
fn what_a_lost_path_had_goes_over_another_at_once_and_back_when_it_returns() {
    let mut machine = up(&[ActiveOptimized, ActiveNonOptimized]);
    let key = machine.read(at(1));
    assert_eq!(machine.sent(), [(key, 0)]);
    assert_eq!(machine.ended(key, Ended::Lost, at(2)), Fate::Stays);
    assert_eq!(machine.sent(), [(key, 1)]);
    assert_eq!(machine.ended(key, Ended::Answered, at(3)), Fate::Over(0));
    machine.time_has_come(at(2) + FIRST_RECONNECT_PAUSE);
    assert_eq!(machine.actions(), [Action::Connect { path: 0, life: 2 }]);
    machine.connected(0, 2, found(0, ActiveOptimized), at(100));
    let key = machine.read(at(101));
    assert_eq!(machine.sent(), [(key, 0)]);
}

#[test]
fn a_command_that_must_not_run_twice_ends_in_doubt() {
    for repeat in [Repeat::Never, Repeat::IfNotRun] {
        let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
        let key = machine.submit(7, Some(&(0..1)), repeat, SECOND, at(0)).unwrap();
        assert_eq!(machine.ended(key, Ended::Lost, at(2)), Fate::InDoubt(7));
    }
}

#[test]
fn a_command_that_a_standby_port_refused_goes_elsewhere_unless_it_has_one_attempt() {
    let mut machine = up(&[ActiveOptimized, ActiveNonOptimized]);
    let key = machine.submit(7, Some(&(0..1)), Repeat::IfNotRun, SECOND, at(0)).unwrap();
    assert_eq!(machine.sent(), [(key, 0)]);
    assert_eq!(machine.ended(key, Ended::NotActive(Standby), at(1)), Fate::Stays);
    assert_eq!(machine.actions()[0], Action::AskStates { path: 0 });
    let mut machine = up(&[ActiveOptimized, ActiveNonOptimized]);
    let key = machine.submit(7, None, Repeat::Never, SECOND, at(0)).unwrap();
    assert_eq!(machine.ended(key, Ended::NotActive(Standby), at(1)), Fate::Over(7));
}

/// The port still answers pings.
#[test]
fn a_path_that_stands_still_is_left_when_its_port_has_lost_the_disk() {
    let group = |group, state| PortGroup { group, preferred: false, state };
    let mut machine = up(&[ActiveOptimized, Standby]);
    let (first, second) = (machine.write(0..1, at(0)), machine.read(at(0)));
    assert_eq!(machine.sent(), [(first, 0), (second, 0)]);
    machine.ended(first, Ended::Answered, at(1000));
    let still = at(1000) + PATH_PING;
    assert_eq!(machine.next_timeout(), Some(still));
    machine.time_has_come(still);
    assert_eq!(machine.actions(), [Action::AskStates { path: 1 }]);
    // It has the disk as before, and is only slow.
    machine.states(1, 1, Some(&[group(0, ActiveOptimized), group(1, Standby)]), still);
    assert_eq!(machine.actions(), []);
    assert_eq!(machine.next_timeout(), Some(still + STATES_PAUSE));
    machine.time_has_come(still + STATES_PAUSE);
    assert_eq!(machine.actions(), [Action::AskStates { path: 1 }]);
    // While no port has the disk, this one may yet.
    machine.states(1, 1, Some(&[group(0, Standby), group(1, Standby)]), still + STATES_PAUSE);
    assert_eq!(machine.actions(), [Action::AskStates { path: 0 }]);
    machine.states(1, 1, Some(&[group(0, Standby), group(1, ActiveOptimized)]), still + STATES_PAUSE);
    assert_eq!(machine.actions(), [Action::Close { path: 0 }]);
    assert_eq!(machine.ended(second, Ended::Lost, still + STATES_PAUSE), Fate::Stays);
    assert_eq!(machine.sent(), [(second, 1)]);
}

#[test]
fn a_path_whose_requests_end_is_not_left() {
    let group = |group, state| PortGroup { group, preferred: false, state };
    let mut machine = up(&[ActiveOptimized, Standby]);
    let keys: Vec<Key> = (0..2).map(|_| machine.read(at(0))).collect();
    machine.ended(keys[0], Ended::Answered, at(5000));
    machine.sent();
    machine.states(1, 1, Some(&[group(0, Standby), group(1, ActiveOptimized)]), at(5001));
    assert_eq!(machine.actions(), []);
}

#[test]
fn one_answer_tells_the_states_of_all_paths() {
    let mut machine = up(&[ActiveOptimized, Standby]);
    machine.states_changed(0);
    assert_eq!(machine.actions(), [Action::AskStates { path: 0 }]);
    let group = |group, state| PortGroup { group, preferred: false, state };
    machine.states(0, 1, Some(&[group(0, Standby), group(1, ActiveOptimized)]), at(1));
    let key = machine.read(at(2));
    assert_eq!(machine.sent(), [(key, 1)]);
}

#[test]
fn requests_wait_for_an_active_path_and_ask_for_one() {
    let mut machine = up(&[Standby, Standby]);
    let key = machine.read(at(1000));
    assert_eq!(machine.actions(), [Action::AskStates { path: 0 }, Action::AskStates { path: 1 }]);
    for path in 0..2 {
        let group = |group, state| PortGroup { group, preferred: false, state };
        machine.states(path, 1, Some(&[group(0, Standby), group(1, Standby)]), at(1001));
    }
    assert!(machine.actions().is_empty());
    assert!(machine.next_timeout().unwrap() <= at(1001) + STATES_PAUSE);
    machine.time_has_come(at(1001) + STATES_PAUSE);
    assert_eq!(machine.actions().len(), 2, "asked again");
    machine.states(1, 1, None, at(1600));
    assert_eq!(machine.sent(), [(key, 1)], "a path whose state is not known is tried");
}

#[test]
fn an_older_write_never_comes_after_a_newer_one() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
    let old = machine.write(0..8, at(0));
    assert_eq!(machine.sent(), [(old, 0)]);
    machine.ended(old, Ended::Lost, at(1));
    assert_eq!(machine.sent(), [(old, 1)]);
    assert_eq!(machine.ended(old, Ended::Answered, at(2)), Fate::Over(0));
    // Path 0 may still carry the first copy.
    let (new, other) = (machine.write(4..5, at(3)), machine.write(8..9, at(3)));
    assert_eq!(machine.sent(), [(other, 1)]);
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(actions.contains(&Action::Clear { path: 0, way: Clearing::Reset { over: 1 } }), "{actions:?}");
    machine.cleared(0, true, at(1100));
    assert_eq!(machine.sent(), [(new, 1)]);
}

#[test]
fn a_path_is_cleared_by_its_next_login_unless_that_is_another_nexus() {
    for (portal_group, is_cleared) in [(0, true), (9, false)] {
        let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
        let old = machine.write(0..8, at(0));
        machine.ended(old, Ended::Lost, at(1));
        machine.ended(old, Ended::Answered, at(2));
        let new = machine.write(0..8, at(3));
        machine.time_has_come(at(1) + FIRST_RECONNECT_PAUSE);
        machine.actions();
        machine.connected(0, 2, found(portal_group, ActiveOptimized), at(100));
        assert_eq!(machine.sent().iter().any(|(key, _)| *key == new), is_cleared);
    }
}

#[test]
fn another_portal_of_the_portal_group_reinstates_the_nexus() {
    let mut machine = Machine::<u32>::new(3, 60 * SECOND);
    for (path, group) in [1, 2, 1].into_iter().enumerate() {
        machine.connected(path, 1, found(group, ActiveOptimized), at(0));
    }
    machine.actions();
    let old = machine.write(0..8, at(0));
    machine.ended(old, Ended::Lost, at(1));
    machine.ended(old, Ended::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    assert!(machine.actions().contains(&Action::Clear { path: 0, way: Clearing::Reinstate { portal_of: 2 } }));
}

#[test]
fn a_portal_group_of_another_target_port_group_does_not_reinstate_the_nexus() {
    let mut machine = Machine::<u32>::new(2, 60 * SECOND);
    for path in 0..2 {
        let found = Found { port_group: Some(path as u16), ..found(1, ActiveOptimized) };
        machine.connected(path, 1, found, at(0));
    }
    machine.actions();
    let old = machine.write(0..8, at(0));
    machine.ended(old, Ended::Lost, at(1));
    machine.ended(old, Ended::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(actions.contains(&Action::Clear { path: 0, way: Clearing::Reset { over: 1 } }), "{actions:?}");
}

#[test]
fn a_nexus_that_another_portal_cannot_reinstate_is_cleared_by_a_reset() {
    let mut machine = Machine::<u32>::new(2, 60 * SECOND);
    for path in 0..2 {
        machine.connected(path, 1, found(1, ActiveOptimized), at(0));
    }
    machine.actions();
    let old = machine.write(0..8, at(0));
    machine.ended(old, Ended::Lost, at(1));
    machine.ended(old, Ended::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    assert!(machine.actions().contains(&Action::Clear { path: 0, way: Clearing::Reinstate { portal_of: 1 } }));
    machine.cleared(0, false, at(1100));
    machine.time_has_come(at(1100) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(actions.contains(&Action::Clear { path: 0, way: Clearing::Reset { over: 1 } }), "{actions:?}");
}

#[test]
fn a_write_that_was_given_up_is_aborted_when_another_waits_and_costs_no_path() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
    let (write, read) = (machine.write(0..8, at(0)), machine.read(at(0)));
    machine.actions();
    assert_eq!(machine.ended(read, Ended::GivenUp, at(1)), Fate::Over(0));
    assert_eq!(machine.ended(write, Ended::GivenUp, at(1)), Fate::Over(0));
    assert!(machine.actions().is_empty(), "the path is there, and nothing waits");
    let next = machine.write(0..8, at(2));
    assert_eq!(machine.actions(), [Action::Clear { path: 0, way: Clearing::Abort }], "it may run yet");
    machine.cleared(0, true, at(3));
    assert_eq!(machine.sent().first().map(|(key, _)| *key), Some(next));
}

#[test]
fn a_path_that_does_not_end_its_tasks_is_closed() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
    let write = machine.write(0..8, at(0));
    machine.ended(write, Ended::GivenUp, at(1));
    let next = machine.write(0..8, at(2));
    machine.actions();
    machine.cleared(0, false, at(3));
    assert_eq!(machine.actions(), [Action::Close { path: 0 }]);
    machine.time_has_come(at(3) + FIRST_RECONNECT_PAUSE);
    machine.connected(0, 2, found(0, ActiveOptimized), at(100));
    assert!(machine.sent().iter().any(|(key, _)| *key == next), "its next login has ended them");
}

#[test]
fn what_a_reset_has_ended_on_a_third_path_is_sent_again() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized, ActiveOptimized]);
    let old = machine.write(0..8, at(0));
    let beside = [machine.read(at(0)), machine.read(at(0))];
    assert_eq!(machine.sent(), [(old, 0), (beside[0], 1), (beside[1], 2)]);
    machine.ended(old, Ended::Lost, at(1));
    assert_eq!(machine.sent(), [(old, 1)]);
    machine.ended(old, Ended::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    let over = machine.actions().into_iter().find_map(|action| match action {
        Action::Clear { path: 0, way: Clearing::Reset { over } } => Some(over),
        _ => None,
    });
    machine.cleared(0, true, at(1100));
    let third = if over == Some(1) { 2 } else { 1 };
    let actions = machine.actions();
    assert!(actions.contains(&Action::Clear { path: third, way: Clearing::Abort }), "{actions:?}");
}

#[test]
fn waiting_ends_with_the_time_of_the_request_or_of_the_disk() {
    let mut machine = up(&[ActiveOptimized]);
    machine.session_lost(0, 1, at(0));
    machine.submit(1, None, Repeat::Always, SECOND, at(0)).unwrap();
    machine.submit(2, None, Repeat::Always, 90 * SECOND, at(0)).unwrap();
    let mut ends = Vec::new();
    while let Some(now) = machine.next_timeout() {
        machine.time_has_come(now);
        for action in machine.actions() {
            match action {
                Action::Connect { path, life } => machine.not_connected(path, life, now),
                Action::End { request, why } => ends.push((machine.take(request).unwrap(), why, now)),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(ends, [(1, End::TimedOut, at(1000)), (2, End::NoPath, at(60_000))]);
    assert!(matches!(machine.submit(3, None, Repeat::Always, SECOND, at(60_001)), Err(Refused::NoPath(3))));
}

#[test]
fn a_request_is_not_sent_for_ever() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
    let key = machine.read(at(0));
    let mut attempts = 0;
    for life in 1.. {
        let Some((_, path)) = machine.sent().into_iter().find(|(sent, _)| *sent == key) else { break };
        attempts += 1;
        machine.ended(key, Ended::NotActive(Standby), at(life));
        let groups = [0, 1].map(|group| PortGroup { group, preferred: false, state: ActiveOptimized });
        machine.states(path, 1, Some(&groups), at(life));
    }
    assert_eq!(attempts, MAX_REPEATS + 1);
    assert!(machine.requests.is_empty());
}

/// The pauses of a machine's only path before its next lives, each of which lasts for `life`, and in which a request
/// `ends`.
fn pauses(life: Duration, ends: Ended) -> Vec<Duration> {
    let mut machine = up(&[ActiveOptimized]);
    let mut now = at(0);
    let mut pause = |number: u64| {
        let key = machine.read(now);
        machine.actions();
        machine.ended(key, ends, now);
        now = now + life;
        machine.session_lost(0, number, now);
        let next = machine.next_timeout().unwrap();
        machine.time_has_come(next);
        machine.connected(0, number + 1, found(0, ActiveOptimized), next);
        next - std::mem::replace(&mut now, next)
    };
    (1..=4).map(&mut pause).collect()
}

#[test]
fn a_path_that_is_lost_before_it_answers_is_made_again_later_and_later() {
    let first = FIRST_RECONNECT_PAUSE;
    assert_eq!(pauses(Duration::ZERO, Ended::GivenUp), [first, 2 * first, 4 * first, 8 * first]);
    assert_eq!(pauses(Duration::ZERO, Ended::Answered), [first; 4]);
    assert_eq!(pauses(PROVEN_AFTER, Ended::GivenUp), [first; 4], "an idle path has proved itself, too");
}

/// A machine of three paths whose disk was written, and whose first path was lost and hears of a power-on as it is made
/// again.
fn powered_on() -> Machine<u32> {
    let mut machine = up(&[ActiveOptimized; 3]);
    let write = machine.write(0..8, at(0));
    machine.ended(write, Ended::Answered, at(1));
    machine.session_lost(0, 1, at(2));
    machine.time_has_come(at(2) + FIRST_RECONNECT_PAUSE);
    machine.actions();
    machine.power_on(0);
    machine.connected(0, 2, found(0, ActiveOptimized), at(100));
    machine
}

#[test]
fn a_power_on_is_that_of_a_new_nexus_alone_when_another_path_answers() {
    let mut machine = powered_on();
    assert_eq!(machine.actions(), [Action::Testify { path: 0, life: 2, witness: 1 }]);
    assert_eq!(machine.access(0), None, "it carries nothing yet");
    machine.testified(0, 2, 1, true, at(101));
    assert!(machine.actions().is_empty());
    assert!(machine.access(0).is_some());
}

#[test]
fn a_power_on_counts_when_no_other_path_answers() {
    let mut machine = powered_on();
    machine.actions();
    machine.session_lost(1, 1, at(101));
    machine.testified(0, 2, 1, false, at(101));
    assert_eq!(machine.actions(), [Action::Testify { path: 0, life: 2, witness: 2 }]);
    machine.testified(0, 1, 2, true, at(102));
    assert!(machine.access(0).is_none(), "that was asked in an earlier life");
    machine.testified(0, 2, 2, false, at(103));
    assert_eq!(machine.actions(), [Action::PowerOn]);
    assert!(machine.access(0).is_some());
}

#[test]
fn a_power_on_is_not_forgotten_when_its_path_is_lost_again() {
    let mut machine = powered_on();
    machine.session_lost(0, 2, at(101));
    machine.time_has_come(at(101) + MAX_RECONNECT_PAUSE);
    machine.actions();
    machine.connected(0, 3, found(0, ActiveOptimized), at(6000));
    assert_eq!(machine.actions(), [Action::Testify { path: 0, life: 3, witness: 1 }]);
}

#[test]
fn a_power_on_counts_at_once_on_a_path_that_is_there_or_alone() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
    machine.power_on(0);
    assert_eq!(machine.actions(), [Action::PowerOn]);
    let mut machine = Machine::<u32>::new(2, 60 * SECOND);
    machine.actions();
    for path in 0..2 {
        machine.power_on(path);
        machine.connected(path, 1, found(path as u16, ActiveOptimized), at(0));
    }
    assert_eq!(machine.actions(), [Action::PowerOn], "the second path finds the first, and nothing was written");
}

#[test]
fn a_path_that_could_not_be_asked_for_its_state_is_asked_again() {
    let mut machine = up(&[Standby]);
    let key = machine.read(at(1000));
    assert_eq!(machine.actions(), [Action::AskStates { path: 0 }]);
    machine.not_told(0, 1, at(1001));
    assert!(machine.actions().is_empty());
    machine.time_has_come(at(1001) + STATES_PAUSE);
    assert_eq!(machine.actions(), [Action::AskStates { path: 0 }]);
    machine.states(0, 1, None, at(2000));
    assert_eq!(machine.sent(), [(key, 0)]);
}

/// A machine of two paths, whose first one was lost with a write that the other has answered since. A newer write of
/// the same blocks waits.
fn held_up() -> (Machine<u32>, Key) {
    let mut machine = up(&[ActiveOptimized, ActiveNonOptimized]);
    let old = machine.write(0..8, at(0));
    machine.ended(old, Ended::Lost, at(1));
    machine.ended(old, Ended::Answered, at(2));
    let new = machine.write(0..8, at(3));
    machine.actions();
    (machine, new)
}

#[test]
fn a_reset_does_not_clear_what_was_lost_after_it_was_asked_for() {
    let (mut machine, new) = held_up();
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    assert!(machine.actions().contains(&Action::Clear { path: 0, way: Clearing::Reset { over: 1 } }));
    // The path comes back, takes the write, and is lost with it before the reset is answered.
    machine.connected(0, 2, found(0, ActiveOptimized), at(1100));
    assert_eq!(machine.sent(), [(new, 0)]);
    machine.ended(new, Ended::Lost, at(1101));
    machine.ended(new, Ended::Answered, at(1102));
    machine.actions();
    let newest = machine.write(0..8, at(1103));
    machine.cleared(0, true, at(1104));
    assert!(!machine.sent().iter().any(|(key, _)| *key == newest), "the reset may have come before the write");
    machine.time_has_come(at(1104) + CLEAR_PAUSE);
    assert!(machine.actions().contains(&Action::Clear { path: 0, way: Clearing::Reset { over: 1 } }));
    machine.cleared(0, true, at(3000));
    assert_eq!(machine.sent(), [(newest, 1)]);
}

#[test]
fn a_nexus_of_a_portal_group_that_a_path_has_left_is_only_cleared_by_a_reset() {
    let (mut machine, new) = held_up();
    machine.time_has_come(at(1) + FIRST_RECONNECT_PAUSE);
    machine.connected(0, 2, found(9, ActiveOptimized), at(100));
    machine.session_lost(0, 2, at(101));
    machine.time_has_come(at(102) + 2 * FIRST_RECONNECT_PAUSE);
    machine.connected(0, 3, found(9, ActiveOptimized), at(300));
    assert!(!machine.sent().iter().any(|(key, _)| *key == new), "portal group 0 may still run the old write");
    machine.time_has_come(at(300) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(matches!(actions[..], [Action::Clear { path: 0, way: Clearing::Reset { .. } }]), "{actions:?}");
    machine.cleared(0, true, at(2000));
    assert_eq!(machine.sent(), [(new, 0)]);
}

#[test]
fn the_portal_group_that_a_path_has_moved_to_does_not_reinstate_the_nexus_that_it_left() {
    let mut machine = Machine::<u32>::new(2, 60 * SECOND);
    for (path, group) in [1, 2].into_iter().enumerate() {
        machine.connected(path, 1, found(group, ActiveOptimized), at(0));
    }
    machine.actions();
    let old = machine.write(0..8, at(0));
    machine.ended(old, Ended::Lost, at(1));
    machine.ended(old, Ended::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + FIRST_RECONNECT_PAUSE);
    machine.connected(0, 2, found(2, ActiveOptimized), at(100));
    machine.actions();
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(matches!(actions[..], [Action::Clear { path: 0, way: Clearing::Reset { .. } }]), "{actions:?}");
}

/// A command that is under way over a path, or was when the path was lost.
struct Copy {
    request: Key,
    path: usize,
    life: u64,
    order: usize,
    blocks: Option<Range<u64>>,
    /// The incarnation of the target that its session belongs to.
    incarnation: u64,
    has_run: bool,
    /// Whether the machine was told of its end.
    has_ended: bool,
}

/// The caller's knowledge of a request.
struct Told {
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
    told: Vec<Told>,
    /// The last request that has written each block.
    disk: Vec<Option<usize>>,
    connecting: Vec<(usize, u64)>,
    lives: Vec<u64>,
    asked: Vec<usize>,
    clearing: Vec<(usize, Clearing)>,
    testifying: Vec<(usize, u64, usize, u64)>,
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
            told: Vec::new(),
            disk: vec![None; BLOCKS as usize],
            connecting: Vec::new(),
            lives: vec![0; paths],
            asked: Vec::new(),
            clearing: Vec::new(),
            testifying: Vec::new(),
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
                    let told = &self.told[order];
                    assert_eq!(told.ends, 0, "a request that has ended is not sent");
                    assert!(told.repeat == Repeat::Always || !told.has_run, "it must not run twice");
                    let (life, blocks, incarnation) = (self.lives[path], told.blocks.clone(), self.sessions[path]);
                    let (has_run, has_ended) = (false, false);
                    self.copies.push(Copy { request, path, life, order, blocks, incarnation, has_run, has_ended });
                }
                Action::End { request, .. } => {
                    let order = self.machine.take(request).unwrap();
                    self.told[order].ends += 1;
                }
                Action::Connect { path, life } => {
                    self.lives[path] = life;
                    self.connecting.push((path, life));
                }
                Action::Close { path } => self.lose(path),
                Action::PowerOn => self.power_ons += 1,
                Action::Testify { path, life, witness } => {
                    self.testifying.push((path, life, witness, self.lives[witness]));
                }
                Action::AskStates { path } => self.asked.push(path),
                Action::Clear { path, way } => self.clearing.push((path, way)),
            }
        }
    }

    fn submit(&mut self, blocks: Option<&Range<u64>>, repeat: Repeat, is_flush: bool) {
        let order = self.told.len();
        let is_write = |told: &&Told| told.blocks.is_some() && told.answered_by.is_some() && !told.is_durable;
        let covers = (0..order).filter(|at| is_flush && is_write(&&self.told[*at])).collect();
        self.told.push(Told {
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
            Err(_) => self.told[order].ends += 1,
        }
    }

    /// The target carries out a copy, also one whose path we have lost.
    fn run(&mut self, at: usize) {
        let now = self.incarnation;
        let Some(copy) = self.copies.get_mut(at).filter(|copy| !copy.has_run && copy.incarnation == now) else {
            return;
        };
        copy.has_run = true;
        self.told[copy.order].has_run = true;
        for block in copy.blocks.clone().into_iter().flatten() {
            let before = self.disk[block as usize];
            if let Some(before) = before.filter(|before| *before > copy.order) {
                assert!(!self.told[before].is_answered, "{} overwrites the newer {before}", copy.order);
            }
            self.disk[block as usize] = Some(copy.order);
        }
    }

    fn is_alive(&self, copy: &Copy) -> bool {
        !copy.has_ended
            && copy.life == self.lives[copy.path]
            && copy.incarnation == self.incarnation
            && self.machine.access(copy.path).is_some()
    }

    /// A request was answered. A flush that ends well must not hide that what it covers was lost.
    fn answered(&mut self, order: usize) {
        self.told[order].is_answered = true;
        self.told[order].answered_by = Some((self.incarnation, self.power_ons));
        if !self.told[order].is_flush {
            return;
        }
        for write in std::mem::take(&mut self.told[order].covers) {
            let Some((incarnation, power_ons)) = self.told[write].answered_by else { continue };
            if incarnation == self.incarnation {
                self.told[write].is_durable = true;
            } else if !self.told[write].is_durable {
                assert_ne!(power_ons, self.power_ons, "the flush {order} ends well, and {write} was lost");
            }
        }
    }

    /// A copy whose path is up is answered.
    fn answer(&mut self, at: usize, ended: Ended) {
        let Some(copy) = self.copies.get(at).filter(|copy| self.is_alive(copy)) else { return };
        let request = copy.request;
        if ended == Ended::Answered {
            self.run(at);
        }
        let mut copy = self.copies.remove(at);
        copy.has_ended = true;
        let fate = self.machine.ended(request, ended, self.now);
        match fate {
            Fate::Over(order) => {
                self.told[order].ends += 1;
                if ended == Ended::Answered {
                    self.answered(order);
                }
            }
            Fate::InDoubt(order) => self.told[order].ends += 1,
            Fate::Stays => {}
        }
        if ended == Ended::GivenUp && !copy.has_run {
            // It may run yet.
            self.copies.push(copy);
        }
        self.act();
    }

    /// The session of a path is lost. What it carried may run later.
    fn lose(&mut self, path: usize) {
        let life = self.lives[path];
        let carried = self.copies.iter_mut().filter(|copy| (copy.path, copy.life) == (path, life) && !copy.has_ended);
        let end = |copy: &mut Copy| {
            copy.has_ended = true;
            copy.request
        };
        for request in carried.map(end).collect::<Vec<_>>() {
            match self.machine.ended(request, Ended::Lost, self.now) {
                Fate::Over(order) | Fate::InDoubt(order) => self.told[order].ends += 1,
                Fate::Stays => {}
            }
        }
        self.machine.session_lost(path, life, self.now);
        self.act();
    }

    /// The target ends the tasks of a nexus.
    fn end_tasks(&mut self, path: usize, before: u64) {
        self.copies.retain(|copy| copy.path != path || copy.life >= before);
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

    fn testify(&mut self) {
        if self.testifying.is_empty() {
            return;
        }
        let (path, life, witness, witness_life) = self.testifying.remove(0);
        let lives = self.machine.access(witness).is_some() && self.lives[witness] == witness_life;
        let has_answered = lives && self.sessions[witness] == self.incarnation;
        if lives && !has_answered {
            self.lose(witness);
        }
        self.machine.testified(path, life, witness, has_answered, self.now);
        self.act();
    }

    fn connect(&mut self, is_done: bool, state: AccessState, always_tells: bool) {
        if self.connecting.is_empty() {
            return;
        }
        let (path, life) = self.connecting.remove(0);
        if is_done {
            self.end_tasks(path, life);
            self.sessions[path] = self.incarnation;
            self.log_in(path, always_tells);
            let found = found(self.portal_groups[path], state);
            self.machine.connected(path, life, found, self.now);
        } else {
            self.machine.not_connected(path, life, self.now);
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
        let lives = |path: usize| self.machine.access(path).is_some() && self.sessions[path] == self.incarnation;
        let is_done = is_done && by.is_none_or(lives);
        if is_done {
            let before = self.lives[path] + u64::from(self.machine.access(path).is_none());
            // What is under way over a path that is there is sent again by its session, what was given up is not.
            self.copies.retain(|copy| copy.path != path || (copy.life >= before && !copy.has_ended));
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
        self.machine.states(path, self.lives[path], Some(&groups), self.now);
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
            while !self.testifying.is_empty() {
                self.testify();
            }
            while !self.clearing.is_empty() {
                self.clear(true);
            }
            while !self.asked.is_empty() {
                self.tell_states([ActiveOptimized; 2]);
            }
            while let Some(at) = self.copies.iter().position(|copy| self.is_alive(copy)) {
                self.answer(at, Ended::Answered);
            }
            if self.told.iter().all(|told| told.ends > 0) {
                break;
            }
            self.wait(Duration::from_millis(100));
        }
        for (order, told) in self.told.iter().enumerate() {
            assert_eq!(told.ends, 1, "request {order} ends exactly once");
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
    Testify,
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
        2 => Just(Event::Testify),
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
                Event::Answer(at) => model.answer(at, Ended::Answered),
                // A port that is not active refuses what did not run.
                Event::Refuse(at) if model.copies.get(at).is_some_and(|copy| !copy.has_run) => {
                    model.answer(at, Ended::NotActive(Standby));
                }
                Event::Refuse(_) => {}
                Event::GiveUp(at) => model.answer(at, Ended::GivenUp),
                Event::Lose(path) => model.lose(path),
                Event::Flush => model.submit(None, Repeat::Always, true),
                Event::PowerOn => model.power_on(),
                Event::Testify => model.testify(),
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
