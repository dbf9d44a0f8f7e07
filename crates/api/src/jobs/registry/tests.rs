use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::jobs::job::{JobKind, Outcome, Progress};

fn order(object: impl Into<String>) -> JobOrder {
    let (kind, started_by) = (JobKind::Scrub, "a test".into());
    JobOrder { kind, object: object.into(), target: None, started_by, total_bytes: 100 }
}

fn done() -> Outcome {
    Outcome::Succeeded { message: "all of it".into(), result: json!({ "read": 100 }) }
}

fn states(registry: &mut Registry, now: u64) -> Vec<(u64, JobState)> {
    registry.list(now).iter().map(|job| (job.id, job.state)).collect()
}

#[test]
fn a_job_waits_runs_and_ends_with_its_result() {
    let mut registry = Registry::default();
    let id = registry.add(order("a"), 10).unwrap();
    let job = registry.find(id, 10).unwrap();
    assert_eq!((job.state, job.created, job.started, job.ended), (JobState::Queued, 10, None, None));
    assert_eq!(registry.start_next(11), Some(id));
    let halfway = Progress { done_bytes: 50, total_bytes: 200 };
    assert!(!registry.change(id, |job| job.report(halfway)).unwrap().1);
    let (job, has_changed) = registry.change(id, |job| job.end(done(), 12)).unwrap();
    assert!(has_changed);
    assert_eq!((job.state, job.started, job.ended), (JobState::Succeeded, Some(11), Some(12)));
    assert_eq!(
        (job.progress, job.message.as_str(), &job.result),
        (halfway, "all of it", &Some(json!({ "read": 100 })))
    );
}

#[test]
fn a_job_that_is_cancelled_ends_at_once_or_with_its_work() {
    let mut registry = Registry::default();
    let (runs, waits) = (registry.add(order("a"), 0).unwrap(), registry.add(order("b"), 0).unwrap());
    assert_eq!(registry.start_next(1), Some(runs));
    assert_eq!(registry.change(waits, |job| job.cancel(2)).unwrap().0.state, JobState::Cancelled);
    let (job, has_changed) = registry.change(runs, |job| job.cancel(2)).unwrap();
    assert!((job.state, job.cancelling, has_changed) == (JobState::Running, true, false));
    assert_eq!(registry.start_next(3), None, "what was cancelled does not begin");
    let (job, _) = registry.change(runs, |job| job.end(Outcome::Cancelled { result: json!(null) }, 4)).unwrap();
    assert_eq!((job.state, job.cancelling, job.result.clone()), (JobState::Cancelled, false, None));
}

#[test]
fn an_action_is_not_done_twice_at_once() {
    let mut registry = Registry::default();
    let first = registry.add(order("a"), 0).unwrap();
    assert_eq!(registry.add(order("a"), 0), Err(Refused::Twice(first)));
    registry.start_next(0);
    assert_eq!(registry.add(order("a"), 0), Err(Refused::Twice(first)));
    registry.change(first, |job| job.end(done(), 1));
    assert!(registry.add(order("a"), 1).is_ok());
}

#[test]
fn no_more_jobs_run_than_the_limit_and_the_longest_waiting_is_next() {
    let mut registry = Registry::default();
    let ids: Vec<_> =
        (0..MAX_RUNNING_JOBS + 2).map(|number| registry.add(order(number.to_string()), 0).unwrap()).collect();
    let started: Vec<_> = std::iter::from_fn(|| registry.start_next(0)).collect();
    assert_eq!(started, ids[..MAX_RUNNING_JOBS]);
    registry.change(ids[1], |job| job.end(done(), 1));
    assert_eq!((registry.start_next(1), registry.start_next(1)), (Some(ids[MAX_RUNNING_JOBS]), None));
}

#[test]
fn a_cancelled_job_whose_work_hangs_leaves_its_place_to_others_up_to_a_limit() {
    let mut registry = Registry::default();
    for number in 0..2 * (MAX_RUNNING_JOBS + MAX_STOPPING_JOBS) {
        registry.add(order(number.to_string()), 0).unwrap();
    }
    let hung: Vec<_> = (0..MAX_RUNNING_JOBS).map(|_| registry.start_next(0).unwrap()).collect();
    assert_eq!(registry.start_next(0), None);
    for id in hung {
        registry.change(id, |job| job.cancel(1));
    }
    let begun = std::iter::from_fn(|| {
        let id = registry.start_next(1)?;
        registry.change(id, |job| job.cancel(1));
        Some(id)
    });
    assert_eq!(begun.last(), Some((MAX_STOPPING_JOBS + MAX_RUNNING_JOBS) as u64));
    registry.change(1, |job| job.end(Outcome::Cancelled { result: json!(null) }, 2));
    assert!(registry.start_next(2).is_some(), "work that stops in the end gives its place back");
}

#[test]
fn jobs_are_bounded_and_the_oldest_ended_one_goes_first() {
    let mut registry = Registry::default();
    let ids: Vec<_> = (0..MAX_JOBS).map(|number| registry.add(order(number.to_string()), 0).unwrap()).collect();
    assert_eq!(registry.add(order("more"), 0), Err(Refused::Full));
    registry.change(ids[7], |job| job.cancel(5));
    registry.change(ids[9], |job| job.cancel(4));
    registry.add(order("more"), 6).unwrap();
    assert!(registry.find(ids[9], 6).is_none() && registry.find(ids[7], 6).is_some());
    assert_eq!(registry.list(6).len(), MAX_JOBS);
}

#[test]
fn jobs_are_forgotten_some_time_after_their_end() {
    let mut registry = Registry::default();
    let (old, waits) = (registry.add(order("a"), 0).unwrap(), registry.add(order("b"), 0).unwrap());
    registry.change(old, |job| job.cancel(10));
    let age = JOB_AGE.as_secs();
    assert_eq!(states(&mut registry, 9 + age), [(old, JobState::Cancelled), (waits, JobState::Queued)]);
    assert_eq!(states(&mut registry, 10 + age), [(waits, JobState::Queued)]);
    assert_eq!(states(&mut registry, 5), [(waits, JobState::Queued)], "a clock that is set back brings nothing back");
}

/// An event of a job that a client or its work brings about.
#[derive(Debug, Clone, Copy)]
enum Event {
    Add,
    StartNext,
    Report(u64),
    Cancel(u64),
    End(u64),
}

fn event() -> impl Strategy<Value = (Event, u64)> {
    let id = 1..8_u64;
    let event = prop_oneof![
        2 => Just(Event::Add),
        2 => Just(Event::StartNext),
        1 => id.clone().prop_map(Event::Report),
        1 => id.clone().prop_map(Event::Cancel),
        1 => id.prop_map(Event::End),
    ];
    (event, 0..JOB_AGE.as_secs() / 4)
}

proptest! {
    /// Whatever comes in whatever order: no job leaves its end, times go forward, and the limits hold.
    #[test]
    fn no_order_of_events_breaks_a_rule(events in prop::collection::vec(event(), 1..60)) {
        let (mut registry, mut now, mut ended) = (Registry::default(), 0, BTreeMap::new());
        for (number, (event, later)) in events.into_iter().enumerate() {
            now += later;
            match event {
                Event::Add => drop(registry.add(order(number.to_string()), now)),
                Event::StartNext => drop(registry.start_next(now)),
                Event::Report(id) => drop(registry.change(id, |job| job.report(Progress::default()))),
                Event::Cancel(id) => drop(registry.change(id, |job| job.cancel(now))),
                Event::End(id) => drop(registry.change(id, |job| job.end(done(), now))),
            }
            let jobs = registry.list(now);
            let running = |cancelling| {
                jobs.iter().filter(|job| job.state == JobState::Running && job.cancelling == cancelling).count()
            };
            prop_assert!(running(false) <= MAX_RUNNING_JOBS);
            prop_assert!(running(false) + running(true) <= MAX_RUNNING_JOBS + MAX_STOPPING_JOBS);
            for job in jobs {
                prop_assert_eq!(job.ended.is_some(), job.state.is_end());
                prop_assert!(job.started.is_none_or(|started| started >= job.created && job.ended.is_none_or(|at| at >= started)));
                prop_assert!(!job.cancelling || job.state == JobState::Running);
                if job.state.is_end() {
                    let first = ended.entry(job.id).or_insert_with(|| job.clone());
                    prop_assert_eq!(&*first, &job);
                }
            }
        }
    }
}
