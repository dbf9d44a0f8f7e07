//! Commands and their data, as they stand on the wire and as they end.

use lunette_pdu::{
    Ahs, DataIn, DataOut, InitiatorPdu, InitiatorTaskTag, R2t, Residual, ScsiCommand, ScsiResponse, ScsiResponseCode,
    SerialNumber, TargetTransferTag,
};
use lunette_session::iscsi_initiator::{Command, SessionConfig};
use lunette_session::keys::Offer;

use crate::harness::{ScriptedTarget, config, pattern, read, write};

fn command(target: &mut ScriptedTarget) -> (ScsiCommand, Vec<u8>) {
    let sent = target.next();
    let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
    (pdu, sent.data)
}

fn data_out(target: &mut ScriptedTarget) -> (DataOut, Vec<u8>) {
    let sent = target.next();
    let InitiatorPdu::DataOut(pdu) = sent.pdu else { panic!("{sent:?}") };
    (pdu, sent.data)
}

#[test]
fn a_read_lands_in_its_buffer_in_pieces() {
    let mut target = ScriptedTarget::asked_only();
    let (_, itt) = target.read(4096);
    for n in 0..3 {
        target.send_data(DataIn { final_: n == 1, ..target.data_in(itt, n, n * 1000, 1000) });
    }
    assert!(target.events.is_empty());
    let status = Some(target.status(Residual::None));
    target.send_data(DataIn { status, ..target.data_in(itt, 3, 3000, 1096) });
    let (command, response) = target.completed();
    assert_eq!(command.data_in.as_deref(), Some(&pattern(4096)[..]));
    assert_eq!((command.user, response.status, response.data_in_len, response.residual), (1, 0, 4096, None));
}

#[test]
fn the_a_bit_means_nothing_at_recovery_level_0() {
    let mut target = ScriptedTarget::asked_only();
    let (_, itt) = target.read(1024);
    let status = Some(target.status(Residual::None));
    target.send_data(DataIn { acknowledge: true, status, ..target.data_in(itt, 0, 0, 1024) });
    assert_eq!(target.completed().1.data_in_len, 1024);
    assert!(target.sent.is_empty(), "{:?}", target.sent);
}

#[test]
fn a_large_segment_goes_straight_to_its_place() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    let (_, itt) = target.read(100_000);
    let status = Some(target.status(Residual::None));
    let header = DataIn { status, ..target.data_in(itt, 0, 0, 100_000) }.emit();
    target.raw(&header);
    let data = pattern(100_000);
    target.raw(&data[..10]);
    let place = target.session.direct(target.cid).expect("worth a receive of its own");
    assert_eq!(place.len(), 99_990);
    place.copy_from_slice(&data[10..]);
    target.session.direct_received(target.cid, 99_990, target.now);
    assert!(target.session.direct(target.cid).is_none());
    target.raw(&[]);
    assert_eq!(target.completed().0.data_in.as_deref(), Some(&data[..]));
}

#[test]
fn residuals_and_sense_data_reach_the_driver() {
    let mut target = ScriptedTarget::asked_only();
    let (_, itt) = target.read(4096);
    target.send_data(target.data_in(itt, 0, 0, 512));
    let pdu = ScsiResponse {
        status: 2,
        residual: Residual::Underflow(3584),
        exp_data_sn: 1,
        data_segment_len: 7,
        ..target.response(itt)
    };
    target.send(pdu.emit(), &[0, 3, 0x70, 0, 5, 9, 9]);
    let (_, response) = target.completed();
    assert_eq!((response.response, response.status, &response.sense[..]), (0, 2, &[0x70, 0, 5][..]));
    assert_eq!((response.residual, response.data_in_len), (Some(Residual::Underflow(3584)), 512));
    // CHECK CONDITION without a residual is what many targets send.
    let (_, itt) = target.read(4096);
    let pdu = ScsiResponse { status: 2, ..target.response(itt) };
    target.send(pdu.emit(), &[]);
    assert_eq!(target.completed().1.data_in_len, 0);
    // More than we expected.
    let (_, itt) = target.read(512);
    let status = Some(target.status(Residual::Overflow(100)));
    target.send_data(DataIn { status, ..target.data_in(itt, 0, 0, 512) });
    assert_eq!(target.completed().1.residual, Some(Residual::Overflow(100)));
    // A target that did not get to it.
    let (_, itt) = target.write(512);
    let pdu = ScsiResponse { response: ScsiResponseCode::TARGET_FAILURE, ..target.response(itt) };
    target.send(pdu.emit(), &[]);
    assert_eq!(target.completed().1.response, 1);
}

#[test]
fn data_goes_unasked_as_far_as_was_agreed() {
    for (initial_r2t, immediate_data, immediate, unsolicited) in
        [("Yes", "No", 0, 0), ("Yes", "Yes", 1000, 0), ("No", "Yes", 1000, 1500), ("No", "No", 0, 2500)]
    {
        let answers = [
            ("InitialR2T", initial_r2t),
            ("ImmediateData", immediate_data),
            ("FirstBurstLength", "2500"),
            ("MaxRecvDataSegmentLength", "1000"),
        ];
        let mut target = ScriptedTarget::logged_in(config(), &answers);
        let data = pattern(5000);
        let write = write(&target.pool, 1, 0, &data);
        target.session.submit(write, target.now).unwrap();
        target.raw(&[]);
        let (pdu, mut got) = command(&mut target);
        assert_eq!((got.len(), pdu.final_), (immediate, unsolicited == 0), "{answers:?}");
        assert_eq!((pdu.write, pdu.read, pdu.expected_data_transfer_length), (true, false, 5000));
        for data_sn in 0.. {
            if got.len() == immediate + unsolicited {
                break;
            }
            let (pdu, part) = data_out(&mut target);
            assert!(pdu.ttt.is_reserved());
            assert_eq!((pdu.data_sn, pdu.buffer_offset as usize), (data_sn, got.len()));
            got.extend(part);
            assert_eq!(pdu.final_, got.len() == immediate + unsolicited);
        }
        assert_eq!(got, data[..got.len()]);
        assert!(target.sent.is_empty());
        // The rest is asked for, and comes in PDUs that the target takes.
        let from = got.len() as u32;
        target.send(target.r2t(pdu.itt, 0, from, 5000 - from).emit(), &[]);
        while let Some(sent) = target.sent.pop_front() {
            let InitiatorPdu::DataOut(pdu) = sent.pdu else { panic!("{sent:?}") };
            assert_eq!((pdu.ttt, pdu.buffer_offset as usize), (TargetTransferTag(0x100), got.len()));
            assert!(sent.data.len() <= 1000);
            got.extend(sent.data);
            assert_eq!(pdu.final_, got.len() == 5000);
        }
        assert_eq!(got, data);
        let response = target.response(pdu.itt).emit();
        target.send(response, &[]);
        target.completed();
    }
}

#[test]
fn the_outbox_takes_a_bounded_share_of_a_long_write() {
    let answers = [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxRecvDataSegmentLength", "65536")];
    let mut target = ScriptedTarget::logged_in(config(), &answers);
    let itts: Vec<_> = (0..4).map(|_| target.write(1 << 20).1).collect();
    for itt in itts {
        let r2t = target.r2t(itt, 0, 0, 1 << 20).emit();
        let mut input = &r2t[..];
        assert!(target.session.next_event(target.cid, &mut input, target.now).is_none());
    }
    let ready: usize = target.session.slices(target.cid).map(<[u8]>::len).sum();
    assert!(ready < (1 << 20) + 100_000, "{ready} bytes");
    target.listen();
    assert_eq!(target.sent.iter().map(|sent| sent.data.len()).sum::<usize>(), 4 << 20);
}

#[test]
fn data_out_is_cut_between_blocks_where_that_is_possible() {
    let answers = [("ImmediateData", "No"), ("MaxRecvDataSegmentLength", "2048")];
    for (block_len, lens) in
        [(576, vec![1728, 1728, 1728, 576]), (0, vec![2048, 2048, 1664]), (4160, vec![2048, 2048, 1664])]
    {
        let mut target = ScriptedTarget::logged_in(config(), &answers);
        let write = Command { block_len, ..write(&target.pool, 1, 0, &pattern(10 * 576)) };
        target.session.submit(write, target.now).unwrap();
        target.raw(&[]);
        let (pdu, _) = command(&mut target);
        // From here on the target asks, or the data goes unasked.
        if pdu.final_ {
            target.send(target.r2t(pdu.itt, 0, 0, 10 * 576).emit(), &[]);
        }
        let mut seen = Vec::new();
        while seen.iter().sum::<usize>() < 10 * 576 {
            seen.push(data_out(&mut target).1.len());
        }
        assert_eq!(seen, lens, "blocks of {block_len} bytes");
    }
}

#[test]
fn unsolicited_data_on_its_way_is_no_outstanding_r2t() {
    let offer = Offer { first_burst_len: 1 << 20, ..Offer::default() };
    let answers = [("ImmediateData", "No"), ("MaxOutstandingR2T", "1"), ("MaxRecvDataSegmentLength", "65536")];
    let mut target = ScriptedTarget::logged_in(SessionConfig { offer, ..config() }, &answers);
    let data = pattern(1_500_000);
    for user in 0..3 {
        let write = write(&target.pool, user, 0, &data);
        target.session.submit(write, target.now).unwrap();
    }
    // Nothing has been read, so the last task's unsolicited data waits behind the others.
    let r2t = target.r2t(InitiatorTaskTag(2 << 16), 0, 1 << 20, 1_500_000 - (1 << 20));
    let r2t = R2t { exp_cmd_sn: target.exp_cmd_sn.add(3), max_cmd_sn: target.exp_cmd_sn.add(9), ..r2t }.emit();
    target.raw(&r2t);
    assert!(target.events.is_empty(), "{:?}", target.events);
    let last = target.sent.iter().filter(|sent| match sent.pdu {
        InitiatorPdu::DataOut(pdu) => pdu.itt == InitiatorTaskTag(2 << 16),
        _ => false,
    });
    assert_eq!(last.flat_map(|sent| sent.data.clone()).collect::<Vec<_>>(), data);
}

#[test]
fn the_window_and_the_tags_are_kept() {
    let mut target = ScriptedTarget::asked_only();
    assert_eq!(target.session.room(), 32);
    let itts: Vec<InitiatorTaskTag> = (0..32).map(|_| target.read(0).1).collect();
    assert_eq!(target.session.room(), 0);
    let more = read(&target.pool, 99, 0, 512);
    assert_eq!(target.session.submit(more, target.now).unwrap_err().user, 99);
    // One number after the other, over the wrap, and no tag twice.
    assert_eq!(target.exp_cmd_sn, SerialNumber(30));
    let mut unique = itts.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 32);
    let response = target.response(itts[7]).emit();
    target.send(response, &[]);
    target.completed();
    assert_eq!(target.session.room(), 32);
    // The slot is used again under another tag.
    assert!(!itts.contains(&target.read(0).1));
    let left: Vec<u64> = target.session.into_unfinished().iter().map(|command| command.user).collect();
    assert_eq!(left, (1..=7).chain(9..=33).collect::<Vec<_>>());
}

#[test]
fn long_cdbs_and_both_directions_go_into_additional_header_segments() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    let both = Command {
        data_in: Some(target.pool.take(700).unwrap()),
        cdb_rest: vec![7; 16].into(),
        ..write(&target.pool, 1, 0, &pattern(300))
    };
    target.session.submit(both, target.now).unwrap();
    target.raw(&[]);
    let sent = target.next();
    let InitiatorPdu::ScsiCommand(pdu) = sent.pdu else { panic!("{sent:?}") };
    assert_eq!((pdu.read, pdu.write, pdu.expected_data_transfer_length), (true, true, 300));
    let ahs: Vec<_> = Ahs::iter(&sent.ahs).map(Result::unwrap).collect();
    assert_eq!(ahs, [Ahs::ExtendedCdb(&[7; 16]), Ahs::BidiReadLength(700)]);
    assert_eq!(sent.data, pattern(300));
    target.send_data(target.data_in(pdu.itt, 0, 0, 600));
    let response = ScsiResponse {
        residual: Residual::Underflow(20),
        bidi_read_residual: Residual::Underflow(100),
        ..target.response(pdu.itt)
    };
    target.send(response.emit(), &[]);
    let (_, response) = target.completed();
    assert_eq!(response.residual, Some(Residual::Underflow(20)));
    assert_eq!((response.read_residual, response.data_in_len), (Some(Residual::Underflow(100)), 600));
    // A CDB that no header can hold comes back.
    let endless = Command { cdb_rest: vec![0; 2000].into(), ..read(&target.pool, 2, 0, 0) };
    assert_eq!(target.session.submit(endless, target.now).unwrap_err().user, 2);
    assert_eq!(target.session.into_unfinished().len(), 0);
}
