//! Several connections in one session: commands are delivered in order and run once, whatever the streams do.

use std::collections::HashMap;

use lunette_pdu::{Cid, TaskManagementFunction};
use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Event, LoginError, SessionConfig, SessionError, TaskTag};
use lunette_session::iscsi_target::CloseReason;
use lunette_session::keys::Offer;
use lunette_session::limits::RUN_COMMANDS;
use lunette_session::limits::{COMMAND_GAP_TIMEOUT, DATA_OUT_GRACE};
use proptest::prelude::*;

use crate::harness::{LUN, MultiPair, ScriptedSession, config, node, pattern, read, write};

fn connected(connections: usize, seed: u64) -> MultiPair {
    let offer = Offer { max_connections: connections as u32, ..Offer::default() };
    let config = SessionConfig { offer: offer.clone(), ..config() };
    MultiPair::connected(config, node(Authentication::None, offer), seed, connections)
}

/// Bytes that a write puts into its own place.
const SLOT: u32 = 1024;

fn data_of(user: u64) -> Vec<u8> {
    pattern(SLOT as usize).iter().map(|byte| byte ^ user as u8).collect()
}

/// The initiator's knowledge of its commands.
#[derive(Default)]
struct Oracle {
    open: HashMap<u64, bool>,
    completed: Vec<u64>,
    aborted: Vec<u64>,
    managed: usize,
}

impl Oracle {
    fn submit(&mut self, lanes: &mut MultiPair, user: u64, writes: bool) -> Option<TaskTag> {
        // A slot of the disk's upper half for each write; reads look at the lower half.
        let command = if writes {
            write(&lanes.pool, user, (128 << 10) + (user as u32 % 128) * SLOT, &data_of(user))
        } else {
            read(&lanes.pool, user, user as u32 % 64, SLOT)
        };
        let taken = lanes.session.submit(command, lanes.now).ok()?;
        self.open.insert(user, writes);
        Some(taken)
    }

    fn look(&mut self, lanes: &mut MultiPair) {
        while let Some(event) = lanes.events.pop_front() {
            match event {
                Event::Completed { command, response } => {
                    let user = command.user;
                    assert_eq!((response.response, response.status), (0, 0), "command {user}");
                    let wrote = self.open.remove(&user).expect("each command ends once");
                    if !wrote {
                        let from = user as usize % 64;
                        assert!(
                            command.data_in.unwrap()[..] == pattern(4096)[from..from + SLOT as usize],
                            "command {user}"
                        );
                    }
                    self.completed.push(user);
                }
                Event::Aborted(command) => {
                    self.open.remove(&command.user).expect("each command ends once");
                    self.aborted.push(command.user);
                }
                Event::TaskManagementDone { .. } => self.managed += 1,
                Event::LoggedIn(_) | Event::Closed { why: SessionError::ConnectionRemoved, .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn check(&self, lanes: &MultiPair) {
        for pair in lanes.delivered.windows(2) {
            assert!(pair[0].is_before(pair[1]), "{} before {}", pair[0], pair[1]);
        }
        for user in &self.completed {
            assert_eq!(lanes.runs.get(user), Some(&1), "command {user} was answered");
        }
        for user in &self.aborted {
            assert!(lanes.runs.get(user).is_none_or(|runs| *runs == 1), "command {user} was aborted");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_command_runs_once_and_in_order(
        seed in 1..u64::MAX,
        connections in 2..=8_usize,
        piece in prop_oneof![1..200_usize, Just(usize::MAX)],
        managed in any::<bool>(),
        removed in any::<bool>(),
    ) {
        let mut lanes = connected(connections, seed);
        let mut oracle = Oracle::default();
        let (mut user, mut asked, mut tags) = (0, 0, Vec::new());
        for turn in 0..3000 {
            let lane = lanes.dice.below(lanes.lanes.len());
            match lanes.dice.below(12) {
                0 => {
                    let writes = lanes.dice.below(2) == 0;
                    let taken = oracle.submit(&mut lanes, user, writes);
                    user += u64::from(taken.is_some());
                    tags.extend(taken.filter(|_| turn % 3 == 0));
                }
                1 => {
                    lanes.work();
                }
                2 if managed && turn % 50 == 0 => {
                    let function = TaskManagementFunction::ABORT_TASK_SET;
                    asked += usize::from(lanes.session.manage_tasks(turn, function, LUN, None));
                }
                3 if managed && turn % 10 == 0 => {
                    if let Some(tag) = tags.pop() {
                        let function = TaskManagementFunction::ABORT_TASK;
                        asked += usize::from(lanes.session.manage_tasks(turn, function, LUN, Some(tag)));
                    }
                }
                4 if removed && turn == 1500 => {
                    lanes.session.remove_connection(Cid(0));
                }
                _ => {
                    let most = if piece == usize::MAX { piece } else { 1 + lanes.dice.below(piece) };
                    lanes.step(lane, most);
                }
            }
            oracle.look(&mut lanes);
        }
        lanes.run();
        oracle.look(&mut lanes);
        prop_assert!(oracle.open.is_empty(), "commands without an end: {:?}", oracle.open);
        prop_assert_eq!(oracle.managed, asked);
        prop_assert!(managed || oracle.aborted.is_empty());
        oracle.check(&lanes);
    }
}

#[test]
fn commands_are_spread_over_all_connections() {
    let mut lanes = connected(8, 1);
    let mut oracle = Oracle::default();
    for user in 0..16 {
        assert!(oracle.submit(&mut lanes, user, true).is_some());
    }
    for lane in &lanes.lanes {
        assert!(lanes.session.has_output(lane.cid));
    }
    lanes.run();
    oracle.look(&mut lanes);
    oracle.check(&lanes);
    assert_eq!(oracle.completed.len(), 16);
}

#[test]
fn short_commands_go_in_runs_when_all_connections_have_work() {
    const COMMANDS: u64 = 4 + 2 * RUN_COMMANDS as u64;
    let mut lanes = connected(2, 1);
    let mut oracle = Oracle::default();
    let mut went_to = Vec::new();
    for user in 0..COMMANDS {
        let queued =
            |lanes: &MultiPair| [0, 1].map(|cid| lanes.session.slices(Cid(cid)).map(<[u8]>::len).sum::<usize>());
        let before = queued(&lanes);
        assert!(oracle.submit(&mut lanes, user, false).is_some());
        went_to.push(usize::from(queued(&lanes)[1] > before[1]));
    }
    let changes = went_to.windows(2).filter(|pair| pair[0] != pair[1]).count();
    // The first four find connections without work; then there are two whole runs, the first of them begun by the
    // fourth.
    assert!((4..=5).contains(&changes), "{went_to:?}");
    let on_one = went_to.iter().sum::<usize>() as u64;
    assert!(on_one >= u64::from(RUN_COMMANDS) && COMMANDS - on_one >= u64::from(RUN_COMMANDS), "{went_to:?}");
    lanes.run();
    oracle.look(&mut lanes);
    oracle.check(&lanes);
    assert_eq!(oracle.completed.len() as u64, COMMANDS);
}

/// Lets one connection bring its bytes to the target, and no other.
fn deliver(lanes: &mut MultiPair, lane: usize) {
    while lanes.turn(lane) {}
}

/// Two commands: the first one lies on connection 1, the second on connection 0.
fn two_commands(lanes: &mut MultiPair, oracle: &mut Oracle) {
    assert!(oracle.submit(lanes, 0, false).is_some());
    assert!(!lanes.session.has_output(Cid(0)));
    assert!(oracle.submit(lanes, 1, false).is_some());
    assert!(lanes.session.has_output(Cid(0)));
}

#[test]
fn what_comes_early_waits_and_immediate_requests_pass_it() {
    let mut lanes = connected(2, 7);
    two_commands(&mut lanes, &mut Oracle::default());
    deliver(&mut lanes, 0);
    assert!(lanes.delivered.is_empty());
    assert!(lanes.session.ping(1, Cid(0), b"here?".to_vec()));
    deliver(&mut lanes, 0);
    assert!(lanes.events.iter().any(|event| matches!(event, Event::Pong { intact: true, .. })));
    assert!(lanes.delivered.is_empty());
    deliver(&mut lanes, 1);
    assert_eq!(lanes.delivered.len(), 2);
}

#[test]
fn a_gap_that_nobody_fills_ends_the_connection() {
    let mut lanes = connected(2, 7);
    two_commands(&mut lanes, &mut Oracle::default());
    deliver(&mut lanes, 0);
    let due = lanes.now + COMMAND_GAP_TIMEOUT;
    assert_eq!(lanes.target_session(0).next_timeout(0), Some(due));
    lanes.target(0).time_has_come(due);
    deliver(&mut lanes, 0);
    assert_eq!(lanes.lanes[0].closed, Some(CloseReason::Gap));
}

#[test]
fn the_loss_of_one_connection_ends_the_session() {
    let mut lanes = connected(4, 3);
    let mut oracle = Oracle::default();
    for user in 0..12 {
        assert!(oracle.submit(&mut lanes, user, true).is_some());
    }
    lanes.session.disconnected(Cid(2), lanes.now);
    lanes.run();
    assert!(lanes.session.is_over());
    let ends = lanes.events.iter().filter(|event| matches!(event, Event::Closed { .. })).count();
    assert_eq!(ends, 4, "each connection ends once");
    assert_eq!(lanes.session.room(), 0);
    let MultiPair { session, events, .. } = lanes;
    let unfinished: Vec<u64> = session.into_unfinished().iter().map(|command| command.user).collect();
    assert!(unfinished.is_sorted());
    let finished = events.iter().filter(|event| matches!(event, Event::Completed { .. })).count();
    assert_eq!(unfinished.len() + finished, 12);
}

#[test]
fn a_connection_is_taken_out_and_another_one_joins() {
    let mut lanes = connected(3, 5);
    let mut oracle = Oracle::default();
    for user in 0..9 {
        assert!(oracle.submit(&mut lanes, user, true).is_some());
    }
    assert!(lanes.session.remove_connection(Cid(0)), "the leading one may leave too");
    assert!(!lanes.session.remove_connection(Cid(0)), "it is on its way");
    lanes.run();
    oracle.look(&mut lanes);
    assert_eq!(oracle.completed.len(), 9, "what was under way is not lost");
    assert_eq!(lanes.lanes[0].closed, Some(CloseReason::ConnectionLogout));
    assert!(!lanes.session.is_over());
    lanes.sessions.leave(lanes.lanes[0].key.unwrap(), 0);
    let joined = lanes.connect();
    assert_eq!(lanes.lanes[joined].cid, Cid(0), "its number is free");
    lanes.run();
    for user in 9..18 {
        assert!(oracle.submit(&mut lanes, user, true).is_some());
    }
    lanes.run();
    oracle.look(&mut lanes);
    oracle.check(&lanes);
    assert_eq!(oracle.completed.len(), 18);
}

#[test]
fn the_last_connection_is_not_taken_out() {
    let mut lanes = connected(1, 5);
    assert!(!lanes.session.remove_connection(Cid(0)));
}

#[test]
fn a_connection_too_many_is_refused_and_changes_nothing() {
    let mut lanes = connected(2, 5);
    lanes.connect();
    lanes.run();
    let Some(Event::Closed { why, .. }) = lanes.events.pop_front() else { panic!("no end") };
    assert_eq!(why, LoginError::Incompatible("MaxConnections".into()).into());
    let mut oracle = Oracle::default();
    assert!(oracle.submit(&mut lanes, 1, true).is_some());
    lanes.run();
    oracle.look(&mut lanes);
    assert_eq!(oracle.completed, [1]);
}

#[test]
fn one_logout_ends_all_connections() {
    let mut lanes = connected(4, 5);
    assert!(lanes.session.logout());
    assert_eq!(lanes.session.room(), 0);
    assert!(!lanes.session.logout(), "it was asked for already");
    lanes.run();
    assert!(lanes.session.is_over());
    for lane in &lanes.lanes {
        assert!(lane.gone);
    }
    let closed = lanes.lanes.iter().filter(|lane| lane.closed == Some(CloseReason::Logout)).count();
    assert_eq!(closed, 1, "the driver closes the others");
}

#[test]
fn an_r2t_may_come_after_the_reset_that_ended_its_task() {
    let offer = Offer { max_connections: 2, initial_r2t: true, immediate_data: false, ..Offer::default() };
    let config = SessionConfig { offer: offer.clone(), ..config() };
    let mut lanes = MultiPair::connected(config, node(Authentication::None, offer), 3, 2);
    let mut oracle = Oracle::default();
    // The write goes over connection 1 and its R2T stays under way, while connection 0 brings the reset and its answer.
    assert!(oracle.submit(&mut lanes, 0, true).is_some());
    lanes.send_initiator(1, usize::MAX);
    lanes.receive_target(1, usize::MAX);
    lanes.send_target(1, usize::MAX);
    assert!(lanes.session.manage_tasks(9, TaskManagementFunction::LOGICAL_UNIT_RESET, LUN, None));
    deliver(&mut lanes, 0);
    // The target does not wait for ever for the data that it has asked for.
    lanes.now = lanes.now + DATA_OUT_GRACE;
    deliver(&mut lanes, 0);
    oracle.look(&mut lanes);
    assert_eq!((&oracle.aborted[..], oracle.managed), (&[0][..], 1));
    lanes.run();
    oracle.look(&mut lanes);
    assert!(!lanes.session.is_over());
}

/// RFC 7143 chapter 13: what a session agrees on is negotiated by its leading login ("LO"), SessionType among it.
#[test]
fn a_connection_that_joins_says_who_it_is_and_what_holds_for_itself() {
    let mut peer = ScriptedSession::new(1, 2, 20);
    let joining = peer.connect();
    let names = peer.login_keys(joining);
    assert_eq!(names, ["InitiatorName", "TargetName", "AuthMethod"]);
    let offers = peer.login_keys(joining);
    assert_eq!(offers, ["HeaderDigest", "DataDigest", "MaxRecvDataSegmentLength"]);
}
