//! Task management: what ends with it comes back before its answer.

use lunette_pdu::{LunField, TaskManagementFunction, TaskManagementRequest, TaskManagementResponseCode};
use lunette_session::iscsi_initiator::Event;

use crate::harness::{LUN, Pair, ScriptedTarget, pattern, read, write};

const COMPLETE: TaskManagementResponseCode = TaskManagementResponseCode::FUNCTION_COMPLETE;

fn answer(target: &mut ScriptedTarget, request: &TaskManagementRequest, response: TaskManagementResponseCode) {
    let pdu = target.task_management_response(request.itt, response);
    target.send(pdu.emit(), &[]);
}

/// The commands that were given back, then the answer.
fn aborted(target: &mut ScriptedTarget) -> (Vec<u64>, TaskManagementResponseCode) {
    let mut users = Vec::new();
    loop {
        match target.event() {
            Event::Aborted(command) => users.push(command.user),
            Event::TaskManagementDone { response, .. } => return (users, response),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn abort_task_names_its_task() {
    for (response, given_back) in [
        (COMPLETE, vec![2]),
        (TaskManagementResponseCode::TASK_DOES_NOT_EXIST, vec![2]),
        (TaskManagementResponseCode::FUNCTION_REJECTED, vec![]),
    ] {
        let mut target = ScriptedTarget::asked_only();
        target.read(512);
        let cmd_sn = target.exp_cmd_sn;
        let (tag, itt) = target.read(512);
        assert!(target.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK, LUN, Some(tag)));
        let request = target.task_management_request();
        assert_eq!((request.referenced_task_tag, request.ref_cmd_sn, request.immediate), (itt, cmd_sn, true));
        assert_eq!(request.cmd_sn, target.exp_cmd_sn);
        answer(&mut target, &request, response);
        assert_eq!(aborted(&mut target), (given_back, response));
    }
}

#[test]
fn a_task_that_has_ended_is_not_aborted() {
    let mut target = ScriptedTarget::asked_only();
    let (tag, itt) = target.read(0);
    let response = target.response(itt).emit();
    target.send(response, &[]);
    assert!(matches!(target.event(), Event::Completed { .. }));
    assert!(target.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK, LUN, Some(tag)));
    target.raw(&[]);
    assert_eq!(aborted(&mut target), (vec![], TaskManagementResponseCode::TASK_DOES_NOT_EXIST));
    assert!(target.sent.is_empty());
    assert!(!target.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK, LUN, None));
}

#[test]
fn resets_end_what_was_submitted_before_them() {
    for (function, given_back) in [
        (TaskManagementFunction::ABORT_TASK_SET, vec![1, 3]),
        (TaskManagementFunction::CLEAR_TASK_SET, vec![1, 3]),
        (TaskManagementFunction::LOGICAL_UNIT_RESET, vec![1, 3]),
        (TaskManagementFunction::TARGET_WARM_RESET, vec![1, 2, 3]),
        (TaskManagementFunction::TARGET_COLD_RESET, vec![1, 2, 3]),
        (TaskManagementFunction::QUERY_TASK_SET, vec![]),
    ] {
        let mut target = ScriptedTarget::asked_only();
        for user in 1..=4 {
            let lun = if user == 2 { LunField([0, 9, 0, 0, 0, 0, 0, 0]) } else { LUN };
            let mut command = read(&target.pool, user, 0, 512);
            command.lun = lun;
            if user == 4 {
                assert!(target.session.manage_tasks(7, function, LUN, None));
            }
            target.session.submit(command, target.now).unwrap();
        }
        target.raw(&[]);
        target.sent.drain(..3);
        let request = target.task_management_request();
        answer(&mut target, &request, COMPLETE);
        assert_eq!(aborted(&mut target), (given_back, COMPLETE), "{function}");
    }
}

/// The target has not said that it had the command, and answers the query before the abort: it may still work on it.
#[test]
fn a_query_does_not_end_what_an_abort_under_way_concerns() {
    for function in [
        TaskManagementFunction::ABORT_TASK,
        TaskManagementFunction::ABORT_TASK_SET,
        TaskManagementFunction::TARGET_WARM_RESET,
    ] {
        // An abort that is refused has ended nothing: then the target never had the command.
        for response in [COMPLETE, TaskManagementResponseCode::FUNCTION_REJECTED] {
            let mut target = ScriptedTarget::recovering_with(&[("iSCSIProtocolLevel", "2")]);
            target.behind = true;
            let (tag, _) = target.read(512);
            let named = (function == TaskManagementFunction::ABORT_TASK).then_some(tag);
            assert!(target.session.manage_tasks(7, function, LUN, named));
            let abort = target.task_management_request();
            assert!(target.session.manage_tasks(8, TaskManagementFunction::QUERY_TASK, LUN, Some(tag)));
            let query = target.task_management_request();
            target.exp_cmd_sn = query.ref_cmd_sn.next();
            answer(&mut target, &query, COMPLETE);
            assert_eq!(aborted(&mut target), (vec![], COMPLETE), "{function}");
            answer(&mut target, &abort, response);
            assert_eq!(aborted(&mut target), (vec![1], response), "{function}");
        }
    }
}

#[test]
fn data_of_an_aborted_write_is_still_sent_until_the_answer() {
    let mut target = ScriptedTarget::asked_only();
    let (tag, itt) = target.write(8192);
    assert!(target.session.manage_tasks(7, TaskManagementFunction::ABORT_TASK, LUN, Some(tag)));
    let request = target.task_management_request();
    target.send(target.r2t(itt, 0, 0, 4096).emit(), &[]);
    assert_eq!(target.next().data, pattern(4096));
    answer(&mut target, &request, COMPLETE);
    assert_eq!(aborted(&mut target).0, [1]);
    target.send(target.r2t(itt, 1, 4096, 4096).emit(), &[]);
    target.broken("11.2.1.8");
}

#[test]
fn requests_are_bounded() {
    let mut target = ScriptedTarget::asked_only();
    let mut taken = 0;
    while target.session.manage_tasks(taken, TaskManagementFunction::ABORT_TASK_SET, LUN, None) {
        taken += 1;
        assert!(taken < 1000);
    }
    assert!(!target.session.ping(1, target.cid, Vec::new()));
    assert!(target.session.logout(), "there is always room for the end");
}

#[test]
fn our_target_aborts_what_we_ask_it_to() {
    let mut pair = Pair::logged_in();
    pair.ends.idle = true;
    let mut tags = Vec::new();
    for user in 1..=4 {
        let command = if user % 2 == 0 {
            read(&pair.ends.pool, user, 0, 4096)
        } else {
            write(&pair.ends.pool, user, 0, &pattern(600_000)[..200_000])
        };
        tags.push(pair.ends.session.submit(command, pair.ends.now).unwrap());
    }
    pair.run();
    assert!(pair.ends.session.manage_tasks(9, TaskManagementFunction::ABORT_TASK, LUN, Some(tags[1])));
    pair.run();
    assert!(matches!(pair.ends.events.pop_front(), Some(Event::Aborted(command)) if command.user == 2));
    assert!(matches!(
        pair.ends.events.pop_front(),
        Some(Event::TaskManagementDone { user: 9, response: COMPLETE, .. })
    ));
    assert!(pair.ends.session.manage_tasks(10, TaskManagementFunction::LOGICAL_UNIT_RESET, LUN, None));
    pair.run();
    for expected in [1, 3, 4] {
        assert!(matches!(pair.ends.events.pop_front(), Some(Event::Aborted(command)) if command.user == expected));
    }
    assert!(matches!(pair.ends.events.pop_front(), Some(Event::TaskManagementDone { user: 10, .. })));
    assert_eq!(pair.ends.pool.used_bytes(), 0);
}
