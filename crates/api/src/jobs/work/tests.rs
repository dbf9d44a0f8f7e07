use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use serde_json::json;

use super::*;
use crate::jobs::job::{JobKind, JobState};
use crate::limits::{MAX_JOBS, MAX_RUNNING_JOBS};

fn order(object: &str) -> JobOrder {
    let target = Some("iqn.a".into());
    JobOrder { kind: JobKind::Scrub, object: object.into(), target, started_by: "a test".into(), total_bytes: 100 }
}

/// A job whose work this test does.
fn started(jobs: &Jobs, object: &str) -> (u64, JobRun) {
    let (tx, rx) = channel();
    let job = jobs.order(order(object), move |run| tx.send(run).unwrap()).unwrap();
    (job.id, rx.try_recv().unwrap())
}

fn state(jobs: &Jobs, id: u64) -> JobState {
    jobs.find(id).unwrap().state
}

#[test]
fn work_reports_and_is_told_when_it_is_to_stop() {
    let jobs = Jobs::default();
    let (id, run) = started(&jobs, "a");
    assert!(run.report(10, 100).is_continue());
    assert_eq!(jobs.find(id).unwrap().progress.done_bytes, 10);
    assert!(jobs.cancel(id).unwrap().cancelling);
    assert!(run.report(20, 100).is_break());
    run.end(Outcome::Cancelled { result: json!({ "read": 20 }) });
    assert_eq!(state(&jobs, id), JobState::Cancelled);
    assert_eq!(jobs.cancel(id).unwrap().result, Some(json!({ "read": 20 })), "an end stays as it is");
}

#[test]
fn the_end_of_a_job_begins_the_next_that_waits_and_is_not_cancelled() {
    let jobs = Jobs::default();
    let mut running: Vec<_> = (0..MAX_RUNNING_JOBS).map(|number| started(&jobs, &number.to_string()).1).collect();
    let (tx, rx) = channel();
    let wait = |object| {
        let tx = tx.clone();
        jobs.order(order(object), move |run| tx.send(run).unwrap()).unwrap().id
    };
    let (cancelled, next) = (wait("x"), wait("y"));
    assert_eq!((state(&jobs, cancelled), rx.try_recv().is_err()), (JobState::Queued, true));
    jobs.cancel(cancelled);
    drop(running.pop());
    assert_eq!((state(&jobs, cancelled), state(&jobs, next)), (JobState::Cancelled, JobState::Running));
    rx.try_recv().unwrap().end(Outcome::Succeeded { message: String::new(), result: Value::Null });
    assert_eq!(state(&jobs, next), JobState::Succeeded);
}

#[test]
fn the_cancellation_of_work_that_hangs_begins_the_next_job() {
    let jobs = Jobs::default();
    let hung: Vec<_> = (0..MAX_RUNNING_JOBS).map(|number| started(&jobs, &number.to_string())).collect();
    let (tx, rx) = channel();
    let next = jobs.order(order("next"), move |run| tx.send(run).unwrap()).unwrap();
    assert_eq!(next.state, JobState::Queued);
    assert!(jobs.cancel(hung[0].0).unwrap().cancelling);
    assert_eq!(state(&jobs, next.id), JobState::Running);
    drop(rx);
}

/// A call that ends its job begins no other within it.
#[test]
fn jobs_that_end_at_once_begin_one_after_the_other() {
    let jobs = Jobs::default();
    let running: Vec<_> = (0..MAX_RUNNING_JOBS).map(|number| started(&jobs, &number.to_string())).collect();
    let (depth, deepest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let waiting: Vec<_> = (MAX_RUNNING_JOBS..MAX_JOBS)
        .map(|number| {
            let (depth, deepest) = (Arc::clone(&depth), Arc::clone(&deepest));
            let begin = move |run: JobRun| {
                deepest.fetch_max(depth.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                run.end(Outcome::Succeeded { message: String::new(), result: Value::Null });
                depth.fetch_sub(1, Ordering::Relaxed);
            };
            jobs.order(order(&number.to_string()), begin).unwrap().id
        })
        .collect();
    drop(running);
    assert!(waiting.iter().all(|id| state(&jobs, *id) == JobState::Succeeded));
    assert_eq!(deepest.load(Ordering::Relaxed), 1);
}

#[test]
fn work_that_panics_has_failed_and_keeps_no_other_from_its_place() {
    let jobs = Jobs::default();
    let job = jobs.order(order("a"), |_run| panic!("a mistake of the work")).unwrap();
    assert_eq!(job.state, JobState::Failed);
    let (_, run) = started(&jobs, "b");
    run.end(Outcome::Succeeded { message: String::new(), result: Value::Null });
}

#[test]
fn work_that_is_dropped_has_failed_also_within_the_order() {
    let jobs = Jobs::default();
    let job = jobs.order(order("a"), drop).unwrap();
    assert_eq!(job.state, JobState::Failed);
    assert!(job.message.contains("given it up"), "{job}");
}

#[test]
fn each_state_is_an_event_of_its_target() {
    let jobs = Jobs::default();
    let mut events = jobs.0.events.subscribe();
    let (_, run) = started(&jobs, "a");
    let _ = run.report(1, 2);
    run.end(Outcome::Failed { message: "1 damaged block".into(), result: Value::Null });
    let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    let texts: Vec<_> = told.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, ["job 1, scrub of a: running", "job 1, scrub of a: failed: 1 damaged block"]);
    assert!(told.iter().all(|event| event.kind == "job" && event.target.as_deref() == Some("iqn.a")));
}
