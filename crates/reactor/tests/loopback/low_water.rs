//! Connections that are heard of when much has come.

use std::io::{Read, Write};

use lunette_reactor::Context;

use super::{Event, State, connect, run};

#[test]
fn a_connection_is_heard_of_when_enough_has_come_or_less_is_enough() {
    let mut connection = None;
    let (mut received, mut lowered) = (0, false);
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            received += bytes.len();
            if connection.replace(id).is_none() {
                cx.set_low_water(id, 10);
            }
            state.send(cx, id, b"!");
            if received == 15 {
                cx.stop();
            }
        }
        Event::Woken => {
            assert_eq!(received, 11);
            cx.set_low_water(connection.unwrap(), 1);
            lowered = true;
        }
        _ => {}
    };
    run(on, |address, waker| {
        let mut stream = connect(address);
        stream.write_all(&[0; 1]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(&[0; 10]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(&[0; 4]).unwrap();
        waker.wake();
        // Until the reactor stops.
        let _ = stream.read(&mut [0]);
    });
    assert!(received == 15 && lowered, "{received}");
}
