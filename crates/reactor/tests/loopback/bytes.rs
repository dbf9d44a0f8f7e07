//! Bytes in both directions: their order, their batches, and the places that they go to.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;
use std::thread;

use lunette_reactor::{Closed, Context};

use super::{Event, State, Toy, connect, pattern, reactor, run};

#[test]
fn sends_megabytes_to_a_peer_that_reads_late() {
    let len = 24 << 20;
    let echo = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        Event::Closed(_, Closed::PeerClosed) => cx.stop(),
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    let echoed = run(echo, |address, _| {
        let mut stream = connect(address);
        stream.write_all(&pattern(len)).unwrap();
        let mut echoed = vec![0; len];
        stream.read_exact(&mut echoed).unwrap();
        echoed
    });
    assert!(echoed == pattern(len));
}

#[test]
fn bytes_batches_and_calls_are_counted() {
    let mut reactor = reactor();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let counts = reactor.counts();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => state.send(cx, id, &[bytes, bytes].concat()),
        Event::Closed(..) => cx.stop(),
        _ => {}
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = connect(address);
            stream.write_all(&pattern(1000)).unwrap();
            stream.read_exact(&mut [0; 2000]).unwrap();
        });
        reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
    });
    let counts = counts.counts();
    assert_eq!((counts.received_bytes, counts.direct_bytes, counts.sent_bytes), (1000, 0, 2000));
    // At least: accepted or received, sent, closed.
    assert!(counts.batches >= 2 && counts.system_calls >= counts.batches, "{counts:?}");
}

#[test]
fn what_a_part_leads_to_leaves_before_the_rest_comes() {
    let mut calls = String::new();
    let mut batch_ends = 0;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(_) => state.takes = Some(100),
        Event::Received(id, bytes) => {
            calls.push('r');
            state.send(cx, id, bytes);
        }
        Event::Sent(_) => calls.push('s'),
        Event::Closed(..) => {
            batch_ends = state.batch_ends;
            cx.stop();
        }
        _ => {}
    };
    let echoed = run(on, |address, _| {
        let mut stream = connect(address);
        stream.write_all(&pattern(450)).unwrap();
        let mut echoed = vec![0; 450];
        stream.read_exact(&mut echoed).unwrap();
        echoed
    });
    assert!(echoed == pattern(450));
    let parts = calls.len() / 2;
    assert!(parts >= 5, "{calls}");
    assert_eq!(calls, "rs".repeat(parts));
    assert!(batch_ends >= 5, "{batch_ends}");
}

#[test]
fn receives_straight_into_the_place_that_the_handler_names() {
    let len = 5 << 20;
    let mut received = 0;
    let mut direct = Vec::new();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            received += bytes.len();
            if received == 4 {
                state.direct.insert(id, vec![0; len]);
                state.send(cx, id, b"go");
            }
        }
        Event::Direct(id) if state.direct_filled == len => {
            direct = state.direct.remove(&id).unwrap();
        }
        Event::Closed(..) => cx.stop(),
        _ => {}
    };
    run(on, |address, _| {
        let mut stream = connect(address);
        stream.write_all(b"head").unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        stream.write_all(&pattern(len)).unwrap();
        stream.write_all(b"tail").unwrap();
    });
    assert!(direct == pattern(len));
    assert_eq!(received, 8, "head and tail, and nothing of the segment");
}

#[test]
fn bytes_keep_their_order_when_places_for_them_come_and_go() {
    let len = 16 << 20;
    let place = 40_000;
    let mut received = Vec::new();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            received.extend_from_slice(bytes);
            // Long stretches with places and without.
            if received.len() >> 20 & 1 == 1 {
                state.direct.insert(id, vec![0; place]);
                state.direct_filled = 0;
            }
        }
        Event::Direct(id) => {
            let filled = state.direct_filled;
            received.extend_from_slice(&state.direct.remove(&id).unwrap()[..filled]);
        }
        Event::Closed(..) => cx.stop(),
        _ => {}
    };
    run(on, |address, _| connect(address).write_all(&pattern(len)).unwrap());
    assert!(received == pattern(len));
}

#[test]
fn many_connections_are_answered_in_one_batch() {
    let (connections, len) = (50, 100_000);
    let mut waiting = Vec::new();
    let mut left = connections;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, _) => {
            waiting.push(id);
            if waiting.len() == connections {
                for (i, &id) in waiting.iter().enumerate() {
                    state.send(cx, id, &pattern(len + i));
                }
            }
        }
        Event::Closed(..) => {
            left -= 1;
            if left == 0 {
                cx.stop();
            }
        }
        _ => {}
    };
    run(on, |address, _| {
        let mut streams: Vec<_> = (0..connections).map(|_| connect(address)).collect();
        for stream in &mut streams {
            stream.write_all(b"x").unwrap();
        }
        let mut lens: Vec<usize> = streams
            .iter_mut()
            .map(|stream| {
                let mut answer = vec![0; len];
                stream.read_exact(&mut answer).unwrap();
                assert!(answer == pattern(len));
                stream.shutdown(Shutdown::Write).unwrap();
                len + stream.read_to_end(&mut Vec::new()).unwrap()
            })
            .collect();
        lens.sort_unstable();
        assert!(lens.iter().copied().eq((0..connections).map(|i| len + i)));
    });
}

#[test]
fn a_flood_on_one_connection_does_not_starve_another() {
    let mut flood = None;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) if flood.is_none() => flood = Some(id),
        Event::Received(id, _) if Some(id) == flood => {}
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        Event::Closed(id, _) if Some(id) == flood => cx.stop(),
        _ => {}
    };
    run(on, |address, _| {
        let mut flood = connect(address);
        let mut polite = connect(address);
        let (done_tx, done) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while done.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    flood.write_all(&[0; 16_384]).unwrap();
                }
            });
            for i in 0..200_u8 {
                polite.write_all(&[i]).unwrap();
                let mut answer = [0];
                polite.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [i]);
            }
            drop(done_tx);
        });
    });
}
