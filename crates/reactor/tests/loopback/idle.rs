//! A loop that has nothing to do does not turn.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lunette_reactor::{Context, CountsView, Reactor};

use super::{Event, State, Toy, connect, pattern, reactor};

/// Echoes, but for some words.
#[expect(clippy::needless_pass_by_value, reason = "so are events")]
fn echo(state: &mut State, cx: &mut Context<'_>, event: Event<'_>) {
    match event {
        Event::Received(_, b"stop") => cx.stop(),
        Event::Received(id, b"pause") => {
            cx.pause(id);
            state.send(cx, id, b"paused");
        }
        // More than sockets hold for a peer that does not read.
        Event::Received(id, b"much") => state.send(cx, id, &pattern(16 << 20)),
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        _ => {}
    }
}

fn listening() -> (Reactor, SocketAddr) {
    let mut reactor = reactor();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    (reactor, address)
}

fn run(mut reactor: Reactor) {
    reactor.run(&mut Toy { state: State::default(), on: Box::new(echo) }).unwrap();
}

fn round_trip(stream: &mut TcpStream, word: &[u8], answer_len: usize) {
    stream.write_all(word).unwrap();
    stream.read_exact(&mut vec![0; answer_len]).unwrap();
}

/// Waits until the loop makes no turn while another one makes thousands: how long that is, the machine says.
fn comes_to_rest(counts: &CountsView, elsewhere: &mut TcpStream) {
    let give_up = Instant::now() + Duration::from_mins(1);
    loop {
        let before = counts.counts();
        for _ in 0..3000 {
            round_trip(elsewhere, b"x", 1);
        }
        if counts.counts() == before {
            return;
        }
        assert!(Instant::now() < give_up, "it turned from {before:?} to {:?}", counts.counts());
    }
}

#[test]
fn a_loop_turns_only_when_something_happens() {
    let ((idle, address), (busy, elsewhere)) = (listening(), listening());
    let counts = idle.counts();
    thread::scope(|scope| {
        scope.spawn(move || run(idle));
        scope.spawn(move || run(busy));
        let mut elsewhere = connect(elsewhere);
        comes_to_rest(&counts, &mut elsewhere);
        // Connections that say nothing any more, each in a state of its own.
        let mut quiet: Vec<_> = (0..20).map(|_| connect(address)).collect();
        for stream in &mut quiet {
            round_trip(stream, b"x", 1);
        }
        comes_to_rest(&counts, &mut elsewhere);
        round_trip(&mut quiet[0], b"pause", 6);
        round_trip(&mut quiet[1], b"pause", 6);
        quiet[1].shutdown(Shutdown::Write).unwrap();
        round_trip(&mut quiet[2], b"pause", 6);
        quiet[2].write_all(&pattern(10_000)).unwrap();
        round_trip(&mut quiet[3], b"much", 1);
        comes_to_rest(&counts, &mut elsewhere);
        let before = counts.counts().batches;
        for stream in &mut quiet[4..] {
            round_trip(stream, b"x", 1);
        }
        assert!(counts.counts().batches > before);
        comes_to_rest(&counts, &mut elsewhere);
        for stream in [&mut quiet[4], &mut elsewhere] {
            stream.write_all(b"stop").unwrap();
        }
    });
}
