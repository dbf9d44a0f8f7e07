//! The cost of protecting a packet: `cargo bench -p lunette-ecl`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lunette_crc32c::crc32c;
use lunette_ecl::Role;
use lunette_ecl::handshake::{Answer, Client, Established, Listener, Received, ResetSecret, Terms};
use lunette_ecl::header::{Flags, HEADER_LEN, Header, PacketType};
use lunette_ecl::path::Address;
use lunette_ecl::protection::Seal;
use lunette_session::Time;

const TRUSTED: Terms = Terms { trusted: true, seal: Seal::Headers };

const PAYLOAD_LEN: usize = 4096;

/// Not random: a benchmark has no secrets.
fn entropy() -> impl FnMut(&mut [u8]) {
    let mut count = 0_u8;
    move |bytes: &mut [u8]| {
        count = count.wrapping_add(1);
        bytes.fill(count);
    }
}

fn address() -> Address {
    Address::Udp(([127, 0, 0, 1], 1).into())
}

fn established() -> Established {
    let (mut client, mut listener) = ends();
    let initial = client.transmit(Time::default()).expect("in time").expect("it is due");
    let answer = listener.answer(Time::default(), &address(), TRUSTED, &initial, |_| false, &mut entropy());
    let Answer::Accept(accept) = answer else { panic!("{answer:?}") };
    let Received::Established(established) = client.receive(Time::default(), &accept) else { panic!("no Accept") };
    established
}

fn ends() -> (Client, Listener) {
    let client = Client::new(Time::default(), 1, &mut entropy());
    (client, Listener::new(Time::default(), ResetSecret::new([1; 32]), &mut entropy()))
}

fn packet(flags: Flags) -> Vec<u8> {
    let mut header = Header::new(PacketType::Stream, 1, 7);
    header.flags = flags;
    [&header.emit()[..], &[0xa5; PAYLOAD_LEN]].concat()
}

fn packets(criterion: &mut Criterion) {
    let secret = established().secret;
    let (client, server) = (secret.login_keys(Role::Client), secret.login_keys(Role::Server));
    let mut group = criterion.benchmark_group("packet");

    let mut header = *packet(Flags(0)).first_chunk::<HEADER_LEN>().expect("a header");
    group.bench_function("check of a header", |b| b.iter(|| client.send.check_header(black_box(&mut header))));
    let mut checked = header.to_vec();
    group.bench_function("verification of a header", |b| {
        b.iter(|| server.receive.open_header(black_box(&mut checked)).expect("it fits"));
    });

    group.throughput(Throughput::Bytes(PAYLOAD_LEN as u64));
    let mut clear = packet(Flags(0));
    group.bench_function("4 KiB, checked", |b| b.iter(|| client.send.seal(black_box(&mut clear))));
    group.bench_function("4 KiB, verified", |b| {
        b.iter(|| server.receive.open(black_box(&mut clear)).expect("it fits"));
    });
    group.bench_function("4 KiB, CRC32C alone", |b| b.iter(|| crc32c(black_box(&clear[HEADER_LEN..]))));
    let plain = packet(Flags::SEALED);
    let mut sealed = plain.clone();
    group.bench_function("4 KiB, sealed", |b| b.iter(|| client.send.seal(black_box(&mut sealed))));
    let mut payload = vec![0; PAYLOAD_LEN];
    group.bench_function("4 KiB, sealed from another place", |b| {
        b.iter(|| {
            let mut header = *plain.first_chunk::<HEADER_LEN>().expect("a header");
            client.send.seal_pieces(black_box(&mut header), [&plain[HEADER_LEN..]], &mut payload);
        });
    });
    let mut sealed = plain.clone();
    client.send.seal(&mut sealed);
    let mut opened = sealed.clone();
    group.bench_function("4 KiB, opened (with a copy of the packet)", |b| {
        b.iter(|| {
            opened.copy_from_slice(&sealed);
            server.receive.open(black_box(&mut opened)).expect("it fits")
        });
    });
    group.finish();
}

fn handshakes(criterion: &mut Criterion) {
    let (mut client, mut listener) = ends();
    let initial = client.transmit(Time::default()).expect("in time").expect("it is due");
    let mut entropy = entropy();
    criterion.bench_function("server: Retry", |b| {
        b.iter(|| listener.answer(Time::default(), &address(), Terms::default(), &initial, |_| false, &mut entropy));
    });
    let mut port = 0_u16;
    criterion.bench_function("server: Accept", |b| {
        b.iter(|| {
            port = port.wrapping_add(1);
            let source = Address::Udp(([127, 0, 0, 1], port).into());
            let mut seed = u64::from(port);
            listener.answer(Time::default(), &source, TRUSTED, &initial, |_| false, &mut |bytes: &mut [u8]| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                for byte in bytes.iter_mut() {
                    seed = seed.rotate_left(9).wrapping_mul(3);
                    *byte = seed as u8;
                }
            })
        });
    });
}

criterion_group!(benches, packets, handshakes);
criterion_main!(benches);
