//! The rules one by one.

mod model;

use lunette_scsi::answers::PortGroup;

use super::action::{Clearing, PathAction};
use super::*;
use crate::limits::{CLEAR_PAUSE, FIRST_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE, PATH_PING, PROVEN_AFTER, STATES_PAUSE};

const SECOND: Duration = Duration::from_secs(1);

fn facts(portal_group: u16, access: AccessState) -> PathFacts {
    PathFacts { portal_group: Some(portal_group), port_group: Some(portal_group), access }
}

fn at(milliseconds: u64) -> Time {
    Time::new(Duration::from_millis(milliseconds))
}

/// A machine whose paths are up in these states, each in a portal group of its own.
fn up(states: &[AccessState]) -> Machine<u32> {
    let mut machine = Machine::new(states.len(), 60 * SECOND);
    for (path, state) in states.iter().enumerate() {
        machine.connected(path, 1, facts(path as u16, *state), at(0));
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
    machine.attempt_ended(keys[1], AttemptResult::Answered, at(2));
    machine.attempt_ended(keys[3], AttemptResult::Answered, at(2));
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
    assert_eq!(machine.attempt_ended(key, AttemptResult::Lost, at(2)), Outcome::Continues);
    assert_eq!(machine.sent(), [(key, 1)]);
    assert_eq!(machine.attempt_ended(key, AttemptResult::Answered, at(3)), Outcome::Ended(0));
    machine.time_has_come(at(2) + FIRST_RECONNECT_PAUSE);
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::Connect { generation: 2 })]);
    machine.connected(0, 2, facts(0, ActiveOptimized), at(100));
    let key = machine.read(at(101));
    assert_eq!(machine.sent(), [(key, 0)]);
}

#[test]
fn a_command_that_must_not_run_twice_ends_in_doubt() {
    for repeat in [Repeat::Never, Repeat::IfNotRun] {
        let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
        let key = machine.submit(7, Some(&(0..1)), repeat, SECOND, at(0)).unwrap();
        assert_eq!(machine.attempt_ended(key, AttemptResult::Lost, at(2)), Outcome::InDoubt(7));
    }
}

#[test]
fn a_command_that_a_standby_port_refused_goes_elsewhere_unless_it_has_one_attempt() {
    let mut machine = up(&[ActiveOptimized, ActiveNonOptimized]);
    let key = machine.submit(7, Some(&(0..1)), Repeat::IfNotRun, SECOND, at(0)).unwrap();
    assert_eq!(machine.sent(), [(key, 0)]);
    assert_eq!(machine.attempt_ended(key, AttemptResult::NotActive(Standby), at(1)), Outcome::Continues);
    assert_eq!(machine.actions()[0], Action::OnPath(0, PathAction::AskStates));
    let mut machine = up(&[ActiveOptimized, ActiveNonOptimized]);
    let key = machine.submit(7, None, Repeat::Never, SECOND, at(0)).unwrap();
    assert_eq!(machine.attempt_ended(key, AttemptResult::NotActive(Standby), at(1)), Outcome::Ended(7));
}

/// The port still answers pings.
#[test]
fn a_path_that_stands_still_is_left_when_its_port_has_lost_the_disk() {
    let group = |group, state| PortGroup { group, preferred: false, state };
    let mut machine = up(&[ActiveOptimized, Standby]);
    let (first, second) = (machine.write(0..1, at(0)), machine.read(at(0)));
    assert_eq!(machine.sent(), [(first, 0), (second, 0)]);
    machine.attempt_ended(first, AttemptResult::Answered, at(1000));
    let still = at(1000) + PATH_PING;
    assert_eq!(machine.next_timeout(), Some(still));
    machine.time_has_come(still);
    assert_eq!(machine.actions(), [Action::OnPath(1, PathAction::AskStates)]);
    // It has the disk as before, and is only slow.
    machine.states(1, 1, Some(&[group(0, ActiveOptimized), group(1, Standby)]), still);
    assert_eq!(machine.actions(), []);
    assert_eq!(machine.next_timeout(), Some(still + STATES_PAUSE));
    machine.time_has_come(still + STATES_PAUSE);
    assert_eq!(machine.actions(), [Action::OnPath(1, PathAction::AskStates)]);
    // While no port has the disk, this one may yet.
    machine.states(1, 1, Some(&[group(0, Standby), group(1, Standby)]), still + STATES_PAUSE);
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::AskStates)]);
    machine.states(1, 1, Some(&[group(0, Standby), group(1, ActiveOptimized)]), still + STATES_PAUSE);
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::Close)]);
    assert_eq!(machine.attempt_ended(second, AttemptResult::Lost, still + STATES_PAUSE), Outcome::Continues);
    assert_eq!(machine.sent(), [(second, 1)]);
}

#[test]
fn a_path_whose_requests_end_is_not_left() {
    let group = |group, state| PortGroup { group, preferred: false, state };
    let mut machine = up(&[ActiveOptimized, Standby]);
    let keys: Vec<Key> = (0..2).map(|_| machine.read(at(0))).collect();
    machine.attempt_ended(keys[0], AttemptResult::Answered, at(5000));
    machine.sent();
    machine.states(1, 1, Some(&[group(0, Standby), group(1, ActiveOptimized)]), at(5001));
    assert_eq!(machine.actions(), []);
}

#[test]
fn one_answer_tells_the_states_of_all_paths() {
    let mut machine = up(&[ActiveOptimized, Standby]);
    machine.states_changed(0);
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::AskStates)]);
    let group = |group, state| PortGroup { group, preferred: false, state };
    machine.states(0, 1, Some(&[group(0, Standby), group(1, ActiveOptimized)]), at(1));
    let key = machine.read(at(2));
    assert_eq!(machine.sent(), [(key, 1)]);
}

#[test]
fn requests_wait_for_an_active_path_and_ask_for_one() {
    let mut machine = up(&[Standby, Standby]);
    let key = machine.read(at(1000));
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::AskStates), Action::OnPath(1, PathAction::AskStates)]);
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
    machine.attempt_ended(old, AttemptResult::Lost, at(1));
    assert_eq!(machine.sent(), [(old, 1)]);
    assert_eq!(machine.attempt_ended(old, AttemptResult::Answered, at(2)), Outcome::Ended(0));
    // Path 0 may still carry the first copy.
    let (new, other) = (machine.write(4..5, at(3)), machine.write(8..9, at(3)));
    assert_eq!(machine.sent(), [(other, 1)]);
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(actions.contains(&Action::OnPath(0, PathAction::Clear(Clearing::Reset { over: 1 }))), "{actions:?}");
    machine.cleared(0, true, at(1100));
    assert_eq!(machine.sent(), [(new, 1)]);
}

#[test]
fn a_path_is_cleared_by_its_next_login_unless_that_is_another_nexus() {
    for (portal_group, is_cleared) in [(0, true), (9, false)] {
        let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
        let old = machine.write(0..8, at(0));
        machine.attempt_ended(old, AttemptResult::Lost, at(1));
        machine.attempt_ended(old, AttemptResult::Answered, at(2));
        let new = machine.write(0..8, at(3));
        machine.time_has_come(at(1) + FIRST_RECONNECT_PAUSE);
        machine.actions();
        machine.connected(0, 2, facts(portal_group, ActiveOptimized), at(100));
        assert_eq!(machine.sent().iter().any(|(key, _)| *key == new), is_cleared);
    }
}

#[test]
fn another_portal_of_the_portal_group_reinstates_the_nexus() {
    let mut machine = Machine::<u32>::new(3, 60 * SECOND);
    for (path, group) in [1, 2, 1].into_iter().enumerate() {
        machine.connected(path, 1, facts(group, ActiveOptimized), at(0));
    }
    machine.actions();
    let old = machine.write(0..8, at(0));
    machine.attempt_ended(old, AttemptResult::Lost, at(1));
    machine.attempt_ended(old, AttemptResult::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    assert!(machine.actions().contains(&Action::OnPath(0, PathAction::Clear(Clearing::Reinstate { portal_of: 2 }))));
}

#[test]
fn a_portal_group_of_another_target_port_group_does_not_reinstate_the_nexus() {
    let mut machine = Machine::<u32>::new(2, 60 * SECOND);
    for path in 0..2 {
        let facts = PathFacts { port_group: Some(path as u16), ..facts(1, ActiveOptimized) };
        machine.connected(path, 1, facts, at(0));
    }
    machine.actions();
    let old = machine.write(0..8, at(0));
    machine.attempt_ended(old, AttemptResult::Lost, at(1));
    machine.attempt_ended(old, AttemptResult::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(actions.contains(&Action::OnPath(0, PathAction::Clear(Clearing::Reset { over: 1 }))), "{actions:?}");
}

#[test]
fn a_nexus_that_another_portal_cannot_reinstate_is_cleared_by_a_reset() {
    let mut machine = Machine::<u32>::new(2, 60 * SECOND);
    for path in 0..2 {
        machine.connected(path, 1, facts(1, ActiveOptimized), at(0));
    }
    machine.actions();
    let old = machine.write(0..8, at(0));
    machine.attempt_ended(old, AttemptResult::Lost, at(1));
    machine.attempt_ended(old, AttemptResult::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    assert!(machine.actions().contains(&Action::OnPath(0, PathAction::Clear(Clearing::Reinstate { portal_of: 1 }))));
    machine.cleared(0, false, at(1100));
    machine.time_has_come(at(1100) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(actions.contains(&Action::OnPath(0, PathAction::Clear(Clearing::Reset { over: 1 }))), "{actions:?}");
}

#[test]
fn a_write_that_was_given_up_is_aborted_when_another_waits_and_costs_no_path() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
    let (write, read) = (machine.write(0..8, at(0)), machine.read(at(0)));
    machine.actions();
    assert_eq!(machine.attempt_ended(read, AttemptResult::GivenUp, at(1)), Outcome::Ended(0));
    assert_eq!(machine.attempt_ended(write, AttemptResult::GivenUp, at(1)), Outcome::Ended(0));
    assert!(machine.actions().is_empty(), "the path is there, and nothing waits");
    let next = machine.write(0..8, at(2));
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::Clear(Clearing::Abort))], "it may run yet");
    machine.cleared(0, true, at(3));
    assert_eq!(machine.sent().first().map(|(key, _)| *key), Some(next));
}

#[test]
fn a_path_that_does_not_end_its_tasks_is_closed() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
    let write = machine.write(0..8, at(0));
    machine.attempt_ended(write, AttemptResult::GivenUp, at(1));
    let next = machine.write(0..8, at(2));
    machine.actions();
    machine.cleared(0, false, at(3));
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::Close)]);
    machine.time_has_come(at(3) + FIRST_RECONNECT_PAUSE);
    machine.connected(0, 2, facts(0, ActiveOptimized), at(100));
    assert!(machine.sent().iter().any(|(key, _)| *key == next), "its next login has ended them");
}

#[test]
fn what_a_reset_has_ended_on_a_third_path_is_sent_again() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized, ActiveOptimized]);
    let old = machine.write(0..8, at(0));
    let beside = [machine.read(at(0)), machine.read(at(0))];
    assert_eq!(machine.sent(), [(old, 0), (beside[0], 1), (beside[1], 2)]);
    machine.attempt_ended(old, AttemptResult::Lost, at(1));
    assert_eq!(machine.sent(), [(old, 1)]);
    machine.attempt_ended(old, AttemptResult::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    let over = machine.actions().into_iter().find_map(|action| match action {
        Action::OnPath(0, PathAction::Clear(Clearing::Reset { over })) => Some(over),
        _ => None,
    });
    machine.cleared(0, true, at(1100));
    let third = if over == Some(1) { 2 } else { 1 };
    let actions = machine.actions();
    assert!(actions.contains(&Action::OnPath(third, PathAction::Clear(Clearing::Abort))), "{actions:?}");
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
                Action::OnPath(path, PathAction::Connect { generation }) => {
                    machine.not_connected(path, generation, now);
                }
                Action::End { request, why } => ends.push((machine.take(request).unwrap(), why, now)),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(ends, [(1, EndReason::TimedOut, at(1000)), (2, EndReason::NoPath, at(60_000))]);
    assert!(matches!(machine.submit(3, None, Repeat::Always, SECOND, at(60_001)), Err(Refused::NoPath(3))));
}

#[test]
fn a_request_is_not_sent_for_ever() {
    let mut machine = up(&[ActiveOptimized, ActiveOptimized]);
    let key = machine.read(at(0));
    let mut attempts = 0;
    for millisecond in 1.. {
        let Some((_, path)) = machine.sent().into_iter().find(|(sent, _)| *sent == key) else { break };
        attempts += 1;
        machine.attempt_ended(key, AttemptResult::NotActive(Standby), at(millisecond));
        let groups = [0, 1].map(|group| PortGroup { group, preferred: false, state: ActiveOptimized });
        machine.states(path, 1, Some(&groups), at(millisecond));
    }
    assert_eq!(attempts, MAX_REPEATS + 1);
    assert!(machine.requests.is_empty());
}

/// The pauses of a machine's only path before its next sessions, each of which lasts for `session`, and in which a
/// request `ends`.
fn pauses(session: Duration, ends: AttemptResult) -> Vec<Duration> {
    let mut machine = up(&[ActiveOptimized]);
    let mut now = at(0);
    let mut pause = |number: u64| {
        let key = machine.read(now);
        machine.actions();
        machine.attempt_ended(key, ends, now);
        now = now + session;
        machine.session_lost(0, number, now);
        let next = machine.next_timeout().unwrap();
        machine.time_has_come(next);
        machine.connected(0, number + 1, facts(0, ActiveOptimized), next);
        next - std::mem::replace(&mut now, next)
    };
    (1..=4).map(&mut pause).collect()
}

#[test]
fn a_path_that_is_lost_before_it_answers_is_made_again_later_and_later() {
    let first = FIRST_RECONNECT_PAUSE;
    assert_eq!(pauses(Duration::ZERO, AttemptResult::GivenUp), [first, 2 * first, 4 * first, 8 * first]);
    assert_eq!(pauses(Duration::ZERO, AttemptResult::Answered), [first; 4]);
    assert_eq!(pauses(PROVEN_AFTER, AttemptResult::GivenUp), [first; 4], "an idle path has proved itself, too");
}

/// A machine of three paths whose disk was written, and whose first path was lost and hears of a power-on as it is made
/// again.
fn powered_on() -> Machine<u32> {
    let mut machine = up(&[ActiveOptimized; 3]);
    let write = machine.write(0..8, at(0));
    machine.attempt_ended(write, AttemptResult::Answered, at(1));
    machine.session_lost(0, 1, at(2));
    machine.time_has_come(at(2) + FIRST_RECONNECT_PAUSE);
    machine.actions();
    machine.power_on(0);
    machine.connected(0, 2, facts(0, ActiveOptimized), at(100));
    machine
}

#[test]
fn a_power_on_is_that_of_a_new_nexus_alone_when_another_path_answers() {
    let mut machine = powered_on();
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::CheckPowerOn { generation: 2, witness: 1 })]);
    assert_eq!(machine.access(0), None, "it carries nothing yet");
    machine.power_on_checked(0, 2, 1, true, at(101));
    assert!(machine.actions().is_empty());
    assert!(machine.access(0).is_some());
}

#[test]
fn a_power_on_counts_when_no_other_path_answers() {
    let mut machine = powered_on();
    machine.actions();
    machine.session_lost(1, 1, at(101));
    machine.power_on_checked(0, 2, 1, false, at(101));
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::CheckPowerOn { generation: 2, witness: 2 })]);
    machine.power_on_checked(0, 1, 2, true, at(102));
    assert!(machine.access(0).is_none(), "that was asked in an earlier generation");
    machine.power_on_checked(0, 2, 2, false, at(103));
    assert_eq!(machine.actions(), [Action::PowerOn]);
    assert!(machine.access(0).is_some());
}

#[test]
fn a_power_on_is_not_forgotten_when_its_path_is_lost_again() {
    let mut machine = powered_on();
    machine.session_lost(0, 2, at(101));
    machine.time_has_come(at(101) + MAX_RECONNECT_PAUSE);
    machine.actions();
    machine.connected(0, 3, facts(0, ActiveOptimized), at(6000));
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::CheckPowerOn { generation: 3, witness: 1 })]);
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
        machine.connected(path, 1, facts(path as u16, ActiveOptimized), at(0));
    }
    assert_eq!(machine.actions(), [Action::PowerOn], "the second path finds the first, and nothing was written");
}

#[test]
fn a_path_that_could_not_be_asked_for_its_state_is_asked_again() {
    let mut machine = up(&[Standby]);
    let key = machine.read(at(1000));
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::AskStates)]);
    machine.states_unknown(0, 1, at(1001));
    assert!(machine.actions().is_empty());
    machine.time_has_come(at(1001) + STATES_PAUSE);
    assert_eq!(machine.actions(), [Action::OnPath(0, PathAction::AskStates)]);
    machine.states(0, 1, None, at(2000));
    assert_eq!(machine.sent(), [(key, 0)]);
}

/// A machine of two paths, whose first one was lost with a write that the other has answered since. A newer write of
/// the same blocks waits.
fn held_up() -> (Machine<u32>, Key) {
    let mut machine = up(&[ActiveOptimized, ActiveNonOptimized]);
    let old = machine.write(0..8, at(0));
    machine.attempt_ended(old, AttemptResult::Lost, at(1));
    machine.attempt_ended(old, AttemptResult::Answered, at(2));
    let new = machine.write(0..8, at(3));
    machine.actions();
    (machine, new)
}

#[test]
fn a_reset_does_not_clear_what_was_lost_after_it_was_asked_for() {
    let (mut machine, new) = held_up();
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    assert!(machine.actions().contains(&Action::OnPath(0, PathAction::Clear(Clearing::Reset { over: 1 }))));
    // The path comes back, takes the write, and is lost with it before the reset is answered.
    machine.connected(0, 2, facts(0, ActiveOptimized), at(1100));
    assert_eq!(machine.sent(), [(new, 0)]);
    machine.attempt_ended(new, AttemptResult::Lost, at(1101));
    machine.attempt_ended(new, AttemptResult::Answered, at(1102));
    machine.actions();
    let newest = machine.write(0..8, at(1103));
    machine.cleared(0, true, at(1104));
    assert!(!machine.sent().iter().any(|(key, _)| *key == newest), "the reset may have come before the write");
    machine.time_has_come(at(1104) + CLEAR_PAUSE);
    assert!(machine.actions().contains(&Action::OnPath(0, PathAction::Clear(Clearing::Reset { over: 1 }))));
    machine.cleared(0, true, at(3000));
    assert_eq!(machine.sent(), [(newest, 1)]);
}

#[test]
fn a_nexus_of_a_portal_group_that_a_path_has_left_is_only_cleared_by_a_reset() {
    let (mut machine, new) = held_up();
    machine.time_has_come(at(1) + FIRST_RECONNECT_PAUSE);
    machine.connected(0, 2, facts(9, ActiveOptimized), at(100));
    machine.session_lost(0, 2, at(101));
    machine.time_has_come(at(102) + 2 * FIRST_RECONNECT_PAUSE);
    machine.connected(0, 3, facts(9, ActiveOptimized), at(300));
    assert!(!machine.sent().iter().any(|(key, _)| *key == new), "portal group 0 may still run the old write");
    machine.time_has_come(at(300) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(matches!(actions[..], [Action::OnPath(0, PathAction::Clear(Clearing::Reset { .. }))]), "{actions:?}");
    machine.cleared(0, true, at(2000));
    assert_eq!(machine.sent(), [(new, 0)]);
}

#[test]
fn the_portal_group_that_a_path_has_moved_to_does_not_reinstate_the_nexus_that_it_left() {
    let mut machine = Machine::<u32>::new(2, 60 * SECOND);
    for (path, group) in [1, 2].into_iter().enumerate() {
        machine.connected(path, 1, facts(group, ActiveOptimized), at(0));
    }
    machine.actions();
    let old = machine.write(0..8, at(0));
    machine.attempt_ended(old, AttemptResult::Lost, at(1));
    machine.attempt_ended(old, AttemptResult::Answered, at(2));
    machine.write(0..8, at(3));
    machine.time_has_come(at(1) + FIRST_RECONNECT_PAUSE);
    machine.connected(0, 2, facts(2, ActiveOptimized), at(100));
    machine.actions();
    machine.time_has_come(at(1) + CLEAR_PAUSE);
    let actions = machine.actions();
    assert!(matches!(actions[..], [Action::OnPath(0, PathAction::Clear(Clearing::Reset { .. }))]), "{actions:?}");
}
