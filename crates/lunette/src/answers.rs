//! Questions to the system that it may never answer, such as the properties of a file whose server is gone.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The time that all questions together have.
const LIMIT: Duration = Duration::from_secs(1);

/// The time without any answer after which another thread takes the questions behind the one that hangs.
const SLOW_AFTER: Duration = Duration::from_millis(50);

/// Questions that are not answered yet. None is asked again: each question holds a thread.
static PENDING: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Asks `question` about each of `all`, which have different names. Gives no answer for what does not answer in time.
pub(crate) fn answers<T: Send + 'static>(
    all: Vec<String>,
    question: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<Option<T>> {
    within(LIMIT, all, question)
}

fn within<T: Send + 'static>(
    limit: Duration,
    all: Vec<String>,
    question: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<Option<T>> {
    let mut answers: Vec<Option<T>> = all.iter().map(|_| None).collect();
    let (next, (told, answered)) = (AtomicUsize::new(0), channel());
    let ask = Arc::new(move |told: Sender<(usize, Option<T>)>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = all.get(index) else { return };
            let is_asked = !pending().insert(name.clone());
            let answer = if is_asked { None } else { Some(question(index)) };
            if answer.is_some() {
                pending().remove(name);
            }
            if told.send((index, answer)).is_err() {
                return;
            }
        }
    });
    let (until, mut missing) = (Instant::now() + limit, answers.len());
    let more = || {
        let (ask, told) = (Arc::clone(&ask), told.clone());
        let _ = thread::Builder::new().name("lunette-question".into()).spawn(move || ask(told));
    };
    more();
    while missing > 0 {
        let rest = until.saturating_duration_since(Instant::now());
        match answered.recv_timeout(rest.min(SLOW_AFTER)) {
            Ok((index, answer)) => {
                answers[index] = answer;
                missing -= 1;
            }
            Err(RecvTimeoutError::Timeout) if !rest.is_zero() => more(),
            Err(_) => break,
        }
    }
    answers
}

fn pending() -> MutexGuard<'static, BTreeSet<String>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_keeps_no_answer_from_the_others_and_is_not_asked_again() {
        let names: Vec<_> = (0..4).map(|number| format!("question {number}")).collect();
        let (go_on, hung) = channel::<()>();
        let (begun, begins) = channel();
        let hung = Mutex::new(hung);
        let hang = move |_: usize| {
            begun.send(()).unwrap();
            let _ = hung.lock().unwrap().recv();
        };
        assert_eq!(within(SLOW_AFTER, vec![names[1].clone()], hang), [None]);
        begins.recv().unwrap();
        let ask = || within(Duration::from_mins(1), names.clone(), |index| index);
        assert_eq!(ask(), [Some(0), None, Some(2), Some(3)], "one has not answered the first time");
        drop(go_on);
        while pending().contains(&names[1]) {
            thread::yield_now();
        }
        assert_eq!(ask(), [Some(0), Some(1), Some(2), Some(3)]);
    }
}
