//! Data-Out in every order that may be negotiated (RFC 7143 sections 13.17 to 13.19).

use lunette_pdu::{DataOut, R2t, Residual, ScsiCommand, TargetPdu};
use lunette_session::keys::Offer;

use crate::harness::{Peer, Setup, data_out, pattern, solicited, write};

/// A peer of a target that agrees to any order.
fn unordered(keys: &[(&'static str, &'static str)]) -> Peer {
    let offer = Offer {
        data_pdu_in_order: false,
        data_sequence_in_order: false,
        max_outstanding_r2t: 65_535,
        ..Offer::default()
    };
    let lengths = [("InitialR2T", "No"), ("FirstBurstLength", "1024"), ("MaxBurstLength", "4096")];
    Peer::logged_in(Setup { offer, ..Setup::keys(&[&lengths, keys].concat()) }).manual()
}

const ANY_ORDER: [(&str, &str); 3] =
    [("DataPDUInOrder", "No"), ("DataSequenceInOrder", "No"), ("MaxOutstandingR2T", "5")];

/// Numbers that look random: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Mixes the PDUs of one sequence. The numbers count up in the order of sending, and F stands on the last that is sent.
fn mixed(mut pdus: Vec<DataOut>, dice: &mut Dice) -> Vec<DataOut> {
    dice.shuffle(&mut pdus);
    let last = pdus.len() - 1;
    for (at, pdu) in pdus.iter_mut().enumerate() {
        (pdu.data_sn, pdu.final_) = (at as u32, at == last);
    }
    pdus
}

fn send(peer: &mut Peer, pdu: DataOut, data: &[u8]) {
    let from = pdu.buffer_offset as usize;
    peer.data_out(pdu, &data[from..from + pdu.data_segment_len]);
}

#[test]
fn any_order_brings_the_same_bytes() {
    for seed in 1..200 {
        let mut dice = Dice(seed);
        let mut peer = unordered(&ANY_ORDER);
        let data = pattern(1 + dice.below(60_000));
        let pdu_len = 100 + dice.below(900);
        let unasked = data.len().min(1024);
        peer.command(ScsiCommand { final_: false, ..write(1, data.len() as u32) }, &[]);
        let task = peer.driver.commands[0].task;
        peer.driver.want_data(task, data.len());
        let whole = R2t { ttt: data_out(1, 0).ttt, ..r2t(1, unasked as u32) };
        for pdu in mixed(solicited(&whole, pdu_len), &mut dice) {
            send(&mut peer, pdu, &data);
        }
        let mut open: Vec<std::vec::IntoIter<DataOut>> = Vec::new();
        loop {
            for got in peer.rest() {
                let TargetPdu::R2t(r2t) = got.pdu else { panic!("{got:?}") };
                open.push(mixed(solicited(&r2t, pdu_len), &mut dice).into_iter());
            }
            if open.is_empty() {
                break;
            }
            let at = dice.below(open.len());
            match open[at].next() {
                Some(pdu) => send(&mut peer, pdu, &data),
                None => drop(open.remove(at)),
            }
        }
        assert_eq!(peer.driver.data_out, [(task, data)], "seed {seed}");
    }
}

fn r2t(itt: u32, len: u32) -> R2t {
    R2t {
        lun: data_out(itt, 0).lun,
        itt: data_out(itt, 0).itt,
        ttt: lunette_pdu::TargetTransferTag(0),
        stat_sn: lunette_pdu::SerialNumber(0),
        exp_cmd_sn: lunette_pdu::SerialNumber(0),
        max_cmd_sn: lunette_pdu::SerialNumber(0),
        r2t_sn: 0,
        buffer_offset: 0,
        desired_data_transfer_length: len,
    }
}

/// A task whose only R2T is for bytes 0..3000 has received bytes 1000..2000.
fn half_way(peer: &mut Peer) -> DataOut {
    peer.command(write(1, 3000), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 3000);
    let (r2t, _) = peer.r2t();
    let middle = solicited(&r2t, 1000)[1];
    peer.data_out(DataOut { data_sn: 0, ..middle }, &[1; 1000]);
    peer.silence();
    DataOut { data_sn: 1, ..middle }
}

#[test]
fn a_byte_comes_once_and_inside_its_sequence() {
    let cases: [(&str, u32, usize, bool, [u8; 2]); 9] = [
        ("the same again", 1000, 1000, false, [0x47, 0x05]),
        ("one byte again at the front", 1999, 500, false, [0x47, 0x05]),
        ("one byte again at the back", 0, 1001, false, [0x47, 0x05]),
        ("over all of it", 800, 1500, false, [0x47, 0x05]),
        ("one byte too far", 2000, 1001, false, [0x0c, 0x0d]),
        ("the end of the world", u32::MAX, 1000, false, [0x0c, 0x0d]),
        ("F before the first bytes have come", 2000, 1000, true, [0x0c, 0x0d]),
        ("F on nothing", 2000, 0, true, [0x0c, 0x0d]),
        ("as many bytes as asked for, some of them twice", 1000, 2000, true, [0x47, 0x05]),
    ];
    for (what, offset, len, final_, code) in cases {
        println!("{what}");
        let mut peer = unordered(&ANY_ORDER);
        let next = half_way(&mut peer);
        peer.data_out(DataOut { buffer_offset: offset, final_, ..next }, &vec![2; len]);
        let (response, sense) = peer.scsi_response();
        assert_eq!((response.status, &sense[2 + 12..2 + 14]), (2, &code[..]));
        assert_eq!(peer.driver.aborted.len(), 1);
        peer.silence();
    }
}

#[test]
fn bytes_below_a_sequence_belong_to_another() {
    let mut peer = unordered(&ANY_ORDER);
    peer.command(write(1, 8192), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 8192);
    let (_, second) = (peer.r2t(), peer.r2t().0);
    let below = DataOut { buffer_offset: second.buffer_offset - 1, ..solicited(&second, 1000)[0] };
    peer.data_out(below, &[0; 1000]);
    assert_eq!(peer.scsi_response().1[2 + 12..2 + 14], [0x47, 0x05]);
}

#[test]
fn numbers_count_in_the_order_of_sending() {
    let mut peer = unordered(&ANY_ORDER);
    let next = half_way(&mut peer);
    // The first bytes would have been number 0.
    peer.data_out(DataOut { buffer_offset: 0, data_sn: 0, ..next }, &[0; 1000]);
    assert_eq!(peer.scsi_response().1[2 + 12..2 + 14], [0x47, 0x05]);
}

#[test]
fn order_that_was_agreed_is_kept() {
    let mut peer = unordered(&[("DataPDUInOrder", "Yes"), ("DataSequenceInOrder", "No"), ("MaxOutstandingR2T", "5")]);
    peer.command(write(1, 3000), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 3000);
    let (r2t, _) = peer.r2t();
    peer.data_out(DataOut { data_sn: 0, ..solicited(&r2t, 1000)[1] }, &[1; 1000]);
    assert_eq!(peer.scsi_response().1[2 + 12..2 + 14], [0x47, 0x05]);
}

#[test]
fn gaps_in_unsolicited_data_are_asked_for() {
    let mut peer = unordered(&ANY_ORDER);
    let data = pattern(2000);
    peer.command(ScsiCommand { final_: false, ..write(1, 2000) }, &data[..100]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 2000);
    peer.data_out(DataOut { final_: false, ..data_out(1, 700) }, &data[700..900]);
    peer.silence();
    peer.data_out(DataOut { data_sn: 1, ..data_out(1, 300) }, &data[300..400]);
    let r2ts = [peer.r2t().0, peer.r2t().0, peer.r2t().0];
    let ranges = r2ts.map(|r2t| (r2t.buffer_offset, r2t.desired_data_transfer_length));
    assert_eq!(ranges, [(100, 200), (400, 300), (900, 1100)]);
    for r2t in r2ts.iter().rev() {
        peer.answer(r2t, &data, 130);
    }
    assert_eq!(peer.driver.data_out, [(task, data)]);
    let response = lunette_session::iscsi_target::Response { data_out_transfer_len: 2000, ..Default::default() };
    peer.driver.complete(task, response);
    assert_eq!(peer.scsi_response().0.residual, Residual::None);
}

#[test]
fn one_r2t_at_a_time_where_ordered_sequences_may_be_asked_for_again() {
    for (level, sequences, outstanding) in [("0", "Yes", 5), ("1", "No", 5), ("1", "Yes", 1), ("2", "Yes", 1)] {
        let offer = Offer {
            data_sequence_in_order: false,
            error_recovery_level: 2,
            max_outstanding_r2t: 5,
            ..Offer::default()
        };
        let keys = [
            ("MaxBurstLength", "4096"),
            ("ErrorRecoveryLevel", level),
            ("DataSequenceInOrder", sequences),
            ("MaxOutstandingR2T", "5"),
        ];
        let mut peer = Peer::logged_in(Setup { offer, ..Setup::keys(&keys) }).manual();
        peer.command(write(1, 40_000), &[]);
        let task = peer.driver.commands[0].task;
        peer.driver.want_data(task, 40_000);
        assert_eq!(peer.rest().len(), outstanding, "level {level}, DataSequenceInOrder={sequences}");
    }
}

#[test]
fn thousands_of_r2ts_may_be_outstanding() {
    let keys = [("MaxBurstLength", "512"), ("InitialR2T", "Yes"), ("MaxOutstandingR2T", "65535")];
    let any = [("DataPDUInOrder", "No"), ("DataSequenceInOrder", "No")];
    let offer = Offer {
        data_pdu_in_order: false,
        data_sequence_in_order: false,
        max_outstanding_r2t: 65_535,
        ..Offer::default()
    };
    let mut peer = Peer::logged_in(Setup { offer, ..Setup::keys(&[&keys[..], &any].concat()) }).manual();
    let data = pattern(10_000 * 512);
    peer.command(write(1, data.len() as u32), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, data.len());
    let mut asked = 0;
    loop {
        let mut r2ts = peer.rest();
        if r2ts.is_empty() {
            break;
        }
        asked += r2ts.len();
        Dice(7).shuffle(&mut r2ts);
        for got in r2ts {
            let TargetPdu::R2t(r2t) = got.pdu else { panic!("{got:?}") };
            peer.answer(&r2t, &data, 512);
        }
    }
    assert_eq!(asked, 10_000);
    assert_eq!(peer.driver.data_out, [(task, data)]);
}
