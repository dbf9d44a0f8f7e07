//! Tests of listeners.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use lunette_reactor::Context;

use super::{Event, State, Toy, connect, reactor};

#[test]
fn a_closed_listener_refuses_and_its_connections_stay() {
    let mut reactor = reactor();
    let (listener, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => {
            cx.close_listener(listener);
            state.send(cx, id, b"!");
        }
        Event::Closed(..) => cx.stop(),
        _ => {}
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = connect(address);
            stream.read_exact(&mut [0]).unwrap();
            assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        });
        reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
    });
}

#[test]
fn an_address_in_use_is_reported() {
    let mut reactor = reactor();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(reactor.listen(address).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn the_same_port_serves_both_families() {
    let mut reactor = reactor();
    // Another process may happen to have the port on one of them.
    let found = (0..8).find_map(|_| {
        let (_, six) = match reactor.listen("[::]:0".parse().unwrap()) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => return None,
            listening => listening.unwrap(),
        };
        reactor.listen(SocketAddr::from(([127, 0, 0, 1], six.port()))).ok()
    });
    assert!(found.is_some());
}
