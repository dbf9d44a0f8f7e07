//! Questions to the system that it may never answer, such as the properties of a file whose server is gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The time that all questions of a round have.
const LIMIT: Duration = Duration::from_secs(1);

/// The time after which more threads take the questions that are left.
const SLOW_AFTER: Duration = Duration::from_millis(50);

/// The threads that are added each time. A round has at most this many for each [`SLOW_AFTER`] in its [`LIMIT`].
const MORE_THREADS: usize = 16;

/// Questions that are not answered yet, and since when. One that hangs is not asked again: each holds a thread.
static PENDING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

/// Rounds of questions about one list. A round begins where the one before it has ended, so the questions that one
/// round has no time for are the first of the next.
pub(crate) struct Rounds {
    /// The number of questions that were asked. It only grows.
    asked: AtomicUsize,
}

impl Rounds {
    pub(crate) const fn new() -> Self {
        Self { asked: AtomicUsize::new(0) }
    }

    /// Asks `question` about each of `all`, which have different names. Gives no answer for what does not answer in
    /// time.
    pub(crate) fn ask<T: Send + 'static>(
        &'static self,
        all: Vec<String>,
        question: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Vec<Option<T>> {
        self.within(LIMIT, SLOW_AFTER, all, question)
    }

    /// Asks as [`ask`](Self::ask) does, with another limit. A question that had no answer `after` this time hangs.
    pub(crate) fn within<T: Send + 'static>(
        &'static self,
        limit: Duration,
        after: Duration,
        all: Vec<String>,
        question: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Vec<Option<T>> {
        let mut answers: Vec<Option<T>> = all.iter().map(|_| None).collect();
        let (first, count) = (self.asked.load(Ordering::Relaxed), all.len());
        let (next, (told, answered)) = (Arc::new(AtomicUsize::new(0)), channel());
        let asked = Arc::clone(&next);
        let ask = Arc::new(move |told: Sender<(usize, Option<T>)>| {
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= count {
                    return;
                }
                self.asked.fetch_max(first + turn + 1, Ordering::Relaxed);
                let index = (first + turn) % count;
                let hangs = begin(&all[index], after);
                let answer = if hangs { None } else { Some(question(index)) };
                if !hangs {
                    pending().remove(&all[index]);
                }
                if told.send((index, answer)).is_err() {
                    return;
                }
            }
        });
        let start = || {
            let (ask, told) = (Arc::clone(&ask), told.clone());
            let _ = thread::Builder::new().name("lunette-question".into()).spawn(move || ask(told));
        };
        start();
        let (until, mut missing) = (Instant::now() + limit, count);
        let mut slow_at = Instant::now() + SLOW_AFTER;
        while missing > 0 {
            let now = Instant::now();
            if now >= until {
                break;
            }
            if now >= slow_at {
                let left = count.saturating_sub(asked.load(Ordering::Relaxed));
                (0..left.min(MORE_THREADS)).for_each(|_| start());
                slow_at = now + SLOW_AFTER;
            }
            match answered.recv_timeout(until.min(slow_at).saturating_duration_since(now)) {
                Ok((index, answer)) => {
                    answers[index] = answer;
                    missing -= 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        answers
    }
}

/// Notes that a question is asked, unless it hangs. Whether it hangs: two that ask at one time both get their answer.
fn begin(name: &str, after: Duration) -> bool {
    pending().entry(name.to_owned()).or_insert_with(Instant::now).elapsed() > after
}

fn pending() -> MutexGuard<'static, BTreeMap<String, Instant>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{prefix} {number}")).collect()
    }

    #[test]
    fn what_does_not_answer_keeps_no_answer_from_the_others_and_is_not_asked_again() {
        static ROUNDS: Rounds = Rounds::new();
        let names = names("question", 4);
        let (go_on, hung) = channel::<()>();
        let (begun, begins) = channel();
        let hung = Mutex::new(hung);
        let hang = move |_: usize| {
            begun.send(()).unwrap();
            let _ = hung.lock().unwrap().recv();
        };
        assert_eq!(ROUNDS.within(SLOW_AFTER, SLOW_AFTER, vec![names[1].clone()], hang), [None]);
        begins.recv().unwrap();
        while !begin(&names[1], SLOW_AFTER) {
            thread::yield_now();
        }
        let ask = || ROUNDS.within(Duration::from_mins(1), SLOW_AFTER, names.clone(), |index| index);
        assert_eq!(ask(), [Some(0), None, Some(2), Some(3)], "one has not answered the first time");
        drop(go_on);
        while pending().contains_key(&names[1]) {
            thread::yield_now();
        }
        assert_eq!(ask(), [Some(0), Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn two_that_ask_the_same_question_at_one_time_have_an_answer() {
        static ROUNDS: Rounds = Rounds::new();
        let inner = || ROUNDS.within(Duration::from_mins(1), SLOW_AFTER, names("shared", 1), |_| 2);
        let outer = ROUNDS.within(Duration::from_mins(1), SLOW_AFTER, names("shared", 1), move |_| (1, inner()));
        assert_eq!(outer, [Some((1, vec![Some(2)]))]);
    }

    #[test]
    fn what_a_round_has_no_time_for_is_asked_in_the_next() {
        static ROUNDS: Rounds = Rounds::new();
        let names = names("round", 300);
        let mut asked = BTreeSet::new();
        for _ in 0..names.len() {
            let (begun, begins) = channel();
            // A round without any time asks at least one.
            ROUNDS.within(Duration::ZERO, SLOW_AFTER, names.clone(), move |index| begun.send(index).unwrap());
            asked.extend(begins.iter());
        }
        assert_eq!(asked.len(), names.len());
    }

    #[test]
    fn questions_that_wait_are_asked_side_by_side() {
        static ROUNDS: Rounds = Rounds::new();
        // Each waits for all, so they are answered when all are asked at once.
        let all = std::sync::Barrier::new(40);
        let wait = move |_: usize| all.wait().is_leader();
        let answers = ROUNDS.within(Duration::from_mins(1), SLOW_AFTER, names("slow", 40), wait);
        assert!(answers.iter().all(Option::is_some));
    }
}
