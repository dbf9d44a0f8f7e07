//! Commands with data in both directions, and CDBs beyond the header (RFC 7143 sections 11.2.2, 11.4.5 and 11.8.2).

use lunette_buffer::Buffer;
use lunette_pdu::{DataIn, InitiatorPdu, InitiatorTaskTag, Residual, ScsiResponse};
use lunette_session::Authentication;
use lunette_session::iscsi_initiator::{Command, Event, Response, SessionConfig};
use lunette_session::keys::Offer;

use crate::harness::{Pair, ScriptedTarget, config, exchange, node, pattern, read, write};

fn pair(offer: Offer) -> Pair {
    let config = SessionConfig { offer, ..config() };
    let mut pair = Pair::new(config, node(Authentication::None, Offer::default()), Authentication::None);
    pair.run();
    pair.expect_login();
    pair
}

/// Runs a command whose CDB names `in_cdb` bytes, with `out` bytes to send and room for `room`.
fn run(pair: &mut Pair, in_cdb: u32, out: u32, room: u32) -> (Response, Option<Buffer>) {
    let data: Vec<u8> = pattern(out as usize).iter().map(|byte| byte ^ 0x5a).collect();
    let command = exchange(&pair.ends.pool, 1, 100, in_cdb, &data, room);
    pair.ends.session.submit(command, pair.ends.now).expect("there is room");
    pair.run();
    let event = pair.ends.events.pop_front();
    let Some(Event::Completed { command, response }) = event else { panic!("{event:?}, {:?}", pair.closed()) };
    (response, command.data_in)
}

#[test]
fn bytes_go_both_ways_whatever_was_negotiated() {
    for (initial_r2t, immediate_data) in [(false, false), (false, true), (true, false), (true, true)] {
        for max_outstanding_r2t in [1, 3] {
            let offer = Offer {
                initial_r2t,
                immediate_data,
                max_outstanding_r2t,
                max_burst_len: 4096,
                first_burst_len: 1024,
                recv_data_segment_len: 512,
                ..Offer::default()
            };
            let mut pair = pair(offer);
            for len in [1, 511, 512, 1024, 1025, 5000, 20_000] {
                let before = pair.ends.disk.bytes[100..100 + len as usize].to_vec();
                let (response, data_in) = run(&mut pair, len, len, len);
                assert_eq!((response.status, response.residual, response.read_residual), (0, None, None));
                let written = &pair.ends.disk.bytes[100..100 + len as usize];
                let expected: Vec<u8> = before.iter().zip(written).map(|(old, new)| old ^ new).collect();
                assert_eq!(data_in.as_deref(), Some(&expected[..]), "{len} bytes");
                assert!(written.iter().zip(pattern(len as usize)).all(|(byte, sent)| *byte == sent ^ 0x5a));
            }
            assert_eq!(pair.ends.pool.used_bytes(), 0);
        }
    }
}

#[test]
fn each_direction_has_its_residual() {
    use Residual::{Overflow, Underflow};
    let cases = [
        (3000, 3000, 3000, None, None, 3000),
        (3000, 4000, 5000, Some(Underflow(1000)), Some(Underflow(2000)), 3000),
        (3000, 2000, 1500, Some(Overflow(1000)), Some(Overflow(500)), 1500),
        (3000, 4000, 1000, Some(Underflow(1000)), Some(Overflow(2000)), 1000),
        (3000, 1000, 2000, Some(Overflow(2000)), Some(Underflow(1000)), 1000),
    ];
    for (in_cdb, out, room, residual, read_residual, received) in cases {
        let (response, _) = run(&mut pair(Offer::default()), in_cdb, out, room);
        assert_eq!(response.status, 0);
        assert_eq!((response.residual, response.read_residual), (residual, read_residual), "{in_cdb} {out} {room}");
        assert_eq!(response.data_in_len, received);
    }
}

/// A command of 8000 bytes in each direction, none of which goes unasked.
fn both(target: &mut ScriptedTarget) -> InitiatorTaskTag {
    let data_in = Some(target.pool.take(8000).unwrap());
    let command = Command { data_in, ..write(&target.pool, 1, 0, &pattern(8000)) };
    target.session.submit(command, target.now).unwrap();
    target.raw(&[]);
    let sent = target.next();
    let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
    pdu.itt
}

#[test]
fn r2ts_and_data_in_share_one_numbering() {
    let mut target = ScriptedTarget::asked_only();
    let itt = both(&mut target);
    target.send(target.r2t(itt, 0, 0, 4000).emit(), &[]);
    target.send_data(DataIn { final_: false, ..target.data_in(itt, 1, 0, 5000) });
    target.send(target.r2t(itt, 2, 4000, 4000).emit(), &[]);
    target.send_data(target.data_in(itt, 3, 5000, 3000));
    let response = ScsiResponse { exp_data_sn: 4, ..target.response(itt) };
    target.send(response.emit(), &[]);
    let event = target.event();
    let Event::Completed { command, response } = event else { panic!("{event:?}") };
    assert_eq!((command.data_in.as_deref(), response.data_in_len), (Some(&pattern(8000)[..]), 8000));
    for (says, wrong) in [("11.7.5", true), ("11.8.2", false)] {
        let mut target = ScriptedTarget::asked_only();
        let itt = both(&mut target);
        target.send(target.r2t(itt, 0, 0, 4000).emit(), &[]);
        if wrong {
            target.send_data(target.data_in(itt, 0, 0, 5000));
        } else {
            target.send(target.r2t(itt, 2, 4000, 4000).emit(), &[]);
        }
        target.broken(says);
    }
}

/// A target may count the Data-In PDUs alone, or with the R2Ts; never more (RFC 7143 sections 11.4.8 and 11.8.2).
#[test]
fn a_response_counts_no_more_than_there_was() {
    for (count, is_right) in [(0, true), (1, true), (2, true), (3, false)] {
        let mut target = ScriptedTarget::asked_only();
        let itt = both(&mut target);
        target.send(target.r2t(itt, 0, 0, 8000).emit(), &[]);
        target.send_data(target.data_in(itt, 1, 0, 8000));
        let response = ScsiResponse { exp_data_sn: count, ..target.response(itt) };
        target.send(response.emit(), &[]);
        if is_right {
            assert!(matches!(target.event(), Event::Completed { .. }), "{count}");
        } else {
            target.broken("11.4.8");
        }
    }
}

#[test]
fn the_longest_cdb_arrives_whole() {
    let mut pair = pair(Offer::default());
    let cdb_rest: Box<[u8]> = (0..244).collect();
    for data_in in [None, Some(700)] {
        let command = match data_in {
            Some(room) => exchange(&pair.ends.pool, 1, 0, 700, &pattern(700), room),
            None => read(&pair.ends.pool, 1, 0, 700),
        };
        pair.ends.session.submit(Command { cdb_rest: cdb_rest.clone(), ..command }, pair.ends.now).unwrap();
        pair.run();
        let event = pair.ends.events.pop_front();
        assert!(matches!(event, Some(Event::Completed { .. })), "{event:?}");
        assert_eq!(pair.ends.last_cdb_rest, cdb_rest);
    }
}
