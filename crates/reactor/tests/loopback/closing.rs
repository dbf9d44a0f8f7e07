//! Ends of connections and of the loop, and what still leaves before them.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::Shutdown;

use lunette_reactor::{Closed, Context};

use super::{Event, State, connect, pattern, run};

#[test]
fn close_after_send_delivers_everything_though_the_peer_keeps_talking() {
    let len = 6 << 20;
    let mut ends = 0;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, _) => {
            assert_eq!(state.out.len(), 0, "received after close_after_send");
            state.send(cx, id, &pattern(len));
            cx.close_after_send(id);
        }
        Event::Closed(id, why) => {
            assert!(matches!(why, Closed::AllSent), "{why:?}");
            assert_eq!(state.out[&id].len(), 0);
            ends += 1;
        }
        Event::Woken => cx.stop(),
        _ => {}
    };
    let answer = run(on, |address, waker| {
        let mut stream = connect(address);
        stream.write_all(b"x").unwrap();
        stream.peek(&mut [0]).unwrap();
        stream.write_all(&vec![0; 1 << 20]).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        stream.write_all(&vec![0; 1 << 20]).unwrap();
        waker.wake();
        answer
    });
    assert!(answer == pattern(len));
    assert_eq!(ends, 1);
}

#[test]
fn close_after_send_delivers_to_a_peer_that_closed_its_side() {
    let len = 12 << 20;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, _) => {
            state.send(cx, id, &pattern(len));
            cx.close_after_send(id);
        }
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::AllSent), "{why:?}");
            cx.stop();
        }
        _ => {}
    };
    let answer = run(on, |address, _| {
        let mut stream = connect(address);
        stream.write_all(b"x").unwrap();
        stream.peek(&mut [0]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    });
    assert!(answer == pattern(len));
}

#[test]
fn what_was_marked_before_a_stop_still_leaves() {
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| {
        if let Event::Accepted(id) = event {
            state.send(cx, id, b"bye");
            cx.stop();
        }
    };
    let answer = run(on, |address, _| {
        let mut answer = Vec::new();
        connect(address).read_to_end(&mut answer).unwrap();
        answer
    });
    assert_eq!(answer, b"bye");
}

#[test]
fn a_thousand_peers_that_connect_and_leave() {
    let mut ids = HashSet::new();
    let mut open = HashSet::new();
    let mut closed = 0;
    let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => {
            assert!(ids.insert(id), "{id:?} was given out twice");
            assert!(open.insert(id.index()), "index {} has two tenants", id.index());
        }
        Event::Closed(id, _) => {
            assert!(open.remove(&id.index()));
            closed += 1;
            if closed == 1000 {
                cx.stop();
            }
        }
        _ => {}
    };
    run(on, |address, _| {
        for _ in 0..1000 {
            drop(connect(address));
        }
    });
    assert_eq!(ids.len(), 1000);
}

#[test]
fn dead_ids_do_not_touch_the_next_connection() {
    let mut dead = None;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => match dead {
            None => {
                cx.close(id);
                dead = Some(id);
            }
            Some(dead) => {
                assert_eq!(dead.index(), id.index());
                cx.close(dead);
                cx.pause(dead);
                cx.send(dead);
                cx.close_after_send(dead);
                cx.release(dead);
            }
        },
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        Event::Sent(id) => assert_ne!(Some(id), dead),
        Event::Closed(id, _) => {
            assert_ne!(Some(id), dead, "closed is not called for close()");
            cx.stop();
        }
        _ => {}
    };
    run(on, |address, _| {
        let mut first = connect(address);
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
        let mut second = connect(address);
        second.write_all(b"ping").unwrap();
        let mut answer = [0; 4];
        second.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
    });
}

#[test]
fn what_came_with_the_end_is_answered() {
    let (mut connection, mut wakes) = (None, 0);
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) if wakes == 0 => {
            cx.pause(id);
            connection = Some(id);
        }
        Event::Woken => {
            connection.take().into_iter().for_each(|id| cx.resume(id));
            wakes += 1;
            if wakes == 2 {
                cx.stop();
            }
        }
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        _ => {}
    };
    let answer = run(on, |address, waker| {
        let mut stream = connect(address);
        stream.write_all(b"the last").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        waker.wake();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        waker.wake();
        read.map(|_| answer).unwrap()
    });
    assert_eq!(answer, b"the last");
}
