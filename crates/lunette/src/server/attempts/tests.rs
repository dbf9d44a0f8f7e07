//! Attempts that hang, end and are given up.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// A value that tells when it is dropped.
struct Told(Sender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Work that tells when it has begun, and hangs until the sender is used or dropped.
fn hang<T: Send>(result: T) -> (Sender<()>, Receiver<()>, impl FnOnce() -> Outcome<T> + Send) {
    let ((go_on, hung), (begun, begins)) = (channel::<()>(), channel());
    let work = move || {
        begun.send(()).unwrap();
        let _ = hung.recv();
        Ok(result)
    };
    (go_on, begins, work)
}

#[test]
fn what_hangs_delays_no_other_and_its_result_is_there_when_it_ends() {
    let attempts = Attempts::default();
    let (go_on, _begins, hung) = hang(7);
    let hung = attempts.begin(None, hung).unwrap();
    let others: Vec<_> = (0..100).map(|number| attempts.begin(None, move || Ok(number)).unwrap()).collect();
    for (number, other) in others.iter().enumerate() {
        assert!(other.wait(None));
        assert_eq!(other.take().unwrap().unwrap(), number as u32);
    }
    assert!(!hung.wait(Some(Instant::now())) && hung.runs() && hung.take().is_none());
    let ends = attempts.ends();
    go_on.send(()).unwrap();
    attempts.wait_for_more(ends, Instant::now() + Duration::from_mins(1));
    assert!(!hung.runs());
    assert_eq!(hung.take().unwrap().unwrap(), 7);
    assert!(hung.take().is_none(), "once");
}

#[test]
fn attempts_that_are_slow_leave_their_places_to_others() {
    let (mut state, start) = (State::<u32>::default(), Instant::now());
    for id in 0..AT_ONCE as u64 + 3 {
        state.waiting.push_back(Waiting { id, lane: None, work: Box::new(|| Ok(0)) });
    }
    for expected in 0..AT_ONCE as u64 {
        assert!(matches!(state.next(start), Next::Start(id, _) if id == expected));
    }
    assert!(matches!(state.next(start), Next::Full(until) if until == start + SLOW_AFTER));
    state.running.remove(&0);
    assert!(matches!(state.next(start + SLOW_AFTER / 2), Next::Start(..)), "one has ended");
    assert!(matches!(state.next(start + SLOW_AFTER / 2), Next::Full(until) if until == start + SLOW_AFTER));
    assert!(matches!(state.next(start + SLOW_AFTER), Next::Start(..)));
    assert!(matches!(state.next(start + SLOW_AFTER), Next::Start(..)));
    assert!(matches!(state.next(start + SLOW_AFTER), Next::Done));
}

#[test]
fn one_lane_is_used_by_one_attempt_at_a_time_and_in_order() {
    let attempts = Attempts::default();
    let lane = || Some("place".to_owned());
    let (go_on, begins, hung) = hang(7);
    let first = attempts.begin(lane(), hung).unwrap();
    begins.recv().unwrap();
    // Given up, it still runs.
    drop(first);
    let (told, order) = channel();
    let later: Vec<_> = (0..3)
        .map(|number| {
            let told = told.clone();
            let work = move || {
                told.send(number).unwrap();
                Ok(number)
            };
            attempts.begin(lane(), work).unwrap()
        })
        .collect();
    assert!(attempts.begin(None, || Ok(9)).unwrap().wait(None), "another lane is free");
    assert!(order.try_recv().is_err());
    go_on.send(()).unwrap();
    assert!(later.iter().all(|attempt| attempt.wait(None)));
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_lane_is_free_when_what_is_unwanted_in_it_is_closed() {
    /// A value that tells when it begins to close, and closes when the other sender is used.
    struct Slow(Sender<()>, Receiver<()>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            let _ = self.1.recv();
        }
    }
    for is_given_up_while_it_runs in [true, false] {
        let attempts = Attempts::default();
        let lane = || Some("place".to_owned());
        let ((closing, closes), (close, may_close)) = (channel(), channel());
        let (go_on, begins, hung) = hang(Some(Slow(closing, may_close)));
        let first = attempts.begin(lane(), hung).unwrap();
        begins.recv().unwrap();
        if is_given_up_while_it_runs {
            drop(first);
            go_on.send(()).unwrap();
        } else {
            go_on.send(()).unwrap();
            assert!(first.wait(None));
            drop(first);
        }
        closes.recv().unwrap();
        let second = attempts.begin(lane(), || Ok(None)).unwrap();
        // It is begun later, so its end shows that the one in the lane had its chance.
        assert!(attempts.begin(None, || Ok(None)).unwrap().wait(None));
        assert!(!second.has_begun(), "the first is still open");
        close.send(()).unwrap();
        assert!(second.wait(None));
    }
}

#[test]
fn what_is_given_up_is_dropped_before_and_after_its_end() {
    let attempts = Attempts::default();
    let (told, dropped) = channel();
    let (go_on, begins, hung) = hang(Told(told.clone()));
    let running = attempts.begin(Some("a".into()), hung).unwrap();
    begins.recv().unwrap();
    let made = Told(told.clone());
    let waiting = attempts.begin(Some("a".into()), move || Ok(made)).unwrap();
    drop(waiting);
    dropped.recv().unwrap();
    drop(running);
    assert!(dropped.try_recv().is_err(), "it still runs");
    go_on.send(()).unwrap();
    dropped.recv().unwrap();
    let made = Told(told);
    let ended = attempts.begin(None, move || Ok(made)).unwrap();
    assert!(ended.wait(None));
    drop(ended);
    dropped.recv().unwrap();
}

#[test]
fn a_mistake_ends_an_attempt_and_too_many_that_hang_refuse_others() {
    let attempts = Attempts::default();
    let broken = attempts.begin(None, || panic!("a mistake")).unwrap();
    assert!(broken.wait(None) && broken.take().unwrap().is_err());
    let given_up = || Running { lane: None, since: Instant::now(), has_handle: false };
    attempts.0.lock().running.extend((0..MAX_ABANDONED as u64).map(|id| (u64::MAX - id, given_up())));
    assert!(attempts.begin(None, || Ok(0)).err().unwrap().to_string().contains("do not answer"));
    attempts.0.end(u64::MAX, Ok(0));
    assert!(attempts.begin(None, || Ok(0)).is_ok());
}
