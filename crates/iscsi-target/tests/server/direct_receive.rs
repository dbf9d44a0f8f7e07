//! Large segments are received in place. That must not lose a wake-up at their end.

use crate::common::{Initiator, Port, Target, blocks, memory};

#[test]
fn a_segment_received_in_place_may_be_the_end_of_the_stream() {
    let target = Target::over(vec![memory()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.data_out_len = 256 << 10;
    for (round, len) in [32, 64, 128, 256, 512].into_iter().enumerate() {
        let data = blocks(len, round as u8);
        initiator.write(0, 0, data.clone()).good();
        assert_eq!(initiator.read(0, 0, len as u16).good(), data);
    }
}

#[test]
fn a_segment_may_come_in_any_pieces() {
    let target = Target::over(vec![memory()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.answers_r2ts = false;
    let data = blocks(128, 9);
    let write = initiator.start_write(0, 0, data.clone(), 0);
    while initiator.r2ts.is_empty() {
        initiator.take_one();
    }
    let r2t = initiator.r2ts.remove(0);
    assert_eq!(r2t.desired_data_transfer_length as usize, data.len());
    let header = lunette_pdu::DataOut {
        final_: true,
        lun: r2t.lun,
        itt: r2t.itt,
        ttt: r2t.ttt,
        exp_stat_sn: lunette_pdu::SerialNumber(0),
        data_sn: 0,
        buffer_offset: 0,
        data_segment_len: data.len(),
    };
    let mut wire = header.emit().to_vec();
    wire.extend(&data);
    for piece in wire.chunks(9973) {
        initiator.send_bytes(piece);
    }
    initiator.finish(write).good();
    assert_eq!(initiator.read(0, 0, 128).good(), data);
}
