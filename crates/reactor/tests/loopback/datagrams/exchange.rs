//! Order and content of many datagrams, with and without offloads.

use std::net::SocketAddr;

use lunette_reactor::{Address, Counts, DatagramConfig, Offloads};

use super::super::reactor;
use super::{Event, numbered, run, to};

const DATAGRAMS: usize = 6000;
/// Datagrams under way: the receiver has room for them.
const WINDOW: usize = 200;

/// Lengths in stretches of equal ones, with all that joining has to tell apart.
fn len(number: usize) -> usize {
    const LENS: [usize; 12] = [4224, 1280, 1281, 128, 1, 8972, 4224, 0, 1472, 33_000, 4223, 65_488];
    let stretch = number / 37 + usize::from(number % 37 == 36);
    // The last of a stretch belongs to the next one, so that single ones come up, too.
    LENS[stretch % LENS.len()].saturating_sub(usize::from(number.is_multiple_of(37)))
}

fn exchange(address: &str, sends: Offloads, receives: Offloads) -> Counts {
    let mut reactor = reactor();
    let buffers = DatagramConfig { receive_buffer_bytes: Some(16 << 20), ..DatagramConfig::default() };
    let address: SocketAddr = address.parse().unwrap();
    let mut cx = reactor.context();
    let (receiver, address) = cx.bind_udp(address, &DatagramConfig { offloads: receives, ..buffers }).unwrap();
    let (sender, own) = cx.connect_udp(address, &DatagramConfig { offloads: sends, ..buffers }).unwrap();
    let mut offered = WINDOW;
    let mut received = 0;
    let counts = run(
        &mut reactor,
        |state, cx| (0..WINDOW).for_each(|number| state.offer(cx, sender, to(address), numbered(number, len(number)))),
        |state, cx, event| match event {
            Event::Datagrams(id, got) => {
                assert_eq!(id, receiver);
                for datagram in got {
                    let expected = numbered(received, len(received));
                    assert!(datagram.bytes == expected, "datagram {received} of {} bytes", datagram.bytes.len());
                    assert_eq!((datagram.path.peer, datagram.path.local), (own.into(), Address::Udp(address)));
                    received += 1;
                    if offered < DATAGRAMS {
                        state.offer(cx, sender, to(address), numbered(offered, len(offered)));
                        offered += 1;
                    }
                }
                if received == DATAGRAMS {
                    cx.stop();
                }
            }
            Event::Sent(id, _) => assert_eq!(id, sender),
            Event::Failed(_, failure) => panic!("{failure:?}"),
        },
    );
    assert_eq!((counts.sent_datagrams, counts.received_datagrams), (DATAGRAMS as u64, DATAGRAMS as u64));
    assert_eq!(counts.sent_bytes, (0..DATAGRAMS).map(|number| len(number) as u64).sum::<u64>());
    assert_eq!(counts.received_bytes, counts.sent_bytes);
    counts
}

#[test]
fn datagrams_come_in_order_and_whole() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        for receives in [Offloads::On, Offloads::Off] {
            let counts = exchange(address, Offloads::On, receives);
            assert!(counts.sent_messages < counts.sent_datagrams / 2, "{counts:?}");
            match receives {
                Offloads::On => assert!(counts.received_messages < counts.received_datagrams / 2, "{counts:?}"),
                Offloads::Off => assert_eq!(counts.received_messages, counts.received_datagrams),
            }
            let counts = exchange(address, Offloads::Off, receives);
            assert_eq!(counts.sent_messages, counts.sent_datagrams);
            // Far fewer calls than datagrams all the same.
            assert!(counts.system_calls < counts.sent_datagrams, "{counts:?}");
        }
    }
}

#[test]
fn a_socket_has_the_buffers_that_it_was_given() {
    let mut reactor = reactor();
    let mut cx = reactor.context();
    let config = DatagramConfig {
        receive_buffer_bytes: Some(100_000),
        send_buffer_bytes: Some(50_000),
        ..DatagramConfig::default()
    };
    let (id, _) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &config).unwrap();
    let buffers = cx.datagram_buffers(id).unwrap();
    assert_eq!((buffers.receive_bytes, buffers.send_bytes), (100_000, 50_000));
    cx.close_datagrams(id);
    assert_eq!(cx.datagram_buffers(id), None);
}

#[test]
fn a_socket_that_is_closed_is_not_heard_of_again_and_leaves_its_port() {
    let mut reactor = reactor();
    let config = DatagramConfig::default();
    let mut cx = reactor.context();
    let (receiver, address) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &config).unwrap();
    let (sender, _) = cx.connect_udp(address, &config).unwrap();
    run(
        &mut reactor,
        |state, cx| (0..40).for_each(|number| state.offer(cx, sender, to(address), numbered(number, 100))),
        |state, cx, event| {
            if let Event::Datagrams(id, _) = event {
                assert_eq!(id, receiver);
                for id in [receiver, sender] {
                    cx.close_datagrams(id);
                    cx.close_datagrams(id);
                    cx.send_datagrams(id);
                }
                state.offer(cx, sender, to(address), numbered(0, 100));
                cx.stop();
            }
        },
    );
    // A ring lets go of a socket in its next turn.
    let mut turns = 0;
    let again = loop {
        match reactor.context().bind_udp(address, &config) {
            Ok((id, _)) => break id,
            Err(error) if turns == 10 => panic!("{error}"),
            Err(_) => turns += 1,
        }
        run(&mut reactor, |_, cx| cx.stop(), |_, _, _| {});
    };
    assert_ne!(again, receiver);
}
