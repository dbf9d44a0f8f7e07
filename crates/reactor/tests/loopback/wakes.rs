//! Wake-ups from other threads, and timeouts.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lunette_reactor::Context;

use super::{Event, State, run};

#[test]
fn no_wake_up_is_lost() {
    let (tx, rx) = mpsc::channel();
    let (threads, each) = (4, 5000);
    let mut seen = 0;
    let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| {
        if let Event::Woken = event {
            seen += rx.try_iter().count();
            if seen == threads * each {
                cx.stop();
            }
        }
    };
    run(on, |_, waker| {
        thread::scope(|scope| {
            for _ in 0..threads {
                let (tx, waker) = (tx.clone(), waker.clone());
                scope.spawn(move || {
                    for _ in 0..each {
                        tx.send(()).unwrap();
                        waker.wake();
                    }
                });
            }
        });
    });
}

#[test]
fn timeouts_come_in_time_and_never_early() {
    let step = Duration::from_micros(1500);
    let mut left = 5;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Woken => state.timeout = Some(cx.now() + step),
        Event::Timeout => {
            assert!(state.timeout.is_some_and(|due| due <= cx.now()));
            state.timeout = Some(cx.now() + step);
            left -= 1;
            if left == 0 {
                cx.stop();
            }
        }
        _ => {}
    };
    run(on, |_, waker| waker.wake());
    assert_eq!(left, 0);
}
