//! Signals that come while the loop waits or moves bytes.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lunette_reactor::{Closed, Context};

use super::{Event, State, Toy, connect, pattern, reactor};

/// Has a signal of its own interrupt system calls and do nothing else. Gives a way to send it to the calling thread.
fn interrupter() -> impl Fn() + Send {
    extern "C" fn do_nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = do_nothing;
    // SAFETY: all zeroes is a valid `sigaction`: no flags, so the system restarts no call, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler does nothing, and nothing else here uses the signal.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
    // SAFETY: it cannot fail.
    let thread = unsafe { libc::pthread_self() };
    move || {
        // SAFETY: the thread lives for as long as the test, which waits for all that it has begun.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    }
}

#[test]
fn a_wait_that_is_interrupted_is_begun_again() {
    let mut reactor = reactor();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let counts = reactor.counts();
    let interrupt = interrupter();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        Event::Closed(_, Closed::PeerClosed) => cx.stop(),
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = connect(address);
            for byte in 0..50 {
                // Nothing else makes the loop turn.
                let before = counts.counts().batches;
                while counts.counts().batches < before + 3 {
                    interrupt();
                    thread::yield_now();
                }
                let mut echo = [0];
                stream.write_all(&[byte]).unwrap();
                stream.read_exact(&mut echo).unwrap();
                assert_eq!(echo, [byte]);
            }
        });
        reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
    });
}

#[test]
fn bytes_are_neither_lost_nor_doubled_by_signals() {
    let len = 8 << 20;
    let mut reactor = reactor();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let interrupt = interrupter();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        Event::Closed(_, Closed::PeerClosed) => cx.stop(),
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                interrupt();
                thread::yield_now();
            }
        });
        scope.spawn(move || {
            let mut stream = connect(address);
            stream.write_all(&pattern(len)).unwrap();
            let mut echoed = vec![0; len];
            stream.read_exact(&mut echoed).unwrap();
            assert!(echoed == pattern(len));
        });
        reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
        done.store(true, Ordering::Relaxed);
    });
}
