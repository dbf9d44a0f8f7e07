//! Tests that need a network of their own: an MTU that datagrams exceed, and a slow link.

use std::io::{self, Write};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::process::Command;
use std::thread;

use lunette_reactor::{
    Address, DatagramConfig, DatagramFailure, DatagramPath, Ecn, EthernetAddress, FrameWord, Mac, Offloads,
    interface_index, interface_mtu,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with, sockopt};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::super::reactor;
use super::{Event, numbered, run, to};

/// Runs `test` in a network namespace that was set up by `commands`, on a thread of its own. It says so when that
/// cannot be: it needs root, and ip and tc of iproute2.
fn in_namespace(commands: &[&str], test: impl FnOnce() + Send) {
    let run = move || {
        // SAFETY: the thread shares nothing that this takes from it: descriptors stay common.
        if let Err(error) = unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            return skip(&format!("the right to make network namespaces ({error})"));
        }
        for command in commands {
            let mut words = command.split(' ');
            let program = words.next().unwrap();
            match Command::new(program).args(words).output() {
                Err(_) => return skip(&format!("the program {program}")),
                Ok(output) => assert!(output.status.success(), "{command}: {output:?}"),
            }
        }
        await_links();
        test();
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap());
}

/// Waits until the system has noticed that all links of this namespace are up. It does so on a thread of its own, and
/// drops what is sent before.
fn await_links() {
    // A loopback interface stays in the state UNKNOWN. A link without a queue (noop) drops what it is to send.
    let is_there = |link: &str| link.contains("state UP") || link.contains("state UNKNOWN");
    let is_on_the_way = |link: &str| link.contains(",UP") && (!is_there(link) || link.contains("qdisc noop "));
    loop {
        let shown = Command::new("ip").args(["-oneline", "link", "show"]).output().unwrap().stdout;
        if !String::from_utf8_lossy(&shown).lines().any(is_on_the_way) {
            return;
        }
        thread::yield_now();
    }
}

fn skip(missing: &str) {
    // Past the capture of the test harness.
    writeln!(io::stderr(), "SKIPPED: a test of datagrams needs {missing}").expect("standard error is open");
}

#[test]
fn what_is_longer_than_the_mtu_is_told_and_the_rest_leaves_joined() {
    in_namespace(&["ip link set lo mtu 1500 up"], || {
        for (address, header_len) in [("127.0.0.1:0", 28), ("[::1]:0", 48)] {
            for connected in [false, true] {
                exceed_mtu(address.parse().unwrap(), 1500 - header_len, connected);
            }
        }
    });
}

fn exceed_mtu(address: SocketAddr, max_len: usize, connected: bool) {
    let mut reactor = reactor();
    let config = DatagramConfig::default();
    let mut cx = reactor.context();
    let (receiver, bound) = cx.bind_udp(address, &config).unwrap();
    let (sender, _) = if connected { cx.connect_udp(bound, &config) } else { cx.bind_udp(address, &config) }.unwrap();
    assert_eq!(interface_mtu(bound.into()).unwrap(), 1500);
    // Joined ones that are too long, alone and with a shorter one at the end; and those that fit exactly.
    let lens = [[max_len; 10], [max_len + 1; 10], [2000; 10], [1000; 10], [max_len + 500; 10], [700; 10]].concat();
    let fits = |len: &usize| *len <= max_len;
    let (expected, too_long): (Vec<usize>, Vec<usize>) = lens.iter().partition(|len| fits(len));
    let mut failed = Vec::new();
    let mut received = Vec::new();
    let counts = run(
        &mut reactor,
        |state, cx| {
            for (number, &len) in lens.iter().enumerate() {
                state.offer(cx, sender, to(bound), numbered(number, len));
            }
        },
        |_, cx, event| {
            match event {
                Event::Failed(id, DatagramFailure::TooLong { path, len }) => {
                    assert_eq!((id, path), (sender, to(bound)));
                    failed.push(len);
                }
                Event::Failed(_, failure) => panic!("{failure:?}"),
                Event::Sent(..) => {}
                Event::Datagrams(id, got) => {
                    assert_eq!(id, receiver);
                    received.extend(got.into_iter().map(|datagram| datagram.bytes.len()));
                }
            }
            if received.len() == expected.len() && failed.len() == too_long.len() {
                cx.stop();
            }
        },
    );
    assert_eq!((received, failed), (expected, too_long));
    // The refusals are of lengths; what fits is joined still.
    assert!(counts.sent_messages < counts.sent_datagrams, "{counts:?}");
}

#[test]
fn a_full_socket_goes_on_when_there_is_room() {
    let slow = "tc qdisc add dev lo root tbf rate 50mbit burst 70kb limit 10mb";
    in_namespace(&["ip link set lo up", slow], || {
        for offloads in [Offloads::On, Offloads::Off] {
            fill(offloads);
        }
    });
}

fn fill(offloads: Offloads) {
    let datagrams = 500;
    let mut reactor = reactor();
    let config = DatagramConfig {
        offloads,
        receive_buffer_bytes: Some(16 << 20),
        send_buffer_bytes: Some(4096),
        ..DatagramConfig::default()
    };
    let mut cx = reactor.context();
    let (receiver, address) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &config).unwrap();
    let (sender, _) = cx.connect_udp(address, &config).unwrap();
    let mut received = 0;
    let mut cut = 0;
    let counts = run(
        &mut reactor,
        |state, cx| (0..datagrams).for_each(|number| state.offer(cx, sender, to(address), numbered(number, 1280))),
        |state, cx, event| match event {
            Event::Failed(_, failure) => panic!("{failure:?}"),
            Event::Sent(..) => cut = state.cut,
            Event::Datagrams(id, got) => {
                assert_eq!(id, receiver);
                for datagram in got {
                    assert!(datagram.bytes == numbered(received, 1280), "datagram {received}");
                    received += 1;
                }
                if received == datagrams {
                    cx.stop();
                }
            }
        },
    );
    assert!(cut > 2, "the socket was full {cut} times: {counts:?}");
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// An ICMP message that an earlier datagram from `own` to `peer` was too long for a link of that MTU (RFC 1191 section
/// 4).
fn too_long(own: SocketAddrV4, peer: SocketAddrV4, mtu: u16) -> Vec<u8> {
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    let mut ip = vec![0x45, 0, 0x20, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    ip.extend(own.ip().octets().into_iter().chain(peer.ip().octets()));
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    icmp.extend(ip);
    icmp.extend([own.port().to_be_bytes(), peer.port().to_be_bytes(), 8172_u16.to_be_bytes(), [0; 2]].concat());
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    icmp
}

#[test]
fn icmp_does_not_make_an_interface_narrower() {
    let link = "ip link add near mtu 9000 type veth peer name far mtu 9000";
    let commands =
        [link, "ip addr add 192.0.2.1/24 dev near", "ip link set lo up", "ip link set near up", "ip link set far up"];
    in_namespace(&commands, || {
        let peer: SocketAddrV4 = "192.0.2.2:3260".parse().unwrap();
        let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
        socket.connect(peer).unwrap();
        let SocketAddr::V4(own) = socket.local_addr().unwrap() else { panic!("an IPv4 socket") };
        let raw = socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMP)).unwrap();
        sendto(&raw, &too_long(own, peer, 600), SendFlags::empty(), &SocketAddrV4::new(*own.ip(), 0)).unwrap();
        // The system believes it.
        let again = UdpSocket::bind("192.0.2.1:0").unwrap();
        again.connect(peer).unwrap();
        assert_eq!(sockopt::ip_mtu(&again).unwrap(), 600);
        assert_eq!(interface_mtu(Address::Udp(peer.into())).unwrap(), 9000);
        let nowhere: SocketAddr = "198.51.100.1:3260".parse().unwrap();
        assert_eq!(interface_mtu(Address::Udp(nowhere)).unwrap_err().kind(), io::ErrorKind::NetworkUnreachable);
    });
}

#[test]
fn frames_go_from_interface_to_interface() {
    let veth = "ip link add near mtu 5000 type veth peer name far mtu 5000";
    in_namespace(&[veth, "ip link set near up", "ip link set far up"], || {
        let datagrams = 3000;
        let len = |number: usize| [5000, 46, 1, 4224][number % 4];
        let mut reactor = reactor();
        let config = DatagramConfig { receive_buffer_bytes: Some(16 << 20), ..DatagramConfig::default() };
        let mut cx = reactor.context();
        let (near, own) = cx.bind_ethernet("near", &config).unwrap();
        let (far, other) = cx.bind_ethernet("far", &config).unwrap();
        assert!(cx.bind_ethernet("nowhere", &config).is_err());
        assert_eq!(interface_mtu(Address::Ethernet(own)).unwrap(), 5000);
        // What our interface is told to reach: the other one, and a station that there is not.
        let reach = |mac| DatagramPath::to(Address::Ethernet(EthernetAddress { mac, ..own }));
        let mut received = 0;
        let mut too_long = 0;
        run(
            &mut reactor,
            |state, cx| {
                state.offer(cx, near, reach(other.mac), numbered(0, 5001 + 4));
                state.offer(cx, near, reach(Mac([2, 0, 0, 0, 0, 9])), numbered(0, 100));
                (0..datagrams)
                    .for_each(|number| state.offer(cx, near, reach(other.mac), numbered(number, len(number))));
            },
            |state, cx, event| match event {
                Event::Failed(_, DatagramFailure::TooLong { len, .. }) => too_long = len,
                Event::Failed(_, failure) => panic!("{failure:?}"),
                Event::Sent(..) => {}
                Event::Datagrams(id, got) if id == far => {
                    for datagram in got {
                        let peer = EthernetAddress { interface: other.interface, ..own };
                        let path = DatagramPath { local: Address::Ethernet(other), peer: Address::Ethernet(peer) };
                        assert_eq!((datagram.path, datagram.ecn), (path, Ecn::NotEct));
                        assert!(datagram.bytes == numbered(received, len(received)), "datagram {received}");
                        received += 1;
                        if received == datagrams {
                            state.offer(cx, far, datagram.path, b"answer".to_vec());
                        }
                    }
                }
                Event::Datagrams(_, got) => {
                    assert_eq!(got[0].bytes, b"answer");
                    cx.stop();
                }
            },
        );
        assert_eq!((received, too_long), (datagrams, 5005));
    });
}

#[test]
fn sockets_on_one_interface_receive_the_frames_with_their_words_alone() {
    let veth = "ip link add near mtu 5000 type veth peer name far mtu 5000";
    in_namespace(&[veth, "ip link set near up", "ip link set far up"], || {
        let mut reactor = reactor();
        let mut bind = |interface: &str, only: Option<FrameWord>| {
            let config = DatagramConfig { only, ..DatagramConfig::default() };
            reactor.context().bind_ethernet(interface, &config).unwrap()
        };
        let (near, _) = bind("near", None);
        let [(first, other), (second, _), (beyond, _), (all, _)] = [Some((0, 1)), Some((0, 2)), Some((97, 0)), None]
            .map(|word| bind("far", word.map(|(at, word)| FrameWord { at, word })));
        let interface = interface_index("near").unwrap();
        let to_far = DatagramPath::to(Address::Ethernet(EthernetAddress { interface, ..other }));
        let mut got_by = [first, second, beyond, all].map(|id| (id, Vec::new()));
        run(
            &mut reactor,
            |state, cx| (0..4).for_each(|number| state.offer(cx, near, to_far, numbered(number, 100))),
            |_, cx, event| {
                let Event::Datagrams(id, got) = event else { return };
                let (_, numbers) = got_by.iter_mut().find(|(receiver, _)| *receiver == id).unwrap();
                numbers.extend(got.into_iter().map(|datagram| datagram.bytes[3]));
                if got_by.iter().map(|(_, numbers)| numbers.len()).sum::<usize>() == 6 {
                    cx.stop();
                }
            },
        );
        assert_eq!(got_by.map(|(_, numbers)| numbers), [vec![1], vec![2], vec![], vec![0, 1, 2, 3]]);
    });
}
