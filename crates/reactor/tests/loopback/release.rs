//! Connections that go on in another reactor.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lunette_reactor::{Closed, Context};

use super::{Event, State, Toy, connect, pattern, reactor, run};

#[test]
fn a_released_connection_lives_on_in_another_reactor() {
    let (tx, rx) = mpsc::channel();
    let first = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => cx.release(id),
        Event::Released(_, stream) => {
            tx.send(stream).unwrap();
            cx.stop();
        }
        _ => {}
    };
    run(first, move |address, _| {
        let mut stream = connect(address);
        let mut reactor = reactor();
        let id = reactor.adopt(rx.recv().unwrap()).unwrap();
        let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
            Event::Sent(_) => cx.stop(),
            Event::Woken => state.send(cx, id, b"moved"),
            _ => {}
        };
        reactor.waker().wake();
        reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"moved");
    });
}

/// The last bytes of a peer.
const END: &[u8] = b"the very end";

/// Receives on one reactor, which releases the connection when it has seen `first_len` bytes, and then on another one,
/// which closes it. Gives what both received.
fn receive_on_two(first_len: usize, pauses: bool, peer: impl FnOnce(TcpStream) + Send) -> (Vec<u8>, Vec<u8>) {
    let (tx, rx) = mpsc::channel();
    let mut before = Vec::new();
    let first = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            before.extend_from_slice(bytes);
            if before.len() >= first_len {
                if pauses {
                    cx.pause(id);
                }
                cx.release(id);
                cx.release(id);
                cx.resume(id);
            }
        }
        Event::Released(id, stream) => {
            cx.close(id);
            tx.send(stream).unwrap();
            cx.stop();
        }
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    let after = run(first, move |address, _| {
        thread::scope(|scope| {
            scope.spawn(move || peer(connect(address)));
            let mut reactor = reactor();
            let id = reactor.adopt(rx.recv().unwrap()).unwrap();
            let mut after = Vec::new();
            let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
                Event::Received(_, bytes) => {
                    after.extend_from_slice(bytes);
                    if after.ends_with(END) {
                        cx.close(id);
                        cx.stop();
                    }
                }
                Event::Closed(_, why) => panic!("{why:?}"),
                _ => {}
            };
            reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
            after
        })
    });
    (before, after)
}

#[test]
fn a_connection_is_released_in_the_middle_of_what_it_receives() {
    for pauses in [false, true] {
        let sent = [pattern(16 << 20), END.to_vec()].concat();
        let (before, after) = receive_on_two(3 << 20, pauses, |mut stream| {
            stream.write_all(&sent).unwrap();
            // Nothing of the first reactor holds the socket open when the second closes it.
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
        assert!(before.len() >= 3 << 20 && !after.is_empty());
        assert!([before, after].concat() == sent, "bytes were lost or changed their order");
    }
}

#[test]
fn an_idle_connection_is_released_without_a_byte() {
    let (before, after) = receive_on_two(1, false, |mut stream| {
        stream.write_all(b"x").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        // Nothing more comes for a while.
        stream.read(&mut [0]).unwrap_err();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream.write_all(END).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
    assert_eq!((&before[..], &after[..]), (&b"x"[..], END));
}

#[test]
fn what_a_released_connection_did_not_send_is_left_to_the_next() {
    let (tx, rx) = mpsc::channel();
    let len = 24 << 20;
    let mut left = Vec::new();
    let first = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => state.send(cx, id, &pattern(len)),
        Event::Sent(id) if state.out[&id].len() < len => cx.release(id),
        Event::Released(id, stream) => {
            left = state.out.remove(&id).unwrap();
            tx.send((stream, left.clone())).unwrap();
            cx.stop();
        }
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    run(first, move |address, _| {
        let mut near = connect(address);
        let (stream, left) = rx.recv().unwrap();
        let mut reactor = reactor();
        let id = reactor.adopt(stream).unwrap();
        let waker = reactor.waker();
        thread::scope(|scope| {
            let near = &mut near;
            scope.spawn(move || {
                let mut received = vec![0; len];
                near.read_exact(&mut received).unwrap();
                assert!(received == pattern(len));
                waker.wake();
            });
            let mut state = State::default();
            state.send(&mut reactor.context(), id, &left);
            let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
                Event::Woken => cx.stop(),
                Event::Closed(_, why) => panic!("{why:?}"),
                _ => {}
            };
            reactor.run(&mut Toy { state, on: Box::new(on) }).unwrap();
        });
    });
}

#[test]
fn a_release_can_be_taken_back_by_closing() {
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, b"now") => {
            cx.release(id);
            cx.close(id);
            cx.release(id);
        }
        Event::Received(id, _) => {
            cx.release(id);
            state.send(cx, id, b"bye");
            cx.close_after_send(id);
        }
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::AllSent), "{why:?}");
            cx.stop();
        }
        Event::Released(..) => panic!("it was closed"),
        _ => {}
    };
    run(on, |address, _| {
        let mut stream = connect(address);
        stream.write_all(b"now").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        let mut stream = connect(address);
        stream.write_all(b"then").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"bye");
    });
}
