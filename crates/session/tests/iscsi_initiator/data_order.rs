//! Data-In and R2Ts in every order that may be negotiated (RFC 7143 sections 13.17 to 13.19).

use lunette_pdu::{DataIn, DataOut, InitiatorPdu, Residual, ScsiResponse};
use lunette_session::iscsi_initiator::SessionConfig;
use lunette_session::keys::Offer;

use crate::harness::{Dice, ScriptedTarget, Sent, config, pattern};

const BURST: u32 = 4096;

/// A target that agreed to these orders, and asks for all data.
fn agreed(pdus_in_order: bool, sequences_in_order: bool) -> ScriptedTarget {
    let offer = Offer {
        data_pdu_in_order: pdus_in_order,
        data_sequence_in_order: sequences_in_order,
        max_outstanding_r2t: 65_535,
        initial_r2t: true,
        immediate_data: false,
        ..Offer::default()
    };
    ScriptedTarget::logged_in(SessionConfig { offer, ..config() }, &[("MaxBurstLength", "4096")])
}

fn shuffle<T>(items: &mut [T], dice: &mut Dice) {
    for last in (1..items.len()).rev() {
        items.swap(last, dice.below(last + 1));
    }
}

/// All of a read's sequences, each with its pieces: offset and length.
fn sequences(len: u32, pdu_len: u32) -> Vec<Vec<(u32, u32)>> {
    let pieces = |start: u32| {
        let end = (start + BURST).min(len);
        (start..end).step_by(pdu_len as usize).map(|at| (at, pdu_len.min(end - at))).collect()
    };
    (0..len).step_by(BURST as usize).map(pieces).collect()
}

#[test]
fn data_in_may_come_in_any_order_that_was_agreed() {
    for seed in 1..200 {
        let mut dice = Dice::new(seed);
        let (pdus_in_order, sequences_in_order) = (seed % 2 == 0, seed % 4 < 2);
        let mut target = agreed(pdus_in_order, sequences_in_order);
        let len = 1 + dice.below(50_000) as u32;
        let (_, itt) = target.read(len);
        let mut sequences = sequences(len, 100 + dice.below(900) as u32);
        if !sequences_in_order {
            shuffle(&mut sequences, &mut dice);
        }
        let mut data_sn = 0;
        for mut pieces in sequences {
            if !pdus_in_order {
                shuffle(&mut pieces, &mut dice);
            }
            let last = pieces.len() - 1;
            for (at, (offset, len)) in pieces.into_iter().enumerate() {
                let pdu = target.data_in(itt, data_sn, offset, len as usize);
                target.send_data(DataIn { final_: at == last, ..pdu });
                data_sn += 1;
            }
        }
        let response = ScsiResponse { exp_data_sn: data_sn, ..target.response(itt) };
        target.send(response.emit(), &[]);
        let (command, response) = target.completed();
        assert_eq!(command.data_in.as_deref(), Some(&pattern(len as usize)[..]), "seed {seed}");
        assert_eq!(response.data_in_len, len as usize);
    }
}

#[test]
fn the_status_may_ride_on_bytes_from_the_middle() {
    let mut target = agreed(false, false);
    let (_, itt) = target.read(3000);
    target.send_data(DataIn { final_: false, ..target.data_in(itt, 0, 2000, 1000) });
    target.send_data(DataIn { final_: false, ..target.data_in(itt, 1, 0, 1000) });
    let status = Some(target.status(Residual::None));
    target.send_data(DataIn { status, ..target.data_in(itt, 2, 1000, 1000) });
    assert_eq!(target.completed().0.data_in.as_deref(), Some(&pattern(3000)[..]));
}

/// Data-In of one read: DataSN is the place in the list. The last one breaks the rule.
fn lie(orders: (bool, bool), section: &str, says: &str, pdus: &[(u32, usize, bool)]) {
    let mut target = agreed(orders.0, orders.1);
    let (_, itt) = target.read(20_000);
    for (data_sn, (offset, len, final_)) in pdus.iter().enumerate() {
        assert!(target.events.is_empty(), "before {data_sn}: {:?}", target.events);
        let pdu = target.data_in(itt, data_sn as u32, *offset, *len);
        target.send_data(DataIn { final_: *final_, ..pdu });
    }
    let what = target.broken(section);
    assert!(what.contains(says), "{what}");
}

#[test]
fn a_byte_comes_once() {
    for orders in [(false, false), (true, false)] {
        for (offset, len) in [(5000, 1000), (4999, 2), (5999, 100), (4900, 1200), (5500, 1)] {
            lie(orders, "11.7.6", "there already", &[(5000, 1000, true), (offset, len, true)]);
        }
    }
    lie((false, true), "11.7.6", "there already", &[(1000, 1000, false), (1999, 2, false)]);
    lie((false, false), "11.7.6", "byte 20001 of a buffer of 20000", &[(1000, 1000, false), (19_001, 1000, true)]);
    lie((false, false), "11.7.6", "of a buffer of 20000", &[(u32::MAX, 1000, true)]);
}

#[test]
fn order_within_a_sequence_is_kept_where_it_was_agreed() {
    lie((true, false), "11.7.6", "leaves a gap", &[(9000, 100, false), (9200, 100, false)]);
    lie((true, false), "11.7.6", "overlaps", &[(9000, 100, false), (8900, 100, true)]);
}

#[test]
fn order_of_sequences_is_kept_where_it_was_agreed() {
    lie((false, true), "11.7.6", "overlaps", &[(1000, 1000, false), (0, 1000, true), (1999, 1, true)]);
    lie((false, true), "11.7.6", "2000 was due", &[(1000, 1000, true), (0, 1000, true)]);
    lie((true, true), "11.7.6", "leaves a gap", &[(1000, 1000, true)]);
}

#[test]
fn a_sequence_in_pieces_keeps_to_max_burst_length() {
    lie((false, false), "13.13", "4097 bytes", &[(0, 1000, false), (9000, 3000, false), (19_000, 97, true)]);
}

#[test]
fn a_good_status_comes_when_every_byte_is_there() {
    for residual in [Residual::None, Residual::Underflow(1000)] {
        let mut target = agreed(false, false);
        let (_, itt) = target.read(3000);
        target.send_data(target.data_in(itt, 0, 1000, 2000));
        let response = ScsiResponse { residual, ..target.response(itt) };
        target.send(response.emit(), &[]);
        assert!(target.broken("11.7.6").contains("byte 0"));
    }
}

#[test]
fn a_read_that_failed_has_the_bytes_before_the_first_gap() {
    let mut target = agreed(false, false);
    let (_, itt) = target.read(3000);
    target.send_data(DataIn { final_: false, ..target.data_in(itt, 0, 2000, 1000) });
    target.send_data(target.data_in(itt, 1, 0, 500));
    let response = ScsiResponse { status: 2, ..target.response(itt) };
    target.send(response.emit(), &[]);
    assert_eq!(target.completed().1.data_in_len, 500);
}

/// The Data-Out PDUs that were sent, with their data.
fn data_out(target: &mut ScriptedTarget) -> Vec<(DataOut, Vec<u8>)> {
    let sent = std::mem::take(&mut target.sent);
    let of_kind = |sent: Sent| match sent.pdu {
        InitiatorPdu::DataOut(pdu) => (pdu, sent.data),
        other => panic!("{other:?}"),
    };
    sent.into_iter().map(of_kind).collect()
}

#[test]
fn r2ts_for_any_offset_are_answered() {
    let mut target = agreed(true, false);
    let data = pattern(9000);
    let (_, itt) = target.write(9000);
    let asked = [(8192, 808), (0, 4096), (4100, 4092), (4096, 4)];
    let r2ts = (0..).zip(asked).flat_map(|(sn, (offset, len))| target.r2t(itt, sn, offset, len).emit());
    let r2ts: Vec<u8> = r2ts.collect();
    target.raw(&r2ts);
    for (at, (pdu, bytes)) in data_out(&mut target).into_iter().enumerate() {
        let (offset, len) = (asked[at].0 as usize, asked[at].1 as usize);
        assert_eq!(
            (pdu.buffer_offset as usize, pdu.data_sn, pdu.final_, pdu.ttt.0),
            (offset, 0, true, 0x100 + at as u32)
        );
        assert_eq!(bytes, data[offset..offset + len]);
    }
    let response = target.response(itt);
    target.send(response.emit(), &[]);
    assert_eq!(target.completed().1.status, 0);
}

#[test]
fn r2ts_do_not_ask_twice() {
    for (offset, len) in [(4096, 512), (4000, 100), (4607, 1), (4607, 4096), (3000, 4096)] {
        let mut target = agreed(true, false);
        let (_, itt) = target.write(20_000);
        target.send(target.r2t(itt, 0, 4096, 512).emit(), &[]);
        target.send(target.r2t(itt, 1, offset, len).emit(), &[]);
        target.broken("11.8.4");
    }
}

#[test]
fn a_good_write_was_asked_for_every_byte_in_any_order() {
    let mut target = agreed(true, false);
    let (_, itt) = target.write(5000);
    target.send(target.r2t(itt, 0, 1000, 4000).emit(), &[]);
    let response = target.response(itt);
    target.send(response.emit(), &[]);
    assert!(target.broken("11.4.5").contains("4000 of 5000"));
}
