//! Connections that are not read from for a while.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use lunette_reactor::{Closed, Context};

use super::{Event, State, connect, pattern, run};

#[test]
fn a_paused_connection_receives_nothing_until_it_is_resumed() {
    let mut paused = None;
    let mut received = 0;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => {
            cx.pause(id);
            paused = Some(id);
            state.send(cx, id, b"!");
        }
        Event::Received(_, bytes) => {
            assert_eq!(paused, None);
            received += bytes.len();
        }
        Event::Woken => {
            assert_eq!(received, 0);
            cx.resume(paused.take().unwrap());
        }
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::PeerClosed), "{why:?}");
            cx.stop();
        }
        _ => {}
    };
    let sent = run(on, |address, waker| {
        let mut stream = connect(address);
        stream.read_exact(&mut [0]).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        let full = loop {
            match stream.write(&[7; 16_384]) {
                Ok(len) => sent += len,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        waker.wake();
        stream.set_nonblocking(false).unwrap();
        stream.write_all(&[7; 1000]).unwrap();
        sent + 1000
    });
    assert_eq!(received, sent);
}

#[test]
fn pausing_in_the_middle_neither_loses_nor_reorders() {
    let len = 16 << 20;
    let mut received = Vec::new();
    let mut paused = None;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            assert_eq!(paused, None);
            received.extend_from_slice(bytes);
            cx.pause(id);
            paused = Some(id);
            // The next batch, in which more may have come.
            state.timeout = Some(cx.now());
        }
        Event::Timeout => {
            state.timeout = None;
            cx.resume(paused.take().unwrap());
        }
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::PeerClosed), "{why:?}");
            cx.stop();
        }
        _ => {}
    };
    run(on, |address, _| connect(address).write_all(&pattern(len)).unwrap());
    assert!(received == pattern(len));
}

#[test]
fn a_peer_that_closed_its_side_is_noticed_when_its_connection_is_resumed() {
    let mut ended = false;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, _) => {
            cx.pause(id);
            state.send(cx, id, b"!");
            state.direct.insert(id, Vec::new());
        }
        Event::Woken => state.direct.keys().for_each(|&id| cx.resume(id)),
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::PeerClosed), "{why:?}");
            ended = true;
            cx.stop();
        }
        _ => {}
    };
    run(on, |address, waker| {
        let mut stream = connect(address);
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        waker.wake();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
    assert!(ended);
}

#[test]
fn a_paused_connection_ends_when_it_fails() {
    let mut ended = None;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => {
            cx.pause(id);
            state.send(cx, id, b"unread");
        }
        Event::Closed(_, why) => {
            ended = Some(why);
            cx.stop();
        }
        _ => {}
    };
    run(on, |address, _| {
        let stream = connect(address);
        // A socket that is closed with bytes unread resets the connection.
        stream.peek(&mut [0]).unwrap();
    });
    assert!(matches!(ended, Some(Closed::Error(error)) if error.kind() == ErrorKind::ConnectionReset));
}
